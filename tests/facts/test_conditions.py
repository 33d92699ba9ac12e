"""Which code runs only where other code does not."""

from __future__ import annotations

import ast

import pytest
from ask import Program

from perflint.facts.dataflow.conditions import conditions, exclude_each_other

STEP = """
def train(batches, flags, amp, clip, scaler):
    for i, x in enumerate(batches):
        if {first}:
            scale(x)
        {between}
        if {second}:
            {last}
"""


@pytest.mark.parametrize(
    ("first", "between", "second", "excluded"),
    [
        ("amp", "pass", "not amp", True),
        ("amp", "pass", "amp", False),
        ("amp", "pass", "clip", False),
        ("amp", "pass", "clip and not amp", True),
        ("amp", "pass", "clip or not amp", False),
        ("not (amp or clip)", "pass", "clip", True),
        ("flags.amp", "pass", "not flags.amp", True),
        ("flags.amp", "flags.amp = False", "not flags.amp", False),
        ("flags.amp", "pass", "not flags.clip", False),
        ("scaler is not None", "pass", "scaler is None", True),
        ("scaler", "pass", "scaler is None", True),
        ("clip == 'norm'", "pass", "clip != 'norm'", True),
        ("amp is True", "pass", "not amp", True),
        ("amp", "amp = not amp", "not amp", False),
        ("i % 4 != 3", "pass", "i % 4 == 3", False),  # another round comes to the other one
        ("random() < 0.5", "pass", "not random() < 0.5", False),
        ("flags.is_enabled()", "pass", "not flags.is_enabled()", True),
        ("amp", "if amp: continue", "clip", True),
    ],
)
def test_flags_keep_code_apart(first: str, between: str, second: str, excluded: bool) -> None:
    flow = Program(STEP.format(first=first, between=between, second=second, last="clip_norm(x)")).flow("train")
    (scaled,), (clipped,) = flow.calls_named["scale"], flow.calls_named["clip_norm"]
    assert exclude_each_other(flow, scaled, clipped) is excluded


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("if debug: look()", ["+debug"]),
        ("if debug: pass\n    else: look()", ["-debug"]),
        ("if not debug: return\n    look()", ["+debug"]),
        ("if debug: pass\n    else: raise SystemExit\n    look()", ["+debug"]),
        ("if debug: print(1)\n    look()", []),
        ("debug and deep and look()", ["+debug", "+deep"]),
        ("debug or look()", ["-debug"]),
        ("look() if debug else 0", ["+debug"]),
        ("for x in debug:\n        if x: break\n        look()", ["-x"]),
    ],
)
def test_what_holds_where_code_runs(body: str, told: list[str]) -> None:
    flow = Program(f"def main(debug, deep):\n    {body}\n").flow("main")
    (call,) = flow.calls_named["look"]
    found = {f"{'+' if holds else '-'}{test.id}" for test, holds in conditions(flow, call) if isinstance(test, ast.Name)}
    assert sorted(found) == told
