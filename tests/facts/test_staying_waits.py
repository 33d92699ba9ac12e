"""Waits that stay, whatever is done about another one of the same round."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.device.staying_waits import stays_beside, steps_wait_anyhow

TRAIN = """
import torch

def train(model: torch.nn.Module, loader: torch.utils.data.DataLoader, optimizer):
    model.cuda()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        out = model(x)
        loss = (out - y).square().mean()
        print(loss.item())  #?
        loss.backward()
        optimizer.step()
        {rest}
"""


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("pass", False),
        ("print(out[out > 0])", True),
        ("if step % 100 == 0: print(out[out > 0])", False),
        ("if loss.mean().item() > 3: break", True),
        ("solve(out.cpu().numpy())", True),
        ("print(out.mean().item())", False),
        ("if step > 3 and model.training: solve(out.cpu().numpy())", False),
    ],
    ids=["nothing", "mask", "seldom-mask", "decides", "needed", "also-shown", "in-a-branch"],
)
def test_a_number_beside_what_the_round_needs(rest: str, expected: bool) -> None:
    program = Program(TRAIN.format(rest=rest))
    scope, node = program.at("loss.item()")
    assert stays_beside(program.facts, scope, node) is expected


AROUND = """
import torch

def shown(loss):
    return loss.mean().item()  #?

def train(model: torch.nn.Module, loader: torch.utils.data.DataLoader, optimizer):
    model.cuda()
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).square().mean()
        {before}
        loss.backward()
        optimizer.step()
        print(shown(loss))
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [("pass", False), ("if loss.item() > 3: break", True), ("print(loss.item())", False)],
    ids=["nothing", "decides", "shown"],
)
def test_a_number_in_a_function_that_a_round_calls(before: str, expected: bool) -> None:
    program = Program(AROUND.format(before=before))
    scope, node = program.at("loss.mean().item()")
    assert stays_beside(program.facts, scope, node) is expected


CALLED = """
import torch

def chosen(scores):
    return scores[scores > 0]

def scaled(scaler, optimizer, loss):
    scaler.scale(loss).backward()
    scaler.step(optimizer)

def train(model: torch.nn.Module, loader: torch.utils.data.DataLoader, optimizer: torch.optim.SGD):
    scaler = torch.amp.GradScaler("cuda")
    model.cuda()
    for {each}:
        loss = model(x.cuda()).square().mean()
        {rest}
        loss.backward()
        optimizer.step()
        print(loss.item())  #?
"""


@pytest.mark.parametrize(
    ("each", "rest", "wait", "copy"),
    [
        ("x, y in loader", "pass", False, False),
        ("x, y in loader", "print(loss.mean().item())", False, False),
        ("x, y in loader", "chosen(loss)", True, True),
        ("x, y in loader", "if loss > 3: print(1)", True, True),
        ("x, y in loader", "scaled(scaler, optimizer, loss)", True, False),
        ("x, y in loader", "torch.cuda.synchronize()", True, True),
        ("epoch in range(200)", "pass", True, True),
        ("step in range(200)", "pass", False, False),
    ],
)
def test_what_a_step_waits_for_anyhow_also_in_what_it_calls(each: str, rest: str, wait: bool, copy: bool) -> None:
    program = Program(CALLED.format(each=each, rest=rest))
    scope, node = program.at("loss.item()")
    assert steps_wait_anyhow(program.facts, scope, node, is_copy=False) is wait
    assert steps_wait_anyhow(program.facts, scope, node, is_copy=True) is copy


def test_nothing_is_known_of_code_that_no_loop_gets_to() -> None:
    program = Program("import torch\n\ndef shown(loss: torch.Tensor):\n    print(loss.cuda().item())  #?\n")
    scope, node = program.at("loss.cuda().item()")
    assert steps_wait_anyhow(program.facts, scope, node, is_copy=False) is None
