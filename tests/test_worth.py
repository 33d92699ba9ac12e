"""What is worth a minute by default: the same flaw where it counts, and where it does not."""

from __future__ import annotations

import json
import os
import textwrap

import pytest
from conftest import Project

pytestmark = pytest.mark.usefixtures("waits_told")

EVALUATION = """\
import torch
from torch import nn


def evaluate(network, loader):
    network.eval()
    hits = 0
    for x, y in loader:
        {before}
        hits += (network(x).argmax(1) == y).sum().item()
        {after}
    return hits


def train(network, loader, optimizer):
    for x, y in loader:
        loss = nn.functional.cross_entropy(network(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(network, loader, optimizer):
    for epoch in range(10):
        train(network, loader, optimizer)
        {each}
    {once}
"""
CALL = "print(evaluate(network, loader))"


@pytest.mark.parametrize(
    ("each", "once", "before", "after", "told"),
    [
        (CALL, "pass", "x, y = x.cuda(), y.cuda()", "pass", True),
        ("pass", CALL, "x, y = x.cuda(), y.cuda()", "pass", False),
        (CALL, "pass", "x = torch.autograd.Variable(x.cuda(), volatile=True)", "pass", False),
        (CALL, "pass", "x, y = x.cuda(), y.cuda()", "if hits > 100:\n            break", False),
    ],
    ids=["each epoch", "once", "an old torch", "some batches"],
)
def test_evaluations_that_a_training_repeats(
    project: Project, monkeypatch: pytest.MonkeyPatch, each: str, once: str, before: str, after: str, told: bool
) -> None:
    monkeypatch.setattr("perflint.rule.code.Code.may_take", lambda code, fix: fix is not None)
    project.write({"train.py": EVALUATION.format(each=each, once=once, before=before, after=after)})
    assert (("eval-without-no-grad", 10) in project.rules()) is told
    if "volatile" not in before:
        assert ("eval-without-no-grad", 10) in project.rules("--select", "eval-without-no-grad")


DATASET = """\
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.path, self.rows = path, None

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        {look}
            self.load()
        return self.rows[index]

    {kept}def load(self):
        self.rows = np.loadtxt(self.path)


def main(network, optimizer):
    for x in DataLoader(Rows("rows.npy"), batch_size=8):
        network(x.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("look", "kept", "told"),
    [
        ("if self.rows is None:", "", False),
        ("if index >= 0:", "", True),
        ("if index >= 0:", "@functools.lru_cache(16)\n    ", False),
    ],
    ids=["first", "each", "kept"],
)
def test_a_file_that_the_first_sample_reads_is_no_work_for_workers(project: Project, look: str, kept: str, told: bool) -> None:
    project.write({"train.py": f"import functools\n{DATASET.format(look=look, kept=kept)}"})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


KEYS = """\
import torch


def match(matcher, data):
    with torch.inference_mode():
        output = {made}
    for key in output:
        output[key] = output[key] * 2
    return {taken}
"""


@pytest.mark.parametrize(
    ("made", "taken", "told"),
    [("torch.sigmoid(data)", "output[0]", True), ("torch.sigmoid(data)", "output['keypoints']", False)],
)
def test_an_entry_of_a_dict_is_no_tensor(project: Project, made: str, taken: str, told: bool) -> None:
    project.write({"run.py": KEYS.format(made=made, taken=taken)})
    assert ("inference-tensor-escape" in {rule for rule, _ in project.rules()}) is told


EPISODES = """\
import torch
from torch.utils.data import DataLoader


def task(data):
    return DataLoader(data, batch_size=20, shuffle=True, num_workers=2), 5


def main(network, optimizer, data):
    {loader}
    for episode in range(1000):
        {made}
        x = next(iter(loader))
        network(x.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("loader", "made", "told"),
    [("loader, _ = task(data)", "pass", True), ("pass", "loader, _ = task(data)", False)],
)
def test_a_loader_of_one_episode_has_no_iterator_to_keep(project: Project, loader: str, made: str, told: bool) -> None:
    project.write({"train.py": EPISODES.format(loader=loader, made=made)})
    assert ("loader-iterator-per-step" in {rule for rule, _ in project.rules("--select", "all")}) is told


NEXT = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.names = iter(paths)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open({name}))


def main(network, optimizer, paths):
    loader = DataLoader(Images(paths), batch_size=8)
    {batches}
        network(x.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
EACH = "for x in loader:"
ANEW = "for step in range(1000):\n        x = {}"


@pytest.mark.parametrize(
    ("name", "batches", "told"),
    [
        ("self.paths[index]", EACH, "dataloader-no-workers"),
        ("next(self.names)", EACH, None),
        ("self.paths[index]", ANEW.format("next(iter(loader))"), None),
        ("self.paths[index]", ANEW.format("loader.__iter__().next()"), None),
    ],
    ids=["by number", "one after the other", "anew", "anew by hand"],
)
def test_workers_are_for_samples_that_they_can_make(project: Project, name: str, batches: str, told: str | None) -> None:
    project.write({"train.py": NEXT.format(name=name, batches=batches)})
    found = {rule for rule, _ in project.rules()}
    assert found & {"dataloader-no-workers"} == ({told} if told else set())


OWN = """\
if __name__ == "__main__":
    from settings import network, paths, train

    loader = DataLoader(Images(paths), batch_size=8)
    count = 0
    for i, x in enumerate({batches}):
        {inside}
    {behind}
"""


@pytest.mark.parametrize(
    ("inside", "behind", "told"),
    [
        ("network(x.cuda()).sum().backward(); print(i)\n        if i > 2: break", "pass", False),
        (
            "network(x.cuda()).sum().backward(); count += 1\n        if count == 5:\n            print(x)\n            break",
            "pass",
            False,
        ),
        ("print(i, x.shape, len(x))", "pass", False),
        ("print(network(x.cuda()).sum().backward())", "pass", True),
        ("network(x.cuda()).sum().backward(); print(i)\n        if i > 2000: break", "pass", True),
        ("network(x.cuda()).sum().backward(); print(i)\n        if i > 2: continue", "pass", True),
        ("print(i, x.shape)", "for x in loader: network(x.cuda()).sum().backward()", True),
        ("print(i, x.shape)\n        if i == 3: break", "train(network, loader)", True),
    ],
)
def test_loops_that_take_a_few_batches_or_show_them(project: Project, inside: str, behind: str, told: bool) -> None:
    data = NEXT[: NEXT.index("def main(")].replace("{name}", "self.paths[index]")
    train = "from data import Images\nfor x in Images(paths):\n    network(x.cuda()).sum().backward()\n"
    project.write({"data.py": data + OWN.format(batches="loader", inside=inside, behind=behind), "train.py": train})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


@pytest.mark.parametrize(("batches", "told"), [("islice(loader, 3)", False), ("islice(loader, 3000)", True)])
def test_loops_over_a_slice_of_a_few_batches(project: Project, batches: str, told: bool) -> None:
    data = NEXT[: NEXT.index("def main(")].replace("{name}", "self.paths[index]")
    inside = "network(x.cuda()).sum().backward()"
    text = "from itertools import islice\n" + data + OWN.format(batches=batches, inside=inside, behind="pass")
    project.write({"data.py": text, "train.py": "from data import Images\nfor x in Images(paths):\n    step(x)\n"})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


@pytest.mark.parametrize(
    ("moved", "told"),
    [
        (".to(DEVICE)", False),
        (".to(GPU)", False),
        (".to('cuda')", False),
        (".to(cfg.DEVICE, torch.float32)", False),
        (".to(device=args.device)", False),
        (".to(torch.float32)", True),
        (".to(self.means.device)", True),
        (".to('cpu')", True),
    ],
)
def test_no_worker_can_use_the_gpu(project: Project, moved: str, told: bool) -> None:
    constants = "DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\nGPU = DEVICE\n"
    sample = NEXT.format(name="self.paths[index]", batches=EACH).replace("to_tensor(Image.open(self.paths[index]))", "{}")
    opened = f"to_tensor(Image.open(self.paths[index])){moved}"
    project.write({"train.py": f"import torch\n{constants}{sample.format(opened)}"})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told
    found = project.findings("--select", "dataloader-no-workers")
    assert [bool(finding["fix"]) for finding in found] == [told]


LIGHTNING = """\
import pytorch_lightning as pl
import torch
from network import Network

torch.autograd.set_detect_anomaly(True)
{steps}
pl.Trainer(max_epochs=10).fit(Network())
"""
NETWORK = """\
import pytorch_lightning as pl
import torch


class Network(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        return self(batch).sum()
"""


@pytest.mark.parametrize(
    ("requirement", "steps", "told"),
    [
        ("pytorch_lightning==1.4.0", "pass", True),
        ("pytorch_lightning<1.5", "pass", True),
        ("pytorch_lightning>=1.2", "pass", False),
        ("lightning==2.2", "pass", False),
        ("", "pass", False),
        ("", "torch.randn(4, requires_grad=True).sum().backward()", True),
    ],
)
def test_lightning_undoes_what_is_switched_on_before_it_fits(
    project: Project, requirement: str, steps: str, told: bool
) -> None:
    files = {"train.py": LIGHTNING.format(steps=steps), "network.py": NETWORK, "requirements.txt": f"{requirement}\n"}
    project.write(files)
    assert (("debug-switch-left-on", 5) in project.rules()) is told


COLUMNS = """\
import torch
from torch import nn


def train(network, optimizer, loader, table):
    rows = {rows}
    for x, y in loader:
        loss = nn.functional.cross_entropy(network(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print([int(row) for row in rows])


def main(loader, table):
    network = nn.Linear(4, 4).cuda()
    train(network, torch.optim.SGD(network.parameters(), lr=0.1), loader, table)
"""


@pytest.mark.parametrize(
    ("rows", "told"), [("torch.arange(8, device='cuda')", True), ("table.select(range(8))['label']", False)]
)
def test_elements_are_read_from_what_is_known_to_be_a_tensor(project: Project, rows: str, told: bool) -> None:
    project.write({"train.py": COLUMNS.format(rows=rows)})
    assert (("item-in-python-loop", 12) in project.rules("--runtime", "--assume", "ordinary")) is told
    assert ("item-in-python-loop", 12) in project.rules("--select", "item-in-python-loop")


LISTED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def train(network, optimizer, data, table):
    found = []
    for x, y, rows in DataLoader(data, batch_size=8, pin_memory=True):
        out = network(x.cuda(non_blocking=True))
        loss = nn.functional.cross_entropy(out, y.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append({labels}.tolist())
    return found


def main(data, table):
    network = nn.Linear(4, 4).cuda()
    print(train(network, torch.optim.SGD(network.parameters(), lr=0.1), data, table))
"""


@pytest.mark.parametrize(("labels", "told"), [("out.argmax(1)", True), ("table.select(range(8))['label']", False)])
def test_what_becomes_a_list_is_known_to_be_a_tensor(project: Project, labels: str, told: bool) -> None:
    project.write({"train.py": LISTED.format(labels=labels)})
    assert (("item-every-step", 14) in project.rules("--runtime")) is told
    assert ("item-every-step", 14) in project.rules("--select", "item-every-step")


TRAINERS = """\
from abc import abstractmethod

import torch
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4).cuda()

    {mark}
    def predict(self, x):
        return {given}


class Model(Base):
    @torch.no_grad()
    def predict(self, x):
        return self.layer(x)


class BaseTrainer:
    def build(self):
        self.model = Base()

    def test(self, loader):
        self.model.eval()
        hits = 0
        for x, y in loader:
            hits += (self.model.predict(x.cuda()).argmax(1) == y.cuda()).sum().item()
        return hits

    def train(self, loader, optimizer):
        for epoch in range(10):
            for x, y in loader:
                nn.functional.cross_entropy(self.model.layer(x.cuda()), y.cuda()).backward()
                optimizer.step()
                optimizer.zero_grad()
            print(self.test(loader))


class Trainer(BaseTrainer):
    def build(self):
        self.model = Model()


def main(loader, optimizer):
    trainer = Trainer()
    trainer.build()
    trainer.train(loader, optimizer)
"""


@pytest.mark.parametrize(
    ("mark", "given", "told"), [("@abstractmethod", "None", False), ("@torch.jit.export", "self.layer(x)", True)]
)
def test_what_is_there_to_be_overridden_records_no_graph(project: Project, mark: str, given: str, told: bool) -> None:
    project.write({"train.py": TRAINERS.format(mark=mark, given=given)})
    assert (("eval-without-no-grad", 31) in project.rules("--select", "eval-without-no-grad")) is told


WRITTEN = NEXT.format(name="self.paths[index]", batches=EACH)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("Images(['a.png', 'b.png'])", False),
        ("torch.utils.data.Subset(Images(paths), range(16))", False),
        ("Images(paths[:16])", False),
        ("Images(paths[-16:])", False),
        ("Images(paths[:160])", True),
        ("Images(paths[:-16])", True),
        ("Images(paths)", True),
        ("Images(['a.png'] * 1000)", True),
        ("torch.utils.data.Subset(Images(paths), range(1000))", True),
    ],
    ids=["two", "some of them", "first", "last", "first of many", "all but some", "not known", "repeated", "many"],
)
def test_nothing_can_be_made_ahead_of_a_few_samples(project: Project, given: str, told: bool) -> None:
    project.write({"train.py": WRITTEN.replace("DataLoader(Images(paths)", f"DataLoader({given}")})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


TASKS = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor


class Task(Dataset):
    def __init__(self, paths):
        self.paths = {kept}

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]))


def adapt(network, task):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for x in DataLoader(task, batch_size=25):
        network(x.cuda()).sum().backward()
        optimizer.step()


def main(network, paths):
    for episode in range(60000):
        adapt(network, Task(paths[episode:]))


if __name__ == "__main__":
    from settings import made

    main(*made())
"""


@pytest.mark.parametrize(("kept", "told"), [("paths[:25]", False), ("paths[:2500]", True), ("paths", True)])
def test_nothing_can_be_made_ahead_of_the_samples_of_a_task(project: Project, kept: str, told: bool) -> None:
    project.write({"train.py": TASKS.format(kept=kept)})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


NORMS = """\
class Norms:
    def of(self, model):
        return [p.grad.norm().item() for p in model.parameters()]


class Trainer:
    def __init__(self, steps):
        self.steps, self.every = steps, 100

    def is_noted(self, step):
        return step {asked}

    def note(self, model, step):
        {guard}
        self.norms = Norms().of(model)

    def train(self, model, optimizer, loader):
        for step, x in enumerate(loader):
            model(x.cuda()).sum().backward()
            self.note(model, step)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    from settings import made

    Trainer([1, 50]).train(*made())
"""


@pytest.mark.parametrize(
    ("guard", "asked", "told"),
    [
        ("pass", "% self.every == 0", True),
        ("if step % 100: return", "% self.every == 0", False),
        ("if not self.every or step not in self.steps: return", "% self.every == 0", False),
        ("if not self.is_noted(step): return", "% self.every == 0", False),
        ("if not self.is_noted(step): return", "> 100", True),
        ("if model is None: return", "% self.every == 0", True),
    ],
    ids=["none", "every 100", "some that were chosen", "asked", "asked for more", "no guard"],
)
def test_what_a_caller_returns_before_runs_now_and_then(project: Project, guard: str, asked: str, told: bool) -> None:
    project.write({"train.py": f"import torch\n\n\n{NORMS.format(guard=guard, asked=asked)}"})
    assert ("per-parameter-read" in {rule for rule, _ in project.rules()}) is told


READS = """\
import torch
from data import made


def norms(model):
    return [p.grad.norm().item() for p in model.parameters()]


def train(model, optimizer, loader):
    for step, x in enumerate(loader):
        model(x.cuda()).sum().backward()
        {noted}
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    from settings import made

    train(*made())
"""
TRIES = """\
from data import loader, model, optimizer
from train import norms

for x in loader:
    model(x.cuda()).sum().backward()
    print(norms(model))
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("noted", "told"), [("norms(model)", True), ("if step % 100 == 0: norms(model)", False)], ids=["each step", "now and then"]
)
def test_what_tests_do_in_each_step_the_program_may_do_now_and_then(project: Project, noted: str, told: bool) -> None:
    project.write({"train.py": READS.format(noted=noted), "tests/tries.py": TRIES})
    assert ("per-parameter-read" in {rule for rule, _ in project.rules()}) is told


@pytest.mark.parametrize(
    ("path", "told"),
    [("diagnose.py", True), ("tests/diagnose.py", False), ("tests/steps.py", True)],
    ids=["script", "tests", "used"],
)
def test_what_lies_among_tests_and_nobody_else_imports_takes_a_few_steps(project: Project, path: str, told: bool) -> None:
    project.write(
        {
            path: READS.format(noted="norms(model)"),
            "main.py": "from data import made\nfrom tests.steps import train\ntrain(*made())\n",
        }
    )
    assert ("per-parameter-read" in {rule for rule, _ in project.rules()}) is told


CONFIGURED = """\
import sys

import torch
import yaml


def get_device(name):
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


class Trainer:
    def __init__(self, cfg, network):
        self.device = {device}
        self.network = network.to(self.device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)

    def train(self, loader):
        for x in loader:
            self.network(x.to(self.device)).sum().backward()
            print([p.grad.norm().item() for p in self.network.parameters()])
            self.optimizer.step()
            self.optimizer.zero_grad()


if __name__ == "__main__":
    from settings import loader

    Trainer(yaml.safe_load(open(sys.argv[1])), torch.nn.Linear(2, 2)).train(loader)
"""
ASKED = "get_device(cfg.get('device', 'cpu'))"


@pytest.mark.parametrize(
    ("device", "configured", "command", "told"),
    [
        (ASKED, "cpu  # or cuda", "configs/small.yaml", False),
        ("torch.device(cfg['device'])", "cpu", "configs/small.yaml", False),
        ("cfg.device", "'cpu'", "configs/small.yaml", False),
        (ASKED, "cuda:0", "configs/small.yaml", True),
        (ASKED, "cpu", "configs/small.yaml --device cuda", True),
        ("'cuda' if torch.cuda.is_available() else 'cpu'", "cpu", "configs/small.yaml", True),
    ],
    ids=["asked for", "item", "attribute", "cuda", "given", "not asked"],
)
def test_a_device_that_is_configured(project: Project, device: str, configured: str, command: str, told: bool) -> None:
    configs = {"configs/small.yaml": f"device: {configured}\nlr: 0.1\n", "configs/toy.toml": 'device = "cpu"\n'}
    readme = f"# Toy\n\n    python train.py {command}\n"
    project.write({"train.py": CONFIGURED.format(device=device), "README.md": readme, **configs})
    assert ("per-parameter-read" in {rule for rule, _ in project.rules()}) is told


CLIPPED = """\
import torch

model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda"):
        loss = model(x.cuda()).sum()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
NORMS_ON_CUDA = CONFIGURED.format(device="torch.device('cuda')")


@pytest.mark.parametrize(
    ("path", "code", "rule", "told"),
    [
        ("train.py", CLIPPED, "clip-before-unscale", True),
        ("legacy/train.py", CLIPPED, "clip-before-unscale", False),
        ("runs_archive/train.py", CLIPPED, "clip-before-unscale", False),
        ("train.py", NORMS_ON_CUDA, "per-parameter-read", True),
        ("mqar_benchmark.py", NORMS_ON_CUDA, "per-parameter-read", False),
        ("scaling_benchmarks/train.py", NORMS_ON_CUDA, "per-parameter-read", False),
        ("real_dry_run.py", NORMS_ON_CUDA, "per-parameter-read", False),
        ("train_quick.py", NORMS_ON_CUDA, "per-parameter-read", False),
        ("train.py", f"# This file is deprecated.\n{NORMS_ON_CUDA}", "per-parameter-read", False),
        ("workbench/train.py", NORMS_ON_CUDA, "per-parameter-read", True),
        ("epoch.py", NORMS_ON_CUDA, "per-parameter-read", True),
    ],
)
def test_what_is_set_aside_or_a_benchmark_trains_nothing(project: Project, path: str, code: str, rule: str, told: bool) -> None:
    project.write({"pyproject.toml": "", path: code})
    assert (rule in {name for name, _ in project.rules()}) is told


@pytest.mark.parametrize("imported", [True, False])
def test_an_error_in_a_file_that_nobody_imports_hurts_nobody(project: Project, imported: bool) -> None:
    called = "import fine\n" if imported else ""
    defined = "def train(loader):\n" + textwrap.indent(CLIPPED, "    ")
    script = f"from data import load\n{called}\nif __name__ == '__main__':\n    load()\n"
    project.write({"fine.py": defined, "main.py": script, "data.py": "def load():\n    return []\n"})
    assert ("clip-before-unscale" in {name for name, _ in project.rules()}) is imported


ANOMALIES = """\
import torch


@torch.no_grad()
def validate(model, loader):
    return sum(model(x.cuda()).sum() for x in loader)


def learn(model, loader, optimizer):
    for x in loader:
        model(x.cuda()).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    torch.autograd.set_detect_anomaly(True)
    {call}
"""


@pytest.mark.parametrize(
    ("path", "call", "told"),
    [
        ("test_run.py", "validate(model, loader)", False),
        ("test_run.py", "learn(model, loader, optimizer)", True),
        ("run.py", "validate(model, loader)", True),
        ("tools/debug_nan.py", "learn(model, loader, optimizer)", False),
        ("tools/debugger_free.py", "learn(model, loader, optimizer)", True),
    ],
)
def test_anomaly_mode_of_an_evaluation_records_nothing(project: Project, path: str, call: str, told: bool) -> None:
    project.write({path: ANOMALIES.format(call=call)})
    assert ("debug-switch-left-on" in {rule for rule, _ in project.rules()}) is told


PHASES = """\
import torch


def train(model, loaders, optimizer, debugs):
    for epoch in range(9):
        for phase in ("train", "val"):
            if {test}:
                torch.autograd.set_detect_anomaly(True)
            for x in loaders[phase]:
                model(x.cuda()).sum().backward()
                optimizer.step()
"""


@pytest.mark.parametrize(
    ("test", "told"), [('phase == "train"', True), ('phase == "val"', False), ('debugs == "train"', False), ("debugs", False)]
)
def test_each_run_comes_to_the_phase_that_trains(project: Project, test: str, told: bool) -> None:
    project.write({"train.py": PHASES.format(test=test)})
    assert ("debug-switch-left-on" in {rule for rule, _ in project.rules()}) is told


BLOCKING = """\
import os

import torch


def show(model, loader):
    with torch.no_grad():
        print([model(x.cuda()).sum() for x in loader])


def learn(model, loader, optimizer):
    for x in loader:
        model(x.cuda()).sum().backward()
        optimizer.step()


{start}os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
{call}
"""


@pytest.mark.parametrize(
    ("path", "start", "call", "told"),
    [
        ("scene.py", "", "show(model, loader)", True),
        ("visualize_scene.py", "", "show(model, loader)", False),
        ("run_predict.py", "", "show(model, loader)", False),
        ("plot_losses.py", "", "learn(model, loader, optimizer)", True),
        ("export.py", "", "from train import x", False),
        ("convert.py", "", "", True),
        ("convert.py", "if True and __name__ == '__main__': ", "", False),
    ],
)
def test_launches_that_block_cost_little_in_what_shows_something(
    project: Project, path: str, start: str, call: str, told: bool
) -> None:
    project.write({path: BLOCKING.format(start=start, call=call), "train.py": "import convert\n\nx = torch.ones(3)\n"})
    assert ("debug-switch-left-on" in {rule for rule, _ in project.rules()}) is told


ON_CPU = """\
import torch
from data import loader
from parts import Coach

device = "cpu"
net, coach = torch.nn.Linear(2, 2).to(device), Coach().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in loader:
    net(coach(x.to(device))).sum().backward()
    print([p.grad.norm().item() for p in net.parameters()])
    optimizer.step()
"""
COACH = """\
import torch


class Coach(torch.nn.Module):
    def forward(self, x):
        return x.to({device})
"""


@pytest.mark.parametrize("device", ["x.device", "torch.device('cuda' if self.fast else 'cpu')"])
def test_what_a_script_moves_to_the_cpu_by_name_is_there(project: Project, device: str) -> None:
    project.write({"train.py": ON_CPU, "parts.py": COACH.format(device=device)})
    assert "per-parameter-read" not in {rule for rule, _ in project.rules()}
    project.write({"train.py": ON_CPU.replace('"cpu"', '"cuda"')})
    assert "per-parameter-read" in {rule for rule, _ in project.rules()}


CLIPS = """\
import argparse

import torch

USE_AMP, DTYPE = False, "bfloat16"
parser = argparse.ArgumentParser()
parser.add_argument("--clip", type=float, default={clip})
args = parser.parse_args()


def train(model, optimizer, loader, scales={scales}):
    scaler = torch.amp.GradScaler("cuda", enabled={enabled})
    for x in loader:
        scaler.scale(model(x.cuda()).sum()).backward()
        if args.clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        scaler.step(optimizer)
        scaler.update()


train(model, optimizer, loader)
"""


@pytest.mark.parametrize(
    ("clip", "scales", "enabled", "command", "told"),
    [
        ("1.0", "True", "USE_AMP", "python train.py", False),
        ("1.0", "True", "DTYPE == 'float16'", "python train.py", False),
        ("1.0", "True", "DTYPE == 'bfloat16'", "python train.py", True),
        ("1.0", "True", "torch.bfloat16 == torch.float16", "python train.py", False),
        ("1.0", "True", "torch.half == torch.float16", "python train.py", True),
        ("1.0", "True", "scales", "python train.py", True),
        ("0.0", "True", "scales", "python train.py", False),
        ("0.0", "True", "scales", "python train.py --clip 5", True),
        ("1.0", "False", "scales", "python train.py", False),
        ("1.0", "False", "True", "python train.py", True),
    ],
)
def test_an_error_behind_an_option_that_nobody_gives_is_on_request(
    project: Project, clip: str, scales: str, enabled: str, command: str, told: bool
) -> None:
    project.write({"train.py": CLIPS.format(clip=clip, scales=scales, enabled=enabled), "run.sh": command})
    assert ("clip-before-unscale" in {rule for rule, _ in project.rules()}) is told


READY = """\
import torch

from precision import ready


def train(model, optimizer, loader):
    scaler = torch.amp.GradScaler("cuda")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x.cuda()).sum()).backward()
        ready(scaler, optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize(("below", "told"), [("scaler.unscale_(optimizer)", False), ("print(scaler.get_scale())", True)])
def test_gradients_may_be_unscaled_by_another_file(project: Project, below: str, told: bool) -> None:
    project.write({"train.py": READY, "precision.py": f"def ready(scaler, optimizer):\n    {below}\n"})
    assert ("clip-before-unscale" in {rule for rule, _ in project.rules()}) is told


EVALUATED = """\
import torch
from torch.utils.checkpoint import checkpoint


class Net(torch.nn.Module):
    def forward(self, x):
        if self.training{more}:
            return {half}
        return self.whole(x)

    def half(self, x):
        return x / 2

    def whole(self, x):
        torch.cuda.empty_cache()
        return x * 2


net, optimizer = Net().cuda(), torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=0.1)
for x in loader:
    net(x.cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("more", "half", "told"),
    [
        ("", "self.half(x)", False),
        (" or x.dim() == 3", "self.half(x)", False),
        (" and x.dim() == 3", "self.half(x)", True),
        ("", "checkpoint(self.whole, x)", True),
        ("", "self.half(x) if not self.training else self.whole(x)", True),
    ],
)
def test_what_a_network_calls_to_evaluate_is_no_part_of_its_training(
    project: Project, more: str, half: str, told: bool
) -> None:
    project.write({"train.py": EVALUATED.format(more=more, half=half)})
    assert ("empty-cache-in-loop" in {rule for rule, _ in project.rules()}) is told


@pytest.mark.parametrize(("half", "told"), [("self.half(x)", False), ("checkpoint(self.whole, x)", True)])
def test_a_network_that_others_may_install_calls_its_methods_itself(project: Project, half: str, told: bool) -> None:
    network, _, training = EVALUATED.format(more="", half=half).partition("\n\nnet, ")
    training = f"import torch\n\nfrom archs.net import Net\n\nnet, {training}"
    setup = "import setuptools\n\nfrom archs.net import Net\n\nexec('version = 1')\nsetuptools.setup(packages=['archs'])\n"
    project.write({"setup.py": setup})
    project.write({"archs/__init__.py": "", "archs/net.py": network, "train.py": training})
    assert ("empty-cache-in-loop" in {rule for rule, _ in project.rules()}) is told


FREED = """\
import torch
{imports}

def free():
    torch.cuda.empty_cache()
"""
FREES = """\
import torch
{imports}
from memory import free


def train(network, optimizer, loader):
    for x in loader:
        network(x.cuda()).sum().backward()
        optimizer.step()
        free()
"""


@pytest.mark.parametrize(
    ("freed", "frees", "told"),
    [
        ("", "", True),
        ("import tigre", "", False),
        ("", "import cupy as cp", False),
        ("", "import MinkowskiEngine as ME", False),
        ("", "from numba import cuda", False),
        ("", "from numba import njit", True),
    ],
)
def test_memory_is_given_back_for_another_library(project: Project, freed: str, frees: str, told: bool) -> None:
    project.write({"memory.py": FREED.format(imports=freed), "train.py": FREES.format(imports=frees)})
    assert ("empty-cache-in-loop" in {rule for rule, _ in project.rules()}) is told


DRAWN = """\
import numpy as np
from torch.utils.data import DataLoader, SubsetRandomSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

pictures = ImageFolder("pictures", transform=transforms.ToTensor())
classes = 10
indices = {indices}
loader = DataLoader(pictures, batch_size=32, sampler=SubsetRandomSampler(indices))


def main(network, optimizer):
    for x, _ in loader:
        network(x.cuda()).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    from settings import network, optimizer

    main(network, optimizer)
"""


@pytest.mark.parametrize(
    ("indices", "told"),
    [
        ("np.random.choice(len(pictures), 10 * classes)", False),
        ("np.random.choice(len(pictures), 1000 * classes)", True),
        ("np.random.permutation(len(pictures))[:64]", False),
        ("np.random.permutation(len(pictures))[64:]", True),
        ("np.random.permutation(len(pictures))[:-64]", True),
    ],
)
def test_few_samples_that_are_drawn_are_few_batches(project: Project, indices: str, told: bool) -> None:
    project.write({"train.py": DRAWN.format(indices=indices)})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


STEP = "def step(loss):\n    loss.backward()\n"


def test_a_notebook_beside_a_script_of_its_name_is_a_copy(project: Project) -> None:
    text = DRAWN.format(indices="list(range(len(pictures)))")
    project.write({"train.ipynb": notebook(text)})
    assert "dataloader-no-workers" in {rule for rule, _ in project.rules()}
    project.write({"train.ipynb": notebook(text), "train.py": "print()\n"})
    assert "dataloader-no-workers" in {rule for rule, _ in project.rules()}
    project.write({"train.ipynb": notebook(text), "train.py": STEP})
    assert "dataloader-no-workers" not in {rule for rule, _ in project.rules()}
    project.write({"train.ipynb": notebook(f"from train import step\n{text}"), "train.py": STEP})
    assert "dataloader-no-workers" in {rule for rule, _ in project.rules()}


KEEPS_BEST = """\
import torch
from torch import nn

def fit(loader, held_out):
    model, least = nn.Linear(8, 1), 1e9
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(10):
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        loss = model(held_out).sum().item()
        if loss < least:
            least, best = loss, None
            best = model.state_dict()
    model.load_state_dict(best)
    return model

fit([torch.rand(4, 8)], torch.rand(4, 8))
"""


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ("", True),
        (KEEPS_BEST, False),
        (KEEPS_BEST.replace("best = model.state_dict()", "best = keep(model)"), True),
        (f"import json\nfrom __future__ import division\n{KEEPS_BEST}", True),
    ],
    ids=["alone", "the-same", "mended", "refused"],
)
def test_a_notebook_with_a_function_of_a_file_is_a_copy(project: Project, other: str, told: bool) -> None:
    project.write({"look.ipynb": notebook(KEEPS_BEST), "lib.py": other})
    found = {os.path.basename(finding["filename"]) for finding in project.findings() if finding["rule"] == "best-model-alias"}
    assert ("look.ipynb" in found) is told


COUNTED = """\
import torch


def count_classes(loader{parameter}):
    most = 0
    for batch in loader:
        labels = torch.unique(batch["label"]{moved})
        most = max(most, *[label.item() for label in labels.flatten()])
    return most + 1
"""
COUNTS = """\
import sys

import torch
from classes import count_classes
from data import make_loader

loader = make_loader(sys.argv[1])
network = torch.nn.Linear(2, count_classes(loader{given})).cuda()
"""


@pytest.mark.parametrize(
    ("parameter", "moved", "given", "told"),
    [("", "", "", False), ("", ".cuda()", "", True), (", network", "", ", torch.nn.Linear(2, 2).cuda()", True)],
)
def test_what_gets_a_loader_alone_has_batches_on_the_host(
    project: Project, parameter: str, moved: str, given: str, told: bool
) -> None:
    project.write({"classes.py": COUNTED.format(parameter=parameter, moved=moved), "train.py": COUNTS.format(given=given)})
    assert ("item-in-python-loop" in {rule for rule, _ in project.rules()}) is told


LEFT = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return torch.as_tensor(list(Image.open(self.paths[index]).getdata()))

    def __len__(self):
        return len(self.paths)


def {name}(network, batches):
    return sum(network(x.cuda()).sum() for x in batches)


def train(network, optimizer, paths):
    loader = DataLoader(Pictures(paths))
    batches = DataLoader(Pictures(paths), num_workers=4)
    for x in batches:
        network(x.cuda()).sum().backward()
        optimizer.step()
    return {called}(network, batches)


if __name__ == "__main__":
    from settings import optimizer, paths

    train(torch.nn.Linear(2, 2).cuda(), optimizer, paths)
"""


@pytest.mark.parametrize(("name", "called", "told"), [("eval", "eval", False), ("evaluate", "eval", True)])
def test_a_function_of_the_file_is_not_what_runs_texts(project: Project, name: str, called: str, told: bool) -> None:
    project.write({"train.py": LEFT.format(name=name, called=called)})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


OPTION = """\
import argparse

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]))


def main(args, network, optimizer, paths):
    for x in DataLoader(Images(paths), batch_size=8, num_workers={given}):
        network(x.cuda()).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default={default})
    args = parser.parse_args(){more}
    from settings import made

    main(args, *made())
"""
PLAIN = "args.num_workers"


@pytest.mark.parametrize(
    ("given", "default", "more", "readme", "settings", "told"),
    [
        (PLAIN, "0", "", "python train.py --lr 0.1", "lr: 0.1", True),
        (f"int({PLAIN})", "0", "", "python train.py --lr 0.1", "num_workers: 0", True),
        (PLAIN, "4", "", "python train.py --lr 0.1", "lr: 0.1", False),
        (PLAIN, "0", "", "python train.py --num-workers 8", "lr: 0.1", False),
        (PLAIN, "0", "", "python train.py --lr 0.1", "num_workers: 8", False),
        (f"min({PLAIN}, 8)", "0", "", "python train.py --lr 0.1", "lr: 0.1", False),
        (PLAIN, "0", "\n    args.num_workers = 4 * args.gpus", "python train.py --lr 0.1", "lr: 0.1", False),
        ("0", "4", "", "python train.py --lr 0.1", "lr: 0.1", True),
    ],
    ids=["default", "configured", "4", "command", "settings", "unknown", "set", "written"],
)
def test_an_option_that_is_0_gives_no_workers(
    project: Project, given: str, default: str, more: str, readme: str, settings: str, told: bool
) -> None:
    code = OPTION.format(given=given, default=default, more=more)
    project.write({"train.py": code, "configs/base.yaml": f"{settings}\n", "README.md": f"# Train\n\n    {readme}\n"})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules("--select", "dataloader-no-workers")}) is told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", True),
        ("\n    root = r'D:\\pictures'", False),
        ("\n    torch.multiprocessing.set_start_method('spawn')", False),
        ("\n    trainer = Trainer(overfit_batches=1)", False),
    ],
    ids=["plain", "windows", "spawn", "few"],
)
def test_workers_gain_little_where_they_are_spawned_or_epochs_are_short(project: Project, more: str, told: bool) -> None:
    project.write({"train.py": OPTION.format(given="0", default="0", more=more)})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


GUARDED = """\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(net, optimizer, loader, on_cluster, clears):
    for step, x in enumerate(loader):
        net(x.to(device)).sum().backward()
        optimizer.step()
        if {condition}:
            torch.cuda.empty_cache()


train(torch.nn.Linear(2, 2).to(device), optimizer, loader, *flags)
"""


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("torch.cuda.is_available()", True),
        ("not on_cluster and device.type == 'cuda'", True),
        ("device.type == 'cuda' and step % 100 == 0", False),
        ("on_cluster", False),
        ("torch.cuda.is_available() and clears", False),
        ("torch.cuda.is_available() and not no_cuda", True),
        ("not no_cuda and torch.cuda.is_available()", True),
        ("device.type == 'cuda' and not use_cuda_graphs", True),
        ("not torch.cuda.is_available() and not on_cluster", False),
        ("torch.cuda.memory_reserved() > 2**34", False),
    ],
)
def test_to_ask_for_a_gpu_is_no_reason_to_give_memory_back(project: Project, condition: str, told: bool) -> None:
    project.write({"train.py": GUARDED.format(condition=condition)})
    assert ("empty-cache-in-loop" in {rule for rule, _ in project.rules()}) is told


HANDED_ON = """\
import argparse

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]))


class Data:
    def __init__(self, paths, workers):
        self.paths, self.workers = paths, workers

    def batches(self):
        count = self.workers
        return DataLoader(Images(self.paths), batch_size=8, num_workers=count)


def main(args, network, optimizer, paths):
    for x in Data(paths, {given}).batches():
        network(x.cuda()).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default={default})
    from settings import made

    main(parser.parse_args(), *made())
"""


@pytest.mark.parametrize(("given", "default", "told"), [("args.workers", 0, True), ("args.workers", 4, False), ("4", 0, False)])
def test_an_option_is_followed_through_parameters_and_attributes(
    project: Project, given: str, default: int, told: bool
) -> None:
    project.write({"train.py": HANDED_ON.format(given=given, default=default)})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules("--select", "dataloader-no-workers")}) is told


TEMPLATED = """\
import argparse

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", type=str, default="cpu", choices=["cpu", "cuda"])
args = parser.parse_args()
{template}


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return torch.as_tensor(list(Image.open(self.paths[index]).getdata()))


def train(network, optimizer, paths):
    for x in DataLoader(Images(paths)):
        network(x.to(args.device)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    from settings import made

    train(*made(args.device))
"""


IN_A_CELL = """\
import torch
from torch.utils.data import DataLoader
{dataset}

network = torch.nn.Conv2d(3, 3, 3).to("cuda")
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
for x in DataLoader(Images(paths), batch_size=8):
    network(x.to("cuda")).sum().backward()
    optimizer.step()
"""
IMAGES = """\
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms.functional import to_tensor


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]))
"""


def notebook(code: str) -> str:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": code}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize("is_in_cell", [True, False])
def test_workers_that_are_spawned_find_nothing_of_a_notebook(project: Project, is_in_cell: bool) -> None:
    code = IN_A_CELL.format(dataset=IMAGES if is_in_cell else "from images import Images")
    project.write({"look.ipynb": notebook(code), "images.py": IMAGES})
    (found,) = [f for f in project.findings() if f["rule"] == "dataloader-no-workers"]
    assert found["message"].endswith(
        "pass `num_workers=`" + " on Linux (elsewhere the dataset has to be in a module)" * is_in_cell
    )
    assert (found["fix"] is None) is is_in_cell


@pytest.mark.parametrize(("template", "told"), [("args.device = 'cuda'", True), ("", False)])
def test_an_option_that_the_program_sets_is_no_matter_of_commands(project: Project, template: str, told: bool) -> None:
    project.write({"main.py": TEMPLATED.format(template=template), "README.md": "# Run\n\n    python main.py --train\n"})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


STEPS = """\
import sys
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
{imported}


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.from_numpy(np.array(Image.open(self.paths[index])))


def main(paths):
    network = nn.Linear(3, 1).cuda()
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    loader = DataLoader(Images(paths), batch_size=16)
    for x in loader:
        loss = network(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()
        {last}


main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("imported", "last", "other", "told"),
    [
        ("from PIL import Image", "pass", "import train", {"dataloader-no-workers", "empty-cache-in-loop"}),
        ("from PIL import Image", "report(loss)", "import train", set()),
        ("from PIL import Image", "report(loss)", "pass", {"dataloader-no-workers", "empty-cache-in-loop"}),
        ("", "pass", "import train", {"empty-cache-in-loop"}),
    ],
    ids=["runs", "no such function", "a part of something", "no such module"],
)
def test_programs_that_end_in_their_first_step(project: Project, imported: str, last: str, other: str, told: set[str]) -> None:
    project.write({"train.py": STEPS.format(imported=imported, last=last), "run.py": other})
    shown = {rule for rule, _ in project.rules()}
    assert shown & {"dataloader-no-workers", "empty-cache-in-loop"} == told


TABLES = """\
import pandas as pd
import torch
from torch.utils.data import Dataset


class Weather(Dataset):
    def __init__(self, path, places):
        self.path, self.places = path, places

    def __getitem__(self, index):
        table = pd.read_csv({path})
        return torch.tensor(table.iloc[index % 100].values)
"""


@pytest.mark.parametrize(
    ("path", "cure"),
    [("self.path", "read it once"), ("f'{self.path}/{self.places[index]}.csv'", "in a dict by its path")],
)
def test_a_table_of_many_items_is_kept_by_its_path(project: Project, path: str, cure: str) -> None:
    project.write({"data.py": TABLES.format(path=path)})
    found = [f["message"] for f in project.findings("--select", "csv-row-by-skiprows")]
    assert len(found) == 1
    assert cure in found[0]


LOADERS_AT_THE_TOP = """\
from torch.utils.data import DataLoader
from torchvision import datasets

loader = DataLoader(datasets.ImageFolder("data"), batch_size=8)

if __name__ == "__main__":
    print(len(loader))
"""
TAKEN_AT_THE_TOP = """\
import torch
from loaders import loader

model = torch.nn.Conv2d(3, 1, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, _ in loader:
    optimizer.zero_grad()
    model(x.cuda()).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("guarded", [True, False])
def test_workers_need_a_guard_in_whatever_file_takes_their_batches(project: Project, guarded: bool) -> None:
    train = TAKEN_AT_THE_TOP
    if guarded:
        head, loop = train.split("for x")
        train = f"{head}if __name__ == '__main__':\n" + textwrap.indent(f"for x{loop}", "    ")
    project.write({"pyproject.toml": "", "loaders.py": LOADERS_AT_THE_TOP, "train.py": train})
    (found,) = (f for f in project.findings() if f["rule"] == "dataloader-no-workers")
    assert ("__main__" in found["message"]) is not guarded
    assert (found["fix"] is not None) is guarded


ATTACK_OF_A_TRAINING = """\
import torch
import torch.nn.functional as F

def set_gradients(net, on):
    for parameter in net.parameters():
        parameter.requires_grad = on

def attack(net, x, y):
    set_gradients(net, False)
    moved = x.detach().clone().requires_grad_()
    F.cross_entropy(net(moved), y).backward()
    set_gradients(net, True)
    return moved + moved.grad.sign()

def train(net: torch.nn.Module, loader):
    net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        moved = attack(net, x.cuda(), y.cuda())
        optimizer.zero_grad()
        F.cross_entropy(net(moved), y.cuda()).backward()
        optimizer.step()
"""


@pytest.mark.parametrize("freezes", [True, False])
def test_weights_that_a_helper_freezes_have_no_gradients_to_leave_out(project: Project, freezes: bool) -> None:
    code = ATTACK_OF_A_TRAINING if freezes else ATTACK_OF_A_TRAINING.replace("= on", "= True")
    project.write({"pyproject.toml": "", "train.py": code})
    assert ("input-gradient-by-backward" in {rule for rule, _ in project.rules()}) is not freezes


@pytest.mark.parametrize(
    ("required", "told"),
    [
        ("torch==2.4.0\n", True),
        ("torch==2.4.0+cpu\n", False),
        ("torch --index-url https://download.pytorch.org/whl/cpu\n", False),
        ("torch  # or torch==2.4.0+cpu\n", True),
        ("--extra-index-url https://download.pytorch.org/whl/cpu\ntorch==2.1.0+cu118\n", True),
    ],
)
def test_a_project_that_asks_for_a_torch_without_a_gpu_has_none(project: Project, required: str, told: bool) -> None:
    project.write({"requirements.txt": required, "loaders.py": LOADERS_AT_THE_TOP, "train.py": TAKEN_AT_THE_TOP})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


@pytest.mark.parametrize("sample", ["to_tensor(Image.open({name}))", "torchvision.io.read_image({name}).float()"])
def test_pictures_that_torchvision_decodes_take_little(project: Project, sample: str) -> None:
    code = NEXT.replace("to_tensor(Image.open({name}))", sample).format(name="self.paths[index]", batches=EACH)
    project.write({"pyproject.toml": "", "train.py": f"import torchvision\n{code}"})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is ("Image.open" in sample)


KEPT = """\
import torch


def step(model, x, optimizer):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    {inside}


def fit(model, batches, rate):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best_loss, best_state = 9.0, None
    for epoch in range(9):
        for x in batches:
            step(model, x, optimizer)
        loss = rate(model)
        if loss < best_loss:
            best_loss, best_state = loss, model.state_dict()
    model.load_state_dict(best_state)


def load(scaling, numbers):
    {outside}
"""


@pytest.mark.parametrize(
    ("inside", "outside", "told"),
    [
        ("pass", "scaling.width.data = numbers", True),
        ("pass", "scaling.data = numbers", True),
        ("model.scale.data = model.scale.clamp(0)", "pass", False),
        ("pass", "for p in scaling: p.data = numbers", False),
    ],
)
def test_who_gives_parameters_other_tensors(project: Project, inside: str, outside: str, told: bool) -> None:
    project.write({"train.py": KEPT.format(inside=inside, outside=outside)})
    assert ("best-model-alias" in {rule for rule, _ in project.rules()}) is told
