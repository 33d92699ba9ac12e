"""Workers share one open file.

## What it does
Finds `DataLoader(...)` with workers over a dataset of the project whose `__init__` opens a file (`open`, `h5py.File`,
`zipfile.ZipFile`, `tarfile.open`, `lmdb.open`) that the code of a sample reads, also by a transaction of LMDB or a dataset
of h5py.

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

from collections.abc import Iterator

from perflint.api import DATA_LOADER, Code, Finding, Severity, rule
from perflint_rules.shared_handles import may_be_shared, shared_handles


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
            found = next(shared_handles(code, loader, dataset), None)
            if found is not None:
                handle, opened = found
                message = f"all workers read by `{handle}`, which was opened before they start; open it in the worker"
                is_little = loader.workers == 1 or may_be_shared(code, dataset, opened)
                yield code.finding(loader.call, message, severity=Severity.INFO if is_little else None)
