"""Branches that end what they ask for: what they make is there the next time, and they do not run again."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import Block, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.source.nodes import walk

_ORDERS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)
_GROWING = frozenset(("append", "extend", "update", "add"))


def puts_itself_off(flow: Flow, block: Block) -> bool:
    """Whether a branch sees to it that its condition does not hold the next time."""
    return (
        block.kind == "then"
        and isinstance(block.node, (ast.If, ast.IfExp))
        and (_moves_on(block.node) or _turns_flag(flow, block.node) or _follows_phase(flow, block.node))
    )


def keeps_for_later(flow: Flow, block: Block) -> bool:
    """Whether a branch makes what is kept for the next time."""
    if not isinstance(block.node, ast.If):
        return False
    if block.kind == "else":
        return _makes_anew(block.node)
    return block.kind == "then" and (
        _lacks_attribute(block.node.test)
        or _fills_cache(flow, block.node, block)
        or _fills_up(block)
        or _follows_size(flow, block)
    )


def is_behind_kept(flow: Flow, node: ast.AST) -> bool:
    """Whether a node stands behind a return of what was made the last time: it runs once, and what it makes is kept.

    `if self.rows is not None: return`, and then `self.rows = ...`.
    """
    statement: ast.AST = flow.statement(node)
    while isinstance(statement, ast.stmt) and statement is not flow.scope.node:
        siblings = flow.siblings(statement)
        above = siblings[: siblings.index(statement)] if statement in siblings else []
        if any(isinstance(other, ast.If) and _returns_kept(flow, other, siblings) for other in above):
            return True
        statement = flow.parent.get(statement, flow.scope.node)
    return False


def _returns_kept(flow: Flow, guard: ast.If, siblings: list[ast.stmt]) -> bool:
    """Whether a branch returns if there is something that is stored behind it."""
    if guard.orelse or not isinstance(guard.body[-1], ast.Return):
        return False
    behind = siblings[siblings.index(guard) + 1 :]
    asked = _asked_for(flow, guard.test)
    stored = {path_of(s.value if isinstance(s, ast.Subscript) else s) for s in flow.stores if flow.order[s] > flow.order[guard]}
    stored |= {d.name for d in flow.definitions if d.name in flow.outer_names}
    return bool(asked & stored) or any(_calls_setter(flow, behind, path) for path in asked)


def _asked_for(flow: Flow, test: ast.expr) -> set[str]:
    """What a condition asks for: `self.rows`, also by `hasattr(self, "rows")`, or by a name for `self.rows.get(key)`."""
    nodes = list(walk(test))
    for read in [n for n in nodes if isinstance(n, ast.Name)]:
        nodes += [n for d in flow.reaching.get(read, ()) if d.kind == "assign" and d.value is not None for n in walk(d.value)]
    asked = {path_of(node) for node in nodes if isinstance(node, (ast.Name, ast.Attribute))} - {None}
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id="hasattr"), args=[ast.expr() as owner, ast.Constant(value=str(name))]):
                asked.add(f"{path_of(owner)}.{name}")
    return {path for path in asked if path is not None}


def _follows_phase(flow: Flow, guard: ast.If | ast.IfExp) -> bool:
    """`if late != was_late: was_late = late`, where `late` is `step >= warmup`: once, when the phase changes."""
    match guard:
        case ast.If(test=ast.Compare(left=left, ops=[ast.NotEq() | ast.IsNot()], comparators=[right]), body=body):
            set_to = {path_of(t): path_of(s.value) for s in body if isinstance(s, ast.Assign) for t in s.targets}
            return any(
                set_to.get(path_of(kept)) == path_of(phase) is not None and _is_ordered(flow, phase)
                for kept, phase in ((left, right), (right, left))
            )
    return False


def _is_ordered(flow: Flow, node: ast.expr) -> bool:
    """Whether a value says whether a number is larger than another one."""
    found = flow.reaching.get(node, frozenset())
    values = [d.value for d in found if d.kind == "assign" and not d.index]
    return (
        bool(values)
        and len(values) == len(found)
        and all(isinstance(value, ast.Compare) and isinstance(value.ops[0], _ORDERS) for value in values)
    )


def _moves_on(guard: ast.If | ast.IfExp) -> bool:
    """`if now - self.last >= interval: self.last = now`, and `if now >= due: due += interval`: the next time is later.

    A best value so far (`if loss < best: best = loss`) is no time: it is neither subtracted nor added to.
    """
    if not isinstance(guard, ast.If):
        return False
    ordered = [n for n in walk(guard.test) if isinstance(n, ast.Compare) and isinstance(n.ops[0], _ORDERS)]
    taken_off = {path_of(n.right) for o in ordered for n in walk(o) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub)}
    compared = {path_of(side) for o in ordered for side in (o.left, o.comparators[0])}
    set_anew = {path_of(t) for s in guard.body if isinstance(s, ast.Assign) for t in s.targets}
    put_off = {
        path_of(s.target)
        for s in guard.body
        if isinstance(s, ast.AugAssign) and isinstance(s.op, ast.Add) and not isinstance(s.value, ast.Constant)
    }  # by a constant: a counter, of steps perhaps
    return bool((taken_off & set_anew | compared & put_off) - {None})


def _turns_flag(flow: Flow, guard: ast.If | ast.IfExp) -> bool:
    """`if self.wants_statistics: self.wants_statistics = False`: once, until somebody else sets it again.

    A flag that the same function sets by what it computes may be set again in each round, unless that is what the guard does:
    `if not shown: shown = describe(model)`.
    """
    match guard:
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=ast.Name() | ast.Attribute() as flag), body=body):
            turned = True
        case ast.If(test=ast.Name() | ast.Attribute() as flag, body=body):
            turned = False
        case _:
            return False
    path = path_of(flag)
    if path is None:
        return False
    values = [s.value for s in body if isinstance(s, ast.Assign) and path in map(path_of, s.targets)]
    made = [value for value in values if turned and isinstance(value, ast.Call)]
    if not made and not any(isinstance(value, ast.Constant) and value.value is turned for value in values):
        return False
    around = flow.loop(guard)
    again = (d for d in flow.definitions if d.name == path and (around is None or flow.within(d.node, around.block)))
    others = (d for d in again if d.kind != "parameter" and d.value not in made)
    return all(isinstance(d.value, ast.Constant) and d.value.value is turned for d in others)


def _lacks_attribute(test: ast.expr) -> bool:
    """`if not hasattr(self, "mask"): self.mask = ...`: the first time only."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="hasattr"), args=[ast.Name(id="self"), _])):
            return True
    return False


def _makes_anew(guard: ast.If) -> bool:
    """`if n == self.n: window = self.window`, else `self.window = ...`: what was made the last time mostly fits."""
    kept = {path_of(s.value) for s in guard.body if isinstance(s, ast.Assign)} - {None}
    stored = {path_of(target) for s in guard.orelse if isinstance(s, ast.Assign) for target in s.targets}
    return any(path is not None and path.startswith("self.") for path in kept & stored)


def _fills_up(block: Block) -> bool:
    """`if len(shown) < 16: shown.append(...)`: the first rounds only."""
    match block.node:
        case ast.If(
            test=ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[held]), ops=[ast.Lt() | ast.LtE()], comparators=[ast.Constant()]
            ),
            body=body,
        ):
            calls = (node.func for statement in body for node in walk(statement) if isinstance(node, ast.Call))
            grown = {path_of(f.value) for f in calls if isinstance(f, ast.Attribute) and f.attr in ("append", "extend")}
            return path_of(held) in grown - {None}
    return False


def _follows_size(flow: Flow, block: Block) -> bool:
    """`if size != self.size: self.make_grid(size)`, which sets `self.size`: what runs here is kept while sizes stay."""
    match block.node:
        case ast.If(test=ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]), body=body):
            kept = next((path for path in (path_of(left), path_of(right)) if path and path.startswith("self.")), None)
            if kept is None or flow.scope.owner is None or not (_tells_size(flow, left) or _tells_size(flow, right)):
                return False
            nodes = (node for statement in body for node in walk(statement))
            stored = any(isinstance(n, ast.Assign) and kept in map(path_of, n.targets) for n in nodes)
            return stored or _calls_setter(flow, body, kept)
    return False


def _tells_size(flow: Flow, node: ast.expr) -> bool:
    """Whether a value is a size, or one of several that a tensor has."""
    values = [d.value for d in flow.reaching.get(node, frozenset()) if d.value is not None] or [node]
    return any(isinstance(n, ast.Attribute) and n.attr in ("size", "shape") for value in values for n in walk(value))


def _fills_cache(flow: Flow, guard: ast.If, block: Block) -> bool:
    """`if self.mask is None or ...: self.mask = ...`, `if key not in TABLES: TABLES[key] = ...`: kept for the next time."""
    tested = {
        path_of(n.left)
        for n in walk(guard.test)
        if isinstance(n, ast.Compare) and isinstance(n.comparators[0], ast.Constant)
        if isinstance(n.ops[0], ast.Is) or (isinstance(n.ops[0], ast.Eq) and n.comparators[0].value is None)
    }
    looked_up = {
        path_of(n.comparators[0]) for n in walk(guard.test) if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.NotIn)
    }
    if not tested and not looked_up:
        return False
    if block.loop is None and any(_grows_later(guard, path) for path in tested):
        return True
    if any(path is not None and _calls_setter(flow, guard.body, path) for path in tested):
        return True
    targets = [t for s in guard.body for n in walk(s) if isinstance(n, ast.Assign) for t in n.targets]
    assigned = {path_of(t) for t in targets} & tested
    if block.loop is None:
        assigned |= {path_of(t.value) for t in targets if isinstance(t, ast.Subscript)} & looked_up
        # a local variable is kept for no other time
        return any(path is not None and (not path.isidentifier() or _is_outer(flow, path)) for path in assigned)
    return bool(assigned - {None})


def _calls_setter(flow: Flow, body: list[ast.stmt], path: str) -> bool:
    """Whether statements call a method that sets an attribute: `self.load()`, which assigns `self.rows`."""
    if flow.scope.owner is None or not path.startswith("self."):
        return False
    setters = {f"self.{method.name}" for method in flow.scope.owner.methods_assigning(path.removeprefix("self."))}
    called = (path_of(node.func) for statement in body for node in walk(statement) if isinstance(node, ast.Call))
    return any(name in setters for name in called)


def _grows_later(guard: ast.If, path: str | None) -> bool:
    """`if totals is None: totals = {...}`, else `totals[name].append(...)`: the first of many rounds begins it."""
    grown = [
        n.func.value
        for s in guard.orelse
        for n in walk(s)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in _GROWING
    ]
    grown += [n.target for s in guard.orelse for n in walk(s) if isinstance(n, ast.AugAssign)]
    began = {path_of(t) for s in guard.body if isinstance(s, ast.Assign) for t in s.targets}
    return path is not None and path in began and any(_root(node) == path for node in grown)


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Subscript):
        node = node.value
    return path_of(node)


def _is_outer(flow: Flow, name: str) -> bool:
    """Whether a name is none of the function's own variables."""
    return name in flow.outer_names or not flow.definitions_of(name)
