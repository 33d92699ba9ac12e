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
import json
import multiprocessing
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from click.testing import CliRunner

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import surroundings  # noqa: E402
from fuzz.strict import let_failures_out  # noqa: E402
from fuzz.text_peers import RUFF, peers  # noqa: E402
from fuzz.text_properties import PATH, Failures, Tally, checked, difference, failures, lines_of, named, parsed, unlike_safety  # noqa: E402
from fuzz.texts import Text, Texts, folder_sources, generated_sources, repository_sources  # noqa: E402
from perflint.cli import cli  # noqa: E402
from perflint.source.source import Source, SourceError  # noqa: E402

LIMIT_S = 20
"""A text that takes more seconds of CPU time hangs."""
CHUNK = 40
COMMAND_LINE_EVERY = 8
"""One text in so many goes through the command line and its report formats, too."""
SHRINKING_S = 40


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


def main() -> int:
    """Read the command line, run, print."""
    let_failures_out()
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
