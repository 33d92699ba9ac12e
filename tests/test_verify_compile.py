"""`perflint verify --compile`: what torch does in a run, joined with what the source shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perflint.cli import run_for_tests

TRAIN = """\
import sys

import torch
from nets import Net

model = torch.compile(Net(), fullgraph=len(sys.argv) > 1, mode="max-autotune")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(4, 8)).sum()
    loss.backward()
    optimizer.step()
"""
NETS = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.steps = 0
        self.verbose = False

    def forward(self, x):
        self.steps += 1
        x = self.layer(x)
        if (
            x.sum() > 0
        ):
            x = x + 1
        if self.training and x.shape[0] == 1:
            x = x[x > 0].sum()
        return scaled(x)


def scaled(x):
    return x * dict(a=x.mean().item())["a"]


def never(x):
    return x[x > 0]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A program that compiles its network."""
    pytest.importorskip("torch")
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "nets.py").write_text(NETS, encoding="utf-8")
    return tmp_path


def compiled(project: Path, *arguments: str) -> tuple[list[str], dict[str, Any]]:
    """The report and the record."""
    record = project.parent / f"{project.name}.json"
    run = run_for_tests(["verify", "--compile", "-q", "--json", str(record), str(project / "train.py"), *arguments])
    assert run.exit_code == 0, run.output
    return run.stdout.splitlines(), json.loads(record.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_breaks_and_recompilations_are_joined_with_findings_by_line(project: Path) -> None:
    lines, record = compiled(project)
    breaks = {(row["file"], row["line"]): row for row in record["graph_breaks"]}
    assert breaks.keys() == {("nets.py", 16), ("nets.py", 25)}
    assert [row["rules"] for row in breaks.values()] == [["graph-break"], ["graph-break"]]
    assert breaks["nets.py", 25]["function"] == "scaled"
    assert breaks["nets.py", 25]["id"].startswith("gb")
    (recompiled, *_) = [row for row in record["recompiles"] if "steps" in row["reason"]]
    assert (recompiled["file"], recompiled["function"], recompiled["rules"]) == ("nets.py", "forward", ["recompile-every-call"])
    assert [(row["line"], row["rule"]) for row in record["findings"] if not row["shown"]] == [(20, "graph-break")]
    assert record["compile_calls"] == 1
    assert record["graphs"] > 1
    text = "\n".join(lines)
    for part in (
        "nets.py:16: ",
        "[graph-break]",
        "[recompile-every-call]",
        "1 finding that this run does not show:",
        "nets.py:20",
    ):
        assert part in text


@pytest.mark.slow
def test_a_whole_graph_that_breaks_does_not_end_the_run_and_limits_do(project: Path) -> None:
    _, record = compiled(project, "--", "whole")
    assert len(record["graph_breaks"]) == 2
    _, record = compiled(project, "--max-steps", "1")
    assert record["recompiles"] == []


@pytest.mark.slow
def test_a_program_that_compiles_nothing_says_so(project: Path) -> None:
    (project / "train.py").write_text("import torch\nfrom nets import Net\nprint(Net()(torch.randn(2, 8)).shape)\n")
    lines, record = compiled(project)
    assert lines == ["The program calls `torch.compile` nowhere: nothing is compiled."]
    assert record["graph_breaks"] == []
    (project / "train.py").write_text("print(1)\n")
    assert compiled(project)[0] == ["The script does not import torch: nothing is compiled."]


def test_what_compile_excludes(project: Path) -> None:
    run = run_for_tests(["verify", "--compile", "--bisect", "--html", "a.html", str(project / "train.py")])
    assert run.exit_code == 2
    assert "--compile runs the program once as it is, which excludes --bisect, --html" in run.stderr
