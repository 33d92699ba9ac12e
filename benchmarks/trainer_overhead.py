"""What a training step costs around the model: our trainer, a loop by hand, and other trainers, in one process in turn.

    python benchmarks/trainer_overhead.py [--rounds N] [--json FILE]

Two models on one CPU thread, with the same data, seed and optimizer for all: a *tiny* network, around which only the loop costs
something, and a *transformer* (two layers, width 128, 16 x 32 tokens), where it hardly does. A step's cost is the process CPU
time of a long run less that of a short one, so that starting up does not count. Each loop is measured right after the loop by
hand that it is compared with; the ratio of these two is taken, and the median over the rounds counts, with quartiles. Each loop
must end with the very parameters of the loop by hand (with clipping: of the one that clips). Peers that are not installed are
left out: pip install accelerate lightning pytorch-ignite torchtnt transformers tqdm.
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
from dataclasses import dataclass
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
Run = Callable[[int], nn.Module]


class Transformer(nn.Module):
    """Classifies sequences of 32 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, 32) to logits (batch, 10)."""
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens)).mean(1))
        return logits


@dataclass(frozen=True)
class Task:
    """A model, its inputs, and how many steps the long and the short run have."""

    model: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator], torch.Tensor]
    samples: int
    steps: tuple[int, int]


TASKS = {
    "tiny": Task(
        lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)),
        lambda generator: torch.randn(32, 64, generator=generator),
        32,
        (1200, 200),
    ),
    "transformer": Task(Transformer, lambda generator: torch.randint(1000, (16, 32), generator=generator), 16, (60, 20)),
}
task = TASKS["tiny"]


class Batches(Dataset[Any]):
    """Ready-made batches: nothing is collated, so that only the loop is measured."""

    def __init__(self, num: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.batches = [
            (task.inputs(generator), torch.randint(0, 10, (task.samples,), generator=generator)) for _ in range(num)
        ]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Any:
        return self.batches[i]


def network() -> nn.Module:
    torch.manual_seed(0)
    return task.model()


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


def with_ignite(num: int) -> nn.Module:
    from ignite.engine import Engine

    model = network()
    optimizer = adam(model)

    def step(_: Any, batch: Any) -> torch.Tensor:
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    Engine(step).run(loader(num), max_epochs=1)
    return model


def with_ignite_trainer(num: int) -> nn.Module:
    from ignite.engine import create_supervised_trainer

    model = network()
    create_supervised_trainer(model, adam(model), functional.cross_entropy).run(loader(num), max_epochs=1)
    return model


def with_torchtnt(num: int) -> nn.Module:
    from torchtnt.framework.train import train
    from torchtnt.framework.unit import TrainUnit

    class Unit(TrainUnit[Any]):  # type: ignore[misc]  # seen as Any where it is not installed
        def __init__(self) -> None:
            super().__init__()
            self.module = network()
            self.optimizer = adam(self.module)

        def train_step(self, state: Any, data: Any) -> None:
            loss_of(self.module, data).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    unit = Unit()
    train(unit, loader(num), max_epochs=1)
    return unit.module  # type: ignore[no-any-return]  # as above


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
    "ignite, Engine with a step by hand": (with_ignite, "by hand"),
    "ignite, create_supervised_trainer": (with_ignite_trainer, "by hand"),
    "torchtnt, TrainUnit with a step by hand": (with_torchtnt, "by hand"),
}
"""Each loop, and the one whose parameters and cost it is compared with."""
PACKAGES = {
    "ignite": "pytorch-ignite",
    "torchtnt": "torchtnt",
    "accelerate": "accelerate",
    "lightning.fabric": "lightning",
    "lightning": "lightning",
    "transformers": "transformers",
}


def main() -> int:
    """Read the command line, measure, print."""
    global task
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
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
    tasks: dict[str, Any] = {}
    for task_name, task in TASKS.items():
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
        same: dict[str, bool] = {}
        for run, _ in loops.values():
            measured(run)  # what is imported and compiled once
        for _ in range(options.rounds):
            for name, (run, base) in loops.items():
                if base:
                    base_seconds, expected = measured(loops[base][0])
                    seconds, model = measured(run)
                    num_steps = task.steps[0] - task.steps[1]
                    pairs[name].append((seconds / num_steps * 1e6, base_seconds / num_steps * 1e6))
                    same[name] = all(map(torch.equal, model.state_dict().values(), expected.state_dict().values()))
        rows = {}
        print(f"{task_name}, {options.rounds} rounds: CPU per step in multiples of the loop by hand, with quartiles")
        for name, (_, base) in loops.items():
            if not base:
                continue
            ratios = sorted(one / other for one, other in pairs[name])
            quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
            rows[name] = {
                "step_us": statistics.median(one for one, _ in pairs[name]),
                "compared_with": base,
                "compared_with_us": statistics.median(other for _, other in pairs[name]),
                "ratio": statistics.median(ratios),
                "quartiles": [quartiles[0], quartiles[2]],
                "same_parameters": same[name],
                "rounds": pairs[name],
            }
            odd = "" if same[name] else "   OTHER PARAMETERS"
            print(
                f"{name:50} {rows[name]['step_us']:8.0f} us  {rows[name]['ratio']:5.2f} "
                f"({quartiles[0]:.2f} to {quartiles[2]:.2f}) x {base}{odd}",
                flush=True,
            )
        tasks[task_name] = {"steps": task.steps, "loops": rows}
    if options.json is not None:
        record = {
            "command": f"python benchmarks/trainer_overhead.py --rounds {options.rounds}"
            + (options.only and f" --only {options.only}"),
            "commit": commit(),
            "machine": machine(),
            "versions": versions("torch", "accelerate", "lightning", "pytorch-ignite", "torchtnt", "transformers", "tqdm"),
            "tasks": tasks,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def measured(run: Run) -> tuple[float, nn.Module]:
    """CPU seconds of the long run less the short one, and the model of the long one."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        start = time.process_time()
        run(task.steps[1])
        middle = time.process_time()
        model = run(task.steps[0])
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
