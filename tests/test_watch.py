"""`check --watch`: a report at each change, whatever the change is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import BAD, GOOD, Project, in_process

from perflint.run import watch


@pytest.fixture
def session(project: Project, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Do one thing after the other while perflint watches; the reports, one for each check that was run."""

    def watched(*steps: Callable[[], Any], arguments: tuple[str, ...] = ()) -> list[str]:
        pending = list(steps)

        def step(seconds: float) -> None:
            if not pending:
                raise KeyboardInterrupt
            pending.pop(0)()

        monkeypatch.setattr(watch, "sleep", step)
        monkeypatch.chdir(project.root)
        done = in_process("check", "--watch", *arguments)
        assert done.exit_code == 130
        assert "Traceback" not in done.output
        return done.output.split("Watching for file changes.\n")[:-1]

    return watched


def rules_of(reports: list[str]) -> list[int]:
    """How often the bad file's rule is in each report."""
    return [report.count("no-grad-without-call: ") for report in reports]


def test_each_change_is_reported_once(project: Project, session: Callable[..., list[str]]) -> None:
    project.write({"pyproject.toml": "", "train.py": BAD})
    reports = session(
        lambda: None,
        lambda: project.write({"train.py": GOOD}),
        lambda: None,
        lambda: project.write({"lib/more.py": BAD}),
        lambda: project.write({"train.py": BAD}),
        (project.root / "train.py").unlink,
        lambda: project.write({"notes.md": "no code"}),
    )
    assert rules_of(reports) == [1, 0, 1, 2, 1]


def test_a_syntax_error_does_not_end_it(project: Project, session: Callable[..., list[str]]) -> None:
    project.write({"train.py": BAD})
    reports = session(lambda: project.write({"train.py": "def f(:\n"}), lambda: project.write({"train.py": BAD}))
    assert "invalid-syntax" in reports[1]
    assert rules_of(reports) == [1, 0, 1]


def test_a_named_file_may_vanish_and_return(project: Project, session: Callable[..., list[str]]) -> None:
    project.write({"train.py": BAD})
    path = project.root / "train.py"
    reports = session(path.unlink, lambda: project.write({"train.py": BAD}), arguments=("train.py",))
    assert "train.py: no such file or directory" in reports[1]
    assert rules_of(reports) == [1, 0, 1]


def test_the_baseline_is_watched_and_its_findings_are_left_out(project: Project, session: Callable[..., list[str]]) -> None:
    project.write({"perflint.toml": 'baseline = "known.json"\n', "train.py": GOOD})
    assert project.run("check", "--update-baseline").exit_code == 0
    reports = session(
        lambda: project.write({"train.py": BAD}),
        lambda: project.run("check", "--update-baseline"),
    )
    assert rules_of(reports) == [0, 1, 0]
    assert "1 known finding in known.json." in reports[2]


def test_the_configuration_is_watched(project: Project, session: Callable[..., list[str]]) -> None:
    project.write({"pyproject.toml": "", "train.py": BAD})
    reports = session(
        lambda: project.write({"perflint.toml": "ignore = ['autograd']\n"}),
        lambda: project.write({"perflint.toml": "ignored = ['autograd']\n"}),
        lambda: project.write({"perflint.toml": ""}),
    )
    assert rules_of(reports) == [1, 0, 0, 1]
    assert "unknown key `ignored`" in reports[2]


def test_a_file_that_others_import_is_watched(project: Project, session: Callable[..., list[str]]) -> None:
    loop = "import torch\nfrom lib import step\ndef train(model, loader):\n    for x in loader:\n        step(model, x)\n"
    helper = "def step(model, x):\n    loss = model(x).sum()\n    loss.backward()\n"
    project.write({"pyproject.toml": "", "lib.py": helper, "train.py": loop})
    reports = session(lambda: project.write({"lib.py": helper + "\n"}), arguments=("train.py",))
    assert len(reports) == 2


def test_a_configuration_that_is_broken_from_the_start_ends_it(project: Project) -> None:
    project.write({"train.py": BAD, "perflint.toml": "ignored = []\n"})
    assert project.run("check", "--watch").exit_code == 2


@pytest.mark.parametrize(
    "option", ["--fix", "--diff", "--add-ignores", "--update-baseline", "--stdin-filename=x.py", "--show-files"]
)
def test_watching_only_reports(project: Project, option: str) -> None:
    done = project.run("check", "--watch", option)
    assert done.exit_code == 2
    assert "--watch reports only" in done.stderr


def test_the_screen_is_cleared_on_a_terminal_only(project: Project, session: Callable[..., list[str]]) -> None:
    project.write({"train.py": BAD})
    assert "\x1b[2J" not in "".join(session())
