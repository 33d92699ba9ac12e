"""One cache folder: an sqlite file that may be missing, damaged, full, or in use by another run."""

from __future__ import annotations

import os
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

FOLDER = ".perflint_cache"
FILE = "results.sqlite"
SCHEMA = 2

MAX_SESSIONS = 16
"""Rule sets and configurations whose results are kept, over all projects of a cache: the ones used last."""

MAX_PAGES = 131_072
"""Pages of 4 kB that the file may have; a fuller one is begun anew."""

BUSY_S = 2.0
"""How long a run waits for another one that is writing."""

_OUT_OF_REACH = ("unable to open", "readonly", "disk I/O")
"""What SQLite says about a file that is not at fault itself."""

_TABLES = """
CREATE TABLE projects (id INTEGER PRIMARY KEY, root BLOB UNIQUE);
CREATE TABLE files (
    project INTEGER, path BLOB, size INTEGER, mtime INTEGER, ctime INTEGER, digest TEXT, seal INTEGER,
    UNIQUE (project, path));
CREATE TABLE learned (project INTEGER, path BLOB, learned TEXT, UNIQUE (project, path));
CREATE TABLE sessions (id INTEGER PRIMARY KEY, project INTEGER, key TEXT, used INTEGER, UNIQUE (project, key));
CREATE TABLE catalogs (code TEXT UNIQUE, rules TEXT);
CREATE TABLE states (id INTEGER PRIMARY KEY, session INTEGER, stamp INTEGER, tree TEXT, shape TEXT);
CREATE TABLE results (
    session INTEGER, path BLOB, parsed INTEGER, state INTEGER, outcome TEXT, UNIQUE (session, path, parsed));
CREATE TABLE facts (
    session INTEGER, path BLOB, parsed INTEGER, facts TEXT, modules TEXT, open TEXT, UNIQUE (session, path, parsed));
"""

_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# This file is a cache directory tag created by perflint.
# For information about cache directory tags see https://bford.info/cachedir/
"""


class Store:
    """One cache folder. After a failure it is closed for the rest of the run; `problem` says what a user should know."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.problem: str | None = None
        self._closed = False

    @property
    def _path(self) -> str:
        return os.path.join(self.folder, FILE)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a query gives; none if the cache cannot be read."""
        if self._closed or not os.path.exists(self._path):
            return []
        with self._guarded():
            if self._connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,):
                return self._connection.execute(statement, values).fetchall()
        return []

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection | None]:
        """A transaction that is written when the block ends; None when nothing can be written."""
        connection: sqlite3.Connection | None = None
        with self._guarded():
            if not self._closed:
                self._prepare()
                connection = self._connection
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("PRAGMA user_version").fetchone() != (SCHEMA,):
                    self._begin_anew(connection)
        if connection is None or self._closed:
            yield None
            return
        with self._guarded():
            yield connection
            connection.execute("COMMIT")

    def _begin_anew(self, connection: sqlite3.Connection) -> None:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            connection.execute(f'DROP TABLE "{name}"')
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")  # a lost write costs time; a damaged file is noticed
        connection.execute(f"PRAGMA max_page_count = {MAX_PAGES}")
        return connection

    def _prepare(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        for name, text in ((".gitignore", "# Automatically created by perflint.\n*\n"), ("CACHEDIR.TAG", _TAG)):
            with suppress(FileExistsError), open(os.path.join(self.folder, name), "x", encoding="utf-8") as handle:
                handle.write(text)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._closed = True
        with suppress(sqlite3.Error):
            self.close()
        if isinstance(error, OSError) or any(words in str(error) for words in _OUT_OF_REACH):
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.problem = f"no results are remembered: the cache {self.folder} cannot be used ({reason})"
        elif "locked" not in str(error):
            for name in (f"{FILE}-journal", FILE):  # damaged or full: begin anew
                with suppress(OSError):
                    os.unlink(os.path.join(self.folder, name))

    def close(self) -> None:
        """Let go of the file."""
        connection = self.__dict__.pop("_connection", None)
        if connection is not None:
            connection.close()


def remove(folder: str) -> bool:
    """Remove a cache folder; whether there was one. Other things in the folder stay.

    Raises:
        OSError: something cannot be removed.

    """
    names = [
        name for name in (FILE, f"{FILE}-journal", ".gitignore", "CACHEDIR.TAG") if os.path.exists(os.path.join(folder, name))
    ]
    if FILE not in names and "CACHEDIR.TAG" not in names:
        return False
    for name in names:
        os.unlink(os.path.join(folder, name))
    with suppress(OSError):
        os.rmdir(folder)
    return True


def checksum(*parts: object) -> int:
    """A number that damage would change."""
    return zlib.crc32(repr(parts).encode())


def _seal(text: str, about: tuple[object, ...]) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), checksum(*about))


def sealed(text: str, *about: object) -> str:
    """A text with a checksum of it and of what it is about."""
    return f"{_seal(text, about):08x}{text}"


def unsealed(text: object, *about: object) -> str | None:
    """What `sealed` sealed; None for anything else."""
    if isinstance(text, str) and text[:8] == f"{_seal(text[8:], about):08x}":
        return text[8:]
    return None


def session_row(connection: sqlite3.Connection, project: int, key: str) -> int:
    """The number of a rule set and configuration, which is in use now."""
    connection.execute("INSERT OR IGNORE INTO sessions (project, key) VALUES (?, ?)", (project, key))
    connection.execute("UPDATE sessions SET used = ? WHERE project = ? AND key = ?", (time.time_ns(), project, key))
    found: int = connection.execute("SELECT id FROM sessions WHERE project = ? AND key = ?", (project, key)).fetchone()[0]
    return found


def prune(connection: sqlite3.Connection) -> None:
    """Drop the sessions that were not used for longest, and the projects without one."""
    old = "SELECT id FROM sessions ORDER BY used DESC LIMIT -1 OFFSET ?"
    for table in ("results", "facts", "states"):
        connection.execute(f"DELETE FROM {table} WHERE session IN ({old})", (MAX_SESSIONS,))
    connection.execute("DELETE FROM states WHERE id NOT IN (SELECT state FROM results)")
    connection.execute(f"DELETE FROM sessions WHERE id IN ({old})", (MAX_SESSIONS,))
    for table in ("files", "learned"):
        connection.execute(f"DELETE FROM {table} WHERE project NOT IN (SELECT project FROM sessions)")
    connection.execute("DELETE FROM projects WHERE id NOT IN (SELECT project FROM sessions)")
