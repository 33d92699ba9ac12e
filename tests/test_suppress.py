"""Suppression comments, and those that silence nothing."""

from __future__ import annotations

import pytest
from conftest import BAD, Project

HEAD = "import torch\nx = torch.ones(2)\n"


def found(project: Project, text: str, *arguments: str) -> list[tuple[str, int]]:
    """The rules and rows that are reported for a file."""
    project.write({"train.py": text})
    return project.rules(*arguments)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "with torch.no_grad:  # perflint: ignore[no-grad-without-call]\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint: ignore[no-grad-without-call] because\n    pass\n",
        HEAD + "with torch.no_grad:  #perflint:ignore[ no-grad-without-call ]\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint: ignore\n    pass\n",
        HEAD + "with torch.no_grad:  # noqa  # perflint: ignore[no-grad-without-call]\n    pass\n",
        HEAD + "# perflint: ignore[no-grad-without-call]\nwith torch.no_grad:\n    pass\n",
        HEAD + "# note  # perflint: ignore[no-grad-without-call]\nwith torch.no_grad:\n    pass\n",
        HEAD + "with torch.no_grad, f('''\n\n'''):  # perflint: ignore[no-grad-without-call]\n    pass\n",
        HEAD + "with torch.no_grad, \\\n   f():  # perflint: ignore[no-grad-without-call]\n    pass\n",
        "# perflint: ignore-file[no-grad-without-call]\n" + BAD,
        BAD + "# perflint: ignore-file\n",
        (HEAD + "with torch.no_grad:  # perflint: ignore[no-grad-without-call]\n    pass\n").replace("\n", "\r\n"),
        (HEAD + "with torch.no_grad:  # perflint: ignore[no-grad-without-call]\n    pass\n").replace("\n", "\r"),
        HEAD + 's = "\u00e9\u2028\x0c"\nwith torch.no_grad:  # \u00e9 # perflint: ignore[no-grad-without-call]\n    pass\n',
    ],
)
def test_a_comment_silences_its_line(project: Project, text: str) -> None:
    assert found(project, text) == []


@pytest.mark.parametrize(
    "text",
    [
        HEAD + 's = "# perflint: ignore-file"\nwith torch.no_grad:\n    pass\n',
        HEAD + "with torch.no_grad:\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint: ignore(no-grad-without-call)\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint: ignore[no-grad-without-call\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint ignore\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint: ignore: item-every-step\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint: ignore item-every-step\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint: ignore=item-every-step\n    pass\n",
        HEAD + "with torch.no_grad:  # perflint: ignore-line[no-grad-without-call]\n    pass\n",
        "# perflint: ignore-file item-every-step\n" + BAD,
        "# perflint: ignore-file: item-every-step\n" + BAD,
        "# perflint: ignore-files\n" + BAD,
    ],
)
def test_what_is_no_proper_suppression_silences_nothing(project: Project, text: str) -> None:
    assert "no-grad-without-call" in {rule for rule, _ in found(project, text)}


@pytest.mark.parametrize(
    "comment",
    [
        "ignore: item-every-step",
        "ignore item-every-step",
        "ignore[item-every-step",
        "ignore-line[item-every-step]",
        "ignore-files",
    ],
)
def test_a_malformed_suppression_is_reported_and_left_as_it_is(project: Project, comment: str) -> None:
    text = f"import torch  # perflint: {comment}\n"
    (finding,) = project.write({"train.py": text}).findings()
    assert finding["rule"] == "unused-suppression"
    assert "is malformed and silences nothing; write `# perflint: ignore[rule-name] reason`" in finding["message"]
    assert project.fixed("train.py") == text


def test_a_suppression_is_added_beside_a_malformed_one(project: Project) -> None:
    project.write({"train.py": BAD.replace("no_grad:", "no_grad:  # perflint: ignore-line[no-grad-without-call]")})
    assert project.run("check", "--add-ignores").exit_code == 0
    assert project.rules() == [("unused-suppression", 4)]


def test_a_comment_for_another_rule_silences_nothing_and_is_reported(project: Project) -> None:
    text = BAD.replace("no_grad:", "no_grad:  # perflint: ignore[item-every-step]")
    assert found(project, text) == [("no-grad-without-call", 4), ("unused-suppression", 4)]


def test_an_unknown_name_is_reported(project: Project) -> None:
    project.write({"train.py": "x = 1  # perflint: ignore[no-such-rule]\n"})
    (finding,) = project.findings()
    assert finding["message"] == "no rule is named `no-such-rule`; remove it from the suppression"


def test_suppressions_of_rules_that_did_not_run_are_not_judged(project: Project) -> None:
    text = "x = 1  # perflint: ignore[item-every-step]\ny = 2  # perflint: ignore\n"
    assert found(project, text, "--select", "no-grad-without-call,unused-suppression") == []
    assert found(project, text, "--ignore", "item-every-step") == []
    assert [row for _, row in found(project, text)] == [1, 2]


def test_unused_suppressions_are_selected_like_rules(project: Project) -> None:
    text = "x = 1  # perflint: ignore[item-every-step]\n"
    assert found(project, text, "--select", "all") == [("unused-suppression", 1)]
    assert found(project, text, "--select", "item-every-step,perflint") == [("unused-suppression", 1)]
    assert found(project, text, "--select", "item-every-step") == []
    assert found(project, text, "--ignore", "unused-suppression") == []


def test_unused_suppressions_can_be_ignored_per_file(project: Project) -> None:
    project.write({"a.py": "x = 1  # perflint: ignore[item-every-step]\n"})
    project.write({"perflint.toml": '[per-file-ignores]\n"a.py" = ["unused-suppression"]'})
    assert project.run("check").exit_code == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # perflint: ignore[item-every-step] reason\n", "x = 1\n"),
        ("x = 1  # perflint: ignore\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
        ("x = 1  # perflint: ignore", "x = 1"),
        ("# perflint: ignore[item-every-step]\nx = 1\n", "x = 1\n"),
        ("def f():\n    # perflint: ignore-file\n    x = 1\n", "def f():\n    x = 1\n"),
        ("x = 1  # note  # perflint: ignore[item-every-step] why\n", "x = 1  # note\n"),
        ("x = 1  # perflint: ignore[item-every-step] why # note\n", "x = 1  # note\n"),
        ("x = 1  # perflint: ignore[]\n", "x = 1\n"),
        ("s = '\u00e9'  # perflint: ignore\n", "s = '\u00e9'\n"),
        (
            "import torch\nwith torch.no_grad():  # perflint: ignore[no-grad-without-call, no-such]\n    pass\n",
            "import torch\nwith torch.no_grad():\n    pass\n",
        ),
        (
            "import torch\nwith torch.enable_grad:  # perflint: ignore[no-grad-without-call, no-such] why\n    pass\n",
            "import torch\nwith torch.enable_grad:  # perflint: ignore[no-grad-without-call] why\n    pass\n",
        ),
    ],
)
def test_fix_removes_what_silences_nothing(project: Project, before: str, after: str) -> None:
    project.write({"train.py": before})
    project.run("fix")
    assert (project.root / "train.py").read_bytes().decode() == after


def test_a_suppression_in_a_latin_1_file_is_removed_at_the_right_place(project: Project) -> None:
    path = project.root / "train.py"
    path.write_bytes("# coding: latin-1\ns = '\u00e9\u00e9'  # \u00e9  # perflint: ignore[item-every-step]\n".encode("latin-1"))
    project.run("fix")
    assert path.read_bytes().decode("latin-1") == "# coding: latin-1\ns = '\u00e9\u00e9'  # \u00e9\n"


def test_a_finding_that_the_fix_would_silence_is_not_lost(project: Project) -> None:
    text = BAD.replace("no_grad:", "no_grad:  # perflint: ignore[no-grad-without-call]")
    project.write({"train.py": text})
    assert project.run("fix").exit_code == 0
    assert (project.root / "train.py").read_text() == text


def test_a_comment_may_silence_what_is_shown_only_to_those_who_select_it(project: Project) -> None:
    branch = "        if x.sum() > 0:{}\n            x = -x\n"
    text = "import torch\nfor x in torch.utils.data.DataLoader([]):\n    x = x.cuda()\n    with torch.no_grad():\n" + branch
    assert found(project, text.format("")) == found(project, text.format("  # perflint: ignore[sync-branch-on-tensor]"))
    assert ("sync-branch-on-tensor", 5) in found(project, text.format(""), "--select", "all")
    assert ("sync-branch-on-tensor", 5) not in found(project, text.format(""))
