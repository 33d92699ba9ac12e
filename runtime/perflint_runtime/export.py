"""A model's weights in the format that other programs read: safetensors."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from perflint_runtime.checkpoints import written_aside
from perflint_runtime.distributed import Processes, full_model


def export_safetensors(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write the parameters and buffers as one safetensors file, whole or not at all. Waits for the device.

    `safetensors.torch.load_model(model, path)` and `from_pretrained` read it. Weights that a model holds by several names are
    written once, by the first. For averaged weights: `with trainer.ema.applied(): export_safetensors(trainer.module, path)`.
    Under torchrun every process has to call it; the main one writes.

    Raises:
        ImportError: the package safetensors is not installed.
        TypeError: the state dict holds something else than tensors.
        OSError: the file cannot be written.

    """
    try:
        from safetensors.torch import save_file
    except ImportError:
        raise ImportError("export_safetensors needs the package safetensors: pip install safetensors") from None
    state = full_model(model)
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} is a {type(value).__name__}: safetensors holds tensors only")
    if not Processes.present().is_main:
        return
    written: dict[str, Tensor] = {}
    first_name: dict[object, str] = {}
    other_names: dict[str, str] = {}
    for name, tensor in state.items():
        place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and place in first_name:
            other_names[name] = first_name[place]
            continue
        first_name[place] = name
        # safetensors refuses views into one another
        written[name] = tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(target) as unfinished:
        save_file(written, unfinished, metadata={"format": "pt", **other_names})
