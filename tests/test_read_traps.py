"""Programs whose meaning a fix of a read, a copy or a constant once changed: who takes the code, and who sees its text."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed
from tests.test_meaning_traps import HEAD, trained

RUN = "print(main(F.mse_loss))"
RUN_UNKNOWN = 'print(main(getattr(F, "mse_" + "loss")))'
TAKEN = """import functools
from typing import List


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.w = nn.Linear(3, 2), [0.5, 1.5]
        self.w: List[float]

    def forward(self, x):
        out = self.layer(x)
        {body}


def train(net, batches):
    for x in batches:
        loss = net(x.to(device)).mean()
        loss.backward()
        print(loss)


torch.manual_seed(0)
train({taken}, torch.ones(6, 3).split(2))
"""
BODIES = {
    "a list becomes a tensor": "return out * torch.tensor(self.w, device=x.device)",
    "elements in a loop": (
        "row = out[0]\n        kept: List[float] = []\n        for i in range(row.size(0)):\n"
        "            kept.append(row[i].item())\n        return out * kept[0]"
    ),
    "elements in a list": "kept = [float(v) for v in out[0]]\n        return out * kept[0]",
}
TAKERS = {
    "scripted": "torch.jit.script(Net().to(device))",
    "compiled whole": "torch.compile(Net().to(device), backend='eager', fullgraph=True)",
}
REPLACED = {
    "items of its dict": "torch.__dict__.update(zeros=loud)",
    "vars": "vars(torch).update(zeros=loud)",
    "a method of the module": "torch.__setattr__('ze' + 'ros', loud)",
    "the method of objects": "type(torch).__setattr__(torch, 'zeros', loud)",
    "a function of another package": "functools.reduce(lambda m, f: setattr(m, f.__name__, f) or m, [loud], torch)",
}
LOUD = """import functools

plain = torch.zeros


def loud(*sizes, **how):
    print(sizes, how)
    return plain(*sizes, **how)


loud.__name__ = "zeros"
{}


"""
SHOWN = {
    "a number in a set": 'print(f"{ {1: loss.item()} =}", loss.item())',
    "a number over two lines": "print(f'''{loss.item()\n=}''', loss.item())",
    "a list": 'print(f"{ {1: [v.item() for v in y[0].to(device)]}=}")',
    "a factory": 'print(f"{ {1: torch.zeros(1).to(device)}=}")',
    "a constant": 'print(f"{ {1: torch.tensor(0.5, device=device)}=}")',
    "Python data": 'print(f"{torch.tensor([len(x), 1], device=device)=}")',
    "an old name": 'print(f"{ {1: torch.ger(x[0], x[0])}=}")',
}
REGIONS = {
    "type": "with torch.autocast('cuda', dtype=torch.bfloat16):",
    "type of a function": "with region():",
    "cache": "with torch.autocast('cpu', cache_enabled=False):",
}
NESTED = """def region():
    return torch.autocast("cuda", dtype=torch.bfloat16)


{}
    with torch.cuda.amp.autocast():
        print(torch.get_autocast_dtype("cuda"), torch.is_autocast_cache_enabled())
"""
TRAPS = {
    **{f"an f-string shows {what}": trained(RUN, in_step="pass", add=SHOWN[what]) for what in SHOWN},
    **{f"mixed precision in a region of another {what}": HEAD + NESTED.format(REGIONS[what]) for what in REGIONS},
}

METER = """class Meter:
    def __init__(self):
        self.sum = 0.0

    def update(self, value):
        self.sum += value * self.scale


Meter.scale = 1.0
"""
NAMED = {
    "a total": ("0", "total += loss.item()", "len(frame.query('a > @total'))"),
    "a total, by pandas itself": ("0", "total += loss.item()", "pandas.eval('total + 1')"),
    "a list": ("[]", "total.append(loss.item())", "len(frame.query('a not in @total'))"),
    "a number": ("0", "total = (loss.detach() > 0).sum().item() / len(x)", "frame.eval('a * @total').sum()"),
}
TRAPS_WITH_RUNTIME = {
    "an integer divided by one": trained(RUN, start="0", add="total += (loss > 0).sum().item() / len(x)").replace(
        "batch_size=2", "batch_size=1"
    ),
    "more numbers than there are letters": trained(
        RUN,
        start="[]",
        in_step="out = model(x.to(device))",
        add=f"total.append({' + '.join(f'out[0, {i % 2}].item() * {i}' for i in range(30))})\n        out.data.zero_()",
    ),
    "a meter whose class changes": trained(
        RUN, start="Meter()", add="total.update(loss.item())\n        Meter.scale = Meter.scale / 2", head=METER
    ).replace("return total", "return total.sum"),
    **{
        f"a text names {what}": trained(RUN_UNKNOWN, start=start, add=add, head="import pandas\n\n")
        .replace("loss.backward()", "")
        .replace('print("trained")', f"frame = pandas.DataFrame({{'a': [0.1, 5.0]}})\n    print(total, {look})")
        for what, (start, add, look) in NAMED.items()
    },
}


@pytest.mark.parametrize("name", TRAPS)
def test_trap(name: str) -> None:
    assert changes({"main.py": TRAPS[name]})[0] == []


@pytest.mark.parametrize("name", [*TRAPS, *TRAPS_WITH_RUNTIME])
def test_trap_with_runtime(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",), runtime=True))
    assert changes({"main.py": {**TRAPS, **TRAPS_WITH_RUNTIME}[name]})[0] == []


NAN = 'print(main(lambda out, y: F.mse_loss(out, y) * float("nan")))'
LOOKED_UP = {
    "a list of those before": "total.append(loss.item())\n        print(loss.item() in total)",
    "two lists": "total.append(loss.item())\n        other = [loss.item()]\n        print(other == total[-1:])",
    "a dict": "total.append({loss.item(): 1})\n        print(total[-1].get(loss.item()))",
    "itself": "print(loss.item() is loss.item())",
    "the smallest": "total.append(min(loss.item(), 9))\n        print(total.count(max(loss.item(), 0)))",
    "by way of names": "a = loss.item()\n        b = loss.item()\n        print(a != a, [a] == [b])",
}
"""Where two reads of a nan are two objects, a list or a dict finds none; where one read serves both, it does."""


@pytest.mark.parametrize("name", LOOKED_UP)
def test_numbers_that_are_looked_up(name: str) -> None:
    assert changes({"main.py": trained(NAN, start="[]", add=LOOKED_UP[name])})[0] == []


OWN_LOGGER = """class Logger(list):
    def add_scalar(self, name, value):
        self.append(value)

    def info(self, value):
        print(value in self)


LOG = Logger()
"""


def test_a_logger_of_the_program_may_keep_numbers() -> None:
    add = "LOG.add_scalar('loss', loss.item())\n        LOG.info(loss.item())"
    assert changes({"main.py": trained(NAN, add=add, head=OWN_LOGGER)})[0] == []


ONE_KEPT = {
    "shown": "total.append(loss.item())\n        print(f'{loss.item():.3f}', loss.item())",
    "added": "total.append(loss.item())\n        {}.get(0, -loss.item() * 2)",
    "logged": "total.append(loss.item())\n        logging.info('%s', loss.item())",
    "compared": "total.append(loss.item())\n        if loss.item() > 1e9:\n            break",
    "formatted": "total.append(loss.item())\n        print('%s %s' % (len(x), loss.item()), '{}'.format(float(loss.item())))",
}


@pytest.mark.parametrize("name", ONE_KEPT)
def test_numbers_of_which_one_is_kept_are_read_once(name: str) -> None:
    assert (
        "loss_value = loss.item()"
        in safely_fixed({"main.py": trained(RUN, start="[]", add=ONE_KEPT[name], head="import logging\n")})[0]["main.py"]
    )


LEFT = {
    **{
        f"{body}: {taker}": (HEAD + TAKEN.format(body=code, taken=taken), code)
        for body, code in BODIES.items()
        for taker, taken in TAKERS.items()
    },
    **{
        f"torch.zeros is replaced by {how}": (
            trained(RUN, in_step="print(torch.zeros(len(x)).to(device))", head=LOUD.format(code)),
            "torch.zeros(len(x)).to(device)",
        )
        for how, code in REPLACED.items()
    },
}
"""Programs that change what runs in this process, or that torch reads from their files."""


@pytest.mark.parametrize("name", LEFT)
def test_code_is_left_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, code = LEFT[name]
    for runtime in (False, True):
        monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, runtime=runtime))
        fixed = safely_fixed({"main.py": program})[0]["main.py"].replace("moved_copy(torch.zeros(len(x)), device)", code)
        assert code in fixed


OBJECT = """import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LOSSES = {{}}


class Loss:
    def __init__(self, loss):
        self.loss = loss

    def {}


def register(name):
    def add(made):
        LOSSES[name] = made
        return made

    return add


@register("mse")
class Made:
    def __call__(self, out):
        return Loss(out.pow(2).mean())


def train(model, loader):
    total = 0.0
    for x in loader:
        loss = LOSSES["mse"]()(model(x.to(device)))
        loss.backward()
        total += loss.item()
    return total
"""


@pytest.mark.parametrize(
    "own", ["backward(self): self.loss.backward()", "__getattr__(self, name): return getattr(self.loss, name)"]
)
def test_a_loss_with_a_backward_of_its_own_may_be_no_tensor(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    assert "total += loss.item()" in safely_fixed({"main.py": OBJECT.format(own)})[0]["main.py"]


@pytest.mark.parametrize(("line", "is_fixed"), [("# torch.jit.script(train)", True), ("torch.jit.script(train)", False)])
def test_code_that_scripts_is_told_from_comments(line: str, is_fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, runtime=True))
    code = f"import torch\n{line}\n\n\ndef train(net, x, device):\n    for row in x:\n        net(row.to(device)).backward()\n"
    assert ("moved_copy(" in safely_fixed({"main.py": code})[0]["main.py"]) == is_fixed


PINNED = {
    "pass": False,
    "buffer = torch.empty(\n            2,\n            3,\n            pin_memory=True,\n        )": True,
    "torch.arange(3, pin_memory=True)": True,
    "x.pin_memory()": True,
    "[*map(torch.Tensor.pin_memory, [x])]": True,
    "getattr(x, 'pin_memory')()": True,
    "getattr(device, 'pin_memory', True)": False,
    "DataLoader(x, pin_memory=True)": False,
}


@pytest.mark.parametrize("code", PINNED)
def test_a_program_that_pins_memory_by_hand_keeps_the_waits_of_its_copies(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, runtime=True))
    program = trained(RUN, in_step=code).replace('"cuda" if torch.cuda.is_available() else "cpu"', "input()")
    program = program.replace("batch_size=2", "batch_size=2, collate_fn=gathered")
    assert ("moved" in safely_fixed({"main.py": program})[0]["main.py"]) is not PINNED[code]


WITH_NAMES = """
class Keeper:
    def __init__(self):
        self.last = None

    def keep(self, tensor):
        self.last = tensor
        return tensor

    def spoil(self):
        self.last.add_(1)
        return 0


def main(model, loader, keeper):
    found = []
    kept = {{}}
    seen = 0
    for x, y in loader:
        raw = model(x.to(device))
        raw.sum().backward()
        out = raw.detach()
        {copied}
        {between}
        {taken}
        {behind}
    return found, kept, seen


torch.manual_seed(0)
found, kept, seen = main(nn.Linear(3, 2).to(device), DataLoader(TensorDataset(inputs, targets), batch_size=2), Keeper())
print([type(a) for a in found], [a.tolist() for a in found], kept, seen)
"""
"""A copy that has a name until a list takes it, and numbers that a dict takes."""
NAMED_COPIES = {
    "at once": ("copy = out.cpu().numpy()", "pass", "found.append(copy)", "pass"),
    "behind a line": ("copy = out.sum(0).cpu()", 'print("a batch")', "found.append(copy)", "pass"),
    "written to": ("copy = out.clone().cpu()", "out.mul_(2)", "found.append(copy)", "pass"),
    "a view is written to": ("copy = (out * 1)[None].cpu()", "y = y.mul_(2)", "found.append(copy)", "pass"),
    "written by its owner": ("copy = keeper.keep(out.sum(0)).cpu()", "seen += keeper.spoil()", "found.append(copy)", "pass"),
    "taken twice": ("copy = out.cpu()", "found.append(copy)", "found.append(copy)", "copy += 1"),
    "looked at": ("copy = out.cpu()", "pass", "found.append(copy)", "seen = copy.sum()"),
    "another list": ("copy = out.cpu().tolist()", "pass", "found.append(torch.tensor(copy))", "pass"),
    "under a guard": ("copy = out.cpu()", "pass", "if seen % 2: found.append(copy)", "seen += 1"),
    "bound again": ("copy = out.cpu()", "if seen: copy = out.cpu() + 1", "found.append(copy)", "seen += 1"),
    "entries": ('kept["a"] = out.sum().item()', "pass", 'kept["b"] = torch.max(out).item()', "pass"),
    "an entry of an entry": ('kept["a"] = out.sum().item()', "pass", 'kept["b"] = (out.max() + kept["a"]).item()', "pass"),
    "the dict by another name": (
        "same, kept['t'] = kept, out.sum()\n        kept['a'] = out.sum().item()",
        "kept['t'] = 0.0",
        'kept["b"] = torch.add(out.max(), same["t"]).item()',
        "pass",
    ),
    "drawn": (
        'kept["a"] = out.sum().item()',
        "w = torch.rand(1)",
        'kept["b"] = torch.bernoulli(out.sigmoid()).sum().item()',
        "pass",
    ),
}


@pytest.mark.parametrize("name", NAMED_COPIES)
def test_copies_with_a_name_and_entries(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",), runtime=True))
    copied, between, taken, behind = NAMED_COPIES[name]
    code = HEAD + WITH_NAMES.format(copied=copied, between=between, taken=taken, behind=behind)
    assert changes({"main.py": code})[0] == []
    if name in ("at once", "behind a line"):
        assert "found = HostList()" in safely_fixed({"main.py": code})[0]["main.py"]
