"""How many processes this machine lets perflint run at once."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from perflint.project.files import read_file

CGROUPS = "/sys/fs/cgroup"


def available_cores() -> int:
    """The cores that this process may use: fewer than the machine has under `taskset`, and in most containers."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = cpu_quota((read_file("/proc/self/cgroup") or b"").decode("utf-8", "replace"), CGROUPS)
    return max(1, min(cores, math.ceil(quota))) if quota is not None else cores


def cpu_quota(groups: str, mount: str) -> float | None:
    """How many cores' worth of time the control groups of a process admit, or None without a limit.

    groups: what /proc/self/cgroup says. mount: where the control groups are mounted.
    """
    quotas: list[float] = []
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        for folder in _upwards(os.path.join(mount, "cpu") if controllers else mount, path):
            quotas += _quota_in(folder)
    return min(quotas, default=None)


def _upwards(top: str, path: str) -> Iterator[str]:
    """A control group and those that it lies in; a container often sees only the topmost one."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for length in range(len(parts), -1, -1):
        yield os.path.join(top, *parts[:length])


def _quota_in(folder: str) -> Iterator[float]:
    second = read_file(os.path.join(folder, "cpu.max"))
    words = second.split() if second is not None else []
    if not words:
        first = [read_file(os.path.join(folder, f"cpu.cfs_{name}_us")) for name in ("quota", "period")]
        words = [word.strip() for word in first if word is not None]
    if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]) > 0:
        yield int(words[0]) / int(words[1])
