"""The commands in README and docs run, and what pages say of configuration and installation is true."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jsonschema
import pytest
from conftest import HANG_S, ROOT, in_process

from perflint.project.config import ConfigError, parse
from perflint.project.settings import SETTINGS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = [ROOT / "README.md", ROOT / "runtime" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n\Z", re.S)
SLOW = re.compile(r"\bperflint (?:verify|profile)\b")
SCHEMA = json.loads((ROOT / "docs" / "perflint.schema.json").read_text(encoding="utf-8"))

LOOP = """\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        print(loss.item(), loss.item())
    return total
"""
SCRIPT = """\
import torch
from src.loop import train
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
loader = DataLoader(TensorDataset(torch.randn(48, 4), torch.randint(0, 2, (48,))), batch_size=4)
print(train(model, loader, torch.optim.SGD(model.parameters(), 0.1)))
"""


class Block(NamedTuple):
    """A block of code of a page. why_not: why its commands are not run."""

    page: str
    row: int
    language: str
    text: str
    why_not: str | None


def blocks(*languages: str) -> Iterator[Block]:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            if found[1] in languages:
                marked = NOT_RUN.search(text[: found.start()])
                row = text.count("\n", 0, found.start()) + 1
                yield Block(str(path.relative_to(ROOT)), row, found[1], found[2], marked[1] if marked else None)


def shown(block: Block) -> str:
    return f"{block.page}:{block.row}"


COMMANDS = [block for block in blocks("sh", "bash", "shell") if block.why_not is None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a training script, in a repository with some commits, and the programs of this one."""
    (tmp_path / "home").mkdir()
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "loop.py").write_text(LOOP)
    (project / "train.py").write_text(SCRIPT)
    (project / "small.yaml").write_text("epochs: 1\n")
    shutil.copytree(ROOT / "fixtures" / "programs", project / "fixtures" / "programs")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], cwd=project, check=True)
    subprocess.run([*git, "add", "."], cwd=project, check=True)
    for number in range(5):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", str(number)], cwd=project, check=True)
    return project


def run_all(block: Block, folder: Path) -> None:
    """Run the lines of a block one after the other; findings are no failure. Programs run twice, not 6 times."""
    tools = folder.parent / "bin"
    tools.mkdir()
    (tools / "perflint").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m perflint "$@"\n')
    (tools / "perflint").chmod(0o755)
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "probe", ROOT / "rules", ROOT / "runtime"))
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": paths, "HOME": str(folder.parent / "home")}
    for line in re.sub(r"\\\n", "", block.text).splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        line = line.replace("perflint verify", "perflint verify --repeats 2")
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in (0, 1), f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("block", [block for block in COMMANDS if not SLOW.search(block.text)], ids=shown)
def test_commands_run(block: Block, folder: Path) -> None:
    run_all(block, folder)


@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in COMMANDS if SLOW.search(block.text)], ids=shown)
def test_commands_that_run_a_program(block: Block, folder: Path) -> None:
    run_all(block, folder)


def test_there_are_commands_and_reasons() -> None:
    assert len(COMMANDS) > 5
    assert all(len(block.why_not) > 10 for block in blocks("sh", "bash", "shell") if block.why_not is not None)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_is_told_to_install_what_is_not_published(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wrong = re.findall(
        r"^.*\b(?:pip3?|pipx|uv|uvx|poetry|conda)\b[^\n`]*?[ '\"]perflint(?:-torch)?(?=[\[ '\"=~<>`]|$).*$", text, re.M
    )
    assert not [line for line in wrong if "git+" not in line and "/bin/perflint" not in line]


def tables() -> Iterator[tuple[str, dict[str, object]]]:
    for block in blocks("toml"):
        content = tomllib.loads(block.text)
        tool = content.get("tool", {})
        if "perflint" in tool:
            yield shown(block), tool["perflint"]
    for path in sorted({*ROOT.glob("fixtures/**/perflint.toml"), ROOT / "perflint.toml"}):
        if path.exists():
            yield str(path.relative_to(ROOT)), tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("where", "table"), [*tables()], ids=lambda value: value if isinstance(value, str) else "")
def test_examples_of_configuration_are_valid(where: str, table: dict[str, object]) -> None:
    parse(table, where)
    jsonschema.validate(table, SCHEMA)


@pytest.mark.parametrize(
    "table",
    [
        {"selct": ["all"]},
        {"select": "all"},
        {"runtime": 1},
        {"assume": ["no-such-assumption"]},
        {"per-file-ignores": {"a.py": "all"}},
        {"docs-url": "docs.example.org"},
        {"target-versions": {"torch": ["2.1"]}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_perflint_refuses(table: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        parse(table, "perflint.toml")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(table, SCHEMA)


def test_the_schema_knows_each_setting_and_its_default() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert set(SCHEMA["properties"]) == set(SETTINGS)
    defaults = {name: held["default"] for name, held in SCHEMA["properties"].items() if "default" in held}
    assert defaults["respect-gitignore"] is True
    parse(defaults, "perflint.toml")
    jsonschema.validate(defaults, SCHEMA)


def test_an_unknown_format_is_refused_by_both() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"output-format": "xml"}, SCHEMA)
    assert in_process("check", "--output-format", "xml").exit_code == 2


def test_the_runtimes_page_has_all_its_names() -> None:
    import perflint_runtime

    page = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    listed = re.findall(r"^### (\w+)$", page.partition("## All names")[2], re.M)
    assert sorted(listed) == sorted(perflint_runtime.__all__)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the site needs the extra `docs`")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    loaded = r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link[^>]* href="(?:https?:)?//(?![^"]*" rel="canonical")'
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.search(loaded, page.read_text(encoding="utf-8")), f"{page} loads something from elsewhere"
    for rule in json.loads(in_process("rules", "--output-format", "json").stdout):
        assert (tmp_path / "site" / "rules" / rule["name"] / "index.html").is_file()  # as `rule_url` says
