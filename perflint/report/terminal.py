"""What the reader's terminal can do: colours, links, how many columns it has."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import click

from perflint.report.links import rule_url
from perflint.rule.finding import Severity
from perflint.rule.rule import Rule

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}
_WITH_LINKS = ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "DOMTERM", "TERMINOLOGY")
_PROGRAMS_WITH_LINKS = {"iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "zed"}
_FIRST_VTE_WITH_LINKS = 5000

WIDEST_PAGE = 100
"""Columns of a page of text: longer lines are hard to read."""


@dataclass(frozen=True)
class Terminal:
    """Where a report goes. width: in columns; None where lines may have any length. pages: an address for each rule's page."""

    width: int | None = None
    pages: Mapping[str, str] = field(default_factory=dict)

    def rule(self, name: str, severity: Severity) -> str:
        """A rule's name as it is printed."""
        shown = click.style(name, fg=COLOURS[severity], bold=True)
        page = self.pages.get(name)
        return f"\x1b]8;;{page}\x1b\\{shown}\x1b]8;;\x1b\\" if page is not None else shown


PLAIN = Terminal()
"""A file, or a pipe."""


def pages(rules: Iterable[Rule], docs_url: str | None = None) -> dict[str, str]:
    """Where the page of each rule is found: on the documentation's site, or in its module, which opens with it."""
    if docs_url is not None:
        return {rule.name: rule_url(rule.name, docs_url) for rule in rules}
    from pathlib import Path

    found = {}
    for rule in rules:
        spec = importlib.util.find_spec(rule.module)
        if spec is not None and spec.origin is not None:
            found[rule.name] = Path(spec.origin).as_uri()
    return found


def wants_colour(choice: str) -> bool | None:
    """Whether to print colours for `--color CHOICE`; None leaves it to whether the output is a terminal.

    As in ruff, FORCE_COLOR wins over NO_COLOR, and both count if they are not empty.
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("FORCE_COLOR"):
        return True
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def columns() -> int | None:
    """How wide the terminal is that standard output goes to; None if it goes elsewhere."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def knows_links() -> bool:
    """Whether standard output goes to a terminal that shows links (OSC 8), as far as the environment tells.

    FORCE_HYPERLINK decides if it is set: 0 is no, anything else is yes.
    """
    forced = os.environ.get("FORCE_HYPERLINK")
    if forced:
        return forced != "0"
    if not sys.stdout.isatty():
        return False
    version = os.environ.get("VTE_VERSION", "")
    return (
        any(os.environ.get(name) for name in _WITH_LINKS)
        or os.environ.get("TERM_PROGRAM") in _PROGRAMS_WITH_LINKS
        or (version.isdigit() and int(version) >= _FIRST_VTE_WITH_LINKS)
    )


def print_markdown(text: str) -> None:
    """Print a page: laid out where standard output is a terminal, as it stands elsewhere."""
    colour = click.get_current_context().color
    if not sys.stdout.isatty():
        click.echo(text)
        return
    import shutil

    from rich.console import Console
    from rich.markdown import Markdown

    width = min(shutil.get_terminal_size().columns, WIDEST_PAGE)
    Console(width=width, no_color=colour is False).print(Markdown(text))
