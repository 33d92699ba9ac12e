"""A training loop in the open: it never waits for the GPU between log steps, and goes on bit for bit after a kill.

```python
trainer = Trainer(model, make_optimizer(model, lr=1e-3), CrossEntropy(), TrainingSettings(epochs=3), checkpoints="runs/a")
trainer.fit(train_loader, val_loader, resume=True)
```
"""

import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from perflint_runtime.callbacks import Callback, EarlyStopping
from perflint_runtime.checkpoints import Checkpoints
from perflint_runtime.distributed import Processes, default_device, distribute, gradient_sync, is_sharded, whole
from perflint_runtime.journal import Journal
from perflint_runtime.loggers import Logger
from perflint_runtime.losses import loss_and_outputs, refuse_criterion
from perflint_runtime.models import prepare_model
from perflint_runtime.optimizers import ExponentialMovingAverage, refuse_foreign
from perflint_runtime.positions import DataPosition, warn_of_lasting_workers
from perflint_runtime.prefetch import DevicePrefetcher
from perflint_runtime.settings import ModelSettings, TrainingSettings
from perflint_runtime.state import inference
from perflint_runtime.training_state import open_checkpoints, save_checkpoint
from perflint_runtime.windows import Window, samples_in, shares

Loss = Callable[[nn.Module, Any], "Tensor | tuple[Tensor, Any]"]
"""Model and batch (on the device) to the mean loss over the batch (0-d), alone or with outputs for the metrics."""
Metric = Callable[[Any, Any], "Tensor | tuple[Tensor, Tensor | int]"]
"""Outputs and batch to the mean over the batch (0-d), or to (sum, number of items), on the device."""


class Trainer:
    """Trains `model`: `fit(train_loader, val_loader)`. Everything it holds is public, and nothing has to be overridden.

    Args:
        model: it is moved to the device. Its `state_dict` keys stay what they are, compiled or distributed.
        optimizer: an optimizer over the model's parameters, or a function that makes one from the model (FSDP2 needs it).
        loss: `loss(model, batch)`, the mean over the batch, or `(loss, outputs)`; `CrossEntropy()` is one.
        settings: see `TrainingSettings`. Batch sizes, learning rate, seed and the like are for what you build the rest with.
        model_settings: gradient checkpointing and compilation, applied to the model in place.
        scheduler: a scheduler, or a function that makes one from the optimizer. `ReduceLROnPlateau` sees the evaluations'
            `early_stopping_metric`.
        metrics: by name, on training and evaluation batches; they have to stay on the device.
        count: how many items a batch's mean loss is over (samples by default; for a mean over tokens count the tokens), so
            that accumulated gradients are exact. If the loss has a method `count`, that is taken. The loss of a batch whose
            count is 0 is left out of the means.
        checkpoints: a folder; none are written without it.
        device: by default the current accelerator, or the CPU.

    Waits for the device: at log steps for the values of the log step before, at evaluations, and at checkpoints. With fp16
    also once per step, in torch's `GradScaler`, which reads whether a gradient overflowed.

    Accumulated gradients are those of the mean over the whole window (and all processes), however uneven the micro-batches
    are; the last window of an epoch may be shorter, and is neither dropped nor carried over.

    Raises:
        ValueError: settings that exclude each other, or an optimizer or scheduler of something else than the model.
        TypeError: the loss is a criterion of outputs and targets.

    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Callable[[nn.Module], torch.optim.Optimizer],
        loss: Loss,
        settings: TrainingSettings | None = None,
        *,
        model_settings: ModelSettings | None = None,
        scheduler: LRScheduler | Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
        metrics: Mapping[str, Metric] | None = None,
        count: Callable[[Any], Tensor | int] | None = None,
        callbacks: Sequence[Callback] = (),
        loggers: Sequence[Logger] = (),
        checkpoints: str | os.PathLike[str] | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.settings = settings or TrainingSettings()
        wanted = default_device() if device is None else torch.device(device)
        self.processes = Processes.join(wanted.type)
        self.device = self.processes.own(wanted)
        self.module = model.to(self.device)
        model_settings = model_settings or ModelSettings()
        if self.settings.compile_model:
            model_settings = dataclasses.replace(model_settings, use_torch_compile=True)
        prepare_model(self.module, model_settings)
        self.model = distribute(self.module, self.settings.strategy, self.processes, self.device)
        self.optimizer = optimizer if isinstance(optimizer, torch.optim.Optimizer) else optimizer(self.module)
        self.scheduler = scheduler(self.optimizer) if callable(scheduler) else scheduler
        refuse_foreign(self.optimizer, self.scheduler, self.module)
        refuse_criterion(loss)
        self.loss = loss
        self.metrics = dict(metrics or {})
        self.count: Callable[[Any], Tensor | int] = getattr(loss, "count", samples_in) if count is None else count
        self.callbacks = list(callbacks)
        self.checkpoints = None if checkpoints is None else Checkpoints(checkpoints, self.settings.keep_checkpoints)
        patience = self.settings.early_stopping_patience
        self.early_stopping = None if patience is None else EarlyStopping(patience, self.settings.early_stopping_mode)
        self._decides = self.early_stopping is not None or isinstance(self.scheduler, ReduceLROnPlateau)
        decisive, known = self.settings.early_stopping_metric, [f"val_{name}" for name in ("loss", *self.metrics)]
        if self._decides and decisive not in known:
            raise ValueError(f"early_stopping_metric `{decisive}` is none of {', '.join(known)}")
        self.ema = None if self.settings.ema_decay is None else ExponentialMovingAverage(self.module, self.settings.ema_decay)
        self.scaler = torch.amp.GradScaler(self.device.type) if self.settings.precision == "fp16" else None
        if self.scaler is not None and any(group.get("fused") for group in self.optimizer.param_groups):
            raise ValueError("a fused optimizer hides the steps that fp16 skips from the scheduler; make it with fused=False")
        self.step = 0
        self.should_stop = False
        """Set it to end training after the present step. A run that is resumed goes on, unless early stopping ended it."""
        self.results: dict[str, float] = {}
        """The values of the last evaluation."""
        self.journal = Journal(
            list(loggers) if self.processes.is_main else [],
            self._on_log,
            check_finite=self.settings.check_finite,
            skips_allowed=self.scaler is not None,
            batches_per_step=self.settings.accumulation_steps,
        )
        self.position = DataPosition()
        self.window = Window()
        self._grad_norm: Tensor | None = None
        self._dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.settings.precision]
        self._parameters = list(self.module.parameters())
        self._stepped = True
        self.saved_step = self.evaluated_step = -1
        if self.scaler is not None:
            self.optimizer.register_step_post_hook(self._note_step)

    @property
    def epoch(self) -> int:
        """The present epoch, from 0."""
        return self.position.epoch

    def fit(
        self, train_loader: Iterable[Any], val_loader: Iterable[Any] | None = None, *, resume: bool = False
    ) -> dict[str, float]:
        """Train until the settings' end, and return the values of the last evaluation.

        `resume=True` goes on from the newest checkpoint, if there is one: with the same program, data and number of
        processes the losses are bit for bit those of an uninterrupted run. The interrupted epoch's batches are read once
        more and passed over. The whole model is put in train mode; layers that are to stay in eval mode override `train`.

        Raises:
            ValueError: the training loader is empty, or no `val_loader` for early stopping or `ReduceLROnPlateau`.
            NonFiniteError: a loss was not finite (with fp16: all losses between two log steps), and `check_finite` is on.
            FileExistsError: the checkpoint folder holds another run's checkpoints, and `resume` is off.
            RuntimeError: a checkpoint does not fit this model, data or number of processes.

        """
        if self._decides and val_loader is None:
            raise ValueError("early stopping and ReduceLROnPlateau decide by evaluations: pass a val_loader")
        open_checkpoints(self, resume)
        if self.checkpoints is not None:
            warn_of_lasting_workers(train_loader)
        self.model.train()
        self.optimizer.zero_grad()
        shows_progress = self.settings.progress and self.processes.is_main
        first_step = self.step
        with self.journal.progress(self._num_steps(train_loader), self.step) if shows_progress else _NOTHING:
            while not self._is_finished():
                self._run_epoch(train_loader, val_loader)
            if len(self.window) and self.step > first_step:
                self._log()  # the steps since the last record; the window is kept, in case that training goes on later
            self.journal.deliver_all()
        if val_loader is not None and self.evaluated_step != self.step:
            self._evaluate_and_decide(val_loader)
        if self.saved_step != self.step:
            self.save()
        return self.results

    def evaluate(self, loader: Iterable[Any]) -> dict[str, float]:
        """Mean loss and metrics over a loader, by name (`val_loss` ...): in eval mode, with the averaged weights if there are.

        The model's mode and weights are afterwards what they were. Waits for the device once, at the end.

        Raises:
            ValueError: the loader is empty.

        """
        window = Window()
        averaged = contextlib.nullcontext() if self.ema is None else self.ema.applied()
        # FSDP2 gathers and frees its shards by hooks that inference mode does not let through
        mode = torch.no_grad if is_sharded(self.module) else torch.inference_mode
        with averaged, inference(self.module, mode="no_grad"):
            for batch in self._on_device(loader):
                # not around the loader: a dataset may keep what it loads, and inference tensors cannot be trained on
                with mode():
                    loss, outputs = self._forward(self.module, batch)
                    self._record(window, loss, self.count(batch), outputs, batch)
            if not len(window):
                raise ValueError("the evaluation loader gave no batch")
            means = window.means(self.processes)
            values = torch.stack(list(means.values())).tolist()  # the CPU waits for the GPU here, once per evaluation
        return {f"val_{name}": value for name, value in zip(means, values, strict=True)}

    def save(self) -> None:
        """Write a checkpoint of now, if there is a folder for them. Every process has to call it. Waits for the device."""
        save_checkpoint(self)

    def _run_epoch(self, train_loader: Iterable[Any], val_loader: Iterable[Any] | None) -> None:
        settings = self.settings
        batches = self.position.batches(self._on_device(train_loader), train_loader)
        on_steps = [c.on_step for c in self.callbacks if type(c).on_step is not Callback.on_step]
        while window := list(itertools.islice(batches, settings.accumulation_steps)):
            self._train_step(window)
            self.journal.tick()
            if self.step % settings.log_every == 0:
                self._log()
                self.window.clear()
            for on_step in on_steps:
                on_step(self)
            if settings.eval_every and val_loader is not None and self.step % settings.eval_every == 0:
                self._evaluate_and_decide(val_loader)
            if settings.checkpoint_every and self.step % settings.checkpoint_every == 0:
                self.save()
            if self._is_finished():
                return
        if self.position.num_batches == 0:
            raise ValueError("the training loader gave no batch")
        if val_loader is not None and settings.eval_every is None:
            self._evaluate_and_decide(val_loader)
        self._step_scheduler("epoch")
        for callback in self.callbacks:
            callback.on_epoch_end(self)
        self.position.end_epoch()
        if settings.checkpoint_every is None or self.saved_step == self.step:  # that one was before the epoch's end
            self.save()

    def _train_step(self, window: list[Any]) -> None:
        """One optimizer step over the window's micro-batches. Nothing here waits for the device, but for fp16's scaler."""
        counts = [self.count(batch) for batch in window]
        parts = shares(counts, self.processes, self.device)
        for i, batch in enumerate(window):
            is_last = i == len(window) - 1
            with gradient_sync(self.model, is_last) if self.processes.world_size > 1 else _NOTHING:
                loss, outputs = self._forward(self.model, batch)
                part = loss if parts is None else loss * parts[i]
                (part if self.scaler is None else self.scaler.scale(part)).backward()
            self._record(self.window, loss, counts[i], outputs, batch)
        if self.settings.max_grad_norm is not None:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            self._grad_norm = nn.utils.clip_grad_norm_(self._parameters, self.settings.max_grad_norm)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self._stepped = False
            self.scaler.step(self.optimizer)  # the CPU waits for the GPU here: torch reads whether a gradient overflowed
            self.scaler.update()
        self.optimizer.zero_grad()
        self.step += 1
        if self._stepped:
            if self.ema is not None:
                self.ema.update()
            self._step_scheduler("step")

    def _forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        with torch.autocast(self.device.type, self._dtype) if self._dtype is not None else _NOTHING:
            result = self.loss(model, batch)
        return loss_and_outputs(result)

    def _record(self, window: Window, loss: Tensor, count: Tensor | int, outputs: Any, batch: Any) -> None:
        window.add(loss.detach().clone(), count)  # a compiled model may write its next loss to the same memory (CUDA graphs)
        if self.metrics:
            with torch.no_grad():
                for name, metric in self.metrics.items():
                    window.add_metric(name, metric(outputs, batch), count)

    def _log(self) -> None:
        values: dict[str, Tensor | float] = {**self.window.means(self.processes)}
        if self._grad_norm is not None:
            values["grad_norm"] = whole(self._grad_norm)
        values |= {"lr": self.optimizer.param_groups[0]["lr"], "epoch": float(self.epoch)}
        self.journal.submit(self.step, values, self.window.losses())

    def _on_log(self, step: int, values: Mapping[str, float]) -> None:
        for callback in self.callbacks:
            callback.on_log(self, step, values)

    def _evaluate_and_decide(self, val_loader: Iterable[Any]) -> None:
        self.journal.deliver_all()  # so that records come in the order of their steps
        self.results = self.evaluate(val_loader)
        self.evaluated_step = self.step
        self.journal.write(self.step, self.results)
        for callback in self.callbacks:
            callback.on_evaluate(self, self.results)
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(self.results[self.settings.early_stopping_metric])
        if self.early_stopping is not None:
            self.should_stop |= self.early_stopping.should_stop(self.results[self.settings.early_stopping_metric])

    def _step_scheduler(self, interval: str) -> None:
        if self.scheduler is not None and interval == self.settings.scheduler_interval:
            if not isinstance(self.scheduler, ReduceLROnPlateau):
                self.scheduler.step()

    def _is_finished(self) -> bool:
        settings = self.settings
        is_last = settings.max_steps is not None and self.step >= settings.max_steps
        return self.should_stop or is_last or self.epoch >= settings.epochs

    def _on_device(self, loader: Iterable[Any]) -> Iterable[Any]:
        if self.device.type == "cpu":
            return loader
        # without workers, loading ahead would change which random numbers the dataset and the model draw
        depth = 2 if getattr(loader, "num_workers", 0) else 0
        return DevicePrefetcher(loader, self.device, depth=depth)

    def _note_step(self, *_: Any) -> None:
        self._stepped = True

    def _num_steps(self, loader: Any) -> int | None:
        """The optimizer steps of the whole training, where the loader has a length."""
        steps = None
        with contextlib.suppress(TypeError):
            steps = math.ceil(len(loader) / self.settings.accumulation_steps) * self.settings.epochs
        return min((n for n in (steps, self.settings.max_steps) if n is not None), default=None)


_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
