"""What the calls `net(x)` give the parameters of `forward`: a guess at what it is given, and never a proof."""

from __future__ import annotations

import pytest
from ask import Program

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x, mask=None):
        {asked}  #?

"""
CALLS = {
    "a network that is a variable": ("x", "net = Net().cuda()\nnet(torch.ones(2).cuda())", "tensor on cuda | ?"),
    "a network that a function is given": (
        "x", "def step(net, x): net(x)\nstep(Net(), torch.ones(2).cuda())", "tensor on cuda | ?"
    ),
    "a network that a function makes": ("x", "def made(): return Net()\nmade()(torch.ones(2).cuda())", "tensor on cuda | ?"),
    "a layer of another network": (
        "x",
        "class Outer(nn.Module):\n    def __init__(self): self.net = Net()\n    def forward(self, y): self.net(y.cpu())\n"
        "Outer()(torch.ones(2).cuda())",
        "tensor on host | tensor on host | ?",
    ),
    "a network above it": (
        "x",
        "class Below(Net):\n    def forward(self, y): super().forward(y.int())\nBelow()(torch.ones(2).cuda())",
        "tensor on cuda | tensor on unknown | ?",
    ),
    "by its name": ("x", "Net().forward(torch.ones(2))", "tensor on host | ?"),
    "a keyword": ("mask", "Net()(torch.ones(2), mask=torch.ones(2) > 0)", "tensor on host | ?"),
    "a default": ("mask", "Net()(torch.ones(2))", "None | output on unknown | ?"),
    "a number": ("x", "Net()(3)", "3 | ?"),
    "a container": ("x['a']", "Net()({'a': torch.ones(2)})", "tensor on host | ?"),
    "several calls": ("x", "net = Net()\nnet(torch.ones(2))\nnet(3)", "3 | tensor on host | ?"),
    "what is not known": ("x", "Net()(unknown)", "output on unknown | ?"),
    "nobody": ("x", "", "output on unknown | ?"),
    "a wrapper that copies it to the device": (
        "x", "net = nn.DataParallel(Net())\nnet(torch.ones(2))", "tensor on cuda or host | ?"
    ),
    "a list for a wrapper": (
        "x[0]", "net = nn.DataParallel(Net())\nnet([torch.ones(2), 3])", "tensor on cuda or host | ?"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_a_forward_pass_is_given(name: str) -> None:
    asked, calls, expected = CALLS[name]
    training = "\nloss.backward()\noptimizer.step()\n"  # the file is near a training loop
    assert Program(NET.format(asked=asked) + calls + training).said() == expected


def test_a_forward_pass_that_is_called_too_often_is_given_anything() -> None:
    calls = "net = Net()\n" + "net(torch.ones(2))\n" * 20 + "loss.backward()\noptimizer.step()\n"
    assert Program(NET.format(asked="x") + calls).said() == "output on unknown | ?"


def test_what_torch_computes_from_a_guess_is_a_tensor_but_where_and_of_which_type_is_open() -> None:
    calls = "Net()(torch.ones(2) > 0)\nloss.backward()\noptimizer.step()\n"
    value = Program(NET.format(asked="torch.flip(x, (0,))") + calls).value()
    assert not value.open
    assert {(a.place.value, a.dtype) for a in value.alternatives} == {("host", "bool"), ("unknown", "")}  # type: ignore[union-attr]


def test_who_shares_what_is_passed_is_open() -> None:
    calls = "Net()(torch.zeros(2))\nloss.backward()\noptimizer.step()\n"
    (given,) = Program(NET.format(asked="x") + calls).value().alternatives
    assert (given.fresh, given.zeros, given.grad) == (False, False, None)  # type: ignore[union-attr]


def test_a_network_that_calls_what_it_is_given_is_asked_about_itself() -> None:
    text = NET.format(asked="x(mask)") + "Net()(Net(), torch.ones(2))\nloss.backward()\noptimizer.step()\n"
    assert Program(text).said("x") == "instance Net | ?"
