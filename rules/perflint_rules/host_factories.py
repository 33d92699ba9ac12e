"""Tensors that are computed on the host from nothing but numbers: `torch.exp(torch.arange(n) * 2)`."""

import ast

from perflint.api import Code, External, Literal, Number, Tensor, words

EXACT = words("zeros ones empty eye full arange")
_COMPUTED = EXACT | {"linspace"}
_LAYOUT = words("expand view reshape repeat unsqueeze squeeze permute transpose")


def is_factory(code: Code, call: ast.Call, names: frozenset[str] = EXACT) -> bool:
    """Whether a call makes a tensor of numbers: `torch.zeros(3)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in names and code.is_external(call.func, f"torch.{name}")


def factories_behind(code: Code, node: ast.expr) -> list[ast.Call]:
    """The factories from which a tensor on the host is computed; none if anything else but numbers goes into it."""
    found = [part for part in ast.walk(node) if isinstance(part, ast.Call) and is_factory(code, part, _COMPUTED)]
    value = code.value(node)
    on_host = value.must_be_if_known(Tensor) and not value.may(lambda a: isinstance(a, Tensor) and a.place.may_be_device)
    if not found or found == [node] or not on_host:
        return []
    shaped = [part for part in ast.walk(node) if isinstance(part, ast.Call) and _changes_layout(part)]
    given = {part for call in (*found, *shaped) for argument in call.args for part in ast.walk(argument)}
    keywords = {part for call in found for keyword in call.keywords for part in ast.walk(keyword)}
    names = [part for part in ast.walk(node) if isinstance(part, ast.Name) and part not in given | keywords]
    return found if all(_is_number(code, name) for name in names) else []


def _changes_layout(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LAYOUT


def _is_number(code: Code, name: ast.Name) -> bool:
    """Whether a name is a number or a module; a loop's variable of which nothing is known is a number here."""
    value = code.value(name)
    if value.may_be(External) or value.must_be_if_known(Number, Literal):
        return True
    bound = code.flow.reaching.get(name, frozenset())
    return not value.alternatives and bool(bound) and all(definition.kind == "for" for definition in bound)
