"""Ranges of bytes of a file, read without a seek position that processes or threads could share."""

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

_COMPRESSED = (".gz", ".bz2", ".zip", ".xz", ".zst", ".tar")
_REMOTE_BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class Version:
    """What tells one content of a file from the next: its size and time of change, or what a remote store says of it."""

    size_bytes: int
    mtime_ns: int
    key: str = ""

    @classmethod
    def of(cls, stat: os.stat_result) -> "Version":
        """The version of a local file."""
        return cls(stat.st_size, stat.st_mtime_ns, f"{stat.st_dev}:{stat.st_ino}")


def is_remote(path: str) -> bool:
    """Whether pandas would open this path as a URL."""
    return "://" in path


def refuse_compressed(path: str, compression: object = "infer") -> None:
    """Raise `ValueError` for a file that pandas would decompress: nothing can be read at random from it."""
    if compression is None:
        return
    if compression != "infer" or path.lower().endswith(_COMPRESSED):
        raise ValueError(
            f"{path} is compressed, so its rows cannot be read at random; decompress it first, for instance with "
            "`gzip --decompress --keep`"
        )


class RangeFile:
    """A file open for reading ranges; picklable, and safe in forked workers and threads.

    `os.pread` takes the position with each call, so processes that inherited the same open file do not disturb each other.
    A local file that changed in place is noticed at the next read (one fstat, 0.6 us); one that was replaced goes on being
    read as it was when opened, which is one consistent content.
    """

    def __init__(self, path: str) -> None:
        """Open `path`. Raises `OSError` as `open` does."""
        self.path = path
        self._lock = threading.Lock() if not hasattr(os, "pread") else None
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._close = weakref.finalize(self, os.close, self._descriptor)
        stat = os.fstat(self._descriptor)
        self.version = Version.of(stat)
        self.ctime_ns = stat.st_ctime_ns
        """When content or attributes changed last: nobody can set it back, but a new link or mode changes it, too."""

    def __getstate__(self) -> tuple[str, Version]:
        return self.path, self.version

    def __setstate__(self, state: tuple[str, Version]) -> None:
        path, version = state
        self.__init__(path)  # type: ignore[misc]  # opens the same path again, in another process
        if self.version != version:
            raise changed(path, version, self.version)

    def close(self) -> None:
        """Close the file; it cannot be read any more. May be called again."""
        self._descriptor = -1
        self._close()

    def check(self) -> None:
        """Raise `RuntimeError` if the content is not the one that was opened, `ValueError` if the file was closed."""
        if self._descriptor < 0:
            raise ValueError(f"{self.path} was closed; open it again to read from it")
        stat = os.fstat(self._descriptor)
        if stat.st_mtime_ns != self.version.mtime_ns or stat.st_size != self.version.size_bytes:
            raise changed(self.path, self.version, Version.of(stat))

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to `stop`. Raises `RuntimeError` if the file changed, `ValueError` if it was closed."""
        data = self._pread(stop - start, start)
        self.check()
        if len(data) < stop - start:
            return self._rest(data, start, stop)
        return data

    def read_unchecked(self, start: int, stop: int) -> bytes:
        """The same for one of many reads, before or after which `check` is called. Raises `RuntimeError` if bytes lack."""
        data = self._pread(stop - start, start)
        return data if len(data) == stop - start else self._rest(data, start, stop)

    def _rest(self, data: bytes, start: int, stop: int) -> bytes:
        while len(data) < stop - start:  # one call gives at most 2 GiB
            more = self._pread(stop - start - len(data), start + len(data))
            if not more:
                raise changed(self.path, self.version, Version(start + len(data), self.version.mtime_ns))
            data += more
        return data

    def _pread(self, count: int, start: int) -> bytes:
        if self._descriptor < 0:
            self.check()
        if self._lock is None:
            return os.pread(self._descriptor, count, start)
        with self._lock:  # Windows has no pread, and no fork that would share the position
            os.lseek(self._descriptor, start, os.SEEK_SET)
            return os.read(self._descriptor, count)

    def from_start(self) -> Callable[[memoryview], int]:
        """A function that fills buffers from the start of the file, one after the other."""
        return _Sequence(self).read_into


class RemoteFile:
    """The same for what fsspec opens. A change is noticed when the file is opened, not at each read."""

    def __init__(self, path: str, storage_options: dict[str, object] | None = None) -> None:
        """Ask the store for the size of `path`. Raises what fsspec raises, and `ImportError` without it."""
        import fsspec

        self.path = path
        found: tuple[AbstractFileSystem, str] = fsspec.core.url_to_fs(path, **(storage_options or {}))
        self.filesystem, self.key = found
        about = self.filesystem.info(self.key)
        self.version = Version(int(about["size"]), 0, str(self.filesystem.ukey(self.key)))

    def close(self) -> None:
        """There is nothing to close."""

    def check(self) -> None:
        """Asking the store at each read would cost a round trip."""

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to `stop`. Raises `RuntimeError` if bytes lack."""
        data = bytes(self.filesystem.cat_file(self.key, start=start, end=stop)) if stop > start else b""
        if len(data) != stop - start:
            raise changed(self.path, self.version, Version(start + len(data), 0))
        return data

    read_unchecked = read

    def from_start(self) -> Callable[[memoryview], int]:
        """A function that fills buffers from the start of the file, one after the other."""
        return _Sequence(self).read_into


class _Sequence:
    """Reads ranges one after the other, large ones from a remote store."""

    def __init__(self, file: RangeFile | RemoteFile) -> None:
        self.file = file
        self.offset = 0
        self.ahead = b""

    def read_into(self, view: memoryview) -> int:
        if isinstance(self.file, RangeFile) and hasattr(os, "preadv"):
            count = os.preadv(self.file._descriptor, [view], self.offset)
        else:
            if not self.ahead:
                stop = min(self.offset + max(_REMOTE_BLOCK_BYTES, len(view)), self.file.version.size_bytes)
                self.ahead = self.file.read(self.offset, stop)
            count = min(len(view), len(self.ahead))
            view[:count] = self.ahead[:count]
            self.ahead = self.ahead[count:]
        self.offset += count
        return count


def changed(path: str, then: Version, now: Version) -> RuntimeError:
    """The error for a file that is not what was indexed."""
    what = f"{then.size_bytes} bytes then, {now.size_bytes} now" if now.size_bytes != then.size_bytes else "same size"
    return RuntimeError(f"{path} changed after it was indexed ({what}); open it again to index its new content")


def open_ranges(path: str, storage_options: dict[str, object] | None = None) -> RangeFile | RemoteFile:
    """Open a local path or a URL. Raises `OSError` as `open` does, or what fsspec raises."""
    return RemoteFile(path, storage_options) if is_remote(path) else RangeFile(path)
