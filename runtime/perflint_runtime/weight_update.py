"""From the gradients of a window to new weights: unscaled, clipped, and skipped where fp16 overflowed."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from perflint_runtime.optimizers import drop_gradients
from perflint_runtime.settings import TrainingSettings


class WeightUpdate:
    """One optimizer's steps. Nothing here waits for the device, but for fp16's scaler, which reads whether one overflowed.

    Raises:
        ValueError: a fused optimizer with fp16.

    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Iterable[nn.Parameter],
        settings: TrainingSettings,
        device: torch.device,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        makes_scaler = scaler is None and settings.precision == "fp16"
        self.scaler = torch.amp.GradScaler(device.type) if makes_scaler else scaler
        if makes_scaler and any(group.get("fused") for group in optimizer.param_groups):
            raise ValueError("a fused optimizer hides the steps that fp16 skips from the scheduler; make it with fused=False")
        self.grad_norm: Tensor | None = None
        """Of the last step, before it was clipped; None without clipping."""
        self._optimizer = optimizer
        self._parameters = list(parameters)
        self._max_grad_norm = settings.max_grad_norm
        self._stepped = True

    def backward(self, loss: Tensor) -> None:
        """Add a loss's gradients.

        Raises:
            ValueError: it has none.

        """
        if not loss.requires_grad:
            raise ValueError("the loss does not depend on a parameter that is trained: is something in it detached?")
        scaled: Tensor = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]  # torch 2.13 leaves it untyped

    def finish_gradients(self, are_looked_at: bool) -> None:
        """Clip the gradients of the window; unscale them if something looks at them."""
        if self.scaler is not None and (are_looked_at or self._max_grad_norm is not None):
            self.scaler.unscale_(self._optimizer)
        if self._max_grad_norm is not None:
            self.grad_norm = nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm)

    def step(self) -> bool:
        """Change the weights and drop the gradients; whether the weights were changed: fp16 skips steps that overflowed."""
        if self.scaler is None:
            self._optimizer.step()
        else:
            self._stepped = False
            with self._optimizer.register_step_post_hook(self._note_step):
                self.scaler.step(self._optimizer)  # the CPU waits for the GPU here
            self.scaler.update()
        drop_gradients(self._optimizer)
        return self._stepped

    def _note_step(self, *_: Any) -> None:
        self._stepped = True
