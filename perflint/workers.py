"""Who does the work of a run: this process, several processes of this machine, or executors that the user brings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from perflint.engine import Item

WORTHWHILE_BYTES = 1024 * 1024
"""With less to check than this, a worker that is forked costs more than it saves."""

WORTHWHILE_BYTES_SPAWNED = 4 * 1024 * 1024
"""The same for a worker that starts from nothing, as on macOS and Windows."""


@dataclass(frozen=True)
class Workers:
    """How many processes of this machine may work, or which executors do.

    jobs: 1 is this process alone. executors: one per worker, or one for several workers, `jobs` in number; files' bytes are
    sent to them. warn: is told when a worker is lost.
    """

    jobs: int = 1
    executors: Sequence[Executor] = ()
    warn: Callable[[str], None] = lambda message: None

    def pay_for(self, items: Sequence[Item]) -> bool:
        """Whether to start workers for some files."""
        enough = WORTHWHILE_BYTES if sys.platform.startswith("linux") else WORTHWHILE_BYTES_SPAWNED
        return bool(self.executors) or (self.jobs > 1 and sum(item.size for item in items) >= enough)


ALONE = Workers()
