"""What fast PyTorch training code imports: indexed data, loaders, memory, metrics that never wait, and a trainer.

Each name is loaded from its module when it is first asked for, so that a program pays for what it uses: reading CSV rows
needs no torch, and training needs no pandas. `runtime/README.md` shows each name at work.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflint_runtime.collate import pad_collate as pad_collate
    from perflint_runtime.cores import usable_cores as usable_cores
    from perflint_runtime.feature_cache import FeatureCache as FeatureCache
    from perflint_runtime.features import extract_features as extract_features
    from perflint_runtime.hf import HFLoaders as HFLoaders
    from perflint_runtime.hf import dataloaders_from_hf as dataloaders_from_hf
    from perflint_runtime.loaders import make_loader as make_loader
    from perflint_runtime.packing import packed_collate as packed_collate
    from perflint_runtime.prefetch import DevicePrefetcher as DevicePrefetcher
    from perflint_runtime.prefetch import to_device as to_device
    from perflint_runtime.resumable import ResumableLoader as ResumableLoader
    from perflint_runtime.sampling import LengthBucketSampler as LengthBucketSampler
    from perflint_runtime.tensor_loader import BatchedTensorLoader as BatchedTensorLoader
    from perflint_runtime.tune import LoaderTiming as LoaderTiming
    from perflint_runtime.tune import TunedLoader as TunedLoader
    from perflint_runtime.tune import tune_loader as tune_loader

_NAMES_OF_MODULE: dict[str, tuple[str, ...]] = {
    "collate": ("pad_collate",),
    "cores": ("usable_cores",),
    "feature_cache": ("FeatureCache",),
    "features": ("extract_features",),
    "hf": ("HFLoaders", "dataloaders_from_hf"),
    "loaders": ("make_loader",),
    "packing": ("packed_collate",),
    "prefetch": ("DevicePrefetcher", "to_device"),
    "resumable": ("ResumableLoader",),
    "sampling": ("LengthBucketSampler",),
    "tensor_loader": ("BatchedTensorLoader",),
    "tune": ("LoaderTiming", "TunedLoader", "tune_loader"),
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
