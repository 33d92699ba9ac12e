"""Where the lines of a CSV file start, as pandas' C parser counts them: bytes in, int64 offsets out.

A line break inside quotes ends no line. Blocks of the file become bitmaps, 64 bytes a word: one for line breaks, one for
quotes, and the prefix xor of the quotes says what lies inside of them (the method of simdjson, Langdale and Lemire 2019, in
numpy). That is exact if each quote that opens a field stands behind a delimiter, a line break or a closing quote. A block
where one does not, or with a lone carriage return, goes to `csv_scan`, which follows the parser's states byte by byte.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perflint_runtime.csv_scan import CARRIAGE_RETURN, LINE_FEED, Dialect, Scan, State

BLOCK_BYTES = 1 << 18
"""Fits the second-level cache with its bitmaps; a multiple of 64."""

UTF8_BOM = b"\xef\xbb\xbf"

_Words = NDArray[np.uint64]
_Offsets = NDArray[np.int64]
_ONE = np.uint64(1)
_TOP = np.uint64(63)
_DOUBLINGS = tuple(np.uint64(1 << k) for k in range(6))
_SPACE = 0x20


@dataclass(frozen=True)
class LineIndex:
    """The lines of one file under one dialect.

    `starts` has one offset in bytes for each line and the size of the file at its end. `blank` and `comments` are the numbers
    of lines without a record (a line is blank if it holds spaces and tabs only). pandas counts lines by simpler rules while
    it skips them; up to line `skippable` both counts agree. `final_state` is where the parser stands at the end of the file.
    `ambiguous` files have records that pandas damages (`csv_scan.Scanned`). `scanned_bytes` went through the slow scan.
    """

    starts: _Offsets
    blank: _Offsets
    comments: _Offsets
    skippable: int
    final_state: State
    ambiguous: bool
    scanned_bytes: int

    def __len__(self) -> int:
        """How many lines the file has."""
        return len(self.starts) - 1


def index_lines(
    read_into: Callable[[memoryview], int], size_bytes: int, dialect: Dialect, *, strip_bom: bool = True
) -> LineIndex:
    """Index the lines of a file that `read_into` reads from its start, block by block (0 at the end).

    Resident memory is 8 bytes per line. Raises `EOFError` if the file does not end at `size_bytes`.
    """
    return _Indexer(size_bytes, dialect).run(read_into, strip_bom)


class _Indexer:
    """Buffers of one pass over a file, and what is carried from block to block."""

    def __init__(self, size_bytes: int, dialect: Dialect) -> None:
        self.size_bytes = size_bytes
        self.dialect = dialect
        self.bytes = bytearray(BLOCK_BYTES + 1)  # one more, so that the byte behind a last line break can be looked at
        self.values = np.frombuffer(self.bytes, np.uint8)
        self.equal = np.empty(BLOCK_BYTES, np.bool_)
        self.offset = 0
        self.lines = 1
        self.starts: _Offsets = np.zeros(16, np.int64)
        self.state = State.START_RECORD
        self.lead = False  # the last byte of the block before is the first of a line, and a delimiter
        self.skippable = -1
        self.blank: list[int] = []
        self.comments: list[int] = []
        self.open_candidate = -1  # a line that starts like a blank one and reaches into the next block
        self.scanned_bytes = 0
        self.ambiguous = False
        self.blanks = bytes({0x20, 0x09} - {dialect.delimiter})
        self.scan = Scan(dialect)

    def run(self, read_into: Callable[[memoryview], int], strip_bom: bool) -> LineIndex:
        view = memoryview(self.bytes)[:BLOCK_BYTES]
        while count := _fill(read_into, view):
            if self.offset + count > self.size_bytes:
                raise EOFError("the file grew while it was indexed")
            self.values[count:] = 0
            skipped = 0
            if self.offset == 0 and strip_bom and self.bytes.startswith(UTF8_BOM):
                skipped = len(UTF8_BOM)
                self.starts[0] = skipped
                self.values[:skipped] = 0
            self.block(count, skipped)
            self.offset += count
        if self.offset != self.size_bytes:
            raise EOFError("the file shrank while it was indexed")
        return self.finished()

    def finished(self) -> LineIndex:
        if self.starts[self.lines - 1] != self.size_bytes:
            self.reserve(1)
            self.starts[self.lines] = self.size_bytes
            self.lines += 1
        starts = self.starts[: self.lines]
        return LineIndex(
            starts,
            np.array(self.blank, np.int64),
            np.array(self.comments, np.int64),
            self.lines - 1 if self.skippable < 0 else min(self.skippable, self.lines - 1),
            self.state,
            self.ambiguous,
            self.scanned_bytes,
        )

    def block(self, count: int, skipped: int) -> None:
        first_line = self.lines
        begins_line = self.state is State.START_RECORD
        ends = self.fast_ends(count, skipped) if self.dialect.is_plain and self.state.is_plain else None
        if ends is None:
            ends = self.scanned_ends(count, skipped)
        new = len(ends)
        self.reserve(new)
        np.add(ends, self.offset, out=self.starts[first_line : first_line + new])
        self.lines += new
        self.find_lines_without_record(ends, first_line, count, skipped, begins_line)

    def reserve(self, new: int) -> None:
        needed = self.lines + new
        if needed > len(self.starts):
            done = max(1, min(self.offset + BLOCK_BYTES, self.size_bytes))
            estimate = int(needed * (self.size_bytes / done) * 1.02)
            grown = np.empty(max(needed + 16, estimate), np.int64)  # pages that are never written are never resident
            grown[: self.lines] = self.starts[: self.lines]
            self.starts = grown

    def bits(self, value: int) -> _Words:
        np.equal(self.values[:BLOCK_BYTES], np.uint8(value), out=self.equal)
        words: _Words = np.packbits(self.equal, bitorder="little").view("<u8")
        return words

    def fast_ends(self, count: int, skipped: int) -> _Offsets | None:
        """Where lines end in this block (behind the line break), or None if bitmaps are not exact here."""
        quote = self.dialect.quote
        breaks = self.bits(LINE_FEED)
        quoted = self.state is State.QUOTED
        has_quotes = quoted or (quote >= 0 and self.bytes.find(quote, 0, count) >= 0)
        if has_quotes:
            quotes = self.bits(quote)
            inside = _inside(quotes, quoted)
            delimiters = self.bits(self.dialect.delimiter)
            may_open = self.state in (State.START_RECORD, State.START_FIELD, State.QUOTE_IN_QUOTED)
            opening = quotes & inside
            opening &= ~_shifted(breaks | delimiters | quotes, may_open)
            if opening.any() and not _only_first(opening, skipped):
                return None
            outside = breaks & ~inside
        else:
            outside = breaks
        if self.bytes.find(CARRIAGE_RETURN, 0, count) >= 0 or self.state is State.AFTER_RETURN:
            returns = self.bits(CARRIAGE_RETURN)
            if has_quotes:
                returns &= ~inside
            lone = _shifted(returns, self.state is State.AFTER_RETURN) & ~breaks
            if count < BLOCK_BYTES:  # what follows the last byte is decided at the end of the file
                lone[count >> 6] &= ~(_ONE << np.uint64(count & 63))
            if lone.any():
                return None
        if has_quotes:
            self.check_skipping(quotes, delimiters, outside, skipped)
        last = self.bytes[count - 1]
        in_quotes = bool(has_quotes and (inside[(count - 1) >> 6] >> np.uint64((count - 1) & 63)) & _ONE)
        self.lead = False
        if last == self.dialect.delimiter and not in_quotes:
            before = self.bytes[count - 2] == LINE_FEED if count > 1 else self.state is State.START_RECORD
            self.lead = before or count - 1 == skipped
        self.state = _state_after(last, in_quotes, self.dialect)
        return _positions(outside) + 1

    def check_skipping(self, quotes: _Words, delimiters: _Words, ends: _Words, skipped: int) -> None:
        """Note the first line with a delimiter and then a quote: the parser takes that quote for text while it skips."""
        if self.skippable >= 0:
            return
        begins = _shifted(ends, self.state is State.START_RECORD)
        if skipped:
            begins[0] |= _ONE << np.uint64(skipped)
        first = begins & delimiters
        if not (self.lead or first.any()):
            return
        mistaken = _shifted(first, self.lead) & quotes
        if mistaken.any():
            place = int(_positions(mistaken)[0])
            self.skippable = self.lines - 1 + int(np.count_nonzero(_positions(ends) < place))

    def scanned_ends(self, count: int, skipped: int) -> _Offsets:
        self.scanned_bytes += count
        found = self.scan.block(bytes(self.bytes[skipped:count]), self.state, self.lead)
        self.state = found.state
        self.ambiguous = self.ambiguous or found.ambiguous
        self.lead = found.lead
        if self.skippable < 0 and found.first_unskippable >= 0:
            self.skippable = self.lines - 1 + found.first_unskippable
        return np.array(found.ends, np.int64) + skipped

    def find_lines_without_record(self, ends: _Offsets, first_line: int, count: int, skipped: int, begins_line: bool) -> None:
        """Look at the first byte of each line that starts in this block."""
        if self.open_candidate >= 0:
            self.judge(self.open_candidate, 0, int(ends[0]) if len(ends) else count, len(ends) > 0)
        firsts = self.values.take(ends)
        candidates = firsts <= _SPACE
        comment = self.dialect.comment
        if comment >= 0:
            candidates |= firsts == comment
        places = np.flatnonzero(candidates)
        if begins_line and skipped < count and (self.bytes[skipped] <= _SPACE or self.bytes[skipped] == comment):
            stop = int(ends[0]) if len(ends) else count
            self.judge(first_line - 1, skipped, stop, len(ends) > 0)
        for place in places.tolist():
            start = int(ends[place])
            if start == count:
                continue  # the next block begins with this line
            whole = place + 1 < len(ends)
            self.judge(first_line + place, start, int(ends[place + 1]) if whole else count, whole)

    def judge(self, line: int, start: int, stop: int, whole: bool) -> None:
        """Whether a line is blank or a comment, as far as this block shows it."""
        self.open_candidate = -1
        if self.bytes[start] == self.dialect.comment:
            self.comments.append(line)
        elif not self.bytes[start:stop].strip(self.blanks + b"\r\n"):
            if whole or self.offset + stop == self.size_bytes:
                self.blank.append(line)
            else:
                self.open_candidate = line


def _fill(read_into: Callable[[memoryview], int], view: memoryview) -> int:
    filled = 0
    while filled < len(view) and (count := read_into(view[filled:])):
        filled += count
    return filled


def _inside(quotes: _Words, quoted: bool) -> _Words:
    """Prefix xor: a bit is set from an opening quote up to the byte before the closing one."""
    inside: _Words = quotes.copy()
    for shift in _DOUBLINGS:
        inside ^= inside << shift
    odd = np.bitwise_xor.accumulate(inside >> _TOP)
    carried = np.empty_like(odd)
    carried[0] = quoted
    carried[1:] = odd[:-1]
    if quoted:
        carried[1:] ^= _ONE
    inside ^= np.negative(carried)
    return inside


def _shifted(bits: _Words, carried: bool) -> _Words:
    """Each bit moved to the next byte."""
    moved: _Words = bits << _ONE
    moved[1:] |= bits[:-1] >> _TOP
    moved[0] |= np.uint64(carried)
    return moved


def _only_first(bits: _Words, skipped: int) -> bool:
    """Whether the one bit set is that of the first byte behind a byte order mark."""
    return bool(skipped and bits[0] == _ONE << np.uint64(skipped) and not bits[1:].any())


def _positions(bits: _Words) -> _Offsets:
    """The places of all set bits, ascending."""
    total = int(np.bitwise_count(bits).sum())
    if total > 4 * len(bits):
        return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
    # words so narrow that hardly any holds two bits
    if 4 * total < len(bits):
        return _positions_in(bits, 6, total)
    if total < 2 * len(bits):
        return _positions_in(bits.view("<u4"), 5, total)
    return _positions_in(bits.view("<u2"), 4, total)


def _positions_in(bits: _Words | NDArray[np.uint32] | NDArray[np.uint16], log_width: int, total: int) -> _Offsets:
    words = np.flatnonzero(bits != 0)
    left = bits.take(words)
    one = left.dtype.type(1)
    base = words << log_width
    if total == len(words):
        base += np.bitwise_count(left - one)
        return base
    places = np.empty(total, np.int64)
    slots = np.bitwise_count(left).cumsum(dtype=np.int64)
    slots -= np.bitwise_count(left)
    while True:
        places[slots] = base + np.bitwise_count((left & np.negative(left)) - one)
        left &= left - one
        more = np.flatnonzero(left != 0)
        if not len(more):
            return places
        left, base, slots = left.take(more), base.take(more), slots.take(more) + 1


def _state_after(last: int, in_quotes: bool, dialect: Dialect) -> State:
    if in_quotes:
        return State.QUOTED
    if last == LINE_FEED:
        return State.START_RECORD
    if last == dialect.delimiter:
        return State.START_FIELD
    if last == dialect.quote:
        return State.QUOTE_IN_QUOTED
    return State.AFTER_RETURN if last == CARRIAGE_RETURN else State.IN_FIELD
