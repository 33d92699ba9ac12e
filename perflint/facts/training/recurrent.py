"""Calls of recurrent layers and the states that they are given."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations.api_tables import RNN_CELL_CLASSES, RNN_CLASSES
from perflint.facts.values import values
from perflint.facts.values.arguments import argument
from perflint.facts.values.values import Alternative, Object, Tensor
from perflint.source.gate import Gate, Word
from perflint.source.records import dataclass
from perflint.source.syntax import Scope
from perflint.source.words import any_layout

_BUILT: Final = [any_layout(kind + rb"(?:Cell)? \(") for kind in (rb"LSTM", rb"GRU", rb"RNN")]
_CALLED: Final = [any_layout(name + rb"(?<!\w" + name + rb")\w* \(") for name in (rb"lstm", rb"gru", rb"rnn")]
RECURRENT_LAYER: Final[Sequence[Word]] = [*_BUILT, *_CALLED]
"""What a recurrent layer is built or called by: a file near each call of one holds it."""

_LAYER = Gate.of([RECURRENT_LAYER])
_NAMES = (rb"lstm", rb"LSTM", rb"gru", rb"GRU", rb"rnn", rb"RNN", rb"ell", rb"ncoder", rb"ecoder", rb"ecurrent")
RECURRENT_CALL: Final[Sequence[Word]] = [any_layout(name + rb"\w* \(") for name in _NAMES]
"""Names by which recurrent layers are called: the gate of the rules on their states."""


@dataclass(frozen=True, eq=False)
class RnnCall:
    """A call of an LSTM, GRU, RNN or one of their cells with an explicit state."""

    node: ast.Call
    state: ast.expr
    certain: bool
    """Whether the callee is a recurrent layer of torch without doubt."""


def is_rnn(alternative: Alternative) -> bool:
    """Whether a value is a recurrent layer or cell of torch."""
    if not isinstance(alternative, Object) or not alternative.qualname.startswith("torch.nn."):
        return False
    return alternative.qualname.removeprefix("torch.nn.") in RNN_CLASSES | RNN_CELL_CLASSES


def rnn_calls(facts: Facts, scope: Scope) -> Iterator[RnnCall]:
    """The recurrent calls of a scope that pass a state."""
    if not facts.project.is_near(scope.module.source.path, _LAYER):
        return
    for call in flow_of(scope).calls:
        if len(call.args) + len(call.keywords) > 2:
            continue
        state = call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "hx"), None)
        if state is None or isinstance(state, ast.Starred):
            continue
        callee = facts.inference.value(scope, call.func)
        if callee.may(is_rnn):
            yield RnnCall(call, state, callee.must(is_rnn))


def state_parts(facts: Facts, scope: Scope, state: ast.expr) -> list[ast.expr]:
    """The tensors of a state expression: the items of a tuple, also through one variable."""
    if isinstance(state, (ast.Tuple, ast.List)):
        return list(state.elts)
    if isinstance(state, ast.Name):
        found = flow_of(scope).reaching.get(state, frozenset())
        if len(found) == 1:
            (definition,) = found
            if isinstance(definition.value, ast.Tuple) and not definition.index:
                return list(definition.value.elts)
    return [state]


def origins(facts: Facts, scope: Scope, part: ast.expr) -> list[Definition]:
    """The definitions that a part of a state comes from, through plain names."""
    return sorted(flow_of(scope).reaching.get(part, frozenset()), key=lambda d: d.order)


def is_zero_state(facts: Facts, scope: Scope, part: ast.expr) -> bool:
    """Whether an expression is, without doubt, nothing but fresh zeros."""
    return facts.inference.value(scope, part).must(_is_zero)


def _is_zero(alternative: Alternative) -> bool:
    if isinstance(alternative, values.Sequence):
        return bool(alternative.items) and all(item.must(_is_zero) for item in alternative.items)
    return isinstance(alternative, Tensor) and alternative.zeros and not alternative.parameter


def asks_for_gradient(alternative: Alternative) -> bool:
    """Whether a state, or a part of it, requires a gradient."""
    if isinstance(alternative, values.Sequence):
        return any(item.may(asks_for_gradient) for item in alternative.items)
    return isinstance(alternative, Tensor) and alternative.grad is True


def has_type_of_its_own(alternative: Alternative) -> bool:
    """Whether a state, or a part of it, has a type that is known, and not the usual one."""
    if isinstance(alternative, values.Sequence):
        return any(item.may(has_type_of_its_own) for item in alternative.items)
    return isinstance(alternative, Tensor) and alternative.dtype not in ("", "float", "float32")


def built_for(facts: Facts, scope: Scope, call: RnnCall) -> list[Definition] | None:
    """The definitions that only serve to build a call's state; None when one is no plain assignment, or serves others, too."""
    flow = flow_of(scope)
    made: dict[Definition, None] = {}
    for part in [call.state, *state_parts(facts, scope, call.state)]:
        for definition in origins(facts, scope, _without_detach(part)):
            if definition.kind != "assign" or not isinstance(definition.node, ast.Name):
                return None
            if flow.loop(definition.node) is not flow.loop(call.node):
                return None
            made[definition] = None
    inside = [call.state, *(d.value for d in made if d.value is not None)]
    alone = not any(d.name in flow.inner_names or used_outside(flow, d, inside) for d in made)
    return list(made) if alone else None


def _without_detach(part: ast.expr) -> ast.expr:
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "detach":
        return part.func.value
    return part


def used_outside(flow: Flow, definition: Definition, sources: Iterable[ast.expr]) -> bool:
    """Whether anything but some expressions uses what a definition binds."""
    inside = {node for source in sources for node in ast.walk(source)}
    return any(use not in inside for use in flow.uses[definition])


def feeds_rnn(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether a tensor that is built at `node` is given to a recurrent layer as its state, in this scope."""
    flow = flow_of(scope)
    for call in rnn_calls(facts, scope):
        for part in state_parts(facts, scope, call.state):
            if any(n is node for n in ast.walk(part)):
                return True
            for definition in origins(facts, scope, part):
                if definition.value is not None and any(n is node for n in ast.walk(definition.value)):
                    return True
        for definition in flow.reaching.get(call.state, frozenset()):
            if definition.value is not None and any(n is node for n in ast.walk(definition.value)):
                return True
    return False


def is_sized_by_tensor(scope: Scope, node: ast.expr, depth: int = 3) -> bool:
    """Whether the size of a state comes from a tensor."""
    for part in ast.walk(node):
        match part:
            case ast.Attribute(attr="size" | "shape" | "batch_sizes") | ast.Name(id="len"):
                return True
            case ast.Name() if depth:
                values = [d.value for d in flow_of(scope).reaching.get(part, ()) if d.value is not None]
                if any(is_sized_by_tensor(scope, value, depth - 1) for value in values):
                    return True
    return False


def has_form_for_layer(facts: Facts, scope: Scope, call: RnnCall) -> bool:
    """Whether a state is a pair for an LSTM, and one tensor for other layers, as far as is seen where it is built."""
    layer = facts.inference.value(scope, call.node.func)
    pair = len(state_parts(facts, scope, call.state)) == 2 or facts.inference.value(scope, call.state).must(_is_pair)
    return layer.must(lambda a: isinstance(a, Object) and ("LSTM" in a.qualname) == pair)


def _is_pair(alternative: Alternative) -> bool:
    return isinstance(alternative, values.Sequence) and len(alternative.items) == 2


def fits_layer(facts: Facts, scope: Scope, call: RnnCall, source: ast.expr) -> bool:
    """Whether each state that is built in an expression has the layers, the batch and the size that the layer wants."""
    made = [part for part in ast.walk(source) if isinstance(part, ast.Call) and path_of(part.func) in ("torch.zeros", "zeros")]
    layer = facts.inference.value(scope, call.node.func).single
    given = call.node.args[0] if call.node.args else argument(call.node, None, "input")
    if not isinstance(layer, Object) or not isinstance(layer.site, tuple) or not isinstance(given, ast.Name):
        return not made and _only_names(source)
    builder, built = layer.site
    wanted = (argument(built, 1, "hidden_size"), argument(built, 2, "num_layers"))
    if argument(built, None, "proj_size") is not None or any(k.arg is None for k in built.keywords):
        return False
    both = argument(built, None, "bidirectional") is not None
    for zeros in made:
        sizes = zeros.args[0].elts if zeros.args and isinstance(zeros.args[0], (ast.Tuple, ast.List)) else zeros.args
        if not sizes or not _is_same_size(facts, scope, sizes[-1], builder, wanted[0], 1):
            return False
        if len(sizes) == 3 and not _is_same_size(facts, scope, sizes[0], builder, wanted[1], 2 if both else 1):
            return False
        if not any(_has_batch_of(facts, scope, given, name) for name in ast.walk(sizes[-2])):
            return False
        if len(sizes) == 3 and _dimension(sizes[-2]) != (0 if argument(built, None, "batch_first") is not None else 1):
            return False
    return bool(made) or _only_names(source)


def _has_batch_of(facts: Facts, scope: Scope, given: ast.Name, node: ast.AST) -> bool:
    """Whether a name is what a layer is given, or what the layer before it was: `out, _ = self.lstm(x)`."""
    flow = flow_of(scope)
    if not isinstance(node, ast.Name) or node.id == given.id:
        return isinstance(node, ast.Name)
    definitions = flow.reaching.get(given, frozenset())
    match [(d.index, d.value) for d in definitions]:
        case [((0,), ast.Call(func=func, args=[ast.Name() as before, *_]))]:
            layer = facts.inference.value(scope, func).single
            is_layer = isinstance(layer, Object) and layer.qualname in ("torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN")
            return is_layer and before.id == node.id and flow.reaching.get(before) == flow.reaching.get(node)
    return False


def _dimension(size: ast.expr) -> object:
    """Which size of a tensor an expression is: 0 for `x.size(0)`, `x.shape[0]` and `len(x)`."""
    match size:
        case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=dimension)]):
            return dimension
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=dimension)):
            return dimension
        case ast.Call(func=ast.Name(id="len")):
            return 0
    return None


def _only_names(source: ast.expr) -> bool:
    """Whether an expression names states that are built elsewhere, and builds none."""
    calls = [part for part in ast.walk(source) if isinstance(part, ast.Call)]
    return all(isinstance(call.func, ast.Attribute) and call.func.attr == "detach" for call in calls)


def _is_same_size(facts: Facts, scope: Scope, size: ast.expr, builder: Scope, wanted: ast.expr | None, times: int) -> bool:
    """Whether two sizes are the same number, or the same attribute that is set from the same name."""
    value = facts.inference.value(scope, size).literal
    expected = facts.inference.value(builder, wanted).literal if wanted is not None else 1
    if isinstance(value, int) and isinstance(expected, int):
        return value == expected * times
    if isinstance(size, ast.Name) and isinstance(wanted, ast.Name) and size.id == wanted.id and times == 1:
        return scope.module is builder.module and _is_bound_once(facts, (scope, builder), size.id)
    if wanted is None or times != 1 or not isinstance(size, ast.Attribute) or path_of(size.value) != "self":
        return False
    if ast.unparse(wanted) == ast.unparse(size):
        return True
    flow = flow_of(builder)
    set_here = [d.value for d in flow.definitions_of(f"self.{size.attr}")]
    outside = size.attr.encode() in facts.project.attributes_stored(scope.module.source.path)
    if outside or len(set_here) != 1 or set_here[0] is None:
        return False
    return _element(set_here[0], flow, size.attr) == ast.unparse(wanted)


def _is_bound_once(facts: Facts, readers: tuple[Scope, ...], name: str) -> bool:
    """Whether functions of a file that name a variable mean one of the file, which gets a value once."""
    module = readers[0].module
    top = flow_of(module.top)
    definitions = top.definitions_of(name)
    if len(definitions) != 1 or definitions[0].kind != "assign" or top.loop(definitions[0].node) is not None:
        return False
    if name.encode() in facts.project.attributes_stored(module.source.path):
        return False
    holding = [flow_of(scope) for scope in module.scopes_with(name) if not scope.is_module]
    return not any(name in flow.outer_names for flow in holding) and not any(name in flow_of(s).defined for s in readers)


def _element(value: ast.expr, flow: Flow, attribute: str) -> str:
    """The part of an assigned expression that goes to `self.attribute`."""
    if not isinstance(value, ast.Tuple):
        return ast.unparse(value)
    (definition,) = flow.definitions_of(f"self.{attribute}")
    index = definition.index[0] if definition.index else None
    return ast.unparse(value.elts[index]) if index is not None else ""
