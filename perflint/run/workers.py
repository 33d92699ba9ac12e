"""Who does the work of a run: this process, several processes of this machine, or executors that the user brings."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from perflint.source.records import dataclass

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from perflint.run.outcome import Item

WORTHWHILE_BYTES = 1024 * 1024
"""With less to check than this, a worker that is forked costs more than it saves."""

WORTHWHILE_BYTES_SPAWNED = 4 * 1024 * 1024
"""The same for a worker that starts from nothing, as on macOS and Windows."""


@dataclass(frozen=True)
class Workers:
    """How many processes of this machine may work, or which executors do.

    jobs: 1 is this process alone. executors: one for each worker, or a single one that `jobs` workers stand behind; files'
    bytes are sent to them. warn: is told when a worker is lost. traffic: for each worker that files were sent to, how often
    it got each of them.
    """

    jobs: int = 1
    executors: Sequence[Executor] = ()
    warn: Callable[[str], None] = lambda message: None
    traffic: dict[str, Counter[str]] = field(default_factory=dict)

    def pay_for(self, items: Sequence[Item]) -> bool:
        """Whether to start workers for some files."""
        enough = WORTHWHILE_BYTES if sys.platform.startswith("linux") else WORTHWHILE_BYTES_SPAWNED
        return bool(self.executors) or (self.jobs > 1 and sum(item.size for item in items) >= enough)


ALONE = Workers()
