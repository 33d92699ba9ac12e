"""A headless Chromium for tests and screenshots."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def missing() -> str | None:
    """What is needed for a browser and is not there; None if there is one."""
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed: it is in the extra `dev`"
    return None if _program() else f"no Chromium is on PATH (looked for {', '.join(NAMES)})"


def _program() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Log:
    """What a page did while it was open: addresses that it asked for, dialogs, and what it wrote to the console."""

    def __init__(self, page: Page) -> None:
        self.addresses: list[str] = []
        self.said: list[str] = []
        page.on("request", lambda request: self.addresses.append(request.url))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", self._dialog)

    def _dialog(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextlib.contextmanager
def opened(path: Path, **options: Any) -> Iterator[tuple[Page, Log]]:
    """A file in a browser that reaches no network. options: those of playwright's `new_context`."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_program(), args=arguments)
        context = browser.new_context(offline=True, reduced_motion="reduce", **options)
        page = context.new_page()
        log = Log(page)
        page.goto(path.resolve().as_uri())
        yield page, log
        browser.close()
