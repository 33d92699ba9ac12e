"""Ctrl-C between two steps instead of within one."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Notes Ctrl-C, so that a loop can end where its state is whole; a second Ctrl-C raises KeyboardInterrupt at once.

    Only in the main thread, and only where Python's own handler is in place: who has set another one keeps it.
    """

    def __init__(self) -> None:
        self.requested = False
        self._is_noting = False

    @contextmanager
    def noted(self, wanted: bool) -> Iterator[None]:
        """Note Ctrl-C inside of this block, if `wanted`."""
        self.requested = False
        self._is_noting = wanted
        in_main_thread = threading.current_thread() is threading.main_thread()
        if not wanted or not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return
        signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Take a KeyboardInterrupt that this block raises for a Ctrl-C to be noted, where they are noted."""
        try:
            yield
        except KeyboardInterrupt:
            if not self._is_noting or self.requested:
                raise
            self.requested = True

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        print("\ninterrupted: training ends after this step; Ctrl-C again ends it at once", file=sys.stderr)
