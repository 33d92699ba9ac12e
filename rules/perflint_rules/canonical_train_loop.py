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

import ast
import itertools
import re
from collections.abc import Collection, Iterator

from perflint.api import (
    Body,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    External,
    Finding,
    Import,
    Kind,
    LoopKind,
    Obligation,
    Severity,
    TrainingLoop,
    replaced_lines,
    rule,
    shown_target,
    training_loop,
)

_GONE = Obligation(Kind.GRADIENT, "gradients are dropped after each step: nobody may look at them there")
_LATER = Obligation(Kind.CONTROL_FLOW, "what stands between the forward pass and the update comes after the update")
_ONE_NUMBER = Obligation(Kind.VALUE, "the loss has to be one number, and the optimizer one over the model's parameters")
_WIDTH = 100
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
    uses_runtime = code.options.runtime or code.facts.has_runtime or b"perflint_runtime" in code.source.body
    if not uses_runtime or _PROCESSES.search(code.source.body):
        return
    for loop, kind in code.step_loops().items():
        found = training_loop(code.facts, code.scope, loop) if kind is LoopKind.TRAIN else None
        if found is not None:
            missing = [_GONE, _ONE_NUMBER, *([_LATER] if found.has_early_rest else [])]
            fix = code.fix("let the runtime's trainer take the steps", _rewritten(code, found), unless=missing)
            what = "the CPU waits for each batch's copy" if found.moved is not None else "the loop takes each step by hand"
            message = f"{what}; `perflint_runtime.Trainer` takes the same steps and copies ahead"
            yield code.finding(loop.node, message, fix, missing)


def _rewritten(code: Code, loop: TrainingLoop) -> Iterator[Edit | Import]:
    """The loop's lines anew: a function that computes the loss, a trainer, and what is left of the loop."""
    statement = loop.statement
    body = Body(code.source, statement.body, statement.iter.end_lineno or statement.lineno)
    anchor = loop.epochs or statement
    indent, unit = body.indent_of(anchor), body.indent.removeprefix(body.indent_of(statement))
    free = _Names(code)
    step, trainer = free.take("training_step"), free.take("trainer")
    inner = [line for s in loop.forward for line in body.lines(s, indent + unit, loop.acts)]
    used = {n.id for s in loop.forward for n in ast.walk(s) if isinstance(n, ast.Name)}
    network, inner = _network(loop.network, inner, used)
    batch, opening = _opening(loop, used)
    results = loop.results[0] if len(loop.results) == 1 else f"({', '.join(loop.results)})"
    returned = f"{loop.loss}, {results}" if loop.results else loop.loss
    gone = [s for s in statement.body if s in loop.acts or s in loop.moves]
    made, imports = _made(code, loop, step)
    head = [
        "",
        f"{indent}def {step}({network}, {batch}):",
        *(f"{indent}{unit}{line}" for line in opening),
        *_trimmed(inner),
        f"{indent}{unit}return {returned}",
        "",
        *(line for s in gone for line in body.comments(s, indent)),
        *_call(f"{indent}{trainer} = ", *made, indent, unit),
    ]
    rest = _trimmed([line for s in loop.rest for line in body.lines(s, body.indent, loop.acts)])
    shown = [loop.loss if loop.loss_is_used else "_", results if loop.results else "_", loop.batch_target]
    taken = ", ".join(shown) if set(shown) != {"_"} else "_"
    steps = f"{trainer}.steps({', '.join([code.text(loop.loader), *_options(code, loop)])})"
    target = f"({taken})" if loop.target is not statement.target and taken != "_" else taken
    yield from replaced_lines(
        code.source, anchor, statement, head, {loop.target: target, loop.loader: steps}, rest or [f"{body.indent}pass"]
    )
    yield from imports


def _opening(loop: TrainingLoop, used: Collection[str]) -> tuple[str, list[str]]:
    """What the function calls the batch, and the line that unpacks it."""
    if isinstance(loop.target, ast.Name):
        return loop.target.id, []
    batch = "batch" if "batch" not in used else "batch_"
    target = shown_target(loop.target, used)
    return batch, [] if target == "_" else [f"{target if target.endswith(',)') else target.strip('()')} = {batch}"]


def _trimmed(lines: list[str]) -> list[str]:
    """Lines without the blank ones at their beginning."""
    return list(itertools.dropwhile(lambda line: not line.strip(), lines))


def _call(start: str, function: str, arguments: list[str], indent: str, unit: str) -> list[str]:
    """A call on one line, or its arguments on lines of their own."""
    line = f"{start}{function}({', '.join(arguments)})"
    if len(line) <= _WIDTH:
        return [line]
    inner = f"{indent}{unit}{', '.join(arguments)}"
    inside = [inner] if len(inner) <= _WIDTH else [f"{indent}{unit}{argument}," for argument in arguments]
    return [f"{start}{function}(", *inside, f"{indent})"]


def _means_something_else(code: Code, name: str) -> bool:
    known = code.facts.inference.module_name(code.scope.module, name, 1)
    is_ours = known.must(lambda a: a == External(f"perflint_runtime.{name}"))
    return bool(known.alternatives and not is_ours) or bool(code.flow.definitions_of(name) and not code.scope.is_module)


def _made(code: Code, loop: TrainingLoop, step: str) -> tuple[tuple[str, list[str]], list[Import]]:
    """The trainer's construction, and what has to be imported for it."""
    names = ["Trainer", "TrainingSettings"] if loop.limit is not None else ["Trainer"]
    prefix, imports = "", [Import("perflint_runtime", name) for name in names]
    if any(_means_something_else(code, name) for name in names):
        prefix, imports = "perflint_runtime.", [Import("perflint_runtime")]
    arguments = [loop.network, loop.optimizer, step]
    if loop.limit is not None:
        arguments.append(f"{prefix}TrainingSettings(max_grad_norm={code.text(loop.limit)})")
    if loop.moved is not None:
        device = repr(loop.moved.value) if isinstance(loop.moved, ast.Constant) else ast.unparse(loop.moved)
    else:
        device = f"next({loop.network}.parameters()).device"
    arguments.append(f"device={device}")
    if loop.scaler is not None and loop.mixed is not None:
        test = code.text(loop.mixed[0])
        arguments.append(f"scaler={loop.scaler} if {test if loop.mixed[1] else f'not ({test})'} else None")
    elif loop.scaler is not None:
        arguments.append(f"scaler={loop.scaler}")
    return (f"{prefix}Trainer", arguments), imports


def _options(code: Code, loop: TrainingLoop) -> Iterator[str]:
    if loop.every is not None:
        yield f"update_every={code.text(loop.every)}"
    if loop.at_end:
        yield "update_at_end=True"
    if loop.moved is None:
        yield "prefetch=False"


def _network(path: str, lines: list[str], used: Collection[str]) -> tuple[str, list[str]]:
    """What the function calls the network, and its lines with that name."""
    if path.isidentifier():
        return path, lines
    name = "model" if "model" not in used else "network"
    if name in used:
        raise CannotRewrite("no name for the network is free")
    return name, [re.sub(rf"(?<![\w.\"'`]){re.escape(path)}(?![\w\"'`])", name, line) for line in lines]


class _Names:
    """Names that a scope does not use."""

    def __init__(self, code: Code) -> None:
        text = code.source.body if code.scope.is_module else code.scope.text
        self._words = set(re.findall(r"\w+", text.decode()))

    def take(self, wanted: str) -> str:
        """A free name like `wanted`."""
        name = next((n for n in (wanted, *(f"{wanted}_{i}" for i in range(2, 9))) if n not in self._words), None)
        if name is None:
            raise CannotRewrite("no name is free")
        self._words.add(name)
        return name
