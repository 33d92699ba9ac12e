"""Programs that a fix once changed: what they compute of parameters alone, losses of several shapes, settings with defaults."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz import meaning
from fuzz.meaning import changes, safely_fixed
from tests.test_meaning_traps import HEAD

EVALUATION = (
    HEAD
    + """

class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.gate = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.layer(x) * self.scale

    @property
    def scale(self):
        return self.gate.exp()


def report(net):
    print(net.gate.sigmoid())


def evaluate(model{kind}, batches, given):
    model.eval()
    right = 0
    for x, y in batches:
        right += (model(x).argmax(1) == y.argmax(1)).sum().item()
    {use}
    return right{returned}


model = Gated()
loader = DataLoader(TensorDataset(inputs, targets), batch_size=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
found = evaluate(model, loader, model.gate)
loss = F.mse_loss(model(inputs), targets)
if isinstance(found, tuple):
    loss = loss + found[1].sum() ** 2
loss.backward()
optimizer.step()
print(found if isinstance(found, int) else found[0], model.gate, model.layer.weight)
"""
)
TRAINED = "if isinstance(found, tuple):\n    loss = loss + found[1].sum() ** 2\n"
"""What alone would keep the graph of an evaluation that gives a number."""
SHOWN = [
    "print(model.gate.exp())",
    "print(f'{model.gate.softmax(-1)}')",
    "print(1 - model.gate)",
    "print(model.layer.bias[:1])",
    "print(model.scale)",
    "print(given.exp())",
    "print(getattr(model, 'gate')[0])",
    "first, second = model.gate\n    print(first)",
    "for part in model.gate:\n        print(part)",
    "scale = model.gate.exp()\n    print(scale)",
    "layer = model.layer\n    print('%s' % layer.weight[0])",
    "report(model)",
]
RETURNED = [", model.layer.weight[0]", ", model.gate.T", ", model.scale", ", given[:1]"]


@pytest.mark.parametrize("kind", ["", ": Gated"])
@pytest.mark.parametrize("use", SHOWN)
def test_what_an_evaluation_shows_of_parameters_keeps_its_graph(use: str, kind: str) -> None:
    assert changes({"main.py": EVALUATION.format(kind=kind, use=use, returned="").replace(TRAINED, "")})[0] == []


@pytest.mark.parametrize("kind", ["", ": Gated"])
@pytest.mark.parametrize("returned", RETURNED)
@pytest.mark.parametrize("assume", [(), ("ordinary",)])
def test_what_an_evaluation_gives_of_parameters_can_be_trained(
    returned: str, kind: str, assume: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meaning, "CONFIG", replace(meaning.CONFIG, assume=assume))
    assert changes({"main.py": EVALUATION.format(kind=kind, use="pass", returned=returned)})[0] == []


@pytest.mark.parametrize("use", ["print(right)", "print(len(batches), right / 2)", "print(f'{right / len(batches):.2f}')"])
def test_numbers_have_no_graph(use: str) -> None:
    program = EVALUATION.format(kind=": Gated", use=use, returned="").replace(TRAINED, "")
    fixed = safely_fixed({"main.py": program})[0]["main.py"]
    assert ")\ndef evaluate" in fixed, "a decorator"


LOSSES = (
    HEAD
    + """

def loss_of(out, y, step):
    {losses}


def train(model, optimizer):
    total = 0.0
    for step, (x, y) in enumerate(DataLoader(TensorDataset(inputs, targets), batch_size=2)):
        loss = loss_of(model(x.to(device)), y.to(device), step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item(){times}
    return total


model = nn.Linear(3, 2).to(device)
print(train(model, torch.optim.SGD(model.parameters(), lr=0.1)))
"""
)
SEVERAL_SHAPES = [
    "return F.mse_loss(out, y) if step % 2 else out.new_zeros(1, requires_grad=True)",
    "return F.mse_loss(out, y) if step % 2 else torch.zeros(1, requires_grad=True)",
    "return F.mse_loss(out, y) if step % 2 else -out[:1].sum(1)",
    "return out.sum().reshape(1, 1) if step % 2 else out.sum()",
    "return F.mse_loss(out, y) if step else torch.tensor(0.0, requires_grad=True)",
]


@pytest.mark.parametrize("losses", SEVERAL_SHAPES)
@pytest.mark.parametrize("times", ["", " * x.size(0)"])
def test_losses_of_several_shapes_add_up(losses: str, times: str) -> None:
    assert changes({"main.py": LOSSES.format(losses=losses, times=times)})[0] == []


SETTINGS = (
    HEAD
    + """
import dataclasses

{settings}


loader = DataLoader(TensorDataset(inputs, targets), num_workers=settings.workers, persistent_workers=True)
print(loader.persistent_workers)
"""
)
GIVEN = [
    "@dataclasses.dataclass\nclass Settings:\n    workers: int = 0\n\nsettings = Settings(workers=1)",
    "@dataclasses.dataclass\nclass Settings:\n    workers: int = 0\n\nsettings = Settings(*[1])",
    "@dataclasses.dataclass\nclass Settings:\n    workers: int = 0\n\nsettings = dataclasses.replace(Settings(), workers=1)",
    "class Settings:\n    workers = 0\n\nsetattr(Settings, 'workers', 1)\nsettings = Settings()",
    "class Settings:\n    def __init__(self, **given):\n        self.workers = 0\n        self.__dict__.update(given)\n\n"
    "settings = Settings(workers=1)",
]


@pytest.mark.parametrize("settings", GIVEN)
def test_a_default_is_not_what_a_setting_is(settings: str) -> None:
    assert changes({"main.py": SETTINGS.format(settings=settings)})[0] == []
