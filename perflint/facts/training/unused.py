"""Code that nobody runs: classes and functions that nobody names, and files that are kept as they once were."""

from __future__ import annotations

import ast
import os
import re

from perflint.facts.facts import Facts
from perflint.project.project import MAX_IMPORTERS
from perflint.source.identifiers import stands_in
from perflint.source.syntax import Scope
from perflint.source.texts import is_only_imported
from perflint.source.words import any_layout, made

_KEPT_FILE = made(
    r"(?:^|[/_\-. ])(?:old|backup|bak|deprecated|unused|archived?)(?=$|[/_\-. \d])|[_\-. ]copy\d*(?=$|[/.])", re.I
)
_OF_TESTS = made(r"(?:^|[/\\])tests?[/\\]|(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test)\.py$")
_IMPORTED_BY_NAME = any_layout(rb"\bimport_module \(|\b__import__ \(")
"""What may find a class of any module by a name that no text holds."""
_FOUND_BY_NAME = any_layout(
    rb"__dict__ \[|\bvars \(|\bgetattr \( [\w.]+ , (?!['\"])"
    rb"|\bimport \*(?s:.*)(?:\bglobals|\beval(?<!\.eval)|\bexec|\bgetattr) \("
)
"""What may find a class or a function among what a file imports: `models.__dict__[args.arch]`."""


def is_unused(facts: Facts, scope: Scope) -> bool:
    """Whether nobody in a project runs a function, as far as its texts tell.

    That is so for what others do not name although they import its file, or name in tests alone, and for files whose names say
    that they are old.
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
    own = cls.node if cls is not None else scope.node
    if not isinstance(own, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or decorated or project.is_offered(path):
        return False
    name = cls.qualname.partition(".")[0] if cls is not None else scope.name
    lines = range(own.lineno, (own.end_lineno or own.lineno) + 1)
    if any(scope.module.source.row_at(at) not in lines for at in scope.module.occurrences(name)):
        return False
    importers = project.importers(path) - {path}
    if not importers or len(importers) > MAX_IMPORTERS:
        return False
    if cls is not None and project.program_may_hold(path, _IMPORTED_BY_NAME):
        return False
    word = name.encode()
    texts = {file: project.read(file) or b"" for file in importers}
    if any(_FOUND_BY_NAME.search(text) for text in texts.values()):
        return False
    return not any(
        stands_in(word, text) and (os.path.basename(file) == "__init__.py" or not is_only_imported(word, text))
        for file, text in texts.items()
        if not _OF_TESTS.search(os.path.relpath(file, project.root))
    )
