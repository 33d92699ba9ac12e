"""What a checkpoint of a `Trainer` holds, and how a run goes on from it bit for bit."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflint_runtime.checkpoints import as_plain
from perflint_runtime.distributed import full_state, is_sharded, load_full_state
from perflint_runtime.prefetch import to_device

if TYPE_CHECKING:
    from perflint_runtime.trainer import Trainer


def save_checkpoint(trainer: "Trainer") -> None:
    """Write the trainer's state as the checkpoint of its step. Every process takes part; the main one writes.

    Waits for the device. Under FSDP2 the main process gathers the whole model and optimizer on its host.

    Raises:
        OSError: the folder cannot be written.
        TypeError: a callback's or scheduler's state holds what `torch.load(weights_only=True)` would refuse.

    """
    if trainer.checkpoints is None:
        return
    trainer.journal.deliver_all()
    if len(trainer.window) and trainer.scaler is None:  # with fp16 the steps of such losses are skipped
        trainer.journal.refuse_non_finite(trainer.step, trainer.window.losses())  # a checkpoint of lost weights helps nobody
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
        "evaluated_step": trainer.evaluated_step,
        # on the host: a process that unpickles another one's CUDA tensor would start that card, too
        "processes": trainer.processes.to_main(to_device(own, "cpu")),
    }
    trainer.saved_step = trainer.step
    if trainer.processes.is_main:
        path = trainer.checkpoints.save(trainer.step, state)
        for callback in trainer.callbacks:
            callback.on_checkpoint(trainer, path)


def open_checkpoints(trainer: "Trainer", resume: bool) -> None:
    """Go on from the newest checkpoint if `resume` is on; see that none is in the way if it is off.

    Raises:
        ValueError: `resume` without a folder.
        FileExistsError: the folder holds another run's checkpoints, and `resume` is off.
        RuntimeError: a checkpoint does not fit the model or the number of processes, or none can be read.

    """
    if trainer.checkpoints is None:
        if resume:
            raise ValueError("resume=True needs a folder: pass checkpoints= to the Trainer")
        return
    for part in _stateful(trainer):
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
        _restore(trainer, *found)


def _restore(trainer: "Trainer", path: Path, state: dict[str, Any]) -> None:
    processes = trainer.processes
    if len(state["processes"]) != processes.world_size:
        raise RuntimeError(
            f"{path} is of {len(state['processes'])} processes, not {processes.world_size}: their data and random states "
            "cannot be divided anew"
        )
    own = state["processes"][processes.rank]
    if state["kinds"] != _kinds(trainer):
        raise RuntimeError(f"{path} is of a run with {', '.join(state['kinds'])}; this one has {', '.join(_kinds(trainer))}")
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
    trainer.should_stop = trainer.early_stopping is not None and trainer.early_stopping.is_over
    trainer.window.load_state_dict(own["window"], trainer.device)
    trainer.position.load_state_dict(own["position"])
    trainer.journal.resume(trainer.step)


def _kinds(trainer: "Trainer") -> list[str]:
    parts = [trainer.optimizer, trainer.ema, *_stateful(trainer)]
    return [type(part).__name__ for part in parts if part is not None]


def _stateful(trainer: "Trainer") -> list[Any]:
    parts = [trainer.scheduler, trainer.scaler, trainer.early_stopping, *trainer.callbacks]
    return [part for part in parts if hasattr(part, "state_dict")]
