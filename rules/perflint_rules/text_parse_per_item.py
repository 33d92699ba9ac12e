"""A text file of numbers is parsed for each sample.

## What it does
Finds readers of text (`np.loadtxt`, `np.genfromtxt`, `pandas.read_csv`, `json.load`, XML parsers) in code that makes a sample
of a dataset, for a file that is another one for each sample.

## Why it is slow
Each number is turned from text into binary again in every epoch, character by character and mostly in Python. A cache in the
dataset does not help where each worker has its own and workers end with the epoch.

## Example
```python
class Points(Dataset):
    def __getitem__(self, index):
        return np.loadtxt(self.files[index])
```

## Use instead
```python
class Points(Dataset):
    def __getitem__(self, index):
        return np.load(self.files[index])  # converted once, by np.save
```

## When it stays silent
Outside of datasets, for a file that is the same for all samples (`whole-file-load-per-item` has those), and where `skiprows`
asks for a part (`csv-row-by-skiprows`).

## Fix safety
There is no fix: the files have to be converted.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, argument, rule, runs_per_item, same_for_all_items

_READERS = (
    *("numpy.loadtxt", "numpy.genfromtxt", "numpy.fromstring", "json.load", "json.loads", "yaml.safe_load"),
    *("pandas.read_csv", "pandas.read_table", "pandas.read_json", "pandas.read_excel"),
    *("xml.etree.ElementTree.parse", "xml.dom.minidom.parse", "lxml.etree.parse"),
)
_PARTS = frozenset(("skiprows", "nrows", "max_rows", "chunksize"))


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    calls=_READERS,
    in_file=[("torch",), ("Dataset",), ("__getitem__",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each reader of text that runs for each sample."""
    for call in code.calls_to(*_READERS):
        source = argument(call, 0, "path")
        if source is None or any(k.arg is None or k.arg in _PARTS for k in call.keywords):
            continue
        if runs_per_item(code.facts, code.scope) and not same_for_all_items(code.facts, code.scope, source):
            name = ast.unparse(call.func)
            yield code.finding(
                call, f"`{name}` turns text into numbers for each sample again in each epoch; convert the files once"
            )
