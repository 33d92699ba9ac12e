"""A moving average of weights takes two kernels for each parameter.

## What it does
Finds loops over parameters that update one by the other (`p_ema.mul_(d).add_(p, alpha=1 - d)`, `lerp_`, `copy_`,
`shadow[name] = d * shadow[name] + (1 - d) * p`), also by a method that is called for each (`ema.update(name, p)`), in code that
runs each step, and functions that take such an average and whose callers are not known. So does the `update_parameters` of an
`AveragedModel` that was given `avg_fn=`: with `multi_avg_fn=` it takes all at once.

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
or `perflint_runtime.ExponentialMovingAverage`. Where fixes may import the runtime (`runtime = true`), a loop that copies a
weighted sum into one of two networks becomes
```python
blend_parameters(net.parameters(), target.parameters(), lambda: (tau, 1 - tau), into=1)
```

## When it stays silent
Under a guard such as `step % 10 == 0`, once per epoch, in loops that do something else with each parameter, too, and for the
parameters that the `step` of an optimizer goes over. Where it is not known that each step of a training does it, in programs
that name no device or are run without a GPU, where nothing in sight moves the networks to one, where gradients are what is
added, and for agents that step an environment and have networks of a few dense layers (ten parameters, beside an update of
hundreds of kernels), it is reported only if the rule is selected.

## Fix safety
Safe, with the runtime, for `q.data.copy_(x * p.data + y * q.data)` over a `zip` of two: `blend_parameters` multiplies and adds
the same numbers, of ordinary float32 and float64 parameters on CUDA all at once, and of whatever else comes one by one, as
written. What gives `x` and `y` is asked for once: it must do nothing else, call nothing and read no item. That the bits are
the same was tested on the CPU, with the fast way switched on there; nothing has been run on CUDA yet. No fix for other
formulas, which torch may round differently for many tensors (`mul_(d).add_(p, alpha=1 - d)`), and where something else is done
in the loop.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    Code,
    Cost,
    Finding,
    Object,
    Severity,
    argument,
    is_optimizer_class,
    rule,
    words,
)
from perflint_rules.blended_parameters import blended
from perflint_rules.work_on_parameter import WorkOnParameter

_SOURCES = words("parameters named_parameters values items keys state_dict named_buffers buffers")
_PARAMETERS = re.compile(r"param|state_dict|weight|\.data\b|\.buffers\(|shadow|(?:mul|add|lerp)_\(")
_LONGEST = 10
"""How many statements an average of one parameter takes at most, in a method that the loop calls."""


@rule(
    category="optimizer",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[
        ("for", "update_parameters("),
        (".mul_(", ".lerp_(", ".copy_(", ".add_(", "*", ".update(", "update_parameters("),
        ("zip(", "param", "state", ".items(", ".keys("),
    ],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loop over parameters that moves one towards another."""
    owner = code.scope.owner
    steps = owner is not None and code.scope.name == "step" and is_optimizer_class(code.facts.inference, owner)
    for loop in code.flow.loops:
        statement = loop.statement
        if not isinstance(statement, ast.For) or (steps and isinstance(statement.iter, ast.Subscript)):
            continue  # the averages of an optimizer are of gradients: optimizer-foreach-off says so
        origin = _origin(code, statement.iter)
        if not _goes_over_tensors(statement.iter, origin) or not _PARAMETERS.search(code.text(statement) + origin):
            continue
        work = WorkOnParameter(_statements(_called(code, statement.body)))
        if not work.updates:
            continue
        hot = code.is_hot(statement.target)
        if hot or (work.blends and _may_run_each_step(code, statement)):
            cure = "use `torch._foreach_*`, or `AveragedModel` for an average" if work.blends else "use `torch._foreach_copy_`"
            message = f"each parameter takes kernels of its own; {cure}"
            fix, missing = blended(code, statement)
            yield code.finding(statement.iter, message, fix, missing)
    for call in code.calls("update_parameters"):
        averaged = call.func.value if isinstance(call.func, ast.Attribute) else None
        if averaged is not None and code.value(averaged).may(_averages_one_by_one) and code.is_hot(call):
            message = "`avg_fn` takes kernels of its own for each parameter; give `AveragedModel` a `multi_avg_fn`"
            yield code.finding(call, message)


def _averages_one_by_one(alternative: Alternative) -> bool:
    """Whether a value is an `AveragedModel` with a function for one parameter."""
    match alternative:
        case Object("torch.optim.AveragedModel", site=(_, ast.Call() as built)) if not argument(built, 3, "multi_avg_fn"):
            given = argument(built, 2, "avg_fn")
            return given is not None and not isinstance(given, ast.Constant)
    return False


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


def _called(code: Code, body: list[ast.stmt]) -> list[ast.stmt]:
    """What a loop runs for each parameter, where that is a call of a method: `average.update(name, parameter)`."""
    match body:
        case [ast.If(body=inner, orelse=[])] | [ast.With(body=inner)]:
            return _called(code, inner)
        case [ast.Expr(value=ast.Call(args=[_, *_]) as call)]:
            targets = code.facts.loops.targets(code.scope, call)
            if len(targets) == 1 and isinstance(targets[0].node, ast.FunctionDef) and len(targets[0].node.body) <= _LONGEST:
                return targets[0].node.body
    return body
