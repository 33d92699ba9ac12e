"""What methods and attributes of NumPy arrays and pandas frames give.

Lists of what is known to give such an object again (the references of numpy 2.1 and pandas 2.2 for `ndarray` and `DataFrame`);
what any other name gives is open: `frame.groupby("a")` is no frame, and `frame.a` is a column.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from perflint.facts.values.arguments import argument
from perflint.facts.values.values import UNKNOWN, Alternative, External, Literal, Number, Object, Sequence, Value, one
from perflint.source.texts import last_name
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


_MAKES_ARRAYS = words(
    """
    array asarray asanyarray ascontiguousarray asfortranarray frombuffer fromiter fromstring copy empty empty_like eye full
    full_like identity ones ones_like zeros zeros_like arange linspace logspace geomspace tri vander diag concatenate stack
    vstack hstack dstack column_stack block append tile pad roll expand_dims atleast_2d atleast_3d broadcast_to sort outer kron
    diff argwhere flatnonzero bincount
    """
)
_ASKS_ITS_ARGUMENT = words(
    """
    repeat reshape resize ravel transpose moveaxis swapaxes squeeze flip fliplr flipud rot90 cumsum cumprod argsort tril triu
    insert delete
    """
)
"""Functions that call the method of this name, if there is one: of a `Series` or a tensor they give another of these."""
_OF_EACH_ELEMENT = words(
    """
    abs absolute add arccos arcsin arctan ceil clip cos cosh deg2rad divide exp exp2 expm1 fabs floor log log10 log1p log2
    logical_and logical_not logical_or maximum minimum multiply negative power rad2deg rint round sign sin sinh sqrt square
    subtract tan tanh true_divide float32 float64 int32 int64
    """
)
_NO_ARRAYS = words(
    """
    default_rng RandomState Generator SeedSequence dtype finfo iinfo seed shuffle load save savez savetxt shape ndim size
    array_equal allclose nonzero meshgrid split array_split hsplit vsplit dsplit ix_ histogram where unravel_index
    """
)


_SIZE_AT = {"choice": 1, "randint": 2, "normal": 2, "uniform": 2, "binomial": 2, "beta": 2, "poisson": 1, "exponential": 1}
"""Where functions of `numpy.random` take the shape of what they draw: without one it is a single number."""


def array_function(qualname: str, node: ast.Call, infer: Callable[[ast.expr], Value]) -> Value:
    """What a call of a function of NumPy gives; `infer` says what its arguments are."""
    package, _, name = qualname.rpartition(".")
    if package == "numpy.random":
        return one(NDARRAY) if _draws_several(name, node, infer) else UNKNOWN if name in _NO_ARRAYS else _perhaps(NDARRAY)
    if name in _MAKES_ARRAYS or (name == "where" and len(node.args) == 3):
        return one(NDARRAY)
    given = [infer(argument) for argument in node.args]
    of_array = bool(given) and given[0].must(lambda a: a == NDARRAY)
    if name in _ASKS_ITS_ARGUMENT and of_array:
        return one(NDARRAY)
    if name in _OF_EACH_ELEMENT and given and not node.keywords:
        if all(value.must(_is_number) for value in given):
            return one(Number(""))
        if of_array and all(value.must(lambda a: a == NDARRAY or _is_number(a)) for value in given):
            return one(NDARRAY)
    return UNKNOWN if name in _NO_ARRAYS else _perhaps(NDARRAY)


def makes_array(call: ast.Call) -> bool:
    """Whether a function of numpy gives an array, and not one number, by its name."""
    name = last_name(call.func)
    return name in _ARRAYS or (name in _DRAWN and argument(call, _DRAWN[name], "size") is not None)


_ARRAYS = words("array asarray arange nonzero flatnonzero argsort permutation concatenate unique argwhere")
_DRAWN = {"choice": 1, "randint": 2, "integers": 2}


def _draws_several(name: str, node: ast.Call, infer: Callable[[ast.expr], Value]) -> bool:
    if name in ("rand", "randn"):
        return bool(node.args)
    if name in _SIZE_AT:
        size = argument(node, _SIZE_AT[name], "size")
        is_least = isinstance(size, ast.Call) and infer(size.func).single in (
            External("builtins.min"),
            External("builtins.max"),
        )
        return size is not None and (is_least or infer(size).must(lambda a: _is_number(a) or isinstance(a, Sequence)))
    return name == "permutation"


def _is_number(alternative: Alternative) -> bool:
    match alternative:
        case Number():
            return True
        case Literal(value):
            return isinstance(value, (int, float))
    return False


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
