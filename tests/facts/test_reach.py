"""What code may run, through all that it calls."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.proofs.reach import called_from

RING = "def f(): g()\ndef g(): h()\ndef h(): f()\n"


@pytest.mark.parametrize(("depth", "expected"), [(0, "f"), (1, "fg"), (3, "fgh"), (None, "fgh")])
def test_calls_are_followed_some_deep_and_each_function_once(depth: int | None, expected: str) -> None:
    program = Program(RING)
    assert "".join(scope.name for scope in called_from(program.facts, program.scope("f"), depth=depth)) == expected


def test_what_runs_without_a_call_counts_if_it_is_asked_for() -> None:
    program = Program("class C:\n    @property\n    def p(self): return g()\ndef g(): pass\ndef f():\n    c = C()\n    c.p\n")
    start = program.scope("f")
    assert [scope.name for scope in called_from(program.facts, start)] == ["f"]
    assert [scope.name for scope in called_from(program.facts, start, hidden=True)] == ["f", "p", "g"]
