"""The machine that a report was made on."""

from __future__ import annotations

import contextlib
import platform
import re
from pathlib import Path


def cpu_name() -> str:
    """The processor's name, where the system tells it."""
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
        if found is not None:
            return re.sub(r"\((?:R|TM)\)", "", found[1]).strip()
    return platform.processor() or platform.machine()
