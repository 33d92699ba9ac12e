"""Each row is read by parsing the file from its start.

## What it does
Finds `pd.read_csv(path, skiprows=i, nrows=1)` (also with `range`, a list, a lambda or `chunksize`) where `i` changes from call
to call, as in a `Dataset.__getitem__`; and a whole-file read in `__getitem__`.

## Why it is slow
pandas has to scan all lines before the wanted one, so an access takes the longer the further down the row is. An index of
record starts makes the time of an access constant.

## Example
```python
import pandas as pd

class Rows(Dataset):
    def __init__(self, path):
        self.path = path

    def __getitem__(self, i):
        return pd.read_csv(self.path, skiprows=i, nrows=1, header=None)
```

## Use instead
```python
import pandas as pd
from perflint_runtime import CsvRows

class Rows(Dataset):
    def __init__(self, path):
        self.path = path

    def __getitem__(self, i):
        return CsvRows.of(self.path).read_csv(skiprows=i, nrows=1, header=None)
```

## When it stays silent
For a constant `skiprows`, for sequential reads in chunks, for reads of another file per item, and for a whole file that is
read under a condition, such as a cache that is filled once.

## Fix safety
Unsafe, and offered only where the project uses the runtime. The helper gets the original arguments and gives the
DataFrame that pandas gives for them: `skiprows=i` keeps its meaning for the header, types are inferred from the one row,
an index past the end gives an empty frame. But the file must not change after it was indexed, and the index takes 8
bytes per row. Reading the file once instead would change values: types are inferred per column then, and blank lines
and quoted line breaks count differently.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CannotRewrite,
    Code,
    Cost,
    Edit,
    External,
    Finding,
    Import,
    Kind,
    Obligation,
    Severity,
    argument,
    change_call,
    is_conditional,
    names_behind,
    path_of,
    reads_for_item,
    rule,
    same_for_all_items,
    words,
)

_UNCHANGED = Obligation(Kind.MUTATION, "the file must not change after it was indexed")
_NO_RUNTIME = Obligation(Kind.REWRITE, "the project does not use perflint_runtime (`runtime = true`, or `--runtime`)")


@rule(
    category="data-loading",
    costs=Cost.DISK,
    severity=Severity.WARNING,
    needs=[("read_csv", "read_parquet", "read_table")],
    in_file=[("pandas",)],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each read of one row (or one chunk) that parses the file from its start."""
    for call in code.calls("read_csv", "read_table", "read_parquet"):
        if not code.value(call.func).must(lambda a: isinstance(a, External) and a.qualname.startswith("pandas.")):
            continue
        if _skips_by_row(code, call):
            yield _row_finding(code, call)
        elif code.scope.name == "__getitem__" and _is_shared_file(code, call):
            cure, missing = "read it once in `__init__`, or index it with `perflint_runtime.CsvRows`", list[Obligation]()
            if not same_for_all_items(code.facts, code.scope, call.args[0]):
                cure = "keep what is parsed in a dict by its path"
                missing = [Obligation(Kind.MUTATION, "the file may be another one for each item")]
            yield code.finding(call, f"the whole file is parsed for every item; {cure}", None, missing)


def _row_finding(code: Code, call: ast.Call) -> Finding:
    missing = [_UNCHANGED]
    fix = None
    name = (path_of(call.func) or "").rpartition(".")[2]
    chunked = argument(call, None, "chunksize") is not None or argument(call, None, "iterator") is not None
    if name != "read_csv" or chunked or not call.args:
        missing = [Obligation(Kind.REWRITE, "only a `read_csv` of one row with the path as its first argument is rewritten")]
    elif not code.may_use_runtime:
        missing = [_NO_RUNTIME]
    else:
        fix = code.fix("index the file's records once", _indexed(code, call), unless=missing)
    told = "pandas parses the file from its start for every row; index the records with `perflint_runtime.CsvRows`"
    return code.finding(call, told, fix, missing)


def _skips_by_row(code: Code, call: ast.Call) -> bool:
    """Whether the call skips a varying number of rows to get at a few."""
    skip = argument(call, None, "skiprows")
    if skip is None:
        return False
    few = argument(call, None, "nrows") or argument(call, None, "chunksize")
    if few is None:
        return False
    files = names_behind(code.flow, *(n.id for part in call.args[:1] for n in ast.walk(part) if isinstance(n, ast.Name)))
    others = {d.value for name in files for d in code.flow.definitions_of(name) if d.kind == "for"}
    names = {n.id for n in ast.walk(skip) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    varying = {name for name in names if _varies(code, name, others)}
    return bool(varying) and not _is_sequential(code, call, varying)


def _varies(code: Code, name: str, others: set[ast.expr | None]) -> bool:
    """Whether a name is a parameter or a variable of a loop, but for `others`, which come to another file in each round."""
    return any(
        (definition.kind == "for" and definition.value not in others)
        or (definition.kind == "parameter" and _is_row_parameter(code, definition.name))
        for behind in names_behind(code.flow, name)
        for definition in code.flow.definitions_of(behind)
    )


_ROW_PARAMETERS = words("i idx index row item line lineno row_idx row_index sample_idx offset")


def _is_row_parameter(code: Code, name: str) -> bool:
    if code.scope.name == "__getitem__" or name not in _ROW_PARAMETERS:
        return code.scope.name == "__getitem__" and name not in ("self", "cls")
    bound = [parameter.arg for parameter in code.scope.parameters].index(name) - (code.scope.owner is not None)
    given = [argument(site.node, bound, name) for site in code.facts.inference.callers.sites(code.scope).sites]
    # the same few lines of each file: where its head ends, say
    return not given or not all(value is None or isinstance(value, ast.Constant) for value in given)


def _is_sequential(code: Code, call: ast.Call, names: set[str]) -> bool:
    """Whether the chunks of a file are read one after the other: each line is skipped a few times, not for each row."""
    size = argument(call, None, "nrows") or argument(call, None, "chunksize")
    if isinstance(size, ast.Constant) and size.value == 1:
        return False
    if code.scope.name == "__getitem__":
        return False
    return all(d.kind != "parameter" for name in names for d in code.flow.definitions_of(name))


def _is_shared_file(code: Code, call: ast.Call) -> bool:
    """Whether `__getitem__` reads a file that holds many items: the same one for all, or one whose rows the item picks."""
    if not call.args or len(code.scope.parameters) < 2 or is_conditional(code.scope, call):
        return False
    if reads_for_item(code.facts, code.scope, call):
        return False
    return same_for_all_items(code.facts, code.scope, call.args[0]) or _is_chunk_lookup(code, call)


def _is_chunk_lookup(code: Code, call: ast.Call) -> bool:
    """A file that holds many items: rows that depend on the item are picked from the frame that was read."""
    for node in code.flow.order:
        match node:
            case ast.Subscript(value=ast.Attribute(value=frame, attr="loc" | "iloc"), slice=picked):
                read = [d.value for d in code.flow.reaching.get(frame, ()) if d.value is not None] or [frame]
                if any(inner is call for value in read for inner in ast.walk(value)):
                    rows = picked.elts[0] if isinstance(picked, ast.Tuple) and picked.elts else picked
                    # where a window of the whole frame is drawn, the item says which file is read, and no more
                    named = [n.id for n in ast.walk(rows) if isinstance(n, ast.Name)]
                    if code.scope.parameters[1].arg in names_behind(code.flow, *named, but_for=call):
                        return True
    return False


def _indexed(code: Code, call: ast.Call) -> Iterator[Edit | Import]:
    import libcst as cst

    known = code.facts.inference.module_name(code.scope.module, "CsvRows", 1)
    if known.alternatives and not known.must(lambda a: a == External("perflint_runtime.CsvRows")):
        raise CannotRewrite("`CsvRows` means something else here")
    yield Import("perflint_runtime", "CsvRows")

    def change(node: cst.Call) -> cst.BaseExpression:
        first, *rest = node.args
        opened = cst.Call(cst.parse_expression("CsvRows.of"), [first.with_changes(comma=cst.MaybeSentinel.DEFAULT)])
        return node.with_changes(func=cst.Attribute(opened, cst.Name("read_csv")), args=rest)

    yield change_call(code.source, call, change)
