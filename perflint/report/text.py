"""What a person reads in a terminal: a line for each finding, or all that is known of each; how many there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from perflint.report.terminal import COLOURS, PLAIN, Terminal
from perflint.rule.finding import ENGINE, Applicability, Finding, Severity
from perflint.run.outcome import Checked
from perflint.run.result import Result
from perflint.source.cells import restored
from perflint.source.source import Position

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text from a linted file in one line, without what a terminal would take for commands or for another order of reading."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def concise(result: Result, terminal: Terminal = PLAIN) -> Iterator[str]:
    """One line per finding: `path:row:column: rule-name [*] message`."""
    for checked, finding in result.findings:
        yield _line(checked, finding, terminal)


def _line(checked: Checked, finding: Finding, terminal: Terminal) -> str:
    at = place(checked, finding)
    where = click.style(printable(checked.path), bold=True)
    name = f"{terminal.rule(finding.rule, finding.severity)}{_mark(finding)}"
    cost = measured(finding.measured_ms_per_step, " (", ")")
    return f"{where}:{at.line}:{at.column}: {name} {printable(finding.message)}{cost}"


_MARKS = {Applicability.SAFE: " [*]", Applicability.ASSUMING: " [fix if {}]", Applicability.UNSAFE: " [unsafe fix]"}
_LEVELS = {
    Applicability.SAFE: "safe",
    Applicability.ASSUMING: "with --assume {}",
    Applicability.UNSAFE: "unsafe, with --unsafe-fixes",
}


def full(result: Result, terminal: Terminal = PLAIN) -> Iterator[str]:
    """Each finding with its line, the span marked, the fix, and the proofs that are missing."""
    for checked, finding in result.findings:
        yield from block(checked, finding, terminal)
        yield ""


def block(checked: Checked, finding: Finding, terminal: Terminal = PLAIN) -> Iterator[str]:
    """All that is known of a finding."""
    name = terminal.rule(finding.rule, finding.severity)
    at = place(checked, finding)
    yield f"{name}{_mark(finding)} {printable(finding.message)}"
    arrow = click.style("-->", fg="blue", bold=True)
    yield f" {arrow} {printable(checked.path)}:{at.line}:{at.column}"
    if checked.source is not None and checked.source.body:
        yield from _excerpt(checked, finding)
    equals = click.style("=", fg="blue", bold=True)
    if finding.fix is not None:
        level = _LEVELS[finding.fix.applicability].format(",".join(kind.value for kind in finding.fix.assumptions))
        yield f"  {equals} fix ({level}): {printable(finding.fix.message)}"
    if finding.measured_ms_per_step is not None:
        yield f"  {equals} measured: {measured(finding.measured_ms_per_step)}"
    label = "no fix" if finding.fix is None else "it assumes" if finding.fix.assumptions else "why it is unsafe"
    for reason in finding.missing_proofs:
        yield f"  {equals} {label}: {printable(reason)}"


def _excerpt(checked: Checked, finding: Finding) -> Iterator[str]:
    source = checked.source
    assert source is not None
    first = source.row_at(finding.start)
    last = source.row_at(max(finding.end - 1, finding.start))
    above, end_row = source.rows_around(finding.start)
    shown = list(range(max(above + 1, first - 1), min(end_row, last + 1) + 1))
    if last - first > 5:
        shown = [r for r in shown if r <= first + 2]
    width = len(str(shown[-1] - above))
    bar = click.style("|", fg="blue", bold=True)
    yield f"{' ' * width} {bar}"
    start, end = source.position(finding.start), source.position(finding.end)
    for row in shown:
        line = printable(restored(source.line(row)).replace("\t", "    "))
        number = click.style(str(row - above).rjust(width), fg="blue", bold=True)
        yield f"{number} {bar} {line}".rstrip()
        if first <= row <= last:
            text = restored(source.line(row))
            left = start.column - 1 if row == first else len(text) - len(text.lstrip())
            right = end.column - 1 if row == last else len(text)
            shift = len(text[:left].replace("\t", "    "))
            marks = max(1, len(text[left:right].replace("\t", "    ").rstrip()))
            yield f"{' ' * width} {bar} {' ' * shift}{click.style('^' * marks, fg=COLOURS[finding.severity], bold=True)}"
    yield f"{' ' * width} {bar}"


def problems(result: Result, terminal: Terminal = PLAIN) -> Iterator[str]:
    """What perflint itself could not do, a line each: no fix will take it away."""
    for checked, finding in result.findings:
        if finding.category == ENGINE and finding.severity is Severity.ERROR:
            yield _line(checked, finding, terminal)


def place(checked: Checked, finding: Finding) -> Position:
    """Where a finding begins."""
    return checked.source.position(finding.start) if checked.source is not None else Position(1, 1)


def message(checked: Checked, finding: Finding) -> str:
    """What is said of a finding where its place in a notebook cannot be given otherwise."""
    at = place(checked, finding)
    return finding.message if at.cell is None else f"{at.line}: {finding.message}"


def _mark(finding: Finding) -> str:
    if finding.fix is None:
        return ""
    assumed = ", ".join(kind.value for kind in finding.fix.assumptions)
    return click.style(_MARKS[finding.fix.applicability].format(assumed), fg="cyan")


def fix_words(finding: Finding) -> str:
    """What fix there is, and what speaks against it or is assumed, in a sentence; nothing if there is nothing to say."""
    why = "; ".join(finding.missing_proofs)
    if finding.fix is None:
        return f"No fix: {why}." if why else ""
    match finding.fix.applicability:
        case Applicability.SAFE:
            return f"Safe fix: {finding.fix.message}."
        case Applicability.ASSUMING:
            return f"Fix if {', '.join(kind.value for kind in finding.fix.assumptions)}: {finding.fix.message}."
        case Applicability.UNSAFE:
            return f"Unsafe fix: {finding.fix.message}{f'; {why}' if why else ''}."


def measured(ms: float | None, before: str = "", after: str = "") -> str:
    """What a profile says that a place costs; nothing without one."""
    return "" if ms is None else f"{before}{ms:.3g} ms per step{after}"
