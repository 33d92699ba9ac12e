"""Waits inside of libraries: what torch reads for itself, and what is known of it from the code that calls it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from ask import Program

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from perflint.facts.operations import operations  # noqa: E402
from perflint.facts.operations.function_operations import ELSEWHERE  # noqa: E402
from perflint.facts.operations.operations import Road  # noqa: E402


class Reads(TorchDispatchMode):
    """Counts the numbers that the host reads."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_local_scalar_dense" in str(func)
        return func(*args, **(kwargs or {}))


PART, SHARES = torch.full((4, 3), 0.5), torch.full((4, 3), 1 / 3)
DISTRIBUTIONS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("Bernoulli", "ContinuousBernoulli", "Dirichlet", "Exponential", "Geometric", "Poisson", "StudentT"), (PART,)
    ),
    **dict.fromkeys(("Beta", "Cauchy", "Gamma", "Gumbel", "Laplace", "LogNormal", "Normal", "Pareto"), (PART, PART)),
    **dict.fromkeys(("Categorical", "OneHotCategorical"), (SHARES,)),
    "Binomial": (5, PART),
    "Multinomial": (3, SHARES),
    "MultivariateNormal": (PART, torch.eye(3).repeat(4, 1, 1)),
    "NegativeBinomial": (torch.tensor(5.0), PART),
    "Uniform": (PART, PART + 1),
}
"""What each is made with. `Normal(mean, 1.0)` makes a tensor of the number, too, and looks at both."""


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_a_distribution_checks_its_arguments_as_often_as_its_row_says(name: str) -> None:
    row, kind = operations.function(f"torch.distributions.{name}"), getattr(torch.distributions, name)
    assert row is not None
    assert row.wait is not None
    with Reads() as reads:
        distribution = kind(*DISTRIBUTIONS[name])
    assert reads.count == row.wait.times
    with Reads() as reads:
        distribution.log_prob(distribution.sample())
    assert reads.count >= 1


def test_a_distribution_that_checks_nothing_reads_nothing() -> None:
    with Reads() as reads:
        torch.distributions.Normal(PART, PART, validate_args=False).log_prob(PART)
    assert reads.count == 0


def test_all_rows_of_distributions_are_run() -> None:
    rows = {line.split()[0].split(".")[2] for line in ELSEWHERE.splitlines() if line.startswith("torch.distributions.")}
    assert rows == {*DISTRIBUTIONS, "*"}


def test_an_optimizer_that_searches_along_a_line_reads_in_each_step() -> None:
    parameter = torch.ones(2, requires_grad=True)

    def closure() -> torch.Tensor:
        loss = parameter.square().sum()
        loss.backward()
        return loss

    with Reads() as reads:
        torch.optim.LBFGS([parameter]).step(closure)
    assert reads.count > 1


@pytest.mark.parametrize(("check", "expected"), [(True, 2), (False, 0)])
def test_anomaly_mode_reads_for_each_node_of_a_backward_pass(check: bool, expected: int) -> None:
    with warnings.catch_warnings(), torch.autograd.detect_anomaly(check_nan=check):
        warnings.simplefilter("ignore")
        loss = (PART.clone().requires_grad_() * 2).sum()
        with Reads() as reads:
            loss.backward()
    assert reads.count == expected


LOOP = """
import torch
from torch.distributions import Categorical, Normal
{above}

def train(model: torch.nn.Linear, loader: torch.utils.data.DataLoader, optimizer: torch.optim.SGD):
    model.cuda()
    for x, y in loader:
        out = model(x.cuda(non_blocking=True))
        loss = out.square().mean()
        {line}
        loss.backward()
        optimizer.step()
"""


def waits(line: str, above: str = "") -> list[tuple[str, int, bool]]:
    program = Program(LOOP.format(line=line, above=above))
    return [(wait.road.value, wait.times, wait.least) for wait in program.facts.waits.of(program.scope("train"))]


TRUTH = Road.TRUTH.value
ONCE, TWICE, OFTEN = (TRUTH, 1, False), (TRUTH, 2, False), (TRUTH, 1, True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Categorical(logits=out)", [ONCE]),
        ("Normal(out, 1.0)", [TWICE]),
        ("Normal(out, 1.0).log_prob(out)", [TWICE, ONCE]),
        ("Normal(0.0, 1.0)", []),
        ("Normal(torch.zeros(3), torch.ones(3))", []),
        ("Normal(out, 1.0, validate_args=False).log_prob(out)", []),
        ("d = Categorical(logits=out); d.log_prob(d.sample())", [ONCE, ONCE]),
        ("d = Categorical(logits=out, validate_args=False); d.log_prob(d.sample())", []),
    ],
)
def test_distributions_that_check_what_they_are_given(line: str, expected: list[tuple[str, int, bool]]) -> None:
    assert waits(line) == expected
    assert not waits(line, "torch.distributions.Distribution.set_default_validate_args(False)")


@pytest.mark.parametrize(
    ("above", "waits_in_backward"),
    [
        ("torch.autograd.set_detect_anomaly(True)", True),
        ("torch.autograd.set_detect_anomaly(mode=True)", True),
        ("torch.autograd.set_detect_anomaly(False)", False),
        ("torch.autograd.set_detect_anomaly(True, check_nan=False)", False),
        ("def main(args):\n    torch.autograd.set_detect_anomaly(True)\n", True),
        ("def main(args):\n    if args.debug:\n        torch.autograd.set_detect_anomaly(True)\n", False),
        ("def main(args):\n    torch.autograd.set_detect_anomaly(args.debug)\n", False),
        ("def main(args):\n    with torch.autograd.detect_anomaly():\n        train()\n", True),
        ("# torch.autograd.set_detect_anomaly(True)", False),
    ],
)
def test_backward_passes_in_anomaly_mode(above: str, waits_in_backward: bool) -> None:
    assert waits("pass", above) == ([OFTEN] if waits_in_backward else [])


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("torch.optim.LBFGS(model.parameters())", [OFTEN]),
        ("torch_optimizer.Lamb(model.parameters())", [OFTEN]),
        ("torch_optimizer.lamb.Lamb(model.parameters())", [OFTEN]),
        ("LARC(torch.optim.SGD(model.parameters(), lr=0.1))", [OFTEN]),
        ("torch.optim.SGD(model.parameters(), lr=0.1) if y is None else LARC(optimizer)", [OFTEN]),
        ("torch.optim.SGD(model.parameters(), lr=0.1)", []),
        ("torch_optimizer.RAdam(model.parameters())", []),
    ],
)
def test_optimizers_that_look_at_numbers(made: str, expected: list[tuple[str, int, bool]]) -> None:
    assert waits(f"optimizer = {made}", "import torch_optimizer\nfrom apex.parallel.LARC import LARC") == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("coordinates=y, device='cuda'", [(Road.SHAPE.value, 1, True)]), ("coordinate_map_key=key", [])],
    ids=["sorted", "as-another"],
)
def test_a_sparse_tensor_sorts_out_its_coordinates(given: str, expected: list[tuple[str, int, bool]]) -> None:
    assert waits(f"points = ME.SparseTensor(out, {given})", "import MinkowskiEngine as ME") == expected


NUMBER = [(Road.NUMBER.value, 1, False)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("out.add(out, alpha=loss)", NUMBER),
        ("out.data.add_(-loss * 0.1, out)", NUMBER),
        ("out.data.add_(-loss * optimizer.rate, out)", NUMBER),
        ("out.data.addcdiv_(loss.detach(), out, out)", NUMBER),
        ("out.addcmul(out, out, value=loss)", NUMBER),
        ("out.data.add_(-0.1, out)", []),
        ("out.add(loss)", []),
        ("out.data.addcdiv_(out, out, value=-0.1)", []),
        ("out.data.add_(-optimizer.rate, out)", []),
    ],
)
def test_factors_that_are_given_as_tensors(line: str, expected: list[tuple[str, int, bool]]) -> None:
    assert waits(line) == expected


UPLOAD = [(Road.UPLOAD.value, 1, True)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('words = tokenizer(y, return_tensors="pt").to("cuda")', UPLOAD),
        ('words = tokenizer(y, return_tensors="pt")["input_ids"].cuda()', UPLOAD),
        ('words = tokenizer(y, return_tensors="pt"); ids = words.input_ids.to("cuda")', UPLOAD),
        ('words = tokenizer(y, return_tensors="pt").to("cuda", non_blocking=True)', []),
        ('words = tokenizer(y, return_tensors="np")', []),
        ('words = tokenizer(y, return_tensors="pt").to("cpu")', []),
    ],
)
def test_what_a_tokenizer_makes_is_copied_with_a_wait(line: str, expected: list[tuple[str, int, bool]]) -> None:
    assert waits(line) == expected
