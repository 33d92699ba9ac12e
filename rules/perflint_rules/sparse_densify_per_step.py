"""A sparse tensor is made dense in every step.

## What it does
Finds `.to_dense()` in code that runs each step.

## Why it is slow
A dense tensor of all elements is filled, zeros and all, to be read once. What was sparse to save memory takes all of it again,
and the time to write it. Products (`torch.sparse.mm`), sums and choices of rows (`index_select`) take the sparse tensor itself;
what is small enough to be dense in each step may as well stay dense.

## Example
```python
for x, y in loader:
    out = adjacency.to_dense() @ model(x)
    (out - y).square().mean().backward()
```

## Use instead
```python
for x, y in loader:
    out = torch.sparse.mm(adjacency, model(x))
    (out - y).square().mean().backward()
```

## When it stays silent
Under a guard, outside of code that runs each step, and in files that speak of MKL-DNN, whose tensors have the method, too.

## Fix safety
There is no fix: which operation takes the sparse tensor, and in which order it sums, depends on what follows.
"""

from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule


@rule(category="memory", costs=Cost.ALLOCATION, severity=Severity.INFO, needs=[(".to_dense(",)], steps=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each sparse tensor that becomes dense in a step."""
    if b"mkldnn" in code.source.body:
        return
    for call in code.calls("to_dense"):
        if code.is_hot(call):
            yield code.finding(
                call, "all elements are written, zeros too, in every step; use the sparse tensor, or keep it dense"
            )
