"""The records behind docs/reliability.md."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.surroundings import added, joined, record
from fuzz.meaning import chunks


def fuzzed(*seeds: tuple[int, int], changed: int = 0) -> dict[str, object]:
    programs = sum(end - start for start, end in seeds)
    return record(
        "python benchmarks/fuzz.py",
        {"programs": programs, "meanings_changed": changed},
        never=["meanings_changed"],
        seeds=joined(seeds),
        by_rule={"some-rule": programs},
    )


def test_records_add_up() -> None:
    both = added(fuzzed((0, 100), (200, 300)), fuzzed((100, 150), changed=1) | {"by_rule": {"other-rule": 2}, "commit": "abc"})
    assert both["figures"] == {"programs": 250, "meanings_changed": 1}
    assert both["seeds"] == [[0, 150], [200, 300]]
    assert both["by_rule"] == {"some-rule": 200, "other-rule": 2}
    assert both["commit"].endswith(", abc")


def test_nothing_is_counted_twice() -> None:
    with pytest.raises(ValueError, match="from 90 on"):
        added(fuzzed((0, 100)), fuzzed((90, 200)))
    with pytest.raises(ValueError, match="command"):
        added(fuzzed((0, 100)), fuzzed((100, 200)) | {"command": "another"})


def test_a_promise_is_about_a_figure() -> None:
    with pytest.raises(ValueError, match="meanings_changed"):
        record("python benchmarks/fuzz.py", {"programs": 1}, never=["meanings_changed"])


@pytest.mark.parametrize("tried", [[], [[0, 150]], [[120, 130], [140, 1000]], [[1000, 2000]], [[100, 350]]])
def test_a_resumed_run_tries_what_is_left(tried: list[list[int]]) -> None:
    left = [seed for chunk in chunks(100, 250, tried) for seed in chunk]
    assert left == [seed for seed in range(100, 350) if not any(start <= seed < end for start, end in tried)]
