"""Programs that evaluate under `no_grad`, and a change of each that makes `inference_mode` raise: the fix knows them apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed

HEAD = """import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Data(Dataset):
    def __init__(self):
        self.rows, self.made = torch.rand(8, 3), {}
        self.prepare()

    def prepare(self):
        self.scaled = [row * 2 for row in self.rows.tolist()]

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor(self.rows[i].tolist())


def collate(rows):
    return torch.stack(rows)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(3, 2), nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.fc(x)


def shown(x, net):
    return x.sum() + 1


def evaluate(loader):
    net, total = Net().eval(), 0.0
    for x in loader:
        with torch.no_grad():
            out = net(x)
        total += out.sum().item()
    return total


def evaluate_all(loader):
    net, total = Net().eval(), 0.0
    with torch.no_grad():
        for x in loader:
            total += net(x).sum().item()
    return total


def train(loader):
    net = Net()
    for x in loader:
        net(x).sum().backward()
    return net.fc.weight.grad.sum().item()


data = Data()
"""
RUN = """print(evaluate(DataLoader(data, batch_size=4, collate_fn=collate)))
print(train(DataLoader(data, batch_size=4, collate_fn=collate)))
"""
PROGRAM = HEAD + RUN
WHOLE, ENDS = ("print(evaluate(", "print(evaluate_all("), RUN.replace("print(evaluate(", "print(evaluate_all(")
UNBATCHED = (("collate_fn=collate", "batch_size=None"), ("batch_size=4, ", ""))
AFTER, ITEM = "total += out.sum().item()", "return torch.tensor(self.rows[i].tolist())"
KEEPS = f"if i not in self.made:\n            self.made[i] = {ITEM.removeprefix('return ')}\n        return self.made[i]"
INSIDE = "            total += net(x).sum().item()\n"
KEPT_LOADER = """class Kept(DataLoader):
    made = []

    def __iter__(self):
        if not self.made:
            self.made.extend(super().__iter__())
        return iter(self.made)"""

HARMLESS = {
    "as it is": (),
    "a loop": (WHOLE,),
    "a batch of samples as they are": (WHOLE, *UNBATCHED),
    "a helper that joins nothing": ((AFTER, "total += shown(out, 2).item()"),),
    "a number in the place of items": (
        ("return self.fc(x)", "h = self.fc(x) / 2\n        h[h < 0.1] = -float('0.5')\n        return h"),
    ),
    "a sample that is put into an array": (
        WHOLE,
        *UNBATCHED,
        (ITEM, "row = np.zeros(3)\n        row[-2:] = self.rows[i][1:]\n        return torch.tensor(row.tolist())"),
    ),
    "a method that handles file names": (
        ("import numpy as np", "import os\n\nimport numpy as np"),
        (
            "return self.fc(x)\n",
            "return self.fc(x)\n\n    def saved_as(self, path):\n        return os.path.splitext(path)[0]\n",
        ),
    ),
    "a text of it": ((AFTER, 'total += float("%f" % out.sum())'),),
}
"""What the fix may go on with: replacements in the program."""

OWN_LOADER = ("print(evaluate(DataLoader(data, batch_size=4, collate_fn=collate)))\n", "")
CONVERTED = """def shown_by(net, loader):
    for x in loader:
        print(net(x).sum().item())
        {}


net = Net()
with torch.no_grad():
    shown_by(net, DataLoader(data, batch_size=4, collate_fn=collate))
print(torch.autograd.grad(net(torch.ones(1, 3)).sum(), [net.fc.weight]))
"""

TRAPS = {
    **{
        f"a helper converts the network: {how}": (OWN_LOADER, ("print(train(", CONVERTED.format(how) + "print(train("))
        for how in ("net.half().float()", "net.double().float()", "net.fc = nn.Linear(3, 2)", "net.fc.double().float()")
    },
    "layer behind the region": ((AFTER, "total += nn.Linear(2, 2)(out).sum().item()"),),
    "layer behind the region, by a name": ((AFTER, "head = nn.Linear(2, 2); total += head(out[:2]).sum().item()"),),
    "parameter behind the region": ((AFTER, "total += (out * net.scale).sum().item()"),),
    "parameter and a part of it": ((AFTER, "first, *_ = out; total += net.scale.mul(first).sum().item()"),),
    "parameter in a list": (
        ("net, total = Net().eval(), 0.0\n    for", "net, total, kept = Net().eval(), 0.0, []\n    for"),
        (AFTER, "kept.append(out); total += F.mse_loss(net.scale.expand(4, 2), kept[0]).item()"),
    ),
    "parameter in the same list": ((AFTER, "kept = [out]; kept.append(net.scale); total += torch.mul(*kept).sum().item()"),),
    "parameter in a helper": (
        (AFTER, "total += shown(out, net).item()"),
        ("return x.sum() + 1", "return (x * net.scale).sum()"),
    ),
    "parameter in a helper, from elsewhere": (
        (AFTER, "total += shown(out, net).item()"),
        ("return x.sum() + 1", "return (x * other.scale).sum()"),
        ("data = Data()", "data, other = Data(), Net()"),
    ),
    "parameter of an object in a helper": (
        (AFTER, "total += shown(out, Held(net)).item()"),
        ("return x.sum() + 1", "return (x * net.scale).sum()"),
        ("data = Data()", "class Held:\n    def __init__(self, net): self.scale = net.scale\n\n\ndata = Data()"),
    ),
    "mask of a parameter": (("out = net(x)", "out = net(x) > 0"), (AFTER, "total += (net.scale * out).sum().item()")),
    "object that is made inside": (
        WHOLE,
        (ITEM, "return self.rows[i]"),
        (INSIDE, f"{INSIDE}        other = Data()\n    train(DataLoader(other, batch_size=None))\n"),
    ),
    "object that is made inside, by a helper of its constructor": (
        WHOLE,
        (ITEM, "return self.rows[i]"),
        ("self.rows, self.made = torch.rand(8, 3), {}", "self.made = {}"),
        ("self.scaled = [row * 2 for row in self.rows.tolist()]", "self.rows = torch.rand(8, 3)"),
        (INSIDE, f"{INSIDE}        other = Data()\n    train(DataLoader(other, batch_size=None))\n"),
    ),
    "dataset that keeps": (WHOLE, *UNBATCHED, (ITEM, KEEPS)),
    "dataset that keeps, handed on": (
        WHOLE,
        (ITEM, KEEPS),
        (
            ENDS,
            "def run(given):\n    print(evaluate_all(DataLoader(given, batch_size=None)))\n    print(train(given))\n\n\n"
            "run(data)\n",
        ),
    ),
    "dataset that keeps, in an unknown loader": (
        WHOLE,
        (ITEM, KEEPS),
        (ENDS, "for loader in [data]:\n    print(evaluate_all(loader))\n    print(train(loader))\n"),
        ("if i not in", "if i > 7:\n            raise IndexError\n        if i not in"),
    ),
    "dataset that keeps in a helper of its constructor": (
        WHOLE,
        *UNBATCHED,
        (ITEM, "self.prepare()\n        return self.scaled[i]"),
        (
            "self.scaled = [row * 2 for row in self.rows.tolist()]",
            "if not hasattr(self, 'wanted'):\n            self.wanted = True\n        elif not hasattr(self, 'scaled'):\n"
            "            self.scaled = [torch.tensor(row) for row in self.rows.tolist()]",
        ),
    ),
    "collate that keeps": (
        WHOLE,
        ("def collate(rows):\n", "kept = []\n\n\ndef collate(rows):\n    if kept:\n        return kept[0]\n"),
        ("return torch.stack(rows)", "kept.append(torch.stack(rows))\n    return kept[0]"),
    ),
    "collate that keeps, of an object": (
        WHOLE,
        ("def collate(rows):", "class Collate:\n    def __init__(self): self.kept = {}\n\n    def __call__(self, rows):"),
        ("return torch.stack(rows)", "    return self.kept.setdefault(0, torch.stack(rows))"),
        ("data = Data()", "data, collate = Data(), Collate()"),
    ),
    "loader that keeps": (
        WHOLE,
        ("data = Data()", f"{KEPT_LOADER}\n\n\ndata = Data()"),
        ("evaluate_all(DataLoader", "evaluate_all(Kept"),
        ("train(DataLoader", "train(Kept"),
    ),
}


def changed(replacements: tuple[tuple[str, str], ...]) -> dict[str, str]:
    code = PROGRAM
    for before, after in replacements:
        assert before in code, before
        code = code.replace(before, after)
    return {"main.py": code}


@pytest.mark.parametrize("name", HARMLESS)
def test_fixed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    files = changed(HARMLESS[name])
    assert "inference_mode" in safely_fixed(files)[0]["main.py"]
    assert changes(files)[0] == []


@pytest.mark.parametrize("assume", [(), ("ordinary",)], ids=str)
@pytest.mark.parametrize("name", TRAPS)
def test_left_alone(name: str, assume: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=assume))
    assert changes(changed(TRAPS[name]))[0] == []


@pytest.mark.parametrize("name", TRAPS)
def test_the_fix_would_be_wrong(name: str) -> None:
    files = changed(TRAPS[name])
    before, after = meaning.outcome(files), meaning.outcome({"main.py": files["main.py"].replace("no_grad", "inference_mode")})
    assert before.error is None
    assert before.differences(after)
