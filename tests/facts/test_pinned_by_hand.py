"""Which programs pin host memory by hand."""

from __future__ import annotations

import pytest
from ask import ROOT, Program

from perflint.facts.proofs.pinned_by_hand import pinned_by_hand

HEAD = "import torch\nfrom torch.utils.data import DataLoader\n"
PINS = [
    "b = torch.empty(2, pin_memory=True)",
    "from torch import empty as e\nb = e(2, pin_memory=True)",
    "make = torch.zeros\nb = make(2, pin_memory=True)",
    "import functools\nmake = functools.partial(torch.empty, 2, pin_memory=True)",
    "def make(x, pin):\n    return x.new_zeros(2, pin_memory=pin)",
    "def make(factory, n):\n    return factory(n, pin_memory=True)",
    "options = {'pin_memory': True}\nb = torch.empty(2, **options)",
    "def make(**options):\n    return torch.empty(2, **options)\n\n\nb = make(pin_memory=True)",
    "def fill(b=torch.empty(2, pin_memory=True)):\n    return b",
    "def fill(*, b=torch.empty(2).pin_memory()):\n    return b",
    "b = torch.ones(2).pin_memory()",
    "bs = [*map(torch.Tensor.pin_memory, [torch.ones(2)])]",
    "pin = torch.ones(2).pin_memory\nb = pin()",
    "b = getattr(torch.ones(2), 'pin_memory')()",
    "import operator\nb = operator.methodcaller('pin_memory')(torch.ones(2))",
    "torch.cuda.cudart().cudaHostRegister(0, 8, 0)",
    "from cupyx import empty_pinned as new\nb = new(2)",
    "from numba import cuda\nb = cuda.pinned_array(2)",
]
PINS_NOTHING = [
    "loader = DataLoader([1], pin_memory=True)",
    "from torch.utils.data import DataLoader as Loader\nloader = Loader([1], pin_memory=True)",
    "b = torch.empty(2, pin_memory=False)",
    "options = {'pin_memory': True}\nloader = DataLoader([1], **options)",
    "options = {'device': 'cpu'}\nb = torch.empty(2, **options)\nloader = DataLoader([1], pin_memory=True)",
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--pin_memory')\nargs = parser.parse_args()\n"
    "loader = DataLoader([1], pin_memory=args.pin_memory and True)",
    "def loaders(pin_memory=True):\n    return DataLoader([1], pin_memory=pin_memory)\n\n\nloaders(pin_memory=False)",
    "import functools\nmake = functools.partial(DataLoader, pin_memory=True)",
    "# b = torch.empty(2, pin_memory=True)\ntext = 'torch.empty(2, pin_memory=True)'",
    "class Settings:\n    pin_memory = True\n\n\nprint(Settings().pin_memory)",
]


@pytest.mark.parametrize("code", PINS)
@pytest.mark.parametrize("file", ["main.py", "memory.py"])
def test_what_pins_memory_is_found_under_any_name(code: str, file: str) -> None:
    program = Program("import memory\n", {"memory.py": "", file: f"import memory\n{HEAD}{code}\n"})
    assert pinned_by_hand(program.facts, f"{ROOT}/main.py") is not None


@pytest.mark.parametrize("code", PINS_NOTHING)
def test_loaders_and_settings_pin_nothing_by_hand(code: str) -> None:
    assert pinned_by_hand(Program(HEAD + code).facts, f"{ROOT}/main.py") is None
