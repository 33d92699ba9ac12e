"""Copies of whole tensors that a list takes, as a `HostList` makes them without a wait: no rule by itself."""

import ast

from perflint.api import CannotRewrite, Code, Tensor


def copied(code: Code, copy: ast.expr) -> tuple[str, str]:
    """What a list takes where `x.cpu()` (a copy), `x.cpu().numpy()` (an array) or `x.tolist()` (a list) stands, and of what.

    Raises:
        CannotRewrite: the copy is made in another way.

    """
    names, tensor, is_explicit = _ways_to_host(copy)
    is_list = names[:1] == ["tolist()"]
    del names[:is_list]
    is_array = names[:1] == ["numpy()"]
    del names[:is_array]
    is_known = code.value(tensor).must(lambda a: isinstance(a, Tensor)) or not (is_explicit and names)
    if not is_known or {"numpy()", "tolist()"} & {*names} or (not is_explicit and (is_array or not is_list)):
        raise CannotRewrite("the copy is made in another way")
    text = code.text(tensor)
    if names and not isinstance(tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        text = f"({text})"
    through = [f'"{name}"' for name, is_there in (("cpu", is_explicit), ("numpy", is_array)) if is_there] if is_list else []
    return "list" if is_list else "array" if is_array else "copy", ", ".join((".".join((text, *reversed(names))), *through))


def _ways_to_host(copy: ast.expr) -> tuple[list[str], ast.expr, bool]:
    """What is done with a copy, the last first, what is copied, and whether `cpu` says so."""
    node, names = copy, list[str]()
    while True:
        match node:
            case (
                ast.Call(func=ast.Attribute(value=inner, attr="cpu"), args=[], keywords=[])
                | ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[ast.Constant(value="cpu")], keywords=[])
            ):
                return names, inner, True
            case ast.Call(func=ast.Attribute(value=inner, attr="numpy" | "detach" | "tolist" as name), args=[], keywords=[]):
                names.append(f"{name}()")
            case ast.Attribute(value=inner, attr="data"):
                names.append("data")
            case _:
                return names, node, False
        node = inner
