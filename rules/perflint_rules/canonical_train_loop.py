"""A training loop by hand does what the runtime's trainer does without waiting.

## What it does
Finds training loops of the textbook's shape: gradients are cleared, a loss is computed from a batch and run backward, perhaps
clipped, scaled or added up over several batches, and one optimizer steps. Its fix lets `perflint_runtime.Trainer` do that, and
leaves all else as it is: totals, logs, schedulers, the loop over epochs with its evaluations, checkpoints and early stopping.
Not on by default, and only where fixes may import the runtime (`runtime = true`).

## Why it is slow
The loop copies each batch when it needs it, and the CPU waits for the copy; the trainer copies ahead, on a stream of its own.
The loop keeps gradients through the next forward pass if it clears them late; the trainer drops them at once.

## Example
```python
def fit(model, loader, optimizer, criterion, device, epochs):
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(epoch, total / len(loader))
```

## Use instead
```python
def fit(model, loader, optimizer, criterion, device, epochs):
    def training_step(model, batch):
        x, y = batch
        loss = criterion(model(x), y)
        return loss

    trainer = Trainer(model, optimizer, training_step, TrainingSettings(max_grad_norm=1.0), device=device)
    for epoch in range(epochs):
        total = 0.0
        for loss, _, _ in trainer.steps(loader):
            total += loss.item()
        print(epoch, total / len(loader))
```
`trainer.fit(loader, val_loader)` of the same trainer brings checkpoints, resuming and early stopping along.

## When it stays silent
When a statement of the loop is of no known kind: several optimizers or backward passes, closures, gradients that are looked at,
a value that lives on from one batch to the next, steps that are left out, a clock before the update, several processes.

## Fix safety
Unsafe: run `perflint verify` over it. Losses, weights and random numbers are meant to be those of the loop, to the last bit.
What differs: gradients are gone after a step, logs that stood before the update come after it, and the loss has to be one
number. That the function computes what the loop computed is seen by its names alone.
"""

import re
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Kind, LoopKind, Obligation, Severity, rule, training_loop
from perflint_rules.trainer_steps import taken_over

_GONE = Obligation(Kind.GRADIENT, "gradients are dropped after each step: nobody may look at them there")
_LATER = Obligation(Kind.CONTROL_FLOW, "what stands between the forward pass and the update comes after the update")
_ONE_NUMBER = Obligation(Kind.VALUE, "the loss has to be one number, and the optimizer one over the model's parameters")
_PROCESSES = re.compile(rb"torch\.distributed|DistributedDataParallel|Accelerator\(|\bfabric\b|\bdeepspeed\b|\bxla\b")


@rule(
    category="runtime",
    costs=Cost.COPY,
    severity=Severity.INFO,
    needs=[("backward",), ("step",), ("zero_grad",)],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each training loop of the textbook's shape, where the runtime may be used."""
    if not code.may_use_runtime or _PROCESSES.search(code.source.body):
        return
    for loop, kind in code.step_loops().items():
        found = training_loop(code.facts, code.scope, loop) if kind is LoopKind.TRAIN else None
        if found is not None:
            missing = [_GONE, _ONE_NUMBER, *([_LATER] if found.has_early_rest else [])]
            fix = code.fix("let the runtime's trainer take the steps", taken_over(code, found), unless=missing)
            what = "the CPU waits for each batch's copy" if found.moves is not None else "the loop takes each step by hand"
            message = f"{what}; `perflint_runtime.Trainer` takes the same steps and copies ahead"
            yield code.finding(loop.node, message, fix, missing)
