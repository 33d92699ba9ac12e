"""Options of single rules: what a configuration sets reaches the rule; what is wrong in it is said in a line."""

from __future__ import annotations

import json

import pytest
from conftest import Project, in_process

from perflint.project.config import Config, ConfigError
from perflint.rule.options import configured
from perflint.rule.registry import all_rules

EVERY_FIVE_STEPS = """
def train(model, loader, optimizer, writer):
    for step, x in enumerate(loader):
        model(x.cuda()).sum().backward()
        optimizer.step()
        if step % 5 == 0:
            writer.add_scalar("lr", 1, step)
"""
SEVEN_ROUNDS = """
import torch
def collect(model):
    out = torch.zeros(0)
    for i in range(7):
        out = torch.cat([out, model(i)])
    return out
"""
ENCODER = """
import torch
class Encoder(torch.nn.Module):
    def encode(self, scores):
        return scores * torch.tril(torch.ones(self.length, self.length))
"""
READER = """
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __getitem__(self, index):
        return fetch(self.paths[index])
def fetch(path): return path
loader = DataLoader(Images())
"""


@pytest.mark.parametrize(
    ("rule", "text", "setting", "without"),
    [
        ("log-every-step", EVERY_FIVE_STEPS, "period = 10", False),
        ("log-every-step", EVERY_FIVE_STEPS, "period = 5", False),
        ("grow-by-cat", SEVEN_ROUNDS, "min-rounds = 8", True),
        ("constant-tensor-per-forward", ENCODER, 'forward-methods = ["encode"]', False),
        ("dataloader-no-workers", READER, 'readers = ["fetch"]', False),
    ],
)
def test_what_is_set_reaches_the_rule(project: Project, rule: str, text: str, setting: str, without: bool) -> None:
    project.write({"a.py": f"import torch\n{text}"})

    def found() -> bool:
        return bool(json.loads(project.run("check", "--output-format", "json", "--select", rule).stdout))

    assert found() is without
    project.write({"perflint.toml": f"[options.{rule}]\n{setting}"})
    assert found() is (without if setting == "period = 5" else not without)
    project.write({"perflint.toml": ""})
    assert found() is without, "the result for other options was remembered"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"log-every-stop": {}}, "no rule is named `log-every-stop`; did you mean `log-every-step`?"),
        ({"log-every-step": {"periods": 1}}, "no option of log-every-step is named `periods`; did you mean `period`?"),
        ({"item-every-step": {"x": 1}}, "no option of item-every-step is named `x`; `perflint rules --options` lists them"),
        ({"log-every-step": {"period": "10"}}, "`options.log-every-step.period` must be a whole number, 0 or more"),
        ({"log-every-step": {"period": -1}}, "`options.log-every-step.period` must be a whole number, 0 or more"),
        ({"log-every-step": {"period": True}}, "`options.log-every-step.period` must be a whole number, 0 or more"),
        ({"dataloader-no-workers": {"readers": "f"}}, "`options.dataloader-no-workers.readers` must be a list of strings"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, dict[str, object]], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        configured(all_rules(), Config(path="perflint.toml", options=options))
    assert str(error.value) == f"perflint.toml: {said}"


def test_a_wrong_option_ends_the_run_with_a_line(project: Project) -> None:
    project.write({"a.py": "import torch\n", "perflint.toml": "[options]\nlog-every-step = 3"})
    result = in_process("check", str(project.root))
    assert result.exit_code == 2
    assert "`options` must be a table of tables" in result.stderr


def test_options_are_listed_with_their_defaults() -> None:
    listed = in_process("rules", "--options").stdout
    assert "log-every-step.period = 1  " in listed
    assert "dataloader-no-workers.readers = []  " in listed
    rules = {rule["name"]: rule for rule in json.loads(in_process("rules", "--output-format", "json").stdout)}
    assert [option["name"] for option in rules["grow-by-cat"]["options"]] == ["min-rounds"]
    assert "[tool.perflint.options.grow-by-cat]" in in_process("explain", "grow-by-cat").stdout
