"""A profile as data: what each statement of the program costs, joined with the findings. `--json` writes it.

Costs are milliseconds per optimizer step (per batch, or for the whole run, where a program has no steps): `own_ms` is the time
of the main thread at the statement, without the program's functions that it calls; `whole_ms` with them; `device_ms` the time
on the device of what it started; `wait_ms` the part of `own_ms` in which the CPU did nothing but wait for the device. Lines of
a notebook are those of its text; `cells` has the number of each cell, and the line that it begins behind.
"""

from __future__ import annotations

import datetime
import hashlib
import platform
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from perflint.profile.costs import Costs
from perflint.profile.statements import statements
from perflint.project.discover import Found
from perflint.project.texts import python_bytes
from perflint.rule.registry import all_rules
from perflint.run.run import Run as Check
from perflint.run.run import shown
from perflint.source.cells import restored
from perflint.verify.assumed import assumptions
from perflint.verify.runs import Program, Run

FORMAT = 1


def record(
    root: Path, program: Program, overrides: dict[str, Any], counted: Run, profiled: Run, place: Path, command: str
) -> dict[str, Any]:
    """The profile of a run in a copy at `place`, with the waits of a counting run.

    Raises:
        ConfigError: the project's configuration is unusable.

    """
    data, profile = profiled.data, profiled.data["profile"]
    files, outside_ms = _files(root, place, profiled.modules, counted, profile)
    cells = counted.notebook
    made = {
        "format": FORMAT,
        "kind": "profile",
        "perflint": version("perflint-torch"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "script": str(program.script),
        "arguments": list(program.arguments),
        "machine": {
            "device": data.get("device"),
            "system": platform.platform(terse=True),
            "python": data.get("python"),
            "torch": data.get("torch"),
            "cuda": data.get("cuda"),
        },
        "left_out": counted.left_out,
        "cells": {cells.path: [[head.number, head.row] for head in cells.cells.heads]} if cells and cells.cells else {},
        "unit": profile["unit"],
        "units": profile["units"],
        "recorded_units": profile["recorded_units"],
        "is_warm": profile["is_warm"],
        "unit_ms": sum(row["own_ms"] for file in files.values() for row in file["statements"]) + outside_ms,
        "files": files,
    }
    made["findings"], fired = _findings(root, profiled.modules, overrides, Costs(made))
    made["missed"] = _missed(files, fired)
    made["assumptions"] = assumptions(root, program, overrides, counted)
    return made


def _files(
    root: Path, place: Path, modules: Sequence[str], counted: Run, profile: dict[str, Any]
) -> tuple[dict[str, Any], float]:
    """The files of the program with the costs of their statements; the milliseconds in other files below the project."""
    per_unit = 1e-6 / profile["units"]
    per_recorded = 1e-6 / max(1, profile["recorded_units"])
    rows: defaultdict[str, defaultdict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(_nothing))
    for line in profile["lines"]:
        row = rows[_below(place, line["file"])][line["line"]]
        row["is_timed"] = True
        row["own_ms"] += line["own_ns"] * per_unit
        row["whole_ms"] += line["whole_ns"] * per_unit
    for line in profile["operations"]:
        row = rows[_below(place, line["file"])][line["line"]]
        row["device_ms"] += line["device_ns"] * per_recorded
        row["wait_ms"] += line["wait_ns"] * per_recorded
        row["operations"] += [{"name": name, "ms": ns * per_recorded} for name, ns in line["operations"]]
    steps = max(1, counted.data.get("steps") or counted.data.get("batches") or 1)
    for line in [*counted.data.get("reads", []), *counted.data.get("waits", [])]:
        row = rows[_below(place, line["file"])][line["line"]]
        row["waits"] += line["count"] / steps
        row["what"] = sorted({*row["what"], line["what"]})
    files = {}
    for module in modules:
        text = python_bytes(module, (root / module).read_bytes()) or b""
        merged = _by_statement(text, rows.pop(module, {}))
        files[module] = {"sha256": hashlib.sha256(text).hexdigest(), "statements": merged}
    return files, sum(row["own_ms"] for file in rows.values() for row in file.values())


def _nothing() -> dict[str, Any]:
    return {
        "is_timed": False,
        "own_ms": 0.0,
        "whole_ms": 0.0,
        "device_ms": 0.0,
        "wait_ms": 0.0,
        "waits": 0.0,
        "what": [],
        "operations": [],
    }


def _by_statement(text: bytes, rows: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    statement_of = statements(text)
    source = text.decode(errors="replace").splitlines()
    merged: dict[int, dict[str, Any]] = {}
    for number, row in sorted(rows.items()):
        statement = statement_of.get(number)
        first, last, end = (statement.first, statement.last, statement.block_end) if statement else (number, number, number)
        if first not in merged:
            shown_text = restored(source[first - 1]).strip() if first <= len(source) else ""
            merged[first] = {"line": first, "last_line": last, "block_end": end, "text": shown_text, **_nothing()}
        into = merged[first]
        into["is_timed"] |= row["is_timed"]
        for key in ("own_ms", "whole_ms", "device_ms", "wait_ms", "waits", "operations"):
            into[key] += row[key]
        into["what"] = sorted({*into["what"], *row["what"]})
    for into in merged.values():
        into["operations"] = sorted(into["operations"], key=lambda operation: -operation["ms"])[:3]
    return list(merged.values())


def _below(place: Path, file: str) -> str:
    path = Path(file)
    return str(path.relative_to(place)) if place in path.parents else file


def _findings(
    root: Path, modules: Sequence[str], overrides: dict[str, Any], costs: Costs
) -> tuple[list[dict[str, Any]], set[tuple[str, int]]]:
    """What `perflint check` finds in the program, and the rows that its findings speak of."""
    paths = {str(root / module): module for module in modules}
    module_of = {shown(path): module for path, module in paths.items()}
    found, rows = [], set()
    for checked in (
        Check(all_rules(), None, overrides, measured=True).check(Found(files=list(paths), explicit=set(paths))).checked
    ):
        module = module_of[checked.path]
        for finding in checked.findings:
            source = checked.source
            row = source.row_at(finding.start) if source is not None else 1
            rows |= {(module, row)}
            if source is not None:
                rows |= {(module, source.row_at(wait)) for wait in finding.waits}
            cost = costs.of(module, row)
            found.append(
                {
                    "file": module,
                    "row": row,
                    "rule": finding.rule,
                    "message": finding.message,
                    "applicability": finding.fix.applicability.value if finding.fix is not None else None,
                    "assumptions": [kind.value for kind in finding.fix.assumptions] if finding.fix is not None else [],
                    "is_timed": cost is not None,
                    "ms": cost.ms if cost is not None else None,
                    "matters": costs.matters(finding, cost),
                }
            )
    return sorted(found, key=lambda row: -(row["ms"] or 0.0)), rows


def _missed(files: dict[str, Any], fired: set[tuple[str, int]]) -> list[dict[str, Any]]:
    """Waits of statements that no finding speaks of. A suppressed finding is known to the user and is not missed."""
    missed = []
    for file, held in files.items():
        for row in held["statements"]:
            known = any((file, number) in fired for number in range(row["line"], row["last_line"] + 1))
            if row["waits"] and not known and "perflint: ignore" not in row["text"]:
                missed.append(
                    {"file": file, **{key: row[key] for key in ("line", "text", "what", "waits", "own_ms", "wait_ms")}}
                )
    return sorted(missed, key=lambda row: (-row["wait_ms"], -row["waits"]))
