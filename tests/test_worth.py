"""What is worth a minute by default: the same flaw where it counts, and where it does not."""

from __future__ import annotations

import pytest
from conftest import Project

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
    project: Project, each: str, once: str, before: str, after: str, told: bool
) -> None:
    project.write({"train.py": EVALUATION.format(each=each, once=once, before=before, after=after)})
    assert (("eval-without-no-grad", 10) in project.rules()) is told
    if "volatile" not in before:
        assert ("eval-without-no-grad", 10) in project.rules("--select", "eval-without-no-grad")


EMA = """\
import torch
from torch import nn
from places import DEVICE


def update(average, network):
    for p, q in zip(average.parameters(), network.parameters()):
        p.data.mul_(0.99).add_(q.data, alpha=0.01)


def main(loader):
    network, average = nn.Linear(4, 4).to(DEVICE), nn.Linear(4, 4).to(DEVICE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for x in loader:
        network(x.to(DEVICE)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        update(average, network)


if __name__ == "__main__":
    main(torch.randn(8, 2, 4))
"""


@pytest.mark.parametrize(("device", "told"), [("cuda", True), ("cpu", False)])
def test_kernels_are_launched_on_a_gpu(project: Project, device: str, told: bool) -> None:
    project.write({"main.py": EMA, "places.py": f"import torch\nDEVICE = torch.device('{device}')\n"})
    assert (("python-ema-loop", 7) in project.rules()) is told


@pytest.mark.parametrize(
    ("layer", "step", "told"),
    [("nn.Linear(4, 4)", "env.step(1)", False), ("nn.Conv1d(4, 4, 1)", "env.step(1)", True), ("nn.Linear(4, 4)", "pass", True)],
    ids=["dense", "convolution", "data"],
)
def test_an_agent_of_few_layers_has_few_kernels_to_save(project: Project, layer: str, step: str, told: bool) -> None:
    main = EMA.replace("nn.Linear(4, 4)", layer).replace(
        "        optimizer.step()\n", f"        optimizer.step()\n        {step}\n"
    )
    project.write({"main.py": main, "places.py": "import torch\nDEVICE = torch.device('cuda')\n"})
    assert (("python-ema-loop", 7) in project.rules()) is told
    assert ("python-ema-loop", 7) in project.rules("--select", "python-ema-loop")


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

    def load(self):
        self.rows = np.load(self.path)


def main(network, optimizer):
    for x in DataLoader(Rows("rows.npy"), batch_size=8):
        network(x.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(("look", "told"), [("if self.rows is None:", False), ("if index >= 0:", True)])
def test_a_file_that_the_first_sample_reads_is_no_work_for_workers(project: Project, look: str, told: bool) -> None:
    project.write({"train.py": DATASET.format(look=look)})
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
    return DataLoader(data, batch_size=20, shuffle=True), 5


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
    assert ("loader-iterator-per-step" in {rule for rule, _ in project.rules()}) is told


@pytest.mark.parametrize(("network", "told"), [("resnet18", True), ("detection.fasterrcnn_resnet50_fpn", False)])
def test_networks_that_wait_inside_wait_anyhow(project: Project, network: str, told: bool) -> None:
    text = f"""\
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        from torchvision import models

        def main():
            network = models.{network}().cuda()
            optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
            loader = DataLoader(TensorDataset(torch.randn(64, 3, 8, 8)), batch_size=8, num_workers=2, pin_memory=True)
            for (x,) in loader:
                x = x.cuda()
                network(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

        if __name__ == "__main__":
            main()
    """
    project.write({"train.py": text})
    assert ("blocking-h2d-in-loop" in {rule for rule, _ in project.rules()}) is told


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
        ("self.paths[index]", ANEW.format("next(iter(loader))"), "loader-iterator-per-step"),
        ("self.paths[index]", ANEW.format("loader.__iter__().next()"), "loader-iterator-per-step"),
    ],
    ids=["by number", "one after the other", "anew", "anew by hand"],
)
def test_workers_are_for_samples_that_they_can_make(project: Project, name: str, batches: str, told: str | None) -> None:
    project.write({"train.py": NEXT.format(name=name, batches=batches)})
    found = {rule for rule, _ in project.rules()}
    assert found & {"dataloader-no-workers", "loader-iterator-per-step"} == ({told} if told else set())
