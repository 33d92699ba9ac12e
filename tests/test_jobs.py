"""Several processes: the same report as from one, whatever happens to them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from conftest import BAD, FIXTURES, HANG_S, ROOT, Project, in_process, in_subprocess
from hypothesis import given
from hypothesis import strategies as st

from perflint.project.config import Config
from perflint.project.discover import Found
from perflint.project.files import read_with_stat
from perflint.rule.registry import all_rules
from perflint.run import in_worker, parallel, processes, run, workers
from perflint.run.cores import cpu_quota
from perflint.run.dealing import ParallelError, batches, stretches
from perflint.run.engine import check_item
from perflint.run.executors import opened
from perflint.run.outcome import Item
from perflint.run.result import Result
from perflint.run.run import Run
from perflint.run.workers import Workers

forks = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked on Linux only")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are started however little there is to do."""
    monkeypatch.setattr(workers, "WORTHWHILE_BYTES", 0)
    monkeypatch.setattr(workers, "WORTHWHILE_BYTES_SPAWNED", 0)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training program and the scripts of all rules, as one project."""
    root = tmp_path_factory.mktemp("programs")
    for path in [*FIXTURES.glob("programs/lstm/**/*.py"), *FIXTURES.glob("*/train.py"), *FIXTURES.glob("no-*/cases.py")]:
        target = root / path.relative_to(FIXTURES)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (root / "perflint.toml").write_text('per-file-ignores = { "programs/lstm/**" = ["device-sync"] }\n')
    (root / "broken.py").write_text("import torch\ndef f(:\n")
    return root


def checked(folder: Path, who: Workers) -> Result:
    """A run over a folder."""
    this = Run(all_rules())
    return this.check(this.find([str(folder)]), workers=who)


# -- one report ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("output_format", ["json", "full"])
def test_the_report_does_not_depend_on_the_number_of_jobs(
    programs: Path, monkeypatch: pytest.MonkeyPatch, output_format: str
) -> None:
    monkeypatch.chdir(programs)
    alone, forked = [in_process("check", "--select=all", "--output-format", output_format, "-j", n) for n in ("1", "3")]
    monkeypatch.setattr(processes, "can_fork", lambda: False)
    spawned = in_process("check", "--select=all", "--output-format", output_format, "-j", "3")
    for several in (forked, spawned):
        assert several.stdout_bytes == alone.stdout_bytes
        assert (several.exit_code, several.stderr) == (alone.exit_code, alone.stderr) == (1, "")
    assert len(alone.stdout) > 5_000


@pytest.mark.usefixtures("eager")
def test_workers_do_the_same_work_and_no_more(programs: Path) -> None:
    counts = []
    for jobs in (1, 3):
        this = Run(all_rules(), None)
        result = this.check(this.find([str(programs)]), workers=Workers(jobs))
        counts.append([session.counters for session in this._sessions.values()])
        assert len(result.checked) == sum(c.files for c in counts[-1]) > 25
    assert counts[0] == counts[1]


@pytest.mark.usefixtures("eager")
def test_fixing_does_not_depend_on_the_number_of_jobs(programs: Path, tmp_path: Path) -> None:
    trees = []
    for jobs in ("1", "3"):
        tree = tmp_path / jobs
        shutil.copytree(programs, tree)
        done = in_process("fix", "--unsafe-fixes", "--select=all", "-j", jobs, str(tree))
        trees.append(
            ({path.relative_to(tree): path.read_bytes() for path in tree.rglob("*.py")}, done.stdout.replace(str(tree), ""))
        )
    assert trees[0] == trees[1]
    assert trees[0][0] != {path.relative_to(programs): path.read_bytes() for path in programs.rglob("*.py")}


# -- who gets what -------------------------------------------------------------------------------------------------------


def items(sizes: list[tuple[int, int]]) -> list[Item]:
    return [Item(f"/{folder}/{number}.py", "", False, 0, size) for number, (folder, size) in enumerate(sorted(sizes))]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1000))), st.integers(1, 9))
def test_each_file_is_dealt_out_once_and_in_order(sizes: list[tuple[int, int]], jobs: int) -> None:
    files = items(sizes)
    cut = batches(files, jobs)
    dealt = [batch for stretch in stretches(cut, jobs) for batch in stretch]
    assert dealt == cut
    assert [item for batch in cut for item in batch.items] == files
    assert all(files[batch.first] == batch.items[0] for batch in cut)


def test_stretches_are_of_about_the_same_size_and_keep_small_folders_whole() -> None:
    files = items([(folder, 100) for folder in range(200) for _ in range(3)])
    cut = batches(files, 4)
    assert all(len({os.path.dirname(item.path) for item in batch.items}) * 3 == len(batch.items) for batch in cut)
    sizes = [sum(batch.size for batch in stretch) for stretch in stretches(cut, 4)]
    assert max(sizes) < 1.2 * min(sizes)


def test_a_run_holds_the_files_of_one_project_at_a_time(project: Project) -> None:
    for name in ("a", "b"):
        project.write({f"{name}/pyproject.toml": "", f"{name}/train.py": BAD, f"{name}/user.py": "from train import *\n" + BAD})
    this = Run(all_rules())
    result = this.check(this.find([str(project.root)]))
    assert len(result.findings) == 4
    assert [session.project.holds_texts for session in this.sessions] == [False, True]


def test_a_small_run_starts_no_process(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "distributed", None)
    project.write({"train.py": BAD})
    assert project.run("check", "-j", "4").exit_code == 1


def test_a_large_run_starts_as_many_processes_as_there_are_jobs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def recorded(sessions: Any, items: Any, who: Workers, unsaved: Any) -> Any:
        started.append(who.jobs)
        return ((place, check_item(sessions, item)) for place, item in enumerate(items))

    monkeypatch.setattr(parallel, "distributed", recorded)
    monkeypatch.setattr("perflint.run.cores.available_cores", lambda: 7)
    project.write({f"train{n}.py": "# " + 300_000 * "x" for n in range(16)})
    for jobs in (["-j", "3"], [], ["-j", "1"]):
        assert in_process("check", *jobs, str(project.root)).exit_code == 0
    assert started == [3, 7]


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"user/one/cpu.max": "max 100000", "user/cpu.max": "50000 100000"}, 0.5),
        ({"cpu/user/one/cpu.cfs_quota_us": "-1", "cpu/user/one/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/user/one/cpu.cfs_quota_us": "400000\n", "cpu/user/one/cpu.cfs_period_us": "100000\n"}, 4),
    ],
)
def test_a_container_s_share_of_the_cores_counts(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    groups = "4:cpu,cpuacct:/user/one\n1:memory:/x\n" if any(n.startswith("cpu/") for n in files) else "0::/user/one\n"
    assert cpu_quota(groups, str(tmp_path)) == cores


# -- when something goes wrong -------------------------------------------------------------------------------------------

WITH_RULE = """
import os, pathlib, signal, sys, time
from dataclasses import replace
import perflint.rule.registry, perflint.run.workers
from perflint.api import Severity, rule

rules, parent = perflint.rule.registry.all_rules(), os.getpid()

@rule(category="device-sync", severity=Severity.WARNING, needs=[("torch",)])
def check(code):
    name = pathlib.Path(code.source.path).stem
    BODY
    return iter(())

perflint.rule.registry.all_rules = lambda: (*rules, replace(check, name="trouble"))
perflint.run.workers.WORTHWHILE_BYTES = 0
from perflint.__main__ import main
main()
"""

RAISES = """if name in ("f2", "f5"): raise ValueError(name)"""
KILLS = """if name in ("f2", "f5") and os.getpid() != parent: os.kill(os.getpid(), signal.SIGKILL)"""
KILLS_ALL = """if os.getpid() != parent: os.kill(os.getpid(), signal.SIGKILL)"""
MARKS = """pathlib.Path(str(os.getpid()) + ".worker").touch()"""
SLEEPS = f"""{MARKS}; time.sleep({HANG_S})"""
WORKS_UNTIL_ITS_PARENT_IS_GONE = f"""{MARKS}
    while os.getppid() == parent: time.sleep(0.01)"""


@pytest.fixture
def eight(project: Project) -> Project:
    """A project of eight files in four folders, each with a finding."""
    return project.write({f"d{n // 2}/f{n}.py": BAD for n in range(8)})


def with_rule(body: str, project: Project, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return in_subprocess("check", "--isolated", *arguments, cwd=project.root, code=WITH_RULE.replace("BODY", body))


@forks
def test_a_rule_that_fails_is_reported_as_in_one_process(eight: Project) -> None:
    alone, several = (with_rule(RAISES, eight, "-j", jobs, "--output-format", "concise") for jobs in ("1", "4"))
    assert alone.returncode == several.returncode == 2
    assert alone.stdout == several.stdout
    assert b"f2.py:1:1: internal-error the rule" in several.stdout
    assert b"in check\n" in several.stderr  # where it was raised, in the other process
    assert b"ValueError: f2\n" in several.stderr


@forks
@pytest.mark.parametrize("body", [KILLS, KILLS_ALL])
def test_a_killed_worker_costs_no_finding(eight: Project, body: str) -> None:
    alone, several = (with_rule(body, eight, "-j", jobs) for jobs in ("1", "3"))
    assert (alone.returncode, alone.stderr) == (1, b"")
    assert several.stdout == alone.stdout
    assert several.returncode == 1
    lines = several.stderr.decode().splitlines()
    assert lines
    assert all("worker was lost (process " in line and "ended with signal 9)" in line for line in lines)


@forks
@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_ends_all_processes_without_a_traceback(eight: Project, whole_group: bool) -> None:
    with started(SLEEPS, eight, "-j", "2") as process:
        wait_until(lambda: len(list(eight.root.glob("*.worker"))) == 2)
        if whole_group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=HANG_S)
        assert (stdout, stderr.strip()) == (b"", b"")
    assert process.returncode == 130
    assert not any(Path(f"/proc/{mark.stem}").exists() for mark in eight.root.glob("*.worker"))


@forks
def test_workers_do_not_outlive_a_killed_run(eight: Project) -> None:
    with started(WORKS_UNTIL_ITS_PARENT_IS_GONE, eight, "-j", "3") as process:
        wait_until(lambda: len(list(eight.root.glob("*.worker"))) == 3)
        process.kill()
        process.wait()
    wait_until(lambda: not any(Path(f"/proc/{mark.stem}").exists() for mark in eight.root.glob("*.worker")))


def started(body: str, project: Project, *arguments: str) -> subprocess.Popen[bytes]:
    """A run with a rule, in a process group of its own."""
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "probe", ROOT / "rules"))
    return subprocess.Popen(
        [sys.executable, "-c", WITH_RULE.replace("BODY", body), "check", "--isolated", *arguments],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that other processes bring about."""
    begin = time.monotonic()
    while not holds():
        assert time.monotonic() - begin < HANG_S, "it did not come about"
        time.sleep(0.05)


# -- executors -----------------------------------------------------------------------------------------------------------


def spawned(workers: int) -> ProcessPoolExecutor:
    """Processes that inherit nothing."""
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


def two_workers() -> list[ProcessPoolExecutor]:
    """A cluster of two processes, each behind an executor of its own."""
    return [spawned(1), spawned(1)]


def test_a_cluster_finds_the_same(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(programs)
    alone = in_process("check", "--select=all", "-j", "1")
    cluster = in_process("check", "--select=all", "--executor", f"{__name__}:two_workers")
    assert (cluster.stdout, cluster.stderr, cluster.exit_code) == (alone.stdout, "", 1)


def test_a_worker_of_a_cluster_gets_each_file_once_and_needs_no_disk(programs: Path) -> None:
    """The files exist in memory only, at paths where no worker could read them."""
    texts = {f"/nowhere/{path.relative_to(programs)}": path.read_bytes() for path in programs.rglob("*.py")}
    results = []
    first, second = two_workers()
    with first, second:
        cluster = Workers(executors=[first, second])
        for who in (Workers(), cluster):
            this, found = Run(all_rules(), Config()), Found()
            for path, data in sorted(texts.items()):
                this.text(path, data, found)
            results.append(this.check(found, workers=who))
    assert results[0].checked == results[1].checked
    assert len(results[0].findings) > 20
    assert len(cluster.traffic) == 2
    assert all(counts == dict.fromkeys(texts, 1) for counts in cluster.traffic.values())


def test_one_executor_may_stand_for_several_workers(programs: Path) -> None:
    with spawned(2) as executor:
        assert checked(programs, Workers(2, [executor])).checked == checked(programs, Workers()).checked


def test_a_worker_that_was_started_anew_is_told_again(programs: Path) -> None:
    """An engine may replace a worker behind its back."""

    class Forgetful(ThreadPoolExecutor):
        def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
            if function is in_worker.check_batch and arguments[1] is None and not self.forgot:
                self.forgot = True
                in_worker.forget_run(arguments[0])
            return super().submit(function, *arguments, **named)

        forgot = False

    with Forgetful(1) as executor:
        this, again = Run(all_rules()), Run(all_rules())
        cluster = Workers(1, [executor])
        assert (
            this.check(this.find([str(programs)]), workers=cluster).checked == again.check(again.find([str(programs)])).checked
        )
        assert executor.forgot
    assert {n for counts in cluster.traffic.values() for n in counts.values()} == {2}


def test_a_worker_with_another_version_is_refused(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "made_by", lambda: ("0.0.1", "3.9"))
    refused = pytest.raises(ParallelError, match=r"has perflint .* and this is 0\.0\.1 on Python 3\.9")
    with ThreadPoolExecutor(1) as executor, refused:
        checked(programs, Workers(1, [executor]))


NOTHING: list[Any] = []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("here", "here: write dask:ADDRESS or MODULE:NAME"),
        ("no_such_module:x", "No module named 'no_such_module'"),
        (f"{__name__}:no_such_name", "has no attribute 'no_such_name'"),
        (f"{__name__}:ROOT", "is no executor: it has no `submit`"),
        (f"{__name__}:NOTHING", "there is no executor in it"),
    ],
)
def test_an_executor_that_cannot_be_had_is_a_usage_error(project: Project, name: str, complaint: str) -> None:
    project.write({"train.py": BAD})
    done = project.run("check", "--executor", name)
    assert done.exit_code == 2
    assert complaint in done.stderr


@pytest.mark.parametrize("key", ["executor", "jobs"])
def test_no_configuration_file_names_an_executor(project: Project, key: str) -> None:
    project.write({"train.py": BAD, "perflint.toml": f'{key} = "os:system"\n'})
    done = project.run("check")
    assert done.exit_code == 2
    assert f"unknown key `{key}`" in done.stderr


def test_dask(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(programs)
    alone = in_process("check", "--select=all", "-j", "1")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as cluster:
        done = in_process("check", "--select=all", "--executor", f"dask:{cluster.scheduler_address}")
        assert (done.stdout, done.stderr, done.exit_code) == (alone.stdout, "", 1)
        with opened(f"dask:{cluster.scheduler_address}") as executors:
            who = Workers(executors=executors)
            checked(programs, who)
            assert [set(counts.values()) for counts in who.traffic.values()] == [{1}, {1}]


# -- what a small question does not touch --------------------------------------------------------------------------------


def test_a_file_that_the_gate_stops_is_the_only_one_that_is_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write({"pyproject.toml": "", "plain.py": "import torch\nx = 1\n", "other.py": BAD, "far/away.py": BAD})
    read: list[str] = []
    monkeypatch.setattr(run, "read_with_stat", lambda path: read.append(path) or read_with_stat(path))
    monkeypatch.setattr(run, "walk", lambda *_: pytest.fail("the tree was walked"))
    this = Run(all_rules())
    plain = str(project.root / "plain.py")
    assert this.check(this.find([plain])).findings == []
    assert read == [plain]
