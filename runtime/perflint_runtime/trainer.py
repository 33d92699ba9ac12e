"""A training loop in the open: it never waits for the GPU between log steps, and goes on bit for bit after a kill.

```python
trainer = Trainer(model, make_optimizer(model, lr=1e-3), CrossEntropy(), TrainingSettings(epochs=3), checkpoints="runs/a")
trainer.fit(train_loader, val_loader, resume=True)
```
"""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from perflint_runtime import arguments, sharding
from perflint_runtime.best_evaluation import BestEvaluation
from perflint_runtime.callbacks import Callback
from perflint_runtime.checkpoints import Checkpoints
from perflint_runtime.conditions import conditions, initial_rate
from perflint_runtime.counts import DefaultCount
from perflint_runtime.distributed import Processes, default_device, distribute, gradient_sync, whole
from perflint_runtime.evaluation import evaluate
from perflint_runtime.feed import Feed
from perflint_runtime.interrupts import Interrupts
from perflint_runtime.journal import Journal
from perflint_runtime.loggers import Logger
from perflint_runtime.losses import loss_and_outputs
from perflint_runtime.memory import MemoryManager
from perflint_runtime.models import prepare_model
from perflint_runtime.optimizers import ExponentialMovingAverage
from perflint_runtime.positions import DataPosition, warn_of_lasting_workers
from perflint_runtime.prediction_metrics import PredictionMetrics
from perflint_runtime.settings import ModelSettings, TrainingSettings
from perflint_runtime.steps import steps
from perflint_runtime.training_state import open_checkpoints, restore_best, save_checkpoint
from perflint_runtime.weight_update import WeightUpdate
from perflint_runtime.windows import Window, shares

Loss = Callable[[nn.Module, Any], "Tensor | tuple[Tensor, Any]"]
"""Model and batch (on the device) to the mean loss over the batch (0-d), alone or with outputs for the metrics."""


class Trainer:
    """Trains `model`: `fit(train_loader, val_loader)`. Everything it holds is public, and nothing has to be overridden.

    Args:
        model: it is moved to the device. Its `state_dict` keys stay what they are, compiled or distributed.
        optimizer: an optimizer over the model's parameters, or a function that makes one from the model (FSDP2 needs it);
            without one, AdamW of the settings' learning rate.
        loss: `loss(model, batch)`, the mean over the batch, or `(loss, outputs)`; `CrossEntropy` of the settings without one.
        settings: see `TrainingSettings`.
        model_settings: gradient checkpointing and compilation, applied to the model in place.
        scheduler: a scheduler, or a function that makes one from the optimizer. `ReduceLROnPlateau` sees the evaluations'
            `early_stopping_metric`.
        metrics: by name. A function of outputs and batch, on training and evaluation batches, which has to stay on the device:
            its mean over the batches is reported. What is no such mean (F1, AUC) is an object with `update(logits, labels)`,
            `compute()` and `reset()`, as torchmetrics has them: it sees all predictions of an evaluation.
        count: how many items a batch's mean loss is over, so that accumulated gradients are exact. By default the loss's own
            method `count`, or else: in a dict the `labels` that are not -100, in other batches the samples; where that cannot
            be told and gradients depend on it, an error says so. The loss of a batch whose count is 0 is left out of the means.
        checkpoints: a folder; none are written without it.
        device: by default the current accelerator, or the CPU.
        scaler: of a program that keeps its own, for mixed precision in its loss function; fp16 of the settings makes one.
        ddp_options: for `DistributedDataParallel`, as `{"find_unused_parameters": True}`.

    Waits for the device: at log steps for the values of the log step before, at evaluations, and at checkpoints. With fp16
    also once per step, in torch's `GradScaler`, which reads whether a gradient overflowed.

    Accumulated gradients are those of the mean over the whole window (and all processes), however uneven the micro-batches
    are; the last window of an epoch may be shorter, and is neither dropped nor carried over.

    Under torchrun each process trains on its share of the data: a loader of `make_loader(..., seed=...)` is divided, one that
    gives all samples to each process is refused, and so are processes with different numbers of batches. Evaluation loaders
    are taken as they are: an evaluation of all samples in each process gives the same means.

    Ctrl-C ends training after the present step, with a checkpoint (not under torchrun, which ends its processes).

    Raises:
        ValueError: settings that exclude each other, that cannot act, or that the optimizer or loss does not have; an optimizer
            or scheduler of something else than the model; an accuracy of a causal language model at the wrong positions.
        TypeError: an argument is of the wrong kind, such as a criterion of outputs and targets, or two optimizers.

    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Callable[[nn.Module], torch.optim.Optimizer] | None = None,
        loss: Loss | None = None,
        settings: TrainingSettings | None = None,
        *,
        model_settings: ModelSettings | None = None,
        scheduler: LRScheduler | Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
        metrics: Mapping[str, Any] | None = None,
        count: Callable[[Any], Tensor | int] | None = None,
        callbacks: Sequence[Callback] = (),
        loggers: Sequence[Logger] = (),
        checkpoints: str | os.PathLike[str] | None = None,
        device: str | torch.device | None = None,
        scaler: torch.amp.GradScaler | None = None,
        ddp_options: Mapping[str, Any] | None = None,
    ) -> None:
        arguments.refuse_wrong_types(model, settings, model_settings, callbacks, loggers)
        self.settings = settings = settings or TrainingSettings()
        settings.seed_generators()
        wanted = default_device() if device is None else torch.device(device)
        self.processes = Processes.join(wanted.type)
        self.device = self.processes.own(wanted)
        self.module = model if _is_on(model, self.device) else model.to(self.device)
        model_settings = model_settings or ModelSettings()
        if settings.compile_model:
            model_settings = dataclasses.replace(model_settings, use_torch_compile=True)
        prepare_model(self.module, model_settings)
        self.loss = arguments.loss_of(loss, settings)
        self.model = distribute(self.module, settings.strategy, self.processes, self.device, ddp_options)
        self.optimizer = arguments.optimizer_of(optimizer, self.module, settings)
        self.scheduler = arguments.scheduler_of(scheduler, self.optimizer)
        self.initial_rates = [initial_rate(group) for group in self.optimizer.param_groups]
        self.metrics, objects = arguments.metrics_of(metrics, self.module, self.loss, self.processes.world_size)
        self.prediction_metrics = PredictionMetrics(objects, self.device)
        is_decisive = settings.accumulation_steps > 1 or self.processes.world_size > 1
        self.count = count or getattr(self.loss, "count", None) or DefaultCount(self.module, is_decisive)
        self.callbacks = list(callbacks)
        self.checkpoints = None if checkpoints is None else Checkpoints(checkpoints, settings.keep_checkpoints)
        self.best = BestEvaluation(settings.early_stopping_mode or "min", settings.early_stopping_patience)
        self._decides = self.best.patience is not None or isinstance(self.scheduler, ReduceLROnPlateau)
        values = [f"val_{name}" for name in ("loss", *self.metrics, *objects)]
        arguments.refuse_settings_without_effect(settings, self.checkpoints is not None, values)
        self.ema = None if settings.ema_decay is None else ExponentialMovingAverage(self.module, settings.ema_decay)
        self.update = WeightUpdate(self.optimizer, self.module.parameters(), settings, self.device, scaler)
        self.step = 0
        self.should_stop = False
        """Set it to end training after the present step. A run that is resumed goes on, unless early stopping ended it."""
        self.results: dict[str, float] = {}
        """The values of the last evaluation, or of the best one if its weights were restored."""
        self.journal = Journal(
            list(loggers) if self.processes.is_main else [],
            self._on_log,
            check_finite=settings.check_finite,
            skips_allowed=self.update.scaler is not None,
            batches_per_step=settings.accumulation_steps,
            num_epochs=settings.epochs,
        )
        self.position = DataPosition()
        self.window = Window()
        self.memory = MemoryManager(self.device, enabled=settings.memory_management)
        self.interrupts = Interrupts()
        self.conditions: dict[str, Any] = {}
        self.saved_step = self.evaluated_step = -1
        self._is_best = False  # the last evaluation was, and its checkpoint is not written yet
        self._is_done = False
        self._dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[settings.precision]

    @property
    def epoch(self) -> int:
        """The present epoch, from 0."""
        return self.position.epoch

    @property
    def history(self) -> list[dict[str, float]]:
        """All records so far, for plots: `pandas.DataFrame(trainer.history)`. Each has its `step`; a resume keeps them."""
        return self.journal.history

    def fit(
        self,
        train_loader: Iterable[Any],
        val_loader: Iterable[Any] | None = None,
        *,
        resume: bool = False,
        divided: bool = False,
    ) -> dict[str, float]:
        """Train until the settings' end, and return the values of the last evaluation (the best one with `restore_best`).

        `resume=True` goes on from the newest checkpoint, if there is one: with the same program, data and number of
        processes the losses are bit for bit those of an uninterrupted run. The interrupted epoch's batches are read once
        more and passed over. The whole model is put in train mode; layers that are to stay in eval mode override `train`.

        `divided=True` says that under torchrun each process's loader has samples of its own, where that cannot be seen.

        Raises:
            ValueError: a loader is empty or not divided among the processes, or there is no `val_loader` where one is needed.
            TypeError: a loader is a dataset, or something else that gives no batches.
            NonFiniteError: a loss was not finite (with fp16: all losses between two log steps), or at a checkpoint a
                parameter is not, and `check_finite` is on.
            FileExistsError: the checkpoint folder holds another run's checkpoints, and `resume` is off.
            RuntimeError: a checkpoint does not fit this model, data, batch size, accumulation or number of processes; or
                this trainer has finished already.
            KeyboardInterrupt: after Ctrl-C, once the present step is done and its checkpoint is written.

        """
        if self._is_done and not resume:
            raise RuntimeError(f"this trainer has finished, at step {self.step}: make a new one for another training")
        feed = self._prepare(train_loader, val_loader, resume, divided)
        shows_progress = self.settings.progress and self.processes.is_main
        first_step = self.step
        progress = self.journal.progress(feed.num_steps(), self.step) if shows_progress else _NOTHING
        with progress, self.interrupts.noted(self.processes.world_size == 1):
            while not self._is_finished():
                self._run_epoch(feed, val_loader)
            if len(self.window) and self.step > first_step:
                self._log()  # the steps since the last record; the window is kept, in case that training goes on later
            self.journal.deliver_all()
            if val_loader is not None and self.evaluated_step != self.step:
                self._evaluate_and_decide(val_loader)
            if self.saved_step != self.step or self._is_best:
                self.save()
            self.journal.flush()
            self._end_if_interrupted()
        if self.settings.restore_best:
            restore_best(self)
        self._is_done = True
        return self.results

    def _prepare(self, train_loader: Any, val_loader: Any, resume: bool, divided: bool) -> Feed:
        arguments.refuse_what_is_no_loader(train_loader, "train_loader")
        if val_loader is not None:
            arguments.refuse_what_is_no_loader(val_loader, "val_loader")
        arguments.refuse_missing_evaluations(self.settings, self._decides, val_loader)
        if not divided:
            counts_steps = self.scheduler is not None and self.settings.scheduler_interval == "step"
            sharding.share(train_loader, self.processes, counts_steps)
        self.conditions = conditions(self, train_loader)
        open_checkpoints(self, resume, train_loader)
        if self.checkpoints is not None:
            warn_of_lasting_workers(train_loader)
        self.model.train()
        self.optimizer.zero_grad()
        return Feed(self, train_loader, is_divided=divided)

    def steps(
        self, loader: Iterable[Any], *, update_every: int = 1, update_at_end: bool = False, prefetch: bool = True
    ) -> Iterator[tuple[Tensor, Any, Any]]:
        """One pass over a loader, for an epoch loop of your own: `for loss, outputs, batch in trainer.steps(loader):`.

        Each batch is trained on before it is yielded: batch on the device, forward and backward pass, clipping, optimizer step;
        then the gradients are dropped. `outputs` is what the loss function returned beside the loss. Totals, logs, schedulers,
        evaluations and checkpoints are the program's: of the settings, those about a single step act here (precision,
        `max_grad_norm`, `ema_decay`), and callbacks get `before_step`. Nothing here waits for the device.

        `update_every=n` takes an optimizer step after every n-th batch, with the sum of their gradients: the loss function
        divides, as it does by hand. What is left over at the end of a pass waits for the next one, unless `update_at_end`
        (which needs a loader with a length). `prefetch=False` leaves batches where they are.

        Raises:
            TypeError: the loader is a dataset, or something else that gives no batches.
            ValueError: the loss does not depend on a parameter that is trained.

        """
        return steps(self, loader, update_every, update_at_end, prefetch)

    def evaluate(self, loader: Iterable[Any]) -> dict[str, float]:
        """Mean loss and metrics over a loader, by name (`val_loss` ...): in eval mode, with the averaged weights if there are.

        Nothing is recorded for backward; what a model keeps of an evaluation may be used in training (`no_grad`), unless the
        settings ask for `inference_mode`. The model's mode and weights are afterwards what they were. Waits for the device
        once, at the end, and in what metrics that are objects read.

        Raises:
            ValueError: the loader is empty.
            TypeError: it is no loader.

        """
        arguments.refuse_what_is_no_loader(loader, "the evaluation loader")
        return evaluate(self, loader)

    def save(self) -> None:
        """Write a checkpoint of now, if there is a folder for them. Every process has to call it. Waits for the device."""
        save_checkpoint(self, is_best=self._is_best)
        self._is_best = False
        self.memory.check_and_clear()

    def _run_epoch(self, feed: Feed, val_loader: Iterable[Any] | None) -> None:
        settings = self.settings
        on_steps = [c.on_step for c in self.callbacks if type(c).on_step is not Callback.on_step]
        for window in feed.windows():
            self._train_step(window)
            self.journal.tick()
            if self.step % settings.log_every == 0:
                self._log()
                self.window.clear()
            for on_step in on_steps:
                with self.interrupts.deferred():
                    on_step(self)
            if settings.eval_every and val_loader is not None and self.step % settings.eval_every == 0:
                self._evaluate_and_decide(val_loader)
            if self._is_best or (settings.checkpoint_every and self.step % settings.checkpoint_every == 0):
                self.save()
            if self.interrupts.requested:
                break
            if self._is_finished():
                return
        self._end_if_interrupted()
        if self.position.num_batches == 0:
            raise ValueError("the training loader gave no batch: is it an iterator, which can be read only once?")
        if val_loader is not None and settings.eval_every is None:
            self._evaluate_and_decide(val_loader)
        self._step_scheduler("epoch")
        for callback in self.callbacks:
            callback.on_epoch_end(self)
        self.position.end_epoch()
        # one that was written at this step already was before the epoch's end
        if settings.checkpoint_every is None or self.saved_step == self.step or self._is_best:
            self.save()

    def _train_step(self, window: list[Any]) -> None:
        """One optimizer step over the window's micro-batches. Nothing here waits for the device, but for fp16's scaler."""
        counts = [self.count(batch) for batch in window]
        parts = shares(counts, self.processes, self.device)
        for i, batch in enumerate(window):
            is_last = i == len(window) - 1
            with gradient_sync(self.model, is_last) if self.processes.world_size > 1 else _NOTHING:
                loss, outputs = self.forward(self.model, batch)
                self.update.backward(loss if parts is None else loss * parts[i])
            self.record(self.window, loss, counts[i], outputs, batch)
        self.update_weights()

    def update_weights(self) -> None:
        """Take an optimizer step with the gradients that are there, and what belongs to it."""
        before_steps = [c.before_step for c in self.callbacks if type(c).before_step is not Callback.before_step]
        self.update.finish_gradients(bool(before_steps))
        for before_step in before_steps:
            before_step(self)
        has_stepped = self.update.step()
        self.step += 1
        if has_stepped:
            if self.ema is not None:
                self.ema.update()
            self._step_scheduler("step")

    def forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Any]:
        """The loss of a batch (0-d) and the outputs for the metrics, in the settings' precision."""
        with torch.autocast(self.device.type, self._dtype) if self._dtype is not None else _NOTHING:
            result = self.loss(model, batch)
        return loss_and_outputs(result)

    def record(self, window: Window, loss: Tensor, count: Tensor | int, outputs: Any, batch: Any) -> None:
        """Take a batch's loss and metrics into a window. Waits for nothing."""
        window.add(loss.detach().clone(), count)  # a compiled model may write its next loss to the same memory (CUDA graphs)
        if self.metrics:
            with torch.no_grad():
                for name, metric in self.metrics.items():
                    window.add_metric(name, metric(outputs, batch), count)

    def _log(self) -> None:
        values: dict[str, Tensor | float] = {**self.window.means(self.processes)}
        if self.update.grad_norm is not None:
            values["grad_norm"] = whole(self.update.grad_norm)
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
        decisive = self.results[self.settings.early_stopping_metric]
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(decisive)
        self._is_best = self.best.take(decisive, self.step) and self.settings.keep_best and self.checkpoints is not None
        self.should_stop |= self.best.is_over
        self.memory.check_and_clear()

    def _end_if_interrupted(self) -> None:
        if self.interrupts.requested:
            if self.saved_step != self.step:
                self.save()
            raise KeyboardInterrupt

    def _step_scheduler(self, interval: str) -> None:
        if self.scheduler is not None and interval == self.settings.scheduler_interval:
            if not isinstance(self.scheduler, ReduceLROnPlateau):
                self.scheduler.step()

    def _is_finished(self) -> bool:
        settings = self.settings
        is_last = settings.max_steps is not None and self.step >= settings.max_steps
        return self.should_stop or is_last or self.epoch >= settings.epochs


def _is_on(model: nn.Module, device: torch.device) -> bool:
    """Whether a model is on a device already: `to` would take a call for each tensor to find out."""
    return all(tensor.device == device for tensor in itertools.chain(model.parameters(), model.buffers()))


_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
