"""The gate of a file says of each of its texts what the texts alone say."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perflint.source import gate as gate_module
from perflint.source.gate import Gate, Needles, Word, beginning
from perflint.source.words import call_pattern

PATTERNS: list[Word] = [
    re.compile(pattern)
    for pattern in (rb"a+b", rb"[cd]\(", rb"ab?c", rb"ab|d", rb"c\(|d\(", rb"ab{0,1}e", rb"(?:a|b)c", rb"ab*")
]
WORDS: st.SearchStrategy[Word] = st.one_of(st.text("abcde(", min_size=1, max_size=3), st.sampled_from(PATTERNS))
GATES = st.lists(st.lists(WORDS, max_size=3), max_size=3).map(Gate.of)


def undivided(text: bytes) -> bytes:
    """A text in which no white space stands inside of what may be looked for as one word: Python has no such words."""
    return re.sub(rb"(?<=\w)\s+(?=\w)", b"(", text)


TEXTS = st.lists(st.text("abcde( \n", max_size=12).map(str.encode).map(undivided), min_size=1, max_size=5)


@pytest.fixture(autouse=True, params=[0, gate_module.LOOKS_WITHOUT_WORDS], scope="module")
def looks_without_words(request: pytest.FixtureRequest) -> Iterator[None]:
    """Words are listed at the first look, or after some."""
    before, gate_module.LOOKS_WITHOUT_WORDS = gate_module.LOOKS_WITHOUT_WORDS, request.param
    yield
    gate_module.LOOKS_WITHOUT_WORDS = before


def cut(texts: list[bytes]) -> tuple[bytes, list[tuple[int, int]]]:
    """A file of functions at odd places with other code between them, and where the functions are."""
    spans, at = [], 0
    for i, text in enumerate(texts):
        if i % 2:
            spans.append((at, at + len(text)))
        at += len(text)
    return b"".join(texts), spans


@settings(max_examples=300)
@given(texts=TEXTS, gates=st.lists(GATES, min_size=1, max_size=3))
@example(texts=[b"", b"a", b"b"], gates=[Gate.of([["ab"]])])
@example(texts=[b"", b"a", b"", b"a", b""], gates=[Gate.of([["a"]])])
@example(texts=[b"x", b"", b"a"], gates=[Gate.of([["a"]]), Gate.of([])])
def test_texts_that_pass_are_those_that_pass_alone(texts: list[bytes], gates: list[Gate]) -> None:
    # a newline before each text, so that no word reaches from one into the next
    texts = [b"\n" + text for text in texts]
    body, spans = cut(texts)
    needles = Needles(body)
    needles.cut(spans)
    own = texts[::2]
    for gate in gates:
        passing = needles.texts(gate)
        for i, text in enumerate(texts[1::2], 1):
            assert bool(passing >> i & 1) == gate.passes(text)
        held = all(any(gate_of_one(needle).passes(text) for needle in group for text in own) for group in gate.groups)
        assert bool(passing & 1) == held
        assert passing >> (len(spans) + 1) == 0


def gate_of_one(needle: bytes | re.Pattern[bytes]) -> Gate:
    """The gate that asks for nothing but this."""
    return Gate.of([[needle]])


@settings(max_examples=200)
@given(text=TEXTS.map(b"".join).map(undivided), gate=GATES)
def test_a_file_opens_what_its_text_passes(text: bytes, gate: Gate) -> None:
    opens = Needles(text).opens(gate)
    assert opens >= gate.passes(text)
    if all(isinstance(needle, bytes) or beginning(needle) for group in gate.groups for needle in group):
        assert opens == gate.passes(text)


@given(gate=GATES)
def test_a_gate_can_be_told_in_words(gate: Gate) -> None:
    again = Gate(gate.words)
    assert again == gate
    assert again.groups == gate.groups


@pytest.mark.parametrize("call", ["x.step(", "x . step (", "x\n  .step\\\n (", "(x.\n\tstep)("])
def test_a_word_is_found_whatever_the_layout(call: str) -> None:
    before, after = b"def f():\n    y = 1\n", b"def h():\n    step(\n"
    text = b"def g():\n    " + call.encode() + b"\n"
    gate = Gate.of([[".step("]])
    needles = Needles(before + text + after)
    spans = itertools.pairwise(itertools.accumulate(map(len, (before, text, after)), initial=0))
    needles.cut(list(spans))
    assert needles.opens(gate) == gate.passes(text) == (")(" not in call)
    assert needles.texts(gate) == (0b100 if gate.passes(text) else 0)


def test_white_space_in_a_word_counts() -> None:
    assert Gate.of([["for "]]).passes(b"for x in y")
    assert not Gate.of([["for "]]).passes(b"before(x)")


def test_no_groups_let_everything_pass_and_an_empty_group_nothing() -> None:
    assert Gate.of([]).passes(b"")
    assert not Gate.of([[]]).passes(b"anything")


def test_a_broken_text_may_define_what_is_no_name() -> None:
    pattern = call_pattern("*", "a|b", "self.f(")
    assert pattern.search(b"* (x)")
    assert pattern.search(b"a|b(x)")
    assert not pattern.search(b"b(x)")
