"""The command line. Follows ruff's wherever ruff has the thing."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from perflint.interrupts import noted

if TYPE_CHECKING:
    from rich.progress import Progress

    from perflint.profile.ranking import Ranking
    from perflint.project.config import Config
    from perflint.project.discover import Found
    from perflint.run.run import Result, Run
    from perflint.run.watch import Watched
    from perflint.run.workers import Workers

CLEAN, FINDINGS, ERROR, INTERRUPTED = 0, 1, 2, 130
FORMATS = ("full", "concise", "json", "json-lines", "github")
PROGRESS_AFTER_S = 1.0

Command = TypeVar("Command", bound=Callable[..., Any])


def main() -> NoReturn:
    """Run the command line; never shows a traceback for what a user can cause."""
    if sys.version_info >= (3, 11):
        sys.setrecursionlimit(30_000)  # Python calls no longer use the C stack there
    gc.set_threshold(1_000_000, 20, 50)  # trees are many small objects that die together, in `Session.facts`
    warnings.simplefilter("ignore")  # the parser warns about the linted files
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us; a file opened next would take its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as the process is
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a linted line may not fit the terminal's encoding
    cli.main(prog_name="perflint")


class _Group(click.Group):
    """Commands that return an exit code, where click's own are 1 for every error."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
        except (click.exceptions.Abort, KeyboardInterrupt):
            status = INTERRUPTED
        except Exception as error:
            if not noted():
                _explain(error)
            status = ERROR
        sys.exit(INTERRUPTED if noted() else status)


def _explain(error: Exception) -> None:
    """Show an error that ends the run; with a traceback where it is a bug."""
    if isinstance(error, click.ClickException):
        error.show()
    elif isinstance(error, OSError) and error.filename is None:
        click.ClickException(f"the output cannot be written: {error.strerror}").show()
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


def _shared(command: Command) -> Command:
    """The options of `check` and `fix`."""
    options = [
        click.argument("paths", nargs=-1),
        click.option("--select", help="Run these rules or groups only; `all` is every rule.", metavar="A,B", multiple=True),
        click.option("--extend-select", help="Run these rules or groups too.", metavar="A,B", multiple=True),
        click.option("--ignore", help="Leave these rules or groups out.", metavar="A,B", multiple=True),
        click.option(
            "--unsafe-fixes/--no-unsafe-fixes",
            default=None,
            help="Apply unsafe fixes, too.",
        ),
        click.option(
            "--assume",
            help="Apply fixes that rest on these assumptions about the project; `ordinary` is a set of them.",
            metavar="A,B",
            multiple=True,
        ),
        click.option("--diff", is_flag=True, help="Print the fixes as a patch; write nothing."),
        click.option("--output-format", type=click.Choice(FORMATS), help="How findings are printed.  [default: full]"),
        click.option("--output-file", "-o", type=click.Path(dir_okay=False), help="Write the report to a file."),
        click.option("--statistics", is_flag=True, help="Print how many findings each rule has."),
        click.option("--exit-zero", "-e", is_flag=True, help="Exit with 0 even if there are findings."),
        click.option("--config", metavar="FILE", help="Use this pyproject.toml or perflint.toml for all files."),
        click.option("--isolated", is_flag=True, help="Read no configuration file."),
        click.option("--runtime/--no-runtime", default=None, help="Let fixes import perflint_runtime."),
        click.option("--exclude", help="Leave out paths that match, besides the defaults.", metavar="PATTERN", multiple=True),
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
    ]
    for option in reversed(options):
        command = option(command)
    return command


@cli.command()
@_shared
@click.option("--watch", "-w", is_flag=True, help="Check again whenever a file changes.")
@click.option("--fix", "fixes", is_flag=True, help="Fix what can be fixed, like `perflint fix`.")
@click.option("--add-ignores", is_flag=True, help="Add a suppression comment for each finding instead of reporting it.")
@click.option("--profile", metavar="FILE", help="Rank findings by a record of `perflint profile`; hide what costs nothing.")
@click.option(
    "--profile-threshold",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Hide findings at lines that cost less than this part of a step.  [default: 0.1]",
)
def check(fixes: bool, add_ignores: bool, watch: bool, **options: Any) -> int:
    """Report what is slow in PATHS.

    PATHS are files and directories, or `-` for standard input; by default the working directory.
    """
    invocation = _Invocation(fixing=fixes, add_ignores=add_ignores, **options)
    return invocation.watch() if watch else invocation.run()


@cli.command()
@_shared
def fix(**options: Any) -> int:
    """Rewrite what is slow in PATHS.

    PATHS are files and directories, or `-` for standard input; by default the working directory. Only safe fixes are
    applied, which leave what the program computes as it is, unless --unsafe-fixes is given; and those that rest on assumptions
    about the project that are declared with --assume or in its configuration.
    """
    return _Invocation(fixing=True, **options).run()


@cli.command()
@click.argument("paths", nargs=-1)
@click.option("--cache-dir", type=click.Path(file_okay=False), envvar="PERFLINT_CACHE_DIR", help="The cache to remove.")
def clean(paths: tuple[str, ...], cache_dir: str | None) -> int:
    """Remove what earlier runs remember of the projects of PATHS; by default of the working directory's."""
    from perflint.project.config import ConfigError
    from perflint.run.cache import remove
    from perflint.run.run import Run

    overrides = {"cache_dir": os.path.abspath(cache_dir)} if cache_dir else {}
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
@click.option("--config", metavar="FILE", help="Use this pyproject.toml or perflint.toml for all files.")
@click.option("--isolated", is_flag=True, help="Read no configuration file.")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def assumptions(paths: tuple[str, ...], output_format: str, **options: Any) -> int:
    """Show what declaring assumptions about the project of PATHS would buy.

    For each assumption: whether it is declared, how many fixes rest on it, and where the source speaks against it.
    """
    from perflint.report.assumptions import as_json, standings, table

    unset = ("select", "extend_select", "ignore", "exclude")
    given = {**dict.fromkeys(unset, ()), **options}
    invocation = _Invocation(fixing=False, paths=paths, diff=False, **given)
    result, files, declared = invocation.standing()
    found = standings(result, files, declared)
    for line in [as_json(found)] if output_format == "json" else table(result, found):
        click.echo(line)
    return CLEAN


@cli.command()
@click.argument("rule")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def explain(rule: str, output_format: str) -> int:
    """Print the page of a RULE, or of an assumption.

    It says what the rule finds, why that is slow, what to write instead, and when its fix is safe.
    """
    from perflint.project.config import ConfigError
    from perflint.report.explain import ASSUMPTION_PAGES, ENGINE_PAGES, as_json, page
    from perflint.rule.registry import all_rules
    from perflint.rule.selection import require_known

    rules = {r.name: r for r in all_rules()}
    others = {**{name: f"# {name}\n\n{text}" for name, text in ENGINE_PAGES.items()}, **ASSUMPTION_PAGES}
    try:
        require_known(rule, {*rules, *others})
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    shown = rules.get(rule)
    if shown is None:
        shown_page = others[rule]
        import json

        click.echo(json.dumps({"name": rule, "page": shown_page}, indent=2) if output_format == "json" else shown_page)
    else:
        click.echo(as_json(shown) if output_format == "json" else page(shown))
    return CLEAN


@cli.command()
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def rules(output_format: str) -> int:
    """List the rules.

    Each with its severity, its group, whether it offers fixes, and what it finds. Rules of severity `info` run only when
    they are selected.
    """
    from perflint.report.explain import listing, listing_json
    from perflint.rule.registry import all_rules

    click.echo(listing_json(all_rules()) if output_format == "json" else listing(all_rules()))
    return CLEAN


@cli.command(context_settings={"ignore_unknown_options": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--unsafe-fixes", is_flag=True, help="Apply unsafe fixes, too.")
@click.option("--select", help="Fix these rules or groups only.", metavar="A,B", multiple=True)
@click.option("--extend-select", help="Fix these rules or groups too.", metavar="A,B", multiple=True)
@click.option("--ignore", help="Leave these rules or groups out.", metavar="A,B", multiple=True)
@click.option("--runtime/--no-runtime", default=None, help="Let fixes import perflint_runtime.")
@click.option("--against", type=click.Path(exists=True, file_okay=False), help="Compare with this folder, not with the fixes.")
@click.option("--before", metavar="REV", help="Compare git's version REV with the present one, not with the fixes.")
@click.option("--repeats", default=4, show_default=True, help="Timed runs of each version.", type=click.IntRange(2))
@click.option("--bisect", is_flag=True, help="If the results differ, find the fix that is to blame.")
@click.option("--keep-faster", is_flag=True, help="Then apply to your tree the fixes that verify as equal and faster.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write the record to a file.")
@click.option("--html", "html_file", type=click.Path(dir_okay=False), help="Write a page with plots to a file.")
@click.option("--root", type=click.Path(exists=True, file_okay=False), help="The folder to copy.  [default: the project]")
@click.option("--link", multiple=True, type=click.Path(exists=True), help="Share this file or folder instead of copying it.")
@click.option("--max-copy-mib", default=1024, show_default=True, help="Refuse to copy more than this.")
@click.option("--python", default=sys.executable, help="The interpreter that runs the script.  [default: this one]")
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up on a run that takes longer.")
@click.option("--quiet", "-q", is_flag=True, help="Print no progress.")
def verify(**options: Any) -> int:
    """Run SCRIPT as it is and fixed, in turn, and compare results and speed.

    Both run in copies of the project, in fresh processes; your files stay as they are. ARGUMENTS behind `--` go to the
    script. Exit codes: 0 the results are the same, 1 they differ, 2 the script fails or wrong usage.
    """
    from perflint.verify.command import run_command

    return run_command(options)


@cli.command()
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--select", help="Look for these rules or groups only.", metavar="A,B", multiple=True)
@click.option("--extend-select", help="Look for these rules or groups too.", metavar="A,B", multiple=True)
@click.option("--ignore", help="Leave these rules or groups out.", metavar="A,B", multiple=True)
@click.option("--runtime/--no-runtime", default=None, help="Let fixes import perflint_runtime.")
@click.option("--steps", default=20, show_default=True, help="Steps that torch's profiler records.", type=click.IntRange(0))
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Write the record, for `check --profile`.")
@click.option("--root", type=click.Path(exists=True, file_okay=False), help="The folder to copy.  [default: the project]")
@click.option("--link", multiple=True, type=click.Path(exists=True), help="Share this file or folder instead of copying it.")
@click.option("--max-copy-mib", default=1024, show_default=True, help="Refuse to copy more than this.")
@click.option("--python", default=sys.executable, help="The interpreter that runs the script.  [default: this one]")
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up on a run that takes longer.")
@click.option("--quiet", "-q", is_flag=True, help="Print no progress.")
def profile(**options: Any) -> int:
    """Run SCRIPT and rank its lines, and the findings at them, by what they cost.

    It runs twice in copies of the project, once to count waits and once to time its lines; your files stay as they are.
    ARGUMENTS behind `--` go to the script. Exit codes: 0, or 2 if the script fails.
    """
    from perflint.profile.command import run_command

    return run_command(options)


class _Invocation:
    """One run of `check` or `fix`."""

    def __init__(
        self,
        *,
        fixing: bool,
        paths: tuple[str, ...],
        add_ignores: bool = False,
        profile: str | None = None,
        profile_threshold: float | None = None,
        **options: Any,
    ) -> None:
        self.fixing = fixing or options["diff"]
        self.add_ignores = add_ignores
        self.paths = paths or (".",)
        self.options = options
        self.watched: Watched | None = None
        self.ranking = self._ranking(profile, profile_threshold)
        if add_ignores and (self.fixing or self._reads_stdin):
            raise click.UsageError("--add-ignores rewrites files; it goes with neither fixing nor standard input")

    def run(self) -> int:
        """Find, check or fix, report."""
        with _user_errors():
            run, found = self._start()
            if self.options["show_files"]:
                from perflint.report.text import printable
                from perflint.run.run import shown

                for path in found.files:
                    click.echo(printable(shown(path)))
                return CLEAN
            result = self._result(run, found)
        for problem in run.problems:
            click.echo(f"warning: {problem}", err=True)
        return self._report(run, found, result)

    def standing(self) -> tuple[Result, list[str], tuple[str, ...]]:
        """What a check gives, the files that it looked at, and the assumptions that are declared for the working directory."""
        with _user_errors():
            run, found = self._start()
            result = self._result(run, found)
            return result, found.files, run.configurations.of(os.getcwd()).assume

    def watch(self) -> NoReturn:
        """Check and report at each change, until Ctrl-C."""
        if self.fixing or self.add_ignores or self._reads_stdin or self.options["show_files"]:
            raise click.UsageError("--watch reports only; it goes with neither fixing nor standard input")
        from perflint.run.watch import changes

        for _ in changes(self._watched):
            click.clear()
            try:
                self.run()
            except click.ClickException as error:
                error.show()
            click.echo("Watching for file changes.", err=True)
        raise AssertionError("files never stop changing")

    def _watched(self) -> Watched:
        try:
            with _user_errors():
                run, found = self._start()
                self.watched = run.watched(found)
        except click.ClickException:
            if self.watched is None:
                raise
        return self.watched  # after a change that makes no sense: what there was before

    def _start(self) -> tuple[Run, Found]:
        from perflint.run.run import Run

        cached = not self.options.get("no_cache")
        run = Run(None, self._fixed_config(), self._overrides(), cached=cached, near=self._first_folder())
        found = self._found(run)
        assumed = run.configurations.of(os.getcwd()).assume
        if assumed:
            from perflint.report.assumptions import contradictions

            for line in contradictions(found.files, assumed):
                raise click.ClickException(line)
        return run, found

    def _ranking(self, profile: str | None, threshold_percent: float | None) -> Ranking | None:
        if profile is None:
            if threshold_percent is not None:
                raise click.UsageError("--profile-threshold needs --profile")
            return None
        if self.fixing or self.add_ignores:
            raise click.UsageError("--profile ranks what is reported; it goes with neither fixing nor --add-ignores")
        from perflint.profile.costs import THRESHOLD, Costs, ProfileError
        from perflint.profile.ranking import Ranking

        try:
            return Ranking(Costs.load(profile, THRESHOLD if threshold_percent is None else threshold_percent / 100))
        except ProfileError as error:
            raise click.ClickException(str(error)) from None

    # -- setting up --------------------------------------------------------------------------------------------------

    def _overrides(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for key in ("select", "extend_select", "ignore", "assume"):
            names = tuple(n.strip() for value in self.options[key] for n in value.split(",") if n.strip())
            if names:
                given[key] = names
        if "assume" in given:
            from perflint.rule.assumptions import require_known

            try:
                require_known(given["assume"], "--assume")
            except ValueError as error:
                raise click.UsageError(str(error)) from None
        if self.options.get("cache_dir"):
            given["cache_dir"] = os.path.abspath(self.options["cache_dir"])
        if self.options["exclude"]:
            given["extend_exclude"] = self.options["exclude"]
        for key in ("runtime", "respect_gitignore", "unsafe_fixes"):
            if self.options.get(key) is not None:
                given[key] = self.options[key]
        return given

    def _fixed_config(self) -> Config | None:
        from perflint.project.config import Config, load

        if self.options["isolated"]:
            if self.options["config"]:
                raise click.UsageError("--isolated and --config exclude each other")
            return Config()
        return load(self.options["config"]) if self.options["config"] else None

    def _found(self, run: Run) -> Found:
        from perflint.project.discover import Found

        if self._reads_stdin:
            if self.paths not in (("-",), (".",)):
                raise click.UsageError("standard input and other paths cannot be checked together")
            found = Found()
            name = self.options.get("stdin_filename") or "stdin.py"
            run.text(os.path.abspath(name), sys.stdin.buffer.read(), found)
            return found
        if "-" in self.paths:
            raise click.UsageError("standard input and other paths cannot be checked together")
        return run.find(self.paths)

    def _first_folder(self) -> str:
        """The folder that the first path is, or is in."""
        first = (self.options.get("stdin_filename") or "stdin.py") if self._reads_stdin else self.paths[0]
        path = os.path.abspath(first)
        return path if os.path.isdir(path) else os.path.dirname(path)

    @property
    def _reads_stdin(self) -> bool:
        return self.paths == ("-",) or bool(self.options.get("stdin_filename"))

    def _result(self, run: Run, found: Found) -> Result:
        with _progress(len(found.files)) as on_file, self._workers() as workers:
            if not self.fixing:
                result = run.check(found, on_file, workers)
                if self.ranking is not None:
                    self.ranking.rank(result)
                return result
            writing = not self.options["diff"] and not self._reads_stdin
            unsafe = bool(self.options["unsafe_fixes"])
            return run.fix(found, unsafe=unsafe, write_files=writing, on_file=on_file, workers=workers)

    @contextlib.contextmanager
    def _workers(self) -> Iterator[Workers]:
        from perflint.run.cores import available_cores
        from perflint.run.workers import Workers

        jobs = self.options.get("jobs") or available_cores()
        warn = lambda line: click.echo(f"Warning: {line}.", err=True)
        executor = self.options.get("executor")
        if executor is None:
            yield Workers(jobs, warn=warn)
            return
        from perflint.run.executors import ExecutorError, opened
        from perflint.run.parallel import ParallelError

        try:
            with opened(executor) as executors:
                yield Workers(jobs, executors, warn)
        except (ExecutorError, ParallelError) as error:
            raise click.ClickException(f"--executor {error}") from None

    # -- reporting ---------------------------------------------------------------------------------------------------

    def _report(self, run: Run, found: Found, result: Result) -> int:
        if self.options["diff"]:
            from perflint.fix.diff import patch, without_controls

            for fixed in result.fixed:
                for line in patch(fixed):
                    sys.stdout.buffer.write(without_controls(line) if sys.stdout.isatty() else line)
            sys.stdout.buffer.flush()
            self._summarise(result, err=True)
            return CLEAN if self.options["exit_zero"] or not result.fixed else FINDINGS
        if self.fixing and self._reads_stdin:
            path = found.files[0]
            after = next((f.after for f in result.fixed), run.read(path) or b"")
            sys.stdout.buffer.write(after)
            sys.stdout.buffer.flush()
            self._print(result, err=True)
        elif self.add_ignores:
            return self._add_ignores(found, result)
        else:
            self._print(result)
        return CLEAN if self.options["exit_zero"] or not result.findings else FINDINGS

    def _print(self, result: Result, *, err: bool = False) -> None:
        from perflint.report import data, text

        output_format = self.options["output_format"] or self._configured_format() or "full"
        writers: dict[str, Callable[[Result], Iterator[str]]] = {
            "full": text.full,
            "concise": text.concise,
            "json": data.as_json,
            "json-lines": data.as_json_lines,
            "github": data.github,
        }
        writer = (
            text.statistics if self.options["statistics"] and output_format in ("full", "concise") else writers[output_format]
        )
        lines = list(writer(result))
        target = self.options["output_file"]
        if target is not None:
            try:
                with open(target, "w", encoding="utf-8") as handle:
                    handle.writelines(click.unstyle(line) + "\n" for line in lines)
            except OSError as error:
                raise click.ClickException(f"{target}: cannot be written: {error.strerror}") from None
        else:
            for line in lines:
                click.echo(line, err=err)
        if output_format in ("full", "concise"):
            self._summarise(result, err=err or target is not None)

    def _configured_format(self) -> str | None:
        from perflint.project.config import Configurations

        config = Configurations(self._fixed_config(), {}).of(os.getcwd())
        if config.output_format is not None and config.output_format not in FORMATS:
            raise click.ClickException(f"{config.path}: `output-format` must be one of {', '.join(FORMATS)}")
        return config.output_format

    def _summarise(self, result: Result, *, err: bool) -> None:
        from perflint.report import text

        if self.options["quiet"]:
            return
        if not any(True for _ in result.checked):
            click.echo("No Python files were found.", err=True)
            return
        writing = not self.options["diff"]
        for line in text.summary(result, unsafe=bool(self.options["unsafe_fixes"]), fixing=self.fixing, writing=writing):
            click.echo(line, err=err)
        for line in self.ranking.notes() if self.ranking is not None else ():
            click.echo(line, err=err)

    def _add_ignores(self, found: Found, result: Result) -> int:
        from perflint.fix.fixer import WriteError, write
        from perflint.report.text import printable
        from perflint.rule.finding import ENGINE
        from perflint.rule.suppress import with_ignores
        from perflint.run.run import shown

        paths = {shown(path): path for path in found.files}
        added = 0
        for checked in result.checked:
            findings = [f for f in checked.findings if f.category != ENGINE]
            if checked.source is None or not findings:
                continue
            path = paths[checked.path]
            source = checked.source
            try:
                write(path, source.encode(source.raw), source.encode(with_ignores(source, findings)))
            except WriteError as error:
                raise click.ClickException(printable(f"{checked.path}: {error}")) from None
            added += len(findings)
        click.echo(f"Added suppressions for {added} findings.", err=True)
        return CLEAN


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    """Show what a user can cause as one line."""
    from perflint.project.config import ConfigError
    from perflint.project.discover import PathError

    try:
        yield
    except (ConfigError, PathError, ValueError) as error:
        from perflint.report.text import printable

        raise click.ClickException(printable(str(error))) from None


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal, once a run has lasted for a second."""
    if not sys.stderr.isatty() or total < 2:
        yield lambda path: None
        return
    started = time.monotonic()
    done = 0
    bar: Progress | None = None

    def on_file(path: str) -> None:
        nonlocal done, bar
        done += 1
        if bar is None and time.monotonic() - started > PROGRESS_AFTER_S:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            bar.start()
            bar.add_task("check", total=total)
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield on_file
    finally:
        if bar is not None:
            bar.stop()


def run_for_tests(arguments: Sequence[str]) -> Any:
    """The command line in this process, for tests: an object with `exit_code`, `stdout` and `stderr`."""
    from click.testing import CliRunner

    return CliRunner().invoke(cli, list(arguments))
