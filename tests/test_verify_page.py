"""The page of `perflint verify --html`: made from the record alone, safe to open, bounded in size."""

from __future__ import annotations

import copy
import math
import random
import re
from typing import Any

import pytest
from html_reader import HOSTILE, read

from perflint.page.plots import Series, curves, histogram, pairs, thinned
from perflint.rule.registry import all_rules
from perflint.verify.html import page


def version(waits: int, step_s: float) -> dict[str, Any]:
    return {
        "steps": 4,
        "batches": 4,
        "waits_per_step": float(waits),
        "waits": [{"file": "loop.py", "line": 7, "what": "aten.item.default", "count": 4 * waits}] if waits else [],
        "loops": [
            {
                "file": "loop.py",
                "row": 5,
                "function": "train",
                "rounds": 4,
                "expected": 1,
                "at_least": False,
                "counted": float(waits),
                "differs": [{"file": "loop.py", "line": 7, "expected": 1, "counted": float(waits)}] if waits != 1 else [],
            }
        ],
        "waits_by_step": [waits] * 4,
        "blocking_transfers_per_step": 2.0,
        "copies_per_step": {"host to device, pageable, blocking": 2.0},
        "copied_bytes_per_step": {"host to device, pageable, blocking": 4096.0},
        "allocations_per_step": 1.0,
        "memory_mib": [10.0, 12.0, 11.0, 12.0],
        "peak_memory_mib": 123.4,
        "peak_memory_mib_by_run": [123.4] * 6,
        "loader_s": 0.125,
        "loader_s_by_run": [0.125] * 6,
        "run_s": [1.0, 1.1],
        "step_s": [[step_s] * 3, [step_s * 1.1] * 3],
        "losses": [[(2.0 / (i + 1)).hex() for i in range(4)]] * 2,
        "output": "done\n",
    }


def verified() -> dict[str, Any]:
    return {
        "format": 1,
        "perflint": "0.1.0",
        "date": "2026-01-02T03:04:05+00:00",
        "command": "perflint verify train.py",
        "script": "train.py",
        "arguments": ["--epochs", "2"],
        "commit": "0123abcdef",
        "is_modified": True,
        "machine": {
            "device": "NVIDIA H200",
            "cpu": "Xeon 8468",
            "system": "Linux",
            "python": "3.11.7",
            "torch": "2.13.0",
            "cuda": "13.0",
        },
        "other_version": "fixes",
        "fixes": [
            {
                "file": "loop.py",
                "function": "train",
                "rule": "item-every-step",
                "row": 7,
                "applicability": "safe",
                "message": "the CPU waits for `loss`; keep it on the device",
            }
        ],
        "fixed_by_rule": {"item-every-step": 1},
        "diffs": {"loop.py": "--- a/loop.py\n+++ b/loop.py\n@@ -7 +7 @@\n-total += loss.item()\n+total += loss.detach()\n"},
        "assumptions": [],
        "equality": {
            "verdict": "identical",
            "differences": [],
            "compared": ["losses of 4 backward passes", "final parameters"],
            "not_reproducible": ["random state (python)"],
            "spread": 0.0,
        },
        "speed": {
            "unit": "step",
            "original_s": 0.02,
            "changed_s": 0.0125,
            "ratio": 1.6,
            "low": 1.5,
            "high": 1.7,
            "confidence": 0.97,
            "noise": 1.02,
        },
        "original": version(3, 0.02),
        "changed": version(0, 0.0125),
    }


def test_it_is_one_file_without_scripts_and_addresses() -> None:
    reader = read(page(verified()))
    assert not {tag for tag, _ in reader.elements} & {"script", "link", "img", "iframe", "object", "image"}
    assert not [name for _, attributes in reader.elements for name in attributes if name.startswith(("on", "src"))]
    assert {attributes["href"] for tag, attributes in reader.elements if tag == "a"} == {"#rule-item-every-step"}
    assert "url(" not in page(verified())
    assert "//" not in page(verified()).replace("<!--", "")


def test_a_declared_assumption_that_was_violated_stands_out() -> None:
    record = verified()
    row = {
        "name": "no-hooks",
        "status": "violated",
        "place": "a<b>.py:3",
        "why": "a hook",
        "declared": True,
        "contradicted": None,
        "needed": None,
    }
    record["assumptions"] = [row, {**row, "name": "no-clock", "status": "open", "place": None, "declared": False}]
    text = page(record)
    assert '<td class="bad">violated<td>a&lt;b&gt;.py:3: a hook' in text
    assert '<td class="name">open<td>a hook' in text
    assert "no-hooks" in read(text).text


def test_it_holds_the_figures_of_the_record() -> None:
    text = read(page(verified())).text
    for figure in (
        "identical",
        "1.60",
        "1.50",
        "1.70",
        "3.00",
        "0.00",
        "20.00",
        "12.50",
        "123.4",
        "0.125",
        "4.0",
        "NVIDIA H200",
    ):
        assert figure in text
    for words in (
        "losses of 4 backward passes",
        "random state (python)",
        "loop.py:7",
        "item-every-step",
        "total += loss.detach()",
    ):
        assert words in text
    assert "has no GPU" not in text


def test_each_plot_is_drawn() -> None:
    reader = read(page(verified()))
    labels = [attributes["aria-label"] for tag, attributes in reader.elements if tag == "svg"]
    assert labels == [
        "loss over backward pass",
        "distribution of ms per step, logarithmic",
        "ms per step of each run",
        "waits over step",
        "MiB over step",
    ]


def test_a_difference_is_shown_first_and_marked_in_the_losses() -> None:
    record = verified()
    record["equality"] |= {
        "verdict": "different",
        "differences": [{"what": "loss of backward pass 3", "original": "0.5", "changed": "0.25", "root": 2}],
    }
    record["blamed"] = ["item-every-step in loop.py, train"]
    reader = read(page(record))
    assert "loss of backward pass 3" in reader.text
    assert "number 3" in reader.text
    assert "because of: item-every-step in loop.py, train" in reader.text
    assert [attributes for _, attributes in reader.elements if attributes.get("class") == "mark"]


@pytest.mark.parametrize(
    ("low", "high", "confidence", "said"),
    [
        (1.1, 1.7, 0.96, "faster"),
        (0.5, 0.9, 0.96, "slower"),
        (0.9, 1.2, 0.96, "no difference shown"),
        (1.1, 1.7, 0.9, "no difference shown"),
    ],
)
def test_speed_is_claimed_only_when_nearly_all_pairs_show_it(low: float, high: float, confidence: float, said: str) -> None:
    record = verified()
    record["speed"] |= {"low": low, "high": high, "confidence": confidence, "ratio": 1.4321}
    text = read(page(record)).text
    assert said in text
    is_claimed = said != "no difference shown"
    assert ("1.43" in text) == is_claimed
    assert f"{low:.2f} to {high:.2f}" in text


def row_of(text: str, title: str) -> str:
    """The text of a row of the table of costs."""
    found = re.search(rf"<tr><td>{title}.*?</tr>", text)
    assert found is not None
    return read(f"<table>{found[0]}</table>").text


@pytest.mark.parametrize("key", ["loader_s", "peak_memory_mib"])
def test_a_measured_quantity_has_a_percentage_only_where_the_runs_show_one(key: str) -> None:
    record, title = verified(), {"loader_s": "seconds blocked", "peak_memory_mib": "peak memory"}[key]
    record["changed"][key] = record["original"][key] * 0.8
    record["changed"][f"{key}_by_run"] = [record["original"][key] * factor for factor in (0.7, 1.1, 0.8, 0.9, 0.7, 0.8)]
    assert row_of(page(record), title).endswith("no difference shown")
    record["changed"][f"{key}_by_run"] = [record["original"][key] * 0.8] * 6
    assert row_of(page(record), title).endswith("-20%")


def test_the_histogram_marks_the_figures_of_the_table() -> None:
    record = verified()
    low, high = 0.0105, 0.021  # what the mean of a run, here, is far from: the median of its steps
    record["original"]["step_s"] = [[low, low, high * 3]] * 6
    record["changed"]["step_s"] = [[low, low, high * 2]] * 6
    record["speed"] |= {"original_s": (2 * low + 3 * high) / 3, "changed_s": (2 * low + 2 * high) / 3}
    text = page(record)
    assert "28.00" in row_of(text, "milliseconds per step")
    assert "21.00" in row_of(text, "milliseconds per step")
    (histogram_,) = re.findall(r'<svg [^>]*aria-label="distribution.*?</svg>', text)
    lines = dict(re.findall(r'<line class="median (\w+)" x1="([\d.]+)"', histogram_))
    ticks = {
        float(name): float(at) for at, name in re.findall(r'<text class="tick" x="([\d.]+)"[^>]*middle">([\d.]+)<', histogram_)
    }
    (a, at_a), (b, at_b) = sorted(ticks.items())[:2]
    for name, value in (("original", 28.0), ("changed", 21.0)):
        expected = at_a + (at_b - at_a) * math.log(value / a) / math.log(b / a)
        assert abs(float(lines[name]) - expected) < 0.5


def test_it_says_where_it_was_made() -> None:
    text = read(page(verified())).text
    assert "commit 0123abcdef, with changes that are in no commit" in text
    assert "CPU Xeon 8468" in text


def test_what_does_not_reproduce_is_explained() -> None:
    text = read(page(verified())).text
    assert "random state (python): it draws a number of random numbers that depends on time" in text


def test_how_far_results_are_apart_and_where() -> None:
    record = verified()
    difference = {"what": "loss of backward pass 3", "original": "0.5", "changed": "0.25", "root": 2}
    difference |= {"largest": 0.123456, "where": "backward pass 9", "extent": "7 of 9 losses differ"}
    record["equality"] |= {"verdict": "different", "differences": [difference]}
    assert "0.123, at backward pass 9, 7 of 9 losses differ" in read(page(record)).text


def test_the_page_of_a_rule_is_part_of_it() -> None:
    text = page(verified(), all_rules())
    reader = read(text)
    assert 'id="rule-item-every-step"' in text
    assert "Finds reads of device values" in reader.text


def _with_hostile_text(value: Any) -> Any:
    match value:
        case dict():
            return {key: _with_hostile_text(item) for key, item in value.items()}
        case list():
            return [_with_hostile_text(item) for item in value]
        case str() if len(value) < 400 and not value.startswith("0x"):
            return HOSTILE + value
    return value


def hostile_record() -> dict[str, Any]:
    """A record all of whose texts are markup."""
    record = verified()
    record["equality"]["differences"] = [{"what": "output", "original": "a", "changed": "b", "root": None}]
    hostile = _with_hostile_text(record)
    hostile["diffs"] = {HOSTILE: "--- a\n+++ b\n@@ -1 +1 @@\n-" + HOSTILE + "\n"}
    hostile["fixed_by_rule"] = {HOSTILE: 1}
    for part in ("original", "changed"):
        hostile[part]["copies_per_step"] = {HOSTILE: 1.0}
    return hostile


def test_text_of_the_program_cannot_leave_its_place() -> None:
    text = page(hostile_record())
    text.encode("utf-8")
    reader = read(text)
    assert not {tag for tag, _ in reader.elements} & {"script", "img"}
    assert reader.text.count("<script>alert('&')</script>") > 8
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_waits_by_the_code_stand_beside_those_counted() -> None:
    text = read(page(verified())).text
    assert "Waits by the code, and as counted" in text
    assert "loop.py:5 train" in text


def test_without_steps_losses_and_a_gpu() -> None:
    record = verified()
    record["speed"] = None
    record["machine"] |= {"device": "cpu", "cuda": None}
    for part in ("original", "changed"):
        record[part] |= {
            "step_s": [[], []],
            "losses": [[], []],
            "memory_mib": [],
            "waits_by_step": [],
            "steps": 0,
            "batches": 0,
        }
        record[part] |= {"peak_memory_mib": None, "loader_s": None, "copies_per_step": {}, "copied_bytes_per_step": {}}
    reader = read(page(record))
    assert "svg" not in {tag for tag, _ in reader.elements}
    assert "not measured" in reader.text
    assert "has no GPU" in reader.text


def test_a_changed_version_that_fails() -> None:
    record = verified()
    record |= {"speed": None, "changed": None}
    failure = {"what": "how the run ends", "original": "without an error", "changed": "it ended\nwith code 1", "root": None}
    record["equality"] |= {"verdict": "different", "differences": [failure], "compared": []}
    record["original"] |= {"step_s": [], "losses": [], "run_s": []}
    text = read(page(record)).text
    assert "does not run to its end" in text
    assert "it ended\nwith code 1" in text
    assert "how the run ends: with code 1" in text


def test_nothing_changed() -> None:
    record = verified()
    record |= {"equality": None, "speed": None, "changed": None, "fixes": [], "fixed_by_rule": {}, "diffs": {}}
    record["original"] |= {"step_s": [], "losses": [], "run_s": []}
    assert "nothing was changed" in read(page(record)).text


def test_a_record_without_torch() -> None:
    record = verified()
    record["machine"] = {"device": None, "system": "Linux", "python": "3.11.7", "torch": None, "cuda": None}
    assert not re.search("None(?!\\.)", read(page(record)).text)


def test_a_long_run_gives_a_small_page_that_keeps_the_peaks() -> None:
    record = verified()
    steps = 100_000
    draw = random.Random(0)
    for part in ("original", "changed"):
        values = [1.0 + draw.random() for _ in range(steps)]
        values[54_321] = 97.0
        record[part] |= {
            "losses": [[value.hex() for value in values]],
            "step_s": [[draw.uniform(0.01, 0.5) for _ in range(steps)]] * 2,
            "waits_by_step": [draw.randrange(5) for _ in range(steps)],
            "memory_mib": [100 * draw.random() for _ in range(steps)],
            "waits": [{"file": "loop.py", "line": i, "what": "item", "count": 1} for i in range(5000)],
        }
    record["diffs"] = {"long.py": "--- a\n+++ b\n" + "+x = 1\n" * 50_000}
    text = page(record)
    assert len(text) < 400_000
    assert "80" in read(text).text  # the tick below the peak


def test_thinning_keeps_extremes_ends_and_gaps() -> None:
    values = [0.0] * 10_000
    values[1234], values[8765], values[5000] = 9.0, -9.0, math.nan
    stretches = thinned(values, 100)
    points = [point for stretch in stretches for point in stretch]
    assert len(points) < 150
    assert {(1234, 9.0), (8765, -9.0), (0, 0.0), (9999, 0.0)} <= set(points)
    assert len(stretches) == 2
    assert thinned([math.nan, math.inf]) == []
    assert thinned([]) == []


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-1e-30, 1e-30], [1e300, -1e300], [math.nan, 2.0], [1e-300], [3.0]])
def test_plots_of_odd_values(values: list[float]) -> None:
    for name in ("original", "changed"):
        read(curves([Series(name, values)], "step", "loss"))
    if all(math.isfinite(value) for value in values):
        read(pairs([Series("original", values), Series("changed", values)], "ms"))
    if any(value > 0 for value in values):
        positive = [value for value in values if value > 0]
        read(histogram([Series("original", positive), Series("changed", positive)], "ms"))


def test_the_record_is_left_as_it_is() -> None:
    record = verified()
    before = copy.deepcopy(record)
    page(record)
    assert record == before
