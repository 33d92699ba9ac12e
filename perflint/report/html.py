"""The report as one page: what each training step waits for, the findings by cost, rule and folder, the change of each fix."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version

from perflint.fix.preview import preview
from perflint.page.document import anchor, card, changed_lines, document, escaped, prose, script, table
from perflint.page.timeline import Lane, Mark, timeline
from perflint.project.git import commit_of
from perflint.report import grouped
from perflint.report.appendix import appendix, link
from perflint.report.grouped import Block, Flaw
from perflint.report.statistics import counts
from perflint.report.text import measured, place
from perflint.rule.finding import Cost, Finding
from perflint.rule.rule import Rule
from perflint.run.outcome import Budget, Checked, StepWait
from perflint.run.result import Result
from perflint.source.source import Position, Source
from perflint.source.words import counted

MOST_FLAWS = 1500
"""So many are listed: a browser is to open the page at once. All of them are counted."""
MOST_LOOPS = 80
MOST_FOLDERS = 30
MOST_PLACES = 12
"""So many places of one flaw are shown with their change."""

KINDS = {"safe": "safe", "assuming": "assume", "unsafe": "unsafe", "": "no fix"}
_SAID_OF_KIND = {
    "safe": "a fix that leaves what the program computes as it is",
    "assume": "a fix that rests on assumptions about the project",
    "unsafe": "a fix that may change what the program computes",
    "no fix": "advice: no fix can be proved",
}
COSTS = {
    None: "errors",
    Cost.DISK: "reading and parsing files",
    Cost.LOADING: "waiting for the data loader",
    Cost.WAIT: "the CPU waits for the GPU",
    Cost.COPY: "copies between host and device",
    Cost.MEMORY: "memory",
    Cost.ALLOCATION: "making and filling tensors",
    Cost.LAUNCH: "launching kernels",
}
HOW = {
    "number": "one number is read",
    "format": "a tensor becomes text",
    "truth": "a condition on a tensor is read",
    "copy": "a tensor is copied to the host",
    "upload": "data of the host is copied to the device",
    "transfer": "a copy that waits",
    "shape": "the size of the result depends on the data",
    "overflow": "GradScaler looks for gradients that are infinite",
    "device": "all queued work is waited for",
}


@dataclass
class _Places:
    """Names without folders of this machine, and the anchors of what was reported at a row: by a rule, or by any ("")."""

    root: str | None
    anchors: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def name(self, path: str) -> str:
        """A file as the page names it: below the folder that holds all of them where it is not below the working directory."""
        if self.root is None or not os.path.isabs(path):
            return path
        return os.path.join(os.path.basename(self.root), os.path.relpath(path, self.root))

    def folder(self, path: str) -> str:
        """The folder of a file, with a slash at its end."""
        return f"{os.path.dirname(self.name(path)).replace(os.sep, '/') or '.'}/"

    def said(self, text: str) -> str:
        """A message, which may name a file by its whole path."""
        if self.root is not None:
            text = text.replace(f"{self.root}{os.sep}", f"{os.path.basename(self.root)}{os.sep}")
        return text.replace(f"{os.getcwd()}{os.sep}", "")


def page(result: Result, rules: Iterable[Rule], paths: Sequence[str] = (".",), notes: Sequence[str] = ()) -> str:
    """The page of a result, a whole HTML file.

    rules: those that may have reported something. paths: what was checked, as it was given. notes: what a reader has to know.
    """
    absolute = [os.path.dirname(checked.path) for checked in result.checked if os.path.isabs(checked.path)]
    places = _Places(os.path.commonpath(absolute) if absolute else None)
    blocks = grouped.blocks(result)
    if not result.is_ranked:  # by a profile: the costliest come first then, anyway
        blocks.sort(key=lambda block: min((flaw.findings[0].order for flaw in block.flaws), default=()))
    findings = [*_findings(result, blocks, places)]
    found = Counter(finding.rule for _, finding in result.findings)
    known = {rule.name: rule for rule in rules if rule.name in found}
    title = "perflint: " + ", ".join(_given(path) for path in paths)
    body = [
        '<a class="skip" href="#findings">To the findings</a>',
        *_head(result, title, notes),
        *_contents(result, blocks),
        "<main>",
        *_loops(result, places),
        *_overview(result, places),
        *findings,
        *appendix(found, known),
        "</main>",
    ]
    return document(title, body, script=script("filter.js"))


def _given(path: str) -> str:
    """A path of the command line: of one that begins at the machine's root, and of `.` and `..`, the folder's own name."""
    whole = os.path.normpath(path)
    return os.path.basename(os.path.abspath(path)) if os.path.isabs(path) or whole.startswith(".") else whole


def _head(result: Result, title: str, notes: Sequence[str]) -> Iterator[str]:
    found = commit_of(os.path.dirname(os.path.abspath(result.checked[0].path))) if result.checked else None
    commit = f", commit {found}" if found is not None else ""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    made = f"{counted(len(result.checked), 'file')}{commit}; perflint {version('perflint-torch')}, {date}"
    yield f'<header><h1>{escaped(title)}</h1><p class="soft">{escaped(made)}</p>'
    yield from (f"<p>{prose(note)}</p>" for note in notes)
    yield '</header><div class="cards">'
    yield from _cards(result)
    yield "</div>"


def _cards(result: Result) -> Iterator[str]:
    total = len(result.findings)
    of_rules = counts(result)
    safe, assuming, unsafe, without = (
        sum(getattr(count, kind) for count in of_rules) for kind in ("safe", "assuming", "unsafe", "without_fix")
    )
    rules = f"of {counted(len(of_rules), 'rule')}" if total else "All checks passed."
    yield card("Findings", f"{total:,}", rules, "plain" if total else "good")
    if total:
        more = f"{assuming:,} more under assumptions, {unsafe:,} more with unsafe fixes, {without:,} without a fix"
        yield card("Safe fixes", f"{safe:,}", more, "good" if safe else "plain")
    budgets = [budget for checked in result.checked for budget in checked.budgets]
    if budgets:
        before, after = sum(budget.written for budget in budgets), sum(budget.after_safe for budget in budgets)
        waiting = sum(budget.written > 0 for budget in budgets)
        said = "as written and fixed safely" if after < before else "no safe fix removes one" if before else "none"
        yield card(
            "Waits for the GPU per step",
            f"{before} \N{RIGHTWARDS ARROW} {after}" if after < before else f"{before}",
            f"in {waiting} of {counted(len(budgets), 'training loop')}, counted in the code; {said}",
            "good" if after < before or not before else "unclear",
        )
    if result.is_ranked:
        ms = sum(finding.measured_ms_per_step or 0.0 for _, finding in result.findings)
        yield card("Measured at the findings", f"{ms:.3g} ms", "per step, in the profile", "plain")


def _contents(result: Result, blocks: Sequence[Block]) -> Iterator[str]:
    if not blocks:
        return
    named = [("steps", "Steps")] if any(budget.written for checked in result.checked for budget in checked.budgets) else []
    named += [("overview", "By cost, rule, folder"), ("findings", "Findings"), ("rules", "Rules")]
    links = "".join(f'<a href="#{name}">{text}</a>' for name, text in named)
    yield f'<nav aria-label="Parts of this page">{links}</nav>'


# -- steps ---------------------------------------------------------------------------------------------------------------


def _loops(result: Result, places: _Places) -> Iterator[str]:
    loops = [(checked, budget) for checked in result.checked for budget in checked.budgets if budget.written]
    if not loops:
        return
    yield (
        '<section id="steps"><h2>Steps of the training loops</h2>'
        '<p class="legend soft"><span><i class="work"></i>the CPU queues work</span>'
        '<span><i class="wait"></i>the CPU waits until the GPU has done all of it</span></p>'
        '<p class="soft">Drawn from the code, in its order and not to scale. Removing the last wait of a step is what counts: '
        "the step gains at most what the CPU and the GPU can then do at the same time.</p>"
    )
    loops.sort(key=lambda loop: -loop[1].written)
    for checked, budget in loops[:MOST_LOOPS]:
        yield from _loop(checked, budget, places)
    if len(loops) > MOST_LOOPS:
        yield f"<p>{counted(len(loops) - MOST_LOOPS, 'loop')} more, with fewer waits.</p>"
    yield "</section>"


def _loop(checked: Checked, budget: Budget, places: _Places) -> Iterator[str]:
    where = f"{places.name(checked.path)}:{budget.line}"
    yield f'<article class="loop" id="{anchor("loop", where)}">'
    yield f"<h3><code>{escaped(where)}</code> {escaped(budget.function)}</h3>"
    yield f"<p>{escaped(budget.waits)}</p>"
    waits = budget.timeline
    rows = [_at(checked, wait.row) for wait in waits]
    marks = [Mark(str(at.row), f"line {at.line}: {HOW[wait.how]}", wait.times) for at, wait in zip(rows, waits, strict=True)]
    lanes = [Lane("as written", [True] * len(waits))]
    if budget.after_safe < budget.written:
        lanes.append(Lane("safe fixes", [wait.fix != "safe" for wait in waits]))
    if budget.after_all < budget.after_safe:
        lanes.append(Lane("all fixes", [not wait.fix for wait in waits]))
    yield timeline(marks, lanes, f"{where}: {budget.waits}")
    told = ([*_wait(checked, wait, places)] for wait in waits)
    yield "<details><summary>The waits, in the order of the code</summary>"
    yield from table(("line", "code", "why it waits", "fix"), told)
    yield "</details></article>"


def _at(checked: Checked, row: int) -> Position:
    """Where a row is; in a notebook within its cell."""
    return checked.source.place(row) if checked.source is not None else Position(row, 1)


def _wait(checked: Checked, wait: StepWait, places: _Places) -> Iterator[str]:
    is_here = not wait.file
    file = os.path.normpath(os.path.join(os.path.dirname(checked.path), wait.file)) if wait.file else ""
    line = _at(checked, wait.line).line if is_here else str(wait.line)
    behind = (
        "" if is_here and wait.line == wait.row else f" \N{RIGHTWARDS ARROW} {places.name(file) + ':' if file else ''}{line}"
    )
    yield f"<code>{escaped(_at(checked, wait.row).line)}{escaped(behind)}</code>"
    yield f"<code>{escaped(checked.source.line(wait.line).strip())}</code>" if is_here and checked.source is not None else ""
    yield escaped(f"{HOW[wait.how]}, {wait.times} times" if wait.times > 1 else HOW[wait.how])
    at = places.anchors.get((file or checked.path, line, wait.rule))
    if wait.rule:
        name = f'<a href="#{at}">{escaped(wait.rule)}</a>' if at is not None else link(wait.rule)
        yield f"{_badge(KINDS[wait.fix])} {name}"
    elif wait.file:
        yield f'<a href="#{at}">reported there</a>' if at is not None else "in another file"
    else:
        yield "no rule reports it"


# -- how much of what ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Findings that have something in common. words: what finds them in the search field."""

    name: str
    words: str
    findings: Sequence[Finding]


def _overview(result: Result, places: _Places) -> Iterator[str]:
    pairs = result.findings
    if not pairs:
        return
    yield '<section id="overview"><h2>Findings by cost, rule and folder</h2><div class="columns">'
    costs = [_Group(name, f"cost:{_word(cost)}", [f for _, f in pairs if f.costs is cost]) for cost, name in COSTS.items()]
    yield from _counted("what it costs", costs, len(pairs))
    rules = [_Group(c.rule, f"rule:{c.rule}", [f for _, f in pairs if f.rule == c.rule]) for c in counts(result)]
    yield from _counted("rule", rules, len(pairs))
    in_folder: dict[str, list[Finding]] = {}
    for checked, finding in pairs:
        in_folder.setdefault(places.folder(checked.path), []).append(finding)
    folders = [_Group(name, f"in:{name}.", findings) for name, findings in in_folder.items()]
    folders.sort(key=lambda group: (-len(group.findings), group.name))
    yield from _counted("folder", folders[:MOST_FOLDERS], len(pairs))
    yield "</div>"
    if len(folders) > MOST_FOLDERS:
        yield f'<p class="soft">And {counted(len(folders) - MOST_FOLDERS, "folder")} more.</p>'
    yield "</section>"


def _word(cost: Cost | None) -> str:
    return cost.value if cost is not None else "error"


def _counted(name: str, groups: Sequence[_Group], total: int) -> Iterator[str]:
    def row(group: _Group) -> Iterator[str]:
        share = 100 * len(group.findings) / total
        bar = f'<span class="bar" style="width: {share:.1f}%"></span>'
        yield f'<a href="#findings" data-filter="{escaped(group.words)}">{escaped(group.name)}</a>{bar}'
        yield f"{len(group.findings):,}"
        yield f"{sum(grouped.fix_of(finding) == 'safe' for finding in group.findings):,}"
        if any(finding.measured_ms_per_step is not None for finding in group.findings):
            yield f"{sum(finding.measured_ms_per_step or 0.0 for finding in group.findings):.3g}"

    rows = [[*row(group)] for group in groups if group.findings]
    head = [name, "findings", "safe fixes", *(["ms per step"] if any(len(cells) > 3 for cells in rows) else [])]
    yield "<div>"
    yield from table(head, ([*cells, *[""] * (len(head) - len(cells))] for cells in rows), figures=range(1, len(head)))
    yield "</div>"


# -- findings ------------------------------------------------------------------------------------------------------------


def _findings(result: Result, blocks: Sequence[Block], places: _Places) -> Iterator[str]:
    if not blocks:
        return
    by_path = {checked.path: checked for checked in result.checked}
    yield (
        '<section id="findings"><h2>Findings</h2><p class="filter" hidden><label for="filter">Show those with</label> '
        '<input id="filter" type="search" autocomplete="off" spellcheck="false" '
        'placeholder="words, fix:safe, cost:wait, in:src/">'
        '<button id="open" type="button" aria-pressed="false">Open all changes</button> '
        '<span id="shown" role="status"></span></p>'
    )
    yield f'<p class="soft">{"; ".join(f"{_badge(kind)} {said}" for kind, said in _SAID_OF_KIND.items())}.</p>'
    order = "what costs most in the profile" if result.is_ranked else "errors, then what runs most often and usually costs most"
    yield f'<p class="soft">First {order}.</p>'
    left = MOST_FLAWS
    for block in blocks:
        if left > 0 and block.flaws:
            yield from _block(block, by_path[block.path], places, block.flaws[:left])
            left -= len(block.flaws)
    if left < 0:
        yield f"<p>{counted(-left, 'finding')} more, which `perflint check` prints.</p>"
    yield "</section>"


def _block(block: Block, checked: Checked, places: _Places, flaws: Sequence[Flaw]) -> Iterator[str]:
    name = places.name(block.path)
    functions = ", ".join(dict.fromkeys(function for function in block.functions if function))
    yield f'<article class="block"><h3><code>{escaped(name)}:{block.line}</code> {escaped(functions)}</h3>'
    for flaw in flaws:
        yield from _flaw(flaw, checked, functions, places)
    yield "</article>"


def _flaw(flaw: Flaw, checked: Checked, functions: str, places: _Places) -> Iterator[str]:
    first = flaw.findings[0]
    name = places.name(checked.path)
    at = anchor("finding", name, flaw.rows[0], first.rule, first.start)
    for line in (place(checked, finding).line for finding in flaw.findings):
        places.anchors.setdefault((checked.path, line, first.rule), at)
        places.anchors.setdefault((checked.path, line, ""), at)
    words = (
        f"rule:{first.rule} cost:{_word(first.costs)} fix:{flaw.fix} {first.rate.value} in:{places.folder(checked.path)}. "
        f"{name} {functions} {flaw.message}"
    )
    yield f'<div class="flaw" id="{at}" data-search="{escaped(" ".join(words.lower().split()))}">'
    cost = sum(finding.measured_ms_per_step or 0.0 for finding in flaw.findings)
    told = [f"line{'s' if len(set(flaw.rows)) > 1 else ''} {grouped.rows(flaw.rows)}", first.rate.value]
    told += [measured(cost)] if first.measured_ms_per_step is not None else []
    yield (
        f'<h4>{_badge(flaw.fix)} {link(first.rule)} <a class="soft" href="#{at}">'
        f"{escaped(', '.join(text for text in told if text != 'unknown'))}</a></h4><p>{prose(places.said(flaw.message))}</p>"
    )
    if first.fix is not None and first.fix.assumptions:
        yield f'<p class="soft">It assumes {escaped(", ".join(kind.value for kind in first.fix.assumptions))}.</p>'
    elif first.missing_proofs:
        why = "Unsafe" if first.fix is not None else "No fix"
        yield f'<p class="soft">{why}: {prose(places.said("; ".join(first.missing_proofs)))}</p>'
    if checked.source is not None:
        yield from _code(flaw, checked.source)
    yield "</div>"


def _code(flaw: Flaw, source: Source) -> Iterator[str]:
    """What the fixes change; where there is none, the lines that are reported."""
    shown = flaw.findings[:MOST_PLACES]
    if flaw.findings[0].fix is not None:
        places = f" in {len(flaw.findings)} places" if len(flaw.findings) > 1 else ""
        yield f"<details><summary>{prose(flaw.findings[0].fix.message)}{places}</summary>"
        yield from changed_lines(
            [line for finding in shown if finding.fix is not None for line in preview(source, finding.fix)]
        )
    else:
        lines = dict.fromkeys(row for finding in shown for row in _rows(source, finding))
        yield "<details><summary>the code</summary>"
        yield from changed_lines([f" {source.place(row).row:>5}  {source.line(row)}" for row in lines])
    if len(flaw.findings) > len(shown):
        yield f'<p class="soft">And {counted(len(flaw.findings) - len(shown), "place")} more.</p>'
    yield "</details>"


def _rows(source: Source, finding: Finding) -> range:
    first = source.row_at(finding.start)
    return range(first, min(source.row_at(max(finding.start, finding.end - 1)), first + 5) + 1)


def _badge(kind: str) -> str:
    return f'<span class="badge {kind.replace(" ", "-")}">{kind}</span>'
