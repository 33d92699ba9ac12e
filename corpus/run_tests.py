"""Run the tests of packages of the corpus before and after safe fixes.

    python corpus/run_tests.py FOLDER [NAME ...] [--python PYTHON]
    python corpus/run_tests.py FOLDER --accept

The packages are those with `tests` in corpus.toml; run_corpus.py says what FOLDER is. PYTHON has torch, pytest, coverage
and what corpus/corpus_tests.txt lists, but not the packages themselves: they are found in their copy by PYTHONPATH.
The tests run twice on a copy as it is: a test whose result differs between the two is flaky. The copy is fixed with safe
fixes and all rules, and they run again. A problem is a test that is not flaky and has another result then. coverage tells
which of the lines that the fixes change are run by the tests. What was counted stays in FOLDER/.counts; --accept writes
benchmarks/results/corpus_tests.json from it. The exit code is 1 if there is a problem.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.surroundings import RESULTS, commit, record, write  # noqa: E402
from corpus.download import Pin, pins, unpacked  # noqa: E402
from corpus.fixes import ALL, compared, copied, perflint  # noqa: E402
from corpus.run import COUNTS  # noqa: E402

LIMIT_S = 1200
"""A run of tests that takes longer is given up."""


def main() -> int:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages are or go")
    parser.add_argument("names", nargs="*", help="these packages only")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the tests")
    parser.add_argument("--accept", action="store_true", help="run nothing; write the record")
    options = parser.parse_intermixed_args()
    counts = options.folder / COUNTS
    if options.accept:
        return accept(counts)
    counts.mkdir(parents=True, exist_ok=True)
    failed = False
    for pin in pins(options.names):
        if pin.tests is None:
            continue
        found = before_and_after(pin, unpacked(pin, options.folder), options.python)
        write(counts / f"{pin.folder}.tests.json", found)
        failed = failed or bool(found["different"])
        shown = [f"{key} {found[key]}" for key in ("tests", "passing", "files_changed", "lines_changed", "changed_lines_run")]
        print(f"{pin.folder}: {', '.join(shown)}, flaky {len(found['flaky'])}, different {len(found['different'])}", flush=True)
        for line in found["different"]:
            print(f"  {line}", flush=True)
    return 1 if failed else 0


def before_and_after(pin: Pin, original: Path, python: str) -> dict[str, Any]:
    """The results of a package's tests before and after safe fixes."""
    assert pin.tests is not None
    with tempfile.TemporaryDirectory() as scratch:
        fixed = copied(original, Path(scratch) / "fixed")
        perflint("fix", *ALL, ".", cwd=fixed)
        changed = compared(original, fixed)[0]
        lines = {path: changed_lines(original / path, fixed / path) for path in changed}
        copy = copied(original, Path(scratch) / "run")
        first, ran = run_tests(pin.tests, copy, python, changed)
        second, _ = run_tests(pin.tests, copy, python, [])
        for path in changed:
            (copy / path).write_bytes((fixed / path).read_bytes())
        after, _ = run_tests(pin.tests, copy, python, [])
    flaky = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    different = [
        f"{name}: {first.get(name)} -> {after.get(name)}"
        for name in sorted({*first, *after})
        if name not in flaky and first.get(name) != after.get(name)
    ]
    return {
        "commit": commit(),
        "tests": len(first),
        "passing": sum(result == "passed" for result in first.values()),
        "files_changed": len(changed),
        "lines_changed": sum(len(found) for found in lines.values()),
        "changed_lines_run": sum(len(found & ran.get(path, set())) for path, found in lines.items()),
        "flaky": flaky,
        "different": different,
    }


def changed_lines(before: Path, after: Path) -> set[int]:
    """The first lines of the statements of a file that are not in the other one: coverage knows no other lines."""
    texts = [path.read_text(encoding="utf-8").splitlines() for path in (before, after)]
    edits = difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes()
    rows = {row + 1 for kind, start, end, _, _ in edits if kind != "equal" for row in range(start, max(end, start + 1))}
    statements = [node for node in ast.walk(ast.parse(before.read_bytes())) if isinstance(node, ast.stmt)]
    around = ([s.lineno for s in statements if s.lineno <= row <= (s.end_lineno or s.lineno)] for row in rows)
    return {max(found) for found in around if found}


def run_tests(how: dict[str, Any], copy: Path, python: str, watched: list[Path]) -> tuple[dict[str, str], dict[Path, set[int]]]:
    """The result of each test by its name, and the lines of some files that they ran."""
    report, covered, lines = copy.parent / "report.xml", copy.parent / "covered", copy.parent / "lines.json"
    report.unlink(missing_ok=True)
    search = [str(copy / place) for place in how.get("path", ["."])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search), "COVERAGE_FILE": str(covered), "HF_HUB_OFFLINE": "1"}
    environment |= how.get("environment", {})
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *how.get("options", []), *how["run"]]
    if watched:
        pytest = ["-m", "coverage", "run", f"--include={','.join(str(copy / path) for path in watched)}", *pytest]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run([python, *pytest], cwd=copy, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
    if not report.exists():
        sys.exit(f"the tests of {copy.name} made no report in {LIMIT_S} s: {' '.join(pytest)}")
    ran: dict[Path, set[int]] = {}
    if watched:
        command = [python, "-m", "coverage", "json", "-q", "-o", str(lines)]
        subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False)
        if lines.exists():  # nothing is written where no line ran
            files = json.loads(lines.read_text(encoding="utf-8"))["files"]
            ran = {(copy / name).relative_to(copy): set(about["executed_lines"]) for name, about in files.items()}
    return {name: result for case in ET.parse(report).iter("testcase") for name, result in [outcome(case)]}, ran


def outcome(case: ET.Element) -> tuple[str, str]:
    """The name of a test, and what became of it."""
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            return f"{case.get('classname')}.{case.get('name')}", kind
    return f"{case.get('classname')}.{case.get('name')}", "passed"


def accept(counts: Path) -> int:
    """Write the record from what was counted for each package."""
    with_tests = [pin for pin in pins() if pin.tests is not None]
    packages = {}
    for pin in with_tests:
        with contextlib.suppress(FileNotFoundError):
            packages[pin.name] = json.loads((counts / f"{pin.folder}.tests.json").read_text(encoding="utf-8"))
    if not packages:
        sys.exit(f"nothing has been counted in {counts}")
    missing = [pin.name for pin in with_tests if pin.name not in packages]
    found = list(packages.values())
    figures = {
        "packages": len(found),
        "tests": sum(about["tests"] for about in found),
        "tests_passing_before": sum(about["passing"] for about in found),
        "flaky_tests": sum(len(about["flaky"]) for about in found),
        "packages_that_fixes_change": sum(about["files_changed"] > 0 for about in found),
        "packages_whose_tests_run_changed_lines": sum(about["changed_lines_run"] > 0 for about in found),
        "changed_lines": sum(about["lines_changed"] for about in found),
        "changed_lines_that_tests_run": sum(about["changed_lines_run"] for about in found),
        "tests_with_another_result": sum(len(about["different"]) for about in found),
        "packages_that_differ": sum(bool(about["different"]) for about in found),
    }
    made = record(
        "python corpus/run_tests.py FOLDER --python PYTHON",
        figures,
        never=["tests_with_another_result", "packages_that_differ"],
        packages=["torch", "numpy", "pytest"],
    )
    made["notes"] = [f"Not run: {', '.join(missing)}."] if missing else []
    made["packages"] = packages
    made["commit"] = ", ".join(dict.fromkeys(about["commit"] for about in found))
    write(RESULTS / "corpus_tests.json", made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
