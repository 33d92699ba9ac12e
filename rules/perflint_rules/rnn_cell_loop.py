"""A recurrent cell is stepped through a sequence that is known beforehand.

## What it does
Finds loops over time that call an `nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell` with a slice of a sequence.

## Why it is slow
Each step is a round of Python with about ten small kernels. `nn.LSTM` multiplies all inputs at once, and cuDNN runs all steps
in a few kernels.

## Example
```python
cell = nn.LSTMCell(8, 16)
for x, y in loader:
    state = (torch.zeros(4, 16), torch.zeros(4, 16))
    for t in range(x.size(1)):
        state = cell(x[:, t], state)
    state[0].sum().backward()
```

## Use instead
```python
layer = nn.LSTM(8, 16, batch_first=True)
for x, y in loader:
    outputs, state = layer(x)
    state[0].sum().backward()
```

## When it stays silent
When the input is computed in the loop (a decoder that reads its own output, attention, teacher forcing), and when the loop
does something else with the state.

## Fix safety
There is no fix: the parameters have other names, and sums are rounded in another order.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Loop, Object, Option, Severity, rule, written_rounds

_MIN_ROUNDS = Option("min-rounds", 4, "Loops over a written-out `range` of fewer rounds are left alone")
_CELLS = frozenset(f"torch.nn.{name}Cell" for name in ("LSTM", "GRU", "RNN"))


@rule(
    category="hidden-state",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("ell(", "rnn(", "lstm(", "gru("), ("for",)],
    options=[_MIN_ROUNDS],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each cell that a loop gives one step of a sequence after the other."""
    for call in code.flow.calls:
        loop = code.flow.loop(call)
        if loop is None or loop.statement is None or not call.args or not _is_step_of(code, call.args[0], loop):
            continue
        if (rounds := written_rounds(loop)) is not None and rounds < code.option(_MIN_ROUNDS):
            continue
        if code.value(call.func).must(lambda a: isinstance(a, Object) and a.qualname in _CELLS):
            layer = ast.unparse(call.func)
            yield code.finding(
                call, f"`{layer}` takes a round of Python for each step of a known sequence; use the layer for all steps"
            )


def _is_step_of(code: Code, node: ast.expr, loop: Loop) -> bool:
    """Whether an input is `x[:, t]`, or what the loop goes over, and nothing else of the loop is in it."""
    bound = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
        and any(block is loop.block for d in code.flow.reaching.get(part, ()) for block in d.block.ancestry())
    ]
    return bool(bound) and all(d.kind == "for" for part in bound for d in code.flow.reaching.get(part, ()))
