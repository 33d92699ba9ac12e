"""What is generated or written about perflint, against perflint."""

from __future__ import annotations

import re
import subprocess
import sys

from conftest import ROOT, Project, in_process

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = ("check", "fix", "explain", "rules", "verify", "profile", "clean")


def test_the_generated_pages_are_fresh() -> None:
    run = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_readme_names_options_that_exist() -> None:
    shown = "".join(in_process(command, "--help").stdout for command in COMMANDS)
    text = re.sub(r"^python3 -m venv .*$", "", README, flags=re.M)
    text = re.sub(r"<!-- speed -->.*<!-- /speed -->", "", text, flags=re.S)  # has the benchmark's own command
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert options
    assert not {option for option in options if option not in shown}


def test_the_readme_configuration_is_valid(project: Project) -> None:
    found = re.search(r"^```toml\n(.*?)^```", README, re.M | re.S)
    assert found is not None
    project.write({"pyproject.toml": found[1], "a.py": "x = 1\n"})
    assert project.run("check").exit_code == 0
