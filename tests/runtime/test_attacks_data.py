"""Programs that were quietly wrong with micro-batches, cached features and metrics: each is right now, or one clear error."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import UserDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from perflint_runtime import (
    CrossEntropy,
    MicroBatchBackward,
    Trainer,
    TrainingSettings,
    extract_features,
    find_executable_batch_size,
)
from perflint_runtime.oom import split_batch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Subset, TensorDataset


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("perflint_runtime.oom.free_memory", lambda: None)  # collecting a test run's garbage takes seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class LittleMemory(nn.Module):
    """A layer that runs out of memory above some samples."""

    def __init__(self, most: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.most = nn.Linear(5, 3).double(), most

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        scores: Tensor = self.layer(x)
        return scores


X = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def batch_encoding(data: dict[str, Any]) -> Any:
    """What tokenizers of transformers return."""
    return pytest.importorskip("transformers").BatchEncoding(data)


@pytest.mark.parametrize("kind", [UserDict, batch_encoding, lambda data: defaultdict(list, data)])
def test_micro_batches_of_other_mappings_than_dicts(kind: Callable[[dict[str, Any]], Any]) -> None:
    model, whole = LittleMemory(2), LittleMemory(5)
    batch = kind({"x": X, "ids": list(range(5)), "rows": np.arange(5), "name": "five"})
    part = split_batch(batch, 1, 3)
    assert type(part) is type(batch)
    assert (part["ids"], part["rows"].tolist(), part["name"]) == ([1, 2], [1, 2], "five")
    loss = MicroBatchBackward(model, loss_fn=lambda batch: model(batch["x"]).mean())(batch)
    expected = whole(X).mean()
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(model.layer.weight.grad, whole.layer.weight.grad)


def test_objects_that_may_hold_samples_are_not_handed_on_whole() -> None:
    with pytest.raises(TypeError, match="a SimpleNamespace in the batch may belong to its samples: pass split="):
        split_batch((X, SimpleNamespace(y=X)), 0, 2)


def test_a_micro_batch_without_counted_labels_has_no_loss() -> None:
    model, whole = LittleMemory(2), LittleMemory(5)
    labels = torch.tensor([-100, -100, 1, 2])
    backward = MicroBatchBackward(
        model,
        loss_fn=lambda batch: functional.cross_entropy(model(batch[0]), batch[1]),
        count=lambda batch: (batch[1] != -100).sum(),
    )
    expected = functional.cross_entropy(whole(X[:4]), labels)
    expected.backward()
    torch.testing.assert_close(backward((X[:4], labels)), expected.detach())
    torch.testing.assert_close(model.layer.weight.grad, whole.layer.weight.grad)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8 GB, other allocations: 1 GB, max allowed: 9 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
def test_all_errors_of_memory_make_the_batch_smaller(error: Exception) -> None:
    @find_executable_batch_size
    def train(batch_size: int) -> int:
        if batch_size > 64:
            raise error
        return batch_size

    assert train() == 64


def test_what_find_executable_batch_size_cannot_call() -> None:
    with pytest.raises(TypeError, match=r"write starting_batch_size=64"):
        find_executable_batch_size(64)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"train\(\) takes no batch size: it has to be its first argument"):

        @find_executable_batch_size  # type: ignore[arg-type]
        def train(*, epochs: int) -> None:
            """Nothing."""

    assert find_executable_batch_size(None, starting_batch_size=8)(lambda size: size)() == 8


# ------------------------------------------------------------------------------------------------------ cache of features
SAMPLES = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
SCALES = {"scale": 1.0}
SCALE = 1.0


@dataclass
class Config:
    """The settings of a network."""

    scale: float


class Lambda(nn.Module):
    """A network with an attribute that it calls."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Attribute(nn.Module):
    """A network with an attribute that says what it computes."""

    def __init__(self, value: Any, use: Callable[[Tensor, Any], Tensor]) -> None:
        super().__init__()
        self.value, self.use = value, use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(x, self.value)


class OfGlobals(nn.Module):
    """A network that uses a dict of its module."""

    def forward(self, x: Tensor) -> Tensor:
        return x * SCALES["scale"]


class OfHelper(nn.Module):
    """A network that uses a number behind a function of its module."""

    def forward(self, x: Tensor) -> Tensor:
        return scaled(x)


def scaled(x: Tensor) -> Tensor:
    """The number."""
    return x * SCALE


class Parent(nn.Module):
    """A network that calls a method of its child, which the child does not name."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.child.of_parent(x)
        return result


class Computed(nn.Module):
    """A network that looks up an attribute by a computed name."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.scale_1 = value

    def forward(self, x: Tensor) -> Tensor:
        return x * float(getattr(self, f"scale_{len(x) // len(x)}"))


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def hooked(value: float) -> nn.Module:
    model = linear()
    model.register_forward_hook(lambda module, inputs, output: output * value)
    return model


def overridden(value: float) -> nn.Module:
    model = linear()
    model.forward = lambda x: x * value  # type: ignore[method-assign]
    return model


def unregistered(value: float) -> nn.Module:
    inside = linear()
    nn.init.constant_(inside.weight, value)
    return Attribute([inside], lambda x, modules: modules[0](x))


def of_method(value: float) -> nn.Module:
    kind = type("Child", (nn.Module,), {"of_parent": lambda self, x: x * self.scale, "scale": value})
    return Parent(kind())


def set_globals(value: float) -> nn.Module:
    SCALES["scale"] = value
    return OfGlobals()


def set_helper(value: float) -> nn.Module:
    globals()["SCALE"] = value
    return OfHelper()


MODELS: dict[str, Callable[[float], nn.Module]] = {
    "closure": lambda value: Lambda(lambda x: x * value),
    "partial": lambda value: Lambda(partial(functional.leaky_relu, negative_slope=value)),
    "bound method": lambda value: Lambda(Attribute(value, lambda x, factor: x * factor).forward),
    "dataclass": lambda value: Attribute(Config(value), lambda x, config: x * config.scale),
    "namespace": lambda value: Attribute(SimpleNamespace(scale=value), lambda x, config: x * config.scale),
    "nested": lambda value: Attribute([{"a": [{"b": value}]}], lambda x, nested: x * nested[0]["a"][0]["b"]),
    "set": lambda value: Attribute({int(value)}, lambda x, columns: x[:, sorted(columns)]),
    "complex": lambda value: Attribute(complex(value, 0), lambda x, number: (x * number).real),
    "numpy scalar": lambda value: Attribute(np.float32(value), lambda x, number: x * float(number)),
    "hook": hooked,
    "forward of the object": overridden,
    "modules in a list": unregistered,
    "global dict": set_globals,
    "global behind a helper": set_helper,
    "method that the parent names": of_method,
    "computed name": Computed,
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_cache_gives_the_features_of_this_model(tmp_path: Path, make: Callable[[float], nn.Module]) -> None:
    loader = DataLoader(TensorDataset(SAMPLES), 4)
    fresh = []
    for value in (2.0, 3.0):
        model = make(value)
        cached = extract_features(model, loader, cache=tmp_path)
        fresh.append(extract_features(model, loader))
        assert np.allclose(cached, fresh[-1])  # not to the last bit, which depends on where a batch lies in memory
        assert np.array_equal(extract_features(make(value), loader, cache=tmp_path), cached)
    assert not np.allclose(*fresh)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "switch",
    [
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.backends.mkldnn.flags(enabled=False),
        lambda: default_dtype(torch.float64),
        lambda: global_hook(lambda module, inputs, output: output * 2),
        lambda: matmul_precision("medium"),
    ],
    ids=["autocast", "mkldnn", "default dtype", "global hook", "matmul precision"],
)
def test_a_switch_of_torch_is_another_entry(tmp_path: Path, switch: Callable[[], AbstractContextManager[Any]]) -> None:
    loader = DataLoader(TensorDataset(SAMPLES), 4)
    extract_features(linear(), loader, cache=tmp_path)
    with switch():
        model = linear().float()
        assert np.allclose(
            extract_features(model, loader, cache=tmp_path), extract_features(model, loader), rtol=0.02, atol=0.02
        )
    assert len(list(tmp_path.iterdir())) == 2


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def test_both_of_torchs_interfaces_for_precision() -> None:
    """Torch raises where one is asked after the other was used."""
    code = (
        "import torch\n"
        "from perflint_runtime.fingerprint import fingerprint, switches\n"
        "found = [fingerprint(s=switches(torch.device('cpu')))]\n"
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "found.append(fingerprint(s=switches(torch.device('cpu'))))\n"
        "assert found[0] != found[1]\n"
    )
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        subprocess.run([sys.executable, "-c", code], check=True)


@contextmanager
def global_hook(hook: Any) -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class Normed(TensorDataset):
    """A data set that changes what it is made of."""

    def __init__(self, x: Tensor, value: float) -> None:
        super().__init__(x)
        self.value = value

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return (super().__getitem__(index)[0] / self.value,)


class Reading(nn.Module):
    """A network that depends on a file."""

    def forward(self, x: Tensor) -> Tensor:
        with open("scale.txt") as stream:
            return x * float(stream.read())


class OfEnvironment(nn.Module):
    """A network that depends on the environment."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(os.environ.get("SCALE", 1))


def deep() -> list[Any]:
    """A list in a list in a list ..."""
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    ("model", "dataset", "reason"),
    [
        (linear(), Normed(SAMPLES, 2.0), "a Normed has no fingerprint"),
        (linear(), Subset(Normed(SAMPLES, 2.0), [0]), "a Normed has no fingerprint"),
        (linear(), list(SAMPLES), "a list has no fingerprint"),
        (Reading(), TensorDataset(SAMPLES), r"model\..*: what Reading\.forward gets from `open` cannot be seen"),
        (OfEnvironment(), TensorDataset(SAMPLES), "gets from `environ` cannot be seen"),
        (Attribute(deep(), lambda x, nested: x), TensorDataset(SAMPLES), "nested too deeply"),
        (Lambda(lambda x: x * torch.load("scale.pt")), TensorDataset(SAMPLES), r"model\.function: .* gets from `load`"),
        (Attribute(iter([1.0]), lambda x, numbers: x), TensorDataset(SAMPLES), None),
        (Attribute((n for n in [1]), lambda x, numbers: x), TensorDataset(SAMPLES), r"model\.value: a generator has a state"),
        (torch.jit.script(linear()), TensorDataset(SAMPLES), "compiled by torch.jit"),
    ],
)
def test_what_has_no_fingerprint_needs_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: nn.Module, dataset: Any, reason: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scale.txt").write_text("2")
    loader = DataLoader(dataset, 4)
    if reason is None:
        extract_features(model, loader, cache=tmp_path / "cache")
        return
    with pytest.raises(ValueError, match=f"{reason}.*; pass key='...', a name for what the features are computed from"):
        extract_features(model, loader, cache=tmp_path / "cache")
    if "load" in reason:
        return  # there is no such file
    expected = extract_features(model, loader)
    for _ in range(2):
        assert np.allclose(extract_features(model, loader, cache=tmp_path / "cache", key="v1"), expected)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    extract_features(model, loader, cache=tmp_path / "cache", key="v2")
    assert len(list((tmp_path / "cache").iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncated", "longer", "empty", "no about.json", "no JSON"])
def test_a_damaged_entry_is_computed_again(tmp_path: Path, damage: str) -> None:
    loader = DataLoader(TensorDataset(SAMPLES), 4)
    expected = extract_features(linear(), loader, cache=tmp_path).copy()
    (entry,) = tmp_path.iterdir()
    file, about = entry / "features.npy", entry / "about.json"
    data = file.read_bytes()
    match damage:
        case "truncated":
            file.write_bytes(data[:-8])
        case "longer":
            file.write_bytes(data + b"x")
        case "empty":
            file.write_bytes(b"")
        case "no about.json":
            about.unlink()
        case _:
            about.write_text("{")
    for _ in range(2):
        assert np.allclose(extract_features(linear(), loader, cache=tmp_path), expected)
    assert list(tmp_path.iterdir()) == [entry]
    assert len(file.read_bytes()) == len(data)


# --------------------------------------------------------------------------------------------- metrics of all predictions
class PredictedClasses:
    """A metric that is no mean: the share of classes that are predicted at all, or the counts of each."""

    def __init__(self, share: bool = True) -> None:
        self.share = share
        self.reset()

    def reset(self) -> None:
        """Begin an evaluation."""
        self.counts = torch.zeros(3)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Take in a batch."""
        self.counts += torch.bincount(logits.argmax(-1), minlength=3)

    def compute(self) -> Tensor:
        """The value."""
        return (self.counts > 0).float().mean() if self.share else self.counts


def trainer(metric: Any) -> Trainer:
    model = nn.Sequential(linear())
    return Trainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        CrossEntropy(),
        TrainingSettings(progress=False),
        metrics={"m": metric},
    )


def test_a_metric_object_sees_all_predictions_of_an_evaluation() -> None:
    batches = [(SAMPLES[at : at + 3], torch.zeros(len(SAMPLES[at : at + 3]), dtype=torch.int64)) for at in range(0, 20, 3)]
    run = trainer(PredictedClasses())
    expected = len(run.module.eval()(SAMPLES).argmax(-1).unique()) / 3
    for _ in range(2):
        assert run.evaluate(batches)["val_m"] == pytest.approx(expected)
    per_batch = [len(run.module(x).argmax(-1).unique()) / 3 for x, _ in batches]
    assert np.mean(per_batch) != pytest.approx(expected)


def test_torchmetrics_objects_and_values_that_are_not_one_number() -> None:
    batches = [(SAMPLES[at : at + 3], torch.arange(len(SAMPLES[at : at + 3])) % 3) for at in range(0, 20, 3)]
    with pytest.raises(ValueError, match="metric `m` gives 3 values, and a record holds one: average over the classes"):
        trainer(PredictedClasses(share=False)).evaluate(batches)
    with pytest.raises(TypeError, match="metric `m` is the class PredictedClasses: pass an object of it, or a function"):
        trainer(PredictedClasses)
    torchmetrics = pytest.importorskip("torchmetrics")
    f1 = {"task": "multiclass", "num_classes": 3, "average": "macro"}
    run = trainer(torchmetrics.F1Score(**f1))
    whole = torchmetrics.F1Score(**f1)
    whole.update(run.module.eval()(SAMPLES), torch.cat([labels for _, labels in batches]))
    assert run.evaluate(batches)["val_m"] == pytest.approx(float(whole.compute()))
