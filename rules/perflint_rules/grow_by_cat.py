"""A tensor or an array grows by a copy of all of it in each round.

## What it does
Finds `acc = torch.cat([acc, y])` (and `np.append`, `np.concatenate`, `vstack`, `hstack`) in a loop that looks at `acc` for
nothing else, and buffers that are copied to make room: `self.states = torch.cat((new, self.states[:-n]))` in a method.

## Why it is slow
Each round copies what was collected so far: n * n / 2 copies for n pieces, where a list that is joined once takes n. Of 16
such places that were read in programs of others none was worth the change (a number or a row for each sample, copied beside a
training step), so the rule must be selected.

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
In a buffer of fixed size, write new rows where the oldest are (`self.states[self.at] = new`).

## When it stays silent
For windows that are sliced by a written-out number, or along another dimension than the first (the last frames of a game).
When the loop needs what was collected in each round (a key-value cache, a window that moves), under a guard, when more than
the one piece is added to the front and to the back, and in loops over a written-out `range` of a few rounds.

## Fix safety
There is no fix yet: an empty start decides the type, and an empty loop ends with it.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Cost,
    Finding,
    Heat,
    Option,
    Severity,
    any_layout,
    is_guard,
    path_of,
    rule,
    runs_per_item,
    written_rounds,
)

_CALLS = [
    *(f"torch.{name}" for name in ("cat", "concat", "concatenate", "vstack", "hstack", "row_stack")),
    *(f"numpy.{name}" for name in ("append", "concatenate", "concat", "vstack", "hstack", "row_stack")),
]

_NAMES = sorted({qualname.rpartition(".")[2] for qualname in _CALLS})
_JOINS = ("cat(", "concat(", "concatenate(", "stack(", any_layout(rb"= (?:\w+ \. )*append \("))
_MIN_ROUNDS = Option("min-rounds", 4, "Loops over a written-out `range` of fewer rounds are left alone")


@rule(
    category="memory",
    costs=Cost.COPY,
    severity=Severity.INFO,
    needs=[_JOINS],
    in_file=[("torch", "numpy")],
    options=[_MIN_ROUNDS],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each join of a variable with itself that a loop repeats, and each buffer that is copied to move its rows."""
    for call in code.calls(*_NAMES):
        statement = code.flow.statement(call)
        loop = code.flow.loop(call)
        if loop is None and (rows := _moved_rows(code, call, statement)) is not None:
            yield code.finding(call, f"all of `{rows}` is copied to make room; write where the oldest rows are")
        if loop is None or not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
            continue
        grown = path_of(statement.targets[0])
        if grown is None or not _begins_with(call, grown) or not code.is_external(call.func, *_CALLS):
            continue
        few = code.is_external(call.func, "numpy.append") and not code.is_hot(call)
        if few and loop.parent is None and not runs_per_item(code.facts, code.scope):
            continue  # a few numbers for a plot
        rounds = written_rounds(loop)
        if _is_needed(code, call, grown) or (rounds is not None and rounds < code.option(_MIN_ROUNDS)):
            continue
        yield code.finding(call, f"each round copies all of `{grown}`; append to a list, and join it once after the loop")


def _added(call: ast.Call, grown: str) -> list[ast.expr]:
    first = call.args[0] if call.args else None
    parts = first.elts if isinstance(first, (ast.List, ast.Tuple)) else call.args[:2]
    return [part for part in parts if path_of(part) != grown]


def _begins_with(call: ast.Call, grown: str) -> bool:
    """Whether a call joins the variable with one or more others, the variable first or last."""
    first = call.args[0] if call.args else None
    parts = first.elts if isinstance(first, (ast.List, ast.Tuple)) else call.args[:2]
    paths = [path_of(part) for part in parts]
    return len(parts) >= 2 and paths.count(grown) == 1 and grown in (paths[0], paths[-1])


def _moved_rows(code: Code, call: ast.Call, statement: ast.stmt) -> str | None:
    """`self.rows` of `self.rows = torch.cat((new, self.rows[:-n]))` and of `self.rows = torch.cat((self.rows, new))[-n:]`."""
    if (
        not isinstance(statement, ast.Assign)
        or len(statement.targets) != 1
        or not isinstance(statement.targets[0], ast.Attribute)
    ):
        return None
    rows, parts = path_of(statement.targets[0]), getattr(call.args[0] if call.args else None, "elts", [])
    cut = [part for part in parts if isinstance(part, ast.Subscript) and path_of(part.value) == rows]
    if isinstance(statement.value, ast.Subscript) and statement.value.value is call:
        cut = [statement.value] if any(path_of(part) == rows for part in parts) else []
    elif statement.value is not call:
        return None
    if len(call.args) + len(call.keywords) > 1 or len(cut) != 1 or not _takes_many(code, cut[0].slice):
        return None
    return rows if code.heat is not Heat.FORWARD and code.is_external(call.func, *_CALLS) else None


def _takes_many(code: Code, index: ast.expr) -> bool:
    """Whether an index is a slice of rows whose bounds are not written out."""
    if isinstance(index, ast.Name):
        built = [d.value for d in code.flow.reaching.get(index, ())]
        return bool(built) and all(isinstance(b, ast.Call) and path_of(b.func) == "slice" for b in built)
    bounds = [bound for bound in (index.lower, index.upper) if bound is not None] if isinstance(index, ast.Slice) else []
    return len(bounds) == 1 and not isinstance(getattr(bounds[0], "operand", bounds[0]), ast.Constant)


def _is_needed(code: Code, call: ast.Call, grown: str) -> bool:
    """Whether the loop looks at the variable elsewhere, binds it anew, or adds to it now and then only."""
    flow = code.flow
    loop = flow.loop(call)
    assert loop is not None
    joins = [s for s in ast.walk(loop.node) if isinstance(s, ast.Assign) and _is_join(s, grown)]
    own = {id(node) for join in joins for node in ast.walk(join)}
    if any(path_of(node) == grown for part in _added(call, grown) for node in ast.walk(part) if isinstance(node, ast.expr)):
        return True
    for block in flow.block[call].ancestry():
        if block is loop.block:
            break
        if block.kind in ("then", "else", "handler"):
            if not isinstance(block.node, ast.If) or is_guard(flow, block):
                return True
            if _joins_either_way(block.node, grown):
                own.update(id(n) for part in (block.node.test, *_bindings(block.node, grown)) for n in ast.walk(part))
    others = (n for n in flow.order if isinstance(n, (ast.Name, ast.Attribute)) and id(n) not in own and path_of(n) == grown)
    return any(flow.within(node, loop.block) for node in others)


def _joins_either_way(choice: ast.If, grown: str) -> bool:
    """`if acc is None: acc = y`, or `if i == 0: acc = y`, with the join in the other branch, or a join in both."""
    arms = [
        [s for statement in arm for s in ast.walk(statement) if isinstance(s, ast.Assign)]
        for arm in (choice.body, choice.orelse)
    ]
    begun, other = ({path_of(s.targets[0]) for s in arm} - {None} for arm in arms)
    if grown not in begun & other:
        return False
    tested = {path_of(node) for node in ast.walk(choice.test)}
    first = isinstance(choice.test, ast.Compare) and getattr(choice.test.comparators[0], "value", None) == 0
    return bool(tested & begun & other) or first or all(any(_is_join(s, grown) for s in arm) for arm in arms)


def _is_join(statement: ast.Assign, grown: str) -> bool:
    value = statement.value
    if not isinstance(value, ast.Call) or path_of(statement.targets[0]) != grown:
        return False
    return (path_of(value.func) or "").rpartition(".")[2] in _NAMES and _begins_with(value, grown)


def _bindings(choice: ast.If, grown: str) -> list[ast.Assign]:
    return [node for node in ast.walk(choice) if isinstance(node, ast.Assign) and path_of(node.targets[0]) == grown]
