"""What fast PyTorch training code imports: indexed data, loaders, memory, metrics that never wait, and a trainer.

Each name is loaded from its module when it is first asked for, so that a program pays for what it uses: reading CSV rows
needs no torch, and training needs no pandas. `runtime/README.md` shows each name at work.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflint_runtime.csv_dataset import CsvDataset as CsvDataset
    from perflint_runtime.csv_rows import CsvRows as CsvRows

_NAMES_OF_MODULE: dict[str, tuple[str, ...]] = {
    "csv_dataset": ("CsvDataset",),
    "csv_rows": ("CsvRows",),
}

_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULE.items() for name in names}
__all__ = sorted(_MODULE_OF_NAME)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF_NAME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
