"""What is computed again in each round of a loop: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import Block, Code, External, Loop, any_layout, called_from, is_neural_module, path_of, words, written_rounds

_CHANGES = frozenset(("step", "backward", "train", "eval", "load_state_dict", "copy_"))
_KEEPS_VALUES = frozenset(("requires_grad_", "retain_grad_", "pin_memory_"))
_VIEWS = words(
    """
    flatten reshape view squeeze unsqueeze transpose permute expand narrow select rearrange as_strided detach view_as expand_as
    t contiguous to cuda cpu float double half long int bool type type_as numpy from_numpy split chunk unbind diagonal unfold
    swapaxes movedim asarray
    """
)
"""Functions and methods that may give the memory of what they get."""
_LEAVES_MODE = words(
    """
    to cuda cpu half float double parameters named_parameters zero_grad requires_grad_ state_dict named_buffers buffers
    load_state_dict share_memory device dtype
    """
)
"""What is asked of a network that goes on evaluating."""
_DROPS = rb"\b(?:F|functional|torch) \. (?:alpha_|feature_)?dropout[123]?d? \((?![^()]*\btraining)"
"""Functions that drop at random while a network evaluates, too."""
_DRAWS = any_layout(rb"rand|nois|bernoulli|normal_?\(|multinomial|sampl|%b" % _DROPS)
"""What a network may hold that gives something else each time, also while it evaluates."""
_RANDOM_NETWORKS = any_layout(
    rb"(?i:bayes|variational|monte_?carlo|mc_?dropout|reparam)|\. rsample \(|randn_like \(|%b" % _DROPS
)
_LIBRARIES = frozenset(("torch", "einops", "np", "numpy"))
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
    names = _sharing(code, {part.id for part in operands(code, call)})
    for node, order in code.flow.order.items():
        if not after < order < before:
            continue
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                changes = name.endswith("_") and not name.startswith("_") and name not in _KEEPS_VALUES
                if name in _CHANGES or (changes and _memory_of(owner) in names):
                    return True
            case (
                ast.Subscript(value=base, ctx=ast.Store())
                | ast.AugAssign(target=base)
                | ast.Attribute(value=base, ctx=ast.Store())
            ):
                if _memory_of(base) in names:
                    return True
    return False


def _sharing(code: Code, names: set[str]) -> set[str]:
    """Some variables, and all that may be views of them, or whose views they may be."""
    pairs = [(d.name, _memory_of(d.value)) for d in code.flow.definitions if d.value is not None]
    found, size = names, 0
    while size < len(found):
        size = len(found)
        for name, other in pairs:
            if other is not None and (name in found or other in found):
                found = found | {name, other}
    return found


def _memory_of(node: ast.expr) -> str | None:
    """The variable whose memory an expression may give: `ids.view(-1)[0]`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value) | ast.Subscript(value=value):
            return _memory_of(value)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=given) if name in _VIEWS or name.endswith("_"):
            return _memory_of(given[0]) if path_of(value) in _LIBRARIES and given else _memory_of(value)
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _VIEWS:
            return _memory_of(first)
    return None


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
    if switches[-1:] != ["eval"] or _may_switch(code, call, path, max(map(code.flow.order.__getitem__, before))):
        return False
    networks = code.value(call.func).alternatives
    return bool(networks) and all(is_neural_module(code.facts.inference, a) for a in networks)


def _may_switch(code: Code, call: ast.Call, path: str | None, after: int) -> bool:
    """Whether somebody gets a network, or its parts, who may set what evaluates: `net.apply(train_dropout)`."""
    flow = code.flow
    loops = [flow.order[node] for node in flow.order for loop in flow.block[call].loops() if flow.within(node, loop.block)]
    end = max([flow.order[call], *loops])
    for node, order in flow.order.items():
        if not after < order <= end or path_of(node) != path:
            continue
        match flow.parent.get(node):
            case ast.Call(func=func) if func is node:
                pass
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in _LEAVES_MODE or name in ("eval", "train", "module"):
                pass
            case _:
                return True
    return False


def _draws(code: Code, call: ast.Call) -> bool:
    """Whether a network may give something else each time: it says so, or the program has networks that are known for that."""
    forwards = code.facts.loops.targets(code.scope, call)
    if not forwards:
        return code.facts.project.program_may_hold(code.source.path, _RANDOM_NETWORKS)
    return any(_DRAWS.search(scope.text) for scope in called_from(code.facts, *forwards))
