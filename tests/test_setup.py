"""Setting up a project: `perflint init`, and what completes the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import BAD, HANG_S, ROOT, Project, command_in, in_process, in_subprocess

HOOKS = ".pre-commit-config.yaml"


@pytest.fixture
def fresh(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A repository with a flaw and without configuration, as the working directory."""
    monkeypatch.chdir(project.root)
    (project.root / ".git").mkdir()
    return project.write({"train.py": BAD})


def files(project: Project) -> set[str]:
    """What there is in a project's folder."""
    return {path.name for path in project.root.iterdir()} - {".git", ".perflint_cache"}


def test_init_writes_configuration_baseline_and_hooks(fresh: Project) -> None:
    done = in_subprocess("init", "--yes", cwd=fresh.root)
    assert (done.returncode, done.stderr) == (0, b"")
    assert files(fresh) == {"train.py", "perflint.toml", "perflint-baseline.json", HOOKS}
    check = in_process("check")
    assert (check.exit_code, check.stdout) == (0, "All checks passed.\n1 known finding in perflint-baseline.json.\n")


def test_init_asks_before_each_file(fresh: Project) -> None:
    done = in_subprocess("init", cwd=fresh.root, stdin=b"n\nn\ny\n")
    assert done.returncode == 0, done.stderr
    assert files(fresh) == {"train.py", HOOKS}
    assert b"Write perflint.toml? [Y/n]" in done.stdout
    done = in_subprocess("init", cwd=fresh.root, stdin=b"n\ny\n")
    assert files(fresh) == {"train.py", "perflint.toml", HOOKS}
    assert "baseline" not in (fresh.root / "perflint.toml").read_text()


def test_init_shows_what_it_would_write(fresh: Project) -> None:
    done = in_process("init", "--dry-run")
    assert done.exit_code == 0
    assert "+++ b/perflint.toml\n" in done.stdout
    assert "+  - repo: local\n" in done.stdout
    assert files(fresh) == {"train.py"}


def test_init_where_nobody_answers_writes_nothing(fresh: Project) -> None:
    done = in_subprocess("init", cwd=fresh.root)
    assert done.returncode == 2
    assert b"nobody answers; say --yes" in done.stderr
    assert files(fresh) == {"train.py"}


def test_init_again_changes_nothing(fresh: Project) -> None:
    in_process("init", "--yes")
    before = {path: path.read_bytes() for path in fresh.root.iterdir() if path.is_file()}
    fresh.write({"more.py": BAD})
    done = in_process("init", "--yes")
    assert "perflint.toml configures perflint already" in done.stdout
    assert all(path.read_bytes() == text for path, text in before.items())


@pytest.mark.parametrize(
    "text",
    ['[project]\nname = "x"\n', '[project]\r\nname = "x"', "", "# \u00e4\n[tool.ruff]\n\n\n"],
    ids=["plain", "crlf", "empty", "comment"],
)
def test_init_adds_a_table_to_pyproject(fresh: Project, text: str) -> None:
    fresh.write({"pyproject.toml": text})
    assert in_process("init", "--yes").exit_code == 0
    after = (fresh.root / "pyproject.toml").read_bytes().decode()
    assert after.startswith(text)
    assert ("\r\n" in text) == ("\r\n" in after)
    assert "\r\n" not in text or "\n" not in after.replace("\r\n", "")
    assert "1 known finding" in in_process("check").stdout


@pytest.mark.parametrize("text", ["tool = {ruff = {line-length = 9}}\n", "[project\n"], ids=["inline", "broken"])
def test_a_pyproject_that_takes_no_table_stays_as_it_is(fresh: Project, text: str) -> None:
    fresh.write({"pyproject.toml": text})
    assert in_process("init", "--yes").exit_code == 0
    assert (fresh.root / "pyproject.toml").read_text() == text
    assert (fresh.root / "perflint.toml").exists()


@pytest.mark.parametrize(
    "text",
    [
        "repos:\n- repo: https://example.org/a\n  rev: v1\n  hooks:\n  - id: a\n",
        "# ours\nrepos:\n  - repo: https://example.org/a\n    rev: v1\n    hooks:\n      - id: a",
        "default_language_version:\n  python: python3\nrepos:  # these\n    - repo: local\n      hooks: []\n\n",
        "repos:\n",
    ],
)
def test_hooks_join_those_that_there_are(fresh: Project, text: str) -> None:
    fresh.write({HOOKS: text})
    in_process("init", "--yes")
    after = (fresh.root / HOOKS).read_text()
    assert after.startswith(text)
    before = yaml.safe_load(text)["repos"] or []
    assert yaml.safe_load(after)["repos"][:-1] == before
    assert [hook["id"] for hook in yaml.safe_load(after)["repos"][-1]["hooks"]] == ["perflint-fix", "perflint-check"]


@pytest.mark.parametrize("text", ["repos: []\n", "repos:\n- repo: local\n  hooks: []\nfail_fast: true\n", "- a\n"])
def test_hooks_of_another_shape_stay_and_what_to_add_is_said(fresh: Project, text: str) -> None:
    fresh.write({HOOKS: text})
    done = in_process("init", "--yes")
    assert (fresh.root / HOOKS).read_text() == text
    assert f"{HOOKS} has another shape than most; add this below `repos:`" in done.stdout


def test_the_hooks_of_init_are_those_that_pre_commit_installs(fresh: Project) -> None:
    in_process("init", "--yes")
    (repository,) = yaml.safe_load((fresh.root / HOOKS).read_text())["repos"]
    announced = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    for hook in repository["hooks"]:
        announcement = announced[hook["id"]]
        assert hook["language"] == "system"
        assert hook == {key: announcement[key] for key in announcement if key != "description"} | {"language": "system"}


def test_without_a_repository_there_are_no_hooks(fresh: Project) -> None:
    (fresh.root / ".git").rmdir()
    assert "No git repository: no hooks." in in_process("init", "--yes").stdout
    assert HOOKS not in files(fresh)


def test_a_file_that_cannot_be_written_is_said(fresh: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perflint.init.write_text", full)
    done = in_process("init", "--yes")
    assert done.exit_code == 2
    assert "perflint.toml: cannot be written: No space left on device" in done.stderr


# -- completion ----------------------------------------------------------------------------------------------------------


def completed(shell: str, folder: Path, *words: str) -> list[str]:
    """What a shell is told to offer for the last of the words."""
    paths = os.pathsep.join(str(ROOT / name) for name in (".", "probe", "rules", "runtime"))
    line = {"COMP_WORDS": " ".join(["perflint", *words]), "COMP_CWORD": str(len(words))}
    if shell == "fish":
        line["COMP_CWORD"] = words[-1]
    environment = {**os.environ, **line, "PYTHONPATH": paths, "_PERFLINT_COMPLETE": f"{shell}_complete"}
    command = [sys.executable, "-c", "from perflint.__main__ import main; import sys; sys.argv[0] = 'perflint'; main()"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_options_and_rules_are_offered(shell: str, tmp_path: Path) -> None:
    assert any("check" in line for line in completed(shell, tmp_path, "ch"))
    assert any("--output-format" in line for line in completed(shell, tmp_path, "check", "--output-f"))
    assert any("sarif" in line for line in completed(shell, tmp_path, "check", "--output-format", "sa"))
    assert any("no-grad-without-call" in line for line in completed(shell, tmp_path, "explain", "no-grad-w"))
    offered = completed(shell, tmp_path, "check", "--select", "autograd,item-ev")
    assert any("autograd,item-every-step" in line for line in offered)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_script(tmp_path: Path) -> None:
    (tmp_path / "completion.sh").write_bytes(in_subprocess("completion", "bash", cwd=tmp_path).stdout)
    command_in(tmp_path)
    lines = [
        "source ./completion.sh; complete -p perflint; COMP_WORDS=(perflint chec); COMP_CWORD=1",
        "_perflint_completion perflint; echo ${COMPREPLY[@]}",
    ]
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert "-F _perflint_completion perflint" in done.stdout
    assert done.stdout.splitlines()[-1] == "check"
