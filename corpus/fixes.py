"""Fix copies of real packages, and look for what a fixer must never do.

    python corpus/fixes.py FOLDER ... [--safe-only] [--patches DIR]

run_corpus.py does it for the whole corpus and keeps the counts; this is for any other folder. `perflint check` runs on each
FOLDER, and `perflint fix` on a copy, with all rules. Reported as a problem: a crash; a changed file that does not parse, has
lost or changed a comment, mixes line ends that it did not mix, or uses a name that it does not define (ruff's F821, F823);
an import left unused (F401); a second run that changes something; a patch of `--diff` that `git apply` does not turn into
the same files. With --patches the patch of each folder is kept for reading. The exit code is 1 if there is a problem.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ALL = ("--isolated", "--select", "all", "--no-respect-gitignore")
UNDEFINED_OR_UNUSED = "F821,F823,F401"


@dataclass(frozen=True)
class Problem:
    """What a linter or a fixer must not do."""

    kind: str
    """One of `KINDS`."""
    text: str
    """What, and in which file."""


KINDS = {
    "crashes": "a run that did not end with a report",
    "findings_outside_of_files": "a place that its file does not have",
    "files_failing_to_compile": "a file that compiled before",
    "comments_lost": "lost, changed or gained",
    "line_ends_changed": "or the byte order mark, or the end of the last line",
    "names_undefined_or_unused": "that were not before, as ruff sees it",
    "patches_that_differ": "`--diff` and `fix` do not agree",
    "files_changed_by_a_second_fix": "the first one should have left nothing to fix",
}
"""The kinds of problems."""


@dataclass(frozen=True)
class Fixed:
    """What fixes have done to a folder."""

    changed: list[Path]
    """Relative to the folder."""
    patch: bytes
    problems: list[Problem]


def main() -> int:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="packages or repositories; they are not changed")
    parser.add_argument("--safe-only", action="store_true", help="apply safe fixes only")
    parser.add_argument("--patches", type=Path, help="keep the patch of each folder here")
    options = parser.parse_args()
    unsafe = () if options.safe_only else ("--unsafe-fixes",)
    total = 0
    for folder in options.folders:
        problems = checked(folder)[1]
        fixed = try_fixes(folder, unsafe)
        problems += fixed.problems
        if options.patches is not None:
            options.patches.mkdir(parents=True, exist_ok=True)
            (options.patches / f"{folder.name}.patch").write_bytes(fixed.patch)
        print(f"{folder.name}: {len(fixed.changed)} files changed, {len(problems)} problems")
        for problem in problems:
            print(f"  {problem.kind}: {problem.text}")
        total += len(problems)
    return 1 if total else 0


def checked(folder: Path) -> tuple[list[dict[str, Any]], list[Problem]]:
    """What `perflint check` finds in a folder, and what is wrong with that."""
    report = perflint("check", *ALL, "--output-format", "json", ".", cwd=folder)
    problems = crash("check", report)
    if problems:
        return [], problems
    findings: list[dict[str, Any]] = json.loads(report.stdout)
    return findings, [Problem("findings_outside_of_files", text) for text in locations_outside(findings, folder)]


def try_fixes(original: Path, unsafe: tuple[str, ...]) -> Fixed:
    """Fix a copy of a folder: what changes, and what is wrong with it."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = copied(original, Path(scratch))
        problems: list[Problem] = []
        patch = perflint("fix", *ALL, *unsafe, "--diff", "-q", ".", cwd=copy)
        problems += crash("fix --diff", patch)
        first = perflint("fix", *ALL, *unsafe, "--output-format", "concise", ".", cwd=copy)
        problems += crash("fix", first)
        changed, damaged = compared(original, copy)
        problems += damaged
        fixed = {path: (copy / path).read_bytes() for path in changed}
        if patch.stdout:
            problems += [Problem("patches_that_differ", text) for text in patch_differs(patch.stdout, original, fixed)]
        shutil.copytree(copy, again := Path(scratch) / "again", symlinks=True)
        problems += crash("second fix", perflint("fix", *ALL, *unsafe, "--output-format", "concise", ".", cwd=again))
        problems += [Problem("files_changed_by_a_second_fix", str(path)) for path in compared(copy, again)[0]]
    return Fixed(changed, patch.stdout, problems)


def copied(folder: Path, target: Path) -> Path:
    """A copy of a folder, of the same name in another one."""
    shutil.copytree(folder, target / folder.name, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    return target / folder.name


def compared(original: Path, fixed: Path) -> tuple[list[Path], list[Problem]]:
    """The Python files that differ in a fixed copy of a folder, and what is wrong with them."""
    files = [path.relative_to(original) for path in sorted(original.rglob("*.py")) if path.is_file()]
    changed = [path for path in files if (original / path).read_bytes() != (fixed / path).read_bytes()]
    problems = [
        Problem(found.kind, f"{path}: {found.text}")
        for path in changed
        for found in damage((original / path).read_bytes(), (fixed / path).read_bytes())
    ]
    new = names_that_ruff_finds(fixed, changed) - names_that_ruff_finds(original, changed)
    return changed, problems + [Problem("names_undefined_or_unused", f"{path}: {text}") for path, text in new.elements()]


def perflint(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run this checkout's perflint."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "rules")))}
    command = [sys.executable, "-m", "perflint", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, check=False)


def crash(what: str, run: subprocess.CompletedProcess[bytes]) -> list[Problem]:
    """A run that did not end with a report."""
    if run.returncode in (0, 1) and b"Traceback" not in run.stderr:
        return []
    lines = run.stderr.decode(errors="replace").strip().splitlines() or [""]
    return [Problem("crashes", f"{what} ends with {run.returncode}: {' / '.join(lines[-3:])}")]


def locations_outside(findings: list[dict[str, Any]], folder: Path) -> list[str]:
    """Findings whose place is not in their file."""
    wrong = []
    for finding in findings:
        rows = len((folder / str(finding["filename"])).read_bytes().splitlines()) + 1
        start, end = finding["location"], finding["end_location"]
        if not 1 <= start["row"] <= end["row"] <= rows:
            wrong.append(f"{finding['filename']}: {finding['rule']} at {start} to {end}, of {rows} rows")
    return wrong


def damage(before: bytes, after: bytes) -> list[Problem]:
    """What is wrong with a file after fixes."""
    try:
        compile(after, "fixed", "exec", dont_inherit=True)
        lost = comments(before) - comments(after)
        gained = comments(after) - comments(before)
    except (SyntaxError, ValueError) as error:
        return [Problem("files_failing_to_compile", str(error))]
    problems = [Problem("comments_lost", text) for text in lost if "perflint:" not in text]
    problems += [Problem("comments_lost", f"gained {text}") for text in gained]
    if not line_ends(after) <= line_ends(before):
        problems.append(Problem("line_ends_changed", f"{sorted(line_ends(before))} became {sorted(line_ends(after))}"))
    if (re.search(rb"[\r\n]\Z", before) is None) != (re.search(rb"[\r\n]\Z", after) is None):
        problems.append(Problem("line_ends_changed", "the end of the last line came or went"))
    if before.startswith(b"\xef\xbb\xbf") != after.startswith(b"\xef\xbb\xbf"):
        problems.append(Problem("line_ends_changed", "the byte order mark came or went"))
    return problems


def comments(data: bytes) -> Counter[str]:
    """The comments of a file, and how often each stands there."""
    return Counter(t.string for t in tokenize.tokenize(io.BytesIO(data).readline) if t.type == tokenize.COMMENT)


def line_ends(data: bytes) -> set[bytes]:
    """The kinds of line ends in a file."""
    return set(re.findall(rb"\r\n|\r|\n", data))


def names_that_ruff_finds(folder: Path, files: Iterable[Path]) -> Counter[tuple[str, str]]:
    """Undefined names and unused imports in some files of a folder, as ruff sees them."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "check", "--isolated", "--no-cache", "--select", UNDEFINED_OR_UNUSED, "--output-format", "json", "--quiet"]
    command += [str(path) for path in files]
    found = json.loads(subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout) if files else []
    return Counter((str(Path(f["filename"]).relative_to(folder.resolve())), f["message"]) for f in found)


def patch_differs(patch: bytes, original: Path, expected: dict[Path, bytes]) -> list[str]:
    """Files that the patch of `--diff`, applied by git, makes different from what `fix` wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        for path in expected:
            target = Path(scratch) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(original / path, target)
        run = subprocess.run(["git", "apply", "-"], input=patch, cwd=scratch, capture_output=True, check=False)
        if run.returncode:
            return [f"git apply refuses the patch: {run.stderr.decode().strip()}"]
        patched = {path: (Path(scratch) / path).read_bytes() for path in expected}
    return [f"{path}: the patch gives other bytes" for path in expected if patched[path] != expected[path]]


if __name__ == "__main__":
    sys.exit(main())
