"""Check and fix every package of the corpus, and compare what is found with the last run that was accepted.

    python corpus/run.py FOLDER [NAME ...] [--patches DIR]
    python corpus/run.py FOLDER [NAME ...] --peers [--torchfix COMMAND]
    python corpus/run.py FOLDER --accept

The archives of corpus.toml are unpacked into FOLDER if they are not there. Each package is checked with all rules, and
copies of it are fixed with safe fixes and with all fixes: what fix_corpus.py calls a problem is one. With --peers the same
is done with `torchfix --fix --select ALL` and `ruff check --fix` (its default rules) instead. What a run has counted stays
in FOLDER/.counts, package by package, so that a long run can be done in parts.

The counts by package and rule are compared with benchmarks/results/corpus.json, which --accept writes. The exit code is 1
if there is a problem, or a difference.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.surroundings import RESULTS, commit, record, write  # noqa: E402
from corpus.download import pins, python_files, unpacked  # noqa: E402
from corpus.fixes import KINDS, Problem, checked, compared, copied, try_fixes  # noqa: E402

ACCEPTED = RESULTS / "corpus.json"
COUNTS = ".counts"
"""The folder beside the packages that holds what was counted."""
PEERS = ("torchfix", "ruff")
UNREAD = ("invalid-syntax", "unreadable-file")


def main() -> int:
    """Read the command line, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packages are or go")
    parser.add_argument("names", nargs="*", help="these packages only")
    parser.add_argument("--peers", action="store_true", help="run TorchFix and ruff instead of perflint")
    parser.add_argument("--torchfix", type=shlex.split, default=["torchfix"], help="how to start TorchFix")
    parser.add_argument("--patches", type=Path, help="keep the patches here")
    parser.add_argument("--accept", action="store_true", help="run nothing; what was counted last is right from now on")
    options = parser.parse_intermixed_args()
    counts = options.folder / COUNTS
    if options.accept:
        return accept(counts)
    counts.mkdir(parents=True, exist_ok=True)
    accepted = json.loads(ACCEPTED.read_text(encoding="utf-8"))["packages"] if ACCEPTED.exists() else {}
    failed = False
    for pin in pins(options.names):
        folder = unpacked(pin, options.folder)
        if options.peers:
            found = peers(folder, {"torchfix": [*options.torchfix, "--fix", "--select", "ALL", "-j", "1"], "ruff": RUFF})
            write(counts / f"{pin.folder}.peers.json", found)
            print(pin.folder, *(f"{tool}: {about['files_changed']} files changed" for tool, about in found.items()), sep=", ")
            continue
        found = examined(folder, options.patches)
        write(counts / f"{pin.folder}.json", found)
        differences = list(different(accepted.get(pin.name, {}), found))
        print(f"{pin.folder}: {found['files_changed']} files changed, {len(found['problems'])} problems", flush=True)
        for line in [*(f"{kind}: {text}" for kind, text in found["problems"]), *differences]:
            print(f"  {line}", flush=True)
        failed = failed or bool(found["problems"] or differences)
    return 1 if failed else 0


def examined(folder: Path, patches: Path | None) -> dict[str, Any]:
    """What perflint finds and fixes in a package."""
    findings, problems = checked(folder)
    by_rule: Counter[str] = Counter()
    for finding in findings:
        by_rule[f"{finding['rule']} {finding['fix']['applicability'] if finding['fix'] else 'advice'}"] += 1
    changed = {}
    for name, unsafe in (("safe", ()), ("unsafe", ("--unsafe-fixes",))):
        fixed = try_fixes(folder, unsafe)
        changed[name] = [str(path) for path in fixed.changed]
        problems += fixed.problems
        if patches is not None:
            patches.mkdir(parents=True, exist_ok=True)
            (patches / f"{folder.name}.{name}.patch").write_bytes(fixed.patch)
    sources = python_files(folder)
    return {
        "version": folder.name.rpartition("-")[2],
        "commit": commit(),
        "files": len(sources),
        "lines": sum(path.read_bytes().count(b"\n") for path in sources),
        "files_not_python": sum(count for name, count in by_rule.items() if name.startswith(UNREAD)),
        "files_changed": len(changed["safe"]),
        "files_changed_with_unsafe_fixes": len(changed["unsafe"]),
        "findings": dict(sorted(by_rule.items())),
        "problems": sorted({(problem.kind, problem.text) for problem in problems}),
    }


def different(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """The counts of a package that are not what they were, in words."""
    for name in ("version", "files", "lines", "files_not_python", "files_changed", "files_changed_with_unsafe_fixes"):
        if before.get(name) != now[name]:
            yield f"{name}: {before.get(name)} -> {now[name]}"
    was, is_now = before.get("findings", {}), now["findings"]
    for name in sorted({*was, *is_now}):
        if was.get(name, 0) != is_now.get(name, 0):
            yield f"{name}: {was.get(name, 0)} -> {is_now.get(name, 0)}"


# -- peers ---------------------------------------------------------------------------------------------------------------

RUFF = [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--no-cache", "--fix", "--quiet"]


def peers(folder: Path, commands: dict[str, list[str]]) -> dict[str, Any]:
    """What the fixes of other tools do to a package."""
    return {tool: peer(folder, tool, command) for tool, command in commands.items()}


def peer(folder: Path, tool: str, command: list[str]) -> dict[str, Any]:
    """How many files a tool changes, and what is wrong with them."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = copied(folder, Path(scratch))
        run = subprocess.run([*command, "."], cwd=copy, input=b"", capture_output=True, check=False)
        changed, problems = compared(folder, copy)
        if b"Traceback" in run.stderr or run.returncode not in (0, 1):
            last = run.stderr.decode(errors="replace").strip().splitlines()[-1:]
            problems.append(Problem("crashes", f"{tool} ends with {run.returncode}: {''.join(last)}"))
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False).stdout.split()
    return {
        "version": version[-1] if version else "",
        "files": len(python_files(folder)),
        "files_changed": len(changed),
        "problems": sorted({(problem.kind, problem.text) for problem in problems}),
    }


# -- the record ----------------------------------------------------------------------------------------------------------


def accept(counts: Path) -> int:
    """Write the record from what was counted for each package."""
    packages, others = {}, {}
    for pin in pins():
        with contextlib.suppress(FileNotFoundError):
            packages[pin.name] = json.loads((counts / f"{pin.folder}.json").read_text(encoding="utf-8"))
        with contextlib.suppress(FileNotFoundError):
            others[pin.name] = json.loads((counts / f"{pin.folder}.peers.json").read_text(encoding="utf-8"))
    missing = [pin.name for pin in pins() if pin.name not in packages]
    if not packages:
        sys.exit(f"nothing has been counted in {counts}")
    figures = {
        "packages": len(packages),
        "files": sum(found["files"] for found in packages.values()),
        "lines": sum(found["lines"] for found in packages.values()),
        "files_that_this_python_cannot_read": sum(found["files_not_python"] for found in packages.values()),
        "findings": sum(sum(found["findings"].values()) for found in packages.values()),
        "files_changed": sum(found["files_changed"] for found in packages.values()),
        "files_changed_with_unsafe_fixes": sum(found["files_changed_with_unsafe_fixes"] for found in packages.values()),
        **by_kind(packages.values()),
    }
    made = record("python corpus/run.py FOLDER", figures, never=list(KINDS), packages=["ruff"])
    made |= {
        "commit": ", ".join(dict.fromkeys(found["commit"] for found in packages.values())),
        "peers": peer_figures(others),
        "notes": [f"Not run: {', '.join(missing)}."] if missing else [],
        "packages": packages,
    }
    write(ACCEPTED, made)
    return 0


def peer_figures(others: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    """The figures of each peer, over the packages that it was run on."""
    figures = {}
    for tool in PEERS:
        runs = [found[tool] for found in others.values() if tool in found]
        if runs:
            kinds = by_kind(runs)
            figures[f"{tool} {runs[0]['version']}"] = {
                "packages": len(runs),
                "files": sum(found["files"] for found in runs),
                "files_changed": sum(found["files_changed"] for found in runs),
                **{kind: kinds[kind] for kind in ("crashes", "files_failing_to_compile", "names_undefined_or_unused")},
            }
    return figures


def by_kind(results: Any) -> dict[str, int]:
    """How many problems there are of each kind."""
    found = Counter(kind for result in results for kind, _ in result["problems"])
    return {kind: found[kind] for kind in KINDS}


if __name__ == "__main__":
    sys.exit(main())
