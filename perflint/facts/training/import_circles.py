"""Files that take names from each other before these are bound: whichever is imported first ends with an `ImportError`."""

from __future__ import annotations

import ast
import os

from perflint.facts.facts import Facts
from perflint.source.syntax import Module, SyntaxProblem


def imported_modules(facts: Facts, module: Module, statement: ast.ImportFrom | ast.Import) -> list[Module]:
    """The files of the project that an import runs."""
    names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else [statement.module or ""]
    level = statement.level if isinstance(statement, ast.ImportFrom) else 0
    paths = [facts.project.resolve(name, module.source.path, level) for name in names]
    found = [facts.project.module(path) for path in dict.fromkeys(paths) if path is not None and path != module.source.path]
    return [other for other in found if other is not None]


def is_circular(facts: Facts, module: Module, statement: ast.ImportFrom) -> bool:
    """Whether a file takes names from another that takes some from it, and neither has bound all of them by then.

    It ends in whatever order they are imported, also where one of the two is the program: that is imported anew then.
    """
    for other in imported_modules(facts, module, statement):
        if any(os.path.basename(m.source.path) == "__init__.py" for m in (module, other)):
            continue  # a name may be that of a file of the package
        for back in _top_imports(other):
            if (
                module in imported_modules(facts, other, back)
                and _lacks(facts, module, statement, back)
                and _lacks(facts, other, back, statement)
            ):
                return True
    return False


def _top_imports(module: Module) -> list[ast.ImportFrom]:
    try:
        return [node for node in module.tree.body if isinstance(node, ast.ImportFrom)]
    except SyntaxProblem:
        return []


def _lacks(facts: Facts, module: Module, at: ast.ImportFrom, taken: ast.ImportFrom) -> bool:
    """Whether a file has not bound all the names that another takes from it when it gets to one of its own imports."""
    if at not in module.tree.body:
        return False
    bound = _bound_by(facts, module, module.tree.body[: module.tree.body.index(at)], 2)
    return bound is not None and not bound.issuperset({alias.name for alias in taken.names} - {"*"})


def _bound_by(facts: Facts, module: Module, body: list[ast.stmt], depth: int) -> set[str] | None:
    """All names that statements may bind; None: any, for `import *` gives what is not seen."""
    bound: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
            others = imported_modules(facts, module, statement)
            given = [_bound_by(facts, other, other.tree.body, depth - 1) for other in others if depth]
            if not given or None in given:
                return None
            bound = bound.union(*(names for names in given if names is not None))
        for node in ast.walk(statement):
            bound.update(_binds(node))
            if isinstance(node, ast.Pass) and node.lineno in module.placeholders:
                bound.add(module.placeholders[node.lineno].name)
    return bound


def _binds(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.alias(name=name, asname=given):
            return (given or name.partition(".")[0],)
        case ast.Name(id=name, ctx=ast.Store()):
            return (name,)
    return ()
