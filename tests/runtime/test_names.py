"""What `perflint_runtime` exports, and who relies on it."""

from __future__ import annotations

import ast
import re

import perflint_runtime
import pytest
from conftest import ROOT

INIT = ROOT / "runtime/perflint_runtime/__init__.py"


def test_type_checkers_and_programs_see_the_same_names() -> None:
    for_types = {
        (node.module, alias.name)
        for block in ast.parse(INIT.read_text(encoding="utf-8")).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    at_run_time = {(f"perflint_runtime.{m}", n) for m, names in perflint_runtime._NAMES_OF_MODULE.items() for n in names}
    assert for_types == at_run_time


@pytest.mark.parametrize("name", perflint_runtime.__all__)
def test_each_name_is_there_and_documented(name: str) -> None:
    exported = getattr(perflint_runtime, name)
    assert (exported.__doc__ or "").strip()
    assert name in dir(perflint_runtime)


def test_readme_says_of_each_name_why_it_is_exported() -> None:
    text = (ROOT / "runtime/README.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text[text.index("## Names") :].splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == perflint_runtime.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="CsvRoes"):
        perflint_runtime.CsvRoes  # noqa: B018


def test_rules_name_only_what_exists() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "rules").rglob("*.py"))
    named = set(re.findall(r"perflint_runtime\.([A-Z]\w+)", text)) | set(
        re.findall(r'Import\("perflint_runtime", "(\w+)"', text)
    )
    assert named
    assert named <= set(perflint_runtime.__all__)
