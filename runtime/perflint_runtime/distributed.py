"""Several processes under `torchrun`: torch's own engines (DDP, FSDP2), set up and asked in one place."""

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from perflint_runtime.settings import Strategy


@dataclass(frozen=True)
class Processes:
    """The present process among those that train together: alone without `torchrun`."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @staticmethod
    def join(device_type: str) -> "Processes":
        """Join the process group that `torchrun` describes (NCCL on CUDA, else gloo); alone without it.

        Raises:
            RuntimeError: torch's own, when the group cannot be built.

        """
        if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not dist.is_initialized():
            return Processes()
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        if device_type == "cuda":
            torch.cuda.set_device(local_rank)
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device_type == "cuda" else "gloo")
        return Processes.present()

    @staticmethod
    def present() -> "Processes":
        """Where this process stands in a group that was joined already; alone without one."""
        if not dist.is_available() or not dist.is_initialized():
            return Processes()
        return Processes(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))

    @property
    def is_main(self) -> bool:
        """Whether this process logs and writes checkpoints."""
        return self.rank == 0

    def own(self, device: torch.device) -> torch.device:
        """The card of this process: of several, torchrun's process n on a machine takes card n."""
        return torch.device("cuda", self.local_rank) if device == torch.device("cuda") else device

    def count(self, flag: bool) -> int:
        """In how many of them the flag is up. Waits for the other processes, and for no device (gloo, on the host)."""
        if self.world_size == 1:
            return int(flag)
        total = torch.tensor([flag], dtype=torch.int32)
        dist.all_reduce(total, group=_host_group())
        return int(total.item())

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes, on the device: the CPU does not wait for it under NCCL."""
        if self.world_size > 1:
            dist.all_reduce(value)
        return value

    def gather(self, value: Any) -> list[Any]:
        """One value from each process, in the order of their ranks."""
        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value)
        return gathered

    def to_main(self, value: Any) -> list[Any]:
        """One value from each process on the main one, in the order of their ranks; an empty list on the others."""
        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size if self.is_main else []
        dist.gather_object(value, gathered if self.is_main else None)
        return gathered

    def from_main(self, value: Any) -> Any:
        """The main process's value."""
        if self.world_size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]


@functools.cache
def _host_group() -> "dist.ProcessGroup":
    """All processes, joined on their hosts: made once, by all of them at the same place of the program."""
    group: dist.ProcessGroup = dist.new_group(backend="gloo")
    return group


def default_device() -> torch.device:
    """The current accelerator, or the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return torch.device("cpu") if accelerator is None else torch.device(accelerator.type)


def whole(value: Tensor) -> Tensor:
    """A plain tensor, also of one that FSDP2 keeps in parts."""
    plain: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return plain


def distribute(
    model: nn.Module,
    strategy: Strategy,
    processes: Processes,
    device: torch.device,
    ddp_options: Mapping[str, Any] | None = None,
) -> nn.Module:
    """The model as the training step calls it: wrapped by DDP, sharded in place by FSDP2, or itself.

    FSDP2 shards each element of each `nn.ModuleList` (the layers of a transformer) and the rest; it replaces the parameters,
    so that optimizers have to be made afterwards. `ddp_options` go to `DistributedDataParallel`; alone, nothing is wrapped.

    Raises:
        ValueError: `fsdp2` or `ddp` without `torchrun`, or `ddp_options` with another strategy.
        TypeError: DDP has no such option.

    """
    if ddp_options and strategy not in ("ddp", "auto"):
        raise ValueError(f"ddp_options are for the strategies `ddp` and `auto`, not `{strategy}`")
    if strategy == "fsdp2":
        if processes.world_size == 1 and not dist.is_initialized():
            raise ValueError("strategy `fsdp2` needs a process group: start the program with torchrun")
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (processes.world_size,))
        for blocks in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
            for block in blocks:
                fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    if strategy == "ddp" or (strategy == "auto" and processes.world_size > 1):
        if not dist.is_initialized():
            raise ValueError("strategy `ddp` needs a process group: start the program with torchrun")
        own_card = {"device_ids": [device.index]} if device.type == "cuda" else {}
        return nn.parallel.DistributedDataParallel(model, **{**own_card, **(ddp_options or {})})
    return model


@contextmanager
def gradient_sync(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Exchange gradients in the backward passes of this block, or keep them back for the window's last one."""
    if isinstance(model, nn.parallel.DistributedDataParallel) and not wanted:
        with model.no_sync():
            yield
        return
    if is_sharded(model):
        model.set_requires_gradient_sync(wanted)  # type: ignore[operator]  # FSDP2 adds the method to the module's class
    yield


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP2 holds the model's parameters in shards."""
    return hasattr(model, "set_requires_gradient_sync")


def full_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of model and optimizer: whole ones on the main process's host under FSDP2 (a collective), else their own."""
    if not is_sharded(model):
        return model.state_dict(), optimizer.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    return get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def full_model(model: nn.Module) -> dict[str, Any]:
    """The state of a model: a whole one on the main process's host under FSDP2 (a collective), else its own."""
    if not is_sharded(model):
        return model.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def load_full_model(model: nn.Module, state: dict[str, Any]) -> None:
    """Take over the model's part of what `full_state` gave.

    Raises:
        RuntimeError: torch's own, when the state is that of another model.

    """
    if not is_sharded(model):
        model.load_state_dict(state)
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))


def load_full_state(model: nn.Module, optimizer: torch.optim.Optimizer, states: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Take over what `full_state` gave; under FSDP2 each process passes the whole states and keeps its shard.

    Raises:
        RuntimeError: torch's own, when the states are those of another model.

    """
    model_state, optimizer_state = states
    if not is_sharded(model):
        model.load_state_dict(model_state)
        # torch moves the state to the parameters' devices, but leaves a learning rate that is a tensor where it was read to
        devices = [{key: value.device for key, value in g.items() if isinstance(value, Tensor)} for g in optimizer.param_groups]
        optimizer.load_state_dict(optimizer_state)
        for group, places in zip(optimizer.param_groups, devices, strict=True):
            group.update({key: torch.as_tensor(group[key], device=device) for key, device in places.items()})
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    set_state_dict(
        model,
        optimizer,
        model_state_dict=model_state,
        optim_state_dict=optimizer_state,
        options=StateDictOptions(full_state_dict=True),
    )
