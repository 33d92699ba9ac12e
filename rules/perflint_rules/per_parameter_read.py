"""The CPU waits for the device once for each parameter.

## What it does
Finds reads of device values (`.item()`, `.cpu()`, a condition on a tensor) in a loop over the parameters of a model that runs
each step: gradient norms, checks for nan, histograms.

## Why it is slow
A model of 200 parameters waits 200 times per step, and computes one small kernel between two waits. A few kernels over all of
them, and one read, say the same: `torch.nn.utils.get_total_norm` (torch 2.6), the norm that `clip_grad_norm_` returns, or
`torch.stack` of all norms.

## Example
```python
for x, y in loader:
    criterion(model(x.to(device)), y.to(device)).backward()
    for p in model.parameters():
        if torch.isnan(p.grad).any():
            raise RuntimeError("nan")
    optimizer.step()
```

## Use instead
```python
for step, (x, y) in enumerate(loader):
    criterion(model(x.to(device)), y.to(device)).backward()
    if step % 100 == 0:
        norm = torch.nn.utils.get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
        if torch.isnan(norm):
            raise RuntimeError("nan")
    optimizer.step()
```

## When it stays silent
Under a guard such as `step % 100 == 0`, once per epoch, for whole copies, in an optimizer, whose steps may differ for each
parameter, for parameters that are picked by their names, and for reads that only feed a total of many steps, which
item-every-step reports and mends. Each step's waits are counted by the sync budget, which says so of each parameter; select the
rule to see them one by one: of those that readers found in real training code, a third were a measurable part of a step.

## Fix safety
Norms that are joined are rounded in another order: that is for you. Where fixes may import the runtime (`runtime = true`), a
total or a list of what is read becomes an `ItemSum` or a `HostList`, as `item-every-step` writes them: the numbers are the
same, to the last bit, and the CPU waits for them once, where somebody looks.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    IDLE_SINKS,
    Code,
    Cost,
    Finding,
    HostRead,
    Rate,
    ReadKind,
    Severity,
    Sink,
    goes_over_parameters,
    is_optimizer_class,
    rate_of,
    rule,
)
from perflint_rules.kept_reads import kept, kept_over_parameters


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[
        ("parameters", "param_groups", "state_dict(", "params", "param_list"),
        ("for",),
        ("if", "assert", ".item(", ".cpu(", ".numpy(", ".tolist(", "math.", "float("),
    ],
    steps=True,
    fixes=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report the first wait in each loop over parameters."""
    if not any(map(goes_over_parameters, code.flow.loops)):
        return
    owner = code.scope.owner
    if owner is not None and is_optimizer_class(code.facts.inference, owner):
        return  # each parameter has a learning rate of its own
    seen: set[ast.AST] = set()
    for read in sorted((*code.reads(), *code.truths()), key=lambda read: code.flow.order[read.node]):
        loop = code.flow.loop(read.node)
        if loop is None or not code.is_hot(read.node):
            continue
        late = kept_over_parameters(code, read) if read.kind is not ReadKind.TRUTH else None
        if late is not None:
            missing = [*late.missing()]
            cure = "read them behind the loop, with one wait"
            message = f"the CPU waits for `{ast.unparse(read.tensor)}` of each parameter in every step; {cure}"
            yield code.finding(read.node, message, code.fix(cure, late.parts(), unless=missing), missing, waits=[read.node])
            continue
        if loop.node in seen or _is_told_elsewhere(code, read) or _is_of_named(code, read):
            continue
        if read.kind is ReadKind.COPY:
            continue  # a file, a snapshot or a network on the host gets each of them
        if rate_of(code.facts, code.scope, read.node) is Rate.PER_PARAMETER:
            seen.add(loop.node)
            message = f"the CPU waits for `{ast.unparse(read.tensor)}` of each parameter in every step; {_cure(code, read)}"
            yield code.finding(read.node, message, waits=[read.node])


def _cure(code: Code, read: HostRead) -> str:
    if read.kind is not ReadKind.TRUTH and not code.sinks(read.node).isdisjoint((Sink.STORE, Sink.COLLECT)):
        return "stack them, and read them with one wait"
    if ".grad" in ast.unparse(read.tensor) and any(code.calls("clip_grad_norm_")):
        return "`clip_grad_norm_`, which runs here, too, returns one number for all"
    return "compute one number for all"


def _is_of_named(code: Code, read: HostRead) -> bool:
    """`for name, p in model.named_parameters(): if "embedding" in name: ...`: a few parameters, perhaps one."""
    loop = code.flow.loop(read.node)
    if loop is None or isinstance(loop.node, ast.While):
        return False
    bound = {part.id for part in ast.walk(loop.node.target) if isinstance(part, ast.Name)}
    tests = (block.node.test for block in code.flow.block[read.node].ancestry() if isinstance(block.node, ast.If))
    compared = (part for test in tests for part in ast.walk(test) if isinstance(part, ast.Compare))
    picks = (part for part in compared if isinstance(part.ops[0], ast.In | ast.Eq))
    return any(isinstance(part, ast.Name) and part.id in bound for pick in picks for part in ast.walk(pick))


def _is_told_elsewhere(code: Code, read: HostRead) -> bool:
    """Whether item-every-step reports the read: nothing in the step needs it, and it can stay on the device."""
    sinks = code.sinks(read.node) if read.kind is not ReadKind.TRUTH else frozenset()
    return bool(sinks) and sinks <= IDLE_SINKS | {Sink.RETURN} and kept(code, read) is not None
