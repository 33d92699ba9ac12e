"""Hooks, the GitHub action and the snippets of docs/ci.md, each run or checked by the real program where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import BAD, GOOD, HANG_S, ROOT, Project, command_in, git, in_process

SNIPPETS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.S)
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with its output in one."""
    merged = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=cwd, env=merged, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=HANG_S, check=False
    )


@pytest.fixture
def perflint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, as it is installed."""
    return command_in(tmp_path_factory.mktemp("bin"))


# -- pre-commit ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that announces the hooks of this one, as they are in the working tree."""
    pytest.importorskip("pre_commit")
    folder = tmp_path_factory.mktemp("hooks")
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    assert git(folder, "commit", "-qm", "hooks").returncode == 0
    return folder


@pytest.fixture
def committing(project: Project, hooks: Path, perflint: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A repository with the snippet of docs/ci.md, whose commits pre-commit looks at; `commit(files)` makes one.

    The hooks take perflint from the environment: that pre-commit can install it is another test's matter.
    """
    commit = git(hooks, "rev-parse", "HEAD").stdout.strip()
    config = yaml.safe_load(next(text for text in SNIPPETS if "perflint-fix" in text))
    (repository,) = config["repos"]
    repository.update(repo=str(hooks), rev=commit)
    for hook in repository["hooks"]:
        hook["language"] = "system"
    environment = {
        "PATH": f"{perflint.parent}{os.pathsep}{os.environ['PATH']}",
        "PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("home")),
    }
    git(project.root, "init", "-q")
    project.write({".pre-commit-config.yaml": yaml.safe_dump(config)})
    installed = run(sys.executable, "-m", "pre_commit", "install", cwd=project.root, **environment)
    assert installed.returncode == 0, installed.stdout

    def commit_files(files: dict[str, str]) -> subprocess.CompletedProcess[str]:
        project.write(files)
        git(project.root, "add", ".")
        return git(project.root, "commit", "-m", "a commit", **environment)

    return commit_files


def test_pre_commit_stops_a_commit_until_what_it_fixed_is_staged(project: Project, committing: Any) -> None:
    stopped = committing({"train.py": BAD})
    assert stopped.returncode == 1
    assert "files were modified by this hook" in stopped.stdout
    assert (project.root / "train.py").read_text() == GOOD
    assert committing({}).returncode == 0
    assert git(project.root, "show", "HEAD:train.py").stdout == GOOD


def test_pre_commit_shows_what_cannot_be_fixed(committing: Any) -> None:
    stopped = committing({"broken.py": "def f(:\n"})
    assert stopped.returncode == 1
    assert "invalid-syntax" in stopped.stdout


def test_pre_commit_passes_without_python_files_and_for_known_and_excluded_ones(project: Project, committing: Any) -> None:
    skipped = committing({"notes.md": "no code\n"})
    assert skipped.returncode == 0
    assert "(no files to check)Skipped" in skipped.stdout
    project.write({"perflint.toml": 'extend-exclude = ["old/"]\nbaseline = "known.json"\n', "broken.py": "def f(:\n"})
    assert in_process("check", str(project.root), "--update-baseline").exit_code == 0
    passed = committing({"old/train.py": BAD})
    assert passed.returncode == 0, passed.stdout
    assert (project.root / "old" / "train.py").read_text() == BAD


@pytest.mark.slow
def test_pre_commit_installs_perflint_itself(project: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    """From a clone, by pip; needs a package index."""
    clone, home = tmp_path_factory.mktemp("clone") / "perflint", tmp_path_factory.mktemp("home")
    assert git(ROOT, "clone", "-q", "--no-hardlinks", str(ROOT), str(clone)).returncode == 0
    git(project.root, "init", "-q")
    project.write({"train.py": BAD})
    git(project.root, "add", ".")
    done = run(
        *(sys.executable, "-m", "pre_commit", "try-repo", clone, "perflint-fix", "--all-files"),
        cwd=project.root,
        PRE_COMMIT_HOME=str(home),
        PYTHONPATH="",
    )
    if "No matching distribution" in done.stdout or "Could not find a version" in done.stdout:
        pytest.skip("no package index can be reached")
    assert done.returncode == 1, done.stdout
    assert (project.root / "train.py").read_text() == GOOD


@pytest.mark.parametrize("where", ["old/train.py", "src/old.py", "src/deep/old/a.py"])
def test_excluded_files_are_left_out_though_they_are_named(
    project: Project, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.chdir(project.root)
    project.write({where: BAD, "train.py": BAD, "perflint.toml": 'extend-exclude = ["old/", "src/old.py"]\n'})
    assert in_process("check", "--show-files", where, "train.py").stdout.split() == [where, "train.py"]
    assert in_process("check", "--show-files", "--force-exclude", where, "train.py").stdout == "train.py\n"
    (project.root / "perflint.toml").unlink()
    assert in_process("check", "--show-files", "--force-exclude", "--exclude", "old*", where).stdout == ""


# -- GitHub and GitLab ---------------------------------------------------------------------------------------------------


def schema_errors(schema: str, path: Path) -> str:
    """What check-jsonschema says of a file; nothing if it is valid."""
    pytest.importorskip("check_jsonschema")
    done = run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, path, cwd=ROOT)
    return done.stdout if done.returncode else ""


def test_the_action_is_valid() -> None:
    assert schema_errors("vendor.github-actions", ROOT / "action.yml") == ""


@pytest.mark.parametrize(
    ("schema", "holds"),
    [("vendor.github-workflows", "runs-on:"), ("vendor.gitlab-ci", "codequality:")],
    ids=["github", "gitlab"],
)
def test_the_snippets_are_valid(tmp_path: Path, schema: str, holds: str) -> None:
    (snippet,) = (text for text in SNIPPETS if holds in text)
    (tmp_path / "snippet.yml").write_text(
        snippet.replace("<owner and name of this repository>@<a tag or commit>", "owner/name@v1")
    )
    assert schema_errors(schema, tmp_path / "snippet.yml") == ""


def test_the_snippet_names_inputs_that_the_action_has() -> None:
    (snippet,) = (text for text in SNIPPETS if "runs-on:" in text)
    (job,) = yaml.safe_load(snippet)["jobs"].values()
    assert set(job["steps"][-1]["with"]) < set(ACTION["inputs"])


class Action:
    """The shell steps of action.yml, each run as GitHub runs it, with perflint installed already."""

    def __init__(self, project: Project, perflint: Path, scratch: Path, **inputs: str) -> None:
        self.project, self.scratch = project, scratch
        self.values = {f"inputs.{name}": given["default"] for name, given in ACTION["inputs"].items()}
        self.values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        self.values |= {"steps.install.outputs.perflint": str(perflint), "runner.temp": str(scratch)}
        self.values["steps.python.outputs.python-path"] = sys.executable
        self.summary = scratch / "summary.md"
        self.summary.write_text("# Of another step\n")

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run a step."""
        (step,) = (step for step in ACTION["runs"]["steps"] if step.get("name") == name)
        given = {key: re.sub(r"\$\{\{ (.*?) \}\}", lambda e: self.values[e[1]], value) for key, value in step["env"].items()}
        script = self.scratch / "script.sh"
        script.write_text(step["run"])
        files = {"GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_OUTPUT": str(self.scratch / "output")}
        files["GITHUB_ACTION_PATH"] = str(ROOT)
        command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", script)
        return run(*command, cwd=self.project.root, RUNNER_TEMP=str(self.scratch), PERFLINT_NO_CACHE="", **files, **given)


@pytest.fixture
def action(project: Project, perflint: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`action(input=value)` is the action with these inputs."""
    project.write({"src/train.py": BAD, "src/other file.py": GOOD, "tests/bad.py": BAD})
    return lambda **inputs: Action(project, perflint, tmp_path_factory.mktemp("runner"), **inputs)


def test_the_action_writes_reports_and_annotations_and_fails(action: Any) -> None:
    made = action(paths="src")
    written = made.step("Write the reports")
    assert (written.returncode, written.stdout) == (0, "")
    summary = made.summary.read_text()
    assert summary.startswith("# Of another step\n## perflint: 1 finding\n")
    output = dict(line.split("=", 1) for line in (made.scratch / "output").read_text().splitlines())
    assert '"uri": "src/train.py"' in Path(output["sarif-file"]).read_text()
    gate = made.step("perflint check")
    assert gate.returncode == 1
    assert gate.stdout.startswith("::error title=perflint (no-grad-without-call),file=src/train.py,line=4,")
    assert gate.stdout.count("::error") == 1
    assert (made.scratch / "perflint-cache").exists()


@pytest.mark.slow
def test_the_action_installs_perflint(action: Any) -> None:
    """By pip, from the checkout of the action; needs a package index."""
    made = action()
    done = made.step("Install perflint")
    if "No matching distribution" in done.stdout or "Could not find a version" in done.stdout:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stdout
    (line,) = (made.scratch / "output").read_text().splitlines()
    made.values["steps.install.outputs.perflint"] = line.removeprefix("perflint=")
    assert made.step("perflint check").returncode == 1


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"fail_on": "never"}, 0),
        ({"args": "--ignore no-grad-without-call"}, 0),
        ({"args": "--exclude src/*.py --exclude tests"}, 0),
        ({"paths": "src tests"}, 1),
        ({"paths": "*.py"}, 2),
        ({"args": "--no-such-option"}, 2),
    ],
    ids=str,
)
def test_inputs_decide_the_exit_code(action: Any, inputs: dict[str, str], code: int) -> None:
    made = action(**inputs)
    assert made.step("perflint check").returncode == code
    assert made.step("Write the reports").returncode == (code if code == 2 else 0)


def test_the_summary_can_be_switched_off(action: Any) -> None:
    made = action(summary="false")
    assert made.step("Write the reports").returncode == 0
    assert made.summary.read_text() == "# Of another step\n"


def test_the_steps_of_gitlab_write_their_reports(project: Project, perflint: Path) -> None:
    project.write({"train.py": BAD})
    (snippet,) = (text for text in SNIPPETS if "codequality:" in text)
    (job,) = yaml.safe_load(snippet).values()
    commands = [line for line in job["script"] if line.startswith("perflint")]
    codes = [
        run("sh", "-c", line, cwd=project.root, PATH=f"{perflint.parent}:{os.environ['PATH']}").returncode for line in commands
    ]
    assert codes == [0, 0, 1]
    assert all((project.root / report).stat().st_size for report in job["artifacts"]["reports"].values())
