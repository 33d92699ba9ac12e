"""What a message says to do, where the same flaw has several cures."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from perflint.cli import run_for_tests

COPY = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

def train(dataset, model: nn.Module, optimizer):
    for x, views in DataLoader(dataset, batch_size=8, num_workers=2, pin_memory=True):
        {made}
        model(x.cuda()).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "hint"),
    [
        ("x = x", ""),
        ("x = torch.cat(views)", "copy the parts, join them there"),
        ("x = x - 1", "copy first, and compute there"),
        ("x = torch.zeros(8)\n        if views:\n            np.fill(x)", "better make it on the device"),
        ("x = torch.LongTensor(range(8))", "the driver may still wait"),
        ("x = torch.from_numpy(np.random.rand(8))", "it is not pinned"),
    ],
)
def test_a_copy_says_what_to_do_about_its_memory(made: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(COPY).replace("{made}", made))
    assert ("pinned" in said("blocking-h2d-in-loop", path)) == bool(hint)
    assert hint in said("blocking-h2d-in-loop", path)


@pytest.mark.parametrize(
    ("reads", "cure"),
    [("np.load(self.path)[index]", "reads all of the same file"), ("h5py.File(self.path)['x'][index]", "opens the same file")],
)
def test_a_file_for_each_sample_is_read_or_opened(reads: str, cure: str, tmp_path: Path) -> None:
    path = tmp_path / "data.py"
    path.write_text(
        "import h5py\nimport numpy as np\nfrom torch.utils.data import Dataset\nclass Rows(Dataset):\n"
        f"    def __init__(self, path): self.path = path\n    def __getitem__(self, index): return {reads}\n"
    )
    assert cure in said("whole-file-load-per-item", path)


def said(rule: str, path: Path) -> str:
    """The one message of a rule about a file."""
    result = run_for_tests(["check", "--no-cache", "--select", rule, "--output-format", "json", str(path)])
    (finding,) = json.loads(result.stdout)
    return str(finding["message"])


@pytest.mark.parametrize("test", ["not math.isfinite(loss.item())", "torch.isnan(loss)"])
def test_a_look_for_bad_numbers_is_told_so_wherever_they_are_looked_for(test: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    check = f"import math, sys\nloss = model(x.cuda()).sum()\n        if {test}:\n            sys.exit(1)"
    path.write_text(textwrap.dedent(COPY).replace("{made}", check.replace("import math, sys\n", "import math, sys\n        ")))
    assert "check every N steps, or let GradScaler skip bad steps" in said("sync-branch-on-tensor", path)
