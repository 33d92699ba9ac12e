"""Calls that make what lasts out of tensors: parameters of networks, and the state of optimizers.

Made under `inference_mode`, it consists of inference tensors, with which nobody can train.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.training_objects import is_neural_module, is_optimizer
from perflint.facts.values.values import External
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope
from perflint.source.words import words

_CONVERTING = words("to cuda cpu float double half bfloat16 type to_empty")


def makes_lasting(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
    """What a call makes that outlives the region in which it runs, or switches on there in vain."""
    callee = facts.inference.value(scope, call.func)
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "step"
        and facts.inference.value(scope, call.func.value).may(is_optimizer)
    ):
        yield Obligation(Kind.RETENTION, "the optimizer's state would be inference tensors")
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("requires_grad_", "load_state_dict", "export", "backward"):
        yield Obligation(Kind.RETENTION, f"`{call.func.attr}` is called inside")
    is_network = facts.inference.value(scope, call).may(lambda a: is_neural_module(facts.inference, a))
    if (is_network and not _switches_training(call)) or _converts_what_is_called(scope, call):
        yield Obligation(
            Kind.RETENTION, "a module is created, moved or converted inside, whose parameters would be inference tensors"
        )
    if callee.may(lambda a: isinstance(a, External) and a.qualname in ("torch.enable_grad", "torch.set_grad_enabled")):
        yield Obligation(Kind.GRADIENT, "autograd is switched on again inside, which inference_mode ignores")


def _converts_what_is_called(scope: Scope, call: ast.Call) -> bool:
    """Whether a method moves or converts something that the function calls, which is a network and no tensor."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _CONVERTING:
        return False
    path = path_of(call.func.value)
    return path is not None and any(path_of(other.func) == path for other in flow_of(scope).calls)


def _switches_training(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train")
