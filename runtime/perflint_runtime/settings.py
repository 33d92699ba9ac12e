"""The YAML file of a training program as typed settings: an unknown key is an error that names the nearest valid one.

```yaml
model:
  use_torch_compile: true
  torch_compile_mode: default
  gradient_checkpointing: false
training:
  epochs: 3
  batch_size: 16
  precision: bf16
data:
  num_workers: 4
```
"""

import dataclasses
import difflib
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

Precision = Literal["fp32", "bf16", "fp16"]
Strategy = Literal["auto", "none", "ddp", "fsdp2"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
_Section = TypeVar("_Section")


@dataclass(frozen=True)
class ModelSettings:
    """How the model is run. No speed is promised for any of them: measure on your model."""

    name: str = ""
    """What to build: your program reads it, the runtime does not."""
    use_torch_compile: bool = False
    """Compile the model. Its first steps are slower, and each new input shape may compile again."""
    torch_compile_mode: CompileMode = "default"
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them: less memory, one more forward pass of each block."""

    def __post_init__(self) -> None:
        _check_choices(self)


@dataclass(frozen=True)
class TrainingSettings:
    """What `Trainer` does between the first and the last step."""

    epochs: int = 1
    max_steps: int | None = None
    """Stop after this many optimizer steps, also within an epoch; or after `epochs`, whichever comes first."""
    batch_size: int = 16
    """Samples per micro-batch and process: for `make_loader`; the trainer takes batches as they come."""
    eval_batch_size: int | None = None
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    precision: Precision = "fp32"
    accumulation_steps: int = 1
    """Micro-batches per optimizer step. The last window of an epoch may hold fewer: its gradient is exact, too."""
    max_grad_norm: float | None = None
    compile_model: bool = False
    """The same as `model.use_torch_compile`; either turns it on."""
    ema_decay: float | None = None
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None
    scheduler_interval: Literal["step", "epoch"] = "step"
    early_stopping_patience: int | None = None
    """Stop after this many evaluations without an improvement."""
    early_stopping_metric: str = "val_loss"
    early_stopping_mode: Literal["min", "max"] = "min"
    log_every: int = 50
    """Optimizer steps between two log records. Device values are read at these steps only."""
    eval_every: int | None = None
    """Optimizer steps between two evaluations; by default at the end of each epoch."""
    checkpoint_every: int | None = None
    """Optimizer steps between two checkpoints; by default at the end of each epoch."""
    keep_checkpoints: int = 2
    check_finite: bool = True
    """Stop with an error when a loss is not finite: seen at the next log step, without a wait per step."""
    progress: bool = True
    strategy: Strategy = "auto"
    """How several processes share the work: `auto` is DDP under torchrun, and nothing otherwise."""
    seed: int = 0
    deterministic: bool = False

    def __post_init__(self) -> None:
        _check_choices(self)
        for name in ("epochs", "batch_size", "accumulation_steps", "log_every", "keep_checkpoints"):
            _at_least(name, getattr(self, name), 1)
        for name in ("max_steps", "eval_batch_size", "eval_every", "checkpoint_every", "early_stopping_patience"):
            _at_least(name, getattr(self, name), 1)
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm}; give a positive number, or none for no clipping")
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(f"ema_decay is {self.ema_decay}; give a number between 0 and 1")
        if not 0 <= self.label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {self.label_smoothing}; give a number from 0 to 1")


@dataclass(frozen=True)
class DataSettings:
    """How batches are loaded; what is unset, `make_loader` chooses for the machine.

    ```python
    settings = load_settings("config.yaml")
    training, options = settings.training, settings.data.loader_options()
    train_loader = make_loader(train_set, training.batch_size, shuffle=True, seed=training.seed, **options)
    val_loader = make_loader(val_set, training.eval_batch_size or training.batch_size, **{**options, "drop_last": False})
    ```
    """

    path: str = ""
    """Where the data is: your program reads it, the runtime does not."""
    max_length: int = 512
    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    drop_last: bool = False

    def loader_options(self) -> dict[str, Any]:
        """The keyword arguments of `make_loader` among the settings."""
        names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "drop_last")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Settings:
    """A whole configuration file."""

    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    data: DataSettings = field(default_factory=DataSettings)


def load_settings(path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read a YAML file into `Settings`.

    `overrides` are dotted keys that win over the file, as from a command line: `{"training.compile_model": True}`.
    A missing section or key keeps its default.

    Raises:
        ValueError: the file is not YAML, a key is unknown (the message names the nearest valid one), or a value has the
            wrong type or is out of range. The message names the file and the key.
        OSError: the file cannot be read.

    """
    import yaml

    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        return settings_from_dict({} if document is None else document, overrides)
    except yaml.YAMLError as error:
        raise ValueError(f"{os.fspath(path)}: not valid YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def settings_from_dict(document: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Settings:
    """`Settings` from nested dicts, with the checks of `load_settings`.

    Raises:
        ValueError: as `load_settings`.

    """
    if not isinstance(document, Mapping):
        raise ValueError(f"expected sections ({', '.join(_types_of(Settings))}), found {type(document).__name__}")
    merged: dict[str, Any] = {}
    for section, values in document.items():
        merged[section] = dict(values) if isinstance(values, Mapping) else {} if values is None else values
    for dotted, value in (overrides or {}).items():
        section, dot, key = dotted.partition(".")
        if not dot:
            raise ValueError(f"override `{dotted}` has no section; write it as `section.key`, as in `training.epochs`")
        merged.setdefault(section, {})[key] = value
    return _build(Settings, merged, "")


def _build(kind: type[_Section], values: Any, prefix: str) -> _Section:
    if not isinstance(values, Mapping):
        raise ValueError(f"`{prefix.rstrip('.')}` has to be a section of keys and values, not {values!r}")
    expected = _types_of(kind)
    found = {}
    for key, value in values.items():
        if key not in expected:
            near = difflib.get_close_matches(str(key), expected, n=1, cutoff=0.0)
            raise ValueError(f"unknown key `{prefix}{key}`; did you mean `{prefix}{near[0]}`?")
        found[key] = _checked(value, expected[key], f"{prefix}{key}")
    try:
        return kind(**found)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from None


def _types_of(kind: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def _checked(value: Any, kind: Any, key: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _checked(value, next(k for k in typing.get_args(kind) if k is not type(None)), key)
    if origin is Literal:
        if value not in typing.get_args(kind):
            allowed = ", ".join(map(str, typing.get_args(kind)))
            raise ValueError(f"`{key}` is {value!r}; it has to be one of {allowed}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"`{key}` is {value!r}; it has to be a list")
        return tuple(_checked(item, typing.get_args(kind)[0], key) for item in value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _build(kind, value, f"{key}.")
    if kind is float:
        return _number(value, key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"`{key}` is {value!r}; it has to be of type {kind.__name__}")
    return value


def _check_choices(section: Any) -> None:
    for name, kind in _types_of(type(section)).items():
        if typing.get_origin(kind) is Literal:
            _checked(getattr(section, name), kind, name)


def _number(value: Any, key: str) -> float:
    # YAML 1.1 reads 1e-4 (without a point) as text
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            pass
    raise ValueError(f"`{key}` is {value!r}; it has to be a number")


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name} is {value}; it has to be at least {least}")
