"""Each rule against its cases in `fixtures/<rule>/`.

`cases*.py` and the files of sub-folders are linted with that rule alone. A line that must be reported ends with
`# expect: safe`, `# expect: unsafe` or `# expect: advice`, after the fix that the finding must offer, and with `, info` if the
finding is worth little; a finding on any other line fails. `<file>.fixed.py` is what `fix --unsafe-fixes` makes of a file
(`pytest --bless` writes it).
`train.py` is for test_evidence.py.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
from conftest import FIXTURES, ROOT

from perflint.cli import run_for_tests
from perflint.rule.finding import Severity
from perflint.rule.registry import all_rules

RULES = {rule.name: rule for rule in all_rules()}
MARK = re.compile(r"#\s*expect:\s*((?:safe|assuming|unsafe|advice)\b(?:, info\b)?)")


def case_files(folder: Path) -> list[Path]:
    """The files of a rule's folder that hold cases."""
    files = [*folder.glob("cases*.py"), *(path for sub in sorted(folder.glob("*/")) for path in sub.rglob("*.py"))]
    return sorted(path for path in files if not path.name.endswith(".fixed.py"))


def marked(path: Path) -> dict[int, str]:
    """The lines that must be reported, with the applicability of the fix."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {row: match[1] for row, line in enumerate(lines, 1) if (match := MARK.search(line))}


def reported(rule: str, paths: list[Path]) -> dict[Path, dict[int, str]]:
    """The lines that are reported."""
    result = run_for_tests(["check", "--no-cache", "--select", rule, "--output-format", "json", *map(str, paths)])
    assert result.exit_code in (0, 1), result.output
    found: dict[Path, dict[int, str]] = {path: {} for path in paths}
    for finding in json.loads(result.stdout):
        assert finding["rule"] == rule, finding
        applicability = finding["fix"]["applicability"] if finding["fix"] else "advice"
        little = ", info" if finding["severity"] == "info" and RULES[rule].severity is not Severity.INFO else ""
        found[Path(finding["filename"]).resolve()][finding["location"]["row"]] = applicability + little
    return found


def copied(rule: str, tmp_path: Path) -> Path:
    """A copy of a rule's folder that may be rewritten, in a project of its own: no other files are read for their imports."""
    target = tmp_path / rule.replace("unused", "taken")  # a folder's name may say that nobody runs what is in it
    shutil.copytree(FIXTURES / rule, target, ignore=shutil.ignore_patterns("*.fixed.py", "__pycache__"))
    return target


@pytest.mark.parametrize("rule", sorted(RULES))
def test_reports_exactly_the_marked_lines(rule: str, tmp_path: Path) -> None:
    paths = case_files(copied(rule, tmp_path))
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")  # it declares a version of torch
    assert paths, f"fixtures/{rule}/cases.py is missing"
    assert reported(rule, paths) == {path: marked(path) for path in paths}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_cases_hold_true_and_silent_functions(rule: str) -> None:
    paths = case_files(FIXTURES / rule)
    functions = [
        (node, marked(path))
        for path in paths
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]
    hits = [any(node.lineno <= row <= (node.end_lineno or 0) for row in marks) for node, marks in functions]
    assert hits.count(True) >= 3
    assert hits.count(False) >= 3


@pytest.mark.parametrize("rule", sorted(name for name, rule in RULES.items() if rule.fixes))
def test_fixes_are_the_blessed_ones(rule: str, tmp_path: Path, bless: bool) -> None:
    copy = copied(rule, tmp_path)
    run = ["fix", "--no-cache", "--exit-zero", "--select", rule, "--unsafe-fixes", str(copy)]
    assert run_for_tests(run).exit_code == 0
    for path in case_files(FIXTURES / rule):
        now = copy / path.relative_to(FIXTURES / rule)
        text = now.read_text(encoding="utf-8")
        ast.parse(text)
        blessed = path.with_suffix(".fixed.py")
        if text == path.read_text(encoding="utf-8"):
            assert not blessed.exists(), f"{blessed} stands for a file that no fix changes"
        elif bless:
            blessed.write_text(text, encoding="utf-8")
        else:
            assert text == blessed.read_text(encoding="utf-8")
    before = {path: path.read_bytes() for path in copy.rglob("*.py")}
    run_for_tests(run)
    assert before == {path: path.read_bytes() for path in copy.rglob("*.py")}, "a second run changes something"


def test_every_category_is_one_that_the_pack_names() -> None:
    import perflint_rules

    assert {rule.category for rule in all_rules()} == set(perflint_rules.CATEGORIES)
