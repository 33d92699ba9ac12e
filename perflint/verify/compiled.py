"""`perflint verify --compile`: what torch breaks and compiles again in a run, joined with what the source shows.

The program runs once, in a copy of its project, on the CPU. What it hands to `torch.compile` is compiled with backend "eager":
the graphs are the same as with any other, and no code is generated for them. `fullgraph=True` is dropped, so that the run goes
on.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from perflint.project.discover import Found
from perflint.rule.registry import all_rules
from perflint.run.run import Run as Check
from perflint.run.run import shown
from perflint.source.words import counted
from perflint.verify.runs import Program, Run

FORMAT = 1


def compile_record(root: Path, program: Program, overrides: Mapping[str, Any], run: Run, command: str) -> dict[str, Any]:
    """A run under torch's log of graph breaks as data, with the findings of rules about compiled code.

    Each break and recompilation has the `rules` that report it; each finding says whether the run has `shown` it.

    Raises:
        ConfigError: the project's configuration is unusable.

    """
    data = run.data
    findings = list(_findings(root, run.modules, overrides))
    breaks = [{**row, "rules": _rules_at(findings, row)} for row in data.get("graph_breaks", [])]
    recompiles = [{**row, "rules": _rules_in(findings, row)} for row in data.get("recompiles", [])]
    return {
        "format": FORMAT,
        "kind": "compile",
        "perflint": version("perflint-torch"),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "script": str(program.script),
        "arguments": list(program.arguments),
        "torch": data.get("torch"),
        "compile_calls": data.get("compile_calls", 0),
        "graphs": data.get("graphs", 0),
        "graph_breaks": breaks,
        "recompiles": recompiles,
        "findings": findings,
    }


def _findings(root: Path, modules: Sequence[str], overrides: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The findings about compiled code in the files that the run loaded."""
    paths = {str(root / module): module for module in modules}
    names = {shown(path): module for path, module in paths.items()}
    about = tuple(rule.name for rule in all_rules() if rule.compiled)
    check = Check(all_rules(), None, {**overrides, "select": about})
    for checked in check.check(Found(files=list(paths), explicit=set(paths))).checked:
        for finding in checked.findings:
            if checked.source is not None and finding.rule in about:
                yield {
                    "file": names[checked.path],
                    "line": checked.source.row_at(finding.start),
                    "end_line": checked.source.row_at(finding.end),
                    "function": finding.function,
                    "rule": finding.rule,
                    "message": finding.message,
                    "shown": False,
                }


def _rules_at(findings: Sequence[dict[str, Any]], row: Mapping[str, Any]) -> list[str]:
    """The rules that report a line; their findings are marked as shown."""
    return _marked(f for f in findings if f["file"] == row["file"] and f["line"] <= row["line"] <= f["end_line"])


def _rules_in(findings: Sequence[dict[str, Any]], row: Mapping[str, Any]) -> list[str]:
    """The rules that say of a function that it is compiled again; their findings are marked as shown."""
    within = (f for f in findings if f["file"] == row["file"] and f["function"].rpartition(".")[2] == row["function"])
    return _marked(f for f in within if "compiles" in f["message"])


def _marked(findings: Iterator[dict[str, Any]]) -> list[str]:
    rules = {}
    for finding in findings:
        finding["shown"] = True
        rules[finding["rule"]] = True
    return sorted(rules)


def compile_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """The report of a record, line by line."""
    if record["torch"] is None:
        yield "The script does not import torch: nothing is compiled."
        return
    if not record["compile_calls"]:
        yield "The program calls `torch.compile` nowhere: nothing is compiled."
        return
    breaks, recompiles = record["graph_breaks"], record["recompiles"]
    yield (
        f"{counted(record['graphs'], 'graph')} from {counted(record['compile_calls'], 'call')} of `torch.compile`, "
        f'torch {record["torch"]}, backend "eager", on the CPU'
    )
    yield from _rows("graph break", breaks, lambda row: row["reason"])
    yield from _rows("recompilation", recompiles, lambda row: f"`{row['function']}`, for no longer `{row['reason']}`")
    unseen = [finding for finding in record["findings"] if not finding["shown"]]
    if unseen:
        yield f"{counted(len(unseen), 'finding')} that this run does not show:"
        yield from (f"  {row['file']}:{row['line']}: {row['rule']}" for row in unseen)
    found = sum(bool(row["rules"]) for row in (*breaks, *recompiles))
    if breaks or recompiles:
        yield f"{found} of {counted(len(breaks) + len(recompiles), 'place')} in the project had been found in the source."


def _rows(noun: str, rows: Sequence[Mapping[str, Any]], what: Callable[[Mapping[str, Any]], str]) -> Iterator[str]:
    total = sum(row["count"] for row in rows)
    yield f"{counted(total, noun)} in the project" + (":" if rows else ".")
    for row in rows:
        found = f" [{', '.join(row['rules'])}]" if row["rules"] else ""
        yield f"  {row['file']}:{row['line']}: {row['count']} x {what(row)}{found}"
