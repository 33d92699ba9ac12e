"""A logger is called in every step.

## What it does
Finds calls of `add_scalar`, `add_histogram`, `add_image`, `wandb.log`, `set_postfix` and the like in the loop over batches
that no condition guards, and `self.log(..., sync_dist=True)` in `training_step`.

## Why it is slow
Each call formats, locks and writes; `set_postfix` redraws the bar each time unless it gets `refresh=False`; `add_histogram`
copies the whole tensor to the host; `sync_dist=True` makes all processes meet for one number. A thousand points per epoch
show no more than a hundred.

## Example
```python
from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter()

def train(model, loader, optimizer, criterion):
    for step, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", loss, step)
```

## Use instead
```python
from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter()

def train(model, loader, optimizer, criterion):
    for step, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            writer.add_scalar("loss", loss, step)
```

## When it stays silent
Under a condition such as `step % 100 == 0`, in evaluation loops, once per epoch, and for `set_postfix(..., refresh=False)`.

## Fix safety
There is no fix: what is shown, and how often, is for you to say.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, External, Finding, LoopKind, Severity, argument, is_conditional, rule, words

_WRITERS = words(
    "add_scalar add_scalars add_histogram add_image add_images add_figure add_embedding add_video log_metrics log_scalar"
)
_SERVICES = words("wandb.log mlflow.log_metric mlflow.log_metrics")


@rule(
    category="device-sync",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[tuple(sorted({*(f"{name}(" for name in _WRITERS), ".set_postfix(", "wandb.log(", "mlflow.log_", "sync_dist=True"}))],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each call of a logger that nothing guards."""
    for call in code.flow.calls:
        if not isinstance(call.func, ast.Attribute):
            continue
        name = call.func.attr
        if name == "log" and code.scope.name == "training_step" and _is_true(argument(call, None, "sync_dist")):
            yield code.finding(
                call, "all processes meet for one number in every step; leave `sync_dist=True` out, or log per epoch"
            )
        elif _logs(code, call, name) and _runs_each_step(code, call):
            yield code.finding(call, f"`{ast.unparse(call.func)}` runs in every step; call it every N steps")


def _logs(code: Code, call: ast.Call, name: str) -> bool:
    if name == "set_postfix":
        refresh = argument(call, None, "refresh")
        return refresh is None or _is_true(refresh)
    if name in _WRITERS:
        return True
    return name in ("log", "log_metric", "log_metrics") and code.value(call.func).may(
        lambda a: isinstance(a, External) and a.qualname in _SERVICES
    )


def _runs_each_step(code: Code, call: ast.Call) -> bool:
    """Whether a call stands in a training loop, under no condition."""
    loop = code.step_loop(call)
    if loop is None or code.step_loops().get(loop) is not LoopKind.TRAIN:
        return False
    for block in code.flow.block[call].ancestry():
        if block is loop.block:
            return True
        if block.kind in ("then", "else", "handler", "case"):
            return False
    return not is_conditional(code.scope, call)


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
