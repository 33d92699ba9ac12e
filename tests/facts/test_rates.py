"""How often a place runs."""

from __future__ import annotations

from conftest import Project

STEP = """
import torch

def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        for step, (x, y) in enumerate(loader):
            loss = model(x.to("cuda")).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            {}
"""


def test_a_read_for_each_parameter_comes_before_one_for_each_step(project: Project) -> None:
    body = """total = 0.0
            total += loss.item()
            norms = []
            for p in model.parameters():
                norms.append(p.grad.norm().item())"""
    project.write({"train.py": STEP.format(body)})
    rates = {f["location"]["row"]: f["rate"] for f in project.findings("--select", "item-every-step")}
    assert rates == {12: "per step", 15: "per parameter"}
