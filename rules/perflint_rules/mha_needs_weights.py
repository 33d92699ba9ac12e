"""Attention computes weights that nobody looks at.

## What it does
Finds calls of an `nn.MultiheadAttention` whose second result is dropped (`attn(q, k, v)[0]`, `x, _ = attn(q, k, v)`)
without `need_weights=False`.

## Why it is slow
With weights to return, torch multiplies, masks and normalises a matrix of queries by keys in memory; without them it calls
`scaled_dot_product_attention`, which never stores that matrix, neither for the backward pass.

## Example
```python
attention = nn.MultiheadAttention(64, 4)
for x, y in loader:
    out, _ = attention(x, x, x)
```

## Use instead
```python
attention = nn.MultiheadAttention(64, 4)
for x, y in loader:
    out, _ = attention(x, x, x, need_weights=False)
```

## When it stays silent
When `need_weights` is given, when the weights are used, and for classes of one's own. Where the fix needs a look, it is
reported only if the rule is selected.

## Fix safety
Unsafe: the fused kernel rounds differently (7e-8 measured), and draws other random numbers for dropout.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    Object,
    Obligation,
    Severity,
    add_keyword,
    any_layout,
    modules,
    rule,
)

_ROUNDS = Obligation(Kind.NUMBERS, "the kernel without weights rounds differently, and draws other random numbers for dropout")

_OTHERS = Obligation(Kind.UNKNOWN_CODE, "the container may hold other layers")
_DROPPED = any_layout(rb", _\w* \)? =")


@rule(
    category="memory",
    costs=Cost.MEMORY,
    severity=Severity.WARNING,
    needs=[("[0]", _DROPPED), ("attn", "attention", "mha", "Attention")],
    fixes=True,
    by_fix=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each attention whose weights are dropped."""
    for call in code.flow.calls:
        if len(call.args) + len(call.keywords) < 3 or not _drops_weights(code, call):
            continue
        if any(k.arg in (None, "need_weights") for k in call.keywords) or len(call.args) > 4:
            continue
        named = code.value(call.func).must(_is_attention)
        if not named and not _is_held(code, call.func):
            continue
        message = "a matrix of queries by keys is computed and kept for weights that nobody looks at; pass `need_weights=False`"
        missing = [_ROUNDS] if named else [_ROUNDS, _OTHERS]
        fix = code.fix("ask for no weights", _without(code, call), unless=missing)
        yield code.finding(call, message, fix, missing)


def _is_attention(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname == "torch.nn.MultiheadAttention"


def _is_held(code: Code, func: ast.expr) -> bool:
    """Whether all that is known of a container is attention: `self.layers[i]`, `for layer in self.layers`."""
    held = modules(code.facts.inference, code.scope, func)
    return bool(held) and all(map(_is_attention, held))


def _drops_weights(code: Code, call: ast.Call) -> bool:
    parent = code.flow.parent.get(call)
    match parent:
        case ast.Subscript(slice=ast.Constant(value=0)):
            return True
        case ast.Assign(targets=[ast.Tuple(elts=[_, ast.Name() as weights])]):
            definitions = code.flow.definitions_at(weights)
            return weights.id.startswith("_") and not any(code.flow.uses[d] for d in definitions)
    return False


def _without(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "need_weights", "False")
