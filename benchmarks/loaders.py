"""CPU time of the data part of perflint_runtime beside its peers, as ratios of one run.

    python benchmarks/loaders.py [--rounds N] [--json FILE]

Each pair does the same work on the same data: the peer first, ours after, in turn, for several rounds; the median of
process CPU time counts, with children. Padding is the share of a batch's tokens that are padding.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from perflint_runtime import (
    BatchedTensorLoader,
    DevicePrefetcher,
    LengthBucketSampler,
    make_loader,
    packed_collate,
    pad_collate,
)
from surroundings import commit, machine, versions
from torch.utils.data import DataLoader, Dataset, TensorDataset

ROOT = Path(__file__).resolve().parent.parent
RANDOM = np.random.RandomState(0)
X, Y = torch.randn(20_000, 32), torch.randint(0, 10, (20_000,))
LENGTHS = np.minimum(RANDOM.lognormal(4, 0.8, 200_000).astype(np.int64) + 1, 512)
SEQUENCES = [RANDOM.randint(1, 30_000, length).tolist() for length in LENGTHS[:512]]
Job = Callable[[], object]


class Decoded(Dataset[torch.Tensor]):
    """Stands for samples that take some work."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        return X[index] * 2


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    print(f"{'what':58} {'peer ms':>9} {'ours ms':>9} {'peer/ours':>9}")
    for name, (peer, ours) in pairs().items():
        rounds = [(cpu_ms(peer), cpu_ms(ours)) for _ in range(options.rounds)]
        median = [statistics.median(times) for times in zip(*rounds, strict=True)]
        ratio = statistics.median(theirs / our for theirs, our in rounds)
        results[name] = {"peer_ms": median[0], "ours_ms": median[1], "peer_to_ours": ratio}
        print(f"{name:58} {median[0]:9.2f} {median[1]:9.2f} {ratio:9.2f}")
    padding = padding_shares()
    for name, share in padding.items():
        print(f"padding, {name:49} {share:9.1%}")
    if options.json is not None:
        record = {
            "command": "python benchmarks/loaders.py",
            "commit": commit(),
            "machine": machine(),
            "versions": versions("torch", "numpy", "transformers"),
            "rounds": options.rounds,
            "results": results,
            "padding": padding,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def pairs() -> dict[str, tuple[Job, Job]]:
    """What is compared: a peer's job, and ours."""
    from transformers import DataCollatorWithFlattening, DataCollatorWithPadding

    dataset = TensorDataset(X, Y)
    plain = DataLoader(dataset, 64, shuffle=True)
    on_cpu = DataLoader(dataset, 64)
    prefetched = DevicePrefetcher(on_cpu, "cpu")
    batched = BatchedTensorLoader(X, Y, batch_size=64, shuffle=True)
    workers = DataLoader(dataset, 64, shuffle=True, num_workers=2)
    lists = [{"input_ids": sequence, "attention_mask": [1] * len(sequence)} for sequence in SEQUENCES]
    tensors = [{name: torch.tensor(value) for name, value in sample.items()} for sample in lists]
    pad = DataCollatorWithPadding(tokenizer())
    flatten = DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    packed = partial(packed_collate, flash_attention=True)
    ids = [{"input_ids": sequence} for sequence in SEQUENCES]
    return {
        "TensorDataset 20,000x32: DataLoader": (
            partial(drain, plain),
            partial(drain, batched),
        ),
        "TensorDataset 20,000x32: DataLoader, 2 workers": (partial(drain, workers), partial(drain, batched)),
        "pad lists 16x32: DataCollatorWithPadding": (
            partial(collate, pad, lists),
            partial(collate, pad_collate, lists),
        ),
        "pad tensors 16x32: DataCollatorWithPadding": (
            partial(collate, pad, tensors),
            partial(collate, pad_collate, tensors),
        ),
        "pack lists 16x32: DataCollatorWithFlattening": (
            partial(collate, flatten, ids),
            partial(collate, packed, ids),
        ),
        "order 200,000 samples by length: LengthGroupedSampler": (
            lambda: list(grouped_sampler()),
            lambda: list(LengthBucketSampler(LENGTHS, 32)),
        ),
        "shuffled epoch of 4,096 samples: DataLoader (ours resumes)": (
            partial(drain, DataLoader(Decoded(), 64, shuffle=True)),
            partial(drain, make_loader(Decoded(), 64, shuffle=True, seed=0, num_workers=0)),
        ),
        "DevicePrefetcher on the CPU: the loader alone": (
            partial(drain, on_cpu),
            partial(drain, prefetched),
        ),
    }


def tokenizer() -> Any:
    """A tokenizer that can pad; it needs no vocabulary for that."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"[PAD]": 0}, unk_token="[PAD]")), pad_token="[PAD]"
    )


def grouped_sampler() -> Iterable[int]:
    """What transformers' Trainer uses for `group_by_length`."""
    from transformers.trainer_pt_utils import LengthGroupedSampler

    sampler: Iterable[int] = LengthGroupedSampler(32, lengths=LENGTHS.tolist())
    return sampler


def drain(loader: Iterable[object]) -> None:
    """Iterate over one epoch."""
    for _ in loader:
        pass


def collate(collate_fn: Callable[[list[Any]], object], samples: list[Any]) -> None:
    """Collate batches of 32."""
    for start in range(0, len(samples), 32):
        collate_fn(samples[start : start + 32])


def padding_shares() -> dict[str, float]:
    """The share of tokens that are padding, by how batches of 32 are made."""
    order = list(grouped_sampler())
    shuffled = RANDOM.permutation(len(LENGTHS))
    batches = {
        "random batches of 32": [shuffled[i : i + 32] for i in range(0, len(shuffled), 32)],
        "LengthGroupedSampler": [order[i : i + 32] for i in range(0, len(order), 32)],
        "LengthBucketSampler(batch_size=32)": list(LengthBucketSampler(LENGTHS, 32)),
        "LengthBucketSampler(max_tokens=4096)": list(LengthBucketSampler(LENGTHS, max_tokens=4096)),
    }
    shares = {name: 1 - LENGTHS.sum() / sum(len(b) * LENGTHS[b].max() for b in made) for name, made in batches.items()}
    rows = packed_collate([{"input_ids": sequence} for sequence in SEQUENCES], max_length=512)["input_ids"]
    assert isinstance(rows, torch.Tensor)
    return {
        **{name: float(share) for name, share in shares.items()},
        "packed_collate(max_length=512)": float((rows == 0).float().mean()),
    }


def cpu_ms(job: Job) -> float:
    """CPU milliseconds of a job, its child processes included."""
    before = used_s()
    job()
    return (used_s() - before) * 1000


def used_s() -> float:
    """CPU seconds of this process and of those of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    sys.exit(main())
