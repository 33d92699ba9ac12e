"""Look for safe fixes that change what a program computes.

    python fuzz/meaning.py --programs 200000 --seed 1 [--assume ordinary] [--runtime] [--minutes 30] [--processes 2]
                                      [--failures DIR] [--json FILE] [--resume]

Program number k of a run is `training_programs.program(seed + k)`. It is fixed with safe fixes, both versions run in this
process with the same generators, and all that can be observed is compared: printed text, the exception that ends the
program (type and text), every variable bit by bit (parameters, gradients, optimizer state, what objects hold), the states
of the random generators, the mode of autograd. Each program whose meaning changed is cut down to the statements that
matter and written to a folder. The exit code is 1 if there is one.

With --assume the program says itself which assumptions are false in it: where an applied fix rests on one of them, the program
is left out. What changes all the same is a defect.

Rules of which no fix is ever applied look at every `LOOKS_AT_ALL`th program: all that they could do here is crash.

With --resume the record in FILE is added to: programs whose seeds it holds are not tried again. So a long run is the same
command several times, each with its --minutes.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import json
import multiprocessing
import re
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.surroundings import added, joined, record, write  # noqa: E402
from fuzz.outcomes import Files, TooLong, outcome  # noqa: E402
from fuzz.strict import let_failures_out  # noqa: E402
from fuzz.training_programs import program  # noqa: E402
from perflint.fix.fixer import where  # noqa: E402
from perflint.project.config import Config  # noqa: E402
from perflint.project.discover import Found  # noqa: E402
from perflint.rule.assumptions import require_known  # noqa: E402
from perflint.rule.finding import Finding  # noqa: E402
from perflint.rule.obligations import Kind  # noqa: E402
from perflint.rule.registry import all_rules  # noqa: E402
from perflint.run.run import Run  # noqa: E402

FOLDER = "/program"
"""Where the files are said to be: they stay in memory."""
CHUNK = 100
CHUNKS_OF_A_PROCESS = 20
"""What the programs of a process leave behind is not much, but it is not freed either."""
WARM_UP = range(20)
"""The seeds of programs that run before there are processes, so that none of them imports and looks up what these have."""
LOOKS_AT_ALL = 10
MENDED = {"inference-tensor-escape": "inference tensor"}
"""Words of the errors that a rule's fix is there to mend: a program that ends with one is meant to go on."""
SECONDS_BETWEEN_RECORDS = 60


@dataclass
class Tally:
    """What a run has counted."""

    programs: int = 0
    with_fixes: int = 0
    raising: int = 0
    left_out: int = 0
    found: Counter[str] = field(default_factory=Counter)
    fixed: Counter[str] = field(default_factory=Counter)
    changed: dict[int, list[str]] = field(default_factory=dict)
    seeds: list[tuple[int, int]] = field(default_factory=list)
    """The ranges [start, end) that were tried."""

    def add(self, other: Tally) -> None:
        """Add what another one has counted."""
        self.programs += other.programs
        self.with_fixes += other.with_fixes
        self.raising += other.raising
        self.left_out += other.left_out
        self.found += other.found
        self.fixed += other.fixed
        self.changed |= other.changed
        self.seeds += other.seeds


CONFIG = Config(select=("all",), target_versions={"torch": Version(torch.__version__)})
"""How programs are fixed; `--assume` and `--runtime` change it."""


@functools.cache
def fixing() -> frozenset[str]:
    """The rules of which a fix may be applied: those with a case that says so."""
    cases = (ROOT / "fixtures").rglob("*.py")
    return frozenset(path.relative_to(ROOT / "fixtures").parts[0] for path in cases if _APPLIED.search(path.read_text("utf-8")))


_APPLIED = re.compile("# expect: (?:safe|assuming)")


class FixedProgram(NamedTuple):
    """A program after fixes.

    applied: how many by rule. rules: those that found something in it. assumed: what the fixes rest on.
    """

    files: dict[str, str]
    applied: Counter[str]
    rules: set[str]
    assumed: set[Kind]


def safely_fixed(files: Files, *, by_all: bool = True) -> FixedProgram:
    """The program after the fixes that `CONFIG` allows. by_all: also look at it with rules of which none is applied."""
    found = Found()
    run = Run([rule for rule in all_rules() if by_all or rule.name in fixing()], CONFIG)
    for name, text in files.items():
        run.text(f"{FOLDER}/{name}", text.encode(), found)
    rules: set[str] = set()
    assumed: set[Kind] = set()

    def accept(source: object, finding: Finding) -> bool:
        rules.add(finding.rule)
        if finding.fix is not None:
            assumed.update(finding.fix.assumptions)
        return True

    result = run.fix(found, unsafe=False, write_files=False, choose=where(accept))
    rules |= {finding.rule for _, finding in result.findings}
    after = {fixed.path.rpartition("/")[2]: fixed.after.decode() for fixed in result.fixed}
    return FixedProgram({**files, **after}, result.applied, rules, assumed)


# -- looking for changes -------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """What fixes change in a program.

    applied, rules: see `FixedProgram`. raises: whether the program ends with an error. left_out: whether an assumption that a
    fix rests on is false in it, so that nothing was compared.
    """

    differences: list[str]
    applied: Collection[str] = ()
    rules: Collection[str] = ()
    raises: bool = False
    left_out: bool = False


def changes(files: Files, breaks: Collection[Kind] = (), *, by_all: bool = True) -> Change:
    """What the fixes that `CONFIG` allows change in a program. breaks: the assumptions that are false in it."""
    fixed = safely_fixed(files, by_all=by_all)
    applied, rules = fixed.applied, fixed.rules
    if fixed.files == files:
        return Change([], applied, rules)
    if not fixed.assumed.isdisjoint(breaks):
        return Change([], applied, rules, left_out=True)
    with contextlib.suppress(TooLong):
        before = outcome(files)
        raises = before.error is not None
        if raises and Kind.ERRORS_ARE_BUGS in fixed.assumed:
            return Change([], applied, rules, raises, left_out=True)
        if any(rule in applied and words in (before.error or "").lower() for rule, words in MENDED.items()):
            return Change([], applied, rules, raises)
        differences = before.differences(outcome(fixed.files))
        if differences and before.differences(outcome(files)):
            differences = []  # it is not even itself twice: it shows memory that nobody has written to, or a time
        return Change(differences, applied, rules, raises)
    return Change([], applied, rules, True)


def tried(seeds: range, failures: Path | None = None) -> Tally:
    """Try the programs of some seeds, and write those that change to a folder."""
    torch.set_num_threads(1)
    gc.disable()
    tally = Tally(seeds=[(seeds.start, seeds.stop)])
    for seed in seeds:
        try:
            written = program(seed)
            change = changes(written.files, written.breaks, by_all=seed % LOOKS_AT_ALL == 0)
        except Exception as problem:  # the linter or this script is wrong: a failure, too
            change = Change([f"crash: {type(problem).__name__}: {problem}"])
        tally.programs += 1
        tally.with_fixes += bool(change.applied)
        tally.raising += change.raises
        tally.left_out += change.left_out
        tally.found.update(change.rules)
        tally.fixed.update({*change.applied})
        if change.differences:
            tally.changed[seed] = change.differences
            if failures is not None:
                keep(failures, seed, change.differences)
    gc.collect()
    return tally


def smallest(files: Files, breaks: Collection[Kind] = ()) -> dict[str, str]:
    """A program without the statements that its failure does not need. breaks: see `changes`."""
    current = dict(files)
    error = _kind_of_error(files)
    shrinking = True
    while shrinking:
        shrinking = False
        for name in list(current):
            for shorter in _shorter(current[name]):
                candidate = {**current, name: shorter}
                with contextlib.suppress(Exception):
                    if _kind_of_error(candidate) == error and changes(candidate, breaks).differences:
                        current, shrinking = candidate, True
                        break
    return current


def _kind_of_error(files: Files) -> str | None:
    """The type of the exception that ends a program."""
    error = outcome(files).error
    return error and error.partition(":")[0]


def _shorter(text: str) -> Iterator[str]:
    """The text with one statement less, or with a block in the place of its statement."""
    tree = ast.parse(text)
    blocks = [
        (block, k)
        for node in ast.walk(tree)
        for block in (getattr(node, field, None) for field in ("body", "orelse", "finalbody"))
        if isinstance(block, list)
        for k in range(len(block))
    ]
    for block, k in blocks:
        statement = block[k]
        options: list[list[ast.stmt]] = (
            [[], getattr(statement, "body", [])] if not isinstance(statement, ast.ClassDef) else [[]]
        )
        for option in options:
            if isinstance(option, list) and option != [statement]:
                block[k : k + 1] = option
                with contextlib.suppress(Exception):
                    compact = ast.unparse(tree)
                    compile(compact, "shorter", "exec")
                    if compact != text:
                        yield compact
                block[k : k + len(option)] = [statement]


# -- the command line ----------------------------------------------------------------------------------------------------


def main() -> int:
    """Read the command line, run, print."""
    let_failures_out()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument(
        "--assume", default="", help="assumptions that hold for these programs on this machine, such as memory-to-spare"
    )
    parser.add_argument("--runtime", action="store_true", help="let fixes import perflint_runtime")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--failures", type=Path, help="write each changed program, and what is left of it, to this folder")
    parser.add_argument("--json", type=Path, help="write what was counted to this file")
    parser.add_argument("--resume", action="store_true", help="add to the record in that file")
    options = parser.parse_args()
    global CONFIG  # the processes of a run are forks
    assumed = tuple(name for name in options.assume.split(",") if name)
    require_known(assumed, "--assume")
    CONFIG = replace(CONFIG, assume=assumed, runtime=options.runtime)
    if options.resume and options.json is None:
        parser.error("--resume needs --json FILE: the record that is added to")
    before = json.loads(options.json.read_text(encoding="utf-8")) if options.resume and options.json.exists() else None
    if before is not None and before["command"] != command(options):
        parser.error(f"{options.json} is the record of another run: {before['command']}")
    seeds = chunks(options.seed, options.programs, before["seeds"] if before is not None else [])
    if not seeds:
        print("all of these programs have been tried")
        return 1 if before is not None and before["figures"]["meanings_changed"] else 0
    tally, seconds, kept_at = Tally(), 0.0, 0.0

    def keep_record() -> None:
        if options.json is not None:
            counted = result(tally, command(options))
            write(options.json, added(before, counted) if before is not None else counted)

    for tally, seconds in run(seeds, options.minutes, options.processes, options.failures):
        if sys.stderr.isatty():
            print(f"\r{tally.programs} programs, {len(tally.changed)} changed", end="", file=sys.stderr)
        if seconds - kept_at > SECONDS_BETWEEN_RECORDS:
            keep_record()
            kept_at = seconds
    print(table(tally, seconds))
    for seed, differences in sorted(tally.changed.items()):
        print(f"program {seed}: {'; '.join(differences)[:300]}")
    keep_record()
    return 1 if tally.changed else 0


def chunks(seed: int, programs: int, tried: list[list[int]]) -> list[range]:
    """The seeds to try, `CHUNK` at most in one: those of the run less those that a record has tried."""
    left: list[range] = []
    at = seed
    for start, end in [*tried, [seed + programs, seed + programs]]:
        stop = min(start, seed + programs)
        left += [range(first, min(first + CHUNK, stop)) for first in range(at, stop, CHUNK)]
        at = max(at, end)
    return left


def run(seeds: list[range], minutes: float | None, processes: int, failures: Path | None) -> Iterator[tuple[Tally, float]]:
    """Try programs in processes of their own; after each chunk, what was counted so far, and the seconds."""
    tally = Tally()
    tried(WARM_UP)
    gc.freeze()  # what is here stays: programs that collect garbage need not walk over it
    begin = time.monotonic()
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=CHUNKS_OF_A_PROCESS) as pool:
        for done in pool.imap_unordered(functools.partial(tried, failures=failures), seeds):
            tally.add(done)
            yield tally, time.monotonic() - begin
            if minutes is not None and time.monotonic() - begin > minutes * 60:
                return


def table(tally: Tally, seconds: float) -> str:
    """The counts in lines."""
    rows = [
        f"{tally.programs} programs in {seconds:.0f} s ({tally.programs / seconds:.0f} per second)",
        f"{tally.with_fixes} with fixes ({tally.with_fixes / tally.programs:.0%}), of which {tally.raising} raise",
        f"{tally.left_out} left out, for an assumption that a fix rests on is false in them",
        f"{len(tally.changed)} changed their meaning",
        "",
        f"{'rule':40} {'found in':>10} {'fixed in':>10}",
    ]
    rows += [f"{name:40} {tally.found[name]:>10} {tally.fixed[name]:>10}" for name in sorted(fixing())]
    return "\n".join(rows)


def keep(folder: Path, seed: int, differences: list[str]) -> None:
    """Write a changed program, what is left of it, and what the fix makes of that."""
    target = folder / str(seed)
    target.mkdir(parents=True, exist_ok=True)
    files, breaks = program(seed)
    small = smallest(files, breaks)
    try:
        fixed = safely_fixed(small).files
        after = ["-- smallest --", *changes(small, breaks).differences]
    except Exception as problem:  # the failure may be that the linter crashes
        fixed, after = {}, [f"-- smallest: crash: {problem}"]
    (target / "differences.txt").write_text("\n".join([*differences, *after]), encoding="utf-8")
    for part, texts in (("program", files), ("smallest", small), ("fixed", fixed)):
        (target / part).mkdir(exist_ok=True)
        for name, text in texts.items():
            (target / part / name).write_text(text, encoding="utf-8")


def command(options: argparse.Namespace) -> str:
    """What reproduces a run."""
    more = f" --assume {options.assume}" * bool(options.assume) + " --runtime" * options.runtime
    return f"python fuzz/meaning.py --programs {options.programs} --seed {options.seed}{more}"


def result(tally: Tally, command: str) -> dict[str, Any]:
    """The run as a record."""
    figures = {
        "programs": tally.programs,
        "programs_with_fixes": tally.with_fixes,
        "left_out": tally.left_out,
        "meanings_changed": len(tally.changed),
    }
    return record(
        command,
        figures,
        never=["meanings_changed"],
        packages=["torch", "numpy", "pandas"],
        seeds=joined(tally.seeds),
        by_rule={
            "found": {name: tally.found[name] for name in sorted(tally.found)},
            "fixed": {name: tally.fixed[name] for name in sorted(tally.fixed)},
        },
    )


if __name__ == "__main__":
    sys.exit(main())
