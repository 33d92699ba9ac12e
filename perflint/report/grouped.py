"""The report by default: a block for each function, its sync budget first, then a line for each flaw, the safe fixes first."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import click

from perflint.report.terminal import PLAIN, Terminal
from perflint.report.text import measured, place, printable
from perflint.rule.assumptions import ASSUMPTIONS
from perflint.rule.finding import Applicability, Finding
from perflint.run.outcome import Budget, Checked
from perflint.run.result import Result
from perflint.source.source import Position
from perflint.source.words import counted

_LEVELS = {Applicability.SAFE: "safe", Applicability.ASSUMING: "assume", Applicability.UNSAFE: "unsafe", None: "no fix"}
_COLOURS = {"safe": "green", "assume": "cyan", "unsafe": "yellow", "no fix": "blue"}
NONE = _LEVELS[None]
_OWN_WORDS = re.compile(r"`[^`]*`|(?<=\bline )\d+")
"""What a message says of one place only: its names and rows."""

LONGEST_NAME = 64
"""Characters of a piece of code that a line shows; the place says where all of it stands."""

MOST_NAMED, MOST_ROWS = 3, 6
"""So many of several names, and of several rows, are printed."""

MOST_ADVICE = 2
"""So many flaws without a fix are written out where there is nothing else to say of a function."""

WIDEST_ROWS = 12
"""Columns up to which rows make those of the lines below each other equally wide."""

NARROWEST = 40
"""Columns that a message gets at least, however narrow the terminal is."""


@dataclass(frozen=True)
class Flaw:
    """Findings of one function that say the same, each of another place."""

    findings: Sequence[Finding]
    rows: Sequence[int]

    @property
    def fix(self) -> str:
        """What there is: a safe fix, one under assumptions, an unsafe one, none."""
        return fix_of(self.findings[0])

    @property
    def order(self) -> tuple[int, ...]:
        """What to say first: what can be fixed best, of that what costs most."""
        return (list(_COLOURS).index(self.fix), *self.findings[0].order, self.rows[0])

    @property
    def message(self) -> str:
        """What all of them say, with the names of each."""
        return _joined([finding.message for finding in self.findings])

    @property
    def reason(self) -> str:
        """The first of the reasons why there is no fix, or why it is unsafe; the assumptions that it rests on."""
        return _joined([_reason(finding) for finding in self.findings])


@dataclass
class Block:
    """What is said of one function of a file, or of several of which there is the same to say. cell: that of a notebook."""

    path: str
    functions: list[str]
    cell: int | None = None
    budgets: list[Budget] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)

    @property
    def row(self) -> int:
        """Where to look first."""
        return min([budget.row for budget in self.budgets] or [row for flaw in self.flaws for row in flaw.rows])

    @property
    def file(self) -> str:
        """What rows count in: the file, or the cell of a notebook."""
        return self.path if self.cell is None else f"{self.path}:cell {self.cell}"

    @property
    def line(self) -> str:
        """That row, as it is written behind the name of the file."""
        return Position(self.row, 1, self.cell).line


def blocks(result: Result) -> list[Block]:
    """Files by how often a training loop of theirs waits, then in their order; with a profile the costliest blocks first."""
    files = [_of_file(checked, by_cost=result.is_ranked) for checked in result.checked]
    files.sort(key=lambda found: -max((budget.written for block in found for budget in block.budgets), default=0))
    found = [block for of_file in files for block in of_file]
    if result.is_ranked:
        found.sort(key=lambda block: -max((_cost(flaw) for flaw in block.flaws), default=0.0))
    return found


def _of_file(checked: Checked, *, by_cost: bool) -> list[Block]:
    found: dict[tuple[int | None, str], Block] = {}
    same: dict[tuple[int | None, str, tuple[str, ...]], list[Finding]] = {}
    for finding in checked.findings:
        same.setdefault((place(checked, finding).cell, finding.function, _said(finding)), []).append(finding)
    for (cell, function, _), findings in same.items():
        block = found.setdefault((cell, function), Block(checked.path, [function], cell))
        block.flaws.append(Flaw(findings, [place(checked, finding).row for finding in findings]))
    for budget in checked.budgets:
        if budget.written:
            block = Block(checked.path, [budget.function], budget.cell)
            found.setdefault((budget.cell, budget.function), block).budgets.append(budget)
    for block in found.values():
        block.flaws.sort(key=lambda flaw: (-_cost(flaw), *flaw.order) if by_cost else flaw.order)
    return _merged(sorted(found.values(), key=lambda block: (block.cell or 0, block.row)))


def _merged(found: Iterable[Block]) -> list[Block]:
    """Functions of one file that have nothing but the same flaw become one block."""
    merged: list[Block] = []
    alone: dict[tuple[int | None, tuple[str, ...]], Block] = {}
    for block in found:
        if block.budgets or len(block.flaws) > 1:
            merged.append(block)
            continue
        (flaw,) = block.flaws
        first = alone.setdefault((block.cell, _said(flaw.findings[0])), block)
        if first is block:
            merged.append(block)
        else:
            first.functions += block.functions
            first.flaws = [Flaw([*first.flaws[0].findings, *flaw.findings], [*first.flaws[0].rows, *flaw.rows])]
    return merged


def _said(finding: Finding) -> tuple[str, ...]:
    """What a report says of a finding, but for the names and rows."""
    return finding.rule, fix_of(finding), _OWN_WORDS.sub("", finding.message), _OWN_WORDS.sub("", _reason(finding))


def fix_of(finding: Finding) -> str:
    """What there is: a safe fix, one under assumptions, an unsafe one, none."""
    return _LEVELS[finding.fix.applicability if finding.fix is not None else None]


def _reason(finding: Finding) -> str:
    if finding.fix is not None and finding.fix.assumptions:
        return f"assuming {', '.join(kind.value for kind in finding.fix.assumptions)}"
    return f"but {finding.missing_proofs[0]}" if finding.missing_proofs else ""


def _cost(flaw: Flaw) -> float:
    return sum(finding.measured_ms_per_step or 0.0 for finding in flaw.findings)


def _joined(texts: Sequence[str]) -> str:
    """One text for several that differ in their names only."""
    names = zip(*(_OWN_WORDS.findall(text) for text in texts), strict=True)
    each = (_some(list(dict.fromkeys(map(_short, variants))), MOST_NAMED) for variants in names)
    return _OWN_WORDS.sub(lambda found: next(each), texts[0])


def _short(name: str) -> str:
    return f"{name[: LONGEST_NAME - 4]}...`" if len(name) > LONGEST_NAME else name


def _some(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def rows(numbers: Iterable[int]) -> str:
    """Row numbers as `3, 5-7`: each once, those in a row as a range."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return _some([str(first) if first == last else f"{first}-{last}" for first, last in ranges], MOST_ROWS)


def grouped(result: Result, terminal: Terminal = PLAIN) -> Iterator[str]:
    """The blocks, with an empty line behind each. What an assumption means is said where it comes first."""
    explained: set[str] = set()
    for block in blocks(result):
        yield from _block(block, terminal, explained)
        yield ""


def _block(block: Block, terminal: Terminal, explained: set[str]) -> Iterator[str]:
    head = click.style(printable(f"{block.path}:{block.line}"), bold=True)
    yield f"{head} {printable(_some([name for name in block.functions if name], MOST_NAMED))}".rstrip()
    for budget in block.budgets:
        where = f" of the loop in line {budget.row}" if len(block.budgets) > 1 else ""
        unnamed = [wait for wait in budget.timeline if not wait.rule and wait.how != "overflow"]
        quiet, silent = rows(wait.row for wait in unnamed if wait.quiet), rows(wait.row for wait in unnamed if not wait.quiet)
        safe = len({wait.row for wait in unnamed if wait.quiet_fix == Applicability.SAFE.value})
        fixes = f" ({counted(safe, 'safe fix')})" if safe else ""
        places = f"; with `--select all` more on lines: {quiet}{fixes}" if quiet else ""
        places += f"; lines without a finding: {silent}" if silent else ""
        yield from wrapped(f"  {click.style('sync budget', bold=True)}{where}: ", budget.waits + places, terminal)
    advice = [flaw for flaw in block.flaws if flaw.findings[0].is_advice]
    is_counted = len(advice) > (1 if len(advice) < len(block.flaws) else MOST_ADVICE)
    shown = [flaw for flaw in block.flaws if not (is_counted and flaw.findings[0].is_advice)]
    width = max((len(text) for flaw in shown if len(text := rows(flaw.rows)) <= WIDEST_ROWS), default=0)
    for flaw in shown:
        first = flaw.findings[0]
        start = f"  {click.style(f'{flaw.fix:<6}', fg=_COLOURS[flaw.fix])}  {rows(flaw.rows):>{width}}  "
        reason = f", {flaw.reason}" if flaw.reason else ""
        cost = measured(_cost(flaw), " (", ")") if first.measured_ms_per_step is not None else ""
        name = terminal.rule(first.rule, first.severity)
        yield from wrapped(f"{start}{name}: ", printable(f"{flaw.message}{cost}{reason}"), terminal, start)
        yield from _legend(flaw, terminal, " " * _width(start), explained)
    if is_counted:
        yield from _advice(advice, terminal)


def _legend(flaw: Flaw, terminal: Terminal, indent: str, explained: set[str]) -> Iterator[str]:
    """What the assumptions of a flaw mean that are not `explained` yet."""
    fixes = [finding.fix for finding in flaw.findings if finding.fix is not None]
    names = dict.fromkeys(kind.value for fix in fixes for kind in fix.assumptions if kind.value not in explained)
    if names:
        explained.update(names)
        yield from wrapped(indent, f"({'; '.join(f'{name}: {ASSUMPTIONS[name].means}' for name in names)})", terminal)


def _advice(flaws: Sequence[Flaw], terminal: Terminal) -> Iterator[str]:
    """How many places there are that nobody can fix but the reader, and where."""
    of_rule: dict[str, list[Flaw]] = {}
    for flaw in flaws:
        of_rule.setdefault(flaw.findings[0].rule, []).append(flaw)
    count = sum(len(flaw.findings) for flaw in flaws)
    named = (f"{rule} ({rows(row for flaw in of for row in flaw.rows)})" for rule, of in of_rule.items())
    start = f"  {click.style(f'{NONE:<6}', fg=_COLOURS[NONE])}  "
    yield from wrapped(start, f"{count} places: {', '.join(named)}", terminal)


def wrapped(start: str, text: str, terminal: Terminal, indent: str | None = None) -> Iterator[str]:
    """A line, folded where the terminal ends; what follows is indented by the width of `start`, or of `indent`."""
    if terminal.width is None:
        yield start + text
        return
    before, space = _width(start), " " * _width(start if indent is None else indent)
    width = max(terminal.width, len(space) + NARROWEST)
    lines = textwrap.wrap(
        text, width, initial_indent=" " * before, subsequent_indent=space, break_long_words=False, break_on_hyphens=False
    )
    yield start + lines[0][before:] if lines else start
    yield from lines[1:]


def _width(styled: str) -> int:
    return len(re.sub(r"\x1b\]8;;[^\x1b]*\x1b\\", "", click.unstyle(styled)))
