"""A trainer's steps inside of an epoch loop that the program keeps."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from perflint_runtime import arguments
from perflint_runtime.feed import on_device
from perflint_runtime.optimizers import drop_gradients

if TYPE_CHECKING:
    from perflint_runtime.trainer import Trainer


def steps(
    trainer: "Trainer", loader: Iterable[Any], update_every: int, update_at_end: bool, prefetch: bool
) -> Iterator[tuple[Tensor, Any, Any]]:
    """What `Trainer.steps` gives.

    Raises:
        TypeError: the loader is a dataset, or something else that gives no batches.

    """
    arguments.refuse_samples(loader, "the loader")
    if update_every == 1:
        drop_gradients(trainer.optimizer)
    for number, batch in enumerate(on_device(loader, trainer.device) if prefetch else loader, 1):
        loss, outputs = trainer.forward(trainer.model, batch)
        trainer.update.backward(loss)
        if number % update_every == 0 or (update_at_end and number == len(loader)):  # type: ignore[arg-type]  # TypeError
            trainer.update_weights()
        yield loss, outputs, batch
