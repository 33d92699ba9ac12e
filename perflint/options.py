"""Options that several commands have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perflint.interface import FORMATS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])


def rule_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What completes a list of rules, or the name of one."""
    from perflint.completion import names

    return names(incomplete, groups=isinstance(parameter, click.Option))


RULES: dict[str, Any] = {"metavar": "A,B", "multiple": True, "shell_complete": rule_names}
"""What options have in common that take rules and groups."""


def _set_colour(ctx: click.Context, _: click.Parameter, choice: str) -> None:
    from perflint.report.terminal import wants_colour

    ctx.color = wants_colour(choice)


colour = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    expose_value=False,
    callback=_set_colour,
    help="Print in colours; `auto` does on a terminal, as FORCE_COLOR and NO_COLOR say.",
)


assume = click.option(
    "--assume",
    help="Apply fixes that rest on these assumptions about the project; `ordinary` is a set of them.",
    metavar="A,B",
    multiple=True,
)


_SECTIONS = {
    "Rules": ("select", "extend_select", "ignore"),
    "Fixes": ("fixes", "diff", "interactive", "unsafe_fixes", "assume", "runtime"),
    "Findings that are reported": (
        *("baseline", "no_baseline", "update_baseline", "diff_base", "min_cost", "add_ignores", "profile", "profile_threshold"),
    ),
    "Report and exit code": ("output_format", "output_file", "statistics", "quiet", "color", "fail_on", "exit_zero"),
    "Files": ("exclude", "force_exclude", "respect_gitignore", "stdin_filename", "show_files"),
    "The run": ("config", "isolated", "watch", "jobs", "executor", "no_cache", "cache_dir"),
}
"""The options of `check` and `fix` by what they are about, in the order of the help."""


class Sectioned(click.Command):
    """A command with many options, which its help shows by what they are about."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section of options for each of `_SECTIONS`."""
        options = {parameter.name: parameter for parameter in self.get_params(ctx)}
        for title, names in _SECTIONS.items():
            of_section = [options.pop(name) for name in names if name in options]
            _write(ctx, formatter, title, of_section)
        _write(ctx, formatter, "Other", options.values())


def _write(ctx: click.Context, formatter: click.HelpFormatter, title: str, options: Iterable[click.Parameter]) -> None:
    records = [option.get_help_record(ctx) for option in options]
    with formatter.section(title):
        formatter.write_dl([record for record in records if record is not None])


def in_copies(command: Command) -> Command:
    """The options of `verify` and `profile` about the copies that they run, and what ends a run."""
    options = [
        click.option(
            "--root", type=click.Path(exists=True, file_okay=False), help="The folder to copy.  [default: the project]"
        ),
        click.option(
            "--link", multiple=True, type=click.Path(exists=True), help="Share this file or folder instead of copying it."
        ),
        click.option("--max-copy-mib", default=1024, show_default=True, help="Refuse to copy more than this."),
        click.option("--python", default=sys.executable, help="The interpreter that runs the script.  [default: this one]"),
        click.option("--max-steps", type=click.IntRange(1), metavar="N", help="Stop each run after N optimizer steps."),
        click.option(
            "--max-seconds",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help="Stop the first run with the optimizer step that ends after so long, and the others after as many steps.",
        ),
        click.option("--timeout", type=float, metavar="SECONDS", help="Give up on a run that takes longer."),
        click.option("--quiet", "-q", is_flag=True, help="Print no progress."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def shared(command: Command) -> Command:
    """The options of `check` and `fix`."""
    options = [
        click.argument("paths", nargs=-1),
        click.option("--select", help="Run these rules or groups only; `all` is every rule.", **RULES),
        click.option("--extend-select", help="Run these rules or groups too.", **RULES),
        click.option("--ignore", help="Leave these rules or groups out.", **RULES),
        click.option(
            "--unsafe-fixes/--no-unsafe-fixes",
            default=None,
            help="Apply unsafe fixes, too.",
        ),
        assume,
        click.option("--diff", is_flag=True, help="Print the fixes as a patch; write nothing."),
        click.option("--output-format", type=click.Choice(FORMATS), help="How findings are printed.  [default: grouped]"),
        click.option("--output-file", "-o", type=click.Path(dir_okay=False), help="Write the report to a file."),
        click.option("--statistics", is_flag=True, help="Print how many findings each rule has, by what can be fixed."),
        click.option("--exit-zero", "-e", is_flag=True, help="Exit with 0 even if there are findings."),
        click.option("--config", metavar="FILE", help="Use this pyproject.toml or perflint.toml for all files."),
        click.option("--isolated", is_flag=True, help="Read no configuration file."),
        click.option("--runtime/--no-runtime", default=None, help="Let fixes import perflint_runtime."),
        click.option(
            "--baseline",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="Leave out the findings that this file holds.",
        ),
        click.option("--no-baseline", is_flag=True, help="Report the findings of the configured baseline, too."),
        click.option("--exclude", help="Leave out paths that match, besides the defaults.", metavar="PATTERN", multiple=True),
        click.option("--force-exclude", is_flag=True, help="Leave out excluded files even if PATHS names them, as hooks do."),
        click.option("--respect-gitignore/--no-respect-gitignore", default=None, help="Leave out what .gitignore names."),
        click.option("--stdin-filename", metavar="NAME", help="The name of the file that comes from standard input (`-`)."),
        click.option("--show-files", is_flag=True, help="Print the files that would be checked, and stop."),
        click.option("--no-cache", is_flag=True, envvar="PERFLINT_NO_CACHE", help="Check every file anew; remember nothing."),
        click.option(
            "--cache-dir",
            type=click.Path(file_okay=False),
            envvar="PERFLINT_CACHE_DIR",
            help="Where results are remembered.  [default: .perflint_cache in the project]",
        ),
        click.option(
            "--jobs", "-j", type=click.IntRange(1), metavar="N", help="Run in up to N processes.  [default: the cores at hand]"
        ),
        click.option("--executor", metavar="NAME", help="Run on a cluster: dask:ADDRESS, or an executor, as MODULE:NAME."),
        click.option("--quiet", "-q", is_flag=True, help="Print findings only, no summary."),
        colour,
    ]
    for option in reversed(options):
        command = option(command)
    return command
