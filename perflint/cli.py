"""The command line. Follows ruff's wherever ruff has the thing."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from perflint.interface import CLEAN, ERROR, INTERRUPTED
from perflint.interrupts import noted
from perflint.options import RULES, Sectioned, assume, colour, in_copies, rule_names, shared


def main() -> NoReturn:
    """Run the command line; never shows a traceback for what a user can cause."""
    if sys.version_info >= (3, 11):
        sys.setrecursionlimit(30_000)  # Python calls no longer use the C stack there
    gc.set_threshold(1_000_000, 20, 50)  # trees are many small objects that die together, in `Session.facts`
    atexit.register(gc.freeze)  # else Python looks through all of them for garbage right before it ends
    warnings.simplefilter("ignore")  # the parser warns about the linted files
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us; a file opened next would take its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the process is
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a linted line may not fit the terminal's encoding
    cli.main(prog_name="perflint")


class _Group(click.Group):
    """Commands that return an exit code, where click's own are 1 for every error; says what to write instead of a wrong one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            owners = [name for name, command in self.commands.items() if _has_option(command, error.option_name)]
            if not owners:
                raise
            other = " (or run `perflint fix`)" if error.option_name == "--fix" else ""
            hint = f"`{error.option_name}` is an option of `perflint {owners[0]}`: write it behind the command{other}"
            raise click.UsageError(hint, ctx) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands:
            if name == "version":
                raise click.UsageError("the version is printed by `perflint --version`", ctx)
            if os.path.exists(name) or name == "-":
                raise click.UsageError(f"a command is missing: `perflint check {name}` reports what is slow there", ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
        except (click.exceptions.Abort, KeyboardInterrupt) as error:
            status = INTERRUPTED
            if isinstance(error.__cause__, EOFError):  # click takes one for a Ctrl-D; those at its own prompts have no cause
                _explain(error.__cause__)
                status = ERROR
        except Exception as error:
            if not noted():
                _explain(error)
            status = ERROR
        sys.exit(INTERRUPTED if noted() else status)


def _has_option(command: click.Command, name: str) -> bool:
    return any(name in (*parameter.opts, *parameter.secondary_opts) for parameter in command.params)


def _explain(error: Exception) -> None:
    """Show an error that ends the run; with a traceback where it is a bug."""
    if isinstance(error, click.ClickException):
        error.show()
    elif isinstance(error, OSError) and error.filename is None:
        click.ClickException(f"the output cannot be written: {error.strerror}").show()
    elif isinstance(error, EOFError) and "marshal" in str(error):
        click.ClickException("Python's bytecode of a module is cut off: delete the folders `__pycache__` of perflint").show()
    else:
        import traceback

        traceback.print_exception(error)
        click.echo(f"{error}\nThis is a bug in perflint or in a rule pack: please report it with the lines above.", err=True)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="perflint-torch", prog_name="perflint")
def cli() -> None:
    """Find what makes PyTorch training and evaluation code slow, and rewrite it.

    Exit codes: 0 nothing found, 1 findings (for `fix`: findings left), 2 wrong usage or configuration.
    """
    try:
        os.getcwd()
    except OSError:
        raise click.ClickException("the working directory does not exist any more; change to another one") from None


class _OfScript(click.Command):
    """A command with a script, whose own options are easily taken for those of the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = f"no such option: {error.option_name}; options of the script go behind `--`"
            raise click.UsageError(hint, ctx) from None


@cli.command(cls=Sectioned)
@shared
@click.option("--watch", "-w", is_flag=True, help="Check again whenever a file changes.")
@click.option("--fix", "fixes", is_flag=True, help="Fix what can be fixed, like `perflint fix`.")
@click.option(
    "--fail-on",
    type=click.Choice(["any", "error", "warning", "info", "actionable", "never"]),
    default="any",
    show_default=True,
    help="Which findings exit with 1: those of this severity or a higher one, any, or errors and warnings that can be fixed.",
)
@click.option("--update-baseline", is_flag=True, help="Write the present findings to the baseline instead of reporting them.")
@click.option("--diff-base", metavar="REV", help="Report findings at lines only that have changed since git's commit REV.")
@click.option(
    "--min-cost",
    type=click.Choice(["per-parameter", "per-sample", "per-step", "per-interval", "per-epoch"]),
    help="Report findings only whose code is known to run at least this often.",
)
@click.option("--add-ignores", is_flag=True, help="Add a suppression comment for each finding instead of reporting it.")
@click.option("--profile", metavar="FILE", help="Rank findings by a record of `perflint profile`; hide what costs nothing.")
@click.option(
    "--profile-threshold",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Hide findings at lines that cost less than this part of a step.  [default: 0.1]",
)
def check(fixes: bool, fail_on: str, add_ignores: bool, watch: bool, **options: Any) -> int:
    """Report what is slow in PATHS.

    PATHS are files and directories, or `-` for standard input; by default the working directory.
    """
    from perflint.invocation import Invocation

    invocation = Invocation(fixing=fixes, add_ignores=add_ignores, fail_on=fail_on, **options)
    return invocation.watch() if watch else invocation.run()


@cli.command(cls=Sectioned)
@shared
@click.option("--interactive", "-i", is_flag=True, help="Show each fix, and ask before it is applied.")
def fix(**options: Any) -> int:
    """Rewrite what is slow in PATHS.

    PATHS are files and directories, or `-` for standard input; by default the working directory. Only safe fixes are
    applied, which leave what the program computes as it is, unless --unsafe-fixes is given; and those that rest on assumptions
    about the project that are declared with --assume or in its configuration.
    """
    from perflint.invocation import Invocation

    return Invocation(fixing=True, **options).run()


@cli.command()
@click.argument("paths", nargs=-1)
@click.option("--cache-dir", type=click.Path(file_okay=False), envvar="PERFLINT_CACHE_DIR", help="The cache to remove.")
def clean(paths: tuple[str, ...], cache_dir: str | None) -> int:
    """Remove the cache of earlier runs.

    It is that of the projects of PATHS; by default of the working directory's.
    """
    from perflint.project.config import ConfigError
    from perflint.run.run import Run
    from perflint.run.store import remove

    overrides = {"cache_dir": os.path.abspath(cache_dir)} if cache_dir else {}
    for path in paths:
        if not os.path.lexists(path):
            raise click.ClickException(f"{path}: no such file or directory")
    try:
        for folder in dict.fromkeys(Run((), None, overrides).cache_folder(os.path.abspath(p)) for p in paths or (".",)):
            if remove(folder):
                click.echo(f"Removed {folder}", err=True)
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from None
    return CLEAN


@cli.command()
@click.argument("paths", nargs=-1)
@click.option("--assume", help="Count these as declared, too.", metavar="A,B", multiple=True)
@click.option(
    "--select", help="Count the fixes of these rules or groups only; `all` is every rule.", metavar="A,B", multiple=True
)
@click.option("--extend-select", help="Count the fixes of these, too.", metavar="A,B", multiple=True)
@click.option("--config", metavar="FILE", help="Use this pyproject.toml or perflint.toml for all files.")
@click.option("--isolated", is_flag=True, help="Read no configuration file.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def assumptions(paths: tuple[str, ...], output_format: str, **options: Any) -> int:
    """Show what declaring assumptions would buy.

    For each assumption about the project of PATHS: whether it is declared, how many fixes rest on it, and where the source
    speaks against it. Then how many fixes there are as configured, with assumptions, and with the runtime.
    """
    from perflint.invocation import Invocation
    from perflint.report.assumptions import FURTHER, as_json, standings, table

    unset = ("ignore", "exclude")
    given = {**dict.fromkeys(unset, ()), **options}
    results, files, declared = Invocation(fixing=False, paths=paths, diff=False, **given).standing(*FURTHER)
    found = standings(results[-1], files, declared)
    if output_format == "json":
        click.echo(as_json(found))
        return CLEAN
    for line in table(results, found):
        click.echo(line)
    return CLEAN


@cli.command()
@click.argument("rule", shell_complete=rule_names)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@colour
def explain(rule: str, output_format: str) -> int:
    """Print the page of a RULE, of a group, or of an assumption.

    It says what the rule finds, why that is slow, what to write instead, and when its fix is safe.
    """
    from perflint.project.config import ConfigError
    from perflint.report.explain import as_json, other_pages, page
    from perflint.rule.registry import all_rules
    from perflint.rule.selection import require_known

    rules = {r.name: r for r in all_rules()}
    others = other_pages(rules.values())
    try:
        require_known(rule, {*rules, *others})
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    shown = rules.get(rule)
    text = page(shown) if shown is not None else others[rule]
    if output_format == "text":
        from perflint.report.terminal import print_markdown

        print_markdown(text)
    else:
        import json

        click.echo(as_json(shown) if shown is not None else json.dumps({"name": rule, "page": text}, indent=2))
    return CLEAN


@cli.command()
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--options", is_flag=True, help="List what can be set for single rules, with the defaults; JSON always has it.")
def rules(output_format: str, options: bool) -> int:
    """List the rules.

    Each with its severity, its group, what it costs, whether it offers fixes, what these were measured to do to the steps per
    second (`-`: not measured), and what it finds. What those with a `*` find is reported if they are selected.
    """
    from perflint.report.explain import listed_options, listing, listing_json
    from perflint.rule.registry import all_rules

    text = listed_options if options else listing
    click.echo(listing_json(all_rules()) if output_format == "json" else text(all_rules()))
    return CLEAN


@cli.command(cls=_OfScript)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--unsafe-fixes", is_flag=True, help="Apply unsafe fixes, too.")
@click.option("--select", help="Fix these rules or groups only.", **RULES)
@click.option("--extend-select", help="Fix these rules or groups too.", **RULES)
@click.option("--ignore", help="Leave these rules or groups out.", **RULES)
@assume
@click.option("--runtime/--no-runtime", default=None, help="Let fixes import perflint_runtime.")
@click.option("--against", type=click.Path(exists=True, file_okay=False), help="Compare with this folder, not with the fixes.")
@click.option("--before", metavar="REV", help="Compare git's version REV with the present one, not with the fixes.")
@click.option("--compile", is_flag=True, help="Show where `torch.compile` breaks graphs instead, and what it compiles again.")
@click.option("--repeats", default=6, show_default=True, help="Timed runs of each version.", type=click.IntRange(2))
@click.option("--bisect", is_flag=True, help="If the results differ, find the fix that is to blame.")
@click.option("--keep-faster", is_flag=True, help="Then apply to your tree the fixes that verify as equal and faster.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write the record to a file.")
@click.option("--html", "html_file", type=click.Path(dir_okay=False), help="Write a page with plots to a file.")
@in_copies
def verify(**options: Any) -> int:
    """Run a script as it is and fixed; compare results and speed.

    SCRIPT may be a notebook. Both run, in turn, in copies of the project; your files stay as they are. ARGUMENTS behind
    `--` go to the script. Exit codes: 0 the results are the same, 1 they differ, or an assumption is declared that the
    program violates, 2 a failure or wrong usage.
    """
    from perflint.verify.command import run_command

    return run_command(options)


@cli.command(cls=_OfScript)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--select", help="Look for these rules or groups only.", **RULES)
@click.option("--extend-select", help="Look for these rules or groups too.", **RULES)
@click.option("--ignore", help="Leave these rules or groups out.", **RULES)
@click.option("--assume", help="Take these assumptions about the project for declared.", metavar="A,B", multiple=True)
@click.option("--confirm", is_flag=True, help="Print which assumptions held, as a line for the configuration.")
@click.option("--runtime/--no-runtime", default=None, help="Let fixes import perflint_runtime.")
@click.option("--steps", default=20, show_default=True, help="Steps that torch's profiler records.", type=click.IntRange(0))
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write the record, for `check --profile`.")
@in_copies
def profile(**options: Any) -> int:
    """Run a script; rank its lines and findings by cost.

    SCRIPT may be a notebook. It runs twice in copies of the project, once to count waits and once to time its lines; your
    files stay as they are. ARGUMENTS behind `--` go to the script. Exit codes: 0; 1 if an assumption is declared that the
    program violates; 2 if the script fails.
    """
    from perflint.profile.command import run_command

    return run_command(options)


@cli.command()
@click.option("--yes", "-y", is_flag=True, help="Write all, and ask nothing.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
def init(**options: bool) -> int:
    """Set up the project of the working directory.

    Offers a configuration, a baseline of what there is, and hooks for pre-commit. Each is shown before it is written; what
    exists is added to, never overwritten.
    """
    from perflint.init import run_command

    return run_command(**options)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print what makes a shell complete commands and rules.

    Bash: put `eval "$(perflint completion bash)"` into ~/.bashrc; zsh: the same into ~/.zshrc, behind `compinit`; fish:
    `perflint completion fish > ~/.config/fish/completions/perflint.fish`.
    """
    from perflint.completion import script

    click.echo(script(shell, cli))
    return CLEAN


@cli.command()
def server() -> int:
    """Serve an editor (Language Server Protocol).

    It shows findings, fixes and rule pages. Editors start it and talk to it over standard input and output; docs/editors.md
    says how to set them up.
    """
    from perflint.extras import needed

    with needed("server", "pygls"):
        from perflint.server.server import serve
    serve()
    return CLEAN


@cli.command()
@click.option("--root", type=click.Path(exists=True, file_okay=False), default=".", help="The workspace.  [default: here]")
@click.option("--python", help="The interpreter that the tool `verify` runs scripts with.  [default: this one]")
@click.option("--run/--no-run", "may_run", default=True, help="Whether there is the tool `verify`, which runs code.")
def mcp(root: str, python: str | None, may_run: bool) -> int:
    """Serve a coding agent (Model Context Protocol).

    Its tools are check, fix, explain, rules and verify. Agents start it and talk to it over standard input and output;
    docs/agents.md says how. Nothing outside of the workspace is read or written, and no code is run but by `verify`.
    """
    from perflint.extras import needed

    with needed("mcp", "mcp"):
        from perflint.mcp_server.server import serve
    serve(root, python, may_run=may_run)
    return CLEAN


def run_for_tests(arguments: Sequence[str]) -> Any:
    """The command line in this process, for tests: an object with `exit_code`, `stdout` and `stderr`."""
    from click.testing import CliRunner

    return CliRunner().invoke(cli, list(arguments))
