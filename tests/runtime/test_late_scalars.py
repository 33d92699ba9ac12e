"""`late_scalar` writes what `add_scalar` writes: the same events in the same order, when the numbers have arrived."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from typing import Any

import perflint_runtime.late_scalars
import pytest
import torch
from perflint_runtime import LateItem, late_scalar
from perflint_runtime.late_scalars import MOST_WAITING
from torch import Tensor


class Events:
    """What writes a file's events."""

    def __init__(self) -> None:
        self.written: list[tuple[Any, ...]] = []
        self.is_flushed = self.is_closed = False

    def add_event(self, event: tuple[Any, ...]) -> None:
        self.written.append(event)

    def flush(self) -> None:
        self.is_flushed = True

    def close(self) -> None:
        self.is_closed = True


class FileWriter:
    def __init__(self) -> None:
        self.event_writer: Any = Events()


class SummaryWriter:
    """torch's, as far as it matters here."""

    def __init__(self) -> None:
        self.file_writer = FileWriter()

    def _get_file_writer(self) -> FileWriter:
        return self.file_writer

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, walltime: Any = None, **named: Any) -> None:
        number = float(scalar_value.detach().item() if isinstance(scalar_value, Tensor) else scalar_value)
        now = time.time() if walltime is None else walltime
        self.file_writer.event_writer.add_event((tag, number, global_step, now, named))

    def flush(self) -> None:
        self.file_writer.event_writer.flush()

    def close(self) -> None:
        self.file_writer.event_writer.close()


SummaryWriter.__module__ = "torch.utils.tensorboard.writer"


class Card:
    """Copies that arrive when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived = 0
        self.made = 0
        card, plain = self, perflint_runtime.late_scalars.HostCopy

        class Copy(plain):  # type: ignore[misc, valid-type]  # a class that is looked up
            def __init__(self, tensors: Any) -> None:
                super().__init__(tensors)
                card.made += 1
                self.number = card.made

            def arrived(self) -> bool:
                return self.number <= card.arrived

        monkeypatch.setattr(perflint_runtime.late_scalars, "HostCopy", Copy)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(monkeypatch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [0.0]

    def now() -> float:
        times[0] += 1.0
        return times[0]

    monkeypatch.setattr(time, "time", now)
    return times


def events(writer: SummaryWriter) -> list[tuple[Any, ...]]:
    written: list[tuple[Any, ...]] = writer.file_writer.event_writer.written
    return written


def test_the_order_and_the_times_stay(card: Card, clock: list[float]) -> None:
    writer, loss = SummaryWriter(), torch.tensor(1.5)
    late_scalar(writer, "loss", loss, 0)
    writer.add_scalar("rate", 0.1, 0)
    loss.mul_(2)
    late_scalar(writer, "loss", LateItem(loss), global_step=1)
    assert events(writer) == []
    card.arrived = 1
    writer.add_scalar("rate", 0.2, 1)
    assert events(writer) == [("loss", 1.5, 0, 1.0, {}), ("rate", 0.1, 0, 2.0, {})]
    writer.flush()
    assert events(writer)[2:] == [("loss", 3.0, 1, 3.0, {}), ("rate", 0.2, 1, 4.0, {})]
    assert writer.file_writer.event_writer.is_flushed


def test_closing_writes_all(card: Card) -> None:
    writer = SummaryWriter()
    for step in range(5):
        late_scalar(writer, "loss", torch.tensor(float(step)), step)
    writer.close()
    assert [event[:3] for event in events(writer)] == [("loss", float(step), step) for step in range(5)]
    assert writer.file_writer.event_writer.is_closed


def test_no_more_wait_than_can_be_kept(card: Card) -> None:
    writer = SummaryWriter()
    for step in range(MOST_WAITING + 3):
        late_scalar(writer, "loss", torch.tensor(float(step)), step)
    assert [event[2] for event in events(writer)] == [0, 1, 2]


def test_on_the_host_it_is_written_at_once() -> None:
    writer = SummaryWriter()
    late_scalar(writer, "loss", torch.tensor(2.0), 3)
    assert events(writer)[0][:3] == ("loss", 2.0, 3)


VALUES = {
    "float": torch.tensor(0.1),
    "double": torch.tensor(0.1, dtype=torch.float64),
    "half": torch.tensor(0.1, dtype=torch.float16),
    "one element": torch.tensor([[7.0]]),
    "count": torch.tensor(7),
    "large": torch.tensor(2**62 + 1),
    "truth": torch.tensor(True),
    "nan": torch.tensor(math.nan),
    "differentiated": torch.tensor(0.5, requires_grad=True),
    "number": 3,
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("is_item", [False, True])
def test_the_number_is_the_one_that_was_to_be_written(card: Card, name: str, is_item: bool) -> None:
    value, plain, late = VALUES[name], SummaryWriter(), SummaryWriter()
    if is_item and isinstance(value, Tensor):
        plain.add_scalar("loss", value.item() / 3, 1, 2.0)
        late_scalar(late, "loss", LateItem(value, of=lambda a: a / 3), 1, 2.0)
    else:
        plain.add_scalar("loss", value, 1, 2.0)
        late_scalar(late, "loss", value, 1, 2.0)
    late.flush()
    assert repr(events(late)) == repr(events(plain))


class Own(SummaryWriter):
    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, walltime: Any = None, **named: Any) -> None:
        scalar_value.mul_(2)


@pytest.mark.parametrize("value", [torch.ones(2), torch.ones(2).to_sparse(), "text", None])
def test_what_is_no_number_is_the_writers_to_refuse(value: Any) -> None:
    writer = SummaryWriter()
    with pytest.raises((RuntimeError, ValueError, TypeError, NotImplementedError)):
        late_scalar(writer, "loss", value, 1)
    assert events(writer) == []


def test_another_writer_gets_the_tensor_itself(card: Card) -> None:
    loss = torch.tensor(1.0)
    late_scalar(Own(), "loss", loss, 1)
    assert loss.item() == 2.0


def test_an_argument_that_may_change_is_written_at_once(card: Card) -> None:
    writer, step = SummaryWriter(), torch.tensor(1)
    late_scalar(writer, "loss", torch.tensor(1.0), step)
    assert len(events(writer)) == 1


PROGRAM = """
import os, sys
sys.path[:0] = {paths!r}
import torch
from perflint_runtime import late_scalar, late_scalars
from test_late_scalars import SummaryWriter

late_scalars.HostCopy.arrived = lambda self: False


class Told(SummaryWriter):
    def add_scalar(self, *given, **named):
        super().add_scalar(*given, **named)
        print(given[:3], os.getpid() == started, flush=True)


started = os.getpid()
late_scalars._WRITERS = {{"__main__.Told"}}
late_scalar(Told(), "loss", torch.tensor(1.0), 7)
if os.fork() == 0:
    sys.exit()
os.wait()
raise SystemExit(3)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_end_of_the_program_writes_what_waits_once() -> None:
    program = PROGRAM.format(paths=[os.path.dirname(__file__), *filter(None, sys.path)])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "('loss', 1.0, 7) True\n"
