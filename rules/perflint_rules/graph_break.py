"""Compiled code leaves its graph, and Python runs in between.

## What it does
Finds, in functions that are known to run compiled (decorated, handed to `torch.compile`, or called by such a function, also in
other files), what makes torch end a graph and begin another: numbers that are read from tensors, conditions on tensors, sizes
that depend on data, prints and logs, clocks, random numbers of Python and numpy, backward passes, recurrent layers, calls of
what `torch.compiler.disable` keeps out. What breaks was measured on torch 2.13 with backend "eager".

## Why it is slower
Each break makes two graphs of one: both are compiled, which takes longer when the program starts, and nothing is fused across
the break. Fewer graphs and a faster start are what mending gains; once all is compiled, a step with a break or two is hardly
slower. `perflint verify --compile` shows the breaks of a run.

## Example
```python
@torch.compile
def normalized(x):
    norm = x.norm()
    if norm > 1.0:
        x = x / norm
    return x
```

## Use instead
```python
@torch.compile
def normalized(x):
    norm = x.norm()
    return x / norm.clamp(min=1.0)
```
A check can stay as `assert ok, "a constant message"` or `torch._assert_async`; what is printed or logged goes under
`if not torch.compiler.is_compiling():`, or to the caller.

## When it stays silent
Where nothing shows that the code runs compiled, under a test for that, in branches that end in an error, for what torch traces
(numpy arithmetic, f-strings of tensors, `x[mask] = 0`), and where the program sets torch's switch that captures such a read.
The option `compiled = ["package.models.*"]` names functions and classes that programs elsewhere compile.

## Fix safety
There is no fix: each cure changes what is computed, or where.
"""

from collections.abc import Iterator
from pathlib import Path

from perflint.api import Code, Cost, Finding, Severity, rule


@rule(category="compilation", costs=Cost.LAUNCH, severity=Severity.INFO, compiled=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each break, but for those that `graph-break-in-loop` reports."""
    root = code.compiled_by
    if root is None:
        return
    graph = "the graph" if root.row is None else f"the graph compiled {where(code, root.path, root.row)}"
    effect = "may not break (`fullgraph=True`), and does" if root.whole else "breaks"
    for found in code.graph_breaks():
        if found.costly is None:
            yield code.finding(found.node, f"{graph} {effect} here: {found.cure}")


def where(code: Code, path: str, row: int) -> str:
    """Where a program compiles something, seen from a scope."""
    return f"on line {row}" if path == code.source.path else f"at {Path(path).name}:{row}"
