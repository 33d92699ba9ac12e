"""The optimizer with its fused kernel where that is safe, and averaged weights that never wait for the device."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from perflint_runtime.settings import Precision


def make_optimizer(
    model: nn.Module,
    name: Literal["adamw", "adam", "sgd"] = "adamw",
    *,
    lr: float,
    weight_decay: float = 0.0,
    precision: Precision = "fp32",
    fused: bool | None = None,
    **options: Any,
) -> torch.optim.Optimizer:
    """An optimizer over the model's trainable parameters. Put the model on its device first.

    `fused=None` takes the fused kernel for Adam and AdamW where all parameters are floating point on a CUDA device and the
    precision is not fp16. Never for SGD: with a gradient scaler an overflow step corrupts its momentum (torch 2.13). Not
    with fp16: the fused step hides whether it was skipped, and the learning rate would go on through skipped steps
    (huggingface/accelerate issue 4242). Fused Adam is not bitwise equal to the default one: 4.5e-8 apart after 50 steps on
    the CPU. Its gain was not measured here; others report 0 to 3 % of a step.

    Raises:
        ValueError: the name is unknown, no parameter is trainable, or `fused=True` where it is not safe.

    """
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adamw": torch.optim.AdamW,
        "adam": torch.optim.Adam,
        "sgd": torch.optim.SGD,
    }
    if name not in kinds:
        raise ValueError(f"unknown optimizer {name!r}; known are {', '.join(kinds)}")
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("the model has no trainable parameter")
    if fused and name == "sgd":
        raise ValueError("fused SGD is not used: with a gradient scaler an overflow step corrupts its momentum")
    if fused and precision == "fp16":
        raise ValueError("fused=True with fp16 hides skipped steps from the learning rate schedule; leave `fused` out")
    if fused is None:
        on_cuda = all(p.is_cuda and p.is_floating_point() for p in parameters)
        fused = on_cuda and name != "sgd" and precision != "fp16"
    if fused:
        options["fused"] = True
    return kinds[name](parameters, lr=lr, weight_decay=weight_decay, **options)


def drop_gradients(optimizer: torch.optim.Optimizer) -> None:
    """`optimizer.zero_grad()`; where that is torch's own, without its annotation for the profiler, most of what it costs."""
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad or "zero_grad" in vars(optimizer):
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


class ExponentialMovingAverage:
    """An exponential moving average of a model's trainable floating-point parameters, kept on their devices.

    After each `update`, an average is `decay * average + (1 - decay) * parameter`, in one multi-tensor operation.
    `torch.optim.swa_utils.AveragedModel` reads its step counter from the device twice per update (torch 2.13); this one
    reads nothing. Buffers are not averaged: `applied` runs the model with its own.

    Raises:
        ValueError: `decay` is not between 0 and 1.

    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay is {decay}; give a number between 0 and 1")
        self.decay = decay
        self._model = model
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad and p.is_floating_point()]
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._averages = [local_part(parameter).clone() for parameter in self._parameters]

    def update(self) -> None:
        """Take in the parameters of now, after an optimizer step."""
        torch._foreach_lerp_(self._averages, self._current(), 1 - self.decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Run a block with the averages in the model's place; afterwards the parameters are what they were, bit for bit."""
        with torch.no_grad():
            kept = [current.clone() for current in self._current()]
            _copy_all(self._current(), self._averages)
            _drop_gathered(self._model)
        try:
            yield
        finally:
            with torch.no_grad():
                _copy_all(self._current(), kept)
                _drop_gathered(self._model)

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by parameter name (this process's shards under FSDP2)."""
        return dict(zip(self._names, self._averages, strict=True))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over the averages of `state_dict`.

        Raises:
            ValueError: the names are not those of this model's parameters.

        """
        if set(state) != set(self._names):
            odd = sorted(set(state) ^ set(self._names))[0]
            raise ValueError(f"the averages do not belong to this model: `{odd}` is in one of them only")
        _copy_all(self._averages, [state[name] for name in self._names])

    def _current(self) -> list[Tensor]:
        return [local_part(parameter) for parameter in self._parameters]


def local_part(parameter: Tensor) -> Tensor:
    """The parameter's values outside of the graph; under FSDP2 this process's shard."""
    detached = parameter.detach()
    shard: Tensor = detached.to_local() if hasattr(detached, "to_local") else detached
    return shard


def _drop_gathered(model: nn.Module) -> None:
    """Let FSDP2 gather the parameters anew: it keeps some from the last forward pass, and does not see that shards change."""
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()  # type: ignore[operator]  # FSDP2 adds the method to the module's class


def _copy_all(into: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for target, value in zip(into, values, strict=True):
        target.copy_(value)
