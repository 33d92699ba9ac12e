"""Asking before each fix: what it changes is shown, and the answer decides."""

from __future__ import annotations

import click

from perflint.fix.preview import preview
from perflint.report.terminal import Terminal
from perflint.report.text import block, printable
from perflint.rule.finding import Finding
from perflint.run.outcome import Checked
from perflint.run.run import shown
from perflint.source.source import Source

_ANSWERS = {"y": "this one", "n": "not this one", "a": "this one and all others", "q": "no more"}
_COLOURS = {"-": "red", "+": "green", "@": "cyan"}


class Asking:
    """Decides about fixes for `fix_text`, one in each of its rounds: so that what is shown is what there is by then.

    Findings that were declined stay, and those that were fixed go; so the next one to ask about is behind as many as were
    declined.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._path: str | None = None
        self._source: Source | None = None
        self._last = (0, 0, "")
        self._declined = self._passed = 0
        self._has_chosen = False
        self._for_all: bool | None = None

    def __call__(self, source: Source, finding: Finding) -> bool:
        """Whether the fix of a finding is to be applied now."""
        self._note(source, finding)
        self._passed += 1
        if self._has_chosen or self._passed <= self._declined:
            return False
        if self._for_all is not None:
            return self._for_all
        answer = self._answer(source, finding)
        if answer in "aq":
            self._for_all = answer == "a"
        self._has_chosen = answer in "ya"
        self._declined += not self._has_chosen
        return self._has_chosen

    def _note(self, source: Source, finding: Finding) -> None:
        """Begin anew where a round or a file does: findings come in order."""
        order = (finding.start, finding.end, finding.rule)
        if source.path != self._path:
            self._path, self._declined = source.path, 0
        if source is not self._source or order <= self._last:
            self._source, self._passed, self._has_chosen = source, 0, False
        self._last = order

    def _answer(self, source: Source, finding: Finding) -> str:
        assert finding.fix is not None
        for line in block(Checked(shown(source.path), source), finding, self._terminal):
            click.echo(line)
        for line in preview(source, finding.fix):
            click.echo(click.style(printable(line.replace("\t", "    ")), fg=_COLOURS.get(line[0])))
        choices = ", ".join(f"[{key}] {says}" for key, says in _ANSWERS.items())
        answer: str = click.prompt(f"Fix? {choices}", type=click.Choice(list(_ANSWERS)), default="y", show_choices=False)
        return answer
