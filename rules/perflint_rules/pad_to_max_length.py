"""Each text is padded to the longest that the model takes.

## What it does
Finds tokenizers that are called with `padding="max_length"`, and lists of tokens that are filled up to a fixed length by hand:
`ids + [pad] * (max_length - len(ids))`.

## Why it is slow
A text of 30 tokens becomes 512: the model computes seventeen times as many positions, and attention 290 times as many pairs.
`padding="longest"`, or `DataCollatorWithPadding`, pads to the longest text of the batch.

## Example
```python
for texts, y in loader:
    tokens = tokenizer(texts, padding="max_length", truncation=True)
    out = model(tokens)
```

## Use instead
```python
for texts, y in loader:
    tokens = tokenizer(texts, padding="longest", truncation=True)
    out = model(tokens)
```

## When it stays silent
When the padding is no literal, for functions that are no tokenizer by their name, for the texts that guide a diffusion model
or CLIP, which were trained on all positions, and by hand where the length is that of the longest text of a batch, in functions
that put a batch together, and for what is no text.

## Fix safety
There is no fix: programs for TPUs and compiled models need one length.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, any_layout, path_of, rule, words

_BY_HAND = any_layout(rb"- len \(")
_GUIDES = any_layout(rb"(?i:clip|diffus|unet\b|t5encoder)")
"""Models that go by all positions of a text, padded ones too, and were trained so."""
_TOKENS = re.compile(rb"token|vocab|(?:^|_|\b)ids\b|encod|mask|pad_?id", re.I | re.M)
_LIMIT = re.compile(r"max|seq_?len|length|limit|size", re.I)
_CALLED = words("tokenizer encode_plus batch_encode_plus encode tokenize processor")


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    needs=[('padding="max_length"', "padding='max_length'", _BY_HAND)],
    in_file=[("token", "processor", "encode")],
    near=[("torch", "transformers")],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each tokenizer that pads to the maximum."""
    guides = code.facts.project.holds(code.source.path, _GUIDES)
    for call in code.flow.calls if not guides else ():
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in _CALLED and not name.lower().endswith("tokenizer"):
            continue
        for given in call.keywords:
            if given.arg == "padding" and isinstance(given.value, ast.Constant) and given.value.value == "max_length":
                yield code.finding(
                    given.value,
                    'the model computes all positions up to the maximum; pad to the longest of a batch (`"longest"`)',
                )
    by_hand = next((node for node in code.flow.order if _fills_up(code, node)), None)
    if (
        by_hand is not None
        and _TOKENS.search(code.scope.text)
        and not any(part in code.scope.name.lower() for part in ("collate", "batch"))
    ):
        yield code.finding(by_hand, "the model computes all positions up to a fixed length; pad when a batch is put together")


def _fills_up(code: Code, node: ast.AST) -> bool:
    """`[pad] * (limit - len(ids))` and `[pad for _ in range(limit - len(ids))]`."""
    match node:
        case ast.BinOp(left=ast.List(elts=[_]), op=ast.Mult(), right=count):
            return _is_missing(code, count)
        case ast.ListComp(
            elt=ast.Name() | ast.Attribute() | ast.Constant(),
            generators=[ast.comprehension(iter=ast.Call(func=ast.Name(id="range"), args=[count]), ifs=[])],
        ):
            return _is_missing(code, count)
    return False


def _is_missing(code: Code, count: ast.expr) -> bool:
    """Whether a number is how much a list is shorter than a length that is the same for all texts."""
    if isinstance(count, ast.Name):
        bound = [*code.flow.reaching.get(count, ())]
        made = bound[0].value if len(bound) == 1 and bound[0].kind == "assign" and not bound[0].index else None
        return made is not None and not isinstance(made, ast.Name) and _is_missing(code, made)
    match count:
        case ast.BinOp(left=limit, op=ast.Sub(), right=ast.Call(func=ast.Name(id="len"))):
            name = path_of(limit) or ""
            computed = any(d.kind != "parameter" and isinstance(d.value, ast.Call) for d in code.flow.reaching.get(limit, ()))
            return _LIMIT.search(name.rpartition(".")[2]) is not None and not computed
    return False
