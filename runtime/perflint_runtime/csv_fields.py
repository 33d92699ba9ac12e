"""The fields of one record, and texts as values of a fixed type."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAN_TEXTS = frozenset(
    {
        "",
        "#N/A",
        "#N/A-N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
    }
)
"""What pandas takes for a missing number, the empty field included."""
_TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}


class FieldParser:
    """Splits records as pandas' C parser does, for delimiters and doubled quotes only."""

    def __init__(self, sep: str, quote: str | None) -> None:
        """`quote` is None if quotes are text (`csv.QUOTE_NONE`)."""
        self._sep = sep
        self._quote = quote
        if quote is not None:
            s, q = re.escape(sep), re.escape(quote)
            # a quoted part and the text behind it, or an unquoted field
            self._findall = re.compile(f"(?:^|{s})(?:{q}([^{q}]*(?:{q}{q}[^{q}]*)*){q}([^{s}]*)|([^{s}]*))").findall

    def fields(self, record: str) -> list[str]:
        """The fields of a record, which may end in a line break."""
        record = record.rstrip("\r\n")
        quote = self._quote
        if quote is None or quote not in record:
            return record.split(self._sep)
        doubled = quote + quote
        return [
            (quoted.replace(doubled, quote) if quote in quoted else quoted) + behind or plain
            for quoted, behind, plain in self._findall(record)
        ]


class TextColumn:
    """Texts as they stand in the file."""

    name = "str"

    def value(self, text: str) -> str:
        """The text."""
        return text

    def values(self, texts: list[str]) -> list[str]:
        """The texts."""
        return texts


class NumberColumn:
    """Numbers of one NumPy dtype."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        """`dtype` is of booleans, integers or floating numbers."""
        self.dtype = dtype
        self.name = dtype.name
        self._scalar = dtype.type
        self._read = {"b": _boolean, "f": _floating}.get(dtype.kind, _integer)

    def value(self, text: str) -> np.generic:
        """The number. Raises `ValueError` for a text that is none, `OverflowError` for one that the dtype cannot hold."""
        number: np.generic = self._scalar(self._read(text))
        return number

    def values(self, texts: list[str]) -> NDArray[Any]:
        """The numbers, shape [len(texts)]. Raises as `value`."""
        return np.array(list(map(self._read, texts)), self.dtype)


def column_of(name: str, dtype: object) -> TextColumn | NumberColumn:
    """How a column is read. Raises `TypeError` for a dtype that is neither text nor number."""
    if dtype is str:
        return TextColumn()
    try:
        found = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        found = None
    if found is None or found.kind not in "biuf":
        raise TypeError(f"column {name!r} is {dtype!r}; a column is str, bool, or an integer or floating dtype")
    return NumberColumn(found)


def _floating(text: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        if text in _NAN_TEXTS:
            return float("nan")
        raise


def _integer(text: str) -> int:
    if "_" in text:  # Python reads 1_000, pandas does not
        raise ValueError
    return int(text)


def _boolean(text: str) -> bool:
    if text not in _TRUTH:
        raise ValueError
    return _TRUTH[text]
