"""Code that makes samples: what runs per item, what is the same for all items, what is under a condition."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.training.datasets import is_conditional, runs_at_first, runs_per_item, same_for_all_items

DATA = """
import os
from torch.utils.data import Dataset
HERE = "data"

class Rows(Dataset):
    def __init__(self, path, paths):
        self.path, self.paths, self.last = path, paths, None
        self.prepare()
    def prepare(self): pass
    def __getitem__(self, index):
        self.last = index
        same = os.path.join(HERE, self.path)
        other = self.paths[index]
        return self.read(same), self.read_one(other), self.read_both(same), self.read_both(other)
    def read(self, where): return where
    def read_one(self, where): return where
    def read_both(self, where): return where

class NoDataset:
    def __getitem__(self, index): return helper(index)

def helper(index): pass
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Rows.__getitem__", True),
        ("Rows.read", True),
        ("Rows.__init__", False),
        ("Rows.prepare", False),
        ("NoDataset.__getitem__", False),
        ("helper", False),
    ],
)
def test_what_runs_per_item(name: str, expected: bool) -> None:
    program = Program(DATA)
    assert runs_per_item(program.facts, program.scope(name)) is expected


MEMOISED = """
from functools import cached_property, cache as kept, lru_cache
from joblib import Memory
from torch.utils.data import Dataset
memory = Memory("cache")

class Frames(Dataset):
    def __getitem__(self, index):
        try:
            return self.table(), self.table_of(index), parsed(index), self.frame(index), self.rows, self.near(index)
        except OSError:
            return self.__getitem__(0)
    @lru_cache(maxsize=2)
    def table(self): return self.read()
    @kept
    def table_of(self, index): return self.both()
    @lru_cache(maxsize=16)
    def near(self, index): pass
    @cached_property
    def rows(self): return self.read()
    def frame(self, index): return self.both()
    def read(self): return self.opened()
    def opened(self): pass
    def both(self): pass

@memory.cache
def parsed(index): pass
"""


@pytest.mark.parametrize(
    ("name", "once"),
    [
        ("Frames.__getitem__", False),
        ("Frames.table", True),
        ("Frames.read", True),
        ("Frames.opened", True),
        ("Frames.frame", False),
        ("Frames.near", False),
        ("Frames.both", False),
        ("parsed", True),
    ],
)
def test_what_is_kept_does_not_run_per_item(name: str, once: bool) -> None:
    program = Program(MEMOISED)
    assert runs_at_first(program.facts, program.scope(name)) is once
    assert runs_per_item(program.facts, program.scope(name)) is not once


SAME = {
    "a constant": ("'x'", True),
    "an attribute": ("self.path", True),
    "joined": ("os.path.join(HERE, self.path, f'{self.path}.npy')", True),
    "an item of a table": ("self.path['x']", True),
    "the index": ("index", False),
    "an item by the index": ("self.paths[index]", False),
    "a text of the index": ("f'{index}.npy'", False),
    "set per item": ("self.last", False),
    "a function's choice": ("choose(self.paths)", False),
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_the_same_for_all_items(name: str) -> None:
    text, expected = SAME[name]
    program = Program(DATA.replace("other = self.paths[index]", f"other = self.paths[index]\n        {text}  #?"))
    scope, node = program.at()
    assert same_for_all_items(program.facts, scope, node) is expected


@pytest.mark.parametrize(("name", "expected"), [("read", True), ("read_one", False), ("read_both", False)])
def test_an_argument_is_the_same_if_all_callers_agree(name: str, expected: bool) -> None:
    head = f"def {name}(self, where): "
    program = Program(DATA.replace(f"{head}return where", f"{head}\n        where  #?"))
    scope, node = program.at()
    assert same_for_all_items(program.facts, scope, node) is expected


def test_a_cache_that_is_filled_once_is_conditional() -> None:
    program = Program("def f(self):\n    if self.x is None:\n        a  #?\n    b  #?\n")
    assert is_conditional(*program.at(mark=1))
    assert not is_conditional(*program.at(mark=2))


KEPT = """
class Rows:
    def __getitem__(self, index):
        {guard}
        self.rows = load(self.path)
        return self.rows[index]
"""


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        ("if self.rows is not None: return self.rows[index]", True),
        ("if hasattr(self, 'rows'): return self.rows[index]", True),
        ("known = getattr(self, 'other'), self.rows\n        if known[1]: return known", True),
        ("if index < 0: return None", False),
        ("if self.rows is not None: print(self.rows)", False),
        ("if self.rows is None: raise ValueError", False),
    ],
)
def test_behind_a_return_of_what_is_kept_it_runs_once(guard: str, expected: bool) -> None:
    program = Program(KEPT.format(guard=guard))
    scope = program.scope("Rows.__getitem__")
    assert is_conditional(scope, flow_of(scope).calls_named["load"][0]) is expected
