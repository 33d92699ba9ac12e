"""Copies that wait for nothing: made by the runtime, or not at all, for tensors that the device can make. No rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Device,
    Edit,
    Fix,
    Import,
    Place,
    add_keyword,
    comes_from_host,
    is_blocking,
    replace,
)

_KEEPS_AS_IT_IS = frozenset(("device", "out", "pin_memory", "requires_grad"))
_HELPERS = {
    ("to", False): "moved",
    ("to", True): "moved_copy",
    ("cuda", False): "moved_to_cuda",
    ("cuda", True): "moved_copy_to_cuda",
}
"""What the runtime has in the place of a method, by whether it takes a copy of the memory first."""


def helper_of(call: ast.Call, *, copies: bool) -> str | None:
    """The runtime's function in the place of `x.to(...)` or `x.cuda(...)`; None for another method.

    copies: whether somebody may write to the memory, or it is ordinary memory.
    """
    return _HELPERS.get((call.func.attr, copies)) if isinstance(call.func, ast.Attribute) else None


def guarded(code: Code, call: ast.Call, helper: str) -> Iterator[Edit | Import]:
    """The copy `call`, made by a function of the runtime."""
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    if "#" in code.text(call):
        raise CannotRewrite("a comment would be lost")
    if isinstance(receiver, (ast.Yield, ast.YieldFrom, ast.GeneratorExp)):
        raise CannotRewrite("it would need parentheses of its own")
    given = sorted((*call.args, *call.keywords), key=code.span)
    yield Import("perflint_runtime", helper)
    yield replace(code.source, call, f"{helper}({', '.join(map(code.text, (receiver, *given)))})")


def copied(code: Code, call: ast.Call) -> Fix | None:
    """The same numbers from ordinary memory, copied by the runtime without a wait, if nobody reads on another stream."""
    helper = helper_of(call, copies=True)
    if not code.offers_runtime or helper is None or not is_blocking(call) or code.compiled_by is not None:
        return None
    cure = f"copy it by `{helper}` of the runtime, which does not wait"
    return code.fix(cure, guarded(code, call, helper), unless=code.needs_wait())


def takes_device(factory: ast.Call) -> bool:
    """Whether `device=` can be passed to a factory call as it stands."""
    return not any(k.arg in _KEEPS_AS_IT_IS or k.arg is None for k in factory.keywords)


def folded(code: Code, call: ast.Call, factory: ast.Call, device: ast.expr) -> Iterator[Edit | Import]:
    """The factory call itself, on the device that the call moves its result to."""
    assert isinstance(call.func, ast.Attribute)
    keyword = add_keyword(code.source, factory, "device", '"cuda"' if device is call else code.text(device))
    (start, end), (first, last) = code.span(call.func.value), code.span(factory)
    content = f"{code.source.text(start, first)}{keyword.content}{code.source.text(last, end)}"
    if code.text(call).count("#") != content.count("#"):
        raise CannotRewrite("a comment would be lost")
    yield replace(code.source, call, content)


def stays_on_host(code: Code, device: ast.expr | None) -> bool:
    """Whether the device that something is copied to is the CPU, as far as it is known, or that of a batch on the host."""
    known = code.value(device).alternatives if device is not None else ()
    if known and all(isinstance(a, Device) and a.place is Place.HOST for a in known):
        return True
    batch = device.value if isinstance(device, ast.Attribute) and device.attr == "device" else None
    return batch is not None and comes_from_host(code.facts.inference, code.facts.loops, code.scope, batch)
