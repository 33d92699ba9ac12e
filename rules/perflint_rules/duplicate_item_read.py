"""The same device value is read twice in one step.

## What it does
Finds two or more reads of one unchanged tensor (`.item()`, `float(t)`, `f"{t:.3f}"`) in the same iteration.

## Why it is slow
Each read makes the CPU wait until the GPU has done all the work that is queued. A second read of the same value waits
again for whatever was queued in between. Where nothing was queued it still is a call into the driver. As long as another
read stays in the step, the step still waits once: see the sync budget that `perflint check` prints.

## Example
```python
for x, y in loader:
    loss = criterion(model(x.to(device)), y.to(device))
    total += loss.item()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
```

## Use instead
```python
for x, y in loader:
    loss = criterion(model(x.to(device)), y.to(device))
    loss_value = loss.item()
    total += loss_value
    loss.backward()
    optimizer.step()
    print(f"{loss_value:.4f}")
```

## When it stays silent
For reads in branches that exclude each other, for tensors that change in between (also through an alias or a view),
for host tensors, arrays and frames, in closures, and for expressions that only look alike (`(loss * 7).item()`). Each step's
waits are counted by the sync budget; select the rule to see them one by one.

## Fix safety
Safe when one definition reaches all reads, or one in each branch before them, the tensor is new memory that no function of
the project keeps or holds under another name, nothing that runs in between can write to it, the first read comes before
the others on every path (or another one always runs, so that no read is added), no clock is read in between and nothing in the
program may need the wait (blocking-h2d-in-loop says what). At most one of
the reads gives its number to keep, the others are shown, compared or computed with: a list finds a nan only where it holds
the same object, so that two kept ones assume `plain-objects`. Reads of attributes and items are reported without these proofs,
so their fix is unsafe: a property may compute anew.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    HostRead,
    Import,
    ReadKind,
    Severity,
    Tensor,
    free_name,
    insert_before,
    replace,
    rule,
)
from perflint_rules.read_once import open_about, wanted
from perflint_rules.repeated_reads import common_place, groups


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[(".item(", ".cpu(", ".numpy(", ".tolist(", "backward(", "zero_grad", "oader")],
    in_file=[("torch", "loss", "loader", "device")],
    fixes=True,
    steps=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each group of reads of one value."""
    for reads in groups(code):
        first, *later = reads
        missing = list(open_about(code, reads))
        fix = code.fix("read the value once", _merged(code, reads), unless=missing)
        message = f"`{ast.unparse(first.tensor)}` {_times(reads)}; read it once and keep the number"
        place, waits = later[-1].node if len(later) == 1 else later[0].node, [read.node for read in later]
        yield code.finding(place, message, fix, missing, waits=waits)


def _times(reads: list[HostRead]) -> str:
    """Where a value is read, in words."""
    first, *later = (read.node.lineno for read in reads)
    if not any(line != first for line in later):
        return f"is read from the device {'twice' if len(later) == 1 else f'{len(later) + 1} times'} on this line"
    further = [str(line) for line in dict.fromkeys(later[1:])]
    also = f", and then on line{'s' if len(further) > 1 else ''} {' and '.join(further)} too" if further else ""
    return f"was read from the device on line {first}, and is read again here{also}"


def _merged(code: Code, reads: list[HostRead]) -> Iterator[Edit | Import]:
    tensor = reads[0].tensor
    anchor = common_place(code, reads)
    name = free_name(code.scope, wanted(tensor))
    if anchor is None or name is None:
        raise CannotRewrite("there is no place for the one read")
    if anchor is code.flow.statement(reads[0].node) and _is_conditional(code, reads[0].node, anchor):
        raise CannotRewrite("the first read stands in a condition or a comprehension")
    if hasattr(anchor, "body") and not isinstance(anchor, ast.If) and anchor is not code.flow.statement(reads[0].node):
        raise CannotRewrite("the first read stands in a loop, a `try` or a `with`")
    if any(d.order > code.flow.order[anchor] for d in code.flow.reaching.get(tensor, ())):
        raise CannotRewrite("the tensor is bound in the statement that reads it")
    if isinstance(anchor, ast.If) and _is_elif(code, anchor):
        raise CannotRewrite("the first read stands in an `elif`")
    number = f"float({code.text(tensor)})" if _warns(code, reads) else f"{code.text(tensor)}.item()"
    yield insert_before(code.source, anchor, f"{name} = {number}")
    for read in reads:
        yield replace(code.source, read.node, name)


def _warns(code: Code, reads: list[HostRead]) -> bool:
    """Whether a read is `float` of a tensor that may belong to a graph, of which torch warns once."""
    return any(read.kind is ReadKind.CONVERSION for read in reads) and not code.value(reads[0].tensor).must(
        lambda a: isinstance(a, Tensor) and a.grad is False
    )


def _is_conditional(code: Code, node: ast.AST, statement: ast.stmt) -> bool:
    """Whether `node` is not evaluated whenever its statement runs (D13)."""
    return code.flow.block[node] is not code.flow.block[statement] and not isinstance(statement, (ast.With, ast.AsyncWith))


def _is_elif(code: Code, statement: ast.If) -> bool:
    parent = code.flow.parent.get(statement)
    return isinstance(parent, ast.If) and parent.orelse == [statement] and statement.col_offset == parent.col_offset
