"""`perflint init`: the files that a project needs to begin with perflint. Nothing is overwritten; what is there is added to."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import click

from perflint.fix.diff import patch, without_controls
from perflint.project.config import FILE_NAMES, ConfigError, configuration_in, parse, toml
from perflint.project.discover import PathError, project_root
from perflint.project.folders import Folders
from perflint.report.baseline import Baselines
from perflint.report.output import write_text
from perflint.run.cores import available_cores
from perflint.run.result import FixedFile, Result
from perflint.run.run import Run
from perflint.run.workers import Workers
from perflint.source.words import counted

BASELINE = "perflint-baseline.json"
HOOKS = ".pre-commit-config.yaml"

_SETTINGS = """\
# perflint reports what makes PyTorch code slow. `perflint rules` lists the rules, `perflint explain RULE` has a rule's page.
# assume = ["ordinary"]        # what holds for an ordinary training program; `perflint assumptions` shows what that buys
# extend-select = ["all"]      # advice, too
# extend-exclude = ["third_party/"]
"""
_HOOKS = """\
- repo: local
  hooks:
    - id: perflint-fix
      name: perflint fix
      entry: perflint fix --force-exclude --exit-zero
      language: system
      types_or: [python, jupyter]
      require_serial: true
    - id: perflint-check
      name: perflint check
      entry: perflint check --force-exclude --fail-on actionable
      language: system
      types_or: [python, jupyter]
      require_serial: true
"""
_REPOSITORIES = re.compile(r"^repos:[ \t]*(?:#.*)?$", re.M)
_ITEM = re.compile(r"^( *)- repo:", re.M)


def run_command(*, yes: bool, dry_run: bool) -> int:
    """Set up the project of the working directory. yes: ask nothing. dry_run: show, and write nothing."""
    root = project_root(os.getcwd())[0]
    setup = _Setup(root, yes or dry_run, dry_run)
    try:
        setup.run()
    except (ConfigError, PathError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    except click.Abort:
        raise click.UsageError("nobody answers; say --yes to write all, or --dry-run to look at it only") from None
    return 0


class _Setup:
    """What is asked, shown and written for the project at `root`. agrees: whether every answer is yes."""

    def __init__(self, root: str, agrees: bool, dry_run: bool) -> None:
        self._root, self._agrees, self._dry_run = root, agrees, dry_run

    def run(self) -> None:
        settings = configuration(self._root, with_baseline=False)
        checked = self._checked() if isinstance(settings, Change) else None
        if checked is not None and checked[1].findings and self._wants_baseline(checked[1]):
            settings = configuration(self._root, with_baseline=True)
        else:
            checked = None
        if self._offer(settings) and checked is not None and not self._dry_run:
            for line in Baselines(checked[0], [self._root]).update(checked[1]):
                click.echo(f"Wrote {line}")
        if not os.path.exists(os.path.join(self._root, ".git")):
            click.echo("No git repository: no hooks.")
        elif self._offer(hooks(self._root)) and not self._dry_run:
            click.echo("`pre-commit install` makes git run the hooks.")

    def _checked(self) -> tuple[Run, Result]:
        overrides = {"baseline": os.path.join(self._root, BASELINE)}
        run = Run(None, None, overrides, cached=True, near=self._root)
        return run, run.check(run.find([self._root]), workers=Workers(available_cores()))

    def _wants_baseline(self, result: Result) -> bool:
        found = f"{counted(len(result.findings), 'finding')} in {counted(len(result.checked), 'file')}."
        click.echo(f"Found {found}")
        return self._agrees or click.confirm(f"Write them to {BASELINE}, so that only new ones are reported?", default=True)

    def _offer(self, change: Change | Kept) -> bool:
        """Show a change, and make it if that is wanted; whether it was."""
        path = os.path.relpath(change.path)
        if isinstance(change, Kept):
            click.echo(f"{path} {change.reason}")
            return False
        for line in patch(FixedFile(path, (change.before or "").encode(), change.after.encode())):
            click.echo(without_controls(line).decode("utf-8", "replace"), nl=False)
        if self._dry_run or not (self._agrees or click.confirm(f"Write {path}?", default=True)):
            return False
        try:
            write_text(change.path, change.after)
        except OSError as error:
            raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None
        click.echo(f"Wrote {path}")
        return True


@dataclass(frozen=True)
class Change:
    """A file that is to be written. before: its text, None if there is no such file."""

    path: str
    before: str | None
    after: str


@dataclass(frozen=True)
class Kept:
    """A file that stays as it is, and why."""

    path: str
    reason: str


def configuration(folder: str, with_baseline: bool) -> Change | Kept:
    """A configuration for a folder: a table in its pyproject.toml, or a perflint.toml where there is none that takes one."""
    try:
        present = configuration_in(folder, Folders())
    except ConfigError as error:
        return Kept(folder, str(error))
    if present is not None:
        return Kept(present, "configures perflint already")
    own, shared = (os.path.join(folder, name) for name in FILE_NAMES)
    settings = f'baseline = "{BASELINE}"\n{_SETTINGS}' if with_baseline else _SETTINGS
    text = _read(shared)
    if text is not None and _holds_tables(added := _joined(text, f"[tool.perflint]\n{settings}")):
        return Change(shared, text, added)
    return Change(own, None, settings)


def _holds_tables(text: str) -> bool:
    """Whether a text is TOML with a table of perflint's that can be read."""
    try:
        parse(toml(text.encode())["tool"]["perflint"], "pyproject.toml")
    except (ValueError, KeyError, TypeError, ConfigError):
        return False
    return True


def hooks(folder: str) -> Change | Kept:
    """The hooks of pre-commit, which run the perflint of the environment."""
    path = os.path.join(folder, HOOKS)
    text = _read(path)
    if text is None:
        if os.path.lexists(path):
            return Kept(path, "cannot be read")
        return Change(path, None, "repos:\n" + _indented("  "))
    if "perflint" in text:
        return Kept(path, "has hooks of perflint already")
    listed = _REPOSITORIES.search(text)
    if listed is None or re.search(r"^[\w'\"]", text[listed.end() :], re.M):
        return Kept(path, f"has another shape than most; add this below `repos:`\n{_HOOKS}")
    item = _ITEM.search(text, listed.end())
    return Change(path, text, _joined(text, _indented(item[1] if item else "  "), gap=""))


def _indented(space: str) -> str:
    return "".join(f"{space}{line}" for line in _HOOKS.splitlines(keepends=True))


def _joined(text: str, added: str, gap: str = "\n") -> str:
    """A text with lines at its end, in its own line ends."""
    end = "" if not text or text.endswith("\n") else "\n"
    newline = "\r\n" if "\r\n" in text else "\n"
    return text + (f"{end}{gap if text.strip() else ''}{added}").replace("\n", newline)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as handle:
            return handle.read()
    except (OSError, ValueError):
        return None
