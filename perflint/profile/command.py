"""What `perflint profile` does with its options."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from perflint.profile.record import record
from perflint.profile.text import lines
from perflint.project.config import ConfigError
from perflint.verify.assumed import broken, confirmation
from perflint.verify.command import overrides_of, program_of, progress, require_usable, write
from perflint.verify.runs import ScriptFailed, run
from perflint.verify.sandbox import Sandbox, SandboxError

CLEAN, VIOLATED = 0, 1


def run_command(options: Mapping[str, Any]) -> int:
    """Profile and report; the exit code is 1 if an assumption is declared that the program violates, else 0.

    The program runs twice: waits are counted in a run of their own, because counting slows a program down by far more than
    timing its lines does.

    Raises:
        click.ClickException: the script fails, or the project cannot be copied.

    """
    root, program = program_of(options)
    require_usable(options, root)
    try:
        sandbox = Sandbox(root, tuple(Path(link) for link in options["link"]), options["max_copy_mib"])
    except SandboxError as error:
        raise click.ClickException(str(error)) from None
    try:
        with progress(options["quiet"]) as on_run:
            on_run("the program, counting waits")
            counted = run(sandbox, "original", program, "count")
            program = program.stopped_like(counted)
            on_run("the program, timing its lines")
            profiled = run(sandbox, "original", program, "profile", ("--steps", str(options["steps"])))
        if "profile" not in profiled.data:
            raise click.ClickException(f"{options['script']} does not import torch: there is nothing to profile")
        command = shlex.join(["perflint", *sys.argv[1:]])
        made = record(root, program, overrides_of(options), counted, profiled, sandbox.place, command)
    except ScriptFailed as error:  # which names the tree that ran; here there is one only
        raise click.ClickException(str(error).replace("the original ", "the script ", 1)) from None
    except (SandboxError, ConfigError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        sandbox.close()
    try:
        for line in lines(made):
            click.echo(line)
        if options["confirm"]:
            click.echo("")
            for line in confirmation(made["assumptions"], made["findings"]):
                click.echo(line)
    finally:  # also where nobody reads to the end: `| head`
        write(options["json_file"], lambda: json.dumps(made, indent=1) + "\n")
    return VIOLATED if broken(made["assumptions"]) else CLEAN
