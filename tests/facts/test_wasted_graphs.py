"""Forward passes whose graphs are no waste: none is recorded, or somebody wants it."""

from __future__ import annotations

import ast

import pytest
from ask import Program

from perflint.facts.autograd.evaluations import wastes_no_graph

HEAD = "import torch\nfrom torch import nn\n"
MADE = "        self.network = nn.Linear(2, 2).eval()\n"

EVALUATIONS = {
    "one that trains": ("def f(x):\n    network = nn.Linear(2, 2).eval()\n    network(x)  #?\n", False),
    "frozen where it is made": (
        "def f(x):\n    network = nn.Linear(2, 2).eval().requires_grad_(False)\n    network(x)  #?\n",
        True,
    ),
    "frozen by a statement": ("def f(x, network: nn.Module):\n    network.requires_grad_(False)\n    network(x)  #?\n", True),
    "unfrozen": ("def f(x, network: nn.Module):\n    network.requires_grad_(True)\n    network(x)  #?\n", False),
    "another one is frozen": ("def f(x, network: nn.Module, a):\n    a.requires_grad_(False)\n    network(x)  #?\n", False),
    "of an object": (
        f"class C:\n    def __init__(self):\n{MADE}    def f(self, x):\n        self.network(x)  #?\n",
        False,
    ),
    "frozen by another method": (
        f"class C:\n    def __init__(self):\n{MADE}        self.network.requires_grad_(False)\n"
        "    def f(self, x):\n        self.network(x)  #?\n",
        True,
    ),
    "its parameters are frozen by another method": (
        f"class C:\n    def __init__(self):\n{MADE}        for p in self.network.parameters(): p.requires_grad = False\n"
        "    def f(self, x):\n        self.network(x)  #?\n",
        True,
    ),
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_a_frozen_network_records_no_graph(name: str) -> None:
    text, frozen = EVALUATIONS[name]
    program = Program(HEAD + text)
    scope, call = program.at("self.network(x)" if "class" in text else "network(x)")
    assert isinstance(call, ast.Call)
    assert wastes_no_graph(program.facts, scope, call) is frozen


MADE_OF = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(2, 2)\n"
KEEPS = f"{MADE_OF}    def forward(self, x):\n        self.hidden = self.layer(x)\n        return self.hidden\n"
DROPS = f"{MADE_OF}    def forward(self, x):\n        hidden = self.layer(x)\n        return hidden\n"
RUNS = "def f(x):\n    network = Net()\n    network(x)  #?\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"{KEEPS}{RUNS}    network.embeddings().sum().backward()\n", True),
        (f"{DROPS}{RUNS}    network.embeddings().sum().backward()\n", False),
        (f"{KEEPS}{RUNS}    network.eval()\n", False),
        (f"{KEEPS}{RUNS}", False),
    ],
)
def test_a_network_may_keep_what_it_computes_for_another_method(text: str, wanted: bool) -> None:
    program = Program(HEAD + text)
    scope, call = program.at("network(x)")
    assert isinstance(call, ast.Call)
    assert wastes_no_graph(program.facts, scope, call) is wanted


@pytest.mark.parametrize(("ending", "wanted"), [("out.sum().backward()", True), ("print(out)", False)])
def test_a_training_that_loses_a_result_in_one_branch_is_no_evaluation(ending: str, wanted: bool) -> None:
    branches = "    if x:\n        network(x)  #?\n    else:\n        out = network(2 * x)\n"
    program = Program(f"{HEAD}def f(x, network: nn.Module):\n{branches}    {ending}\n")
    scope, call = program.at("network(x)")
    assert isinstance(call, ast.Call)
    assert wastes_no_graph(program.facts, scope, call) is wanted
