"""A forward pass leaves torch for numpy.

## What it does
Finds `.numpy()` of a device tensor in forward passes of modules.

## Why it is slow
The CPU waits for the device and computes on one core meanwhile. The graph ends there, so nothing before it learns from what
comes after, and `torch.compile` has to split the graph.

## Example
```python
class Scaled(nn.Module):
    def forward(self, x):
        x = self.layer(x)
        scale = np.abs(x.detach().cpu().numpy()).max()
        return x / float(scale)
```

## Use instead
```python
class Scaled(nn.Module):
    def forward(self, x):
        x = self.layer(x)
        return x / x.detach().abs().max()
```

## When it stays silent
On tensors of the host, under a guard, where no graph is recorded, and outside of forward passes.

## Fix safety
There is no fix: numpy and torch differ in types and in the order of sums.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Heat, ReadKind, Severity, rule


@rule(category="device-sync", costs=Cost.WAIT, severity=Severity.INFO, needs=[(".numpy(",)], steps=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each array that a forward pass makes of a device tensor."""
    if code.heat is not Heat.FORWARD:
        return
    for read in code.reads(formatted=False):
        ends_graph = read.kind is ReadKind.COPY and ".numpy(" in ast.unparse(read.node) and not code.grad_is_off(read.node)
        if ends_graph and code.is_hot(read.node):
            message = f"the CPU waits for `{ast.unparse(read.tensor)}`, and its graph ends; stay in torch"
            yield code.finding(read.node, message, waits=[read.node])
