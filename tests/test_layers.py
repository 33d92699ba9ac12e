"""Who may import whom, and what a command loads before it is needed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BAD, ROOT, in_subprocess

ENGINE_MAY_IMPORT = {"perflint", "click", "distributed", "libcst", "markdown_it", "packaging", "pathspec", "rich", "tomli"}
EXTRAS = {"server": {"lsprotocol", "pygls"}, "mcp_server": {"mcp", "mcp_types", "pydantic"}}
"""What folders of perflint/ may import besides: their command says so where it is not installed."""
RULES_MAY_IMPORT = {"perflint.api", "perflint_rules", "packaging", "libcst"}
HEAVY = {"distributed", "libcst", "markdown_it", "rich"}
"""Packages that only some commands need: they are imported inside functions."""


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """The modules that a file imports, and whether each import runs when the file is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_for_types(block)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, id(node) not in lazy) for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module, id(node) not in lazy
            case ast.ImportFrom():
                raise AssertionError(f"{path}: relative import")


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def edges() -> dict[str, set[str]]:
    """Which module of the engine imports which others of it, whenever the import runs, and for types alone, too."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in sources("perflint")
    }
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wanted = {
            f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in names else str(node.module)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        wanted |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        found[name] = (wanted & names.keys()) - {name}
    return found


def test_no_module_of_the_engine_imports_itself_through_others() -> None:
    rest = edges()
    while free := [name for name, wanted in rest.items() if not wanted & rest.keys()]:
        for name in free:
            del rest[name]
    assert not rest, "these import each other, or what does"


@pytest.mark.parametrize(
    ("folder", "lines"), [("perflint", 500), ("probe", 500), ("runtime", 500), ("fuzz", 500), ("rules", 200)]
)
def test_a_module_holds_one_thought(folder: str, lines: int) -> None:
    """A rule's page counts, too. What grows beyond is split along its thought; facts go from rules to perflint/facts."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources(folder)}
    assert lengths, "there is no such folder"
    assert {path: length for path, length in lengths.items() if length > lines} == {}


def is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


@pytest.mark.parametrize("path", sources("perflint"), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_engine_imports_no_rule_and_no_torch(path: Path) -> None:
    allowed = ENGINE_MAY_IMPORT | EXTRAS.get(path.relative_to(ROOT / "perflint").parts[0], set())
    wrong = {m for m, _ in imported(path) if not is_standard(m) and m.partition(".")[0] not in allowed}
    assert not wrong


@pytest.mark.parametrize("path", sources("rules"), ids=lambda p: p.name)
def test_rules_import_the_rule_api_only(path: Path) -> None:
    strange = {m for m, _ in imported(path) if not is_standard(m)}
    assert not {m for m in strange if not any(f"{m}.".startswith(f"{ok}.") for ok in RULES_MAY_IMPORT)}


@pytest.mark.parametrize("path", sources("runtime"), ids=lambda p: p.name)
def test_the_runtime_imports_neither_linter_nor_rules(path: Path) -> None:
    assert not {m for m, _ in imported(path) if m.partition(".")[0] in {"perflint", "perflint_rules"}}


@pytest.mark.parametrize("path", sources("probe"), ids=lambda p: p.name)
def test_the_probe_imports_torch_only(path: Path) -> None:
    """It runs in the user's interpreter, where perflint may not be installed."""
    strange = {m.partition(".")[0] for m, _ in imported(path) if not is_standard(m)}
    assert strange <= {"torch", "perflint_probe"}


@pytest.mark.parametrize("path", sources("perflint"), ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_packages_are_imported_inside_functions(path: Path) -> None:
    assert not {m for m, at_import in imported(path) if at_import and m.partition(".")[0] in HEAVY}


SHOW_MODULES = """
import contextlib, io, sys
from perflint.cli import main
sys.argv[0] = "perflint"
try:
    with contextlib.redirect_stdout(io.StringIO()):
        main()
except SystemExit as done:
    assert done.code == 0
print(*sys.modules)
"""


ALWAYS = {"perflint", "perflint.cli", "perflint.interface", "perflint.interrupts", "perflint.options"}


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"]])
def test_help_loads_the_command_line_and_nothing_else(arguments: list[str], tmp_path: Path) -> None:
    loaded = modules_after(*arguments, folder=tmp_path)
    assert {m for m in loaded if m.partition(".")[0] in {"perflint", "perflint_rules"}} == ALWAYS
    assert not loaded & {"libcst", "rich", "pathspec", "packaging", "importlib.metadata", "multiprocessing", "email", "json"}


def test_findings_with_fixes_of_plain_calls_load_no_libcst(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\nmodel = torch.nn.Linear(2, 2).cuda()\n"
        "for x in DataLoader(data, pin_memory=True):\n    loss = model(x.to('cuda')).sum()\n    loss.backward()\n"
    )
    loaded = modules_after("check", "--isolated", "--no-cache", "--exit-zero", "train.py", folder=tmp_path)
    assert "perflint_rules.blocking_h2d_in_loop" in loaded
    assert not loaded & {"libcst", "importlib.metadata"}


def test_a_file_that_the_gate_stops_loads_no_libcst_and_walks_no_tree(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "plain.py").write_text("x = 1\n")
    loaded = modules_after("check", "--isolated", "plain.py", folder=tmp_path)
    assert "perflint.run.engine" in loaded
    assert not loaded & {"libcst", "rich", "pathspec", "packaging.requirements", "multiprocessing", "concurrent.futures"}


def test_a_plain_check_loads_nothing_for_what_it_was_not_asked(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(BAD)
    loaded = modules_after("check", "--isolated", "--exit-zero", folder=tmp_path)
    formats = {"perflint.report.grouped", "perflint.report.text", "perflint.report.summary", "perflint.report.terminal"}
    table = {"perflint.report", "perflint.report.formats", "perflint.report.links", "perflint.report.report"}
    assert {m for m in loaded if m.startswith("perflint.report")} == formats | table
    assert not loaded & {"perflint.project.git", "perflint.init", "perflint.completion", "difflib"}


def test_a_run_that_remembers_everything_loads_nothing_that_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("__pycache__/\n*.py[cod]\n.venv\n*.egg-info/\n/site\n")
    (tmp_path / "train.py").write_text(BAD)
    first, again = (modules_after("check", "--exit-zero", folder=tmp_path) for _ in range(2))
    assert "perflint.run.engine" in first
    assert not {m for m in again if m.startswith(("perflint.facts", "perflint_rules"))}
    assert not again & {
        "perflint.run.engine",
        "perflint.source.syntax",
        "perflint.fix.fixer",
        "perflint.api",
        "perflint.run.parallel",
    }
    assert not again & {"libcst", "rich", "pathspec", "packaging", "importlib.metadata", "multiprocessing"}


def test_a_changed_file_loads_the_rules_only_that_look_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("x = 1\n")
    modules_after("check", "--exit-zero", folder=tmp_path)
    (tmp_path / "train.py").write_text(BAD)
    loaded = modules_after("check", "--exit-zero", folder=tmp_path)
    rules = {m for m in loaded if m.startswith("perflint_rules.")}
    assert "perflint_rules.no_grad_without_call" in rules
    assert len(rules) < 5


def modules_after(*arguments: str, folder: Path) -> set[str]:
    """The modules that a command has loaded."""
    done = in_subprocess(*arguments, cwd=folder, code=SHOW_MODULES)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.decode().split())


def test_explain_loads_no_libcst(tmp_path: Path) -> None:
    assert "libcst" not in modules_after("explain", "no-grad-without-call", folder=tmp_path)


WITHOUT_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numpy", "pandas", "perflint_runtime"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
sys.argv[0] = "perflint"
from perflint.__main__ import main
main()
"""


def test_check_and_fix_work_without_torch_numpy_and_pandas(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD)
    checked = in_subprocess("check", "--isolated", cwd=tmp_path, code=WITHOUT_TORCH)
    assert checked.returncode == 1, checked.stderr
    assert b"no-grad-without-call" in checked.stdout
    assert in_subprocess("fix", "--isolated", cwd=tmp_path, code=WITHOUT_TORCH).returncode == 0
    assert "torch.no_grad():" in (tmp_path / "train.py").read_text()


def test_nothing_of_the_linted_project_is_imported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch, trap\n" + BAD)
    for name in ("trap.py", "setup.py", "conftest.py", "sitecustomize.py", "click.py"):
        (tmp_path / name).write_text("open('touched', 'w')\n")
    as_installed = WITHOUT_TORCH.replace("import sys\n", "import sys\nsys.path.pop(0)\n", 1)
    done = in_subprocess("check", "--isolated", cwd=tmp_path, code=as_installed)
    assert done.returncode == 1, done.stderr
    assert not (tmp_path / "touched").exists()
