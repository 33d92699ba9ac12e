"""The evidence for each rule: its fixture script computes the same after the fix, and does less of what the rule is about.

`fixtures/<rule>/train.fixed.py` is what `fix` makes of `train.py` (`pytest --bless` writes it). Both run on the CPU, in the
launch regime or the first that the script knows. Records of measured times must be of the scripts as they are now.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES, HANG_S, ROOT

from perflint.cli import run_for_tests
from perflint.report.explain import Measured
from perflint.rule.registry import all_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RULES = {rule.name: rule for rule in all_rules()}


@dataclass(frozen=True)
class Evidence:
    """What a rule's evidence.toml says: see fixtures/README.md."""

    counter: str = ""
    before: int | None = None
    after: int = 0
    at_most: float = 0.0
    rounding: float = 0.0
    safe: bool = True
    moves_work: bool = False
    nothing_less: str = ""
    changes_the_result: str = ""
    not_run: str = ""
    covers: tuple[str, ...] = ()
    """Items of docs/coverage.toml."""

    @classmethod
    def of(cls, rule: str) -> Evidence:
        """The settings in a rule's folder."""
        path = FIXTURES / rule / "evidence.toml"
        if not path.exists():
            raise FileNotFoundError(f"{path}: say there what the fix makes less; fixtures/README.md says how")
        return cls(**{key.replace("-", "_"): value for key, value in tomllib.loads(path.read_text(encoding="utf-8")).items()})


EVIDENCE = {rule: Evidence.of(rule) for rule in sorted(RULES)}
SAME_RESULT = [rule for rule, evidence in EVIDENCE.items() if not evidence.changes_the_result and not evidence.not_run]
"""Every rule whose original runs and trains."""


def fixed(rule: str, folder: Path, *arguments: str) -> str:
    """What `fix` makes of a rule's script."""
    copy = folder / rule / "train.py"
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(FIXTURES / rule / "train.py", copy)
    run = run_for_tests(
        ["fix", "--no-cache", "--isolated", "--exit-zero", "--runtime", "--select", rule, *arguments, str(copy)]
    )
    assert run.exit_code == 0, run.output
    return copy.read_text(encoding="utf-8")


@pytest.mark.parametrize("rule", sorted(name for name, rule in RULES.items() if rule.fixes and not EVIDENCE[name].not_run))
def test_the_fixed_script_is_the_blessed_one(rule: str, tmp_path: Path, bless: bool) -> None:
    text = fixed(rule, tmp_path, "--unsafe-fixes")
    blessed = FIXTURES / rule / "train.fixed.py"
    if bless:
        blessed.write_text(text, encoding="utf-8")
    assert text != (FIXTURES / rule / "train.py").read_text(encoding="utf-8"), "no fix applies"
    assert text == blessed.read_text(encoding="utf-8")
    assert (fixed(rule, tmp_path) == text) is EVIDENCE[rule].safe


def test_every_rule_says_what_it_makes_less_or_why_nothing() -> None:
    for rule, evidence in EVIDENCE.items():
        said = (evidence.counter, evidence.nothing_less, evidence.changes_the_result, evidence.not_run)
        assert len(list(filter(None, said))) == 1, rule


def test_what_can_be_counted_is_listed() -> None:
    table = [line for line in (FIXTURES / "README.md").read_text(encoding="utf-8").split("\n") if line.startswith("| `")]
    listed = {name for line in table for name in re.findall(r"`([^`]+)`", line)}
    counters = {evidence.counter for evidence in EVIDENCE.values() if evidence.counter}
    assert {counter for counter in counters if not counter.startswith("aten.")} <= listed


Runs = Mapping[str, Mapping[str, Mapping[str, Any]]]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Runs:
    """The record of each script's run, by rule and version: of the rules that the tests to be run ask for."""
    for module in ("torch", "pandas"):
        pytest.importorskip(module)
    if not hasattr(os, "fork"):
        pytest.skip("runs are forks")
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    asked = {item.callspec.params.get("rule", "") for item in items if hasattr(item, "callspec")} & RULES.keys()
    if any("runs" in item.fixturenames and not hasattr(item, "callspec") for item in items):
        asked |= {rule for rule, evidence in EVIDENCE.items() if evidence.changes_the_result}
    done = python("tests/evidence_runs.py", *sorted(asked))
    assert done.returncode == 0, done.stderr
    records: dict[str, dict[str, dict[str, Any]]] = json.loads(done.stdout)
    return records


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script of this repository, which needs the probe and the runtime."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("", "rules", "runtime", "probe"))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)


SAME = ("roots", "parameters", "optimizer_state", "buffers", "random", "steps", "output")


@pytest.mark.slow
@pytest.mark.parametrize("rule", SAME_RESULT)
def test_the_fixed_script_computes_the_same(rule: str, runs: Runs) -> None:
    original, changed = runs[rule]["original"], runs[rule]["changed"]
    assert "failed" not in original, original["failed"]
    assert "failed" not in changed, changed["failed"]
    assert len(original["roots"]) >= original["steps"] >= 3
    assert losses(original)
    if EVIDENCE[rule].rounding:
        assert changed["steps"] == original["steps"]
        assert losses(changed) == pytest.approx(losses(original), rel=EVIDENCE[rule].rounding)
    else:
        assert {name: changed[name] for name in SAME} == {name: original[name] for name in SAME}


@pytest.mark.slow
@pytest.mark.parametrize("rule", [rule for rule, evidence in EVIDENCE.items() if evidence.counter])
def test_what_the_rule_is_about_becomes_less(rule: str, runs: Runs) -> None:
    evidence = EVIDENCE[rule]
    before, after = (count(runs[rule][version], evidence.counter) for version in ("original", "changed"))
    assert after < before
    if evidence.before is None:
        assert after <= evidence.at_most * before
    else:
        assert (before, after) == (evidence.before, evidence.after)


@pytest.mark.slow
def test_a_network_learns_when_its_gradients_are_kept(runs: Runs) -> None:
    original, changed = (losses(runs["zero-grad-between-backward-and-step"][version]) for version in ("original", "changed"))
    assert set(original) == {original[0]}
    assert changed[0] == original[0]
    assert changed[-1] < changed[0]


@pytest.mark.slow
def test_no_grad_works_with_parentheses(runs: Runs) -> None:
    original, changed = (runs["no-grad-without-call"][version] for version in ("original", "changed"))
    assert "TypeError" in original["failed"]
    assert len(losses(changed)) == changed["steps"] + 1


def losses(record: Mapping[str, Any]) -> list[float]:
    """What a script prints at its end."""
    return [float.fromhex(loss) for loss in json.loads(record["output"].splitlines()[-1])["losses"]]


def count(record: Mapping[str, Any], counter: str) -> int:
    """A counter of a run: one of evidence_runs.py, or of the probe."""
    rows: Sequence[Mapping[str, Any]]
    if counter == "reads":
        rows = record["reads"]
    elif counter == "blocking transfers":
        rows = [row for row in record["transfers"] if row["what"].startswith("blocking")]
    elif counter == "non-blocking transfers":
        rows = [row for row in record["transfers"] if not row["what"].startswith("blocking")]
    else:
        return int(record.get(counter, 0))
    return sum(row["count"] for row in rows)


def entry(**changes: Any) -> dict[str, Any]:
    """What a rule pack's measured.json says about one measurement."""
    place = {"device": "CPU of a test", "torch": "2.6.0", "date": "2026-01-02", "regime": "launch"}
    figures = {"ratio": 1.5, "low": 1.4, "high": 1.6, "confidence": 0.97, "noise": 1.02, "pairs": 6}
    return {**place, **figures, "original_ms": 3.0, "changed_ms": 2.0, **changes}


def test_a_figure_is_shown_with_its_interval_and_where_it_comes_from() -> None:
    on_gpu = Measured(**entry(device="Some GPU", waits=[2.0, 0.0], peak_mib=[812.3, 402.1]))
    assert on_gpu.phrase == "1.50x, 1.40 to 1.60 (Some GPU, launch, torch 2.6.0)"
    for part in ("1.50 times the steps per second", "97% confidence", "waits per step: 2 before, 0 after", "812 MiB before"):
        assert part in on_gpu.sentence
    assert "waits" not in Measured(**entry()).sentence


@pytest.mark.parametrize("weak", [{"low": 0.99}, {"low": 1.004}, {"ratio": 0.9, "low": 0.8, "high": 1.0}, {"confidence": 0.5}])
def test_an_interval_that_holds_one_is_no_effect(weak: dict[str, float]) -> None:
    found = Measured(**entry(**weak))
    assert found.phrase.startswith("no measurable effect here (CPU of a test, launch")
    assert "no measurable effect" in found.sentence


@pytest.mark.slow
def test_a_measurement_records_what_it_needs_to_be_judged(tmp_path: Path, runs: Runs) -> None:
    options = ["--device", "cpu", "--steps", "4", "--repeats", "2", "--regime", "launch", "--output", str(tmp_path)]
    measured = python("fixtures/measure.py", "zero-grad-to-zeros", *options)
    assert measured.returncode == 0, measured.stderr
    (path,) = (tmp_path / "zero-grad-to-zeros" / "measured").iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert path.name.startswith("cpu-")
    assert path.name.endswith("-launch.json")
    assert (found["verdict"], found["repeats"], found["confidence"]) == ("identical", 2, 0.5)
    assert found["low"] <= found["ratio"] <= found["high"]
    assert [len(steps) for version in ("original", "changed") for steps in found["step_us"][version]] == [3] * 4
    for name in ("driver", "cuda", "torch", "python", "perflint", "commit", "date", "command", "counts", "peak_memory_mib"):
        assert name in found


RECORDS = sorted(FIXTURES.glob("*/measured/*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.parent.name}/{path.stem}")
def test_a_record_is_of_the_scripts_as_they_are(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    folder = path.parent.parent
    assert record["rule"] == folder.name
    assert record["regime"] in path.stem
    assert len(record["scripts"]) == 2
    now = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in record["scripts"]}
    assert record["scripts"] == now, f"measure anew: python fixtures/measure.py {folder.name}"
    assert record["confidence"] >= 0.95, "too few pairs of runs"
    assert record["verdict"] == "identical" or EVIDENCE[folder.name].rounding
