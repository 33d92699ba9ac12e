"""A clock is read before the GPU has done what is timed.

## What it does
Finds pairs of readings of a clock (`time.time()`, `time.perf_counter()`, `datetime.now()` and the like) with a forward pass on
a GPU in between, and nothing that waits for the GPU.

## Why it is an error
A forward pass only queues kernels. The second reading comes when they are queued, not when they have run: the time, or the
number of frames per second, is that of the CPU, which queues. The work that is left shows in whatever waits next, such as
`.cpu()`.

## Example
```python
import time

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
x = torch.randn(8, 64, device="cuda")
start = time.perf_counter()
out = model(x)
print("inference time:", time.perf_counter() - start)
```

## Use instead
```python
import time

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
x = torch.randn(8, 64, device="cuda")
torch.cuda.synchronize()
start = time.perf_counter()
out = model(x)
torch.cuda.synchronize()
print("inference time:", time.perf_counter() - start)
```
Also `torch.cuda.Event(enable_timing=True)`, or `torch.utils.benchmark.Timer`, which waits by itself.

## When it stays silent
When anything between the readings waits, or may: it reads a tensor, branches on one, copies it to the host, or is a function or
a layer that is not in sight. When a loop stands between them, whose passes fill the queue, and where each interval begins with
the end of the one before, so that their sum is right. Where the function calls `synchronize()` later, and so tells apart what
is queued and what is done; where nothing shows that the network is moved to a GPU; in tests; where hooks are registered. What
is timed in each step of a training is on request, as is what benchmarks alone run.

## Fix safety
There is no fix: whether the wait may stay when the program is in use is not for a rule to say.
"""

from collections.abc import Iterator

from perflint.api import (
    Code,
    Finding,
    Severity,
    any_layout,
    brief,
    is_of_mac,
    is_run_without_gpu,
    is_test,
    rule,
    timed_without_wait,
)

_HOOKS = any_layout(rb"\bregister_(?:module_)?forward_\w*hook \(")


@rule(
    category="device-sync",
    severity=Severity.INFO,
    needs=[("time(", "time_ns(", "perf_counter", "monotonic", "default_timer", "timer(", "now(")],
    near=[("cuda",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report the second reading of each pair."""
    path, project = code.source.path, code.facts.project
    if is_test(code.scope) or is_of_mac(code.facts, path) or is_run_without_gpu(code.facts, path):
        return
    for timed in timed_without_wait(code.facts, code.scope):
        if project.program_holds(path, _HOOKS):
            return
        message = (
            f"the time is taken when `{brief(timed.network)}` is queued, not when the GPU has done it; "
            f"call `torch.cuda.synchronize()` before each reading"
        )
        yield code.finding(timed.end, message)
