"""Code that nobody runs: classes and functions that nobody names, and files that are kept as they once were."""

from __future__ import annotations

import ast
import os
import re
from functools import cache

from perflint.facts.facts import Facts
from perflint.project.project import MAX_IMPORTERS
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, made

_KEPT_FILE = made(
    r"(?:^|[/_\-. ])(?:old|backup|bak|deprecated|unused|archived?)(?=$|[/_\-. \d])|[_\-. ]copy\d*(?=$|[/.])", re.I
)
_IMPORTED_BY_NAME = any_layout(rb"\bimport_module \(|\b__import__ \(")
"""What may find a class of any module by a name that no text holds."""


def is_unused(facts: Facts, scope: Scope) -> bool:
    """Whether nobody in a project runs a function, as far as its texts tell.

    That is so for what others do not name although they import its file, and for files whose names say that they are old.
    What a package offers, and what is found by names that are made up when a program runs, may be used.
    """
    return facts.unused.get(scope, lambda: _find(facts, scope))


def _find(facts: Facts, scope: Scope) -> bool:
    project, path = facts.project, scope.module.source.path
    if _KEPT_FILE.search(os.path.relpath(path, project.root).replace(os.sep, "/").removesuffix(".py")):
        return True
    while scope.parent is not None:
        scope = scope.parent
    cls = scope.owner
    decorated = cls.node.decorator_list if cls is not None else scope.decorators
    if scope.is_module or decorated or project.is_offered(path):
        return False
    name = cls.qualname.partition(".")[0] if cls is not None else scope.name
    own = cls.node if cls is not None else scope.node
    assert isinstance(own, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    lines = range(own.lineno, (own.end_lineno or own.lineno) + 1)
    if any(scope.module.source.row_at(at) not in lines for at in scope.module.occurrences(name)):
        return False
    importers = project.importers(path) - {path}
    if not importers or len(importers) > MAX_IMPORTERS:
        return False
    if cls is not None and project.program_may_hold(path, _IMPORTED_BY_NAME):
        return False
    taken = _taken_by_name(os.path.basename(path).removesuffix(".py"))
    texts = [project.read(file) or b"" for file in importers]
    named = any_layout(rb"\b%b\b" % name.encode())
    return not any(named.search(text) or taken.search(text) for text in texts)


@cache
def _taken_by_name(stem: str) -> re.Pattern[bytes]:
    """`getattr(models, name)`, `models.__dict__[name]`, `vars(models)`; `eval(name)` behind `from models import *`."""
    module = re.escape(stem.encode())
    stars = rb"\bfrom [\w.\x20]*\b%b import \*(?s:.*)(?:\bglobals|\beval|\bexec|\bgetattr \( sys)\b" % module
    return any_layout(rb"(?:getattr|vars) \( (?:\w+ \. )*%b\b|\b%b \. __dict__|%b" % (module, module, stars))
