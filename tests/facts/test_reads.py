"""Where the host waits for the device, and what becomes of the number."""

from __future__ import annotations

import ast

import pytest
from ask import Program

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.device.reads import implied, written_out

HEAD = """
import math, torch
from math import (
    log10, isnan
)
from torch import nn
from torch.utils.data import DataLoader
model = nn.Linear(2, 2).cuda()
def train(losses, total=0.0):
    for i, x in enumerate(DataLoader([])):
        loss = model(x.cuda()).sum()
        loss.backward()
"""

READS = {
    "loss.item()": "ITEM",
    "float(loss)": "CONVERSION",
    "loss.detach().cpu().numpy()": "COPY",
    "loss.cpu().item()": "ITEM",
    "loss.cpu().data.numpy()": "COPY",
    "loss.tolist()": "COPY",
    "loss.to('cpu')": "COPY",
    "f'{loss}'": "FORMAT",
    "'%f' % loss": "FORMAT",
    "('%s' * 2 + '%f' * 3) % (1, 2, *loss)": "FORMAT",
    "print(loss)": "FORMAT",
    "f(1 if loss else 2)": "TRUTH",
    "math.isnan(loss)": "CONVERSION",
    "isnan(loss)": "CONVERSION",
    "10 * log10(1 / loss)": "CONVERSION",
    "sqrt(loss)": None,
    "writer.add_scalar('a', loss, i)": "LOGGER",
    "writer.add_scalar('a', losses.grad.norm(), i)": "LOGGER",
    "float(losses.grad.data.norm(2))": "CONVERSION",
    "writer.add_scalar('a', losses.norm(), i)": None,
    "loss.detach()": None,
    "loss.shape": None,
    "x.shape[0]": None,
    "len(x)": None,
    "x.item()": None,
    "unknown(loss)": None,
    "(unknown * 2) % loss": None,
    "f'{loss.shape}'": None,
    "loss is None": None,
}


@pytest.mark.parametrize("text", READS)
def test_reads(text: str) -> None:
    program = Program(f"{HEAD}        {text}\n")
    scope = program.scope("train")
    reads = (*program.facts.reads(scope), *program.facts.truths(scope))
    assert [read.kind.name for read in reads] == ([READS[text]] if READS[text] else [])
    looks = {node for node, _ in (*written_out(flow_of(scope)), *implied(flow_of(scope)))}
    assert all(looks.intersection(ast.walk(read.node)) for read in reads if read.kind.name != "TRUTH")


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        ("unknown.cpu().sum().item()", ["unknown"]),
        ("unknown.cpu().mean(0).tolist()", ["unknown"]),
        ("y = anything(x).cpu()\n        y.sum().item()", ["anything(x)"]),
        ("y = anything(x).cpu()\n        print(y[0].item())", ["anything(x)"]),
    ],
)
def test_what_was_copied_to_the_host_is_there(lines: str, read: list[str]) -> None:
    text = HEAD.replace("losses, total=0.0", "losses, unknown, anything") + f"        {lines}\n"
    program = Program(text)
    assert [ast.unparse(found.tensor) for found in program.facts.reads(program.scope("train"))] == read


def test_only_what_runs_each_step_counts() -> None:
    program = Program(f"{HEAD}    loss.item()\ndef other(loss): loss.item()\n")
    assert [program.facts.reads(program.scope(name)) for name in ("train", "other")] == [[], []]


SINKS = {
    "total += loss.item()": {"ACCUMULATE"},
    "losses.append(loss.item())": {"COLLECT"},
    "losses += [loss.item()]": {"COLLECT"},
    "total = criterion(y, loss.item())": {"NEEDED"},
    "print(loss.item())": {"LOG"},
    "print(f'{loss.item():.3f}')": {"LOG"},
    "a = round(loss.item(), 3); print(a)": {"LOG"},
    "meter.update(loss.item(), 3)": {"METER"},
    "print(dict(loss=loss.item()))": {"LOG"},
    "shown = {}; shown.update({'loss': loss.item()})": {"STORE"},
    "vis.vis_scalar('loss', loss.item())": {"LOG"},
    "a = Munch(loss=loss.item())\n        while a.loss: pass": {"CONTROL"},
    "self.x = loss.item()": {"STORE"},
    "losses[i] = loss.item()": {"STORE"},
    "if loss.item() > 3: break": {"CONTROL"},
    "a = loss.item(); total += a\n        while a: pass": {"ACCUMULATE", "CONTROL"},
    "y = x[loss.item()]": {"NEEDED"},
    "unknown(loss.item())": {"NEEDED"},
    "f = lambda: loss.item()": {"RETURN"},
    "a = loss.item()\n        def g(): return a": {"NEEDED"},
    "return loss.item()": {"RETURN"},
    "loss.item()": set(),
}


@pytest.mark.parametrize("text", SINKS)
def test_sinks(text: str) -> None:
    program = Program(f"{HEAD}        {text}\n")
    for scope in program.scopes():
        calls = [c for c in program.flow(scope.qualname).calls if ast.unparse(c) == "loss.item()"]
        for call in calls:
            assert {sink.name for sink in program.facts.sinks.of(scope, call)} == SINKS[text]
