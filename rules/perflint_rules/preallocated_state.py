"""A recurrent layer's state is kept in a buffer and reused for every batch.

## What it does
Finds states that are kept in an attribute (`self.h0`), zeroed in place or sliced per batch, and given to an RNN.

## Why it does not pay
The layer's own zeros cost two fill kernels per batch. The buffer saves those and opens five traps, all of them seen:
`zero_()` before the last graph's backward pass raises; a short last batch raises, or its slice is not contiguous, which
cuDNN refuses for two layers and more; a cell that works in place corrupts the buffer; a state that is rebound is
carried into the next batch; a plain attribute ignores `.half()` and `.to()`.

## Example
```python
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.h = torch.zeros(1, 64, 16)
        self.c = torch.zeros(1, 64, 16)

    def forward(self, x):
        self.h.zero_()
        self.c.zero_()
        out, _ = self.lstm(x, (self.h, self.c))
        return out
```

## Use instead
```python
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x):
        out, _ = self.lstm(x)
        return out
```

## When it stays silent
For states that are carried on purpose (assigned from the layer's result).

## Fix safety
No fix: whether the buffer is carried or reset cannot be seen from here with certainty.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    RECURRENT_CALL,
    RECURRENT_LAYER,
    Code,
    Cost,
    Finding,
    Severity,
    path_of,
    rnn_calls,
    rule,
    state_parts,
)


@rule(
    category="hidden-state",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("zero_", "fill_", "[:"), RECURRENT_CALL],
    near=[RECURRENT_LAYER],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each recurrent call whose state is a reused buffer."""
    zeroed = {
        path_of(call.func.value)
        for call in code.calls("zero_", "fill_")
        if isinstance(call.func, ast.Attribute) and all(code.value(given).literal == 0 for given in call.args)
    }
    assigned = {d.name for d in code.flow.definitions}
    for call in rnn_calls(code.facts, code.scope):
        for part in state_parts(code.scope, call.state):
            base = part.value if isinstance(part, ast.Subscript) else part
            path = path_of(base) or ""
            sliced = isinstance(part, ast.Subscript)
            if "." in path and path not in assigned and (path in zeroed or sliced) and code.is_hot(call.node):
                yield code.finding(
                    part,
                    f"`{path}` is one buffer for all batches; leave the state out, the layer starts from zeros",
                )
                break
