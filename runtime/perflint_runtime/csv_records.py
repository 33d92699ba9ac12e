"""The records of an indexed CSV file: its lines without the header, blank lines and comments."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perflint_runtime.csv_file import RangeFile, RemoteFile
from perflint_runtime.csv_index import LineIndex
from perflint_runtime.csv_scan import State


@dataclass(frozen=True)
class Records:
    """Where each record stands; record i is line `first_line + i`, plus the lines without a record before it."""

    file: RangeFile | RemoteFile
    starts: NDArray[np.int64]
    header: bytes
    first_line: int
    count: int
    gaps: NDArray[np.int64] | None
    """For each line without a record behind `first_line`: how many records come before it."""
    unended: int
    """The record that ends with the file and without a line break; -1 if none does."""
    broken: int
    """The record that the end of the file cuts within quotes or behind an escape: an error to pandas; -1 if none is."""

    @classmethod
    def of(
        cls, file: RangeFile | RemoteFile, index: LineIndex, skip: int, last_header_line: int, skip_blank_lines: bool
    ) -> "Records":
        """Skip `skip` lines, and the header up to the given one of the lines that hold a record (-1 for no header)."""
        without = index.comments
        if skip_blank_lines and len(index.blank):
            without = np.union1d(index.blank, index.comments)
        lines = len(index)
        first = min(skip, lines)
        if last_header_line >= 0:
            first = _line_of(last_header_line, first, without[without >= first]) + 1
        first = min(first, lines)
        header = file.read(int(index.starts[min(skip, lines)]), int(index.starts[first]))
        behind = without[without >= first]
        count = lines - first - len(behind)
        gaps = behind - first - np.arange(len(behind)) if len(behind) else None
        state = index.final_state
        last = count - 1 if lines - 1 not in behind else -1
        unended = last if state not in (State.START_RECORD, State.AFTER_RETURN) else -1
        broken = last if state in (State.QUOTED, State.ESCAPED, State.ESCAPED_IN_QUOTED) else -1
        return cls(file, index.starts, header, first, count, gaps, unended, broken)

    def __len__(self) -> int:
        return self.count

    def read(self, indices: Sequence[int]) -> list[bytes]:
        """The bytes of some records, line ends included. Raises `IndexError`, or `RuntimeError` if the file changed."""
        file, starts = self.file, self.starts
        found = []
        for i in indices:
            line = self.line(i)
            found.append(file.read_unchecked(starts.item(line), starts.item(line + 1)))
        file.check()
        return found

    def line(self, i: int) -> int:
        """The line of record i, which counts from the end if it is negative."""
        count = self.count
        if not -count <= i < count:
            raise IndexError(f"row {i} of {count} rows in {self.file.path}")
        if i < 0:
            i += count
        if self.gaps is None:
            return self.first_line + int(i)
        return self.first_line + int(i) + int(np.searchsorted(self.gaps, i, side="right"))


def _line_of(record: int, first: int, without: NDArray[np.int64]) -> int:
    gaps = without - first - np.arange(len(without))
    return first + record + int(np.searchsorted(gaps, record, side="right"))
