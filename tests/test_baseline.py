"""Baselines and changed lines: what is new is reported, whatever happened to the text around what is known."""

from __future__ import annotations

import json
import os
import textwrap

import pytest
from conftest import BAD, GOOD, Project, git, in_process, in_subprocess

from perflint.report.fingerprint import normalised

LOOP = """
import torch


def train(model, loader, opt):
    model.cuda()
    for x in loader:
        opt.zero_grad()
        loss = model(x.cuda()).sum()
        loss.backward()
        opt.step()
        print(loss.item())
"""
KNOWN = "perflint-baseline.json"


@pytest.fixture
def messy(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a handful of findings, all of them in its baseline, as the working directory."""
    monkeypatch.chdir(project.root)
    project.write(
        {
            "train.py": LOOP,
            "perflint.toml": f'baseline = "{KNOWN}"\nextend-select = ["item-every-step", "blocking-h2d-in-loop"]\n',
        }
    )
    done = in_process("check", "--update-baseline")
    assert done.exit_code == 0, done.output
    assert f"{KNOWN}: 2 findings, 2 added, 0 removed." in done.stderr
    return project


def new(*arguments: str) -> list[tuple[str, int]]:
    """The rules and rows that `check` reports."""
    done = in_process("check", "--output-format", "json", *arguments)
    assert done.exit_code in (0, 1), done.output
    return [(f["rule"], f["location"]["row"]) for f in json.loads(done.stdout)]


# -- what is known -------------------------------------------------------------------------------------------------------


def test_known_findings_are_counted_and_do_not_fail(messy: Project) -> None:
    done = in_process("check")
    assert (done.exit_code, done.stdout) == (0, f"All checks passed.\n2 known findings in {KNOWN}.\n")


def test_a_new_finding_fails_and_is_reported_alone(messy: Project) -> None:
    messy.write({"train.py": LOOP + "        if loss:\n            break\n", "other.py": BAD})
    done = in_process("check", "--extend-select", "sync-branch-on-tensor")
    assert done.exit_code == 1
    assert new() == [("no-grad-without-call", 4)]
    assert "train.py" not in in_process("check").stdout, "nor is the sync budget of a loop without new findings"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "# a line more\n\n" + text,
        lambda text: text.replace("loss.item())", "loss  .item( ))  # a comment"),
        lambda text: text.replace("loss.item()", "(\n            loss\n            .item()\n        )"),
        lambda text: text.replace("x.cuda()", "x.cuda(\n        )"),
        lambda text: text.replace("    ", "\t"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "def before():\n    pass\n" + text,
    ],
)
def test_known_findings_stay_known_when_lines_move_or_are_laid_out_anew(messy: Project, change: object) -> None:
    assert callable(change)
    (messy.root / "train.py").write_text(change(LOOP), newline="")
    assert new() == []
    assert len(new("--no-baseline")) == 2


def test_the_same_flaw_once_more_is_new(messy: Project) -> None:
    line = "        loss = model(x.cuda()).sum()\n"
    messy.write({"train.py": LOOP.replace(line, 2 * line)})
    assert len(new()) == len(new("--no-baseline")) - 2 > 0


def test_what_is_gone_is_said_and_removed(messy: Project) -> None:
    messy.write({"train.py": LOOP.replace("        print(loss.item())\n", "")})
    done = in_process("check")
    assert done.exit_code == 0
    assert f"1 finding of {KNOWN} is gone; `--update-baseline` removes it.\n" in done.stdout
    assert f"{KNOWN}: 1 finding, 0 added, 1 removed." in in_process("check", "--update-baseline").stderr
    assert "gone" not in in_process("check").stdout


def test_what_a_run_does_not_look_at_is_not_gone(messy: Project) -> None:
    messy.write({"other.py": BAD})
    before = (messy.root / KNOWN).read_text()
    for arguments in (["other.py"], ["--select", "no-grad-without-call"]):
        assert "gone" not in in_process("check", *arguments).stdout
        assert "1 added, 0 removed" in in_process("check", "--update-baseline", *arguments).stderr
        assert len(json.loads((messy.root / KNOWN).read_text())["findings"]) == 3
        (messy.root / KNOWN).write_text(before)


def test_a_file_that_is_gone_takes_its_entries_along(messy: Project) -> None:
    (messy.root / "train.py").unlink()
    messy.write({"other.py": GOOD})
    assert f"2 findings of {KNOWN} are gone" in in_process("check").stdout
    assert "0 findings, 0 added, 2 removed" in in_process("check", "--update-baseline").stderr
    assert in_process("check").stdout == "All checks passed.\n"


def test_the_file_is_the_same_whatever_the_order_and_the_working_directory(
    messy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    messy.write({"a b/deep.py": BAD})
    in_process("check", "--update-baseline", "a b", "train.py")
    first = (messy.root / KNOWN).read_bytes()
    monkeypatch.chdir(messy.root / "a b")
    in_process("check", "--update-baseline", "../train.py", ".")
    assert (messy.root / KNOWN).read_bytes() == first
    entry = {"path": "a b/deep.py", "function": "", "rule": "no-grad-without-call", "code": "torch.no_grad"}
    assert json.loads(first)["findings"][0] == entry
    assert new("..") == []


def test_an_option_names_the_baseline_where_none_is_configured(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    project.write({"train.py": BAD + BAD})
    assert in_process("check", "--baseline", "known.json", "--update-baseline").exit_code == 0
    assert json.loads((project.root / "known.json").read_text())["findings"][0]["count"] == 2
    done = in_subprocess("check", "--baseline", "known.json", cwd=project.root)
    assert (done.returncode, done.stdout) == (0, b"All checks passed.\n2 known findings in known.json.\n")
    assert in_process("check").exit_code == 1


def test_fix_leaves_known_flaws_alone_unless_it_is_told_to(messy: Project) -> None:
    fixable = LOOP.replace("print(loss.item())", "print(loss.item(), loss.item())")
    messy.write({"train.py": fixable, "other.py": BAD})
    in_process("check", "--update-baseline")
    messy.write({"train.py": "import os\n" + fixable, "other.py": BAD + BAD})
    done = in_process("fix", "--unsafe-fixes")
    assert done.exit_code == 0, done.output
    assert (messy.root / "train.py").read_text() == "import os\n" + fixable
    assert (messy.root / "other.py").read_text() == BAD + GOOD, "of several alike the last one is new"
    assert f"known findings in {KNOWN}; `--no-baseline` fixes known ones, too." in done.stdout
    in_process("fix", "--unsafe-fixes", "--no-baseline")
    assert (messy.root / "other.py").read_text() == GOOD + GOOD
    assert (messy.root / "train.py").read_text() != "import os\n" + fixable


def test_only_new_flaws_are_asked_about(messy: Project) -> None:
    messy.write({"other.py": BAD})
    in_process("check", "--update-baseline")
    messy.write({"other.py": BAD * 3})
    done = in_process("fix", "-i", stdin=b"n\ny\n")
    assert done.stdout.count("Fix?") == 2
    assert (messy.root / "other.py").read_text() == BAD + BAD + GOOD


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "there is no such baseline; `perflint check --update-baseline` writes it"),
        ("<<<<<<< HEAD", "no valid baseline"),
        ("[]", "no valid baseline (it is not what `--update-baseline` writes)"),
        ('{"version": 9, "findings": []}', "version 9 is not known"),
        ('{"version": 1, "findings": [{"path": "a.py"}]}', "no valid baseline"),
        ('{"version": 1, "findings": [7]}', "no valid baseline"),
        ('{"version": 1, "findings": [{"path": "a", "function": "", "rule": "r", "code": "c", "count": -1}]}', "is no entry"),
    ],
)
def test_a_baseline_that_cannot_be_read_is_one_line(messy: Project, text: str | None, says: str) -> None:
    path = messy.root / KNOWN
    path.unlink() if text is None else path.write_text(text)
    done = in_subprocess("check", cwd=messy.root)
    assert done.returncode == 2
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1
    assert says in lines[0]
    assert lines[0].startswith(f"Error: {path}: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--update-baseline"], "--update-baseline needs --baseline FILE, or `baseline` in the configuration"),
        (["--update-baseline", "--fix", "--baseline", "x"], "--update-baseline writes all findings"),
        (["--update-baseline", "--diff-base", "HEAD", "--baseline", "x"], "--update-baseline writes all findings"),
        (["--update-baseline", "--baseline", "missing/x.json"], "x.json: the baseline cannot be written"),
        (["--diff-base", "HEAD", "--fix"], "--diff-base compares what is reported"),
    ],
)
def test_wrong_usage_is_said(project: Project, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str) -> None:
    monkeypatch.chdir(project.write({"train.py": BAD}).root)
    done = in_process("check", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_syntax_error_and_a_file_that_is_no_text_can_be_known(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.write({"old.py": "print 'x'\n"}).root)
    (project.root / "broken.py").write_bytes(b"\xff\xfe")
    in_process("check", "--baseline", "known.json", "--update-baseline")
    assert new("--baseline", "known.json") == []
    assert len(new()) == 2
    (project.root / "old.py").write_text("x = 1\nprint 'x', 'y'\n")
    assert new("--baseline", "known.json") == []


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("loss.item()", "loss . item (  )"),
        ("f(a, b)", "f(\n    a,  # the first\n    b,\n)"),
        ("x = a + b", "x = (\n    a\n    + b\n)"),
        ("d['k']", 'd["k"]'),
        ("g(u'k', B'k')", 'g("k", b"k")'),
        ("f'{d[\"k\"]} {x!r:>{w}}'", "f\"{d['k']} {x!r:>{w}}\""),
        ("return x", "return (x)"),
        ("for x in y:\n    z()", "for x in y:\n    anything()\n    else_()"),
        ("a if b else c", "(a\n if b\n else c)"),
        ("x[1:2]", "x[1 : 2]"),
        ("0XFF", "0xff"),
    ],
)
def test_layout_does_not_count(text: str, same: str) -> None:
    assert normalised(text) == normalised(same) != ""


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("a.item()", "b.item()"),
        ("f(a)", "f(a, b)"),
        ("f(x)(y)", "f(x, y)"),
        ("'a b'", "'ab'"),
        ("not x", "notx"),
        ("r'\\''", "'\\''"),
    ],
)
def test_what_is_written_counts(text: str, other: str) -> None:
    assert normalised(text) != normalised(other)


def test_what_is_no_code_has_no_normal_form() -> None:
    assert normalised("f(") == normalised("'''") == normalised("# a comment") == ""


# -- what has changed ----------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository with one commit, as the working directory."""
    monkeypatch.chdir(project.root)
    project.write({"train.py": BAD + "\n" * 9 + BAD, 'odd "n\u00e4me"\t.py': BAD, "lib/a.py": BAD})
    git(project.root, "init", "-q")
    git(project.root, "add", ".")
    git(project.root, "commit", "-qm", "first")
    return project


def places(*arguments: str) -> list[tuple[str, int]]:
    """The files and rows that `check` reports."""
    done = in_process("check", "--output-format", "json", *arguments)
    assert done.exit_code in (0, 1), done.output
    return [(f["filename"], f["location"]["row"]) for f in json.loads(done.stdout)]


def test_lines_that_have_not_changed_are_left_out_and_counted(repository: Project) -> None:
    done = in_process("check", "--diff-base", "HEAD")
    assert done.exit_code == 0
    assert done.stdout == "All checks passed.\n4 findings left out, at lines that have not changed since HEAD.\n"


def test_changed_staged_committed_and_new_lines_are_reported(repository: Project) -> None:
    text = (repository.root / "train.py").read_text()
    last = len(text.splitlines()) - 1
    repository.write({"train.py": text.replace("\n" * 9, "\n" * 20)})
    assert places("--diff-base", "HEAD") == []
    repository.write({"train.py": text.rpartition("with torch.no_grad:")[0] + "with  torch.no_grad:\n    x += 1\n"})
    assert places("--diff-base", "HEAD") == [("train.py", last)]
    git(repository.root, "add", ".")
    assert places("--diff-base", "HEAD") == [("train.py", last)]
    git(repository.root, "commit", "-qm", "second")
    assert places("--diff-base", "HEAD") == []
    assert places("--diff-base", "HEAD~1") == [("train.py", last)]
    repository.write({"untracked.py": BAD})
    assert places("--diff-base", "HEAD") == [("untracked.py", 4)]


def test_of_a_notebook_the_changed_rows_of_its_json_count(repository: Project) -> None:
    flaw = ["import torch\n", "with torch.no_grad:\n", "    x += 1\n"]
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": flaw} for _ in "ab"]
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    repository.write({"a.ipynb": json.dumps(content, indent=1)})
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "notebook")
    assert places("--diff-base", "HEAD") == []
    cells[1]["source"] = [flaw[0], "y = 1\n", "with  torch.no_grad:\n", flaw[2]]
    repository.write({"a.ipynb": json.dumps(content, indent=1)})
    assert places("--diff-base", "HEAD") == [("a.ipynb", 3)]


def test_names_that_git_quotes_are_understood(repository: Project) -> None:
    name = 'odd "n\u00e4me"\t.py'
    repository.write({name: BAD.replace("with torch", "with  torch")})
    assert places("--diff-base", "HEAD") == [(name, 4)]


def test_a_moved_file_has_not_changed(repository: Project) -> None:
    git(repository.root, "mv", "train.py", "moved.py")
    assert places("--diff-base", "HEAD") == []


def test_what_others_have_changed_since_the_branch_began_is_not_ours(repository: Project) -> None:
    git(repository.root, "switch", "-qc", "ours")
    git(repository.root, "switch", "-q", "main")
    repository.write({"lib/a.py": GOOD})
    git(repository.root, "commit", "-qam", "theirs")
    git(repository.root, "switch", "-q", "ours")
    assert places("--diff-base", "main") == []


def test_settings_of_git_and_lines_that_look_like_its_own_do_not_matter(repository: Project) -> None:
    for setting in ("diff.noprefix", "diff.mnemonicPrefix", "diff.relative"):
        git(repository.root, "config", setting, "true")
    git(repository.root, "config", "diff.interHunkContext", "50")
    git(repository.root, "config", "color.ui", "always")
    text = "s = '''\n-- a/x\n++ b/lib/a.py\n@@ -1 +1,99 @@\n'''\n"
    repository.write({"lib/text.py": text})
    git(repository.root, "add", ".")
    git(repository.root, "commit", "-qm", "text")
    repository.write({"lib/text.py": text.replace("x", "y").replace("lib/a", "lib/b") + BAD})
    assert places("--diff-base", "HEAD", "lib") == [("lib/text.py", 9)]


def test_a_repository_inside_of_another_is_asked_itself(repository: Project) -> None:
    inner = repository.root / "inner"
    inner.mkdir()
    (inner / "a.py").write_text(BAD)
    git(inner, "init", "-q")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "first")
    assert places("--diff-base", "HEAD") == []


def test_the_repository_of_a_hook_does_not_stand_for_another(repository: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", os.devnull)
    assert places("--diff-base", "HEAD") == []


@pytest.mark.parametrize("revision", ["nonsense", "--output=x", "HEAD:train.py"])
def test_an_unknown_commit_is_one_line(repository: Project, revision: str) -> None:
    done = in_subprocess("check", f"--diff-base={revision}", cwd=repository.root)
    assert done.returncode == 2
    says = f"Error: --diff-base: {repository.root}: git knows no commit `{revision}`; fetch it, if the clone is shallow\n"
    assert done.stderr.decode() == says


def test_without_a_repository_it_is_said(project: Project) -> None:
    project.write({"train.py": BAD})
    done = in_subprocess("check", "--diff-base", "HEAD", cwd=project.root)
    assert done.returncode == 2
    assert textwrap.dedent(done.stderr.decode()).startswith(f"Error: --diff-base: {project.root} is in no git repository: ")
