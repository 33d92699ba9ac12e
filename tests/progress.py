"""What a run of the tests prints: a line a minute and a line for each failure, in place of a letter for each test."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest

EVERY_S = 60.0


class Progress:
    """Counts what is done. Registered for the process that reports, unless `-v` asks for pytest's own ways."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self._session: pytest.Session | None = None
        self._done = self._failed = 0
        self._began = self._said = time.monotonic()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Take note of where the number of tests will be found."""
        self._session = session

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, Any, tuple[str, str, Any]]:
        """Count a test under its category, and print no letter."""
        category, _, word = yield
        return category, "", "" if report.passed else word

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say what failed, and once in a while how far the run is."""
        self._done += report.when == "teardown"
        if report.failed:
            self._failed += 1
            self._terminal.write_line(f"failed in its {report.when}: {report.nodeid}")
        now = time.monotonic()
        if now - self._said >= EVERY_S and self._session is not None:
            self._said = now
            minutes = round((now - self._began) / 60)
            failed = f", {self._failed} failed" if self._failed else ""
            total = self._session.testscollected  # 0 where workers collect them
            known = f" of {total}" if total else ""
            self._terminal.write_line(f"{minutes} min: {self._done}{known} tests{failed}")
