"""Branches that are taken only if somebody gives an option on the command line."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.training.switched_off import is_switched_off

HEAD = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--verbose", action="store_true")
parser.add_argument("--quiet", action="store_false")
parser.add_argument("--cuda", action="store_true")
parser.add_argument("--clip-above", type=float, default=0)
parser.add_argument("--left-out", type=int, default=-1)
parser.add_argument("--every", type=int, default=10)
parser.add_argument("--model", default="gcn")
parser.add_argument("--seed", type=int)
parser.add_argument("--told", type=int, required=True)
parser.add_argument("--broken", default={[]: 1})
parser.add_argument("--computed", type=int, default=len(str(parser)))
args = parser.parse_args()
"""

OFF = {
    "a switch": "if args.verbose:\n    look() #?",
    "a switch that is negated": "if not args.quiet:\n    look() #?",
    "a number above a bound": "if args.clip_above > 0:\n    look() #?",
    "a negative number": "if args.left_out != -1:\n    look() #?",
    "a number that is not given": "if args.seed is not None:\n    look() #?",
    "one operand that decides alone": "if step() and args.verbose:\n    look() #?",
    "an else": "if args.quiet:\n    pass\nelse:\n    look() #?",
    "a name for it": "shown = args.verbose\nif shown:\n    look() #?",
    "what a function is given": "def run(shown):\n    if shown:\n        look() #?\nrun(args.verbose)",
    "what a constructor keeps": (
        "class Runner:\n    def __init__(self, shown=False):\n        self.shown = shown\n"
        "    def run(self):\n        if self.shown:\n            look() #?\nRunner(shown=args.verbose).run()"
    ),
    "further up": "if args.verbose:\n    for x in y:\n        look() #?",
}

ON = {
    "a switch that is on": "if args.quiet:\n    look() #?",
    "a number that is above": "if args.every > 0:\n    look() #?",
    "where a training runs": "if args.cuda:\n    look() #?",
    "a choice": 'if args.model == "gat":\n    look() #?',
    "what must be given": "if args.told > 3:\n    look() #?",
    "what cannot be": "if args.broken:\n    look() #?",
    "what is computed": "if args.computed > 1000:\n    look() #?",
    "an operand that does not decide": "if step() or args.verbose:\n    look() #?",
    "what no option decides": "if step():\n    look() #?",
    "what another function is given, too": "def run(shown):\n    if shown:\n        look() #?\nrun(args.verbose)\nrun(True)",
    "what somebody sets later": (
        "class Runner:\n    def __init__(self):\n        self.shown = args.verbose\n    def show(self):\n"
        "        self.shown = True\n    def run(self):\n        if self.shown:\n            look() #?"
    ),
    "none": "look() #?",
}


@pytest.mark.parametrize("body", OFF.values(), ids=OFF)
def test_is_taken_if_somebody_asks(body: str) -> None:
    program = Program(HEAD + body)
    assert is_switched_off(program.facts, *program.at())


@pytest.mark.parametrize("body", ON.values(), ids=ON)
def test_may_be_taken(body: str) -> None:
    program = Program(HEAD + body)
    assert not is_switched_off(program.facts, *program.at())
