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

Where it is given a tensor of the device, it waits for it in each step.

## When it stays silent
Under a condition such as `step % 100 == 0`, in evaluation loops, once per epoch, for logarithms (`torch.log`), and for
`set_postfix(..., refresh=False)`. Each step's waits are counted by the sync budget; select the rule to see them one by one.

## Fix safety
There is no fix: what is shown, and how often, is for you to say.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, External, Finding, Heat, LoopKind, Option, Severity, argument, rule, words
from perflint_rules.idle_device import adds_up_reads
from perflint_rules.project_loggers import reads_what_it_gets

_OF_TENSORBOARD = words("add_scalar add_scalars add_histogram add_image add_images add_figure add_embedding add_video")
_WRITERS = _OF_TENSORBOARD | words("log_metrics log_scalar")
_VALUES = words("log_value log_histogram log_images")
"""Functions of tensorboard_logger, which take a name first; others mean a logarithm by that."""
_PERIOD = Option("period", 1, "A call that `step % n == 0` guards counts as one in every step where n is smaller than this")
_OWN = words("log logkv logkv_mean record log_loss_dict")
_METERS = words("update log add logkv logkv_mean record log_metrics add_value put")
_WHO = re.compile(r"rank|wandb|writer|tensorboard|logger|is_main|is_master", re.I)
_SERVICES = words("wandb.log mlflow.log_metric mlflow.log_metrics")
_EVALUATIONS = words("validation_step test_step predict_step")
_LOGARITHMS = words("torch.log numpy.log math.log cupy.log jax.numpy.log")


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    in_budget=True,
    severity=Severity.WARNING,
    options=[_PERIOD],
    needs=[
        (
            *sorted(f"{name}(" for name in _WRITERS | _VALUES),
            *sorted(f".{name}(" for name in _OWN | _METERS),
            *("log_loss_dict(", ".set_postfix(", "mlflow.log_", "sync_dist=True"),
        )
    ],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each call of a logger that nothing guards."""
    for call in code.flow.calls:
        match call.func:
            case ast.Attribute(attr=name):
                pass
            case ast.Name(id=name) if name.startswith("log_"):
                pass
            case _:
                continue
        if name == "log" and code.scope.name == "training_step" and _is_true(argument(call, None, "sync_dist")):
            message = "all processes meet for one number in every step; leave `sync_dist=True` out, or log per epoch"
            yield code.finding(call, message)
        elif _logs(code, call, name) and _runs_each_step(code, call):
            happens = "waits for what the device computes" if _waits(code, call) else "runs"
            message = f"`{ast.unparse(call.func)}` {happens} in every step; call it every N steps"
            yield code.finding(call, message)
        elif name in _METERS and reads_what_it_gets(code, call) and _runs_each_step(code, call):
            message = f"`{ast.unparse(call.func)}` reads each tensor that it gets in every step; call it every N steps"
            yield code.finding(call, f"{message}, or let it keep tensors until they are shown")


def _waits(code: Code, call: ast.Call) -> bool:
    """Whether a logger reads tensors of the device by itself: what is read where it stands is for other rules."""
    if not any(code.may_be_on_device(given) and not adds_up_reads(code, given) for given in _given(call)):
        return False
    return not any(read.node in ast.walk(call) for read in code.reads())


def _logs(code: Code, call: ast.Call, name: str) -> bool:
    """Whether a call writes to a log: one of a known logger, or one that is given a tensor of the device."""
    if name == "set_postfix":
        refresh = argument(call, None, "refresh")
        return refresh is None or _is_true(refresh)
    if name in _WRITERS:
        return True
    if name in _VALUES:
        return len(call.args) > 1 and isinstance(call.args[0], (ast.Constant, ast.JoinedStr))
    if name in _OWN and ast.unparse(call.func) != "self.log" and any(code.may_be_on_device(given) for given in _given(call)):
        return not _is_one_of(code, call, _LOGARITHMS)
    return name in ("log", "log_metric", "log_metrics") and _is_one_of(code, call, _SERVICES)


def _is_one_of(code: Code, call: ast.Call, functions: frozenset[str]) -> bool:
    return code.value(call.func).may(lambda a: isinstance(a, External) and a.qualname in functions)


def _given(call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call, and the values of dicts among them."""
    for given in (*call.args, *(k.value for k in call.keywords)):
        yield from given.values if isinstance(given, ast.Dict) else [given]


def _runs_each_step(code: Code, call: ast.Call) -> bool:
    """Whether a call runs in each step of a training, under no condition but settings, and one about who logs."""
    often = any(_is_often(code, getattr(block.node, "test", None)) for block in code.flow.block[call].ancestry())
    if (
        code.heat is Heat.FORWARD
        or code.scope.name in _EVALUATIONS
        or not (code.is_hot(call) or often or _is_in_a_step(code, call))
    ):
        return False
    loop = code.around(call) if often else code.step_loop(call)
    if loop is not None and code.step_loops().get(loop) is not LoopKind.TRAIN:
        return False
    for block in code.flow.block[call].ancestry():
        if loop is not None and block is loop.block:
            return True
        if block.kind in ("then", "else", "handler", "case"):
            test = getattr(block.node, "test", None)
            if test is None or not (isinstance(test, ast.Attribute) or _WHO.search(ast.unparse(test)) or _is_often(code, test)):
                return False
    return True


def _is_often(code: Code, test: ast.expr | None) -> bool:
    """`step % 5 == 0` for a number that is smaller than the period that a user has set."""
    match test:
        case ast.Compare(left=ast.BinOp(op=ast.Mod(), right=ast.Constant(value=int(n))), ops=[ast.Eq()]):
            return n < code.option(_PERIOD)
    return False


def _is_in_a_step(code: Code, call: ast.Call) -> bool:
    """Whether a call stands in a function that is one step itself: it runs a backward pass, and all of it outside of loops."""
    return code.flow.loop(call) is None and any(code.flow.loop(backward) is None for backward in code.calls("backward"))


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
