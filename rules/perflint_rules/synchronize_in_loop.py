"""The CPU waits for the device, or for the other processes, by an explicit call in every step.

## What it does
Finds `torch.cuda.synchronize()`, `stream.synchronize()`, `event.synchronize()`, `torch.distributed.barrier()` and the like
in code that runs each step.

## Why it is slow
The CPU queues nothing until the device has done everything: each step then takes the CPU's time and the GPU's time, one
after the other. A report of such calls speaks of 25 % (HuguesTHOMAS/KPConv-PyTorch#22).

## Example
```python
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
```

## Use instead
```python
for x, y in loader:
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
```
torch itself waits wherever the host reads a value.

## When it stays silent
Under a guard such as `step % 100 == 0`, in functions that train nothing and read a clock or an event's time or are named for
that (`Profiler`, `benchmark`), where a call is the only wait behind a copy to pinned memory, and in files that hand tensors to
MPI or CuPy. Each step's waits are counted by the sync budget; select the rule to see them one by one.

## Fix safety
There is no fix: a wait may be what makes an asynchronous copy, or a measurement, right.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Road, Severity, any_layout, relies_on_waits, rule, untimed

_AWAITS_OTHERS = re.compile(r"barrier|wait_for_everyone")
_OTHER_STREAMS = any_layout(rb"\bmpi4py\b|\bMPI\b|\bcupy\b")
"""Libraries that do not know in which order torch's streams do what they are given."""
_MEASURES = re.compile(r"profil|benchmark|stopwatch|(?:^|[._])tim(?:er|ing)|[a-z]Timer", re.I)


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[("synchronize", "barrier", "wait_for_everyone")],
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each call that does nothing but wait."""
    if code.facts.project.holds(code.source.path, _OTHER_STREAMS):
        return
    for wait in code.waits(Road.DEVICE):
        others = [call for call in code.flow.calls if call is not wait.node and not _is_wait(call)]
        if relies_on_waits(code.facts, code.scope, [call for call in others if not _moves_batch(code, call)]):
            continue
        text = ast.unparse(wait.node)
        message = f"`{text}` makes the CPU wait for all that is queued; leave it out"
        if untimed(others) is not None or _MEASURES.search(code.scope.qualname):
            if code.training_loop_of(wait.node) is None:
                continue  # a benchmark
            message = (
                f"`{text}` makes the CPU wait in every step for a clock's sake; measure every N steps, or with CUDA events"
            )
        if _AWAITS_OTHERS.search(text):
            message = f"`{text}` makes each process wait for the slowest in every step; leave it out"
        yield code.finding(wait.node, message, waits=[wait.node])


def _moves_batch(code: Code, call: ast.Call) -> bool:
    """Whether a call copies what a loop goes over: as a rule from the host, so that nobody there waits for it."""
    match call.func:
        case ast.Attribute(value=ast.Name() as batch, attr="to" | "cuda"):
            definitions = code.flow.reaching.get(batch, frozenset())
            return bool(definitions) and all(definition.kind == "for" for definition in definitions)
    return False


def _is_wait(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "synchronize"
