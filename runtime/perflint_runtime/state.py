"""What a run leaves behind it: training flags, gradient mode, seeds and random states, set for a while and given back."""

from __future__ import annotations

import operator
import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Literal, TypedDict, cast

import torch
from torch import Tensor, nn
from typing_extensions import NotRequired  # torch needs it, too

CUBLAS_WORKSPACE = ":4096:8"
"""One of two settings with which cuBLAS is deterministic (torch's notes on reproducibility)."""


class NumpyState(TypedDict):
    """`numpy.random.get_state()` of its global generator, an MT19937: `key` holds 624 words as int64."""

    key: Tensor
    pos: int
    has_gauss: int
    gauss: float


class RandomState(TypedDict):
    """The state of every random number generator in use, in types that `torch.load(weights_only=True)` reads.

    `torch_cpu` is a uint8 tensor as `torch.get_rng_state` gives it; `python` is `random.getstate()` as nested lists. The other
    entries are there only if what they belong to was in use: `cuda` and `xpu` hold one uint8 tensor per card.
    """

    python: list[int | list[int] | float | None]
    torch_cpu: Tensor
    numpy: NotRequired[NumpyState]
    cuda: NotRequired[list[Tensor]]
    mps: NotRequired[Tensor]
    xpu: NotRequired[list[Tensor]]


@contextmanager
def inference(*models: nn.Module, mode: Literal["inference", "no_grad"] = "inference") -> Iterator[None]:
    """Evaluate: models in eval mode, nothing recorded for backward; afterwards everything is as it was found.

        with inference(model):
            for x, y in val_loader:
                meter.update(criterion(model(x), y), len(x))

    The `training` flag of every submodule is given back one by one, so that layers which were frozen in eval mode stay so;
    also after an exception and when nested. May be used as a decorator: `@inference(model)`.

    Tensors made under `mode="inference"` (`torch.inference_mode`) can be read, copied and logged anywhere, but autograd refuses
    most of them later ("Inference tensors cannot be saved for backward"): where a result takes part in training (targets of
    a teacher network, cached features, generated samples), use `mode="no_grad"`, or `.clone()` the result outside. The same
    holds for what a model stores inside, such as a key/value cache or a buffer that it replaces.
    """
    if mode not in ("inference", "no_grad"):
        raise ValueError(f"mode={mode!r}: use 'inference' or 'no_grad'")
    found = [(module, module.training) for model in models for module in model.modules()]
    try:
        for model in models:
            model.eval()
        with torch.inference_mode() if mode == "inference" else torch.no_grad():
            yield
    finally:
        # By attribute: train() may be overridden to keep layers frozen, and it goes down to all children again.
        for module, training in found:
            if module.training != training:
                module.training = training


def set_seed(seed: int, deterministic: bool = False) -> torch.Generator:
    """Seed `random`, numpy's global generator and torch on all devices; returns a seeded CPU generator for loaders.

        generator = set_seed(42)
        loader = DataLoader(dataset, shuffle=True, generator=generator)

    A loader with a generator of its own shuffles alike whatever else draws random numbers. Workers need no
    `worker_init_fn`: torch seeds torch, `random` and numpy's global generator in each worker from the loader's base seed and
    the worker's number (`_worker_loop` in torch/utils/data/_utils/worker.py, read in torch 2.13). It knows nothing of a
    `numpy.random.default_rng()` that the dataset holds: forked workers all repeat its numbers.

    `deterministic=True` also asks for the same bits in every run: `torch.use_deterministic_algorithms(True)` (operations
    without a deterministic kernel raise RuntimeError), no cuDNN benchmarking, and `CUBLAS_WORKSPACE_CONFIG=:4096:8` unless
    it is set. cuBLAS reads that variable when CUDA starts, so this warns if CUDA already runs. It costs speed.
    `deterministic=False` leaves all of these as they are. The same seed gives the same numbers only with the same versions
    and hardware (torch's notes on reproducibility).

    Raises ValueError unless 0 <= seed < 2**32, which is what numpy takes, and TypeError if the seed is no integer.
    """
    seed = operator.index(seed)  # a numpy integer becomes Python's, the only one that `random` takes
    if not 0 <= seed < 1 << 32:
        raise ValueError(f"seed={seed}: a seed for all generators lies in 0 ... 2**32 - 1 (numpy's limit)")
    if deterministic:
        be_deterministic()
    random.seed(seed)
    torch.manual_seed(seed)  # the CPU, and CUDA, MPS and XPU: at once if they run, else when they start
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        np.random.seed(seed)
    return torch.Generator().manual_seed(seed)


def be_deterministic() -> None:
    """What `set_seed(seed, deterministic=True)` does beside seeding."""
    if "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = CUBLAS_WORKSPACE
        if _started(torch.cuda):
            warnings.warn(
                "CUBLAS_WORKSPACE_CONFIG was not set before CUDA started, so matrix products may differ from run to run; "
                f"call set_seed first, or start the program with CUBLAS_WORKSPACE_CONFIG={CUBLAS_WORKSPACE}",
                stacklevel=3,
            )
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def random_state() -> RandomState:
    """The state of all random number generators in use, for a checkpoint; `set_random_state` puts it back bit for bit.

    Starts no device and imports nothing: the generators of a library or device that this process has not used are left out.
    Nothing waits: a CUDA generator's state (seed and offset) lives on the host. Raises RuntimeError if numpy's global
    generator was replaced by one that is no MT19937.
    """
    version, words, cached = random.getstate()
    state: RandomState = {"python": [version, list(words), cached], "torch_cpu": torch.get_rng_state()}
    if "numpy" in sys.modules:
        import numpy as np

        found = np.random.get_state(legacy=False)
        assert isinstance(found, dict)
        if found["bit_generator"] != "MT19937":
            raise RuntimeError(f"random_state: numpy's global generator is {found['bit_generator']}, only MT19937 is supported")
        state["numpy"] = {
            "key": torch.from_numpy(found["state"]["key"].astype(np.int64)),
            "pos": int(found["state"]["pos"]),
            "has_gauss": int(found["has_gauss"]),
            "gauss": float(found["gauss"]),
        }
    if _started(torch.cuda):
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    if _started(torch.xpu):
        state["xpu"] = torch.xpu.get_rng_state_all()
    return state


def set_random_state(state: RandomState) -> None:
    """Put all generators where `random_state()` found them.

    Warns about what cannot be put back here: the state of a device that this machine lacks, or of more cards than it has.
    Raises KeyError, TypeError or ValueError if this is no such state.
    """
    version, words, cached = state["python"]
    random.setstate((version, tuple(cast(list[int], words)), cached))
    torch.set_rng_state(state["torch_cpu"].cpu())  # .cpu(): torch.load(map_location="cuda") moves these tensors, too
    if "numpy" in state:
        import numpy as np

        saved = state["numpy"]
        key = saved["key"].cpu().numpy().astype(np.uint32)
        np.random.set_state(("MT19937", key, saved["pos"], saved["has_gauss"], saved["gauss"]))
    missing = _set_cards("CUDA", torch.cuda, state.get("cuda", [])) + _set_cards("XPU", torch.xpu, state.get("xpu", []))
    if "mps" in state:
        if torch.backends.mps.is_available():
            torch.mps.set_rng_state(state["mps"].cpu())
        else:
            missing.append("MPS")
    if missing:
        warnings.warn(f"no device for the saved random state of {', '.join(missing)}: the run will not repeat", stacklevel=2)


def _set_cards(name: str, backend: ModuleType, saved: list[Tensor]) -> list[str]:
    """Set what there is; names the cards that are missing. Works before the backend has started: torch keeps it for then."""
    present = backend.device_count() if saved and backend.is_available() else 0
    for card, generator in enumerate(saved[:present]):
        backend.set_rng_state(generator.cpu(), card)
    return [f"{name} card {card}" for card in range(present, len(saved))]


def _started(backend: ModuleType) -> bool:
    return bool(backend.is_initialized())
