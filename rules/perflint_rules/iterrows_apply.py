"""A data frame is gone through row by row.

## What it does
Finds `for ... in frame.iterrows()`, `frame.apply(f, axis=1)`, and a column's `apply` of a function that only takes a part of a
date, `column.apply(lambda date: date.month)`.

## Why it is slow
pandas builds a Series for each row; `itertuples` builds a tuple, and an expression over whole columns neither. The parts of
a column of dates are columns: `frame.date.dt.month`.

## Example
```python
frame = pd.read_csv("rows.csv")
for _, row in frame.iterrows():
    print(row["text"], row["label"])
```

## Use instead
```python
frame = pd.read_csv("rows.csv")
for row in frame.itertuples():
    print(row.text, row.label)
```

## When it stays silent
For what is not known to be a data frame where it is `apply`, and for `axis=0`.

## Fix safety
There is no fix: parts of dates come as other integers (int32); a row's values have the widest of its columns' types, names
that are no identifiers are changed, and a row that is written to is a copy or not.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Object, Severity, argument, call_pattern, rule, words

_PARTS = words("year month day hour minute second quarter dayofweek dayofyear")


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    needs=[(call_pattern(".iterrows", ".apply"),)],
    in_file=[("pandas", "iterrows")],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each walk over the rows of a frame."""
    for call in code.calls("iterrows"):
        if code.flow.parent.get(call) is not None and isinstance(call.func, ast.Attribute) and not call.args:
            frame = ast.unparse(call.func.value)
            yield code.finding(call, f"pandas builds a Series for each row of `{frame}`; use `itertuples()` or whole columns")
    for call in code.calls("apply"):
        part = _part_of_date(call.args[0]) if call.args and not call.keywords else None
        if part is not None and not _is_frame(code, call):
            yield code.finding(call, f"pandas calls Python for each date; `.dt.{part}` takes the part of the whole column")
            continue
        axis = argument(call, 1, "axis")
        if axis is None or not isinstance(call.func, ast.Attribute) or code.value(axis).literal not in (1, "columns"):
            continue
        if _is_frame(code, call):
            yield code.finding(
                call, "pandas builds a Series for each row and calls Python; use an expression over whole columns"
            )


def _is_frame(code: Code, call: ast.Call) -> bool:
    """Whether it surely is a frame whose method is called."""
    owner = code.value(call.func.value) if isinstance(call.func, ast.Attribute) else None
    return owner is not None and owner.must(lambda a: isinstance(a, Object) and a.qualname.startswith("pandas."))


def _part_of_date(function: ast.expr) -> str | None:
    """`month` of `lambda date: date.month`, for each part that a column of dates gives as a whole."""
    match function:
        case ast.Lambda(args=ast.arguments(args=[ast.arg(arg=name)]), body=ast.Attribute(value=ast.Name(id=taken), attr=part)):
            return part if taken == name and part in _PARTS else None
        case ast.Lambda(
            args=ast.arguments(args=[ast.arg(arg=name)]),
            body=ast.Call(func=ast.Attribute(value=ast.Name(id=taken), attr="weekday"), args=[], keywords=[]),
        ):
            return "weekday" if taken == name else None
    return None
