"""Which methods may run later: those that compute with numbers and keep them in their object."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.proofs.meters import may_run_later

PLAIN = """
import torch


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum, self.count = 0.0, 0

    @property
    def mean(self):
        return self.sum / self.count

    def update(self, value, n=1):
        {body}

    def _add(self, value, n):
        self.sum += value * n

    {more}


Meter() #?
"""


def may_wait(body: str = "self.sum += value", more: str = "", text: str = PLAIN) -> bool:
    program = Program(text.replace("{body}", body).replace("{more}", more))
    return may_run_later(program.facts, program.value(), "update")


@pytest.mark.parametrize(
    "body",
    [
        "self.sum += value * n; self.count += n",
        "self._add(value, n)",
        "self.last = max(float(value), 0.5) if n else None",
        "s = self.sum; s += value; self.sum = s",
        "self.sum += value.item() if isinstance(value, torch.Tensor) else value",
        "assert n > 0; self.sum = -value",
        "self.sum += value if isinstance(value, (int, float)) else 0",
    ],
)
def test_what_computes_may_wait(body: str) -> None:
    assert may_wait(body)


@pytest.mark.parametrize(
    "body",
    [
        "print(value)",
        "self.sum += self.mean",  # a property may do anything
        "self.sum += scale * value",
        "self.values.append(value)",
        "self.sum += [value]",
        "value.owner = self",
        "global total; total = value",
        "self.update2(value)",
        "self.sum += float.fromhex(value)",
        "Meter.sum = value",
        "self.children[0] = value",
        "for i in range(n): self.sum += value",
        "yield value",
        "self.sum += sum(value)",
        "value += n; others = [value]",
        "self.sum = lambda: value",
        "self.sum = f'{value}'",
        "self.sum = isinstance(value, Meter)",
        "self.sum = isinstance(value, (int, kind()))",
    ],
)
def test_what_may_do_more_may_not(body: str) -> None:
    assert not may_wait(body)


@pytest.mark.parametrize(
    "more",
    [
        "def __getattr__(self, name): return 0",
        "def __del__(self): print(self.sum)",
        "def me(self): return self",
        "def kept(self): KEPT.append(self._add)",
        "def names(self): return vars(self)",
        "def state(self): return self.__dict__",
        "def each(self):\n        yield self.sum",
        "def later(self): return lambda: self.sum",
        "sum = []",
        "count = 5",
    ],
)
def test_a_class_that_shows_its_object_may_not(more: str) -> None:
    assert not may_wait("self.sum += value; self.count += n", more)


def test_what_is_harmless_in_other_methods() -> None:
    assert may_wait(more="def __str__(self): return '{sum}'.format(**self.__dict__)")
    assert may_wait(more="def show(self): print(self.mean, self.sum)")


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("class Meter:", "class Meter(Base):"),
        PLAIN.replace("class Meter:", "@counted\nclass Meter:"),
        PLAIN.replace("class Meter:", "class Meter(metaclass=M):"),
        PLAIN.replace("    def update", "    @timed\n    def update"),
        PLAIN.replace("n=1", "n=[]"),
        PLAIN.replace("n=1", "*n"),
        f"{PLAIN}\nMeter.update = print\n",
        f"{PLAIN}\nMeter.__setattr__ = print\n",
        f"{PLAIN}\nsetattr(Meter, 'update', print)\n",
        PLAIN.replace("    def _add", "    def update(self, value):\n        print(value)\n\n    def _add"),
        PLAIN.replace("Meter() #?", "make() #?"),
    ],
)
def test_what_is_not_known_may_not(text: str) -> None:
    assert not may_wait(text=text)
