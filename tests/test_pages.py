"""Each rule's page: its form, and that its examples are what they claim to be."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from pathlib import Path

import pytest
from conftest import FIXTURES, ROOT, Project, in_process

from perflint.rule.registry import all_rules
from perflint.rule.rule import Rule

RULES = all_rules()
HEADINGS = (
    "What it does",
    r"Why it (?:is slower|is slow|is an error|costs memory|costs memory and time|does not pay)",
    "Example",
    "Use instead",
    "When it stays silent",
    "Fix safety",
)

IMPORTS = """\
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda")


"""
TRAINING = "def work(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, criterion: nn.Module):\n"
PLACE = re.compile(r"^( *)# the example\n", re.M)
"""Where a rule's own context, `fixtures/<rule>/page.py`, takes the fragment."""


def section(rule: Rule, heading: str) -> str:
    """The code of a page's section."""
    found = re.search(rf"^## {heading}\n.*?^```python\n(.*?)^```", rule.page, re.M | re.S)
    assert found is not None, f"{rule.name}: no code under {heading}"
    return found.group(1)


def in_context(rule: Rule, code: str) -> str:
    """A fragment in a file: in the rule's own context, or as it is, statements in a function with the usual names."""
    own = FIXTURES / rule.name / "page.py"
    if own.exists():
        return PLACE.sub(lambda place: textwrap.indent(code, place[1]), own.read_text(encoding="utf-8"))
    if re.search(r"^(?:class|def|@)", code, re.M):
        return IMPORTS + code
    return IMPORTS + TRAINING + textwrap.indent(f"model.to(device)\n{code}", "    ")


def reported(project: Project, rule: Rule, code: str) -> set[str]:
    """What a rule reports for a fragment."""
    project.write({"page.py": in_context(rule, code)})
    return {f["rule"] for f in project.findings("--select", rule.name)}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_page_has_its_sections_in_order(rule: Rule) -> None:
    headings = re.findall(r"^## (.*)$", rule.page, re.M)
    assert len(headings) == len(HEADINGS), headings
    for heading, expected in zip(headings, HEADINGS, strict=True):
        assert re.fullmatch(expected, heading), heading


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_the_example_is_found(rule: Rule, project: Project) -> None:
    assert reported(project, rule, section(rule, "Example")) == {rule.name}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_what_to_use_instead_is_not_found(rule: Rule, project: Project) -> None:
    assert reported(project, rule, section(rule, "Use instead")) == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_explain_prints_the_page(rule: Rule) -> None:
    result = in_process("explain", rule.name)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"# {rule.name}\n")
    assert "\n".join(rule.page.strip().splitlines()[1:]).strip() in result.stdout
    assert json.loads(in_process("explain", rule.name, "--output-format", "json").stdout)["page"] in result.stdout


def test_an_unknown_rule_gives_the_nearest() -> None:
    result = in_process("explain", "item-every-stop")
    assert result.exit_code == 2
    assert "did you mean `item-every-step`?" in result.stderr


SOURCES = sorted([*(ROOT / "perflint").rglob("*.py"), *(ROOT / "rules").rglob("*.py")])


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_public_functions_and_classes_have_a_docstring(path: Path) -> None:
    """Methods that name or answer for what they return, such as `row` or `parameters`, may go without."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert path.stat().st_size == 0 or ast.get_docstring(tree), "the module"
    public = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    ]
    assert not [node.name for node in public if not ast.get_docstring(node)]
