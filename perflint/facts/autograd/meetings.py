"""Where a tensor that was made under `inference_mode` would be computed with others whose gradients autograd records.

Such an operation saves its arguments for a backward pass, if there is one or not, and an inference tensor cannot be saved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.autograd.gradflow import GradEnd, GradUse, TensorWalk
from perflint.facts.autograd.graphs_of_parameters import may_record
from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Region
from perflint.facts.dataflow.uses import Step, Way
from perflint.facts.facts import Facts
from perflint.facts.values.values import Batch, External, Object, Value
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import words

_WITHOUT_WEIGHTS = words(
    "CELU Dropout Dropout1d Dropout2d Dropout3d ELU Flatten GELU Hardtanh Identity LeakyReLU LogSigmoid LogSoftmax ReLU ReLU6 "
    "SELU SiLU Sigmoid Softmax Softplus Tanh Unflatten Upsample"
)
_DEPTH = 2


def meetings(facts: Facts, scope: Scope, inside: Region, made: list[ast.expr]) -> list[GradEnd]:
    """The operations outside of a region, with autograd on as far as is known, in which its tensors meet others."""
    return list(_Meetings(facts, scope, _DEPTH, inside).ends(*made))


class _Meetings(TensorWalk):
    """Follows tensors of a region. inside: the region; None in functions that they are given to outside of it."""

    def __init__(self, facts: Facts, scope: Scope, depth: int, inside: Region | None) -> None:
        super().__init__(facts, scope, depth, detached=True)
        self.inside = inside

    def judge(self, step: Step) -> Iterator[GradEnd | ast.AST | Definition]:
        outside = self.inside is None or step.node not in self.inside
        if outside and self._meets(step) and self.facts.grad_mode.is_off(self.scope, step.node) is not True:
            yield GradEnd(GradUse.BACKWARD, step.node, f"`{ast.unparse(step.node)}` may record gradients of something else")
        for found in super().judge(step):
            if not isinstance(found, GradEnd) or found.use is GradUse.BACKWARD:
                yield found

    def _meets(self, step: Step) -> bool:
        """Whether a tensor is computed with something that may belong to a graph."""
        match step.way, step.node:
            case Way.OPERAND | Way.CHANGED, ast.BinOp(left=left, right=right):
                return self._may_ask(left, step) or self._may_ask(right, step)
            case Way.OPERAND | Way.CHANGED, ast.AugAssign(target=target, value=value):
                return self._may_ask(target, step) or self._may_ask(value, step)
            case Way.INDEX, ast.Subscript(value=container):
                return self._may_ask(container, step)
            case Way.METHOD, ast.Call() as call:
                return not self.facts.loops.targets(self.scope, call) and self._are_given(call, step)
            case Way.ARGUMENT, ast.Call(func=func) as call:
                if self.facts.loops.targets(self.scope, call):
                    return False  # looked at there
                name = last_name(func)
                if name in self.free_calls:
                    return False
                callee = self._value(func)
                if _is_unknown(callee) or callee.may(_may_have_weights):
                    return True
                return self._are_given(call, step) or (isinstance(func, ast.Attribute) and self._may_ask(func.value, step))
        return False

    def _are_given(self, call: ast.Call, step: Step) -> bool:
        return any(self._may_ask(given, step) for given in (*call.args, *(k.value for k in call.keywords)))

    def _may_ask(self, node: ast.expr, step: Step) -> bool:
        """Whether something that a tensor is computed with may belong to a graph; a loader's batches do not."""
        value = self._value(node)
        return node is not step.value and not value.must(_is_batch) and (_is_unknown(value) or may_record(value))

    def _inside(self, call: ast.Call, value: ast.AST, targets: list[Scope]) -> Iterator[GradEnd | ast.AST]:
        if self.inside is None or call not in self.inside:
            for target in targets:
                try:
                    walk = _Meetings(self.facts, target, self.depth - 1, None)
                    given = [d for d in walk.flow.definitions if d.kind == "parameter" and d.name not in ("self", "cls")]
                    yield from (GradEnd(end.use, call, end.note) for end in walk.ends(*given))
                except SyntaxProblem:
                    yield GradEnd(GradUse.BACKWARD, call, f"`{target.name}` cannot be parsed")
        yield call


def _is_unknown(value: Value) -> bool:
    return value.open or not value.alternatives


def _is_batch(alternative: object) -> bool:
    return isinstance(alternative, Batch)


def _may_have_weights(alternative: object) -> bool:
    match alternative:
        case External(qualname):
            return not qualname.startswith(("torch.", "builtins.", "numpy."))
        case Object(qualname):
            name = qualname.removeprefix("torch.nn.")
            return name == qualname or not (name.endswith("Loss") or name in _WITHOUT_WEIGHTS)
    return False
