"""Evaluations in other files than the training that they leave in evaluation mode."""

import pytest
from conftest import Project

RULE = "train-mode-not-restored"
NETWORK = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x)
"""
EVALUATE = """\
import torch


def validate(model, batches):
    {mode}
    with torch.no_grad():
        return sum(model(x).abs().mean().item() for x in batches)
"""
TRAIN = """\
import torch
from evaluation import *
from network import Net
from losses import {loss}


def train(batches, kept):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for epoch in range(10):
        for x, y in batches:
            optimizer.zero_grad()
            {loss}(model, x, y).backward()
            optimizer.step()
        print(validate(model, kept))
"""
LOSSES = """\
def {loss}(model, x, y):
    return model.objective.{loss}(model(x), y)
"""


@pytest.mark.parametrize(
    ("mode", "loss", "told"),
    [
        ("model.eval()", "squared", True),
        ("model.train()", "squared", False),
        ("model.eval()", "training_losses", True),
        ("model.eval()", "train_mode", False),
        ("model.eval()", "set_training", False),
    ],
)
def test_evaluation_mode_is_seen_in_another_file(project: Project, mode: str, loss: str, told: bool) -> None:
    files = {"train.py": TRAIN.format(loss=loss), "evaluation.py": EVALUATE.format(mode=mode), "network.py": NETWORK}
    project.write({**files, "losses.py": LOSSES.format(loss=loss)})
    assert (RULE in {rule for rule, _ in project.rules()}) is told
