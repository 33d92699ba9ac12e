"""What methods and attributes of NumPy arrays and pandas frames give.

Lists of what is known to give such an object again (the references of numpy 2.1 and pandas 2.2 for `ndarray` and `DataFrame`);
what any other name gives is open: `frame.groupby("a")` is no frame, and `frame.a` is a column.
"""

from __future__ import annotations

import ast

from perflint.facts.values.values import UNKNOWN, Number, Object, Value, one
from perflint.source.words import words

NDARRAY = Object("numpy.ndarray")
FRAME = Object("pandas.DataFrame")

_ARRAY_TO_ARRAY = words(
    "astype copy reshape transpose swapaxes squeeze ravel flatten repeat cumsum cumprod argsort view byteswap"
)
_ARRAY_TO_NUMBER = words("item mean sum max min")
_ARRAY_SIZES = words("size ndim nbytes itemsize")
_ARRAY_PARTS = words("T real imag")
_FRAME_TO_FRAME = words(
    """
    copy head tail sample astype round clip abs replace drop dropna drop_duplicates fillna ffill bfill isna isnull notna notnull
    reset_index set_index sort_values sort_index rename reindex assign query merge join shift diff cumsum nlargest nsmallest
    select_dtypes transpose where mask add_prefix add_suffix infer_objects convert_dtypes
    """
)


_READERS = words("read_csv read_table read_fwf read_parquet read_feather read_excel")
_OTHER_RESULTS = (None, "chunksize", "iterator", "squeeze", "sheet_name")


def frame_from(name: str, node: ast.Call) -> Value:
    """What `pandas.NAME(...)` gives: a frame, parts of one, or a dict of sheets."""
    if name != "DataFrame" and not name.startswith("read_"):
        return UNKNOWN
    surely = name == "DataFrame" or (name in _READERS and not any(k.arg in _OTHER_RESULTS for k in node.keywords))
    return one(FRAME) if surely else _perhaps(FRAME)


def is_array_or_frame(receiver: Object) -> bool:
    """Whether an object is an array of NumPy or a frame of pandas."""
    return receiver.qualname in (NDARRAY.qualname, FRAME.qualname)


def array_method(receiver: Object, name: str, node: ast.Call) -> Value:
    """What `receiver.name(...)` gives for an array or a frame."""
    if _is_array(receiver) and name in _ARRAY_TO_NUMBER and (name == "item" or (not node.args and not node.keywords)):
        return one(Number(""))
    known = _ARRAY_TO_ARRAY if _is_array(receiver) else _FRAME_TO_FRAME
    if name in known and not any(k.arg in ("inplace", None) for k in node.keywords):
        return one(receiver)
    return UNKNOWN if name == "tolist" else _perhaps(receiver)


def array_attribute(receiver: Object, name: str) -> Value:
    """What `receiver.name` gives for an array or a frame."""
    if _is_array(receiver):
        if name in _ARRAY_SIZES:
            return one(Number("int"))
        if name in _ARRAY_PARTS:
            return one(NDARRAY)
    elif name in ("values", "T"):
        return one(NDARRAY if name == "values" else FRAME)
    return UNKNOWN if name in ("shape", "columns", "index") else _perhaps(receiver)


def selects_rows_or_columns(key: ast.expr) -> bool:
    """Whether `frame[key]` is a frame by the form of its key: a list of names, or a mask, which is a comparison."""
    match key:
        case (
            ast.List()
            | ast.ListComp()
            | ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()])
        ):
            return True
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return selects_rows_or_columns(inner)
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            return selects_rows_or_columns(left) and selects_rows_or_columns(right)
    return False


def _is_array(receiver: Object) -> bool:
    return receiver.qualname == NDARRAY.qualname


def _perhaps(receiver: Object) -> Value:
    return Value(frozenset((receiver,)), open=True)
