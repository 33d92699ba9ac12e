"""Programs that put functions and classes in the place of those of their modules, methods and tables, from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed
from tests.test_meaning_traps import HEAD

LIB = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        return self.inner(x)


def act(x):
    return F.relu(x)


TABLE = {"first": F.relu, "second": torch.tanh}
STEPS = [torch.tanh, F.relu]
NESTED = {"group": {"first": F.relu}}


def read(name, table=TABLE):
    return table[name]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer()

    def squash(self, x):
        for step in STEPS:
            x = step(x)
        return NESTED["group"]["first"](TABLE["first"](x))

    def forward(self, x):
        return self.squash(act(self.layer(x)))


def evaluate(net):
    net.eval()
    right = 0
    for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
        right += (net(x) > y).sum().item()
    return right
"""
MAIN = """import functools
import torch
from torch import nn
import lib

KEPT = []


class Keeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        KEPT.append(self.inner(x))
        return KEPT[-1]


class Keeper:
    def __call__(self, x):
        KEPT.append(x)
        return x


def act(x):
    KEPT.append(x)
    return x


def keep(kept, x):
    kept.append(x)
    return x


def keeping(function):
    return lambda x: keep(KEPT, function(x))


{}
print(lib.evaluate(net), [k.requires_grad for k in KEPT])
"""
PUT = {
    "function": "lib.act = act\nnet = lib.Net()\n",
    "class": "lib.Layer = Keeping\nnet = lib.Net()\n",
    "lambda": "lib.act = lambda x: keep(KEPT, x)\nnet = lib.Net()\n",
    "wrapper": "lib.act = keeping(lib.act)\nnet = lib.Net()\n",
    "part of a function": "lib.act = functools.partial(keep, KEPT)\nnet = lib.Net()\n",
    "several at once": "(lib.act, lib.level) = (act, 3)\nnet = lib.Net()\n",
    "under another name": "import lib as library\n\nlibrary.act = act\nnet = lib.Net()\n",
    "by name": "setattr(lib, 'act', act)\nnet = lib.Net()\n",
    "by a name that is not known": "setattr(lib, ''.join(['a', 'ct']), act)\nnet = lib.Net()\n",
    "by a part of setattr": "functools.partial(setattr, lib)('act', act)\nnet = lib.Net()\n",
    "by name under another name": "own = lib\nsetattr(own, 'act', act)\nnet = lib.Net()\n",
    "by name in a loop": "for part in (lib,):\n    setattr(part, 'act', act)\nnet = lib.Net()\n",
    "by name by a helper": (
        "def put(part, name, new):\n    part.__dict__[name] = new\n\n\nput(lib, 'act', act)\nnet = lib.Net()\n"
    ),
    "by name by a function's default": (
        "def put(name, new, part=lib):\n    setattr(part, name, new)\n\n\nput('act', act)\nnet = lib.Net()\n"
    ),
    "by its own method": "lib.__setattr__('act', act)\nnet = lib.Net()\n",
    "by a method of its class": "type(lib).__setattr__(lib, 'act', act)\nnet = lib.Net()\n",
    "by the names of a function": "lib.act.__globals__.update({'act': act})\nnet = lib.Net()\n",
    "several over some lines": "(\n    lib.act,  # the new one\n    lib.level,\n) = (act, 3)\nnet = lib.Net()\n",
    "in a chain": "pair = lib.act, lib.level = act, 3\nnet = lib.Net()\n",
    "with an annotation": "lib.act: object = act\nnet = lib.Net()\n",
    "in a head": "for lib.level, lib.act in enumerate([act]):\n    pass\nnet = lib.Net()\n",
    "by a helper": "def install(module):\n    module.act = act\n\n\ninstall(lib)\nnet = lib.Net()\n",
    "part as a method": "net = lib.Net()\nnet.squash = functools.partial(keep, KEPT)\n",
    "object as a method": "net = lib.Net()\nnet.squash = Keeper()\n",
    "one of several as a method": "net = lib.Net()\nnet.squash = {'keep': Keeper()}['keep']\n",
    "in a table": "lib.TABLE['first'] = act\nnet = lib.Net()\n",
    "in a table by a function": "def fill():\n    lib.TABLE.update(first=act)\n\n\nfill()\nnet = lib.Net()\n",
    "in a table under another name": "from lib import TABLE as table\n\ntable['first'] = act\nnet = lib.Net()\n",
    "in a table by a helper": "def fill(table):\n    table['first'] = act\n\n\nfill(lib.TABLE)\nnet = lib.Net()\n",
    "in a list": "lib.STEPS.append(act)\nnet = lib.Net()\n",
    "in a list at a place": "from lib import STEPS\n\nSTEPS[0] = act\nnet = lib.Net()\n",
    "in a table by an operator": "from lib import TABLE\n\nTABLE |= {'first': act}\nnet = lib.Net()\n",
    "by the dict of variables": "names = vars(lib)\nnames['act'] = act\nnet = lib.Net()\n",
    "in a table in a table": "lib.NESTED['group']['first'] = act\nnet = lib.Net()\n",
    "in a table that is a default": (
        "from lib import TABLE\n\n\n"
        "def fill(function, table=TABLE):\n    table['first'] = function\n\n\n"
        "fill(act)\nnet = lib.Net()\n"
    ),
    "several at once as methods": "net = lib.Net()\nnet.squash, done = functools.partial(keep, KEPT), True\n",
}
HARMLESS = {
    "nothing": "net = lib.Net()\n",
    "another variable": "lib.level = 3\nnet = lib.Net()\n",
    "an attribute of another object": "class Options:\n    pass\n\n\nOptions.act = 3\nnet = lib.Net()\n",
    "a table that is read": "print(sorted(lib.TABLE), len(lib.STEPS), lib.TABLE['first'].__name__)\nnet = lib.Net()\n",
    "variables that are listed": "print([n for n in vars(lib) if n == 'act'], vars(lib)['act'].__name__)\nnet = lib.Net()\n",
    "what is read": "own = lib.act\nprint(own.__name__)\nnet = lib.Net()\n",
    "a number by a method's name": "class Options:\n    pass\n\n\noptions = Options()\noptions.squash = 3\nnet = lib.Net()\n",
}


@pytest.fixture(autouse=True)
def _with_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, runtime=True, assume=("ordinary",)))


@pytest.mark.parametrize("name", PUT)
def test_what_is_put_in_the_place_of_a_function_keeps_its_graph(name: str) -> None:
    assert changes({"main.py": MAIN.format(PUT[name]), "lib.py": HEAD + LIB})[0] == []


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_not_replaced_is_evaluated_without_a_graph(name: str) -> None:
    fixed = safely_fixed({"main.py": MAIN.format(HARMLESS[name]), "lib.py": HEAD + LIB})
    assert "no_grad" in fixed.files["lib.py"] or "inference_mode" in fixed.files["lib.py"]


TRAINED = """

class Measure:
    def loss(self, out, y):
        return F.mse_loss(out, y)


measure = Measure()


def criterion(out, y):
    return F.mse_loss(out, y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return torch.tanh(self.layer(x))


def train(net):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
        loss = %s
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())
"""
WATCHING = """from torch.nn import functional as F

SEEN, WATCHED = [], []


def watched(out, y):
    SEEN.extend(p.grad is None for p in WATCHED)
    return F.mse_loss(out, y)
"""
INSTALL = """import watching


def on_module(module):
    module.criterion = watching.watched


def on_all(modules):
    for module in modules:
        module.criterion = watching.watched


def on_object(holder):
    holder.loss = watching.watched


def on_class(cls):
    cls.loss = lambda self, out, y: watching.watched(out, y)
    return cls
"""
BY_FUNCTION, BY_METHOD = "criterion(net(x), y)", "measure.loss(net(x), y)"
INSTALLED = {
    "by a keyword of another file's function": (BY_FUNCTION, "install.on_module(module=lib)\n"),
    "by a list of modules": (BY_FUNCTION, "install.on_all([lib])\n"),
    "in a module that is found by its name": (
        BY_FUNCTION,
        "import importlib\n\nimportlib.import_module('lib').criterion = watching.watched\n",
    ),
    "in an object by a file that does not have its class": (BY_METHOD, "install.on_object(lib.measure)\n"),
    "in a class by a file that does not have it": (BY_METHOD, "install.on_class(lib.Measure)\n"),
    "by the head of a loop": (BY_METHOD, "for lib.measure.loss in [watching.watched]:\n    pass\n"),
}
START = "import install\nimport lib\nimport watching\n\n"
RUN = "\nnet = lib.Net()\nwatching.WATCHED.append(net.layer.weight)\nlib.train(net)\nprint(watching.SEEN)\n"


@pytest.mark.parametrize("name", INSTALLED)
def test_what_is_installed_in_the_place_of_a_loss_sees_the_gradients_of_the_last_step(name: str) -> None:
    loss, setting = INSTALLED[name]
    files = {"main.py": START + setting + RUN, "lib.py": HEAD + TRAINED % loss, "watching.py": WATCHING, "install.py": INSTALL}
    assert changes(files)[0] == []


@pytest.mark.parametrize("loss", [BY_FUNCTION, BY_METHOD])
def test_gradients_of_a_loss_that_nothing_replaces_are_cleared_first(loss: str) -> None:
    setting = "\n\nclass Options:\n    pass\n\n\ndef name(options):\n    options.loss = 'mse'\n\n\nname(Options())\n"
    files = {
        "main.py": START.replace("import install\n", "") + setting + RUN,
        "lib.py": HEAD + TRAINED % loss,
        "watching.py": WATCHING,
    }
    lines = safely_fixed(files).files["lib.py"].splitlines()
    assert lines.index("        opt.zero_grad()") < lines.index(f"        loss = {loss}")


def test_a_class_statement_that_declares_a_global_variable_rebinds_it() -> None:
    setting = "\n\nclass Setup:\n    global criterion\n    criterion = watched\n"
    run = "\n\nnet = Net()\nWATCHED.append(net.layer.weight)\ntrain(net)\nprint(SEEN)\n"
    text = HEAD + WATCHING.partition("\n\n")[2] + TRAINED % BY_FUNCTION + setting + run
    assert changes({"main.py": text})[0] == []
