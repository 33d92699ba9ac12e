"""What has to be the same in a run that goes on from a checkpoint, since its position in the data counts in it."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader

from perflint_runtime.resumable import ResumableLoader
from perflint_runtime.tensor_loader import BatchedTensorLoader

if TYPE_CHECKING:
    from perflint_runtime.trainer import Trainer


def conditions(trainer: "Trainer", loader: Any) -> dict[str, Any]:
    """The run's conditions by name: plain values, None where the loader does not tell."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    batch_sampler = getattr(batch_sampler, "sampler", None) if isinstance(loader, ResumableLoader) else batch_sampler
    samples = getattr(loader, "dataset", None)
    if isinstance(loader, BatchedTensorLoader):
        samples, sampler = loader.tensors[0], f"BatchedTensorLoader(shuffle={loader.shuffle})"
    elif isinstance(loader, ResumableLoader):
        sampler = f"{type(batch_sampler).__name__} of seed {loader.seed}"
    elif isinstance(loader, DataLoader):
        own = [part for part in (batch_sampler, loader.sampler) if part is not None]
        sampler = " over ".join(type(part).__name__ for part in own)
    else:
        sampler = type(loader).__name__
    return {
        "batch size": _batch_size(loader, batch_sampler),
        "drop_last": getattr(loader, "drop_last", None),
        "samples": _length(samples),
        "batches": len(loader) if isinstance(loader, (list, tuple)) else None,
        "sampler": sampler,
        "accumulation_steps": trainer.settings.accumulation_steps,
        "processes": trainer.processes.world_size,
        "workers": getattr(loader, "num_workers", None),
        "learning rate": trainer.initial_rates,
    }


def refuse_other_conditions(path: Path, saved: Mapping[str, Any], present: Mapping[str, Any], loader: Any) -> None:
    """See that a run goes on as it began. Warns of what may differ and is easily overlooked.

    Raises:
        RuntimeError: something differs by which the position in the data is counted; the message names all of it.

    """
    differing = {
        name: (value, present[name])
        for name, value in saved.items()
        if value != present[name] and None not in (value, present[name]) and name not in ("workers", "learning rate")
    }
    if differing:
        words = ", ".join(f"{name} {before} (now {now})" for name, (before, now) in differing.items())
        raise RuntimeError(
            f"{path} is of a run with {words}: its position in the data is counted by them. Go on as it began, or begin a new "
            "run in another folder from its weights, model.load_state_dict(torch.load(path, weights_only=True)['model'])"
        )
    if saved["workers"] != present["workers"] and isinstance(loader, DataLoader) and not isinstance(loader, ResumableLoader):
        warnings.warn(
            f"the run had {saved['workers']} loader workers, now it has {present['workers']}: random numbers that samples are "
            "augmented with will not be those of an uninterrupted run; make_loader(..., seed=0) does not depend on workers",
            stacklevel=5,
        )
    rates = zip(saved["learning rate"], present["learning rate"], strict=False)
    if any(None not in pair and not math.isclose(*pair) for pair in rates):
        warnings.warn(
            f"the run goes on with the learning rate of its checkpoint: it began with {saved['learning rate']}, and "
            f"{present['learning rate']} of this program is not used",
            stacklevel=5,
        )


def initial_rate(group: Mapping[str, Any]) -> float | None:
    """The learning rate of an optimizer's group before schedules; None if it is on a device."""
    rate = group.get("initial_lr", group["lr"])
    return None if isinstance(rate, Tensor) and rate.device.type != "cpu" else float(rate)


def _batch_size(loader: Any, batch_sampler: Any) -> Any:
    size = getattr(batch_sampler, "batch_size", None) or getattr(batch_sampler, "max_tokens", None)
    return getattr(loader, "batch_size", None) if size is None else size


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None
