"""What a checkpoint of a `Trainer` holds, and how a run goes on from it bit for bit."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflint_runtime.distributed import full_state, is_sharded, load_full_state

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
    if len(trainer.window):
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
        "parts": [part.state_dict() for part in _stateful(trainer)],
        "step": trainer.step,
        "results": trainer.results,
        "evaluated_step": trainer.evaluated_step,
        "should_stop": trainer.should_stop,
        "processes": trainer.processes.gather(own),
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
    parts = _stateful(trainer)
    if len(parts) != len(state["parts"]) or (trainer.ema is None) != (own["averages"] is None and state["averages"] is None):
        raise RuntimeError(f"{path} is of a run with another scheduler, precision, averaging or callbacks")
    load_full_state(trainer.module, trainer.optimizer, (state["model"], state["optimizer"]))
    if trainer.ema is not None:
        trainer.ema.load_state_dict(own["averages"] or state["averages"])
    for part, part_state in zip(parts, state["parts"], strict=True):
        part.load_state_dict(part_state)
    trainer.step = trainer.saved_step = state["step"]
    trainer.results = state["results"]
    trainer.evaluated_step = state["evaluated_step"]
    trainer.should_stop = state["should_stop"]
    trainer.window.load_state_dict(own["window"], trainer.device)
    trainer.position.load_state_dict(own["position"])
    trainer.journal.resume(trainer.step)


def _stateful(trainer: "Trainer") -> list[Any]:
    parts = [trainer.scheduler, trainer.scaler, trainer.early_stopping, *trainer.callbacks]
    return [part for part in parts if hasattr(part, "state_dict")]
