"""What calls into torch, numpy, pandas and the builtins return."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.values.values import Tensor

HEAD = """
import argparse, copy
import numpy as np, pandas as pd, torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
g = torch.zeros(2, 3, device="cuda")
h = torch.zeros(2, 3)
"""
CALLS = {
    "torch.zeros(2)": "tensor on host",
    "torch.zeros(2, device=unknown)": "tensor on elsewhere",
    "torch.zeros_like(g)": "tensor on cuda",
    "torch.tensor(3.)": "tensor on host",
    "torch.from_numpy(np.ones(2))": "tensor on host",
    "torch.cat([g, h])": "tensor on cuda",
    "torch.stack([h, unknown])": "tensor on unknown",
    "g.cpu()": "tensor on host",
    "h.to('cuda:1')": "tensor on cuda",
    "h.to(unknown)": "tensor on elsewhere",
    "h.to(g)": "tensor on cuda",
    "h.to(torch.float64)": "tensor on host",
    "h.to(device='cuda' if torch.cuda.is_available() else 'cpu')": "tensor on cuda or host",
    "g.sum().item()": "float",
    "(g > 0).any()": "tensor on cuda",
    "torch.where(g > 0, g, h).sum().item()": "float",
    "torch.where(g > 0, g, unknown).max().item()": "number",
    "(g > 0).mul(0.5).max().item()": "number",
    "g.long().add(1).max().item()": "int",
    "g.max(1)": "(tensor on cuda, tensor on cuda)",
    "g.max()": "tensor on cuda",
    "g.numpy()": "object numpy.ndarray",
    "g.size(0)": "int",
    "g.device": "device on cuda",
    "g.split(2)[0]": "tensor on cuda",
    "g.backward()": "None",
    "unknown.item()": "number | ?",
    "unknown.get(3)": "?",
    "F.cross_entropy(g, unknown)": "tensor on cuda",
    "nn.Linear(2, 2).cuda()(h)": "tensor on cuda",
    "nn.MSELoss()(g, g)": "tensor on cuda",
    "nn.LSTM(2, 2).cuda()(g)[0]": "tensor on cuda",
    "nn.DataParallel(unknown)(g)": "output on cuda",
    "DataLoader([])": "loader",
    "next(iter(DataLoader([])))": "batch on host",
    "np.zeros(2)": "object numpy.ndarray",
    "np.exp(np.zeros(2))": "object numpy.ndarray",
    "np.exp(-np.mean(h))": "number",
    "np.exp(h)": "object numpy.ndarray | ?",
    "np.reshape(np.zeros(2), (2, 1))": "object numpy.ndarray",
    "np.reshape(h, (2, 1))": "object numpy.ndarray | ?",  # of a tensor it is a tensor
    "np.where(h > 0, 1, 0)": "object numpy.ndarray",
    "np.where(h > 0)": "?",
    "np.random.default_rng(3)": "?",
    "np.random.rand()": "object numpy.ndarray | ?",
    "np.random.rand(2)": "object numpy.ndarray",
    "np.random.choice(5, size=3)": "object numpy.ndarray",
    "np.random.choice(5)": "object numpy.ndarray | ?",
    "pd.read_csv('x')": "object pandas.DataFrame",
    "pd.DataFrame({}).dropna()[['a']]": "object pandas.DataFrame",
    "pd.read_csv('x').reset_index().values.astype(int)": "object numpy.ndarray",
    "pd.read_csv('x').groupby('a')": "object pandas.DataFrame | ?",
    "pd.read_csv('x').dropna(inplace=True)": "object pandas.DataFrame | ?",
    "pd.read_csv('x', chunksize=2)": "object pandas.DataFrame | ?",
    "pd.read_csv('x').a": "object pandas.DataFrame | ?",
    "pd.read_csv('x')['a']": "?",
    "pd.read_csv('x')[2:]": "object pandas.DataFrame",
    "np.zeros(2).sort()": "object numpy.ndarray | ?",
    "np.zeros(2).reshape(2, 1).T": "object numpy.ndarray",
    "np.zeros(2).sum()": "number",
    "np.zeros(2).sum(0)": "object numpy.ndarray | ?",
    "np.zeros(2).size": "int",
    "len(g)": "int",
    "float(unknown)": "float",
    "range(3)": "object builtins.range",
    "list(zip([1], ['a']))[0]": "(1, 'a')",
    "dict(a=1)['a']": "1",
    "dict(unknown)['a']": "?",
    "copy.deepcopy(g)": "tensor on cuda",
    "argparse.ArgumentParser().parse_args().x": "?",
    "torch.load('x')": "?",
    "torch.cuda.Stream()": "object torch.cuda.Stream",
}


@pytest.mark.parametrize("text", CALLS)
def test_call(text: str) -> None:
    assert Program(f"{HEAD}{text}  #?").said() == CALLS[text]


@pytest.mark.parametrize(
    ("text", "fresh"),
    [
        ("h + 1", True), ("h.clone()", True), ("h.view(-1)", False), ("h[0]", False), ("h.to('cuda')", False), ("-h", True),
        ("+h", False), ("h.detach()", False), ("h.contiguous()", False), ("h.sum()", True), ("torch.zeros(2, out=h)", False),
        ("torch.from_numpy(x)", False), ("torch.as_tensor(x)", False), ("torch.Tensor(h)", False), ("h.add_(1)", False),
        ("h.float()", False), ("h.reshape(2)", False), ("torch.zeros(2, **k)", False), ("nn.Parameter(h)", False),
    ],
)  # fmt: skip
def test_new_memory(text: str, fresh: bool) -> None:
    value = Program(f"{HEAD}({text})  #?").value()
    assert value.must(lambda a: isinstance(a, Tensor) and a.fresh) is fresh


@pytest.mark.parametrize(
    ("key", "is_frame"),
    [("f.a > 3", True), ("(f.a > 3) & ~(f.b == 2)", True), ("['a', 'b']", True), ("unknown", False), ("'a' in f", False)],
)
def test_rows_of_a_frame(key: str, is_frame: bool) -> None:
    said = Program(f"{HEAD}f = pd.read_csv('x')\nf[{key}]  #?").said()
    assert (said == "object pandas.DataFrame") is is_frame


def test_command_line() -> None:
    text = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--n', type=int, default=3)\n"
        "parser.add_argument('--cpu', action='store_true')\nparser.add_argument('--dev', default='cuda')\n"
        "args = parser.parse_args()\nargs.{}  #?"
    )
    said = {name: Program(text.format(name)).said() for name in ("n", "cpu", "dev", "missing")}
    assert said == {"n": "3 | int", "cpu": "False | True", "dev": "'cuda' | text", "missing": "?"}
