"""A trainer is told to be slow.

## What it does
Finds arguments of `Trainer(...)` of Lightning and of `TrainingArguments(...)` of transformers that cost time in each step:
`deterministic=True`, `log_every_n_steps=1`, `logging_steps=1`, the strategies `dp` and `ddp_spawn`, `dataloader_num_workers=0`,
`dataloader_pin_memory=False`, `profiler=...`.

## Why it is slow
Deterministic kernels are slower where there are others, a log line per step makes the CPU wait for the loss, and `dp` and
`ddp_spawn` are the slow ways to use several GPUs.

## Example
```python
from lightning.pytorch import Trainer

trainer = Trainer(max_epochs=10, log_every_n_steps=1)
```

## Use instead
```python
from lightning.pytorch import Trainer

trainer = Trainer(max_epochs=10)
```

## When it stays silent
When the value is no literal, with `fast_dev_run`, and in test suites. `detect_anomaly=True`: debug-switch-left-on.

## Fix safety
There is no fix: each of these may be wanted.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule

_LIGHTNING: dict[str, tuple[tuple[object, ...], str]] = {
    "deterministic": ((True,), "slower kernels are chosen"),
    "log_every_n_steps": ((1,), "the CPU waits for what is logged in every step"),
    "strategy": (("dp", "ddp_spawn"), "it is the slow way to use several GPUs"),
    "profiler": (("simple", "advanced", "pytorch"), "each step is profiled"),
}
_TRANSFORMERS: dict[str, tuple[tuple[object, ...], str]] = {
    "logging_steps": ((1,), "the CPU waits for the loss in every step"),
    "dataloader_num_workers": ((0,), "the training process makes each batch itself"),
    "dataloader_pin_memory": ((False,), "each batch is copied from pageable memory"),
    "full_determinism": ((True,), "slower kernels are chosen, and launches block"),
}
_CALLS = {
    "lightning.Trainer": _LIGHTNING,
    "transformers.TrainingArguments": _TRANSFORMERS,
    "transformers.Seq2SeqTrainingArguments": _TRANSFORMERS,
}


@rule(
    category="optimizer", costs=Cost.WAIT, severity=Severity.INFO, calls=tuple(_CALLS), in_file=[("lightning", "transformers")]
)
def check(code: Code) -> Iterator[Finding]:
    """Report each argument that costs time in each step."""
    for qualname, costly in _CALLS.items():
        for call in code.calls_to(qualname):
            if any(k.arg == "fast_dev_run" for k in call.keywords):
                continue
            for keyword in call.keywords:
                values, why = costly.get(keyword.arg or "", ((), ""))
                if _is_one_of(keyword.value, values):
                    text = ast.unparse(keyword.value)
                    yield code.finding(keyword.value, f"with `{keyword.arg}={text}` {why}; leave it out unless you need it")


def _is_one_of(node: ast.expr, values: tuple[object, ...]) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is v or (node.value == v and type(v) is not bool) for v in values)
