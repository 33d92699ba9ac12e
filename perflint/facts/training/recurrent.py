"""Calls of recurrent layers and the states that they are given."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations.api_tables import RNN_CELL_CLASSES, RNN_CLASSES
from perflint.facts.values import values
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


def state_parts(scope: Scope, state: ast.expr) -> list[ast.expr]:
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


def origins(scope: Scope, part: ast.expr) -> list[Definition]:
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
    for part in [call.state, *state_parts(scope, call.state)]:
        for definition in origins(scope, _without_detach(part)):
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
        for part in state_parts(scope, call.state):
            if any(n is node for n in ast.walk(part)):
                return True
            for definition in origins(scope, part):
                if definition.value is not None and any(n is node for n in ast.walk(definition.value)):
                    return True
        for definition in flow.reaching.get(call.state, frozenset()):
            if definition.value is not None and any(n is node for n in ast.walk(definition.value)):
                return True
    return False
