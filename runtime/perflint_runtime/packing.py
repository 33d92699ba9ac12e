"""Samples of different lengths become a batch, packed one behind the other instead of padded.

`packed_collate` is a plain function: `functools.partial(packed_collate, max_length=512)` configures it and stays picklable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from perflint_runtime.collate import IGNORED_LABEL, as_tensor

_Tokens = Tensor | list[float]
"""One value per token; lists stay lists until whole rows are converted."""


def packed_collate(
    samples: Sequence[Mapping[str, object]],
    *,
    max_length: int | None = None,
    truncate: bool = False,
    causal_lm: bool = True,
    pad_token_id: int = 0,
    first_position: int = 0,
    flash_attention: bool = False,
    sequence_ids: bool = False,
) -> dict[str, Tensor | int]:
    """Concatenate sequences instead of padding them: rows of `max_length` tokens that hold several sequences each.

    The batch, for R rows of L tokens, all int64 unless said:

    - `input_ids (R, L)`; other per-token fields of the samples likewise, filled up with 0.
    - `position_ids (R, L)`: from `first_position` upward, starting again with every sequence. transformers finds the
      sequences by these restarts (eager, sdpa and flash attention) as long as no `attention_mask` is passed, so none is
      made. Older releases without that detection let sequences see each other: compare once with an unpacked batch.
    - `labels (R, L)`: those of the samples, else `input_ids`. With `causal_lm` each sequence's first label is -100,
      because a causal model's loss would predict it from the end of the sequence before. Fill is -100.
    - with `flash_attention`: `cu_seq_lens_q`, `cu_seq_lens_k` (int32, S + 1 values) and the ints `max_length_q`,
      `max_length_k`, as `DataCollatorWithFlattening(return_flash_attn_kwargs=True)` gives them. They index the rows
      laid end to end; the fill of a row counts as one more sequence, so the last value is R * L. For
      `flash_attn_varlen_func` these are `cu_seqlens_q`, `cu_seqlens_k`, `max_seqlen_q`, `max_seqlen_k`.
    - with `sequence_ids`: `sequence_ids (R, L)`, for each token the index of its sample, -1 on fill.

    Rows are filled by first-fit-decreasing: the longest sequences first, each into the first row with room. No sequence
    is split over two rows and no token is dropped, unless `truncate=True` cuts those longer than `max_length`.

    Args:
        samples: dicts with "input_ids" (list, array or tensor of one dimension), unpadded.
        max_length: tokens in a row; None puts the whole batch into one row without fill.
        truncate: cut longer sequences at `max_length` instead of raising.
        causal_lm: see labels; False for token classification and masked language models.
        pad_token_id: fill of `input_ids`.
        first_position: RoBERTa-like models count from `padding_idx + 1`.
        flash_attention: give sequence boundaries too.
        sequence_ids: give each token's sample too.

    Raises:
        ValueError: no samples, an empty or too long sequence, a padded one (a 0 in its attention_mask), fields whose
            lengths differ in a sample, samples of different keys.

    """
    if not samples:
        raise ValueError("packed_collate got no samples: a batch needs at least one")
    fields = [_per_token_fields(sample, number, max_length, truncate) for number, sample in enumerate(samples)]
    for number, tokens in enumerate(fields):
        if tokens.keys() != fields[0].keys():
            raise ValueError(f"sample {number} has the keys {sorted(tokens)}, sample 0 has {sorted(fields[0])}")
    for tokens in fields:
        labels = tokens.setdefault("labels", tokens["input_ids"])
        if causal_lm:
            tokens["labels"] = _first_ignored(labels)
    lengths = [len(tokens["input_ids"]) for tokens in fields]
    width = sum(lengths) if max_length is None else max_length
    rows = _first_fit_decreasing(lengths, width) if max_length is not None else [list(range(len(samples)))]
    fills = {"input_ids": pad_token_id, "labels": IGNORED_LABEL}
    batch: dict[str, Tensor | int] = {
        name: _rows([[fields[number][name] for number in row] for row in rows], width, fills.get(name, 0)) for name in fields[0]
    }
    segments = [[*(lengths[number] for number in row), width - sum(lengths[number] for number in row)] for row in rows]
    flat = np.array([length for row in segments for length in row if length])
    ends = np.cumsum(flat)
    positions = np.arange(ends[-1]) - np.repeat(ends - flat, flat) + first_position
    batch["position_ids"] = torch.from_numpy(positions).view(len(rows), width)
    if flash_attention:
        boundaries = torch.from_numpy(np.append(0, ends).astype(np.int32))
        batch["cu_seq_lens_q"] = batch["cu_seq_lens_k"] = boundaries
        batch["max_length_q"] = batch["max_length_k"] = int(flat.max())
    if sequence_ids:
        numbers = [[*row, -1] for row in rows]
        owners = np.concatenate([np.repeat(number, length) for number, length in zip(numbers, segments, strict=True)])
        batch["sequence_ids"] = torch.from_numpy(owners).view(len(rows), width)
    return batch


def _per_token_fields(sample: Mapping[str, object], number: int, max_length: int | None, truncate: bool) -> dict[str, _Tokens]:
    tokens = {name: value if _is_flat_list(value) else as_tensor(value, name) for name, value in sample.items()}
    if "input_ids" not in tokens:
        raise ValueError(f"sample {number} has no 'input_ids', only {sorted(tokens)}")
    length = _shape(tokens["input_ids"])[0] if _shape(tokens["input_ids"]) else 0
    if length == 0:
        raise ValueError(f"sample {number} has no tokens")
    for name, values in tokens.items():
        if _shape(values) != (length,):
            raise ValueError(
                f"sample {number}: {name!r} has shape {_shape(values)}, but packing needs one value for each of the "
                f"{length} tokens; a label of a whole sequence has no place in a packed row"
            )
    mask = tokens.pop("attention_mask", None)
    if mask is not None and not (all(mask) if isinstance(mask, list) else bool(mask.all())):
        raise ValueError(f"sample {number} is padded (its attention_mask has zeros): tokenize with padding=False")
    tokens.pop("position_ids", None)
    if max_length is not None and length > max_length:
        if not truncate:
            raise ValueError(
                f"sample {number} has {length} tokens, more than max_length={max_length}: truncate when tokenizing, "
                "raise max_length, or pass truncate=True"
            )
        tokens = {name: values[:max_length] for name, values in tokens.items()}
    return tokens


def _is_flat_list(value: object) -> TypeGuard[list[float]]:
    return isinstance(value, list) and bool(value) and isinstance(value[0], int | float)


def _shape(tokens: _Tokens) -> tuple[int, ...]:
    return (len(tokens),) if isinstance(tokens, list) else tuple(tokens.shape)


def _first_ignored(labels: _Tokens) -> _Tokens:
    if isinstance(labels, list):
        return [IGNORED_LABEL, *labels[1:]]
    return torch.cat([labels.new_full((1,), IGNORED_LABEL), labels[1:]])


def _first_fit_decreasing(lengths: list[int], width: int) -> list[list[int]]:
    rows: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        row = next((row for row, free in enumerate(room) if free >= lengths[number]), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(width)
        rows[row].append(number)
        room[row] -= lengths[number]
    return rows


def _rows(parts_of_rows: list[list[_Tokens]], width: int, fill: int) -> Tensor:
    lists = [[part for part in parts if isinstance(part, list)] for parts in parts_of_rows]
    if all(len(parts) == len(given) for parts, given in zip(lists, parts_of_rows, strict=True)):
        # one conversion for all, which costs less than one per sequence
        joined_lists = [list(chain(*parts)) for parts in lists]
        return as_tensor([[*row, *[fill] * (width - len(row))] for row in joined_lists], None)
    tensors = [[torch.as_tensor(part) for part in parts] for parts in parts_of_rows]
    rows = tensors[0][0].new_full((len(tensors), width), fill)
    for row, parts in zip(rows, tensors, strict=True):
        torch.cat(parts, out=row[: sum(len(part) for part in parts)])
    return rows
