"""Branches that the calls of each step do not take."""

from __future__ import annotations

import pytest
from conftest import Project

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, offset=None, reverse=False):
        {branch}
        return x + offset


def sample(net, x):
    return net(x, reverse=True)


def train(loader):
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x in loader:
        x = x.cuda(non_blocking=True)
        offset = torch.zeros(x.shape[0], 1, device=x.device)
        loss = net({given}).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("branch", "given", "is_found"),
    [
        ("offset = torch.zeros(3).to(x.device) if offset is None else offset", "x, offset", False),
        ("offset = torch.zeros(3).to(x.device) if offset is None else offset", "x", True),
        ("if offset is None: offset = torch.zeros(3).to(x.device)", "x, offset", False),
        ("if offset is None: offset = torch.zeros(3).to(x.device)", "x, None", True),
        ("if offset is not None: offset = offset + torch.zeros(3).to(x.device)", "x, offset", True),
        ("if offset is not None: offset = offset + torch.zeros(3).to(x.device)", "x", False),
        ("if reverse: offset = offset + torch.zeros(3).to(x.device)", "x, offset", False),
        ("if not reverse: offset = offset + torch.zeros(3).to(x.device)", "x, offset", True),
        ("if reverse: offset = offset + torch.zeros(3).to(x.device)", "x, offset, True", True),
        ("if reverse: offset = offset + torch.zeros(3).to(x.device)", "x, offset, len(loader) > 3", True),
        ("if offset is None: offset = torch.zeros(3).to(x.device)", "*[x, offset]", True),
        ("reverse = not reverse\n        if reverse: offset = offset + torch.zeros(3).to(x.device)", "x, offset", True),
    ],
)
def test_a_branch_runs_each_step_if_a_call_of_a_step_takes_it(
    project: Project, branch: str, given: str, is_found: bool
) -> None:
    project.write({"train.py": NET.format(branch=branch, given=given)})
    found = project.run("check", "--select", "factory-then-transfer").stdout
    assert ("factory-then-transfer" in found) is is_found


def test_what_a_text_is_split_into_is_no_tensor(project: Project) -> None:
    project.write(
        {
            "info.py": """
                import torch

                def used(command):
                    lines = torch.run(command).decode("utf-8").split("\\n")
                    memory = [line.strip() for line in lines][0]
                    return [int(x) for x in memory.replace("MiB", "").split(" / ")]
            """
        }
    )
    assert project.run("check", "--select", "item-in-python-loop").exit_code == 0
