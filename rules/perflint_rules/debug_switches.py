"""The switches for finding bugs, and who decides about them: no rule by itself."""

import ast
import os
import re

from perflint.api import Block, Code, argument, conditions, goes_backward_once, is_run_alone

SWITCHES = ("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly")
VARIABLES = ("CUDA_LAUNCH_BLOCKING",)
FOR_DEBUGGING = re.compile(r"debug|anomal|detect_nan", re.I)
_SCRIPT_FOR_DEBUGGING = re.compile(r"(?:\w+[_-])?debug(?:ging)?(?:[_-]\w+)?\.", re.I)
_DECIDES = ("then", "else", "handler", "operand", "case")


def variable(code: Code, node: ast.expr) -> str | None:
    """The environment variable that an assignment sets to "1"."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))) if name in VARIABLES:
            statement = code.flow.statement(node)
            if isinstance(statement, ast.Assign) and code.value(statement.value).literal == "1":
                return name
    return None


def switches_on(code: Code, call: ast.Call) -> bool:
    """Whether a call, or the `with` that it opens, switches anomaly mode on."""
    mode = argument(call, 0, "mode")
    return code.value(mode).literal is True if mode is not None else isinstance(code.flow.parent.get(call), ast.withitem)


def is_switched_back(code: Code, call: ast.Call) -> bool:
    """Whether it is on for one step that is checked, or for the body of a `with` that says so, and is off behind it."""
    flow, statement = code.flow, code.flow.statement(call)
    below = (other for other in code.calls_to(SWITCHES[0]) if flow.order[other] > flow.order[call])
    back = next((other for other in below if not switches_on(code, other)), None)
    top = flow.top(back, flow.block[statement]) if back is not None else None
    if back is None or top is None:
        return False
    if any(flow.order[call] < flow.order[node] < flow.order[back] and flow.loop(node) is None for node in flow.yields):
        return True
    between = [s for s in flow.siblings(statement) if flow.order[statement] <= flow.order[s] <= flow.order[top]]
    return goes_backward_once(code.facts, code.scope, *between)


def leaves_cudnn_out(code: Code, node: ast.expr) -> bool:
    """`torch.backends.cudnn.enabled = False`."""
    statement = code.flow.statement(node)
    named = isinstance(node, ast.Attribute) and node.attr == "enabled" and code.is_external(node.value, "torch.backends.cudnn")
    return named and isinstance(statement, ast.Assign) and code.value(statement.value).literal is False


def is_set_again(code: Code, node: ast.expr) -> bool:
    """Whether a later statement of the same code gives the attribute or variable another value, or deletes it."""
    order, target = code.flow.order, ast.unparse(node)
    later = (store for store in code.flow.stores if order[store] > order[node] and ast.unparse(store) == target)
    return any(not leaves_cudnn_out(code, store) and variable(code, store) is None for store in later)


def is_decided(code: Code, node: ast.AST) -> bool:
    """Whether a condition other than `if __name__ == "__main__"` stands above, or `if not debug: return` does.

    `if phase == "train"` decides nothing: each run trains.
    """
    decides = (block for block in code.flow.block[node].ancestry() if block.kind in _DECIDES and not _is_where_it_trains(block))
    asked = (ast.unparse(test) for test, holds in conditions(code.flow, node) if holds)
    return not all(map(is_run_alone, decides)) or any(map(FOR_DEBUGGING.search, asked))


def _is_where_it_trains(block: Block) -> bool:
    """Whether a branch is that of a phase called so, in a loop over the phases of an epoch."""
    match block.node:
        case ast.If(test=ast.Compare(left=ast.Name(id=phase), ops=[ast.Eq()], comparators=[ast.Constant(value="train")])):
            loops = (loop.statement for loop in block.loops())
            phases = [loop.target.id for loop in loops if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name)]
            return block.kind == "then" and phase in phases
    return False


def is_script_for_debugging(code: Code) -> bool:
    """`tools/debug_nan.py`, which nobody imports."""
    path = code.source.path
    return _SCRIPT_FOR_DEBUGGING.match(os.path.basename(path)) is not None and not code.facts.project.importers(path)
