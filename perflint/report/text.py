"""What a person reads in a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import click

from perflint.rule.assumptions import ORDINARY, kinds_of
from perflint.rule.finding import Applicability, Finding, Permission, Severity
from perflint.run.outcome import Checked
from perflint.run.run import Result
from perflint.source.words import counted

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text from a linted file in one line, without what a terminal would take for commands or for another order of reading."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def concise(result: Result) -> Iterator[str]:
    """One line per finding: `path:row:column: rule-name [*] message`."""
    for checked, finding in result.findings:
        row, column = _place(checked, finding)
        where = click.style(printable(checked.path), bold=True)
        mark = _mark(finding)
        name = click.style(finding.rule, fg=_COLOURS[finding.severity], bold=True)
        yield f"{where}:{row}:{column}: {name}{mark} {printable(finding.message)}{_measured(finding, ' (', ')')}"


_MARKS = {Applicability.SAFE: " [*]", Applicability.ASSUMING: " [fix if {}]", Applicability.UNSAFE: " [unsafe fix]"}
_LEVELS = {
    Applicability.SAFE: "safe",
    Applicability.ASSUMING: "with --assume {}",
    Applicability.UNSAFE: "unsafe, with --unsafe-fixes",
}


def full(result: Result) -> Iterator[str]:
    """Each finding with its line, the span marked, the fix, and the proofs that are missing."""
    for checked, finding in result.findings:
        yield from _block(checked, finding)
        yield ""


def _block(checked: Checked, finding: Finding) -> Iterator[str]:
    name = click.style(finding.rule, fg=_COLOURS[finding.severity], bold=True)
    row, column = _place(checked, finding)
    yield f"{name}{_mark(finding)} {printable(finding.message)}"
    arrow = click.style("-->", fg="blue", bold=True)
    yield f" {arrow} {printable(checked.path)}:{row}:{column}"
    if checked.source is not None and checked.source.body:
        yield from _excerpt(checked, finding)
    equals = click.style("=", fg="blue", bold=True)
    if finding.fix is not None:
        level = _LEVELS[finding.fix.applicability].format(",".join(kind.value for kind in finding.fix.assumptions))
        yield f"  {equals} fix ({level}): {printable(finding.fix.message)}"
    if finding.measured_ms_per_step is not None:
        yield f"  {equals} measured: {_measured(finding)}"
    label = "no fix" if finding.fix is None else "it assumes" if finding.fix.assumptions else "why it is unsafe"
    for reason in finding.missing_proofs:
        yield f"  {equals} {label}: {printable(reason)}"


def _excerpt(checked: Checked, finding: Finding) -> Iterator[str]:
    source = checked.source
    assert source is not None
    first = source.row_at(finding.start)
    last = source.row_at(max(finding.end - 1, finding.start))
    shown = list(range(max(1, first - 1), min(len(source.starts), last + 1) + 1))
    if last - first > 5:
        shown = [r for r in shown if r <= first + 2]
    width = len(str(shown[-1]))
    bar = click.style("|", fg="blue", bold=True)
    yield f"{' ' * width} {bar}"
    start, end = source.position(finding.start), source.position(finding.end)
    for row in shown:
        line = printable(source.line(row).replace("\t", "    "))
        number = click.style(str(row).rjust(width), fg="blue", bold=True)
        yield f"{number} {bar} {line}".rstrip()
        if first <= row <= last:
            text = source.line(row)
            left = start.column - 1 if row == first else len(text) - len(text.lstrip())
            right = end.column - 1 if row == last else len(text)
            shift = len(text[:left].replace("\t", "    "))
            marks = max(1, len(text[left:right].replace("\t", "    ").rstrip()))
            yield f"{' ' * width} {bar} {' ' * shift}{click.style('^' * marks, fg=_COLOURS[finding.severity], bold=True)}"
    yield f"{' ' * width} {bar}"


def summary(result: Result, *, unsafe: bool, fixing: bool, writing: bool) -> Iterator[str]:
    """The sync budget of each training loop, and how many findings there are."""
    for checked in result.checked:
        for budget in checked.budgets:
            if budget.written:
                yield f"sync budget: {printable(str(budget))}"
    fixed = sum(result.applied.values())
    findings = result.findings
    left = len(findings)
    if fixing and fixed:
        verb = "Fixed" if writing else "Would fix"
        yield f"{verb} {counted(fixed, 'finding')} in {counted(len(result.fixed), 'file')}{f', {left} left' if left else ''}."
    elif left:
        yield f"Found {counted(left, 'finding')}."
    else:
        yield "All checks passed."
    fixes = [(result.permissions.get(checked.path, Permission()), f.fix) for checked, f in findings if f.fix is not None]
    ready = sum(permission.covers(fix) for permission, fix in fixes)
    ordinary = Permission(assumed=kinds_of([ORDINARY]))
    assumable = sum(not permission.covers(fix) and ordinary.covers(fix) for permission, fix in fixes)
    opt_in = len(fixes) - ready - assumable
    parts = [f"{ready} fixable with `perflint fix`"] if ready and not fixing else []
    if not unsafe:
        more = "more" if fixing or ready else "fixable"
        parts += [f"{assumable} {more} with `--assume ordinary` (see `perflint assumptions`)"] if assumable else []
        more = "more" if fixing or ready or assumable else "fixable"
        parts += [f"{opt_in} {more} with `--unsafe-fixes`"] if opt_in else []
    if parts:
        yield ", ".join(parts) + "."


def statistics(result: Result) -> Iterator[str]:
    """How many findings each rule has, the most first."""
    counts: Counter[str] = Counter(f.rule for _, f in result.findings)
    fixable: Counter[str] = Counter(f.rule for _, f in result.findings if f.fix is not None)
    width = len(str(max(counts.values(), default=0)))
    for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"{count:>{width}}  {'[*]' if fixable[name] else '   '}  {name}"


def _place(checked: Checked, finding: Finding) -> tuple[int, int]:
    if checked.source is None:
        return 1, 1
    position = checked.source.position(finding.start)
    return position.row, position.column


def _mark(finding: Finding) -> str:
    if finding.fix is None:
        return ""
    assumed = ", ".join(kind.value for kind in finding.fix.assumptions)
    return click.style(_MARKS[finding.fix.applicability].format(assumed), fg="cyan")


def _measured(finding: Finding, before: str = "", after: str = "") -> str:
    ms = finding.measured_ms_per_step
    return "" if ms is None else f"{before}{ms:.3g} ms per step{after}"
