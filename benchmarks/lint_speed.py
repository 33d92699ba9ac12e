"""CPU time and peak memory of perflint, ruff and TorchFix over the same files, as ratios of one run.

    python benchmarks/lint_speed.py FOLDER [--torchfix COMMAND] [--rounds N] [--sample FILES] [--json FILE]

FOLDER is what corpus.py made. Each tool runs cold in a process of its own, in turn, several rounds; the median counts.
perflint and ruff (its default rules, one thread, no cache) read every file. TorchFix is slower by orders of magnitude: it
reads a sample of files, spread evenly over all, whose lines are counted, and its time is scaled by lines. User CPU time
and peak memory are the kernel's accounts of the finished process (resource.RUSAGE_CHILDREN, asked for by a process that
starts that one child only).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from surroundings import commit, machine, versions

ROOT = Path(__file__).resolve().parent.parent
MEASURE = """
import json, resource, subprocess, sys
run = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"exit": run.returncode, "user_s": used.ru_utime, "peak_mib": used.ru_maxrss / 1024}))
"""
FAILED = 2
"""Exit codes of the three tools from here on are failures; 1 means findings."""


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torchfix", type=shlex.split, default=["torchfix"], help="how to start TorchFix")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=60, help="how many files TorchFix reads")
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    files = sorted(options.folder.rglob("*.py"))
    sample = files[:: max(1, len(files) // options.sample)]
    share = lines(sample) / lines(files)
    with tempfile.TemporaryDirectory() as scratch:
        for number, path in enumerate(sample):
            (Path(scratch) / f"sample_{number}.py").write_bytes(path.read_bytes())
        commands = {
            "perflint": [sys.executable, "-m", "perflint", "check", "--isolated", "--no-cache", str(options.folder)],
            "ruff": [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--no-cache", str(options.folder)],
            "torchfix": [*options.torchfix, "--jobs", "1", scratch],
        }
        rounds = [{tool: measured(command) for tool, command in commands.items()} for _ in range(options.rounds)]
    record = {
        "command": "python benchmarks/lint_speed.py FOLDER",
        "commit": commit(),
        "machine": machine(),
        "versions": {
            **versions("perflint-torch", "ruff", "libcst"),
            "torchfix": first_line([*options.torchfix, "--version"]),
        },
        "corpus": {"files": len(files), "lines": lines(files)},
        "torchfix_sample": {"files": len(sample), "lines": lines(sample), "scaled_by": 1 / share},
        "rounds": rounds,
        **summary(rounds, share),
    }
    print(json.dumps({key: record[key] for key in ("corpus", "torchfix_sample", "median", "ratios")}, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def lines(files: list[Path]) -> int:
    """How many lines files have."""
    return sum(path.read_bytes().count(b"\n") for path in files)


def measured(command: list[str]) -> dict[str, Any]:
    """User CPU seconds and peak memory of one cold run."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'rules'}", "RAYON_NUM_THREADS": "1"}
    output = subprocess.run([sys.executable, "-c", MEASURE, *command], env=environment, capture_output=True, check=True)
    result: dict[str, Any] = json.loads(output.stdout)
    if not 0 <= result["exit"] < FAILED:
        sys.exit(f"{Path(command[0]).name} ended with {result['exit']}")
    return result


def summary(rounds: list[dict[str, dict[str, Any]]], share: float) -> dict[str, Any]:
    """Medians over the rounds, and the ratios that the project promises."""
    median = {
        tool: {key: statistics.median(r[tool][key] for r in rounds) for key in ("user_s", "peak_mib")} for tool in rounds[0]
    }
    ratios = {
        "perflint_to_ruff": statistics.median(r["perflint"]["user_s"] / r["ruff"]["user_s"] for r in rounds),
        "torchfix_to_perflint": statistics.median(r["torchfix"]["user_s"] / share / r["perflint"]["user_s"] for r in rounds),
    }
    return {"median": median, "ratios": ratios}


def first_line(command: list[str]) -> str:
    """The first line that a command prints."""
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return next(iter((found.stdout or found.stderr).splitlines()), "").strip()


if __name__ == "__main__":
    sys.exit(main())
