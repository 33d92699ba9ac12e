"""Programs whose tensors are of a class of their own, or have methods of their own, in ways that no text gives away."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

import torch

from fuzz import meaning, outcomes
from fuzz.meaning import changes, safely_fixed
from fuzz.outcomes import Files, Outcome
from tests.test_meaning_traps import HEAD

TRAIN = (
    HEAD
    + """
COUNT = []

{put}

def train():
    model, total, shown = nn.Linear(3, 2).to(device), 0.0, []
    for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
        x, y = x.to(device), y.to(device)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        {made}
        total += loss.item()
        shown.append(loss.item())
        print(f"{{loss.item():.3f}}")
    return total, shown


print(train(), COUNT)
"""
)
ITEM = "old = torch.Tensor.item\n\n\ndef item(self):\n    COUNT.append(1)\n    return old(self)\n\n\n"
WRAP = """
def counted(old):
    def new(*given, **how):
        COUNT.append((old.__name__, sorted(how)))
        return old(*given, **how)
    return new


"""
PUT = {
    "under another name": ITEM + "Base = torch.Tensor\nBase.item = item\n",
    "among other targets": ITEM + "torch.Tensor.item, other = item, 1\n",
    "with a type": ITEM + "torch.Tensor.item: object = item\n",
    "by the class of a tensor": ITEM + "inputs.__class__.item = item\n",
    "by a helper": WRAP + "def wrap(owner, name):\n    setattr(owner, name, counted(getattr(owner, name)))\n\n\n"
    "wrap(torch.Tensor, 'item')\nwrap(torch.Tensor, 'to')\n",
    "by a helper for the class of a tensor": WRAP + "def wrap(owner, names):\n    for name in names:\n"
    "        setattr(owner, name, counted(getattr(owner, name)))\n\n\nwrap(type(inputs), ['item', 'to'])\n",
    "in a loop over classes": WRAP + "for cls in (torch.Tensor, nn.Linear):\n    for name in ('item', 'to'):\n"
    "        if hasattr(cls, name):\n            setattr(cls, name, counted(getattr(cls, name)))\n",
    "by a setter that is handed on": WRAP + "put = functools.partial(setattr, torch.Tensor)\n"
    "put('to', counted(torch.Tensor.to))\nput('item', counted(torch.Tensor.item))\n",
    "of a package that is handed on": WRAP + "class Spy:\n    def __init__(self, package):\n        self.package = package\n"
    "        self.package.Tensor.to = counted(self.package.Tensor.to)\n\n\nSpy(torch)\n",
}
HEIRS = {
    "of another name": "Base = torch.Tensor\n\n\nclass Loss(Base):\n",
    "of a parameter": "class Loss(nn.Parameter):\n",
    "of what a function gives": "def base():\n    return torch.Tensor\n\n\nclass Loss(base()):\n",
    "of what a list holds": "class Loss(*[torch.Tensor]):\n",
    "of one of two": "class Loss(torch.FloatTensor if COUNT else torch.Tensor):\n",
}
METHOD = "    def item(self):\n        COUNT.append(1)\n        return super().item()\n"
MADE_HEIR = "Loss = type('Loss', (torch.Tensor,), {'item': lambda self: (COUNT.append(1), torch.Tensor.item(self))[1]})\n"


@pytest.mark.parametrize("put", PUT)
def test_methods_of_tensors_are_replaced_in_any_way(put: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = outcomes.outcome

    def alone(files: Files) -> Outcome:
        with monkeypatch.context() as around:  # programs run in this process: what they replace is put back
            for name in ("item", "to"):
                around.setattr(torch.Tensor, name, getattr(torch.Tensor, name))
            return run(files)

    monkeypatch.setattr(meaning, "outcome", alone)
    assert changes({"main.py": TRAIN.format(put=PUT[put], made="pass")})[0] == []


@pytest.mark.parametrize("heir", [*HEIRS, "made by a call"])
def test_heirs_of_tensors_are_told_by_what_their_bases_are(heir: str) -> None:
    text = HEIRS[heir] + METHOD if heir in HEIRS else MADE_HEIR
    made = "loss = torch.Tensor._make_subclass(Loss, loss.detach())"
    assert changes({"main.py": TRAIN.format(put=text, made=made)})[0] == []
    assert "detach().double()" not in safely_fixed({"main.py": TRAIN.format(put=text, made="pass")}).files["main.py"]


@pytest.mark.parametrize(
    "harmless",
    [
        "class Config:\n    def __init__(self, **given):\n        for name, value in given.items():\n"
        "            setattr(self, name, value)\n",
        "import argparse\n\nargs = argparse.Namespace()\nargs.cpu = not torch.cuda.is_available()\n",
        "class Halved(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.item = 3\n",
        "from collections import namedtuple\n\n\nclass Point(namedtuple('Point', 'x y')):\n    pass\n",
        "from typing import Generic, TypeVar\n\nT = TypeVar('T')\n\n\nclass Box(Generic[T]):\n    pass\n\n\n"
        "class Inner(Box[int]):\n    pass\n",
        "import collections.abc\n\n\nclass Names(collections.abc.Mapping):\n    pass\n",
        "isinstance(inputs, (torch.Tensor, nn.Parameter))\n",
    ],
)
def test_what_sets_and_inherits_other_things_stays_safe(harmless: str) -> None:
    fixed = safely_fixed({"main.py": TRAIN.format(put=harmless, made="pass")}).files["main.py"]
    assert "detach().double()" in fixed
    assert "non_blocking=True" in fixed


ASKED = """
import json
import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def run(model, data, kind, keywords, mixed):
    found = []
    for x in data:
        with torch.no_grad():
            out = model(x.to(device))
        classes, scores = out.argmax(1), out.max(1)[0]
        found += [{of}(v) for v in {made}]
    return found


kind = getattr(torch, json.loads('"{kind}"'))
print(run(nn.Linear(4, 3).to(device), [torch.randn(3, 4)], kind, {{"dtype": kind}}, [torch.ones(3).half()]))
"""
OF_ANOTHER_TYPE = (
    ("int", "classes.to(kind)"),
    ("int", "classes.to(**keywords)"),
    ("int", "classes.to(device, kind)"),
    ("int", "classes.to(device=device, dtype=kind)"),
    ("int", "torch.as_tensor(classes, dtype=kind)"),
    ("int", "torch.as_tensor(classes, kind)"),
    ("int", "torch.cat([classes, mixed[0].to(device)])"),
    ("int", "torch.stack([classes, *mixed])[0]"),
    ("float", "scores.to(kind)"),
    ("float", "scores.to(device, kind)"),
    ("float", "torch.ones(3, device=device, **keywords)"),
    ("int", "torch.tensor(1, dtype=kind).expand(3)"),
)


@pytest.mark.parametrize(("of", "made"), OF_ANOTHER_TYPE)
@pytest.mark.parametrize("runtime", [False, True])
def test_a_type_that_somebody_asks_for(of: str, made: str, runtime: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",), runtime=runtime))
    kind = "float16" if of == "int" else "int64"
    assert changes({"main.py": ASKED.format(of=of, made=made, kind=kind)})[0] == []


def test_a_type_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    program = {"main.py": ASKED.format(of="int", made="classes.to(device, non_blocking=True)", kind="float16")}
    assert safely_fixed(program)[1]["item-in-python-loop"]
