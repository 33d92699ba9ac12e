"""What is told by default of a step's waits: those that leave none behind."""

from __future__ import annotations

import pytest
from conftest import Project

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda")


def train(network, optimizer):
    data = TensorDataset(torch.randn(640, 6), torch.randint(0, 4, (640,)))
    loader = DataLoader(data, batch_size=8, num_workers=2{pinned})
    total = 0.0
    for step, (x, y) in enumerate(loader):
        x = x.to(device{how})
        y = y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        {line}
    return total


if __name__ == "__main__":
    model = nn.Linear(6, 4).to(device)
    print(train(model, torch.optim.SGD(model.parameters(), lr=0.1)))
"""
ADDED = "total += loss.item()"
PINNED, FREE = ", pin_memory=True", ", non_blocking=True"
READ, COPY = ("item-every-step", 19), ("blocking-h2d-in-loop", 13)


@pytest.mark.parametrize(
    ("line", "pinned", "how", "told"),
    [
        (ADDED, PINNED, FREE, [READ]),
        (ADDED, PINNED, "", [COPY, READ]),
        ("pass", PINNED, "", [COPY]),
        (f"{ADDED}; print(loss.item())", PINNED, FREE, []),
        (f"{ADDED}; total += x[x > 1].sum().item() if loss > 1 else 0", PINNED, "", []),
        ("print(loss)", PINNED, "", []),
        (f"{ADDED}\n        if step % 100 == 0:\n            print(loss)", PINNED, FREE, [READ]),
        ("pass", "", "", []),
        ("print(loss)", "", "", []),
    ],
)
def test_only_the_last_waits_are_told(project: Project, line: str, pinned: str, how: str, told: list[tuple[str, int]]) -> None:
    project.write({"train.py": TRAIN.format(line=line, pinned=pinned, how=how)})
    waits = {"item-every-step", "blocking-h2d-in-loop", "dataloader-no-pin-memory", "sync-branch-on-tensor"}
    assert sorted(one for one in project.rules() if one[0] in waits) == sorted(told)


def test_who_selects_a_rule_sees_all_that_it_finds(project: Project) -> None:
    project.write({"train.py": TRAIN.format(line="print(loss); " + ADDED, pinned=PINNED, how="")})
    assert not project.rules()
    assert project.rules("--select", "blocking-h2d-in-loop") == [COPY]
    assert {COPY, READ} <= {*project.rules("--select", "all")}


def test_who_ignores_a_rule_hears_of_the_waits_beside_it(project: Project) -> None:
    """The rule's own findings would take its waits away, which nobody can tell then."""
    project.write({"train.py": TRAIN.format(line=ADDED, pinned=PINNED, how="")})
    assert READ in project.rules("--ignore", "blocking-h2d-in-loop")


def test_the_report_says_where_more_can_be_told(project: Project) -> None:
    project.write({"train.py": TRAIN.format(line="print(loss); " + ADDED, pinned=PINNED, how="")})
    said = project.run("check").stdout
    assert "sync budget: 3 waits per step; with `--select all` more on lines: 13, 19" in said
    assert "more on lines" not in project.run("check", "--select", "all").stdout
