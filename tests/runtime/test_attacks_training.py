"""Programs that were quietly wrong, of training: each ends with the right result now, or with one line that says what to do."""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perflint_runtime.loggers as loggers
import pytest
import torch
from perflint_runtime import (
    Callback,
    Checkpoints,
    CrossEntropy,
    LengthBucketSampler,
    MlflowLogger,
    NonFiniteError,
    TensorBoardLogger,
    Trainer,
    TrainingSettings,
    WandbLogger,
    accuracy,
    balanced_class_weights,
    export_safetensors,
    load_settings,
    make_loader,
    make_optimizer,
)
from perflint_runtime.models import checkpoint_blocks
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
Y = torch.randint(0, 3, (64,), generator=torch.Generator().manual_seed(1))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def loader(batch_size: int = 8, num: int = 64, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(X[:num], Y[:num]), batch_size, **options)


def seeded(batch_size: int = 8, num: int = 64, seed: int = 0) -> Any:
    return make_loader(TensorDataset(X[:num], Y[:num]), batch_size, shuffle=True, seed=seed)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def trainer_of(
    model: nn.Module | None = None, optimizer: Any = sgd, loss: Any = None, settings: Any = None, **options: Any
) -> Trainer:
    chosen = TrainingSettings(**{"progress": False, **(settings or {})})
    return Trainer(model or net(), optimizer, loss or CrossEntropy(), chosen, device="cpu", **options)


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


# evaluation


class Rotary(nn.Module):
    """Keeps a table of what it has seen, as rotary position embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Any:
        if self.table is None or len(self.table) < x.shape[1]:
            self.table = torch.cos(torch.arange(x.shape[1]).float())[:, None]
        return self.head((self.layer(x) * self.table[: x.shape[1]]).mean(1))


def test_a_model_that_keeps_a_table_of_an_evaluation_trains_on() -> None:
    short = [(torch.randn(4, 5, 8), torch.randint(0, 3, (4,))) for _ in range(4)]
    long = [(torch.randn(4, 9, 8), torch.randint(0, 3, (4,))) for _ in range(2)]
    trainer_of(Rotary(), settings={"epochs": 2}).fit(short, long)
    with pytest.raises(RuntimeError, match="Inference tensors"):
        trainer_of(Rotary(), settings={"epochs": 2, "inference_mode": True}).fit(short, long)


# checkpoints


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))


def scripted(values: list[float]) -> Callable[[nn.Module, Any], Tensor]:
    """A loss that moves the weight by one in each step, and has these values in evaluations."""
    left = iter(values)
    return lambda model, batch: -10 * model.w if model.training else torch.tensor(next(left))


@pytest.mark.parametrize("ema_decay", [None, 0.5])
def test_the_best_evaluation_is_kept_and_restored(tmp_path: Path, ema_decay: float | None) -> None:
    settings = {"epochs": 8, "early_stopping_patience": 3, "restore_best": True, "ema_decay": ema_decay}
    trainer = trainer_of(
        Weight(), loss=scripted([5, 1, 2, 3, 4]), settings=settings, checkpoints=tmp_path, count=lambda batch: 1
    )
    results = trainer.fit([torch.ones(1)], [torch.ones(1)])
    assert (trainer.step, results) == (5, {"val_loss": 1})
    assert trainer.module.w.item() == pytest.approx(2)
    if trainer.ema is not None:
        assert trainer.ema.state_dict()["w"].item() == pytest.approx(1.25)
    assert [path.name for path in Checkpoints(tmp_path).paths()] == [f"step-{n:09d}.pt" for n in (2, 4, 5)]
    best = Checkpoints(tmp_path).load_best()
    assert best is not None
    assert best[1]["model"]["w"].item() == pytest.approx(2)

    again = trainer_of(Weight(), loss=scripted([]), settings=settings, checkpoints=tmp_path, count=lambda batch: 1)
    assert again.fit([torch.ones(1)], [torch.ones(1)], resume=True) == {"val_loss": 1}
    assert again.module.w.item() == pytest.approx(2)


def test_the_best_of_evaluations_within_an_epoch_is_kept(tmp_path: Path) -> None:
    settings = {"eval_every": 2, "keep_checkpoints": 1}
    trainer = trainer_of(Weight(), loss=scripted([5, 1, 2, 3]), settings=settings, checkpoints=tmp_path, count=lambda batch: 1)
    trainer.fit([torch.ones(1)] * 8, [torch.ones(1)])
    assert [path.name for path in Checkpoints(tmp_path).paths()] == ["step-000000004.pt", "step-000000008.pt"]
    assert trainer.module.w.item() == pytest.approx(8)


def test_what_was_just_written_is_not_rotated_away(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1000, 2000):
        checkpoints.save(step, {"step": step})
    assert checkpoints.save(10, {"step": 10}).exists()
    checkpoints.save(1500, {"step": 1500}, is_best=True)
    checkpoints.save(3000, {"step": 3000})
    assert [int(path.stem[5:]) for path in checkpoints.paths()] == [1500, 2000, 3000]
    best = checkpoints.load_best()
    assert best is not None
    assert best[1] == {"step": 1500}


class Root(nn.Module):
    """In its fourth step, a finite loss has a gradient that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(6))
        self.calls = 0


def root_loss(model: Any, batch: Any) -> Tensor:
    model.calls += 1
    loss = (batch[0] @ model.w - 1).pow(2).mean()
    return loss + 0 * torch.sqrt(model.w.sum() * 0) if model.calls == 4 else loss


def test_a_checkpoint_of_parameters_that_are_not_finite_is_not_written(tmp_path: Path) -> None:
    settings = {"checkpoint_every": 1}
    with pytest.raises(NonFiniteError, match="parameter `w` is nan at step 4"):
        trainer_of(Root(), loss=root_loss, settings=settings, checkpoints=tmp_path).fit(loader())
    kept = Checkpoints(tmp_path).paths()
    assert [path.name for path in kept] == ["step-000000002.pt", "step-000000003.pt"]
    assert all(torch.load(path)["model"]["w"].isfinite().all() for path in kept)
    model = Root()
    model.calls = 100
    trainer = trainer_of(model, loss=root_loss, settings=settings, checkpoints=tmp_path)
    trainer.fit(loader(), resume=True)
    assert trainer.step == 8
    with pytest.warns(UserWarning, match="no checkpoint is written at step 4: parameter `w` is not finite"):
        trainer_of(
            Root(), loss=root_loss, settings={**settings, "check_finite": False}, checkpoints=tmp_path / "unchecked"
        ).fit(loader())
    assert [path.name for path in Checkpoints(tmp_path / "unchecked").paths()] == ["step-000000002.pt", "step-000000003.pt"]


class Interrupt(Callback):
    def __init__(self, at: int, by_signal: bool) -> None:
        self.at, self.by_signal = at, by_signal

    def before_step(self, trainer: Trainer) -> None:
        if self.by_signal and trainer.step == self.at - 1:
            signal.raise_signal(signal.SIGINT)

    def on_step(self, trainer: Trainer) -> None:
        if not self.by_signal and trainer.step == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("by_signal", [False, True])
def test_ctrl_c_ends_after_the_step_with_a_checkpoint_from_which_training_goes_on(tmp_path: Path, by_signal: bool) -> None:
    expected = trainer_of(settings={"epochs": 2})
    expected.fit(seeded())
    with pytest.raises(KeyboardInterrupt):
        trainer_of(callbacks=[Interrupt(5, by_signal)], checkpoints=tmp_path, settings={"epochs": 2}).fit(seeded())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [path.name for path in Checkpoints(tmp_path).paths()] == ["step-000000005.pt"]
    trainer = trainer_of(callbacks=[Interrupt(99, by_signal)], checkpoints=tmp_path, settings={"epochs": 2})
    trainer.fit(seeded(), resume=True)
    assert same(trainer.module, expected.module)


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    class Twice(Callback):
        def before_step(self, trainer: Trainer) -> None:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    trainer = trainer_of(callbacks=[Twice()], checkpoints=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(loader())
    assert trainer.step == 0
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 10112 vs 10006")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=r"cannot write .*is the disk full\?"):
        Checkpoints(tmp_path).save(1, {})
    assert os.listdir(tmp_path) == []


def test_an_extra_state_that_cannot_be_saved_is_named_before_training(tmp_path: Path) -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"seen": {1}}

    trainer = trainer_of(Extra(6, 3), checkpoints=tmp_path)
    with pytest.raises(TypeError, match=r"\['_extra_state'\]\['seen'\] is a set"):
        trainer.fit(loader())
    assert trainer.step == 0


def test_weights_are_exported_once_each(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5))
    model[1].weight = model[0].weight
    path = tmp_path / "new" / "model.safetensors"
    export_safetensors(model, path)
    assert sorted(safetensors.load_file(path)) == ["0.weight", *(f"2.{n}" for n in sorted(model[2].state_dict()))]
    other = copy.deepcopy(model)
    nn.init.zeros_(other[0].weight)
    safetensors.load_model(other, path)
    assert same(other, model)
    assert os.listdir(path.parent) == ["model.safetensors"]


# counts


class Tagger(nn.Module):
    """Returns its own loss, the mean over the labels that count, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 3).double()

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.layer(x).reshape(-1, 3), labels.reshape(-1))


def of_labels(shape: tuple[int, ...]) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (4, *shape), generator=generator)
    labels[1:3, ..., 1:] = -100
    labels[3, 1:] = -100
    return [{"x": torch.randn(*part.shape, 6, generator=generator).double(), "labels": part} for part in labels]


def whole_step(model: nn.Module, batches: list[dict[str, Tensor]]) -> nn.Module:
    after = copy.deepcopy(model)
    after(**{name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}).backward()
    sgd(after).step()
    return after


def assert_like(one: nn.Module, other: nn.Module) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_labels_that_do_not_count_have_no_weight_in_accumulation() -> None:
    batches = of_labels((8,))
    model = Tagger()
    expected = whole_step(model, batches)
    trainer_of(model, loss=lambda m, b: m(**b), settings={"accumulation_steps": 4}).fit(batches)
    assert_like(model, expected)


def test_labels_of_each_token_have_to_be_counted_by_the_program_if_it_is_not_known_whether_they_are_shifted() -> None:
    batches = of_labels((2, 8))
    with pytest.raises(TypeError, match=r"so not how many labels.*count=lambda batch: \(batch\['labels'\] != -100\).sum\(\)"):
        trainer_of(Tagger(), loss=lambda m, b: m(**b), settings={"accumulation_steps": 4}).fit(batches)
    model = Tagger()
    expected = whole_step(model, batches)
    trainer_of(
        model,
        loss=lambda m, b: m(**b),
        settings={"accumulation_steps": 4},
        count=lambda batch: (batch["labels"] != -100).sum(),
    ).fit(batches)
    assert_like(model, expected)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ({"input_ids": torch.ones(2, 3, dtype=torch.int64)}, "it holds input_ids and no labels"),
        ((torch.ones(2, 3), torch.ones(5)), r"first dimensions \[2, 5\]"),
        ("text", "no tensor with a dimension"),
    ],
)
def test_a_batch_whose_items_cannot_be_told_is_refused_where_gradients_depend_on_them(batch: Any, reason: str) -> None:
    loss = lambda model, batch: model(torch.ones(1, 6)).sum()
    trainer_of(loss=loss).fit([batch] * 2)
    with pytest.raises(TypeError, match=f"{reason}.*Pass count="):
        trainer_of(loss=loss, settings={"accumulation_steps": 2}).fit([batch] * 2)


def gpt2() -> Any:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 50, "n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
    none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **none, bos_token_id=0, eos_token_id=0))


def of_text(lengths: list[int]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.zeros(len(lengths), 20, dtype=torch.int64)
    labels = torch.full_like(ids, -100)
    for row, length in enumerate(lengths):
        ids[row, :length] = labels[row, :length] = torch.randint(0, 50, (length,), generator=generator)
    return {"input_ids": ids, "attention_mask": (labels >= 0).long(), "labels": labels}


@pytest.mark.parametrize("loss", [lambda m, b: m(**b).loss, CrossEntropy(shift_labels=True)])
def test_the_gradient_of_a_causal_language_model_is_that_of_all_its_tokens(loss: Any) -> None:
    batches = [of_text([20, 19]), of_text([3, 4])]
    model = gpt2().double()
    whole = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    after = copy.deepcopy(model)
    after(**whole).loss.backward()
    sgd(after).step()
    trainer_of(model, loss=loss, settings={"accumulation_steps": 2}).fit(batches)
    for a, b in zip(model.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_a_causal_language_model_does_not_learn_to_repeat_its_input() -> None:
    batch = of_text([20, 19])
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel predicts the next token.*CrossEntropy\(shift_labels=True\)"):
        trainer_of(gpt2()).fit([batch])
    with pytest.raises(ValueError, match="accuracy compares each prediction with the label of its own position"):
        trainer_of(gpt2(), loss=lambda m, b: m(**b).loss, metrics={"accuracy": accuracy})
    shifted = CrossEntropy(shift_labels=True)
    values = trainer_of(gpt2(), loss=shifted, metrics={"accuracy": accuracy}).evaluate([batch])
    model = gpt2().eval()
    with torch.no_grad():
        output = model(**batch)
    counted = batch["labels"][:, 1:] >= 0
    right = (output.logits[:, :-1].argmax(-1) == batch["labels"][:, 1:])[counted]
    assert values["val_loss"] == pytest.approx(output.loss.item(), rel=1e-5)
    assert values["val_accuracy"] == pytest.approx(right.double().mean().item())


def test_accuracy_takes_what_models_return() -> None:
    class Output:
        logits = torch.tensor([[0.1, 0.9], [0.9, 0.1]])

    labels = torch.tensor([1, 1])
    assert [n.item() for n in accuracy(Output(), (X, labels))] == [1, 2]
    assert [n.item() for n in accuracy((Output.logits,), (X, functional.one_hot(labels).double()))] == [1, 2]
    pixels = torch.zeros(2, 3, 4, 5)
    pixels[:, 2] = 1
    assert [n.item() for n in accuracy(pixels, (X, torch.full((2, 4, 5), 2)))] == [40, 40]
    with pytest.raises(ValueError, match=r"logits of shape \(2, 2\) do not fit labels of shape \(3,\)"):
        accuracy(Output(), (X, torch.zeros(3)))


def test_probabilities_as_labels_are_counted_by_samples() -> None:
    soft = torch.softmax(torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), -1).double()
    model = net().double()
    expected = copy.deepcopy(model)
    criterion = CrossEntropy(class_weights=torch.tensor([1.0, 2.0, 3.0]).double())
    criterion(expected, (X[:12].double(), soft))[0].backward()
    sgd(expected).step()
    trainer_of(model, loss=criterion, settings={"accumulation_steps": 2}).fit(
        [(X[:9].double(), soft[:9]), (X[9:12].double(), soft[9:])]
    )
    assert_like(model, expected)


def test_class_weights_let_each_class_count_alike() -> None:
    weights = balanced_class_weights([0, 0, 0, 1, -100], num_classes=2)
    torch.testing.assert_close(weights, torch.tensor([4 / 6, 4 / 2]))
    with pytest.raises(ValueError, match="no sample has the label 1"):
        balanced_class_weights(torch.tensor([0, 2]), num_classes=3)
    with pytest.raises(ValueError, match="there is a label 2, but num_classes is 2"):
        balanced_class_weights([0, 1, 2], num_classes=2)


# metrics


class Positives:
    """As torchmetrics' objects: the largest share of one class among the predictions so far, which is no mean over batches."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def reset(self) -> None:
        self.seen.clear()

    def update(self, logits: Tensor, labels: Tensor) -> None:
        self.seen.append(logits.argmax(-1))

    def compute(self) -> dict[str, Tensor]:
        predictions = torch.cat(self.seen)
        return {"share": predictions.bincount(minlength=3).max() / len(predictions), "num": torch.tensor(len(predictions))}


def test_metrics_over_all_predictions_are_objects(tmp_path: Path) -> None:
    settings = {"early_stopping_metric": "val_most_share", "early_stopping_mode": "max"}
    trainer = trainer_of(metrics={"most": Positives()}, settings=settings, checkpoints=tmp_path)
    results = trainer.fit(loader(), loader())
    predictions = trainer.module(X).argmax(-1)
    assert results["val_most_share"] == pytest.approx(predictions.bincount().max().item() / 64)
    assert results["val_most_num"] == 64
    assert trainer.best.value == results["val_most_share"]


def test_a_function_that_is_averaged_though_its_name_says_otherwise_is_named() -> None:
    with pytest.warns(UserWarning, match="`macro_f1` is a function, so it is averaged over batches"):
        trainer_of(metrics={"macro_f1": lambda outputs, batch: torch.tensor(0.5)})
    with pytest.raises(TypeError, match="metric `f` is a float, neither a function nor an object"):
        trainer_of(metrics={"f": 0.5})


# resume


def end_at(step: int, folder: Path, batches: Any, **settings: Any) -> None:
    trainer_of(checkpoints=folder, settings={"max_steps": step, "checkpoint_every": step, **settings}).fit(batches)


@pytest.mark.parametrize(
    ("first", "then", "settings", "message"),
    [
        (loader, lambda: loader(4), {}, r"batch size 8 \(now 4\)"),
        (loader, lambda: loader(8, 48), {}, r"samples 64 \(now 48\)"),
        (loader, lambda: loader(drop_last=True), {}, r"drop_last False \(now True\)"),
        (loader, loader, {"accumulation_steps": 2}, r"accumulation_steps 1 \(now 2\)"),
        (loader, seeded, {}, r"sampler BatchSampler over SequentialSampler \(now LengthBucketSampler of seed 0\)"),
        (seeded, lambda: seeded(4), {}, r"batch size 8 \(now 4\)"),
        (seeded, lambda: seeded(seed=1), {}, r"seed 0 \(now LengthBucketSampler of seed 1\)"),
        (lambda: list(loader()), lambda: list(loader())[:7], {}, r"batches 8 \(now 7\)"),
    ],
)
def test_a_resume_under_other_conditions_says_which(tmp_path: Path, first: Any, then: Any, settings: Any, message: str) -> None:
    end_at(5, tmp_path, first())
    with pytest.raises(RuntimeError, match=rf"step-000000005\.pt is of a run with .*{message}"):
        trainer_of(checkpoints=tmp_path, settings=settings).fit(then(), resume=True)


def test_what_a_resume_does_not_take_over_is_said(tmp_path: Path) -> None:
    end_at(5, tmp_path, loader(num_workers=1))
    with pytest.warns(UserWarning, match="the run had 1 loader workers, now it has 0"):
        trainer_of(checkpoints=tmp_path, settings={"max_steps": 6}).fit(loader(), resume=True)
    with pytest.warns(UserWarning, match=r"it began with \[0.1\], and \[0.5\] of this program is not used"):
        trainer_of(
            optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.5), checkpoints=tmp_path, settings={"max_steps": 7}
        ).fit(loader(), resume=True)


def test_a_sampler_is_not_resumed_with_batches_of_another_size() -> None:
    state = LengthBucketSampler([1] * 20, 4).state_dict()
    with pytest.raises(ValueError, match="the saved sampler has batch_size=4, this one 2"):
        LengthBucketSampler([1] * 20, 2).load_state_dict(state)


def test_more_epochs_after_a_resume_are_those_of_one_run(tmp_path: Path) -> None:
    trainer_of(checkpoints=tmp_path).fit(loader())
    longer = trainer_of(checkpoints=tmp_path, settings={"epochs": 3})
    longer.fit(loader(), resume=True)
    at_once = trainer_of(settings={"epochs": 3})
    at_once.fit(loader())
    assert same(longer.module, at_once.module)
    assert longer.history == at_once.history


# arguments


def two_optimizers() -> Any:
    return [sgd(net())] * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: trainer_of(optimizer=two_optimizers()), "a Trainer has one optimizer, not 2.*shows the loop to write"),
        (lambda: trainer_of(optimizer=lambda m: torch.optim.LBFGS(m.parameters())), "LBFGS computes the loss several times"),
        (lambda: trainer_of(optimizer=3), "the optimizer is a int"),
        (lambda: trainer_of(loss=3), "the loss is a int, not a function of the model and a batch"),
        (lambda: trainer_of(callbacks=[print]), "callbacks: print is no Callback"),
        (lambda: trainer_of(loggers=[print]), "loggers: .* has no method log and no resume"),
        (lambda: Trainer(net(), sgd, CrossEntropy(), {}), r"settings is a dict: pass TrainingSettings\(...\)"),  # type: ignore[arg-type]  # that is the mistake
        (lambda: Trainer(sgd, net()), "model is a function, not a torch.nn.Module"),  # type: ignore[arg-type]  # as above
        (lambda: Trainer(net()), "there is no optimizer: pass make_optimizer"),
        (lambda: trainer_of().fit(TensorDataset(X, Y)), r"train_loader is a TensorDataset.*DataLoader\(dataset, 32"),
        (lambda: trainer_of().fit(loader(), TensorDataset(X, Y)), "val_loader is a TensorDataset"),
        (lambda: trainer_of().fit(loader(), {"a": loader()}), "val_loader is a dict, not a loader"),
        (lambda: trainer_of().fit(X), "train_loader is a Tensor, not a loader"),
        (lambda: trainer_of().fit(3), "train_loader is a int, not a loader"),
        (lambda: trainer_of(settings={"epochs": 2}).fit(batch for batch in loader()), "is it an iterator"),
        (lambda: trainer_of(loss=lambda m, b: m(b[0]).sum().detach()).fit(loader()), "does not depend on a parameter"),
        (lambda: trainer_of(settings={"learning_rate": 9.0}), "learning_rate is 9.0 in the settings, and 0.1 in the optimizer"),
        (lambda: trainer_of(settings={"weight_decay": 0.5}), "weight_decay is 0.5 in the settings, and 0 in the optimizer"),
        (lambda: trainer_of(settings={"label_smoothing": 0.3}), "label_smoothing is 0.3 in the settings, and 0.0 in the loss"),
        (lambda: trainer_of(settings={"class_weights": [1, 2, 3]}), r"class_weights are \[1.0, 2.0, 3.0\] in the settings"),
        (
            lambda: trainer_of(loss=lambda m, b: m(b[0]).sum(), settings={"label_smoothing": 0.3}),
            "label_smoothing in the settings is that of CrossEntropy",
        ),
        (lambda: trainer_of(settings={"eval_every": 3}).fit(loader()), "eval_every is about evaluations"),
        (lambda: trainer_of(settings={"checkpoint_every": 3}), "checkpoint_every needs a folder"),
        (lambda: trainer_of(settings={"restore_best": True}), "restore_best needs a folder"),
        (lambda: trainer_of(ddp_options={"static_graph": True}, settings={"strategy": "none"}), "ddp_options are for"),
        (lambda: TrainingSettings(epochs="3"), "`epochs` is '3'; it has to be of type int"),  # type: ignore[arg-type]  # as above
        (lambda: TrainingSettings(early_stopping_metric="val_f1"), "say whether `min` or `max` of val_f1 is better"),
        (lambda: TrainingSettings(learning_rate=-1.0), "learning_rate is -1.0; give a positive number"),
        (lambda: TrainingSettings(seed=-1), "seed is -1"),
        (lambda: TrainingSettings(class_weights=(-1.0,)), "class_weights are"),
    ],
)
def test_a_mistake_is_one_line(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_second_fit_says_that_training_is_over() -> None:
    trainer = trainer_of()
    trainer.fit(loader())
    with pytest.raises(RuntimeError, match="this trainer has finished, at step 8"):
        trainer.fit(loader())


def test_settings_make_the_optimizer_and_the_loss_where_none_are_given() -> None:
    settings = TrainingSettings(
        learning_rate=0.01, weight_decay=0.1, label_smoothing=0.2, class_weights=(1.0, 2.0, 3.0), seed=5, progress=False
    )
    model, other = net(), net()
    Trainer(model, settings=settings, device="cpu").fit(loader(shuffle=True))
    torch.manual_seed(5)
    criterion = CrossEntropy(label_smoothing=0.2, class_weights=[1.0, 2.0, 3.0])
    optimizer = make_optimizer(other, lr=0.01, weight_decay=0.1)
    Trainer(other, optimizer, criterion, TrainingSettings(progress=False), device="cpu").fit(loader(shuffle=True))
    assert same(model, other)


# settings


ENSTACK = {
    "model": {"use_torch_compile": True, "torch_compile_mode": "default"},
    "training": {"batch_size": 16, "max_length": 512},
}
SPANBERT = {"model": {"gradient_checkpointing": False}, "training": {"compile_model": False}}


def test_the_reports_own_files_load() -> None:
    with pytest.warns(UserWarning, match="`training.batch_size` is `data.batch_size`, `training.max_length` is"):
        settings = load_settings(ENSTACK)
    assert (settings.data.batch_size, settings.data.max_length, settings.model.use_torch_compile) == (16, 512, True)
    command_line = {
        "training.compile_model": True,
        "training.train_batch_size": 4,
        "training.num_workers": 2,
        "training.gradient_accumulation_steps": 4,
        "model.gradient_checkpointing": True,
    }
    with pytest.warns(UserWarning, match="`training.train_batch_size` is `data.batch_size`"):
        settings = load_settings(SPANBERT, command_line)
    assert (settings.data.batch_size, settings.data.num_workers, settings.training.accumulation_steps) == (4, 2, 4)
    assert settings.model.gradient_checkpointing
    with pytest.warns(UserWarning, match="`training.fp16` is `training.precision`"):
        assert load_settings({"training": {"bf16": False, "fp16": True}}).training.precision == "fp16"
    with pytest.raises(ValueError, match=r"`training.batch_size` is 4 and `data.batch_size` is 8: they mean the same"):
        load_settings({"training": {"batch_size": 4}, "data": {"batch_size": 8}})


def test_gradient_checkpointing_twice_is_once() -> None:
    calls = [0]

    class Counted(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            calls[0] += 1
            return super().forward(x)

    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Counted(4, 4)])

        def forward(self, x: Tensor) -> Any:
            return self.blocks[0](x)

    model = Blocks()
    for _ in range(3):
        checkpoint_blocks(model)
    model(torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert calls == [2]


# what users look for


def test_records_are_kept_for_plots_and_shown_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = trainer_of(settings={"progress": True, "epochs": 2, "log_every": 4}, metrics={"accuracy": accuracy})
    trainer.fit(loader(), loader())
    assert [record["step"] for record in trainer.history] == [4, 8, 8, 12, 16, 16]
    assert set(trainer.history[0]) == {"step", "loss", "accuracy", "lr", "epoch"}
    assert set(trainer.history[2]) == {"step", "val_loss", "val_accuracy"}
    shown = capsys.readouterr().err
    assert f"step 4  loss {trainer.history[0]['loss']:.4g}  accuracy " in shown
    assert f"step 16  val_loss {trainer.history[-1]['val_loss']:.4g}  val_accuracy " in shown
    assert "epoch=2/2" in shown
    assert "val_loss=" in shown


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_gradients_are_there_before_a_step(precision: str) -> None:
    norms: list[float] = []

    class Norms(Callback):
        def before_step(self, trainer: Trainer) -> None:
            norms.append(nn.utils.get_total_norm([p.grad for p in trainer.module.parameters() if p.grad is not None]).item())

    loss = lambda model, batch: functional.cross_entropy(model(batch[0]).float(), batch[1])
    trainer_of(callbacks=[Norms()], loss=loss, settings={"precision": precision, "max_steps": 1}).fit(loader())
    model = net()
    loss(model, (X[:8], Y[:8])).backward()
    assert norms == pytest.approx([nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()], rel=1e-2)  # type: ignore[misc]  # all have one


@pytest.mark.parametrize(
    ("make", "package", "module"),
    [
        (lambda: WandbLogger(), "wandb", "wandb"),
        (lambda: MlflowLogger(), "mlflow", "mlflow"),
        (lambda: TensorBoardLogger("board"), "tensorboard", "torch.utils.tensorboard"),
        (lambda: export_safetensors(net(), "x.safetensors"), "safetensors", "safetensors.torch"),
    ],
)
def test_a_package_that_is_missing_is_named(make: Any, package: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs the package {package}: pip install {package}"):
        make()


def test_metrics_go_to_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mlflow:
        logged: list[Any] = []  # noqa: RUF012 - one run

        class Run:
            class info:
                run_id = "7"

        def active_run(self) -> Any:
            return None

        def start_run(self, **options: Any) -> Any:
            return self.Run

        def log_metrics(self, values: Any, step: int, run_id: str) -> None:
            self.logged.append((step, sorted(values), run_id))

    monkeypatch.setitem(sys.modules, "mlflow", Mlflow())
    trainer_of(loggers=[loggers.MlflowLogger()], settings={"log_every": 4}).fit(loader(), loader())
    names = ["epoch", "loss", "lr"]
    assert json.loads(json.dumps(Mlflow.logged)) == [[4, names, "7"], [8, names, "7"], [8, ["val_loss"], "7"]]


def test_a_logger_that_fails_ends_training_with_its_error() -> None:
    class Full:
        def log(self, step: int, values: Any) -> None:
            raise OSError(28, "No space left on device")

        def resume(self, step: int) -> None: ...

    with pytest.raises(OSError, match="No space left"):
        trainer_of(loggers=[Full()], settings={"log_every": 2}).fit(loader())
