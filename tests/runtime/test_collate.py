"""Padding and packing: no token is lost, and a model computes the same as on each sequence alone."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from perflint_runtime import packed_collate, pad_collate
from torch.utils.data import DataLoader, default_collate

Pair = namedtuple("Pair", ["tokens", "target"])
TOKENS = [[5, 6, 7], [8], [9, 10]]
SAMPLES = [{"input_ids": ids, "labels": ids, "id": f"s{n}", "weight": 0.5} for n, ids in enumerate(TOKENS)]


def test_lists_are_padded_to_the_longest_of_the_batch() -> None:
    batch = pad_collate(SAMPLES)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0], [9, 10, 0]]
    assert batch["labels"].tolist() == [[5, 6, 7], [8, -100, -100], [9, 10, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert batch["id"] == ["s0", "s1", "s2"]
    assert batch["weight"].dtype == torch.float64
    assert batch["input_ids"].dtype == batch["attention_mask"].dtype == torch.int64


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor])
def test_lists_arrays_and_tensors_pad_alike(convert: object) -> None:
    batch = pad_collate([{"input_ids": convert(ids)} for ids in TOKENS], pad_values={"input_ids": 1}, side="left")
    assert batch["input_ids"].tolist() == [[5, 6, 7], [1, 1, 8], [1, 9, 10]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1], [0, 1, 1]]


def test_multiples_concern_sequences_and_not_vectors_that_happen_to_have_one_size() -> None:
    samples = [{"input_ids": [1, 2, 3], "token_type_ids": [0, 0, 1], "features": np.ones(5)} for _ in range(2)]
    batch = pad_collate(samples, pad_to_multiple_of=8)
    assert batch["input_ids"].shape == batch["token_type_ids"].shape == batch["attention_mask"].shape == (2, 8)
    assert batch["features"].shape == (2, 5)
    named = pad_collate(samples, keys=["features"], pad_to_multiple_of=4)
    assert named["features"].shape == (2, 8)
    assert named["input_ids"].shape == (2, 3)
    with pytest.raises(ValueError, match="pad_to_multiple_of needs keys"):
        pad_collate([[1, 2]], pad_to_multiple_of=8)


def test_keys_take_the_mask_along() -> None:
    batch = pad_collate([{"input_ids": ids} for ids in TOKENS], keys=["input_ids"], pad_to_multiple_of=4)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (3, 4)


def test_nesting_is_kept() -> None:
    samples = [Pair({"a": torch.ones(n, 2), "b": (np.float32(n), None)}, [torch.arange(n), torch.tensor(n)]) for n in (1, 3)]
    batch = pad_collate(samples, pad_values={0: 9})
    assert isinstance(batch, Pair)
    assert batch.tokens["a"].shape == (2, 3, 2)
    assert batch.tokens["b"][0].dtype == torch.float32
    assert batch.tokens["b"][1] == [None, None]
    assert batch.target[0].tolist() == [[0, 9, 9], [0, 1, 2]]
    assert batch.target[1].tolist() == [1, 3]


@pytest.mark.parametrize("value", [1, 2.5, True, np.float32(1), np.int16(3), torch.tensor(2.0), np.ones((2, 3)), torch.ones(4)])
def test_samples_of_one_shape_are_those_of_default_collate(value: object) -> None:
    ours, theirs = pad_collate([value, value]), default_collate([value, value])
    assert ours.dtype == theirs.dtype
    assert torch.equal(ours, theirs)


def test_a_sample_without_tokens_among_others() -> None:
    batch = pad_collate([{"x": []}, {"x": [1.5, 2.5]}])
    assert batch["x"].dtype == torch.float32
    assert batch["x"].tolist() == [[0, 0], [1.5, 2.5]]
    assert pad_collate([[], []]).shape == (2, 0)


@pytest.mark.parametrize(
    ("samples", "settings", "error", "text"),
    [
        ([], {}, ValueError, "got no samples"),
        ([{"a": 1}, {"b": 1}], {}, ValueError, r"sample 1 of the batch and sample 0 differ in their keys \['a', 'b'\]"),
        ([{"a": 1}, 3], {}, TypeError, "sample 0 of the batch is a dict, sample 1 is a int"),
        ([(1, 2), (1,)], {}, TypeError, "sample 1 of the batch is not a tuple as long"),
        ([{"a": torch.ones(2, 3)}, {"a": torch.ones(2, 4)}], {}, ValueError, "field 'a'.*only the first dimension is padded"),
        (
            [{"a": torch.ones(2)}, {"a": torch.ones(3, dtype=torch.int64)}],
            {},
            ValueError,
            "field 'a': one sample is torch.float32",
        ),
        ([{"a": [1, [2]]}, {"a": [1]}], {}, ValueError, "field 'a': cannot make a tensor of a list"),
        ([{"a": 1}, {"a": [2]}], {}, TypeError, "field 'a': sample 0 has a number, sample 1 has a list"),
        ([{"a": [1]}, {"a": [1, 2]}], {"keys": ["b"]}, ValueError, r"field 'a': lengths 1 to 2 differ, but keys=\['b'\]"),
        ([[1]], {"side": "top"}, ValueError, "side is 'right' or 'left', got 'top'"),
    ],
)
def test_what_cannot_be_padded(samples: list[object], settings: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pad_collate(samples, **settings)  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize(("dtype", "value"), [(torch.uint8, -100), (torch.int8, 300), (torch.int64, 0.5), (torch.bool, 2)])
def test_a_pad_value_that_the_dtype_cannot_hold(dtype: torch.dtype, value: float) -> None:
    samples = [{"a": torch.ones(1, dtype=dtype)}, {"a": torch.ones(2, dtype=dtype)}]
    with pytest.raises(ValueError, match=f"field 'a': the pad value {value} does not fit into {dtype}"):
        pad_collate(samples, pad_values={"a": value})


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(1, 99), max_size=12), min_size=1, max_size=8), st.integers(1, 9), st.booleans())
def test_the_mask_gives_back_the_samples(samples: list[list[int]], multiple: int, left: bool) -> None:
    side = "left" if left else "right"
    batch = pad_collate([{"input_ids": ids} for ids in samples], pad_to_multiple_of=multiple, side=side)
    assert batch["input_ids"].shape[1] % multiple == 0
    assert [row[mask.bool()].tolist() for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)] == samples


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_use_it_however_they_start(start: str) -> None:
    samples = [{"input_ids": [n] * (n + 1)} for n in range(6)]
    collate = partial(pad_collate, pad_values={"input_ids": 7})
    assert pickle.loads(pickle.dumps(collate)).keywords == collate.keywords
    loader = DataLoader(samples, batch_size=3, collate_fn=collate, num_workers=1, multiprocessing_context=start)
    assert [batch["input_ids"].tolist() for batch in loader] == [
        [[0, 7, 7], [1, 1, 7], [2, 2, 2]],
        [[3, 3, 3, 3, 7, 7], [4, 4, 4, 4, 4, 7], [5] * 6],
    ]


def test_the_samples_are_left_as_they_were() -> None:
    samples = copy.deepcopy(SAMPLES)
    pad_collate(samples)
    packed_collate([{"input_ids": s["input_ids"]} for s in samples])
    assert samples == SAMPLES


def test_packing_into_rows() -> None:
    batch = packed_collate([{"input_ids": ids} for ids in TOKENS], max_length=4, flash_attention=True, sequence_ids=True)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8], [9, 10, 0, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0], [0, 1, 0, 1]]
    assert batch["labels"].tolist() == [[-100, 6, 7, -100], [-100, 10, -100, -100]]
    assert batch["sequence_ids"].tolist() == [[0, 0, 0, 1], [2, 2, -1, -1]]
    assert batch["cu_seq_lens_q"].tolist() == batch["cu_seq_lens_k"].tolist() == [0, 3, 4, 6, 8]
    assert batch["cu_seq_lens_q"].dtype == torch.int32
    assert batch["max_length_q"] == batch["max_length_k"] == 3


def test_one_row_is_that_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    samples = [{"input_ids": ids, "labels": [n + 1 for n in ids]} for ids in TOKENS]
    theirs = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)(copy.deepcopy(samples))
    ours = packed_collate(samples, flash_attention=True)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(value)), name
        assert torch.as_tensor(ours[name]).dtype == torch.as_tensor(value).dtype


def test_labels_of_tokens_stay_for_models_that_are_not_causal() -> None:
    samples = [
        {"input_ids": [1, 2], "labels": [4, 5], "token_type_ids": [0, 1]},
        {"input_ids": [3], "labels": [6], "token_type_ids": [1]},
    ]
    batch = packed_collate(samples, max_length=4, causal_lm=False, pad_token_id=9, first_position=2)
    assert batch["labels"].tolist() == [[4, 5, 6, -100]]
    assert batch["input_ids"].tolist() == [[1, 2, 3, 9]]
    assert batch["token_type_ids"].tolist() == [[0, 1, 1, 0]]
    assert batch["position_ids"].tolist() == [[2, 3, 2, 2]]


def test_too_long_is_an_error_or_a_cut_that_was_asked_for() -> None:
    samples = [{"input_ids": list(range(6))}, {"input_ids": [7]}]
    with pytest.raises(ValueError, match="sample 0 has 6 tokens, more than max_length=5"):
        packed_collate(samples, max_length=5)
    assert packed_collate(samples, max_length=5, truncate=True)["input_ids"].tolist() == [[0, 1, 2, 3, 4], [7, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([], "got no samples"),
        ([{"labels": [1]}], "sample 0 has no 'input_ids'"),
        ([{"input_ids": []}], "sample 0 has no tokens"),
        ([{"input_ids": [1, 2], "labels": 1}], "'labels' has shape .*one value for each of the 2 tokens"),
        ([{"input_ids": [1, 0], "attention_mask": [1, 0]}], "sample 0 is padded"),
        ([{"input_ids": [1]}, {"input_ids": [1], "labels": [1]}], "sample 1 has the keys"),
    ],
)
def test_what_cannot_be_packed(samples: list[dict[str, object]], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        packed_collate(samples)


@settings(max_examples=80)
@given(st.lists(st.integers(1, 10), min_size=1, max_size=20), st.integers(10, 30))
def test_no_token_is_lost_split_or_moved(lengths: list[int], max_length: int) -> None:
    samples = [{"input_ids": [100 * number + place for place in range(length)]} for number, length in enumerate(lengths, 1)]
    batch = packed_collate(samples, max_length=max_length, sequence_ids=True)
    rows = batch["input_ids"]
    assert rows.shape[1] == max_length
    assert len(rows) <= len(samples)
    for number, sample in enumerate(samples):
        where = batch["sequence_ids"] == number
        assert rows[where].tolist() == sample["input_ids"]
        assert batch["position_ids"][where].tolist() == list(range(len(sample["input_ids"])))
        assert where.any(dim=1).sum() == 1
    assert int((batch["sequence_ids"] >= 0).sum()) == sum(lengths)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("max_length", [None, 12])
def test_a_causal_model_gives_the_logits_and_the_loss_of_the_single_sequences(attention: str, max_length: int | None) -> None:
    transformers = pytest.importorskip("transformers")
    if int(transformers.__version__.split(".")[0]) < 5:
        pytest.skip("sequences are found by their position_ids in later releases")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        attn_implementation=attention,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    samples = [{"input_ids": torch.randint(1, 50, (length,)).tolist()} for length in (7, 3, 9, 4, 1)]
    batch = packed_collate(samples, max_length=max_length, sequence_ids=True)
    where = batch.pop("sequence_ids")
    with torch.no_grad():
        output = model(**batch, use_cache=False)
        alone = [model(torch.tensor([sample["input_ids"]])).logits[0] for sample in samples]
    for number, logits in enumerate(alone):
        torch.testing.assert_close(output.logits[where == number], logits)
    losses = [
        torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(sample["input_ids"])[1:], reduction="sum")
        for logits, sample in zip(alone, samples, strict=True)
    ]
    torch.testing.assert_close(output.loss, sum(losses) / sum(len(sample["input_ids"]) - 1 for sample in samples))
