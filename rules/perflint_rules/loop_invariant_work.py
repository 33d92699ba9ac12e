"""The same list or set is made again in each step.

## What it does
Finds `x.tolist()`, `set(x)`, `frozenset(x)`, `list(x)`, `sorted(x)` and `np.unique(x)` in a loop that runs each step, where
nothing in the loop changes `x`.

## Why it is slow
Each goes over all of `x` and makes a Python object for each element, while the GPU waits for the next step.

## Example
```python
wanted = torch.arange(100)
for x, y in loader:
    chosen = set(wanted)
    out = model(x)
```

## Use instead
```python
wanted = torch.arange(100)
chosen = set(wanted)
for x, y in loader:
    out = model(x)
```

## When it stays silent
When the loop binds `x` or a part of it, calls a method of it or hands it to a function, for attributes of `self`, under a
guard, and for loaders and other iterators.

## Fix safety
There is no fix: the step may change what was made.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Loader, Loop, Severity, brief, call_pattern, path_of, rule, words

_MADE_OF = words("set frozenset list sorted")
_SAFE_READS = words("tolist shape size dtype device numel ndim")


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    needs=[(call_pattern("tolist", "set", "frozenset", "list", "sorted", "unique"),), ("for", "while")],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each list or set that a step loop makes of something that it does not change."""
    for call in code.calls("tolist", "unique", *_MADE_OF):
        made_of = _made_of(code, call)
        if made_of is None or (name := path_of(made_of)) is None or name.partition(".")[0] == "self":
            continue
        loop = code.step_loop(call)
        if loop is None or (code.value(made_of).open and isinstance(made_of, ast.Name) and _is_iterator(code, made_of)):
            continue
        if code.value(made_of).may_be(Loader) or not _stays(code, loop, name, call):
            continue
        yield code.finding(call, f"`{brief(call)}` is the same in each step; make it before the loop")


def _made_of(code: Code, call: ast.Call) -> ast.expr | None:
    """What a list or a set is made of, with nothing else to say how."""
    if call.keywords:
        return None
    if isinstance(call.func, ast.Attribute) and call.func.attr == "tolist" and not call.args:
        return call.func.value
    if len(call.args) != 1:
        return None
    builtin = (
        isinstance(call.func, ast.Name) and call.func.id in _MADE_OF and code.is_external(call.func, f"builtins.{call.func.id}")
    )
    return call.args[0] if builtin or code.is_external(call.func, "numpy.unique", "torch.unique") else None


def _is_iterator(code: Code, node: ast.Name) -> bool:
    """Whether a name may be something that can be gone through once: what made it is not known, or an iterator."""
    found = code.flow.reaching.get(node, ())
    makers = [d.value.func for d in found if isinstance(d.value, ast.Call)]
    return any(path_of(maker) in ("iter", "map", "filter", "zip", "enumerate", "reversed") for maker in makers)


def _stays(code: Code, loop: Loop, name: str, call: ast.Call) -> bool:
    """Whether nothing in a loop may change what a name holds."""
    flow = code.flow
    bound = {_top(d.name) for d in flow.definitions if any(block is loop.block for block in d.block.ancestry())}
    if _top(name) in bound:
        return False
    own = set(map(id, ast.walk(call)))
    for node in flow.order:
        if not isinstance(node, (ast.Name, ast.Attribute)) or id(node) in own or path_of(node) != name:
            continue
        if flow.within(node, loop.block) and not _is_read(flow.parent.get(node), node):
            return False
    return True


def _top(path: str) -> str:
    """The variable of a path such as `batch['x'].y`."""
    return path.partition(".")[0].partition("[")[0]


def _is_read(parent: ast.AST | None, node: ast.expr) -> bool:
    """Whether an element of it is taken, or a property looked at."""
    match parent:
        case ast.Subscript(value=value, ctx=ast.Load()):
            return value is node
        case ast.Attribute(attr=name):
            return name in _SAFE_READS
        case ast.Call(func=ast.Name(id="len")) | ast.Compare():
            return True
    return False
