"""Calls that make what lasts out of tensors: parameters of networks, and the state of optimizers.

Made under `inference_mode`, it consists of inference tensors, with which nobody can train.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.training_objects import is_neural_module, is_optimizer
from perflint.facts.values.values import External, Object
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope
from perflint.source.words import words

_CONVERTING = words("to cuda cpu float double half bfloat16 type to_empty")
_IS_MADE = Obligation(
    Kind.RETENTION, "a module is created, moved or converted inside, whose parameters would be inference tensors"
)


def makes_lasting(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
    """What a call in a region makes that outlives it, or switches on there in vain."""
    yield from changes_lasting(facts, scope, call)
    if not _switches_training(call) and facts.inference.value(scope, call).may(partial(is_neural_module, facts.inference)):
        yield _IS_MADE
    if _may_copy_network(facts, scope, call):
        yield Obligation(Kind.RETENTION, f"`{ast.unparse(call.func)}` may keep a copy of a network, made of inference tensors")
    callee = facts.inference.value(scope, call.func)
    if callee.may(lambda a: isinstance(a, External) and a.qualname in ("torch.enable_grad", "torch.set_grad_enabled")):
        yield Obligation(Kind.GRADIENT, "autograd is switched on again inside, which inference_mode ignores")


def _may_copy_network(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a network is given to a class that nobody sees: its objects may average copies of the weights."""
    given = (facts.inference.value(scope, argument) for argument in [*call.args, *(k.value for k in call.keywords)])
    return facts.inference.value(scope, call).may_be(Object) and any(
        value.may(partial(is_neural_module, facts.inference)) for value in given
    )


def changes_lasting(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
    """What a call, in a region or in a function that the region runs, changes in a network or an optimizer from before it."""
    if not isinstance(call.func, ast.Attribute):
        return
    receiver, name = facts.inference.value(scope, call.func.value), call.func.attr
    if name == "step" and receiver.may(is_optimizer):
        yield Obligation(Kind.RETENTION, "the optimizer's state would be inference tensors")
    if name in ("requires_grad_", "load_state_dict", "export", "backward"):
        yield Obligation(Kind.RETENTION, f"`{name}` is called inside")
    if name in _CONVERTING and (
        receiver.may(partial(is_neural_module, facts.inference)) or _is_called(scope, path_of(call.func.value))
    ):
        yield _IS_MADE


def _is_called(scope: Scope, path: str | None) -> bool:
    """Whether a function calls something, which is a network and no tensor if it can be moved."""
    return path is not None and any(path_of(call.func) == path for call in flow_of(scope).calls)


def _switches_training(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train")
