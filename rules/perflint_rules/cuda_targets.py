"""Where a copy goes, and whether `non_blocking` may be written there: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    Code,
    Device,
    Kind,
    Literal,
    Number,
    Obligation,
    Place,
    any_layout,
    argument,
    path_of,
    without_effect,
)

_SCRIPTS = any_layout(rb"\bjit \. \w|\bimport [^\r\n]*\bjit\b")


def asks_device(code: Code, call: ast.Call, target: Place) -> str | None:
    """A question to the device whether it is CUDA, where the source does not tell, and which nothing but gives an answer."""
    given = argument(call, 0, "device")
    if target.is_cuda_or_host or given is None or path_of(given) is None:
        return None
    device = code.value(given)
    if not device.must(lambda a: isinstance(a, Device) or (isinstance(a, Literal) and a.value is None)):
        return None
    if code.compiled_by is not None or without_effect(code.facts, code.scope, given) is not None:
        return None
    may_be_none = f'"cuda" in str({code.text(given)})' if code.means_builtin("str") else None
    return f'{code.text(given)}.type == "cuda"' if device.must_be(Device) else may_be_none


def not_cuda(code: Code, call: ast.Call, target: Place) -> Obligation | None:
    """Whether a copy may go to neither CUDA nor the CPU."""
    given = argument(call, 0, "device")
    name = ast.unparse(given) if given is not None else "the device"
    reason = f"`{name}` may be neither a CUDA device nor the CPU"
    counts = (
        given is not None and getattr(call.func, "attr", "") == "to" and code.value(given).may(_is_index)
    )  # of what torch computes on
    return Obligation(Kind.CUDA_OR_CPU, reason) if counts or not target.is_cuda_or_host else None


def _is_index(alternative: Alternative) -> bool:
    return isinstance(alternative, Number) or (isinstance(alternative, Literal) and type(alternative.value) is int)


def scripted(code: Code, call: ast.Call) -> Iterator[Obligation]:
    """Whether TorchScript may compile a copy, and not know its argument."""
    if getattr(call.func, "attr", "") == "cuda" and code.facts.project.program_may_hold(code.source.path, _SCRIPTS):
        yield Obligation(Kind.PLAIN_MODULES, "TorchScript's `cuda` takes no `non_blocking`")
