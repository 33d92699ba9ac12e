"""A network is trained on in evaluation mode.

## What it does
Finds loops that train a network, then evaluate it (`model.eval()`, also in a function that they call), and never call
`model.train()`, neither there nor in what they call: from the second round on, the network trains as it is evaluated.

## Why it is an error
Dropout is off from then on, and batch normalisation uses the statistics that it has, and learns no more of them. Nothing fails,
and the loss even falls at once; what is trained is not what was meant.

## Example
```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(F.cross_entropy(model(test_x), test_y).item())
```

## Use instead
```python
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(F.cross_entropy(model(test_x), test_y).item())
```

## When it stays silent
When something in a round, or in what it calls, puts a network into training mode, or may: a function that is not in sight gets
it, or has `train` or `mode` in its name. When the network is evaluated before it is trained, in a round or before the loop,
which is a choice; when it is made anew in each round; when the evaluation ends the loop. Networks that are not known to have
dropout or batch normalisation are on request: the mode may be nothing to them.

## Fix safety
Unsafe: the program trains otherwise then, which is the point.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    ByMode,
    Code,
    Edit,
    Finding,
    Kind,
    LeftInEvaluation,
    Obligation,
    Severity,
    insert_after_block,
    insert_before,
    keyword,
    left_in_evaluation,
    rule,
)

_WITHOUT = {ByMode.DROPOUT: "without dropout", ByMode.NORMALISATION: "with batch statistics that are frozen"}
_JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_TRAINS_OTHERWISE = Obligation(Kind.NUMBERS, "the program trains otherwise then")


@rule(
    category="optimizer",
    severity=Severity.ERROR,
    needs=[(*keyword("for"), *keyword("while"))],
    near=[("backward(",), (".eval()",)],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each switch to evaluation mode that lasts into the next round of a training."""
    for left in left_in_evaluation(code.facts, code.scope):
        lost = [_WITHOUT[layer] for layer in ByMode if layer in left.layers] or ["as it is evaluated"]
        message = (
            f"`{left.network}` stays in evaluation mode, so later rounds train {' and '.join(lost)}; "
            f"set it back with `{left.network}.train()`"
        )
        fix = code.fix("train in training mode", _put_back(code, left), unless=[_TRAINS_OTHERWISE])
        severity = None if left.layers else Severity.INFO
        yield code.finding(left.at, message, fix, [_TRAINS_OTHERWISE], severity=severity)


def _put_back(code: Code, left: LeftInEvaluation) -> Iterator[Edit]:
    """Behind an evaluation that happens now and then, or where a round begins."""
    assert left.loop.statement is not None
    restored = f"{left.network}.train()"
    for block in code.flow.block[left.at].ancestry():
        if block is left.loop.block:
            break
        if isinstance(block.node, ast.If):
            arm = block.node.body if block.kind == "then" else block.node.orelse
            if _is_only_evaluation(code, left, arm):
                yield insert_after_block(code.source, arm[-1], restored)
                return
    yield insert_before(code.source, left.loop.statement.body[0], restored)


def _is_only_evaluation(code: Code, left: LeftInEvaluation, arm: list[ast.stmt]) -> bool:
    """Whether an arm of a branch holds all that puts a network into evaluation mode in a round, and runs to its end."""
    inside = {id(node) for statement in arm for node in ast.walk(statement)}
    jumps = any(isinstance(node, _JUMPS) for statement in arm for node in ast.walk(statement))
    switches = [call for call in code.flow.calls_named["eval"] if code.flow.within(call, left.loop.block)]
    again = [call for call in code.flow.calls if call is not left.at and ast.unparse(call.func) == ast.unparse(left.at.func)]
    return not jumps and id(left.at) in inside and all(id(call) in inside for call in (*switches, *again))
