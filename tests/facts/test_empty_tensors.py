"""Tensors without an element: nothing is copied, and nobody waits."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.device.uploads import holds_nothing
from perflint.facts.values.values import Place, place_of

EMPTY = {
    "torch.zeros(0)": True,
    "torch.zeros(0, 4).long()": True,
    "torch.empty((4, 0)).clone().float()": True,
    "torch.Tensor()": True,
    "torch.LongTensor([])": True,
    "torch.tensor([])": True,
    "torch.zeros(1)": False,
    "torch.zeros([])": False,
    "torch.tensor(0)": False,
    "torch.Tensor([0])": False,
    "torch.zeros(0).sum()": False,
    "zeros(0)": False,
    "numpy.zeros(0)": False,
    "torch.arange(n)": False,
}
HEAD = "import numpy\nimport torch\n\ndef zeros(n):\n    return torch.zeros(n + 1)\n\n"


@pytest.mark.parametrize("made", EMPTY)
def test_what_is_written_without_elements_holds_nothing(made: str) -> None:
    program = Program(f"{HEAD}{made}  #?\n")
    assert holds_nothing(program.facts.inference, *program.at()) is EMPTY[made]


@pytest.mark.parametrize(("between", "empty"), [("pass", True), ("x.resize_(4)", False), ("x = torch.ones(2)", False)])
def test_a_name_holds_nothing_unless_something_may_come(between: str, empty: bool) -> None:
    program = Program(
        f"{HEAD}def f(a):\n    x = torch.zeros(0)\n    if a:\n        {between}\n    return (\n        x  #?\n    )\n"
    )
    assert holds_nothing(program.facts.inference, *program.at("x")) is empty


def test_that_unknown_code_copied_something_to_the_host_is_a_guess() -> None:
    program = Program(f"{HEAD}def f(x):\n    y = x.cpu()\n    torch.any(y)  #?\n")
    value = program.facts.inference.value(*program.at())
    assert value.open, "no proof rests on it"
    assert {place_of(alternative) for alternative in value.alternatives} == {Place.HOST}
