"""What a run shows of the assumptions: small programs in which each holds, and in which it does not."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Project, in_subprocess
from perflint_probe import assumptions as watched
from perflint_probe.assumptions import Assumptions
from perflint_probe.clocks import Clocks
from probe_in_fork import run_in_fork

from perflint.rule.assumptions import ASSUMPTIONS
from perflint.verify.assumed import confirmation, summary

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="programs run in forks")

PLAIN = """
import time, torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(2):
            self.layers.append(nn.Linear(4, 4))
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(4, 1))
        self.seen = 0

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        self.seen += len(x)
        return self.out(x)

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randn(8, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
net = Net()
optimizer = torch.optim.Adam(net.parameters())
for x, y in loader:
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
NOT_WITHOUT_A_GPU = {"one-stream", "memory-to-spare"}
NEVER = {"application", "plain-objects", "evaluation-rounding", "cell-order", "runtime"}


def shown(program: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in run_in_fork(program, "count").data["assumptions"]}


@pytest.fixture(scope="module")
def plain() -> dict[str, dict[str, Any]]:
    return shown(PLAIN)


def test_every_assumption_has_a_status_and_a_page_that_says_what_is_looked_at(plain: dict[str, dict[str, Any]]) -> None:
    assert plain.keys() == ASSUMPTIONS.keys()
    assert {name for name, row in plain.items() if row["status"] == "open"} == NEVER
    assert {name for name, assumption in ASSUMPTIONS.items() if not assumption.looked_at} == NEVER


def test_an_ordinary_program_violates_nothing(plain: dict[str, dict[str, Any]]) -> None:
    held = {name for name, row in plain.items() if row["status"] == "held"}
    assert held == ASSUMPTIONS.keys() - NEVER - NOT_WITHOUT_A_GPU - {"errors-are-bugs"}
    assert not [row for row in plain.values() if row["status"] == "violated"]


def test_a_program_that_does_nothing_confirms_nothing() -> None:
    rows = shown("import torch\nprint(torch.__version__)\n")
    assert {row["status"] for row in rows.values()} == {"not exercised", "open"}
    assert list(confirmation([named(row) for row in rows.values()], []))[-1].startswith("There is nothing to declare")


VIOLATIONS = {
    "cuda-or-cpu": "odd = torch.Tensor._make_wrapper_subclass(Odd, (2,), device='xla', dtype=torch.float32); odd + 1",
    "plain-tensors: a class": "torch.ones(2).as_subclass(Odd2) + 1",
    "plain-tensors: a mode": "\nwith Watch():\n    torch.ones(2) + 1",
    "plain-batches: no non_blocking": "next(iter(torch.utils.data.DataLoader([1], collate_fn=lambda rows: Batch())))",
    "plain-batches: inside": "next(iter(torch.utils.data.DataLoader([1], collate_fn=lambda rows: {'x': [Row()]})))",
    "no-hooks: of a module": "net.register_forward_hook(lambda *_: None)",
    "no-hooks: of all modules": "nn.modules.module.register_module_forward_pre_hook(lambda *_: None)",
    "no-hooks: of a tensor": "net.out[1].weight.register_hook(print)",
    "no-hooks: of gradients": "net.out[1].weight.register_post_accumulate_grad_hook(print)",
    "no-hooks: of what is saved": "\nwith torch.autograd.graph.save_on_cpu():\n    net(x)",
    "no-lazy-modules": "nn.LazyLinear(3)(x)",
    "errors-are-bugs": "\ntry:\n    torch.ones(2) + torch.ones(3)\nexcept RuntimeError:\n    pass",
    "no-autocast": "\nwith torch.autocast('cpu', torch.bfloat16):\n    net(x)",
    "no-autocast: its old name": "\nwith torch.cpu.amp.autocast():\n    net(x)",
    "plain-modules: a submodule": "net.out = nn.Linear(4, 1)",
    "plain-modules: a part of a container": "net.out[1] = nn.Linear(4, 1)",
    "plain-modules: a method": "net.forward = lambda x: x",
    "plain-modules: a class": "Net.forward = lambda self, x: x; net(x)\nnet = Net(); net(x)",
    "plain-modules: compiled": "torch.compile(net)",
    "plain-modules: scripted": "torch.jit.trace(net, x)(x)",
    "plain-modules: normed": "nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))(x)",
    "plain-modules: torch's functions": "F.relu = torch.relu",
    "known-layers: asks": "Asks()(x)",
    "known-layers: looks": "Looks()(x)",
    "known-layers: keeps": "Keeps()(x)",
}
PARTS = """
class Odd(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return args[0]

class Odd2(torch.Tensor):
    pass

class Watch(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

class Batch:
    def to(self, device):
        return self

class Row:
    pass

class Asks(nn.Module):
    def forward(self, x):
        with torch.enable_grad():
            y = x.detach().requires_grad_().pow(2).sum()
            return torch.autograd.grad(y, y)[0]

def looks(x):
    return x if x.requires_grad else x + 1

class Looks(nn.Module):
    def forward(self, x):
        return self.helper(x)

    def helper(self, x):
        return looks(x)

class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.kept = nn.Linear(4, 2), []

    def forward(self, x):
        self.kept.append(self.linear(x))
        return self.kept[-1]

net = Net()
"""


@pytest.mark.parametrize("case", VIOLATIONS)
def test_a_violation_is_seen_with_its_place(case: str) -> None:
    name = case.partition(":")[0]
    rows = shown(f"{PLAIN}{PARTS}{VIOLATIONS[case]}\n")
    assert rows[name]["status"] == "violated", rows[name]
    first = f"{PLAIN}{PARTS}".count("\n") + 1
    places = range(first, first + 4)
    if name == "known-layers" and "keeps" not in case:  # at the layer's own code
        text = f"{PLAIN}{PARTS}".splitlines()[rows[name]["line"] - 1]
        assert text.lstrip().startswith("def ")
    elif case == "plain-modules: torch's functions":  # which is a builtin here and stands nowhere
        assert "`relu`" in rows[name]["why"]
    else:
        assert Path(rows[name]["file"]).name == "program.py"
        assert rows[name]["line"] in places, rows[name]


@pytest.mark.parametrize(
    "text",
    [
        "torch.manual_seed(3); torch.random.manual_seed(4)",
        "nn.utils.clip_grad_norm_(net.parameters(), 1.0)",
        "net.out.add_module('more', nn.Linear(1, 1))",
        "nn.Sequential(*[nn.Linear(4, 4)])(x)",
        "import io; f = io.BytesIO(); torch.save(net.state_dict(), f); f.seek(0); net.load_state_dict(torch.load(f))",
        "nn.MultiheadAttention(4, 2)(x, x, x)",
        "nn.TransformerEncoderLayer(4, 2, 8).eval()(x)",
        "nn.parallel.DataParallel(net)(x)",
        "import copy; copy.deepcopy(net)(x)",
        "\nwith torch.autocast('cpu', enabled=False):\n    net(x)",
        "\nwith torch.device('cpu'):\n    net(x)",
        "\nwith torch.no_grad():\n    net(x)",
        "net.frozen = True; net.eval()(x)",
        "torch.utils.checkpoint.checkpoint(net, x.requires_grad_(), use_reentrant=False).sum().backward()",
        "torch.optim.lr_scheduler.StepLR(optimizer, 1).step()",
        "print(x, repr(net), hasattr(x, 'nothing'))",
    ],
)
def test_what_torch_does_for_itself_is_no_violation(text: str) -> None:
    rows = shown(f"{PLAIN}{text}\n")
    assert {name: row for name, row in rows.items() if row["status"] == "violated"} == {}


def test_a_clock_that_the_program_reads_is_for_its_owner_to_judge() -> None:
    before = "from time import perf_counter as clock\nclass Timer:\n    now = clock\n"
    row = shown(f"{before}{PLAIN}\nTimer().now()\n")["no-clock"]
    assert row["status"] == "open"
    assert row["line"] == f"{before}{PLAIN}\n".count("\n") + 1
    assert shown(f"import logging\n{PLAIN}\nlogging.warning('x')\n")["no-clock"]["status"] == "held"


def test_a_second_stream_and_full_memory_are_violations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, with what torch would say of one."""
    looking, first = Assumptions(Clocks()), torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    numbers = iter((7, 7, 8))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: type("S", (), {"cuda_stream": next(numbers)}))
    monkeypatch.setattr(watched, "_host_memory_left", lambda: 0.5)
    monkeypatch.setattr(watched, "_device_memory_left", lambda: 0.4)
    for _ in range(2):
        looking._on_stream(first)
        looking.on_step()
    rows = {row["name"]: row for row in looking.rows()}
    assert (rows["one-stream"]["status"], rows["memory-to-spare"]["status"]) == ("held", "held")
    monkeypatch.setattr(watched, "_device_memory_left", lambda: 0.03)
    looking._on_stream(first)
    looking.on_step()
    rows = {row["name"]: row for row in looking.rows()}
    assert (rows["one-stream"]["status"], rows["memory-to-spare"]["status"]) == ("violated", "violated")
    assert "3% of the memory was left" in rows["memory-to-spare"]["why"]


# -- the commands ---------------------------------------------------------------------------------------------------------


def named(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    place = None if row["file"] is None else f"{row['file']}:{row['line']}"
    return {"name": row["name"], "status": row["status"], "place": place, "why": row["why"], **STANDING, **more}


STANDING = {"declared": False, "contradicted": None, "needed": None}


def test_only_what_held_and_is_not_contradicted_can_be_copied(plain: dict[str, dict[str, Any]]) -> None:
    rows = [named(row, contradicted="a.py:3" if row["name"] == "no-autocast" else None) for row in plain.values()]
    findings = [{"assumptions": names} for names in (["cuda-or-cpu"], ["no-hooks", "application"], ["one-stream"], [])]
    said = list(confirmation(rows, findings))
    line = next(text for text in said if text.startswith("assume = "))
    held = {row["name"] for row in rows if row["status"] == "held"}
    assert set(json.loads(line.removeprefix("assume = "))) == held - {"no-autocast"}
    assert "the line for `[tool.perflint]`, with which 1 more fix would be applied:" in said
    assert "1 fix would need application, too, which this run does not confirm." in said
    assert any("no-autocast" in text and "a.py:3 contradicts it" in text for text in said)


def test_the_summary_names_what_is_declared_and_not_shown(plain: dict[str, dict[str, Any]]) -> None:
    rows = [named(row, declared=True) for row in plain.values()]
    said = "\n".join(summary(rows))
    assert "Assumptions that held in this run: cuda-or-cpu," in said
    assert "declared, not shown: one-stream: the run had no operation on a CUDA device" in said


@pytest.fixture
def training(project: Project) -> Project:
    hooked = PLAIN.replace("optimizer =", "net.register_forward_hook(lambda *_: None)\noptimizer =")
    return project.write({"train.py": hooked, "pyproject.toml": "[tool.perflint]\n"})


def run(project: Project, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return in_subprocess(*arguments, "--quiet", cwd=project.root)


def test_a_declared_assumption_that_a_run_violates_is_exit_code_1(training: Project) -> None:
    done = run(training, "profile", "train.py", "--steps", "0", "--assume", "no-hooks,cuda-or-cpu", "--confirm")
    row = (training.root / "train.py").read_text().splitlines().index("net.register_forward_hook(lambda *_: None)") + 1
    assert done.returncode == 1, done.stderr
    assert f"violated, though declared: no-hooks at train.py:{row}: ".encode() in done.stdout
    line = next(text for text in done.stdout.decode().splitlines() if text.startswith("assume = "))
    assert "no-hooks" not in line
    assert "cuda-or-cpu" in line


def test_an_unknown_name_is_noticed_before_the_runs(training: Project) -> None:
    done = run(training, "verify", "train.py", "--assume", "no-hoks")
    assert done.returncode == 2
    assert b"did you mean `no-hooks`?" in done.stderr


@pytest.mark.slow
def test_verify_says_it_in_text_data_and_page(training: Project) -> None:
    files = ("--json", "record.json", "--html", "page.html")
    unused = run(training, "verify", "train.py", "--repeats", "2", "--assume", "no-hooks,plain-batches")
    assert unused.returncode == 0, unused.stderr
    assert b"is registered by `register_forward_hook`; no fix here rests on it\n" in unused.stdout
    training.write({"pyproject.toml": '[tool.perflint]\nassume = ["no-hooks", "plain-batches"]\n'})
    done = run(training, "verify", "train.py", "--repeats", "2", *files)
    assert done.returncode == 1, done.stderr
    assert b"violated, though declared: no-hooks at train.py:" in done.stdout
    rows = {row["name"]: row for row in json.loads((training.root / "record.json").read_text())["assumptions"]}
    assert (rows["no-hooks"]["status"], rows["no-hooks"]["declared"]) == ("violated", True)
    assert (rows["plain-batches"]["status"], rows["plain-batches"]["declared"]) == ("held", True)
    page = (training.root / "page.html").read_text()
    assert "<code>no-hooks</code>" in page
    assert rows["no-hooks"]["place"] in page
