"""Code that nobody runs: what nobody names, what cannot run, and files that are kept as they once were."""

from __future__ import annotations

import ast
import builtins
import os
import re

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.project.project import MAX_IMPORTERS
from perflint.source.identifiers import stands_in
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, made, words

_KEPT_FILE = made(
    r"(?:^|[/_\-. ])(?:old|backup|bak|deprecated|unused|archived?)(?=$|[/_\-. \d])|[_\-. ]copy\d*(?=$|[/.])", re.I
)
_IMPORTED_BY_NAME = any_layout(rb"\bimport_module \(|\b__import__ \(")
"""What may find a class of any module by a name that no text holds."""
_FOUND_BY_NAME = any_layout(
    rb"__dict__ \[|\bvars \(|\bgetattr \( [\w.]+ , (?!['\"])"
    rb"|\bimport \*(?s:.*)(?:\bglobals|\beval(?<!\.eval)|\bexec|\bgetattr) \("
)
"""What may find a class or a function among what a file imports: `models.__dict__[args.arch]`."""

_BINDS_UNSEEN = any_layout(
    rb"import \*|\b(?:globals|locals|vars|exec|execfile|setattr)(?<!\.exec) \(|\b__builtins__|\bbuiltins\b|\bglobal\b"
)
"""What may bind a name that no statement of the file binds."""
_ALWAYS_BOUND = frozenset(dir(builtins)) | words(
    "__file__ __path__ __class__ unicode xrange raw_input long basestring unichr reduce file cmp reload execfile"
    " profile get_ipython display WindowsError"
)
"""What Python 3 or 2, or a tool that runs the file, binds."""
_ENTERED = frozenset(("scope", "loop", "with"))
"""Blocks that run, whatever is asked."""


def is_unused(facts: Facts, scope: Scope) -> bool:
    """Whether nobody in a project runs a function, as far as its texts tell.

    That is so for what others do not name although they import its file, for files whose names say that they are old, and for
    functions that always raise, as they read a name that nobody binds.
    What a package offers, and what is found by names that are made up when a program runs, may be used.
    """
    return facts.unused.get(scope, lambda: _find(facts, scope))


def _find(facts: Facts, scope: Scope) -> bool:
    project, path = facts.project, scope.module.source.path
    if _KEPT_FILE.search(os.path.relpath(path, project.root).replace(os.sep, "/").removesuffix(".py")):
        return True
    if _lacks_name(scope):
        return True
    while scope.parent is not None:
        scope = scope.parent
        if _lacks_name(scope):
            return True
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
    texts = [project.read(file) or b"" for file in importers]
    return not any(stands_in(word, text) or _FOUND_BY_NAME.search(text) for text in texts)


def _lacks_name(scope: Scope) -> bool:
    """Whether a function reads a name that nothing binds, wherever it goes."""
    module = scope.module
    if scope.is_module or module.source.cells is not None or _BINDS_UNSEEN.search(module.source.body):
        return False
    flow = flow_of(scope)
    for name, mentions in flow.mentions.items():
        if name in _ALWAYS_BOUND or name in module.bindings:
            continue
        read = [node for node in mentions if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        surely = any(block.kind not in _ENTERED for node in read for block in flow.block[node].ancestry()) is False
        if read and surely and not any(flow.reaching.get(node) for node in read) and not _is_of_outer(scope, name):
            return True
    return False


def _is_of_outer(scope: Scope, name: str) -> bool:
    outer = scope.parent
    while outer is not None:
        if flow_of(outer).definitions_of(name):
            return True
        outer = outer.parent
    return False
