"""extract_features and its cache: right rows in the right order, and never those of something else."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from perflint_runtime import (
    BatchedTensorLoader,
    LengthBucketSampler,
    extract_features,
    features,
    make_loader,
    pad_collate,
)
from perflint_runtime.feature_cache import FeatureCache, FeatureFile
from perflint_runtime.fingerprint import fingerprint, fingerprint_data
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

X = torch.randn(37, 5, generator=torch.Generator().manual_seed(0))


class Encoder(nn.Module):
    """Tokens to hidden states, as a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 4)
        self.dropout = nn.Dropout(0.5)
        self.scale = 1.0

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        hidden = self.dropout(self.embedding(input_ids)) * self.scale
        return {"last_hidden_state": hidden, "logits": hidden.sum(-1)}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def tokens() -> DataLoader[object]:
    samples = [{"input_ids": list(range(1, 2 + n % 7))} for n in range(20)]
    return DataLoader(samples, batch_size=6, collate_fn=pad_collate)


@pytest.fixture
def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder()


def test_rows_are_those_of_a_plain_loop_in_eval_mode() -> None:
    model = network()
    model[1].eval()
    before = [module.training for module in model.modules()]
    batches = DataLoader(TensorDataset(X, torch.zeros(37)), batch_size=2)
    found = extract_features(model, batches)
    assert [module.training for module in model.modules()] == before
    model.eval()
    with torch.no_grad():
        expected = torch.cat([model(x) for x, _ in batches])
    assert found.dtype == np.float32
    # not to the last bit: kernels round differently where a batch lies differently in memory
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_mean_pooling_leaves_padding_out(encoder: Encoder) -> None:
    found = extract_features(encoder, tokens())
    for row, sample in zip(found, tokens().dataset, strict=True):
        alone = encoder.embedding(torch.tensor(sample["input_ids"])).mean(0)
        np.testing.assert_allclose(row, alone.detach().numpy(), rtol=1e-6)


def first_and_mask(hidden: Tensor, mask: Tensor | None) -> Tensor:
    assert mask is not None
    return torch.cat([hidden[:, 0], mask.sum(1, keepdim=True)], dim=1)


def test_other_poolings_and_logits(encoder: Encoder) -> None:
    first = encoder.embedding.weight[1].detach().numpy()
    assert np.array_equal(extract_features(encoder, tokens(), pooling="cls"), np.tile(first, (20, 1)))
    assert extract_features(encoder, tokens(), pooling=first_and_mask)[:3, 4].tolist() == [1, 2, 3]
    fixed = DataLoader([{"input_ids": [1, 2]}] * 5, batch_size=2, collate_fn=pad_collate)
    assert extract_features(encoder, fixed, pooling=None).shape == (5, 2, 4)
    assert extract_features(encoder, fixed, mode="logits").shape == (5, 2)
    with pytest.raises(ValueError, match="do not go into one array: pool over the tokens"):
        extract_features(encoder, tokens(), pooling=None)


def test_a_sample_without_tokens_gives_zeros(encoder: Encoder) -> None:
    batch = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "attention_mask": torch.tensor([[1, 1, 0], [0, 0, 0]])}
    found = extract_features(encoder, [batch])
    assert found[1].tolist() == [0] * 4
    assert found[0].any()


def test_models_of_transformers_run_without_head_and_loss() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config)
    model.classifier.register_forward_hook(lambda *_: pytest.fail("the head ran") if embedding else None)
    samples = [{"input_ids": [1, 2, 3], "labels": n % 3} for n in range(5)]
    loader = DataLoader(samples, batch_size=2, collate_fn=pad_collate)
    embedding = True
    assert extract_features(model, loader).shape == (5, 8)
    embedding = False
    assert extract_features(model, loader, mode="logits").shape == (5, 3)


def test_bfloat16_becomes_float32_and_float64_stays() -> None:
    assert extract_features(nn.Identity(), [torch.ones(2, 3, dtype=torch.bfloat16)]).dtype == np.float32
    assert extract_features(nn.Identity(), [torch.ones(2, 3, dtype=torch.float64)]).dtype == np.float64


def test_more_batches_than_copies_in_flight_come_in_order() -> None:
    batches = [torch.full((2, 1), float(n)) for n in range(3 * features.COPIES_IN_FLIGHT)]
    assert extract_features(nn.Identity(), batches)[::2, 0].tolist() == list(range(len(batches)))


def test_what_the_data_set_keeps_can_be_trained_on() -> None:
    class Keeping(Dataset):
        def __init__(self) -> None:
            self.kept: dict[int, Tensor] = {}

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Tensor:
            return self.kept.setdefault(index, torch.ones(5) * index)

    dataset = Keeping()
    extract_features(network(), DataLoader(dataset, batch_size=2))
    assert not any(tensor.is_inference() for tensor in dataset.kept.values())
    assert not torch.is_inference_mode_enabled()


def test_an_error_leaves_the_model_as_it_was() -> None:
    model = network()
    with pytest.raises(RuntimeError):
        extract_features(model, [torch.ones(2, 4)])
    assert all(module.training for module in model.modules())
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("loader", "text"),
    [
        (DataLoader(TensorDataset(X), shuffle=True), "order is decided by RandomSampler: make it with shuffle=False"),
        (DataLoader(TensorDataset(X), batch_sampler=LengthBucketSampler(range(37), 2)), "decided by LengthBucketSampler"),
        (make_loader(TensorDataset(X), 4, shuffle=True, seed=0), "order is decided by"),
        (DataLoader(TensorDataset(X), batch_size=4, drop_last=True), "drops the last batch"),
        (BatchedTensorLoader(X, batch_size=4, shuffle=True), "the loader shuffles"),
        (BatchedTensorLoader(X, batch_size=4, drop_last=True), "drops the last batch"),
        ([], "the loader yielded no batch"),
    ],
)
def test_loaders_that_give_other_rows(loader: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        extract_features(network(), loader)


def test_arguments_and_outputs_that_do_not_fit(encoder: Encoder) -> None:
    with pytest.raises(ValueError, match="mode is 'embedding' or 'logits', got 'embed'"):
        extract_features(encoder, tokens(), mode="embed")
    with pytest.raises(ValueError, match="pooling is 'mean', 'cls', a function or None, got 'max'"):
        extract_features(encoder, tokens(), pooling="max")
    with pytest.raises(TypeError, match="mode='logits' needs a tensor, or an output with logits; the model returned int"):
        extract_features(encoder, tokens(), mode="logits", forward=lambda model, batch: 3)


# ------------------------------------------------------------------------------------------------------------- cache
class Counting(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([factor]))
        self.register_buffer("shift", torch.zeros(1), persistent=False)
        self.power = 1
        self.activation = torch.relu

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x * self.weight + self.shift) ** self.power


calls: list[int] = []


@pytest.fixture(autouse=True)
def _count_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(model: nn.Module, batch: Any, settings: Any) -> Tensor:
        calls.append(len(batch[0]) if isinstance(batch, list) else 0)
        return pooled(model, batch, settings)

    calls.clear()
    pooled = features._pooled
    monkeypatch.setattr(features, "_pooled", counted)


def loader(x: Tensor = X, batch_size: int = 8) -> DataLoader[object]:
    return DataLoader(TensorDataset(x), batch_size=batch_size)


def test_the_second_time_nothing_is_computed(tmp_path: Path) -> None:
    first = extract_features(Counting(), loader(), cache=tmp_path)
    assert calls == [8, 8, 8, 8, 5]
    second = extract_features(Counting(), loader(), cache=FeatureCache(tmp_path))
    assert len(calls) == 5
    assert isinstance(second, np.memmap)
    assert not second.flags.writeable
    assert np.array_equal(first, second)
    assert np.array_equal(second, torch.relu(X * 2).numpy())
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "about.json").read_text())["rows"] == 37


def changed(name: str) -> Counting:
    model = Counting(3.0 if name == "weight" else 2.0)
    with torch.no_grad():
        if name == "buffer":
            model.shift += 1
        if name == "dtype":
            model.double()
        if name == "attribute":
            model.power = 2
        if name == "function":
            model.activation = torch.sigmoid
        if name == "hook":
            model.register_forward_hook(lambda module, inputs, output: output + 1)
    return model


@pytest.mark.parametrize("name", ["weight", "buffer", "dtype", "attribute", "function", "hook"])
def test_a_change_of_the_model_is_another_key(tmp_path: Path, name: str) -> None:
    assert fingerprint(model=Counting()) == fingerprint(model=Counting())
    assert fingerprint(model=changed(name)) != fingerprint(model=Counting())


def test_the_training_flag_and_the_process_do_not_change_the_key() -> None:
    code = textwrap.dedent("""
        import torch
        from torch import nn
        from perflint_runtime.fingerprint import fingerprint
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16)
        layer.register_forward_hook(print)
        print(fingerprint(model=nn.Sequential(layer, nn.Linear(8, 3).eval())))
    """)
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout) == 41


def test_a_change_of_a_class_is_another_key() -> None:
    def model(line: str) -> nn.Module:
        names: dict[str, object] = {"nn": nn, "__name__": "__main__"}
        exec(f"class Net(nn.Module):\n    def forward(self, x):\n        return {line}\n", names)
        return names["Net"]()

    assert fingerprint(model=model("x + 1")) == fingerprint(model=model("x + 1"))
    assert fingerprint(model=model("x + 1")) != fingerprint(model=model("x + 2"))


def test_data_and_arguments_are_in_the_key(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    extract_features(Counting(), loader(), cache=cache)
    extract_features(Counting(), loader(X + 1), cache=cache)
    extract_features(Counting(), loader(X.double()), cache=cache)
    extract_features(Counting(), DataLoader(Subset(TensorDataset(X), [3, 1]), batch_size=8), cache=cache)
    extract_features(Counting(), loader(), mode="logits", cache=cache)
    extract_features(Counting(), loader(), pooling="cls", cache=cache)
    extract_features(Counting(), BatchedTensorLoader(X, batch_size=8), cache=cache)
    extract_features(Counting(), loader(), key="mine", cache=cache)
    assert len(list(tmp_path.iterdir())) == 8


def test_data_that_cannot_be_fingerprinted_needs_a_name(tmp_path: Path) -> None:
    unknown = DataLoader(list(X), batch_size=8)
    with pytest.raises(ValueError, match=r"a list has no fingerprint; pass key='\.\.\.'"):
        extract_features(Counting(), unknown, cache=tmp_path)
    with pytest.raises(ValueError, match="a list has no fingerprint"):
        extract_features(Counting(), [X], cache=tmp_path)
    with pytest.raises(ValueError, match=r"what the collate_fn .* does cannot be seen; pass key"):
        extract_features(Counting(), DataLoader(TensorDataset(X), collate_fn=lambda samples: X), cache=tmp_path)
    assert extract_features(Counting(), unknown, cache=tmp_path, key="x-1").shape == X.shape
    assert not calls[5:]


def test_data_sets_of_hugging_face_have_a_fingerprint() -> None:
    datasets = pytest.importorskip("datasets")

    def key(data: object, **padding: object) -> str:
        return fingerprint_data(DataLoader(data, collate_fn=functools.partial(pad_collate, **padding)))

    data = datasets.Dataset.from_dict({"input_ids": [[1, 2], [3]]}).with_format("torch")
    assert key(data) == key(data)
    assert len({key(data), key(data.select([0])), key(data, side="left"), key(data.with_format("numpy"))}) == 4


FACTOR = 3


def scaled(model: nn.Module, batch: object) -> object:
    return model(batch[0]) * FACTOR


def test_functions_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint(forward=scaled) != fingerprint(forward=first_and_mask)
    before = fingerprint(forward=scaled)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 4)
    assert fingerprint(forward=scaled) != before
    keys = {fingerprint(forward=functools.partial(scaled, batch=value)) for value in (3, 4, 4, X, X.clone(), X + 1)}
    assert len(keys) == 4


def test_an_error_in_the_middle_leaves_nothing_to_be_read(tmp_path: Path) -> None:
    class Breaking(Counting):
        def forward(self, x: Tensor) -> Tensor:
            if len(calls) == 3:
                raise OSError("interrupted")
            return super().forward(x)

    with pytest.raises(OSError, match="interrupted"):
        extract_features(Breaking(), loader(batch_size=1), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


WRITER = textwrap.dedent("""
    import sys, time
    import numpy as np
    from pathlib import Path
    from perflint_runtime.feature_cache import FeatureCache
    with FeatureCache(Path(sys.argv[1])).writing("key") as file:
        for number in range(2000):
            file.append(np.full((100, 10), number, dtype=np.float32))
            if number == 3:
                print("writing", flush=True)
""")


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.01, 0.05])
def test_a_killed_writer_leaves_all_or_nothing(tmp_path: Path, delay_s: float) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    writer.stdout.readline()
    time.sleep(delay_s)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    found = FeatureCache(tmp_path).get("key")
    assert found is None or (found.shape == (200000, 10) and found[-1, 0] == 1999)


def test_leftovers_of_killed_writers_are_removed_when_they_are_old(tmp_path: Path) -> None:
    for name, age_s in [("old", 2 * 24 * 3600), ("new", 60)]:
        folder = tmp_path / f".unfinished-{name}"
        folder.mkdir()
        (folder / "features.npy").write_bytes(b"half")
        for path in (folder / "features.npy", folder):
            os.utime(path, (time.time() - age_s,) * 2)
    with FeatureCache(tmp_path).writing("key") as file:
        file.append(np.zeros((1, 1)))
    assert {path.name for path in tmp_path.iterdir()} == {".unfinished-new", "key"}


def write_both(folder: Path, barrier: object) -> None:
    with FeatureCache(folder).writing("key") as file:
        file.append(np.ones((5, 2)))
        barrier.wait()


def test_two_writers_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    writers = [context.Process(target=write_both, args=(tmp_path, barrier)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert FeatureCache(tmp_path).get("key").sum() == 10
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("rows", [1, 9, 10, 12345])
@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.bool_])
def test_files_are_plain_npy(tmp_path: Path, rows: int, dtype: type) -> None:
    chunk = np.ones((rows, 3), dtype=dtype)
    with (tmp_path / "a.npy").open("w+b") as stream:
        file = FeatureFile(stream)
        file.append(chunk)
        file.append(chunk[:0])
        file.append(chunk.T.copy().T)
        file.finish()
    loaded = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert loaded.dtype == dtype
    assert np.array_equal(loaded, np.concatenate([chunk, chunk]))
