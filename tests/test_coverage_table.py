"""docs/coverage.md: what the official guides ask for, and which rule covers it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import ROOT

from perflint.rule.registry import all_rules

sys.path.insert(0, str(ROOT / "docs"))

import coverage_table


def test_nearly_all_that_the_source_shows_has_a_rule() -> None:
    visible = [item for item in coverage_table.items() if item.is_visible]
    assert len(visible) == 91
    assert sum(bool(item.rules) for item in visible) >= 85


def test_only_rules_that_exist_cover_something() -> None:
    named = {rule for item in coverage_table.items() for rule in item.rules}
    assert named <= {rule.name for rule in all_rules()}


def test_an_item_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-rule").mkdir()
    (tmp_path / "my-rule" / "evidence.toml").write_text('covers = ["nothing"]\n', encoding="utf-8")
    monkeypatch.setattr(coverage_table, "FIXTURES", tmp_path)
    with pytest.raises(ValueError, match=r"my-rule/evidence.toml: docs/coverage.toml has no item `nothing`"):
        coverage_table.items()


def test_an_item_without_a_rule_has_to_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_table, "FIXTURES", tmp_path)
    with pytest.raises(ValueError, match=r"no rule covers .*; say `why`"):
        coverage_table.items()
