"""What is generated or written about perflint, against perflint."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Project, in_process, in_subprocess

README = (ROOT / "README.md").read_text(encoding="utf-8")
USAGE = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
COMMANDS = ("check", "fix", "explain", "rules", "verify", "profile", "clean")


def test_the_generated_pages_are_fresh() -> None:
    run = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_readme_and_the_use_in_detail_name_options_that_exist() -> None:
    shown = "".join(in_process(command, "--help").stdout for command in COMMANDS)
    text = re.sub(r"^python3 -m venv .*$", "", README + USAGE, flags=re.M)
    text = re.sub(r"<!-- speed -->.*<!-- /speed -->", "", text, flags=re.S)  # has the benchmark's own command
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert options
    assert not {option for option in options if option not in shown}


@pytest.mark.parametrize("text", [README, USAGE], ids=["README", "usage"])
def test_the_configuration_of_the_docs_is_valid(project: Project, text: str) -> None:
    found = re.search(r"^```toml\n(.*?)^```", text, re.M | re.S)
    assert found is not None
    project.write({"pyproject.toml": found[1], "a.py": "x = 1\n"})
    assert project.run("check").exit_code == 0


@pytest.mark.slow
def test_the_walk_from_a_finding_to_identical_results_is_as_the_docs_show_it(tmp_path: Path) -> None:
    """Each command prints the lines below it, in this order; `...` stands for others."""
    walk = re.search(r"^<!-- walk -->\n```\n(.*?)^```", README, re.M | re.S)
    assert walk is not None
    project = tmp_path / "image"
    shutil.copytree(ROOT / "fixtures" / "programs" / "image", project, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *arguments], cwd=project, check=True)
    for step in walk[1].removeprefix("$ ").split("\n$ "):
        command, *expected = step.splitlines()
        if command.startswith("cat > "):
            (project / command.removeprefix("cat > ")).write_text("\n".join(expected) + "\n", encoding="utf-8")
            continue
        done = in_subprocess(*command.split()[1:], cwd=project)
        printed = iter(done.stdout.decode().splitlines())
        is_next = True
        for line in expected:
            if line == "...":
                is_next = False
                continue
            found = next(printed) if is_next else next((other for other in printed if other == line), None)
            assert found == line, f"{command}: {done.stdout.decode()}{done.stderr.decode()}"
            is_next = True
