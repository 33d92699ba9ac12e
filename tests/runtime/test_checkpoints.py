"""Checkpoints are whole or absent, and rotate."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from perflint_runtime import Checkpoints


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "weights": OrderedDict(a=torch.arange(3.0)),
        "lists": [1, 2.5, None, "x", (True, b"y")],
        "milestones": Counter([3, 5]),
        "numpy": np.float64(0.5),
    }
    path = Checkpoints(tmp_path / "new").save(7, state)
    assert path.name == "step-000000007.pt"
    loaded = Checkpoints(tmp_path / "new").load_latest()
    assert loaded is not None
    assert loaded[0] == path
    assert torch.equal(loaded[1].pop("weights")["a"], torch.arange(3.0))
    assert loaded[1] == {"lists": [1, 2.5, None, "x", (True, b"y")], "milestones": Counter([3, 5]), "numpy": 0.5}


def test_the_newest_stay(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (8, 9, 10, 1_000_000_000):
        checkpoints.save(step, {"step": step})
    assert [path.name for path in checkpoints.paths()] == ["step-000000010.pt", "step-1000000000.pt"]
    assert checkpoints.load_latest() is not None
    assert sorted(os.listdir(tmp_path)) == ["step-000000010.pt", "step-1000000000.pt"]


def test_without_checkpoints_there_is_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "absent").load_latest() is None


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"state\['parts'\]\[0\] is a slice: a checkpoint holds tensors"):
        Checkpoints(tmp_path).save(1, {"parts": [slice(3)]})
    assert os.listdir(tmp_path) == []


def test_a_damaged_one_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(1, {"step": 1})
    newest = checkpoints.save(2, {"step": 2})
    newest.write_bytes(newest.read_bytes()[:200])
    with pytest.warns(UserWarning, match="step-000000002"):
        loaded = checkpoints.load_latest()
    assert loaded is not None
    assert loaded[1] == {"step": 1}
    checkpoints.paths()[0].write_bytes(b"")
    with pytest.raises(RuntimeError, match="no checkpoint can be read"):
        checkpoints.load_latest()


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Shout:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(tmp_path / "shouted"),))

    tmp_path.joinpath("run").mkdir()
    torch.save({"x": Shout()}, tmp_path / "run" / "step-000000001.pt")
    with pytest.raises(RuntimeError, match="no checkpoint can be read"):
        Checkpoints(tmp_path / "run").load_latest()
    assert not (tmp_path / "shouted").exists()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"step": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, {"step": 2})
    assert os.listdir(tmp_path) == ["step-000000001.pt"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_a_kill_in_the_middle_of_saving_leaves_a_readable_checkpoint(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    checkpoints = Checkpoints(tmp_path)
    state = {"weights": torch.zeros(200_000)}
    checkpoints.save(0, {**state, "step": 0})
    seen = 0
    for _ in range(15):
        told, telling = os.pipe()
        child = os.fork()
        if child == 0:
            for step in range(seen + 1, 100_000):
                checkpoints.save(step, {**state, "step": step})
                os.write(telling, b".")
            os._exit(0)
        os.close(telling)
        os.read(told, 1)
        os.close(told)
        time.sleep(random.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        loaded = checkpoints.load_latest()
        assert loaded is not None
        assert loaded[1]["step"] > seen
        assert loaded[0].name == f"step-{loaded[1]['step']:09d}.pt"
        seen = loaded[1]["step"]
    checkpoints.save(seen + 1, {"step": seen + 1})
    assert len(os.listdir(tmp_path)) == 2  # what the kills left half-written is gone
