"""A whole file is read again for each sample.

## What it does
Finds `np.load`, `torch.load`, `pickle.load`, `json.load`, `h5py.File` and pandas' readers in code that runs for each item of a
dataset, with a path that is the same for every item.

## Why it is slow
The file is opened, read and parsed as often as there are samples, in each epoch: time that grows with the size of the file
times the length of the dataset. An HDF5 file is opened and its tables are looked up again, whatever is read of it.

## Example
```python
class Rows(Dataset):
    def __init__(self, path):
        self.path = path

    def __getitem__(self, index):
        return np.load(self.path)[index]
```

## Use instead
```python
class Rows(Dataset):
    def __init__(self, path):
        self.rows = np.load(path, mmap_mode="r")

    def __getitem__(self, index):
        return self.rows[index].copy()
```
A handle that cannot be shared by processes (HDF5, LMDB) is opened by the first item of each worker, and kept.

## When it stays silent
When the path depends on the item, or may; under a condition, such as a cache that is filled once; where a decorator keeps what
a function gives (`lru_cache`); with `mmap_mode`; when another argument, a `seek` or the member of an archive says what the item
needs; for a dataset of one item. For `h5py.File`, which opens a file in 0.1 to 0.2 ms and reads nothing yet,
select it to see it.

## Fix safety
There is no fix: what is kept takes memory in each worker, and whether the file changes meanwhile is not known.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Cost,
    Finding,
    Severity,
    argument,
    is_conditional,
    reads_for_item,
    rule,
    runs_per_item,
    same_for_all_items,
)

_READERS = (
    *(f"pandas.read_{kind}" for kind in ("csv", "parquet", "pickle", "json", "hdf", "excel", "feather")),
    *("numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "torch.load", "h5py.File", "pickle.load", "json.load"),
    *("scipy.io.loadmat", "yaml.safe_load"),
)
_PARTS = frozenset(("mmap_mode", "mmap", "nrows", "skiprows", "chunksize", "iterator", "usecols", "max_rows"))
"""Arguments with which a part of the file is read, or nothing yet."""


@rule(
    category="data-loading",
    costs=Cost.DISK,
    severity=Severity.WARNING,
    calls=_READERS,
    in_file=[("Dataset",), ("__getitem__",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each reader that gets the same file for every item."""
    for call in code.calls_to(*_READERS):
        path = argument(call, 0, "path")
        if path is None or any(k.arg is None or k.arg in _PARTS for k in call.keywords) or is_conditional(code.scope, call):
            continue
        if not runs_per_item(code.facts, code.scope) or reads_for_item(code.facts, code.scope, call):
            continue
        if same_for_all_items(code.facts, code.scope, path):
            name = ast.unparse(call.func)
            did, severity = "reads all of the same file for each sample; read it once, and keep it", None
            if code.is_external(call.func, "h5py.File"):
                severity = Severity.INFO  # some 0.2 ms
                did = "opens the same file for each sample; open it at the first one that a worker makes, and keep it"
            yield code.finding(call, f"`{name}` {did}", severity=severity)
