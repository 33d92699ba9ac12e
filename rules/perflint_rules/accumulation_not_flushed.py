"""The gradients of an epoch's last batches are not used.

## What it does
Finds training loops that step the optimizer every k batches (`if (i + 1) % k == 0:`) and not once more behind the loop.

## Why it is an error
When the number of batches is no multiple of k, the last window never reaches the optimizer: its gradients are dropped by the
next `zero_grad`, or added to the first window of the next epoch, which is then too large.

## Example
```python
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / 4
    loss.backward()
    if (i + 1) % 4 == 0 or i + 1 == len(loader):
        optimizer.step()
        optimizer.zero_grad()
```

## When it stays silent
When the condition has an `or`, when another optimizer steps in the loop (the critic of a GAN), when a step follows the
loop, when it counts over epochs (`global_step`), and without a
backward pass in each round.

## Fix safety
There is no fix: the last window has fewer batches, and how its loss is divided is for you to say.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Finding, Flow, Severity, any_layout, is_optimizer, is_scaler, rule


@rule(
    category="optimizer",
    severity=Severity.INFO,
    needs=[(any_layout(rb"%[^=]{1,80}== 0"),), (".step(",), ("backward(",), ("enumerate(",)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each optimizer that may miss the last window."""
    flow = code.flow
    steps = [c for c in code.calls("step") if isinstance(c.func, ast.Attribute) and _steps(code, c)]
    for call in steps:
        loop = flow.loop(call)
        guard = flow.block[call].node
        if loop is None or loop.statement is None or not isinstance(guard, ast.If) or not _counts_windows(flow, guard.test):
            continue
        always = [c for c in code.calls("backward") if flow.block[c] is loop.block]
        elsewhere = [
            c for c in steps if flow.block[c].node is not guard and (flow.order[c] > flow.order[call] or flow.loop(c) is loop)
        ]
        if always and not elsewhere:
            yield code.finding(
                call, "the batches behind the last full window are not used; step once more, or on the last batch, too"
            )


def _steps(code: Code, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    return code.value(call.func.value).may(lambda a: is_optimizer(a) or (is_scaler(a) and bool(call.args)))


def _counts_windows(flow: Flow, test: ast.expr) -> bool:
    """`(i + 1) % k == 0` for the number of a batch that `enumerate` gives."""
    match test:
        case ast.Compare(left=ast.BinOp(left=counted, op=ast.Mod()), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]):
            names = [part for part in ast.walk(counted) if isinstance(part, ast.Name)]
            return len(names) == 1 and all(
                d.kind == "for" and d.index[:1] == (0,) and _enumerates(d.value) for d in flow.reaching.get(names[0], ())
            )
    return False


def _enumerates(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("enumerate", "tqdm")
