"""Evaluations and training steps whose meaning a fix once changed by what runs in them under another name, or is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed
from tests.test_meaning_traps import HEAD

EVALUATED = """
import collections
import functools
import itertools
import operator
import warnings
from types import SimpleNamespace
from typing import Callable, NamedTuple
import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, TensorDataset

KEPT = []


def keep(value):
    KEPT.append(value)
    return value * 1


{head}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.register_buffer("total", torch.zeros(2))
        {init}

    def forward(self, x):
        if not self.training:
            {forward}
        return self.head(x)


def evaluate(model, loader, ops=None):
    model.eval()
    correct = 0
    {region}
        for x, y in loader:
            out = model(x)
            {step}
            correct += (out.argmax(1) == y).sum().item()
    return correct


def quick(model, batches):
    {region}
        x, y = next(batches)
        return (model(x).argmax(1) == y).sum().item()


def steps(model, batches):
    model.train()
    for x, y in itertools.islice(batches, 3):
        loss = nn.functional.cross_entropy(model(x), y) * {factor}
        loss.backward()
    return loss.item()


model = Net()
loader = DataLoader(TensorDataset(torch.randn(4, 3), torch.tensor([0, 1, 1, 0])), batch_size=2)
batches = {batches}
print(evaluate(model, loader{given}), quick(model, batches))
print(model.total, KEPT, steps(model, batches))
"""


def evaluated(region: str, **parts: str) -> str:
    blank = dict.fromkeys(("init", "forward", "step"), "pass") | {"head": "", "factor": "1", "given": ""}
    return EVALUATED.format(region=region, **{**blank, "batches": "iter(loader)", **parts})


KEEPS = {
    "an operator that writes": {"forward": "operator.iadd(self.total, self.head(x).mean(0))"},
    "an operator that sets an item": {"forward": "operator.setitem(self.total, 0, self.head(x).mean())"},
    "an operator by its name": {"forward": "self.total.__iadd__(self.head(x).mean(0))"},
    "a buffer by a mask": {"forward": "self.total[self.total < 1] = self.head(x).mean()"},
    "a view of a buffer": {"forward": "self.total.view(-1)[0] = self.head(x).mean()"},
    "a buffer by its name": {"forward": "self.get_buffer('total').add_(self.head(x).mean(0))"},
    "a buffer made anew": {"forward": "self.register_buffer('total', self.head(x).mean(0))"},
    "a method of a type": {"step": "list.append(KEPT, out)"},
    "a method that `map` calls": {"step": "any(map(KEPT.append, [out]))"},
    "a method that an attribute holds": {"init": "self.keep = KEPT.append", "forward": "self.keep(self.head(x))"},
    "a field of a named tuple": {
        "head": "class Ops(NamedTuple):\n    abs: Callable",
        "step": "out = ops.abs(out)",
        "given": ", Ops(keep)",
    },
    "a field of a namespace": {"step": "out = ops.softmax(out)", "given": ", SimpleNamespace(softmax=keep)"},
    "a function in a class": {
        "head": "class Ops:\n    abs = staticmethod(keep)\n\n\nOPS = {'ops': Ops}",
        "step": "out = OPS['ops'].abs(out)",
    },
    "a generator": {
        "head": "def masks():\n    mask = torch.ones(2)\n    while True:\n        yield mask\n\n\nMASKS = masks()",
        "forward": "KEPT[:] = []; x = x * next(MASKS).sum()",
        "factor": "next(MASKS).sum() * model.head.weight.sum()",
    },
    "a dict that makes items": {
        "head": "MASKS = collections.defaultdict(lambda: torch.ones(2))",
        "forward": "x = x * MASKS[2].sum()",
        "factor": "(MASKS[2].sum() * model.head.weight.sum())",
    },
    "a descriptor": {
        "head": "class Mask:\n    def __get__(self, owner, cls):\n        KEPT[:] = KEPT or [torch.ones(2)]\n"
        "        return KEPT[0]\n\n\nclass Masks:\n    mask = Mask()",
        "forward": "x = x * Masks().mask.sum()",
        "factor": "(Masks().mask * model.head.weight.sum()).sum()",
    },
    "a distribution": {
        "head": "PRIOR = Categorical(probs=torch.ones(2) / 2)",
        "step": "entropy = PRIOR.entropy().item()",
        "factor": "(PRIOR.logits * model.head.weight.sum()).sum()",
    },
    "a cycle of batches": {"batches": "itertools.cycle(loader)"},
    "a text of a container": {
        "step": "print('{n}'.format_map({'n': [model.head.weight.mean()]}), collections.deque([model.head.weight.mean()]))"
    },
}


@pytest.mark.parametrize("region", ["with torch.no_grad():", "if True:"])
@pytest.mark.parametrize("name", KEEPS)
def test_evaluation(name: str, region: str) -> None:
    assert changes({"main.py": evaluated(region, **KEEPS[name])})[0] == []


@pytest.mark.parametrize("region", ["with torch.no_grad():", "if True:"])
def test_plain_evaluation_is_fixed(region: str) -> None:
    assert safely_fixed({"main.py": evaluated(region)})[1]


WARNS = "total = float(model.head.weight.sum())"
RECORDS_WARNINGS = (
    "warnings.simplefilter('error')",
    "warnings.filterwarnings(category=UserWarning, action='error')",
    "LEVEL = 'error'\nwarnings.simplefilter(LEVEL)",
    "from warnings import simplefilter as strict\nstrict('error')",
    "getattr(warnings, 'simplefilter')('error')",
    "warnings.filters.insert(0, ('error', None, UserWarning, None, 0))",
    "import warnings as w\nw.simplefilter('always')\nw.showwarning = lambda *given, **_: KEPT.append(str(given[0]))",
    "warnings.simplefilter('always')\nwarnings._showwarnmsg_impl = lambda given: KEPT.append(str(given.message))",
    "warnings.simplefilter('always')\nimport sys\nsys.stderr = sys.stdout",
)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("records", RECORDS_WARNINGS)
def test_warnings_about_graphs_are_kept_where_somebody_records_them(records: str, elsewhere: bool) -> None:
    head = "from strict import KEPT" if elsewhere else records
    files = {"main.py": evaluated("if True:", head=head, step=WARNS)}
    if elsewhere:
        files["strict.py"] = f"import warnings\n\nKEPT = []\n{records}\n"
    assert changes(files)[0] == []


@pytest.mark.parametrize(
    "head",
    [
        "",
        "warnings.simplefilter('ignore')",
        "warnings.filterwarnings('ignore', category=UserWarning)",
        "warnings.filterwarnings(action='default')",
        "with warnings.catch_warnings():\n    warnings.simplefilter('once')",
        "from warnings import catch_warnings, filterwarnings",
        "warnings.warn('training')",
    ],
)
def test_a_warning_that_nobody_records_is_advice(head: str) -> None:
    assert safely_fixed({"main.py": evaluated("if True:", head=head, step=WARNS)})[1]


TRAINED = """
import os
import signal
from typing import Callable, NamedTuple
import torch
from torch import nn

SEEN = []
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def watch(value=None, *_):
    SEEN.append([getattr(p, "gr" + "ad") is None for p in model.parameters()])
    return value


class Ops(NamedTuple):
    mean: Callable


class Fields:
    mean = staticmethod(watch)


signal.signal(signal.SIGUSR1, watch)


def train(ops):
    for _ in range(3):
        loss = model(torch.ones(2, 3)).sum()
        {between}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(Ops(watch))
print(SEEN)
"""
LOOKS = {
    "a field": "loss = ops.mean(loss)",
    "a function in a class": "loss = Fields.mean(loss)",
    "a signal": "os.kill(os.getpid(), signal.SIGUSR1)",
    "other parameters": "optimizer.param_groups[0]['params'] = list(model.parameters())[:1]",
}


@pytest.mark.parametrize("name", LOOKS)
def test_step(name: str) -> None:
    assert changes({"main.py": TRAINED.format(between=LOOKS[name])})[0] == []


def test_plain_step_is_fixed() -> None:
    assert safely_fixed({"main.py": TRAINED.format(between="loss = loss * 2")})[1]["zero-grad-late"]


RECURRENT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.rnn = nn.{layer}(4, 8, batch_first=True)

    def forward(self, x):
        {before}
        h = torch.zeros(1, x.size({dim}), 8)
        c = torch.zeros(1, x.size({dim}), 8)
        out, _ = self.rnn(x, {state})
        return out.sum()


model = Net()
{setup}
for x, in DataLoader(TensorDataset(torch.randn(8, 5, 4)), batch_size=4):
    {region}
        loss = model(x)
    loss.backward()
    print(loss.item())
"""
MIXED_REGION = 'with torch.autocast("cpu", dtype=torch.bfloat16):'
STATES = {
    "of another batch": {"dim": "1"},
    "for an input without batch": {"before": "x = x[0]"},
    "in a list": {"layer": "GRU", "state": "[h]"},
    "of another type than weights that follow a tensor": {
        "before": "x = x.to(self.rnn.weight_ih_l0)",
        "setup": "model.to(torch.from_numpy(torch.ones(1).numpy().astype('f8')))",
    },
    "of two parts": {"layer": "GRU"},
    "of another type": {"setup": "torch.set_default_dtype(torch.float64)"},
    "under autocast": {"before": "x = self.first(x)", "region": MIXED_REGION},
    "seen by a hook": {
        "setup": "model.rnn._forward_pre_hooks[0] = lambda rnn, given: (given[0] * 2,) if len(given) == 1 else None"
    },
}


def recurrent(**parts: str) -> str:
    plain = {"layer": "LSTM", "before": "pass", "dim": "0", "state": "(h, c)", "setup": "pass", "region": "if True:"}
    return RECURRENT.format(**{**plain, **parts})


@pytest.mark.parametrize("name", STATES)
def test_state(name: str) -> None:
    assert changes({"main.py": recurrent(**STATES[name])})[0] == []


HEIR = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 8, batch_first=True)

    def init_hidden(self, x):
        return torch.zeros(1, x.size(0), 8)

    def forward(self, x):
        h = self.init_hidden(x)
        out, _ = self.rnn(x, h)
        return out.sum()


def base():
    return Net


{heir}
    def init_hidden(self, x):
        return torch.ones(1, x.size(0), 8)


model = {model}
for x in torch.ones(2, 4, 5, 4):
    loss = model(x)
    loss.backward()
    print(loss.item())
"""


@pytest.mark.parametrize(
    ("heir", "model"),
    [
        ("Other = Net\n\n\nclass Heir(Other):", "Heir()"),
        ("class Heir(base()):", "Heir()"),
        ("KINDS = {'net': Net}\n\n\nclass Heir(KINDS['net']):", "Heir()"),
        ("import sys\n\nBase = sys.modules[__name__].Net\n\n\nclass Heir(Base):", "Heir()"),
        ("(Base,) = (Net,)\n\n\nclass Heir(Base):", "Heir()"),
        ("for Base in (Net,):\n    pass\n\n\nclass Heir(Base):", "Heir()"),
        ("Base: type = Net\n\n\nclass Heir(Base):", "Heir()"),
        ("class Held:\n    Base = Net\n\n\nclass Heir(Held.Base):", "Heir()"),
        ("NETS = [Net]\nBase = NETS[0]\n\n\nclass Heir(Base):", "Heir()"),
        ("def base():\n    return Net\n\n\nBase = base()\n\n\nclass Heir(Base):", "Heir()"),
        ("class Parts:", "type(Net)('Heir', (Parts, Net), {})()"),
        ("class Start:", "type('Heir', (Start, Net), {})()"),
        ("class Start:", "types.new_class('Heir', (Start, Net))()"),
    ],
)
def test_heirs_that_no_class_statement_shows(monkeypatch: pytest.MonkeyPatch, heir: str, model: str) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    assert changes({"main.py": "import types\n" + HEIR.format(heir=heir, model=model)})[0] == []


@pytest.mark.parametrize(
    "bases", ["from net import Net\n\nBase = Net\n", "from net import Net as Base\n", "import net\n\nBase = net.Net\n"]
)
def test_heirs_of_a_class_that_another_file_renames(monkeypatch: pytest.MonkeyPatch, bases: str) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    start, rest = HEIR.split("{heir}")
    method, loop = rest.split("model = {model}")
    heirs = "import torch\nfrom bases import Base\n\n\nclass Heir(Base):" + method
    main = "import torch\nfrom heirs import Heir\n\nmodel = Heir()" + loop
    assert changes({"main.py": main, "heirs.py": heirs, "bases.py": bases, "net.py": start})[0] == []


MIXED = """
import torch


def encode():
    with torch.cuda.amp.autocast():
        return torch.get_autocast_dtype("cuda")


with torch.autocast("cuda", dtype=torch.bfloat16):
    print(encode())
"""


def test_a_region_keeps_its_type_within_another() -> None:
    assert changes({"main.py": MIXED})[0] == []
    assert safely_fixed({"main.py": MIXED})[1]["deprecated-cuda-amp"]


REPLACED = """
import types

import torch
from torch import nn

FREED = []
cuda = types.ModuleType("torch.cuda")
cuda.empty_cache = lambda: FREED.append(1)
{replace}
model = nn.Linear(2, 2)
for x in torch.ones(3, 1, 2):
    model.zero_grad()
    loss = model(x).sum()
    loss.backward()
    torch.cuda.empty_cache()
print(len(FREED))
"""


@pytest.mark.parametrize("how", ["torch.cuda = cuda", "setattr(torch, 'cuda', cuda)"])
def test_a_package_of_torch_that_is_replaced(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    monkeypatch.setattr(torch, "cuda", torch.cuda)
    assert changes({"main.py": REPLACED.format(replace=how)})[0] == []
    assert safely_fixed({"main.py": REPLACED.format(replace="pass")})[1]["empty-cache-in-loop"]


CAUGHT = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 8, batch_first=True)

    def forward(self, x):
        h = torch.zeros(1, x.size(1), 8)
        out, _ = self.rnn(x, h)
        return out.sum()


def train(model):
    for x in torch.ones(2, 4, 5, 4):
        loss = model(x)
        loss.backward()
        print(loss.item())


model = Net()
try:
    train(model)
except RuntimeError as error:
    print(error)
"""


def test_an_error_of_a_forward_pass_that_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    assert changes({"main.py": CAUGHT})[0] == []


LEAF = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
batches = [(torch.randn(2, 3), torch.tensor([0, 1])) for _ in range(2)]


def evaluate():
    model.eval()
    right = 0
    for x, y in batches:
        right += (model(x).argmax(1) == y).sum().item()
        try:
            {write}
        except RuntimeError:
            print("a parameter")
    return right


print(evaluate(), model[0].bias.tolist())
"""


@pytest.mark.parametrize(
    "write",
    [
        "model[0].bias += 0.1",
        "next(iter(model)).bias += 0.1",
        "model[0].weight[0] *= 2",
        "[*model][0].bias -= 1",
        "named = dict(model.named_parameters())\n            named['0.bias'] += 1",
        "model[0].weight[0] = 0",
        "print(torch.from_dlpack(model(x)).sum().item())",
        "import pandas\n            print(pandas.DataFrame([{'mean': model(x).mean()}]))",
    ],
)
def test_what_a_graph_forbids_or_shows_in_a_table(write: str) -> None:
    assert changes({"main.py": LEAF.format(write=write)})[0] == []


TEACHER = """
import torch
from torch import nn


class Teacher(nn.Linear):
    def forward(self, x):
        with getattr(torch, "enable" + "_grad")():
            return super().forward(x)


teacher, student = Teacher(4, 3), nn.Linear(4, 3)
for x in torch.ones(2, 2, 4):
    with torch.inference_mode():
        target = teacher(x)
    loss = ((student(x) - target) ** 2).mean()
    loss.backward()
print(teacher.weight.grad)
"""


def test_autograd_that_a_computed_name_switches_on() -> None:
    assert changes({"main.py": TEACHER})[0] == []


INFERRED = """
import torch
from torch import nn


def evaluate(model, rows):
    model.eval()
    total = 0.0
    for x in rows:
        {0}
    return total


with torch.inference_mode():
    rows = [row * 2 for row in torch.ones(2, 3, 4)]
try:
    print(evaluate(nn.Linear(4, 3), rows))
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "step",
    [
        "total += model(x).sum().item()",
        "with torch.no_grad():\n            x.mul_(2)\n            total += model(x).sum().item()",
        "with torch.no_grad():\n            with torch.inference_mode():\n                y = model(x)\n            y.mul_(2)",
    ],
)
def test_errors_of_inference_tensors_are_kept(step: str) -> None:
    assert changes({"main.py": INFERRED.replace("{0}", step)})[0] == []


TWICE = """
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(3))
        self.begin()

    def begin(self):
        pass

    def forward(self, x):
        return self.head(x * (next(self.source) * self.scale))

    def begin(self):
        self.source = shifts()


def shifts():
    shift = torch.ones(3)
    while True:
        yield shift


def evaluate(model):
    model.eval()
    with torch.no_grad():
        for x in inputs.split(2):
            print(model(x).argmax(1).tolist())


model = Twice()
evaluate(model)
model.train()
for x in inputs.split(2):
    model(x).sum().backward()
print(model.scale.grad)
"""


def test_the_last_definition_of_a_method_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    assert changes({"main.py": HEAD + TWICE})[0] == []


REBOUND = """
import torch
from torch import nn

KEPT, inputs = [], torch.randn(6, 3)


def kept(value):
    KEPT.append(value)
    return value


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(x)

    inner = forward
    {again}


def evaluate(model):
    model.eval()
    with torch.no_grad():
        for x in inputs.split(2):
            print(model(x).argmax(1).tolist())


model = Net()
{hook}
evaluate(model)
for out in KEPT[:3]:
    (out * model.head.bias).sum().backward()
print(model.head.bias.grad)
"""


@pytest.mark.parametrize(
    "rebound",
    [
        "forward = lambda self, x: kept(self.inner(x))",
        "forward: object = lambda self, x: kept(self.inner(x))",
        "for forward in [lambda self, x: kept(self.inner(x))]:\n        pass",
        "(forward := lambda self, x: kept(self.inner(x)))",
    ],
)
@pytest.mark.parametrize("assume", [(), ("ordinary",)])
def test_a_method_may_be_bound_again_in_its_class(
    rebound: str, assume: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=assume))
    assert changes({"main.py": REBOUND.format(again=rebound, hook="")})[0] == []


def test_a_hook_may_be_registered_by_a_name_that_is_made() -> None:
    hook = "getattr(model.head, 'register_' + 'forward_hook')(lambda module, given, out: kept(out))"
    assert changes({"main.py": REBOUND.format(again="", hook=hook)})[0] == []


ROUNDED = """
import functools
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(9, 16), nn.Linear(16, 16)

    def forward(self, x):
        out = self.second(torch.relu(self.first(x)))
        {inside}
        return out


def evaluate(model, batches):
    model.eval()
    total = 0.0
    for x in batches:
        out = model(x)
        {step}
        total += out.sum().item()
    return total


print(evaluate(Net(), [torch.randn(7, 13, 9) for _ in range(8)]))
"""
OTHERWISE = (
    "out = out[0].norm('nuc')",
    "out = out[0].norm(p='nuc')",
    "out = torch.norm(out[0], 'nuc')",
    "out = torch.norm(out[0], **{'p': 'nuc'})",
    "out = torch.norm(*(out[0], 'nuc'))",
    "out = functools.partial(torch.norm, p='nuc')(out[0])",
    "out = list(map(torch.norm, [out[0]], ['nuc']))[0]",
    "out = out.transpose(1, 2).matmul(out[0, :, :1].softmax(0))",
    "out = out.mean(0)[:, 0].matmul(out)",
    "out = out.mean(0)[:, 0].__matmul__(out)",
)


@pytest.mark.parametrize("place", ["inside", "step"])
@pytest.mark.parametrize("way", OTHERWISE)
@pytest.mark.parametrize("assume", [(), ("ordinary",)])
def test_what_torch_computes_otherwise_without_a_graph(
    way: str, place: str, assume: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=assume))
    program = {"main.py": ROUNDED.format(**{"inside": "pass", "step": "pass", place: way})}
    assert "eval-without-no-grad" not in safely_fixed(program)[1]


@pytest.mark.parametrize("place", ["inside", "step"])
@pytest.mark.parametrize(
    "way", ["out = out.norm()", "out = out.norm(2, dim=-1)", "out = torch.norm(out, p='fro')", "out = torch.norm(out, 1)"]
)
def test_norms_that_were_measured(way: str, place: str) -> None:
    program = {"main.py": ROUNDED.format(**{"inside": "pass", "step": "pass", place: way})}
    assert safely_fixed(program)[1]["eval-without-no-grad"]
    assert changes(program)[0] == []
