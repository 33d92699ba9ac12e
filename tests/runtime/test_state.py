"""What is set for a while is given back; what is saved comes back bit for bit."""

from __future__ import annotations

import contextlib
import io
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from perflint_runtime import inference, random_state, set_random_state, set_seed
from perflint_runtime.state import RandomState
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


def model_with_frozen_parts() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2)))
    model[1].eval()
    model[2].training = False  # its children stay in training mode
    return model


def flags(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def test_inference_gives_back_each_flag() -> None:
    model = model_with_frozen_parts()
    before = flags(model)
    with inference(model):
        assert not any(flags(model))
        assert torch.is_inference_mode_enabled()
        assert model(torch.ones(3, 2)).is_inference()
    assert flags(model) == before
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_inference_gives_back_after_an_error_and_when_nested() -> None:
    model, teacher = model_with_frozen_parts(), nn.Dropout()
    before = flags(model)
    with contextlib.suppress(KeyError), inference(model, teacher):
        assert not teacher.training
        with inference(model):
            pass
        assert not any(flags(model))
        raise KeyError
    assert flags(model) == before
    assert teacher.training
    with torch.no_grad():
        with inference(model):
            pass
        assert not torch.is_grad_enabled()


def test_inference_goes_around_a_train_method_that_keeps_layers_frozen() -> None:
    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self[0].eval()
            return self

    model = Frozen(nn.BatchNorm1d(2), nn.Dropout()).train()
    model[0].train()
    with inference(model):
        assert not any(flags(model))
    assert flags(model) == [True, True, True]


def test_inference_is_a_decorator() -> None:
    model = nn.Dropout()

    @inference(model)
    def evaluate() -> bool:
        return model.training or not torch.is_inference_mode_enabled()

    assert not evaluate()
    assert not evaluate()
    assert model.training


def test_results_of_no_grad_mode_take_part_in_training() -> None:
    teacher, student = nn.Linear(2, 1), nn.Linear(2, 1)
    x = torch.ones(4, 2)
    with inference(teacher):
        target = teacher(x)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        nn.functional.mse_loss(student(x), target)
    with inference(teacher, mode="no_grad"):
        target = teacher(x)
        assert not teacher.training
    nn.functional.mse_loss(student(x), target).backward()


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="eval"), inference(mode="eval"):
        pass


def draw() -> list[Any]:
    """Some of everything, with cached normals."""
    return [
        random.random(),
        random.gauss(0, 1),
        np.random.rand(),
        np.random.randn(),
        torch.rand(3).tolist(),
        torch.randn(5).tolist(),
    ]


@pytest.fixture(autouse=True)
def _the_generators_of_other_tests() -> Iterator[None]:
    state = random_state()
    yield
    set_random_state(state)


def test_a_seed_repeats_all_numbers() -> None:
    first = set_seed(7)
    drawn = draw()
    second = set_seed(7)
    assert draw() == drawn
    assert torch.equal(torch.rand(3, generator=first), torch.rand(3, generator=second))
    set_seed(np.int64(7))
    assert draw() == drawn
    set_seed(8)
    assert draw() != drawn
    with pytest.raises(TypeError):
        set_seed(1.5)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_that_numpy_refuses_is_an_error_before_anything_is_seeded(seed: int) -> None:
    state = random.getstate()
    with pytest.raises(ValueError, match=str(seed)):
        set_seed(seed)
    assert random.getstate() == state


@pytest.fixture
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    yield
    torch.use_deterministic_algorithms(found[0])
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = found[1:]


@pytest.mark.usefixtures("_settings")
def test_deterministic_sets_all_that_torch_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.backends.cudnn.benchmark = True
    set_seed(1)
    assert torch.backends.cudnn.benchmark
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        set_seed(1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.usefixtures("_settings")
def test_deterministic_after_cuda_has_started_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.warns(UserWarning, match="CUBLAS_WORKSPACE_CONFIG=:4096:8") as caught:
        set_seed(1, deterministic=True)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        set_seed(1, deterministic=True)


def through_a_file(state: RandomState) -> RandomState:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: RandomState = torch.load(file, weights_only=True)
    return loaded


@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_random_state_comes_back_bit_for_bit_through_a_file(steps_before: int) -> None:
    set_seed(3)
    for _ in range(steps_before):
        draw()
        np.random.randn()  # an odd number of normals: one is cached
        random.gauss(0, 1)
    state = through_a_file(random_state())
    following = [draw() for _ in range(300)]  # beyond the 624 words of a block
    draw()
    set_random_state(state)
    assert [draw() for _ in range(300)] == following


def test_random_state_imports_nothing() -> None:
    """In a process whose numpy is not imported (torch imports it where it is installed)."""
    program = (
        "import sys, torch\n"
        "from perflint_runtime import random_state\n"
        "sys.modules.pop('numpy')\n"
        "assert 'numpy' not in random_state()\n"
        "assert 'numpy' not in sys.modules and not torch.cuda.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_another_generator_of_numpy_is_refused() -> None:
    found = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        with pytest.raises(RuntimeError, match="PCG64"):
            random_state()
    finally:
        np.random.set_bit_generator(found)


class FakeCards:
    """Stands for torch.cuda with some cards."""

    def __init__(self, count: int) -> None:
        self.states = [torch.tensor([card], dtype=torch.uint8) for card in range(count)]

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(self.states))
        monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [state.clone() for state in self.states])
        monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, card: self.states.__setitem__(card, state))


def test_the_states_of_cards_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = FakeCards(3)
    cards.patch(monkeypatch)
    state = through_a_file(random_state())
    cards.states = [torch.zeros(1, dtype=torch.uint8)] * 3
    set_random_state(state)
    assert [card.item() for card in cards.states] == [0, 1, 2]
    cards.states = cards.states[:2]
    with pytest.warns(UserWarning, match="random state of CUDA card 2:"):
        set_random_state(state)


def test_a_state_from_a_machine_with_a_gpu_warns_on_one_without() -> None:
    state = random_state()
    state["cuda"] = [torch.zeros(16, dtype=torch.uint8)]
    state["mps"] = torch.zeros(16, dtype=torch.uint8)
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("a machine without a GPU is asked about")
    with pytest.warns(UserWarning, match="CUDA card 0, MPS") as caught:
        set_random_state(state)
    assert caught[0].filename == __file__


class Noise(Dataset[Tensor]):
    """Each item draws from the three global generators."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index), random.random(), np.random.rand(), torch.rand(()).item()], dtype=torch.float64)


@pytest.mark.parametrize(("start", "workers"), [("fork", 2), ("spawn", 1)])
def test_workers_need_no_init_function(start: str, workers: int) -> None:
    """Seeded alike in each run, and unlike each other."""

    def run() -> Tensor:
        generator = set_seed(5)
        return torch.cat(
            list(DataLoader(Noise(), shuffle=True, num_workers=workers, generator=generator, multiprocessing_context=start))
        )

    first: Callable[[], Tensor] = run
    batches = first()
    assert torch.equal(batches, run())
    assert all(len(column.unique()) == 8 for column in batches.T)
