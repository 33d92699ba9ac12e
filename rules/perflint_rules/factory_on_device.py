"""A factory call that makes its tensor where it would be moved to: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import CannotRewrite, Code, Edit, Import, add_keyword, replace

_KEEPS_AS_IT_IS = frozenset(("device", "out", "pin_memory", "requires_grad"))


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
