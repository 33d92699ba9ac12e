"""One run of a script under the probe, in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from perflint.source.cells import SUFFIX, left_out
from perflint.source.notebook import Notebook, NotebookError
from perflint.source.source import Source
from perflint.verify.sandbox import Sandbox

PROBE = "perflint_probe"
_USAGE = re.compile(r"^usage: |^Usage: ", re.M)
Mode = Literal["time", "count", "profile", "compile"]


class ScriptFailed(Exception):
    """The script ended with an error of its own, or without a record."""


@dataclass(frozen=True)
class Run:
    """What a run printed, wrote and was recorded to do. `data` is the probe's record."""

    version: str
    mode: Mode
    data: Mapping[str, Any] = field(repr=False)
    output: str = field(repr=False)
    files: Mapping[str, str] = field(repr=False)
    """Files that the run wrote below the project, with a hash of their bytes."""
    notebook: Source | None = field(default=None, repr=False)
    """The text that ran, if the script is a notebook."""

    @property
    def left_out(self) -> list[str]:
        """What of a notebook did not run."""
        if self.notebook is None:
            return []
        return [f"cell {cell}:{row}: {said}" for cell, row, said in left_out(self.notebook.raw)]

    @property
    def step_s(self) -> list[float]:
        """Seconds from the end of each step to the end of the next one."""
        found: list[float] = self.data.get("step_s") or self.data.get("batch_s") or []
        return found

    @property
    def modules(self) -> list[str]:
        """The project's source files that the run loaded, relative to the project."""
        found: list[str] = self.data.get("modules", [])
        return found

    @property
    def roots(self) -> list[str]:
        """The value of each backward pass's root, in order: hexadecimal floats, or hashes."""
        found: list[str] = self.data.get("roots", [])
        return found


@dataclass(frozen=True)
class Program:
    """The command to run, relative to the project.

    max_steps, max_seconds: after how many optimizer steps, and with the first step that ends after how many seconds, the run is
    stopped as if the script had ended there.
    """

    script: Path
    arguments: Sequence[str] = ()
    python: str = sys.executable
    timeout_s: float | None = None
    directory: Path = Path()
    max_steps: int | None = None
    max_seconds: float | None = None

    def stopped_like(self, run: Run) -> Program:
        """The program with the end that a run of it had: the same number of steps."""
        steps = run.data.get("steps") if run.data.get("is_stopped") else None
        return replace(self, max_steps=steps, max_seconds=None)


def run(sandbox: Sandbox, version: str, program: Program, mode: Mode, options: Sequence[str] = ()) -> Run:
    """Run the tree `version` of the sandbox once, from a fresh copy. `options` go to the probe.

    Raises:
        ScriptFailed: it ended with an error, or ran into the timeout. The message holds the end of what it said.

    """
    place = sandbox.set_up(version)
    record = sandbox.scratch / "record.json"
    record.unlink(missing_ok=True)
    notebook = _notebook(place, program)
    text = sandbox.scratch / "notebook.py"
    if notebook is not None:
        text.write_bytes(notebook.raw)
    command = [
        program.python,
        str(_probe_folder() / "__main__.py"),
        *("--record", str(record), "--mode", mode, "--project", str(place), "--not-from", str(sandbox.root)),
        *(("--max-steps", str(program.max_steps)) if program.max_steps is not None else ()),
        *(("--max-seconds", str(program.max_seconds)) if program.max_seconds is not None else ()),
        *(("--text", str(text)) if notebook is not None else ()),
        *options,
        str(place / program.script),
        *program.arguments,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=place / program.directory,
            env={**({"MPLBACKEND": "Agg"} if notebook is not None else {}), **_environment(sandbox, place, mode)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=program.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ScriptFailed(f"the {version} ran for more than {program.timeout_s:g} s") from None
    except OSError as error:
        raise ScriptFailed(f"{program.python} cannot be started: {error.strerror}") from None
    output = done.stdout.decode(errors="replace").replace(str(place), "<project>")
    if done.returncode != 0 or not record.exists():
        said = done.stderr.decode(errors="replace").replace(str(place), "<project>").strip().splitlines()[-25:]
        if "No module named 'torch'" in "\n".join(said):
            raise ScriptFailed(
                f"{program.python} has no torch: name the Python that the script is usually run with by --python"
            )
        said = [_in_cells(line, notebook) for line in said] if notebook is not None else said
        how = f"ended with exit code {done.returncode}" if record.exists() else f"was killed ({done.returncode})"
        raise ScriptFailed("\n".join([f"the {version} {how}; the end of what it said:", *said, *_hint("\n".join(said))]))
    data = json.loads(record.read_text(encoding="utf-8"))
    if data.get("foreign"):
        raise ScriptFailed(
            f"the run imported {data['foreign'][0]} from your own tree instead of its copy: is the project installed in "
            "another way than `pip install -e`? Name its folder with --root"
        )
    for shown in data.get("assumptions", []):
        if shown["file"] is not None and place in Path(shown["file"]).parents:
            shown["file"] = str(Path(shown["file"]).relative_to(place))
            if notebook is not None and shown["file"] == notebook.path:
                at = notebook.place(shown["line"])
                shown["file"], shown["line"] = f"{notebook.path}:cell {at.cell}", at.row
    files = {str(path): hashlib.sha256((place / path).read_bytes()).hexdigest() for path in sandbox.files_written(version)}
    return Run(version, mode, data, output, files, notebook)


def _notebook(place: Path, program: Program) -> Source | None:
    """The text of the script, if it is a notebook.

    Raises:
        ScriptFailed: it is no notebook about Python.

    """
    if program.script.suffix != SUFFIX:
        return None
    try:
        notebook = Notebook.parse((place / program.script).read_bytes())
    except NotebookError as error:
        raise ScriptFailed(f"{program.script}: {error}") from None
    if not notebook.cells:
        raise ScriptFailed(f"{program.script}: the notebook has no Python cells")
    return Source(str(program.script), notebook.text)


def _in_cells(line: str, notebook: Source) -> str:
    """A line of a traceback that names the cell of a notebook."""

    def named(found: re.Match[str]) -> str:
        at = notebook.place(min(int(found[2]), len(notebook.starts)))
        return f"{found[1]}cell {at.cell}, line {at.row}"

    return re.sub(rf'(File "<project>/{re.escape(notebook.path)}", )line (\d+)', named, line)


def trained_apart(program: Program, original: Path, changed: Path) -> dict[str, dict[str, Any]]:
    """How far what two runs have trained is apart, from the files that they kept: see the probe's `tensors.apart`.

    Nothing where a file is missing, because there was too much to keep.
    """
    if not (original.exists() and changed.exists()):
        return {}
    command = [program.python, str(_probe_folder() / "tensors.py"), str(original), str(changed)]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def _hint(said: str) -> Iterator[str]:
    """What a user can do about a script that failed, as far as what it said tells."""
    if _USAGE.search(said):
        yield "arguments for the script go behind `--`, as in `perflint verify train.py -- --epochs 1`"


def _probe_folder() -> Path:
    import importlib.util

    spec = importlib.util.find_spec(PROBE)
    if spec is None or spec.origin is None:
        raise ScriptFailed(f"the package {PROBE} is missing: install perflint-torch anew")
    return Path(spec.origin).parent


def _environment(sandbox: Sandbox, place: Path, mode: Mode) -> dict[str, str]:
    """The user's environment, in which the copy's modules are found before those of the user's tree."""
    copied = [str(place), str(place / "src")]
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    for part in given:
        path = Path(part).resolve()
        inside = path == sandbox.root or sandbox.root in path.parents
        copied.append(str(place / path.relative_to(sandbox.root)) if inside else part)
    return {
        **{name: text for name, text in os.environ.items() if mode != "compile" or name != "TORCH_LOGS"},
        "PYTHONPATH": os.pathsep.join(copied),
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "PYTHONDONTWRITEBYTECODE": "1",
        **({"CUDA_VISIBLE_DEVICES": ""} if mode == "compile" else {}),
    }
