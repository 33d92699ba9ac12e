"""A data frame is gone through row by row.

## What it does
Finds `for ... in frame.iterrows()` and `frame.apply(f, axis=1)`.

## Why it is slow
pandas builds a Series for each row; `itertuples` builds a tuple, and an expression over whole columns neither.

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
There is no fix: a row's values have the widest of its columns' types, names that are no identifiers are changed, and a row
that is written to is a copy or not.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Object, Severity, argument, call_pattern, rule


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
        axis = argument(call, 1, "axis")
        if axis is None or not isinstance(call.func, ast.Attribute) or code.value(axis).literal not in (1, "columns"):
            continue
        if code.value(call.func.value).must(lambda a: isinstance(a, Object) and a.qualname.startswith("pandas.")):
            yield code.finding(
                call, "pandas builds a Series for each row and calls Python; use an expression over whole columns"
            )
