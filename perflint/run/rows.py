"""What a cache remembers of a project, a text and an outcome."""

from __future__ import annotations

from typing import NamedTuple

from perflint.project.files import Stat


class Row(NamedTuple):
    """A file's size and times, and the digest of its text."""

    stat: Stat
    digest: str


class Learned(NamedTuple):
    """What was found out about a text so far.

    names: the digest of the file names under which `imports` were worked out: for each file that is imported its place among
    the project's files, and the names that are taken from it.
    """

    names: str = ""
    imports: list[list[int | str]] | None = None
    trains: bool | None = None
    helpers: list[str] | None = None

    def completed(self, before: Learned) -> Learned:
        """With what was found out earlier and is not known here."""
        names, imports = (self.names, self.imports) if self.imports is not None else (before.names, before.imports)
        trains = self.trains if self.trains is not None else before.trains
        return Learned(names, imports, trains, self.helpers if self.helpers is not None else before.helpers)


class State(NamedTuple):
    """The tree and the shape under which the facts of some results were last found to hold.

    stamp: another one after each change of the tree, so that who changes it again notices that somebody else did.
    """

    id: int
    stamp: int
    tree: str
    shape: str


class StoredResult(NamedTuple):
    """A remembered outcome, as it was written."""

    state: State
    outcome: str
