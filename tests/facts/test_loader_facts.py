"""Loaders: their arguments, the datasets behind them, the code that makes a sample, the loops over their batches."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.training.loaders import LoaderCall

DATA = """
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, random_split

class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        return self.load(self.paths[index])
    def load(self, path):
        return decode(path)

class Stream(IterableDataset):
    def __iter__(self):
        yield from range(3)

def decode(path):
    return open(path).read()

def collate(samples):
    return samples
"""


def loader(text: str) -> LoaderCall:
    """The one loader that a function `f` makes."""
    program = Program(DATA + text)
    scope = program.scope("f")
    (found,) = LoaderCall.all_in(program.facts, scope, flow_of(scope).calls)
    return found


@pytest.mark.parametrize(
    ("arguments", "given", "workers"),
    [
        ("Images([]), num_workers=4", True, 4),
        ("Images([])", False, 0),
        ("Images([]), 8, True, None, None, 2", True, 2),
        ("Images([]), **options", None, None),
        ("Images([]), *rest", None, None),
        ("Images([]), num_workers=n", True, None),
        ("Images([]), **{'num_workers': 3}", True, None),
        ("Images([]), **{'batch_size': 3}", False, 0),
    ],
)
def test_an_argument_is_given_or_not_or_may_be(arguments: str, given: bool | None, workers: int | None) -> None:
    found = loader(f"def f(n, options, rest):\n    return DataLoader({arguments})\n")
    assert (found.gives("num_workers"), found.workers) == (given, workers)


def test_a_dict_that_is_changed_later_says_nothing() -> None:
    body = "    options = dict(batch_size=4)\n    {}\n    return DataLoader(Images([]), **options)\n"
    assert loader("def f():\n" + body.format("pass")).gives("num_workers") is False
    assert loader("def f():\n" + body.format("options['num_workers'] = 2")).gives("num_workers") is not False
    assert loader("def f():\n" + body.format("options.update(num_workers=2)")).gives("num_workers") is not False


@pytest.mark.parametrize(
    ("dataset", "names", "known"),
    [
        ("Images([])", {"Images"}, True),
        ("Stream()", {"Stream"}, True),
        ("Subset(Images([]), [0])", {"Images"}, True),
        ("given", set(), False),
        ("Images([]) if given else Stream()", {"Images", "Stream"}, True),
        ("Images([]) if given else given", {"Images"}, False),
    ],
)
def test_datasets_are_found_behind_wrappers(dataset: str, names: set[str], known: bool) -> None:
    found = loader(f"def f(given):\n    return DataLoader({dataset})\n")
    assert {d.cls.name for d in found.datasets} == names
    assert found.knows_all_datasets is known
    assert all(d.is_iterable == (d.cls.name == "Stream") for d in found.datasets)


def test_the_code_that_makes_a_sample_is_followed_into_what_it_calls() -> None:
    found = loader("def f():\n    return DataLoader(Images([]), collate_fn=collate)\n")
    assert [scope.qualname for scope in found.sample_code()] == ["Images.__getitem__", "collate", "Images.load", "decode"]


def test_loops_over_the_batches_are_found_through_enumerate() -> None:
    body = """
def f(other):
    loader = DataLoader(Images([]))
    for epoch in range(3):
        for step, batch in enumerate(loader):
            pass
        for batch in other:
            pass
"""
    found = loader(body)
    assert [loop.node.lineno for loop in found.loops_in(found.scope)] == [loader_row(body)]


def loader_row(body: str) -> int:
    """The row of the loop over the loader."""
    return (DATA + body)[: (DATA + body).index("for step")].count("\n") + 1


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [
        ("default=0", "args.workers", True),
        ("type=int, default=0", "int(args.workers)", True),
        ("default=4", "args.workers", False),
        ("default=0", "0", True),
        ("default=0", "2", False),
        ("default=0", "args.threads", False),
    ],
)
def test_it_has_no_workers_unless_somebody_asks_for_them(option: str, given: str, expected: bool) -> None:
    declared = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--workers', {option})\n"
    found = loader(f"{declared}\ndef f(args):\n    return DataLoader(Images([]), num_workers={given})\n")
    assert found.is_left_without_workers is expected
