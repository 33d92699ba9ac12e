"""Reads of `t[i]` in a loop over `i`, which become one read before the loop: no rule by itself."""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    BUILT_FROM_TEXT,
    OWN_TENSORS,
    SPARSE,
    Batch,
    CannotRewrite,
    Code,
    Edit,
    Finding,
    Flow,
    Import,
    Kind,
    Loop,
    Obligation,
    Output,
    Severity,
    Tensor,
    free_name,
    insert_before,
    is_guard,
    loop_without_effect,
    once_then_leaves,
    path_of,
    replace,
    single_definition,
    suspends,
    unshared,
    untimed,
    untouched,
)
from perflint_rules.element_reads import keeps_type, may_be_copied_before, may_be_no_tensor, no_row, numbers, read_name
from perflint_rules.kept_numbers import one_object
from perflint_rules.loader_use import draws
from perflint_rules.own_dicts import is_bound, own_dict


def indexed_reads(code: Code) -> Iterator[Finding]:
    """The reads of `t[i]` in a loop over `i` that leaves `t` as it is."""
    found: dict[tuple[Loop, str], list[ast.Call]] = {}
    for call in code.flow.calls:
        item = read_name(call)
        if not isinstance(item, ast.Subscript) or not isinstance(item.slice, ast.Name):
            continue
        loop, path = loop_over(code, item.slice), path_of(item.value)
        if loop is None or path is None or not code.value(item.value).may_be(Tensor, Batch, Output):
            continue
        if code.may_be_on_device(item.value) and stays_in(code, item.value, loop) and is_read_each_time(code, call, loop):
            found.setdefault((loop, path), []).append(call)
    for (loop, path), calls in found.items():
        missing = [*filter(None, _unproven(code, loop, calls))]
        fix = code.fix("read all elements at once", _read_before(code, loop, calls), unless=missing)
        left = [*_open_at_run_time(code, loop, calls)]
        if code.offers_runtime and missing and all(obligation.kind.is_declarable for obligation in left):
            looked_up = code.fix("let the runtime read all elements at once", _looked_up(code, loop, calls), unless=left)
            fix, missing = looked_up or fix, left
        message = f"each element of `{path}` is read from the device by itself; read them all before the loop with `tolist()`"
        unknown = may_be_no_tensor(code, calls, _tensors(calls)[0])
        worth = Severity.INFO if unknown or draws(code, calls[0]) or may_be_copied_before(code, calls[0]) else None
        yield code.finding(calls[0], message, fix, missing, waits=calls, severity=worth)


def loop_over(code: Code, index: ast.Name) -> Loop | None:
    """The loop statement over a `range` whose variable `index` is."""
    definition, *others = code.flow.reaching.get(index) or (None,)
    if definition is None or others:
        return None
    loop = definition.block.loop
    if definition.kind != "for" or definition.index or loop is None or loop.statement is None:
        return None
    match loop.iterated:
        case ast.Call(func=ast.Name() as func, args=args) if code.is_external(func, "builtins.range"):
            few = all(isinstance(argument, ast.Constant) for argument in args)
            return None if few and not code.is_hot(loop.statement) else loop
    return None


def stays_in(code: Code, tensor: ast.expr, loop: Loop) -> bool:
    """Whether a loop, as far as one can see, reads the same tensor in each iteration."""
    path = path_of(tensor) or ""
    root: ast.expr = tensor
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    bound = [d for d in code.flow.definitions if path == d.name or path.startswith((f"{d.name}.", f"{d.name}["))]
    if any(block is loop.block for d in bound for block in d.block.ancestry()):
        return False
    if any(ast.unparse(store).startswith(path) for store in code.flow.stores if code.flow.within(store, loop.block)):
        return False
    reaching = code.flow.reaching.get(root, frozenset())
    missing = [untouched(code.facts, code.scope, definition, root) for definition in reaching]
    return not any(obligation is not None and obligation.kind is Kind.WRITE for obligation in missing)


def is_read_each_time(code: Code, call: ast.expr, loop: Loop) -> bool:
    """Whether a read runs in most iterations: under no guard such as `i % 100 == 0`, and not before the loop is left."""
    for block in code.flow.block[call].ancestry():
        if block is loop.block:
            return not once_then_leaves(code.flow, call, loop)
        if is_guard(code.flow, block):
            break
    return False


def _unproven(code: Code, loop: Loop, calls: list[ast.Call]) -> Iterator[Obligation | None]:
    """The proofs that a safe fix needs and that do not hold."""
    flow = code.flow
    tensors = _tensors(calls)
    name, value = ast.unparse(tensors[0]), code.value(tensors[0])
    definition = single_definition(flow, *tensors)
    if not isinstance(tensors[0], ast.Name):
        yield Obligation(Kind.VALUE, f"`{name}` is an attribute or an item, which may be another object at each access")
    elif definition is None:
        yield Obligation(Kind.VALUE, f"several definitions of `{name}` reach the loop")
    elif _writes_in(code, loop, calls) is not None:
        yield untouched(code.facts, code.scope, definition, calls[-1])
        yield unshared(code.facts, code.scope, tensors[0])
    yield from (no_row(value), *code.feared(SPARSE))
    if not all(keeps_type(code, call, value) for call in calls):
        yield Obligation(Kind.NUMBERS, "`float` and `int` change the type of the numbers")
    if not _over_length(loop, name):
        yield Obligation(Kind.ERRORS_ARE_BUGS, f"an index past the end of `{name}` raises with other words")
    if not any(Flow.always(flow.block[call]) is loop.block for call in calls):
        yield Obligation(Kind.CONTROL_FLOW, "the loop may read nothing at all")
    yield from (one_object(code, calls, loop), *unproven_of_loop(code, loop))


def _open_at_run_time(code: Code, loop: Loop, calls: list[ast.Call]) -> Iterator[Obligation]:
    """What `TensorItems` cannot look at when the program runs: all but the type, the shape and the indices."""
    tensors = _tensors(calls)
    if not all(isinstance(call.func, ast.Attribute) for call in calls):
        yield Obligation(Kind.NUMBERS, "`float` and `int` read other objects than tensors, too")
    root = own_dict(code, tensors[0])
    if root is not None and is_bound(code, loop, root):
        words = f"that `{ast.unparse(tensors[0])}` is missing would be noticed before the loop"
        yield Obligation(Kind.ERRORS_ARE_BUGS, words)
    elif not all(isinstance(tensor, ast.Name) for tensor in tensors):
        yield Obligation(Kind.VALUE, "an attribute or an item may be another object at each access")
    elif not is_bound(code, loop, tensors[0]):
        yield Obligation(Kind.NAMES, f"`{ast.unparse(tensors[0])}` may not be bound where the loop begins")
    yield from filter(None, (_writes_in(code, loop, calls), one_object(code, calls, loop), *unproven_of_loop(code, loop)))


def _writes_in(code: Code, loop: Loop, calls: list[ast.Call]) -> Obligation | None:
    """What in a loop may write to a tensor that is read in it, or give its name to something else."""
    flow, tensor = code.flow, _tensors(calls)[0]
    if isinstance(tensor, ast.Name) and tensor.id in flow.inner_names | flow.outer_names:
        return Obligation(Kind.NAMES, f"`{tensor.id}` is no variable of this function alone")
    if not isinstance(loop.statement, ast.For):
        return Obligation(Kind.CONTROL_FLOW, "the loop is no `for` statement")
    return loop_without_effect(code.facts, code.scope, loop.statement, calls)


def unproven_of_loop(code: Code, loop: Loop) -> Iterator[Obligation | None]:
    """What must hold of the code around a read and of the program before a helper of the runtime may read ahead."""
    if suspends(code.flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function yields or awaits")
    inside = [call for call in code.flow.calls if code.flow.within(call, loop.block)]
    yield from code.feared(OWN_TENSORS, BUILT_FROM_TEXT)
    yield untimed(inside)
    yield from code.needs_wait()


def _tensors(calls: list[ast.Call]) -> list[ast.expr]:
    return [item.value for item in map(read_name, calls) if isinstance(item, ast.Subscript)]


def _over_length(loop: Loop, name: str) -> bool:
    """Whether a loop is `for i in range(n)` where `n` is the length of the tensor."""
    match loop.iterated:
        case ast.Call(args=[length], keywords=[]):
            lengths = ("len({})", "{}.shape[0]", "{}.size(0)", "{}.size()[0]", "{}.numel()")
            return ast.unparse(length) in [form.format(name) for form in lengths]
    return False


def _read_before(code: Code, loop: Loop, calls: list[ast.Call]) -> Iterator[Edit | Import]:
    yield from _from_before(code, loop, calls, "values", numbers(code, _tensors(calls)[0]))


def _looked_up(code: Code, loop: Loop, calls: list[ast.Call]) -> Iterator[Edit | Import]:
    yield Import("perflint_runtime", "TensorItems")
    yield from _from_before(code, loop, calls, "items", f"TensorItems({code.text(_tensors(calls)[0])})")


def _from_before(code: Code, loop: Loop, calls: list[ast.Call], what: str, made: str) -> Iterator[Edit]:
    """Elements of what is made before a loop, in the place of reads in it."""
    name = free_name(code.scope, "_".join([*re.findall(r"\w+", path_of(_tensors(calls)[0]) or ""), what]))
    if name is None or not name.isidentifier() or loop.statement is None or any("#" in code.text(call) for call in calls):
        raise CannotRewrite("there is no name for the numbers, or a comment would be lost")
    yield insert_before(code.source, loop.statement, f"{name} = {made}")
    for call in calls:
        item = read_name(call)
        assert isinstance(item, ast.Subscript)
        yield replace(code.source, call, f"{name}[{code.text(item.slice)}]")
