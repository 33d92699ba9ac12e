"""Where compiled code breaks its graph: the rows of the table are what torch does, and places are found by them."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from ask import Program
from conftest import HANG_S, ROOT

from perflint.facts.compiled import graph_breaks
from perflint.facts.compiled.graph_breaks_table import BREAKS, MEASURED_ON

PRELUDE = """
import bisect, collections, copy, csv, datetime, decimal, functools, gc, glob, hashlib, heapq, inspect, io, json, logging, math
import operator, os, pathlib, pickle, pprint, queue, random, secrets, shutil, socket, statistics, subprocess, sys, tempfile
import threading, time, traceback, types, uuid, warnings
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
try:
    import tqdm
except ImportError:
    pass

log = logging.getLogger("case")
log.setLevel(logging.ERROR)
layer = nn.Linear(8, 8)
recurrent = {name: getattr(nn, name)(8, 8) for name in ("GRU", "LSTM", "RNN")}
LOCK, REENTRANT, DUMPED, STATE = threading.Lock(), threading.RLock(), pickle.dumps(1), torch.get_rng_state()
NORMAL, LENGTHS, GAUSS = torch.distributions.Normal(0.0, 1.0), torch.tensor([3, 2]), ([0, 0], [[1, 0], [0, 1]])
CTC = torch.zeros(4, 1, 3), torch.tensor([[1]]), torch.tensor([4]), torch.tensor([1])
COO = torch.tensor([[0], [1]]), torch.tensor([1.0]), (2, 2)
CSR = torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1.0]), (1, 1)
x, k, i, sequences = torch.randn(4, 8), torch.arange(4), torch.tensor(2), torch.randn(2, 3, 8)


@torch.compiler.disable
def disabled(x):
    return x + 1
"""
ARGUMENTS = "x, k, i, sequences"


def broken(prelude: str, cases: Mapping[str, tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """How often torch breaks the graph of each case, and how many graphs there are."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("broken_graphs.py"))],
        input=json.dumps({"prelude": prelude, "cases": cases}),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "probe")},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, tuple[int, int]] = json.loads(done.stdout)
    return found


def function(example: str) -> str:
    """A function that runs an example, and uses what it gives."""
    try:
        ast.parse(example, mode="eval")
    except SyntaxError:
        body = example
    else:
        body = f"y = {example}"
    return f"def f(x, k, i, sequences):\n{textwrap.indent(body, '    ')}\n    return x.sin()\n"


ROWS = graph_breaks.rows()
SAMPLE = ("builtins.print", "Tensor.item", "if t", "x[mask]", "with threading.Lock", "disabled()", "numpy.interp")


def needs_missing(row: str) -> bool:
    """Whether a row is about a package that is not installed."""
    return row.startswith("tqdm.") and not _has_tqdm()


def _has_tqdm() -> bool:
    with contextlib.suppress(ImportError):
        import tqdm  # noqa: F401

        return True
    return False


def test_some_rows_are_what_torch_does() -> None:
    found = broken(PRELUDE, {name: (function(ROWS[name].example), ARGUMENTS) for name in SAMPLE})
    assert {name for name, (breaks, _) in found.items() if not breaks} == set()


@pytest.mark.slow
def test_each_row_is_what_torch_does() -> None:
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith(MEASURED_ON):
        pytest.skip(f"the rows were measured on torch {MEASURED_ON}")
    cases = {name: (function(row.example), ARGUMENTS) for name, row in ROWS.items() if not needs_missing(name)}
    found = broken(PRELUDE, cases)
    assert {name for name, (breaks, _) in found.items() if not breaks} == set()


TRACED = {
    "no tensor": "float('inf'), int(x.shape[0]), bool(x.shape[0]), str(x.shape), math.sqrt(2.0), range(x.shape[0])",
    "constants": "any([True, x.shape[0] > 1]), sorted([3, 1]), copy.deepcopy([1, 2])",
    "a size is given": "np.random.rand(3), np.random.uniform(0, 1, 3), np.random.randint(0, 3, (2,))",
    "classes are given": "F.one_hot(k, 9), F.one_hot(k, num_classes=9)",
    "output size is given": "torch.repeat_interleave(x, k, 0, output_size=6)",
    "a number of repeats": "torch.repeat_interleave(x, 2, 0)",
    "three arguments": "torch.where(x > 0, x, 0)",
    "arrays": "np.sin(x.numpy()), np.zeros(3), x.cpu(), x.numpy()",
    "formatted": "f'{x}', '{:.2f}'.format(x.sum())",
    "maximum": "max(x[0, 0], x[0, 1])",
    "an index": "x[i], x[k]",
    "elements that are stored": "x.clone().masked_fill(x > 0, 0)",
    "an assertion": "torch._assert_async((x < 1e9).all())",
    "a chain of numbers": "0 < x.shape[0] < 9",
    "random numbers that are traced": "random.randint(0, 3), random.uniform(0, 1)",
}


@pytest.mark.parametrize("name", TRACED)
def test_what_a_row_does_not_ask_for_is_not_found(name: str) -> None:
    program = Program(f"{PRELUDE}@torch.compile\n{function(TRACED[name])}\nf({ARGUMENTS})\n")
    assert program.facts.graph_breaks(program.scope("f")) == []


@pytest.mark.slow
def test_what_a_row_does_not_ask_for_is_traced() -> None:
    found = broken(PRELUDE, {name: (function(text), ARGUMENTS) for name, text in TRACED.items()})
    assert {name for name, (breaks, _) in found.items() if breaks} == set()


@pytest.mark.parametrize("name", [name for name in ROWS if name not in ("torch.nn.LSTM()", "torch.nn.GRU()", "torch.nn.RNN()")])
def test_the_example_of_each_row_is_found(name: str) -> None:
    program = Program(f"{PRELUDE}@torch.compile\n{function(ROWS[name].example)}\nf({ARGUMENTS})\n")
    assert name in {found.row.name for found in program.facts.graph_breaks(program.scope("f"))}


def test_each_row_means_something() -> None:
    assert all(name and row.example for name, row in ROWS.items())
    lines = [line for line in BREAKS.strip().splitlines() if line and not line.startswith("# ")]
    assert len(lines) == len(ROWS), "a row is there twice"
    for line in (f"{'a':44}number nonsense | b", f"{'a':44}nonsense | b"):
        with pytest.raises(ValueError, match="nonsense"):
            graph_breaks._row(line)


PLACES = {
    "a condition": ("if x.sum() > 0: x = x + 1", ["if t"]),
    "a check": ("if x.isnan().any():\n    raise ValueError('nan')", ["if t: raise"]),
    "each operand": ("if x.sum() > 0 and x.mean() > 0: x = x + 1", ["if t", "if t"]),
    "a condition by a name": ("bad = torch.isnan(x).any()\nif bad: x = x + 1", ["if t"]),
    "a maximum": ("if x.abs().max() > 3: x = x / 2", ["if t"]),
    "a loop's own variable": ("y = x.abs()\nwhile y.sum() > 9: y = y * 0.5", ["if t"]),
    "a size": ("if x.shape[0] > 1 and x.dim() == 2 and len(x) > 1: x = x + 1", []),
    "None": ("if k is not None: x = x + 1", []),
    "an assertion": ("assert x.sum() > 0\nassert x.sum() > 0, 'message'", []),
    "a message that is computed": ("assert x.sum() > 0, f'{x.shape}'", ["assert t, message"]),
    "not": ("assert not x.isnan().any(), 'nan'", ["if t"]),
    "a comprehension": ("y = [t for t in x if t.sum() > 0]", ["if t"]),
    "a mask": ("y = x[x > 0].sum()", ["x[mask]"]),
    "two masks": ("valid = (x > 0) & ~(x > 1)\ny = x[valid]", ["x[mask]"]),
    "a mask that is stored by": ("y = x.clone()\ny[y > 0] = 0", []),
    "a mask that adds": ("y = x.clone()\ny[y > 0] += 1", ["x[mask]"]),
    "only uncompiled": ("if not torch.compiler.is_compiling(): print(x)", []),
    "now and then": ("if k[0].shape == 100 and x.shape[0] % 100 == 0: print(x)", []),
    "on an error": ("if x.shape[0] > 9: raise ValueError(f'{x.sum().item()}')", []),
    "a debugging flag": ("if os.environ.get('X'): print('x')", []),
    "a handler": ("try:\n    y = x + 1\nexcept ValueError:\n    print('x')", []),
    "another logger": ("y = log.name", []),
    "a method of its own": ("class_ = collections.Counter()\nclass_.update([1])", []),
}


@pytest.mark.parametrize("name", PLACES)
def test_places(name: str) -> None:
    body, expected = PLACES[name]
    text = f"def f(x, k, i, sequences):\n{textwrap.indent(body, '    ')}\n    return x.sin()\n"
    program = Program(f"{PRELUDE}@torch.compile\n{text}\nf({ARGUMENTS})\n")
    assert [found.row.name for found in program.facts.graph_breaks(program.scope("f"))] == expected


PARAMETERS = {
    "a method of tensors": ("x.unsqueeze(0)", True),
    "a layer gets it": ("layer(x)", True),
    "a function of torch gets it": ("F.softmax(x, 0)", True),
    "indexed by a comparison with itself": ("x[x > 0]", True),
    "a function of a list": ("torch.cat(x)", False),
    "made a tensor": ("torch.tensor(x)", False),
    "a method that others have": ("x.to('cpu')", False),
    "a number": ("layer(k) * x", False),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_how_a_parameter_is_used_says_what_it_is(name: str) -> None:
    use, is_tensor = PARAMETERS[name]
    program = Program(f"{PRELUDE}@torch.compile\ndef f(x, k):\n    y = {use}\n    if x > 0: return y\n")
    assert ("if t" in {found.row.name for found in program.facts.graph_breaks(program.scope("f"))}) is is_tensor


def test_code_that_is_not_compiled_breaks_nothing() -> None:
    program = Program(f"{PRELUDE}\n{function('x.sum().item()')}")
    assert program.facts.graph_breaks(program.scope("f")) == []


COSTLY = {
    "for": ("for _ in range(2): print(x)", True),
    "while": ("n = 0\nwhile n < 2:\n    n += 1\n    print(x)", True),
    "what a loop iterates over": ("for t in x.sum(0).tolist(): x = x + t", False),
    "try": ("try:\n    print(x)\nfinally:\n    pass", True),
    "a lock": ("with LOCK: x = x + 1", True),
    "no_grad": ("with torch.no_grad(): print(x)", False),
    "autocast": ("with torch.autocast('cpu'): print(x)", False),
    "a comprehension": ("y = [t.item() for t in x[0]]", False),
    "plain": ("print(x)", False),
}


@pytest.mark.slow
def test_no_graph_remains_where_a_break_is_costly() -> None:
    found = broken(PRELUDE, {name: (function(text), ARGUMENTS) for name, (text, _) in COSTLY.items()})
    assert {name: graphs == 0 for name, (_, graphs) in found.items()} == {name: costly for name, (_, costly) in COSTLY.items()}


@pytest.mark.parametrize("name", COSTLY)
def test_what_is_around_a_break(name: str) -> None:
    text, costly = COSTLY[name]
    program = Program(f"{PRELUDE}@torch.compile\n{function(text)}\nf({ARGUMENTS})\n")
    found = program.facts.graph_breaks(program.scope("f"))
    assert [place.costly is not None for place in found] == [costly]


@pytest.mark.parametrize("switch", ["torch._dynamo.config.capture_scalar_outputs = True", "print(1)"])
def test_a_switch_captures_what_it_says(switch: str) -> None:
    body = "y = x.sum().item()\n    z = x[x > 0]"
    program = Program(
        f"{PRELUDE}{switch}\n@torch.compile\ndef f(x, k, i, sequences):\n    {body}\n    return y\nf({ARGUMENTS})\n"
    )
    found = [place.row.name for place in program.facts.graph_breaks(program.scope("f"))]
    assert found == (["x[mask]"] if "scalar" in switch else ["Tensor.item", "x[mask]"])


# -- the functions that were measured before the rules were written ------------------------------------------------------

CASES = ROOT.parent / "shared" / "compile"
AS_COMPILED = {
    "decorated and called": "@torch.compile\n{text}\nf({arguments})\n",
    "handed over": "{text}\ncompiled = torch.compile(f)\n",
    "a module": "class Net(nn.Module):\n{method}\nmodel = torch.compile(Net())\n",
}


def cases() -> tuple[str, dict[str, tuple[str, str]]]:
    """What stands around the functions of `cases.py`, and each of them with its arguments."""
    lines = (CASES / "cases.py").read_text(encoding="utf-8").splitlines()
    found, prelude = {}, []
    for node in ast.parse("\n".join(lines)).body:
        match node:
            case ast.FunctionDef(decorator_list=[ast.Call(func=ast.Name("case"), args=[ast.Constant(str(name)), *given])]):
                found[name] = "\n".join(lines[node.lineno - 1 : node.end_lineno]), ", ".join(map(ast.unparse, given))
            case ast.FunctionDef(name="case") | ast.Delete() | ast.Assign(targets=[ast.Name("CASES")]):
                pass
            case _:
                prelude.append(ast.unparse(node))
    return "\n".join(prelude), found


@pytest.mark.parametrize("how", [*AS_COMPILED, "not compiled"])
def test_most_of_what_breaks_is_found_and_nothing_else(how: str) -> None:
    if not CASES.exists():
        pytest.skip("the measured functions are not there")
    expected = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))
    prelude, functions = cases()
    found = set()
    for name in (*expected["breaks"], *expected["clean"]):
        text, arguments = functions[name]
        method = textwrap.indent(re.sub(r"^def f\(", "def forward(self, ", text), "    ")
        program = Program(f"{prelude}\n{AS_COMPILED.get(how, '{text}').format(text=text, arguments=arguments, method=method)}")
        if any(program.facts.graph_breaks(scope) for scope in program.scopes()):
            found.add(name)
    assert found & set(expected["clean"]) == set()
    assert (len(found) >= 60) if how in AS_COMPILED else not found
