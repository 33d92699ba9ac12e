"""A batch that does not fit: the gradient is that of the whole batch, whenever memory runs out."""

from __future__ import annotations

import copy
import random
from collections import OrderedDict, namedtuple
from typing import Any

import perflint_runtime.oom as oom
import pytest
import torch
import torch.nn.functional as F
from device_reads import count_reads
from perflint_runtime import MicroBatchBackward, find_executable_batch_size
from torch import Tensor, nn


class Memory(nn.Module):
    """Passes its input through; runs out of memory above some samples, or at one of its calls, forward or backward."""

    def __init__(self, most: int | None = None, fails_at: set[int] | None = None, backward: bool = False) -> None:
        super().__init__()
        self.most, self.fails_at, self.backward = most, fails_at or set(), backward
        self.calls = 0
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.sizes.append(len(x))
        fails = self.calls in self.fails_at or (self.most is not None and len(x) > self.most)
        if fails and not self.backward:
            self.fail()
        return Failing.apply(x, self if fails else None)

    def fail(self) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, memory: Memory | None) -> Tensor:
        ctx.memory = memory
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if ctx.memory is not None:
            ctx.memory.fail()
        return gradient, None


def make(memory: Memory, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), memory, nn.Linear(7, 3)).to(dtype)


def make_batch(samples: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return {
        "x": torch.randn(samples, 5, generator=generator).to(dtype),
        "y": torch.randint(0, 3, (samples,), generator=generator),
    }


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["y"])


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def whole_batch(samples: int, before: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
    model, batch = make(Memory()), make_batch(samples)
    give(model, before)
    loss = loss_of(model, batch)
    loss.backward()
    return loss.detach(), gradients(model)


def give(model: nn.Module, gradient: list[Tensor] | None) -> None:
    for parameter, g in zip(model.parameters(), gradient or [], strict=bool(gradient)):
        parameter.grad = g.clone()


def test_without_pressure_it_is_the_plain_backward_to_the_bit() -> None:
    expected_loss, expected = whole_batch(13)
    model = make(Memory())
    loss = MicroBatchBackward(model, loss_fn=lambda batch: loss_of(model, batch))(make_batch(13))
    assert torch.equal(loss, expected_loss)
    assert not loss.requires_grad
    assert all(map(torch.equal, gradients(model), expected))


@pytest.mark.parametrize("in_backward", [False, True])
@pytest.mark.parametrize("accumulated", [False, True])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.filterwarnings("ignore:out of memory with")
def test_memory_runs_out_at_random_points(
    in_backward: bool, accumulated: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed:
        monkeypatch.setattr(oom, "free_memory", lambda: None)  # collecting garbage takes its time
    draw = random.Random(seed)
    samples = draw.randint(8, 40)
    most = draw.randint(1, samples - 1)
    before = [torch.randn_like(p) for p in make(Memory()).parameters()] if accumulated else None
    expected_loss, expected = whole_batch(samples, before)
    memory = Memory(most, fails_at={draw.randint(1, 12)}, backward=in_backward)
    model = make(memory)
    give(model, before)
    identities = [id(p.grad) for p in model.parameters()]
    backward = MicroBatchBackward(model, loss_fn=lambda batch: loss_of(model, batch))
    loss = backward(make_batch(samples))
    torch.testing.assert_close(loss, expected_loss, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(gradients(model), expected, rtol=1e-12, atol=1e-13)
    if accumulated:
        assert [id(p.grad) for p in model.parameters()] == identities
    assert backward.size is not None
    assert backward.size <= most


def test_the_size_that_fits_is_remembered() -> None:
    memory = Memory(most=4)
    model = make(memory)
    backward = MicroBatchBackward(model, loss_fn=lambda batch: loss_of(model, batch))
    with pytest.warns(UserWarning, match="out of memory with") as caught:
        backward(make_batch(10))
    assert "with 10 samples at once; going on with micro-batches of 5" in str(caught[0].message)
    assert [warning.filename for warning in caught] == [__file__] * 2
    assert memory.sizes == [10, 5, 2, 2, 2, 2, 2]
    memory.sizes.clear()
    backward(make_batch(7))
    assert memory.sizes == [2, 2, 2, 1]
    memory.sizes.clear()
    backward.size = None
    backward(make_batch(3))
    assert memory.sizes == [3]


@pytest.mark.filterwarnings("ignore:out of memory with")
def test_when_one_sample_does_not_fit_the_gradients_stay_as_they_were() -> None:
    model = make(Memory(most=0))
    before = [torch.randn_like(p) for p in model.parameters()]
    give(model, before)
    with pytest.raises(torch.OutOfMemoryError):
        MicroBatchBackward(model, loss_fn=lambda batch: loss_of(model, batch))(make_batch(6))
    assert all(map(torch.equal, gradients(model), before))


def test_another_error_half_way_leaves_the_gradients_as_they_were() -> None:
    model = make(Memory())
    before = [torch.randn_like(p) for p in model.parameters()]
    give(model, before)
    calls = []

    def loss_fn(batch: dict[str, Tensor]) -> Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return loss_of(model, batch)

    with pytest.raises(KeyboardInterrupt):
        MicroBatchBackward(model, loss_fn=loss_fn, size=2)(make_batch(6))
    assert all(map(torch.equal, gradients(model), before))


@pytest.mark.parametrize("on_device", [False, True])
def test_a_mean_over_tokens_is_weighted_by_tokens(on_device: bool) -> None:
    torch.manual_seed(1)
    model = nn.Linear(4, 5).double()
    whole = copy.deepcopy(model)
    x, labels = torch.randn(6, 8, 4).double(), torch.randint(0, 5, (6, 8))
    labels[torch.rand(6, 8) < 0.6] = -100
    labels[2:4] = -100  # a micro-batch without any token

    def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), reduction="sum") / (
            (batch[1] != -100).sum().clamp(min=1)
        )

    def count(batch: tuple[Tensor, Tensor]) -> int | Tensor:
        tokens = (batch[1] != -100).sum()
        return tokens if on_device else int(tokens)

    expected = loss_of(whole, (x, labels))
    expected.backward()
    with count_reads(model) as reads:
        loss = MicroBatchBackward(model, loss_fn=lambda batch: loss_of(model, batch), count=count, size=2)((x, labels))
    assert reads == []
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradients(model), gradients(whole), rtol=1e-13, atol=1e-15)


def test_a_scaled_backward_is_used() -> None:
    model = make(Memory())
    MicroBatchBackward(
        model, loss_fn=lambda batch: loss_of(model, batch), size=3, backward=lambda loss: (loss * 1024).backward()
    )(make_batch(8))
    torch.testing.assert_close([g / 1024 for g in gradients(model)], whole_batch(8)[1])


def test_parameters_without_gradient_stay_without() -> None:
    used, unused = nn.Linear(2, 1), nn.Linear(2, 1)
    frozen = used.bias.requires_grad_(False)
    unused.weight.grad = torch.ones(1, 2)
    MicroBatchBackward(used, unused, loss_fn=lambda x: used(x).mean(), size=1)(torch.ones(3, 2))
    assert frozen.grad is None
    assert unused.bias.grad is None
    assert torch.equal(unused.weight.grad, torch.ones(1, 2))
    assert used.weight.grad is not None


def batch_norm_model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


def test_batch_norm_is_refused_only_where_a_batch_is_split() -> None:
    model = batch_norm_model()
    x = torch.randn(8, 2)
    MicroBatchBackward(model, loss_fn=lambda x: model(x).pow(2).mean())(x)
    split = MicroBatchBackward(model, loss_fn=lambda x: model(x).pow(2).mean(), size=4)
    with pytest.raises(RuntimeError, match="micro-batches of 4, but 1 is a BatchNorm in training mode"):
        split(x)
    model[1].eval()
    split(x)
    model.train()
    MicroBatchBackward(model, loss_fn=lambda x: model(x).pow(2).mean(), size=4, batch_norm_may_differ=True)(x)


def test_what_cannot_start_over_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(2, 1)
    backward = MicroBatchBackward(model, loss_fn=lambda x: model(x).mean())
    handle = model.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(RuntimeError, match="weight has a post-accumulate-grad hook"):
        backward(torch.ones(2, 2))
    handle.remove()
    backward(torch.ones(2, 2))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(RuntimeError, match="several processes"):
        backward(torch.ones(2, 2))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="needs the model"):
        MicroBatchBackward(loss_fn=lambda x: x)
    with pytest.raises(ValueError, match="size=0"):
        MicroBatchBackward(nn.Linear(1, 1), loss_fn=lambda x: x, size=0)


Pair = namedtuple("Pair", "x names")


def test_batches_of_all_shapes_are_cut() -> None:
    x = torch.arange(6).reshape(3, 2)
    batch = OrderedDict(x=x, pair=Pair((x, [x]), ["a", "b", "c"]), scale=torch.tensor(2.0), task="ner", sizes=[1, 2], k=3)
    part = oom.split_batch(batch, 1, 3)
    assert type(part) is OrderedDict
    assert torch.equal(part["x"], x[1:])
    assert isinstance(part["pair"], Pair)
    assert torch.equal(part["pair"].x[1][0], x[1:])
    assert part["pair"].names == ["b", "c"]
    assert (part["scale"].item(), part["task"], part["sizes"], part["k"]) == (2.0, "ner", [1, 2], 3)
    with pytest.raises(ValueError, match=r"shapes \[\(3, 2\), \(4,\)\]; pass split="):
        oom.split_batch([x, torch.ones(4)], 0, 1)
    with pytest.raises(ValueError, match="a list without tensors"):
        oom.batch_length(["a", "b"])


def test_a_split_of_ones_own() -> None:
    model = make(Memory())
    batch = make_batch(8)
    packed = [(x, y) for x, y in zip(batch["x"], batch["y"], strict=True)]
    MicroBatchBackward(
        model,
        loss_fn=lambda part: F.cross_entropy(model(torch.stack([x for x, _ in part])), torch.stack([y for _, y in part])),
        split=lambda part, start, stop: part[start:stop],
        size=3,
    )(packed, samples=8)
    torch.testing.assert_close(gradients(model), whole_batch(8)[1])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("anything"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shape '[2]' is invalid"), False),
        (KeyError("out of memory"), False),
    ],
)
def test_errors_of_memory_are_known(error: Exception, expected: bool) -> None:
    assert oom.is_out_of_memory(error) is expected


def test_torchs_own_allocator_says_so() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60)
    assert oom.is_out_of_memory(caught.value)


def test_a_function_runs_with_the_batch_size_that_fits() -> None:
    tried = []

    @find_executable_batch_size(starting_batch_size=100)
    def train(batch_size: int, epochs: int, *, name: str) -> str:
        """Train."""
        tried.append(batch_size)
        if batch_size > 30:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return f"{name} {epochs} {batch_size}"

    assert train.__doc__ == "Train."
    assert train(3, name="a") == "a 3 25"
    assert train(4, name="b") == "b 4 25"
    assert tried == [100, 50, 25, 25]


def test_when_no_batch_size_fits_the_error_says_what_failed() -> None:
    @find_executable_batch_size(starting_batch_size=4)
    def train(batch_size: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with pytest.raises(torch.OutOfMemoryError, match=r"train does not fit with one sample per batch: .*2\.00 GiB"):
        train()


def test_errors_of_the_function_pass_through() -> None:
    @find_executable_batch_size()
    def train(batch_size: int) -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        train()
    with pytest.raises(ValueError, match="starting_batch_size=0"):
        find_executable_batch_size(starting_batch_size=0)

    @find_executable_batch_size(starting_batch_size=8, reduce=lambda size: size)
    def grows(batch_size: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with pytest.raises(ValueError, match=r"reduce\(8\) gave 8"):
        grows()
