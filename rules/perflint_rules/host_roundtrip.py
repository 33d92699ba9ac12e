"""A device tensor is copied to the host, and what is made of it back again, in the same step.

## What it does
Finds `.cpu()` and `.numpy()` of a device tensor in code that runs each step where the copy, or an array computed from it,
becomes a tensor on the device again; and copies of a batch that the step itself has copied to the device, unchanged.

## Why it is slow
The CPU waits for the device, copies, computes on one core, and copies back, from pageable memory, which waits again: two waits
and two copies for what a kernel does where the data is.

## Example
```python
for x, y in loader:
    scores = model(x.to(device))
    ranks = np.argsort(scores.detach().cpu().numpy())
    weights = torch.from_numpy(ranks).to(device)
    (scores * weights).sum().backward()
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    scores = model(x.to(device))
    weights = torch.argsort(scores.detach())
    (scores * weights).sum().backward()
    optimizer.step()
```

## When it stays silent
When the copy does not come back in the same function, and when it is given to code that is not numpy's.

## Fix safety
There is no fix: numpy and torch differ in types, and in the order of equal elements.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, ReadKind, Severity, comes_from_host, rule, ways_back, words

_LAYOUT = words("squeeze unsqueeze view reshape flatten long float int detach")


@rule(
    category="transfer",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[(".cpu(", ".numpy(", ".tolist(", '.to("cpu"', ".to('cpu'"), ("from_numpy", "tensor(", "Tensor(", ".to(", ".cuda(")],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each copy to the host that comes back, or of what came from there."""
    for read in code.reads():
        if read.kind is not ReadKind.COPY or not code.is_hot(read.node):
            continue
        upload = _upload(code, read.tensor)
        if upload is not None:
            name = ast.unparse(read.tensor)
            message = f"`{name}` was on the host before line {upload.lineno} copied it to the device; keep the host's for this"
            yield code.finding(read.node, message, waits=[read.node])
            continue
        back = next(iter(ways_back(code.facts, code.scope, read.node)), None)
        if back is not None:
            row = back.call.lineno
            what = "nothing is computed from it meanwhile" if back.bare else "numpy computes from it meanwhile"
            message = f"`{ast.unparse(read.tensor)}` goes to the host and comes back in line {row}, {what}; stay on the device"
            yield code.finding(read.node, message, waits=[read.node])


def _upload(code: Code, tensor: ast.expr) -> ast.Call | None:
    """The copy to the device that a tensor is the result of, if nothing changes its numbers meanwhile."""
    definitions = code.flow.reaching.get(tensor, frozenset())
    if not isinstance(tensor, ast.Name) or len(definitions) != 1:
        return None
    (definition,) = definitions
    made = _part(definition.value, definition.index)
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _LAYOUT:
        made = made.func.value
    match made:
        case ast.Call(func=ast.Attribute(value=source, attr="to" | "cuda")):
            batch = comes_from_host(code.facts.inference, code.facts.loops, code.scope, source)
            return made if batch and not any(_writes(code, use) for use in code.flow.uses[definition]) else None
    return None


def _part(value: ast.expr | None, index: tuple[int | None, ...]) -> ast.expr | None:
    """What a name is bound to by `x, y = a, b`."""
    for at in index:
        if not isinstance(value, ast.Tuple) or at is None or not 0 <= at < len(value.elts):
            return None
        value = value.elts[at]
    return value


def _writes(code: Code, use: ast.expr) -> bool:
    """Whether a use of a tensor may write to it: a method that works in place, or an item that is assigned."""
    parent = code.flow.parent.get(use)
    match parent:
        case ast.Attribute(attr=name):
            return name.endswith("_") and not name.endswith("__")
        case ast.Subscript(ctx=ast.Store()) | ast.AugAssign():
            return True
    return False
