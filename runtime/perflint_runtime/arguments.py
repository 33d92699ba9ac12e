"""What a `Trainer` is given, seen to before it trains: each mistake is one line that says what to write instead."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from perflint_runtime.callbacks import Callback
from perflint_runtime.conditions import initial_rate
from perflint_runtime.counts import predicts_next_token
from perflint_runtime.losses import CrossEntropy, accuracy
from perflint_runtime.optimizers import make_optimizer
from perflint_runtime.prediction_metrics import is_prediction_metric, warn_of_mean
from perflint_runtime.settings import ModelSettings, TrainingSettings


def refuse_wrong_types(
    model: Any, settings: Any, model_settings: Any, callbacks: Sequence[Any], loggers: Sequence[Any]
) -> None:
    """See that each argument is of the kind that it is taken for.

    Raises:
        TypeError: one is not.

    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}, not a torch.nn.Module")
    for name, value, kind in (("settings", settings, TrainingSettings), ("model_settings", model_settings, ModelSettings)):
        if value is not None and not isinstance(value, kind):
            hint = f"`.{'model' if kind is ModelSettings else 'training'}` of load_settings(...)"
            raise TypeError(f"{name} is a {type(value).__name__}: pass {kind.__name__}(...), or {hint}")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            name = getattr(callback, "__name__", type(callback).__name__)
            raise TypeError(f"callbacks: {name} is no Callback: derive a class from it, with on_log or another hook")
    for logger in loggers:
        if missing := [name for name in ("log", "resume") if not callable(getattr(logger, name, None))]:
            raise TypeError(f"loggers: {type(logger).__name__} has no method {' and no '.join(missing)}; see JsonlLogger")


def optimizer_of(given: Any, model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """The optimizer that was given, or made by the given function, or AdamW of the settings' learning rate.

    Raises:
        ValueError: the optimizer holds none of the model's parameters, needs a closure, or is not that of the settings.
        TypeError: it is something else.

    """
    if given is None:
        if settings.learning_rate is None:
            raise ValueError("there is no optimizer: pass make_optimizer(model, lr=...), or settings with a learning_rate")
        return make_optimizer(
            model, lr=settings.learning_rate, weight_decay=settings.weight_decay or 0.0, precision=settings.precision
        )
    optimizer = given if isinstance(given, torch.optim.Optimizer) or not callable(given) else given(model)
    if isinstance(optimizer, (list, tuple, dict)):
        raise TypeError(
            f"a Trainer has one optimizer, not {len(optimizer)}: parameter groups give parts of a model other learning "
            "rates, and runtime/README.md shows the loop to write for two that take turns"
        )
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"the optimizer is a {type(optimizer).__name__}, not one of torch.optim, nor a function that makes one")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("LBFGS computes the loss several times per step, which a Trainer does not: write a loop for it")
    own = {id(parameter) for parameter in model.parameters()}
    if not any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError(
            "the optimizer holds none of the model's parameters (fsdp2 replaces them): pass a function that makes it from the "
            "model"
        )
    rates = [initial_rate(group) for group in optimizer.param_groups]
    _refuse_other("learning_rate", settings.learning_rate, [rate for rate in rates if rate is not None], "the optimizer")
    decays = [group["weight_decay"] for group in optimizer.param_groups if "weight_decay" in group]
    _refuse_other("weight_decay", settings.weight_decay, decays, "the optimizer")
    return optimizer


def scheduler_of(given: Any, optimizer: torch.optim.Optimizer) -> Any:
    """The scheduler that was given, or made by the given function; None without one.

    Raises:
        ValueError: it is of another optimizer.

    """
    scheduler = given(optimizer) if callable(given) else given
    if scheduler is not None and getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise ValueError("the scheduler is of another optimizer: pass a function that makes it from the optimizer")
    return scheduler


def loss_of(given: Any, settings: TrainingSettings) -> Callable[[nn.Module, Any], Any]:
    """The loss that was given, or `CrossEntropy` of the settings.

    Raises:
        TypeError: it is a criterion of outputs and targets, or cannot be called.
        ValueError: it is not that of the settings.

    """
    if given is None:
        return CrossEntropy(label_smoothing=settings.label_smoothing or 0.0, class_weights=settings.class_weights)
    if isinstance(given, nn.modules.loss._Loss):
        name = type(given).__name__
        raise TypeError(
            f"{name} takes outputs and targets, but the trainer calls loss(model, batch): pass CrossEntropy() from here, or "
            "lambda model, batch: criterion(model(batch[0]), batch[1])"
        )
    if not callable(given):
        raise TypeError(f"the loss is a {type(given).__name__}, not a function of the model and a batch")
    asked = [name for name in ("label_smoothing", "class_weights") if getattr(settings, name) is not None]
    if asked and not isinstance(given, CrossEntropy):
        raise ValueError(
            f"{asked[0]} in the settings is that of CrossEntropy: a loss of your own has to apply it; leave it out here"
        )
    if isinstance(given, CrossEntropy):
        _refuse_other("label_smoothing", settings.label_smoothing, [given.label_smoothing], "the loss")
        own = None if given.class_weights is None else tuple(given.class_weights.tolist())
        wanted = settings.class_weights
        if wanted is not None and (own is None or len(own) != len(wanted) or not all(map(_is_close, own, wanted))):
            raise ValueError(f"class_weights are {list(wanted)} in the settings, and {own and list(own)} in the loss")
    return given  # type: ignore[no-any-return]  # it can be called


def metrics_of(
    given: Mapping[str, Any] | None, model: nn.Module, loss: Any, world_size: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metrics that are functions of a batch, and those that are objects which see all predictions.

    Raises:
        TypeError: a metric is neither.
        ValueError: one does not fit the model, or sees only a process's share.

    """
    functions: dict[str, Any] = {}
    objects: dict[str, Any] = {}
    for name, metric in (given or {}).items():
        if isinstance(metric, type):
            raise TypeError(f"metric `{name}` is the class {metric.__name__}: pass an object of it, or a function")
        if is_prediction_metric(metric):
            if world_size > 1 and not type(metric).__module__.startswith("torchmetrics"):
                raise ValueError(f"metric `{name}` sees only the predictions of its process: torchmetrics gathers those of all")
            objects[name] = metric
        elif callable(metric):
            warn_of_mean(name)
            functions[name] = metric
        else:
            raise TypeError(
                f"metric `{name}` is a {type(metric).__name__}, neither a function nor an object with update and compute"
            )
        if metric is accuracy and predicts_next_token(model) and getattr(loss, "shift_labels", None) is None:
            raise ValueError(
                f"{type(model).__name__} predicts the next token, and accuracy compares each prediction with the label of its "
                "own position: take CrossEntropy(shift_labels=True) as the loss, or write the metric"
            )
    return functions, objects


def refuse_settings_without_effect(settings: TrainingSettings, has_checkpoints: bool, names: Sequence[str]) -> None:
    """See that each setting can act.

    Raises:
        ValueError: one needs something that is not there.

    """
    decisive = settings.early_stopping_metric
    if not any(decisive == name or decisive.startswith(f"{name}_") for name in names):  # one object may compute several
        raise ValueError(f"early_stopping_metric `{decisive}` is none of {', '.join(names)}")
    if not has_checkpoints:
        for name in ("checkpoint_every", "restore_best"):
            if getattr(settings, name) != _DEFAULTS[name]:
                raise ValueError(f"{name} needs a folder: pass checkpoints= to the Trainer")
    if settings.restore_best and not settings.keep_best:
        raise ValueError("restore_best needs keep_best")


def refuse_what_is_no_loader(loader: Any, name: str) -> None:
    """See that something yields batches.

    Raises:
        TypeError: it does not.
        ValueError: it is known to yield none.

    """
    refuse_samples(loader, name)
    if isinstance(loader, (list, tuple, DataLoader)):
        try:
            is_empty = len(loader) == 0
        except TypeError:
            return
        if is_empty:
            kind = "training" if name == "train_loader" else "evaluation"
            raise ValueError(f"the {kind} loader gave no batch")


def refuse_samples(loader: Any, name: str) -> None:
    """See that something yields batches, if it yields anything.

    Raises:
        TypeError: it does not.

    """
    is_data = isinstance(loader, Dataset) or type(loader).__module__.startswith("datasets.")
    if is_data and not isinstance(loader, DataLoader):
        raise TypeError(
            f"{name} is a {type(loader).__name__}, which gives samples: pass batches, DataLoader(dataset, 32, shuffle=True) or "
            "make_loader(dataset, 32, shuffle=True, seed=0)"
        )
    if isinstance(loader, (torch.Tensor, Mapping, str)) or not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        raise TypeError(f"{name} is a {type(loader).__name__}, not a loader: pass a DataLoader, or another iterable of batches")


def refuse_missing_evaluations(settings: TrainingSettings, decides: bool, val_loader: Any) -> None:
    """See that there is something to evaluate where the settings need it.

    Raises:
        ValueError: there is not.

    """
    if val_loader is not None:
        return
    if decides:
        raise ValueError("early stopping and ReduceLROnPlateau decide by evaluations: pass a val_loader")
    for name in ("eval_every", "restore_best"):
        if getattr(settings, name) != _DEFAULTS[name]:
            raise ValueError(f"{name} is about evaluations: pass a val_loader")


def _refuse_other(name: str, wanted: float | None, present: Sequence[Any], where: str) -> None:
    if wanted is not None and present and not any(_is_close(float(value), wanted) for value in present):
        raise ValueError(f"{name} is {wanted} in the settings, and {present[0]} in {where}")


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6)


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(TrainingSettings)}
