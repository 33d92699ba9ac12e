"""Waits of a step that do not stand in its loop: in libraries, helpers, datasets; and reads that only move."""

from __future__ import annotations

import re

import pytest
from conftest import Project

pytestmark = pytest.mark.usefixtures("waits_told")

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{above}
device = torch.device("cuda")


def train(network, optimizer, writer, config):
    data = TensorDataset(torch.randn(640, 6), torch.randint(0, 4, (640,)))
    loader = DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    total = 0.0
    for step, (x, y) in enumerate(loader):
        {batch}
        optimizer.zero_grad()
        out = network(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        {line}
    return total


def main(writer, config):
    model = nn.Linear(6, 4).to(device)
    optimizer = {optimizer}
    print(train(model, optimizer, writer, config))
"""
MOVED = "x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)"
SGD = "torch.optim.SGD(model.parameters(), lr=0.1)"
ITEM = "item-every-step"


def told(project: Project, text: str, rules: tuple[str, ...] = (ITEM,), **others: str) -> list[tuple[str, int]]:
    """What is told by default of some rules, where the program may import the runtime and all that is ordinary is declared."""
    project.write({"train.py": text, **{f"{name}.py": other for name, other in others.items()}})
    return sorted(one for one in project.rules("--runtime", "--assume", "ordinary") if one[0] in rules)


def waits(project: Project, text: str, **others: str) -> int:
    """How many waits per step the sync budget of a program counts."""
    project.write({"train.py": text, **{f"{name}.py": other for name, other in others.items()}})
    found = re.search(r"sync budget: (?:at least )?(\d+) wait", project.run("check").stdout)
    assert found is not None
    return int(found[1])


def program(line: str = "total += loss.item()", batch: str = MOVED, above: str = "", optimizer: str = SGD) -> str:
    return TRAIN.format(line=line, batch=batch, above=above, optimizer=optimizer)


def test_a_read_that_is_the_only_wait_is_told(project: Project) -> None:
    assert [rule for rule, _ in told(project, program())] == [ITEM]


@pytest.mark.parametrize(
    "text",
    [
        program(above="torch.autograd.set_detect_anomaly(True)"),
        program(optimizer=f"LARC({SGD})", above="from apex.parallel.LARC import LARC"),
        program(optimizer="torch_optimizer.Lamb(model.parameters())", above="import torch_optimizer"),
        program(batch=f'{MOVED}; words = config.tokenizer(step, return_tensors="pt").to(device)'),
    ],
    ids=["anomaly-mode", "larc", "lamb", "tokenizer"],
)
def test_what_a_library_waits_for_is_counted(project: Project, text: str) -> None:
    assert waits(project, text) > waits(project, program())


ACCURACY = """\
import torch


def accuracy(scores, targets):
    return (scores >= 0.5).eq(targets >= 0.5).type(torch.FloatTensor).mean()


def accuracies(all_scores, targets):
    return [accuracy(scores, targets) for scores in all_scores]
"""
VARIABLE = """\
import torch


def variable(t, use_cuda=True):
    if torch.cuda.is_available() and use_cuda:
        t = t.cuda()
    return t


def importance(network, samples):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network.to(device)
    for sample in samples:
        network(variable(sample.unsqueeze(0).to(device)))
"""


@pytest.mark.parametrize(
    ("helper", "text"),
    [
        (ACCURACY, program(line="config.add(accuracy(out, y)); total += loss.item()", above="from helper import accuracy")),
        (VARIABLE, program(batch="x, y = variable(x), variable(y)", above="from helper import variable")),
    ],
    ids=["legacy-type", "copies-what-it-is-given"],
)
def test_helpers_in_other_files_wait(project: Project, helper: str, text: str) -> None:
    assert waits(project, text, helper=helper) > waits(project, program())


POLICY = """\
import torch
from torch import nn
from torch.distributions import Categorical

device = torch.device("cuda")


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Linear(6, 4)

    def judge(self, states, actions):
        choice = Categorical(logits=self.actor(states){unless})
        return choice.log_prob(actions), choice.entropy()


def update(policy: Policy, optimizer: torch.optim.Adam, states, actions, advantages):
    total = 0.0
    for begin in range(0, 1000, 8):
        at = torch.arange(begin, begin + 8, device=device)
        log_prob, entropy = policy.judge(states[at], actions[at])
        loss = -(log_prob * advantages[at]).mean() - entropy.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total


def main():
    policy = Policy().to(device)
    states, actions = torch.randn(1000, 6, device=device), torch.zeros(1000, device=device)
    print(update(policy, torch.optim.Adam(policy.parameters()), states, actions, torch.ones(1000, device=device)))
"""
CHECKS = "distribution-checks-arguments"


@pytest.mark.parametrize(("unless", "rules"), [("", [CHECKS, ITEM]), (", validate_args=False", [ITEM])])
def test_the_checks_of_a_distribution_go_with_the_reads_beside_them(project: Project, unless: str, rules: list[str]) -> None:
    assert [rule for rule, _ in told(project, POLICY.format(unless=unless), (CHECKS, ITEM))] == rules
    waits = "1 wait" if unless else "3 waits"
    assert f"{waits} per step" in project.run("check", "--runtime").stdout


LOGGED = """\
import torch
from torch import nn
torch.cuda.set_device(0)
class Trainer:
    def __init__(self, network, optimizer: torch.optim.SGD, writer, options):
        self.network, self.optimizer, self.writer = network, optimizer, writer
        self.part, self.steps = options.part, 0

    def train(self, samples):
        for sample in samples.shuffled():
            self.single_step(sample)

    def single_step(self, sample):
        for key in sample.keys():
            sample[key] = sample[key].to(0)
        value, words = self.network(sample)
        first = nn.functional.mse_loss(value, sample["value"])
        second = nn.functional.nll_loss(words, sample["words"])
        loss = self.part * first + (1 - self.part) * second
        loss.backward()
        self.optimizer.step()
        self.writer.add_scalar("first", first, self.steps)
        self.writer.add_scalar("second", second, self.steps)
        self.writer.add_scalar("both", {both}, self.steps)
"""


@pytest.mark.parametrize(("both", "rows"), [("loss", [22, 23, 24]), ("self.part", [22, 23])])
def test_what_starts_a_backward_pass_is_a_tensor_for_a_logger(project: Project, both: str, rows: list[int]) -> None:
    assert [row for _, row in told(project, LOGGED.format(both=both))] == rows


MASKS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda")


class Views(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        label = torch.tensor([1.0, 0.0])
        view = self.view(index)
        return torch.randn(6), label, view

    def view(self, index):
        output = {output}
        output[index % 20] = {one}
        return output


def train(model: nn.Linear, optimizer: torch.optim.SGD):
    loader = DataLoader(Views(), batch_size=8, num_workers=2, pin_memory=True)
    model.to(device)
    total = 0.0
    for i, (x, label, view) in enumerate(loader):
        x, label, view = x.to(device), label.to(device), view.to(device)
        out = model(x)
        out = out[view].reshape(x.shape[0], 1)
        loss = (out - label).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""


@pytest.mark.parametrize(
    ("output", "one", "is_mask"),
    [
        ("torch.tensor([False for i in range(20)])", "True", True),
        ("torch.tensor([False] * 20)", "True", True),
        ("torch.zeros(20, dtype=torch.bool)", "True", True),
        ("torch.zeros(20, dtype=torch.long)", "1", False),
        ("torch.tensor([0 for i in range(20)])", "1", False),
    ],
)
def test_an_index_that_a_dataset_makes_of_bools_waits(project: Project, output: str, one: str, is_mask: bool) -> None:
    numbers = MASKS.format(output="torch.zeros(20, dtype=torch.long)", one="1")
    assert waits(project, MASKS.format(output=output, one=one)) - waits(project, numbers) == is_mask


CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
OF_EACH = """\
import torch


def train(model: torch.nn.Module, loader, optimizer, norms):
    model.to("cuda")
    for x in loader:
        model(x.to("cuda")).sum().backward()
        for name, p in model.named_parameters():
            {read}
        {after}
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("read", "after", "cure"),
    [
        ("if torch.isnan(p.grad).any(): raise RuntimeError(name)", "pass", "compute one number for all"),
        (
            "if torch.isnan(p.grad).any(): raise RuntimeError(name)",
            CLIP,
            "`clip_grad_norm_`, which runs here, too, returns one",
        ),
        ("norms.setdefault(name, []).append(p.grad.norm().item())", CLIP, "stack them, and read them with one wait"),
    ],
)
def test_what_to_do_about_a_read_of_each_parameter(project: Project, read: str, after: str, cure: str) -> None:
    project.write({"train.py": OF_EACH.format(read=read, after=after)})
    (message,) = {f["message"] for f in project.findings() if f["rule"] == "per-parameter-read"}
    assert cure in message


COUNTED = """\
import torch
import torch.distributed as dist


class Meter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n


def train(model, optimizer, loader, shared):
    meter = Meter()
    for x, y in loader:
        loss = model(x.cuda(), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n = x.size(0)
        if shared:
            count = loss.new_tensor([n])
            dist.all_reduce(count)
            n = count.item()
        meter.update(loss.item(), n)
    print(meter.sum / meter.count)
"""


def test_a_number_that_is_a_read_on_one_way_alone(project: Project) -> None:
    project.write({"train.py": COUNTED})
    assert project.rules("--select", ITEM, "--runtime") == [(ITEM, 25), (ITEM, 26)]
    assert project.fixed("train.py", "--select", ITEM, "--runtime", "--unsafe-fixes") == COUNTED
