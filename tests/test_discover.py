"""Which files are checked."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import Project, in_process
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perflint.project.ignores import Ignores, ignore_spec


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project as the working directory."""
    monkeypatch.chdir(project.root)
    return project


def files(*arguments: str) -> list[str]:
    """What `--show-files` prints."""
    result = in_process("check", "--show-files", *arguments)
    assert result.exit_code == 0, result.output
    return [line.replace(os.sep, "/") for line in result.stdout.splitlines()]


def test_python_files_are_found_in_order_of_names(here: Project) -> None:
    here.write({"b.py": "", "a/z.py": "", "a/y.pyw": "", "c.txt": "", "d.pyi": ""})
    assert files() == ["b.py", "a/y.pyw", "a/z.py"]


def test_a_file_that_is_named_is_checked_whatever_its_suffix_and_excludes(here: Project) -> None:
    here.write({"script": "", "build/x.py": "", ".gitignore": "build/"})
    assert files("script", "build/x.py") == ["script", "build/x.py"]


def test_a_directory_that_is_named_is_checked_although_it_is_excluded(here: Project) -> None:
    here.write({".git/HEAD": "", "perflint.toml": "", ".gitignore": "gen/", "build/x.py": "", "gen/sub/y.py": ""})
    here.write({"gen/build/z.py": ""})
    assert files() == []
    assert files("build", "gen", "gen/sub") == ["build/x.py", "gen/sub/y.py"]


def test_each_file_counts_once(here: Project) -> None:
    here.write({"a/b.py": ""})
    assert files("a", "a/b.py", ".", "./a/../a/b.py") == ["a/b.py"]


def test_default_excludes_leave_out_caches_and_environments(here: Project) -> None:
    here.write({".venv/a.py": "", "sub/node_modules/b.py": "", "__pycache__/c.py": "", "sub/._e.py": "", "d.py": ""})
    assert files() == ["d.py"]


def test_gitignore_is_honoured_without_git(here: Project) -> None:
    here.write({".gitignore": "gen/\n/top.py\n", "gen/a.py": "", "top.py": "", "sub/top.py": "", "sub/gen/b.py": ""})
    assert files() == ["sub/top.py"]


def test_a_nested_gitignore_counts_below_it_and_wins(here: Project) -> None:
    here.write({".gitignore": "*_gen.py\n", "sub/.gitignore": "!keep_gen.py\nown.py\n"})
    here.write({"keep_gen.py": "", "sub/keep_gen.py": "", "sub/x_gen.py": "", "sub/own.py": "", "own.py": ""})
    assert files() == ["own.py", "sub/keep_gen.py"]


def test_gitignore_of_the_directories_above_counts_inside_a_repository(here: Project) -> None:
    here.write({".git/HEAD": "", ".git/info/exclude": "secret.py", ".gitignore": "gen.py\n"})
    here.write({"sub/gen.py": "", "sub/secret.py": "", "sub/a.py": ""})
    assert files("sub") == ["sub/a.py"]


def test_respect_gitignore_can_be_switched_off(here: Project) -> None:
    here.write({".gitignore": "*.py", "a.py": ""})
    assert files() == []
    assert files("--no-respect-gitignore") == ["a.py"]


def test_excludes_of_the_configuration_are_relative_to_it(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write({"perflint.toml": 'extend-exclude = ["sub/gen"]', "sub/gen/a.py": "", "sub/b.py": "", "gen/c.py": ""})
    assert files() == ["gen/c.py", "sub/b.py"]
    monkeypatch.chdir(here.root / "sub")
    assert files() == ["b.py"]


def test_exclude_replaces_the_defaults_and_extend_exclude_adds(here: Project) -> None:
    here.write({"build/a.py": "", "own/b.py": "", "perflint.toml": 'exclude = ["own"]'})
    assert files() == ["build/a.py"]
    here.write({"perflint.toml": 'extend-exclude = ["own"]'})
    assert files() == []


def test_a_directory_beside_that_shares_a_prefix_is_not_taken_for_it(here: Project) -> None:
    here.write({"conf/perflint.toml": 'extend-exclude = ["_x"]', "conf_x/a.py": ""})
    assert files("--config", "conf/perflint.toml") == ["conf_x/a.py"]


def test_a_directory_whose_name_ends_in_py_is_entered(here: Project) -> None:
    here.write({"x.py/a.py": ""})
    assert files() == ["x.py/a.py"]
    assert files("x.py") == ["x.py/a.py"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_linked_directories_are_not_entered_so_loops_end(here: Project) -> None:
    here.write({"a/b.py": ""})
    Path("a/loop").symlink_to(here.root, target_is_directory=True)
    Path("self.py").symlink_to("self.py")
    Path("dangling.py").symlink_to("nowhere.py")
    Path("linked.py").symlink_to("a/b.py")
    assert files() == ["a/b.py"]


PIECES = st.sampled_from(["a", "b", ".py", "x", "*", "**", "?", "/", "[ab]", "[!a]", "[", "]", "!", "\\", "#", " ", "-", "$"])
PATTERNS = st.lists(st.lists(PIECES, min_size=1, max_size=6).map("".join), max_size=5)
NAMES = st.lists(st.sampled_from(["a", "b", ".py", "x", "-", "$"]), min_size=1, max_size=3).map("".join)
PATHS = st.builds(
    lambda names, mark: "/".join(names) + mark.strip(), st.lists(NAMES, min_size=1, max_size=3), st.sampled_from("/ ")
)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(max_examples=500)
@given(patterns=PATTERNS, paths=st.lists(PATHS, min_size=1, max_size=5))
@example(patterns=["*.py[cod]", "a/", "!b"], paths=["a/b", "x.pyc", "x.py", "b/"])
@example(patterns=["[b-a]"], paths=["a"])
@example(patterns=["a", "!"], paths=["a"])
def test_patterns_mean_what_they_mean_to_pathspec(patterns: list[str], paths: list[str]) -> None:
    try:
        spec = ignore_spec(patterns)
    except ValueError:
        spec = None
    if spec is None:
        with pytest.raises(ValueError, match=r"pattern|range"):
            Ignores(patterns)
        return
    ignores = Ignores(patterns)
    assert [ignores.verdict(path) for path in paths] == [spec.check_file(path).include for path in paths]


def test_a_senseless_line_of_a_gitignore_is_passed_over(here: Project) -> None:
    here.write({".gitignore": "[b-a]\ngen.py\n!\n", "train.py": "", "gen.py": ""})
    assert files() == ["train.py"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes")
def test_a_named_pipe_is_no_file_to_wait_for(here: Project) -> None:
    os.mkfifo("pipe.py")
    assert files() == []
