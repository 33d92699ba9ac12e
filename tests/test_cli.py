"""The command line: options, exit codes, and what goes where."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BAD, GOOD, ROOT, Project, in_process, in_subprocess

from perflint.rule.registry import all_rules

pytestmark = pytest.mark.usefixtures("waits_told")


@pytest.fixture
def bad(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one finding, as the working directory."""
    monkeypatch.chdir(project.root)
    return project.write({"train.py": BAD})


# -- exit codes ----------------------------------------------------------------------------------------------------------


def test_findings_exit_with_1(bad: Project) -> None:
    assert in_process("check").exit_code == 1


def test_no_findings_exit_with_0(bad: Project) -> None:
    bad.write({"train.py": GOOD})
    result = in_process("check")
    assert result.exit_code == 0
    assert result.stdout == "All checks passed.\n"


def test_fix_that_leaves_nothing_exits_with_0(bad: Project) -> None:
    result = in_process("fix")
    assert result.exit_code == 0
    assert result.stdout == "train.py: no-grad-without-call\nFixed 1 finding in 1 file.\n"
    assert (bad.root / "train.py").read_text() == GOOD


def test_fix_that_leaves_a_finding_exits_with_1(bad: Project) -> None:
    bad.write({"broken.py": "def f(:\n"})
    result = in_process("fix")
    assert result.exit_code == 1
    assert "Fixed 1 finding in 1 file, 1 left." in result.stdout


def test_exit_zero_hides_findings_from_the_exit_code(bad: Project) -> None:
    assert in_process("check", "--exit-zero").exit_code == 0
    assert in_process("check", "-e", "--diff").exit_code == 0


ADVICE = """
    import torch


    def train(model, loader, opt):
        model.cuda()
        for x in loader:
            loss = model(x).sum()
            loss.backward()
            opt.step()
            torch.cuda.synchronize()
"""


def test_advice_fails_unless_only_what_is_actionable_does(project: Project) -> None:
    assert [f["fix"] for f in project.write({"train.py": ADVICE}).findings()] == [None]
    assert project.run("check").exit_code == 1
    assert project.run("check", "--fail-on", "actionable").exit_code == 0
    project.write({"broken.py": "def f(:\n"})
    assert project.run("check", "--fail-on", "actionable").exit_code == 1
    project.write({"broken.py": "", "fixable.py": BAD})
    assert project.run("check", "--fail-on", "actionable").exit_code == 1


@pytest.mark.parametrize(
    ("fail_on", "codes"),
    [
        ("any", (1, 1, 1)),
        ("info", (1, 1, 1)),
        ("warning", (0, 1, 1)),
        ("error", (0, 0, 1)),
        ("actionable", (0, 0, 1)),
        ("never", (0, 0, 0)),
    ],
)
def test_a_severity_decides_the_exit_code(project: Project, fail_on: str, codes: tuple[int, ...]) -> None:
    advice = "import torch\nfrom torch.cuda.amp import autocast\n\nwith autocast():\n    pass\n"
    found = []
    for text in (advice, ADVICE, BAD):
        project.write({"train.py": text})
        found.append(project.run("check", "--extend-select", "deprecated-cuda-amp", "--fail-on", fail_on).exit_code)
    assert tuple(found) == codes


def test_the_hooks_together_print_each_finding_once(bad: Project) -> None:
    bad.write({"advice.py": ADVICE})
    entries = re.findall(r"^  entry: perflint (.*)$", (ROOT / ".pre-commit-hooks.yaml").read_text(), re.M)
    check, fix = (next(entry.split() for entry in entries if entry.startswith(name)) for name in ("check", "fix"))
    results = [in_process(*entry, "train.py", "advice.py") for entry in (fix, check)]
    assert [result.exit_code for result in results] == [0, 0]
    output = "".join(result.stdout for result in results)
    assert output.count("no-grad-without-call") == 1
    assert output.count("synchronize-in-loop") == 1
    assert [in_process(*entry, "train.py", "advice.py").exit_code for entry in (fix, check)] == [0, 0]
    bad.write({"train.py": BAD})
    assert in_process(*check, "train.py").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "--slect", "all"], "--select"),
        (["chekc"], "check"),
        (["check", ""], "Error: a path is empty"),
        (["check", "missing.py"], "missing.py: no such file or directory"),
        (["check", "--output-format", "xml"], "'grouped', 'full', 'concise', 'json'"),
        (["check", "--select", "no-grad-witout-call"], "did you mean `no-grad-without-call`?"),
        (["check", "--ignore", "device-snyc"], "did you mean `device-sync`?"),
        (["check", "--extend-select", "qqq"], "`perflint rules` lists them"),
        (["check", "--select", "invalid-syntax"], "always reported"),
        (["check", "--isolated", "--config", "x.toml"], "exclude each other"),
        (["check", "--config", "missing.toml"], "missing.toml: cannot be read"),
        (["check", "-", "train.py"], "cannot be checked together"),
        (["check", "--stdin-filename", "x.py", "train.py"], "cannot be checked together"),
        (["check", "--add-ignores", "--fix"], "--add-ignores"),
        (["check", "--add-ignores", "--diff"], "--add-ignores"),
        (["check", "--add-ignores", "-"], "--add-ignores"),
        (["check", "--output-file", "missing/report.txt"], "missing/report.txt: cannot be written"),
        (["explain", "no-grad-witout-call"], "did you mean `no-grad-without-call`?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_exits_with_2_and_says_what_to_do(bad: Project, arguments: list[str], says: str) -> None:
    result = in_process(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert (bad.root / "train.py").read_text() == BAD


def test_an_internal_error_exits_with_2_and_names_the_rule_and_the_file(bad: Project) -> None:
    broken_rule = """
import dataclasses, sys
import perflint.rule.registry, perflint.run.run
from perflint.__main__ import main
def fail(code): raise KeyError("oops")
rules = [dataclasses.replace(r, check=fail) for r in perflint.rule.registry.all_rules() if r.name == "no-grad-without-call"]
perflint.rule.registry.all_rules = lambda: tuple(rules)
main()
"""
    done = in_subprocess("check", cwd=bad.root, code=broken_rule)
    assert done.returncode == 2
    assert "the rule no-grad-without-call failed in the module's own code: KeyError('oops')" in done.stdout.decode()
    first, *_, last = done.stderr.decode().splitlines()
    assert "the rule no-grad-without-call failed in" in first
    assert "train.py" in first
    assert last == "KeyError: 'oops'"


# -- which rules ---------------------------------------------------------------------------------------------------------


def selected_rules(project: Project, *arguments: str) -> set[str]:
    return {f["rule"] for f in project.findings(*arguments)}


MANY = """
    import torch
    from torch import nn

    def train(model: nn.Module, loader, opt):
        model.cuda()
        for x, y in loader:
            loss = model(x.cuda()).sum()
            loss.backward()
            opt.step()
            with torch.no_grad:
                pass
"""


def test_select_takes_a_rule_or_a_group_or_all(project: Project) -> None:
    project.write({"train.py": MANY})
    assert selected_rules(project, "--select", "no-grad-without-call") == {"no-grad-without-call"}
    assert selected_rules(project, "--select", "transfer") == {"blocking-h2d-in-loop"}
    two = {"blocking-h2d-in-loop", "no-grad-without-call"}
    assert selected_rules(project, "--select", "transfer,no-grad-without-call") == two
    assert selected_rules(project, "--select", "all") >= two


def test_options_with_names_may_be_repeated(project: Project) -> None:
    project.write({"train.py": MANY})
    found = selected_rules(project, "--select", "transfer", "--select", "no-grad-without-call")
    assert found == {"blocking-h2d-in-loop", "no-grad-without-call"}


WRITES = """\
import torch
from torch.utils.data import DataLoader


@torch.no_grad()
def answer(model, texts):
    model.cuda()
    for batch in DataLoader(texts, batch_size=8, pin_memory=True):
        ids = batch["ids"].to("cuda")  # perflint: ignore[blocking-h2d-in-loop]
        mask = batch["mask"].to("cuda")
        print(model.generate(ids, attention_mask=mask, max_new_tokens=64))
"""


@pytest.mark.parametrize("chosen", ["blocking-h2d-in-loop", "transfer", "all"])
def test_what_is_worth_little_is_shown_to_those_who_select_the_rule(project: Project, chosen: str) -> None:
    project.write({"answer.py": WRITES})
    assert selected_rules(project) == set()  # the comment silences something all the same
    assert "blocking-h2d-in-loop" in selected_rules(project, "--extend-select", chosen)
    assert "blocking-h2d-in-loop" in selected_rules(project, "--select", chosen)


def test_ignore_wins_over_select(project: Project) -> None:
    project.write({"train.py": MANY})
    assert selected_rules(project, "--select", "all", "--ignore", "all") == set()
    assert "blocking-h2d-in-loop" not in selected_rules(project, "--ignore", "transfer")


def test_extend_select_adds_to_the_default(project: Project) -> None:
    project.write({"train.py": MANY})
    advice = [r.name for r in all_rules() if r.severity.value == "info"]
    default = selected_rules(project)
    assert not default & set(advice)
    assert selected_rules(project, "--extend-select", "all") >= default


def test_names_on_the_command_line_add_to_the_configured_ones(bad: Project) -> None:
    bad.write({"train.py": MANY, "perflint.toml": 'ignore = ["no-grad-without-call"]'})
    result = in_process("check", "--ignore", "transfer", "--output-format", "concise")
    assert "no-grad-without-call" not in result.stdout
    assert "blocking-h2d-in-loop" not in result.stdout


def test_select_on_the_command_line_starts_anew(bad: Project) -> None:
    bad.write({"perflint.toml": 'select = ["transfer"]\nignore = ["no-grad-without-call"]'})
    assert in_process("check").exit_code == 0
    assert in_process("check", "--select", "no-grad-without-call").exit_code == 1


# -- output --------------------------------------------------------------------------------------------------------------


def test_output_file_takes_the_report_and_the_terminal_the_summary(bad: Project) -> None:
    result = in_process("check", "--output-format", "concise", "--output-file", "report.txt")
    assert result.stdout == ""
    assert "Found 1 finding." in result.stderr
    assert (bad.root / "report.txt").read_text().startswith("train.py:4:6: no-grad-without-call")


def test_statistics_count_by_rule_what_can_be_fixed(project: Project) -> None:
    lines = (
        project.write({"train.py": MANY})
        .run("check", "--statistics", "--extend-select", "blocking-h2d-in-loop")
        .stdout.splitlines()
    )
    assert lines[:3] == [
        "all  safe  assuming  unsafe  no fix  rule",
        "  1     0         1       0       0  blocking-h2d-in-loop",
        "  1     1         0       0       0  no-grad-without-call",
    ]
    assert lines[3] == "Found 2 findings."


@pytest.mark.parametrize("output_format", ["json", "json-lines"])
def test_statistics_go_with_json(project: Project, output_format: str) -> None:
    chosen = ("--extend-select", "blocking-h2d-in-loop", "--output-format", output_format)
    output = project.write({"train.py": MANY}).run("check", "--statistics", *chosen).stdout
    counts = json.loads(output) if output_format == "json" else [json.loads(line) for line in output.splitlines()]
    assert counts[1] == {
        "code": "no-grad-without-call",
        "rule": "no-grad-without-call",
        "count": 1,
        "safe": 1,
        "assuming": 0,
        "unsafe": 0,
        "without_fix": 0,
    }


def test_quiet_prints_findings_only(bad: Project) -> None:
    assert len(in_process("check", "-q", "--output-format", "concise").stdout.splitlines()) == 1
    bad.write({"train.py": GOOD})
    assert in_process("check", "-q").output == ""


def test_show_files_lists_them_and_stops(bad: Project) -> None:
    bad.write({"sub/a.py": "", "sub/b.txt": "", ".venv/c.py": ""})
    result = in_process("check", "--show-files")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == ["train.py", os.path.join("sub", "a.py")]


def test_a_directory_without_python_files_is_said_and_is_no_error(project: Project) -> None:
    result = project.run("check")
    assert result.exit_code == 0
    assert "No Python files were found." in result.stderr


def test_no_progress_and_no_colour_when_output_is_no_terminal(bad: Project) -> None:
    done = in_subprocess("check", cwd=bad.root)
    assert b"\x1b" not in done.stdout + done.stderr
    assert done.stderr == b""


def test_a_line_that_does_not_fit_the_output_encoding_is_escaped(bad: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    bad.write({"train.py": BAD.replace("no_grad:", "no_grad:  # \u2192")})
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = in_subprocess("check", "--output-format", "full", cwd=bad.root)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert b"\\u2192" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_a_closed_pipe_gives_no_traceback(bad: Project) -> None:
    bad.write({f"train{i}.py": BAD for i in range(300)})
    program = [sys.executable, "-m", "perflint", "check"]
    with subprocess.Popen(program, cwd=bad.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_exits_with_130_and_no_traceback(bad: Project) -> None:
    interrupted = """
import os, signal
import perflint.run.engine
from perflint.__main__ import main
perflint.run.engine.check_file = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)
main()
"""
    done = in_subprocess("check", cwd=bad.root, code=interrupted)
    assert done.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in done.stderr


def test_bytecode_that_is_cut_off_is_said_and_is_no_ctrl_d(bad: Project) -> None:
    cut_off = """
import perflint.run.run
from perflint.__main__ import main
def check(*arguments, **named):
    import marshal
    marshal.loads(marshal.dumps([1] * 9)[:-3])
perflint.run.run.Run.check = check
main()
"""
    done = in_subprocess("check", cwd=bad.root, code=cut_off)
    assert done.returncode == 2
    assert b"Error: Python's bytecode of a module is cut off: delete the folders `__pycache__`" in done.stderr
    assert b"Traceback" not in done.stderr


# -- standard input ------------------------------------------------------------------------------------------------------


def test_standard_input_is_checked_under_the_given_name(bad: Project) -> None:
    result = in_process("check", "--stdin-filename", "sub/x.py", "-", "--output-format", "concise", stdin=BAD.encode())
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{os.path.join('sub', 'x.py')}:4:6: no-grad-without-call")


def test_fix_of_standard_input_prints_the_text_and_nothing_else(bad: Project) -> None:
    result = in_process("fix", "-", stdin=BAD.encode())
    assert result.stdout == GOOD
    assert "Fixed 1 finding" in result.stderr
    assert (bad.root / "train.py").read_text() == BAD


def test_fix_of_standard_input_prints_what_it_cannot_fix_unchanged(bad: Project) -> None:
    broken = b"def f(:\r\n\xef\r\n"
    result = in_process("fix", "-", stdin=broken)
    assert result.exit_code == 1
    assert result.stdout_bytes == broken


def test_standard_input_takes_the_place_of_the_file_that_it_is_named_after(bad: Project) -> None:
    assert in_process("check", "--stdin-filename", "train.py", "-", stdin=GOOD.encode()).exit_code == 0


# -- diff ----------------------------------------------------------------------------------------------------------------


def test_diff_writes_nothing_and_exits_with_1(bad: Project) -> None:
    result = in_process("check", "--diff")
    assert result.exit_code == 1
    assert "+with torch.no_grad():" in result.stdout
    assert "Would fix 1 finding in 1 file." in result.stderr
    assert (bad.root / "train.py").read_text() == BAD


def test_diff_of_clean_files_is_empty_and_exits_with_0(bad: Project) -> None:
    bad.write({"train.py": GOOD})
    result = in_process("fix", "--diff")
    assert (result.exit_code, result.stdout) == (0, "")


NEEDS_IMPORT = """\
from torch import nn

def evaluate(model: nn.Module, loader):
    model.eval()
    for x, y in loader:
        print(model(x).argmax())
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", BAD),
        ("sub/my file.py", BAD),
        ("sub/\u00e9.py", BAD),
        ("crlf.py", BAD.replace("\n", "\r\n")),
        ("no_final_newline.py", BAD + "with torch.no_grad:\n    pass"),
        ("crlf_no_final_newline.py", BAD.replace("\n", "\r\n") + "with torch.no_grad:\r\n    pass"),
        ("mark.py", "\ufeff# \u00e9\n" + BAD),
        ("form_feed.py", "# a\x0c\n\x0c\n" + BAD),
        ("new_import.py", NEEDS_IMPORT),
    ],
)
def test_git_applies_the_diff_and_gets_what_fix_writes(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    path = project.root / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    monkeypatch.chdir(project.root)
    subprocess.run(["git", "init", "-q"], check=True)
    diff = in_process("fix", "--diff", "--unsafe-fixes", "--select", "all").stdout_bytes
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=diff, check=True)
    applied = path.read_bytes()
    path.write_bytes(text.encode())
    in_process("fix", "--unsafe-fixes", "--select", "all")
    assert path.read_bytes() == applied != text.encode()


# -- add-ignores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        BAD,
        BAD.replace("\n", "\r\n"),
        BAD.replace("no_grad:", "no_grad:  # note"),
        BAD.replace("no_grad:", "no_grad:  # perflint: ignore[item-every-step] why"),
        BAD.replace("no_grad:", "no_grad, \\\n  f():"),
        BAD.replace("no_grad:", "no_grad, f('''\n'''):"),
        BAD.replace("no_grad:", "no_grad, f('''\n''', \\\n 2):"),
        "# coding: latin-1\n" + BAD.replace("no_grad:", "no_grad:  # \u00e9"),
        BAD.rstrip("\n"),
    ],
)
def test_add_ignores_silences_everything_and_changes_comments_only(bad: Project, text: str) -> None:
    import ast

    encoding = "latin-1" if "latin-1" in text else "utf-8"
    (bad.root / "train.py").write_bytes(text.encode(encoding))
    result = in_process("check", "--add-ignores")
    assert result.exit_code == 0
    assert "Added suppressions for 1 finding" in result.stderr
    after = (bad.root / "train.py").read_bytes()
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(text.encode(encoding)))
    assert after.count(b"\r") == text.count("\r")
    assert in_process("check", "--select", "no-grad-without-call").exit_code == 0


# -- other commands ------------------------------------------------------------------------------------------------------


def test_rules_lists_every_rule() -> None:
    listed = [line.split()[0] for line in in_process("rules").stdout.splitlines()]
    assert listed == [rule.name for rule in all_rules()]


@pytest.mark.parametrize("name", ["internal-error", "invalid-syntax", "unreadable-file", "unused-suppression"])
def test_explain_knows_what_perflint_itself_reports(name: str) -> None:
    result = in_process("explain", name)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"# {name}\n")


def test_explain_lists_the_rules_of_a_group() -> None:
    result = in_process("explain", "device-sync")
    assert result.exit_code == 0
    named = re.findall(r"(?m)^- `(.+)`: .", result.stdout)
    assert named == [rule.name for rule in all_rules() if rule.category == "device-sync"]


def test_a_run_without_rules_says_so(bad: Project) -> None:
    done = in_process("check", "--select", "all", "--ignore", "all")
    assert (done.exit_code, done.stderr) == (0, "warning: no rule is selected, so nothing was looked for\n")
    done = in_process("check", "--select", " ,")
    assert done.exit_code == 2
    assert "Error: --select names nothing\n" in done.stderr


@pytest.mark.parametrize("command", ["check", "fix"])
def test_each_option_stands_in_a_section_of_the_help(command: str) -> None:
    text = in_process(command, "--help").stdout
    assert re.findall(r"(?m)^  -.*", text.partition("\nOther:\n")[2]) == ["  -h, --help  Show this message and exit."]


def test_version_and_help_are_no_errors(tmp_path: Path) -> None:
    for arguments in (["--version"], ["--help"], ["check", "-h"]):
        assert in_process(*arguments).exit_code == 0
