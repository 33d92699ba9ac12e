"""Asking before each fix: what it changes is shown, and the answer decides."""

from __future__ import annotations

from collections.abc import Sequence

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
        self._declined = 0
        self._for_all: bool | None = None

    def __call__(self, source: Source, findings: Sequence[Finding], fixable: Sequence[Finding]) -> Sequence[Finding]:
        """The next finding that is to be fixed, or all that are left."""
        if source.path != self._path:
            self._path, self._declined = source.path, 0
        while self._for_all is None and self._declined < len(fixable):
            finding = fixable[self._declined]
            match self._answer(source, finding):
                case "y":
                    return [finding]
                case "n":
                    self._declined += 1
                case answer:
                    self._for_all = answer == "a"
        return fixable[self._declined :] if self._for_all else []

    def _answer(self, source: Source, finding: Finding) -> str:
        assert finding.fix is not None
        for line in block(Checked(shown(source.path), source), finding, self._terminal):
            click.echo(line)
        for line in preview(source, finding.fix):
            click.echo(click.style(printable(line.replace("\t", "    ")), fg=_COLOURS.get(line[0])))
        choices = ", ".join(f"[{key}] {says}" for key, says in _ANSWERS.items())
        answer: str = click.prompt(f"Fix? {choices}", type=click.Choice(list(_ANSWERS)), default="y", show_choices=False)
        return answer
