"""`selected`: what `x[mask]` gives, and its gradients, for every kind of mask."""

import pytest
import torch
from perflint_runtime import selected
from torch import Tensor

SHAPES = [(7,), (3, 5), (2, 3, 4), (0,), (3, 0), (1, 1)]
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


def masks(shape: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(len(shape))
    drawn = torch.rand(shape, generator=generator) > 0.5
    return [drawn, torch.zeros(shape, dtype=torch.bool), torch.ones(shape, dtype=torch.bool), drawn.clone().expand(shape)]


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(3)) * 3).to(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rest", [(), (2,)])
def test_selects_and_stores_what_the_mask_does(shape: tuple[int, ...], dtype: torch.dtype, rest: tuple[int, ...]) -> None:
    for mask in masks(shape):
        rows, values = selected(mask), drawn((*shape, *rest), dtype)
        assert torch.equal(values[rows], values[mask])
        assert values[rows].shape == values[mask].shape
        assert values[rows].stride() == values[mask].stride()
        ours, plain = values.clone(), values.clone()
        ours[rows], plain[mask] = values.flip(0)[rows], values.flip(0)[mask]
        assert torch.equal(ours, plain)
        if dtype is not torch.bool:
            ours[rows] += 1
            plain[mask] += 1
            assert torch.equal(ours, plain)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_the_same(shape: tuple[int, ...]) -> None:
    for mask in masks(shape):
        found = []
        for key in (mask, selected(mask)):
            weight = drawn((*shape, 3), torch.float32).requires_grad_()
            taken = (weight * 1.7)[key]
            (taken.exp().sum() + (taken * taken).sum()).backward()
            kept = torch.zeros_like(weight)
            kept[key] = (weight * 2)[key]
            kept.pow(3).sum().backward()
            found.append(weight.grad)
        assert torch.equal(found[0], found[1])


@pytest.mark.parametrize(
    "key",
    [
        torch.tensor([0, 2, 1]),
        torch.tensor([1, 0, 1], dtype=torch.uint8),
        torch.tensor(True),
        torch.tensor(False),
        torch.tensor([True, False, True]).to_sparse(),
        [True, False, True],
        torch.nn.Parameter(torch.tensor([True, False, True]), requires_grad=False),
        slice(0, 2),
        None,
        1,
    ],
)
def test_whatever_else_stays_as_it_is(key: object) -> None:
    assert selected(key) is key


def test_stays_a_mask_where_functions_are_transformed() -> None:
    def counted(values: Tensor, mask: Tensor) -> Tensor:
        assert selected(mask) is mask
        return values.sum()

    torch.vmap(counted)(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool))
