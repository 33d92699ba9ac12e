"""Code that nobody runs: what no part of a program gets to by its names, and files that are kept as they once were."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import NamedTuple

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.guards import is_run_alone
from perflint.facts.dataflow.uses import functions_see
from perflint.facts.facts import Facts
from perflint.facts.training.uncallable import fits_no_call, fits_no_call_of_objects
from perflint.facts.training.unstartable import cannot_start
from perflint.facts.values.classes import ancestors
from perflint.facts.values.values import ClassRef
from perflint.project.project import MAX_IMPORTERS, RUNS_ITSELF
from perflint.source.cells import SUFFIX as CELLS
from perflint.source.syntax import Class, Module, Scope
from perflint.source.texts import BACKWARD, is_imported_whole
from perflint.source.uses import (
    RUN_ALONE,
    is_behind_exit,
    part_around,
    parts,
    places_in_code,
    uses_here,
    uses_of,
    without_comments,
)
from perflint.source.words import any_layout, made, words

_KEPT_FILE = made(
    r"(?:^|[/_\-. ])(?:old|legacy|backup|bak|deprecated|unused|archived?)(?=$|[/_\-. \d])"
    r"|[_\-. ]copy(?: ?\(?\d+\)?)?(?=$|[/.])",
    re.I,
)
_SAYS_OLD = re.compile(rb"(?i)\bthis (?:file|module|script) is (?:deprecated|obsolete|no longer used)")
_COPIED = made(r"(?:[^/]+/)*?(?:third[_-]?party|ext[_-]?libs|externals?|vendor(?:ed)?|submodules)/", re.I)
"""Folders that hold copies of other projects."""
_OF_TESTS = made(r"(?:^|[/\\])tests?[/\\]|(?:^|[/\\])(?:test_[^/\\]*|[^/\\]*_test)\.py$")
_IMPORTED_BY_NAME = any_layout(rb"\bimport_module \(|\b__import__ \(")
"""What may find a class of any module by a name that no text holds."""
_FOUND_BY_NAME = any_layout(
    rb"__dict__ \[|\bvars \( [\w.]+ \) \[|\bgetattr \( [\w.]+ ,(?! ['\"])"
    rb"|\bimport \*(?s:.*)(?:\bglobals|\beval(?<!\.eval)|\bexec|\bgetattr) \("
)
"""What may find a class or a function among what a file imports: `models.__dict__[args.arch]`."""
_FINDS_OWN = any_layout(rb"\bglobals \(|\blocals \(|\beval(?<!\.eval) \(|\bexec \(|sys \. modules|\bvars \( \)")
_FINDS_FILES = any_layout(
    rb"\bimport_module \(|\b__import__ \(|\bhydra\b|\binstantiate \(|\bpkgutil\b|\bexec \(|\bspec_from_file"
)
"""What may run a file that nobody imports."""
_FINDS_FILES_ALONE = any_layout(rb"\bimport_module \(|\b__import__ \(|\bpkgutil\b|\bexec \(|\bspec_from_file")
"""What asks a file that it has found for what it has; other finders are told that by name, too: `_target_: nets.unet.UNet`."""
_LISTS_FILES = any_layout(
    rb"\b(?:iter_modules|walk_packages) \("
    rb"|\b(?:listdir|scandir|glob|rglob|iterdir|walk) \((?s:.*)\b(?:import_module|__import__) \("
)
"""What runs whatever files a folder has."""
_MAKES_DATA = any_layout(rb"\b(?:torch|np|numpy) \. (?:random \. )?(?:randn?|randint|ones|zeros|empty|arange|Tensor|tensor) \(")
"""What shows how a part of a program is used: beside importers it is no program."""
_PARSES = made(rb"^\w+[ \t]*=[ \t]*(?:argparse\.)?ArgumentParser\(", re.M)
"""A script that needs no `__main__`."""
_BY_TORCH_HUB = "hubconf.py"
MAX_FILES = 1_000
"""In a larger project, files that nobody imports are not looked for."""
MAX_USERS = 60
"""How many definitions are gone through to find the program that gets to one of them."""
_ASKED_BY_NAME = any_layout(rb"\bgetattr \( [\w.]+ ,(?! ['\"])|\bmethodcaller \(|\bfire \. Fire \(")
_SUBCLASS = made(rb"class[ \t]+\w+[ \t]*\(([^()]*)\)")
_PLAIN = frozenset(("object", "builtins.object", "torch.nn.Module", "abc.ABC"))
"""Ancestors that call no method but those of `_BY_OTHERS`."""
_BY_OTHERS = words("forward extra_repr reset_parameters train eval state_dict load_state_dict")

_Definition = tuple[str, str]
"""A file, and the name of a function or a class of its own."""


def is_unused(facts: Facts, scope: Scope) -> bool:
    """Whether nobody in a project runs a function, as far as its texts tell.

    That is so for what no code names that the program gets to, for methods that nobody asks an object for, for files whose
    names say that they are old, that only define something and that no file of a program imports, that belong to a project
    which was copied into this one, and that cannot be imported themselves; for what every call in sight hands other
    arguments than it takes. An import is no use, and neither is what stands behind an `exit()`.
    What a package offers, and what is found by names that are made up when a program runs, may be used.
    """
    return facts.unused.get(scope, lambda: _find(facts, scope))


def is_kept_only(facts: Facts, path: str) -> bool:
    """Whether the errors of a file hurt nobody: it says that it is old, is of another project, is left, or cannot start.

    Or it is a notebook beside a script of the same name that trains, too: `train.ipynb`, `train.py`.
    """
    project = facts.project
    if _is_copied_notebook(facts, path):
        return True
    named = os.path.relpath(path, project.root).replace(os.sep, "/").removesuffix(".py")
    is_old = _KEPT_FILE.search(named) is not None or project.holds(path, _SAYS_OLD)
    module = project.module(path) if not (is_old or project.is_packaged(path)) else None
    is_left = module is not None and _is_left_file(facts, module)
    return is_old or is_left or project.is_vendored(path) or cannot_start(facts, path)


def _is_copied_notebook(facts: Facts, path: str) -> bool:
    stem, suffix = os.path.splitext(path)
    script = (facts.project.read(f"{stem}.py") or b"") if suffix == CELLS else b""
    if not BACKWARD.search(script):
        return False
    imports = re.compile(rb"\b(?:from|import)[ .]+%b\b" % re.escape(os.path.basename(stem).encode()))
    return imports.search(facts.project.read(path) or b"") is None


def is_copied_to_module(facts: Facts, scope: Scope, node: ast.AST) -> bool:
    """Whether a notebook's function is one of a file, too, with the same line in it: that one is run, and is to be mended."""
    source, project = scope.module.source, facts.project
    if source.cells is None or scope.is_module or not isinstance(node, (ast.expr, ast.stmt)):
        return False
    line = source.body[source.offset(node.lineno, 0) :].partition(b"\n")[0].strip()
    modules = (file for file in islice(sorted(project.files), MAX_FILES) if not file.endswith(CELLS))
    copies = (f for f in modules if project.holds(f, _defines(scope.name)) and line in (project.read(f) or b""))
    return any(not is_kept_only(facts, file) for file in copies)


@cache
def _defines(name: str) -> re.Pattern[bytes]:
    return re.compile(rb"^[ \t]*def[ \t]+%b\b" % re.escape(name.encode()), re.M)


def _find(facts: Facts, scope: Scope) -> bool:
    project, path = facts.project, scope.module.source.path
    if is_kept_only(facts, path) or _is_left_aside(facts, path) or _is_left_copy(facts, path):
        return True
    if fits_no_call(facts, scope):
        return True
    while scope.parent is not None:
        scope = scope.parent
    cls = scope.owner
    if cls is not None and _is_replaced(facts, path, cls.qualname.partition(".")[0]):
        return True
    own = cls.node if cls is not None else scope.node
    if not isinstance(own, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or project.is_packaged(path):
        return False
    if cls is not None and (_is_left_method(facts, scope) or _is_overridden(facts, scope)):
        return True
    name = cls.qualname.partition(".")[0] if cls is not None else scope.name
    return not _is_reached(facts, (path, name))


def _is_replaced(facts: Facts, path: str, name: str) -> bool:
    """Whether a package hands on another class of the same name, and nobody imports the file of this one, which trains nothing.

    Not even who installs the package gets to it then, but by the name of its file; its `__main__` shows what it has.
    """
    project = facts.project
    if project.importers(path) - {path} or project.holds(path, BACKWARD):
        return False
    package = project.module(os.path.join(os.path.dirname(path), "__init__.py"))
    handed_on = facts.inference.module_name(package, name, 2).alternatives if package is not None else ()
    return any(isinstance(a, ClassRef) and a.cls.module.source.path != path for a in handed_on)


def _is_left_copy(facts: Facts, path: str) -> bool:
    """Whether a file lies in a folder for other people's projects (`third_party/`), and nobody outside gets to it.

    By imports, or by a command that the project shows.
    """
    folder = _COPIED.match(os.path.relpath(path, facts.project.root).replace(os.sep, "/"))
    if folder is None:
        return False
    copied, files = os.path.join(facts.project.root, *folder[0].split("/")), [path]
    for file in files:
        name = os.path.basename(file).encode()
        if not file.startswith(copied) or len(files) > MAX_IMPORTERS or any(name in line for line in facts.project.commands()):
            return False
        files += (importer for importer in facts.project.importers(file) if importer not in files)
    return True


def _is_left_aside(facts: Facts, path: str) -> bool:
    """Whether a project tells how its trainings are run, and a file belongs to none of them."""
    project = facts.project
    if project.is_packaged(path) or not project.is_left_aside(path):
        return False
    return project.is_of_copy(path) or not _may_be_found_by_name(facts, path) or _works_as_program_only(facts, path)


def _works_as_program_only(facts: Facts, path: str) -> bool:
    """Whether functions of a file take what only its `if __name__ == "__main__"` binds: whoever imports it cannot call them."""
    module = facts.project.module(path)
    if module is None or not RUNS_ITSELF.search(module.source.body):
        return False
    bound: dict[str, bool] = {}
    for definition in flow_of(module.top).definitions:
        bound[definition.name] = bound.get(definition.name, True) and any(map(is_run_alone, definition.block.ancestry()))
    return any(functions_see(module, name) for name, alone in bound.items() if alone)


def _may_be_found_by_name(facts: Facts, path: str, definition: str = "") -> bool:
    """Whether a program may run a file that nobody imports: it finds files by names, and a text has that of this one.

    Or what it defines under a name.
    """
    project = facts.project
    if not project.anywhere(_FINDS_FILES):
        return False
    if definition and not project.is_named(path, definition) and not project.anywhere(_FINDS_FILES_ALONE):
        return False
    return project.anywhere(_LISTS_FILES) or project.is_named(path)


def _is_reached(facts: Facts, definition: _Definition) -> bool:
    """Whether code that runs for sure, or may for all that is known, names a definition, or one that names it, and so on."""
    seen = [definition]
    for reached in seen:
        users = _all_users(facts, reached)
        if None in users or len(seen) > MAX_USERS:
            return True
        seen += [user for user in users if user is not None and user not in seen]
    return False


def _all_users(facts: Facts, definition: _Definition) -> list[_Definition | None]:
    return facts.users.get(definition, lambda: list(dict.fromkeys(_users(facts, definition))))


def _users(facts: Facts, definition: _Definition) -> Iterator[_Definition | None]:
    """The definitions that name one, None for other code or what may find it by a name that is not written."""
    if _may_be_found(facts, definition):
        yield None
        return
    for use in _uses(facts, definition):
        if is_behind_exit(use.at, use.text):
            continue
        around = part_around(use.at, use.text)
        yield (use.path, around.decode()) if around and around != RUN_ALONE else None


def _may_be_found(facts: Facts, definition: _Definition) -> bool:
    """Whether others than those that name a definition may use it."""
    project, (path, name) = facts.project, definition
    body = project.read(path) or b""
    own = [part for part in parts(body) if part.name == name.encode()]
    if not own or any(part.is_decorated for part in own) or project.is_packaged(path) or _is_in_code(_FINDS_OWN, body):
        return True
    importers = project.importers(path) - {path}
    if not importers and not (path.endswith(".ipynb") or RUNS_ITSELF.search(body) or _PARSES.search(body)):
        module = project.module(path)
        return module is None or not _is_left_file(facts, module, name)
    if len(importers) > MAX_IMPORTERS:
        return True
    if body.startswith(b"class", own[0].start) and project.program_may_hold(path, _IMPORTED_BY_NAME):
        return True
    texts = [project.read(file) or b"" for file in importers]
    packaged = any(os.path.basename(file) == "__init__.py" for file in importers)
    return any(_is_in_code(_FOUND_BY_NAME, text) and (packaged or is_imported_whole(_stem(path), text)) for text in texts)


def _is_in_code(pattern: re.Pattern[bytes], text: bytes) -> bool:
    """Whether a text matches a pattern outside of its comments."""
    return pattern.search(text) is not None and pattern.search(without_comments(text)) is not None


class _Use(NamedTuple):
    """Where a definition is named."""

    path: str
    text: bytes
    at: int


def _uses(facts: Facts, definition: _Definition) -> Iterator[_Use]:
    """Where a definition is named, but in itself, in tests, in files that cannot start and where a file shows what it has."""
    project, (path, name) = facts.project, definition
    body, word = project.read(path) or b"", name.encode()
    importers = sorted(project.importers(path) - {path})
    alone = next((part.start for part in parts(body) if part.name == RUN_ALONE), len(body))
    shows = bool(importers) and _MAKES_DATA.search(body, alone) is not None
    for at in uses_here(word, body):
        around = part_around(at, body)
        if around != word and not (around == RUN_ALONE and shows):
            yield _Use(path, body, at)
    texts = {file: project.read(file) or b"" for file in importers}
    packages = [text for file, text in texts.items() if os.path.basename(file) == "__init__.py"]
    handed_on = any(b"*" in text or places_in_code(word, text) for text in packages)
    for file, text in texts.items():
        if not _OF_TESTS.search(os.path.relpath(file, project.root)) and not cannot_start(facts, file):
            yield from (_Use(file, text, at) for at in uses_of(word, _stem(path), text, handed_on=handed_on))


def _stem(path: str) -> str:
    """The last name of a file as a module."""
    return os.path.basename(path).removesuffix(".py").replace("__init__", os.path.basename(os.path.dirname(path)))


def _is_left_file(facts: Facts, module: Module, definition: str = "") -> bool:
    """Whether a file that nobody imports only defines something, beside a program whose files run themselves.

    definition: what it defines under a name; then it may only be others of the file that are found.
    """
    project, path = facts.project, module.source.path
    if project.importers(path) - {path} or len(project.files) > MAX_FILES or os.path.basename(path) == _BY_TORCH_HUB:
        return False
    if RUNS_ITSELF.search(module.source.body):
        return False
    only_defines = all(map(_is_definition, module.tree.body))
    return only_defines and project.has_scripts() and not _may_be_found_by_name(facts, path, definition)


def _is_definition(statement: ast.stmt) -> bool:
    match statement:
        case ast.If() | ast.Try():
            return all(map(_is_definition, (*statement.body, *statement.orelse)))
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign() | ast.Pass():
            return True
    return isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_left_method(facts: Facts, method: Scope) -> bool:
    """Whether nobody in a program calls a method by its name as it is, of a class whose ancestors are all of the project.

    Of a file that nobody imports and that does not run itself nothing is known.
    """
    if method.owner is None or method.decorators or method.name in _BY_OTHERS or method.name.startswith("__"):
        return False
    if not all(isinstance(a, Class) or a in _PLAIN for a in ancestors(facts.inference, method.owner)):
        return False
    project, path = facts.project, method.module.source.path
    if not RUNS_ITSELF.search(method.module.source.body) and not project.importers(path) - {path}:
        return False
    if project.program_may_hold(path, _ASKED_BY_NAME):
        return False
    return not project.program_may_hold(path, _asked_for(method.name)) or fits_no_call_of_objects(facts, method)


def _is_overridden(facts: Facts, method: Scope) -> bool:
    """Whether a method is of a class that is there for its subclasses only, and each has a method of its own for it."""
    assert method.owner is not None
    definition = (method.module.source.path, method.owner.qualname.partition(".")[0])
    if _may_be_found(facts, definition):
        return False
    uses = list(_uses(facts, definition))
    return bool(uses) and all(_overrides(use, method.name) for use in uses)


def _overrides(use: _Use, method: str) -> bool:
    """Whether a class that names another one as its base has its own of a method, which does not call the other's."""
    header = _SUBCLASS.match(use.text, use.text.rfind(b"\n", 0, use.at) + 1)
    if header is None or not header.start(1) <= use.at < header.end(1):
        return False
    name = part_around(use.at, use.text)
    ends = [part.start for part in parts(use.text) if part.start > use.at]
    body = use.text[use.at : ends[0] if ends else len(use.text)]
    word = re.escape(method.encode())
    return bool(name) and re.search(rb"\n[ \t]+def %b\b" % word, body) is not None and not re.search(rb"\)\.%b\b" % word, body)


@cache
def _asked_for(name: str) -> re.Pattern[bytes]:
    return any_layout(rb"(?:\.|['\"]) %b\b" % name.encode())
