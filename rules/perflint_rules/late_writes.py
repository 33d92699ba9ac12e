"""Numbers that a writer of TensorBoard gets in each step, written by the runtime when they have arrived: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    OWN_TENSORS,
    PATCHED,
    CannotRewrite,
    Code,
    Edit,
    Fix,
    FunctionRef,
    Import,
    Kind,
    Obligation,
    path_of,
    replace,
    untimed,
)
from perflint_rules.late_numbers import Reads, as_arguments, is_late_number, number_around, open_about

CURE = "write it when it has arrived, by `late_scalar` of the runtime"


def call_around(code: Code, reads: Reads, read: ast.expr) -> ast.Call | None:
    """The call `writer.add_scalar(tag, value, step)` that a read gives its value, or that makes the read itself."""
    call = code.flow.parent.get(number_around(code, reads, read))
    match call:
        case ast.Call(func=ast.Attribute(attr="add_scalar"), args=[tag, value, *more], keywords=named):
            spread = any(isinstance(given, ast.Starred) for given in (tag, value, *more)) or any(k.arg is None for k in named)
            return call if not spread and isinstance(code.flow.parent.get(call), ast.Expr) else None
    return None


def written_late(code: Code, reads: Reads, call: ast.Call) -> tuple[Fix | None, list[Obligation | None]]:
    """The fix for a call, and what is not proved about it."""
    if not code.offers_runtime or code.compiled_by is not None:
        return None, []
    missing = [*_open(code, reads, call)]
    return code.fix(CURE, _edits(code, reads, call), unless=missing), missing


def _open(code: Code, reads: Reads, call: ast.Call) -> Iterator[Obligation | None]:
    loop = code.around(call)
    calls = [other for other in code.flow.calls if loop is None or code.flow.within(other, loop.block)]
    yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of the writer would be raised a step later")
    yield from code.feared(OWN_TENSORS, PATCHED)
    yield untimed(calls)
    yield from code.needs_wait()
    yield from open_about(code, reads, call.args[1])


def _edits(code: Code, reads: Reads, call: ast.Call) -> Iterator[Edit | Import]:
    assert isinstance(call.func, ast.Attribute)
    writer, (tag, value) = call.func.value, call.args[:2]
    if path_of(writer) is None or code.value(call.func).may_be(FunctionRef):
        raise CannotRewrite("the writer has no name, or is the project's own")
    yield Import("perflint_runtime", "late_scalar")
    yield replace(code.source, call.func, "late_scalar")
    start, _ = code.span(tag)
    yield Edit(start, start, f"{code.text(writer)}, ")
    if is_late_number(code, reads, value):
        yield Import("perflint_runtime", "LateItem")
        yield replace(code.source, value, f"LateItem({as_arguments(code, reads, value)})")
    elif any(part in reads for part in ast.walk(value) if part is not value and isinstance(part, ast.expr)):
        raise CannotRewrite("more than a number is made of the read")
