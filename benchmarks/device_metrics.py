"""What collecting a loss costs the CPU per step, as ratios to the ways it is written by hand, in one run.

    python benchmarks/device_metrics.py [--steps N] [--rounds N] [--json FILE]

The loss is a 0-d float32 tensor on the CPU that is part of a graph. Each way runs in turn, several rounds; the least CPU time
counts, less that of an empty loop. On the CPU `.item()` costs next to nothing; on a GPU it also waits until everything
queued is done, which no figure here shows. What shows is what the runtime adds to the operation that it cannot do without.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from surroundings import commit, machine, versions

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "runtime"))

import torch  # noqa: E402  # after the path of this checkout's runtime
from perflint_runtime import AsyncScalars, DeviceSum, LossMeter, NonFiniteGuard  # noqa: E402
from torch import Tensor  # noqa: E402

Loop = Callable[[Tensor, int], object]


def empty(loss: Tensor, steps: int) -> None:
    """The loop alone."""
    for _ in range(steps):
        pass


def item(loss: Tensor, steps: int) -> float:
    """What is usually written: `total += loss.item() * n`."""
    total = 0.0
    for _ in range(steps):
        total += loss.item() * 16
    return total


def bare(loss: Tensor, steps: int) -> Tensor:
    """The least that a sum on the device can do: one detach, one addition."""
    total = torch.zeros((), dtype=torch.float64)
    for _ in range(steps):
        total.add_(loss.detach(), alpha=16)
    return total


def inline(loss: Tensor, steps: int) -> Tensor | float:
    """What the rule item-every-step writes."""
    total: Tensor | float = 0.0
    for _ in range(steps):
        total += loss.detach().double() * 16
    return total


def device_sum(loss: Tensor, steps: int) -> float:
    """DeviceSum.update(loss, n)."""
    total = DeviceSum(0.0)
    for _ in range(steps):
        total.update(loss, 16)
    return total.value()


def loss_meter(loss: Tensor, steps: int) -> float:
    """LossMeter.update(loss, n)."""
    meter = LossMeter()
    for _ in range(steps):
        meter.update(loss, 16)
    return meter.mean()


def isfinite(loss: Tensor, steps: int) -> None:
    """`if not torch.isfinite(loss): raise`."""
    for _ in range(steps):
        if not torch.isfinite(loss):
            raise ValueError


def guard(loss: Tensor, steps: int) -> None:
    """NonFiniteGuard.watch(step, loss), checked every 100 steps."""
    watching = NonFiniteGuard()
    for step in range(steps):
        watching.watch(step, loss)
        if step % 100 == 99:
            watching.check_later()
    watching.check()


def scalars(loss: Tensor, steps: int) -> None:
    """AsyncScalars.submit and poll for one loss, in each step."""
    log = AsyncScalars()
    for step in range(steps):
        log.submit(step, {"loss": loss})
        log.poll()


WAYS: dict[str, Loop] = {
    "empty": empty,
    "item": item,
    "bare": bare,
    "inline": inline,
    "DeviceSum": device_sum,
    "LossMeter": loss_meter,
    "isfinite": isfinite,
    "NonFiniteGuard": guard,
    "AsyncScalars": scalars,
}


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loss = torch.tensor(0.5, requires_grad=True) * 1
    least = dict.fromkeys(WAYS, float("inf"))
    for _ in range(options.rounds):
        for name, way in WAYS.items():
            least[name] = min(least[name], cpu_s(way, loss, options.steps))
    per_step_us = {name: (least[name] - least["empty"]) / options.steps * 1e6 for name in WAYS if name != "empty"}
    for name, cost_us in per_step_us.items():
        print(f"{name:<16}{cost_us:8.2f} us {cost_us / per_step_us['bare']:8.2f} x bare   {WAYS[name].__doc__}")
    if options.json is not None:
        record = {
            "command": "python benchmarks/device_metrics.py",
            "commit": commit(),
            "machine": machine(),
            "versions": versions("torch"),
            "steps": options.steps,
            "rounds": options.rounds,
            "cpu_us_per_step": per_step_us,
            "ratio_to_bare": {name: cost_us / per_step_us["bare"] for name, cost_us in per_step_us.items()},
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def cpu_s(way: Loop, loss: Tensor, steps: int) -> float:
    """CPU seconds of this process for one run."""
    start = time.process_time()
    way(loss, steps)
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
