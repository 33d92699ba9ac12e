"""Small programs whose meaning a careless fixer changes: what they compute must be the same after `perflint fix`.

In `data/traps.json`, `original` is the program and `careless` what such a fixer makes of it. A program's outcome is the
`repr` of its `r`, or the exception that it ends with.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from perflint.cli import run_for_tests
from perflint.rule.registry import all_rules

PRELUDE = """import io, copy, json, gc, random, asyncio, contextlib
import torch
import torch.nn as nn
import torch.nn.functional as F
import numpy as np
import pandas as pd
from torch.utils.data import *
from torch.utils.data import default_collate
torch.set_num_threads(1)
"""

TRAPS: dict[str, dict[str, str]] = {
    trap["id"]: trap for trap in json.loads((Path(__file__).parent / "data" / "traps.json").read_text(encoding="utf-8"))
}

CHANGED_BY_UNSAFE_FIXES = {
    "T050": ("no-grad-to-inference-mode", "raise when autograd meets them later"),
    "T070": ("conv-bias-before-norm", "layers that are made later draw other initial values"),
    "T060": ("zero-grad-to-zeros", "AdamW's weight decay moved an unused parameter"),
}
"""The traps that unsafe fixes walk into: the rule, and the words with which its page says so."""


@functools.cache
def outcome(program: str) -> str:
    """What a program computes."""
    scope: dict[str, Any] = {"__name__": "__trap__"}
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(program, "trap", "exec"), scope)
        return repr(scope.get("r"))
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:60]}"


def fixed(folder: Path, *options: str) -> dict[str, tuple[str, str]]:
    """The traps that `fix` rewrites: what they compute before and after."""
    before = {name: f"{PRELUDE}{trap['original']}\n" for name, trap in TRAPS.items()}
    for name, text in before.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    result = run_for_tests(["fix", "--isolated", "--no-cache", "--exit-zero", "--select", "all", *options, str(folder)])
    assert result.exit_code == 0, result.output
    after = {name: (folder / f"{name}.py").read_text(encoding="utf-8") for name in before}
    return {name: (outcome(text), outcome(after[name])) for name, text in before.items() if after[name] != text}


@pytest.fixture(autouse=True)
def needed() -> None:
    """Traps run torch, numpy and pandas."""
    for name in ("torch", "numpy", "pandas"):
        pytest.importorskip(name)


def test_traps_are_traps() -> None:
    assert len(TRAPS) == 101
    same = [name for name, trap in TRAPS.items() if trap["original_result"] == trap["careless_result"]]
    assert same == []


def test_safe_fixes_change_no_meaning(tmp_path: Path) -> None:
    rewritten = fixed(tmp_path)
    assert {name: pair for name, pair in rewritten.items() if pair[0] != pair[1]} == {}


def test_unsafe_fixes_change_what_their_pages_say(tmp_path: Path) -> None:
    rewritten = fixed(tmp_path, "--unsafe-fixes")
    assert {name for name, pair in rewritten.items() if pair[0] != pair[1]} == CHANGED_BY_UNSAFE_FIXES.keys()
    pages = {rule.name: " ".join(rule.page.split()) for rule in all_rules()}
    assert [name for name, (rule, words) in CHANGED_BY_UNSAFE_FIXES.items() if words not in pages[rule]] == []
