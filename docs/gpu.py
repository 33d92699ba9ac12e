"""The page docs/gpu.md: what has been run on a GPU, from the records that `fixtures/gpu_day.py --collect` brings home.

fixtures/gpu/records/<device>-torch<version>-<kind>.json holds `machines`, and `items` with the number of their machine. The
figures of rules and programs are in records of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent.parent / "fixtures"
ABOUT = (
    "Races and things that only CUDA does: programs of fixtures/gpu/races/, a careless fixer's version and `perflint fix`'s."
)
SECTIONS = {
    "waits": (
        "Waits",
        "How often a step waits for one pattern of code (fixtures/gpu/waits.json): what was expected, what torch's sync debug "
        "mode said, how many waiting calls the profiler saw, and whether the CPU was held up when the device was busy.",
        ("pattern", "expected", "sync debug mode", "profiler", "held up"),
    ),
    "runtime": ("perflint_runtime", "What the runtime promises on a GPU.", ("check", "holds", "seen")),
    "sums": ("Sums", "Sums and means kept on the device against Python's, to the last bit.", ("numbers", "equal", "seen")),
    "races": (
        "Races",
        "Programs in which CPU and GPU race, or that meet what only CUDA does (fixtures/gpu/races/), against what a careless "
        "fixer makes of them and what `perflint fix` does: how many runs print something else.",
        ("program", "careless version", "after `perflint fix`", "remark"),
    ),
    "rule": ("Rules that could not be measured", "", ("case", "why")),
    "program": ("Programs that could not be measured", "", ("program", "why")),
}
"""By kind of record: title, what it is, columns."""


def page(folder: Path = FIXTURES) -> str:
    """The page in Markdown."""
    parts = ["# What has been run on a GPU\n", *_rules(folder), *_programs(folder)]
    for kind, (title, about, columns) in SECTIONS.items():
        for path in sorted((folder / "gpu" / "records").glob(f"*-{kind}.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            rows = [
                _cells(kind, name, item)
                for name, item in sorted(record["items"].items())
                if "failed" in item or kind in ("waits", "runtime", "sums", "races")
            ]
            if rows:
                told = f"{about} {_agreement(record['items'])}".strip() if kind == "waits" else about
                parts += [f"## {title}: {record['machines'][0]['device']}\n", *([f"{told}\n"] if told else [])]
                parts += [_table(columns, rows), *_places(record["machines"])]
    if len(parts) == 1:
        parts.append("No GPU record yet. `python fixtures/gpu_day.py --plan` says how to make them.\n")
    return "\n".join(parts)


def _rules(folder: Path) -> Iterator[str]:
    """The rules' records, one line for each machine: the figures are in README.md's table."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for path in sorted(folder.glob("*/measured/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["cuda"] is not None:
            found.setdefault(record["device"], []).append(record)
    for device, records in found.items():
        yield f"## Rules: {device}\n"
        rows = [
            (
                record["rule"],
                record["regime"],
                f"{record['ratio']:.2f} ({record['low']:.2f} to {record['high']:.2f})",
                " to ".join(f"{c['waits'] / c['steps']:.3g}" for c in record["counts"].values()),
                record["verdict"],
            )
            for record in records
        ]
        yield _table(("rule", "regime", "steps per second, as a multiple", "waits per step", "results"), rows)
        yield from _places(records)


def _programs(folder: Path) -> Iterator[str]:
    for path in sorted((folder / "experts").glob("*/measured/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["cuda"] is None:
            continue
        yield f"## Program {record['program']}, scale {record['scale']}: {record['device']}\n"
        rows = [
            (
                version,
                f"{row['ms_per_step']:.3g}",
                f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})",
                f"{row['share_of_expert']:.0%}" if "share_of_expert" in row else "",
                f"{row['peak_memory_mib']:.0f}",
                row["results"],
            )
            for version, row in record["versions"].items()
        ]
        columns = (
            "version",
            "ms per step",
            "steps per second, as a multiple",
            "of the expert's",
            "peak memory in MiB",
            "results",
        )
        yield _table(columns, rows)
        yield from _places([record])


def _cells(kind: str, name: str, item: Mapping[str, Any]) -> tuple[str, ...]:
    """An item's row."""
    if "failed" in item:
        return (name, *[""] * (len(SECTIONS[kind][2]) - 2), f"failed: {item['failed']}")
    result = item["result"]
    if kind == "waits":
        expected = "not known" if result["expected"] is None else str(result["expected"])
        seen = "not seen" if result["profiler"] is None else f"{result['profiler']:g}"
        held = f"{'yes' if result['held_up_share'] > 0.5 else 'no'}, {result['held_up_share']:.0%}"
        code = "; ".join(line.strip() for line in result["lines"]).replace(":; ", ": ")
        return (f"`{code}`", expected, f"{result['sync_debug_mode']:g}", seen, held)
    if kind == "races":
        return (name, result["careless"], result["fixed"], "" if result["reproducible"] else "does not reproduce itself")
    holds = {True: "yes", False: "no", None: "a figure"}[result["holds"]]
    return (result.get("about", name), holds, result["summary"].partition(": ")[2] or result["summary"])


def _agreement(items: Mapping[str, Mapping[str, Any]]) -> str:
    """How many patterns wait as often as was expected."""
    found = [item["result"] for item in items.values() if "result" in item and item["result"]["expected"] is not None]
    agree = sum(row["expected"] == (row["sync_debug_mode"] if row["profiler"] is None else row["profiler"]) for row in found)
    return f"{agree} of {len(found)} wait as often as expected, by the profiler where it saw calls."


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _places(machines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Where records were made, each place once."""
    told = {
        f"{about['date']}, commit {about['commit']}, {about['device']}, driver {about['driver']}, torch {about['torch']}, "
        f"CUDA {about['cuda']}, Python {about['python']}: `{about['command']}`\n": None
        for about in machines
    }
    yield from told
