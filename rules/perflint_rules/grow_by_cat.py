"""A tensor or an array grows by a copy of all of it in each round.

## What it does
Finds `acc = torch.cat([acc, y])` (and `np.append`, `np.concatenate`, `vstack`, `hstack`) in a loop that looks at `acc` for
nothing else.

## Why it is slow
Each round copies everything that was collected so far: collecting n pieces copies n * n / 2 of them. 500 pieces on a CPU:
171 ms against 2.9 ms for a list that is joined once.

## Example
```python
outputs = torch.tensor([])
for x, y in loader:
    outputs = torch.cat([outputs, model(x)])
```

## Use instead
```python
outputs = []
for x, y in loader:
    outputs.append(model(x))
outputs = torch.cat(outputs)
```

## When it stays silent
When the loop needs what was collected in each round (a key-value cache, a window that moves), in forward passes, under a
guard, when more than the one piece is added to the front and to the back, and in loops over a written-out `range` of a
few rounds.

## Fix safety
There is no fix yet: an empty start decides the type, and an empty loop ends with it.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Heat, Option, Severity, any_layout, keyword, path_of, rule, written_rounds

_CALLS = [
    *(f"torch.{name}" for name in ("cat", "concat", "concatenate", "vstack", "hstack", "row_stack")),
    *(f"numpy.{name}" for name in ("append", "concatenate", "concat", "vstack", "hstack", "row_stack")),
]

_NAMES = sorted({qualname.rpartition(".")[2] for qualname in _CALLS})
_JOINS = ("cat(", "concat(", "concatenate(", "stack(", any_layout(rb"= (?:\w+ \. )*append \("))
_LOOPS = (*keyword("for"), *keyword("while"))
_MIN_ROUNDS = Option("min-rounds", 4, "Loops over a written-out `range` of fewer rounds are left alone")


@rule(
    category="memory",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[_JOINS, _LOOPS],
    in_file=[("torch", "numpy")],
    options=[_MIN_ROUNDS],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each join of a variable with itself that a loop repeats."""
    for call in code.calls(*_NAMES):
        statement = code.flow.statement(call)
        loop = code.flow.loop(call)
        if loop is None or not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
            continue
        grown = path_of(statement.targets[0])
        if grown is None or not _begins_with(call, grown) or not code.is_external(call.func, *_CALLS):
            continue
        if _is_needed(code, call, grown, statement) or code.heat is Heat.FORWARD:
            continue  # a forward pass loops over a few parts of a batch
        if (rounds := written_rounds(loop)) is not None and rounds < code.option(_MIN_ROUNDS):
            continue
        message = f"each round copies all of `{grown}`; append to a list, and join it once after the loop"
        yield code.finding(call, message)


def _begins_with(call: ast.Call, grown: str) -> bool:
    """Whether a call joins the variable with one or more others, the variable first or last."""
    first = call.args[0] if call.args else None
    parts = first.elts if isinstance(first, (ast.List, ast.Tuple)) else call.args[:2]
    paths = [path_of(part) for part in parts]
    return len(parts) >= 2 and paths.count(grown) == 1 and grown in (paths[0], paths[-1])


def _is_needed(code: Code, call: ast.Call, grown: str, statement: ast.stmt) -> bool:
    """Whether the loop looks at the variable elsewhere, binds it anew, or adds to it now and then only."""
    flow = code.flow
    loop = flow.loop(call)
    assert loop is not None
    for block in flow.block[call].ancestry():
        if block is loop.block:
            break
        if block.kind in ("then", "else", "handler"):
            return True
    own = set(map(id, ast.walk(statement)))
    for node in flow.order:
        if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in own and path_of(node) == grown:
            if flow.within(node, loop.block):
                return True
    return False
