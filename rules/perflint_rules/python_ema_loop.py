"""A moving average of weights takes two kernels for each parameter.

## What it does
Finds loops over parameters that update one by the other (`p_ema.mul_(d).add_(p, alpha=1 - d)`, `lerp_`, `copy_`,
`shadow[name] = d * shadow[name] + (1 - d) * p`) in code that runs each step, and functions that take such an average and whose
callers are not known.

## Why it is slow
A model of 200 parameters launches 400 kernels, one after the other, and runs 400 lines of Python. `torch._foreach_mul_` and
`torch._foreach_add_` take all of them in a handful of kernels.

## Example
```python
ema = nn.Linear(4, 4).to(device)
for x, y in loader:
    criterion(model(x), y).backward()
    optimizer.step()
    for average, parameter in zip(ema.parameters(), model.parameters()):
        average.data.mul_(0.999).add_(parameter.data, alpha=0.001)
```

## Use instead
```python
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
for x, y in loader:
    criterion(model(x), y).backward()
    optimizer.step()
    ema.update_parameters(model)
```
or `perflint_runtime.ExponentialMovingAverage`.

## When it stays silent
Under a guard such as `step % 10 == 0`, once per epoch, and in loops that do something else with each parameter, too.

## Fix safety
There is no fix: other formulas round differently, and buffers and integer tensors need a loop of their own.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule, words

_SOURCES = words("parameters named_parameters values items keys state_dict named_buffers buffers")
_BLENDS = words("add_ lerp_ sub_")
_SAME_TENSOR = words("data detach clone")
_PARAMETERS = re.compile(r"param|state_dict|weight|\.data\b|\.buffers\(|shadow|[a-z]_\(")


@rule(
    category="optimizer",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("for",), (".mul_(", ".lerp_(", ".copy_(", ".add_(", "*"), ("zip(", "param", "state", ".items(", ".keys(")],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loop over parameters that moves one towards another."""
    for loop in code.flow.loops:
        statement = loop.statement
        if not isinstance(statement, ast.For):
            continue
        origin = _origin(code, statement.iter)
        work = list(_statements(statement.body))
        blends = any(map(_blends, work)) or {ast.Mult, ast.Add} <= {type(getattr(child, "op", None)) for child in work}
        if not (blends or any(map(_updates, work))) or not all(_updates(child) or _is_beside(child) for child in work):
            continue
        if not _goes_over_tensors(statement.iter, origin) or not _PARAMETERS.search(code.text(statement) + origin):
            continue
        if code.is_hot(statement.target) or (blends and _may_run_each_step(code, statement)):
            message = "each parameter takes kernels of its own; use `torch._foreach_*`, or `AveragedModel` for an average"
            yield code.finding(statement.iter, message)


def _may_run_each_step(code: Code, statement: ast.For) -> bool:
    """Whether a loop is the work of a function of its own, which nobody is known to call, or a training step now and then.

    A moving average is one over steps: it is worth its name only where it is taken often.
    """
    if code.scope.is_module or code.flow.loop(statement) is not None:
        return False
    sites, loops = code.facts.inference.callers.sites(code.scope).sites, code.facts.loops
    if sites and not any(loops.is_of_training(site.scope, site.node) for site in sites):
        return False
    return not any(block.kind in ("then", "else") for block in code.flow.block[statement].ancestry())


def _goes_over_tensors(node: ast.expr, origin: str) -> bool:
    """`zip(a.parameters(), b.parameters())`, `zip(targets, sources)`, `averages.keys()`, `self.param_keys`."""
    match node:
        case ast.Call(func=ast.Name(id="zip"), args=[_, _]):
            return True
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _SOURCES
    return _PARAMETERS.search(ast.unparse(node) if isinstance(node, ast.Attribute) else origin) is not None


def _origin(code: Code, iterated: ast.expr) -> str:
    """The text that gives a loop what it goes over: `dict(model.named_parameters())` of `averages.keys()`."""
    names = [node for node in ast.walk(iterated) if isinstance(node, ast.Name)]
    found = [d.value for name in names for d in code.flow.reaching.get(name, ()) if d.value is not None]
    return " ".join(map(code.text, found))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs for a parameter, also within `with torch.no_grad()` and for those of one kind only."""
    for statement in body:
        match statement:
            case ast.With(body=inner) | ast.If(body=inner, orelse=[]):
                yield from _statements(inner)
            case ast.If(body=inner, orelse=other):
                yield from _statements([*inner, *other])
            case ast.Continue() | ast.Pass() | ast.Expr(value=ast.Constant()) | ast.Assert():
                pass
            case _:
                yield statement


def _updates(statement: ast.stmt) -> bool:
    """`p.copy_(q)`, `p.data = q`, or a blend."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="copy_"))) | ast.Assign(targets=[ast.Attribute(attr="data")]):
            return True
    return _blends(statement)


def _is_beside(statement: ast.stmt) -> bool:
    """What may stand beside an update: `p *= d`, and another name for a tensor (`q = msd[name].detach()`)."""
    match statement:
        case ast.AugAssign(op=ast.Add() | ast.Sub() | ast.Mult()) | ast.Expr(value=ast.Call(func=ast.Attribute(attr="mul_"))):
            return True
    if not isinstance(statement, ast.Assign):
        return False
    computes = [node for node in ast.walk(statement) if isinstance(node, (ast.BinOp, ast.Await))]
    if not all(isinstance(node, ast.BinOp) and isinstance(getattr(node.left, "value", None), str) for node in computes):
        return False  # `name = "module." + name` is a name yet
    calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
    return all(isinstance(call.func, ast.Attribute) for call in calls)


def _blends(statement: ast.stmt) -> bool:
    """`p.mul_(d).add_(q)`, `p.copy_(d * p + (1 - d) * q)`, `mean[name] = d * mean[name] + (1 - d) * q`."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target, attr="copy_"), args=[value, *_])):
            return _is_blend(target, value)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in _BLENDS
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=value):
            return _is_blend(target, value)
    return False


def _is_blend(target: ast.expr, value: ast.expr) -> bool:
    """Whether a value is a sum of products that the target is part of."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME_TENSOR:
        value = value.func.value
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Add, ast.Sub)):
        return False
    parts = [node for node in ast.walk(value) if isinstance(node, ast.expr)]
    factors = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) for node in parts)
    return factors and ast.unparse(_tensor(target)) in {ast.unparse(_tensor(part)) for part in parts}


def _tensor(node: ast.expr) -> ast.expr:
    """What holds the numbers: `p` of `p.data` and of `p.detach()`."""
    match node:
        case ast.Attribute(value=inner, attr="data"):
            return _tensor(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[]) if name in _SAME_TENSOR:
            return _tensor(inner)
    return node
