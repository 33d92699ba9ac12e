"""Batches of similar length: every sample once, alike on all ranks, the same after a resume."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perflint_runtime import LengthBucketSampler

LENGTHS = np.random.RandomState(0).randint(1, 200, 1000)


def padded(batches: list[list[int]]) -> int:
    return sum(len(batch) * int(LENGTHS[batch].max()) for batch in batches)


def test_every_sample_once_in_full_batches_the_short_one_last() -> None:
    sampler = LengthBucketSampler(LENGTHS, 32)
    batches = list(sampler)
    assert sorted(chain(*batches)) == list(range(1000))
    assert [len(batch) for batch in batches] == [32] * 31 + [8]
    assert len(sampler) == len(batches)


def test_padding_is_a_fraction_of_what_random_batches_need() -> None:
    bucketed = padded(list(LengthBucketSampler(LENGTHS, 32, megabatch=10))) - LENGTHS.sum()
    order = np.random.RandomState(1).permutation(1000)
    at_random = padded([order[i : i + 32].tolist() for i in range(0, 1000, 32)]) - LENGTHS.sum()
    assert bucketed < at_random / 5


def test_epochs_differ_in_who_shares_a_batch_and_repeat_by_number() -> None:
    sampler = LengthBucketSampler(LENGTHS, 32, megabatch=4, seed=3)
    first, second = list(sampler), list(sampler)
    assert {frozenset(batch) for batch in first} & {frozenset(batch) for batch in second} == set()
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(LengthBucketSampler(LENGTHS, 32, megabatch=4, seed=4)) != first


def test_the_order_does_not_depend_on_the_release_of_numpy() -> None:
    # RandomState's streams are frozen: these numbers may never change, or checkpoints resume with other data
    assert list(LengthBucketSampler([3, 1, 4, 1, 5, 9, 2, 6], 1, megabatch=2, seed=5)) == [
        [5],
        [2],
        [0],
        [6],
        [3],
        [4],
        [1],
        [7],
    ]


def test_the_longest_sample_comes_first() -> None:
    assert LENGTHS[next(iter(LengthBucketSampler(LENGTHS, 32)))].max() == LENGTHS.max()


def test_without_shuffle_only_megabatches_are_sorted() -> None:
    batches = list(LengthBucketSampler(range(1, 9), 1, megabatch=2, shuffle=False, longest_first=False))
    assert batches == [[1], [0], [3], [2], [5], [4], [7], [6]]


def test_in_a_small_data_set_other_samples_meet_in_each_epoch() -> None:
    sampler = LengthBucketSampler(range(64), 4)
    assert {frozenset(batch) for batch in sampler} & {frozenset(batch) for batch in sampler} == set()


def test_an_epoch_broken_off_starts_again() -> None:
    sampler = LengthBucketSampler(LENGTHS, 32)
    first = next(iter(sampler))
    assert next(iter(sampler)) == first


@pytest.mark.parametrize("how", [{"batch_size": 32}, {"max_tokens": 2000}])
@pytest.mark.parametrize("done", [0, 1, 17, -1])
def test_resume_in_mid_epoch_is_exact(how: dict[str, int], done: int) -> None:
    sampler = LengthBucketSampler(LENGTHS, **how)
    list(sampler)
    whole = list(sampler)
    sampler.set_epoch(1)
    iterator = iter(sampler)
    done %= len(whole) + 1
    for _ in range(done):
        next(iterator)
    saved = json.loads(json.dumps(sampler.state_dict()))
    resumed = LengthBucketSampler(LENGTHS, **how)
    resumed.load_state_dict(saved)
    resumed.set_epoch(1)  # a training loop says this at the top of each epoch
    assert list(resumed) == whole[done:]
    following = LengthBucketSampler(LENGTHS, **how)
    following.set_epoch(2)
    assert list(resumed) == list(following)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("how", [{"batch_size": 8}, {"max_tokens": 1500}])
@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_ranks_have_the_same_number_of_batches_of_the_same_sizes(how: dict[str, int], world_size: int, drop_last: bool) -> None:
    ranks = [
        list(LengthBucketSampler(LENGTHS, **how, rank=rank, world_size=world_size, drop_last=drop_last))
        for rank in range(world_size)
    ]
    assert len({tuple(len(batch) for batch in batches) for batches in ranks}) == 1
    handed_out = list(chain(*chain(*ranks)))
    if drop_last:
        assert len(set(handed_out)) == len(handed_out) > 1000 - 8 * world_size
    else:
        assert set(handed_out) == set(range(1000))
        assert len(handed_out) - 1000 < world_size
    for step in zip(*ranks, strict=True):
        longest = [int(LENGTHS[batch].max()) for batch in step]
        assert max(longest) - min(longest) < 100


@settings(max_examples=150)
@given(
    lengths=st.lists(st.integers(0, 50), max_size=120),
    max_tokens=st.none() | st.integers(50, 300),
    batch_size=st.integers(1, 9),
    world_size=st.integers(1, 4),
    megabatch=st.integers(1, 5),
    shuffle=st.booleans(),
)
def test_nothing_is_lost_and_no_batch_is_too_large(
    lengths: list[int], max_tokens: int | None, batch_size: int, world_size: int, megabatch: int, shuffle: bool
) -> None:
    size = None if max_tokens is not None else batch_size
    ranks = [
        list(
            LengthBucketSampler(
                lengths, size, max_tokens=max_tokens, megabatch=megabatch, shuffle=shuffle, rank=rank, world_size=world_size
            )
        )
        for rank in range(world_size)
    ]
    assert set(chain(*chain(*ranks))) == set(range(len(lengths)))
    assert sum(map(len, chain(*ranks))) == -(-len(lengths) // world_size) * world_size
    for batch in chain(*ranks):
        assert batch
        if max_tokens is not None:
            assert len(batch) * max(lengths[index] for index in batch) <= max_tokens
        else:
            assert len(batch) <= batch_size


def test_no_samples_are_no_batches() -> None:
    assert list(LengthBucketSampler([], 4)) == []
    assert len(LengthBucketSampler([], max_tokens=4)) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "exactly one of batch_size and max_tokens"),
        ({"batch_size": 2, "max_tokens": 9}, "exactly one of batch_size and max_tokens"),
        ({"batch_size": 0}, "batch_size is at least 1, got 0"),
        ({"max_tokens": 3}, "sample 1 has 5 tokens, more than max_tokens=3"),
        ({"batch_size": 2, "rank": 2, "world_size": 2}, "rank is from 0 to world_size - 1 = 1, got 2"),
        ({"batch_size": 2, "seed": -1}, "seed is from 0"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LengthBucketSampler([1, 5], **arguments)


def test_a_state_of_other_data_is_refused() -> None:
    state = LengthBucketSampler([1, 2, 3], 1).state_dict()
    with pytest.raises(ValueError, match="cannot resume: the saved sampler has samples=3, this one 2"):
        LengthBucketSampler([1, 2], 1).load_state_dict(state)
    with pytest.raises(ValueError, match="seed=0, this one 1"):
        LengthBucketSampler([1, 2, 3], 1, seed=1).load_state_dict(state)


def test_it_needs_no_torch() -> None:
    code = "import sys; from perflint_runtime import LengthBucketSampler; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
