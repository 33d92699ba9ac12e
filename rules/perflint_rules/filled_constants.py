"""Tensors of one number that each step fills: a discriminator's labels, a cell's first state. No rule by itself."""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, External, Flow, Place, flow_of, last_name, path_of, place_of

_FACTORIES = ("torch.ones", "torch.zeros", "torch.full", "torch.ones_like", "torch.zeros_like", "torch.full_like")
_METHODS = ("new_ones", "new_zeros", "new_full")
_FILLS = ("fill_", "zero_")
FILLED = (*_FACTORIES, *(f"torch.Tensor.{name}" for name in (*_METHODS, *_FILLS)))
"""What fills a tensor, for `calls=` of a rule that asks."""
_LOSS = re.compile(r"crit(?!ic)|loss|bce|mse|(?:^|_)l1(?:_|$)|adversarial", re.I)
_STATE = re.compile(r"(?:^|_)(?:hidden|cell|states?|h_?[0tnc]|c_?[0tn]|hx|cx|hc)(?:$|_)", re.I)


def filled_each_step(code: Code) -> Iterator[tuple[ast.Call, str]]:
    """The calls that fill a tensor with one number in each step, and what it is for, as a message begins."""
    for call in code.calls(*(name.partition(".")[2] for name in _FACTORIES), *_METHODS, *_FILLS):
        use = _use(code, call) if _is_filled(code, call) and code.is_hot(call) else None
        if use is not None:
            yield call, use


def _is_filled(code: Code, call: ast.Call) -> bool:
    """Whether a call makes a tensor of one number on a device."""
    func = call.func
    places = {place_of(a) for a in code.value(call).alternatives}
    if not isinstance(func, ast.Attribute) or places == {Place.HOST}:
        return False
    if func.attr in _METHODS:
        return bool(call.args)
    if func.attr in _FILLS:
        return _is_new(code, func.value)
    if not code.is_external(func, *_FACTORIES) or not call.args:
        return False
    if func.attr.endswith("_like"):
        return True
    single = isinstance(call.args[0], ast.Constant) and call.args[0].value == 1 and len(call.args) == 1
    return not single and any(k.arg == "device" for k in call.keywords)


def _is_new(code: Code, made: ast.expr) -> bool:
    """`x.data.new(n, 3)`, `Tensor(n, 1)` with a type that may be of the device."""
    if not isinstance(made, ast.Call) or not made.args:
        return False
    if isinstance(made.func, ast.Attribute) and made.func.attr == "new":
        return True
    types = code.value(made.func).alternatives
    named = [a.qualname for a in types if isinstance(a, External)]
    return any(name.startswith("torch.cuda.") and name.endswith("Tensor") for name in named)


def _use(code: Code, call: ast.Call) -> str | None:
    """What the tensor is for, as the message begins; None for everything else, and for what is written to."""
    whole: ast.expr = call
    parent = code.flow.parent.get(whole)
    while isinstance(parent, ast.Call) and last_name(parent.func) == "Variable" and parent.args[:1] == [whole]:
        whole, parent = parent, code.flow.parent.get(parent)
    if isinstance(parent, ast.keyword) and parent.arg == "grad_outputs":
        return "the first gradient"
    if isinstance(parent, ast.Call) and whole in parent.args and _is_loss(parent):
        return "what the loss compares with"
    if isinstance(parent, ast.Return):
        return "a first state" if _STATE.search(code.scope.name) or code.scope.name.startswith("init_") else None
    if isinstance(parent, ast.Tuple):
        parent = code.flow.parent.get(parent)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return None
    target = parent.targets[0]
    name = path_of(target) or ""
    if isinstance(target, ast.Attribute):
        return f"`{name}`" if _STATE.search(target.attr) and not _is_changed(code, name) else None
    uses = [use for definition in code.flow.definitions_at(target) for use in code.flow.uses[definition]]
    if any(_is_written(code, use) for use in uses):
        return None
    return f"`{name}`" if any(_is_compared(code, use) for use in uses) or _STATE.search(name) else None


def _is_loss(call: ast.Call) -> bool:
    return _LOSS.search(last_name(call.func)) is not None


def _is_compared(code: Code, use: ast.expr) -> bool:
    parent = code.flow.parent.get(use)
    if isinstance(parent, ast.keyword):
        return parent.arg == "grad_outputs"
    return isinstance(parent, ast.Call) and use in parent.args and _is_loss(parent)


def _is_written(code: Code, use: ast.expr) -> bool:
    """Whether a use may put other numbers into it; `label.fill_(0.0)` puts one number in the place of another."""
    parent = code.flow.parent.get(use)
    if isinstance(parent, ast.Attribute):
        return parent.attr.endswith("_") and not parent.attr.startswith("_") and parent.attr not in _FILLS
    return isinstance(parent, ast.AugAssign) or (isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store))


def _is_changed(code: Code, path: str) -> bool:
    """Whether a method of the class writes into an attribute."""
    methods = code.scope.owner.methods.values() if code.scope.owner is not None else ()
    return any(path in _written(flow_of(method)) for method in methods)


def _written(flow: Flow) -> Iterator[str | None]:
    for node in flow.order:
        match node:
            case ast.AugAssign(target=target):
                yield path_of(target)
            case ast.Subscript(value=target, ctx=ast.Store()):
                yield path_of(target)
            case ast.Call(func=ast.Attribute(value=target, attr=name)) if name.endswith("_") and not name.startswith("_"):
                yield path_of(target)
