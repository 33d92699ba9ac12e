"""`perflint profile` and `perflint check --profile`, on programs that run on the CPU."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import HANG_S, in_subprocess
from perflint_probe import lines as lines_module
from perflint_probe.lines import LineTimer, Timeline

from perflint.cli import run_for_tests
from perflint.profile.costs import Costs, ProfileError
from perflint.profile.statements import statements
from perflint.profile.text import lines as text_of

TRAIN = """\
import sys

import torch
from helper import slow, total
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(int(sys.argv[1])):
    x = slow(torch.randn(8, 4).to(device))
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    total(loss)
    if step > 1e9:
        break
print(len(losses))
"""
HELPER = """\
import time


def slow(x):
    time.sleep(
        0.03
    )
    return x


def total(loss):
    value = float(loss)
    return value
"""
TRAINING_LOOP_ROWS = range(10, 20)
SLEEP_MS = 29  # and not 30: clocks differ


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(TRAIN)
    (folder / "helper.py").write_text(HELPER)
    return folder


@pytest.fixture(scope="module")
def made(project: Path) -> tuple[dict[str, Any], str]:
    """The record of a profile of the project, and what was printed."""
    file = project.parent / "profile.json"
    done = in_subprocess("profile", "train.py", "--root", ".", "-q", "--json", str(file), "--", "6", cwd=project)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(file.read_text()), done.stdout.decode()


def at(record: dict[str, Any], file: str, line: int) -> dict[str, Any]:
    return next(row for row in record["files"][file]["statements"] if row["line"] == line)


def test_the_costliest_statement_leads(made: tuple[dict[str, Any], str]) -> None:
    record, printed = made
    sleep = at(record, "helper.py", 5)
    assert sleep["last_line"] == 7
    assert sleep["own_ms"] >= SLEEP_MS
    costs = {row["own_ms"]: f"{file}:{row['line']}" for file, about in record["files"].items() for row in about["statements"]}
    assert f"{costs[max(costs)]}  " in printed.splitlines()[3]
    assert "helper.py:5  time.sleep(" in printed


def test_time_in_own_functions_counts_for_their_lines(made: tuple[dict[str, Any], str]) -> None:
    call = at(made[0], "train.py", 11)
    assert call["whole_ms"] - call["own_ms"] >= SLEEP_MS


def test_warm_up_steps_and_set_up_do_not_count(made: tuple[dict[str, Any], str]) -> None:
    record = made[0]
    assert (record["unit"], record["units"], record["is_warm"]) == ("step", 4, True)
    timed = {row["line"] for row in record["files"]["train.py"]["statements"] if row["is_timed"]}
    assert timed == {*TRAINING_LOOP_ROWS, 20} - {19}
    assert record["unit_ms"] == pytest.approx(
        sum(row["own_ms"] for file in record["files"].values() for row in file["statements"])
    )


def test_operations_belong_to_the_line_that_ran(made: tuple[dict[str, Any], str]) -> None:
    names = {row["line"]: {o["name"] for o in row["operations"]} for row in made[0]["files"]["train.py"]["statements"]}
    assert any(name.startswith("aten::") for name in names[12])
    helper = at(made[0], "helper.py", 12)
    assert {"aten::item", "aten::_local_scalar_dense"} & {o["name"] for o in helper["operations"]}
    assert at(made[0], "helper.py", 5)["operations"] == []


def test_waits_without_a_finding_are_our_misses(made: tuple[dict[str, Any], str]) -> None:
    record, printed = made
    found = {(finding["file"], finding["row"]) for finding in record["findings"]}
    assert ("train.py", 16) in found
    assert at(record, "train.py", 16)["waits"] == pytest.approx(1.0)
    missed = {(row["file"], row["line"]): row for row in record["missed"]}
    assert ("train.py", 16) not in missed
    assert missed.keys() == ({("helper.py", 12)} if ("helper.py", 12) not in found else set())
    if missed:
        assert "waits for which no rule fired:\n  helper.py:12  1.00 per step" in printed


def test_the_report_names_findings_that_cost_nothing_here(made: tuple[dict[str, Any], str]) -> None:
    record, printed = made
    cheap = [finding for finding in record["findings"] if not finding["matters"]]
    assert ("findings that cost next to nothing here" in printed) == bool(cheap)
    assert "no GPU" in printed


def test_the_users_tree_is_left_alone(made: tuple[dict[str, Any], str], project: Path) -> None:
    assert {path.name for path in project.iterdir()} == {"train.py", "helper.py"}


def test_a_script_that_fails_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nraise RuntimeError('no data at all')\n")
    done = in_subprocess("profile", "train.py", "--root", ".", "-q", cwd=tmp_path)
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.startswith("Error: the script ended with exit code 1")
    assert "no data at all" in said
    assert "perflint/profile" not in said


def test_a_script_without_torch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    done = in_subprocess("profile", "train.py", "--root", ".", "-q", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode() == "Error: train.py does not import torch: there is nothing to profile\n"


BATCHES = """\
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=4, num_workers=2)
total = 0.0
for (x,) in loader:
    total += x.sum().item()
sys.exit(0)
"""


@pytest.mark.slow
def test_a_program_with_workers_and_without_steps_is_timed_by_batches(tmp_path: Path) -> None:
    (tmp_path / "evaluate.py").write_text(BATCHES)
    done = in_subprocess("profile", "evaluate.py", "--root", ".", "-q", "--json", "../p.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    record = json.loads((tmp_path.parent / "p.json").read_text())
    assert (record["unit"], record["units"], record["is_warm"]) == ("batch", 6, True)
    assert "ms per batch over 6 batches" in done.stdout.decode()


# -- the line timer, with a clock that stands still ------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def perf_counter_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(lines_module, "time", SimpleNamespace(perf_counter_ns=clock.perf_counter_ns))
    before = sys.gettrace()
    yield clock
    sys.settrace(before)


def timed(tmp_path: Path, clock: Clock, text: str, use: Callable[[LineTimer], None] = lambda timer: None) -> LineTimer:
    """Run a program that has `tick(ns)` and `timer`, under a timer."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text))
    timer = LineTimer(tmp_path)

    def tick(ns: int) -> None:
        clock.now += ns

    code = compile(path.read_text(), str(path), "exec")
    timer.start()
    try:
        exec(code, {"tick": tick, "timer": timer})
    finally:
        timer.stop()
    return timer


def own(timer: LineTimer) -> dict[int, int]:
    return {line: ns for (_, line), ns in timer.own_ns.items() if ns}


def whole(timer: LineTimer) -> dict[int, int]:
    return {line: ns for (_, line), ns in timer.whole_ns.items() if ns}


def test_own_and_whole_time(tmp_path: Path, clock: Clock) -> None:
    timer = timed(
        tmp_path,
        clock,
        """\
        def inner():
            tick(5)
            tick(7)
        def outer():
            tick(1)
            inner(); tick(2)
        outer()
        tick(3)
        """,
    )
    assert own(timer) == {2: 5, 3: 7, 5: 1, 6: 2, 8: 3}
    assert whole(timer) == {2: 5, 3: 7, 5: 1, 6: 14, 7: 15, 8: 3}


def test_recursion_counts_whole_time_once(tmp_path: Path, clock: Clock) -> None:
    timer = timed(
        tmp_path,
        clock,
        """\
        def down(n):
            tick(1)
            if n:
                down(n - 1)
        down(9)
        """,
    )
    assert own(timer) == {2: 10}
    assert whole(timer)[4] == 9
    assert whole(timer)[5] == 10


def test_generators_exceptions_and_libraries(tmp_path: Path, clock: Clock) -> None:
    timer = timed(
        tmp_path,
        clock,
        """\
        import functools
        def numbers():
            try:
                for i in range(3):
                    tick(10)
                    yield i
            finally:
                tick(100)
        for i in numbers():
            tick(1)
        first = numbers()
        next(first)
        first.close()
        tick(7)
        def fails():
            tick(2)
            raise ValueError
        try:
            fails()
        except ValueError:
            tick(3)
        functools.reduce(lambda a, b: tick(4), [1, 2, 3])
        tick(5)
        """,
    )
    assert own(timer) == {5: 40, 8: 200, 10: 3, 14: 7, 16: 2, 21: 3, 22: 8, 23: 5}
    assert whole(timer)[13] == 100
    assert whole(timer)[19] == 2


def test_pauses_and_what_came_before_a_restart_do_not_count(tmp_path: Path, clock: Clock) -> None:
    text = """\
        tick(1000)
        def step():
            tick(1)
            timer.pause(); tick(50); timer.restart(); tick(50); timer.resume()
            tick(2)
        step()
        tick(4)
        """
    timer = timed(tmp_path, clock, text)
    assert own(timer) == {5: 2, 7: 4}
    assert whole(timer) == {5: 2, 6: 2, 7: 4}
    timer.take_back()
    assert own(timer) == {1: 1000, 3: 1, 5: 2, 7: 4}
    assert whole(timer)[6] == 3


def test_the_timeline_knows_where_the_program_was(tmp_path: Path, clock: Clock) -> None:
    timeline = Timeline()
    timer = LineTimer(tmp_path)
    path = tmp_path / "program.py"
    path.write_text("def inner():\n    tick(5)\ninner(); tick(3)\ntick(2)\n")

    def tick(ns: int) -> None:
        clock.now += ns

    timer.start()
    timer.record_timeline(timeline)
    exec(compile(path.read_text(), str(path), "exec"), {"tick": tick})
    timer.stop()
    spent: dict[int, int] = {}
    ends = [*timeline.starts_ns[1:], clock.now]
    for i, (start, end) in enumerate(zip(timeline.starts_ns, ends, strict=True)):
        line = timeline.line(i)
        if line is not None and end > start:
            spent[line[1]] = spent.get(line[1], 0) + end - start
    assert spent == {2: 5, 3: 3, 4: 2}


# -- statements, costs, ranking --------------------------------------------------------------------------------------


def test_rows_belong_to_their_innermost_statement() -> None:
    text = b"""\
@decorated
def f(
    a,
):
    '''Doc.'''
    for x in (
        a
    ):
        g(
            x
        )
    else:
        h(); i()
    match a:
        case 1:
            j()
    with a, \\
         a:
        try:
            k()
        except E:
            l()
"""
    of = statements(text)
    spans = {row: (statement.first, statement.last, statement.block_end) for row, statement in of.items()}
    assert spans[1] == spans[3] == (1, 4, 22)
    assert spans[6] == spans[8] == (6, 8, 13)
    assert spans[9] == spans[11] == (9, 11, 11)
    assert spans[13] == (13, 13, 13)
    assert spans[14] == (14, 15, 16)
    assert spans[17] == spans[18] == (17, 18, 22)
    assert spans[20] == (20, 20, 20)
    assert spans[22] == (22, 22, 22)


LOOP = """\
import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def train(model, loader, optimizer, criterion):
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad:
        pass
    return sum(losses)


def late(model, loader, optimizer, criterion):
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


THREE_RULES = ["--isolated", "--select", "item-every-step,zero-grad-late,no-grad-without-call"]


def _statement(line: int, ms: float, *, block_end: int | None = None, device_ms: float = 0.0) -> dict[str, Any]:
    return {
        "line": line,
        "last_line": line,
        "block_end": block_end or line,
        "text": "...",
        "is_timed": True,
        "own_ms": ms,
        "whole_ms": ms,
        "device_ms": device_ms,
        "wait_ms": 0.0,
        "waits": 0.0,
        "what": [],
        "operations": [],
    }


@pytest.fixture
def profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Write the loop and a profile of it that gives lines costs; returns a runner of `check`."""
    import hashlib

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(LOOP)

    def check(costs: dict[int, float], *options: str, device: str = "NVIDIA H200", unit_ms: float = 100.0) -> Any:
        record = {
            "format": 1,
            "kind": "profile",
            "machine": {"device": device},
            "unit": "step",
            "unit_ms": unit_ms,
            "files": {
                "train.py": {
                    "sha256": hashlib.sha256(LOOP.encode()).hexdigest(),
                    "statements": [_statement(line, ms) for line, ms in costs.items()],
                }
            },
        }
        Path("profile.json").write_text(json.dumps(record))
        return run_for_tests(["check", "train.py", *THREE_RULES, "--profile", "profile.json", *options])

    return check


def rules_of(done: Any) -> list[tuple[str, float | None]]:
    return [(found["rule"], found["measured_ms_per_step"]) for found in json.loads(done.stdout)]


def test_check_ranks_by_cost(profiled: Callable[..., Any]) -> None:
    done = profiled({11: 5.0, 12: 70.0, 20: 9.0}, "--output-format", "json")
    assert rules_of(done) == [("no-grad-without-call", 70.0), ("zero-grad-late", 9.0), ("item-every-step", 5.0)]
    concise = profiled({11: 5.0, 12: 70.0, 20: 9.0}, "--output-format", "concise").stdout.splitlines()
    assert concise[0].startswith("train.py:12:")
    assert concise[0].endswith("(70 ms per step)")
    assert "measured: 70 ms per step" in profiled({11: 5.0, 12: 70.0, 20: 9.0}, "--output-format", "full").stdout
    first, *_ = [line for line in profiled({11: 5.0, 12: 70.0, 20: 9.0}).stdout.splitlines() if line.startswith("  safe")]
    assert "(70 ms per step)" in first


def test_check_hides_what_costs_nothing_and_says_so(profiled: Callable[..., Any]) -> None:
    done = profiled({11: 0.0999, 12: 70.0, 20: 9.0})
    assert "item-every-step" not in done.stdout
    assert "1 finding not shown: less than 0.10% of a step in the profile (--profile-threshold 0 shows all)." in done.stdout
    assert "without a GPU" not in done.stdout
    assert "item-every-step" in profiled({11: 0.0999, 12: 70.0, 20: 9.0}, "--profile-threshold", "0").stdout
    assert "without a GPU" in profiled({11: 0.0}, device="cpu").stdout


def test_lines_that_did_not_run_errors_and_memory_stay(profiled: Callable[..., Any]) -> None:
    done = profiled({12: 0.0, 20: 0.0}, "--output-format", "json")
    assert {rule for rule, _ in rules_of(done)} == {"no-grad-without-call", "zero-grad-late", "item-every-step"}
    assert dict(rules_of(done))["item-every-step"] is None


def test_what_is_measured_is_shown_though_it_seems_worth_little(
    profiled: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    monkeypatch.setattr(f"{__name__}.THREE_RULES", ["--isolated", "--no-runtime"])
    done = profiled({11: 5.0, 12: 70.0, 20: 9.0}, "--output-format", "json")
    assert ("item-every-step", 5.0) in rules_of(done)
    unmeasured = profiled({12: 70.0, 20: 9.0}, "--output-format", "json")
    assert "item-every-step" not in dict(rules_of(unmeasured))


def test_hiding_everything_is_clean(profiled: Callable[..., Any]) -> None:
    done = profiled({11: 0.0}, "--ignore", "zero-grad-late,no-grad-without-call")
    assert done.exit_code == 0
    assert "1 finding not shown" in done.stdout


def test_a_file_that_changed_is_not_ranked(profiled: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("\n" + LOOP)
    done = profiled({11: 0.0, 12: 0.0})
    assert "item-every-step" in done.stdout
    assert "train.py has changed since it was profiled: its findings are not ranked." in done.stdout


def test_json_without_a_profile_is_as_it_was(profiled: Callable[..., Any]) -> None:
    plain = run_for_tests(["check", "train.py", "--isolated", "--output-format", "json"])
    assert not any("measured_ms_per_step" in found for found in json.loads(plain.stdout))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--profile", "nowhere.json"], "nowhere.json: cannot be read: No such file or directory"),
        (["--profile", "train.py"], "train.py: this is no record of `perflint profile --json`"),
        (["--profile", "list.json"], "list.json: this is no record of `perflint profile --json`"),
        (["--profile-threshold", "1"], "--profile-threshold needs --profile"),
        (["--profile", "nowhere.json", "--fix"], "--profile ranks what is reported"),
    ],
)
def test_wrong_use_is_said_in_one_line(options: list[str], said: str, profiled: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    done = run_for_tests(["check", "train.py", "--isolated", *options])
    assert done.exit_code == 2
    assert said in done.stderr


def test_costs_know_files_by_the_end_of_their_paths(tmp_path: Path) -> None:
    record: dict[str, Any] = {"unit": "step", "unit_ms": 1.0, "machine": {"device": "cpu"}, "files": {}}
    for name in ("data.py", "models/data.py"):
        record["files"][name] = {
            "sha256": "",
            "statements": [_statement(3, 1.0, block_end=5), _statement(4, 2.0, device_ms=6.0)],
        }
    costs = Costs(record)
    assert costs.file("/home/a/project/models/data.py") == "models/data.py"
    assert costs.file("/home/a/project/data.py") == "data.py"
    assert costs.file("/home/a/project/mydata.py") is None
    block = costs.of("data.py", 3)
    assert block is not None
    assert (block.ms, block.most_ms) == (1.0, 9.0)
    assert costs.of("data.py", 9) is None
    with pytest.raises(ProfileError):
        Costs.load(str(tmp_path / "none.json"))


def test_the_table_of_a_profile_with_a_gpu(made: tuple[dict[str, Any], str]) -> None:
    record = copy.deepcopy(made[0])
    record["machine"]["device"] = "NVIDIA H200"
    at(record, "train.py", 14).update(device_ms=1000.0, wait_ms=2.5)
    text = "\n".join(text_of(record))
    assert "device" in text.splitlines()[2]
    assert "train.py:14" in text.splitlines()[3]
    assert "1000.000     2.500" in text
    assert "without a GPU" not in text


# -- what torch's profiler recorded, with made-up events of a GPU -----------------------------------------------------


def _event(name: str, start_us: float, **more: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "time_range": SimpleNamespace(start=start_us),
        "device_type": SimpleNamespace(name="CPU"),
        "is_user_annotation": False,
        "kernels": [],
        "thread": 1,
        "self_cpu_time_total": 1.0,
        "cpu_time_total": 1.0,
    }
    return SimpleNamespace(name=name, **{**fields, **more})


def test_time_on_the_device_belongs_to_the_line_that_launched_it() -> None:
    operations_module = pytest.importorskip("perflint_probe.operations")
    operations = object.__new__(operations_module.Operations)
    timeline = operations.timeline = Timeline()
    forward, backward, read = ("train.py", 12), ("train.py", 14), ("train.py", 16)
    start = 5_000_000
    for moment_us, line in ((0, forward), (100, backward), (200, read), (900, None)):
        timeline.note(start + 1000 * moment_us, line)
    kernel = [SimpleNamespace(duration=40.0)]
    events = [
        _event(operations_module.MARK, -20.0),
        _event(operations_module.MARK, -10.0),
        _event("aten::mm", 50.0, kernels=kernel),
        _event("aten::mm", 60.0, kernels=kernel),
        _event("autograd::engine::evaluate_function: MmBackward0", 120.0, thread=2),
        _event("aten::mm", 130.0, kernels=kernel, thread=2),  # in the thread that runs the backward pass
        _event("aten::copy_", 140.0, thread=3),  # in a thread that pins batches
        _event("Optimizer.step#SGD.step", 150.0, is_user_annotation=True, kernels=kernel),
        _event("cudaStreamSynchronize", 300.0, self_cpu_time_total=500.0, cpu_time_total=500.0),
        _event("aten::mm", 320.0, device_type=SimpleNamespace(name="CUDA")),  # a kernel of its own
        _event("aten::add", 1000.0),  # at no line of the program
    ]
    operations._profile = SimpleNamespace(events=lambda: events)
    operations._marks = [(start - 21_000, start - 19_500), (start - 10_500, start - 9_000)]
    rows = {(row["file"], row["line"]): row for row in operations.rows()}
    assert rows.keys() == {forward, backward, read}
    assert [rows[line]["device_ns"] for line in (forward, backward, read)] == [80_000, 40_000, 0]
    assert [rows[line]["wait_ns"] for line in (forward, backward, read)] == [0, 0, 500_000]
    assert rows[backward]["operations"] == [["aten::mm", 1000]]
    assert rows[read]["operations"] == [["cudaStreamSynchronize", 500_000]]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "options"), [("profile", []), ("verify", ["--compile"])])
def test_the_record_is_written_though_nobody_reads_the_report(
    project: Path, tmp_path: Path, command: str, options: list[str]
) -> None:
    file = tmp_path / "record.json"
    arguments = [command, "train.py", "--root", ".", "-q", *options, "--json", str(file), "--", "6"]
    with subprocess.Popen(
        [sys.executable, "-m", "perflint", *arguments], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.wait(HANG_S)
    assert json.loads(file.read_text())["command"].startswith(f"perflint {command}")
