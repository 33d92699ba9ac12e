"""Shared fixtures: a project in a temporary folder, and perflint run on it."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, settings
from progress import Progress

from fuzz.strict import let_failures_out
from perflint.cli import cli, run_for_tests

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"

BAD = "import torch\n\nx = torch.ones(2)\nwith torch.no_grad:\n    x += 1\n"
"""A file with one finding, on row 4, whose fix is safe: no-grad-without-call."""

TRACE = """
import torch


def trace(loader):
    model = torch.nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
"""A list that a fix fills on the device, if there is memory to spare."""
GOOD = BAD.replace("no_grad:", "no_grad():")
"""The same file after the fix."""

HANG_S = 1200.0
"""After this long a process that a test waits for is taken to hang. It measures nothing: no busy machine takes as long."""

os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's last bits and its speed are then the same on any number of cores
settings.register_profile(
    "reproducible", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("reproducible")


@pytest.hookimpl(trylast=True)  # the reporter of pytest is there then
def pytest_configure(config: pytest.Config) -> None:
    """Take Ctrl-C even if the tests were started in the background, where shells switch it off for all that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and config.get_verbosity() < 0 and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(terminal))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: modules and tests are none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _without_old_objects() -> None:
    """No search for garbage walks over what lives until the end: ten thousand test items, torch, what other files remember.

    Forks of perflint take all of it back, so each file says so again.
    """
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="Write the blessed `*.fixed.py` files instead of comparing them.")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether blessed files are to be written."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees results that another one left behind, or random numbers that go on from another one's."""
    monkeypatch.setenv("PERFLINT_NO_CACHE", "1")
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)


class Project:
    """A folder with source files that perflint runs on."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, files: dict[str, str]) -> Project:
        """Write dedented files, by path."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8", newline="")
        return self

    def run(self, command: str, *arguments: str) -> Any:
        """Run a command on the folder; an object with `exit_code`, `stdout` and `stderr`."""
        return run_for_tests([command, *arguments, str(self.root)])

    def findings(self, *arguments: str) -> list[dict[str, Any]]:
        """What `check` reports, as JSON objects."""
        result = self.run("check", "--output-format", "json", "--isolated", *arguments)
        assert result.exit_code in (0, 1), result.output
        found: list[dict[str, Any]] = json.loads(result.stdout)
        return found

    def rules(self, *arguments: str) -> list[tuple[str, int]]:
        """The rules and rows that `check` reports."""
        return [(f["rule"], f["location"]["row"]) for f in self.findings(*arguments)]

    def fixed(self, name: str, *arguments: str) -> str:
        """The text of a file after `fix`."""
        result = self.run("fix", "--exit-zero", *arguments)
        assert result.exit_code == 0, result.output
        return (self.root / name).read_text(encoding="utf-8")


@pytest.fixture(scope="session", autouse=True)
def rules_never_fail() -> None:
    """Have a rule that fails end what a test runs in this process."""
    let_failures_out()


@pytest.fixture
def waits_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rules about waits told like others, to show by them what else makes findings worth little."""
    monkeypatch.setattr("perflint.rule.code.Code.is_in_budget", False)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path)


@pytest.fixture
def write(project: Project) -> Callable[..., Project]:
    """Write files into an empty project: `write({"train.py": "..."})`."""
    return project.write


def in_process(*arguments: str, stdin: bytes | None = None) -> Any:
    """Run the command line in this process; an object with `exit_code`, `stdout`, `stdout_bytes` and `stderr`."""
    return CliRunner().invoke(cli, list(arguments), input=stdin)


def in_subprocess(
    *arguments: str, cwd: Path, stdin: bytes = b"", code: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run perflint as a program of its own, or other Python code with the same import path."""
    command = [sys.executable, "-m", "perflint", *arguments] if code is None else [sys.executable, "-c", code, *arguments]
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "probe", ROOT / "rules", ROOT / "runtime"))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, env=environment, timeout=HANG_S, check=False)


def command_in(folder: Path) -> Path:
    """Put the command `perflint` into a folder, as an installation would: for programs that look for it in PATH."""
    command = folder / "perflint"
    paths = os.pathsep.join(str(ROOT / name) for name in (".", "probe", "rules", "runtime"))
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{paths}" exec "{sys.executable}" -P -m perflint "$@"\n')
    command.chmod(0o755)
    return command


def git(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run git as nobody in particular; both of its outputs are in `stdout`."""
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    command, merged = ["git", *identity, *arguments], {**os.environ, **environment}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, cwd=folder, env=merged, text=True, timeout=HANG_S, check=False, **both)
