"""dataloaders_from_hf on local data, with a tokenizer that is built here."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from perflint_runtime import dataloaders_from_hf
from perflint_runtime.hf import HFLoaders
from perflint_runtime.resumable import ResumableLoader

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "far", "away"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


@pytest.fixture
def tokenizer() -> object:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[PAD]", *WORDS])}
    tokens = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, unk_token="[UNK]", pad_token="[PAD]")


def texts(count: int) -> list[str]:
    return [" ".join(WORDS[: 1 + number % 9]) for number in range(count)]


def split(count: int, **more: list[object]) -> object:
    return datasets.Dataset.from_dict({"text": texts(count), "label": [n % 2 for n in range(count)], **more})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    splits = {"train": split(20, unused=["x"] * 20), "validation": split(6), "test": split(5)}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved"


def test_three_loaders_with_dynamic_padding(saved: Path, tokenizer: object) -> None:
    loaders = dataloaders_from_hf(saved, tokenizer, train_batch_size=4, eval_batch_size=3, num_workers=0)
    train, validation, test = loaders
    assert isinstance(loaders, HFLoaders)
    assert isinstance(train, ResumableLoader)
    first = next(iter(validation))
    assert set(first) >= {"input_ids", "attention_mask", "labels"}
    assert "text" not in first
    assert "unused" not in first
    assert first["input_ids"].tolist() == [[2, 1, 1], [2, 3, 1], [2, 3, 4]]
    assert first["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert first["labels"].tolist() == [0, 1, 0]
    assert first["labels"].dtype == first["input_ids"].dtype == torch.int64
    assert [len(batch["labels"]) for batch in test] == [3, 2]
    lengths = [int(n) for batch in train for n in batch["attention_mask"].sum(1)]
    assert sorted(lengths) == sorted(len(text.split()) for text in texts(20))
    assert len(train) == 5


def test_training_is_shuffled_by_the_seed(saved: Path, tokenizer: object) -> None:
    def order(seed: int) -> list[list[int]]:
        train, _, _ = dataloaders_from_hf(saved, tokenizer, train_batch_size=20, seed=seed, num_workers=0)
        return [batch["attention_mask"].sum(1).tolist() for batch in (*train, *train)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1)[0] != order(1)[1]


def test_fixed_length_truncation_and_multiples(saved: Path, tokenizer: object) -> None:
    fixed, _, _ = dataloaders_from_hf(saved, tokenizer, max_length=5, use_dynamic_padding=False, num_workers=0)
    assert {batch["input_ids"].shape[1] for batch in fixed} == {5}
    rounded, _, _ = dataloaders_from_hf(saved, tokenizer, train_batch_size=2, pad_to_multiple_of=4, num_workers=0)
    assert {batch["input_ids"].shape[1] % 4 for batch in rounded} == {0}


def test_settings_of_the_reports_yaml_stand_where_no_argument_is_given(saved: Path, tokenizer: object) -> None:
    config = {"training": {"batch_size": 7, "num_workers": 0}, "model": {"max_length": 3}}
    train, validation, _ = dataloaders_from_hf(saved, tokenizer, config=config, eval_batch_size=2)
    batch = next(iter(train))
    assert batch["input_ids"].shape == (7, 3)
    assert len(next(iter(validation))["labels"]) == 2
    with pytest.raises(ValueError, match="batch_size is a whole number, got '7'"):
        dataloaders_from_hf(saved, tokenizer, config={"training": {"batch_size": "7"}})


def test_files_with_text_labels_and_splits_made_of_the_training_data(tmp_path: Path, tokenizer: object) -> None:
    with (tmp_path / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence", "other", "kind"])
        writer.writerows([[text, "a cat", "good" if n % 3 else "bad"] for n, text in enumerate(texts(30))])
    arguments = {"text_column": "sentence", "text_pair_column": "other", "label_column": "kind", "num_workers": 0}
    loaders = dataloaders_from_hf(tmp_path / "data.csv", tokenizer, validation_fraction=0.2, test_fraction=0.1, **arguments)
    sizes = [sum(len(batch["labels"]) for batch in loader) for loader in loaders]
    assert sizes == [21, 6, 3]
    assert {int(label) for loader in loaders for batch in loader for label in batch["labels"]} == {0, 1}
    again = dataloaders_from_hf(tmp_path / "data.csv", tokenizer, validation_fraction=0.2, test_fraction=0.1, **arguments)
    assert [batch["input_ids"].tolist() for batch in loaders.test] == [batch["input_ids"].tolist() for batch in again.test]


def test_a_folder_of_files_named_for_their_splits(tmp_path: Path, tokenizer: object) -> None:
    for name, count in [("train", 8), ("valid", 3)]:
        lines = [json.dumps({"text": text, "label": 0.5}) for text in texts(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    train, validation, test = dataloaders_from_hf(tmp_path, tokenizer, test_split=None, num_workers=0)
    assert len(train.dataset) == 8
    assert len(validation.dataset) == 3
    assert test is None
    assert next(iter(validation))["labels"].dtype == torch.float32


def test_parquet_without_labels(tmp_path: Path, tokenizer: object) -> None:
    split(4).to_parquet(str(tmp_path / "data.parquet"))
    train, _, _ = dataloaders_from_hf(
        tmp_path / "data.parquet", tokenizer, label_column=None, validation_split=None, test_split=None, num_workers=0
    )
    assert "labels" not in next(iter(train))


def test_tokenizing_with_processes_gives_the_same(saved: Path, tokenizer: object) -> None:
    one, _, _ = dataloaders_from_hf(saved, tokenizer, num_workers=0)
    two, _, _ = dataloaders_from_hf(saved, tokenizer, num_proc=2, max_length=511, num_workers=0)
    assert [batch["input_ids"].tolist() for batch in one] == [batch["input_ids"].tolist() for batch in two]


def test_the_tokenized_data_is_found_again(saved: Path, tokenizer: object) -> None:
    first, _, _ = dataloaders_from_hf(saved, tokenizer, num_workers=0)
    second, _, _ = dataloaders_from_hf(saved, tokenizer, num_workers=0)
    assert first.dataset._fingerprint == second.dataset._fingerprint
    assert first.dataset.cache_files
    assert first.dataset.cache_files == second.dataset.cache_files


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"test_split": "exam"},
            "no split 'exam'; available: train, validation, test.*test_fraction=0.1.*test_split=None",
        ),
        ({"train_split": "training"}, "there is no split 'training'; available: train, validation, test"),
        ({"text_column": "body"}, r"the train split has no column 'body', only \['text', 'label', 'unused'\]"),
        ({"test_split": "exam", "test_fraction": 1.5}, "fractions are above 0 and together below 1"),
        ({"test_split": "exam", "test_fraction": 0.99}, "20 training samples are too few"),
    ],
)
def test_what_is_not_there_is_named(saved: Path, tokenizer: object, arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        dataloaders_from_hf(saved, tokenizer, **arguments)


def test_labels_that_training_does_not_have(tmp_path: Path, tokenizer: object) -> None:
    splits = {
        name: datasets.Dataset.from_dict({"text": ["a", "b"], "label": labels})
        for name, labels in [("train", ["x", "y"]), ("validation", ["x", "z"])]
    }
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "odd"))
    with pytest.raises(ValueError, match=r"the validation split has labels that training has not: \['z'\]"):
        dataloaders_from_hf(tmp_path / "odd", tokenizer, test_split=None)


def test_paths_without_data(tmp_path: Path, tokenizer: object) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such file or folder"):
        dataloaders_from_hf(tmp_path / "nowhere", tokenizer)
    (tmp_path / "data.xyz").write_text("")
    with pytest.raises(ValueError, match=r"cannot tell the format from '\.xyz'; known are \.arrow, \.csv"):
        dataloaders_from_hf(tmp_path / "data.xyz", tokenizer)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="the folder holds no data"):
        dataloaders_from_hf(tmp_path / "empty", tokenizer)


def test_a_tokenizer_without_padding_token(saved: Path, tokenizer: object) -> None:
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match=r"the tokenizer has no padding token: set tokenizer.pad_token"):
        dataloaders_from_hf(saved, tokenizer)
