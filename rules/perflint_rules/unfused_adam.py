"""Adam steps with a kernel for each kind of arithmetic, where one kernel would do.

## What it does
Finds `Adam(...)` and `AdamW(...)` without `fused`, `foreach`, `capturable` or `differentiable`, and the `AdamW` that
transformers had, in programs that name a GPU.

## Why it is slow
Without `fused` a step on a GPU is a dozen kernels for groups of parameters, each of which reads and writes all of them;
`fused=True` is one. With a `GradScaler`, a fused optimizer also looks at overflow on the device, so the CPU no longer waits
in `scaler.step`. The `AdamW` of transformers, which later releases do not have, goes over the parameters in
Python and runs seven kernels for each: some 1,400 in each step of a BERT.

## Example
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for x, y in loader:
    criterion(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for x, y in loader:
    criterion(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
```

## When it stays silent
In programs that name no GPU, where one of these arguments is given, also through `**kwargs`, where the model is moved to the
GPU after the optimizer has been built, where nothing mentions it again, and where `target-versions` names a torch below 2.0.
There is no fix where the requirements admit one. The optimizer of transformers is reported by default if it corrects the bias
of its averages, as torch's does, something in sight moves the networks to a GPU, and no torch below 2.0 is admitted, whose own
goes over parameters one by one, too; all others only if the rule is selected.

## Fix safety
Unsafe: the fused kernel rounds differently, and parameters on the host or of an integer type raise. There is none for the
optimizer of transformers: torch's has other defaults, `weight_decay=0.01` and `eps=1e-8`, and always corrects the bias of its
averages, as `correct_bias=False` and `BertAdam` do not.
"""

import ast
import re
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, add_keyword, path_of, rule

_ADAMS = ("torch.optim.Adam", "torch.optim.AdamW")
_LOOPS = tuple(
    f"{package}{module}.{name}"
    for package in ("transformers", "pytorch_transformers", "pytorch_pretrained_bert")
    for module in ("", ".optimization")
    for name in ("AdamW", "BertAdam")
)
_FIRST = Version("2.0")
_CHOICES = frozenset(("fused", "foreach", "capturable", "differentiable"))
_ROUNDS = Obligation(Kind.NUMBERS, "the fused kernel rounds differently")


@rule(category="optimizer", costs=Cost.LAUNCH, severity=Severity.INFO, calls=[*_ADAMS, *_LOOPS], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each Adam of a GPU program that leaves the choice of kernels to torch, or that goes over parameters in Python."""
    for call in code.calls_to(*_LOOPS):
        if code.facts.project.uses_accelerator(code.source.path):
            message = "a step runs seven kernels for each parameter, one parameter after the other; "
            if _corrects_no_bias(call):
                message += "`torch.optim.AdamW` does not, but corrects its averages, as this does not"
            else:
                message += "use `torch.optim.AdamW`, with `weight_decay` and `eps` as they are here"
            yield code.finding(call, message)
    oldest = code.facts.versions.get("torch", _FIRST)
    if code.facts.target_versions.get("torch", _FIRST) < _FIRST:
        return
    for call in code.calls_to(*_ADAMS):
        if any(k.arg is None or k.arg in _CHOICES for k in call.keywords) or _is_never_stepped(code, call):
            continue
        if not code.facts.project.uses_accelerator(code.source.path) or _is_moved_later(code, call):
            continue
        message = "a step runs a dozen kernels for each group of parameters; pass `fused=True` if they are on a GPU"
        if oldest < _FIRST:
            later = f" (torch {_FIRST} has it; the project admits {oldest})"
            yield code.finding(call, message + later)
            continue
        fix = code.fix("pass `fused=True`", _fused(code, call), unless=[_ROUNDS])
        yield code.finding(call, message, fix, [_ROUNDS])


def _corrects_no_bias(call: ast.Call) -> bool:
    """Whether an optimizer leaves out what Adam does about the zeros that its averages begin with: `BertAdam` never does it."""
    return (path_of(call.func) or "").endswith("BertAdam") or any(
        k.arg == "correct_bias" and not (isinstance(k.value, ast.Constant) and k.value.value is True) for k in call.keywords
    )


def _is_never_stepped(code: Code, call: ast.Call) -> bool:
    """Whether an optimizer gets a name that nothing mentions again."""
    match code.flow.statement(call):
        case ast.Assign(targets=[ast.Name(id=name) as target], value=value) if value is call:
            mentioned = code.scope.is_module and len(re.findall(rb"\b%b\b" % name.encode(), code.source.body)) > 1
            return not mentioned and not any(code.flow.uses[d] for d in code.flow.definitions_at(target))
    return False


def _is_moved_later(code: Code, call: ast.Call) -> bool:
    """Whether a network whose parameters are handed over is on the host still."""
    given = [part.func for part in ast.walk(call.args[0]) if isinstance(part, ast.Call)] if call.args else []
    networks = {path_of(func.value) for func in given if isinstance(func, ast.Attribute) and func.attr == "parameters"}
    order = code.flow.order
    moves = [(move, move.func.value) for move in code.calls("cuda", "to") if isinstance(move.func, ast.Attribute)]
    for network in networks - {None}:
        moved = [order[move] > order[call] for move, what in moves if path_of(what) == network]
        if moved and all(moved):
            return True
    return False


def _fused(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "fused", "True")
