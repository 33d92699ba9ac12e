"""Programs of several files whose meaning a fix once changed: they see which names a file has, or run it among their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning, outcomes
from fuzz.meaning import changes, safely_fixed
from fuzz.outcomes import Files, Outcome
from tests.test_meaning_traps import HEAD

ENGINE = (
    HEAD
    + """
def run():
    model, losses = nn.Linear(3, 2).to(device), []
    for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
        loss = F.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        losses.append(loss.item())
    return losses
"""
)
LISTS = """class HostList:
    def __init__(self, *values):
        self.kept = values
"""
USE = "print(run(), HostList(1, 2).kept)\n"
SCRIPT = (
    HEAD
    + """
if __name__ == "__main__":
    model, total = nn.Linear(3, 2).to(device), 0.0
    for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
        loss = F.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        weight = float(y.mean())
        total += loss.item() * weight
    print("trained")
"""
)
NAMED = {
    "the file's own name comes from another file": {"main.py": f"from lists import *\n{ENGINE}{USE}", "lists.py": LISTS},
    "a function makes the name": {
        "main.py": f"{ENGINE}\ndef start():\n    global HostList\n    HostList = list\n\n\nstart()\nprint(run(), HostList())\n"
    },
    "two files hand on all names": {
        "main.py": f"from lists import *\nfrom engine import *\n{USE}",
        "lists.py": LISTS,
        "engine.py": ENGINE,
    },
    "by way of a third file": {
        "main.py": f"from both import *\n{USE}",
        "both.py": "from lists import *\nfrom engine import *\n",
        "lists.py": LISTS,
        "engine.py": ENGINE,
    },
    "the name is asked for": {
        "main.py": "import engine\n\nprint(engine.run(), hasattr(engine, 'HostList'))\n",
        "engine.py": ENGINE,
    },
    **{
        f"all names are shown by {shown}": {
            "main.py": f"import inspect\nimport engine\n\nprint(engine.run(), sorted(n for n in {shown} if n[0] != '_'))\n",
            "engine.py": ENGINE,
        }
        for shown in (
            "dir(engine)",
            "vars(engine)",
            "engine.__dict__",
            "engine.__dir__()",
            "dict(inspect.getmembers(engine, inspect.isclass))",
            "next(map(dir, [engine]))",
            "[n for held in [engine] for n in dir(held)]",
            "(lambda show: show(engine))(vars)",
        )
    },
    **{
        f"something unknown is the module, by {found}": {
            "main.py": (
                f"import json\nimport sys\nimport engine\n\nheld = {found}\n"
                "print(engine.run(), sorted(n for n in vars(held) if n[0] != '_'))\n"
            ),
            "engine.py": ENGINE,
        }
        for found in ("json.loads('1', parse_int=lambda _: engine)", "sys.modules['engine']")
    },
    "something unknown is the module that another file hands on": {
        "main.py": (
            "import json\nimport parts\n\nheld = json.loads('1', parse_int=lambda _: parts.part)\n"
            "print(parts.part.run(), sorted(n for n in vars(held) if n[0] != '_'))\n"
        ),
        "parts.py": "import engine as part\n",
        "engine.py": ENGINE,
    },
    "all names are shown by a function that has another name": {
        "main.py": (
            "from inspect import getmembers as parts\nimport engine\n\n"
            "print(engine.run(), sorted(n for n, _ in parts(engine) if n[0] != '_'))\n"
        ),
        "engine.py": ENGINE,
    },
    "all names of a module that an object holds are shown": {
        "main.py": (
            "import engine\n\n\nclass Holder:\n    held = engine\n\n\n"
            "print(engine.run(), sorted(n for n in dir(Holder.held) if n[0] != '_'))\n"
        ),
        "engine.py": ENGINE,
    },
    "all names are shown after an import of all": {
        "main.py": "from engine import *\n\nprint(run(), sorted(n for n in globals() if n[0] != '_'))\n",
        "engine.py": ENGINE,
    },
    **{
        f"a file shows its own names by {shown}": {
            "main.py": f"{ENGINE}\nnamed = {shown}\nprint(run(), sorted(n for n in list(named) if n[0] != '_'))\n"
        }
        for shown in ("globals()", "locals()", "(lambda get: get())(globals)")
    },
    **{
        f"another file shows the names of what it is given, as {shown}": {
            "main.py": "import engine\nimport utils\n\nprint(engine.run(), utils.names(engine))\n",
            "engine.py": ENGINE,
            "utils.py": f"def names(module):\n    return sorted(n for n in {shown} if n[0] != '_')\n",
        }
        for shown in ("dir(module)", "[k for k, v in module.__dict__.items() if isinstance(v, type)]")
    },
    **{
        f"all names are taken by {taken}": {
            "main.py": (
                "import operator\nimport runpy\nimport engine\n\n"
                f"print(engine.run(), sorted(n for n in {taken} if n[0] != '_'))\n"
            ),
            "engine.py": ENGINE,
        }
        for taken in (
            "engine.run.__globals__",
            "operator.attrgetter('__dict__')(engine)",
            "getattr(engine, '__dict__')",
            "runpy.run_path('engine.py')",
        )
    },
    "a default is all of a file's own names": {
        "main.py": (
            f"{ENGINE}\n\ndef show(named=globals()):\n    return sorted(n for n in list(named) if n[0] != '_')\n\n\n"
            "print(run(), show())\n"
        )
    },
}
RUN = {
    "exec": "names = {'__name__': '__main__'}\nexec(open('train.py').read(), names)\n",
    "a compiled text": (
        "names = {'__name__': '__main__'}\n"
        "with open('train.py') as f:\n    exec(compile(f.read(), 'train.py', 'exec'), names)\n"
    ),
    "runpy": "import runpy\n\nnames = runpy.run_path('train.py', run_name='__main__')\n",
}
HARMLESS = {
    "nothing sees it": {"main.py": f"{ENGINE}\nprint(run())\n"},
    "one name of another file is looked up": {
        "main.py": "import engine\n\nprint(engine.run(), engine.__dict__['run'] is vars(engine)['run'])\n",
        "engine.py": ENGINE,
    },
    "a function shows its own names": {
        "main.py": f"{ENGINE}\ndef show(a, b):\n    return sorted(locals())\n\n\nprint(run(), show(1, 2))\n"
    },
    "the names of an object are shown": {
        "main.py": "import argparse\nfrom engine import run\n\nargs = argparse.Namespace(a=1)\nprint(run(), vars(args))\n",
        "engine.py": ENGINE,
    },
    "the names of something unknown are shown, and no module is handed on": {
        "main.py": (
            "import json\nimport types\nimport engine\n\n"
            "held = json.loads('{}', object_hook=lambda d: types.SimpleNamespace(a=1))\nprint(engine.run(), vars(held))\n"
        ),
        "engine.py": ENGINE,
    },
    "another file shows the names of what it is given, and is given no module": {
        "main.py": "import engine\nimport utils\n\nprint(engine.run(), utils.names(len))\n",
        "engine.py": ENGINE,
        "utils.py": "def names(given):\n    return sorted(n for n in dir(given) if n[0] != '_')\n",
    },
    "the other file has the same name from the runtime": {
        "main.py": "from perflint_runtime import HostList\nfrom engine import *\n\nprint(run(), HostList().values())\n",
        "engine.py": ENGINE,
    },
}


@pytest.fixture(autouse=True)
def _with_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, runtime=True))


@pytest.mark.parametrize("name", NAMED)
def test_the_names_of_a_file_stay_what_they_are(name: str) -> None:
    assert changes(NAMED[name])[0] == []


@pytest.mark.parametrize("how", RUN)
def test_what_another_file_runs_keeps_its_variables(how: str) -> None:
    files = {"main.py": f"{RUN[how]}print(names['total'])\n", "train.py": SCRIPT}
    assert "ItemSum" not in safely_fixed(files).files["train.py"]


@pytest.mark.parametrize("magic", ["%run train.py", "%run -i './train.py' --epochs 3"])
def test_what_a_notebook_runs_keeps_its_variables(magic: str) -> None:
    notebook = (
        f'{{"cells": [{{"cell_type": "code", "metadata": {{}}, "source": ["{magic}"]}}], "metadata": {{}}, "nbformat": 4}}'
    )
    assert "ItemSum" in safely_fixed({"train.py": SCRIPT}).files["train.py"]
    assert "ItemSum" not in safely_fixed({"train.py": SCRIPT, "look.ipynb": notebook}).files["train.py"]


@pytest.mark.parametrize("name", HARMLESS)
def test_fixes_import_what_nobody_sees(name: str) -> None:
    fixed = safely_fixed(HARMLESS[name]).files
    assert any("HostList()" in text and "import HostList" in text for text in fixed.values())
    assert changes(HARMLESS[name])[0] == []


AVERAGED = """
from torch.optim.swa_utils import AveragedModel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


KEPT = {{}}


def evaluate(model, batches):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in batches:
            right += (model(x) > y).sum().item()
            {kept}
    return right


model = Net()
print(evaluate(model, DataLoader(TensorDataset(inputs, targets), batch_size=2)))
KEPT["average"](inputs).sum().backward()
print([p.grad is None for p in KEPT["average"].parameters()])
"""


@pytest.mark.parametrize(
    "kept", ["KEPT.setdefault('average', AveragedModel(model))", "KEPT.update(average=AveragedModel(model))"]
)
def test_a_copy_that_an_evaluation_makes_can_be_trained(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    assert changes({"main.py": HEAD + AVERAGED.format(kept=kept)})[0] == []


HANDED_ON = """
import numpy as np

KEPT = []
{made}


def evaluate(model, batches):
    model.eval()
    right = 0
    {mode}:
        for x, y in batches:
            out = model(x)
            {call}
            right += (out > y).sum().item()
    return right


model = nn.Linear(3, 2)
print(evaluate(model, DataLoader(TensorDataset(inputs, targets), batch_size=2)))
{after}
"""


@pytest.mark.parametrize(
    ("made", "mode", "call", "after"),
    [
        ("def named(out):\n    return '{out}'.format(**locals())\n", "if True", "print(named(out))", ""),
        ("", "if True", "print(f'{[out]:}')", ""),
        (
            "def later(out):\n    yield out.add_(1).sum().item()\n",
            "with torch.no_grad()",
            "KEPT.append(later(out))",
            "print(next(KEPT[0]))",
        ),
        (
            "TABLE = np.empty(2, dtype=object)",
            "with torch.no_grad()",
            "TABLE[0] = out",
            "(TABLE[0] * model.weight.sum()).sum().backward(); print(model.weight.grad)\ndel TABLE",
        ),
        (
            "",
            "with torch.no_grad()",
            "row = np.empty(2, dtype=object); row[0] = out; KEPT.append(row)",
            "(KEPT[0][0] * model.weight.sum()).sum().backward(); print(model.weight.grad)\nKEPT.clear()",
        ),
    ],
    ids=["locals", "empty format", "generator", "table of objects", "row of objects"],
)
def test_what_an_evaluation_hands_on_is_seen(made: str, mode: str, call: str, after: str) -> None:
    text = HANDED_ON.format(made=made, mode=mode, call=call, after=after)
    assert changes({"main.py": HEAD + text})[0] == []


@pytest.mark.parametrize("call", ["row = np.zeros((2, 2))", "row = np.empty((2, 2), dtype=np.float32)"])
def test_an_array_of_numbers_keeps_no_tensor(call: str) -> None:
    text = HANDED_ON.format(made="", mode="with torch.no_grad()", call=f"{call}; row[:] = out[0]; KEPT.append(row)", after="")
    fixed = HANDED_ON.format(made="", mode="with torch.no_grad()", call=f"{call}; row[:] = out[0]", after="")
    assert "inference_mode" in safely_fixed({"main.py": HEAD + fixed}).files["main.py"]
    assert changes({"main.py": HEAD + text})[0] == []


CONTRADICTED = """
class Net(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        h = self.block(x)
        try:
            return h * float(h.numpy().max())
        except RuntimeError:
            return h * 2


def evaluate(model, batches):
    model.eval()
    total = 0.0
    for x, y in batches:
        total += (model(x) > y).sum().item()
    return total


model = Net(getattr(nn, "Lin" + "ear")(3, 2))
print(evaluate(model, DataLoader(TensorDataset(inputs, targets), batch_size=2)))
"""


def test_known_layers_say_nothing_of_the_file_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",)))
    assert changes({"main.py": HEAD + CONTRADICTED})[0] == []


PUT = """
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


{put}
model = Net()
for x, y in DataLoader(TensorDataset(inputs.view(2, 3, 3), targets[:2]), batch_size=2):
    model(x).sum().backward()
print(SEEN)
"""


@pytest.mark.parametrize(
    "put",
    [
        "torch.zeros = noted",
        "for torch.zeros in (noted,):\n    pass",
        "import contextlib\n\nwith contextlib.nullcontext(noted) as torch.zeros:\n    pass",
        "(torch.ones2, torch.zeros) = 1, noted",
        "[torch.zeros] = [noted]",
        "*[torch.zeros], last = noted, 1",
        "list(map(setattr, [torch], ['zeros'], [noted]))",
    ],
)
def test_a_function_of_torch_is_replaced_by_any_statement(put: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary", "errors-are-bugs")))
    run, torch = outcomes.outcome, pytest.importorskip("torch")

    def alone(files: Files) -> Outcome:
        with monkeypatch.context() as around:  # programs run in this process: what they replace is put back
            around.setattr(torch, "zeros", torch.zeros)
            return run(files)

    monkeypatch.setattr(meaning, "outcome", alone)
    assert changes({"main.py": HEAD.replace("randn(6, 3)", "randn(18)") + PUT.format(put=put)})[0] == []


RUNNER = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


{before}
model = Net()


class Runner{of}:
    def __init__(self):
        self.kept = []

{head}
    def evaluate(self):
        model.eval()
        right = 0
        with torch.no_grad():
            for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
                right += (self.head(model(x)) > y).sum().item()
        return right


{after}"""
)
"""An evaluation that gives what a network computes to a method, which an heir of the class may override."""
HEADS = """    def head(self, out):
        return out * 1

"""
KEEPS = """    def head(self, out):
        self.kept.append(out)
        return out * 1

"""
HEAD_FUNCTION = """def head(self, out):
    self.kept.append(out)
    return out * 1


"""
USED = """
runner = {runner}()
print(runner.evaluate())
sum((out * model.layer.weight.sum()).sum() for out in runner.kept).backward()
print(model.layer.weight.grad)
runner.kept.clear()
"""
LAST = "class Last({base}):\n" + KEEPS + USED.format(runner="Last")
HEIRS = {
    "of an heir, in a third file": {
        "main.py": "from runner import model\nfrom middle import Middle\n\n\n" + LAST.format(base="Middle"),
        "middle.py": "from runner import Runner\n\n\nclass Middle(Runner):\n    pass\n",
    },
    "by another name, from a third file": {
        "main.py": "import names\nfrom runner import model\n\n\n" + LAST.format(base="names.Base"),
        "names.py": "import runner\n\nBase = runner.Runner\n",
    },
    "of what a name in a text finds": {
        "main.py": "import runner as r\nfrom runner import model\n\n\n" + LAST.format(base="getattr(r, 'Run' + 'ner')"),
    },
    "of what a module has that is imported by its name": {
        "main.py": (
            "import importlib\nfrom runner import model\n\n\n" + LAST.format(base="importlib.import_module('runner').Runner")
        ),
    },
    "that holds another function under the name of the method": {
        "main.py": (
            "from runner import Runner, model\n\n\nclass Last(Runner):\n    def __init__(self):\n        super().__init__()\n"
            "        self.head = self.keep\n\n" + KEEPS.replace("def head", "def keep") + USED.format(runner="Last")
        )
    },
    "in a function": {
        "main.py": (
            "from runner import Runner, model\n\n\ndef made():\n    class Last(Runner):\n"
            + KEEPS.replace("    ", "        ").replace("                ", "            ")
            + "    return Last\n"
            + USED.format(runner="made()")
        )
    },
    "made by a function of another file": {
        "main.py": "from runner import Runner, model\nfrom maker import made\n" + USED.format(runner="made(Runner)"),
        "maker.py": "def made(base):\n    class Last(base):\n        def head(self, out):\n            self.kept.append(out)\n"
        "            return out * 1\n    return Last\n",
    },
    "in the first branch of two": {
        "main.py": (
            "from runner import Runner, model\n\nif model:\n    class Last(Runner):\n"
            + KEEPS.replace("    ", "        ").replace("                ", "            ")
            + "else:\n    class Last(Runner):\n        pass\n"
            + USED.format(runner="Last")
        )
    },
    **{
        f"made by {call}": {
            "main.py": f"from runner import Runner, model\n{imports}\n\n\n{HEAD_FUNCTION}{call}\n" + USED.format(runner="Last"),
            "maker.py": "def made(bases, **names):\n    return type('Last', bases, names)\n",
        }
        for imports, call in (
            ("make = type", "Last = make('Last', (Runner,), {'head': head})"),
            ("bases = (Runner,)", "Last = type('Last', bases, {'head': head})"),
            ("from maker import made", "Last = made((Runner,), head=head)"),
            ("class Meta(type): pass", "Last = Meta('Last', (Runner,), {'head': head})"),
            ("import types as t", "Last = t.new_class('Last', (Runner,), {}, lambda names: names.update(head=head))"),
        )
    },
}


@pytest.mark.parametrize("name", HEIRS)
def test_an_heir_overrides_what_an_evaluation_calls(name: str) -> None:
    runner = RUNNER.format(before="", of="", head=HEADS, after="")
    assert changes({"runner.py": runner, **HEIRS[name]})[0] == []


def test_an_heir_that_keeps_nothing_is_harmless() -> None:
    runner = RUNNER.format(before="", of="", head=HEADS, after="")
    main = "from runner import Runner\n\n\nclass Last(Runner):\n    name = 'last'\n\n\nprint(Last().evaluate())\n"
    assert "inference_mode" in safely_fixed({"main.py": main, "runner.py": runner}).files["runner.py"]


def _indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


ARMS = {
    "of two branches": f"    if FLAG:\n{_indented(KEEPS)}    else:\n{_indented(HEADS)}",
    "before a branch that is not taken": f"{KEEPS}    if not FLAG:\n{_indented(HEADS)}",
    "of a try": f"    try:\n        import json\n\n{_indented(KEEPS)}    except ImportError:\n{_indented(HEADS)}",
    "of a match": "".join(
        ("    match FLAG:\n        case 1:\n", *map(_indented, (_indented(KEEPS), "    case _:\n", _indented(HEADS))))
    ),
    "of a base, where a branch is not taken": f"    if not FLAG:\n{_indented(HEADS)}",
    "of a base, where a loop has no round": f"    for _ in range(FLAG - 1):\n{_indented(HEADS)}",
}
KEEPER = f"FLAG = 1\n\n\nclass Keeper:\n{KEEPS}"


@pytest.mark.parametrize("name", ARMS)
def test_one_of_two_definitions_of_a_method_is_kept(name: str) -> None:
    of = "(Keeper)" if "base" in name else ""
    code = RUNNER.format(before=KEEPER, of=of, head=ARMS[name], after=USED.format(runner="Runner"))
    assert changes({"main.py": code})[0] == []


def test_a_definition_behind_a_branch_is_the_one_that_is_kept() -> None:
    code = RUNNER.format(
        before=KEEPER, of="", head=f"    if FLAG:\n{_indented(KEEPS)}{HEADS}", after="print(Runner().evaluate())\n"
    )
    assert "inference_mode" in safely_fixed({"main.py": code}).files["main.py"]


STARS = {
    "behind the name": ("from harmless import head\nfrom keeping import *", {}),
    "behind another star": ("from harmless import *\nfrom keeping import *", {}),
    "in a branch": ("from harmless import head\n\nif device:\n    from keeping import *", {}),
    "of a file that hands it on": (
        "from harmless import head\nfrom more import *",
        {"more.py": "from keeping import head\n\n__all__ = ['head']\n"},
    ),
}
STARRED = (
    HEAD
    + """
{imports}
from kept import KEPT

model = nn.Linear(3, 2)


def evaluate():
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=2):
            right += (head(model(x)) > y).sum().item()
    return right


print(evaluate())
sum((out * model.weight.sum()).sum() for out in KEPT).backward()
print(model.weight.grad)
"""
)


@pytest.mark.parametrize("name", STARS)
def test_an_import_of_all_names_takes_the_place_of_one(name: str) -> None:
    imports, more = STARS[name]
    files = {
        "kept.py": "KEPT = []\n",
        "harmless.py": "def head(out):\n    return out * 1\n",
        "keeping.py": "from kept import KEPT\n\n\ndef head(out):\n    KEPT.append(out)\n    return out * 1\n",
        **more,
    }
    assert changes({**files, "main.py": STARRED.format(imports=imports)})[0] == []
    before = STARRED.format(imports="from keeping import *\nfrom harmless import head")
    assert "inference_mode" in safely_fixed({**files, "main.py": before}).files["main.py"]


WATCHED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


def evaluate(model, batches):
    model.eval()
    right = 0
    for x in batches:
        right += (model(x).argmax(1) == 1).sum().item()
    return right


print(evaluate(Net(), inputs.split(2)), [out.requires_grad for out in watch.KEPT])
"""
NAMES = ['"register_module_" + "forward_hook"', 'f"register_{kind}_hook"', '"register_module_forward" + "_hook"']


@pytest.mark.parametrize("name", NAMES)
def test_another_file_registers_a_hook_by_a_name_that_is_made(name: str) -> None:
    hook = f"getattr(module, {name})(lambda net, given, out: KEPT.append(out))"
    watch = f'import torch.nn.modules.module as module\n\nKEPT, kind = [], "module_forward"\n{hook}\n'
    assert changes({"watch.py": watch, "main.py": f"import watch\n{HEAD}{WATCHED}"})[0] == []


CHANGED_BY_OTHERS = (
    HEAD
    + """
import functools
import signal

KEPT = []


class Keeping(nn.Linear):
    def forward(self, x):
        KEPT.append(x)
        return super().forward(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def swap(net):
    net.head = Keeping(3, 2)
    return net


def plain(net):
    return net.train()


def apply_all(function, nets):
    for net in nets:
        function(net)


class Events:
    def __init__(self):
        self.functions = []

    def on(self, function):
        self.functions.append(function)
        return function

    def fire(self, *given):
        for function in self.functions:
            function(*given)

    def fire_all(self, given):
        for function in self.functions:
            function(given)


EVENTS = Events()
EVENTS.on(swap)
{before}


def evaluate(model, batches):
    model.eval()
    right = 0
    {mode}
        for x, y in batches:
            out = model(x)
            {step}
            right += (out > y).sum().item()
    return right


model = Net()
{change}
print(evaluate(model, DataLoader(TensorDataset(inputs, targets), batch_size=2)))
print([(kept.requires_grad, kept.is_inference()) for kept in KEPT])
del EVENTS
"""
)
BY_OTHERS = {
    "a function that is handed on": {"change": "apply_all(swap, [model])"},
    "functions of a list": {"change": "for step in [plain, swap]:\n    model = step(model)"},
    "functions of a list by name": {"before": "STEPS = [plain, swap]", "change": "for step in STEPS:\n    model = step(model)"},
    "callbacks": {"change": "EVENTS.fire(model)"},
    "callbacks that get a tuple": {"change": "EVENTS.fire(*(model,))"},
    "callbacks by another name": {"change": "fire = EVENTS.fire\nfire(model)"},
    "a lambda in place": {"change": "(lambda net: swap(net))(model)"},
    "a lambda that sets in a comprehension": {"change": "(lambda net: [None for net.head in [Keeping(3, 2)]])(model)"},
    "a part of a function": {"change": "functools.partial(swap)(model)"},
    **{
        f"what nobody knows to be a network: {name}": {
            "before": f"import contextlib\nimport dataclasses\nimport threading\n{made}",
            "change": change,
        }
        for name, made, change in (
            ("a field", "@dataclasses.dataclass\nclass Box:\n    net: object\n", "swap(Box(model).net)"),
            (
                "a method of a record",
                "@dataclasses.dataclass\nclass Box:\n    net: object\n\n    def __post_init__(self):\n"
                "        self.net.head = Keeping(3, 2)\n",
                "Box(model)",
            ),
            ("one of two", "TABLE = {'swap': swap}", "TABLE['swap'](model if device else None)"),
            ("a region", "using = contextlib.nullcontext", "with using(model) as net:\n    net.head = Keeping(3, 2)"),
            ("a thread's", "", "t = threading.Thread(target=swap, kwargs={'net': model})\nt.start()\nt.join()\ndel t"),
            (
                "an operator's",
                "class Patch:\n    def __ror__(self, net):\n        return swap(net)\n",
                "model | Patch()",
            ),
            ("an item's", "class Patch:\n    def __setitem__(self, key, net):\n        swap(net)\n", "Patch()[0] = model"),
            ("a pattern's", "", "match model:\n    case Net() as net:\n        net.head = Keeping(3, 2)"),
            (
                "a global's",
                "HELD = []\n\n\ndef change(layer):\n    HELD[0].head = layer\n",
                "HELD.append(model)\nchange(Keeping(3, 2))",
            ),
        )
    },
    "a signal's handler": {
        "before": "def handle(number, frame):\n    KEPT.append(frame.f_locals['out'])\n\n\n"
        "signal.signal(signal.SIGUSR1, handle)",
        "step": "signal.raise_signal(signal.SIGUSR1)",
    },
}


@pytest.mark.parametrize("mode", ["if True:", "with torch.no_grad():"])
@pytest.mark.parametrize("name", BY_OTHERS)
def test_a_function_that_is_called_by_another_name_changes_a_network(name: str, mode: str) -> None:
    parts = {"before": "", "step": "pass", "change": ""} | BY_OTHERS[name]
    assert changes({"main.py": CHANGED_BY_OTHERS.format(mode=mode, **parts)})[0] == []


@pytest.mark.parametrize("change", ["", "apply_all(print, [1])", "EVENTS.fire(1)", "for step in [plain]:\n    pass"])
def test_functions_that_get_no_network_are_harmless(change: str) -> None:
    code = CHANGED_BY_OTHERS.format(mode="if True:", before="", step="pass", change=change)
    code = code.replace("    net.head = Keeping(3, 2)\n", "")
    assert "no_grad" in safely_fixed({"main.py": code}).files["main.py"]


POOLED = (
    HEAD
    + """
class Pools(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pool, self.head = nn.Embedding(50, 16), nn.MaxPool1d(2), nn.Linear(16 * 5, 3)

    def forward(self, ids):
        pooled = {pool}(self.embed(ids).transpose(1, 2){width})
        return self.head(pooled.transpose(1, 2).view(ids.size(0), -1))


def evaluate(loader):
    model, hits = Pools(), 0
    model.eval()
    for ids in loader:
        hits += model(ids).argmax(1).sum().item()
    return hits


print(evaluate([torch.randint(0, 50, (4, 10)) for _ in range(3)]))
"""
)


@pytest.mark.parametrize(("pool", "width"), [("F.max_pool1d", ", 2"), ("torch.max_pool1d", ", 2"), ("self.pool", "")])
def test_pooling_lays_out_what_it_gives_otherwise_without_a_graph(pool: str, width: str) -> None:
    """The view of a transposed result raises then."""
    assert changes({"main.py": POOLED.format(pool=pool, width=width)})[0] == []


ELEMENTS = (
    HEAD
    + """
def count(batches):
    model, seen, missing = nn.Linear(8, 4).to(device), [], 0
    for x in batches:
        flat = model(x.to(device)).flatten()[:12]
        for i in range(len(flat)):
            {reads}
    return missing


print(count([torch.full((4, 8), float("nan")), torch.randn(4, 8)]))
"""
)


@pytest.mark.parametrize(
    ("reads", "is_safe"),
    [
        ("seen.append(flat[i].item()); missing += flat[i].item() not in seen", False),
        ("first, second = flat[i].item(), flat[i].item(); missing += first is second", False),
        ("seen.append(flat[i].item())", True),
        ("missing += flat[i].item() > 0 and flat[i].item() < 1", True),
    ],
)
def test_elements_that_are_read_twice_are_objects_of_their_own(reads: str, is_safe: bool) -> None:
    """A list finds a nan only where it holds the same object."""
    files = {"main.py": ELEMENTS.format(reads=reads)}
    assert changes(files)[0] == []
    assert ("tolist" in safely_fixed(files).files["main.py"]) is is_safe
