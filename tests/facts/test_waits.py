"""Where the host may wait for the device: what a look at the syntax rules out, and what is asked once."""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ask import ROOT, Program

from perflint.facts.autograd import gradflow
from perflint.facts.autograd.gradflow import graph_ends
from perflint.facts.autograd.networks import Network
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.device import waits as module
from perflint.facts.device.waiting_places import MASKED, places
from perflint.facts.operations.operations import Road
from perflint.facts.values.callers import Callers
from perflint.project.config import Options
from perflint.rule.code import Code
from perflint.rule.registry import all_rules
from perflint.run.engine import check_file
from perflint.run.session import Session

KEYS = {
    "x[y > 0]": True,
    "x[~keep]": True,
    "x[keep]": True,
    "x[:, keep]": True,
    "x[self.mask]": True,
    "x[find(y)]": True,
    "x[y.bool()]": True,
    "x[0]": False,
    "x['a']": False,
    "x[-1, ...]": False,
    "x[None, :, 1:n]": False,
    "x[n + 1]": False,
    "x[[0, 1]]": False,
    "x[len(y)]": False,
    "x[y.argmax()]": False,
    "x[y.shape[0]]": False,
    "x[not y]": False,
    "x[y is None]": False,
    "x[i]": False,
    "x[k]": False,
    "x[count]": False,
    "table[keep]": False,
    "given[keep]": True,
    "given.part[keep]": True,
    "x[(y > 0) & keep]": True,
    "x[y + 1]": False,
    "x[given]": False,
    "x[mask_of_parts]": True,
}
"""Whether a mask may stand in the brackets, as far as the function shows."""

FUNCTION = """
import torch
class Net(torch.nn.Module):
    def forward(self, given, options, mask_of_parts):
        x, y = self.parts()
        keep = y > 0
        count = 0
        table = {{}}
        for i in range(3):
            for k, v in options.items():
                print({expression})
"""


@pytest.mark.parametrize(("expression", "expected"), KEYS.items())
def test_where_a_mask_may_select(expression: str, expected: bool) -> None:
    program = Program(FUNCTION.format(expression=expression))
    scope = program.module().scopes["Net.forward"]
    found = places(flow_of(scope), Road.SHAPE)
    assert bool([node for node in found if ast.unparse(node) == ast.unparse(ast.parse(expression))]) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"x[keep]", True), (b"x[ y>0 ]", True), (b"x[:, keep]", True), (b"f(x)[~keep]", True), (b"x[\n    keep\n]", True),
        (b"x[a[0]]", True), (b"x [keep]", True), (b"x[a & b]", True),
        (b"x[0]", False), (b"x['a', 1]", False), (b"x[:, -1, None]", False), (b"x[i + 1, ...]", False), (b"y = [keep]", False),
        (b"f([keep])", False), (b"list[int]", False), (b"Optional[Tensor]", False), (b"for a in [b]: pass", False),
        (b"x[ 1 :\n n ]", False), (b"x[1.0" + b",\n                1.0" * 100 + b", y]", True),  # in linear time
        (b"x[:" + b",\n                :" * 100 + b", y]", True),
    ],
)  # fmt: skip
def test_texts_that_may_hold_a_mask_in_brackets(text: bytes, expected: bool) -> None:
    assert (MASKED.search(text) is not None) is expected


def counting(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> Counter[Any]:
    """Counts the calls of a method, by its first argument."""
    counts: Counter[Any] = Counter()
    original: Callable[..., Any] = getattr(owner, name)

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        counts[arguments[0]] += 1
        return original(self, *arguments, **named)

    monkeypatch.setattr(owner, name, counted)
    return counts


def checked(program: Program) -> list[str]:
    session = Session(program.project, all_rules())
    return [finding.rule for finding in check_file(session, f"{ROOT}/main.py", "main.py").findings]


LOOP = """
import torch
model = torch.nn.Linear(2, 2).cuda()
def helper(config, table, n):
    mask = table["mask"]
    return table[0], config["valid"], mask[:n], table[n + 1] if n < 3 and n != 2 else None
def train(loader, optimizer):
    for x in loader:
        loss = model(x.cuda()).sum()
        helper({}, [1, 2], 3)
        loss.backward()
        optimizer.step()
"""


def test_nobody_looks_for_the_callers_of_a_function_without_a_place_that_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counting(monkeypatch, Callers, "_find")
    program = Program(LOOP)
    rule = next(rule for rule in all_rules() if rule.name == "dynamic-shape-op")
    assert not list(rule.check(Code(rule, program.module().scopes["helper"], program.facts, Options())))
    assert not counts


WAITING = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(2, 2).cuda()
def train(dataset):
    for x in DataLoader(dataset):
        x = x.cuda()
        weights = torch.tensor([len(row) for row in x], device="cuda")
        loss = (weights * model(x))[x > 0].sum()
        loss.backward()
"""


def test_each_place_is_looked_at_once_whatever_the_rules_and_the_budget_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counting(monkeypatch, module._Finder, "of")
    found = checked(Program(WAITING))
    assert {"dynamic-shape-op", "data-constructor-on-device"} <= set(found)
    assert counts
    assert max(counts.values()) == 1


MANY = """
import torch
def keep(x, kept):
    kept.append(x)
    return helper(x)
def helper(x):
    return x * 2
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.layer(x)
net = Net()
def evaluate(loader, kept):
    net.eval()
    for x in loader:
        a = net(x)
        b = keep(a, kept)
        c = net(b)
        d = keep(c, kept)
        e = net(d)
        print(keep(e, kept).sum())
"""


def test_what_a_function_does_with_its_arguments_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(MANY)
    scope = program.module().scopes["evaluate"]
    looked: Counter[str] = Counter()

    class Counted(gradflow.TensorWalk):
        def __init__(self, facts: Any, scope: Any, depth: int, detached: bool = False) -> None:
            looked[scope.name] += 1
            super().__init__(facts, scope, depth, detached)

    monkeypatch.setattr(gradflow, "TensorWalk", Counted)
    calls = flow_of(scope).calls_named["net"]
    assert all(graph_ends(program.facts, scope, call) for call in calls)
    assert looked == {"evaluate": len(calls), "keep": 1, "helper": 1, "forward": 1}


def test_a_network_is_looked_through_once_for_all_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    original = Network.cls

    def noted(self: Network, cls: Any) -> Iterator[Any]:
        looked.append(cls.name)
        return original(self, cls)

    monkeypatch.setattr(Network, "cls", noted)
    text = textwrap.dedent(MANY).replace("kept.append(x)", "")
    assert "eval-without-no-grad" in checked(Program(text))
    assert looked.count("Net") <= 2  # for the graph that it needs, and for what is hidden in the function
