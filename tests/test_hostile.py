"""Repositories that mean harm: nothing of theirs runs, costs without bound, or reaches a terminal as more than text."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import BAD, GOOD, ROOT, Project, in_process, in_subprocess
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from perflint.cli import cli
from perflint.facts.dataflow import expression_pass
from perflint.facts.values import solver
from perflint.fix.diff import patch, without_controls
from perflint.project.ignores import ignore_spec
from perflint.report.text import printable
from perflint.run.result import FixedFile
from perflint.source.words import words

CPU_SECONDS = 60
"""What no run in these tests comes near; without a bound they would take hours."""


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project as the working directory."""
    monkeypatch.chdir(project.root)
    return project


def lines(*arguments: str) -> list[str]:
    """What a check prints, one finding a line."""
    result = in_process("check", "--isolated", "-q", "--output-format", "concise", *arguments)
    assert result.exit_code in (0, 1), result.output
    return result.stdout.splitlines()


# -- nothing is run ------------------------------------------------------------------------------------------------------

SHOUT = "raise SystemExit('RUN: ' + __name__)\n"
SHADOWS = words(
    """
    click libcst rich packaging pathspec torch numpy conftest setup sitecustomize usercustomize perflint_rules
    perflint_runtime ast re json tomllib difflib typing signal enum tempfile shutil tokenize dataclasses __future__
    """
)


@pytest.mark.parametrize("safe_path", ["", "1"])
@pytest.mark.parametrize("command", [("check",), ("fix", "--diff"), ("rules",)])
def test_nothing_in_a_linted_repository_is_imported(here: Project, command: tuple[str, ...], safe_path: str) -> None:
    here.write({f"{name}.py": SHOUT for name in SHADOWS})
    here.write(
        {"evil/__init__.py": SHOUT, "pkg/torch/__init__.py": SHOUT, "pkg/conftest.py": SHOUT, "evil.pth": "import evil\n"}
    )
    for folder in ("evil.egg-info", "evil-1.0.dist-info"):
        here.write({f"{folder}/METADATA": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"})
        here.write({f"{folder}/PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"})
        here.write({f"{folder}/entry_points.txt": "[perflint.rules]\nevil = evil\n[console_scripts]\nperflint = evil:main\n"})
    here.write(
        {
            "pyproject.toml": """
            [build-system]
            requires = ["evil"]
            build-backend = "evil"
            backend-path = ["."]
            [project.entry-points."perflint.rules"]
            evil = "evil"
            [tool.perflint]
            """
        }
    )
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "rules", ROOT / "runtime", ROOT / "probe"))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": safe_path}
    done = subprocess.run(
        [sys.executable, "-m", "perflint", *command], capture_output=True, env=environment, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert "RUN:" not in done.stdout + done.stderr


SPAWNING = """
import sys

if __name__ == "__main__":
    del sys.path[0]
    from perflint.run import processes, workers
    from perflint.__main__ import main

    processes.can_fork = lambda: False
    workers.WORTHWHILE_BYTES = workers.WORTHWHILE_BYTES_SPAWNED = 0
    main()
"""


def test_nothing_in_a_linted_repository_is_imported_by_a_worker_that_starts_from_nothing(
    here: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stdlib = words("multiprocessing pickle socket struct selectors threading subprocess runpy inspect random warnings")
    here.write({f"{name}.py": SHOUT for name in SHADOWS - {"torch"} | stdlib} | {"a.py": BAD, "b.py": BAD})
    script = tmp_path_factory.mktemp("elsewhere") / "start.py"
    script.write_text(SPAWNING)
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "rules", ROOT / "runtime", ROOT / "probe"))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": ""}
    command = [
        sys.executable,
        str(script),
        "check",
        "-j",
        "2",
        "--select",
        "no-grad-without-call",
        "--output-format",
        "concise",
    ]
    done = subprocess.run(command, capture_output=True, env=environment, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("no-grad-without-call") == 2


@pytest.mark.parametrize(
    "text",
    [
        'plugins = ["evil"]',
        '[tool.perflint.rules]\nevil = "evil:rule"',
        'extend = "../evil.toml"',
        'select = ["evil.rules"]',
        'select = [{ python = "import evil" }]',
        "per-file-ignores = 1",
    ],
)
def test_configuration_cannot_load_code_or_other_files(here: Project, text: str) -> None:
    here.write({"perflint.toml": text, "a.py": BAD, "evil.py": SHOUT})
    result = in_process("check")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_no_module_of_ours_runs_text_that_it_reads() -> None:
    """`eval`, `exec`, `compile` and pickles have no place in the linter, but for what its own processes tell each other."""
    forbidden = {"eval", "exec", "compile", "__import__", "pickle", "marshal", "shelve"}
    for path in [*(ROOT / "perflint").rglob("*.py"), *(ROOT / "rules").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and (path.name, node.id) != ("in_worker.py", "pickle")
            ):
                assert node.id not in forbidden, f"{path}:{node.lineno}"


# -- cost ----------------------------------------------------------------------------------------------------------------

HEAD = """\
import torch
def train(model, loader, opt):
    model.cuda()
    for x, y in loader:
        loss = a = b = model(x.cuda()).sum()
        loss.backward()
        opt.step()
"""
READ = "        print(loss.item())\n"


def nested(header: str, depth: int) -> str:
    """Blocks inside blocks, with a read in the innermost."""
    blocks = "".join(" " * (8 + i) + header.format(i) + "\n" for i in range(depth))
    return HEAD + blocks + " " * (8 + depth) + "print(loss.item()); loss = loss + a; a = b\n"


def repeated(line: str, count: int) -> str:
    """One line again and again, and a read behind."""
    return HEAD + "".join("        " + line.format(i, i + 1) + "\n" for i in range(count)) + READ


CHECKED = {
    "nested for loops": nested("for q{0} in range(3):", 18),
    "nested while loops": nested("while y[{0}] > 0:", 18),
    "nested ifs": nested("if y[{0}] > 0:", 80),
    "a tuple of 20,000": HEAD + READ.replace("loss.item()", "(" + "loss, " * 20_000 + ")[3].item()"),
    "an unpacking of 5,000": HEAD
    + "        "
    + ", ".join(f"a{i}" for i in range(5000))
    + " = "
    + ", ".join(["loss"] * 5000)
    + "\n"
    + READ,
    "a diamond of calls": "".join(f"def f{i}(x): return f{i + 1}(x) + f{i + 1}(f{i + 1}(x))\n" for i in range(300))
    + HEAD
    + READ,
    "every function calls every function": "".join(
        f"def f{i}(x):\n" + "".join(f"    x = f{j}(x)\n" for j in range(30)) + "    return x.item()\n" for i in range(30)
    )
    + HEAD
    + READ,
    "a chain of subclasses": "class C0(torch.nn.Module): pass\n"
    + "".join(f"class C{i + 1}(C{i}): pass\n" for i in range(1000))
    + HEAD
    + READ,
    "a list that its items fill": HEAD.replace("    for x", "    sizes = [3]\n    for x")
    + "".join(f"        if y == {i}:\n            sizes.append(sizes[-{i + 1}])\n" for i in range(20))
    + "        sizes.append(loss.item())\n"
    + READ,
    "a string of defs": 's = """\n' + "def f(\n" * 5000 + '"""\n' + HEAD + READ,
    "a line of hashes": HEAD + READ.rstrip() + " " + "# perflint: " * 20_000 + "\n",
}
"""Text that is checked all the same: what it holds is found."""

SKIPPED = {
    "branches one after the other": repeated("if y[{0}]: a, b, loss = b, loss, a", 2000),
    "loops one after the other": repeated("for q in y: a, b, loss = b, loss + a, a", 1000),
}
"""Text whose analysis grows with the square or the cube of its length."""


@pytest.mark.parametrize("text", CHECKED.values(), ids=CHECKED)
def test_nesting_and_length_are_followed(here: Project, text: str) -> None:
    here.write({"a.py": text})
    found = lines("--select", "item-every-step")
    assert any("item-every-step" in line for line in found), found


@pytest.mark.parametrize("text", SKIPPED.values(), ids=SKIPPED)
def test_what_costs_too_much_is_skipped_and_said(here: Project, text: str) -> None:
    here.write({"a.py": text, "b.py": BAD})
    skipped, other = lines("--select", "all")
    assert skipped.startswith("a.py")
    assert "unreadable-file the file was skipped, for its analysis takes too long;" in skipped
    assert other.startswith("b.py")
    assert in_process("fix", "--isolated", "-q").exit_code == 1
    assert (Path("a.py").read_text(), Path("b.py").read_text()) == (text, GOOD)


def test_depth_is_an_answer_and_never_a_crash(here: Project) -> None:
    """Each chain is deeper than C's stack allows when it is followed without care."""
    for name, line in {
        "sum": "t = " + " + ".join(["loss"] * 100_000),
        "attributes": "t = loss" + ".a" * 100_000,
        "calls": "t = loss" + ".f()" * 20_000,
        "signs": "t = " + "-" * 100_000 + "loss",
        "lambdas": "t = " + "lambda: " * 50_000 + "loss",
        "branches": "if y: pass" + "".join(f"\n        elif y == {i}: pass" for i in range(5000)),
    }.items():
        here.write({f"{name}.py": HEAD + READ + "        " + line + "\n"})
    here.write({"z.py": BAD})
    done = in_subprocess("check", "--isolated", "-q", "--output-format", "json", cwd=here.root)
    assert done.returncode == 1, done.stderr
    assert "z.py" in {f["filename"] for f in json.loads(done.stdout)}


def test_the_count_of_questions_begins_anew_with_each_file(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_QUESTIONS", 400)
    here.write({f"m{i}.py": HEAD + READ for i in range(30)})
    assert [line for line in lines("--select", "item-every-step") if "unreadable-file" in line] == []
    monkeypatch.setattr(solver, "MAX_QUESTIONS", 5)
    assert len([line for line in lines("--select", "item-every-step") if "unreadable-file" in line]) == 30


def test_programs_stay_far_below_the_bounds() -> None:
    """A tenth of each is enough for the whole programs among the fixtures."""
    tenth = pytest.MonkeyPatch()
    tenth.setattr(solver, "MAX_QUESTIONS", solver.MAX_QUESTIONS // 10)
    tenth.setattr(expression_pass, "MAX_REACHING", expression_pass.MAX_REACHING // 10)
    try:
        result = in_process("check", "--isolated", "--output-format", "json", str(ROOT / "fixtures" / "programs"))
    finally:
        tenth.undo()
    assert {f["rule"] for f in json.loads(result.stdout)} & {"unreadable-file"} == set()


# -- patterns ------------------------------------------------------------------------------------------------------------

SEGMENTS = st.lists(st.sampled_from(["*", "a", "b", "?", "[ab]", "/", "**/", ".", "\\*"]), min_size=1, max_size=9).map("".join)
PATHS = st.text("ab./*", min_size=1, max_size=12).map(lambda path: path.strip("/")).filter(bool)


@settings(max_examples=400)
@given(SEGMENTS, PATHS)
def test_patterns_mean_what_they_meant(pattern: str, path: str) -> None:
    try:
        expected = GitIgnoreSpec.from_lines([pattern]).match_file(path)
    except ValueError:
        return
    assert ignore_spec([pattern]).match_file(path) == expected


def test_a_pattern_of_many_stars_ends(here: Project) -> None:
    bomb = "*a" * 40 + "*b"
    here.write({"perflint.toml": f'extend-exclude = ["{bomb}"]\n[per-file-ignores]\n"{bomb}" = ["all"]', ".gitignore": bomb})
    Path("a" * 200 + ".py").write_text(BAD)
    command = [sys.executable, "-m", "perflint", "check", "-q", "--output-format", "json"]
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "rules", ROOT / "runtime", ROOT / "probe"))
    limited = ["bash", "-c", f'ulimit -t {CPU_SECONDS}; exec "$@"', "bash", *command]
    done = subprocess.run(limited, capture_output=True, env={**os.environ, "PYTHONPATH": paths}, check=False)
    assert done.returncode == 1, done.stderr
    assert len(json.loads(done.stdout)) == 1


# -- escapes -------------------------------------------------------------------------------------------------------------

EVIL = 'e\n::error::x\r\x1b[31m\x1b]0;title\x07\u202e"\\q.py'
"""A file name with a workflow command on a line of its own, terminal commands and a change of reading order."""


def test_names_and_source_write_no_line_and_no_command_of_their_own(here: Project) -> None:
    Path(EVIL).write_text(BAD.replace("torch.no_grad:", "torch.no_grad:  # \x1b[2J\x9b31m\u202e\x07"))
    for output_format in ("grouped", "full", "concise", "github"):
        result = CliRunner().invoke(cli, ["check", "--isolated", "--output-format", output_format], color=True)
        assert result.exit_code == 1
        starts = [line[:9] for line in result.stdout.split("\n")]
        assert starts.count("::error::") == 0
        text = result.stdout
        for ours in ("0", "1", "36", "34", "31", "32", "33"):
            text = text.replace(f"\x1b[{ours}m", "")
        if output_format != "github":
            assert not {"\x1b", "\x07", "\r", "\x9b", "\u202e"} & set(text)
    shown = in_process("check", "--show-files").stdout
    assert len(shown.splitlines()) == 1
    assert "\x1b" not in shown
    missing = in_process("check", EVIL + "/none")
    assert missing.exit_code == 2
    assert missing.stderr.count("\n") == 1
    assert "\x1b" not in missing.stderr
    (found,) = json.loads(in_process("check", "--isolated", "--output-format", "json").stdout)
    assert found["filename"] == EVIL


def test_a_key_of_the_configuration_is_printed_without_commands(here: Project) -> None:
    here.write({"perflint.toml": '"\\u001b[31m\\nx" = 1\n', "a.py": BAD})
    result = CliRunner().invoke(cli, ["check"], color=True)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_a_patch_names_its_file_as_git_does(here: Project) -> None:
    Path(EVIL).write_text(BAD)
    result = in_process("fix", "--isolated", "--diff")
    assert [line for line in result.stdout.splitlines() if line.startswith("::")] == []
    subprocess.run(["git", "init", "-q", "."], check=True)
    done = subprocess.run(["git", "apply", "-"], input=result.stdout_bytes, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(EVIL).read_text() == GOOD


def test_a_patch_on_a_terminal_has_no_commands() -> None:
    written = b"".join(without_controls(line) for line in patch(FixedFile("a.py", b"x = 1 # \x1b[2J\xc2\x9b\xc3\xa9\n", b"")))
    assert b"-x = 1 # ?[2J?\xc3\xa9\n" in written


@given(st.text())
def test_printable_text_is_one_line(text: str) -> None:
    assert len(printable(text).splitlines()) <= 1
    assert printable(printable(text)) == printable(text)


# -- files that the runtime reads ----------------------------------------------------------------------------------------


class Shout:
    """What a pickle of it does when it is loaded: leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_checkpoint_runs_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from perflint_runtime.checkpoints import Checkpoints

    checkpoints = Checkpoints(tmp_path / "checkpoints")
    torch.save({"x": Shout(tmp_path / "mark")}, checkpoints.save(1, {"x": torch.ones(1)}))
    with pytest.raises(RuntimeError, match="no checkpoint can be read"):
        checkpoints.load_latest()
    assert not (tmp_path / "mark").exists()


def test_a_feature_cache_runs_nothing(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    from perflint_runtime.feature_cache import FeatureCache

    cache = FeatureCache(tmp_path / "cache")
    entry = tmp_path / "cache" / "key"
    entry.mkdir(parents=True)
    numpy.save(entry / "features.npy", numpy.array([Shout(tmp_path / "mark")], dtype=object))
    (entry / "about.json").write_text(json.dumps({"rows": 1, "bytes": (entry / "features.npy").stat().st_size}))
    assert cache.get("key") is None
    assert not entry.exists()
    assert not (tmp_path / "mark").exists()


def test_no_module_of_the_runtime_unpickles() -> None:
    loading = ("pickle.load", "allow_pickle=True", "weights_only=False", "read_pickle", "joblib", "marshal", "shelve")
    for path in (ROOT / "runtime").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not [word for word in loading if word in text], path
        for call in re.findall(r"torch\.load\(path[^)]*\)", text):
            assert "weights_only=True" in call, path
