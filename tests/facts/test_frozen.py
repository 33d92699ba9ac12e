"""Networks that are frozen: their forward passes record no graph."""

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
