"""The records in benchmarks/results/, and what they say about where they were made: the machine, the commit, the versions."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def record(
    command: str, figures: Mapping[str, int], never: Sequence[str], packages: Sequence[str] = (), **more: object
) -> dict[str, Any]:
    """A record that docs/reliability.md shows: what ran, where, and what was counted.

    Args:
        command: what reproduces it, from the root of the checkout.
        figures: the counts, flat, in the order in which they are shown: {"programs": 200_000, "meanings_changed": 0}.
        never: the names of those figures that the project promises to be 0.
        packages: the distributions whose versions matter.
        more: whatever else is kept. `peers` holds the figures of other tools in the same run, {"ruff 0.17.6": {...}}; `seeds`
            the ranges [start, end) that a fuzzer has tried, which `added` looks at; `notes` sentences that the page shows.

    """
    missing = [name for name in never if name not in figures]
    if missing:
        raise ValueError(f"no figure is named {missing[0]!r}")
    return {
        "command": command,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions("perflint-torch", "libcst", *packages),
        "figures": dict(figures),
        "never": list(never),
        **more,
    }


def added(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two records of one fuzzer as one: figures and counts summed, seeds joined, both commits named.

    Raises:
        ValueError: the two have tried the same seeds, or have been made by different commands or machines.

    """
    for key in ("command", "machine", "never"):
        if first[key] != second[key]:
            raise ValueError(f"the records differ in their {key}: {first[key]!r} and {second[key]!r}")
    commits = dict.fromkeys([*first["commit"].split(", "), *second["commit"].split(", ")])
    sums = {key: _sum(first[key], value) for key, value in second.items() if key == "figures" or key.startswith("by_")}
    return {**second, "commit": ", ".join(commits), "seeds": joined([*first["seeds"], *second["seeds"]]), **sums}


def joined(ranges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Ranges [start, end) in order, those that touch as one.

    Raises:
        ValueError: two of them overlap.

    """
    result: list[list[int]] = []
    for start, end in sorted(ranges):
        if result and start < result[-1][1]:
            raise ValueError(f"the seeds from {start} on have been tried twice")
        if result and start == result[-1][1]:
            result[-1][1] = end
        else:
            result.append([start, end])
    return result


def _sum(first: Any, second: Any) -> Any:
    """The sum of two numbers, or of the numbers in two dictionaries; what is missing in one is taken from the other."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, Mapping):
        return {key: _sum(first.get(key), second.get(key)) for key in {**first, **second}}
    return first + second


def write(path: Path, data: Mapping[str, Any]) -> None:
    """Write a record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    name = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        models = [line.split(":", 1)[1].strip() for line in about.read_text().splitlines() if line.startswith("model name")]
        name = models[0] if models else name
    return {"processor": name, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


def commit() -> str:
    """The commit of this checkout, marked if files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
