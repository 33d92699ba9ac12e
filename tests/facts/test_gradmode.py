"""Whether autograd is off: yes, no, or not known."""

from __future__ import annotations

import pytest
from ask import Program

MODES = {
    "nothing around": ("def f(): x  #?\nf()", False),
    "with": ("with torch.no_grad():\n    x  #?", True),
    "inference mode": ("with torch.inference_mode():\n    x  #?", True),
    "inference mode off": ("with torch.inference_mode(False):\n    x  #?", False),
    "among others": ("with open(y), torch.no_grad():\n    x  #?", True),
    "inner wins": ("with torch.no_grad():\n    with torch.enable_grad():\n        x  #?", False),
    "other manager": ("with open(y):\n    x  #?", False),
    "set": ("with torch.set_grad_enabled(False):\n    x  #?", True),
    "set by a flag": ("with torch.set_grad_enabled(flag):\n    x  #?", None),
    "manager by a name": ("manager = torch.no_grad if c else nullcontext\nwith grad_manager():\n    x  #?", None),
    "decorator": ("@torch.no_grad()\ndef f(): x  #?", True),
    "unknown decorator about gradients": ("@switch_grad\ndef f(): x  #?", None),
    "all callers": ("def f(): x  #?\nwith torch.no_grad(): f()\n@torch.no_grad()\ndef g(): f()", True),
    "some callers": ("def f(): x  #?\nwith torch.no_grad(): f()\nf()", None),
    "behind the block": ("with torch.no_grad(): pass\nx  #?", False),
    "inner function": ("with torch.no_grad():\n    def f(): pass\ndef g():\n    with torch.no_grad(): pass\n    x  #?", False),
}  # fmt: skip


AGENT = "class Agent:\n    def act(self, x):\n        x  #?\n    def other(self):\n        y  #?\n"
TRAINS = """
import torch

def run(make):
    agent = make()
    with torch.no_grad():
        agent.act(1)
    agent.other()
"""


def test_a_class_that_is_made_by_its_name_is_used_beside_its_file() -> None:
    facts = Program(AGENT, {"train.py": TRAINS})
    assert facts.facts.grad_mode.is_off(*facts.at("x")) is None
    assert facts.facts.grad_mode.is_off(*facts.at("y", 2)) is False
    imported = Program(AGENT, {"train.py": TRAINS, "make.py": "import main\n"})
    assert imported.facts.grad_mode.is_off(*imported.at("x")) is False


@pytest.mark.parametrize("name", MODES)
def test_grad_mode(name: str) -> None:
    text, off = MODES[name]
    program = Program("import torch\n" + text)
    assert program.facts.grad_mode.is_off(*program.at("x")) is off
