"""What only costs on a GPU is told of by default where something in sight shows that a step's tensors get to one."""

from __future__ import annotations

import json
import textwrap

import pytest
from conftest import Project

pytestmark = pytest.mark.usefixtures("waits_told")

READ = "per-parameter-read"


def told(project: Project, rule: str) -> bool | None:
    """Whether a rule tells of something by default, not only on request; None if it finds nothing at all."""
    found = {name for name, _ in project.rules("--select", rule)}
    return (rule in {name for name, _ in project.rules()}) if rule in found else None


SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import pictures

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
print("device:", device)
net = nn.Linear(784, 10){made}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{before}
for epoch in range(10):
    for x, y in DataLoader(pictures(), batch_size=64, num_workers=2):
        loss = nn.functional.cross_entropy(net(x{batch}), y{batch})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for p in net.parameters():
            if torch.isnan(p.grad).any():
                raise RuntimeError("nan")
"""
DATA = """\
import torch


def pictures():
    return torch.utils.data.TensorDataset(torch.randn(60000, 784), torch.zeros(60000).long())
"""


@pytest.mark.parametrize(
    ("made", "before", "batch", "expected"),
    [
        ("", "pass", "", False),
        (".to(device)", "pass", ".to(device)", True),
        (".cuda()", "pass", ".cuda()", True),
        ("", "net.to(device)", ".to(device)", True),
        ("", "net = nn.DataParallel(net)", "", True),
        ("", "torch.set_default_device(device)", "", True),
        ("", "net = net.to('cpu')", "", False),
        ("", "net.to(torch.device('cpu'))", "", False),
        ("", "device = torch.device('cpu')", ".to(device)", False),
        ("", "net = net.to(torch.float64)", ".to(torch.float64)", False),
        ("", "from hardware import accelerator\nnet, optimizer = accelerator.prepare(net, optimizer)", "", True),
        ("", "# net = net.to(device)", "", False),
    ],
    ids=[
        "named only", "moved", "cuda", "in place", "replicas", "default", "back", "cpu", "cpu later", "a type", "accelerate",
        "comment",
    ],
)  # fmt: skip
def test_a_script_that_makes_its_network(project: Project, made: str, before: str, batch: str, expected: bool) -> None:
    text = SCRIPT.format(made=made, before=before, batch=batch)
    project.write({"train.py": text, "data.py": DATA})
    assert told(project, READ) is expected


TRAINER = """\
import torch


class Trainer:
    def __init__(self, net, optimizer, device="cuda"):
        {first}
        self.net = net.to(device)
        self.optimizer = optimizer
        self.device = device

    def epoch(self, loader):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(self.net(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            for p in self.net.parameters():
                if torch.isnan(p.grad).any():
                    raise RuntimeError("nan")


class Verbose(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        print(self.device)
"""
STARTED = """\
import torch
from torch.utils.data import DataLoader
from data import pictures
from trainer import {kind}


class Client:
    def __init__(self, net, device="cpu"):
        self.net = net
        self.device = device if isinstance(device, torch.device) else torch.device(device)

    def fit(self):
        self.trainer = {kind}(self.net, torch.optim.SGD(self.net.parameters(), lr=0.1){given})
        for epoch in range(10):
            self.trainer.epoch(DataLoader(pictures(), batch_size=64, num_workers=2))


if __name__ == "__main__":
    Client(torch.nn.Linear(784, 10), device=torch.device("{device}")).fit()
"""


@pytest.mark.parametrize(
    ("first", "kind", "given", "device", "expected"),
    [
        ("pass", "Trainer", "", "cpu", True),
        ("pass", "Trainer", ", device=self.device", "cuda", True),
        ("pass", "Trainer", ", device=self.device", "cpu", False),
        ("pass", "Trainer", ", self.device", "cpu", False),
        ("device = torch.device('cpu')", "Trainer", ", device='cuda'", "cuda", None),
        ("device = torch.device('cpu')", "Verbose", ", device='cuda'", "cuda", None),
        ("pass", "Verbose", ", device=self.device", "cpu", False),
        ("device = torch.device('cpu' if device is None else device)", "Trainer", ", device='cuda'", "cuda", True),
    ],
    ids=["its default", "cuda", "cpu", "cpu by position", "whatever is passed", "inherited", "handed on", "chosen"],
)
def test_a_device_through_constructors(
    project: Project, first: str, kind: str, given: str, device: str, expected: bool | None
) -> None:
    started = STARTED.format(kind=kind, given=given, device=device)
    project.write({"trainer.py": TRAINER.format(first=first), "main.py": started, "data.py": DATA})
    assert told(project, READ) is expected


@pytest.mark.parametrize(("packages", "expected"), [(["tools"], False), (["tools", "more_tools"], True), ([], True)])
def test_a_trainer_of_a_package_in_a_folder(project: Project, packages: list[str], expected: bool) -> None:
    """What is installed from a folder of the project says what its name means there, if there is one of that name."""
    train = TRAINER.format(first="device = torch.device('cpu')")
    epoch = textwrap.indent(textwrap.dedent(train[train.index("    def epoch") : train.index("class Verbose")]), "    ")
    main = STARTED.format(kind="Own", given=", device='cuda'", device="cuda").replace("trainer import", "own import")
    own = f"import torch\nfrom toolkit.train import Trainer\n\n\nclass Own(Trainer):\n{epoch}"
    files = {"main.py": main, "own.py": own, "data.py": DATA}
    for folder in packages:
        files |= {f"libs/{folder}/toolkit/__init__.py": "", f"libs/{folder}/toolkit/train.py": train}
    project.write(files)
    assert told(project, READ) is expected


FUNCTION = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from data import pictures


def train(net, loader, optimizer):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for p in net.parameters():
            if torch.isnan(p.grad).any():
                raise RuntimeError("nan")


class Readout(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 10)
        {inside}

    def forward(self, x):
        return self.layer(x)


def embedded(net, x):
    return net.cuda()(x.cuda()).cpu()
"""
CALLER = """

def main():
    net = {made}
    loader = DataLoader(pictures(), batch_size=64, num_workers=2)
    {before}
    for epoch in range(10):
        train(net, loader, torch.optim.SGD(net.parameters(), lr=0.1))


if __name__ == "__main__":
    main()
"""
BUILDER = """

def build():
    net = Readout()
    return net{moved}
"""


@pytest.mark.parametrize(
    ("inside", "made", "before", "expected"),
    [
        ("pass", "Readout()", "pass", False),
        ("pass", "Readout().cuda()", "pass", True),
        ("self.cuda()", "Readout()", "pass", True),
        ("pass", "Readout()", "prepare(net)", True),
        ("pass", "build()", "pass", False),
        ("pass", "build_moved()", "pass", True),
        ("pass", "unknown.make()", "pass", False),
        ("pass", "nn.Sequential(Readout(), nn.ReLU())", "pass", False),
        ("pass", "nn.parallel.DistributedDataParallel(Readout())", "pass", True),
        ("pass", "Readout()", "net, loader = fabric.setup(net), loader", True),
        ("pass", "Readout()", "Keeper(net)", True),
    ],
    ids=[
        "made",
        "moved",
        "by itself",
        "by a helper",
        "built",
        "built and moved",
        "of a package",
        "in another",
        "replicated",
        "fabric",
        "kept by an object",
    ],
)
def test_a_network_that_is_made_by_the_caller(project: Project, inside: str, made: str, before: str, expected: bool) -> None:
    """`embedded` moves another one, in the same file: it says nothing of this one. Packages leave networks on the host."""
    helpers = BUILDER.format(moved="") + BUILDER.format(moved=".cuda()").replace("build", "build_moved")
    helpers += "\n\ndef prepare(net):\n    net.to('cuda')\n"
    helpers += "\n\nclass Keeper:\n    def __init__(self, net):\n        self.net = net.cuda()\n"
    text = FUNCTION.format(inside=inside) + helpers + CALLER.format(made=made, before=before)
    project.write(
        {"train.py": text.replace("from data", "import unknown\nfrom hardware import fabric\nfrom data"), "data.py": DATA}
    )
    assert told(project, READ) is expected


@pytest.mark.parametrize(("others", "expected"), [("pass", False), ("Readout().cuda()", True)])
def test_a_function_whose_callers_are_not_in_sight(project: Project, others: str, expected: bool) -> None:
    """It counts whether its program moves anything."""
    text = FUNCTION.format(inside="pass").replace("return net.cuda()(x.cuda()).cpu()", "return net(x)  # on cuda, perhaps")
    tools = f"import torch.cuda\nfrom kit.steps import Readout\n\n\ndef tool():\n    {others}\n"
    offered = "from setuptools import setup\n\nsetup(name='kit', packages=['kit'])\n"
    project.write({"kit/steps.py": text, "kit/tools.py": tools, "kit/__init__.py": "", "setup.py": offered})
    assert told(project, READ) is expected


def test_a_default_that_another_function_sets(project: Project) -> None:
    text = FUNCTION.format(inside="pass") + CALLER.format(made="Readout()", before="pass")
    project.write({"train.py": text, "data.py": DATA})
    assert told(project, READ) is False
    start = "import torch\nfrom train import main\n\ntorch.set_default_device('cuda')\nmain()\n"
    project.write({"start.py": start})
    assert told(project, READ) is True


NOTEBOOK = """\
import torch
from steps import Readout, embedded, train
from data import pictures

encoder = torch.nn.Linear(784, 784).cuda()
net = Readout(){moved}
for epoch in range(10):
    train(net, torch.utils.data.DataLoader(pictures(), batch_size=64, num_workers=2), torch.optim.SGD(net.parameters(), lr=0.1))
"""


@pytest.mark.parametrize(("moved", "expected"), [("", False), (".cuda()", True)])
def test_a_notebook_that_runs_more_than_one_network(project: Project, moved: str, expected: bool) -> None:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": NOTEBOOK.format(moved=moved)}]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    project.write({"steps.py": FUNCTION.format(inside="pass"), "data.py": DATA})
    (project.root / "run.ipynb").write_text(notebook)
    assert told(project, READ) is expected


COMPARES = """\
import torch
from trainer import Trainer


def compare(batches):
    student = torch.nn.Linear(8, 8)
    trainer = Trainer(student, batches, device={device})
    for x in batches:
        trainer.step(x)
        print([p.grad.norm().item() for p in student.parameters()]){more}
"""
OWN_TRAINER = """\
import torch


class Trainer:
    def __init__(self, network, batches, device="cuda"):
        self.device = torch.device(device)
        self.network = network.to(self.device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)

    def step(self, x):
        self.network(x.to(self.device)).sum().backward()
        self.optimizer.step()
"""


@pytest.mark.parametrize(
    ("device", "more", "expected"),
    [
        ("'cpu'", "", False),
        ("torch.device('cpu')", "", False),
        ("'cuda'", "", True),
        ("'cpu'", "\n        student.cuda()", True),
    ],
)
def test_a_trainer_that_is_told_the_cpu(project: Project, device: str, more: str, expected: bool) -> None:
    project.write({"compare.py": COMPARES.format(device=device, more=more), "trainer.py": OWN_TRAINER})
    assert told(project, READ) is expected
