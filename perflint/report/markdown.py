"""A summary in Markdown, for a pull request or the page of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from perflint.report.grouped import Flaw, blocks, rows
from perflint.report.report import Report
from perflint.report.summary import of_findings
from perflint.report.text import measured, printable
from perflint.run.outcome import Budget
from perflint.source.words import plural

MOST_ROWS = 50
"""So many rows a table has: a page of a job holds 1 MiB, and a reader's patience less."""

_QUOTED = re.compile(r"(`[^`]+`)")
_SYNTAX = re.compile(r"([\\`*_{}\[\]<>|~#!&])")


def markdown(report: Report) -> Iterator[str]:
    """How much there is and what `fix` would do, the waits per step of each training loop, the flaws, the costliest first."""
    result = report.result
    flaws = [
        (block.file, name, flaw) for block in blocks(result) for flaw in block.flaws for name in [_functions(block.functions)]
    ]
    if not result.is_ranked:
        flaws.sort(key=lambda found: found[2].findings[0].order)
    head, *offers = of_findings(result, len(flaws))
    yield f"## perflint: {_text(head.removeprefix('Found ').removesuffix('.').replace('All checks', 'all checks'))}"
    for line in (*offers, *report.notes):
        yield from ("", _text(line))
    yield from _budgets([budget for checked in result.checked for budget in checked.budgets if budget.written])
    yield from _flaws(flaws)


def _budgets(budgets: Iterable[Budget]) -> Iterator[str]:
    lines = [_budget(budget) for budget in sorted(budgets, key=lambda budget: -budget.written)]
    if lines:
        yield from ("", "### Waits for the GPU in each step", "")
        yield from _table(("training loop", "as written", "with safe fixes", "with all fixes"), lines, "loop")


def _budget(budget: Budget) -> tuple[str, ...]:
    written = f"{'at least ' if budget.at_least else ''}{budget.written}"
    if budget.now_and_then:
        often = f"every {budget.period} steps" if budget.period > 1 else "now and then"
        written += f", {budget.now_and_then} more {often}"
    safe = f"{budget.after_safe}{f', {budget.in_scaler} of them in `GradScaler.step`' if budget.in_scaler else ''}"
    where = f"{_code(f'{budget.path}:{budget.line}')} {_code(budget.function) if budget.function else ''}"
    return where.strip(), written, safe, str(budget.after_all)


def _flaws(flaws: list[tuple[str, str, Flaw]]) -> Iterator[str]:
    if flaws:
        yield from ("", "### Findings, what costs most first", "")
        yield from _table(("where", "rule", "what happens, and the cure", "fix"), [_flaw(*found) for found in flaws], "finding")


def _flaw(path: str, functions: str, flaw: Flaw) -> tuple[str, ...]:
    costs = [f.measured_ms_per_step for f in flaw.findings if f.measured_ms_per_step is not None]
    cost = measured(sum(costs), " (", ")") if costs else ""
    where = f"{_code(f'{path}:{rows(flaw.rows)}')} {functions}".strip()
    fix = flaw.reason if flaw.reason.startswith("assuming ") else ", ".join(filter(None, [flaw.fix, flaw.reason]))
    return where, _code(flaw.findings[0].rule), _text(f"{flaw.message}{cost}"), _text(fix)


def _functions(names: list[str]) -> str:
    named = [_code(name) for name in names if name]
    return f"{', '.join(named[:3])}{f' and {len(named) - 3} more' if len(named) > 3 else ''}"


def _table(titles: tuple[str, ...], lines: Sequence[tuple[str, ...]], noun: str) -> Iterator[str]:
    for cells in (titles, ("---",) * len(titles), *lines[:MOST_ROWS]):
        yield f"| {' | '.join(cells)} |"
    if len(lines) > MOST_ROWS:
        yield from ("", f"And {len(lines) - MOST_ROWS:,} more {plural(noun)}: `perflint check` shows all.")


def _text(text: str) -> str:
    """Text as it stands; what it has in backquotes is code."""
    pieces = _QUOTED.split(printable(text))
    return "".join(_code(piece[1:-1]) if at % 2 else _SYNTAX.sub(r"\\\1", piece) for at, piece in enumerate(pieces))


def _code(text: str) -> str:
    """Code, whatever it holds, also in the cell of a table."""
    text = printable(text).replace("|", "\\|")
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"
