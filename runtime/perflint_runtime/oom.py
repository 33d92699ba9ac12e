"""Going on when a batch does not fit into the card's memory.

`MicroBatchBackward` keeps the batch, and splits its backward pass into micro-batches whose gradients add up to the gradient of
the whole. `find_executable_batch_size` starts the training function again with a smaller batch, which is another training run:
with another number of steps per epoch and another best learning rate.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

import numpy as np
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
    that of the whole; a part that counts 0 gets no backward pass if the count is a number. If it is a tensor, the part's loss
    counts for nothing, but its gradient has to be finite (as that of `cross_entropy` over ignored labels only).

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

        `split(batch, start, stop)` cuts samples out (default: all tensors along dim 0, and arrays and lists as long; in
        mappings, lists, tuples). `backward` is for `lambda loss: scaler.scale(loss).backward()` or `accelerator.backward`.
        Raises ValueError without a model, or if `size` is below 1.
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
            share = _share(counted, whole, loss.dtype)
            self._backward(loss * share)
            shared = loss.detach() * share
            if isinstance(share, Tensor):
                shared = torch.where(share > 0, shared, 0.0)  # a mean over nothing is nan, and counts for nothing
            total = shared if total is None else total + shared
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
    """Samples `start` to `stop` of a batch: tensors along dim 0, inside of mappings, lists and tuples; views, no copies.

    Numbers, strings and 0-d tensors are handed on as they are; arrays, lists and tuples without tensors are cut if they are as
    long as the batch. Raises ValueError if the tensors' lengths differ, TypeError for any other object in the batch.
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
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _tensors(value)


def _cut(tree: Any, start: int, stop: int, length: int) -> Any:
    if isinstance(tree, Tensor):
        return tree[start:stop] if tree.dim() else tree
    if isinstance(tree, Mapping):
        return _like(tree, {key: _cut(value, start, stop, length) for key, value in tree.items()})
    if isinstance(tree, (list, tuple)):
        if next(_tensors(tree), None) is None:
            return tree[start:stop] if len(tree) == length else tree
        values = [_cut(value, start, stop, length) for value in tree]
        return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
    if isinstance(tree, np.ndarray):
        return tree[start:stop] if tree.ndim and len(tree) == length else tree
    if tree is None or isinstance(tree, (bool, int, float, complex, str, bytes, np.generic, torch.dtype, torch.device)):
        return tree
    raise TypeError(f"a {type(tree).__name__} in the batch may belong to its samples: pass split= to say how it is cut")


def _like(mapping: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """The parts in a mapping of the same type: a default dict keeps its factory, a BatchEncoding its attributes."""
    if type(mapping) is dict:
        return parts
    if not isinstance(mapping, MutableMapping):
        return type(mapping)(parts)  # type: ignore[call-arg]  # as such types are made
    same = copy.copy(mapping)
    for key, part in parts.items():
        same[key] = part
    return same


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


@overload
def find_executable_batch_size(
    function: Callable[Concatenate[int, P], Result],
    /,
    *,
    starting_batch_size: int = 128,
    reduce: Callable[[int], int] = lambda size: size // 2,
) -> Callable[P, Result]: ...
@overload
def find_executable_batch_size(
    function: None = None,
    /,
    *,
    starting_batch_size: int = 128,
    reduce: Callable[[int], int] = lambda size: size // 2,
) -> Callable[[Callable[Concatenate[int, P], Result]], Callable[P, Result]]: ...
def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    /,
    *,
    starting_batch_size: int = 128,
    reduce: Callable[[int], int] = lambda size: size // 2,
) -> Callable[..., Any]:
    """Call a training function with smaller and smaller batches until one fits: a decorator, to be used as accelerate's.

        @find_executable_batch_size(starting_batch_size=256)
        def train(batch_size, epochs):
            model, loader = build(batch_size)   # everything that takes memory is made in here
            ...
        train(epochs=3)

    The size goes in as the first argument; later calls start from the size that worked. Sizes are halved (accelerate: times
    0.9), or as `reduce` says. What counts as out of memory is the same as for `MicroBatchBackward`. Raises ValueError if
    `starting_batch_size` is below 1 or `reduce` does not reduce, TypeError if the function takes no batch size, and
    torch.OutOfMemoryError if a batch of one sample does not fit.
    """
    if function is not None and not callable(function):
        raise TypeError(f"find_executable_batch_size({function!r}): write starting_batch_size={function!r}")
    if starting_batch_size < 1:
        raise ValueError(f"starting_batch_size={starting_batch_size}: a batch holds at least one sample")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        name = getattr(function, "__name__", "the function")
        _refuse_without_batch_size(function, name)
        size = starting_batch_size

        @functools.wraps(function)
        def train(*args: Any, **kwargs: Any) -> Any:
            nonlocal size
            while True:
                try:
                    return function(size, *args, **kwargs)
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    smaller = reduce(size)
                    if not 0 <= smaller < size:
                        raise ValueError(f"reduce({size}) gave {smaller}: it has to give a smaller batch size") from error
                    if smaller == 0:
                        raise torch.OutOfMemoryError(
                            f"{name} does not fit with {'one sample' if size == 1 else f'{size} samples'} per batch: {error}"
                        ) from error
                size = smaller
                free_memory()  # outside of `except`: until here the error's traceback kept the failed run's tensors alive
                log.warning("%s ran out of memory, going on with batch size %d", name, size)

        return train

    return decorate if function is None else decorate(function)


def _refuse_without_batch_size(function: Callable[..., Any], name: str) -> None:
    """Raise TypeError for a function that cannot be called with a batch size."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return  # some functions in C have no signature
    if not any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        raise TypeError(f"{name}() takes no batch size: it has to be its first argument, as in def {name}(batch_size, ...)")
