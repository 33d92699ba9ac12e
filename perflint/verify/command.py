"""What `perflint verify` does with its options."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from perflint.project.config import ConfigError
from perflint.project.discover import project_root
from perflint.report.output import write_text
from perflint.rule.assumptions import require_known
from perflint.rule.registry import all_rules
from perflint.run.run import Run as Check
from perflint.verify.assumed import broken
from perflint.verify.compiled import compile_lines, compile_record
from perflint.verify.fixes import Place, apply_fixes
from perflint.verify.html import page
from perflint.verify.record import record
from perflint.verify.runs import Program, ScriptFailed, run
from perflint.verify.sandbox import Sandbox, SandboxError
from perflint.verify.text import lines
from perflint.verify.verification import Outcome, Plan, blame, faster_places, verify

SAME, DIFFERENT = 0, 1
_NOT_WITH_COMPILE = ("against", "before", "bisect", "html_file", "keep_faster", "unsafe_fixes")


def run_command(options: Mapping[str, Any]) -> int:
    """Verify, report, and return the exit code.

    Raises:
        click.ClickException: the script fails, the project cannot be copied, or the options exclude each other.

    """
    if options["against"] and options["before"]:
        raise click.UsageError("--against and --before exclude each other")
    if (options["against"] or options["before"]) and (options["bisect"] or options["keep_faster"]):
        raise click.UsageError("--bisect and --keep-faster are about fixes, and with --against or --before there are none")
    if options["compile"] and (given := [name for name in _NOT_WITH_COMPILE if options[name]]):
        names = ", ".join(f"--{name.removesuffix('_file').replace('_', '-')}" for name in given)
        raise click.UsageError(f"--compile runs the program once as it is, which excludes {names}")
    plan = _plan(options)
    require_usable(options, plan.root)
    try:
        sandbox = Sandbox(plan.root, tuple(Path(link) for link in options["link"]), options["max_copy_mib"])
    except SandboxError as error:
        raise click.ClickException(str(error)) from None
    try:
        with progress(options["quiet"]) as on_run:
            if options["compile"]:
                return _compiled(sandbox, plan, options, on_run)
            return _verified(sandbox, plan, options, on_run)
    except (ScriptFailed, SandboxError, ConfigError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        sandbox.close()


def _compiled(sandbox: Sandbox, plan: Plan, options: Mapping[str, Any], on_run: Callable[[str], None]) -> int:
    on_run("the program, compiling")
    command = shlex.join(["perflint", *sys.argv[1:]])
    made = compile_record(plan.root, plan.program, plan.overrides, run(sandbox, "original", plan.program, "compile"), command)
    on_run("")
    try:
        for line in compile_lines(made):
            click.echo(line)
    finally:  # also where nobody reads to the end: `| head`
        write(options["json_file"], lambda: json.dumps(made, indent=1) + "\n")
    return SAME


def _verified(sandbox: Sandbox, plan: Plan, options: Mapping[str, Any], on_run: Callable[[str], None]) -> int:
    outcome = verify(sandbox, plan, on_run)
    made = record(plan, outcome, shlex.join(["perflint", *sys.argv[1:]]))
    differs = outcome.comparison is not None and outcome.comparison.verdict == "different"
    if differs and options["bisect"]:
        made["blamed"] = [str(place) for place in blame(sandbox, plan, outcome, on_run)]
    kept: list[Place] = []
    if options["keep_faster"] and outcome.comparison is not None:
        kept = faster_places(sandbox, plan, outcome, on_run)
    on_run("")
    try:
        for line in lines(made):
            click.echo(line)
        if "blamed" in made:
            click.echo("to blame: " + "; ".join(made["blamed"]))
        if options["keep_faster"]:
            _keep(plan, outcome, kept)
    finally:
        write(options["json_file"], lambda: json.dumps(made, indent=1) + "\n")
        write(options["html_file"], lambda: page(made, all_rules()))
    return DIFFERENT if differs or broken(made["assumptions"]) else SAME


def _plan(options: Mapping[str, Any]) -> Plan:
    root, program = program_of(options)
    if options["against"] and not (Path(options["against"]) / program.script).is_file():
        raise click.UsageError(
            f"{options['against']} has no {program.script}, which is the script's path in the project {root}; "
            "pass --root if the project is another folder"
        )
    return Plan(
        root=root,
        program=program,
        repeats=options["repeats"],
        unsafe=options["unsafe_fixes"] or options["keep_faster"],
        overrides=overrides_of(options),
        against=Path(options["against"]).resolve() if options["against"] else None,
        before=options["before"],
    )


def program_of(options: Mapping[str, Any]) -> tuple[Path, Program]:
    """The project's folder and the command to run in it, of the options of `verify` and `profile`.

    Raises:
        click.UsageError: the script is not in the project.

    """
    script = Path(options["script"]).resolve()
    root = Path(options["root"]).resolve() if options["root"] else Path(project_root(str(script))[0]).resolve()
    if root not in script.parents:
        raise click.UsageError(f"{options['script']} is not below {root}")
    here = Path.cwd().resolve()
    return root, Program(
        script=script.relative_to(root),
        arguments=options["arguments"],
        python=options["python"],
        timeout_s=options["timeout"],
        max_steps=options["max_steps"],
        max_seconds=options["max_seconds"],
        directory=here.relative_to(root) if here == root or root in here.parents else Path(),
    )


def require_usable(options: Mapping[str, Any], root: Path) -> None:
    """Look at what could fail later, before the runs, which take minutes.

    Raises:
        click.ClickException: there is no such rule, a configuration is unusable, a file cannot be written, or a link is not in
            the project.

    """
    for path in filter(None, (options["json_file"], options.get("html_file"))):
        whole = Path(path).resolve()
        if not os.access(whole if whole.exists() else whole.parent, os.W_OK):
            raise click.ClickException(f"{path}: cannot be written: there is no such folder, or it is read-only")
    for link in options["link"]:
        if root not in Path(link).resolve().parents:
            raise click.UsageError(f"--link {link} is not below the project {root}")
    try:
        Check(all_rules(), None, overrides_of(options)).configurations.of(str(root))
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def overrides_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the options change in the configuration.

    Raises:
        click.UsageError: no assumption has such a name.

    """
    overrides: dict[str, Any] = {}
    for key in ("select", "extend_select", "ignore", "assume"):
        names = tuple(n.strip() for value in options[key] for n in value.split(",") if n.strip())
        if names:
            overrides[key] = names
    try:
        require_known(overrides.get("assume", ()), "--assume")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if options["runtime"] is not None:
        overrides["runtime"] = options["runtime"]
    return overrides


def _keep(plan: Plan, outcome: Outcome, kept: list[Place]) -> None:
    assert outcome.counted_original is not None
    if not kept:
        click.echo("No fix was both equal and, with 95 % confidence, faster; your tree is as it was.")
        return
    applied = apply_fixes(
        plan.root, outcome.counted_original.modules, unsafe=True, overrides=plan.overrides, only=kept, is_copy=False
    )
    click.echo("applied to your tree:")
    for place in kept:
        click.echo(f"  {place}")
    click.echo(f"changed: {', '.join(sorted(applied.changed))}")


def write(path: str | None, make: Callable[[], str]) -> None:
    """Write what `make` returns to a file, if one is named."""
    if path is None:
        return
    try:
        write_text(path, make())
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Say on standard error what runs: on one line of a terminal, else line by line."""
    if quiet:
        yield lambda what: None
        return
    terminal = sys.stderr.isatty()
    width = 0

    def on_run(what: str) -> None:
        nonlocal width
        text = f"running {what}" if what else ""
        if terminal:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            click.echo(f"\r{text[:columns].ljust(width)}" + ("" if what else "\r"), err=True, nl=False)
            width = min(len(text), columns)
        elif what:
            click.echo(text, err=True)

    try:
        yield on_run
    finally:
        on_run("")
