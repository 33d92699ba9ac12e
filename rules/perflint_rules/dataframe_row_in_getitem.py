"""Each sample asks pandas for a row.

## What it does
Finds `frame.iloc[i]` and `frame.loc[i]` in code that runs for each item of a dataset that opens and decodes nothing.

## Why it is slow
pandas builds a new Series for a row, with an index and one type for all columns, where the element of a list or an array is
there already. It is some 10 microseconds a row (pandas 3.1, Python 3.11, an Intel Xeon), which counts beside samples that take
no more.

## Example
```python
class Rows(Dataset):
    def __init__(self, path):
        self.frame = pd.read_csv(path)

    def __getitem__(self, index):
        return torch.tensor(self.frame.iloc[index].to_numpy())
```

## Use instead
```python
class Rows(Dataset):
    def __init__(self, path):
        self.rows = pd.read_csv(path).to_numpy()

    def __getitem__(self, index):
        return torch.tensor(self.rows[index])
```

## When it stays silent
Where a sample opens or decodes a file, or is tokenised, too: microseconds do not count there. For slices and masks, for lists
of rows, under a condition, and outside of datasets. Select it to see what it finds.

## Fix safety
There is no fix: a row of columns of several types has the widest of them, and `loc` finds labels, not positions.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, any_layout, called_from, is_conditional, rule, runs_per_item

_WORK = any_layout(
    rb"\b(?:open|\w*File|imread|load\w*|read\w*|decode\w*|tokeni[sz]e\w*|encode_plus|get_image|transforms?|augment\w*) \("
)
_ROW = any_layout(rb"\. i?loc \[")


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.WARNING,
    needs=[(_ROW,)],
    in_file=[("Dataset",), ("__getitem__",)],
    by_fix=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each row of a frame in code that makes a sample."""
    owner = code.scope.owner
    methods = owner.methods.items() if owner is not None else ()
    if any(_WORK.search(scope.text) for scope in (code.scope, *(m for name, m in methods if name != "__init__"))):
        return
    for row in _rows(code):
        if not is_conditional(code.scope, row) and runs_per_item(code.facts, code.scope):
            if any(_WORK.search(scope.text) for scope in called_from(code.facts, code.scope)):
                return
            base = ast.unparse(row.value)
            yield code.finding(row, f"pandas looks up and builds `{base}[...]` for each sample; keep the columns as arrays")
            return


def _rows(code: Code) -> Iterator[ast.Subscript]:
    """`frame.iloc[i]`, `frame.loc[i, "text"]` and the like, one row each."""
    for name in ("iloc", "loc"):
        for indexer in code.flow.mentions[name]:
            row = code.flow.parent.get(indexer)
            if isinstance(row, ast.Subscript) and isinstance(row.ctx, ast.Load) and row.value is indexer:
                key = row.slice.elts[0] if isinstance(row.slice, ast.Tuple) and row.slice.elts else row.slice
                if isinstance(key, (ast.Name, ast.BinOp, ast.Attribute)) or _is_item(key):
                    yield row


def _is_item(key: ast.expr) -> bool:
    """`self.labels[index]`: the label of a row."""
    return isinstance(key, ast.Subscript) and isinstance(key.slice, (ast.Name, ast.BinOp))
