"""The sync budget: one training loop that waits for nothing, and in each test one thing in its step that may wait."""

from __future__ import annotations

import re

import pytest
from conftest import Project

from perflint.run.outcome import Budget, StepWait

LOOP = """\
import math

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda")


def helper(loss):
    return loss.item()


def starts(x, state=None):
    if state is None:
        state = torch.zeros(8, 6).to(device)
    return x + state


def train(model: nn.Module, optimizer: torch.optim.Optimizer, sizes: list[int], names: dict[int, str], special: bool):
    data = TensorDataset(torch.randn(90, 6), torch.randint(0, 4, (90,)))
    loss_of = nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler("cuda")
    side, done = torch.cuda.Stream(), torch.cuda.Event()
    on_host = torch.tensor([1, 0])
    total, kept = torch.zeros((), device=device), []
    for step, (x, y) in enumerate(DataLoader(data, batch_size=8, pin_memory=True)):
        x = x.to(device, non_blocking=True)
        y = y.to(device, non_blocking=True)
        optimizer.zero_grad()
        out = model(x)
        loss = loss_of(out, y)
        {}
        loss.backward()
        optimizer.step()
    return total, kept
"""

WAITS = {
    # the host is given a number
    "kept.append(loss.item())": 1,
    "kept.append(float(loss))": 1,
    "kept.append(int(y[0]))": 1,
    "kept.append(math.sqrt(loss))": 1,
    "kept.append(y.tolist())": 1,
    "kept.append(out.detach().cpu().numpy())": 1,
    "total += x[:y[0]].sum()": 1,
    "total += x[y[0]:y[1]].sum()": 2,
    "total += sum(range(y[0]))": 1,
    "total += torch.zeros(y[0], device=device).sum()": 1,
    "total += x.view(y[0], -1).sum()": 1,
    "kept.append(sizes[y.max()])": 1,
    "kept.append(names[y[0].item()])": 1,
    "kept.append(np.mean([loss.detach()]))": 1,
    "kept.append(np.array([loss.detach(), loss.detach()]))": 2,
    "total += F.one_hot(y).sum()": 2,
    "total += x.add(x, alpha=loss.detach()).sum()": 1,
    "nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)": 1,
    "kept.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())": 1,
    "kept.append(scaler.get_scale())": 1,
    # it is shown a tensor
    "print(loss)": 1,
    "print(loss, total)": 2,
    'print(f"{loss}")': 1,
    # it decides
    "if loss > 3: continue": 1,
    "kept.append(torch.equal(out, out))": 1,
    "if torch.allclose(out, out): continue": 1,
    "if torch.is_nonzero(loss.detach()): continue": 1,
    "total += max(loss, 3)": 1,
    "total += max(loss, loss * 2)": 1,
    "total += max(x[0, 0], x[0, 1], x[0, 2])": 2,
    "if y[0] in (1, 2, 3): continue": 3,
    # it has to know a size
    "total += torch.nonzero(x > 1).sum()": 1,
    "total += torch.where(x > 1)[0].sum()": 1,
    "total += x[x > 1].sum()": 1,
    "total += x[0, x[0] > 1].sum()": 1,
    "x[x > 1] = total": 1,
    "x[x > 1] += 1": 2,
    "total += x.masked_select(x > 1).sum()": 1,
    "kept.append(len(torch.unique(y)))": 1,
    "total += y.unique_consecutive().sum()": 1,
    "total += torch.bincount(y).sum()": 1,
    "total += torch.repeat_interleave(x, y, dim=0).sum()": 1,
    # it copies
    "total += torch.ones(8, 6).to(device).sum()": 1,
    "total += torch.ones(8, 6).cuda().sum()": 1,
    "total += torch.tensor(sizes, device=device).sum()": 1,
    "total += torch.tensor(0.5, device=device)": 1,
    "total += torch.as_tensor(np.ones(3), device=device).sum()": 1,
    "total += torch.cuda.FloatTensor([1, 2]).sum()": 1,
    "total += x.new_tensor([1, 2]).sum()": 1,
    "total += x[[0, 1]].sum()": 1,
    "total += x[on_host].sum()": 1,
    "y = y.type(torch.LongTensor)": 1,
    "y = y.type(torch.LongTensor).to(device)": 2,
    "kept.append(out.to('cpu'))": 1,
    "kept.append(loss.detach().cpu().numpy())": 1,
    "kept.append(loss.cpu().data.numpy())": 1,
    # it waits
    "torch.cuda.synchronize()": 1,
    "side.synchronize()": 1,
    "done.synchronize()": 1,
    "torch.cuda.current_stream().synchronize()": 1,
    "dist.barrier()": 1,
    "scaler.step(optimizer)": 1,
}
NO_WAITS = [
    "pass",
    "x[x > 1] = 0",
    "x.masked_fill_(x > 1, 0)",
    "total += torch.where(x > 1, x, 0).sum()",
    "total += torch.repeat_interleave(x, 2).sum()",
    "total += torch.repeat_interleave(x, y, dim=0, output_size=20).sum()",
    "total += F.one_hot(y, 4).sum()",
    "total += F.one_hot(y, num_classes=4).sum()",
    "total += x.clamp(max=loss.detach()).sum()",
    "total += (x * loss.detach()).sum()",
    "total += x[0].sum() + x[:2].sum() + x[y].sum() + x[:, None].sum()",
    "total += x[:x.shape[0] // 2].sum()",
    "total += torch.zeros(x.shape[0], device=device).sum()",
    "total += torch.stack([loss.detach(), total]).sum()",
    "total += torch.ones(8, 6).to(device, non_blocking=True).sum()",
    "total += torch.full((), 0.5, device=device)",
    "kept.append(torch.tensor(sizes))",
    "kept.append(np.mean(sizes))",
    "kept.append(max(len(x), 3))",
    "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "kept.append(sizes[step])",
    "if step % 100 == 0: print(loss.item())",
]


def budget(project: Project, line: str, *arguments: str, loop: str = LOOP) -> str:
    """What the report says of the loop with a line in its step."""
    project.write({"train.py": loop.replace("{}", line.replace("\n", "\n        "))})
    found = re.search(
        r"train\.py:\d+ train loop: (.*)", project.run("check", "--output-format", "full", "--select", "all", *arguments).stdout
    )
    return found[1] if found else "none"


@pytest.mark.parametrize(("line", "waits"), WAITS.items())
def test_a_wait_is_counted(project: Project, line: str, waits: int) -> None:
    assert budget(project, line).startswith(f"{waits} wait{'s' if waits > 1 else ''} per step")


@pytest.mark.parametrize("line", NO_WAITS)
def test_what_does_not_wait_is_not_counted(project: Project, line: str) -> None:
    assert budget(project, line) == "none"


@pytest.mark.parametrize(
    "line",
    [
        "if special:\n    print(loss)\nelse:\n    kept.append(loss.item()); kept.append(y.tolist())",
        "match step:\n    case 1:\n        kept.append(loss.item()); kept.append(y.tolist())\n    case 2:\n        print(loss)",
        "kept.append(loss.item() + y.sum().item() if special else total.item())",
    ],
)
def test_the_arms_of_a_branch_exclude_each_other(project: Project, line: str) -> None:
    assert budget(project, line).startswith("2 waits per step")


def test_a_function_that_is_called_twice_waits_twice(project: Project) -> None:
    assert budget(project, "kept.append(helper(loss)); kept.append(helper(total))").startswith("2 waits per step")


def test_a_default_that_is_not_needed_is_not_built(project: Project) -> None:
    assert budget(project, "total += starts(x).sum()").startswith("1 wait per step")
    assert budget(project, "total += starts(x, None).sum()").startswith("1 wait per step")
    assert budget(project, "total += starts(x, x).sum()") == "none"
    assert budget(project, "total += starts(x, state=x).sum()") == "none"


@pytest.mark.parametrize(
    "line",
    [
        "for p in model.parameters():\n    kept.append(p.grad.norm().item())",
        "kept.extend([helper(part) for part in loss.split(1)])",
        "kept.append(np.mean([part.sum() for part in x.split(1)]))",
    ],
)
def test_a_wait_in_an_inner_loop_is_the_least(project: Project, line: str) -> None:
    assert budget(project, line).startswith("at least 1 wait per step")


def test_the_budget_does_not_depend_on_the_rules_or_on_suppressions(project: Project) -> None:
    line = "kept.append(loss.item()); y.tolist(); total += torch.ones(8, 6).to(device).sum()"
    assert budget(project, line).startswith("3 waits per step")
    assert budget(project, line, "--select", "no-grad-without-call").startswith("3 waits per step")
    assert budget(project, line + "  # perflint: ignore").startswith("3 waits per step")


STEP_ELSEWHERE = """\
import torch
from engine import one_step
device = torch.device("cuda")
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.ones(8, 4).to(device), torch.ones(8, 1).to(device)
for epoch in range(100):
    one_step(model, optimizer, x, y)
"""
ENGINE = """\
def one_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = (model(x) - y).abs().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_a_loop_counts_whose_step_is_a_function_of_another_file(project: Project) -> None:
    project.write({"main.py": STEP_ELSEWHERE, "engine.py": ENGINE})
    assert "main.py:7 module loop: 1 wait per step\n" in project.run("check", "--output-format", "full").stdout


def test_what_a_batch_is_told_about_itself_is_on_the_host(project: Project) -> None:
    loop = LOOP.replace("(x, y) in", "data in").replace("x = x.to", "x = data[0].to").replace("y = y.to", "y = data[1].to")
    line = "total += torch.full((x.size(0),), 1, dtype=x.dtype, device=device).sum()"
    project.write({"train.py": loop.replace("{}", line)})
    assert "sync budget" not in project.run("check", "--output-format", "full").stdout
    assert "per step" not in project.run("check", "--output-format", "full").stdout


def test_fixes_leave_the_other_waits(project: Project) -> None:
    both = "total += x[x > 1].sum() + torch.tensor(0.5, device=device)"
    assert budget(project, both) == "2 waits per step (1 with unsafe fixes)", "several streams may need the wait"
    on_one = LOOP.replace("    side, done = torch.cuda.Stream(), torch.cuda.Event()\n", "")
    assert budget(project, both, loop=on_one) == "2 waits per step -> 1"
    chain = "kept.append(y.type(torch.LongTensor).to(device))"
    assert budget(project, chain) == "2 waits per step (1 with unsafe fixes)"


@pytest.mark.parametrize(
    ("guarded", "said"),
    [
        ("if step % 50 == 0: print(loss.item(), total.item())", "2 more every 50 steps"),
        ("if step % len(sizes) == 0: print(loss.item())", "1 more now and then"),
        ("if step % 50 == 0: print(loss.item())\nif step % 10 == 0: print(total.item())", "2 more now and then"),
    ],
)
def test_what_waits_now_and_then_is_counted_apart(project: Project, guarded: str, said: str) -> None:
    assert budget(project, f"kept.append(y.tolist())\n{guarded}") == f"1 wait per step, {said}"


def test_what_the_scaler_hides_is_named(project: Project) -> None:
    assert budget(project, "scaler.step(optimizer)") == "1 wait per step, 1 of them in GradScaler.step"


KINDS = [(["assuming"], "assuming"), (["unsafe"], "unsafe"), (["unsafe", "assuming"], "assuming and unsafe")]


@pytest.mark.parametrize(("kinds", "said"), KINDS)
def test_it_says_of_what_kind_the_further_fixes_are(kinds: list[str], said: str) -> None:
    waits = tuple(StepWait(row, 1, "number", "item-every-step", kind) for row, kind in enumerate(kinds, 1))
    found = Budget("a.py", 1, "f", written=3, after_safe=3, after_all=1, in_scaler=0, timeline=waits)
    assert found.waits == f"3 waits per step (1 with {said} fixes)"
