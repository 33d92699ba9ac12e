"""A metric computes its value for each batch, and nobody looks at it.

## What it does
Finds calls of a torchmetrics metric (`self.accuracy(predicted, y)`) whose result is not used.

## Why it is slow
Calling a metric updates it and computes its value for the batch alone; metrics with `full_state_update` (the default of classes
of one's own) run their `update` twice for that. `update` does what is needed, once.

## Example
```python
import torchmetrics

accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=4)
for x, y in loader:
    accuracy(model(x), y)
```

## Use instead
```python
import torchmetrics

accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=4)
for x, y in loader:
    accuracy.update(model(x), y)
```

## When it stays silent
When the value is used, where a training step hands the metric to Lightning's `self.log`, which shows the batch's value, and for
what is no metric of torchmetrics.

## Fix safety
There is no fix: what logs the metric elsewhere may show the last batch's value.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Instance, Object, Severity, argument, derives_from, path_of, rule

_BASES = frozenset(("torchmetrics.Metric", "torchmetrics.metric.Metric", "pytorch_lightning.metrics.Metric"))


@rule(
    category="device-sync",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("(",)],
    in_file=[("torch",)],
    near=[("torchmetrics", "lightning.metrics")],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each call of a metric whose value is dropped."""
    for call in code.flow.calls:
        if not isinstance(code.flow.parent.get(call), ast.Expr) or not (call.args or call.keywords):
            continue
        if not isinstance(call.func, (ast.Name, ast.Attribute)) or not _is_metric(code, call.func):
            continue
        if _is_logged(code, call.func):
            continue
        message = f"this computes the batch's value, too, and nobody uses it; call `{ast.unparse(call.func)}.update`"
        yield code.finding(call, message)


def _is_logged(code: Code, metric: ast.expr) -> bool:
    """Whether Lightning shows the batch's value, as it does in a training step unless it is told otherwise."""
    name = path_of(metric)
    for call in code.calls("log", "log_dict"):
        in_training = code.scope.name == "training_step" and argument(call, None, "on_step") is None
        if in_training and name in {path_of(given) for given in call.args}:
            return True
    return False


def _is_metric(code: Code, node: ast.expr) -> bool:
    inference = code.facts.inference
    return code.value(node).must(
        lambda a: (
            (isinstance(a, Object) and a.qualname.startswith("torchmetrics."))
            or (isinstance(a, Instance) and derives_from(inference, a.cls, _BASES))
        )
    )
