"""Which evaluations take real time, so that a graph that nobody uses is worth a minute: no rule by itself."""

import ast
import re

from perflint.api import Code, acts, any_layout, steps_environment
from perflint_rules.repeated_calls import is_called_again

_DEPTH = 3
"""Through how many calls a loop around an evaluation is looked for."""
_BEFORE_NO_GRAD = any_layout(rb"volatile = True|loss \. data \[ 0 \]")
"""What only a torch before 0.5 runs; `no_grad` came with 0.4."""
_TRAINS = re.compile(r"epoch|train|backward", re.I)
"""What a loop does that evaluates by turns."""
_SHOWN = re.compile(r"(?:visuali[sz]|demo)[^/]*$")
_SHOWS = any_layout(
    rb"def[\s\\]+\w*(?i:visuali[sz]|demo|plot|draw|preview|sanity|smoke)\w* \(|\b(?:imshow|imsave|save_image|savefig) \("
)


def goes_over_data(code: Code, call: ast.Call) -> bool:
    """Whether a forward pass is of an evaluation that goes over data again and again, as a training does each epoch.

    Acting in an environment, whose steps take longer, is none, nor is what draws pictures.
    """
    path = code.source.path
    if acts(code.scope) or steps_environment(code.facts, path) or _SHOWS.search(code.scope.text) or _SHOWN.search(path):
        return False
    if code.facts.project.program_holds(path, _BEFORE_NO_GRAD):
        return False
    loop = code.around(call)
    if not code.facts.project.near_training(path) or not is_called_again(code, code.scope, _DEPTH + (loop is None), _TRAINS):
        return False
    return code.heat is not None if loop is None else not _is_left_early(loop.node)


def _is_left_early(loop: ast.AST | None) -> bool:
    """`if i >= samples: break`: it goes over some batches only."""
    tests = (node for node in ast.walk(loop) if isinstance(node, ast.If)) if loop is not None else ()
    return any(isinstance(test.body[-1], ast.Break) and isinstance(test.test, ast.Compare) for test in tests)
