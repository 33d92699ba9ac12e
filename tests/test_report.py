"""What is printed: the JSON contract, one line per finding, the marked excerpt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import BAD, Project, in_process

from perflint.rule.obligations import Kind

TRAIN = """\
import torch
from torch import nn


def train(model: nn.Module, loader, opt):
    model.cuda()
    for \u00e9, y in loader:
        opt.zero_grad()
        s = "\u00e9\U0001f600"; loss = model(\u00e9.cuda()).sum()
        loss.backward()
        opt.step()
        print(loss.item())
"""


@pytest.fixture
def bad(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one finding, as the working directory."""
    monkeypatch.chdir(project.root)
    return project.write({"train.py": BAD})


def test_the_json_record_is_frozen(bad: Project) -> None:
    (finding,) = json.loads(in_process("check", "--output-format", "json").stdout)
    assert finding == {
        "rule": "no-grad-without-call",
        "code": "no-grad-without-call",
        "category": "autograd",
        "severity": "error",
        "message": "`with torch.no_grad:` raises TypeError; write `torch.no_grad()`",
        "filename": "train.py",
        "location": {"row": 4, "column": 6},
        "end_location": {"row": 4, "column": 19},
        "cell": None,
        "fix": {
            "applicability": "safe",
            "assumptions": [],
            "message": "call it",
            "edits": [
                {
                    "content": "torch.no_grad()",
                    "location": {"row": 4, "column": 6},
                    "end_location": {"row": 4, "column": 19},
                    "cell": None,
                }
            ],
        },
        "costs": None,
        "rate": "unknown",
        "missing_proofs": [],
        "obligations": [],
        "help": "perflint explain no-grad-without-call",
        "url": "rules/no-grad-without-call/",
    }


def test_json_of_no_finding_is_an_empty_array(project: Project) -> None:
    assert project.write({"a.py": "x = 1\n"}).findings() == []


def test_json_of_a_file_that_is_no_text_has_a_place(project: Project) -> None:
    (project.root / "a.py").write_bytes(b"\xff\xfe")
    (finding,) = project.findings()
    assert (finding["rule"], finding["location"], finding["fix"]) == ("unreadable-file", {"row": 1, "column": 1}, None)


def test_json_lines_holds_the_same_records_one_per_line(bad: Project) -> None:
    bad.write({"other.py": BAD})
    lines = in_process("check", "--output-format", "json-lines").stdout.splitlines()
    assert [json.loads(line) for line in lines] == json.loads(in_process("check", "--output-format", "json").stdout)
    assert len(lines) == 2


def test_a_safe_or_unsafe_fix_and_its_missing_proofs_are_in_the_record(project: Project) -> None:
    findings = project.write({"train.py": TRAIN}).findings()
    assert {f["fix"]["applicability"] for f in findings if f["fix"]} <= {"safe", "assuming", "unsafe"}
    for finding in findings:
        if finding["fix"] and finding["fix"]["applicability"] == "unsafe":
            assert finding["missing_proofs"] == [o["message"] for o in finding["obligations"]]
            assert all(Kind(o["kind"]) for o in finding["obligations"])
            assert finding["obligations"]


def test_columns_are_characters_counted_from_1(project: Project) -> None:
    findings = {f["rule"]: f for f in project.write({"train.py": TRAIN}).findings("--select", "all")}
    line = TRAIN.splitlines()[8]
    place = findings["blocking-h2d-in-loop"]
    assert place["location"] == {"row": 9, "column": line.index("\u00e9.cuda()") + 1}
    assert place["end_location"] == {"row": 9, "column": line.index("\u00e9.cuda()") + 1 + len("\u00e9.cuda()")}


def test_concise_is_one_line_per_finding(bad: Project) -> None:
    line = in_process("check", "-q", "--output-format", "concise").stdout
    assert line == ("train.py:4:6: no-grad-without-call [*] `with torch.no_grad:` raises TypeError; write `torch.no_grad()`\n")


def test_full_marks_the_span_and_names_the_cure(bad: Project) -> None:
    assert (
        in_process("check", "--output-format", "full").stdout
        == """\
no-grad-without-call [*] `with torch.no_grad:` raises TypeError; write `torch.no_grad()`
 --> train.py:4:6
  |
3 | x = torch.ones(2)
4 | with torch.no_grad:
  |      ^^^^^^^^^^^^^
5 |     x += 1
  |
  = fix (safe): call it

Found 1 finding.
1 fixable with `perflint fix`.
"""
    )


def test_full_says_why_a_fix_is_unsafe(project: Project) -> None:
    result = project.write({"train.py": TRAIN}).run(
        "check", "--output-format", "full", "--no-runtime", "--select", "blocking-h2d-in-loop"
    )
    (reason, *_) = project.findings("--no-runtime", "--select", "blocking-h2d-in-loop")[0]["missing_proofs"]
    assert f"= why it is unsafe: {reason}" in result.stdout
    assert "1 fixable with `perflint fix --unsafe-fixes`" in result.stdout


def test_full_keeps_tabs_and_marks_below_them(bad: Project) -> None:
    bad.write({"train.py": "import torch\nif 1:\n\twith torch.no_grad:\n\t\tpass\n"})
    lines = in_process("check", "--output-format", "full").stdout.splitlines()
    at = lines.index("3 |     with torch.no_grad:")
    assert lines[at + 1] == "  |          ^^^^^^^^^^^^^"


def test_control_characters_of_a_linted_file_do_not_reach_the_terminal(bad: Project) -> None:
    bad.write({"train.py": BAD.replace("no_grad:", "no_grad:  # \x1b[31m\x07")})
    output = in_process("check", "--output-format", "full").stdout
    assert "\x1b" not in output
    assert "\x07" not in output


def test_github_commands_are_escaped(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    project.write({"a,b.py": BAD})
    line = in_process("check", "--output-format", "github").stdout
    assert line == (
        "::error title=perflint (no-grad-without-call),file=a%2Cb.py,line=4,col=6,endLine=4,endColumn=19"
        "::a,b.py:4:6: no-grad-without-call: `with torch.no_grad:` raises TypeError; write `torch.no_grad()`\n"
    )


@pytest.mark.parametrize("output_format", ["json", "json-lines", "github"])
def test_formats_for_programs_hold_nothing_else(bad: Project, output_format: str) -> None:
    result = in_process("check", "--output-format", output_format)
    assert result.stderr == ""
    assert "Found" not in result.stdout


def sync_budgets(project: Project, *arguments: str) -> list[str]:
    """The sync-budget lines of a run."""
    lines: list[str] = project.run("check", "--output-format", "concise", *arguments).stdout.splitlines()
    return [line for line in lines if line.startswith("sync budget: ")]


def test_the_sync_budget_counts_waits_of_each_training_loop(project: Project) -> None:
    (line,) = sync_budgets(project.write({"train.py": TRAIN}))
    assert "train.py:7 train loop: 2 waits per step" in line


def test_a_loop_without_waits_has_no_sync_budget(project: Project) -> None:
    text = TRAIN.replace("        print(loss.item())\n", "").replace(".cuda())", ".cuda(non_blocking=True))")
    assert sync_budgets(project.write({"train.py": text})) == []


def test_the_order_of_findings_is_that_of_files_and_rows(project: Project) -> None:
    project.write({"b.py": TRAIN, "a.py": TRAIN})
    places: list[Any] = [(f["filename"], f["location"]["row"], f["location"]["column"]) for f in project.findings()]
    assert places == sorted(places)
