"""One run of `check` or `fix`: options in, a report and an exit code out."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import click

from perflint.interface import CLEAN, ERROR, FINDINGS, FORMATS

if TYPE_CHECKING:
    from rich.progress import Progress

    from perflint.fix.fixer import Choose
    from perflint.profile.ranking import Ranking
    from perflint.project.config import Config
    from perflint.project.discover import Found
    from perflint.report.terminal import Terminal
    from perflint.rule.finding import Finding
    from perflint.run.result import Result
    from perflint.run.run import Run
    from perflint.run.watch import Watched
    from perflint.run.workers import Workers

PROGRESS_AFTER_S = 1.0


class Invocation:
    """One run of `check` or `fix`."""

    def __init__(
        self,
        *,
        fixing: bool,
        paths: tuple[str, ...],
        add_ignores: bool = False,
        update_baseline: bool = False,
        diff_base: str | None = None,
        min_cost: str | None = None,
        interactive: bool = False,
        fail_on: str = "any",
        profile: str | None = None,
        profile_threshold: float | None = None,
        **options: Any,
    ) -> None:
        self.fixing = fixing or options["diff"]
        self.add_ignores, self.fail_on = add_ignores, fail_on
        self.update_baseline, self.diff_base, self.interactive = update_baseline, diff_base, interactive
        self.min_cost = min_cost
        self.paths = paths or (".",)
        self.options = options
        self.watched: Watched | None = None
        self.notes: list[str] = []
        self.ranking = self._ranking(profile, profile_threshold)
        if add_ignores and (self.fixing or self._reads_stdin):
            raise click.UsageError("--add-ignores rewrites files; it goes with neither fixing nor standard input")
        if interactive and (self._reads_stdin or options["diff"]):
            raise click.UsageError("--interactive shows changes and asks; it goes with neither --diff nor standard input")
        if update_baseline and (self.fixing or self._reads_stdin or add_ignores or diff_base or options["no_baseline"]):
            raise click.UsageError("--update-baseline writes all findings of PATHS, and goes with no option that changes these")
        if min_cost and (self.fixing or update_baseline or add_ignores):
            raise click.UsageError("--min-cost chooses what is reported; it goes with nothing that changes files")
        if diff_base and (self.fixing or self._reads_stdin):
            raise click.UsageError("--diff-base compares what is reported; it goes with neither fixing nor standard input")

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
            failed = ERROR if result.has_failed else CLEAN
            for problem in run.problems:
                click.echo(f"warning: {problem}", err=True)
            if self.update_baseline:
                return failed or self._update_baseline(run, result)
            self._narrow(run, result)
        if self.ranking is not None:
            self.ranking.rank(result, run.shows)
        return max(failed, self._report(run, found, result))

    def standing(self, *further: Sequence[str]) -> tuple[list[Result], list[str], tuple[str, ...]]:
        """What a check gives as configured, and with some further assumptions each time; the files; what is declared here."""
        with _user_errors():
            run, found = self._start()
            declared = run.configurations.of(os.getcwd()).assume
            others = [self._run(assume=(*declared, *names)) for names in further]
            results = [self._result(run, found), *(self._result(other, self._found(other)) for other in others)]
            return results, found.files, declared

    def watch(self) -> NoReturn:
        """Check and report at each change, until Ctrl-C."""
        if self.fixing or self.add_ignores or self.update_baseline or self._reads_stdin or self.options["show_files"]:
            raise click.UsageError("--watch reports only; it goes with neither fixing nor standard input")
        from perflint.run.watch import changes

        for _ in changes(self._watched):
            click.clear()
            try:
                self.run()
            except click.ClickException as error:
                error.show()
            gc.collect()  # what this check has left behind: Python would wait for a million new objects
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
        run = self._run()
        found = self._found(run)
        if assumed := run.configurations.of(os.getcwd()).assume:
            from perflint.report.assumptions import contradictions

            for line in contradictions(found.files, assumed):
                raise click.ClickException(line)
        return run, found

    def _run(self, **given: Any) -> Run:
        from perflint.run.run import Run

        cached, measured = not self.options.get("no_cache"), self.ranking is not None
        settings = (self._fixed_config(), {**self._overrides(), **given})
        return Run(None, *settings, cached=cached, near=self._first_folder(), measured=measured)

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
            if self.options[key] and not names:
                raise click.UsageError(f"--{key.replace('_', '-')} names nothing")
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
        if self.options.get("baseline"):
            given["baseline"] = os.path.abspath(self.options["baseline"])
        if self.options.get("no_baseline"):
            given["baseline"] = None
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
                raise click.UsageError("standard input (`-`, --stdin-filename) and other paths cannot be checked together")
            found = Found()
            name = self.options.get("stdin_filename") or "stdin.py"
            run.text(os.path.abspath(name), sys.stdin.buffer.read(), found)
            return found
        if "-" in self.paths:
            raise click.UsageError("standard input and other paths cannot be checked together")
        found = run.find(self.paths)
        if self.options.get("force_exclude"):
            from perflint.project.discover import drop_excluded

            drop_excluded(found, run.configurations.of)
        return found

    def _first_folder(self) -> str:
        """The folder that the first path is, or is in."""
        path = os.path.abspath(self._asked[0])
        return path if os.path.isdir(path) else os.path.dirname(path)

    @property
    def _reads_stdin(self) -> bool:
        return self.paths == ("-",) or bool(self.options.get("stdin_filename"))

    def _result(self, run: Run, found: Found) -> Result:
        with _progress(0 if self.interactive else len(found.files)) as on_file, self._workers() as workers:
            if not self.fixing:
                return run.check(found, on_file, workers)
            writing = not self.options["diff"] and not self._reads_stdin
            unsafe = bool(self.options["unsafe_fixes"])
            choose = self._chosen(run, found)
            return run.fix(found, unsafe=unsafe, write_files=writing, on_file=on_file, choose=choose, workers=workers)

    def _chosen(self, run: Run, found: Found) -> Choose | None:
        """Which fixes are applied: those of known findings are not, and some others perhaps."""
        new: Choose | None = None
        if any(run.configurations.of(os.path.dirname(path)).baseline for path in found.files):
            from perflint.report.baseline import Baselines

            new = Baselines(run, self._asked).new
        if not self.interactive:
            return new
        from perflint.fix.asking import Asking

        asking = Asking(self._terminal(run, plain=False))
        if new is None:
            return asking
        return lambda source, findings, fixable: asking(source, findings, new(source, findings, fixable))

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
        from perflint.run.dealing import ParallelError
        from perflint.run.executors import ExecutorError, opened

        try:
            with opened(executor) as executors:
                yield Workers(jobs, executors, warn)
        except (ExecutorError, ParallelError) as error:
            raise click.ClickException(f"--executor {error}") from None

    # -- what is known -----------------------------------------------------------------------------------------------

    def _narrow(self, run: Run, result: Result) -> None:
        """Leave the findings out that a baseline knows, those that run too seldom, and those at lines that have not changed."""
        from perflint.project.config import ConfigError

        self.notes = []
        if any(run.configurations.of(folder).baseline for folder in _folders(result)):
            from perflint.report.baseline import Baselines

            self.notes += Baselines(run, self._asked).narrow(result).lines(fixing=self.fixing)
        if self.min_cost is not None:
            from perflint.report.rates import narrow as narrow_to_rate

            self.notes += narrow_to_rate(result, self.min_cost)
        if self.diff_base is not None:
            from perflint.project.git import GitError
            from perflint.report.changes import narrow

            try:
                self.notes += narrow(result, self.diff_base, self._first_folder())
            except GitError as error:
                raise ConfigError(f"--diff-base: {error}") from None

    def _update_baseline(self, run: Run, result: Result) -> int:
        from perflint.report.baseline import Baselines

        lines = Baselines(run, self._asked).update(result)
        if result.checked and not lines:
            raise click.UsageError("--update-baseline needs --baseline FILE, or `baseline` in the configuration")
        for line in lines or ["No Python files were found."]:
            click.echo(line, err=True)
        return CLEAN

    @property
    def _asked(self) -> tuple[str, ...]:
        """The paths that are checked."""
        return (self.options.get("stdin_filename") or "stdin.py",) if self._reads_stdin else self.paths

    # -- reporting ---------------------------------------------------------------------------------------------------

    def _report(self, run: Run, found: Found, result: Result) -> int:
        if self.add_ignores:
            return self._add_ignores(run, found, result)
        if self.options["diff"]:
            self._print_patches(result)
            self._summarise(run, result, err=True)
            return CLEAN if self.options["exit_zero"] or not result.fixed else FINDINGS
        if self.fixing and self._reads_stdin:
            path = found.files[0]
            sys.stdout.buffer.write(next((f.after for f in result.fixed), run.read(path) or b""))
            sys.stdout.buffer.flush()
        self._print(run, result, err=self.fixing and self._reads_stdin)
        fails = any(self._fails(finding) for _, finding in result.findings)
        return FINDINGS if fails and not self.options["exit_zero"] else CLEAN

    def _fails(self, finding: Finding) -> bool:
        """Whether a finding makes the exit code 1."""
        from perflint.rule.finding import Severity

        match self.fail_on:
            case "actionable":
                return not finding.is_advice and finding.severity is not Severity.INFO
            case "error" | "warning" | "info":
                severities = list(Severity)
                return severities.index(finding.severity) <= severities.index(Severity(self.fail_on))
        return self.fail_on == "any"

    def _print_patches(self, result: Result) -> None:
        from perflint.fix.diff import coloured, patch, without_controls

        chosen, is_terminal = click.get_current_context().color, sys.stdout.isatty()
        in_colours = is_terminal if chosen is None else chosen
        for fixed in result.fixed:
            for line in patch(fixed):
                shown = without_controls(line) if is_terminal or in_colours else line
                sys.stdout.buffer.write(coloured(shown) if in_colours else shown)
        sys.stdout.buffer.flush()

    def _print(self, run: Run, result: Result, *, err: bool = False) -> None:
        from perflint.report.formats import writer
        from perflint.report.report import Report

        target = self.options["output_file"]
        terminal = self._terminal(run, plain=err or target is not None)
        result.docs_url = run.configurations.of(os.getcwd()).docs_url
        report = Report(result, run.rules, terminal, self.fixing, self._asked, self._notes)
        lines = writer(self._format, statistics=self.options["statistics"])(report)
        if target is not None:
            from perflint.report.output import write_text

            try:
                write_text(target, "".join(click.unstyle(line) + "\n" for line in lines))
            except OSError as error:
                raise click.ClickException(f"{target}: cannot be written: {error.strerror}") from None
        else:
            for line in lines:
                click.echo(line, err=err)
        if self._is_for_people:
            self._summarise(run, result, err=err or target is not None)

    def _terminal(self, run: Run, *, plain: bool) -> Terminal:
        from perflint.report.terminal import PLAIN, Terminal, columns, knows_links, pages

        if plain:
            return PLAIN
        docs_url = run.configurations.of(os.getcwd()).docs_url
        return Terminal(columns(), pages(run.rules, docs_url) if self._is_for_people and knows_links() else {})

    @cached_property
    def _format(self) -> str:
        return self.options["output_format"] or self._configured_format() or FORMATS[0]

    @property
    def _is_for_people(self) -> bool:
        from perflint.report.formats import FOR_PEOPLE

        return self._format in FOR_PEOPLE

    def _configured_format(self) -> str | None:
        from perflint.project.config import Configurations

        config = Configurations(self._fixed_config(), {}).of(os.getcwd())
        if config.output_format is not None and config.output_format not in FORMATS:
            raise click.ClickException(f"{config.path}: `output-format` must be one of {', '.join(FORMATS)}")
        return config.output_format

    def _summarise(self, run: Run, result: Result, *, err: bool) -> None:
        from perflint.report import grouped, summary

        if self.options["quiet"]:
            return
        if not result.checked:
            click.echo("No Python files were found.", err=True)
            return
        if self.fixing:
            lines = summary.of_fixes(result, unsafe=bool(self.options["unsafe_fixes"]), writing=not self.options["diff"])
        elif self.options["statistics"]:
            lines = summary.of_findings(result)
        elif self._format == "grouped":
            lines = summary.of_findings(result, sum(len(block.flaws) for block in grouped.blocks(result)))
        else:
            lines = chain(summary.budgets(result), summary.of_findings(result))
        for line in chain(lines, self._notes):
            for part in grouped.wrapped("", line, self._terminal(run, plain=False)):
                click.echo(part, err=err)

    @property
    def _notes(self) -> list[str]:
        """What a reader has to know of the findings that are left out."""
        return [*self.notes, *(self.ranking.notes() if self.ranking is not None else ())]

    def _add_ignores(self, run: Run, found: Found, result: Result) -> int:
        from perflint.fix.fixer import WriteError, write, writer
        from perflint.report.text import printable
        from perflint.rule.finding import ENGINE
        from perflint.rule.suppress import with_ignores
        from perflint.run.run import shown
        from perflint.source.cells import CannotWriteBack

        paths = {shown(path): path for path in found.files}
        added = 0
        for checked in result.checked:
            findings = [f for f in checked.findings if f.category != ENGINE]
            if checked.source is None or not findings:
                continue
            path = paths[checked.path]
            source = checked.source
            try:
                with_text = writer(source, run.read(path))
                write(path, with_text(source.raw), with_text(with_ignores(source, findings)))
            except (WriteError, CannotWriteBack) as error:
                raise click.ClickException(printable(f"{checked.path}: {error}")) from None
            added += len(findings)
        click.echo(f"Added suppressions for {added} findings.", err=True)
        return CLEAN


def _folders(result: Result) -> set[str]:
    """The absolute paths of the folders whose files were checked."""
    return {os.path.dirname(os.path.abspath(checked.path)) for checked in result.checked}


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
