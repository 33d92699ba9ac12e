"""Functions that a program runs again and again: no rule by itself."""

import re

from perflint.api import Code, Scope

_ANY = re.compile("")


def is_called_again(code: Code, scope: Scope, depth: int, loop_holds: re.Pattern[str] = _ANY) -> bool:
    """Whether a loop is around a call of a function, or around one of a function that calls it, and so on.

    loop_holds: what the text of the loop must hold.
    """
    for site in code.facts.inference.callers.above(scope, depth):
        at = code.at(site.scope)
        loop = at.flow.loop(site.node)
        for around in loop.ancestry() if loop is not None else ():
            if around.statement is not None and loop_holds.search(at.text(around.statement)):
                return True
    return False
