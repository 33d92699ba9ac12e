"""Look for texts that perflint crashes on, breaks, or judges by their layout.

    python fuzz/text.py --texts 20000 --seed 1 [--seconds S] [--processes 2] [--folders DIR ...]
        [--peers 300] [--failures DIR] [--json FILE]

Text number k of a run is `texts.Texts(...).text(seed + k)`: parts of this checkout's fixtures (of the files in FOLDERS too, and
of what hypothesmith generates where it is installed), changed at random. All rules are selected. Of each text it is asked:
that nothing crashes, in the API and on the command line; that what `fix` makes parses, with safe fixes and with all; that
comments, line ends, encoding and lines that no edit touches stay; that a second `fix` changes nothing and `check` finds nothing
fixable that was not there; that the order of the rules does not matter; that line ends and `ruff format` with another line
length change no finding. The exit code is 1 if one of these fails. With --peers as many texts go through TorchFix
(--torchfix COMMAND) and ruff.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import surroundings  # noqa: E402
from fuzz.texts import Text, Texts, folder_sources, generated_sources, repository_sources  # noqa: E402
from perflint.cli import cli  # noqa: E402
from perflint.fix.fixer import is_fixable, where  # noqa: E402
from perflint.project.config import Config  # noqa: E402
from perflint.project.discover import Found  # noqa: E402
from perflint.rule.finding import ENGINE, Finding, Permission  # noqa: E402
from perflint.rule.registry import all_rules  # noqa: E402
from perflint.rule.selection import UNUSED_SUPPRESSION  # noqa: E402
from perflint.rule.suppress import without_suppression  # noqa: E402
from perflint.run.run import Run  # noqa: E402
from perflint.source.source import Source, SourceError  # noqa: E402

PATH = "/text/train.py"
"""Where a text is said to be: it stays in memory."""
LIMIT_S = 20
"""A text that takes more seconds of CPU time hangs."""
CHUNK = 40
COMMAND_LINE_EVERY = 8
"""One text in so many goes through the command line and its report formats, too."""
SHRINKING_S = 40
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


# -- perflint on one text ------------------------------------------------------------------------------------------------


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


# -- many texts ----------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """A text took longer than `LIMIT_S`."""


def _too_long(number: int, frame: object) -> None:
    raise TooLong


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raise `TooLong` when a block takes too long."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def examined(data: bytes, tally: Tally, number: int = 0) -> Failures:
    """What does not hold for a text; an exception is a failure, too."""
    try:
        with limited():
            return failures(data, tally, number)
    except TooLong:
        return {"hangs": f"takes more than {LIMIT_S} s"}
    except Exception as error:
        return {"crash": f"{type(error).__name__}: {error}"}


def tried(numbers: range, source: Texts, width: int = 60) -> Tally:
    """Examine the texts with some numbers: one by one, then together on the command line and after reformatting."""
    prepare()
    tally = Tally()
    texts = {number: source.text(number) for number in numbers}
    for number, text in texts.items():
        tally.kinds[text.kind] += 1
        tally.changes.update(text.changes)
        wrong = examined(text.data, tally, number)
        if wrong:
            tally.failed[number] = wrong
    whole = {n: text for n, text in texts.items() if not {"crash", "hangs"} & tally.failed.get(n, {}).keys()}
    given = {number: text for number, text in whole.items() if number % COMMAND_LINE_EVERY == 0}
    for number, wrong in {**reformatting_matters(whole, width, tally), **on_the_command_line(given)}.items():
        tally.failed.setdefault(number, {}).update(wrong)
    return tally


def prepare() -> None:
    """What the command line does before it runs, and what takes long the first time only."""
    if sys.version_info >= (3, 11):
        sys.setrecursionlimit(30_000)
    warnings.simplefilter("ignore")
    import libcst  # noqa: F401


def reformatting_matters(texts: Mapping[int, Text], width: int, tally: Tally) -> dict[int, Failures]:
    """Texts in which something else is found after `ruff format`, which keeps the meaning of a text."""
    wrong: dict[int, Failures] = {}
    with tempfile.TemporaryDirectory() as scratch:
        sources: dict[int, Source] = {}
        for number, text in texts.items():
            with contextlib.suppress(SourceError):
                source = Source.decode(PATH, text.data)
                if parsed(text.data) is not None and not shares_a_line(source):
                    sources[number] = source
                    Path(scratch, f"t{number}.py").write_bytes(source.body)
        ruff("format", "--line-length", str(width), scratch)
        for number, source in sources.items():
            body = Path(scratch, f"t{number}.py").read_bytes()
            if body == source.body:
                continue
            with contextlib.suppress(UnicodeEncodeError, TooLong, Exception), limited():
                other, others = checked(source.encode(body))
                tally.reformatted += 1
                findings = checked(texts[number].data)[1]
                before = named(source, findings)
                if other is not None and named(other, others) != before:
                    wrong[number] = {"reformatting": difference(before, named(other, others))}
                elif other is not None and (unlike := unlike_safety(source, findings, other, others)):
                    wrong[number] = {"reformatting changes safety": unlike}
    return wrong


def shares_a_line(source: Source) -> bool:
    """Whether a suppression stands behind several statements, which a formatter takes apart."""
    text = source.body.decode()
    if "perflint:" not in text:
        return False
    tree = parsed(source.encode(source.raw))
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)] if tree is not None else []
    rows = Counter(row for statement in statements for row in {statement.lineno, statement.end_lineno})
    return any(rows[row] > 1 or rows[row + 1] > 1 for row, line in enumerate(lines_of(source), 1) if "perflint:" in line)


def ruff(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run ruff without anybody's settings."""
    version = "py{}{}".format(*sys.version_info)
    command = [RUFF, arguments[0], "--isolated", "--no-cache", "--target-version", version, *arguments[1:]]
    return subprocess.run(command, capture_output=True, check=False)


RUFF = shutil.which("ruff", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))) or "ruff"


def on_the_command_line(texts: Mapping[int, Text]) -> dict[int, Failures]:
    """Texts that the command line crashes on, or fixes otherwise than the API."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = {number: Path(scratch, f"t{number}", "train.py") for number in texts}
        for number, path in paths.items():
            path.parent.mkdir()
            path.write_bytes(texts[number].data)
        options = ["--isolated", "--select", "all"]
        commands = [["check", *options, "--output-format", form] for form in ("grouped", "full", "concise", "json", "github")]
        commands += [
            ["fix", *options, "--unsafe-fixes", "--diff"],
            ["fix", *options, "--unsafe-fixes"],
            ["check", *options, "--add-ignores"],
        ]
        for command in commands:
            problem = crash([*command, scratch])
            if problem is None:
                continue
            alone = {n: one for n, path in paths.items() if (one := crash([*command, str(path)])) is not None}
            return {number: {"crash": f"{command[0]}: {one}"} for number, one in alone.items()} or {
                min(texts): {"crash": f"{command[0]} of {len(texts)} files: {problem}"}
            }
    return {}


def crash(arguments: list[str]) -> str | None:
    """How a command ends that does not end with a report."""
    result = CliRunner().invoke(cli, arguments)
    if result.exit_code in (0, 1) and (result.exception is None or isinstance(result.exception, SystemExit)):
        if "json" in arguments:
            json.loads(result.stdout)
        return None
    return f"exit code {result.exit_code}: {result.stderr.strip()[-300:]}"


def smallest(data: bytes, what: str) -> bytes:
    """A text without the lines that a failure does not need, as far as `SHRINKING_S` seconds suffice."""
    end = time.monotonic() + SHRINKING_S

    def fails(candidate: bytes) -> bool:
        return what in (examined(candidate, Tally()) | formatted_failures(candidate, what))

    lines = re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", data)
    size = max(len(lines) // 2, 1)
    while True:
        at, shorter = 0, False
        while at < len(lines) and time.monotonic() < end:
            candidate = lines[:at] + lines[at + size :]
            if fails(b"".join(candidate)):
                lines, shorter = candidate, True
            else:
                at += size
        if (size == 1 and not shorter) or time.monotonic() > end:
            return b"".join(lines)
        size = max(size // 2, 1)


def formatted_failures(data: bytes, what: str) -> Failures:
    """The failures of one text that only show after reformatting."""
    return reformatting_matters({0: Text("", (), data)}, 60, Tally()).get(0, {}) if what.startswith("reformatting") else {}


# -- peers ---------------------------------------------------------------------------------------------------------------


def peers(texts: Mapping[int, Text], torchfix: str | None) -> dict[str, dict[str, int]]:
    """The same counts for other fixers, over those texts that parse and are UTF-8 with one kind of line end."""
    usable = {n: t.data for n, t in texts.items() if compiles(t.data) and plain(t.data)}
    version = "py{}{}".format(*sys.version_info)
    common = ["--isolated", "--no-cache", "--target-version", version, "-q"]
    commands = {
        "perflint fix --unsafe-fixes": [
            sys.executable,
            "-m",
            "perflint",
            "fix",
            "--isolated",
            "--select",
            "all",
            "--unsafe-fixes",
            "-q",
        ],
        "ruff check --fix --unsafe-fixes": [RUFF, "check", "--select", "ALL", "--fix", "--unsafe-fixes", *common],
        "ruff format": [RUFF, "format", *common],
    }
    if torchfix is not None:
        commands["torchfix --fix"] = [torchfix, "--select", "ALL", "--fix", "-j", "1", "--show-stderr"]
    return {name: peer(command, usable) for name, command in commands.items()}


def plain(data: bytes) -> bool:
    """Whether a text is UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def peer(command: Sequence[str], texts: Mapping[int, bytes]) -> dict[str, int]:
    """How one fixer does with some texts, and once more with those that it has changed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "rules"), os.environ.get("PYTHONPATH", ""))),
    }
    with tempfile.TemporaryDirectory() as scratch:
        paths = {number: Path(scratch, f"t{number}.py") for number in texts}
        crashes = 0
        states = [dict(texts)]
        for _ in range(2):
            pending = [n for n, data in states[-1].items() if len(states) == 1 or data != texts[n]]
            for number, path in paths.items():
                path.unlink(missing_ok=True)
                if number in pending:
                    path.write_bytes(states[-1][number])
            done = subprocess.run([*command, scratch], capture_output=True, check=False, env=environment, cwd=scratch)
            crashes += len(re.findall(rb"Traceback \(most|panicked at|Failed to codemod", done.stdout + done.stderr))
            states.append({n: paths[n].read_bytes() if n in pending else data for n, data in states[-1].items()})
    changed = [n for n, data in states[1].items() if data != texts[n]]
    parsing = [n for n in changed if compiles(states[1][n])]
    return {
        "texts": len(texts),
        "changed": len(changed),
        "crashes": crashes,
        "unparsable": len(changed) - len(parsing),
        "comments lost": sum(
            any("perflint:" not in text for text in comments(texts[n]) - comments(states[1][n])) for n in parsing
        ),
        "not idempotent": sum(states[2][n] != states[1][n] for n in changed),
    }


# -- the command line ----------------------------------------------------------------------------------------------------


def main() -> int:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0, help="of the first text")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folders", type=Path, nargs="*", default=[], help="take parts of the files in these folders, too")
    parser.add_argument("--generated", type=int, default=0, help="so many sources from hypothesmith, if it is installed")
    parser.add_argument("--peers", type=int, default=0, help="so many texts for other fixers")
    parser.add_argument("--torchfix", help="the command that runs TorchFix")
    parser.add_argument("--failures", type=Path, help="write each failing text, and what is left of it, to this folder")
    parser.add_argument("--json", type=Path, help="write what was counted to this file")
    options = parser.parse_args()
    prepare()
    sources = repository_sources() | folder_sources(options.folders) | generated_sources(options.generated, options.seed)
    texts = Texts(sources)
    tally, seconds = Tally(), 0.0
    for counted, now in run(texts, options.texts, options.seed, options.seconds, options.processes):
        tally, seconds = counted, now
        if sys.stderr.isatty():
            print(f"\r{tally.texts} texts, {len(tally.failed)} failures", end="", file=sys.stderr)
    for number, wrong in sorted(tally.failed.items()):
        print(f"text {number}: {'; '.join(f'{what}: {why}' for what, why in wrong.items())[:300]}")
    print(json.dumps(figures(tally, seconds), indent=2), flush=True)
    for number, wrong in sorted(tally.failed.items()) if options.failures is not None else ():
        write(options.failures, number, texts.text(number), wrong)
    if options.json is not None:
        numbers = range(options.seed, options.seed + options.peers)
        beside = peers({number: texts.text(number) for number in numbers}, options.torchfix) if options.peers else {}
        surroundings.write(options.json, record(options, tally, seconds, beside))
    return 1 if tally.failed else 0


def run(texts: Texts, count: int, seed: int, seconds: float | None, processes: int) -> Iterator[tuple[Tally, float]]:
    """Examine texts in processes of their own; after each chunk, what was counted so far, and the seconds."""
    tally = Tally()
    chunks = [range(at, min(at + CHUNK, seed + count)) for at in range(seed, seed + count, CHUNK)]
    begin = time.monotonic()
    fork = multiprocessing.get_context("fork")
    # texts that went with each chunk would fill the pipe, and a pool whose pipe is full cannot be ended
    with fork.Pool(processes, _SOURCES.append, (texts,), maxtasksperchild=10) as pool:
        for done in pool.imap_unordered(_tried_in_worker, chunks):
            tally.add(done)
            yield tally, time.monotonic() - begin
            if seconds is not None and time.monotonic() - begin > seconds:
                return


_SOURCES: list[Texts] = []


def _tried_in_worker(numbers: range) -> Tally:
    return tried(numbers, _SOURCES[0])


def write(folder: Path, number: int, text: Text, wrong: Failures) -> None:
    """Write a failing text and the smallest part of it that fails likewise."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.py").write_bytes(text.data)
    (folder / f"{number}.txt").write_text(
        "\n".join([*text.changes, *(f"{k}: {v}" for k, v in wrong.items())]), encoding="utf-8"
    )
    (folder / f"{number}.small.py").write_bytes(smallest(text.data, next(iter(wrong))))


PROPERTIES = {
    "crashes": ("crash",),
    "hangs": ("hangs",),
    "unparsable_results": ("unparsable",),
    "comments_lost": ("comments",),
    "untouched_bytes_changed": ("untouched line", "line ends", "last line end", "encoding", "round trip"),
    "not_idempotent": ("not idempotent",),
    "findings_that_a_fix_adds": ("finds more",),
    "order_of_rules_matters": ("order of rules",),
    "line_ends_matter": ("line ends change findings", "line ends change fixes"),
    "reformatting_matters": ("reformatting", "reformatting changes safety"),
    "wrongly_refused_or_accepted": ("refused", "syntax error unseen"),
}
"""The record's counts, and the properties that they count."""


def figures(tally: Tally, seconds: float) -> dict[str, int | float]:
    """The counts of a run."""
    slowest = max(tally.times, key=lambda t: t[0] / t[2]) if tally.times else (0.0, 1, 1, 0)
    usual = statistics.median(t[0] / t[1] for t in tally.times) if tally.times else 0.0
    failed = {name: sum(any(p in w for p in parts) for w in tally.failed.values()) for name, parts in PROPERTIES.items()}
    return {
        "texts": tally.texts,
        "texts_that_parse": tally.parsed,
        "texts_with_findings": tally.with_findings,
        "texts_changed_by_safe_fixes": tally.fixed_safely,
        "texts_changed_by_all_fixes": tally.fixed,
        "texts_reformatted": tally.reformatted,
        **failed,
        "texts_too_slow": len(tally.slow()),
        "usual_ms_per_line": round(usual * 1000, 3),
        "slowest_ms_per_kb": round(slowest[0] / slowest[2] * 1e6, 1),
        "texts_per_s": round(tally.texts / seconds, 1) if seconds else 0.0,
    }


def record(
    options: argparse.Namespace, tally: Tally, seconds: float, beside: Mapping[str, Mapping[str, int]]
) -> dict[str, object]:
    """The run as data."""
    counted = {name: number for name, number in figures(tally, seconds).items() if isinstance(number, int)}
    return surroundings.record(
        f"python fuzz/text.py --texts {tally.texts} --seed {options.seed}",
        counted,
        (*PROPERTIES, "texts_too_slow"),
        ("ruff", "hypothesis", "hypothesmith"),
        folders=sorted(folder.name for folder in options.folders),
        speed={name: number for name, number in figures(tally, seconds).items() if name not in counted},
        kinds=dict(sorted(tally.kinds.items())),
        changes=dict(sorted(tally.changes.items())),
        too_slow=[number for *_, number in tally.slow()],
        peers=beside,
    )


if __name__ == "__main__":
    sys.exit(main())
