"""The rule pack of docs/write-a-rule.md works as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG_S, ROOT

PAGE = (ROOT / "docs" / "write-a-rule.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', PAGE, re.M | re.S))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where the pack is installed: its modules, and what an installer writes for the entry points that the page names."""
    site = tmp_path / "site"
    about = site / "acme_rules-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    announced = re.search(r'^\[project\.entry-points\."([^"]+)"\]\n(\w+) = "(\w+)"', FILES["pyproject.toml"], re.M)
    assert announced is not None
    (about / "entry_points.txt").write_text(f"[{announced[1]}]\n{announced[2]} = {announced[3]}\n")
    module = site / "acme_rules" / "seed_every_step.py"
    module.parent.mkdir()
    (module.parent / "__init__.py").write_text("")
    module.write_text(FILES["acme_rules/seed_every_step.py"])
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(FILES["train.py"])
    paths = [str(site), *(str(path) for path in (ROOT, ROOT / "probe", ROOT / "rules", ROOT / "runtime"))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}


def test_the_commands_print_what_the_page_shows(environment: dict[str, str], tmp_path: Path) -> None:
    found = re.search(r"^<!-- output -->\n```console\n(.*?)^```", PAGE, re.M | re.S)
    assert found is not None
    for block in found[1].split("$ ")[1:]:
        command, _, expected = block.partition("\n")
        words = command.split()
        assert words[0] == "perflint"
        done = subprocess.run(
            [sys.executable, "-m", "perflint", *words[1:]],
            cwd=tmp_path / "project",
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.stdout == expected, done.stderr
    assert "manual_seed" not in (tmp_path / "project" / "train.py").read_text()


def test_the_rule_has_its_page(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perflint", "explain", "seed-every-step"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout.startswith(
        "# seed-every-step\n\nThe random generator is set back in every step. Category acme, warning"
    ), done.stderr


@pytest.mark.parametrize(
    ("text", "broken", "says"),
    [
        ("calls=SEEDS", 'needs=["manual_seed("]', "a word stands where a tuple of words is meant"),
        ("import ast", "import missing_module", "No module named 'missing_module'"),
    ],
)
def test_a_pack_that_cannot_be_loaded_is_named(
    environment: dict[str, str], tmp_path: Path, text: str, broken: str, says: str
) -> None:
    module = tmp_path / "site" / "acme_rules" / "seed_every_step.py"
    module.write_text(module.read_text().replace(text, broken, 1))
    command = [sys.executable, "-m", "perflint", "rules"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-2]
    assert last.startswith("the rule pack `acme` (acme_rules) cannot be loaded: ")
    assert says in last
