"""`fix --interactive`: each fix is shown, and answers from standard input decide."""

from __future__ import annotations

import pytest
from conftest import BAD, GOOD, Project, in_process, in_subprocess

ALIKE = "import torch\n\n\ndef f(x):\n" + "    with torch.no_grad:\n        x += 1\n" * 4


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose only function has the same flaw four times, as the working directory."""
    monkeypatch.chdir(project.root)
    return project.write({"train.py": ALIKE})


def fixed(project: Project) -> list[bool]:
    """Which of the flaws are mended."""
    lines = [line for line in (project.root / "train.py").read_text().splitlines() if "no_grad" in line]
    return ["()" in line for line in lines]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("y\ny\ny\ny\n", [True, True, True, True]),
        ("n\nn\nn\nn\n", [False, False, False, False]),
        ("n\ny\nn\ny\n", [False, True, False, True]),
        ("y\nn\ny\nn\n", [True, False, True, False]),
        ("n\na\n", [False, True, True, True]),
        ("y\nq\n", [True, False, False, False]),
        ("\n\nwhat\nq\n", [True, True, False, False]),
    ],
)
def test_answers_decide_and_each_is_asked_for_once(here: Project, answers: str, expected: list[bool]) -> None:
    done = in_process("fix", "--interactive", stdin=answers.encode())
    assert fixed(here) == expected
    assert done.exit_code == (0 if all(expected) else 1)
    assert done.stdout.count("Fix? [y] this one") == len(answers.splitlines())


def test_what_a_fix_changes_is_shown_as_the_file_is_by_then(here: Project) -> None:
    out = in_process("fix", "-i", stdin=b"y\ny\nq\n").stdout
    second = out.split("Fix?")[1]
    assert " --> train.py:7:10\n" in second
    assert "     with torch.no_grad():\n         x += 1\n-    with torch.no_grad:\n+    with torch.no_grad():\n" in second
    assert "-    with" in out.split("Fix?")[0], "the first one was shown before it was mended"


def test_files_are_asked_about_one_after_the_other(here: Project) -> None:
    here.write({"another.py": BAD, "train.py": BAD})
    in_process("fix", "-i", stdin=b"n\ny\n")
    assert (here.root / "another.py").read_text() == BAD
    assert (here.root / "train.py").read_text() == GOOD


def test_imports_that_a_fix_adds_do_not_disturb_the_order(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    row = "    def __getitem__(self, i):\n        return pd.read_csv(self.path, skiprows=i + 1, nrows=1, header=None).values\n"
    rows = "import pandas as pd\nfrom torch.utils.data import Dataset\n\n\n"
    init = "    def __init__(self, path):\n        self.path = path\n"
    rows += "".join(f"class {name}(Dataset):\n{init}\n{row}\n\n" for name in "ABC")
    project.write({"train.py": rows})
    options = ["--runtime", "--unsafe-fixes", "--select", "csv-row-by-skiprows"]
    assert in_process("fix", "-i", *options, stdin=b"n\ny\nn\n").stdout.count("Fix?") == 3
    text = (project.root / "train.py").read_text()
    pieces = text.split("class ")
    assert ["CsvRows" in piece for piece in pieces[1:]] == [False, True, False]


def test_nothing_is_written_where_nobody_answers(here: Project) -> None:
    done = in_subprocess("fix", "-i", cwd=here.root)
    assert done.returncode == 130
    assert b"Traceback" not in done.stderr
    assert (here.root / "train.py").read_text() == ALIKE


@pytest.mark.parametrize("arguments", [["-i", "-"], ["-i", "--diff"]], ids=" ".join)
def test_answers_need_standard_input_and_a_terminal_of_their_own(here: Project, arguments: list[str]) -> None:
    done = in_process("fix", *arguments)
    assert done.exit_code == 2
    assert "--interactive" in done.stderr
