"""What must hold when perflint checks and fixes one text, whatever stands in it."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import statistics
import time
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from perflint.fix.fixer import is_fixable, where
from perflint.project.config import Config
from perflint.project.discover import Found
from perflint.rule.finding import ENGINE, Finding, Permission
from perflint.rule.registry import all_rules
from perflint.rule.selection import UNUSED_SUPPRESSION
from perflint.rule.suppress import without_suppression
from perflint.run.run import Run
from perflint.source.source import Source, SourceError

PATH = "/text/train.py"
"""Where a text is said to be: it stays in memory."""
SLOW = 20
"""How many times the usual time per line is too slow."""
SLOW_S = 0.5
"""Less than this is never too slow."""

Failures = dict[str, str]
"""What is wrong, by the property that does not hold."""


@dataclass
class Tally:
    """What a run has counted."""

    kinds: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    parsed: int = 0
    with_findings: int = 0
    fixed_safely: int = 0
    fixed: int = 0
    reformatted: int = 0
    failed: dict[int, Failures] = field(default_factory=dict)
    times: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Of each text: CPU seconds of a check, lines, bytes, its number."""

    @property
    def texts(self) -> int:
        return sum(self.kinds.values())

    def add(self, other: Tally) -> None:
        """Add what another one has counted."""
        self.kinds += other.kinds
        self.changes += other.changes
        self.parsed += other.parsed
        self.with_findings += other.with_findings
        self.fixed_safely += other.fixed_safely
        self.fixed += other.fixed
        self.reformatted += other.reformatted
        self.failed |= other.failed
        self.times += other.times

    def slow(self) -> list[tuple[float, int, int, int]]:
        """The texts that take too long for their lines."""
        usual = statistics.median(seconds / lines for seconds, lines, _, _ in self.times) if self.times else 0.0
        return [t for t in self.times if t[0] > SLOW_S and t[0] > SLOW * usual * t[1]]


def checked(data: bytes, *, backwards: bool = False) -> tuple[Source | None, list[Finding]]:
    """The findings of all rules in a text; `backwards` asks the rules in the opposite order."""
    found = Found()
    run = Run(all_rules(), Config(select=("all",)))
    run.text(PATH, data, found)
    if backwards:
        session = run.session(PATH, found)
        session.rules = session.rules[::-1]
    (result,) = run.check(found).checked
    with contextlib.suppress(SourceError):
        return Source.decode(PATH, data), result.findings
    return None, result.findings


@dataclass
class Fixing:
    """A text after `fix`, the lines that edits touched on the way, and the findings that are left."""

    data: bytes
    touched: set[str]
    left: list[Finding]
    leads_to: set[str]


def fixed(data: bytes, *, unsafe: bool) -> Fixing:
    """Fix a text with all rules."""
    found = Found()
    run = Run(all_rules(), Config(select=("all",)))
    run.text(PATH, data, found)
    touched: set[str] = set()
    leads_to: set[str] = set()

    def accept(source: Source, finding: Finding) -> bool:
        assert finding.fix is not None
        for edit in finding.fix.edits:
            rows = range(source.row_at(edit.start), source.row_at(max(edit.end - 1, edit.start)) + 1)
            touched.update(source.line(row) for row in rows if edit.start < edit.end or edit.start != source.starts[row - 1])
        for wanted in finding.fix.imports:
            rows = range(1, len(source.starts) + 1)
            touched.update(line for row in rows if re.match(rf"from\s+{wanted.module}\s+import", line := source.line(row)))
        leads_to.update(finding.fix.leads_to)
        return True

    result = run.fix(found, unsafe=unsafe, write_files=False, choose=where(accept))
    after = result.fixed[0].after if result.fixed else data
    return Fixing(after, touched, result.checked[0].findings, leads_to)


def failures(data: bytes, tally: Tally, number: int = 0) -> Failures:
    """What does not hold for a text, command line and formatting left out."""
    wrong: Failures = {}
    begin = time.process_time()
    source, findings = checked(data)
    tally.times.append((time.process_time() - begin, data.count(b"\n") + data.count(b"\r") + 1, len(data), number))
    tally.with_findings += any(f.category != ENGINE for f in findings)
    tree = parsed(data)
    tally.parsed += tree is not None
    if source is None:
        return wrong
    if source.encode(source.raw) != data:
        wrong["round trip"] = "decoded and encoded, the bytes are others"
    if tree is not None and any(f.rule == "unreadable-file" and "too deeply" not in f.message for f in findings):
        wrong["refused"] = next(f.message for f in findings if f.rule == "unreadable-file")
    if tree is None and not reported_as_broken(data):
        wrong["syntax error unseen"] = "Python cannot parse it, and nothing was reported"
    _, backwards = checked(data, backwards=True)
    if backwards != findings:
        wrong["order of rules"] = difference(named(source, findings), named(source, backwards))
    after = Fixing(data, set(), list(findings), set())
    for unsafe in (False, True):
        if not any(is_fixable(finding, Permission(unsafe)) for finding in findings):
            continue
        after = fixed(data, unsafe=unsafe)
        level = "all fixes" if unsafe else "safe fixes"
        for what, why in damage(source, data, findings, after, unsafe).items():
            wrong[what] = f"{level}: {why}"
        if unsafe:
            tally.fixed += after.data != data
        else:
            tally.fixed_safely += after.data != data
    unix = source.encode(re.sub(rb"\r\n|\r", b"\n", source.raw))
    if unix != data:
        wrong |= line_ends_matter(source, findings, after.data, unix)
    return wrong


def reported_as_broken(data: bytes) -> bool:
    """Whether a text is said to be no Python, unless a comment in it silences that."""
    return any(
        f.category == ENGINE
        for text in (data, data.replace(b"perflint:", b""))
        for f in checked(text)[1]
        if f.rule != UNUSED_SUPPRESSION
    )


def damage(source: Source, data: bytes, findings: Sequence[Finding], after: Fixing, unsafe: bool) -> Failures:
    """What is wrong with a fixed text."""
    wrong: Failures = {}
    fixable = Counter(f.rule for f in findings if is_fixable(f, Permission(unsafe)))
    left = Counter(f.rule for f in after.left if is_fixable(f, Permission(unsafe)) and f.rule not in after.leads_to)
    if left - fixable:
        wrong["finds more"] = f"fixable after the fix: {dict(left - fixable)}"
    if after.data == data:
        return wrong
    if parsed(after.data) is None or (compiles(data) and not compiles(after.data)):
        return {"unparsable": "the fixed text is no Python"}
    lost, gained = comments(data) - comments(after.data), comments(after.data) - comments(data)
    if any("perflint:" not in text for text in lost):
        wrong["comments"] = f"lost {[text for text in lost if 'perflint:' not in text]}"
    elif not all(any(without_suppression(text) in before for before in comments(data)) for text in gained):
        wrong["comments"] = f"new {list(gained)}"
    if not line_ends(after.data) <= (line_ends(data) or {b"\n"}):
        wrong["line ends"] = f"{sorted(line_ends(data))} became {sorted(line_ends(after.data))}"
    ends = data[-1:] in b"\r\n", after.data[-1:] in b"\r\n"
    if ends[0] != ends[1] and lines_of(source)[-1] not in after.touched:
        wrong["last line end"] = "the end of the last line came or went"
    try:
        body = Source.decode(PATH, after.data)
    except SourceError as error:
        return {**wrong, "encoding": f"the fixed text cannot be decoded: {error}"}
    if (body.encoding, body.bom) != (source.encoding, source.bom):
        wrong["encoding"] = f"{source.encoding} became {body.encoding}"
    untouched = [line for line in lines_of(source) if line not in after.touched]
    lines = iter(lines_of(body))
    missing = next((line for line in untouched if line not in lines), None)
    if missing is not None:
        wrong["untouched line"] = f"{missing!r} is gone or has moved, which no edit touched"
    twice = fixed(after.data, unsafe=unsafe)
    if twice.data != after.data:
        wrong["not idempotent"] = difference(lines_of(body), lines_of(Source.decode(PATH, twice.data)))
    return wrong


def line_ends_matter(source: Source, findings: Sequence[Finding], after: bytes, unix: bytes) -> Failures:
    """What is found or fixed otherwise when all line ends are line feeds."""
    wrong: Failures = {}
    other, others = checked(unix)
    assert other is not None
    if source.raw.rstrip().endswith(b"\\"):
        return wrong  # Python takes a backslash at the end of a file if a carriage return follows
    if named(source, findings) != named(other, others):
        wrong["line ends change findings"] = difference(named(source, findings), named(other, others))
    elif b"\r" in line_ends(source.raw) and line_ends(source.raw) != {b"\r"}:
        pass  # where lines go, a carriage return and a line feed may meet and be one line end
    elif re.sub(rb"\r\n|\r", b"\n", after) != fixed(unix, unsafe=True).data:
        wrong["line ends change fixes"] = "the fix of the text with other line ends is another one"
    return wrong


def named(source: Source, findings: Sequence[Finding]) -> list[str]:
    """Findings by rule and enclosing function, in the order of the file: what no layout changes."""
    tree = parsed(source.encode(source.raw))
    spans = sorted(qualified(tree)) if tree is not None else []
    names = []
    for finding in findings:
        row = source.row_at(finding.start)
        inside = [name for first, last, name in spans if first <= row <= last]
        names.append((inside[-1] if inside else "", finding.rule))
    return [f"{rule} in {name or 'module'}" for name, rule in sorted(names)]


def unlike_safety(source: Source, findings: Sequence[Finding], other: Source, others: Sequence[Finding]) -> str | None:
    """The first fix that is safe in one of two layouts of a text and unsafe in the other one."""
    pairs = zip(in_order(source, findings), in_order(other, others), strict=True)
    for (name, first), (_, second) in pairs:
        if first.fix is not None and second.fix is not None and first.fix.applicability is not second.fix.applicability:
            return f"{name}: {first.fix.applicability.value} became {second.fix.applicability.value}"
    return None


def in_order(source: Source, findings: Sequence[Finding]) -> list[tuple[str, Finding]]:
    """Findings by name and place."""
    pairs = [(named(source, [finding])[0], finding) for finding in findings]
    return sorted(pairs, key=lambda pair: (pair[0], pair[1].start, pair[1].end))


def qualified(tree: ast.AST, prefix: str = "") -> Iterator[tuple[int, int, str]]:
    """First row, last row and qualified name of each function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{prefix}{node.name}"
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield first, node.end_lineno or node.lineno, name
            yield from qualified(node, f"{name}.")
        else:
            yield from qualified(node, prefix)


def with_plug_in(data: bytes) -> bytes | str:
    """The file, or its text where it declares an encoding that Python has by a plug-in alone, and is UTF-8."""
    try:
        tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        if "unknown encoding" in str(error):
            with contextlib.suppress(UnicodeDecodeError):
                return data.decode("utf-8-sig")
    return data


def parsed(data: bytes) -> ast.Module | None:
    """The tree of a file, or None where Python cannot parse it."""
    try:
        return ast.parse(with_plug_in(data))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def compiles(data: bytes) -> bool:
    """Whether Python accepts a file."""
    try:
        compile(with_plug_in(data), "text", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def comments(data: bytes) -> Counter[str]:
    """The comments of a file that parses."""
    found: Counter[str] = Counter()
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        data = re.sub(rb"\r\n?", b"\n", data)
        found.update(t.string for t in tokenize.tokenize(io.BytesIO(data).readline) if t.type == tokenize.COMMENT)
    return found


def line_ends(data: bytes) -> set[bytes]:
    """The kinds of line ends in a file."""
    return set(re.findall(rb"\r\n|\r|\n", data))


def lines_of(source: Source) -> list[str]:
    """The lines of a file without their ends."""
    return [source.line(row) for row in range(1, len(source.starts) + 1)]


def difference(before: Sequence[str], after: Sequence[str]) -> str:
    """What two lists do not share, in words."""
    lost, gained = Counter(before) - Counter(after), Counter(after) - Counter(before)
    return f"without {list(lost.elements())[:3]}, with {list(gained.elements())[:3]}" if lost or gained else "another order"
