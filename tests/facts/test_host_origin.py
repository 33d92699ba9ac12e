"""Which copy to the device is behind a tensor."""

from __future__ import annotations

from ask import Program

from perflint.facts.device.host_origin import upload_behind

CALLERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x, lengths):
        lengths  #?
        return self.layer(x)

def demonstrate(net: Net, loader: DataLoader):
    for x, lengths in loader:
        print(net(x.cuda(), lengths.to("cuda")))

def train(net: Net, loader: DataLoader, optimizer: torch.optim.Optimizer):
    for x, lengths in loader:
        net(x.cuda(), lengths.cuda()).sum().backward()
        optimizer.step()
"""


def test_of_several_copies_that_of_the_training_is_named() -> None:
    program = Program(CALLERS)
    found = upload_behind(program.facts, *program.at("lengths"))
    assert found is not None
    assert found.scope.name == "train"


def test_a_default_is_no_expression_of_the_callers() -> None:
    program = Program(
        "def step(x, scale=1.5):\n    scale  #?\n    return x * scale\n\n"
        "def one(loader):\n    for x in loader:\n        step(x)\n\n"
        "def other(loader):\n    for x in loader:\n        step(x)\n"
    )
    assert upload_behind(program.facts, *program.at("scale")) is None
