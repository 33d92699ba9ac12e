"""Programs whose meaning a fix once changed by what is around the code: regions, handlers, names that are replaced."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed
from perflint.rule.assumptions import ASSUMPTIONS
from tests.test_fuzz_meaning import CALL, STEP
from tests.test_fuzz_meaning import HEAD as LONG_HEAD

HEAD = LONG_HEAD.partition("KEPT")[0]

TRAINED = """
def train(model, loader, criterion):
    total = {start}
    for x, y in loader:
        {in_step}
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        {add}
    print("trained")
    return total


def main(criterion):
    model = nn.Linear(3, 2).to(device)
    return train(model, DataLoader(TensorDataset(inputs, targets), batch_size=2), criterion)


{run}
"""


def trained(run: str, start: str = "0.0", add: str = "total += loss.item()", in_step: str = "pass", head: str = "") -> str:
    return HEAD + head + TRAINED.format(start=start, add=add, in_step=in_step, run=run)


FACTORIES = {
    "zeros": "print(torch.zeros(len(x)).to(device).device)",
    "number": "print(torch.tensor(2.0).to(device).device)",
    "state": "print(nn.GRUCell(3, 4)(x, torch.zeros(len(x), 4).to(x.device)).shape)",
}
ENTERED = {
    "device": 'with torch.device("meta"):\n            {}',
    "device by another name": 'place = torch.device("meta")\n        with place:\n            {}',
    "device in a stack": (
        "with contextlib.ExitStack() as stack:\n            stack.enter_context(torch.device('meta'))\n            {}"
    ),
    "device in a function": "with place():\n            {}",
}
PLACE = """import contextlib


@contextlib.contextmanager
def place():
    with torch.device("meta"):
        yield


"""
TRIED = "try:\n    print(main(F.mse_loss))\nexcept (NotImplementedError, RuntimeError) as error:\n    print(type(error))"
FLOATS = ["builtins.float = real", "setattr(builtins, 'float', real)", "vars(builtins)['float'] = real", "other.float = real"]
SETS_REDUCTION = [
    "criterion.__dict__['reduction'] = 'none'",
    "vars(criterion)['reduction'] = 'none'",
    "criterion.__dict__.update(reduction='none')",
    "nn.MSELoss.__init__(criterion, reduction='none')",
]

STATES = """{head}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.cell = nn.GRU(3, 4, batch_first=True), nn.GRUCell(3, 4)

    def init_hidden(self, n):
        return torch.zeros(1, n, 4)

    def forward(self, x):
        {forward}


def train(net, batches):
    for x in batches:
        out = net(x)
        out.sum().backward()
        print(out.sum())


net = Net()
{run}
"""
ONE_LAYER = "return self.gru(x, torch.zeros(1, x.size(0), 4))[0]"
RUN = "train(net, torch.randn(6, 5, 3).split(2))"
LOUD = """class Loud(nn.GRU):
    def forward(self, x, state=None):
        print(state is None)
        return super().forward(x, state)


"""
BATCH = """class Batch:
    def __init__(self, x):
        self.x = x

    def size(self, dim):
        return self.x.size(dim)

    def __getitem__(self, key):
        return self.x[key]


"""
RECURRENT = {
    "zeros of another object's method": STATES.format(
        head="",
        forward="return self.gru(x, self.init_hidden(x.size(0)))[0]",
        run=f"net.init_hidden = lambda n: torch.ones(1, n, 4)\n{RUN}",
    ),
    "layer of another class": STATES.format(
        head=LOUD + "plain, nn.GRU = nn.GRU, Loud\n", forward=ONE_LAYER, run=f"{RUN}\nnn.GRU = plain"
    ),
    "batch without a device": STATES.format(
        head=BATCH,
        forward="h = torch.zeros(x.size(0), 4)\n        for t in range(5):\n            h = self.cell(x[:, t], h)\n"
        "        return h",
        run=RUN.replace("net, torch.randn(6, 5, 3).split(2)", "net, map(Batch, torch.randn(6, 5, 3).split(2))"),
    ),
}

TEACHER = """teacher, student = nn.Linear(3, 2), nn.Linear(3, 2)


def step(x):
    with torch.inference_mode():
        target = teacher(x)
    {}


{}
print(student.weight.grad)
"""
USED = "(student(x) * target).sum().backward()"
TEACHERS = {
    "suppressed": TEACHER.format(
        f"with contextlib.suppress(RuntimeError):\n        {USED}", "import contextlib\nfor x in inputs.split(2): step(x)"
    ),
    "tested": TEACHER.format(
        USED,
        "import unittest\nclass Test(unittest.TestCase):\n    def test(self): step(inputs)\n"
        "print(len(unittest.TestSuite([Test('test')]).run(unittest.TestResult()).errors))",
    ),
}

MIXED = {
    "class of a scaler": "s = torch.cuda.amp.GradScaler(enabled=False)\nprint(type(s).__module__)",
    "text of a scaler": "s = torch.cuda.amp.GradScaler(enabled=False)\nprint(repr(s).partition(' ')[0])",
    "region by a name": "region = torch.cuda.amp.autocast(enabled=False)\nprint(type(region).__module__)",
    "unknown argument": "try:\n    torch.cuda.amp.GradScaler(device='cpu')\nexcept TypeError as error:\n    print(error)",
    "too many arguments": (
        "try:\n    torch.cuda.amp.autocast(False, torch.float16, True, 1)\nexcept TypeError as error:\n    print('no')"
    ),
}

GROWS = """rounds = []


def grown(value):
    rounds.append(value)
    return value.detach() * 1.0


"""
ORDERED = {
    "weight": ("0.0", "total = total + len(rounds) * grown(loss).item()"),
    "part of a number": ("[]", "total.append(len(rounds) - grown(loss).item())"),
    "key": ("{0: 0.0, 1: 0.0, 2: 0.0, 3: 0.0}", "total[len(rounds)] += grown(loss).item()"),
}
WRITES = {
    "in the statement of the reads": (
        "shown = loss.detach() * 1.0\n        print(shown.mul_(2).shape, shown.item(), shown.item())"
    ),
    "in the branch of the first read": (
        "shown = loss.detach() * 1.0\n        if len(x) == 2:\n            shown.mul_(2)\n            print(shown.item())\n"
        "        print(shown.item())"
    ),
}
STEPPED = """
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def fit():
    {first}
    for x, y in zip(inputs.split(2), targets.split(2)):
        loss = F.mse_loss(model(x), y)
        {between}
        optimizer.zero_grad({given})
        loss.backward()
        optimizer.step()
    {last}


fit()
print(model.weight)
"""
ASKED = """asked, seen = queue.Queue(), queue.Queue()

    def watch():
        while asked.get():
            seen.put(model.weight.grad is None)

    threading.Thread(target=watch, daemon=True).start()"""
ZEROED = {
    "named argument": STEPPED.format(first="", between="drop = len(x) == 2", given="set_to_none=drop", last=""),
    "argument that is computed": STEPPED.format(first="", between="", given="bool(loss > 0)", last=""),
    "gradients that another thread looks at": "import queue\nimport threading\n"
    + STEPPED.format(first=ASKED, between="asked.put(True); print(seen.get())", given="", last="asked.put(False)"),
}

FEATURES = """
backbone, head, weight = nn.Linear(3, 2), nn.Linear(2, 2), torch.ones(2, requires_grad=True)


def scaled(value, factor=1):
    return (value * weight).sum() * factor


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, value):
        return value * self.weight


scale = Scale()


def show(loader):
    for x, y in loader:
        with torch.no_grad():
            out = backbone(x)
            pair = {{"out": out, "first": out[0]}}
        print({}.sum().item())


show(DataLoader(TensorDataset(inputs, targets), batch_size=2))
"""
MET = {
    "parameter": "(out * weight)",
    "parameter on the left": "(head.weight @ out.T)",
    "layer": "head(out)",
    "layer of one's own": "scale(out)",
    "layer of several": "nn.Sequential(nn.ReLU(), head)(out)",
    "function of torch": "F.linear(out, head.weight)",
    "method": "out.mul(weight)",
    "method of the other one": "weight.mul(out)",
    "function of the program": "scaled(out)",
    "function by a lambda": "(lambda value: value * weight)(out)",
    "function of a function": "list(map(scaled, [out]))[0]",
    "part of it": "(pair['first'] * weight)",
    "index": "weight[(out > 0).long()[0]]",
    "result of one of its own": "(out[:, :2].T.T * weight)",
    "sum in place": "sum([row * weight for row in out])",
    "another thread of numbers": "torch.stack([scaled(row) for row in out])",
}
"""What is computed outside of a region with a tensor of it, and saved for a backward pass that never comes."""

SWALLOWED = """from torch.utils.data import DataLoader, TensorDataset


class Quiet:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def main():
    def made():
        loader = DataLoader(TensorDataset(torch.randn(6, 3)), prefetch_factor=2)
        print(len(loader))

    def ended():
        {}

    print(ended())


main()
"""
"""An error of a constructor, and who takes it."""
SWALLOWS = (
    "try:\n            return made()\n        finally:\n            return 'ended'",
    "with Quiet():\n            made()\n        return 'ended'",
)

TRAPS = {
    **{f"an error ends in: {where}": HEAD + SWALLOWED.format(where) for where in SWALLOWS},
    **{f"tensor of a region meets: {name}": HEAD + FEATURES.format(code) for name, code in MET.items()},
    **{f"gradients are cleared: {name}": HEAD + code for name, code in ZEROED.items()},
    **{f"write {where}": trained("print(main(F.mse_loss))", add=add) for where, add in WRITES.items()},
    **{f"state: {name}": HEAD + code for name, code in RECURRENT.items()},
    **{f"inference tensor in code that is {name}": HEAD + code for name, code in TEACHERS.items()},
    **{f"mixed precision: {name}": HEAD + code for name, code in MIXED.items()},
    **{
        f"{factory} within a {entered}": trained(TRIED, in_step=form.format(made), head=PLACE)
        for factory, made in FACTORIES.items()
        for entered, form in ENTERED.items()
    },
    **{
        f"float of the program: {how}": trained(
            "import builtins\nimport builtins as other\n\n\nclass real(float):\n    def __new__(cls, number):\n"
            "        return super().__new__(cls, 1.0)\n\n\nplain = float\ntry:\n    print(main(F.mse_loss))\n"
            "finally:\n    builtins.float = plain",
            in_step=how,
        )
        for how in FLOATS
    },
    **{
        f"loss of several numbers: {how}": trained(
            f"criterion = nn.MSELoss()\n{how}\n"
            "try:\n    print(main(criterion))\nexcept RuntimeError as error:\n    print(error)",
            add="",
        )
        .replace("loss.backward()", "total += loss.item()")
        .replace("loader, criterion)", "loader, _)")
        for how in SETS_REDUCTION
    },
}

METER = """class Meter:
    def __init__(self):
        self.sum = 0.0

    def update(self, value):
        assert value < 0.1
        self.sum += value


"""
TRAPS_WITH_RUNTIME = {
    **{
        f"{what} that is evaluated before a read": trained(
            "print(main(F.mse_loss))",
            start=start,
            add=add,
            head=GROWS,
        )
        for what, (start, add) in ORDERED.items()
    },
    "meter that raises within a handler of a caller's caller": trained(
        "try:\n    print(main(F.mse_loss))\nexcept AssertionError:\n    print('too large')",
        start="Meter()",
        add="total.update(loss.item()); print('counted')",
        head=METER,
    ).replace("return total", "return total.sum"),
}


READ_AS_AN_ATTRIBUTE = """
class Report:
    def __init__(self, *given):
        self.given = given

    {decorator}
    def {name}(self):
        model, x = self.given
        model.eval()
        print(sum(model(part).sum().item() for part in x.split(1)))
        return 1


def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        {read}
        print(loss.item())


model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(device)
with torch.autocast("cpu", dtype=torch.bfloat16):
    train(model, DataLoader(TensorDataset(inputs, targets), batch_size=2), torch.optim.SGD(model.parameters(), lr=0.1))
"""
UNNAMED_RUNS = {
    "a property": ("@property", "shown", "Report(model, x).shown"),
    "a cached property": ("@functools.cached_property", "shown", "Report(model, x).shown"),
    "a length": ("# rows", "__len__", "len(Report(model, x))"),
    "an operator": ("# less", "__neg__", "-Report(model, x)"),
}


@pytest.mark.parametrize("name", UNNAMED_RUNS)
def test_what_runs_a_method_without_its_name_is_a_caller_that_nobody_sees(name: str) -> None:
    decorator, method, read = UNNAMED_RUNS[name]
    program = HEAD + "import functools\n" + READ_AS_AN_ATTRIBUTE.format(decorator=decorator, name=method, read=read)
    assert changes({"main.py": program})[0] == []


@pytest.mark.parametrize("name", TRAPS)
def test_trap(name: str) -> None:
    assert changes({"main.py": TRAPS[name]})[0] == []


@pytest.mark.parametrize("name", TRAPS_WITH_RUNTIME)
def test_trap_with_runtime(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",), runtime=True))
    assert changes({"main.py": TRAPS_WITH_RUNTIME[name]})[0] == []


MASKED = """
def mask_of(other):
    return other > 0


def narrowed(mask, other):
    mask &= other.flip(0) > 0
    return mask


def evaluate(model, loader):
    kept = []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        mask = {mask}
        {before}
        first = {first}
        {between}
        last = {last}
        (out.sum() + first.sum() * 3 + last.exp().sum()).backward()
        kept.append(model.weight.grad.sum().item())
    return kept


torch.manual_seed(0)
print(evaluate(nn.Linear(3, 2).to(device), DataLoader(TensorDataset(inputs, targets), batch_size=2)))
"""
"""A mask that selects several times."""
SELECTED = {
    "twice": ("y > 0", "pass", "out[mask] * y[mask]", "pass", "out[mask]"),
    "stored": ("y > 0", "w = torch.zeros_like(out)", "y[mask]", "w[mask] = out[mask].detach()", "w[mask] * out[mask]"),
    "from a function": ("mask_of(y)", "pass", "out[mask] * y[mask]", "pass", "out[mask]"),
    "written to": ("y > 0", "pass", "out[mask] * y[mask]", "mask.logical_not_()", "out[mask]"),
    "written by another name": ("y > 0", "other = mask", "out[mask]", "other ^= y > 1", "out[mask]"),
    "a view is written to": ("y > 0", "row = mask[0]", "out[mask]", "row.fill_(True)", "out[mask]"),
    "written by a function": ("y > 0", "pass", "out[mask]", "narrowed(mask, y)", "out[mask]"),
    "written within a statement": (
        "y > 0",
        "pass",
        "out[mask] + 0 * out[mask]",
        "pass",
        "out[narrowed(mask, y)] + out[mask].sum()",
    ),
    "bound again": ("y > 0", "pass", "out[mask]", "mask = y < 0.5", "out[mask] * y[mask]"),
    "both sides": ("y > 0", "pass", "out[mask] * y[mask]", "rest = out[~mask].sum() + y[~mask].sum()", "out[mask] + rest"),
    "in a loop": (
        "y > 0",
        "pass",
        "out[mask]",
        "for part in (out, y):\n            w = part[mask] + part[mask]",
        "out[mask] + w",
    ),
    "narrowed in a loop": (
        "y > 0",
        "w = 0",
        "out[mask]",
        "for part in (out, y):\n            w = part[mask].sum() + y[mask].sum()\n            mask &= part < 1",
        "out[mask] + w",
    ),
    "places": ("(y > 0).nonzero()[:, 0]", "pass", "out[mask] * y[mask]", "pass", "out[mask]"),
    "a number": ("(y > 0).any()", "pass", "out[mask] * y[mask]", "pass", "out[mask]"),
    "an array": ("(y > 0).numpy()", "pass", "y[mask]", "pass", "out[mask] * y[mask]"),
    "now and then": ("y > 0", "pass", "out[mask] if y.sum() > 0 else out", "pass", "out[mask] if y.sum() > 1 else out"),
    "of several": ("y[:, 0] > 0", "pass", "out[mask, 1] * y[mask, 0]", "pass", "out[mask] + y[mask]"),
    "of rows": ("y[:, 0] > 0", "pass", "out[mask] * y[mask]", "y[mask] += 1", "out[mask] + y[mask]"),
}


@pytest.mark.parametrize("name", SELECTED)
def test_what_one_mask_selects(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",), runtime=True))
    mask, before, first, between, last = SELECTED[name]
    code = HEAD + MASKED.format(mask=mask, before=before, first=first, between=between, last=last)
    assert changes({"main.py": code})[0] == []
    if name in ("twice", "stored", "both sides"):
        assert "selected(mask)" in safely_fixed({"main.py": code})[0]["main.py"]


def test_hooks_that_see_what_is_saved_for_backward_stand_against_a_mask_that_is_searched_once() -> None:
    mask, before, first, between, last = SELECTED["twice"]
    code = HEAD + MASKED.format(mask=mask, before=before, first=first, between=between, last=last)
    hooks = "torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t)"
    hooked = f"\n\nseen = []\n{hooks}.__enter__()\n"
    with pytest.MonkeyPatch.context() as patch:
        ordinary = tuple(name for name in ASSUMPTIONS if name != "no-hooks")
        patch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=ordinary, runtime=True))
        assert "selected(mask)" in safely_fixed({"main.py": code})[0]["main.py"]
        assert "selected(mask)" not in safely_fixed({"main.py": code + hooked})[0]["main.py"]


TOGETHER = """
class History:
    def __init__(self):
        self.first, self.second, self.count = [], [], 0

    def add(self, value):
        self.count += 1
        self.first.append(value)


def doubled(tensor):
    return tensor.mul_(2)


def train(model, loader, history):
    total, seen = 0.0, 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = F.mse_loss(out, y)
        error = {error}
        loss.backward()
        {first}
        {between}
        {last}
        print(history.first[-1:], history.second[-1:], total, seen)
    return total


torch.manual_seed(0)
print(train(nn.Linear(3, 2).to(device), DataLoader(TensorDataset(inputs, targets), batch_size=2), History()))
"""
"""Two reads that each step shows."""
ERROR = "(out.detach() - y).abs().sum()"
WATCHING = """
class Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, given=(), named=None):
        print("watched", getattr(function, "__name__", ""))
        return function(*given, **(named or {}))


"""
READ_TOGETHER = {
    "lists of an object": (ERROR, "history.first.append(loss.item())", "pass", "history.second.append(error.item())"),
    "totals": (ERROR, "total += loss.item()", "seen += len(x)", "history.second.append(error.item())"),
    "of several types": ("(out > y).sum()", "total += loss.item()", "pass", "seen += error.item()"),
    "written to": (ERROR, "total += loss.item()", "error.mul_(2)", "history.second.append(error.item())"),
    "written by a function": (ERROR, "total += loss.item()", "doubled(error)", "history.second.append(error.item())"),
    "a view is written to": (ERROR, "part = error[None]\n        total += loss.item()", "part += 1", "seen += error.item()"),
    "written by the first": (ERROR, "history.add(loss.item() + doubled(error).sum().item())", "pass", "seen += error.item()"),
    "bound again": (ERROR, "total += loss.item()", "error = error * 2", "history.second.append(error.item())"),
    "computed from a number": (ERROR, "total += loss.item()", "pass", "seen += (error * total).item()"),
    "shares memory": ("out.detach()[0, 0]", "total += loss.item()", "out.data.zero_()", "history.second.append(error.item())"),
    "a parameter": ("model.bias[0]", "total += loss.item()", "model.bias.data.zero_()", "history.second.append(error.item())"),
    "now and then": (ERROR, "total += loss.item()", "if seen > 1: continue", "seen += error.item()"),
    "another item": ("History()", "total += loss.item()", "error.item = lambda: history.count", "seen += error.item()"),
    "drawn": (ERROR, "total += loss.item()", "pass", "history.second.append(torch.rand_like(error).item())"),
}


@pytest.mark.parametrize("name", READ_TOGETHER)
def test_reads_that_are_made_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=("ordinary",), runtime=True))
    error, first, between, last = READ_TOGETHER[name]
    code = HEAD + TOGETHER.format(error=error, first=first, between=between, last=last)
    assert changes({"main.py": code})[0] == []
    watched = code.replace("print(train(", WATCHING + "with Watching():\n    print(train(")
    assert changes({"main.py": watched})[0] == []
    if name in ("lists of an object", "totals", "of several types"):
        assert "items_together(loss" in safely_fixed({"main.py": code})[0]["main.py"]


LOGS = """import logging
import sys

logger = logging.getLogger("train")
handler = logging.StreamHandler(sys.stdout)
logger.addHandler(handler)
logger.addHandler(logging.FileHandler("train.log", delay=True))
{}
"""
LOGGERS = {
    "": True,
    "class Loud(logging.Handler):\n    def emit(self, record): print(1)": False,
    "class Short(logging.Formatter):\n    def format(self, record): return record.msg": False,
    "logger.addFilter(lambda record: True)": False,
    "logging.StreamHandler(open('other.log'))": False,
    "class Loud:\n    def handle(this, *record): print(1)": False,
    "logger.addFilter(main.keeps)": False,
    "logging.config.dictConfig({'filters': {'mine': {'()': 'main.Mine'}}})": False,
    "logging.handlers.MemoryHandler(10, target=handler)": False,
    "logging.basicConfig(level=logging.INFO, stream=sys.stdout)": True,
}


@pytest.mark.parametrize("code", LOGGERS)
def test_handlers_of_logging_run_no_code_of_the_program(code: str) -> None:
    assert bool(safely_fixed({"main.py": HEAD + LOGS.format(code) + STEP.format("pass", CALL)})[1]) == LOGGERS[code]


REGIONS = {
    "torch.no_grad()": True,
    "torch.cuda.amp.autocast(enabled=False)": True,
    "open('train.log')": True,
    "torch.get_default_device()": False,
    "torch.accelerator.current_accelerator()": False,
    "fabric.init_tensor()": False,
    "fabric.autocast()": True,
}


@pytest.mark.parametrize("region", REGIONS)
def test_regions_that_may_be_a_device_leave_no_factory_for_known(region: str) -> None:
    code = trained("main(F.mse_loss)", in_step=f"with {region}:\n            {FACTORIES['zeros']}")
    code = code.replace("device = ", "import lightning\nfabric = lightning.Fabric()\ndevice = ", 1)
    assert ("torch.zeros(len(x), device=device)" in safely_fixed({"main.py": code})[0]["main.py"]) == REGIONS[region]
