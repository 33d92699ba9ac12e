"""A network is evaluated in training mode.

## What it does
Finds loops without gradients that measure how good a network is, in programs that never put a network into evaluation mode:
neither `model.eval()` nor `model.train(False)` stands anywhere. The network is known to have dropout or batch normalisation.

## Why it is an error
Dropout goes on, so what is measured is worse than the network, and another number each time. Batch normalisation uses the
statistics of the batch at hand, so the result depends on how the data were put into batches, and it learns from the data that
it is measured with. Which epoch is kept as the best one depends on both.

## Example
```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    hits = 0
    with torch.no_grad():
        for x, y in test_loader:
            hits += (model(x).argmax(1) == y).sum()
    print(hits)
```

## Use instead
```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    hits = 0
    with torch.no_grad():
        model.eval()
        for x, y in test_loader:
            hits += (model(x).argmax(1) == y).sum()
        model.train()
    print(hits)
```

## When it stays silent
When anything in the program may put a network into evaluation mode, whichever it is, or a package that it imports evaluates
networks itself. When the network is not known, or nothing hands its parameters to an optimizer. In programs that measure how
sure a network is by its dropout, or gather statistics in evaluations.

## Fix safety
Unsafe: the program measures something else then, which is the point.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    ByMode,
    CannotRewrite,
    Code,
    Edit,
    EvaluatedInTraining,
    Finding,
    Kind,
    Obligation,
    Severity,
    evaluated_in_training,
    insert_after_block,
    insert_before,
    is_new_each_round,
    keyword,
    rule,
)

_MEASURES_OTHERWISE = Obligation(Kind.NUMBERS, "the program measures something else then")
_EFFECTS = {
    ByMode.DROPOUT: "dropout goes on",
    ByMode.NORMALISATION: "batch normalisation uses the statistics of each batch, and learns from them",
}


@rule(
    category="optimizer",
    severity=Severity.INFO,
    needs=[(*keyword("for"), *keyword("while"))],
    near=[("backward(",)],
    steps=True,
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each network that is evaluated in training mode."""
    for found in evaluated_in_training(code.facts, code.scope):
        effects = " and ".join(_EFFECTS[layer] for layer in ByMode if layer in found.layers)
        message = f"an evaluation in training mode: {effects}; call `{found.network}.eval()` before"
        fix = code.fix("evaluate in evaluation mode", _switch(code, found), unless=[_MEASURES_OTHERWISE])
        yield code.finding(found.at, message, fix, [_MEASURES_OTHERWISE])


def _switch(code: Code, found: EvaluatedInTraining) -> Iterator[Edit]:
    loop = found.loop.statement
    assert loop is not None
    if is_new_each_round(code.flow, found.loop, found.network):
        raise CannotRewrite("the network has its name within the loop only")
    if any(isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) for node in ast.walk(loop)):
        raise CannotRewrite("the loop may be left before its end, and the network has to be set back")
    yield insert_before(code.source, loop, f"{found.network}.eval()")
    yield insert_after_block(code.source, loop, f"{found.network}.train()")
