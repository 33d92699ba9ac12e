"""The states of pandas' C parser, followed byte by byte: slow, and exact for what bitmaps cannot say.

The states and their order are those of `tokenize_bytes` in pandas/_libs/src/parser/tokenizer (read in pandas 2.1 to 3.1).
Only what ends a line matters here, so fields are not cut out and a search jumps from one special byte to the next.
"""

import csv
import re
from dataclasses import dataclass
from enum import Enum, auto

LINE_FEED = 0x0A
CARRIAGE_RETURN = 0x0D
_SPACE = 0x20


@dataclass(frozen=True)
class Dialect:
    """The arguments of `pandas.read_csv` that decide where a line ends, as byte values; -1 stands for none."""

    delimiter: int = 0x2C
    quote: int = 0x22
    double_quote: bool = True
    escape: int = -1
    comment: int = -1
    skip_initial_space: bool = False

    @classmethod
    def of(
        cls,
        sep: str = ",",
        quotechar: str | None = '"',
        quoting: int = csv.QUOTE_MINIMAL,
        doublequote: bool = True,
        escapechar: str | None = None,
        comment: str | None = None,
        skipinitialspace: bool = False,
    ) -> "Dialect":
        """The dialect of `read_csv`'s arguments. Raises `ValueError` for what is not one ASCII character."""
        quote = None if quoting == csv.QUOTE_NONE else quotechar
        return cls(
            _byte("sep", sep),
            _byte("quotechar", quote),
            doublequote,
            _byte("escapechar", escapechar),
            _byte("comment", comment),
            skipinitialspace,
        )

    @property
    def is_plain(self) -> bool:
        """Whether line breaks, delimiters and doubled quotes are all there is."""
        return self.double_quote and self.escape < 0 and self.comment < 0 and not self.skip_initial_space


def _byte(name: str, value: str | None) -> int:
    if value is None:
        return -1
    if len(value) != 1 or not value.isascii():
        raise ValueError(f"{name}={value!r} is not one ASCII character")
    return ord(value)


class State(Enum):
    """Where the parser stands between two bytes."""

    START_RECORD = auto()
    START_FIELD = auto()
    IN_FIELD = auto()
    QUOTED = auto()
    QUOTE_IN_QUOTED = auto()
    AFTER_RETURN = auto()
    ESCAPED = auto()
    ESCAPED_IN_QUOTED = auto()
    COMMENT = auto()

    @property
    def is_plain(self) -> bool:
        """Whether a plain dialect has this state."""
        return self not in (State.ESCAPED, State.ESCAPED_IN_QUOTED, State.COMMENT)


@dataclass(frozen=True)
class Scanned:
    """What one block held: where its lines end, the state behind it, and the first line (counted from the one that the block
    begins in) that pandas counts otherwise while it skips; -1 if there is none. `ambiguous` tells that a delimiter follows a
    lone carriage return: behind a line without a record the parser loses it. `lead` tells that the block ends with one
    delimiter that begins a line.
    """

    ends: list[int]
    state: State
    first_unskippable: int
    ambiguous: bool
    lead: bool


class Scan:
    """Follows the parser's states through blocks of a file."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        special = {LINE_FEED, CARRIAGE_RETURN, dialect.delimiter, dialect.quote, dialect.escape, dialect.comment} - {-1}
        self.in_field = _search(special - {dialect.quote})
        self.in_quotes = _search({dialect.quote, dialect.escape} - {-1})
        self.line_end = _search({LINE_FEED, CARRIAGE_RETURN})

    def block(self, data: bytes, state: State, lead: bool) -> Scanned:
        """Scan one block that begins in `state`; `lead` if all of its first line so far is one delimiter."""
        dialect = self.dialect
        delimiter, quote, escape, comment = dialect.delimiter, dialect.quote, dialect.escape, dialect.comment
        ends: list[int] = []
        unskippable = -1
        ambiguous = False
        at, stop = 0, len(data)
        begin = 0 if state is State.START_RECORD else -1  # of the line, if it is in this block
        while at < stop:
            byte = data[at]
            match state:
                case State.AFTER_RETURN:
                    if byte == LINE_FEED:
                        at += 1
                    else:
                        ambiguous = ambiguous or byte == delimiter
                        if unskippable < 0:
                            unskippable = len(ends)
                    ends.append(at)
                    begin = at
                    state = State.START_RECORD
                case State.QUOTED:
                    found = self.in_quotes.search(data, at)
                    if found is None:
                        break
                    at = found.end()
                    if data[at - 1] == escape:
                        state = State.ESCAPED_IN_QUOTED
                    else:
                        state = State.QUOTE_IN_QUOTED if dialect.double_quote else State.IN_FIELD
                case State.COMMENT:
                    found = self.line_end.search(data, at)
                    if found is None:
                        break
                    at = found.start()
                    at += 1
                    state = _after_end_of_line(data[at - 1], at, ends)
                    begin = at
                case State.ESCAPED:
                    at += 1
                    state = State.IN_FIELD
                case State.ESCAPED_IN_QUOTED:
                    at += 1
                    state = State.QUOTED
                case _:
                    if state is State.IN_FIELD:
                        found = self.in_field.search(data, at)
                        if found is None:
                            break
                        at = found.start()
                        byte = data[at]
                    at += 1
                    if byte in (LINE_FEED, CARRIAGE_RETURN):
                        state = _after_end_of_line(byte, at, ends)
                        begin = at
                    elif byte == _SPACE and dialect.skip_initial_space and state in (State.START_RECORD, State.START_FIELD):
                        state = State.START_FIELD
                    elif state is State.QUOTE_IN_QUOTED:
                        state = State.QUOTED if byte == quote else State.START_FIELD if byte == delimiter else State.IN_FIELD
                    elif byte == quote and state is not State.IN_FIELD:
                        # skipping, the parser takes the first byte of a line for text unless it is a quote
                        first_is_delimiter = lead if at == 1 else at - 2 == begin and data[begin] == delimiter
                        if first_is_delimiter and unskippable < 0:
                            unskippable = len(ends)
                        state = State.QUOTED
                    elif byte == comment:
                        state = State.COMMENT
                    elif byte == escape:
                        state = State.ESCAPED
                    elif byte == delimiter:
                        state = State.START_FIELD
                    else:
                        state = State.IN_FIELD
        lead = state is State.START_FIELD and begin == stop - 1 and data[begin] == delimiter
        return Scanned(ends, state, unskippable, ambiguous, lead)


def _search(special: set[int]) -> re.Pattern[bytes]:
    """Finds the next of some bytes; nothing, if there are none."""
    return re.compile(b"[" + b"".join(re.escape(bytes([byte])) for byte in sorted(special)) + b"]" if special else b"(?!)")


def _after_end_of_line(byte: int, behind: int, ends: list[int]) -> State:
    """The state behind a line feed (the line ends here) or a carriage return (a line feed may follow)."""
    if byte == CARRIAGE_RETURN:
        return State.AFTER_RETURN
    ends.append(behind)
    return State.START_RECORD
