"""Code that nobody runs: classes and functions that nobody names, and files that are kept as they once were."""

from __future__ import annotations

import ast
import os
import re
from functools import cache

from perflint.facts.facts import Facts
from perflint.facts.values.classes import ancestors
from perflint.project.project import MAX_IMPORTERS, RUNS_ITSELF
from perflint.source.identifiers import outside_comments
from perflint.source.syntax import Class, Module, Scope
from perflint.source.texts import is_imported_whole, may_use
from perflint.source.words import any_layout, made, words

_KEPT_FILE = made(
    r"(?:^|[/_\-. ])(?:old|backup|bak|deprecated|unused|archived?)(?=$|[/_\-. \d])|[_\-. ]copy\d*(?=$|[/.])", re.I
)
_OF_TESTS = made(r"(?:^|[/\\])tests?[/\\]|(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test)\.py$")
_IMPORTED_BY_NAME = any_layout(rb"\bimport_module \(|\b__import__ \(")
"""What may find a class of any module by a name that no text holds."""
_FOUND_BY_NAME = any_layout(
    rb"__dict__ \[|\bvars \(|\bgetattr \( [\w.]+ ,(?! ['\"])"
    rb"|\bimport \*(?s:.*)(?:\bglobals|\beval(?<!\.eval)|\bexec|\bgetattr) \("
)
"""What may find a class or a function among what a file imports: `models.__dict__[args.arch]`."""
_FINDS_OWN = any_layout(rb"\bglobals \(|\blocals \(|\beval(?<!\.eval) \(|\bexec \(|sys \. modules|\bvars \(")
_FINDS_FILES = any_layout(
    rb"\bimport_module \(|\b__import__ \(|\bhydra\b|\binstantiate \(|\bpkgutil\b|\bexec \(|\bspec_from_file"
)
"""What may run a file that no text names."""
_BY_TORCH_HUB = "hubconf.py"
MAX_FILES = 1_000
"""In a larger project, files that nobody imports are not looked for."""
_ASKED_BY_NAME = any_layout(rb"\bgetattr \( [\w.]+ ,(?! ['\"])|\bmethodcaller \(|\bfire \. Fire \(")
_PLAIN = frozenset(("object", "builtins.object", "torch.nn.Module", "abc.ABC"))
"""Ancestors that call no method but those of `_BY_OTHERS`."""
_BY_OTHERS = words("forward extra_repr reset_parameters train eval state_dict load_state_dict")


def is_unused(facts: Facts, scope: Scope) -> bool:
    """Whether nobody in a project runs a function, as far as its texts tell.

    That is so for what others do not name although they import its file, or name in tests alone, for methods that nobody asks
    an object for, for files whose names say that they are old, and for files of definitions that no file of a program imports.
    An import is no use.
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
    own = cls.node if cls is not None else scope.node
    if not isinstance(own, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or project.is_offered(path):
        return False
    importers = project.importers(path) - {path}
    if (cls is not None and _is_left_method(facts, scope)) or (not importers and _is_left_file(facts, scope.module)):
        return True
    if cls.node.decorator_list if cls is not None else scope.decorators:
        return False
    name = cls.qualname.partition(".")[0] if cls is not None else scope.name
    body, word = scope.module.source.body, name.encode()
    lines = range(own.lineno, (own.end_lineno or own.lineno) + 1)
    if any(scope.module.source.row_at(at) not in lines for at in outside_comments(word, body)):
        return False
    if len(importers) > MAX_IMPORTERS or (cls is not None and project.program_may_hold(path, _IMPORTED_BY_NAME)):
        return False
    if not importers:
        return RUNS_ITSELF.search(body) is not None and not _FINDS_OWN.search(body)
    texts = {file: project.read(file) or b"" for file in importers}
    stem = os.path.basename(path).removesuffix(".py").replace("__init__", os.path.basename(os.path.dirname(path)))
    handed_on = any(os.path.basename(file) == "__init__.py" for file in texts)
    if any(_FOUND_BY_NAME.search(text) and (handed_on or is_imported_whole(stem, text)) for text in texts.values()):
        return False
    return not any(
        outside_comments(word, text) if os.path.basename(file) == "__init__.py" else may_use(word, stem, text)
        for file, text in texts.items()
        if not _OF_TESTS.search(os.path.relpath(file, project.root))
    )


def _is_left_file(facts: Facts, module: Module) -> bool:
    """Whether a file that nobody imports only defines something, beside a program whose files run themselves."""
    project, path = facts.project, module.source.path
    if len(project.files) > MAX_FILES or os.path.basename(path) == _BY_TORCH_HUB or RUNS_ITSELF.search(module.source.body):
        return False
    only_defines = all(map(_is_definition, module.tree.body))
    return only_defines and project.has_scripts() and not project.anywhere(_FINDS_FILES)


def _is_definition(statement: ast.stmt) -> bool:
    match statement:
        case ast.If() | ast.Try():
            return all(map(_is_definition, (*statement.body, *statement.orelse)))
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign() | ast.Pass():
            return True
    return isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_left_method(facts: Facts, method: Scope) -> bool:
    """Whether nobody in a program calls a method by its name, of a class whose ancestors are all of the project.

    Of a file that nobody imports and that does not run itself nothing is known.
    """
    if method.owner is None or method.decorators or method.name in _BY_OTHERS or method.name.startswith("__"):
        return False
    if not all(isinstance(a, Class) or a in _PLAIN for a in ancestors(facts.inference, method.owner)):
        return False
    project, path = facts.project, method.module.source.path
    if not RUNS_ITSELF.search(method.module.source.body) and not project.importers(path) - {path}:
        return False
    return not project.program_may_hold(path, _asked_for(method.name)) and not project.program_may_hold(path, _ASKED_BY_NAME)


@cache
def _asked_for(name: str) -> re.Pattern[bytes]:
    return any_layout(rb"(?:\.|['\"]) %b\b" % name.encode())
