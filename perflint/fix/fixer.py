"""Applying fixes: edits of many findings composed, checked, repeated until nothing changes.

A round takes the fixes that do not touch each other, applies them, and checks the result: it must parse, and no rule may
find more that is an error or can be fixed. A fix that fails this is left out. The next round sees the new text, so fixes
that overlapped get their turn.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import re
import shutil
import signal
import threading
import tokenize
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType, ModuleType

from perflint.fix.differences import differences
from perflint.project.files import read_file
from perflint.rule.finding import Edit, Finding, Fix, Import, Permission, Severity
from perflint.rule.obligations import Kind
from perflint.rule.suppress import without_suppression
from perflint.source.cells import HIDDEN, CannotWriteBack
from perflint.source.source import Source, tokens
from perflint.source.words import made

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MAX_ROUNDS = 10
"""So many rounds, and one for each finding: where a fix does not hold, those beside it are applied in several rounds."""

_LINE_END = made(rb"\r\n|\r|\n")

CheckText = Callable[[bytes], "tuple[Source | None, list[Finding]]"]
"""Check another text of the same file."""
Choose = Callable[[Source, Sequence[Finding], Sequence[Finding]], Sequence[Finding]]
"""Which fixes are applied: given a text, all its findings, and those with a fix that may be applied."""


def every(source: Source, findings: Sequence[Finding], fixable: Sequence[Finding]) -> Sequence[Finding]:
    """All fixes that may be applied."""
    return fixable


def where(accepts: Callable[[Source, Finding], bool]) -> Choose:
    """The fixes that are accepted one by one."""
    return lambda source, findings, fixable: [finding for finding in fixable if accepts(source, finding)]


@dataclass
class Fixed:
    """The outcome: the new text, the findings that are left, and how many findings of each rule were fixed."""

    raw: bytes
    remaining: list[Finding]
    source: Source
    applied: Counter[str] = field(default_factory=Counter)


def fix_text(
    source: Source,
    findings: list[Finding],
    check: CheckText,
    permission: Permission,
    choose: Choose = every,
) -> Fixed:
    """Apply the fixes of a file's findings, safe ones or all, until no more can be applied. choose: is asked in each round."""
    state = Fixed(source.raw, findings, source)
    rejected: set[tuple[str, int, str]] = set()
    for _ in range(MAX_ROUNDS + len(findings)):
        open_ = [f for f in state.remaining if is_fixable(f, permission) and _key(state.source, f) not in rejected]
        wanted = choose(state.source, state.remaining, open_)
        if not wanted:
            break
        chosen = _compatible(wanted)
        while chosen and not _apply(state, chosen, check):
            if len(chosen) == 1:
                rejected.add(_key(state.source, chosen[0]))
            chosen = chosen[: len(chosen) // 2]  # what is left is looked for again, for positions will have moved
    return state


def is_fixable(finding: Finding, permission: Permission) -> bool:
    """Whether a finding has a fix that may be applied."""
    return finding.fix is not None and permission.covers(finding.fix)


def _key(source: Source, finding: Finding) -> tuple[str, int, str]:
    return finding.rule, source.row_at(finding.start), source.text(finding.start, finding.end)


def _compatible(findings: Sequence[Finding]) -> list[Finding]:
    """The findings whose edits do not overlap and do not share a line with an insertion of another one."""
    chosen: list[Finding] = []
    taken: list[tuple[int, int]] = []  # in order
    for finding in findings:
        assert finding.fix is not None
        spans = [(e.start, e.end) for e in finding.fix.edits]
        if any(_touches(span, taken) for span in spans) or _overlap_themselves(spans):
            continue
        chosen.append(finding)
        for span in spans:
            insort(taken, span)
    return chosen


def _touches(span: tuple[int, int], taken: list[tuple[int, int]]) -> bool:
    """Whether a span overlaps one of others that are in order and do not overlap: only the nearest two can."""
    at = bisect_left(taken, span)
    return any(_overlaps(span, other) for other in taken[max(at - 1, 0) : at + 1])


def _overlaps(a: tuple[int, int], b: tuple[int, int]) -> bool:
    if a[0] == a[1] and b[0] == b[1]:
        return a[0] == b[0]
    if a[0] == a[1]:
        return b[0] < a[0] < b[1]
    if b[0] == b[1]:
        return a[0] < b[0] < a[1]
    return a[0] < b[1] and b[0] < a[1]


def _overlap_themselves(spans: list[tuple[int, int]]) -> bool:
    ordered = sorted(spans)
    return any(_overlaps(a, b) and a[0] != a[1] for a, b in itertools.pairwise(ordered))


def _apply(state: Fixed, chosen: Sequence[Finding], check: CheckText) -> bool:
    """Apply fixes to the state if the result holds; else leave the state alone."""
    raw = fixed_raw(state.source, chosen)
    if raw is None:
        return False
    source, findings = check(raw)
    if source is None or not _holds(state.remaining, findings, chosen):
        return False
    state.raw, state.source, state.remaining = raw, source, findings
    state.applied.update(f.rule for f in chosen)
    return True


def fixed_raw(source: Source, findings: Sequence[Finding]) -> bytes | None:
    """The text after the fixes of some findings, which do not overlap, and the imports that they need.

    None if it is no Python, or lacks a comment.
    """
    fixes = [finding.fix for finding in findings if finding.fix is not None]
    newline = source.newline if len(set(_LINE_END.findall(source.raw))) == 1 else ""
    raw = apply_edits(source.raw, [_with_line_ends(edit, newline) for fix in fixes for edit in fix.edits])
    try:
        raw = _with_imports(Source(source.path, raw), [(_cell(source, fix), wanted) for fix in fixes for wanted in fix.imports])
        ast.parse(raw.decode())
        return raw if _comments(source.raw) == _comments(raw) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return None


def _with_line_ends(edit: Edit, newline: str) -> Edit:
    """An edit with a file's own line ends, which the text that it was made from may lack; `newline` is that of all lines."""
    return replace(edit, content=re.sub(r"\r?\n", newline, edit.content)) if newline else edit


def apply_edits(body: bytes, edits: Sequence[Edit]) -> bytes:
    """`body` with edits applied. Insertions at one place keep their order; all bytes outside of edits stay."""
    pieces: list[bytes] = []
    last = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        start = max(edit.start, last)
        pieces += [body[last:start], edit.content.encode()]
        last = max(last, edit.end)
    pieces.append(body[last:])
    return b"".join(pieces)


def _comments(body: bytes) -> Counter[str]:
    """The comments of a text, suppressions left out: those that silence nothing may go."""
    if b"#" not in body:
        return Counter()
    texts = (without_suppression(token.string) for token in tokens(body) if token.type == tokenize.COMMENT)
    return Counter(text for text in texts if text)


def _holds(before: Sequence[Finding], after: Sequence[Finding], fixed: Sequence[Finding]) -> bool:
    """Whether the fixed findings are gone, and no rule finds more that is an error or has a fix.

    Advice may come: a wait that was hidden behind another one, a read that stands elsewhere now.
    """
    old, new, gone = (Counter(f.rule for f in findings) for findings in (before, after, fixed))
    expected = {name for f in fixed if f.fix is not None for name in f.fix.leads_to}
    grown = {name for name in {*old, *new} - expected if new[name] > old[name] - gone[name]}
    if grown & gone.keys():
        return False
    return all(_weighty(after, name) <= _weighty(before, name) for name in grown)


def _weighty(findings: Sequence[Finding], rule: str) -> int:
    """How many findings of a rule are errors or have a fix that the program could take as it is."""

    def has_fix(finding: Finding) -> bool:
        return finding.fix is not None and Kind.RUNTIME not in finding.fix.assumptions

    return sum(f.rule == rule and (has_fix(f) or f.severity is Severity.ERROR) for f in findings)


# -- imports -------------------------------------------------------------------------------------------------------------


def add_imports(source: Source, imports: Sequence[Import]) -> bytes:
    """A text with the imports that fixes need: merged into an existing `from` import, else behind the module's docstring
    and its `__future__` imports.
    """
    raw = source.raw
    for wanted in dict.fromkeys(imports):
        tree = ast.parse(raw.decode())
        if not _is_imported(tree, wanted):
            raw = _with_import(Source(source.path, raw), tree, wanted)
    return raw


def _cell(source: Source, fix: Fix) -> int | None:
    """The number of the cell that a fix changes first, in a notebook."""
    head = source.cells.at(fix.edits[0].start) if source.cells is not None and fix.edits else None
    return head.number if head is not None else None


def _with_imports(source: Source, imports: Sequence[tuple[int | None, Import]]) -> bytes:
    """A text with the imports that fixes need; in a notebook those of each cell, unless one above it has them."""
    if source.cells is None:
        return add_imports(source, [wanted for _, wanted in imports])
    pieces: list[bytes] = []
    trees: list[ast.Module] = []
    for head in source.cells.heads:
        cell = source.body[head.start : head.end]
        trees.append(ast.parse(cell))
        missing = [i for number, i in imports if number == head.number and not any(_is_imported(tree, i) for tree in trees)]
        first = _behind_magics(cell)
        pieces += [source.line(head.row).encode(), b"\n", cell[:first], add_imports(Source("", cell[first:]), missing)]
    return b"".join(pieces)


def _behind_magics(cell: bytes) -> int:
    """Where the code of a cell begins whose first lines say how it is run."""
    at = 0
    for line in cell.splitlines(keepends=True):
        if HIDDEN.encode() + b"%%" not in line:
            break
        at += len(line)
    return at


def _is_imported(tree: ast.Module, wanted: Import) -> bool:
    for statement in tree.body:
        match statement:
            case ast.Import(names=names) if wanted.name is None:
                if any(a.name == wanted.module and a.asname is None for a in names):
                    return True
            case ast.ImportFrom(module=module, names=names, level=0) if module == wanted.module:
                if any(a.name == wanted.name and a.asname is None for a in names):
                    return True
    return False


def _with_import(source: Source, tree: ast.Module, wanted: Import) -> bytes:
    if wanted.name is not None:
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module == wanted.module and statement.level == 0:
                merged = _merged(source, statement, wanted.name)
                if merged is not None:
                    return merged
    text = f"import {wanted.module}" if wanted.name is None else f"from {wanted.module} import {wanted.name}"
    before = [s for s in tree.body if _must_come_first(s, tree.body[0])]
    imports = list(itertools.takewhile(_is_absolute_import, tree.body[len(before) :]))
    imports = [s for s in imports if not source.line(s.lineno)[: s.col_offset].strip()]
    plain = [s for s in imports if isinstance(s, ast.Import)]
    if imports and wanted.name is None and not plain:
        at = source.starts[imports[0].lineno - 1]  # `import torch` goes before `from torch import nn`
        return source.raw[:at] + f"{text}{source.newline}".encode() + source.raw[at:]
    before += imports if wanted.name is not None else plain
    if before:
        if isinstance(before[-1], ast.Expr):  # a blank line behind the docstring
            text = f"{source.newline}{text}"
        row = before[-1].end_lineno or before[-1].lineno
        if row < len(source.starts):
            at = source.starts[row]
            return source.raw[:at] + f"{text}{source.newline}".encode() + source.raw[at:]
        return source.raw + f"{source.newline}{text}{source.newline}".encode()
    first = tree.body[0] if tree.body else None
    at = source.starts[min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]) - 1] if first else 0
    if first is not None and source.line(first.lineno)[: first.col_offset].strip():
        raise ValueError("the first statement does not start its line")
    return source.raw[:at] + f"{text}{source.newline}".encode() + source.raw[at:]


def _is_absolute_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import) or (isinstance(statement, ast.ImportFrom) and not statement.level)


def _must_come_first(statement: ast.stmt, first: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return True
    return (
        statement is first
        and isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _merged(source: Source, statement: ast.ImportFrom, name: str) -> bytes | None:
    if statement.lineno != statement.end_lineno or any(a.name == "*" for a in statement.names):
        return None
    last = statement.names[-1]
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    at = source.offset(last.end_lineno, last.end_col_offset)
    return source.raw[:at] + f", {name}".encode() + source.raw[at:]


def complete(source: Source, fix: Fix) -> list[Edit]:
    """A fix's edits with the line ends of the file, and those that add the imports that it needs.

    Raises:
        SyntaxError, ValueError: there is no place for an import.

    """
    newline = source.newline if len(set(_LINE_END.findall(source.raw))) == 1 else ""
    imports = [(_cell(source, fix), wanted) for wanted in fix.imports]
    added = differences(source.raw, _with_imports(source, imports)) if imports else []
    return [*added, *(_with_line_ends(edit, newline) for edit in fix.edits)]


# -- writing -------------------------------------------------------------------------------------------------------------


LEFTOVER = ".perflint-"
"""How the names of files begin that are being written."""

_CHANGED = "the file was changed while it was being fixed; run perflint again"


class WriteError(Exception):
    """A fixed file could not be written; the file on disk is as it was."""


def writer(source: Source, data: bytes | None) -> Callable[[bytes], bytes]:
    """What makes the bytes of a file of a text of it. data: the present bytes, of which a notebook keeps all but its text.

    Raises:
        CannotWriteBack: the file is a notebook, and has another text than `source` by now.

    """
    if source.cells is None:
        return source.encode
    from perflint.source.notebook import Notebook, NotebookError

    with contextlib.suppress(NotebookError):
        notebook = Notebook.parse(data or b"")
        if notebook.text == source.raw:
            return notebook.with_text
    raise CannotWriteBack(_CHANGED)


def write(path: str, expected: bytes, data: bytes) -> None:
    """Replace a file's bytes in one step, keeping its owner, mode and attributes; a symbolic link stays one.

    Another hard link to the file keeps the old text. A Ctrl-C takes effect when the file is written.

    Raises:
        WriteError: the file has changed since it was read, or it cannot be written.

    """
    target = os.path.realpath(path)
    try:
        with uninterrupted():
            _replace(target, expected, data)
    except OSError as error:
        raise WriteError(f"the file cannot be written: {error.strerror}") from None


def _replace(target: str, expected: bytes, data: bytes) -> None:
    if read_file(target) != expected:
        raise WriteError(_CHANGED)
    if not os.access(target, os.W_OK):
        raise WriteError("the file is read-only")
    import tempfile

    number, temporary = tempfile.mkstemp(prefix=LEFTOVER, dir=os.path.dirname(target))
    try:
        with os.fdopen(number, "wb") as out:
            with contextlib.suppress(OSError):
                _mark(out.fileno())
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        _copy_attributes(target, temporary)
        if read_file(target) != expected:  # asked again at the last moment, because writing to a disk may take long
            raise WriteError(_CHANGED)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _copy_attributes(source: str, target: str) -> None:
    """Give a new file the owner, the mode and the extended attributes of the one that it will replace; its time is now."""
    about = os.stat(source)
    if hasattr(os, "chown") and (about.st_uid, about.st_gid) != (os.stat(target).st_uid, os.stat(target).st_gid):
        try:
            os.chown(target, about.st_uid, about.st_gid)
        except PermissionError:
            raise WriteError("the file belongs to another user or group and would become yours; let its owner fix it") from None
    shutil.copystat(source, target)
    os.utime(target)


def _mark(number: int) -> None:
    """Lock an open file while it is written: the lock goes with the process, however that ends.

    Raises:
        OSError: another process has locked it, or the file system has no locks.

    """
    if fcntl is not None:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_leftovers(directory: str) -> None:
    """Remove what a killed run was writing in a directory; what another run is writing now stays."""
    with contextlib.suppress(OSError), os.scandir(directory) as listing:
        for entry in [e for e in listing if e.name.startswith(LEFTOVER) and e.is_file(follow_symlinks=False)]:
            with contextlib.suppress(OSError):
                with open(entry.path, "rb") as handle:
                    _mark(handle.fileno())
                os.unlink(entry.path)  # without locks, as on Windows, an open file cannot be removed


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Put a Ctrl-C off until the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
