"""The YAML file of a training program as typed settings: an unknown key is an error that names the nearest valid one.

```yaml
model:
  use_torch_compile: true
  torch_compile_mode: default
  gradient_checkpointing: false
training:
  epochs: 3
  precision: bf16
data:
  batch_size: 16
  num_workers: 4
```
"""

import dataclasses
import difflib
import math
import numbers
import os
import types
import typing
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from perflint_runtime.settings_aliases import FLAGS, canonical, other_names

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
        _check_types(self)


@dataclass(frozen=True)
class TrainingSettings:
    """What `Trainer` does between the first and the last step. Each acts there, or is compared with what it is given."""

    epochs: int = 1
    max_steps: int | None = None
    """Stop after this many optimizer steps, also within an epoch; or after `epochs`, whichever comes first."""
    learning_rate: float | None = None
    """Of the AdamW that `Trainer` makes if it is given no optimizer; one that it is given has to have it."""
    weight_decay: float | None = None
    """As `learning_rate`; 0 by default."""
    precision: Precision = "fp32"
    accumulation_steps: int = 1
    """Micro-batches per optimizer step. The last window of an epoch may hold fewer: its gradient is exact, too."""
    max_grad_norm: float | None = None
    compile_model: bool = False
    """The same as `model.use_torch_compile`; either turns it on."""
    ema_decay: float | None = None
    label_smoothing: float | None = None
    """Of the `CrossEntropy` that `Trainer` makes if it is given no loss; one that it is given has to have it."""
    class_weights: tuple[float, ...] | None = None
    """As `label_smoothing`."""
    scheduler_interval: Literal["step", "epoch"] = "step"
    early_stopping_patience: int | None = None
    """Stop after this many evaluations without an improvement."""
    early_stopping_metric: str = "val_loss"
    """What decides about stopping, about the best checkpoint, and about the learning rate with `ReduceLROnPlateau`."""
    early_stopping_mode: Literal["min", "max"] | None = None
    """Whether less or more of it is better: `min` for `val_loss`; for other metrics it has to be said."""
    keep_best: bool = True
    """Keep the checkpoint of the best evaluation, whatever `keep_checkpoints` says."""
    restore_best: bool = False
    """Leave the model with the weights of the best evaluation when training ends."""
    log_every: int = 50
    """Optimizer steps between two log records. Device values are read at these steps only."""
    eval_every: int | None = None
    """Optimizer steps between two evaluations; by default at the end of each epoch."""
    inference_mode: bool = False
    """Evaluate under `inference_mode` instead of `no_grad`: a little faster, but a model that keeps tensors made in an
    evaluation (rotary tables, caches) fails in the next training step."""
    checkpoint_every: int | None = None
    """Optimizer steps between two checkpoints; by default at the end of each epoch."""
    keep_checkpoints: int = 2
    check_finite: bool = True
    """Stop with an error when a loss is not finite: seen at the next log step, without a wait per step."""
    progress: bool = True
    """Show a bar and a line per log record, on standard error."""
    memory_management: bool = True
    """After evaluations and checkpoints, give cached memory back where the card runs short of it (`MemoryManager`)."""
    strategy: Strategy = "auto"
    """How several processes share the work: `auto` is DDP under torchrun, and nothing otherwise."""
    seed: int | None = None
    """Seed all generators when the trainer is made. What was drawn before, as the model's first weights, is not repeated."""
    deterministic: bool = False
    """Ask torch for the same bits in every run (`set_seed`)."""

    def __post_init__(self) -> None:
        _check_types(self)
        for name in ("epochs", "accumulation_steps", "log_every", "keep_checkpoints"):
            _at_least(name, getattr(self, name), 1)
        for name in ("max_steps", "eval_every", "checkpoint_every", "early_stopping_patience"):
            _at_least(name, getattr(self, name), 1)
        for name in ("learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; give a positive number, or leave it out")
        _at_least("weight_decay", self.weight_decay, 0)
        if self.ema_decay is not None and not 0 < self.ema_decay < 1:
            raise ValueError(f"ema_decay is {self.ema_decay}; give a number between 0 and 1")
        if self.label_smoothing is not None and not 0 <= self.label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {self.label_smoothing}; give a number from 0 to 1")
        if self.class_weights is not None and (not self.class_weights or min(self.class_weights) < 0):
            raise ValueError(f"class_weights are {list(self.class_weights)}; give one number per class, at least 0")
        if self.seed is not None and not 0 <= self.seed < 1 << 32:
            raise ValueError(f"seed is {self.seed}; give a number from 0 to 2**32 - 1")
        if self.early_stopping_mode is None and self.early_stopping_metric != "val_loss":
            raise ValueError(f"early_stopping_mode: say whether `min` or `max` of {self.early_stopping_metric} is better")

    def seed_generators(self) -> None:
        """Apply `seed` and `deterministic`."""
        from perflint_runtime.state import be_deterministic, set_seed

        if self.seed is not None:
            set_seed(self.seed, self.deterministic)
        elif self.deterministic:
            be_deterministic()


@dataclass(frozen=True)
class DataSettings:
    """How batches are loaded; what is unset, `make_loader` chooses for the machine.

    ```python
    data = load_settings("config.yaml").data
    train_loader = make_loader(train_set, shuffle=True, seed=0, **data.loader_options())
    val_loader = make_loader(val_set, **data.eval_loader_options())
    ```
    """

    path: str = ""
    """Where the data is: your program reads it, the runtime does not."""
    batch_size: int = 16
    """Samples per micro-batch and process."""
    eval_batch_size: int | None = None
    """By default `batch_size`."""
    max_length: int = 512
    """Tokens per sample, for your tokenizer or `dataloaders_from_hf`."""
    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    drop_last: bool = False

    def __post_init__(self) -> None:
        _check_types(self)
        for name in ("batch_size", "eval_batch_size", "max_length", "prefetch_factor"):
            _at_least(name, getattr(self, name), 1)
        _at_least("num_workers", self.num_workers, 0)

    def loader_options(self) -> dict[str, Any]:
        """The keyword arguments of `make_loader` among the settings."""
        names = ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "drop_last")
        return {name: getattr(self, name) for name in names}

    def eval_loader_options(self) -> dict[str, Any]:
        """The same for evaluation: `eval_batch_size`, and no sample is left out."""
        return {**self.loader_options(), "batch_size": self.eval_batch_size or self.batch_size, "drop_last": False}


@dataclass(frozen=True)
class Settings:
    """A whole configuration file."""

    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    data: DataSettings = field(default_factory=DataSettings)


def load_settings(source: str | os.PathLike[str] | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read a YAML file, or nested dicts, into `Settings`.

    `overrides` are dotted keys that win over the file, as from a command line: `{"training.compile_model": True}`.
    A missing section or key keeps its default. Usual other names of a key (`training.train_batch_size`) are taken for it, with
    a warning that says how it is written here.

    Raises:
        ValueError: the file is not YAML, a key is unknown (the message names the nearest valid one) or given twice by
            different names, or a value has the wrong type or is out of range. The message names the file and the key.
        OSError: the file cannot be read.

    """
    if not isinstance(source, (str, os.PathLike)):
        return _from_dict(source, overrides, "")
    import yaml

    prefix = f"{os.fspath(source)}: "
    try:
        document = yaml.safe_load(Path(source).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{prefix}not valid YAML: {' '.join(str(error).split())}") from None
    try:
        return _from_dict({} if document is None else document, overrides, prefix)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from None


def _from_dict(document: Mapping[str, Any], overrides: Mapping[str, Any] | None, prefix: str) -> Settings:
    if not isinstance(document, Mapping):
        raise ValueError(f"expected sections ({', '.join(_types_of(Settings))}), found {type(document).__name__}")
    written: dict[str, Any] = {}
    for section, values in document.items():
        if not isinstance(values, Mapping) and values is not None and section in _types_of(Settings):
            raise ValueError(f"`{section}` has to be a section of keys and values, not {values!r}")
        if section not in _types_of(Settings):
            raise _unknown(section, _types_of(Settings))
        written |= {f"{section}.{key}": value for key, value in (values or {}).items()}
    for dotted in overrides or {}:
        if "." not in dotted:
            raise ValueError(f"override `{dotted}` has no section; write it as `section.key`, as in `training.epochs`")
        if dotted.partition(".")[0] not in _types_of(Settings):
            raise _unknown(dotted.partition(".")[0], _types_of(Settings))
    merged: dict[str, dict[str, Any]] = {section: {} for section in _types_of(Settings)}
    written_as: dict[str, str] = {}
    for given in (written, dict(overrides or {})):
        for dotted, value in _by_own_names(given, written_as).items():
            section, _, key = dotted.partition(".")
            merged[section][key] = value
    kinds = _types_of(Settings)
    settings = Settings(**{section: _build(kinds[section], section, values, written_as) for section, values in merged.items()})
    if notes := [f"`{name}` is `{own}`" for own, name in written_as.items() if name != own]:
        warnings.warn(f"{prefix}other names are used than those here: {', '.join(notes)}", stacklevel=3)
    return settings


def _by_own_names(given: Mapping[str, Any], written_as: dict[str, str]) -> dict[str, Any]:
    """The values by the names that they have here; `written_as` takes up what they were called."""
    found: dict[str, Any] = {}
    # a switch that is off says nothing where another one is on, so it comes last
    for dotted, value in sorted(given.items(), key=lambda item: item[0] in FLAGS and item[1] is False):
        own = canonical(dotted)
        if dotted in FLAGS:
            own, names = FLAGS[dotted]
            if not isinstance(value, bool):
                raise ValueError(f"`{dotted}` is {value!r}; it has to be of type bool")
            if not value and own in found:
                continue
            value = names[value]
        if own in found and found[own] != value:
            raise ValueError(f"`{written_as[own]}` is {found[own]!r} and `{dotted}` is {value!r}: they mean the same")
        found[own], written_as[own] = value, dotted
    return found


def _unknown(dotted: str, known: Iterable[str]) -> ValueError:
    near = difflib.get_close_matches(dotted, known, n=1, cutoff=0.0)
    return ValueError(f"unknown key `{dotted}`; did you mean `{canonical(near[0])}`?")


def _build(kind: type[_Section], section: str, values: Mapping[str, Any], written_as: Mapping[str, str]) -> _Section:
    expected = _types_of(kind)
    found = {}
    for key, value in values.items():
        dotted = f"{section}.{key}"
        if key not in expected:
            own = [f"{section}.{name}" for name in expected]
            raise _unknown(dotted, [*own, *other_names(section)])
        found[key] = _checked(value, expected[key], written_as.get(dotted, dotted))
    try:
        return kind(**found)
    except ValueError as error:
        raise ValueError(f"{section}.{error}") from None


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
        value = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"`{key}` is {value!r}; it has to be a list")
        return tuple(_checked(item, typing.get_args(kind)[0], key) for item in value)
    if kind is float:
        return _number(value, key)
    if kind is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if not isinstance(value, kind) or kind is int:
        raise ValueError(f"`{key}` is {value!r}; it has to be of type {kind.__name__}")
    return value


def _check_types(section: Any) -> None:
    """See that a section made in code holds what one from a file would."""
    for name, kind in _types_of(type(section)).items():
        object.__setattr__(section, name, _checked(getattr(section, name), kind, name))


def _number(value: Any, key: str) -> float:
    # YAML 1.1 reads 1e-4 (without a point) as text
    if isinstance(value, (numbers.Real, str)) and not isinstance(value, bool):
        try:
            if math.isfinite(number := float(value)):
                return number
        except ValueError:
            pass
    raise ValueError(f"`{key}` is {value!r}; it has to be a number")


def _at_least(name: str, value: float | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name} is {value}; it has to be at least {least}")
