"""A forward pass builds the same constant again each time.

## What it does
Finds `torch.tril(torch.ones(n, n))`, `torch.triu(...)`, `torch.arange(n)`, `torch.linspace`, `torch.eye`, windows and indices
of triangles in code that runs each step, where all arguments are constants, or attributes that only `__init__` sets. Also
tensors of one number that are filled on the device for a loss to compare with (the labels of a discriminator:
`torch.ones(n, 1, device=device)`), for `grad_outputs=`, or for a recurrent cell to begin with, whatever their size.

## Why it is slow
One kernel or several fill memory with the numbers of the last time, and without `device=` they are copied to the GPU, too. A
buffer is built once, and moves with the module.

## Example
```python
class Attention(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length

    def forward(self, scores):
        mask = torch.tril(torch.ones(self.length, self.length))
        return scores * mask.to(scores.device)
```

## Use instead
```python
class Attention(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(length, length)), persistent=False)

    def forward(self, scores):
        return scores * self.mask
```

## When it stays silent
When an argument depends on the input (a shape), under a condition such as a cache, where a loop goes over it, where the code
writes to it, and outside of code that runs each step. What is filled on the host is `factory-then-transfer`'s, states of whole
recurrent layers are `rnn-explicit-zero-state`'s.

## Fix safety
There is no fix: a buffer, or the part of a larger tensor that a smaller batch takes, is shared, so nobody may write to it.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Definition, Finding, Literal, Option, Severity, flow_of, is_conditional, path_of, rule
from perflint_rules.filled_constants import FILLED, filled_each_step

_METHODS = Option("forward-methods", (), "Names of further methods that count as a forward pass")
_TRIANGLES = ("torch.tril", "torch.triu")
_FILLS = ("torch.ones", "torch.zeros", "torch.full")
_CONSTANTS = (
    *("torch.arange", "torch.linspace", "torch.logspace", "torch.eye", "torch.tril_indices", "torch.triu_indices"),
    *("torch.hann_window", "torch.hamming_window", "torch.blackman_window", "torch.kaiser_window", "torch.bartlett_window"),
)


@rule(
    category="memory",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    calls=[*_TRIANGLES, *_CONSTANTS, *FILLED],
    options=[_METHODS],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each tensor whose numbers are the same each time."""
    for call in code.calls_to(*_TRIANGLES, *_CONSTANTS):
        sizes = _sizes(code, call)
        if not sizes or not all(_is_constant(code, size) for size in sizes):
            continue
        runs = code.is_hot(call) or code.scope.name in code.option(_METHODS)
        if runs and not is_conditional(code.scope, call) and not _is_used_up(code, call):
            what = "mask" if code.is_external(call.func, *_TRIANGLES) else "constant"
            yield code.finding(call, f"the same {what} is built in every step; register it as a buffer once")
    for call, use in filled_each_step(code):
        message = f"{use} is filled with the same number in every step; fill it once, and take a part of it"
        yield code.finding(call, message)


def _sizes(code: Code, call: ast.Call) -> list[ast.expr]:
    """What a constant is made of: all arguments but its type and place; nothing where others are handed on."""
    filled: ast.expr = call
    if code.is_external(call.func, *_TRIANGLES):
        filled = call.args[0] if call.args else call
        if not isinstance(filled, ast.Call) or not code.is_external(filled.func, *_FILLS) or not filled.args:
            return []
        return filled.args
    given = [
        *call.args,
        *(k.value for k in call.keywords if k.arg in ("start", "end", "step", "steps", "n", "m", "row", "col")),
    ]
    return [] if any(k.arg is None for k in call.keywords) else given


def _is_used_up(code: Code, call: ast.Call) -> bool:
    """Whether a loop goes over it, or the code writes to it by a name that it gets."""
    flow = code.flow
    if any(loop.iterated is not None and any(part is call for part in ast.walk(loop.iterated)) for loop in flow.loops):
        return True
    statement = flow.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    names = {path_of(target) for target in targets} - {None}
    written = {path_of(node.value) for node in flow.stores if isinstance(node, ast.Subscript)}
    changed = {path_of(node.target) for node in flow.order if isinstance(node, ast.AugAssign)}
    inplace = {
        path_of(c.func.value)
        for c in flow.calls
        if isinstance(c.func, ast.Attribute) and c.func.attr.endswith("_") and not c.func.attr.startswith("_")
    }
    return bool(names & (written | changed | inplace)) or any(isinstance(target, ast.Attribute) for target in targets)


def _is_constant(code: Code, node: ast.expr) -> bool:
    """Whether a size is a number, an attribute of `self` that stays, or made of these."""
    match node:
        case ast.Constant() | ast.Call(func=ast.Name(id="float"), args=[ast.Constant()]):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_constant(code, operand)
        case ast.Name():
            found = code.flow.reaching.get(node, frozenset())
            if not found:
                return code.value(node).must(lambda a: isinstance(a, Literal))
            return all(_binds_constant(code, definition) for definition in found)
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            methods = code.scope.owner.methods_assigning(name) if code.scope.owner is not None else ()
            later = (store for m in methods if m.name != "__init__" for store in flow_of(m).stores)
            return not code.flow.reaching.get(node) and not any(getattr(store, "attr", None) == name for store in later)
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")), attr=name):
            return name not in ("shape", "size")
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(_is_constant(code, part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return _is_constant(code, left) and _is_constant(code, right)
    return False


def _binds_constant(code: Code, definition: Definition) -> bool:
    """Whether a name gets a constant: alone, or at its place in `low, high = 0, self.high`."""
    value = definition.value
    if definition.kind != "assign" or value is None or definition.block.loop is not None:
        return False
    if len(definition.index) == 1 and isinstance(value, ast.Tuple) and isinstance(definition.index[0], int):
        value = value.elts[definition.index[0]] if definition.index[0] < len(value.elts) else value
    elif definition.index:
        return False
    return not isinstance(value, ast.Name) and _is_constant(code, value)
