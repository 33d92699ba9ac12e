"""Where a value's graph may be used."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.autograd.gradflow import backward_in, graph_ends

ENDS = {
    "y.item()": set(),
    "y.detach().cpu()": set(),
    "y.argmax(1)": set(),
    "y > 3": set(),
    "float(y)": set(),
    "y.backward()": {"BACKWARD"},
    "(y * 2).sum().backward()": {"BACKWARD"},
    "z = y * 2; z.sum().backward()": {"BACKWARD"},
    "return y": {"LEAVES"},
    "return y.shape[0]": set(),
    "self.y = y": {"LEAVES"},
    "xs.append(y)": {"LEAVES"},
    "zs = []; zs.append(y)": set(),
    "zs = []; zs.append(y); return zs": {"LEAVES"},
    "zs = self.zs; zs[0] = y": {"LEAVES"},
    "zs = self.zs; zs.append(y)": {"LEAVES"},
    "yield y": {"LEAVES"},
    "unknown(y)": {"UNKNOWN"},
    "keeps(y)": {"LEAVES"},
    "passes(y).backward()": {"BACKWARD"},
    "drops(y)": set(),
    "shows(xs, y)": set(),  # what becomes of the other argument does not matter
    "shows(y, xs)": {"UNKNOWN"},
    "shows(v=y, name=xs)": set(),
    "shows(*[y, y])": {"UNKNOWN"},
    "swapped(xs, y)": {"UNKNOWN"},  # a decorator may give it to the other parameter
    "Held.method(self, y, xs)": {"UNKNOWN"},  # the class's own function: `self` is its first argument
    "Held().method(xs, y)": set(),
    "g = lambda: y": {"UNKNOWN"},
    "y.requires_grad": {"UNKNOWN"},
    "y.register_hook(f)": {"BACKWARD"},
}
HEAD = """
import torch
from torch import nn
model = nn.Linear(2, 2)
kept = []
def keeps(v): kept.append(v)
def passes(v): return v
def drops(v): return v.item()
def shows(name, v): unknown(name); print(v.item())
@unknown
def swapped(name, v): unknown(name); print(v.item())
class Held:
    def method(self, name, v): unknown(name); print(v.item())
"""


@pytest.mark.parametrize("text", ENDS)
def test_graph_ends(text: str) -> None:
    program = Program(f"{HEAD}def f(self, x, xs):\n    y = model(x)\n    {text}\n")
    scope = program.scope("f")
    call = next(c for c in program.flow("f").calls if c.lineno == HEAD.count("\n") + 2)
    assert {end.use.name for end in graph_ends(program.facts, scope, call)} == ENDS[text]


@pytest.mark.parametrize(
    ("text", "runs"),
    [("x.backward()", True), ("torch.autograd.grad(x, y)", True), ("with torch.no_grad(): x.item()", False), ("step(x)", True)],
)
def test_backward_in(text: str, runs: bool) -> None:
    program = Program(f"import torch\ndef step(x): x.backward()\ndef f(x, y):\n    {text}\n")
    assert backward_in(program.facts, program.scope("f")) is runs
