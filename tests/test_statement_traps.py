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


EVALUATED = """
import torch
from torch import nn

torch.manual_seed(0)
KEPT = []


{head}


def evaluate(encoder, head, batches):
    encoder.eval()
    head.eval()
    right, total = 0, {start}
    for x in batches:
        scores = head(encoder(x))
        {step}
        right += (scores.argmax(1) == 0).sum().item()
    return right, total


batches = [torch.randn(4, 3) for _ in range(3)]
encoder, head = nn.Linear(3, 3), {made}
right, total = evaluate(encoder, head, batches)
print(right)
for wanted in [*KEPT, total]:
    wanted.sum().backward()
print(encoder.weight.grad)
"""
OWN_HEAD = """
class Head(nn.Linear):
    def forward(self, x):
        KEPT.append(x)
        return super().forward(x)
"""


@pytest.mark.parametrize(
    ("head", "made", "start", "step"),
    [
        ("", "nn.Linear(3, 2)", "torch.zeros(1, requires_grad=True)", "total = total + scores.sum()"),
        ("", "nn.Linear(3, 2)", "torch.zeros(1, requires_grad=True)", "KEPT.append(scores)"),
        (OWN_HEAD, "Head(3, 2)", "torch.zeros(1, requires_grad=True)", "pass"),
    ],
)
def test_what_goes_through_two_networks_may_be_wanted(head: str, made: str, start: str, step: str) -> None:
    text = EVALUATED.format(head=head, made=made, start=start, step=step)
    assert "no_grad" not in safely_fixed({"main.py": text})[0]["main.py"]
    assert changes({"main.py": text})[0] == []


def test_an_evaluation_by_two_networks_that_are_handed_in_needs_no_graph() -> None:
    lines = [
        line for line in EVALUATED.splitlines() if "wanted" not in line and "KEPT" not in line and "weight.grad" not in line
    ]
    text = "\n".join(lines).format(head="", made="nn.Linear(3, 2)", start="0", step="pass")
    assert "@torch.inference_mode()" in safely_fixed({"main.py": text})[0]["main.py"]
    assert changes({"main.py": text})[0] == []


CLEARED = """
import atexit
import torch
from torch import nn

torch.manual_seed(0)


class Last(nn.Module):
    rounds = 0

    def forward(self, x):
        Last.rounds += 1
        if Last.rounds > {rounds}:
            raise SystemExit(3)
        return x

    def extra_repr(self):
        return str(first.bias.grad)


first = nn.Linear(3, 2)
model = nn.Sequential(first, Last())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}


def train(batches):
    for x in batches:
        loss = model(x).square().mean()
        {shown}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train([torch.randn(4, 3) for _ in range(3)])
print(first.weight)
"""


@pytest.mark.parametrize("shown", ["print(model[-1])", "print(model)", 'print(f"{model}")', "print([model, 1])"])
def test_gradients_that_are_shown_before_they_are_cleared_stay(shown: str) -> None:
    assert changes({"main.py": CLEARED.format(shown=shown, before="", rounds=9)})[0] == []


def clears_early(text: str) -> bool:
    fixed = safely_fixed({"main.py": text})[0]["main.py"]
    return fixed.index("optimizer.zero_grad()") < fixed.index("loss = model(x)")


def test_gradients_that_the_end_of_the_program_sees_stay() -> None:
    assert not clears_early(CLEARED.format(shown="pass", before="atexit.register(lambda: print(first.bias.grad))", rounds=2))


def test_gradients_that_nobody_sees_are_cleared_early() -> None:
    assert clears_early(CLEARED.format(shown="print(loss.item())", before="", rounds=9).replace("import atexit\n", ""))
