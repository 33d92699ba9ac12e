"""Rows of reads that a list takes, reads side by side, and lists that become something else: computed as before."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed
from tests.test_fuzz_meaning import HEAD

PROGRAM = (
    HEAD.partition("KEPT")[0]
    + """
class Scale:
    last = 0.0

    def __call__(self, tensor):
        self.last = self.last + 1.0
        return tensor.mul_(2).sum()


def train(loader, criterion):
    model, scale, seen, rows = nn.Linear(3, 2).to(device), Scale(), [], []
    means = []
    for i, (x, y) in enumerate(loader):
        out = model(x.to(device))
        loss = criterion(out, y.to(device))
        norm = out.detach().norm()
        loss.backward()
        {line}
        {then}
    print(rows, seen)
    {after}


train(DataLoader(TensorDataset(inputs, targets), batch_size=1), F.mse_loss)
"""
)
FIXED = {
    "a list": ("rows.append([loss.item(), norm.item()])", "pass", "pass"),
    "a tuple with a step": ("rows.append((i, loss.item(), norm.item() / 2))", "pass", "pass"),
    "a dict": ("rows.append({'loss': loss.item(), 'step': i})", "pass", "pass"),
    "a row that grows later": ("rows.append([loss.item(), i])", "pass", "rows[0].append(7); print(rows)"),
    "a row is the same each time": ("rows.append([loss.item()])", "pass", "print(rows[0] is rows[0], rows[0] is rows[1])"),
    "a number of each step": ("number = i * 2\n        rows.append([number, loss.item()])", "number = 7.5", "pass"),
    "a tensor that is written to": ("rows.append([norm.item(), norm.add_(1).item()])", "norm.zero_()", "pass"),
    "printed side by side": ("print('%.9f %.9f' % (loss.item(), norm.item()))", "pass", "pass"),
    "printed behind others": ("print(i, loss.item(), norm.item(), 'end')", "pass", "pass"),
    "printed, and no single number": ("print(loss.item(), norm.item(), sep='+')", "pass", "print(rows or None)"),
    "a mean now and then": (
        "means.append(loss.item())",
        "if i % 2 == 1: means = sum(means) / 2; print(means); means = []",
        "pass",
    ),
}
TRAPS = {
    "a key that is computed": ("rows.append({i * 2: loss.item()})", "pass", "pass"),
    "another dict is merged": ("rows.append({**{'a': 1}, 'loss': loss.item()})", "pass", "pass"),
    "a list of its own in a row": ("rows.append([seen, loss.item()])", "seen.append(i)", "pass"),
    "an object's number": ("rows.append([scale.last, scale(norm).item()])", "pass", "pass"),
    "each step looks at it": ("rows.append([loss.item(), i])", "print(rows[-1])", "pass"),
    "it becomes something else for good": ("rows.append([loss.item()])", "if i == 3: rows = [0.5]", "pass"),
    "it becomes something else sometimes": ("rows.append([loss.item()])", "if i % 2: rows = rows if i > 2 else []", "pass"),
}
SIDE_BY_SIDE = {
    "the second writes to the first": ("print(norm.item(), norm.mul_(2).item())", "pass", "pass"),
    "the second writes by a call": ("print(norm.item(), scale(norm).item())", "pass", "pass"),
    "the second has no single number": ("print(loss.item(), out.item()) if i > 9 else None", "pass", "pass"),
    "something stands between": ("print(norm.item(), scale(norm), norm.item())", "pass", "pass"),
}


def program(line: str, then: str, after: str) -> dict[str, str]:
    return {"main.py": PROGRAM.replace("{line}", line).replace("{then}", then).replace("{after}", after)}


@pytest.fixture(autouse=True)
def _with_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(meaning.CONFIG, assume=("ordinary",), select=("item-every-step",), runtime=True)
    monkeypatch.setattr(meaning, "CONFIG", config)


@pytest.mark.parametrize("name", [*FIXED, *TRAPS])
def test_rows(name: str) -> None:
    files = program(*(FIXED | TRAPS)[name])
    assert meaning.outcome(files).error is None
    assert (safely_fixed(files)[0] != files) is (name in FIXED)
    assert changes(files)[0] == []


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_what_stands_side_by_side_is_read_in_its_order(name: str) -> None:
    files = program(*SIDE_BY_SIDE[name])
    assert meaning.outcome(files).error is None
    assert changes(files)[0] == []
