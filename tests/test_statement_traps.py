"""Statements of a training step that compute more than the forward pass whose graph is dropped: who wants the rest of it?"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from fuzz.meaning import changes, safely_fixed

STEP = """
import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(3, 2)

    def forward(self, x):
        {dist} = Normal(self.mean(x), 1.0)
        return {dist}.loc * 2 + {dist}.log_prob(x[:, :2])


def train(actor, target, critic, policy, optimizer, scale):
    for _ in range(3):
        x, s2, noise = torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 2)
        q = critic(x)
        {statement}
        loss = ((q - wanted) ** 2).mean() + {more}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item(), scale.grad)


torch.manual_seed(0)
actor, target, critic, policy = nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(3, 2), Policy()
scale = nn.Parameter(torch.ones(2))
parts = [*actor.parameters(), *target.parameters(), *critic.parameters(), *policy.parameters(), scale]
optimizer = torch.optim.SGD(parts, lr=0.1)
train(actor, target, critic, policy, optimizer, scale)
print([part.sum().item() for part in parts])
"""

DROPPED = {
    "sum": "wanted = (target(s2) + noise).detach()",
    "nested": "wanted = target(actor(s2)).detach()",
    "least": "wanted = torch.min(target(s2), critic(s2)).detach()",
    "activation": "wanted = torch.sigmoid(target(s2)).detach()",
    "distribution": "wanted = policy(s2).detach()",
}
WANTED = {
    "weight": "wanted = target(s2).detach() * scale",
    "function": "wanted = torch.add(target(s2).detach(), scale)",
    "two networks": "wanted = target(s2).detach() + critic(s2)",
    "inner": "wanted = critic(actor(s2) + target(s2).detach().sum())",
    "list": "wanted = torch.stack([target(s2).detach(), scale * noise])[1]",
    "walrus": "wanted = (target(s2) + (kept := scale * noise)).detach() + kept",
    "either": "wanted = target(s2).detach() if noise.sum() > 99 else scale * noise",
}


def program(statement: str, dist: str = "dist", more: str = "0.0") -> str:
    return STEP.format(statement=statement, dist=dist, more=more)


@pytest.mark.parametrize("name", DROPPED)
def test_what_nobody_wants_the_graph_of_records_none(name: str) -> None:
    text = program(DROPPED[name])
    assert "with torch.no_grad():" in safely_fixed({"main.py": text})[0]["main.py"]
    assert changes({"main.py": text})[0] == []


@pytest.mark.parametrize("name", WANTED)
def test_what_somebody_wants_the_graph_of_keeps_it(name: str) -> None:
    assert changes({"main.py": program(WANTED[name])})[0] == []


def test_a_distribution_that_is_kept_keeps_its_graph() -> None:
    text = program("wanted = policy(s2).detach()", dist="self.dist", more="policy.dist.log_prob(noise).mean()")
    assert "no_grad" not in safely_fixed({"main.py": text})[0]["main.py"]
    assert changes({"main.py": text})[0] == []
