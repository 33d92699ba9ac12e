"""The trainer of transformers reads each loss to keep nan out of a log.

## What it does
Finds `TrainingArguments(...)` and `Seq2SeqTrainingArguments(...)` without `logging_nan_inf_filter`.

## Why it is slow
By default the trainer asks `isnan(loss) or isinf(loss)` in each micro-step, for which the CPU waits twice. All that comes of
it is that a loss that is nan does not count in the average that is logged.

## Example
```python
from transformers import Trainer, TrainingArguments

trainer = Trainer(model, TrainingArguments(output_dir="out"), train_dataset=dataset)
```

## Use instead
```python
from transformers import Trainer, TrainingArguments

trainer = Trainer(model, TrainingArguments(output_dir="out", logging_nan_inf_filter=False), train_dataset=dataset)
```

## When it stays silent
When the argument is given, also through `**kwargs`, where nothing in the program makes a trainer, and for classes that derive
from these.

## Fix safety
Unsafe: a loss that is nan then shows in the log.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, add_keyword, any_layout, rule

_ARGUMENTS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
_TRAINER = any_layout(rb"\w*Trainer\w* \(")
_SHOWS = Obligation(Kind.VALUE, "a loss that is nan shows in the log")


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.INFO,
    calls=_ARGUMENTS,
    in_file=[("transformers",)],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each set of arguments that leaves the filter on."""
    calls = code.calls_to(*_ARGUMENTS)
    if not calls or not code.facts.project.program_may_hold(code.source.path, _TRAINER):
        return
    for call in calls:
        if any(k.arg in (None, "logging_nan_inf_filter") for k in call.keywords):
            continue
        message = "the CPU waits twice per step to keep nan out of the log; pass `logging_nan_inf_filter=False`"
        fix = code.fix("switch the filter off", _off(code, call), unless=[_SHOWS])
        yield code.finding(call, message, fix, [_SHOWS])


def _off(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "logging_nan_inf_filter", "False")
