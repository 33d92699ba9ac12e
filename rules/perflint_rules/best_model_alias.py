"""The best weights of a training are kept by a second name for them, and change with the next step.

## What it does
Finds loops that train a network and keep its weights where a round was better than those before: `best = model.state_dict()`,
the same in a dict, a tuple or an attribute (also of an object that the loop calls, such as one that stops early), or
`best_model = model`. What is kept is used behind the loop. It also finds weights that are kept before a loop that trains, and
are loaded back into the same network.

## Why it is an error
The tensors of a state dict are the parameters themselves, and an optimizer changes them in place. So what is loaded, saved or
returned behind the loop are the weights of the last round, not those of the best one. Nothing fails, and the results that are
reported for the best round are not those of the weights that are kept.

## Example
```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best_loss, best_state = float("inf"), None
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        loss = F.cross_entropy(model(test_x), test_y).item()
    if loss < best_loss:
        best_loss, best_state = loss, model.state_dict()
model.load_state_dict(best_state)
```

## Use instead
```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best_loss, best_state = float("inf"), None
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        loss = F.cross_entropy(model(test_x), test_y).item()
    if loss < best_loss:
        best_loss, best_state = loss, copy.deepcopy(model.state_dict())
model.load_state_dict(best_state)
```

## When it stays silent
When the network is made anew in each round, as in a cross validation; when the round that keeps the weights is the last one;
when nothing that is in sight trains the network in the loop. When what is kept is a copy, or is only saved right where it is
kept. When the parameters may get other tensors: the network is moved to the CPU and back in a round, or is sharded. When the
state dict is none of torch's.

## Fix safety
Unsafe: the program goes on with other weights then, which is the point. The copy takes the memory of the weights once more.
"""

from collections.abc import Iterator

from perflint.api import (
    Code,
    Edit,
    Finding,
    Import,
    KeptWeights,
    Kind,
    Obligation,
    Severity,
    kept_weights,
    replace,
    rule,
)

_GOES_ON_OTHERWISE = Obligation(Kind.NUMBERS, "the program goes on with other weights then")


@rule(
    category="memory",
    severity=Severity.ERROR,
    needs=[("state_dict()", "best")],
    near=[("backward(",), ("parameters(",)],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each alias of weights that is used as if it was a copy."""
    for kept in kept_weights(code.facts, code.scope):
        if kept.is_best:
            becomes = f"in the end `{kept.kept}` has the last ones, not the best"
        else:
            becomes = f"to load `{kept.kept}` changes nothing"
        message = (
            f"the weights of `{kept.network}` are kept without a copy and change as they are trained: {becomes}; "
            "keep `copy.deepcopy` of them"
        )
        fix = code.fix("keep a copy", _copied(code, kept), unless=[_GOES_ON_OTHERWISE])
        severity = None if kept.is_best else Severity.INFO  # a network that is moved has other tensors
        yield code.finding(kept.at, message, fix, [_GOES_ON_OTHERWISE], severity=severity)


def _copied(code: Code, kept: KeptWeights) -> Iterator[Edit | Import]:
    name, imports = code.name_for("copy")
    yield from imports
    yield replace(code.source, kept.at, f"{name}.deepcopy({code.text(kept.at)})")
