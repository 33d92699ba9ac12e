"""What is known of folders from having listed them: files that are not there are not looked for again."""

from __future__ import annotations

import os
from collections.abc import Iterable


class Folders:
    """Which of the files that mark, configure or ignore something stand in a folder."""

    MARKS = frozenset({".git", ".gitignore", "pyproject.toml", "perflint.toml", "setup.cfg", "setup.py"})

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str]] = {}
        self.closed: dict[str, str] = {}
        """Folders that could not be listed, with the reasons."""

    def listed(self, directory: str, names: Iterable[str]) -> None:
        """Take note of all names in a folder."""
        self._listed[directory] = self.MARKS.intersection(names)

    def holds(self, directory: str, mark: str) -> bool:
        """Whether one of `MARKS` is in a folder."""
        known = self._listed.get(directory)
        return (known is None or mark in known) and os.path.exists(os.path.join(directory, mark))
