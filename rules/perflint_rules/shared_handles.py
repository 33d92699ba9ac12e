"""Files that a dataset opens before workers start, and that its samples read by: workers share them. No rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Dataset,
    External,
    LoaderCall,
    Scope,
    ancestors,
    any_layout,
    flow_of,
    is_conditional,
    path_of,
    words,
)

_OPENS = words(
    "builtins.open io.open h5py.File zipfile.ZipFile tarfile.open netCDF4.Dataset tables.open_file lmdb.open lmdb.Environment"
)
_OF_HDF5 = words("h5py.File netCDF4.Dataset tables.open_file")
"""What HDF5 reads by place, not from where the file stands."""
_DEPTH = 3
"""Names and attributes that a handle is followed through."""


def shared_handles(code: Code, loader: LoaderCall, dataset: Dataset) -> Iterator[tuple[str, ast.Call]]:
    """The attributes that hold a file which `__init__` opens and nobody else, and that samples read, with what opens it."""
    init = dataset.cls.methods.get("__init__")
    if init is None:
        return
    for store in flow_of(init).stores:
        name = path_of(store) or ""
        if not isinstance(store, ast.Attribute) or not name.startswith("self."):
            continue
        values = [d.value for d in flow_of(init).definitions_at(store) if d.value is not None and not d.index]
        opened = [call for value in values if (call := _opened(code.at(init), value, _DEPTH)) is not None]
        if opened and _assigns(code, dataset, store.attr) == [init] and not _is_closed(init, name):
            read = any_layout(name.encode().replace(b".", rb" \. ") + rb"\b")
            if any(read.search(scope.text) for scope in loader.sample_code()):
                yield name, opened[0]


def may_be_shared(code: Code, dataset: Dataset, opened: ast.Call) -> bool:
    """Whether something decides about a file, or processes that are forked may read by it: HDF5, and LMDB without locks."""
    no_locks = any(k.arg == "lock" and isinstance(k.value, ast.Constant) and k.value.value is False for k in opened.keywords)
    init = dataset.cls.methods["__init__"]
    return no_locks or is_conditional(init, opened) or _opens(code.at(init), opened, _OF_HDF5)


def _opens(code: Code, call: ast.Call, openers: frozenset[str] = _OPENS) -> bool:
    return code.value(call.func).must(lambda a: isinstance(a, External) and a.qualname in openers)


def _opened(code: Code, node: ast.expr, depth: int) -> ast.Call | None:
    """The call that opens a file which an expression is, or a part or a transaction of: `env.begin()`, `file["images"]`."""
    match node:
        case ast.Call() if _opens(code, node):
            return node
        case (
            ast.Call(func=ast.Attribute(value=inner, attr="begin"))
            | ast.Subscript(value=inner, slice=ast.Constant(value=str()))
        ):
            return _opened(code, inner, depth)
        case ast.Name() | ast.Attribute() if depth:
            found = code.flow.reaching.get(node, frozenset())
            bound = next(iter(found)) if len(found) == 1 else None
            if bound is not None and bound.kind == "assign" and not bound.index and bound.value is not None:
                return _opened(code, bound.value, depth - 1)
    return None


def _assigns(code: Code, dataset: Dataset, attribute: str) -> list[Scope]:
    """The methods of a dataset that assign an attribute, also those of the classes above."""
    above = (a for a in ancestors(code.facts.inference, dataset.cls) if not isinstance(a, str))
    inherited = (m for cls in above for m in cls.methods_assigning(attribute) if m.name != "__init__")
    candidates = dict.fromkeys((*dataset.cls.methods_assigning(attribute), *inherited))
    return [m for m in candidates if any(isinstance(s, ast.Attribute) and s.attr == attribute for s in flow_of(m).stores)]


def _is_closed(init: Scope, name: str) -> bool:
    """Whether `__init__` closes the file again: it has looked how many samples there are."""
    closes = flow_of(init).calls_named["close"]
    return any(isinstance(call.func, ast.Attribute) and path_of(call.func.value) == name for call in closes)
