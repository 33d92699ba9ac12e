"""Fix copies of real packages, and look for what a fixer must never do.

    python benchmarks/fix_corpus.py FOLDER ... [--safe-only] [--patches DIR]

Each FOLDER (see corpus.py) is copied, then `perflint check` and `perflint fix` run on the copy with all rules. Reported as
a problem: a crash; a changed file that does not parse, has lost or changed a comment, mixes line ends that it did not mix,
or uses a name that it does not define (ruff's F821, F823); an import left unused (F401); a second run that changes
something; a patch of `--diff` that `git apply` does not turn into the same files. With --patches the patch of each folder
is kept for reading. The exit code is 1 if there is a problem.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALL = ("--isolated", "--select", "all", "--no-respect-gitignore")
UNDEFINED_OR_UNUSED = "F821,F823,F401"


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
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / folder.name
            shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
            changed, patch, problems = try_fixes(folder, copy, unsafe)
        if options.patches is not None:
            options.patches.mkdir(parents=True, exist_ok=True)
            (options.patches / f"{folder.name}.patch").write_bytes(patch)
        print(f"{folder.name}: {changed} files changed, {len(problems)} problems")
        for problem in problems:
            print(f"  {problem}")
        total += len(problems)
    return 1 if total else 0


def try_fixes(original: Path, copy: Path, unsafe: tuple[str, ...]) -> tuple[int, bytes, list[str]]:
    """Fix `copy`, which is like `original`: how many files changed, the patch, and what is wrong with it."""
    problems: list[str] = []
    names_before = names_that_ruff_finds(copy)
    report = perflint("check", *ALL, "--output-format", "json", ".", cwd=copy)
    problems += crash("check", report)
    if report.returncode in (0, 1):
        problems += locations_outside(json.loads(report.stdout), copy)
    patch = perflint("fix", *ALL, *unsafe, "--diff", "-q", ".", cwd=copy)
    problems += crash("fix --diff", patch)
    first = perflint("fix", *ALL, *unsafe, "--output-format", "concise", ".", cwd=copy)
    problems += crash("fix", first)
    files = [path.relative_to(copy) for path in sorted(copy.rglob("*.py")) if path.is_file()]
    fixed = {path: (copy / path).read_bytes() for path in files}
    changed = [path for path in files if (original / path).read_bytes() != fixed[path]]
    for path in changed:
        problems += [f"{path}: {what}" for what in damage((original / path).read_bytes(), fixed[path])]
    names_after = names_that_ruff_finds(copy)
    problems += [f"{path}: {message}" for path, message in (names_after - names_before).elements()]
    if patch.stdout:
        problems += patch_differs(patch.stdout, original, {path: fixed[path] for path in changed})
    problems += crash("second fix", perflint("fix", *ALL, *unsafe, "--output-format", "concise", ".", cwd=copy))
    problems += [f"{path}: a second run changes it" for path in files if (copy / path).read_bytes() != fixed[path]]
    return len(changed), patch.stdout, problems


def perflint(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run this checkout's perflint."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "rules")))}
    command = [sys.executable, "-m", "perflint", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, check=False)


def crash(what: str, run: subprocess.CompletedProcess[bytes]) -> list[str]:
    """A run that did not end with a report."""
    if run.returncode in (0, 1) and b"Traceback" not in run.stderr:
        return []
    lines = run.stderr.decode(errors="replace").strip().splitlines() or [""]
    return [f"{what} ends with {run.returncode}: {' / '.join(lines[-3:])}"]


def locations_outside(findings: list[dict[str, dict[str, int]]], folder: Path) -> list[str]:
    """Findings whose place is not in their file."""
    wrong = []
    for finding in findings:
        rows = len((folder / str(finding["filename"])).read_bytes().splitlines()) + 1
        start, end = finding["location"], finding["end_location"]
        if not 1 <= start["row"] <= end["row"] <= rows:
            wrong.append(f"{finding['filename']}: {finding['rule']} at {start} to {end}, of {rows} rows")
    return wrong


def damage(before: bytes, after: bytes) -> list[str]:
    """What is wrong with a file after fixes."""
    try:
        compile(after, "fixed", "exec", dont_inherit=True)
        lost = comments(before) - comments(after)
        gained = comments(after) - comments(before)
    except (SyntaxError, ValueError) as error:
        return [f"no longer parses: {error}"]
    problems = [f"comment lost: {text}" for text in lost if "perflint:" not in text]
    problems += [f"comment gained: {text}" for text in gained]
    if not line_ends(after) <= line_ends(before):
        problems.append(f"line ends {sorted(line_ends(before))} became {sorted(line_ends(after))}")
    if (re.search(rb"[\r\n]\Z", before) is None) != (re.search(rb"[\r\n]\Z", after) is None):
        problems.append("the end of the last line came or went")
    if before.startswith(b"\xef\xbb\xbf") != after.startswith(b"\xef\xbb\xbf"):
        problems.append("the byte order mark came or went")
    return problems


def comments(data: bytes) -> Counter[str]:
    """The comments of a file, and how often each stands there."""
    return Counter(t.string for t in tokenize.tokenize(io.BytesIO(data).readline) if t.type == tokenize.COMMENT)


def line_ends(data: bytes) -> set[bytes]:
    """The kinds of line ends in a file."""
    return set(re.findall(rb"\r\n|\r|\n", data))


def names_that_ruff_finds(folder: Path) -> Counter[tuple[str, str]]:
    """Undefined names and unused imports by file, as ruff sees them."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "check", "--isolated", "--no-cache", "--select", UNDEFINED_OR_UNUSED, "--output-format", "json", "--quiet"]
    found = json.loads(subprocess.run([*command, str(folder)], capture_output=True, check=False).stdout)
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
