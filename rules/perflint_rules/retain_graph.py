"""A graph is kept for a second backward pass that never comes.

## What it does
Finds `backward(retain_graph=True)` in a function with one backward pass, and none by `autograd.grad`.

## Why it costs memory
What the forward pass saved stays in memory until the loss is dropped, in the next step: at the peak there are two steps'
worth. Where the flag hides an error (a hidden state that is carried on with its graph), each step goes back through all steps
before.

## Example
```python
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward(retain_graph=True)
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## When it stays silent
When the function holds another backward pass, asks for gradients, or calls something of the project that does; and with
`create_graph=True`.

## Fix safety
Unsafe: a state that is carried from step to step raises in the second one. Detach it then.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, any_layout, backward_in, remove_keyword, rule

_SECOND = Obligation(Kind.GRADIENT, "a state that is carried on goes back through a graph that is freed")
_OTHER = any_layout(rb"autograd \. grad \(|manual_backward|retain_graph = True[^\n]*create_graph|create_graph = True")


@rule(
    category="memory",
    costs=Cost.MEMORY,
    severity=Severity.INFO,
    needs=[("retain_graph=True",), ("backward(",)],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each graph that is kept after the only backward pass."""
    calls = code.calls("backward")
    if len(calls) != 1 or _OTHER.search(code.scope.text) or not code.is_hot(calls[0]):
        return
    call = calls[0]
    kept = any(k.arg == "retain_graph" and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords)
    inner = code.flow.loop(call)
    steps = [step for step in code.calls("step") if code.flow.loop(step) is inner]
    if not kept or inner is None or not steps or inner is not code.step_loop(call) or _others_differentiate(code, call):
        return
    message = "what the forward pass saved is kept for a second backward pass that is not here; leave `retain_graph` out"
    yield code.finding(call, message, code.fix("leave it out", _freed(code, call), unless=[_SECOND]), [_SECOND])


def _others_differentiate(code: Code, backward: ast.Call) -> bool:
    calls = [call for call in code.flow.calls if call is not backward]
    return any(backward_in(code.facts, target) for call in calls for target in code.facts.loops.targets(code.scope, call))


def _freed(code: Code, call: ast.Call) -> Iterator[Edit]:
    yield remove_keyword(code.source, call, "retain_graph")
