"""How a model is run, changed in place so that its state dict keeps its keys: gradient checkpointing and compilation."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from perflint_runtime.settings import ModelSettings


def prepare_model(model: nn.Module, settings: ModelSettings) -> None:
    """Apply the settings to the model in place, as `Trainer(model_settings=...)` does.

    Compilation is `nn.Module.compile`: unlike `torch.compile(model)` it leaves the class and the keys of the state dict.
    Compiled kernels round differently; gains depend on the model and were not measured here.

    Raises:
        ValueError: as `checkpoint_blocks`.

    """
    if settings.gradient_checkpointing:
        checkpoint_blocks(model)
    if settings.use_torch_compile:
        model.compile(mode=settings.torch_compile_mode)


def checkpoint_blocks(model: nn.Module) -> None:
    """Let each block recompute its activations in the backward pass: less memory for about one more forward pass.

    A Hugging Face model is asked to do it itself (`gradient_checkpointing_enable`). In another one, blocks are the elements of
    each outermost `nn.ModuleList`. Losses and gradients are those without it: random states are restored for the second
    pass (torch.utils.checkpoint, `use_reentrant=False`). Evaluation is not affected.

    Raises:
        ValueError: there is no `nn.ModuleList`, or a block holds a BatchNorm layer, whose running statistics would be
            updated twice per step.

    """
    if hasattr(model, "gradient_checkpointing_enable"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]
        return
    blocks = _blocks(model)
    if not blocks:
        raise ValueError("gradient checkpointing found no nn.ModuleList of blocks; use torch.utils.checkpoint in the model")
    for block in blocks:
        if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in block.modules()):
            raise ValueError("a block holds BatchNorm: recomputing it would update its running statistics twice per step")
    for block in blocks:
        is_done = isinstance(block.forward, functools.partial) and block.forward.func is _recomputed
        if not is_done:
            block.forward = functools.partial(_recomputed, block, block.forward)


def _blocks(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.ModuleList):
        return list(module)
    return [block for child in module.children() for block in _blocks(child)]


def _recomputed(block: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if block.training and torch.is_grad_enabled():
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)
