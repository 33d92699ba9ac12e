"""Programs that change a network, a class or torch where something is defined: in decorators, defaults, bodies of classes."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed
from tests.test_meaning_traps import HEAD

NETWORK = """
KEPT = []


class Keeping(nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        KEPT.append(out)
        return out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.body(x))


def widen(net):
    net.head = Keeping(3, 2)
    return net


def evaluate(model, batches):
    model.eval()
    right = 0
    for x, y in batches:
        right += (model(x) > y).sum().item()
    return right


model = Net()
loader = DataLoader(TensorDataset(inputs, targets), batch_size=2)
{}
print(evaluate(model, loader), [k.requires_grad for k in KEPT])
"""
DEFINED_NETWORK = {
    "default call": "def start(net=widen(model)):\n    return net\n",
    "kwdefault call": "def start(*, net=widen(model)):\n    return net\n",
    "default of method": ("class Start:\n    def run(self, net=widen(model)):\n        return net\n"),
    "decorator partial": (
        "def install(net, fn):\n"
        "    net.head = Keeping(3, 2)\n"
        "    return fn\n"
        "\n"
        "\n"
        "@functools.partial(install, model)\n"
        "def start():\n"
        "    pass\n"
    ),
    "decorator call": (
        "def installed(net):\n"
        "    net.head = Keeping(3, 2)\n"
        "    return lambda fn: fn\n"
        "\n"
        "\n"
        "@installed(model)\n"
        "def start():\n"
        "    pass\n"
    ),
    "method decorator": (
        "def installed(net):\n"
        "    net.head = Keeping(3, 2)\n"
        "    return lambda fn: fn\n"
        "\n"
        "\n"
        "class A:\n"
        "    @installed(model)\n"
        "    def start(self):\n"
        "        pass\n"
    ),
    "class decorator": (
        "def installed(net):\n"
        "    net.head = Keeping(3, 2)\n"
        "    return lambda fn: fn\n"
        "\n"
        "\n"
        "@installed(model)\n"
        "class A:\n"
        "    pass\n"
    ),
    "class body call": "class Start:\n    net = widen(model)\n",
    "class body store": "class Start:\n    model.head = Keeping(3, 2)\n",
    "class body loop": ("class Start:\n    for net in [model]:\n        net.head = Keeping(3, 2)\n"),
    "class body with": ("class Start:\n    if device:\n        model.body.append(Keeping(3, 3))\n"),
    "class body append": "class Start:\n    model.body.append(Keeping(3, 3))\n",
    "class body F": ("def mine(x, inplace=False):\n    KEPT.append(x)\n    return x\n\n\nclass Start:\n    F.relu = mine\n"),
    "default F": (
        "def mine(x, inplace=False):\n"
        "    KEPT.append(x)\n"
        "    return x\n"
        "\n"
        "\n"
        "def put(lib):\n"
        "    lib.relu = mine\n"
        "\n"
        "\n"
        "def start(done=put(F)):\n"
        "    pass\n"
    ),
    "class keyword": (
        "class Base:\n"
        "    def __init_subclass__(cls, net):\n"
        "        net.head = Keeping(3, 2)\n"
        "\n"
        "\n"
        "class Start(Base, net=model):\n"
        "    pass\n"
    ),
    "local class": (
        "def start():\n"
        "    class Local:\n"
        "        def put(self, net):\n"
        "            net.head = Keeping(3, 2)\n"
        "\n"
        "    Local().put(model)\n"
        "\n"
        "\n"
        "start()\n"
    ),
    "local class body": ("def start(net):\n    class Local:\n        net.head = Keeping(3, 2)\n\n\nstart(model)\n"),
    "nested class body": "class Outer:\n    class Inner:\n        net = widen(model)\n",
    "evaluate in default": ("def start(right=evaluate(widen(Net()), loader)):\n    return right\n"),
    "evaluate in class body": "class Start:\n    right = evaluate(Keeping(3, 2), loader)\n",
    "evaluate in decorator": (
        "def shown(right):\n    return lambda fn: fn\n\n\n@shown(evaluate(Keeping(3, 2), loader))\ndef start():\n    pass\n"
    ),
    "lambda default": "start = lambda net=widen(model): net\n",
    "dataclass default": (
        "import dataclasses\n"
        "\n"
        "\n"
        "@dataclasses.dataclass\n"
        "class Start:\n"
        "    net: nn.Module = dataclasses.field(default_factory=lambda: widen(model))\n"
        "\n"
        "\n"
        "Start()\n"
    ),
    "local decorators": (
        "def start():\n"
        "    @functools.partial(lambda net, fn: setattr(net, 'head', Keeping(3, 2)), model)\n"
        "    def inner():\n"
        "        pass\n"
        "\n"
        "\n"
        "start()\n"
    ),
    "class body setup func": ("class Start:\n    def put(net):\n        net.head = Keeping(3, 2)\n\n    put(model)\n"),
    "base call": ("def made(net):\n    net.head = Keeping(3, 2)\n    return object\n\n\nclass Start(made(model)):\n    pass\n"),
    "type params default": ("class Start:\n    (lambda net: [None for net.head in [Keeping(3, 2)]])(model)\n"),
}
ENGINE = """
def run():
    model, losses = nn.Linear(3, 2).to(device), []
    for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
        loss = F.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        losses.append(loss.item())
    return losses
"""
DEFINED_ENGINE = {
    "class body dir": (
        "import engine\n"
        "\n"
        "\n"
        "class Names:\n"
        "    all = sorted(n for n in dir(engine) if n[0] != '_')\n"
        "\n"
        "\n"
        "print(engine.run(), Names.all)\n"
    ),
    "default vars": (
        "import engine\n"
        "\n"
        "\n"
        "def show(names=sorted(n for n in vars(engine) if n[0] != '_')):\n"
        "    return names\n"
        "\n"
        "\n"
        "print(engine.run(), show())\n"
    ),
    "class body alias": (
        "import engine\n"
        "\n"
        "\n"
        "class Names:\n"
        "    show = dir\n"
        "\n"
        "\n"
        "print(engine.run(), [n for n in Names.show(engine) if n[0] != '_'])\n"
    ),
}
RUNNER = """

class Runner:
    def __init__(self):
        self.model = nn.Linear(3, 2)
        self.kept = []

    def head(self, out):
        return out * 1

    def evaluate(self):
        self.model.eval()
        right = 0
        with torch.no_grad():
            for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
                right += (self.head(self.model(x)) > y).sum().item()
        return right


def head(self, out):
    self.kept.append(out)
    return out * 1

{}
runner = Last()
print(runner.evaluate())
sum((out * runner.model.weight.sum()).sum() for out in runner.kept).backward()
print(runner.model.weight.grad)
"""
DEFINED_RUNNER = {
    "class body type": ("class Made:\n    last = type('Last', (Runner,), {'head': head})\n\n\nLast = Made.last\n"),
    "default type": ("def made(last=type('Last', (Runner,), {'head': head})):\n    return last\n\n\nLast = made()\n"),
    "default make": (
        "def make(base):\n"
        "    class Heir(base):\n"
        "        pass\n"
        "    Heir.head = head\n"
        "    return Heir\n"
        "\n"
        "\n"
        "def made(last=make(Runner)):\n"
        "    return last\n"
        "\n"
        "\n"
        "Last = made()\n"
    ),
    "class decorator": (
        "def keeping(cls):\n    return type('Last', (cls,), {'head': head})\n\n\n@keeping\nclass Last(Runner):\n    pass\n"
    ),
    "class body make": (
        "def make(base):\n"
        "    class Heir(base):\n"
        "        def head(self, out):\n"
        "            self.kept.append(out)\n"
        "            return out * 1\n"
        "    return Heir\n"
        "\n"
        "\n"
        "class Made:\n"
        "    last = make(Runner)\n"
        "\n"
        "\n"
        "Last = Made.last\n"
    ),
    "decorated function makes": (
        "def makes(base):\n"
        "    def wrap(fn):\n"
        "        return type('Last', (base,), {'head': fn})\n"
        "    return wrap\n"
        "\n"
        "\n"
        "@makes(Runner)\n"
        "def Last(self, out):\n"
        "    self.kept.append(out)\n"
        "    return out * 1\n"
    ),
    "class body store": "class Made:\n    Runner.head = head\n\n\nLast = Runner\n",
    "default setter": (
        "def put(cls):\n"
        "    cls.head = head\n"
        "    return cls\n"
        "\n"
        "\n"
        "def made(last=put(Runner)):\n"
        "    return last\n"
        "\n"
        "\n"
        "Last = made()\n"
    ),
    "decorator setter": (
        "def put(cls):\n"
        "    def wrap(fn):\n"
        "        cls.head = fn\n"
        "        return fn\n"
        "    return wrap\n"
        "\n"
        "\n"
        "@put(Runner)\n"
        "def kept(self, out):\n"
        "    self.kept.append(out)\n"
        "    return out * 1\n"
        "\n"
        "\n"
        "Last = Runner\n"
    ),
    "decorator registers by name": (
        "def method_of(cls):\n"
        "    return lambda fn: setattr(cls, fn.__name__, fn)\n"
        "\n"
        "\n"
        "@method_of(Runner)\n"
        "def head(self, out):\n"
        "    self.kept.append(out)\n"
        "    return out * 1\n"
        "\n"
        "\n"
        "Last = Runner\n"
    ),
}
FACTORY = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x):
        h, c = torch.zeros(1, x.size(0), 4), torch.zeros(1, x.size(0), 4)
        return self.rnn(x, (h, c))[0]


SEEN = []
ZEROS = torch.zeros


def noted(*size, **how):
    SEEN.append((size, sorted(how)))
    return ZEROS(*size, **how)

{}

def steps(net):
    for x in inputs.view(3, 2, 1, 3):
        mask = torch.zeros(2).to(device)
        net(x).sum().backward()


steps(Net())
print(SEEN)
"""
DEFINED_FACTORY = {
    "class body": "class Put:\n    torch.zeros = noted\n",
    "default": ("def put(lib):\n    lib.zeros = noted\n\n\ndef start(done=put(torch)):\n    pass\n"),
    "decorator": (
        "def put(lib):\n"
        "    def wrap(fn):\n"
        "        lib.zeros = fn\n"
        "    return wrap\n"
        "\n"
        "\n"
        "@put(torch)\n"
        "def zeros(*size, **how):\n"
        "    return noted(*size, **how)\n"
    ),
    "class body helper": ("def put(lib):\n    lib.zeros = noted\n\n\nclass Put:\n    done = put(torch)\n"),
}


@pytest.fixture(autouse=True)
def _with_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, runtime=True))


@pytest.mark.parametrize("name", DEFINED_NETWORK)
def test_a_network_is_changed_where_something_is_defined(name: str) -> None:
    assert changes({"main.py": HEAD + NETWORK.format(DEFINED_NETWORK[name])})[0] == []


@pytest.mark.parametrize(
    "harmless", ["", "class Start:\n    rate = 0.1\n\n    def run(self, epochs=3):\n        return epochs\n"]
)
def test_a_network_that_nobody_changes_is_evaluated_without_a_graph(harmless: str) -> None:
    text = NETWORK.replace("    net.head = Keeping(3, 2)\n", "")
    assert "no_grad" in safely_fixed({"main.py": HEAD + text.format(harmless)}).files["main.py"]


@pytest.mark.parametrize("name", DEFINED_ENGINE)
def test_names_are_listed_where_something_is_defined(name: str) -> None:
    assert changes({"main.py": DEFINED_ENGINE[name], "engine.py": HEAD + ENGINE})[0] == []


@pytest.mark.parametrize("name", DEFINED_RUNNER)
def test_a_class_gets_another_method_where_something_is_defined(name: str) -> None:
    assert changes({"main.py": HEAD + RUNNER.format(DEFINED_RUNNER[name])})[0] == []


@pytest.mark.parametrize("name", DEFINED_FACTORY)
def test_a_factory_is_replaced_where_something_is_defined(name: str) -> None:
    assert changes({"main.py": HEAD + FACTORY.format(DEFINED_FACTORY[name])})[0] == []
