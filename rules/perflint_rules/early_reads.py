"""What stands against it that a read is made earlier, together with others: no rule by itself."""

import ast
from collections.abc import Iterator, Sequence

from perflint.api import (
    Code,
    External,
    HostRead,
    Kind,
    Obligation,
    Tensor,
    operations,
    step_definitions,
    unshared,
    untouched,
    without_effect,
)
from perflint_rules.quiet_code import writes_between


def made_earlier(code: Code, read: HostRead, group: Sequence[HostRead]) -> Iterator[Obligation]:
    """What stands against it that a tensor is read where the first read of a group stands."""
    flow, tensor, place = code.flow, read.tensor, code.flow.statement(group[0].node)
    names = [part for part in ast.walk(tensor) if isinstance(part, ast.Name)]
    if any(d.order > flow.order[place] for name in names for d in flow.reaching.get(name, ())):
        yield Obligation(Kind.VALUE, f"`{ast.unparse(tensor)}` is computed in between")
        return
    if read is group[0] and _is_first(code, read):
        return
    if writes_between(code, place, read.node, group):
        definitions = step_definitions(flow, tensor) if isinstance(tensor, ast.Name) else []
        if not definitions:
            yield Obligation(Kind.MUTATION, f"`{ast.unparse(tensor)}` may change in between")
        for definition in definitions:
            yield from filter(None, [untouched(code.facts, code.scope, definition, read.node, first=place)])
        yield from filter(None, [unshared(code.facts, code.scope, tensor)] if definitions else [])
    if not isinstance(tensor, ast.Name):
        entries = [s for s in flow.stores if flow.order[place] < flow.order[s] < flow.order[read.node]]
        if not all(isinstance(s, ast.Subscript) and _is_apart(code, s.value, read) for s in entries):
            yield Obligation(Kind.MUTATION, f"`{ast.unparse(tensor)}` may look at what is stored in between")
    yield from computed_early(code, tensor)


def computed_early(code: Code, tensor: ast.expr) -> Iterator[Obligation]:
    """What stands against it that a tensor is computed before other reads are made: they may wait for a copy that it takes."""
    yield from _open_about_order(code, tensor)
    if not isinstance(tensor, ast.Name):
        yield from code.needs_wait()


def _is_apart(code: Code, held: ast.expr, read: HostRead) -> bool:
    """Whether a read cannot look into a dict: one that is made here, and that nothing but its name holds until then."""
    flow = code.flow
    names = {part.id for part in ast.walk(read.tensor) if isinstance(part, ast.Name)}
    if not isinstance(held, ast.Name) or held.id in names | flow.inner_names | flow.outer_names:
        return False
    made = flow.reaching.get(held, frozenset())
    uses = [use for d in made for use in flow.uses[d] if flow.order[use] < flow.order[read.node]]
    alone = all(isinstance(item := flow.parent.get(use), ast.Subscript) and item.value is use for use in uses)
    return bool(made) and alone and all(d.kind == "assign" and isinstance(d.value, (ast.Dict, ast.Call)) for d in made)


def _open_about_order(code: Code, tensor: ast.expr) -> Iterator[Obligation]:
    """What stands against it that a tensor is computed before other reads are made."""
    match tensor:
        case ast.Call(func=func, args=args, keywords=keywords) if _is_torch(code, func) and _only_gives(func, keywords):
            for part in (*args, *(keyword.value for keyword in keywords)):
                yield from _open_about_order(code, part)
            return
        case ast.Call(func=ast.Attribute(value=receiver) as func, args=args, keywords=keywords) if _only_gives(func, keywords):
            if not code.value(receiver).must_be(Tensor):
                words = f"`{ast.unparse(receiver)}` may be no tensor, and `{func.attr}` may do more than compute"
                yield Obligation(Kind.PLAIN_OBJECTS, words)
            for part in (receiver, *args, *(keyword.value for keyword in keywords)):
                yield from _open_about_order(code, part)
            return
    yield from filter(None, [without_effect(code.facts, code.scope, tensor)])


def _is_torch(code: Code, func: ast.expr) -> bool:
    """Whether a function is one of torch's own namespace, none of whose functions writes to its arguments."""
    function = code.value(func).single
    return isinstance(function, External) and function.qualname.rpartition(".")[0] == "torch"


def _only_gives(func: ast.expr, keywords: Sequence[ast.keyword]) -> bool:
    """Whether an operation of that name gives a tensor, writes to none and draws no random numbers."""
    if not isinstance(func, ast.Attribute) or any(keyword.arg in ("out", None) for keyword in keywords):
        return False
    rows = [row for row in (operations.method(func.attr), operations.function(f"torch.{func.attr}")) if row is not None]
    return bool(rows) and not func.attr.endswith("_") and not any(row.writes or row.random for row in rows)


def _is_first(code: Code, read: HostRead) -> bool:
    """Whether a statement begins with a read, but for names and attributes that it looks up."""
    order, within = code.flow.order, set(ast.walk(read.node))
    before = [
        part
        for part in ast.walk(code.flow.statement(read.node))
        if part not in within and order.get(part, 0) < order[read.node]
    ]
    found = [part for part in before if not isinstance(part, _FOUND)]
    return all(isinstance(p, ast.Attribute) and without_effect(code.facts, code.scope, p) is None for p in found)


_FOUND = (ast.stmt, ast.Name, ast.Constant, ast.expr_context, ast.operator)
