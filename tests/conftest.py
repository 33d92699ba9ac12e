"""Shared fixtures: a project in a temporary folder, and perflint run on it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perflint.cli import run_for_tests

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="Write the blessed `*.fixed.py` files instead of comparing them.")


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether blessed files are to be written."""
    return bool(request.config.getoption("--bless"))


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


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project."""
    return Project(tmp_path)


@pytest.fixture
def write(project: Project) -> Callable[..., Project]:
    """Write files into an empty project: `write({"train.py": "..."})`."""
    return project.write
