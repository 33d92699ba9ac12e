"""A switch for finding bugs is on in every run.

## What it does
Finds `torch.autograd.set_detect_anomaly(True)`, `with torch.autograd.detect_anomaly():`, Lightning's
`Trainer(detect_anomaly=True)`, `CUDA_LAUNCH_BLOCKING=1` and `torch.backends.cudnn.enabled = False` set by the program, outside
of any condition.

## Why it is slow
Anomaly detection records a stack for each operation of the forward pass and looks for nan in each gradient.
`CUDA_LAUNCH_BLOCKING` makes each kernel launch wait until the kernel is done. Without cuDNN, convolutions and recurrent layers
run by torch's own kernels, which are there for what cuDNN does not know.

## Example
```python
torch.autograd.set_detect_anomaly(True)
```

## Use instead
```python
import sys

torch.autograd.set_detect_anomaly("--debug" in sys.argv)
```

## When it stays silent
Under a condition (but `if phase == "train"` in a loop over phases, which each run comes to), also behind
`if not debug: return`, in functions whose name says what they are for (`enable_debug_mode`) and in scripts (`debug_nan.py`),
where the value is no literal, with `fast_dev_run` or `overfit_batches`, in test suites, and where
the same function sets cuDNN's switch or the variable again: that leaves out cuDNN for a few lines, as a rule for a layer that
fails with it. Where cuDNN is left out (it has no backward pass for recurrent layers that evaluate, and no second one), where
the same code has started CUDA before it sets the variable, which is too late, and in a script that is called after what shows
or converts something (`visualize_scene.py`, `predict.py`, `export.py`; for anomaly mode, after an evaluation, too) and never
goes backward, select it to see it.

Silent, too, is `with torch.autograd.detect_anomaly():` around a backward pass, where no loop is in it, around it or around the
calls of its function: that checks one step. So does `set_detect_anomaly(True)` with `set_detect_anomaly(False)` behind it.

And where Lightning's trainer undoes it: from version 1.5 on it fits within `torch.autograd.set_detect_anomaly(...)` of its own
argument `detect_anomaly`, which is False by default, whatever the program has set before (as the sources of 1.5.0, 1.6.0,
1.9.0, 2.0.0 and 2.2.0 do and those of 1.4.9 do not; Lightning-AI/pytorch-lightning#9848). It is reported where the requirements
admit no such version, in hooks that run within, and where the program starts backward passes itself.

## Fix safety
There is no fix: somebody may be looking for a bug just now.
"""

import ast
import os
import re
from collections.abc import Iterator

from perflint.api import (
    Block,
    Code,
    Cost,
    Finding,
    Severity,
    backward_below,
    backward_in,
    goes_backward_once,
    is_run_alone,
    is_test,
    rule,
    trainer_sets_anomaly_mode,
)
from perflint_rules.debug_switches import (
    FOR_DEBUGGING,
    SWITCHES,
    VARIABLES,
    is_decided,
    is_script_for_debugging,
    is_set_again,
    is_switched_back,
    leaves_cudnn_out,
    switches_on,
    variable,
)

_TRAINER = "lightning.Trainer"
_RECORDS = "each operation records a stack for finding nan: several times the CPU time; switch it on by an option"

_STARTS_CUDA = tuple(
    f"torch.cuda.{name}" for name in ("get_device_name", "get_device_properties", "current_device", "synchronize", "init")
)
"""What initializes CUDA, which reads the variables then."""
_SHOWS = re.compile(r"(?:^(?!\w*train)|^(?!.*train).*[_-])(?:visual|plot|demo|infer|predict|export|convert)", re.I)
_EVALUATES = re.compile(rf"(?:^|[_-])(?:test|eval|sampl|generat)|{_SHOWS.pattern}", re.I)
_TRIES_OUT = {"fast_dev_run", "overfit_batches"}


@rule(
    category="autograd",
    costs=Cost.LAUNCH,
    severity=Severity.WARNING,
    needs=[("detect_anomaly", *VARIABLES, "cudnn")],
    in_file=[("torch", "lightning", *VARIABLES)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each switch that nothing decides about."""
    if FOR_DEBUGGING.search(code.scope.name) or is_test(code.scope) or is_script_for_debugging(code):
        return
    for call in code.calls_to(*SWITCHES):
        if _is_left_on(code, call):
            is_little = _never_trains(code, call, _EVALUATES) or _is_on_before(code)
            yield code.finding(call, _RECORDS, severity=_worth(code, call, is_little))
    for call in code.calls_to(_TRAINER):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        detects = "detect_anomaly" in given and code.value(given["detect_anomaly"]).literal is True
        if detects and not _TRIES_OUT & given.keys() and not is_decided(code, call):
            yield code.finding(given["detect_anomaly"], _RECORDS)
    for node in code.flow.stores:
        if leaves_cudnn_out(code, node) and not is_set_again(code, node) and not is_decided(code, node):
            message = "without cuDNN, convolutions and recurrent layers run by torch's own kernels; leave it out"
            yield code.finding(node, message, severity=Severity.INFO)
        name = variable(code, node)
        if name is not None and not is_decided(code, node) and not is_set_again(code, node):
            is_little = _is_too_late(code, node) or _never_trains(code, node, _SHOWS)
            message = f"with `{name}` each kernel launch waits for the kernel; set it where the program is started"
            yield code.finding(node, message, severity=_worth(code, node, is_little))


def _worth(code: Code, node: ast.AST, is_little: bool = False) -> Severity | None:
    """Little is lost where a module that is run tries itself out, by backward passes whose gradients nobody clears."""
    is_alone = any(map(is_run_alone, code.flow.block[node].ancestry()))
    tries = is_alone and bool(code.flow.calls_named["backward"]) and not code.flow.calls_named["zero_grad"]
    return Severity.INFO if is_little or tries else None


def _never_trains(code: Code, node: ast.AST, named: re.Pattern[str]) -> bool:
    """Whether a script has such a name, nobody imports what it does here, and nothing that it calls goes backward."""
    path = code.source.path
    if (
        named.search(os.path.basename(path)) is None
        or backward_in(code.facts, code.scope)
        or backward_below(code.facts, code.scope)
    ):
        return False
    return any(map(is_run_alone, code.flow.block[node].ancestry())) or not code.facts.project.importers(path)


def _is_on_before(code: Code) -> bool:
    """Whether the file's own top switches it on for all that runs: told there, it is told."""
    top = code.at(code.scope.module.top)
    always = (call for call in top.calls_to(SWITCHES[0]) if not code.scope.is_module and top.flow.block[call].parent is None)
    return any(_is_left_on(top, call) for call in always)


def _is_left_on(code: Code, call: ast.Call) -> bool:
    if not switches_on(code, call) or is_decided(code, call) or _is_undone(code, call):
        return False
    if isinstance(code.flow.parent.get(call), ast.withitem):
        return not goes_backward_once(code.facts, code.scope, code.flow.statement(call))
    return not is_switched_back(code, call)


def _is_undone(code: Code, call: ast.Call) -> bool:
    """Whether Lightning's trainer sets the mode anew before anything runs in it."""
    return not code.is_hot(call) and trainer_sets_anomaly_mode(code.facts, code.scope)


def _is_too_late(code: Code, node: ast.expr) -> bool:
    """Whether CUDA is in use where a variable is set, wherever there is CUDA."""
    flow = code.flow
    above = (call for call in (*code.calls_to(*_STARTS_CUDA), *code.calls("cuda")) if flow.order[call] < flow.order[node])
    return any(all(map(_runs_with_cuda, flow.block[call].ancestry())) for call in above)


def _runs_with_cuda(block: Block) -> bool:
    """Whether a stretch of code runs on each machine that has CUDA, as far as its own condition says."""
    if isinstance(block.node, ast.If):
        return block.kind == "then" and ast.unparse(block.node.test) == "torch.cuda.is_available()"
    return block.kind in ("scope", "with")
