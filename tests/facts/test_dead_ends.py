"""Code that ends with an error whenever it runs, and code that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.dead_ends import always_ends, ends_first
from perflint.project.project import Project

LOSSES = """\
from enum import Enum
from threading import Thread
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width, depth=2):
        super().__init__()
        self.width = width

    def forward(self, x, mask):
        return x, mask, self.width


def criterion(options, teacher, student):
    return teacher - student


def lookup(path):
    return pickle.load(path)


class Kind(Enum):
    FAST = (1, "fast")

    def __init__(self, number, text):
        self.number = number


class Mixin:
    def __init__(self, size):
        self.size = size


class Rows(Thread, Mixin):
    pass


class Registry(type):
    pass


class Plain(metaclass=Registry):
    def __init__(self, size):
        self.size = size


class Child(Plain):
    pass
"""
TRAIN = """\
import math
from contextlib import suppress
from losses import Child, Kind, Net, Rows, criterion, lookup

RATE = 0.1


def train(loader, optimizer, resume=None):
    {before}
    for x, y in loader:
        {first}
        mark(x)
        {last}
    {after}


def mark(x):
    return x


def main(loader, optimizer):
    train(loader, optimizer)
"""


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("first", "memory = report_memory()"),
        ("last", "print(f'{report_memory()} MB')"),
        ("before", "loss = criterion(optimizer)"),
        ("first", "loss = criterion(optimizer, y, x, 3)"),
        ("before", "network = Net()"),
        ("before", "a, b = Net(3)(loader, None)"),
        ("last", "names = lookup(y)"),
        ("last", "names = [lookup(path) for path in y]"),
    ],
    ids=["name", "name in a text", "too few", "too many", "no width", "two of three", "within", "in a list"],
)
def test_a_run_ends_before_the_second_step(tmp_path: Path, place: str, code: str) -> None:
    assert ends(tmp_path, **{place: code})


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("first", "rate = math.sqrt(RATE) + len(x)"),
        ("after", "memory = report_memory()"),
        ("first", "memory = report_memory() if resume else 0"),
        ("first", "if resume:\n            memory = report_memory()"),
        ("first", "try:\n            report_memory()\n        except NameError:\n            pass"),
        ("last", "if resume:\n            return None\n        report_memory()"),
        ("before", "loss = criterion(*resume)"),
        ("before", "loss = criterion(optimizer, teacher=1, student=2)"),
        ("before", "network = Net(3, depth=4)"),
        ("before", "a, *b = Net(3)(loader, None)"),
        ("before", "shape: Unknown = 3"),
        ("before", "global counter\n    counter = counter + 1"),
        ("before", "optimizer.report_memory()"),
        ("before", "kind = Kind((1, 'fast'))"),
        ("before", "rows = Rows()"),
        ("before", "child = Child()"),
        ("before", "with suppress(NameError):\n        report_memory()"),
        ("before", "while len(loader) > 3:\n        report_memory()"),
    ],
    ids=[
        "bound",
        "behind the loop",
        "half of an expression",
        "under a condition",
        "caught",
        "behind a return",
        "unknown arguments",
        "by name",
        "an option",
        "the rest",
        "an annotation",
        "global",
        "a method of something",
        "a value of an enumeration",
        "another package's constructor",
        "a metaclass",
        "suppressed",
        "a loop that may not begin",
    ],
)
def test_a_run_goes_on(tmp_path: Path, place: str, code: str) -> None:
    assert not ends(tmp_path, **{place: code})


def test_names_may_come_from_everywhere(tmp_path: Path) -> None:
    for binds in ("from losses import *", "globals().update(report_memory=1)", "import sys\nsys.modules[__name__] = 1"):
        assert not ends(tmp_path, first="report_memory()", top=binds)


@pytest.mark.parametrize("top", ["", "if __name__ == '__main__':\n    main(loader, optimizer)\n"], ids=["part", "program"])
def test_a_file_alone_may_be_a_part_of_something(tmp_path: Path, top: str) -> None:
    text = TRAIN.format(before="pass", first="report_memory()", last="pass", after="pass").replace("from losses", "from os")
    facts = facts_of(tmp_path, text + top)
    module = facts.project.module(str(tmp_path / "train.py"))
    assert module is not None
    assert always_ends(facts, module.scopes["train"]) is (top != "")


def test_an_evaluation_by_its_name_binds_nothing(tmp_path: Path) -> None:
    assert ends(tmp_path, before="optimizer.eval()", first="report_memory()")


def test_what_only_a_run_that_has_ended_calls(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, TRAIN.format(before="pass", first="pass", last="pass", after="pass") + "    mark(lookup(1))\n")
    module = facts.project.module(str(tmp_path / "train.py"))
    assert module is not None
    assert always_ends(facts, module.scopes["main"])
    assert not always_ends(facts, module.scopes["train"])


def test_a_function_that_is_handed_on_may_run_elsewhere(tmp_path: Path) -> None:
    calls = "\n\ndef broken(loader, optimizer):\n    set_up()\n    train(loader, optimizer)\n\nWAYS = {'train': train}\n"
    text = TRAIN.format(before="pass", first="pass", last="pass", after="pass").partition("def main")[0] + calls
    assert not _first_mark_ends(facts_of(tmp_path, text), tmp_path)
    assert _first_mark_ends(facts_of(tmp_path, text.partition("WAYS")[0]), tmp_path)


def _first_mark_ends(facts: Facts, folder: Path) -> bool:
    module = facts.project.module(str(folder / "train.py"))
    assert module is not None
    scope = module.scopes["train"]
    return ends_first(facts, scope, flow_of(scope).calls_named["mark"][0])


def ends(folder: Path, *, top: str = "", **parts: str) -> bool:
    """Whether a run ends before `mark` is called a second time."""
    code = TRAIN.format(**{"before": "pass", "first": "pass", "last": "pass", "after": "pass", **parts})
    return _first_mark_ends(facts_of(folder, f"{top}\n{code}"), folder)


def facts_of(folder: Path, train: str) -> Facts:
    texts = {"train.py": train, "losses.py": LOSSES}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return Facts(Project(str(folder), [str(folder / name) for name in texts]))
