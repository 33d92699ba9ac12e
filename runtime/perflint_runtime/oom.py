"""Going on when a batch does not fit into the card's memory.

`MicroBatchBackward` keeps the batch, and splits its backward pass into micro-batches whose gradients add up to the gradient of
the whole. `find_executable_batch_size` (accelerate's) starts the training function again with a smaller batch, which is another
training run: with another number of steps per epoch and another best learning rate.
"""

from __future__ import annotations

import functools
import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import torch
from torch import Tensor, nn

Batch = TypeVar("Batch")
Result = TypeVar("Result")
P = ParamSpec("P")

log = logging.getLogger(__name__)

_MESSAGES = (
    "out of memory",  # CUDA, HIP, XPU, MPS where the error is a plain RuntimeError
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: can't allocate memory",
)


class MicroBatchBackward(Generic[Batch]):
    """Forward and backward over a batch, in micro-batches once it does not fit: the gradient is that of the whole batch.

        backward = MicroBatchBackward(model, loss_fn=lambda batch: F.cross_entropy(model(batch["x"]), batch["y"]))
        for batch in loader:
            loss = backward(batch)      # loss.backward(), and again with halved micro-batches after an OutOfMemoryError
            optimizer.step()
            optimizer.zero_grad()

    `loss_fn` gets a batch or a part of it and returns the mean loss over it. Each part's loss is weighted by its share of the
    samples, so the gradients add up to the whole batch's; equal but for rounding, and to the last bit while nothing is
    split. Where the mean is over something else than samples, `count` says over how much: `count=lambda batch:
    (batch["labels"] != -100).sum()` for tokens (a number, or a tensor on the device: no wait). Counts of parts must add up to
    that of the whole; a part that counts 0 gets no backward pass if the count is a number.

    Gradients that were there before (accumulation) are kept aside while the batch runs and added to at the end: no failure
    leaves a part of a batch in them. They cost their memory once more. `size`, the micro-batch that fits, is remembered; set
    it to start with a smaller one, or to None to try whole batches again.

    What differs from a whole batch: dropout draws other masks, a failed try advances the random generators and whatever a
    forward pass updates by itself. BatchNorm in training mode takes its statistics over the micro-batch, so a split is refused
    with RuntimeError unless `batch_norm_may_differ`. Losses that compare samples with each other (contrastive) are no mean
    over samples: do not use this for them.

    Refused are optimizers inside of backward (hooks that would step on a part of the gradient) and torch.distributed with
    several processes, which would wait for the one that starts over: RuntimeError.
    """

    def __init__(
        self,
        *models: nn.Module,
        loss_fn: Callable[[Batch], Tensor],
        count: Callable[[Batch], int | Tensor] | None = None,
        split: Callable[[Batch, int, int], Batch] | None = None,
        backward: Callable[[Tensor], object] = torch.Tensor.backward,
        size: int | None = None,
        batch_norm_may_differ: bool = False,
    ) -> None:
        """`models` hold all parameters that get gradients.

        `split(batch, start, stop)` cuts samples out (default: all tensors along dim 0, and lists as long; in dicts, lists,
        tuples). `backward` is for `lambda loss: scaler.scale(loss).backward()` or `accelerator.backward`. Raises ValueError
        without a model, or if `size` is below 1.
        """
        if not models:
            raise ValueError("MicroBatchBackward needs the model whose gradients it keeps whole")
        if size is not None and size < 1:
            raise ValueError(f"size={size}: a micro-batch holds at least one sample")
        self.size = size
        self._models = models
        self._loss_fn, self._count, self._backward = loss_fn, count, backward
        self._split: Callable[[Batch, int, int], Batch] = split_batch if split is None else split
        self._batch_norm_may_differ = batch_norm_may_differ

    def __call__(self, batch: Batch, samples: int | None = None) -> Tensor:
        """Add the gradient of the batch's mean loss to `.grad`; returns that loss, 0-d and detached, without a wait.

        `samples` is needed where the batch's length is not that of its tensors' dim 0. Raises torch.OutOfMemoryError if a
        single sample does not fit (`.grad` as it was found), ValueError if the batch's length is not clear.
        """
        self._refuse_what_cannot_start_over()
        samples = batch_length(batch) if samples is None else samples
        parameters = list({id(p): p for model in self._models for p in model.parameters()}.values())
        found = [parameter.grad for parameter in parameters]
        try:
            loss = self._until_it_fits(batch, samples, parameters)
        except BaseException:
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.grad = gradient
            raise
        for parameter, gradient in zip(parameters, found, strict=True):
            if gradient is not None:
                if parameter.grad is not None:
                    with torch.no_grad():
                        gradient.add_(parameter.grad)
                parameter.grad = gradient
        return loss

    def _until_it_fits(self, batch: Batch, samples: int, parameters: list[nn.Parameter]) -> Tensor:
        while True:
            size = samples if self.size is None else min(self.size, samples)
            if size < samples:
                self._refuse_batch_norm(size)
            for parameter in parameters:
                parameter.grad = None
            try:
                return self._in_parts(batch, samples, size)
            except RuntimeError as error:
                if not is_out_of_memory(error) or size <= 1:
                    raise
            # Outside of `except`: until here the error's traceback kept the failed pass and its tensors alive.
            for parameter in parameters:
                parameter.grad = None
            free_memory()
            self.size = size // 2
            warnings.warn(
                f"out of memory with {size} samples at once; going on with micro-batches of {self.size}", stacklevel=3
            )

    def _in_parts(self, batch: Batch, samples: int, size: int) -> Tensor:
        if size == samples:
            loss = self._loss_fn(batch)
            self._backward(loss)
            return loss.detach()
        whole = samples if self._count is None else self._count(batch)
        total: Tensor | None = None
        for start in range(0, samples, size):
            stop = min(start + size, samples)
            part = self._split(batch, start, stop)
            counted = stop - start if self._count is None else self._count(part)
            if not isinstance(counted, Tensor) and counted == 0:
                continue
            loss = self._loss_fn(part)
            loss = loss * _share(counted, whole, loss.dtype)
            self._backward(loss)
            total = loss.detach() if total is None else total + loss.detach()
            del loss, part
        if total is None:
            raise ValueError("count() is 0 for each part of the batch: it has no mean loss")
        return total

    def _refuse_batch_norm(self, size: int) -> None:
        if self._batch_norm_may_differ:
            return
        for model in self._models:
            for name, module in model.named_modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
                    raise RuntimeError(
                        f"the batch would be split into micro-batches of {size}, but {name or 'the model'} is a BatchNorm in "
                        "training mode, whose statistics are those of the micro-batch then: put it in eval mode, use "
                        "GroupNorm, or pass batch_norm_may_differ=True"
                    )

    def _refuse_what_cannot_start_over(self) -> None:
        dist = torch.distributed
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise RuntimeError(
                "MicroBatchBackward cannot start over in one of several processes, the others would wait for it forever; "
                "find the batch size with one process and fix it"
            )
        for model in self._models:
            for name, parameter in model.named_parameters():
                if getattr(parameter, "_post_accumulate_grad_hooks", None):
                    raise RuntimeError(f"{name} has a post-accumulate-grad hook, which would act on a part of its gradient")


def _share(part: int | Tensor, whole: int | Tensor, dtype: torch.dtype) -> float | Tensor:
    """The share of a part, on the device if the counts are there: float32 if the loss is shorter, to count beyond 256."""
    if isinstance(part, Tensor):
        return (part.to(torch.promote_types(dtype, torch.float32)) / whole).to(dtype)
    return part / whole


def split_batch(batch: Batch, start: int, stop: int) -> Batch:
    """Samples `start` to `stop` of a batch: tensors along dim 0, inside of dicts, lists and tuples; views, no copies.

    Numbers, strings and 0-d tensors are handed on as they are, lists and tuples without tensors cut if they are as long as the
    batch. Raises ValueError if the tensors' lengths differ.
    """
    return cast(Batch, _cut(batch, start, stop, batch_length(batch)))


def batch_length(batch: object) -> int:
    """How many samples a batch holds: the length of dim 0 that all its tensors share. ValueError if they share none."""
    shapes = [tuple(tensor.shape) for tensor in _tensors(batch) if tensor.dim() > 0]
    lengths = {shape[0] for shape in shapes}
    if len(lengths) != 1:
        told = f"tensors of shapes {shapes}" if shapes else f"a {type(batch).__name__} without tensors"
        raise ValueError(f"the length of the batch is not clear from {told}; pass split=, and samples= with each batch")
    return lengths.pop()


def _tensors(tree: object) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _tensors(value)


def _cut(tree: Any, start: int, stop: int, length: int) -> Any:
    if isinstance(tree, Tensor):
        return tree[start:stop] if tree.dim() else tree
    if isinstance(tree, dict):
        parts = {key: _cut(value, start, stop, length) for key, value in tree.items()}
        return parts if type(tree) is dict else type(tree)(parts)
    if isinstance(tree, (list, tuple)):
        if next(_tensors(tree), None) is None:
            return tree[start:stop] if len(tree) == length else tree
        values = [_cut(value, start, stop, length) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    return tree


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device, or torch's CPU allocator, had no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)
    )


def free_memory() -> None:
    """Collect Python's garbage and give torch's cached memory back to the driver, on whichever device is in use."""
    gc.collect()
    started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped
    if started:
        torch.cuda.empty_cache()  # the CPU waits for the GPU here
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()
    elif torch.xpu.is_available():
        torch.xpu.empty_cache()


def find_executable_batch_size(
    starting_batch_size: int = 128, reduce: Callable[[int], int] = lambda size: size // 2
) -> Callable[[Callable[Concatenate[int, P], Result]], Callable[P, Result]]:
    """Call a training function with smaller and smaller batches until one fits; accelerate's decorator.

        @find_executable_batch_size(starting_batch_size=256)
        def train(batch_size, epochs):
            model, loader = build(batch_size)   # everything that takes memory is made in here
            ...
        train(epochs=3)

    The size goes in as the first argument; later calls start from the size that worked. Sizes are halved (accelerate: times
    0.9), or as `reduce` says. Raises ValueError if `starting_batch_size` is below 1 or `reduce` does not reduce; ImportError
    without accelerate and torch.OutOfMemoryError if a batch of one sample does not fit, when called.
    """
    if starting_batch_size < 1:
        raise ValueError(f"starting_batch_size={starting_batch_size}: a batch holds at least one sample")

    def decorate(function: Callable[Concatenate[int, P], Result]) -> Callable[P, Result]:
        name = getattr(function, "__name__", "the function")
        size = starting_batch_size
        failure = ""

        def smaller() -> int:
            nonlocal size
            if not 0 <= reduce(size) < size:
                raise ValueError(f"reduce({size}) gave {reduce(size)}: it has to give a smaller batch size")
            size = reduce(size)
            log.warning("%s ran out of memory, going on with batch size %d", name, size)
            return size

        @functools.wraps(function)  # accelerate reads the signature
        def noting_failures(batch_size: int, /, *args: P.args, **kwargs: P.kwargs) -> Result:
            nonlocal failure
            try:
                return function(batch_size, *args, **kwargs)
            except RuntimeError as error:
                failure = str(error)
                raise

        @functools.lru_cache(maxsize=1)
        def searching() -> Callable[P, Result]:
            from accelerate.utils import find_executable_batch_size as search

            return cast(
                Callable[P, Result],
                search(noting_failures, starting_batch_size=starting_batch_size, reduce_batch_size_fn=smaller),
            )

        @functools.wraps(function)
        def train(*args: P.args, **kwargs: P.kwargs) -> Result:
            try:
                return searching()(*args, **kwargs)
            except RuntimeError as error:
                if size == 0 and "No executable batch size" in str(error):
                    raise torch.OutOfMemoryError(f"{name} does not fit with one sample per batch: {failure}") from error
                raise

        return train

    return decorate
