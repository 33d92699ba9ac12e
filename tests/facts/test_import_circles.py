"""Files that take names from each other: which of them end with an error whenever they are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perflint.facts.facts import Facts
from perflint.facts.training.dead_ends import always_ends
from perflint.project.project import Project


@pytest.mark.parametrize(
    ("first", "second", "fails"),
    [
        ("from second import low\n\ndef high(): pass\n", "from first import high\n\ndef low(): pass\n", True),
        ("from extra import *\nfrom second import low\nhigh = 1\n", "from first import high\nlow = 1\n", True),
        ("from extra import *\nfrom second import low\n", "from first import shared\nlow = 1\n", False),
        ("from os.path import *\nfrom second import low\nhigh = 1\n", "from first import high\nlow = 1\n", False),
        ("def high(): pass\n\nfrom second import low\n", "from first import high\nlow = 1\n", False),
        ("from second import low\nhigh = 1\n", "low = 1\nfrom first import high\n", False),
        ("import second\nhigh = 1\n", "from first import high\nlow = 1\n", False),
        ("def high():\n    from second import low\n", "from first import high\nlow = 1\n", False),
        (
            "try:\n    from second import low\nexcept ImportError:\n    pass\nhigh = 1\n",
            "from first import high\nlow = 1\n",
            False,
        ),
        ("from second import low\nhigh = 1\n", "low = 1\n", False),
    ],
    ids=["each first", "a star", "by a star", "any star", "bound", "bound there", "module", "late", "caught", "one way"],
)
def test_files_that_import_each_other(tmp_path: Path, first: str, second: str, fails: bool) -> None:
    texts = {"first.py": first, "second.py": second, "extra.py": "shared = 1\n", "main.py": "import first\nprint(1)\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    facts = Facts(Project(str(tmp_path), [str(tmp_path / name) for name in texts]))
    for name in ("main", "first"):
        module = facts.project.module(str(tmp_path / f"{name}.py"))
        assert module is not None
        assert always_ends(facts, module.top) is fails
    if fails:
        for name in ("first", "second", "main"):
            run = subprocess.run([sys.executable, f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert "ImportError" in run.stderr
