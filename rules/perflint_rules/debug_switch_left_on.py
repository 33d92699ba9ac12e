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
Under a condition, in functions whose name says what they are for (`enable_debug_mode`), where the value is no literal, with
`fast_dev_run`, in test suites, and where the same function sets cuDNN's switch again: that leaves out cuDNN for a few lines,
as a rule for a layer that fails with it. Where cuDNN is left out (it has no backward pass for recurrent layers that evaluate,
and no second one), where the same code has started CUDA before it sets the variable, which is too late, and in a script that is
called after what shows or converts something (`visualize_scene.py`, `predict.py`, `export.py`; for anomaly mode, after an
evaluation, too) and never goes backward, select it to see it.

Silent, too, is `with torch.autograd.detect_anomaly():` around a backward pass, where no loop is in it, around it or around the
calls of its function: that checks one step.

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
    argument,
    backward_below,
    backward_in,
    goes_backward_once,
    is_run_alone,
    is_test,
    rule,
    trainer_sets_anomaly_mode,
)

_SWITCHES = ("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly")
_TRAINER = "lightning.Trainer"
_RECORDS = "each operation records a stack for finding nan: several times the CPU time; switch it on by an option"
_VARIABLES = ("CUDA_LAUNCH_BLOCKING",)

_STARTS_CUDA = tuple(
    f"torch.cuda.{name}" for name in ("get_device_name", "get_device_properties", "current_device", "synchronize", "init")
)
"""What initializes CUDA, which reads the variables then."""
_SHOWS = re.compile(r"(?:^(?!\w*train)|^(?!.*train).*[_-])(?:visual|plot|demo|infer|predict|export|convert)", re.I)
_EVALUATES = re.compile(rf"(?:^|[_-])(?:test|eval|sampl|generat)|{_SHOWS.pattern}", re.I)
_FOR_DEBUGGING = re.compile(r"debug|anomal|detect_nan", re.I)


@rule(
    category="autograd",
    costs=Cost.LAUNCH,
    severity=Severity.WARNING,
    needs=[("detect_anomaly", *_VARIABLES, "cudnn")],
    in_file=[("torch", "lightning", *_VARIABLES)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each switch that nothing decides about."""
    if _FOR_DEBUGGING.search(code.scope.name) or is_test(code.scope):
        return
    for call in code.calls_to(*_SWITCHES):
        if _is_left_on(code, call):
            is_little = _never_trains(code, call, _EVALUATES) or _is_on_before(code)
            yield code.finding(call, _RECORDS, severity=_worth(code, call, is_little))
    for call in code.calls_to(_TRAINER):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        detects = "detect_anomaly" in given and code.value(given["detect_anomaly"]).literal is True
        if detects and "fast_dev_run" not in given and not _is_decided(code, call):
            yield code.finding(given["detect_anomaly"], _RECORDS)
    for node in code.flow.stores:
        if _leaves_cudnn_out(code, node) and not _is_set_again(code, node) and not _is_decided(code, node):
            message = "without cuDNN, convolutions and recurrent layers run by torch's own kernels; leave it out"
            yield code.finding(node, message, severity=Severity.INFO)
        name = _variable(code, node)
        if name is not None and not _is_decided(code, node):
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
    always = (call for call in top.calls_to(_SWITCHES[0]) if not code.scope.is_module and top.flow.block[call].parent is None)
    return any(_is_left_on(top, call) for call in always)


def _is_left_on(code: Code, call: ast.Call) -> bool:
    if not _switches_on(code, call) or _is_decided(code, call) or _is_undone(code, call):
        return False
    is_scoped = isinstance(code.flow.parent.get(call), ast.withitem)
    return not (is_scoped and goes_backward_once(code.facts, code.scope, code.flow.statement(call)))


def _switches_on(code: Code, call: ast.Call) -> bool:
    mode = argument(call, 0, "mode")
    return code.value(mode).literal is True if mode is not None else isinstance(code.flow.parent.get(call), ast.withitem)


def _is_undone(code: Code, call: ast.Call) -> bool:
    """Whether Lightning's trainer sets the mode anew before anything runs in it."""
    return not code.is_hot(call) and trainer_sets_anomaly_mode(code.facts, code.scope)


def _variable(code: Code, node: ast.expr) -> str | None:
    """The environment variable that an assignment sets to "1"."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))) if name in _VARIABLES:
            statement = code.flow.statement(node)
            if isinstance(statement, ast.Assign) and code.value(statement.value).literal == "1":
                return name
    return None


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


def _leaves_cudnn_out(code: Code, node: ast.expr) -> bool:
    """`torch.backends.cudnn.enabled = False`."""
    statement = code.flow.statement(node)
    named = isinstance(node, ast.Attribute) and node.attr == "enabled" and code.is_external(node.value, "torch.backends.cudnn")
    return named and isinstance(statement, ast.Assign) and code.value(statement.value).literal is False


def _is_set_again(code: Code, node: ast.expr) -> bool:
    """Whether a later statement of the same code gives the attribute another value."""
    order, target = code.flow.order, ast.unparse(node)
    later = (store for store in code.flow.stores if order[store] > order[node])
    return any(ast.unparse(store) == target and not _leaves_cudnn_out(code, store) for store in later)


def _is_decided(code: Code, node: ast.AST) -> bool:
    """Whether a condition other than `if __name__ == "__main__"` stands above."""
    decides = (block for block in code.flow.block[node].ancestry() if block.kind in ("then", "else", "handler"))
    return not all(map(is_run_alone, decides))
