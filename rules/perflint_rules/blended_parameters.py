"""Loops that copy a weighted sum of two parameters into one of them, as one call of the runtime: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    LOOKS_AT_FRAMES,
    OWN_TENSORS,
    CannotRewrite,
    Code,
    Edit,
    Fix,
    Import,
    Kind,
    Obligation,
    inspects_itself,
    without_effect,
)


def blended(code: Code, loop: ast.For) -> tuple[Fix | None, list[Obligation | None]]:
    """The fix for a loop, where it is of that form, and what it rests on."""
    if not code.offers_runtime:
        return None, []
    form = _form(code, loop)
    if form is None:
        return None, []
    first, second, weights, options = form
    missing = [
        obligation for weight in weights for obligation in (without_effect(code.facts, code.scope, weight), _once(weight))
    ]
    missing += code.feared(OWN_TENSORS, LOOKS_AT_FRAMES)
    texts = [code.text(part) for part in (first, second, *weights)]
    call = f"blend_parameters({texts[0]}, {texts[1]}, lambda: ({texts[2]}, {texts[3]}), {options})"
    return code.fix("blend all parameters together", _called(code, loop, call), unless=missing), missing


def _once(weight: ast.expr) -> Obligation | None:
    """What stands against it that a weight is the same for each pair: a call may read a parameter that the loop has changed."""
    if any(isinstance(part, (ast.Call, ast.Subscript)) for part in ast.walk(weight)):
        return Obligation(Kind.WRITE, f"`{ast.unparse(weight)}` may read a parameter that the loop has changed")
    return None


def _called(code: Code, loop: ast.For, call: str) -> Iterator[Edit | Import]:
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    if code.scope.is_module or inspects_itself(code.flow) or names & (code.flow.inner_names | code.flow.outer_names):
        raise CannotRewrite("the names of the parameters may be seen by other code")
    within = {*ast.walk(loop)}
    made = {d for node in ast.walk(loop.target) for d in code.flow.definitions_at(node)}
    if any(use not in within for d in made for use in code.flow.uses[d]):
        raise CannotRewrite("the last parameter is looked at behind the loop")
    yield Import("perflint_runtime", "blend_parameters")
    yield from _replaced(code, loop, call)


def _replaced(code: Code, loop: ast.For, call: str) -> Iterator[Edit]:
    """A call in the place of a loop's first line, whose comment stays, and nothing in that of its body."""
    (start, end), text = code.span(loop), code.source.body
    colon = text.index(b":", code.span(loop.iter)[1])
    line_end = text.find(b"\n", colon, code.span(loop.body[0])[0])
    if line_end < 0 or b"#" in text[start:colon] + text[line_end:end]:
        raise CannotRewrite("a comment would be lost")
    yield Edit(start, colon + 1, call)
    yield Edit(line_end - text[:line_end].endswith(b"\r"), end, "")


def _form(code: Code, loop: ast.For) -> tuple[ast.expr, ast.expr, list[ast.expr], str] | None:
    """The two that a loop goes over, the weights of their parameters, and what else the call says."""
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
            iter=ast.Call(func=ast.Name(id="zip"), args=[left, right], keywords=[]),
            body=[
                ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(value=ast.Attribute(value=ast.Name(id=taker), attr="data"), attr="copy_"),
                        args=[ast.BinOp(left=one, op=ast.Add(), right=other)],
                        keywords=[],
                    )
                )
            ],
            orelse=[],
        ) if first != second and taker in (first, second) and code.means_builtin("zip"):
            products = [_product(one), _product(other)]
        case _:
            return None
    if isinstance(left, ast.Starred) or isinstance(right, ast.Starred) or None in products:
        return None
    (begins, x, behind), (follows, y, also_behind) = (product for product in products if product is not None)
    if {begins, follows} != {first, second} or behind != also_behind:
        return None
    if any(isinstance(n, ast.Name) and n.id in (first, second) for weight in (x, y) for n in ast.walk(weight)):
        return None
    options = [f"into={int(taker == second)}"]
    options += ["begins=1"] * (begins == second) + ["behind=True"] * behind
    return left, right, [x, y] if begins == first else [y, x], ", ".join(options)


def _product(node: ast.expr) -> tuple[str, ast.expr, bool] | None:
    """The name of a parameter, its weight, and whether that stands behind it: `p.data * tau`."""
    match node:
        case ast.BinOp(left=ast.Attribute(value=ast.Name(id=name), attr="data"), op=ast.Mult(), right=weight):
            return name, weight, True
        case ast.BinOp(left=weight, op=ast.Mult(), right=ast.Attribute(value=ast.Name(id=name), attr="data")):
            return name, weight, False
    return None
