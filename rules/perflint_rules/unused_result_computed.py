"""A tensor is computed in every step, and nobody uses it.

## What it does
Finds calls of torch's functions and of methods of tensors whose result is dropped (`torch.clamp(w, 0)` as a statement), or
bound to a name that nothing reads, in code that runs each step.

## Why it is slow
The kernels run, and autograd keeps what their backward pass needs. Where the tensor is copied to the host, the CPU waits for
the device, for nothing. What stands as a statement is often meant to change its argument, and does not.

## Example
```python
for x, y in loader:
    scores = model(x)
    torch.clamp(scores, 0, 1)
    ranks = scores.argsort().cpu()
    criterion(scores, y).backward()
```

## Use instead
```python
for x, y in loader:
    scores = model(x)
    criterion(scores, y).backward()
```

## When it stays silent
When a part of the expression may do more than compute (a network, a function of the project, random numbers), in functions
that look at their own variables, at the top of a file, and under `try`.

## Fix safety
There is no fix: perhaps the result should be used.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, External, Finding, FunctionRef, Severity, Tensor, brief, inspects_itself, operations, rule

_READS = frozenset(("cpu", "numpy", "item", "tolist"))
_CALLED = ("torch.", *(f".{name}(" for name in sorted(_READS)), ".argsort(", ".argmax(", ".softmax(")


@rule(category="device-sync", costs=Cost.LAUNCH, severity=Severity.INFO, needs=[_CALLED], steps=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each tensor that is computed for nobody."""
    if code.scope.is_module or inspects_itself(code.flow):
        return
    for call in code.flow.calls:
        statement = code.flow.parent.get(call)
        if not _is_dropped(code, statement) or not code.is_hot(call) or not _only_computes(code, call):
            continue
        if any(block.kind in ("try", "handler") for block in code.flow.block[call].ancestry()):
            continue
        what = "the CPU waits for it, and " if _waits(code, call) else ""
        name = brief(call)
        yield code.finding(call, f"`{name}` is computed in every step, {what}nobody uses it; use it, or leave it out")


def _is_dropped(code: Code, statement: ast.AST | None) -> bool:
    """Whether a statement drops what it computes, or binds it to a local name that is never read."""
    match statement:
        case ast.Expr():
            return True
        case ast.Assign(targets=[ast.Name(id=name) as target]):
            shared = name in code.flow.inner_names | code.flow.outer_names
            uses = (use for d in code.flow.definitions_at(target) for use in code.flow.uses[d])
            return not shared and all(isinstance(getattr(use, "ctx", None), ast.Del) for use in uses)
    return False


def _only_computes(code: Code, node: ast.expr, depth: int = 2) -> bool:
    """Whether an expression computes a tensor, and does nothing else. depth: how many lambdas may be followed."""
    calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    if any(isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom, ast.Lambda)) for part in ast.walk(node)):
        return False
    return all(_computes(code, call, depth) for call in calls) and any(_runs_kernel(code, call) for call in calls)


def _computes(code: Code, call: ast.Call, depth: int) -> bool:
    if any(k.arg in ("out", "inplace", None) for k in call.keywords):
        return False
    callee = code.value(call.func).single
    if isinstance(callee, External):
        package, _, name = callee.qualname.rpartition(".")
        row = operations.function(callee.qualname) if package in ("torch", "torch.nn.functional") else None
        return callee.qualname in ("builtins.len", "builtins.int", "builtins.float") or (
            row is not None and not row.random and not row.writes and not row.gradients and not name.endswith("_")
        )
    if isinstance(callee, FunctionRef):
        body = callee.scope.node.body if isinstance(callee.scope.node, ast.Lambda) else None
        return body is not None and depth > 0 and _only_computes(code.at(callee.scope), body, depth - 1)
    if not isinstance(call.func, ast.Attribute):
        return False
    row = operations.method(call.func.attr)
    known = row is not None and not row.random and not row.writes and not row.gradients
    return known and (code.value(call.func.value).must_be(Tensor) or _computes_tensor(call.func.value))


def _computes_tensor(node: ast.expr) -> bool:
    """Whether a method is one of a copy on the host: `.numpy()` of `x.cpu()`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS


def _runs_kernel(code: Code, call: ast.Call) -> bool:
    """Whether a call computes numbers, and not only a shape or a view."""
    callee = code.value(call.func).single
    if isinstance(callee, FunctionRef):
        return True  # a lambda that only computes
    if isinstance(callee, External):
        row = operations.function(callee.qualname)
    else:
        row = operations.method(call.func.attr) if isinstance(call.func, ast.Attribute) else None
    computed = row is not None and row.only_computes and not row.factory and not row.result.is_host
    return computed or _waits(code, call)


def _waits(code: Code, call: ast.Call) -> bool:
    return any(read.node in ast.walk(call) for read in code.reads())
