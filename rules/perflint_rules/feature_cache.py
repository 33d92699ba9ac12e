"""A frozen network computes the features of the same samples again in each epoch.

## What it does
Finds training loops inside of a loop over epochs that begin with `with torch.no_grad(): features = backbone(x)`, where `x` is
the first part of a loader's batch, used for nothing else, and `backbone` was put in eval mode. The fix lets the loop go over
`perflint_runtime.CachedFeatures`. Not on by default, and only where fixes may import the runtime (`runtime = true`).

## Why it is slow
The forward pass of the frozen network is most of such a step, and gives the same in each epoch. The helper computes it in the
first epoch, and takes rows from memory afterwards.

## Example
```python
def probe(backbone, head, loader, optimizer, criterion, device, epochs):
    backbone.eval()
    for epoch in range(epochs):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            with torch.no_grad():
                features = backbone(x)
            loss = criterion(head(features), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
```

## Use instead
```python
def probe(backbone, head, loader, optimizer, criterion, device, epochs):
    backbone.eval()
    cached = CachedFeatures(backbone, loader, device)
    for epoch in range(epochs):
        for features, y in cached:
            loss = criterion(head(features), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
```

## When it stays silent
When samples are augmented, as far as the file shows (`transforms`, `RandomCrop`); when `x` is used elsewhere in the loop; when
the network may be in train mode; where there is one epoch only.

## Fix safety
Unsafe. A sample's features are those of the batch that it was first in, and the last bits depend on a batch's size and place.
They stay in memory for all samples. The helper looks for what would make them stale: weights that change, a module in train
mode, samples that differ when they are read twice (it reads two, not all); then it computes in each epoch, and says so.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Cost,
    Edit,
    External,
    Finding,
    FrozenForward,
    Import,
    Kind,
    LoopKind,
    Obligation,
    Severity,
    any_layout,
    delete_statement,
    frozen_forward,
    insert_before,
    replace,
    rule,
)

_OTHER_BITS = Obligation(Kind.NUMBERS, "a sample's features are those of the batch that it was first in, to the last bits")
_SAME_SAMPLES = Obligation(Kind.UNKNOWN_CODE, "the data set has to give the same samples in each epoch")
_MEMORY = Obligation(Kind.MEMORY_TO_SPARE, "the features of all samples stay in memory")
_AUGMENTS = any_layout(rb"transforms\b|[aA]ugment|\bRandom[A-Z]")


@rule(
    category="runtime",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("no_grad",), ("backward",), (".eval(",)],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each forward pass of a frozen network over the first part of a batch, in each epoch."""
    if not code.may_use_runtime or _AUGMENTS.search(code.source.body):
        return
    for loop, kind in code.step_loops().items():
        found = frozen_forward(code.facts, code.scope, loop) if kind is LoopKind.TRAIN else None
        if found is not None:
            missing = [_OTHER_BITS, _SAME_SAMPLES, _MEMORY]
            fix = code.fix("look the features up after the first epoch", _cached(code, found), unless=missing)
            name = ast.unparse(found.network)
            message = f"`{name}` is frozen, and computes the same features in each epoch; keep those of the first"
            yield code.finding(found.loop, message, fix, missing)


def _cached(code: Code, found: FrozenForward) -> Iterator[Edit | Import]:
    name = next((n for n in ("cached", "cached_features") if n.encode() not in code.scope.text), None)
    known = code.facts.inference.module_name(code.scope.module, "CachedFeatures", 1)
    if name is None or (known.alternatives and not known.must(lambda a: a == External("perflint_runtime.CachedFeatures"))):
        raise CannotRewrite("no name is free")
    given = [ast.unparse(found.network), code.text(found.loader), *([found.device] if found.device is not None else [])]
    yield Import("perflint_runtime", "CachedFeatures")
    yield insert_before(code.source, found.epochs, f"{name} = CachedFeatures({', '.join(given)})")
    assert isinstance(found.loop.target, ast.Tuple)
    yield replace(code.source, found.loop.target.elts[0], found.features)
    yield replace(code.source, found.loader, name)
    left = [*found.loop.body]
    for statement in (found.block, *found.moves):
        yield delete_statement(code.source, statement, left)
        left.remove(statement)
