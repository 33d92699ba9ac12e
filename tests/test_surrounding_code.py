"""A fix is safe only where the program neither catches its error, looks at its warning, nor replaces the function of torch.

Each program is fixed as it stands; with one of the preambles or callers around it, no fix may change what it computes.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed

HEAD = """
import contextlib
import functools
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.utils.checkpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

layer = nn.Linear(2, 2)
inputs = torch.randn(4, 2)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""

RAISING = {
    "manager that is not called": "def run():\n    with torch.no_grad:\n        return layer(inputs).sum().item()\n",
    "prefetching without workers": (
        "def run():\n    return len(DataLoader(TensorDataset(inputs), batch_size=2, prefetch_factor=2))\n"
    ),
    "inference tensor that is changed": (
        "def run():\n    with torch.inference_mode():\n        scores = layer(inputs)\n    scores /= scores.sum()\n"
        "    return scores.tolist()\n"
    ),
}
"""Functions that raise an error, which a fix ends."""

GOES_ON = {
    "handler": "try:\n    print(run())\nexcept Exception as error:\n    print('failed')\n",
    "handler of a caller": (
        "def tried(function):\n    try:\n        return function()\n    except Exception:\n        return 'failed'\n\n\n"
        "print(tried(run))\n"
    ),
    "suppress": "import contextlib\nwith contextlib.suppress(Exception):\n    print(run())\n",
    "manager of the program": (
        "class Guard:\n    def __enter__(self):\n        return self\n\n"
        "    def __exit__(self, *error):\n        return True\n\n\n"
        "with Guard():\n    print(run())\n"
    ),
    "finally that returns": (
        "def tried():\n    try:\n        return run()\n    finally:\n        return 'done'\n\n\nprint(tried())\n"
    ),
    "thread": (
        "with ThreadPoolExecutor(1) as threads:\n    future = threads.submit(run)\nprint(type(future.exception()).__name__)\n"
    ),
}


@pytest.mark.parametrize("name", RAISING)
def test_an_error_that_nobody_catches_is_mended(name: str) -> None:
    assert safely_fixed({"main.py": f"{HEAD}\n\n{RAISING[name]}\n\nprint(run())\n"})[1]


@pytest.mark.parametrize("around", GOES_ON)
@pytest.mark.parametrize("name", RAISING)
def test_an_error_that_is_caught_stays(name: str, around: str) -> None:
    assert changes({"main.py": f"{HEAD}\n\n{RAISING[name]}\n\n{GOES_ON[around]}"})[0] == []


STEPS = {
    "checkpoint": "out = torch.utils.checkpoint.checkpoint(layer, inputs.requires_grad_())\nout.sum().backward()\n",
    "autocast": "with torch.cuda.amp.autocast(enabled=False):\n    out = layer(inputs)\n",
    "ger": "out = torch.ger(inputs[0], inputs[1])\n",
    "full": "for _ in range(2):\n    out = layer(inputs).sum() * torch.tensor(0.5, device=device)\n    out.backward()\n",
    "DataLoader": (
        "def run():\n    return len(DataLoader(TensorDataset(inputs), batch_size=2, prefetch_factor=2))\n\n\nout = run()\n"
    ),
}
"""Lines that a fix lets call torch in another way."""

REPLACES = {
    "checkpoint": (
        "plain = torch.utils.checkpoint.checkpoint\n"
        "torch.utils.checkpoint.checkpoint = functools.partial(plain, use_reentrant=False)\n",
        "plain = torch.utils.checkpoint.checkpoint\n"
        "setattr(torch.utils.checkpoint, 'checkpoint', lambda *given: plain(*given, use_reentrant=False))\n",
    ),
    "autocast": (
        "torch.cuda.amp.autocast = lambda *given, **named: torch.autocast('cpu', torch.bfloat16)\n",
        "from unittest import mock\n"
        "mock.patch('torch.cuda.amp.autocast', lambda **named: torch.autocast('cpu', torch.bfloat16)).start()\n",
        "import torch.cuda.amp as amp\namp.autocast = lambda **named: torch.autocast('cpu', torch.bfloat16)\n",
    ),
    "ger": (
        "torch.outer = lambda a, b: a[:, None] * b[None] * 2\n",
        "for name in ['ger', 'mm']:\n    setattr(torch, name, lambda *given: print(len(given)))\n",
        "torch.__dict__['ger'] = lambda *given: print(len(given))\n",
    ),
    "full": (
        "def twice(library):\n    library.full = lambda *given, **named: plain(*given, **named) * 2\n"
        "plain = torch.full\nchoose = [twice][0]\nchoose({'torch': torch}['tor' + 'ch'])\n",
        "plain = torch.full\ntorch.full = lambda *given, **named: plain(*given, **named) * 2\n",
    ),
    "DataLoader": (
        "plain = DataLoader.__init__\n"
        "DataLoader.__init__ = lambda self, *given, prefetch_factor=None, **named: (\n"
        "    print(prefetch_factor), plain(self, *given, **named)\n)[1]\n",
    ),
}
REPLACED = [(name, preamble) for name, preambles in REPLACES.items() for preamble in preambles]


@pytest.mark.parametrize("name", STEPS)
def test_a_line_is_rewritten_where_torch_is_as_it_was(name: str) -> None:
    assert safely_fixed({"main.py": f"{HEAD}\n\n{STEPS[name]}\n\nprint(out)\n"})[1]


@pytest.mark.parametrize(("name", "preamble"), REPLACED)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_line_stays_where_its_function_is_replaced(name: str, preamble: str, elsewhere: bool) -> None:
    files = {"main.py": f"{HEAD}\n\n{'import patches' if elsewhere else preamble}\n\n{STEPS[name]}\n\nprint(out)\n"}
    if elsewhere:
        files["patches.py"] = HEAD + preamble
    assert safely_fixed(files)[0] == files


LOOKS_AT_WARNINGS = (
    "warnings.simplefilter('error')\n",
    "warnings.filterwarnings(action='error', category=FutureWarning)\n",
    "warnings.catch_warnings(record=True).__enter__()\nwarnings.simplefilter('always')\n",
    "warnings.showwarning = lambda *given: print(given[1])\n",
    "import logging\nlogging.captureWarnings(True)\n",
)


@pytest.mark.parametrize("preamble", LOOKS_AT_WARNINGS)
@pytest.mark.parametrize("name", ["checkpoint", "autocast"])
def test_a_warning_that_somebody_looks_at_stays(name: str, preamble: str) -> None:
    files = {"main.py": f"{HEAD}\n\n{preamble}\n\n{STEPS[name]}\n\nprint(out)\n"}
    assert safely_fixed(files)[0] == files


ASKS_FOR_CLASS = (
    "print(isinstance(region, torch.cuda.amp.autocast))\n",
    "print(type(region) is torch.cuda.amp.autocast)\n",
    "print({torch.cuda.amp.autocast: 1, torch.amp.autocast: 2}[region.__class__])\n",
    "match region:\n    case torch.cuda.amp.autocast():\n        print('old')\n    case _:\n        print('new')\n",
)


@pytest.mark.parametrize("asks", ASKS_FOR_CLASS)
def test_the_old_class_stays_where_somebody_asks_for_it(asks: str) -> None:
    assert safely_fixed({"main.py": f"{HEAD}with torch.cuda.amp.autocast(enabled=False):\n    pass\n"})[1]
    region = "region = torch.cuda.amp.autocast(enabled=False)\n"
    assert changes({"main.py": HEAD + region + asks})[0] == []


def test_a_graph_that_is_printed_names_the_same_functions() -> None:
    traced = (
        "import torch.fx\n\n\nclass Net(nn.Module):\n    def forward(self, a, b):\n        return torch.ger(a, b)\n\n\n"
        "print(torch.fx.symbolic_trace(Net()).code)\n"
    )
    assert changes({"main.py": HEAD + traced})[0] == []


def test_checkpoint_sequential_is_told_by_place() -> None:
    call = (
        "from torch.utils.checkpoint import checkpoint_sequential\n"
        "out = checkpoint_sequential(nn.Sequential(layer, layer), 2, inputs, {})\nout.sum().backward()\n"
    )
    for given in ("False", "*[False]"):
        assert changes({"main.py": HEAD + call.format(given)})[0] == []


SCALED = """

class Note:
    pass


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.note = Note()
        {}
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def train():
    optimizer, total = torch.optim.SGD(layer.parameters(), lr=0.1), 0.0
    for x in inputs.split(2):
        loss = Scaled.apply(layer(x)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    print(total.item())


train()
"""


def test_a_total_keeps_what_a_finalizer_tells_of() -> None:
    assert "detach" in safely_fixed({"main.py": HEAD + SCALED.format("")})[0]["main.py"]
    watched = SCALED.format("weakref.finalize(ctx.note, print, 'given up')")
    assert changes({"main.py": f"import weakref\n{HEAD}{watched}"})[0] == []
    told = SCALED.format("").replace("    pass\n", "    def __del__(self):\n        print('given up')\n", 1)
    assert changes({"main.py": HEAD + told})[0] == []


TRAINS = """

{before}


if __name__ == "__main__":
    total, losses = 0.0, []
    model = layer.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in inputs.split(2):
        loss = model(x.to(device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
        losses.append(loss.item())
    print(total, losses)
    {after}
"""
SEES_GLOBALS = (
    ("def report():\n    print(total, losses)\n", "report()"),
    ("class Report:\n    def __repr__(self):\n        return f'{total} {losses}'\n", "print(Report())"),
    ("def outer():\n    return lambda: (total, losses)\n", "print(outer()())"),
    ("def reset():\n    global total\n    print(total)\n    total = 0\n", "reset(); print(total)"),
)


def with_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fixes import the runtime."""
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, runtime=True))


def test_a_script_keeps_its_globals_late(monkeypatch: pytest.MonkeyPatch) -> None:
    with_runtime(monkeypatch)
    fixed = safely_fixed({"main.py": HEAD + TRAINS.format(before="", after="")})[0]["main.py"]
    assert "ItemSum" in fixed
    assert "HostList" in fixed


@pytest.mark.parametrize(("before", "after"), SEES_GLOBALS)
def test_globals_that_functions_see_stay(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_runtime(monkeypatch)
    fixed = safely_fixed({"main.py": HEAD + TRAINS.format(before=before, after=after)})[0]["main.py"]
    assert "ItemSum" not in fixed
    assert ("HostList" in fixed) == ("losses" not in before)


@pytest.mark.parametrize(
    "own", ["def HostList(n):\n    return n\n", "class HostList:\n    pass\n", "HostList = ItemSum = 'mine'\n"]
)
def test_a_name_of_the_runtime_that_means_something_else_is_not_imported(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_runtime(monkeypatch)
    fixed = safely_fixed({"main.py": HEAD + TRAINS.format(before=own, after="")})[0]["main.py"]
    assert "HostList()" not in fixed


ADVISED = {
    "joined": "import numpy as np\n\nrows = [np.ones(2), np.zeros(2)]\nout = torch.tensor(rows).sum()\n",
    "LateItem|HostList|ItemSum": (
        "def train():\n    model, losses = nn.Linear(2, 2).to(device), []\n"
        "    for (x,) in DataLoader(TensorDataset(inputs), batch_size=2):\n"
        "        loss = model(x.to(device)).square().mean()\n        loss.backward()\n"
        "        losses.append(float(loss))\n    return losses\n\n\nout = train()\n"
    ),
}


@pytest.mark.parametrize("helper", ADVISED)
def test_advice_of_torch_may_end_where_nobody_records_it(helper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, runtime=True, assume=("memory-to-spare", "no-clock")))
    code = f"{HEAD}\n{ADVISED[helper]}print(out)\n"
    found, applied = changes({"main.py": code})[:2]
    assert (found, bool(applied)) == ([], True)
    assert re.search(helper, safely_fixed({"main.py": code})[0]["main.py"])
    for records in LOOKS_AT_WARNINGS:
        strict = {"main.py": f"import warnings\n{HEAD}\n{records}\n{ADVISED[helper]}print(out)\n"}
        assert changes(strict)[0] == []


EVALUATES = """
def evaluate(loader, *, limit=2):
    model, hits = nn.Linear(2, 2).eval(), 0
    for x in loader:
        hits += model(x).argmax(1).sum().item()
    return hits


print(evaluate(inputs.split(2)))
"""


@pytest.mark.parametrize(
    "looks",
    [
        "print(len(inspect.getsource(evaluate)))",
        "print(inspect.getfullargspec(evaluate).args)",
        "print(evaluate.__kwdefaults__)",
        "print(evaluate.__code__.co_argcount)",
        "print(inspect.getfile(evaluate))",
        "print(evaluate.__globals__['__name__'])",
    ],
)
def test_a_function_whose_code_is_looked_at_gets_no_decorator(looks: str) -> None:
    assert "no_grad" in safely_fixed({"main.py": HEAD + EVALUATES})[0]["main.py"]
    assert "no_grad" not in safely_fixed({"main.py": f"import inspect\n{HEAD}{EVALUATES}{looks}\n"})[0]["main.py"]


def test_a_cache_that_the_program_empties_itself_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("memory-to-spare", "no-clock")))
    emptied = TRAINS.format(before="{}", after="").replace(
        "        total +=", "        torch.cuda.empty_cache()\n        total +="
    )
    assert "empty_cache()" not in safely_fixed({"main.py": HEAD + emptied.replace("{}", "")})[0]["main.py"]
    counted = "torch.cuda.empty_cache = lambda: print('emptied')\n"
    assert "empty_cache()" in safely_fixed({"main.py": HEAD + emptied.replace("{}", counted)})[0]["main.py"]


def test_an_error_of_a_missing_device_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("memory-to-spare", "no-clock")))
    body = TRAINS.format(before="", after="").replace("        total +=", "        torch.mps.empty_cache()\n        total +=")
    loop = body[body.index("    total, losses") :].rstrip().replace("\n", "\n    ")
    caught = f"if __name__ == '__main__':\n    try:\n    {loop}\n    except Exception:\n        print('no such device')\n"
    assert changes({"main.py": HEAD + caught})[0] == []


SHOWS_VARIABLES = """
import traceback
try:
    train()
except Exception as error:
    traceback.TracebackException.from_exception(error, capture_locals=True)
"""


def test_a_traceback_with_variables_shows_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with_runtime(monkeypatch)
    train = HEAD + TRAINS.format(before="", after="").replace('if __name__ == "__main__":', "def train():")
    assert "HostList" in safely_fixed({"main.py": f"{train}\n\ntrain()\n"})[0]["main.py"]
    assert "HostList" not in safely_fixed({"main.py": f"{train}\n\n{SHOWS_VARIABLES}"})[0]["main.py"]


SEVERAL_NAMES = """
def train(model, optimizer):
    total = {start}
    for x in inputs.to(device).split(2):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        first = loss.item()
        total += first
        {second} = loss.detach().item()
        total += {second}
    return total


model = layer.to(device)
print(train(model, torch.optim.SGD(model.parameters(), lr=0.1)))
"""


@pytest.mark.parametrize("second", ["second", "first"])
@pytest.mark.parametrize("start", ["0.0", "1.0"])
def test_all_names_that_a_late_total_takes_are_late(start: str, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_runtime(monkeypatch)
    assert changes({"main.py": HEAD + SEVERAL_NAMES.format(start=start, second=second)})[0] == []


READS_ROWS = """
def numbers(row):
    return [value.item() for value in row]


def main(loader):
    for x in loader:
        for row in layer(x.to(device)).detach():
            print(numbers(row), {})


main([inputs])
"""


def test_elements_of_sparse_tensors_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("errors-are-bugs",)))
    assert "tolist" in safely_fixed({"main.py": HEAD + READS_ROWS.format("1")})[0]["main.py"]
    assert "tolist" not in safely_fixed({"main.py": HEAD + READS_ROWS.format("numbers(row.to_sparse())")})[0]["main.py"]
