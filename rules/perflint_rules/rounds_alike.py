"""What is computed again in each round of a loop: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import Block, Code, External, Loop, any_layout, called_from, is_neural_module, path_of, written_rounds

_CHANGES = frozenset(("step", "backward", "train", "eval", "load_state_dict", "copy_"))
_DRAWS = any_layout(rb"rand|nois|bernoulli|normal_?\(|multinomial|sampl")
"""What a network may hold that gives something else each time, also while it evaluates."""
_RANDOM_NETWORKS = any_layout(rb"(?i:bayes|variational|monte_?carlo|mc_?dropout|reparam)|\. rsample \(|randn_like \(")
_FEW = 4


def operands(code: Code, call: ast.Call) -> list[ast.Name]:
    """The variables that a call takes; the module or package whose function it is left out."""
    return [part for part in ast.walk(call) if isinstance(part, ast.Name) and not code.value(part).must_be(External)]


def loop_alike(code: Code, call: ast.Call, *, directly: bool = False) -> Loop | None:
    """The innermost loop none of whose rounds binds anew what a call names; directly: that has the call in its own body."""
    flow = code.flow
    home = flow.block[call]
    if home.loop is None or (directly and home is not home.loop.block):
        return None
    for around in home.loops():
        if around.statement is None or around.iterated is None:
            return None
        if not _depends(code, call, around):
            runs = _runs_in_each_round(home, around) and (written_rounds(around) or _FEW) >= _FEW
            return around if runs else None
        if directly:
            return None
    return None


def computes_same(code: Code, call: ast.Call, loop: Loop) -> bool:
    """Whether each round of such a loop, which is part of a step, computes the same by a call."""
    if loop.iterated is None or not code.is_hot(loop.iterated):
        return False
    flow = code.flow
    inside = [order for node, order in flow.order.items() if flow.within(node, loop.block)]
    return not is_changed(code, call, min(inside) - 1, max(inside) + 1)


def _runs_in_each_round(block: Block, loop: Loop) -> bool:
    """Whether between a block and a loop's body there are nothing but other loops and context managers."""
    for outer in block.ancestry():
        if outer is loop.block:
            return True
        if outer.kind not in ("loop", "with"):
            return False
    return False


def _depends(code: Code, node: ast.AST, loop: Loop) -> bool:
    """Whether a loop binds anew what a node names: it is no variable of a loop in it that goes over the same each time."""
    for part in ast.walk(node):
        for definition in code.flow.reaching.get(part, ()) if isinstance(part, ast.Name) else ():
            if not any(block is loop.block for block in definition.block.ancestry()):
                continue
            if definition.kind != "for" or definition.block is loop.block or definition.value is None:
                return True
            if _depends(code, definition.value, loop):
                return True
    return False


def is_changed(code: Code, call: ast.Call, after: int, before: int) -> bool:
    """Whether something in between may write to an operand, or to the weights of a network."""
    names = {part.id for part in operands(code, call)}
    for node, order in code.flow.order.items():
        if not after < order < before:
            continue
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                changes = name.endswith("_") and not name.startswith("_")
                if name in _CHANGES or (changes and (path_of(owner) or "").partition(".")[0] in names):
                    return True
            case (
                ast.Subscript(value=base, ctx=ast.Store())
                | ast.AugAssign(target=base)
                | ast.Attribute(value=base, ctx=ast.Store())
            ):
                if (path_of(base) or "").partition(".")[0] in names:
                    return True
    return False


def networks_run_again(code: Code) -> Iterator[tuple[ast.Call, Loop]]:
    """The calls of networks that evaluate (`net.eval()` stands before the loop), on what each round has, too."""
    evaluating = {path_of(c.func.value) for c in code.calls("eval") if isinstance(c.func, ast.Attribute)} - {None}
    for call in code.flow.calls if evaluating else ():
        path = path_of(call.func)
        if path not in evaluating or not call.args or any(path_of(given) is None for given in call.args) or call.keywords:
            continue
        loop = loop_alike(code, call)
        if loop is not None and computes_same(code, call, loop) and _evaluates(code, call, path) and not _draws(code, call):
            yield call, loop


def _evaluates(code: Code, call: ast.Call, path: str | None) -> bool:
    """Whether a network was told last, before a call, that it does not train."""
    before = [c for c in code.calls("eval", "train") if code.flow.order[c] < code.flow.order[call]]
    switches = [c.func.attr for c in before if isinstance(c.func, ast.Attribute) and path_of(c.func.value) == path]
    networks = code.value(call.func).alternatives
    return switches[-1:] == ["eval"] and bool(networks) and all(is_neural_module(code.facts.inference, a) for a in networks)


def _draws(code: Code, call: ast.Call) -> bool:
    """Whether a network may give something else each time: it says so, or the program has networks that are known for that."""
    forwards = code.facts.loops.targets(code.scope, call)
    if not forwards:
        return code.facts.project.program_may_hold(code.source.path, _RANDOM_NETWORKS)
    return any(_DRAWS.search(scope.text) for scope in called_from(code.facts, *forwards))
