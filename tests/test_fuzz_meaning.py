"""Safe fixes do not change what programs compute: random programs, and the smallest forms of those that once changed.

The long run by hand is fuzz/meaning.py.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning
from fuzz.meaning import FixedProgram, changes, outcome, safely_fixed, smallest
from fuzz.training_programs import program
from perflint.rule.obligations import Kind

SECONDS = float(os.environ.get("PERFLINT_FUZZ_SECONDS", "0"))
"""How long random programs run after those of the fixed seeds. By default not at all: a run of the tests does not depend on
luck, and fuzz/meaning.py looks for more."""

HEAD = """
import functools
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
inputs, targets = torch.randn(6, 3), torch.randn(6, 2)
KEPT = []


class Halves:
    def __add__(self, tensor):
        tensor.data.mul_(0.5)
        return self

    def __getitem__(self, tensor):
        return self + (tensor.start if isinstance(tensor, slice) else tensor)

    __radd__ = __iadd__ = __eq__ = __delitem__ = __add__


def kept(value):
    KEPT.append(value)
    return value


def show_gradient(layer):
    print(layer.weight.grad is None)


"""

READ_TWICE = """
def train(model, loader, optimizer):
    meter = Halves()
    for x, y in loader:
        loss = F.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
        {}
        print(loss.item())


model = nn.Linear(3, 2).to(device)
train(model, DataLoader(TensorDataset(inputs, targets), batch_size=2), torch.optim.SGD(model.parameters(), lr=0.1))
"""

WRITES = {
    "bound method": "write = loss.detach().mul_; write(2)",
    "bound method in a partial": "functools.partial(loss.data.mul_, 2)()",
    "element of a comprehension": "[loss for _ in range(1)][0].data.mul_(2)",
    "value of a dict comprehension": "{0: loss for _ in range(1)}[0].data.mul_(2)",
    "generator expression": "next(loss for _ in range(1)).data.mul_(2)",
    "operator of a class, in place": "meter += loss",
    "operator of a class": "meter + loss",
    "reflected operator of a class": "loss + meter",
    "key of a builtin function": "max([loss, loss], key=lambda tensor: tensor.data.mul_(2))",
    "operator that a builtin function runs": "sum([loss], meter)",
    "comparison of a class": "meter == loss",
    "item of a class": "meter[loss]",
    "part of a class": "meter[loss:]",
    "item of a class that goes": "del meter[loss]",
    "unary plus": "(+loss.detach()).mul_(2)",
    "requires_grad_ gives its receiver": "loss.detach().requires_grad_(False).mul_(2)",
    "from_numpy": "torch.from_numpy(loss.detach().numpy()).zero_()",
    "dlpack": "torch.from_dlpack(loss.detach()).zero_()",
    "layer that hands on its input": "nn.Identity()(loss.detach()).mul_(2)",
    "dropout in evaluation": "nn.Dropout(0.5).eval()(loss.detach()).mul_(2)",
    "parameter of the same memory": "nn.Parameter(loss.detach()).data.mul_(2)",
    "broadcast_tensors": "torch.broadcast_tensors(loss.detach(), loss.detach())[0].mul_(2)",
    "meshgrid": "torch.meshgrid(loss.detach().view(1), indexing='ij')[0].mul_(2)",
    "starred unpacking": "(*parts,) = (loss,); parts[0].data.mul_(2)",
    "maximum of a builtin function": "max(loss, loss).data.mul_(2)",
    "legacy constructor": "torch.FloatTensor(loss.detach().view(1)).mul_(2)",
    "tensor that is set to another one": "torch.empty(()).set_(loss.detach()).mul_(2)",
    "tensors that are swapped": "torch.utils.swap_tensors(loss, torch.tensor(3.0))",
    "default_convert": "torch.utils.data.default_convert(loss.detach()).mul_(2)",
    "functional_call": "torch.func.functional_call(nn.Identity(), {}, (loss.detach(),)).mul_(2)",
    "fork": "torch.jit.wait(torch.jit.fork(lambda tensor: tensor.mul_(2), loss.detach()))",
    "embedding with a largest norm": "F.embedding(torch.tensor([0]), loss.detach().view(1, 1), max_norm=0.01)",
    "running mean": "F.batch_norm(torch.randn(4, 1), loss.detach().view(1), torch.ones(1), training=True)",
    "optimizer of a parameter": "torch.optim.SGD([loss.detach()], lr=0.1).param_groups[0]['params'][0].mul_(2)",
    "in place by a dict": "nn.SiLU(**{'inplace': True})(loss.detach())",
    "einsum": "torch.einsum('i->i', loss.detach().view(1)).mul_(2)",
}
"""Ways to write to a tensor between two reads of it that the analysis once missed."""

STEP = """
def train(model, loader, optimizer):
    for x, y in loader:
        out = model(x)
        {}
        loss = F.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


model = nn.Linear(3, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{}
"""

EVALUATE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        {}
        return self.layer(x)


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        total += F.mse_loss(model(x), y).item()
    return total


model = Net().to(device)
print(evaluate(model, DataLoader(TensorDataset(inputs, targets), batch_size=2)))
for value in KEPT:
    value.sum().backward()
"""

EVALUATING = """
def evaluate(model, report):
    total = 0
    for x in inputs.split(2):
        out = model(x)
        {}
        total += out.sum().item()
    return total


model = nn.Linear(3, 2).to(device)
try:
    print(evaluate(model, print))
except (AssertionError, ValueError) as error:
    print(error)
"""

CALL = "train(model, DataLoader(TensorDataset(inputs, targets), batch_size=2), optimizer)"

GRADIENTS_SEEN = """class Watch:
    def __init__(self):
        self.on = True

    @property
    def value(self):
        return len(self)

    def __len__(self):
        print([p.grad is not None and p.grad.abs().sum().item() > 0 for p in net.parameters()])
        return 1

    def __setitem__(self, key, value):
        len(self)

    def __getattr__(self, name):
        return len(self)

    def __exit__(self, *error):
        len(self)

    __enter__ = __neg__ = __iter__ = __getitem__ = __eq__ = __len__


net = nn.Linear(3, 2)
watch = Watch()


def train(model, optimizer):
    for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
        out = model(x)
        {}
        loss = F.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


train(net, torch.optim.SGD(net.parameters(), lr=0.1))
"""
SEEING = [
    "watch.value", "len(watch)", "watch[0]", "watch[0] = 1", "watch.unknown", "-watch", "watch == 1", "assert watch",
    "with watch: pass", "eval('len(watch)')", "getattr(watch, 'value')", "list(map(lambda _: len(watch), [1]))",
    "functools.reduce(lambda a, b: len(watch), [1, 2])", "class Inner:\n            size = len(watch)",
]  # fmt: skip
FORCES = """class Forces(nn.Module):
    def forward(self, x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((x * x).sum(), x)[0]


class Physics:
    def __init__(self):
        self.norm = Forces()

    @property
    def strength(self):
        return norm_of(inputs)


def norm_of(x):
    return Forces()(x).sum()


def built():
    return Forces()


def evaluate(model):
    model.eval()
    physics = Physics()
    total = 0.0
    for x in inputs.split(2):
        total += {}.sum().item()
        total += model(x).sum().item()
    return total


print(evaluate(nn.Linear(3, 2)))
"""
ELEMENTS = """def show(x):
    x = x.to(device)
    flat = {made}
    return [{read} for v in flat]


try:
    print(show(inputs))
except RuntimeError as error:
    print(error)
"""
KEEPS = """class Forces(nn.Module):
    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad((x * x).sum(), x)[0]


class Store:
    @property
    def strength(self):
        return Forces()(inputs)

    @property
    def last(self):
        KEPT.append(inputs * 2)
        return KEPT[-1]

    def __getitem__(self, i):
        KEPT.append(inputs[i] * 2)
        return KEPT[-1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


store, net = Store(), Net()


def evaluate(model: Net, out):
    global KEPT
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
            total += F.mse_loss(model(x), y).item()
            {}
    return total


print(evaluate(net, KEPT))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    loss = F.mse_loss(net(inputs), targets)
    if KEPT:
        loss = loss + (torch.ones(3, requires_grad=True) * KEPT[0]).sum() * net.fc.weight.sum()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
KEEPING = [
    "total += store.strength.sum().item()", "total += store.last.sum().item()", "store[0]", "list(map(kept, [x * 2]))",
    "KEPT += [x * 2]", "out += [x * 2]", "sorted([x * 2], key=kept)", "print(torch.is_inference_mode_enabled())",
    "print((x * 2)._version)", "model.half(); model.float()", "model = model.half().float()", "model.to(torch.float64).float()",
    "torch.nn.utils.vector_to_parameters(torch.ones(8), model.parameters())",
]  # fmt: skip
TOTAL = """{}


def train(model, loader):
    total = 0
    for x, y in loader:
        out, y = model(x.to(device)), y.to(device)
        {}
    return total


model = nn.Linear(3, 2).to(device)
try:
    print(train(model, DataLoader(TensorDataset(inputs, targets), batch_size=2)))
except (RuntimeError, ValueError) as error:
    print(error)
"""
LOSSES = [
    "F.mse_loss(out, y, reduce=False)", "F.mse_loss(out, y, None, None, 'none')", "F.mse_loss(out, y, **{'reduction': 'none'})",
    "nn.MSELoss(None, False)(out, y)", "nn.HuberLoss('none')(out, y)", "nn.MSELoss(**{'reduction': 'none'})(out, y)",
    "out.max(other=y)",
]  # fmt: skip
"""Losses of several numbers: `item` raises for them in its own words."""
STATE = """{}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.lstm = nn.Linear(3, 3), nn.LSTMCell(3, 4), nn.LSTM(3, 4)

    def forward(self, x):
        x = self.embed(x)
        {}
        return out


def train(model):
    for x in torch.randn(5, 3).split(2):
        out = model(x)
        out.sum().backward()
        print(out)


try:
    {}
except RuntimeError as error:
    print(error)
"""
CELL = "h, c = torch.zeros(len(x), 4), torch.zeros(len(x), 4{})\n        out, _ = self.cell(x, (h, c))"
LAYER = "h, c = torch.zeros(1, {0}, 4), torch.zeros(1, {0}, 4)\n        out, _ = self.lstm(x[None], (h, c))"
OTHER_LAYER = """class Other(nn.Module):
    def forward(self, x, state=None):
        print(state is None)
        return x, state
"""
NOISY = """class Noisy:
    def __format__(self, spec):
        return str(len(self))

    def __bool__(self):
        return len(self) > 0

    def __iter__(self):
        return iter((len(self), 1))

    def __len__(self):
        print("looked at")
        return 1


noisy = Noisy()


def batch(x):
    return [size for size in noisy and x.shape][0]


def first(x):
    for size in noisy:
        return len(x)
"""
SIZES = [
    "int(f'{noisy}') * len(x)",
    "len(x) if noisy else 0",
    "[*noisy, len(x)][2]",
    "batch(x)",
    "first(x)",
    "(noisy and len(x))",
]
"""Sizes of a state that run code of the project without calling it."""
SURGERY = [
    "for name in ['lstm']: setattr(net, name, Other())", "net._modules['lstm'] = Other()", "net.add_module('lstm', Other())",
    "net.lstm.forward = Other().forward",
]  # fmt: skip
SAMPLES = [
    "    to = lambda self, device: self['x']", "    def to(this, device):\n        return this['x']",
    "    def __getattr__(self, name):\n        return lambda device: self['x']",
]  # fmt: skip
ASKS = [
    "physics.norm(x)",
    "norm_of(x)",
    "built()(x)",
    "physics.strength",
    "list(map(norm_of, [x]))[0]",
    "(lambda v: norm_of(v))(x)",
]


def within_evaluation(code: str) -> str:
    """A program that evaluates a network while torch runs some code within its forward pass."""
    head, made, tail = (FORWARD_HELP + EVALUATE.replace("{}", "pass")).partition("model = Net().to(device)\n")
    return f"{head}{made}{code}\n{tail}del model\n"  # the numbers of its hooks differ from run to run


RUNS_WITHIN = {
    "method in the place of a network's": "plain = model.forward\nmodel.forward = lambda x: kept(plain(x))",
    "method that is set by its name": "plain = model.forward\nsetattr(model, 'forward', lambda x: kept(plain(x)))",
    "hooks of another file": "import watching\nwatching.watch(model, kept)",
    "hooks for saved tensors": "torch.autograd.graph.saved_tensors_hooks(kept, kept).__enter__()",
    "parametrization": "nn.utils.parametrize.register_parametrization(model.layer, 'bias', Kept())",
}
"""Code that torch runs within a forward pass: `model` is at hand, `kept` keeps what it gets."""
OTHER_FILES = {
    "watching.py": "def watch(model, kept):\n    model.register_forward_hook(lambda layer, given, result: kept(result))\n"
}
IN_FORWARD = [
    "seen = KEPT; seen += [self.layer(x)]", "seen = KEPT; seen[:] = [self.layer(x)]", "keep = KEPT.append; keep(self.layer(x))",
    "remembered(self.layer(x))", "Function.apply(self.layer(x))", "targets[0].copy_(self.layer(x)[0])",
    "row = targets[0]; row += self.layer(x)[0]", "torch._foreach_add_([targets[0]], [self.layer(x)[0]])",
    "self.layer.weight.mul_(2)", "a, b = self.layer(x).unbind(1); a.mul_(2)",
    "torch.add(self.layer(x), 1, out=torch.empty(2, 2))", "self.layer(x).numpy()", "numpy.asarray(self.layer(x))",
    "copy.deepcopy(self.layer(x))", "print([self.layer(x).sum()])", "print('%s' % self.layer(x).sum())",
    "print(f'{self.layer(x).sum()!r}')", "print(f'{self.layer(x).sum()=}')", "print(*map(str, self.layer(x)))",
    "print(format(self.layer(x)))", "print('{}'.format([self.layer(x).sum()]))",
]  # fmt: skip
FORWARD_HELP = """import copy
import numpy


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print(ctx.needs_input_grad)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Kept(nn.Module):
    def forward(self, weight):
        return kept(weight * 1)


def remembered(value, values=KEPT):
    values.append(value)


"""
BATCHES = {
    "dataset": "DataLoader(Samples(), batch_size=2)",
    "function that collates": "DataLoader(TensorDataset(inputs, targets), batch_size=2, collate_fn=collated)",
    "generator": "generated()",
    "generator expression": "(attacked(pair) for pair in zip(inputs.split(2), targets.split(2)))",
    "map": "map(attacked, zip(inputs.split(2), targets.split(2)))",
    "map that is counted": "(pair for _, pair in enumerate(map(attacked, zip(inputs.split(2), targets.split(2)))))",
}
"""Ways to run code by iterating; `attacked` asks for gradients."""
ITERATED = """def attacked(pair):
    print(net.weight.grad is None)
    x = pair[0].clone().requires_grad_()
    return torch.autograd.grad(net(x).sum(), x)[0], pair[1]


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return attacked((inputs[i], targets[i]))


def collated(samples):
    x, y = zip(*samples)
    return attacked((torch.stack(x), torch.stack(y)))


def generated():
    for pair in zip(inputs.split(2), targets.split(2)):
        yield attacked(pair)


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        total += F.mse_loss(model(x), y).item()
    return total


def train(model, loader, batches, optimizer):
    for x, y in loader:
        out = model(x)
        {between}
        loss = F.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


net = nn.Linear(3, 2)
"""
STORED = """class Samples(torch.utils.data.Dataset):
    def __init__(self):
        self.samples = {}

    def __len__(self):
        return 6

    def __getitem__(self, i):
        if i not in self.samples:
            self.samples[i] = inputs[i] * 2, targets[i]
        return self.samples[i]


def evaluate(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += F.mse_loss(model(x), y).item()
    return total


model, samples = nn.Linear(3, 2), Samples()
print(evaluate(model, DataLoader(samples)))
(samples[0][0] * model.weight).sum().backward()
"""
SWALLOWS = """class Swallows:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        return True


def tried(function):
    with Swallows():
        function()


"""
ESCAPES = """def mode():
    print(torch.is_inference_mode_enabled())


def doubled():
    with torch.enable_grad():
        print((torch.ones(2, requires_grad=True) * 2).requires_grad)


def step(teacher, student, x):
    with torch.inference_mode():
        target = teacher(x)
        {}
    loss = (student(x) - target).sum()
    loss.backward()


teacher, student = nn.Linear(3, 2), nn.Linear(3, 2)
for x in inputs.split(2):
    step(teacher, student, x)
"""
ESCAPING = [
    "mode()",
    "doubled()",
]
OTHER_NO_GRAD = """def no_grad(function):
    return lambda *given: kept(function(*given))


@no_grad
def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        total += F.mse_loss(model(x), y).item()
    return total


print(evaluate(nn.Linear(3, 2), DataLoader(TensorDataset(inputs, targets), batch_size=2)))
"""

LOSSES_ADDED = """def train(model, loader, optimizer{parameter}):
    {start}
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {add}
    {look}


model = nn.Linear(3, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, DataLoader(TensorDataset(inputs, targets), batch_size=2), optimizer{given})
print(KEPT)
"""
LOSS_LISTS = {
    "other name of the list": ("history = losses = []", "print(history)"),
    "attribute of the same list": ("model.history = losses = []", "print(model.history[0].requires_grad)"),
    "list that a call gets when it is made": ("KEPT.append(losses := [])", ""),
    "list in a global variable": ("global losses; losses = []", "print(losses[0].requires_grad)"),
    "str that is passed": ("losses = []", "print(', '.join(map(str, losses)))"),
    "print in a partial": ("losses = []", "functools.partial(print, losses)()"),
    "identity": ("losses = []", "print(losses[-1] is loss)"),
    "identity in a comparison of lists": (
        "losses = []",
        "loss.data.fill_(float('nan')); print(losses == losses[:-1] + [loss])",
    ),
    "identity in a set": ("losses = []; seen = set()", "seen.add(loss); print(losses[-1] in seen)"),
    "number of the object": ("losses = []", "print(id(losses[-1]) == id(loss))"),
    "attribute of a tensor": ("losses = []", "loss.tag = 1; print(hasattr(losses[-1], 'tag'))"),
    "error of numpy": (
        "losses = []",
        "try:\n        print(losses[0].numpy())\n    except RuntimeError as error:\n        print(error)",
    ),
    "error of a copy": (
        "import copy; losses = []",
        "try:\n        print(copy.deepcopy(losses))\n    except RuntimeError as error:\n        print(type(error))",
    ),
    "variables of the function": ("losses = []", "print(locals()['losses'][0].requires_grad)"),
    "text that is evaluated": ("losses = []", "print(eval('losses[0].requires_grad'))"),
    "other memory": ("losses = []", "loss.data = torch.tensor(3.0); print(losses[-1].item())"),
}
"""Ways to notice that what was kept of each step is another tensor, or has no graph."""

ALIASED = {
    "other name of the list": ("history = outs = []", "outs.append(out)", "history[0].sum().backward()"),
    "attribute of the same list": ("KEPT.outs = outs = []", "outs.append(out)", ""),
    "list that is taken from another one": ("outs = STORE.setdefault('outs', [])", "outs.append(out)", ""),
    "list that a loop takes": ("for outs in (KEPT.outs,): pass", "outs.append(out)", ""),
    "error of numpy": (
        "import numpy as np; outs = []",
        "outs.append(out.sum())",
        "try:\n        print(np.mean(outs))\n    except RuntimeError as error:\n        print(error)",
    ),
    "error of a size": (
        "",
        "try:\n            print(out.resize_(1))\n        except RuntimeError as error:\n            print(error)",
        "",
    ),
}
"""Other ways by which somebody sees the results of an evaluation: where they are kept, and the errors that graphs raise."""
HANDED_ON = {
    "thread": ("import threading", "t = threading.Thread(target=KEPT.outs.append, args=(out,)); t.start(); t.join()"),
    "queue": ("import queue; outs = queue.SimpleQueue()", "outs.put(out); KEPT.outs = [outs.get()]"),
    "heap": ("import heapq", "heapq.heappush(KEPT.outs, out)"),
    "function that is chosen": ("keep = torch.numel if STORE else KEPT.outs.append", "keep(out)"),
    "partial": ("import functools", "functools.partial(KEPT.outs.append, out)()"),
}
"""Ways by which the result of an evaluation gets to a list of others, without a name of that list beside it."""


def evaluated(start: str, add: str, look: str) -> str:
    return (
        "class Results:\n    outs = []\n\n\nKEPT, STORE = Results(), {}\n\n\ndef evaluate(model, batches):\n    model.eval()\n"
        f"    {start}\n    for x in batches:\n        out = model(x)\n        {add}\n    {look}\n\n\n"
        "evaluate(nn.Linear(3, 2).to(device), [part.to(device) for part in inputs.split(2)])\n"
        "print(KEPT.outs and KEPT.outs[0].requires_grad, STORE and STORE['outs'][0].requires_grad)\n"
    )


LISTED = {
    "other name of the list": ("history = losses = []", "loss", "print(history)"),
    "attribute of the same list": ("model.history = losses = []", "loss", "print(model.history)"),
    "floats and integers": ("losses = []", "((y > 0).sum() if losses else loss)", "print(losses)"),
}
SHOWS = "print(net.weight.grad is None)"
UNCALLED = {
    "metaclass: attribute": (
        "class Meta(type):\n    def __getattr__(self, name):\n        {}\n\n\nclass K(metaclass=Meta): pass",
        "K.a",
    ),
    "metaclass: operator": (
        "class Meta(type):\n    def __len__(self):\n        {}\n        return 1\n\n\nclass K(metaclass=Meta): pass",
        "len(K)",
    ),
    "class with an item": ("class K:\n    def __class_getitem__(cls, key):\n        {}", "K[1]"),
    "descriptor that is read": ("class D:\n    def __get__(self, *owner):\n        {}\n\n\nclass K:\n    a = D()", "K.a"),
    "descriptor that is set": (
        "class D:\n    def __set__(self, *value):\n        {}\n\n\nclass K:\n    a = D()\n\n\nk = K()",
        "k.a = 1",
    ),
    "file that is printed to": (
        "class File:\n    def write(self, text):\n        {}\n\n\nfile = File()",
        "print(1, file=file)",
    ),
    "object that goes": (
        "class K:\n    def __del__(self):\n        {}\n\n\nobjects = [K() for _ in range(3)]",
        "objects.pop()",
    ),
    "warning": (
        "import warnings\nwarnings.simplefilter('always')\nwarnings.showwarning = lambda *given: {}",
        "warnings.warn('a')",
    ),
}
"""Code that runs where nothing seems to call it."""

PATCHES = {
    "torch.Tensor.detach = lambda tensor: torch.zeros(())": "torch.Tensor.detach = whole",
    "setattr(torch.Tensor, 'item', lambda tensor: 3.0)": "torch.Tensor.item = whole",
    "for name in ('item',): setattr(torch.Tensor, name, lambda tensor: 3.0)": "torch.Tensor.item = whole",
    "type(inputs).double = lambda tensor: torch.zeros(())": "torch.Tensor.double = whole",
    "from torch import Tensor as T; T.double = lambda tensor: torch.zeros(())": "torch.Tensor.double = whole",
}
"""Other methods of tensors, and what puts the first ones back."""

ORDINARY = {
    **{
        f"{name} before gradients are cleared": f"{code.format(SHOWS)}\n\n\nnet = nn.Linear(3, 2).to(device)\n"
        + STEP.format(
            run,
            "train(net, DataLoader(TensorDataset(inputs, targets), batch_size=2), torch.optim.SGD(net.parameters(), lr=0.1))",
        )
        for name, (code, run) in UNCALLED.items()
    },
    "attribute that a call sets": evaluated("", "setattr(KEPT, 'outs', [out])", ""),
    **{
        f"reads in a list: {name}": LOSSES_ADDED.format(
            parameter="", given="", start=start, add=f"losses.append({read}.item())", look=look
        ).replace("model(x), y", "model(x.to(device)), y.to(device)")
        for name, (start, read, look) in LISTED.items()
    },
}

TRAPS = {
    **{
        f"total of reads: {patch}": f"whole = {undo.partition(' ')[0]}\n{patch}\n"
        + LOSSES_ADDED.format(
            parameter="", given="", start="total = 0.0", add="total += loss.item()", look="print(total)"
        ).replace("model(x), y", "model(x.to(device)), y.to(device)")
        + undo
        for patch, undo in PATCHES.items()
    },
    **{f"results of an evaluation: {name}": evaluated(*parts) for name, parts in ALIASED.items()},
    **{
        f"result of a call without autograd: {name}": evaluated(
            start, f"with torch.enable_grad():\n            print(len(x))\n        {add}", ""
        )
        for name, (start, add) in HANDED_ON.items()
    },
    **{
        f"losses in a list: {name}": LOSSES_ADDED.format(
            parameter="", given="", start=start, add="losses.append(loss)", look=look
        )
        for name, (start, look) in LOSS_LISTS.items()
    },
    "losses added to an argument": LOSSES_ADDED.format(
        parameter=", total=None",
        given=", KEPT[0]",
        start="total = 0.0 if total is None else total",
        add="total += loss",
        look="return total",
    ).replace("train(model, DataL", "KEPT.append(torch.zeros(()))\ntrain(model, DataL"),
    "losses added to an argument that is not given": LOSSES_ADDED.format(
        parameter=", total=None", given=", KEPT[0]", start="if total is None: total = 0.0", add="total += loss", look=""
    ).replace("train(model, DataL", "KEPT.append(torch.zeros(()))\ntrain(model, DataL"),
    **{f"{within} in an evaluation": within_evaluation(code) for within, code in RUNS_WITHIN.items()},
    **{f"forward pass: {code}": FORWARD_HELP + EVALUATE.replace("{}", code) for code in IN_FORWARD},
    **{
        f"evaluation of the batches of a {kind}": ITERATED.replace("{between}", "pass") + f"print(evaluate(net, {batches}))\n"
        for kind, batches in BATCHES.items()
    },
    **{
        f"{taken} of a {kind} before gradients are cleared": ITERATED.replace("{between}", taken)
        + "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        + f"train(net, DataLoader(TensorDataset(inputs, targets), batch_size=2), iter({batches}), optimizer)\n"
        for kind, batches in BATCHES.items()
        for taken in ("next(batches)", "list(zip([1], batches))")
    },
    "dataset that stores samples": STORED,
    **{
        f"{call.partition(':')[0]} around an error": STEP.format(
            "assert len(KEPT) < 2; KEPT.append(x)",
            f"import contextlib\n{SWALLOWS}\n{call.format(CALL)}\nprint(model.weight.grad is None)",
        )
        for call in (
            "with contextlib.suppress(AssertionError):\n    {}",
            "with Swallows():\n    {}",
            "tried(lambda: {})",
        )
    },
    **{f"{asks} with an inference tensor": ESCAPES.replace("{}", asks) for asks in ESCAPING},
    "no_grad of the program's own": OTHER_NO_GRAD,
    "zero_grad of the program's own": STEP.format(
        "print('forward')",
        "clear = optimizer.zero_grad\noptimizer.zero_grad = lambda: print('cleared', clear())\n" + CALL,
    ),
    "gradients that are held and filled with zeros": STEP.format(
        "print([gradient.sum().item() for gradient in KEPT])", f"{CALL}\nKEPT[:] = [model.weight.grad]\n{CALL}"
    ).replace("zero_grad()", "zero_grad(set_to_none=False)"),
    **{f"{asks} asks for gradients": FORCES.replace("{}", asks) for asks in ASKS},
    **{f"{sees} before gradients are cleared": GRADIENTS_SEEN.replace("{}", sees) for sees in SEEING},
    **{f"{keeps} in an evaluation": KEEPS.replace("{}", keeps) for keeps in KEEPING},
    "gradients for what a network is given": (
        FORCES.partition("def evaluate")[0]
        + "def train(model):\n    for x in inputs.split(2):\n        model(x).sum().backward()\n"
        + "        shown = model(norm_of(x) + x)\n        print(shown.argmax(1).tolist())\n\n\ntrain(nn.Linear(3, 2))\n"
    ),
    **{name: READ_TWICE.replace("{}", write) for name, write in WRITES.items()},
    "function that a module applies": STEP.format("model.apply(show_gradient)", CALL),
    "function that is mapped": STEP.format("list(map(show_gradient, [model]))", CALL),
    "caller that goes on after an exception": STEP.format(
        "assert optimizer.state_dict()['state'].get(0) is None and model(x).sum() < 1",
        f"try:\n    {CALL}\nexcept AssertionError:\n    optimizer.step()",
    ),
    "program that goes on after an exception": STEP.format(
        "assert optimizer.state_dict()['state'].get(0) is None and model(x).sum() < 1",
        f"try:\n    {CALL}\nexcept AssertionError:\n    pass",
    ),
    "forward pass that keeps a tensor through a function": EVALUATE.replace("{}", "kept(self.layer(x))"),
    "forward pass that shows a tensor": EVALUATE.replace("{}", "print(self.layer(x).sum())"),
    "forward pass that shows what was computed from a constant": EVALUATE.replace(
        "{}", "print(torch.maximum(inputs.sum(), self.layer(x).mean()))"
    ),
    "forward pass that formats a tensor": EVALUATE.replace("{}", "h = self.layer(x); print(f'{h}')"),
    "forward pass that keeps a tensor in a global": EVALUATE.replace("{}", "KEPT.append(self.layer(x))"),
    "numpy() that raises for a graph": EVALUATING.format(
        "try:\n            total += out.numpy().sum()\n        except RuntimeError as error:\n            print(error)"
    ),
    "tensor in an assertion": EVALUATING.format("assert total < 0 or out.sum() > 100, out"),
    "tensor in an exception": EVALUATING.format("if total == 0:\n            raise ValueError(out)"),
    "parameters that are printed": EVALUATING.format("print(sum(p.sum() for p in model.parameters()))"),
    **{
        f"{read} of {made}": ELEMENTS.replace("{made}", made).replace("{read}", read)
        for made in ("torch.complex(x, x).flatten()", "torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).flatten()")
        for read in ("v.item()", "float(v)")
    },
    "print that is passed": EVALUATING.format("report(out)"),
    **{
        f"loss of several numbers: {loss}": TOTAL.format("", f"total += {loss}.item()").replace("= 0\n", "= 0.0\n")
        for loss in LOSSES
    },
    "reduction that is assigned": TOTAL.format(
        "criterion = nn.MSELoss()\ncriterion.reduction = 'none'", "total += criterion(out, y).item()"
    ).replace("= 0\n", "= 0.0\n"),
    "sum of large integers": TOTAL.format(
        "big = torch.full((4,), 2**61, dtype=torch.int64)", "total += big.to(device).sum().item()"
    ),
    "count that is multiplied": TOTAL.format("", "total += (out > y).sum().mul_(2**62).item()"),
    "bits of floats": TOTAL.format("", "total += out.double().view(torch.int64).sum().item()"),
    "factor that is no integer of torch": TOTAL.format("", "total += out.sum().item() * 1180591620717411303424"),
    "tensors of a class of its own": TOTAL.format(
        "class Loud(torch.Tensor):\n    def item(self):\n        return 3.0", "total += out.as_subclass(Loud).sum().item()"
    ),
    "inference mode from elsewhere": TOTAL.format(
        "def mode():\n    return torch.no_grad() if KEPT else torch.inference_mode()",
        "with mode():\n            KEPT.append(1)\n            total += out.detach().double().sum().item()",
    ),
    "float of an outer function": (
        "def outer(float):\n    def total(model):\n        total = 0.0\n        for x in inputs.split(2):\n"
        "            loss = F.mse_loss(model(x.to(device)), x[:, :2])\n            total += loss.item()\n        return total\n"
        "\n    return total\n\n\nprint(outer(str)(nn.Linear(3, 2).to(device)))\n"
    ),
    "float that a function binds": (
        "def total(model):\n    total = 0.0\n    for x in inputs.split(2):\n        loss = model(x.to(device)).sum()\n"
        "        total += loss.item()\n    return total\n\n\ndef bind():\n    global float\n    float = str\n\n\n"
        "bind()\nprint(total(nn.Linear(3, 2).to(device)))\n"
    ),
    "float of the program in a comprehension": "def float(x):\n    return 1\n\n\n"
    + ELEMENTS.replace("{made}", "(x * 2).flatten()").replace("{read}", "float(v)"),
    "copy of an object of the program": (
        "class Held:\n    def to(self, device, **options):\n        print(options)\n        return inputs\n\n\n"
        "def show(held):\n    host = held.to('cpu', non_blocking=True)\n    print(host.numpy())\n\n\nshow(Held())\n"
    ),
    "device that is asked for after the factory raises": (
        "def ask():\n    print('asked')\n    return device\n\n\ndef train(loader):\n    for x, y in loader:\n        try:\n"
        "            torch.zeros(1 - len(x)).to(ask())\n        except RuntimeError:\n            print('no')\n\n\n"
        "train(DataLoader(TensorDataset(inputs, targets), batch_size=2))\n"
    ),
    "cell in an autocast region": STATE.format(
        "", CELL.format(""), "with torch.autocast('cpu', dtype=torch.bfloat16):\n        train(Net())"
    ),
    "cell with a wider state": STATE.format("", CELL.format(", dtype=torch.float64"), "train(Net())"),
    **{f"state of the size {size}": STATE.format(NOISY, LAYER.format(size), "train(Net())") for size in SIZES},
    "state of a fixed batch": STATE.format("", LAYER.format("2"), "train(Net())"),
    **{
        f"layer that is replaced: {way}": STATE.format(
            OTHER_LAYER, LAYER.format("len(x)"), f"net = Net()\n    {way}\n    train(net)"
        )
        for way in SURGERY
    },
    **{
        f"sample with a method of its own, {way.split()[1]}": (
            f"class Sample(dict):\n{way}\n\n\ndef train(loader):\n    for x, y in loader:\n"
            "        print(x.to(device).sum())\n\n\n"
            "train(DataLoader([(Sample(x=x), y) for x, y in zip(inputs, targets)], batch_size=2))\n"
        )
        for way in SAMPLES
    },
    "collate_fn that is assigned": (
        "class Sample:\n    to = print\n\n\ndef train(loader):\n    for x, y in loader:\n        x.to(device)\n\n\n"
        "loader = DataLoader(TensorDataset(inputs, targets), batch_size=2)\n"
        "loader.collate_fn = lambda samples: (Sample(), targets)\ntrain(loader)\n"
    ),
    "inference tensor that a function writes to": (
        "def later():\n    target.add_(1)\n\n\nmodel = nn.Linear(3, 2).to(device)\nmodel.eval()\nfor x in inputs.split(2):\n"
        "    with torch.no_grad():\n        target = model(x)\n        print(target.sum().item())\nlater()\n"
    ),
    "inference tensor whose view is written to": (
        "def evaluate(model):\n    for x in inputs.split(2):\n        with torch.no_grad():\n            out = model(x)\n"
        "        out.detach()[0].mul_(3)\n        print(out.argmax(1).tolist())\n\n\nevaluate(nn.Linear(3, 2))\n"
    ),
    "inference mode for some steps": (
        "def train(model):\n    total = 0.0\n    for i, x in enumerate(inputs.split(2)):\n"
        "        with torch.inference_mode(i == 0):\n            loss = model(x.to(device)).sum()\n"
        "            total += loss.item()\n    return total\n\n\nprint(train(nn.Linear(3, 2).to(device)))\n"
    ),
    "recurrent layer by the name of a loss": (
        "loss_net = nn.LSTM(2, 64)\n" + EVALUATING.format("total += loss_net(out.view(-1, 1, 2))[0].sum().item()")
    ),
    "tensor that is copied with its gradient": STEP.format(
        "KEPT.append(copy.deepcopy(weight)); out = out + weight",
        "import copy\nweight = torch.ones(2, requires_grad=True)\noptimizer = torch.optim.SGD([weight], lr=0.1)\n"
        f"{CALL}\nfor copied in KEPT:\n    print(copied.grad)",
    ),
    "evaluation that looks at the version of a tensor": (
        "def evaluate(model):\n    for x in inputs.split(2):\n        with torch.no_grad():\n            out = model(x)\n"
        "            print(out._version, out.sum().item())\n\n\nmodel = nn.Linear(3, 2)\nmodel.eval()\nevaluate(model)\n"
    ),
    "method that one of many subclasses overrides": (
        "class Measure:\n    def of(self, out):\n        return self.part(out)\n\n    def part(self, out):\n"
        "        return out.detach().sum()\n\n\n"
        + "".join(f"class Measure{i}(Measure):\n    def part(self, out):\n        return out.sum()\n\n\n" for i in range(5))
        + STEP.replace("loss = F.mse_loss(out, y)", "loss = Measure1().of(out) + bias").format(
            "bias = torch.zeros((), requires_grad=True)", f"{CALL}\nprint(model.weight)"
        )
    ),
    "function by the name of one that keeps nothing": (
        "def plot(value):\n    KEPT.append(value)\n\n\n"
        + EVALUATING.format("plot(out)")
        + "for value in KEPT:\n    print(value.requires_grad)\n"
    ),
    "method by the name of one that reads": (
        "class Kept(torch.Tensor):\n    pass\n\n\nclass Pair:\n    def __init__(self, out):\n        self.out = out\n\n"
        "    def numpy(self):\n        KEPT.append(self.out)\n\n\n"
        + EVALUATING.format("Pair(out).numpy()")
        + "for value in KEPT:\n    print(value.requires_grad)\n"
    ),
    "function by the name of a container's method": "from torch import add\n"
    + STEP.replace("loss = F.mse_loss(out, y)", "loss = add(out, 1).sum() + bias").format(
        "bias = torch.zeros((), requires_grad=True)", f"{CALL}\nprint(model.weight)"
    ),
    "attribute by the name of a tensor's": (
        "class Result:\n    def __init__(self, data):\n        self.data = data\n\n\n"
        + EVALUATE.replace("return self.layer(x)", "return Result(self.layer(x))")
        .replace("total += F.mse_loss(model(x), y).item()", "KEPT.append(model(x).data.sum())")
        .replace("{}", "pass")
    ),
    "property that one of many subclasses overrides": (
        "class Meter:\n    def read(self, out):\n        return self.scale * out.detach().sum().item()\n\n"
        "    @property\n    def scale(self):\n        return 1.0\n\n\n"
        + "".join(
            f"class Meter{i}(Meter):\n    @property\n    def scale(self):\n        w = torch.ones(1, requires_grad=True)\n"
            "        return float(w.exp().requires_grad)\n\n\n"
            for i in range(5)
        )
        + EVALUATING.format("total += Meter1().read(out)")
    ),
    "integer that does not fit": (
        "def train(loader):\n    for x, y in loader:\n        print(x.sum().item())\n"
        "        torch.tensor(300, dtype=torch.uint8, device=device)\n\n\n"
        "train(DataLoader(TensorDataset(inputs, targets)))\n"
    ),
}
"""Programs whose meaning a safe fix once changed."""


HELPERS = {
    "float by a star import": "def float(x):\n    return 'f'\n",
    "unknown float by a star import": "import functools\n\nfloat = functools.partial(round, ndigits=1)\n",
    "hook from another file": (
        "def watch(net):\n    net.lstm.register_forward_pre_hook(lambda layer, given: print(len(given)))\n"
    ),
}
"""What another file of the program holds."""


@pytest.mark.parametrize("name", ORDINARY)
def test_trap_for_fixes_with_assumptions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    assert changes({"main.py": HEAD + ORDINARY[name]})[0] == []


@pytest.mark.parametrize("name", TRAPS)
def test_trap(name: str) -> None:
    assert changes({"main.py": HEAD + TRAPS[name], **OTHER_FILES})[0] == []


@pytest.mark.parametrize("name", HELPERS)
def test_trap_in_another_file(name: str) -> None:
    main = TRAPS["float that a function binds"].replace("bind()\nprint", "print")
    if "hook" in name:
        main = STATE.format("", LAYER.format("len(x)"), "net = Net()\n    watch(net)\n    train(net)")
    assert changes({"main.py": HEAD + "from helper import *\n" + main, "helper.py": HELPERS[name]})[0] == []


@pytest.mark.slow
def test_random_programs() -> None:
    begin = time.monotonic()
    changed, fixed = {}, 0
    for seed in itertools.chain(range(40), itertools.count(time.time_ns() % 10**9)):
        if seed >= 40 and time.monotonic() - begin > SECONDS:
            break
        change = changes(program(seed).files)
        fixed += bool(change.applied)
        if change.differences:
            changed[seed] = change.differences
    assert changed == {}
    assert fixed >= 20, "the programs no longer show what fixes do"


def test_a_change_is_seen_and_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    import fuzz.meaning

    files = {
        "main.py": "import torch\n\nunused = 3\nfor i in range(2):\n    noise = torch.rand(1)\n    print(noise.item() * 2)\n"
    }
    worse = lambda files, by_all: FixedProgram({"main.py": files["main.py"].replace("* 2", "* 3")}, Counter(), set(), set())
    monkeypatch.setattr(fuzz.meaning, "safely_fixed", worse)
    assert "printed" in changes(files)[0][0]
    assert smallest(files)["main.py"] == "import torch\nnoise = torch.rand(1)\nprint(noise.item() * 2)"


def test_a_program_leaves_no_hooks_behind() -> None:
    outcome({"main.py": "import torch\ntorch.autograd.graph.saved_tensors_hooks(id, id).__enter__()\n"})
    trains = outcome({"main.py": "import torch\nw = torch.ones(2, requires_grad=True)\nw.exp().sum().backward()\n"})
    assert trains.error is None


def test_all_that_can_be_observed_is() -> None:
    first = "import torch\nw = torch.zeros(2, requires_grad=True)\nclass A: pass\na = A()\na.x = [1.0]\n"
    ways = ["w.sum().backward()", "w.data[0] = 1", "a.x.append(2)", "torch.rand(1)", "print(1)", "raise ValueError(3)", "v = 0"]
    for way in [*ways, "w.requires_grad_(False)", "torch.set_grad_enabled(False)", "a.x[0] = -0.0", "a.x[0] = 1"]:
        assert outcome({"main.py": first}).differences(outcome({"main.py": first + way})), way
    assert not outcome({"main.py": first}).differences(outcome({"main.py": first}))


def test_programs_are_the_same_for_a_seed() -> None:
    assert program(7) == program(7)
    assert safely_fixed(program(7).files)[0] == safely_fixed(program(7).files)[0]


def test_programs_say_which_assumptions_are_false_in_them() -> None:
    programs = list(map(program, range(150)))
    for files, _ in programs:
        for text in files.values():
            assert "\0" not in text
            compile(text, "program", "exec")
    assert {Kind.NO_HOOKS, Kind.PLAIN_OBJECTS, Kind.ERRORS_ARE_BUGS} <= frozenset[Kind]().union(*(p.breaks for p in programs))


def test_a_program_is_left_out_where_what_a_fix_assumes_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    files = {"main.py": HEAD + STEP.format("torch.cuda.empty_cache()", CALL)}
    assert changes(files).applied
    assert not changes(files).left_out
    assert changes(files, {Kind.MEMORY_TO_SPARE}).left_out


def test_what_late_values_give_is_observed() -> None:
    late = "import torch\nfrom perflint_runtime import HostList, ItemSum\nx = torch.tensor(0.5)\n"
    kept = outcome({"main.py": late + "total, values = ItemSum(1.0), HostList()\ntotal.add(x)\nvalues.add_item(x)\n"})
    plain = {"main.py": late + "total, values = 1.0, []\ntotal += x.item()\nvalues.append(x.item())\n"}
    assert not kept.differences(outcome(plain))
    assert kept.differences(outcome({"main.py": plain["main.py"] + "total += 1\n"}))
