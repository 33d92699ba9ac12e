"""What the source around an evaluation does not show is an obligation.

tests/data/unseen.txt holds programs that compute something else, print something else or raise when autograd is switched off,
or `inference_mode` on, without a proof: layers that come by roundabout ways, layers and methods that are set from outside,
values that are kept out of sight, callers that are not followed, gradients that are asked for by other means than `backward()`.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from pathlib import Path

from fuzz.meaning import changes

HEAD = """
import copy, functools
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

inputs, targets, labels = torch.randn(6, 3), torch.randn(6, 2), torch.randint(0, 2, (6,))
"""
_TEXTS = (Path(__file__).parent / "data" / "unseen.txt").read_text(encoding="utf-8").split("#### ")[1:]
PROGRAMS = {name: HEAD + text for name, _, text in (program.partition("\n") for program in _TEXTS)}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_safe_fixes_leave_the_meaning(name: str) -> None:
    assert changes({"main.py": PROGRAMS[name]})[0] == []


TEXTBOOK = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))) + x


class Net(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList([Block(8) for _ in range(depth)])
        layers = []
        for _ in range(2):
            layers += [nn.Linear(8, 8), nn.ReLU()]
        layers.append(nn.Linear(8, 5))
        self.head = nn.Sequential(*layers)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


{}def evaluate(model, loader):
    model.eval()
    hits = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
    return hits


data = TensorDataset(torch.randn(8, 3, 12, 12), torch.randint(0, 5, (8,)))
print(evaluate(Net(), DataLoader(data, batch_size=2)))
"""


@pytest.mark.parametrize("decorator", ["", "@torch.no_grad()\n"])
def test_a_network_of_known_layers_keeps_its_safe_fix(decorator: str) -> None:
    differences, applied, *_ = changes({"main.py": TEXTBOOK.format(decorator)})
    assert differences == []
    assert applied
