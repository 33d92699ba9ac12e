"""A list of losses that starts again every few steps, and changes of it under which tensors would meet numbers in it."""

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
def train(loader, criterion):
    model, seen = nn.Linear(3, 2).to(device), []
    losses = []
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        losses.append(loss.item())
        if i % 2 == 1:
            print(sum(losses) / len(losses))
            losses = []
    print("trained")


train(DataLoader(TensorDataset(inputs, targets), batch_size=1), F.mse_loss)
"""
)
SHOWN, AGAIN = "            print(sum(losses) / len(losses))\n", "            losses = []\n"
LAST, GUARD = '    print("trained")', "        if i % 2"
CAUGHT = "                losses = []\n            except ZeroDivisionError:\n                print('none')\n"

FIXED = {
    "as it is": (),
    "its name is bound to something else": ((SHOWN, "            losses = sum(losses)\n            print(losses)\n"),),
    "somebody keeps it": ((SHOWN, "            seen.append(losses)\n"), (LAST, "    print(seen)")),
    "looked at twice": ((SHOWN, "            if i > 0:\n                print(sum(losses))\n            print(losses)\n"),),
    "looked at under a second guard": ((SHOWN, "            if i > 1:\n                print(sum(losses))\n"),),
    "starts again elsewhere, too": ((GUARD, f"        if i == 2:\n{AGAIN}{GUARD}"),),
    "looked at in a loop": ((SHOWN, "            while losses:\n                print(losses.pop())\n"),),
}
TRAPS = {
    "goes on": ((AGAIN, ""),),
    "starts again sometimes": ((AGAIN, "            if i > 2:\n                losses = []\n"),),
    "goes on by continue": ((SHOWN, f"{SHOWN}            if i == 3:\n                continue\n"),),
    "leaves by break": ((SHOWN, f"{SHOWN}            if i == 3:\n                break\n"), (LAST, "    print(losses)")),
    "looked at behind the loop": ((LAST, "    print(losses)"),),
    "looked at in other steps": ((GUARD, f"        if i % 3 == 1:\n            print(losses)\n{GUARD}"),),
    "looked at in all other steps": ((AGAIN, f"{AGAIN}        else:\n            print(losses)\n"),),
    "another name for the next one": ((AGAIN, "            losses = seen = []\n"), (LAST, "    print(seen)")),
    "another name for the first one": (("    losses = []\n    for", "    losses = seen\n    for"), (LAST, "    print(seen)")),
    "emptied": ((AGAIN, "            losses.clear()\n"),),
    "the next one begins with a number": ((AGAIN, "            losses = [0.5]\n"),),
    "the next one gets a number": ((AGAIN, f"{AGAIN}            losses.append(0.5)\n"),),
    "starts again in a loop": ((AGAIN, "            for _ in range(i - 1):\n                losses = []\n"),),
    "an error in between": ((SHOWN, f"            try:\n    {SHOWN}                1 / (i - 1)\n"), (AGAIN, CAUGHT)),
    "a function sees it": ((SHOWN, "            print((lambda: sum(losses))())\n"),),
}


def changed(replacements: tuple[tuple[str, str], ...]) -> dict[str, str]:
    code = PROGRAM
    for before, after in replacements:
        assert before in code, before
        code = code.replace(before, after)
    return {"main.py": code}


@pytest.mark.parametrize("name", [*FIXED, *TRAPS])
def test_lists_that_start_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(meaning.CONFIG, assume=("ordinary",), select=("item-every-step",))
    monkeypatch.setattr(meaning, "CONFIG", config)
    files = changed((FIXED | TRAPS)[name])
    assert (safely_fixed(files)[0] != files) is (name in FIXED)
    assert meaning.outcome(files).error is None
    assert changes(files)[0] == []
