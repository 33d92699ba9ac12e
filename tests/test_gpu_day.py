"""fixtures/gpu_day.py on a CPU: its plan, its chunks, kills, crashes, and what it collects."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import FIXTURES, HANG_S, ROOT

for _module in ("torch", "numpy", "pandas"):
    pytest.importorskip(_module)
if not hasattr(os, "fork"):
    pytest.skip("items are forks", allow_module_level=True)
sys.path.insert(0, str(FIXTURES))

import gpu_day  # noqa: E402
import gpu_races  # noqa: E402
import gpu_waits  # noqa: E402
from gpu_card import SLEEP_CYCLES_PER_MS, Card  # noqa: E402
from gpu_day import Chunk, Item, Setting  # noqa: E402

GPU_DAY = "fixtures/gpu_day.py"
QUICK = ("sums/float32", "runtime/random-states", "runtime/fp16-overflow", "races/trap-g0[789]*")
FORBIDDEN = ("accelerate", "click", "datasets", "libcst", "pathspec", "rich", "tomli")
"""What a machine that has torch, numpy, pandas and transformers lacks."""


def command(*arguments: str | Path, root: Path = ROOT) -> list[str]:
    lacking = "".join(f"sys.modules[{name!r}] = None; " for name in FORBIDDEN)
    script = str(root / GPU_DAY)
    code = f"import sys, runpy; {lacking}sys.argv[0] = {script!r}; runpy.run_path({script!r}, run_name='__main__')"
    return [sys.executable, "-c", code, *map(str, arguments)]


def gpu(*arguments: str | Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run it as on a machine that has none of perflint's dependencies."""
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command(*arguments, root=root), capture_output=True, text=True, env=bare, timeout=HANG_S, cwd=root)


def only(*patterns: str) -> list[str]:
    return [part for pattern in patterns for part in ("--only", pattern)]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("chunk-*.json"))]


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The races with their safe fixes."""
    folder = tmp_path_factory.mktemp("fixed")
    gpu_races.write_fixed(folder)
    return folder


def test_the_plan_holds_every_item_once_and_no_chunk_is_too_long() -> None:
    items = gpu_day.items()
    assert len({item.key for item in items}) == len(items)
    plan = gpu_day.planned(items, gpu_day.estimates(items, {}), gpu_day.BUDGET_S)
    assert sorted(item.key for _, taken in plan for item in taken) == sorted(item.key for item in items)
    assert max(seconds for seconds, _ in plan) <= gpu_day.BUDGET_S
    kinds = list(dict.fromkeys(item.kind for _, taken in plan for item in taken if item.alone))
    assert kinds == ["rule", "program", "runtime"], "the most important first"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Runs it in this process; what it prints, and its last line of error."""

    def run(*arguments: str | Path) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", [GPU_DAY, *map(str, arguments)])
        monkeypatch.setattr(gpu_day, "BEGAN", time.monotonic())
        error = ""
        try:
            gpu_day.main()
        except SystemExit as end:
            error = end.code if isinstance(end.code, str) else ""
        out, err = capsys.readouterr()
        return out, error or err.strip().rpartition("\n")[2]

    return run


Here = Callable[..., tuple[str, str]]


def test_the_plan_is_printed(here: Here) -> None:
    out, _ = here("--plan", "--commit", "abc", *only("sums/*", "waits/p0?"))
    assert "python fixtures/gpu_day.py --out gpu-day/records --fixed gpu-day/fixed --commit abc --only 'sums/*'" in out
    assert "waits (10): p00, p01" in out
    assert "--collect gpu-day/records" in out


def test_estimates_come_from_what_was_measured() -> None:
    items = gpu_day.items()
    before = gpu_day.estimates(items, {})
    after = gpu_day.estimates(items, {"waits/p00": {"seconds": 100.0}, "waits/p01": {"seconds": 2.0}})
    assert {key for key in after if after[key] != before[key]} == {item.key for item in items if item.kind == "waits"}
    assert after["waits/q00"] == pytest.approx(120)


def test_usage_errors_are_one_line(tmp_path: Path, here: Here) -> None:
    (tmp_path / "chunk-1.json").write_text("{", encoding="utf-8")
    for arguments, words in [
        (["--out", tmp_path, "--dry-run"], "is no record of a chunk"),
        (["--plan", "--only", "nothing/*"], "no item is named nothing/*"),
        (["--dry-run"], "--out says where the records go"),
        (["--dry-run", "--out", tmp_path / "new"], "--fixed is needed"),
        (["--out", tmp_path / "new", *only("sums/*")], "torch sees no GPU here"),
        (["--collect", tmp_path / "new"], "no chunk-*.json in"),
    ]:
        assert words in here(*arguments)[1]


def test_a_dry_run_resumes_and_is_not_collected(tmp_path: Path, here: Here) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    wanted = ["waits/p13", "sums/float32", "runtime/random-states", "rule/zero-grad-late-launch"]
    out, _ = here("--dry-run", "--out", first, "--commit", "abc", *only(*wanted[:2]))
    assert "0 failed; 0 left" in out
    out, _ = here("--dry-run", "--out", second, "--resume-from", first, *only(*wanted))
    assert "0 failed; 0 left" in out
    assert [path.name for path in (*first.iterdir(), *second.iterdir())] == ["chunk-1.json", "chunk-2.json"]
    (before,), (after,) = records(first), records(second)
    assert (before["about"]["commit"], sorted(before["items"])) == ("abc", sorted(wanted[:2]))
    assert sorted(after["items"]) == sorted(wanted[2:])
    assert after["items"]["rule/zero-grad-late-launch"]["result"]["verdict"] == "identical"
    out, _ = here("--dry-run", "--out", second, "--resume-from", first, *only(*wanted))
    assert "all items have a record" in out
    assert "holds a dry run" in here("--collect", first)[1]


def item(name: str, run: Callable[[Setting], Mapping[str, Any]], *, alone: bool = False, estimate_s: float = 1) -> Item:
    return Item("test", name, estimate_s, alone, run)


def worked(folder: Path, *items: Item, budget_s: float = 1000, limit_s: float | None = None) -> dict[str, Any]:
    """The records of items that were worked on."""
    setting = Setting("cpu", True, folder, {})
    seconds = {one.key: one.estimate_s for one in items}
    gpu_day.work(items, seconds, setting, Chunk(folder / "chunk-1.json", {}), time.monotonic() + budget_s)
    found = records(folder)
    return {key.partition("/")[2]: record for key, record in found[0]["items"].items()} if found else {}


def crash(_: Setting) -> Mapping[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def fail(_: Setting) -> Mapping[str, Any]:
    print("on the way")
    raise RuntimeError("CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA")


def hang(_: Setting) -> Mapping[str, Any]:
    time.sleep(HANG_S)
    return {}


def well(_: Setting) -> Mapping[str, Any]:
    return {"summary": "well", "process": os.getpid()}


def test_an_item_that_crashes_or_fails_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = worked(tmp_path, item("crash", crash), item("fail", fail, alone=True), item("well", well), item("too", well))
    assert found["crash"]["failed"] == f"ended with exit code {-signal.SIGKILL}"
    assert found["fail"]["failed"] == "RuntimeError: CUDA error: device-side assert triggered"
    assert found["fail"]["said"][0] == "on the way"
    assert found["well"]["result"]["process"] != found["too"]["result"]["process"]


def test_an_item_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_day, "LIMIT", lambda estimate_s: estimate_s)
    found = worked(tmp_path, item("hang", hang, alone=True), item("well", well, estimate_s=500))
    assert found["hang"]["failed"] == "did not end in 1 s"
    assert "result" in found["well"]


def test_no_item_is_begun_that_would_end_after_the_budget(tmp_path: Path) -> None:
    assert worked(tmp_path, item("long", well, estimate_s=500), item("short", well), budget_s=400).keys() == {"short"}


def test_what_the_end_of_a_chunk_stops_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_day, "GRACE_S", 0.0)
    assert worked(tmp_path, item("hang", hang, estimate_s=0.1), budget_s=2) == {}


def test_a_chunk_is_whole_after_each_item(tmp_path: Path) -> None:
    chunk = Chunk(tmp_path / "chunk-1.json", {"device": "some"})
    for number in range(3):
        chunk.add(f"sums/{number}", {"seconds": number})
        assert len(records(tmp_path)[0]["items"]) == number + 1
    assert [path.name for path in tmp_path.iterdir()] == ["chunk-1.json"]


def test_the_sync_debug_mode_is_heard_and_switched_off_again(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", modes.append)
    card = Card("cuda")
    with card.sync_warnings() as places:
        for text in ("called a synchronizing CUDA operation (Triggered internally)", "something else") * 2:
            warnings.warn(text, stacklevel=1)
    assert modes == ["warn", "default"]
    assert [place.partition(":")[0] for place in places] == ["test_gpu_day.py"] * 2


@pytest.mark.parametrize("waits", [True, False])
def test_a_block_that_waits_is_held_up(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    queued = [0.0]

    def synchronize() -> None:
        clock[0], queued[0] = clock[0] + queued[0], 0.0

    monkeypatch.setattr("torch.cuda.synchronize", synchronize)
    monkeypatch.setattr("torch.cuda._sleep", lambda cycles: queued.append(queued.pop() + cycles / SLEEP_CYCLES_PER_MS / 1e3))
    monkeypatch.setattr("gpu_card.time.perf_counter", lambda: clock[0])
    card = Card("cuda")
    with card.held_up(20) as held:
        if waits:
            card.synchronize()
        clock[0] += 0.001
    assert held.whole_ms == pytest.approx([21])
    assert held.share == pytest.approx(1 if waits else 1 / 21)


def test_calls_in_the_pattern_are_counted_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def event(name: str, start: float, device: str = "CPU") -> SimpleNamespace:
        return SimpleNamespace(
            name=name, time_range=SimpleNamespace(start=start, end=start + 5), device_type=SimpleNamespace(name=device)
        )

    steps = range(0, 100, 10)
    seen = [event("the pattern", start) for start in steps]
    seen += [event("the pattern", start, "CUDA") for start in steps]
    seen += [event("cudaStreamSynchronize", start + 1) for start in steps]
    seen += [event("cudaLaunchKernel", start + after) for start in steps for after in (1, 2, 7)]
    profiled = contextlib.nullcontext(SimpleNamespace(events=lambda: seen))
    monkeypatch.setattr(gpu_waits, "profile", lambda **_: profiled)
    monkeypatch.setattr(gpu_waits, "_train", lambda *_: None)
    assert gpu_waits._calls_by_step("p13", Card("cuda")) == ({"cudaLaunchKernel": 2, "cudaStreamSynchronize": 1}, True)


@pytest.mark.parametrize("name", gpu_waits.PATTERNS)
def test_every_pattern_is_a_program(name: str) -> None:
    compile(gpu_waits.source(name), name, "exec")
    compile(gpu_waits.source(name, "with around():"), name, "exec")
    assert "the pattern" not in gpu_waits.source(name)


@pytest.mark.parametrize("name", gpu_races.NAMES)
def test_every_race_has_a_careless_version(name: str) -> None:
    text = gpu_races.source(name)
    compile(text, name, "exec")
    compile(gpu_races.careless(name), name, "exec")
    assert "careless" not in text + gpu_races.careless(name)
    assert gpu_races.careless(name) != text


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path: Path, fixed: Path) -> None:
    arguments = ["--dry-run", "--out", tmp_path / "out", "--fixed", fixed, *only(*QUICK)]
    first = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert first.stdout is not None
    lines = [first.stdout.readline() for _ in range(2)]  # the title, and one item
    first.send_signal(signal.SIGKILL)
    first.wait(HANG_S)
    assert " s  " in lines[1]
    (killed,) = records(tmp_path / "out")
    second = gpu(*arguments)
    assert second.returncode == 0, second.stderr
    assert "0 failed; 0 left" in second.stdout
    before, after = records(tmp_path / "out")
    assert before == killed
    assert not before["items"].keys() & after["items"].keys()
    assert len(before["items"]) + len(after["items"]) == 6
    assert sorted(path.name for path in (tmp_path / "out").glob("*.json")) == ["chunk-1.json", "chunk-2.json"]


@pytest.mark.slow
def test_a_dry_run_does_everything_and_its_records_find_their_places(tmp_path: Path) -> None:
    """Of rules' cases, programs and waits, some: the others run through the same code."""
    out, copy = tmp_path / "out", tmp_path / "copy"
    written = subprocess.run([sys.executable, ROOT / GPU_DAY, "--prepare", tmp_path / "fixed"], timeout=HANG_S, check=False)
    assert written.returncode == 0
    some = only("rule/zero-grad-late*", "rule/csv-*", "program/gan", "waits/p[0-25]?", "runtime/*", "sums/*", "races/*")
    run = gpu("--dry-run", "--out", out, "--fixed", tmp_path / "fixed", "--budget-s", str(HANG_S), *some)
    assert "0 left" in run.stdout, run.stderr
    (chunk,) = records(out)
    assert {key: record["failed"] for key, record in chunk["items"].items() if "failed" in record} == {}
    for name in ("device", "driver", "torch", "cuda", "python", "date", "commit", "command"):
        assert name in chunk["about"]

    as_on_a_gpu = json.dumps(chunk).replace(json.dumps(chunk["about"]["device"]), '"NVIDIA Test 1"')
    as_on_a_gpu = as_on_a_gpu.replace('"cuda": null', '"cuda": "13.0"')
    (out / "chunk-1.json").write_text(as_on_a_gpu, encoding="utf-8")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    collected = subprocess.run(
        [sys.executable, copy / GPU_DAY, "--collect", out], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert collected.returncode == 0, collected.stderr
    paths = os.pathsep.join(str(copy / name) for name in ("", "rules", "runtime", "probe"))
    check = subprocess.run(
        [sys.executable, copy / "docs" / "generate.py", "--check"], env={**os.environ, "PYTHONPATH": paths}, timeout=HANG_S
    )
    assert check.returncode == 0
    page = (copy / "docs" / "gpu.md").read_text(encoding="utf-8")
    for words in (
        "## Rules: NVIDIA Test 1",
        "## Program gan, scale 1: NVIDIA Test 1",
        "## Waits: ",
        "## Races: ",
        "`x[gpu_idx] = 0`",
    ):
        assert words in page
    assert "No GPU record yet" not in page
    assert "NVIDIA Test 1" in (copy / "README.md").read_text(encoding="utf-8")
    assert (copy / "fixtures/zero-grad-late/measured/nvidia-test-1-torch2.13.0-launch.json").exists()
