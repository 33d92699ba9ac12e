"""Workers share one open file.

## What it does
Finds `DataLoader(...)` with workers over a dataset of the project whose `__init__` opens a file (`open`, `h5py.File`,
`zipfile.ZipFile`, `tarfile.open`, `lmdb.open`) that the code of a sample reads.

## Why it is an error
A forked worker inherits the open file with its position: when two workers seek and read, each may get what the other asked
for. Where workers are spawned, the handle cannot be sent to them, and the loader raises.

Measured with eight forked processes: by one environment of LMDB (3.0), each of them ended with `ReadersFullError`, and made
48,000 reads without a wrong one by an environment with `lock=False`. HDF5 before 1.10.5 (2019) seeks; later ones read by
place, and 144,000 reads of contiguous and compressed datasets by one handle were right (HDF5 2.0).

## Example
```python
class Records(Dataset):
    def __init__(self, path):
        self.file = open(path, "rb")

    def __getitem__(self, index):
        self.file.seek(index * 64)
        return self.file.read(64)

loader = DataLoader(Records("records.bin"), num_workers=2)
```

## Use instead
```python
class Records(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None

    def __getitem__(self, index):
        if self.file is None:
            self.file = open(self.path, "rb")
        self.file.seek(index * 64)
        return self.file.read(64)

loader = DataLoader(Records("records.bin"), num_workers=2)
```

## When it stays silent
Without workers or when their number is not known, with a `worker_init_fn`, and when a method opens the file later. One worker,
files of HDF5, and LMDB with `lock=False`, are on request: they fail only where workers are spawned. So is a file that
something decides about: the loader may be given a dataset that opens none.

## Fix safety
There is no fix: when the file is opened is for you to say.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    DATA_LOADER,
    Code,
    Dataset,
    External,
    Finding,
    LoaderCall,
    Scope,
    Severity,
    any_layout,
    flow_of,
    is_conditional,
    path_of,
    rule,
    words,
)

_OPENS = words(
    "builtins.open io.open h5py.File zipfile.ZipFile tarfile.open netCDF4.Dataset tables.open_file lmdb.open lmdb.Environment"
)
_OF_HDF5 = words("h5py.File netCDF4.Dataset tables.open_file")
"""What HDF5 reads by place, not from where the file stands."""


@rule(
    category="data-loading",
    severity=Severity.WARNING,
    calls=[DATA_LOADER],
    near=[("open(", "File(", "lmdb.Environment("), ("__getitem__",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loader whose workers inherit an open file."""
    for loader in code.loaders():
        if not loader.workers or loader.gives("worker_init_fn") is not False:
            continue
        for dataset in loader.datasets:
            found = next(_shared(code, loader, dataset), None)
            if found is not None:
                handle, opened = found
                message = f"all workers read by `{handle}`, which was opened before they start; open it in the worker"
                init = dataset.cls.methods["__init__"]
                is_little = loader.workers == 1 or _has_no_locks(opened) or is_conditional(init, opened)
                is_little = is_little or _opens(code.at(init), opened, _OF_HDF5)
                yield code.finding(loader.call, message, severity=Severity.INFO if is_little else None)


def _shared(code: Code, loader: LoaderCall, dataset: Dataset) -> Iterator[tuple[str, ast.Call]]:
    """The attributes that hold a file which `__init__` opens and nobody else, and that samples read, with what opens it."""
    init = dataset.cls.methods.get("__init__")
    if init is None:
        return
    for store in flow_of(init).stores:
        name = path_of(store) or ""
        if not isinstance(store, ast.Attribute) or not name.startswith("self."):
            continue
        values = [d.value for d in flow_of(init).definitions_at(store) if d.value is not None and not d.index]
        opened = [v for v in values if isinstance(v, ast.Call) and _opens(code.at(init), v)]
        if opened and _assigns(dataset, store.attr) == [init]:
            read = any_layout(name.encode().replace(b".", rb" \. ") + rb"\b")
            if any(read.search(scope.text) for scope in loader.sample_code()):
                yield name, opened[0]


def _assigns(dataset: Dataset, attribute: str) -> list[Scope]:
    """The methods of a dataset that assign an attribute."""
    candidates = dataset.cls.methods_assigning(attribute)
    return [m for m in candidates if any(isinstance(s, ast.Attribute) and s.attr == attribute for s in flow_of(m).stores)]


def _opens(code: Code, call: ast.Call, openers: frozenset[str] = _OPENS) -> bool:
    return code.value(call.func).must(lambda a: isinstance(a, External) and a.qualname in openers)


def _has_no_locks(call: ast.Call) -> bool:
    """`lmdb.open(path, lock=False)` keeps no table of readers: what is forked may read by it."""
    return any(k.arg == "lock" and isinstance(k.value, ast.Constant) and k.value.value is False for k in call.keywords)
