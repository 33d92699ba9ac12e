"""What a training step costs around the model: our trainer, a loop by hand, and other trainers, in one process in turn.

    python benchmarks/trainer_overhead.py [--rounds N] [--json FILE]

A tiny network on one CPU thread, the same data, seed and optimizer for all. A step's cost is the process CPU time of 2,200
steps less that of 200, so that starting up does not count; the ratio to the loop by hand is taken within each round, and
the median over the rounds counts. Each loop must end with the very parameters of the loop by hand (with clipping: of the one
that clips). Peers that are not installed are left out: pip install accelerate lightning transformers tqdm.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from perflint_runtime import Trainer, TrainingSettings
from surroundings import commit, machine, versions
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).resolve().parent.parent
LONG, SHORT = 2200, 200
Run = Callable[[int], nn.Module]


class Batches(Dataset[Any]):
    """Ready-made batches: nothing is collated, so that only the loop is measured."""

    def __init__(self, num: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.batches = [
            (torch.randn(32, 64, generator=generator), torch.randint(0, 10, (32,), generator=generator)) for _ in range(num)
        ]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Any:
        return self.batches[i]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def loader(num: int) -> DataLoader[Any]:
    return DataLoader(Batches(num), batch_size=None)


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def loss_and_logits(model: nn.Module, batch: Any) -> Any:
    logits = model(batch[0])
    return functional.cross_entropy(logits, batch[1]), logits


def right(logits: torch.Tensor, batch: Any) -> Any:
    return (logits.argmax(-1) == batch[1]).sum(), len(batch[1])


def by_hand(num: int, clip: float | None = None, bar: bool = False) -> nn.Module:
    model = network()
    optimizer = adam(model)
    batches: Any = loader(num)
    if bar:
        from tqdm import tqdm

        batches = tqdm(batches)
    for batch in batches:
        loss = loss_of(model, batch)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        if bar:
            batches.set_postfix(loss=loss.item())
    return model


def ours(num: int, loss: Any = loss_of, metrics: Any = None, **settings: Any) -> nn.Module:
    model = network()
    trainer = Trainer(
        model, adam(model), loss, TrainingSettings(**{"progress": False, **settings}), metrics=metrics, device="cpu"
    )
    trainer.fit(loader(num))
    return model


def with_accelerate(num: int, clip: float | None = None) -> nn.Module:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer, batches = accelerator.prepare(model, adam(model), loader(num))
    for batch in batches:
        loss = loss_of(model, batch)
        accelerator.backward(loss)
        if clip is not None:
            accelerator.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return accelerator.unwrap_model(model)  # type: ignore[no-any-return]  # accelerate has no types


def with_fabric(num: int) -> nn.Module:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    model = network()
    wrapped, optimizer = fabric.setup(model, adam(model))
    for batch in fabric.setup_dataloaders(loader(num)):
        loss = loss_of(wrapped, batch)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return model


def with_lightning(num: int) -> nn.Module:
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]  # seen as Any where it is not installed
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return loss_of(self.network, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return adam(self.network)

    module = Module()
    lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module, loader(num))
    return module.network  # type: ignore[no-any-return]  # as above


def with_transformers(num: int) -> nn.Module:
    import transformers

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": loss_of(self.network, (x, labels))}

    class Loop(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return DataLoader(self.train_dataset, batch_size=None, collate_fn=lambda batch: {"x": batch[0], "labels": batch[1]})

    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=1,
            num_train_epochs=1,
            max_grad_norm=0,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        optimizer = adam(model)
        constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
        Loop(model, arguments, train_dataset=Batches(num), optimizers=(optimizer, constant)).train()
    return model.network


LOOPS: dict[str, tuple[Run, str]] = {
    "by hand": (by_hand, ""),
    "by hand, clipping": (lambda num: by_hand(num, 1.0), ""),
    "by hand, tqdm and .item()": (lambda num: by_hand(num, bar=True), "by hand"),
    "perflint_runtime": (ours, "by hand"),
    "perflint_runtime, progress, metric, log every 50": (
        lambda num: ours(num, loss_and_logits, {"accuracy": right}, progress=True),
        "by hand",
    ),
    "perflint_runtime, clipping": (lambda num: ours(num, max_grad_norm=1.0), "by hand, clipping"),
    "accelerate": (with_accelerate, "by hand"),
    "accelerate, clipping": (lambda num: with_accelerate(num, 1.0), "by hand, clipping"),
    "lightning.fabric": (with_fabric, "by hand"),
    "lightning, bare": (with_lightning, "by hand"),
    "transformers.Trainer, bare": (with_transformers, "by hand"),
}
"""Each loop, and the one whose parameters and cost it is compared with."""
PACKAGES = {
    "accelerate": "accelerate",
    "lightning.fabric": "lightning",
    "lightning": "lightning",
    "transformers": "transformers",
}


def main() -> int:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--only", default="", help="only loops whose name contains this, and those by hand")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    loops = {
        name: loop
        for name, loop in LOOPS.items()
        if is_installed(name) and (options.only in name or name.startswith("by hand"))
    }
    step_us: dict[str, list[float]] = {name: [] for name in loops}
    parameters: dict[str, dict[str, Any]] = {}
    for _ in range(options.rounds):
        for name, (run, _) in loops.items():
            seconds, model = measured(run)
            step_us[name].append(seconds / (LONG - SHORT) * 1e6)
            parameters[name] = model.state_dict()
    rows = {}
    for name, (_, base) in loops.items():
        like = base or name
        rows[name] = {
            "step_us": statistics.median(step_us[name]),
            "compared_with": like,
            "ratio": statistics.median(a / b for a, b in zip(step_us[name], step_us[like], strict=True)),
            "same_parameters": all(torch.equal(parameters[name][key], value) for key, value in parameters[like].items()),
        }
        same = "" if rows[name]["same_parameters"] else "   OTHER PARAMETERS"
        print(f"{name:50} {rows[name]['step_us']:8.0f} us  {rows[name]['ratio']:5.2f} x {like}{same}")
    if options.json is not None:
        record = {
            "command": "python benchmarks/trainer_overhead.py",
            "commit": commit(),
            "machine": machine(),
            "versions": versions("torch", "accelerate", "lightning", "transformers", "tqdm"),
            "steps": [LONG, SHORT],
            "loops": rows,
            "rounds": step_us,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def measured(run: Run) -> tuple[float, nn.Module]:
    """CPU seconds of the long run less the short one, and the model of the long one."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        start = time.process_time()
        run(SHORT)
        middle = time.process_time()
        model = run(LONG)
        end = time.process_time()
    return (end - middle) - (middle - start), model


def is_installed(name: str) -> bool:
    package = next((package for prefix, package in PACKAGES.items() if name.startswith(prefix)), "torch")
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
