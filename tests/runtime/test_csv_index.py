"""Where lines start: bitmaps and states against a plain reading of the rules."""

from __future__ import annotations

import io
import itertools
import random

import pytest
from perflint_runtime import csv_index
from perflint_runtime.csv_index import LineIndex, index_lines
from perflint_runtime.csv_scan import Dialect, State


def indexed(data: bytes, dialect: Dialect | None = None) -> LineIndex:
    """The index of some bytes."""
    return index_lines(io.BytesIO(data).readinto, len(data), dialect or Dialect())


def lines(data: bytes, dialect: Dialect | None = None) -> list[bytes]:
    """The lines that the index cuts bytes into."""
    index = indexed(data, dialect)
    starts = index.starts.tolist()
    return [data[start:stop] for start, stop in itertools.pairwise(starts)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a,b", [b"a,b"]),
        (b"a\nb\n", [b"a\n", b"b\n"]),
        (b"a\r\n\r\nb", [b"a\r\n", b"\r\n", b"b"]),
        (b"a\rb\r", [b"a\r", b"b\r"]),
        (b'x,"l\nm"\ny', [b'x,"l\nm"\n', b"y"]),
        (b'x,"l\r\nm""\n"\ny', [b'x,"l\r\nm""\n"\n', b"y"]),
        (b'5" nail\nb', [b'5" nail\n', b"b"]),
        (b'"a"b"\nc"d', [b'"a"b"\n', b'c"d']),
        (b'"a"b,"\nc"\nd', [b'"a"b,"\nc"\n', b"d"]),
        (b'"open\nto the end', [b'"open\nto the end']),
        (b'\xef\xbb\xbf"l\nm"\nb', [b'"l\nm"\n', b"b"]),
        (b"\xef\xbb\xbf", []),
    ],
)
def test_cuts_lines_where_pandas_does(data: bytes, expected: list[bytes]) -> None:
    assert lines(data) == expected


@pytest.mark.parametrize(
    ("data", "dialect", "expected"),
    [
        (b"a\\\nb\nc", Dialect(escape=0x5C), [b"a\\\nb\n", b"c"]),
        (b'"a\\"\nb"\nc', Dialect(escape=0x5C), [b'"a\\"\nb"\n', b"c"]),
        (b'a #"\nb', Dialect(comment=0x23), [b'a #"\n', b"b"]),
        (b'"a"#\n"b', Dialect(comment=0x23), [b'"a"#\n', b'"b']),
        (b'a, "l\nm"\nc', Dialect(skip_initial_space=True), [b'a, "l\nm"\n', b"c"]),
        (b'a, "l\nm"\nc', Dialect(), [b'a, "l\n', b'm"\n', b"c"]),
        (b'"a""\nb"\nc', Dialect(double_quote=False), [b'"a""\n', b'b"\n', b"c"]),
        (b'"a\nb"', Dialect(quote=-1), [b'"a\n', b'b"']),
        (b"'l\nm';2\n3", Dialect(delimiter=0x3B, quote=0x27), [b"'l\nm';2\n", b"3"]),
    ],
)
def test_follows_the_dialect(data: bytes, dialect: Dialect, expected: list[bytes]) -> None:
    assert lines(data, dialect) == expected


def test_blank_lines_and_comments_hold_no_record() -> None:
    index = indexed(b'a\n\n \t\r\n"\n"\n#c\n a\n', Dialect(comment=0x23))
    assert index.blank.tolist() == [1, 2]
    assert index.comments.tolist() == [4]


def test_a_delimiter_of_blanks_is_a_field() -> None:
    assert indexed(b"a\n\t\n \n", Dialect(delimiter=0x09)).blank.tolist() == [2]


def test_tells_where_pandas_counts_otherwise_while_it_skips() -> None:
    assert indexed(b'a,b\n1,"l\nm"\n').skippable == 2
    assert indexed(b'a,b\n1,2\n,"l\nm"\n3,4\n').skippable == 2  # skipped, the quote is text
    assert indexed(b"a,b\r1,2\r3,4\r").skippable == 0


def test_bitmaps_serve_well_formed_files_alone() -> None:
    assert indexed(b'a,"b\n"\r\n' * 1000).scanned_bytes == 0
    assert indexed(b'a,5"\n' * 1000).scanned_bytes > 0


@pytest.mark.parametrize("block_bytes", [64, 128, 192])
@pytest.mark.parametrize("seed", range(20))
def test_states_go_over_from_block_to_block(monkeypatch: pytest.MonkeyPatch, block_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    tokens = [b'"', b",", b"\n", b"\r\n", b"ab", b'""', b" ", b'"a\nb"', b",x", b"\n\n", b"abcdefgh" * 9] + [b"\r"] * (seed % 2)
    for _ in range(60):
        data = b"".join(rng.choice(tokens) for _ in range(rng.randrange(120)))
        whole = indexed(data)
        with monkeypatch.context() as patch:
            patch.setattr(csv_index, "BLOCK_BYTES", block_bytes)
            cut = indexed(data)
        assert cut.starts.tolist() == whole.starts.tolist() == plainly(data)
        assert cut.blank.tolist() == whole.blank.tolist()
        assert cut.skippable == whole.skippable
        assert cut.final_state is whole.final_state


@pytest.mark.parametrize("length", [1, 2, 5, 17, 33, 40, 63, 64, 65, 200, 1000])
def test_positions_at_any_density(length: int) -> None:
    data = (b"x" * (length - 1) + b"\n") * (600_000 // length)
    assert indexed(data).starts.tolist() == list(range(0, len(data) + 1, length))


def test_a_file_that_changes_size_meanwhile() -> None:
    with pytest.raises(EOFError, match="grew"):
        index_lines(io.BytesIO(b"a\nb\n").readinto, 2, Dialect())
    with pytest.raises(EOFError, match="shrank"):
        index_lines(io.BytesIO(b"a\nb\n").readinto, 9, Dialect())


def plainly(data: bytes) -> list[int]:
    """The starts of lines, byte by byte, for the usual dialect."""
    starts = [0]
    state = State.START_RECORD
    for at, byte in enumerate(data):
        char = bytes([byte])
        if state is State.AFTER_RETURN:
            state = State.START_RECORD
            if char == b"\n":
                starts.append(at + 1)
                continue
            starts.append(at)
        if state is State.QUOTED:
            if char == b'"':
                state = State.QUOTE_IN_QUOTED
        elif char == b"\n":
            starts.append(at + 1)
            state = State.START_RECORD
        elif char == b"\r":
            state = State.AFTER_RETURN
        elif char == b",":
            state = State.START_FIELD
        elif char == b'"' and state is not State.IN_FIELD:
            state = State.QUOTED
        else:
            state = State.IN_FIELD
    return starts if starts[-1] == len(data) else [*starts, len(data)]
