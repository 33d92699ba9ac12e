"""`perflint verify`: it tells wrong changes from right ones, whatever the scripts do, and leaves the user's files alone."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S, ROOT, Project, in_subprocess
from probe_in_fork import ProgramFailed, run_in_fork
from test_traps import PRELUDE, TRAPS

from perflint.verify.comparison import compare
from perflint.verify.runs import Run
from perflint.verify.timing import interval, order, speed

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="programs run in forks")

# -- what it says ---------------------------------------------------------------------------------------------------------


def as_program(text: str) -> str:
    return f"{PRELUDE}\ntorch.manual_seed(0); np.random.seed(0); random.seed(0)\n{text}\nprint(repr(r))\n"


@pytest.mark.slow
def test_every_careless_fix_is_told_from_the_original() -> None:
    """The 101 traps: what a careless fixer makes of them computes something else, and `verify` says so."""
    missed = []
    for name, trap in TRAPS.items():
        originals = []
        try:
            originals = [run_in_fork(as_program(trap["original"])) for _ in range(2)]
            changed = run_in_fork(as_program(trap["careless"]))
        except ProgramFailed:
            # one of the two ends with an error: `verify` says so of the changed version
            assert "Error" in trap["original_result"] + trap["careless_result"], name
            continue
        if compare(originals, [changed]).verdict != "different" and trap["original_result"] != trap["careless_result"]:
            missed.append(name)
    assert missed == []


NAIVE = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(12):
    x, y = torch.randn(5, 8), torch.randint(0, 3, (5,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(sum(losses) / len(losses))
"""
RIGHT = NAIVE.replace("losses.append(loss.item())", "losses.append(loss.detach())").replace(
    "print(sum(losses)", "losses = torch.stack(losses).tolist()\nprint(sum(losses)"
)


def test_a_right_fix_is_never_called_different() -> None:
    originals = [run_in_fork(NAIVE) for _ in range(3)]
    verdicts = [compare(originals, [run_in_fork(RIGHT)]).verdict for _ in range(20)]
    assert verdicts == ["identical"] * 20


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("    loss.backward()\n", "    loss.backward(); optimizer.zero_grad()\n", "loss of backward pass 2"),
        ("lr=1e-2", "lr=1e-2, eps=1e-6", "loss of backward pass 2"),
        ("losses = []", "losses = []; torch.randn(1)", "loss of backward pass 1"),
        ("    optimizer.zero_grad()\n", "", "loss of backward pass 3"),
        ("range(12)", "range(11)", "number of backward passes"),
        ("print(sum(losses)", "print(0.5 + sum(losses)", "printed line 1"),
        ("print(sum", "torch.randn(3)\nprint(sum", "random state (torch)"),
        ("print(sum", "model[0].weight.data += 1\nprint(sum", "final parameters"),
        ("print(sum", "print('done')\nprint(sum", "number of printed lines"),
        ("print(sum", "optimizer.step()\nprint(sum", "final parameters"),
    ],
)
def test_a_wrong_fix_is_told_with_the_first_place_that_differs(before: str, after: str, what: str) -> None:
    assert before in NAIVE
    originals = [run_in_fork(NAIVE) for _ in range(2)]
    found = compare(originals, [run_in_fork(NAIVE.replace(before, after))])
    assert found.verdict == "different"
    assert found.differences[0].what == what


def test_losses_that_the_original_does_not_reproduce_are_held_against_its_own_spread() -> None:
    def with_noise(noise: int, text: str = NAIVE) -> Run:
        return run_in_fork(text.replace("    loss.backward()", f"    loss = loss * (1 + {noise}e-7)\n    loss.backward()"))

    originals = [with_noise(noise) for noise in (0, 3, 1, 4)]
    same = compare(originals, [with_noise(2)])
    assert same.verdict == "within the original's spread"
    assert 0 < same.spread < 1e-3
    assert "losses of 12 backward passes" in same.not_reproducible
    other = compare(originals, [with_noise(2, NAIVE.replace("lr=1e-2", "lr=2e-2"))])
    assert other.verdict == "different"


def test_a_line_that_prints_the_time_is_not_compared() -> None:
    timed = NAIVE + "import time; print('took', time.perf_counter())\n"
    found = compare([run_in_fork(timed) for _ in range(2)], [run_in_fork(timed)])
    assert found.verdict == "identical"
    assert "1 of 2 printed lines" in found.not_reproducible


def test_a_program_that_shows_nothing_is_not_called_identical() -> None:
    silent = "import torch\ntorch.ones(3)\n"
    assert compare([run_in_fork(silent), run_in_fork(silent)], [run_in_fork(silent)]).verdict == "nothing to compare"


@pytest.mark.parametrize(
    ("made", "other"),
    [
        ("torch.eye(3).to_sparse()", "2 * torch.eye(3).to_sparse()"),
        ("torch.eye(3).to_sparse()", "torch.eye(3).flip(0).to_sparse()"),
        ("torch.eye(3).to_sparse_csr()", "torch.eye(3).flip(0).to_sparse_csr()"),
        ("torch.eye(4).to_sparse_csc()", "2 * torch.eye(4).to_sparse_csc()"),
        ("torch.eye(4).to_sparse_bsr((2, 2))", "torch.eye(4).flip(0).to_sparse_bsr((2, 2))"),
        ("torch.eye(3).to_mkldnn()", "(2 * torch.eye(3)).to_mkldnn()"),
        (
            "torch.quantize_per_tensor(torch.eye(3), 0.5, 0, torch.qint8)",
            "torch.quantize_per_tensor(torch.eye(3), 0.25, 0, torch.qint8)",
        ),
        ("torch.tensor([1 + 2j]).conj()", "torch.tensor([1 + 2j])"),
        ("torch.tensor([1 + 2j]).conj().imag", "torch.tensor([1 + 2j]).imag"),
        (
            "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])",
            "torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])",
        ),
        ("torch.ones(2, device='meta')", "torch.ones(3, device='meta')"),
    ],
)
def test_buffers_of_any_layout_are_compared(made: str, other: str) -> None:
    """An adjacency matrix of a graph network is a sparse buffer."""
    before, again, after = (
        run_in_fork(NAIVE.replace("optimizer =", f"model.register_buffer('adjacency', {buffer})\noptimizer ="), "count")
        for buffer in (made, made, other)
    )
    assert before.data["buffers"] == again.data["buffers"] != after.data["buffers"]


def test_waits_are_counted_by_line() -> None:
    text = NAIVE.replace("losses.append(loss.item())", "losses.append(loss.item()); print(f'{loss.item():.3f}')")
    counted = run_in_fork(text, "count").data
    rows = {row["line"]: row["count"] for row in counted["reads"]}
    assert rows == {15: 24}
    assert counted["waits_by_step"][1:] == [2] * 11
    assert run_in_fork(RIGHT, "count").data["reads"][0]["count"] == 1
    assert run_in_fork(NAIVE, "count").roots == run_in_fork(NAIVE).roots


ON_DEVICE = """
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
def scale(values):
    return (values / values.abs().max()).to(device)
for _ in range(3):
    x = torch.ones(3, 4)
    weight = torch.tensor([1.0, 2.0], device=device)
    start = torch.zeros(2, device=device)
    loss = (model(x.to(device)) * weight + start + model(scale(x))).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    on_host = loss.detach().cpu()
    on_host.numpy(), on_host.view(1)[0].item()
    loss.to("cpu").item()
    x.sum().item(), torch.zeros(2, device="cpu").sum().item()
    start.sum().item()
    y = torch.ones(3)
    z = y.to(device)
    z[0].item(), y[0].item()
"""


@pytest.mark.parametrize("asked", ['device.type == "cuda"', "'cuda' in str(device)"])
def test_a_copy_that_asks_whether_its_device_is_cuda_waits_for_none(asked: str) -> None:
    counted = run_in_fork(ON_DEVICE.replace("z = y.to(device)", f"z = y.to(device, non_blocking={asked})"), "count").data
    assert [row["what"] for row in counted["transfers"] if row["line"] == 20] == ["to"]


def test_a_read_of_tensors_that_are_not_on_cuda_alone_waits_for_no_cuda_device() -> None:
    counted = run_in_fork(
        ON_DEVICE.replace("start.sum().item()", "start if start.is_cuda else start.sum().item()"), "count"
    ).data
    assert 18 not in {row["line"] for row in counted["reads"]}


def test_a_list_of_copies_waits_once_when_somebody_looks() -> None:
    """A run on the host stands for one on CUDA, where `HostList` waits for no single copy."""
    program = ON_DEVICE.replace("    loss.backward()", "    kept.add_array(loss.detach())").replace(
        "for _", "kept = HostList()\nfor _"
    )
    counted = run_in_fork("from perflint_runtime import HostList\n" + program.partition("    torch.nn.utils")[0], "count").data
    assert [(row["what"].partition(" ")[0], row["count"]) for row in counted["reads"]] == [("cpu", 1)]
    assert [row["count"] for row in counted["transfers"] if row["what"].startswith("cpu")] == [2]


def test_copies_are_told_from_what_they_are_copied_from() -> None:
    counted = run_in_fork(ON_DEVICE, "count").data
    reads = {(row["line"], row["what"]): row["count"] for row in counted["reads"]}
    assert reads == {
        (14, "cpu"): 3,
        (16, "to"): 3,
        (18, "aten._local_scalar_dense.default"): 3,
        (21, "aten._local_scalar_dense.default"): 3,
    }
    copies = {(row["line"], row["what"]): row["count"] for row in counted["transfers"]}
    assert copies == {
        (4, "blocking to"): 2,
        (6, "blocking to"): 3,
        (9, "blocking tensor"): 3,
        (11, "blocking to"): 3,
        (20, "blocking to"): 3,
    }
    (within,) = [row for row in counted["transfers"] if row["line"] == 6]
    assert within["callers"][-1][1] == 11


def timed_run(seconds: list[float]) -> Run:
    return Run("x", "time", {"step_s": seconds}, "", {})


def test_speed_is_the_median_of_paired_ratios_with_their_range() -> None:
    originals = [timed_run([0.2, 0.2]), timed_run([0.3, 0.3]), timed_run([0.2, 0.22])]
    changed = [timed_run([0.1, 0.1]), timed_run([0.2, 0.2]), timed_run([0.1, 0.11])]
    found = speed(originals, changed)
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 1.5, 2.0))
    assert found.confidence == 0.75
    assert not found.is_faster, "three pairs are too few to be sure"
    assert not found.is_slower
    assert found.original_s == pytest.approx(0.21)
    assert speed([timed_run([])], [timed_run([])]) is None


def test_faster_takes_six_pairs_that_all_are() -> None:
    slow, fast = [timed_run([0.2, 0.2])] * 6, [timed_run([0.1, 0.1])] * 6
    judged = {n: speed(slow[:n], fast[:n]) for n in (5, 6)}
    assert [found is not None and found.is_faster for found in judged.values()] == [False, True]
    back = speed(fast, slow)
    assert back is not None
    assert back.is_slower
    undecided = speed(slow, [*fast[:5], timed_run([0.3, 0.3])])
    assert undecided is not None
    assert not undecided.is_faster


def test_an_outlier_among_many_pairs_does_not_widen_the_interval() -> None:
    assert interval([2.0]) == (2.0, 2.0, 0.0)
    assert interval([1.1, 1.2, 1.3, 1.4, 1.5, 9.0]) == (1.1, 9.0, pytest.approx(0.969, abs=1e-3))
    assert interval([0.2, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 9.0]) == (1.1, 1.7, pytest.approx(0.961, abs=1e-3))


def test_versions_take_turns_so_that_a_drift_hits_both_alike() -> None:
    places = order(4)
    assert places[:4] == ["original", "changed", "changed", "original"]
    assert [statistics.mean(i for i, v in enumerate(places) if v == version) for version in ("original", "changed")] == [
        3.5,
        3.5,
    ]


# -- the command ----------------------------------------------------------------------------------------------------------


def verify(project: Project, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return in_subprocess("verify", "--quiet", *arguments, cwd=project.root)


PLAIN = """
import sys, argparse
parser = argparse.ArgumentParser()
parser.add_argument("--name", default="you")
print("hello", parser.parse_args().name)
"""


@pytest.fixture
def scripts(project: Project) -> Project:
    """Two versions of a program without torch, which start fast: `train.py` and, in `other`, a second one."""
    project.write({"train.py": PLAIN})
    project.write({"other/train.py": PLAIN})
    return project


def test_two_folders_are_compared_with_arguments_for_the_script(scripts: Project) -> None:
    files = ("--json", "record.json", "--html", "page.html")
    done = verify(scripts, "train.py", "--against", "other", "--repeats", "2", *files, "--", "--name", "me")
    assert done.returncode == 0, done.stderr
    assert b"Results: identical" in done.stdout
    record = json.loads((scripts.root / "record.json").read_text())
    assert record["arguments"] == ["--name", "me"]
    assert record["original"]["output"] == "hello me\n"
    assert "identical" in (scripts.root / "page.html").read_text()


def test_a_difference_is_exit_code_1(scripts: Project) -> None:
    scripts.write({"other/train.py": PLAIN.replace("hello", "good bye")})
    done = verify(scripts, "train.py", "--against", "other", "--repeats", "2")
    assert done.returncode == 1
    assert b"printed line 1: 'hello you' in the original, 'good bye you' after the changes" in done.stdout


def test_another_tree_without_the_script_is_refused(scripts: Project) -> None:
    scripts.write({"programs/train.py": PLAIN, "pyproject.toml": ""})
    done = verify(scripts, "programs/train.py", "--against", "other")
    assert done.returncode == 2
    assert b"other has no programs/train.py, which is the script's path in the project" in done.stderr
    assert b"pass --root" in done.stderr
    assert verify(scripts, "programs/train.py", "--root", "programs", "--against", "other", "--repeats", "2").returncode == 0


def test_a_script_that_fails_by_itself_is_reported_as_such(scripts: Project) -> None:
    scripts.write({"train.py": "raise ValueError('no data')\n"})
    done = verify(scripts, "train.py", "--against", "other", "--repeats", "2")
    assert done.returncode == 2
    assert b"the original ended with exit code 1" in done.stderr
    assert b"ValueError: no data" in done.stderr
    assert b"runpy" not in done.stderr


def test_a_change_that_makes_the_script_fail_is_a_difference(scripts: Project) -> None:
    scripts.write({"other/train.py": "import sys\nsys.exit('broken')\n"})
    done = verify(scripts, "train.py", "--against", "other", "--repeats", "2")
    assert done.returncode == 1
    assert b"how the run ends" in done.stdout


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit(0)", "raise SystemExit"])
def test_a_script_may_end_by_exit(end: str, scripts: Project) -> None:
    for name in ("train.py", "other/train.py"):
        scripts.write({name: f"import sys\nif __name__ == '__main__':\n    print(__file__, sys.argv)\n    {end}\n"})
    done = verify(scripts, "train.py", "--against", "other", "--repeats", "2", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((scripts.root / "r.json").read_text())["original"]["output"] == (
        "<project>/train.py ['<project>/train.py']\n"
    )


def test_worker_processes_and_files_are_no_obstacle(scripts: Project) -> None:
    text = """
import multiprocessing, pathlib

def work(i):
    return i * i

if __name__ == "__main__":
    for start in ("fork", "spawn"):
        with multiprocessing.get_context(start).Pool(2) as pool:
            print(pool.map(work, range(4)))
    pathlib.Path("out.txt").write_text("x")
    assert not pathlib.Path("ran.txt").exists(), "each run begins anew"
    pathlib.Path("ran.txt").write_text("x")
"""
    for name in ("train.py", "other/train.py"):
        scripts.write({name: text})
    done = verify(scripts, "train.py", "--against", "other", "--repeats", "2")
    assert done.returncode == 0, done.stderr
    assert not (scripts.root / "out.txt").exists()
    scripts.write({"other/train.py": text.replace('"out.txt").write_text("x")', '"out.txt").write_text("y")')})
    done = verify(scripts, "train.py", "--against", "other", "--repeats", "2")
    assert done.returncode == 1
    assert b"files written" in done.stdout


def test_a_run_that_takes_too_long_is_given_up(scripts: Project) -> None:
    scripts.write({"train.py": "import time\ntime.sleep(1200)\n"})
    done = verify(scripts, "train.py", "--against", "other", "--timeout", "1")
    assert done.returncode == 2
    assert b"ran for more than 1 s" in done.stderr


def test_an_earlier_revision_is_compared(scripts: Project) -> None:
    def git(*arguments: str) -> None:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *arguments]
        subprocess.run(command, cwd=scripts.root, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    scripts.write({"train.py": PLAIN.replace("hello", "good bye")})
    done = verify(scripts, "train.py", "--before", "HEAD", "--repeats", "2")
    assert done.returncode == 1, done.stderr
    assert b"'hello you' in the original, 'good bye you'" in done.stdout
    scripts.write({"train.py": PLAIN.replace('"hello",', "open('mine.txt').read() +"), "mine.txt": "hello"})
    git("commit", "-am", "two")
    git("rm", "--cached", "other/train.py")
    done = verify(scripts, "train.py", "--before", "HEAD", "--repeats", "2")
    assert done.returncode == 0, "both have the file that git does not have"
    done = verify(scripts, "train.py", "--before", "nothing", "--repeats", "2")
    assert done.returncode == 2
    assert b"git gives no files of nothing" in done.stderr


def test_what_is_too_large_to_copy_is_named_with_a_way_out(scripts: Project) -> None:
    (scripts.root / "data.bin").write_bytes(bytes(3 * 2**20))
    done = verify(scripts, "train.py", "--against", "other", "--max-copy-mib", "2")
    assert done.returncode == 2
    assert b"holds 3 MiB, more than are copied (2)" in done.stderr
    done = verify(scripts, "train.py", "--against", "other", "--max-copy-mib", "2", "--link", "data.bin", "--repeats", "2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "other", "--before", "HEAD"], b"exclude each other"),
        (["--against", "other", "--bisect"], b"are about fixes"),
        (["--root", "other"], b"is not below"),
        (["--json", "nowhere/record.json"], b"nowhere/record.json: cannot be written"),
        (["--select", "item-evry-step"], b"did you mean `item-every-step`?"),
        (["--link", "/"], b"--link / is not below the project"),
        (["--epochs", "3"], b"no such option: --epochs; options of the script go behind `--`"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], message: bytes, scripts: Project) -> None:
    done = verify(scripts, "train.py", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_wrong_options_are_noticed_before_the_script_runs(scripts: Project) -> None:
    scripts.write({"train.py": "open('/' + 'ran', 'x')\n", "pyproject.toml": "[tool.perflint]\nselct = []\n"})
    for command in ("verify", "profile"):
        done = in_subprocess(command, "-q", "train.py", cwd=scripts.root)
        assert done.returncode == 2
        assert b"unknown key `selct`" in done.stderr


def test_a_script_s_own_usage_and_a_missing_torch_get_a_hint(scripts: Project) -> None:
    scripts.write({"train.py": PLAIN.replace('"--name", default="you"', '"name"')})
    assert b"arguments for the script go behind `--`" in verify(scripts, "train.py").stderr
    scripts.write({"train.py": "raise ModuleNotFoundError(\"No module named 'torch'\")\n"})
    said = verify(scripts, "train.py").stderr.splitlines()[-1]
    assert (
        said
        == f"Error: {sys.executable} has no torch: name the Python that the script is usually run with by --python".encode()
    )


ENDLESS = """
import itertools
import torch
parameter = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([parameter], lr=0.1)
try:
    for step in itertools.count():
        optimizer.zero_grad()
        (parameter * step).sum().backward()
        try:
            optimizer.step()
        except Exception:
            print("swallowed")
        print(step)
finally:
    print("end")
"""


def test_a_script_is_stopped_after_some_steps_without_an_error(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    for limit, most in (("--max-steps", "4"), ("--max-seconds", "0.000001")):
        record = tmp_path / "record.json"
        probe = ROOT / "probe" / "perflint_probe" / "__main__.py"
        command = [sys.executable, probe, "--record", record, "--mode", "time", limit, most, tmp_path / "endless.py"]
        done = subprocess.run(command, capture_output=True, timeout=HANG_S, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        steps = json.loads(record.read_text())["steps"]
        assert steps == (4 if limit == "--max-steps" else 1)
        assert done.stdout.decode().split() == [*map(str, range(steps - 1)), "end"]


@pytest.mark.slow
def test_both_versions_stop_at_the_same_step(scripts: Project) -> None:
    scripts.write({"train.py": ENDLESS, "other/train.py": ENDLESS.replace("(parameter * step)", "(parameter * step).clone()")})
    limit = ("--max-seconds", "0.01")
    done = verify(scripts, "train.py", "--against", "other", "--repeats", "2", "--json", "record.json", *limit)
    assert done.returncode == 0, done.stderr + done.stdout
    record = json.loads((scripts.root / "record.json").read_text())
    assert record["max_steps"] == record["original"]["steps"] == record["changed"]["steps"]
    assert f"Each run was stopped after {record['max_steps']} optimizer step".encode() in done.stdout


@pytest.mark.slow
def test_a_program_is_fixed_and_verified_and_the_users_files_stay(project: Project) -> None:
    """With torch, from the command line to the record: slow, so that one test sees it all."""
    lines = NAIVE.strip().splitlines()
    body = "\n".join(f"    {line}" for line in lines[3:]) + "\n"
    text = "\n".join([*lines[:3], "", "", "def main():", '    device = "cuda" if torch.cuda.is_available() else "cpu"', body])
    text = text.replace("nn.Linear(16, 3))", "nn.Linear(16, 3)).to(device)").replace(
        "(5,))\n", "(5,))\n        x, y = x.to(device), y.to(device)\n"
    )
    text = text.replace("losses.append(loss.item())", "losses.append(loss.item())\n        print(loss.item())") + "\n\nmain()\n"
    project.write({"pyproject.toml": '[tool.perflint]\nextend-select = ["duplicate-item-read"]\n'})
    project.write({"train.py": text})
    done = verify(project, "train.py", "--repeats", "2", "--json", "record.json")
    assert done.returncode == 0, done.stderr + done.stdout
    record: dict[str, Any] = json.loads((project.root / "record.json").read_text())
    assert record["equality"]["verdict"] == "identical"
    assert record["fixed_by_rule"]["duplicate-item-read"] == 1
    assert record["original"]["waits_per_step"] == 2
    assert record["changed"]["waits_per_step"] == 1
    assert record["speed"]["unit"] == "step"
    assert len(record["changed"]["step_s"]) == 2
    assert (project.root / "train.py").read_text() == text


def test_nothing_to_fix_is_said(project: Project) -> None:
    project.write({"train.py": "print('x')\n"})
    done = verify(project, "train.py")
    assert done.returncode == 0
    assert b"Nothing was changed" in done.stdout


# -- how far two versions are apart ---------------------------------------------------------------------------------------


def run_of(losses: list[float], output: str = "", files: dict[str, str] | None = None, **data: object) -> Run:
    roots = [loss.hex() for loss in losses]
    return Run("a", "time", {"roots": roots, "random": {}, **data}, output, files or {})


def test_the_largest_difference_of_losses_and_where() -> None:
    original, changed = run_of([1.0, 0.5, 0.25, 0.125]), run_of([1.0, 0.5625, 0.0, float("nan")])
    (difference,) = compare([original, original], [changed]).differences
    assert (difference.what, difference.root) == ("loss of backward pass 2", 1)
    assert (difference.largest, difference.where) == (0.25, "backward pass 3")
    assert difference.extent == "3 of 4 losses differ"


def test_the_largest_difference_of_printed_numbers() -> None:
    original = run_of([], "start\nloss 0.5 step 1\nloss 0.25 step 2\n")
    changed = run_of([], "start\nloss 0.75 step 1\nloss -1.5e0 step 2\n")
    (difference,) = compare([original, original], [changed]).differences
    assert (difference.what, difference.largest, difference.where) == ("printed line 2", 1.75, "printed line 3")
    worded = run_of([], "begin\nloss 0.5 step 1\nloss 0.25 step 2\n")
    (difference,) = compare([original, original], [worded]).differences
    assert (difference.largest, difference.extent) == (None, "1 of 3 printed lines differ")


def test_which_files_differ() -> None:
    original, changed = run_of([], files={"a.txt": "1", "b.txt": "2"}), run_of([], files={"a.txt": "1", "b.txt": "3"})
    (difference,) = compare([original, original], [changed]).differences
    assert difference.extent == "different: b.txt"


def test_how_far_trained_tensors_are_apart(tmp_path: Path) -> None:
    import torch
    from perflint_probe.tensors import apart, keep

    def trained(change: float) -> Path:
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
                parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        with torch.no_grad():
            model[1].weight[0, 1] += change
            model[0].bias[1] = torch.nan
        path = tmp_path / f"{change}.tensors"
        keep(path, [optimizer])
        return path

    found = apart(trained(0.0), trained(0.5))
    assert found["parameters"] == {"largest": pytest.approx(0.5), "where": "1.weight[0, 1]", "extent": "1 of 4 tensors differ"}
    assert found["optimizer_state"] == {"largest": None, "where": "", "extent": "0 of 4 tensors differ"}


@pytest.mark.slow
def test_parameters_that_differ_come_with_how_far_and_where(project: Project) -> None:
    project.write({"train.py": NAIVE, "other/train.py": NAIVE.replace("lr=1e-2", "lr=2e-2")})
    done = verify(project, "train.py", "--against", "other", "--repeats", "2", "--json", "r.json")
    assert done.returncode == 1, done.stderr
    differences = {row["what"]: row for row in json.loads((project.root / "r.json").read_text())["equality"]["differences"]}
    found = differences["final parameters"]
    assert 0 < found["largest"] < 1
    assert found["where"].startswith(("0.weight[", "0.bias[", "3.weight[", "3.bias["))
    assert found["extent"] == "4 of 4 tensors differ"
    assert differences["optimizer state"]["where"].startswith("exp_avg")
    assert b"    largest difference: " in done.stdout
