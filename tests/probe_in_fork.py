"""Runs programs under the probe in forks of the test process, which has torch loaded: a run costs milliseconds, not seconds."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

import numpy  # noqa: F401 - a fork has it already
import pandas  # noqa: F401 - likewise
import torch
import torch._dynamo
from perflint_probe.recorder import Recorder

from perflint.verify.runs import Mode, Run


class ProgramFailed(Exception):
    """The program raised; the message is what."""


def run_in_fork(text: str, mode: Mode = "time") -> Run:
    """Run a program in a fork, recorded.

    Raises:
        ProgramFailed: it raised.

    """
    with tempfile.TemporaryDirectory() as folder:
        script, result = Path(folder, "program.py"), Path(folder, "result.json")
        script.write_text(text, encoding="utf-8")
        child = os.fork()
        if child == 0:
            try:
                result.write_text(json.dumps(_recorded(script, mode)), encoding="utf-8")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        outcome = json.loads(result.read_text(encoding="utf-8"))
    if outcome["error"] is not None:
        raise ProgramFailed(outcome["error"])
    return Run("a program", mode, outcome["data"], outcome["output"], {})


def _recorded(script: Path, mode: Mode) -> dict[str, object]:
    torch.set_num_threads(1)
    sys.stdin.close()
    recorder = Recorder(mode)
    recorder.install()
    error = None
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        data = recorder.finish(0.0)
    return {"data": data, "output": output.getvalue(), "error": error}
