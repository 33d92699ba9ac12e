"""Numbers that reach the host without anybody waiting for them."""

from __future__ import annotations

import math
import pickle
from typing import Any

import perflint_runtime.scalars as scalars
import pytest
import torch
from device_reads import count_reads
from perflint_runtime import AsyncScalars, DeviceSum, LossMeter, NonFiniteError, NonFiniteGuard
from perflint_runtime.scalars import ScalarRecord
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode


def test_records_arrive_in_order_with_python_types() -> None:
    log = AsyncScalars()
    log.submit(
        1, {"lr": 0.1, "loss": torch.tensor([0.5], requires_grad=True), "tokens": torch.tensor(2**40), "ok": torch.tensor(True)}
    )
    log.submit(2, {"loss": torch.tensor(0.25, dtype=torch.bfloat16)})
    log.submit(3, {"lr": 0.3})
    records = log.poll()
    assert records == [
        ScalarRecord(1, {"lr": 0.1, "loss": 0.5, "tokens": 2**40, "ok": 1}),
        ScalarRecord(2, {"loss": 0.25}),
        ScalarRecord(3, {"lr": 0.3}),
    ]
    assert list(records[0].values) == ["lr", "loss", "tokens", "ok"]
    assert [type(value) for value in records[0].values.values()] == [float, float, int, int]
    assert log.poll() == log.flush() == []


def test_changes_after_submit_do_not_leak() -> None:
    log, loss, values = AsyncScalars(), torch.tensor(8.0), {}
    values["loss"] = loss
    log.submit(1, values)
    loss /= 4
    values["loss"] = torch.tensor(-1.0)
    assert log.poll()[0].values == {"loss": 8.0}


def test_what_is_no_number_is_refused_by_name() -> None:
    log, guard = AsyncScalars(), NonFiniteGuard()
    with pytest.raises(ValueError, match=r"'logits' has shape \(2, 3\)"):
        log.submit(1, {"loss": 1.0, "logits": torch.zeros(2, 3)})
    assert log.poll() == []
    with pytest.raises(ValueError, match=r"'loss' has shape \(3,\)"):
        guard.watch(1, torch.zeros(3))
    with pytest.raises(ValueError, match="max_in_flight=0"):
        AsyncScalars(max_in_flight=0)
    with pytest.raises(ValueError, match="window=0"):
        NonFiniteGuard(window=0)


def test_a_loop_with_all_of_it_reads_nothing() -> None:
    model = torch.nn.Linear(3, 1)
    total, meter, log, guard = DeviceSum(), LossMeter(), AsyncScalars(), NonFiniteGuard(window=3)
    records = []
    with count_reads() as reads:
        for step in range(10):
            loss = model(torch.ones(4, 3)).pow(2).mean()
            loss.backward()
            total.update(loss, 4)
            meter.update(loss, 4)
            guard.watch(step, loss)
            log.submit(step, {"loss": loss, "mean": meter.mean_tensor(), "total": total.tensor()})
            records += log.poll()
            if step % 4 == 3:
                guard.check_later()
        records += log.flush()
        guard.check()
    assert reads == []
    assert [record.step for record in records] == list(range(10))
    assert records[-1].values["total"] == total.value()
    assert records[-1].values["mean"] == meter.mean()


class FakeCuda:
    """Events that pass when the test says so, as if the device had got there; pinned memory that is filled at that moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[FakeEvent] = []
        self.waits = 0
        self.pinned: list[Tensor] = []
        cards = self

        class Transfer(scalars._Transfer):
            def __init__(self, packed: Tensor) -> None:
                self._host = torch.full_like(packed, math.nan)
                self._event = FakeEvent(cards, self._host, packed.clone())
                cards.events.append(self._event)

        monkeypatch.setattr(scalars, "_Transfer", Transfer)


class FakeEvent:
    def __init__(self, cards: FakeCuda, host: Tensor, packed: Tensor) -> None:
        self.cards, self.host, self.packed, self.passed = cards, host, packed, False

    def go(self) -> None:
        self.host.copy_(self.packed)
        self.passed = True

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        if not self.passed:
            self.cards.waits += 1
            self.go()


def test_poll_delivers_what_has_arrived_and_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    card, log = FakeCuda(monkeypatch), AsyncScalars(max_in_flight=3)
    for step in range(3):
        log.submit(step, {"loss": torch.tensor(float(step))})
    assert log.poll() == []
    card.events[1].go()  # out of order: what came first is delivered first
    assert log.poll() == []
    card.events[0].go()
    assert [record.step for record in log.poll()] == [0, 1]
    assert card.waits == 0
    log.submit(3, {"loss": torch.tensor(3.0)})
    log.submit(4, {"loss": torch.tensor(4.0)})
    assert card.waits == 0
    log.submit(5, {"loss": torch.tensor(5.0)})  # a fourth under way: the oldest is waited for
    assert card.waits == 1
    assert log.poll() == [ScalarRecord(2, {"loss": 2.0})]
    assert [record.values["loss"] for record in log.flush()] == [3.0, 4.0, 5.0]


def test_cuda_copies_go_through_pinned_memory_and_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors have the rules of a card and raise where a value is read; events are stand-ins."""
    calls: list[str] = []

    class Event:
        def record(self, stream: object) -> None:
            calls.append(f"record on {stream}")

        def query(self) -> bool:
            calls.append("query")
            return False

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.copy_.default:
                calls.append(f"copy {args[1].device} to {args[0].device}, non_blocking {args[2]}")
            if func is torch.ops.aten.empty.memory_format:
                calls.append(f"pinned {kwargs['pin_memory']}")
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the stream of {device}")
    with FakeTensorMode():
        loss, tokens = torch.ones((), device="cuda:0"), torch.ones((), device="cuda:0", dtype=torch.int64)
        log, guard = AsyncScalars(), NonFiniteGuard()
        with Copies():
            log.submit(1, {"loss": loss, "tokens": tokens, "lr": 0.1})
        assert calls == ["pinned True", "copy cuda:0 to cpu, non_blocking True", "record on the stream of cuda:0"]
        assert log.poll() == []
        guard.watch(1, loss)
        guard.check_later()
        log.submit(2, {"here": loss, "there": torch.ones((), device="cuda:1")})
    assert calls[3:] == ["query", "record on the stream of cuda:0", "query", *calls[6:]]
    assert [call for call in calls[6:] if call.startswith("record")] == [
        "record on the stream of cuda:0",
        "record on the stream of cuda:1",
    ]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_first_bad_step_is_found(bad: float, dtype: torch.dtype) -> None:
    guard = NonFiniteGuard()
    for step in range(5):
        guard.watch(step, torch.tensor(1.0, dtype=dtype))
        guard.watch(step, torch.tensor(bad if step >= 3 else 0.0, dtype=torch.float32), "gradient norm")
        if step == 1:
            guard.check()
    with pytest.raises(NonFiniteError, match=r"gradient norm is -?(nan|inf) at step 3") as caught:
        guard.check()
    assert (caught.value.step, caught.value.name) == (3, "gradient norm")
    assert str(caught.value.value) == str(bad)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.step) == (str(caught.value), 3)


def test_a_loss_that_is_overwritten_is_found_all_the_same() -> None:
    """As the static output of a CUDA graph is by the next replay."""
    guard, output = NonFiniteGuard(), torch.zeros(())
    for step, loss in enumerate([1.0, math.nan, 2.0]):
        output.fill_(loss)
        guard.watch(step, output)
    with pytest.raises(NonFiniteError, match="step 1;"):
        guard.check()


def test_a_full_window_is_sent_off_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    card, guard = FakeCuda(monkeypatch), NonFiniteGuard(window=4)
    for step in range(10):
        guard.watch(step, torch.tensor(math.nan if step == 2 else 1.0))
    assert card.waits == 0
    guard.check_later()
    card.events[0].go()
    with pytest.raises(NonFiniteError, match="step 2;"):
        guard.check_later()
    assert card.waits == 0
    guard.check()
    assert card.waits == 2


def test_nothing_watched_is_fine() -> None:
    guard = NonFiniteGuard()
    guard.check_later()
    guard.check()
