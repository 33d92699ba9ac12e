"""What fast PyTorch training code imports: indexed data, loaders, memory, metrics that never wait, and a trainer.

Each name is loaded from its module when it is first asked for, so that a program pays for what it uses: reading CSV rows
needs no torch, and training needs no pandas. `runtime/README.md` shows each name at work.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflint_runtime.array_lists import joined as joined
    from perflint_runtime.blends import blend_parameters as blend_parameters
    from perflint_runtime.cached_features import CachedFeatures as CachedFeatures
    from perflint_runtime.callbacks import Callback as Callback
    from perflint_runtime.checkpoints import Checkpoints as Checkpoints
    from perflint_runtime.collate import pad_collate as pad_collate
    from perflint_runtime.copies import moved as moved
    from perflint_runtime.copies import moved_copy as moved_copy
    from perflint_runtime.copies import moved_copy_to_cuda as moved_copy_to_cuda
    from perflint_runtime.copies import moved_to_cuda as moved_to_cuda
    from perflint_runtime.copies import uploaded as uploaded
    from perflint_runtime.csv_dataset import CsvDataset as CsvDataset
    from perflint_runtime.csv_rows import CsvRows as CsvRows
    from perflint_runtime.export import export_safetensors as export_safetensors
    from perflint_runtime.features import extract_features as extract_features
    from perflint_runtime.hf import dataloaders_from_hf as dataloaders_from_hf
    from perflint_runtime.host_array import HostArray as HostArray
    from perflint_runtime.host_dict import HostDict as HostDict
    from perflint_runtime.host_list import HostList as HostList
    from perflint_runtime.indices import device_index as device_index
    from perflint_runtime.item_sum import ItemSum as ItemSum
    from perflint_runtime.late_items import LateItem as LateItem
    from perflint_runtime.late_items import copies_together as copies_together
    from perflint_runtime.late_items import items_together as items_together
    from perflint_runtime.late_meter import LateMeter as LateMeter
    from perflint_runtime.late_scalars import late_scalar as late_scalar
    from perflint_runtime.loaders import make_loader as make_loader
    from perflint_runtime.loggers import JsonlLogger as JsonlLogger
    from perflint_runtime.loggers import MlflowLogger as MlflowLogger
    from perflint_runtime.loggers import TensorBoardLogger as TensorBoardLogger
    from perflint_runtime.loggers import WandbLogger as WandbLogger
    from perflint_runtime.losses import CrossEntropy as CrossEntropy
    from perflint_runtime.losses import accuracy as accuracy
    from perflint_runtime.losses import balanced_class_weights as balanced_class_weights
    from perflint_runtime.memory import MemoryManager as MemoryManager
    from perflint_runtime.memory import empty_cache_if_needed as empty_cache_if_needed
    from perflint_runtime.metrics import DeviceSum as DeviceSum
    from perflint_runtime.metrics import LossMeter as LossMeter
    from perflint_runtime.models import prepare_model as prepare_model
    from perflint_runtime.oom import MicroBatchBackward as MicroBatchBackward
    from perflint_runtime.oom import find_executable_batch_size as find_executable_batch_size
    from perflint_runtime.optimizers import ExponentialMovingAverage as ExponentialMovingAverage
    from perflint_runtime.optimizers import make_optimizer as make_optimizer
    from perflint_runtime.packing import packed_collate as packed_collate
    from perflint_runtime.prefetch import DevicePrefetcher as DevicePrefetcher
    from perflint_runtime.prefetch import to_device as to_device
    from perflint_runtime.sampling import LengthBucketSampler as LengthBucketSampler
    from perflint_runtime.scalars import AsyncScalars as AsyncScalars
    from perflint_runtime.scalars import NonFiniteError as NonFiniteError
    from perflint_runtime.scalars import NonFiniteGuard as NonFiniteGuard
    from perflint_runtime.selection import selected as selected
    from perflint_runtime.settings import ModelSettings as ModelSettings
    from perflint_runtime.settings import TrainingSettings as TrainingSettings
    from perflint_runtime.settings import load_settings as load_settings
    from perflint_runtime.state import inference as inference
    from perflint_runtime.state import random_state as random_state
    from perflint_runtime.state import set_random_state as set_random_state
    from perflint_runtime.state import set_seed as set_seed
    from perflint_runtime.tensor_items import TensorItems as TensorItems
    from perflint_runtime.tensor_items import item_list as item_list
    from perflint_runtime.tensor_loader import BatchedTensorLoader as BatchedTensorLoader
    from perflint_runtime.tensor_rows import TensorRows as TensorRows
    from perflint_runtime.trainer import Trainer as Trainer
    from perflint_runtime.tune import tune_loader as tune_loader

_NAMES_OF_MODULE: dict[str, tuple[str, ...]] = {
    "array_lists": ("joined",),
    "blends": ("blend_parameters",),
    "cached_features": ("CachedFeatures",),
    "callbacks": ("Callback",),
    "checkpoints": ("Checkpoints",),
    "collate": ("pad_collate",),
    "copies": (
        "moved",
        "moved_copy",
        "moved_copy_to_cuda",
        "moved_to_cuda",
        "uploaded",
    ),
    "csv_dataset": ("CsvDataset",),
    "csv_rows": ("CsvRows",),
    "export": ("export_safetensors",),
    "features": ("extract_features",),
    "hf": ("dataloaders_from_hf",),
    "host_array": ("HostArray",),
    "host_dict": ("HostDict",),
    "host_list": ("HostList",),
    "indices": ("device_index",),
    "item_sum": ("ItemSum",),
    "late_items": (
        "LateItem",
        "copies_together",
        "items_together",
    ),
    "late_meter": ("LateMeter",),
    "late_scalars": ("late_scalar",),
    "loaders": ("make_loader",),
    "loggers": (
        "JsonlLogger",
        "MlflowLogger",
        "TensorBoardLogger",
        "WandbLogger",
    ),
    "losses": (
        "CrossEntropy",
        "accuracy",
        "balanced_class_weights",
    ),
    "memory": (
        "MemoryManager",
        "empty_cache_if_needed",
    ),
    "metrics": (
        "DeviceSum",
        "LossMeter",
    ),
    "models": ("prepare_model",),
    "oom": (
        "MicroBatchBackward",
        "find_executable_batch_size",
    ),
    "optimizers": (
        "ExponentialMovingAverage",
        "make_optimizer",
    ),
    "packing": ("packed_collate",),
    "prefetch": (
        "DevicePrefetcher",
        "to_device",
    ),
    "sampling": ("LengthBucketSampler",),
    "scalars": (
        "AsyncScalars",
        "NonFiniteError",
        "NonFiniteGuard",
    ),
    "selection": ("selected",),
    "settings": (
        "ModelSettings",
        "TrainingSettings",
        "load_settings",
    ),
    "state": (
        "inference",
        "random_state",
        "set_random_state",
        "set_seed",
    ),
    "tensor_items": (
        "TensorItems",
        "item_list",
    ),
    "tensor_loader": ("BatchedTensorLoader",),
    "tensor_rows": ("TensorRows",),
    "trainer": ("Trainer",),
    "tune": ("tune_loader",),
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
