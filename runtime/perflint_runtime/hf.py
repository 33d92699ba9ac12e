"""Loaders for text classification and the like from Hugging Face `datasets`: memory-mapped, tokenized in batches, cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.utils.data import DataLoader

from perflint_runtime.collate import IGNORED_LABEL, pad_collate
from perflint_runtime.cores import usable_cores
from perflint_runtime.loaders import make_loader

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from transformers import PreTrainedTokenizerBase

_OTHER_NAMES_OF_VALIDATION = ("valid", "val", "dev")


class HFLoaders(NamedTuple):
    """Three loaders, to be unpacked; None for a split that was not asked for."""

    train: DataLoader[object]
    validation: DataLoader[object] | None
    test: DataLoader[object] | None


def dataloaders_from_hf(
    dataset_name_or_path: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    config_name: str | None = None,
    config: Mapping[str, Mapping[str, object]] | None = None,
    text_column: str = "text",
    text_pair_column: str | None = None,
    label_column: str | None = "label",
    max_length: int | None = None,
    train_batch_size: int | None = None,
    eval_batch_size: int | None = None,
    train_split: str = "train",
    validation_split: str | None = "validation",
    test_split: str | None = "test",
    validation_fraction: float | None = None,
    test_fraction: float | None = None,
    use_dynamic_padding: bool = True,
    pad_to_multiple_of: int | None = None,
    num_proc: int | None = None,
    num_workers: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> HFLoaders:
    """Load a dataset, tokenize it and return loaders for training, validation and test.

    The data stays on disk as Arrow tables that are mapped into memory. Tokenizing runs over batches of texts, once:
    `datasets` caches the result by the fingerprint of data, tokenizer and arguments. Columns other than the tokenizer's
    and the labels are removed. Batches are dicts of `input_ids`, `attention_mask` (and what else the tokenizer gives),
    int64 `(B, L)`, and `labels (B,)`, int64 for classes, the column's own type otherwise.

    The training loader is a `ResumableLoader`: shuffled by (seed, epoch). The others keep the order of the data.

    Args:
        dataset_name_or_path: a folder written by `save_to_disk`; a .csv, .tsv, .json, .jsonl, .parquet, .arrow or .txt
            file, or a folder of such files, named for their splits; else a name on the hub.
        tokenizer: of transformers, with a padding token.
        config_name: which configuration of a hub dataset.
        config: settings as in the reports' YAML; used where an argument is not given: `model.max_length` or
            `training.max_length`, `training.batch_size`, `training.train_batch_size`, `training.eval_batch_size`,
            `training.num_workers`.
        text_column: what is tokenized.
        text_pair_column: tokenized with it as a pair.
        label_column: becomes `labels`; texts are numbered in sorted order of the training split's. None: no labels.
        max_length: longer texts are truncated to it; 512 by default.
        train_batch_size: samples per batch in training, 16 by default.
        eval_batch_size: in validation and test; default the same.
        train_split: the name of the training split.
        validation_split: None leaves it out; "validation" is also found as valid, val or dev.
        test_split: None leaves it out.
        validation_fraction: if the split is missing, make it of this part of the training data, chosen by `seed`.
        test_fraction: likewise.
        use_dynamic_padding: pad to the longest of each batch; False pads all to max_length, as compiled models like.
        pad_to_multiple_of: see `pad_collate`.
        num_proc: processes that tokenize. Default: 1 with a fast tokenizer, which uses all cores by its own threads, else
            one per core.
        num_workers: of the loaders; default see `make_loader`.
        seed: of splits and of the order in training.
        device: see `make_loader`.

    Raises:
        ValueError: a split or column that is not there (those that are, are named), a tokenizer without padding token,
            a label that the training split does not have, a path without data.
        FileNotFoundError: something that looks like a path and does not exist.

    """
    if tokenizer.pad_token_id is None:
        raise ValueError("the tokenizer has no padding token: set tokenizer.pad_token = tokenizer.eos_token, or add one")
    training = (config or {}).get("training", {})
    length = max_length or _number(training, "max_length") or _number((config or {}).get("model", {}), "max_length") or 512
    batch = train_batch_size or _number(training, "train_batch_size") or _number(training, "batch_size") or 16
    eval_batch = eval_batch_size or _number(training, "eval_batch_size") or batch
    workers = num_workers if num_workers is not None else _number(training, "num_workers")

    splits = _load(dataset_name_or_path, config_name)
    wanted = _splits(
        splits, train_split, {"validation": validation_split, "test": test_split}, validation_fraction, test_fraction, seed
    )
    for name, data in wanted.items():
        for column in (text_column, text_pair_column, label_column):
            if column is not None and column not in data.column_names:
                raise ValueError(f"the {name} split has no column {column!r}, only {data.column_names}")
    if label_column is not None:
        wanted = _with_numbered_labels(wanted, label_column)
    tokenize = partial(
        _tokenize,
        tokenizer=tokenizer,
        text_column=text_column,
        text_pair_column=text_pair_column,
        label_column=label_column,
        max_length=length,
        padding=False if use_dynamic_padding else "max_length",
    )
    # a first call sets a fast tokenizer's truncation, which is part of the fingerprint that the cache is found by
    tokenizer("", truncation=True, max_length=length, padding=False if use_dynamic_padding else "max_length")
    if num_proc is None and not tokenizer.is_fast:
        num_proc = usable_cores()
    collate = partial(
        pad_collate,
        pad_values={
            "input_ids": tokenizer.pad_token_id,
            "token_type_ids": tokenizer.pad_token_type_id,
            "labels": IGNORED_LABEL,
        },
        pad_to_multiple_of=pad_to_multiple_of,
        side="left" if tokenizer.padding_side == "left" else "right",
    )
    loaders: dict[str, DataLoader[object]] = {}
    for name, data in wanted.items():
        processes = None if num_proc is None or num_proc < 2 else min(num_proc, len(data))
        tokens = data.map(tokenize, batched=True, remove_columns=data.column_names, num_proc=processes, desc=f"tokenize {name}")
        loaders[name] = make_loader(
            tokens.with_format("torch"),
            batch if name == "train" else eval_batch,
            shuffle=name == "train",
            seed=seed if name == "train" else None,
            collate_fn=collate,
            num_workers=workers,
            device=device,
        )
    return HFLoaders(loaders["train"], loaders.get("validation"), loaders.get("test"))


def _number(settings: Mapping[str, object], key: str) -> int | None:
    value = settings.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"config: {key} is a whole number, got {value!r}")
    return value


def _load(name_or_path: str | Path, config_name: str | None) -> DatasetDict:
    import datasets

    path = Path(name_or_path)
    kinds = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".arrow": "arrow"}
    kinds[".txt"] = "text"
    if path.is_file():
        if path.suffix not in kinds:
            raise ValueError(f"{path}: cannot tell the format from {path.suffix!r}; known are {', '.join(sorted(kinds))}")
        more = {"sep": "\t"} if path.suffix == ".tsv" else {}
        return datasets.load_dataset(kinds[path.suffix], data_files=str(path), **more)
    if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
        found = datasets.load_from_disk(str(path))
        return found if isinstance(found, datasets.DatasetDict) else datasets.DatasetDict({"train": found})
    if not path.exists() and (isinstance(name_or_path, Path) or path.is_absolute() or str(name_or_path).startswith(".")):
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.is_dir() and not any(file.suffix in kinds for file in path.rglob("*")):
        raise ValueError(f"{path}: the folder holds no data: neither save_to_disk's files nor {', '.join(sorted(kinds))}")
    return datasets.load_dataset(str(name_or_path), config_name)


def _splits(
    splits: DatasetDict,
    train_name: str,
    others: dict[str, str | None],
    validation_fraction: float | None,
    test_fraction: float | None,
    seed: int,
) -> dict[str, Dataset]:
    if train_name not in splits:
        raise ValueError(f"there is no split {train_name!r}; available: {', '.join(splits)}")
    train = splits[train_name]
    found: dict[str, Dataset] = {}
    fractions = {"validation": validation_fraction, "test": test_fraction}
    missing: dict[str, float] = {}
    for role, name in others.items():
        if name is None:
            continue
        names = (name, *_OTHER_NAMES_OF_VALIDATION) if name == "validation" else (name,)
        present = next((name for name in names if name in splits), None)
        fraction = fractions[role]
        if present is not None:
            found[role] = splits[present]
        elif fraction is not None:
            missing[role] = fraction
        else:
            raise ValueError(
                f"there is no split {name!r}; available: {', '.join(splits)}. Name one with {role}_split=..., make one of "
                f"the training data with {role}_fraction=0.1, or do without: {role}_split=None"
            )
    if missing:
        if min(missing.values()) <= 0 or sum(missing.values()) >= 1:
            raise ValueError(f"fractions are above 0 and together below 1, got {missing}")
        samples = len(train)
        sizes = {role: max(1, round(samples * fraction)) for role, fraction in missing.items()}
        if sum(sizes.values()) >= samples:
            raise ValueError(f"{samples} training samples are too few to take {sizes} of them")
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed)).tolist()
        start = 0
        for role, size in sizes.items():
            found[role] = train.select(sorted(order[start : start + size]))
            start += size
        train = train.select(sorted(order[start:]))
    return {"train": train, **{role: found[role] for role in others if role in found}}


def _with_numbered_labels(splits: dict[str, Dataset], column: str) -> dict[str, Dataset]:
    """Give texts as labels the numbers of their sorted order in the training split."""
    import datasets

    feature = splits["train"].features[column]
    if not isinstance(feature, datasets.Value) or feature.dtype not in ("string", "large_string"):
        return splits
    names = sorted(set(splits["train"].unique(column)))
    for name, data in splits.items():
        unknown = sorted(set(data.unique(column)) - set(names), key=str)
        if unknown:
            raise ValueError(f"the {name} split has labels that training has not: {unknown[:5]}")
    return {name: data.cast_column(column, datasets.ClassLabel(names=names)) for name, data in splits.items()}


def _tokenize(
    rows: Mapping[str, list[object]],
    *,
    tokenizer: Callable[..., Mapping[str, object]],
    text_column: str,
    text_pair_column: str | None,
    label_column: str | None,
    max_length: int,
    padding: bool | str,
) -> dict[str, object]:
    texts = [rows[column] for column in (text_column, text_pair_column) if column is not None]
    tokens = dict(tokenizer(*texts, truncation=True, max_length=max_length, padding=padding))
    if label_column is not None:
        tokens["labels"] = rows[label_column]
    return tokens
