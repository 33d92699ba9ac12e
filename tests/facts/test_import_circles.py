"""Files that take names from each other: which of them end with an error whenever they are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perflint.facts.facts import Facts
from perflint.facts.training.dead_ends import always_ends
from perflint.project.project import Project


def facts_of(folder: Path, texts: dict[str, str]) -> Facts:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return Facts(Project(str(folder), [str(folder / name) for name in texts]))


def ends_at_the_top(facts: Facts, path: Path) -> bool:
    module = facts.project.module(str(path))
    assert module is not None
    return always_ends(facts, module.top)


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
    facts = facts_of(tmp_path, texts)
    for name in ("main", "first"):
        assert ends_at_the_top(facts, tmp_path / f"{name}.py") is fails
    if fails:
        for name in ("first", "second", "main"):
            run = subprocess.run([sys.executable, f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert "ImportError" in run.stderr


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("size = width\n", True),
        ("if __name__ == '__main__':\n    size = width\n", False),
        ("def show():\n    print(width)\n", False),
    ],
    ids=["at its top", "where it is run itself", "in a function"],
)
def test_what_is_imported_ends(tmp_path: Path, text: str, fails: bool) -> None:
    facts = facts_of(tmp_path, {"sizes.py": text, "train.py": "from sizes import size\n"})
    assert ends_at_the_top(facts, tmp_path / "train.py") is fails
