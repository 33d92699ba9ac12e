"""Values: three answers to each question, and what joins and moves do to them."""

from __future__ import annotations

import pytest
from ask import Program, said

from perflint.facts.values.values import (
    MAX_ALTERNATIVES,
    NONE,
    NOTHING,
    UNKNOWN,
    Alternative,
    Batch,
    Device,
    Literal,
    Number,
    Place,
    Tensor,
    Text,
    Value,
    device_place,
    join,
    meeting_place,
    moved,
    one,
)

TENSOR = one(Tensor(Place.CUDA))
OPEN_TENSOR = Value(TENSOR.alternatives, open=True)


def test_three_answers() -> None:
    either = join((TENSOR, NONE))
    answers = {name: (v.must_be(Tensor), v.may_be(Tensor)) for name, v in {
        "yes": TENSOR, "maybe": either, "open": OPEN_TENSOR, "no": NONE, "unknown": UNKNOWN, "nothing": NOTHING,
    }.items()}  # fmt: skip
    assert answers == {
        "yes": (True, True),
        "maybe": (False, True),
        "open": (False, True),
        "no": (False, False),
        "unknown": (False, False),
        "nothing": (False, False),
    }


def test_single_and_literal_need_certainty() -> None:
    assert one(Literal(3)).literal == 3
    assert NONE.literal is None
    for value in (UNKNOWN, NOTHING, join((one(Literal(3)), one(Literal(4)))), Value(frozenset((Literal(3),)), True), TENSOR):
        assert value.literal is ...
    assert OPEN_TENSOR.single is None


def test_join_is_open_when_a_part_is_and_gives_up_on_many() -> None:
    assert said(join((TENSOR, UNKNOWN))) == "tensor on cuda | ?"
    assert join([]) == NOTHING
    many = [one(Literal(i)) for i in range(MAX_ALTERNATIVES + 1)]
    assert said(join(many[:-1])).count("|") == MAX_ALTERNATIVES - 1
    assert join(many) == UNKNOWN


def test_map_keeps_openness() -> None:
    assert said(OPEN_TENSOR.map(lambda a: one(Number("int")))) == "int | ?"
    assert said(OPEN_TENSOR.without(lambda a: isinstance(a, Tensor))) == "?"
    assert NOTHING.map(one) == NOTHING


@pytest.mark.parametrize(
    ("alternatives", "is_open", "place"),
    [
        ([Literal("cuda:1")], False, Place.CUDA),
        ([Text("cuda:")], False, Place.CUDA),
        ([Literal(0)], False, Place.CUDA),
        ([Literal("cpu")], False, Place.HOST),
        ([Text("cpu")], False, Place.HOST),
        ([Literal("cuda"), Literal("cpu")], False, Place.CUDA_OR_HOST),
        ([Device(Place.CUDA_OR_HOST)], False, Place.CUDA_OR_HOST),
        ([Literal("mps")], False, Place.ELSEWHERE),
        ([Literal("cuda"), Literal("mps")], False, Place.ELSEWHERE),
        ([Literal("cuda")], True, Place.ELSEWHERE),
        ([Literal(None)], False, Place.ELSEWHERE),
        ([Device(Place.UNKNOWN)], False, Place.ELSEWHERE),
        ([], True, Place.ELSEWHERE),
        ([], False, Place.ELSEWHERE),
    ],
)
def test_where_a_device_is(alternatives: list[Alternative], is_open: bool, place: Place) -> None:
    assert device_place(Value(frozenset(alternatives), is_open)) is place


@pytest.mark.parametrize(
    ("places", "place"),
    [
        ([], Place.UNKNOWN),
        ([Place.HOST], Place.HOST),
        ([Place.HOST, Place.UNKNOWN], Place.UNKNOWN),
        ([Place.CUDA, Place.HOST], Place.CUDA),
        ([Place.CUDA, Place.ELSEWHERE], Place.ELSEWHERE),
        ([Place.CUDA_OR_HOST, Place.UNKNOWN], Place.CUDA_OR_HOST),
    ],
)
def test_where_a_result_is(places: list[Place], place: Place) -> None:
    assert meeting_place(places) is place


def test_only_what_has_a_place_moves() -> None:
    assert said(moved(Batch(), Place.CUDA)) == "batch on cuda"
    assert said(moved(Number("int"), Place.CUDA)) == "int"


@pytest.mark.parametrize(("target", "dtype"), [("torch.device(x)", "int64"), ('"cuda"', "int64"), ("x", ""), ("x.dtype", "")])
def test_what_is_not_known_to_be_a_device_may_be_a_type(target: str, dtype: str) -> None:
    program = Program(f"import torch\ndef f(x):\n    torch.randint(3, (4,)).to({target}) #?\n")
    assert {alternative.dtype for alternative in program.value().alternatives if isinstance(alternative, Tensor)} == {dtype}
