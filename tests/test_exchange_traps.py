"""What an attack changed: parts exchanged in a step, errors that are survived, settings that others fill in, an old torch."""

from __future__ import annotations

import json
import textwrap

import pytest
from conftest import Project


def fixes(project: Project, rule: str, text: str, **files: str) -> list[str | None]:
    """How far the fix of each finding of a rule may be applied."""
    named = {name.replace("__", "."): content for name, content in files.items()}
    project.write({"main.py": textwrap.dedent(text), "pyproject.toml": "", **named})
    found = project.run("check", "--output-format", "json", "--select", rule)
    return [
        f["fix"]["applicability"] if f["fix"] else None for f in json.loads(found.stdout) if f["filename"].endswith("main.py")
    ]


HEADS = """
    import torch
    from torch import nn
    import torch.nn.functional as F


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Linear(4, 8)
            self.head = nn.Linear(8, 2)


    model = Net()
    heads = {{task: nn.Linear(8, 2) for task in range(3)}}
    optimizer = torch.optim.SGD([*model.parameters()], lr=0.1)
    for step in range(9):
        x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
        features = torch.relu(model.backbone(x))
        {between}
        loss = F.cross_entropy(model.head(features), y)
        model.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("between", "is_safe"),
    [
        ("pass", True),
        ("model.head = heads[step % 3]", False),
        ("torch.cuda.current_stream().wait_stream(copies)", False),
    ],
)
def test_gradients_are_cleared_of_the_parts_that_were_there(project: Project, between: str, is_safe: bool) -> None:
    assert (fixes(project, "zero-grad-late", HEADS.format(between=between)) == ["safe"]) == is_safe


ERROR = """
    import sys
    import torch
    {imports}

    {decorator}
    def evaluate(x):
        with torch.no_grad:
            return x * 2

    {call}
"""
TAKEN = {
    "nobody": ("", "", "print(evaluate(torch.ones(2)))", True),
    "loguru's": ("from loguru import logger", "@logger.catch", "print(evaluate(torch.ones(2)))", False),
    "a region of loguru": ("from loguru import logger", "", "with logger.catch():\n        evaluate(torch.ones(2))", False),
    "tenacity": ("import tenacity", "@tenacity.retry()", "print(evaluate(torch.ones(2)))", False),
    "an exit": ("", "", "try:\n        evaluate(torch.ones(2))\n    finally:\n        sys.exit(0)", False),
    "another program": ("import subprocess", "", "print(evaluate(torch.ones(2)))", False),
}


@pytest.mark.parametrize("name", TAKEN)
def test_an_error_that_others_survive_is_none_to_mend_unasked(project: Project, name: str) -> None:
    imports, decorator, call, is_safe = TAKEN[name]
    text = ERROR.format(imports=imports, decorator=decorator, call=call)
    assert (fixes(project, "no-grad-without-call", text) == ["safe"]) == is_safe


def test_whoever_imports_a_script_may_survive_its_error(project: Project) -> None:
    text = "import torch\nwith torch.no_grad:\n    x = torch.ones(2)\n"
    assert fixes(project, "no-grad-without-call", text) == ["safe"]
    tried = "try:\n    import main\nexcept Exception:\n    pass\n"
    assert fixes(project, "no-grad-without-call", text, plugin__py=tried) == ["assuming"]


WORKERS = """
    import argparse
    from torch.utils.data import DataLoader, TensorDataset
    import torch
    {imports}


    class Config:
        def __init__(self):
            self.workers = 0


    config = Config()
    {filled}
    data = TensorDataset(torch.ones(8, 2))
    loader = DataLoader(data, num_workers=config.workers, persistent_workers=True)
"""


@pytest.mark.parametrize(
    ("imports", "filled", "is_safe"),
    [
        ("", "pass", True),
        ("", "argparse.ArgumentParser().parse_args([], namespace=config)", False),
        ("", "argparse.ArgumentParser().parse_args([], config)", False),
        ("import importlib", "importlib.import_module('settings').workers = 4", False),
    ],
)
def test_a_setting_that_others_fill_in_is_not_known(project: Project, imports: str, filled: str, is_safe: bool) -> None:
    text = WORKERS.format(imports=imports, filled=filled)
    assert (fixes(project, "dataloader-invalid-arguments", text) == ["safe"]) == is_safe


@pytest.mark.parametrize(
    ("rule", "text", "first"),
    [
        ("deprecated-cuda-amp", "import torch\n\nwith torch.cuda.amp.autocast():\n    pass\n", "2.4"),
        ("deprecated-torch-function", "import torch\n\nprint(torch.ger(torch.ones(2), torch.ones(2)))\n", "1.7"),
    ],
)
def test_a_name_that_an_old_torch_lacks_is_not_written(project: Project, rule: str, text: str, first: str) -> None:
    assert fixes(project, rule, text, requirements__txt=f"torch>={first}\n")[:1] == ["safe"]
    older = "1.13" if first == "2.4" else "1.5.1"
    assert "safe" not in fixes(project, rule, text, requirements__txt=f"torch=={older}\n")


def test_another_package_may_stand_behind_the_old_names(project: Project) -> None:
    text = "import torch\nimport torch_npu\n\nwith torch.cuda.amp.autocast():\n    pass\n"
    assert fixes(project, "deprecated-cuda-amp", text, requirements__txt="torch>=2.4\n") == ["assuming"]


INSIDE = """
    import torch


    def step(x, weight, optimizer):
        with torch.inference_mode():
            prompt = x.mean(0, keepdim=True)
            {line}
        loss = ((x + prompt) * weight).sum()
        loss.backward()
        optimizer.step()
"""


def test_what_asks_for_gradients_inside_would_be_trained(project: Project) -> None:
    text = INSIDE.format(line="prompt.requires_grad_()")
    assert "safe" not in fixes(project, "inference-tensor-escape", text)
