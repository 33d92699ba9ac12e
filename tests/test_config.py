"""Configuration files: which one counts, what is wrong with a bad one."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest
from conftest import BAD, Project, in_process

from perflint.project.config import Config, ConfigError, Configurations, parse
from perflint.project.settings import SETTINGS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture
def bad(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with the same finding at its top and in `sub`, as the working directory."""
    monkeypatch.chdir(project.root)
    return project.write({"a.py": BAD, "sub/b.py": BAD})


def reported(*arguments: str) -> list[str]:
    """The files that have findings."""
    result = in_process("check", "-q", "--output-format", "concise", *arguments)
    assert result.exit_code in (0, 1), result.output
    return [line.split(":")[0].replace("\\", "/") for line in result.stdout.splitlines()]


def test_the_nearest_file_wins_and_is_not_merged(bad: Project) -> None:
    bad.write({"pyproject.toml": '[tool.perflint]\nselect = ["data-loading"]', "sub/perflint.toml": ""})
    assert reported() == ["sub/b.py"]


def test_two_configurations_of_one_folder_are_an_error_that_names_both(bad: Project) -> None:
    bad.write({"pyproject.toml": '[tool.perflint]\nselect = ["data-loading"]', "perflint.toml": ""})
    result = in_process("check")
    assert result.exit_code == 2
    assert f"{bad.root / 'perflint.toml'} and `[tool.perflint]` in {bad.root / 'pyproject.toml'}" in result.stderr
    bad.write({"pyproject.toml": "[tool.ruff]\n"})
    assert reported() == ["a.py", "sub/b.py"]


@pytest.mark.parametrize(
    "table", ['[tool.perflint]\nignore = ["all"]', '[tool]\nperflint = {ignore = ["all"]}', 'tool.perflint.ignore = ["all"]']
)
def test_the_table_counts_in_every_spelling_of_toml(bad: Project, table: str) -> None:
    bad.write({"pyproject.toml": table})
    assert reported() == []


@pytest.mark.parametrize("text", ["[tool.ruff]\nx = 1", "[tool.perflint-other]\nx = 1", "broken = = toml", ""])
def test_a_pyproject_without_our_table_is_passed_over(bad: Project, text: str) -> None:
    bad.write({"perflint.toml": 'ignore = ["all"]', "sub/pyproject.toml": text})
    assert reported() == []


def test_isolated_reads_no_file(bad: Project) -> None:
    bad.write({"perflint.toml": 'ignore = ["all"]'})
    assert reported("--isolated") == ["a.py", "sub/b.py"]


def test_config_replaces_every_file(bad: Project) -> None:
    bad.write({"perflint.toml": 'ignore = ["all"]', "other.toml": ""})
    assert reported("--config", "other.toml") == ["a.py", "sub/b.py"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('selct = ["all"]', "unknown key `selct`; did you mean `select`?"),
        ('extend_select = ["all"]', "did you mean `extend-select`?"),
        ("zzz = 1", "valid keys are assume, baseline, cache-dir, compiled, docs-url, exclude, extend-exclude"),
        ('select = "all"', "`select` must be a list of strings"),
        ("runtime = 1", "`runtime` must be true or false"),
        ('per-file-ignores = ["x"]', "`per-file-ignores` must be a table of lists"),
        ("[target-versions]\ntorch = 2.10", "`target-versions` must be a table of versions, each a string"),
        ('[target-versions]\ntorch = "new"', "`target-versions`: Invalid version: 'new'"),
        ('select = ["no-grad-witout-call"]', "did you mean `no-grad-without-call`?"),
        ('[per-file-ignores]\n"a.py" = ["qqqq"]', "no rule or group is named `qqqq`"),
        ('output-format = "xml"', "`output-format` must be one of grouped, full"),
        ("select = [", "no valid TOML"),
        ("x = " + "[" * 3000, "no valid TOML"),
    ],
)
def test_a_wrong_configuration_exits_with_2_and_says_where_and_what(bad: Project, text: str, says: str) -> None:
    bad.write({"perflint.toml": text})
    result = in_process("check")
    assert result.exit_code == 2
    assert says in result.stderr
    assert "perflint.toml" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_pyproject_that_is_broken_and_names_perflint_is_an_error(bad: Project) -> None:
    bad.write({"pyproject.toml": "[tool.perflint]\nselect = = 1"})
    result = in_process("check")
    assert result.exit_code == 2
    assert "pyproject.toml: no valid TOML" in result.stderr


def test_a_configuration_may_begin_with_the_mark_of_windows_editors(bad: Project) -> None:
    (bad.root / "perflint.toml").write_bytes(b'\xef\xbb\xbfextend-exclude = ["sub"]\n')
    assert reported() == ["a.py"]


def test_a_broken_configuration_elsewhere_in_the_project_does_not_matter(bad: Project) -> None:
    bad.write({"pyproject.toml": "", "sub/perflint.toml": "broken = = toml"})
    assert reported("a.py") == ["a.py"]


def test_per_file_ignores_are_relative_to_the_file_they_stand_in(bad: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    bad.write({"perflint.toml": '[per-file-ignores]\n"sub/*.py" = ["autograd"]'})
    assert reported() == ["a.py"]
    monkeypatch.chdir(bad.root / "sub")
    assert reported() == []


def test_a_negated_pattern_of_per_file_ignores_matches_nothing_by_itself(bad: Project) -> None:
    bad.write({"perflint.toml": '[per-file-ignores]\n"!sub/*.py" = ["autograd"]'})
    assert reported() == ["a.py", "sub/b.py"]


def test_command_line_excludes_add_to_configured_ones(bad: Project) -> None:
    bad.write({"perflint.toml": 'extend-exclude = ["sub"]'})
    assert reported("--exclude", "a.py") == []


def test_unsafe_fixes_can_be_configured_and_switched_off(bad: Project) -> None:
    configurations = Configurations(Config(unsafe_fixes=True), {"unsafe_fixes": False})
    assert not configurations.of(str(bad.root)).unsafe_fixes


def test_target_versions_are_versions() -> None:
    assert str(parse({"target-versions": {"torch": "2.1"}}, "x").target_versions["torch"]) == "2.1"
    with pytest.raises(ConfigError, match="a table of versions"):
        parse({"target-versions": "2.1"}, "x")


INFERENCE = """\
import torch
from torch import nn

def evaluate(model: nn.Module, loader):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            print(model(x).argmax(1).sum().item())
"""


def test_target_versions_switch_off_what_an_old_torch_does_not_have(bad: Project) -> None:
    bad.write({"a.py": INFERENCE, "sub/b.py": ""})
    only = ("--select", "no-grad-to-inference-mode")
    assert reported(*only) == ["a.py"]
    bad.write({"perflint.toml": '[target-versions]\ntorch = "1.8"'})
    assert reported(*only) == []


def test_the_settings_are_the_fields_of_a_configuration() -> None:
    fields = {field.name.replace("_", "-") for field in dataclasses.fields(Config)} - {"path"}
    assert set(SETTINGS) == fields


@pytest.mark.parametrize("name", SETTINGS)
def test_the_example_of_a_setting_is_one(name: str) -> None:
    setting = SETTINGS[name]
    value = tomllib.loads(f"{name} = {setting.example}")[name]
    assert getattr(parse({name: value}, "perflint.toml"), name.replace("-", "_")) is not None
    for option in filter(None, setting.option.split("/")):
        assert option in in_process("check", "--help").stdout


@pytest.mark.parametrize("value", ["docs.example.org", "javascript:alert(1)", "https://a b", "https://x\x1b]8;;", 3])
def test_the_address_of_the_documentation_is_an_address(value: object) -> None:
    with pytest.raises(ConfigError, match="`docs-url` must be an address"):
        parse({"docs-url": value}, "perflint.toml")


def test_links_to_rules_lead_to_the_documentation(bad: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    bad.write({"perflint.toml": 'docs-url = "https://docs.example.org/perflint"'})
    page = "https://docs.example.org/perflint/rules/no-grad-without-call/"
    (first, _) = json.loads(in_process("check", "--output-format", "json").stdout)
    assert first["url"] == page
    (rule,) = json.loads(in_process("check", "--output-format", "sarif").stdout)["runs"][0]["tool"]["driver"]["rules"]
    assert rule["helpUri"] == page
    monkeypatch.setenv("FORCE_HYPERLINK", "1")
    assert f"\x1b]8;;{page}\x1b\\" in in_process("check", "--color", "always").stdout
