"""DevicePrefetcher and to_device: iteration is the loader's; what needs CUDA is checked with stand-ins for streams.

The stand-ins write down what would be queued where. The rules of CUDA that the order has to obey are torch's:
https://pytorch.org/docs/stable/notes/cuda.html#cuda-streams
"""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
from perflint_runtime import BatchedTensorLoader, DevicePrefetcher, LengthBucketSampler, make_loader, prefetch, to_device
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

Pair = namedtuple("Pair", ["x", "y"])


@dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    name: str


class Graph:
    """As of a graph library: moves itself, in place of being a container."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def to(self, device: torch.device) -> Graph:
        return Graph(self.x.to(device))


class Opaque:
    """Shows nothing of what it holds."""

    __slots__ = ("device",)

    def to(self, device: torch.device, non_blocking: bool = False) -> Opaque:
        moved = Opaque()
        moved.device = device
        return moved


def on_meta(value: object) -> object:
    return to_device(value, "meta", non_blocking=False)


def test_all_nestings_are_moved_and_other_things_stay() -> None:
    other = object()
    x = torch.ones(2)
    batch = {"a": x, "b": [x, (x, "text", other)], "c": Pair(x, 3), "d": Frozen(x, "n"), "e": Graph(x), "f": None}
    batch["g"] = OrderedDict(h=x)
    moved = on_meta(batch)
    assert isinstance(moved, dict)
    assert moved["a"].is_meta
    assert moved["b"][0].is_meta
    assert moved["b"][1][0].is_meta
    assert moved["b"][1][1:] == ("text", other)
    assert type(moved["c"]) is Pair
    assert moved["c"].x.is_meta
    assert moved["c"].y == 3
    assert moved["d"].x.is_meta
    assert moved["d"].name == "n"
    assert moved["e"].x.is_meta
    assert moved["f"] is None
    assert type(moved["g"]) is OrderedDict
    assert not x.is_meta
    assert not batch["d"].x.is_meta
    assert not batch["b"][0].is_meta


@pytest.mark.parametrize("make", [UserDict, MappingProxyType, lambda items: defaultdict(list, items)])
def test_other_mappings(make: object) -> None:
    batch = make({"a": torch.ones(1)})
    moved = on_meta(batch)
    assert moved["a"].is_meta
    assert not batch["a"].is_meta
    assert isinstance(moved, dict if make is MappingProxyType else type(batch))


def test_packed_sequences_keep_their_sizes_on_the_cpu() -> None:
    packed = pack_sequence([torch.ones(3), torch.ones(1)])
    moved = on_meta((packed, 1))[0]
    assert isinstance(moved, PackedSequence)
    assert moved.data.is_meta
    assert moved.batch_sizes.device.type == "cpu"


def test_batches_of_tokenizers_are_copied_not_changed() -> None:
    transformers = pytest.importorskip("transformers")
    batch = transformers.BatchEncoding({"input_ids": torch.ones(1)})
    moved = on_meta(batch)
    assert type(moved) is transformers.BatchEncoding
    assert moved["input_ids"].is_meta
    assert not batch["input_ids"].is_meta


def test_copies_to_the_cpu_always_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device, non_blocking: asked.append(non_blocking))
    to_device(torch.ones(1), "cpu")
    to_device(torch.ones(1), "meta")
    to_device(torch.ones(1), "meta", non_blocking=False)
    assert asked == [False, True, False]


class Failing(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise OSError("sample 5 is unreadable")
        return index


# ------------------------------------------------------------------------------------------------- stand-ins for CUDA
class Recorder:
    """A CUDA of two streams, of which nothing runs: the log says what was queued, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = "main"
        self.current_stream = SimpleNamespace(wait_event=lambda event: self.log.append(f"main waits for {event.name}"))
        self.copies = 0

    def stream(self, device: torch.device) -> SimpleNamespace:
        return SimpleNamespace(name="side")

    @contextlib.contextmanager
    def on_stream(self, stream: SimpleNamespace) -> Iterator[None]:
        self.current = stream.name
        yield
        self.current = "main"

    def event(self) -> SimpleNamespace:
        event = SimpleNamespace(name=f"copy {self.copies}")
        event.record = lambda stream: self.log.append(f"{stream.name} marks {event.name}")
        return event

    def moved(self, batch: object, device: torch.device, non_blocking: bool = True) -> object:
        self.copies += 1
        self.log.append(f"{self.current} copies {number(batch)}{'' if non_blocking else ' waiting'}")
        return batch


def number(batch: object) -> object:
    return batch.tolist() if isinstance(batch, torch.Tensor) else batch


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(torch.cuda, "Stream", recorder.stream)
    monkeypatch.setattr(torch.cuda, "Event", recorder.event)
    monkeypatch.setattr(torch.cuda, "stream", recorder.on_stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: recorder.current_stream)
    monkeypatch.setattr(prefetch, "to_device", recorder.moved)
    return recorder


def test_copies_run_ahead_on_the_side_stream_and_the_loop_waits_for_its_own(cuda: Recorder) -> None:
    loader = [torch.tensor(n) for n in range(4)]
    for batch in DevicePrefetcher(loader, "cuda", depth=2):
        cuda.log.append(f"step {batch}")
    assert cuda.log == [
        "side copies 0", "side marks copy 1",
        "side copies 1", "side marks copy 2",
        "main waits for copy 1", "step 0",
        "side copies 2", "side marks copy 3",
        "main waits for copy 2", "step 1",
        "side copies 3", "side marks copy 4",
        "main waits for copy 3", "step 2",
        "main waits for copy 4", "step 3",
    ]  # fmt: skip


def test_memory_of_the_side_stream_is_not_used_again_before_the_step_is_through(
    cuda: Recorder,
) -> None:
    class OnDevice:
        device = torch.device("cuda")

        def record_stream(self, stream: object) -> None:
            assert stream is cuda.current_stream
            cuda.log.append("guarded")

        def to(self, device: torch.device) -> OnDevice:
            return self

    next(iter(DevicePrefetcher([{"graphs": [OnDevice(), OnDevice()]}], "cuda", depth=1)))
    assert cuda.log[-3:] == ["main waits for copy 1", "guarded", "guarded"]


def test_tensors_of_the_device_are_guarded(cuda: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: guarded.append(self))
    monkeypatch.setattr(torch.Tensor, "device", property(lambda self: torch.device("cuda" if cuda.copies else "cpu")))
    batch = {"a": torch.ones(1), "b": [pack_sequence([torch.ones(2)]), Frozen(torch.ones(3), "n")]}
    next(iter(DevicePrefetcher([batch], "cuda", depth=1)))
    assert [len(tensor) for tensor in guarded] == [1, 2, 2, 3]


def test_what_cannot_be_guarded_is_copied_on_the_current_stream_when_it_is_asked_for(cuda: Recorder) -> None:
    loader = [Opaque(), torch.tensor(1), {"a": [torch.empty(1, device="meta")]}]
    batches = iter(DevicePrefetcher(loader, "cuda", depth=3))
    assert next(batches) is loader[0]
    assert cuda.log == ["side copies 1", "side marks copy 1", f"main copies {loader[0]}"]
    next(batches)
    next(batches)
    assert cuda.log[-1].startswith("main copies {'a'")


def test_depth_0_copies_each_batch_when_it_is_asked_for(cuda: Recorder) -> None:
    for batch in DevicePrefetcher([torch.tensor(0), torch.tensor(1)], "cuda", depth=0):
        cuda.log.append(f"step {batch}")
    assert cuda.log == ["main copies 0", "step 0", "main copies 1", "step 1"]


def test_other_accelerators_get_copies_that_wait(cuda: Recorder) -> None:
    list(DevicePrefetcher([torch.tensor(0)], "mps"))
    assert cuda.log == ["main copies 0 waiting"]


DEVICES = pytest.mark.parametrize(("device", "depth"), [("cpu", 2), ("cuda", 0), ("cuda", 1), ("cuda", 2), ("cuda", 50)])


@DEVICES
@pytest.mark.usefixtures("cuda")
def test_order_length_and_starting_again(device: str, depth: int) -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_size=3)
    prefetcher = DevicePrefetcher(loader, device, depth)
    for _ in range(2):
        assert torch.cat([batch for (batch,) in prefetcher]).tolist() == list(range(10))
    assert len(prefetcher) == 4
    assert prefetcher.dataset is loader.dataset
    assert prefetcher.batch_size == 3
    assert not hasattr(prefetcher, "state_dict")
    assert not hasattr(prefetcher, "nothing")


@DEVICES
@pytest.mark.usefixtures("cuda")
def test_an_exhausted_iterator_stays_so_and_an_empty_loader_is_empty(device: str, depth: int) -> None:
    batches = iter(DevicePrefetcher([torch.tensor(1)], device, depth))
    next(batches)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(batches)
    assert list(DevicePrefetcher([], device, depth)) == []
    assert list(DevicePrefetcher([None, 3], device, depth)) == [None, 3]


@DEVICES
@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.usefixtures("cuda")
def test_an_error_arrives_at_its_element_and_the_next_ones_follow(device: str, depth: int, num_workers: int) -> None:
    batches = iter(DevicePrefetcher(DataLoader(Failing(), batch_size=2, num_workers=num_workers), device, depth))
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(OSError, match="sample 5 is unreadable"):
        next(batches)
    assert next(batches).tolist() == [6, 7]
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.usefixtures("cuda")
def test_no_batch_is_fetched_beyond_an_error_before_it_was_raised() -> None:
    fetched = []

    def batches() -> Iterator[torch.Tensor]:
        for n in range(4):
            fetched.append(n)
            yield torch.tensor(n)
            if n == 1:
                raise KeyError("broken")

    iterator = iter(DevicePrefetcher(Again(batches), "cuda", depth=4))
    assert [int(next(iterator)) for _ in range(2)] == [0, 1]
    with pytest.raises(KeyError, match="broken"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    assert fetched == [0, 1]


class Again:
    def __init__(self, make: object) -> None:
        self.make = make

    def __iter__(self) -> Iterator[object]:
        return self.make()


@DEVICES
@pytest.mark.usefixtures("cuda")
def test_leaving_early_lets_go_of_the_loader(device: str, depth: int) -> None:
    loader = DataLoader(range(8), batch_size=2, num_workers=1)
    iterator = iter(DevicePrefetcher(loader, device, depth))
    next(iterator)
    inside = weakref.ref(iterator if device == "cpu" else iterator.batches)
    workers = inside()._workers
    del iterator
    assert inside() is None
    assert not any(worker.is_alive() for worker in workers)


def test_on_the_cpu_batches_pass_through_and_nothing_is_drawn_ahead() -> None:
    batches = [{"x": torch.ones(1)}, {"x": torch.ones(1)}]
    assert all(a is b for a, b in zip(DevicePrefetcher(batches, "cpu"), batches, strict=True))

    class Drawing(Failing):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.rand(())

    def draws(loader: object) -> list[float]:
        torch.manual_seed(0)
        return [float(value) for batch in loader for value in (batch, torch.rand(()))]

    loader = DataLoader(Drawing(), batch_size=1)
    assert draws(DevicePrefetcher(loader, "cpu", depth=4)) == draws(loader)


@pytest.mark.usefixtures("cuda")
def test_without_lookahead_random_numbers_are_drawn_in_the_order_of_the_loader() -> None:
    class Drawing(Failing):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.rand(())

    def draws(loader: object) -> list[float]:
        torch.manual_seed(0)
        return [float(value) for batch in loader for value in (batch, torch.rand(()))]

    loader = DataLoader(Drawing(), batch_size=1)
    assert draws(DevicePrefetcher(loader, "cuda", depth=0)) == draws(loader) != draws(DevicePrefetcher(loader, "cuda", depth=2))


@DEVICES
@pytest.mark.parametrize("done", [1, 3, 4])
@pytest.mark.usefixtures("cuda")
def test_the_state_is_that_of_the_batch_in_hand(device: str, depth: int, done: int) -> None:
    def prefetcher() -> DevicePrefetcher[list[torch.Tensor]]:
        generator = torch.Generator().manual_seed(1)
        return DevicePrefetcher(
            BatchedTensorLoader(torch.arange(10), batch_size=3, shuffle=True, generator=generator), device, depth
        )

    whole = prefetcher()
    epochs = [[batch.tolist() for (batch,) in whole] for _ in range(2)]
    killed = prefetcher()
    iterator = iter(killed)
    for _ in range(done):
        next(iterator)
    resumed = prefetcher()
    resumed.load_state_dict(killed.state_dict())
    assert [[batch.tolist() for (batch,) in resumed] for _ in range(2)] == [epochs[0][done:], epochs[1]]


@pytest.mark.usefixtures("cuda")
def test_a_finished_epoch_is_followed_by_the_next_one() -> None:
    loader = make_loader(TensorDataset(torch.arange(10)), batch_sampler=LengthBucketSampler(range(10), 2), seed=0)
    prefetcher = DevicePrefetcher(loader, "cuda")
    list(prefetcher)
    assert prefetcher.state_dict()["epoch"] == 1
    prefetcher.set_epoch(5)
    assert prefetcher.state_dict()["epoch"] == 5


def test_a_negative_depth() -> None:
    with pytest.raises(ValueError, match="depth is at least 0 batches, got -1"):
        DevicePrefetcher([], "cpu", depth=-1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_values_on_a_real_device() -> None:
    x = torch.randn(1000, 256)
    loader = make_loader(TensorDataset(x), 10)
    seen = []
    for (batch,) in DevicePrefetcher(loader, "cuda", depth=3):
        assert batch.is_cuda
        seen.append(batch * 2)
    assert torch.equal(torch.cat(seen).cpu(), x * 2)
