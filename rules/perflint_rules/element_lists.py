"""Comprehensions that read each element, which the runtime can read together: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    OWN_TENSORS,
    CannotRewrite,
    Code,
    Edit,
    Fix,
    Import,
    Kind,
    Obligation,
    replace,
    without_effect,
)
from perflint_rules.element_reads import read_name


def listed_at_run_time(code: Code, node: ast.ListComp) -> tuple[Fix | None, list[Obligation | None]] | None:
    """`item_list` in the place of the elements that a comprehension reads, and what is open about it; None if it is more."""
    reads = _reads(node)
    if not reads or not all(
        isinstance(read.func, ast.Attribute) or code.means_builtin(ast.unparse(read.func)) for read in reads
    ):
        return None
    missing: list[Obligation | None] = [*code.feared(OWN_TENSORS)]
    if node.elt is not reads[0]:
        missing.append(Obligation(Kind.ERRORS_ARE_BUGS, "all elements are read before the first is used"))
        missing.append(without_effect(code.facts, code.scope, node.elt))
    return code.fix("let the runtime read all elements at once", _listed(code, node, reads), unless=missing), missing


def _reads(node: ast.ListComp) -> list[ast.Call]:
    """The reads of an element in a comprehension, if it does nothing else with it, and reads each."""
    generator = node.generators[-1]
    parts = [*ast.walk(node.elt)]
    if generator.ifs or generator.is_async or not isinstance(generator.target, ast.Name):
        return []
    if any(
        isinstance(part, (ast.IfExp, ast.BoolOp, ast.Lambda, ast.comprehension, ast.NamedExpr, ast.Await)) for part in parts
    ):
        return []
    reads = [part for part in parts if isinstance(part, ast.Call) and _is_element(read_name(part), generator.target.id)]
    named = [part for part in parts if _is_element(part, generator.target.id)]
    ways = {ast.unparse(read) for read in reads}
    return reads if len(reads) == len(named) and len(ways) == 1 and not any(read.keywords for read in reads) else []


def _is_element(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _listed(code: Code, node: ast.ListComp, reads: list[ast.Call]) -> Iterator[Edit | Import]:
    if "#" in code.text(node):
        raise CannotRewrite("a comment would be lost")
    yield Import("perflint_runtime", "item_list")
    generator, func = node.generators[-1], reads[0].func
    way = f", of={func.id}" if isinstance(func, ast.Name) else ""
    items = f"item_list({code.text(generator.iter)}{way})"
    if node.elt is reads[0] and len(node.generators) == 1:
        yield replace(code.source, node, items)
        return
    yield replace(code.source, generator.iter, items)
    for read in reads:
        yield replace(code.source, read, code.text(generator.target))
