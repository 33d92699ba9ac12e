"""The words that a pattern needs: no text that matches lacks them."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflint.facts.proofs import fears
from perflint.rule.registry import all_rules
from perflint.source.vocabulary import branches, holds, may_hold, needs_of, vocabulary
from perflint.source.words import any_layout, call_pattern, literal_first

FEARS = [fear.pattern for fear in vars(fears).values() if isinstance(fear, fears.Fear)]
NEEDS = {needle for rule in all_rules() for group in rule.needs.groups for needle in group if not isinstance(needle, bytes)}
PATTERNS = sorted({re.compile(p.pattern, p.flags) for p in (*FEARS, *NEEDS)}, key=lambda pattern: pattern.pattern)


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        (rb"\bfoo\b", ((b"\nfoo\n",),)),
        (rb"foo(?<!\wfoo)bar?", ((b"\nfooba",),)),
        (rb"a(?:bc|de)f", ((b"a", ((b"bc",), (b"de",)), b"f"),)),
        (rb"a|b*", ((),)),
        (rb"(?:no)?yes|x\.y", ((b"yes",), (b"x", b"y"))),
        (rb"(?i:net)work", ((b"work",),)),
        (rb"one[a-z]two{2}three+four", ((b"one", b"two", b"three", b"four"),)),
        (rb"(?<=seen)after(?!wards)", ((b"after",),)),
        (rb"(?m)^start", ((b"start",),)),
        (rb"\x66\x6fo", ((b"foo",),)),
        (rb"[\]a]b", ((b"b",),)),
    ],
)
def test_what_a_pattern_needs(pattern: bytes, needs: object) -> None:
    assert needs_of(re.compile(pattern)) == needs


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (rb"foo", [rb"foo"]),
        (rb"foo|bar", [rb"foo", rb"bar"]),
        (rb"a(?:bc|de)f", [rb"a(?:bc|de)f"]),
        (rb"(?<![=!<>])=|[(|]a|\||(?<!\wdef)k", [rb"(?<![=!<>])=", rb"[(|]a", rb"\|", rb"(?<!\wdef)k"]),
        (rb"(?P<q>a|b)(?P=q)|c", [rb"(?P<q>a|b)(?P=q)|c"]),
        (rb"(a|b)\1|c", [rb"(a|b)\1|c"]),
        (rb"(?i)a|b", [rb"(?i)a|b"]),
        (rb"\b(?:set|del)attr\b|x", [rb"\bsetattr\b", rb"\bdelattr\b", rb"x"]),
        (rb"(?:a|b)+c", [rb"(?:a|b)+c"]),
        (rb"(?<!\.)(?:a|b) c", [rb"(?<!\.)a c", rb"(?<!\.)b c"]),
    ],
)
def test_the_alternatives_of_a_pattern(pattern: bytes, parts: list[bytes]) -> None:
    assert [part.pattern for part in branches(re.compile(pattern))] == parts


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern.decode()[:40])
def test_alternatives_match_what_the_pattern_matches(pattern: re.Pattern[bytes]) -> None:
    texts = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    for text in texts:
        assert holds(text, vocabulary(text), pattern) == (pattern.search(text) is not None)


def test_letters_of_either_case_need_nothing() -> None:
    assert needs_of(re.compile(rb"foo", re.I)) == ((),)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern[:40].decode())
@settings(max_examples=8)
@given(st.data())
def test_no_match_lacks_what_its_pattern_needs(pattern: re.Pattern[bytes], data: st.DataObject) -> None:
    """What hypothesis makes of a pattern matches it; a text around it changes nothing."""
    found = data.draw(st.from_regex(pattern))
    if pattern.search(found):
        assert may_hold(vocabulary(found), pattern)


def test_texts_without_the_words_are_told() -> None:
    words = vocabulary(b"import torch\nloader = make(batch_size=4)\n")
    assert may_hold(words, call_pattern("make"))
    assert not may_hold(words, call_pattern("ader"))
    assert not may_hold(words, any_layout(rb"torch \. compile \("))


@pytest.mark.parametrize(
    ("pattern", "turned"),
    [
        (rb"\bname\b", rb"name(?<!\wname)\b"),
        (rb"\bab*c", rb"a(?<!\wa)b*c"),
        (rb"\ba?", rb"\ba?"),
        (rb"x|\bfoo|(?:y|\bbar)z", rb"x|foo(?<!\wfoo)|(?:y|bar(?<!\wbar))z"),
        (rb"(?<!\.)(?:get|set) \(", rb"(?:get(?<!\.get)|set(?<!\.set)) \("),
        (rb"(?<![.\w])get", rb"get(?<![.\w]get)"),
        (rb"\b(?:a|b)?c", rb"\b(?:a|b)?c"),
        (rb"\w\bfoo", rb"\w\bfoo"),
        (rb"back|(?<!time)step", rb"back|step(?<!timestep)"),
    ],
)
def test_a_literal_comes_first(pattern: bytes, turned: bytes) -> None:
    assert literal_first(pattern) == turned


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern.decode()[:40])
def test_what_comes_first_changes_no_match(pattern: re.Pattern[bytes]) -> None:
    first = re.compile(literal_first(pattern.pattern), pattern.flags)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_bytes()
        assert [m.span() for m in first.finditer(text)] == [m.span() for m in pattern.finditer(text)]


def test_an_escaped_blank_is_one() -> None:
    pattern = any_layout(rb"\b%b \. run \(" % re.escape(b"two words"))
    assert pattern.search(b"two words . run(")
    assert not pattern.search(b"two  words.run(")
