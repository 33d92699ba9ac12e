"""Selections by one mask in one step, which the runtime can look for once: no rule by itself."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perflint.api import (
    HOOKS,
    LOOKS_AT_FRAMES,
    OWN_TENSORS,
    PATCHED,
    CannotRewrite,
    Code,
    Definition,
    Edit,
    Import,
    Kind,
    Number,
    Obligation,
    Tensor,
    free_name,
    insert_before,
    replace,
    step_definitions,
    suspends,
    unshared,
    untouched,
)
from perflint_rules.quiet_code import writes_between


@dataclass(frozen=True)
class Selections:
    """Selections by the same mask, in the order in which they run. One that both takes and stores stands there twice."""

    nodes: list[ast.Subscript]
    masks: list[ast.expr]
    """The mask in each: `mask` or `~mask`."""


def by_mask(code: Code, waiting: Iterable[ast.expr]) -> Iterator[Selections]:
    """The selections `x[mask]`, `x[mask, 0]` among some expressions that are made by the same mask."""
    found: defaultdict[tuple[str, frozenset[object]], list[tuple[ast.Subscript, ast.expr]]] = defaultdict(list)
    for node in waiting:
        match node, list(selectors(code, node)):
            case ast.Subscript(), [ast.Name() | ast.UnaryOp(op=ast.Invert(), operand=ast.Name()) as mask]:
                found[ast.unparse(mask), code.flow.reaching.get(_name(mask), frozenset())].append((node, mask))
    for (_, definitions), selections in found.items():
        left = sorted(selections, key=lambda selection: code.flow.order[selection[0]]) if definitions else []
        while left:
            first = left[0]
            group = [other for other in left if other is first or code.flow.dominates(first[0], other[0])]
            left = [other for other in left if other not in group]
            if len(group) > 1:
                yield Selections([node for node, _ in group], [mask for _, mask in group])


def selectors(code: Code, node: ast.expr) -> Iterator[ast.expr]:
    """What says which elements are meant: the masks of `x[t, mask]`, which a statement needs to be told of once."""
    if not isinstance(node, ast.Subscript):
        yield node
        return
    keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    yield from (key for key in keys if not isinstance(key, (ast.Constant, ast.Slice)) and not code.value(key).may_be(Number))


def missing(code: Code, selections: Selections) -> Iterator[Obligation | None]:
    """The proofs that a safe fix needs and that do not hold."""
    mask, last = _name(selections.masks[0]), selections.nodes[-1]
    place = code.flow.statement(selections.nodes[0])
    if writes_between(code, place, last):
        definitions = step_definitions(code.flow, *map(_name, selections.masks))
        if not definitions:
            yield Obligation(Kind.VALUE, f"several definitions of `{mask.id}` reach its uses")
        for definition in definitions:
            yield untouched(code.facts, code.scope, definition, last, first=place)
        shared = unshared(code.facts, code.scope, mask)
        if shared is not None and definitions and all(map(_is_computed, definitions)):
            words = f"`{mask.id}` may be an object of the program's own, whose operators give what somebody holds"
            shared = Obligation(Kind.PLAIN_OBJECTS, words)
        yield shared
    if suspends(code.flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function yields or awaits")
    for selection in selections.nodes:
        if not code.value(selection.value).must_be(Tensor):
            words = f"`{ast.unparse(selection.value)}` may be no tensor, and look at what it is asked for"
            yield Obligation(Kind.PLAIN_OBJECTS, words)
    yield from code.needs_wait()
    yield from code.feared(OWN_TENSORS, PATCHED, LOOKS_AT_FRAMES, HOOKS)  # hooks see what is saved for backward
    yield Obligation(Kind.ERRORS_ARE_BUGS, "a mask of another size raises with other words, or not at all")
    yield Obligation(
        Kind.MEMORY_TO_SPARE, "autograd keeps eight bytes for each place that is selected, not one for each of the mask's"
    )


def _is_computed(definition: Definition) -> bool:
    """Whether a mask is what an operator gives: of a tensor, that is new memory."""
    if definition.kind != "assign" or definition.index:
        return False
    match definition.value:
        case ast.Compare(ops=ops):
            return not any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in ops)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor()) | ast.UnaryOp(op=ast.Invert()):
            return True
    return False


def looked_for_once(code: Code, selections: Selections) -> Iterator[Edit | Import]:
    """The places that a mask selects get a name before the first selection, and all of them use it."""
    first, chosen_by, flow = selections.nodes[0], selections.masks[0], code.flow
    place, mask = flow.statement(first), _name(chosen_by)
    if any(isinstance(selection.slice, ast.Tuple) for selection in selections.nodes):
        raise CannotRewrite("a mask among other indices: its places are a tuple of their own")
    if hasattr(place, "body") or flow.block[first] is not flow.block[place] or code.compiled_by is not None:
        raise CannotRewrite("the first selection does not always run, or is traced")
    if any(definition.order > flow.order[place] for definition in flow.reaching.get(mask, ())):
        raise CannotRewrite("the mask is bound in the statement that uses it")
    name = free_name(code.scope, f"{mask.id}_places" if chosen_by is mask else f"other_{mask.id}_places")
    if name is None:
        raise CannotRewrite("a new variable would be a global, or is visible to `locals()`")
    yield Import("perflint_runtime", "selected")
    yield insert_before(code.source, place, f"{name} = selected({code.text(chosen_by)})")
    for selection in dict.fromkeys(selections.nodes):
        yield replace(code.source, selection.slice, name)


def _name(mask: ast.expr) -> ast.Name:
    named = mask.operand if isinstance(mask, ast.UnaryOp) else mask
    assert isinstance(named, ast.Name)
    return named
