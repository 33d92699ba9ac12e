"""How often a place runs."""

from __future__ import annotations

import pytest
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
    rates = {f["location"]["row"]: f["rate"] for f in project.findings("--no-runtime", "--select", "item-every-step")}
    assert rates == {12: "per step", 15: "per parameter"}


EVALUATION = """
import torch

def train(model, loader, held_out, optimizer):
    for x, y in loader:
        loss = model(x.to("cuda")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
    with torch.no_grad():
        for x, y in held_out:
            model(x.to("cuda")).sum()
            torch.cuda.synchronize()

def play(model, world, optimizer, steps):
    while True:
        for step in range(steps):
            with torch.no_grad():
                action = model(world.state.to("cuda"))
            torch.cuda.synchronize()
            world.move(action)
        loss = model(world.states.to("cuda")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.usefixtures("waits_told")
def test_a_wait_in_an_evaluation_is_told_on_request_but_not_one_of_what_it_trains_with(project: Project) -> None:
    project.write({"train.py": EVALUATION})
    found = {f["location"]["row"]: f["severity"] for f in project.findings("--select", "synchronize-in-loop")}
    assert found == {10: "warning", 14: "info", 21: "warning"}


ELEMENTS = """
import torch

def train(model, loader, optimizer, kept):
    for x, labels in loader:
        labels = labels.cuda()
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for i in range(8):
            kept[i] = labels[i].item()
"""


def test_what_a_loop_reads_one_by_one_is_told_once(project: Project) -> None:
    project.write({"train.py": ELEMENTS})
    found = project.findings("--select", "item-every-step,item-in-python-loop")
    assert [(f["rule"], f["location"]["row"]) for f in found] == [("item-in-python-loop", 12)]
