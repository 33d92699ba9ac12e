"""What a checkpoint of a `Trainer` holds, and how a run goes on from it bit for bit."""

import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from perflint_runtime.checkpoints import as_plain
from perflint_runtime.conditions import refuse_other_conditions
from perflint_runtime.distributed import full_state, is_sharded, load_full_model, load_full_state
from perflint_runtime.optimizers import local_part
from perflint_runtime.prefetch import to_device
from perflint_runtime.scalars import NonFiniteError

if TYPE_CHECKING:
    from perflint_runtime.trainer import Trainer


def save_checkpoint(trainer: "Trainer", is_best: bool) -> None:
    """Write the trainer's state as the checkpoint of its step. Every process takes part; the main one writes.

    Waits for the device. Under FSDP2 the main process gathers the whole model and optimizer on its host. Parameters that are
    not finite are not written, since an older checkpoint would have to go for them.

    Raises:
        NonFiniteError: a parameter is not finite, and `check_finite` is on.
        OSError: the folder cannot be written.
        TypeError: a callback's or scheduler's state holds what `torch.load(weights_only=True)` would refuse.

    """
    if trainer.checkpoints is None:
        return
    trainer.journal.deliver_all()
    if len(trainer.window) and trainer.update.scaler is None:  # with fp16 the steps of such losses are skipped
        trainer.journal.refuse_non_finite(trainer.step, trainer.window.losses())  # a checkpoint of lost weights helps nobody
    lost = next((name for name in trainer.processes.gather(_non_finite_parameter(trainer.module)) if name is not None), None)
    if lost is not None:
        if trainer.settings.check_finite:
            raise NonFiniteError(trainer.step, math.nan, f"parameter `{lost}`")
        warnings.warn(f"no checkpoint is written at step {trainer.step}: parameter `{lost}` is not finite", stacklevel=3)
        trainer.saved_step = trainer.step
        return
    model, optimizer = full_state(trainer.module, trainer.optimizer)
    averages = None if trainer.ema is None else trainer.ema.state_dict()
    sharded = is_sharded(trainer.module)
    own = {
        "position": trainer.position.state_dict(),
        "window": trainer.window.state_dict(),
        "averages": averages if sharded else None,
    }
    state = {
        "model": model,
        "optimizer": optimizer,
        "averages": None if sharded else averages,
        "kinds": _kinds(trainer),
        "parts": [part.state_dict() for part in _stateful(trainer)],
        "step": trainer.step,
        "results": trainer.results,
        "best": trainer.best.state_dict(),
        "history": trainer.history,
        "conditions": trainer.conditions,
        "evaluated_step": trainer.evaluated_step,
        # on the host: a process that unpickles another one's CUDA tensor would start that card, too
        "processes": trainer.processes.to_main(to_device(own, "cpu")),
    }
    trainer.saved_step = trainer.step
    if trainer.processes.is_main:
        path = trainer.checkpoints.save(trainer.step, state, is_best=is_best)
        for callback in trainer.callbacks:
            callback.on_checkpoint(trainer, path)


def open_checkpoints(trainer: "Trainer", resume: bool, train_loader: Any) -> None:
    """Go on from the newest checkpoint if `resume` is on; see that none is in the way if it is off.

    Raises:
        ValueError: `resume` without a folder.
        FileExistsError: the folder holds another run's checkpoints, and `resume` is off.
        RuntimeError: a checkpoint does not fit the model, the data or the number of processes, or none can be read.

    """
    if trainer.checkpoints is None:
        if resume:
            raise ValueError("resume=True needs a folder: pass checkpoints= to the Trainer")
        return
    for part in (trainer.module, *_stateful(trainer)):
        as_plain(part.state_dict(), f"the state of {type(part).__name__}")  # now, not after an hour
    if not resume:
        if trainer.step == 0 and trainer.processes.from_main(bool(trainer.checkpoints.paths())):
            raise FileExistsError(f"{trainer.checkpoints.folder} holds checkpoints: pass resume=True, or another folder")
        return
    found = trainer.checkpoints.load_latest()
    steps = trainer.processes.gather(None if found is None else found[1]["step"])
    if len(set(steps)) > 1:
        raise RuntimeError(f"the processes see different checkpoints (steps {steps}): the folder has to be shared")
    if found is None:
        trainer.journal.resume(0)  # a run that was killed before its first checkpoint begins anew
    else:
        _restore(trainer, *found, train_loader)


def restore_best(trainer: "Trainer") -> None:
    """Give the model, its averages and the results what they were at the best evaluation. Every process takes part.

    Raises:
        RuntimeError: its checkpoint is gone, or cannot be read.

    """
    assert trainer.checkpoints is not None  # the settings were seen to
    found = trainer.checkpoints.load_best()
    if found is None or found[1]["step"] != trainer.best.step:
        raise RuntimeError(
            f"the checkpoint of the best evaluation, at step {trainer.best.step}, is not in {trainer.checkpoints.folder}"
        )
    state = found[1]
    load_full_model(trainer.module, state["model"])
    if trainer.ema is not None:
        trainer.ema.load_state_dict(state["processes"][trainer.processes.rank]["averages"] or state["averages"])
    trainer.results = state["results"]


def _restore(trainer: "Trainer", path: Path, state: dict[str, Any], train_loader: Any) -> None:
    processes = trainer.processes
    if len(state["processes"]) != processes.world_size:
        raise RuntimeError(
            f"{path} is of {len(state['processes'])} processes, not {processes.world_size}: their data and random states "
            "cannot be divided anew"
        )
    own = state["processes"][processes.rank]
    if state["kinds"] != _kinds(trainer):
        raise RuntimeError(f"{path} is of a run with {', '.join(state['kinds'])}; this one has {', '.join(_kinds(trainer))}")
    refuse_other_conditions(path, state["conditions"], trainer.conditions, train_loader)
    try:
        load_full_state(trainer.module, trainer.optimizer, (state["model"], state["optimizer"]))
    except (KeyError, ValueError, RuntimeError) as error:
        raise RuntimeError(f"{path} does not fit the model and optimizer: {' '.join(str(error).split())}") from error
    if trainer.ema is not None:
        trainer.ema.load_state_dict(own["averages"] or state["averages"])
    for part, part_state in zip(_stateful(trainer), state["parts"], strict=True):
        part.load_state_dict(part_state)
    trainer.step = trainer.saved_step = state["step"]
    trainer.results = state["results"]
    trainer.evaluated_step = state["evaluated_step"]
    trainer.best.load_state_dict(state["best"])
    trainer.should_stop = trainer.best.is_over
    trainer.window.load_state_dict(own["window"], trainer.device)
    trainer.position.load_state_dict(own["position"])
    trainer.journal.resume(trainer.step, state["history"])


def _non_finite_parameter(model: nn.Module) -> str | None:
    """The name of a parameter that is not finite, if there is one: of this process's shards. Waits for the device."""
    named = [(name, p) for name, p in model.named_parameters() if p.is_floating_point() or p.is_complex()]
    if not named:
        return None
    first = named[0][1].device
    finite = [local_part(p).isfinite().all().to(first) for _, p in named]
    flags = torch.stack(finite).tolist()
    return next((name for (name, _), is_finite in zip(named, flags, strict=True) if not is_finite), None)


def _kinds(trainer: "Trainer") -> list[str]:
    parts = [trainer.optimizer, trainer.ema, *_stateful(trainer)]
    return [type(part).__name__ for part in parts if part is not None]


def _stateful(trainer: "Trainer") -> list[Any]:
    parts = [trainer.scheduler, trainer.update.scaler, *trainer.callbacks]
    return [part for part in parts if hasattr(part, "state_dict")]
