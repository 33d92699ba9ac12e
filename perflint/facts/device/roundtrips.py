"""Where a copy of a device tensor on the host comes back to a device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.uses import Step, Walk, Way
from perflint.facts.device.reads import device_value
from perflint.facts.facts import Facts
from perflint.facts.values.values import Alternative, External, Object, Tensor
from perflint.source.records import dataclass
from perflint.source.syntax import Scope
from perflint.source.words import words

_MAKES_TENSORS = words("torch.tensor torch.from_numpy torch.as_tensor torch.asarray torch.Tensor torch.FloatTensor")
_MOVES = frozenset(("to", "cuda"))


@dataclass(frozen=True, eq=False)
class WayBack:
    """A call that copies to a device what came from one. bare: nothing but type and layout was changed on the way."""

    call: ast.Call
    bare: bool


def ways_back(facts: Facts, scope: Scope, copy: ast.expr) -> list[WayBack]:
    """The calls that copy to a device again what an expression has copied to the host, in the same function.

    copy: the end of `x.cpu().numpy()`, say. It is followed through names, through numpy and through methods of arrays, and as a
    tensor on the host.
    """
    walk = _Back(facts, scope)
    return [WayBack(call.call, not walk.computed) for call in list(walk.ends(copy))]


class _Back(Walk[WayBack]):
    """Which uses of a host copy make a tensor of it on a device."""

    def __init__(self, facts: Facts, scope: Scope, depth: int = 1) -> None:
        super().__init__(scope)
        self.facts, self.depth = facts, depth
        self.computed = False
        """Whether something was computed from the copy."""

    def judge(self, step: Step) -> Iterator[WayBack | ast.AST | Definition]:
        match step.way:
            case Way.BOUND if not step.index:
                yield from step.definitions
            case Way.OPERAND | Way.ALIAS | Way.ITEM if step.result is not None:
                self.computed |= step.way is Way.OPERAND
                yield step.result
            case Way.INDEX if step.result is not None:
                self.computed = True
                yield step.result
            case Way.CHANGED if isinstance(step.node, ast.AugAssign):
                self.computed = True
                yield from step.definitions
            case Way.CONTAINED if isinstance(self.flow.parent.get(step.node), ast.Subscript):
                yield step.node
            case Way.METHOD:
                assert isinstance(step.node, ast.Call)
                yield from self._called(step.node, step.name)
            case Way.ARGUMENT:
                assert isinstance(step.node, ast.Call)
                if step.node.args and step.node.args[0] is step.value:
                    yield from self._given(step.node)

    def _called(self, call: ast.Call, name: str) -> Iterator[WayBack | ast.AST]:
        """What a method makes of a copy: it moves a tensor, or an array gives another one."""
        if name in _MOVES and self._is_on_device(call):
            yield WayBack(call, True)
        elif name in _MOVES or self._is_array(call):
            self.computed |= name not in _MOVES
            yield call

    def _given(self, call: ast.Call) -> Iterator[WayBack | ast.AST]:
        """What becomes of the first argument of a call."""
        match call.func:
            case ast.Attribute(value=ast.Name() as held, attr="append"):
                yield from self._last_of(held)
                return
        callee = self.facts.inference.value(self.scope, call.func)
        if callee.must(lambda a: isinstance(a, External) and a.qualname in _MAKES_TENSORS):
            tensor = self.facts.inference.value(self.scope, call)
            if tensor.may(lambda a: isinstance(a, Tensor) and a.place.may_be_device):  # only if told to
                yield WayBack(call, True)
            else:
                yield call
        elif callee.must(_is_of_numpy) or (self.depth and _gives_back(self.facts, self.scope, call)):
            self.computed = True
            yield call

    def _last_of(self, held: ast.Name) -> Iterator[ast.AST]:
        """Where the last item of a list is taken again: `states[-1]`, in the next round, say."""
        for definition in self.flow.reaching.get(held, frozenset()):
            for use in self.flow.uses[definition]:
                match self.flow.parent.get(use):
                    case ast.Subscript(slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))) as item:
                        yield item

    def _is_array(self, node: ast.expr) -> bool:
        value = self.facts.inference.value(self.scope, node)
        return value.may(lambda a: isinstance(a, Object) and a.qualname == "numpy.ndarray")

    def _is_on_device(self, node: ast.Call) -> bool:
        return device_value(self.facts.inference, self.scope, node)


def _is_of_numpy(alternative: Alternative) -> bool:
    return isinstance(alternative, External) and alternative.qualname.startswith("numpy.")


class _Given(_Back):
    """The same within a function that gets a copy, as far as it gives back what it makes of it: then the call goes on."""

    returns = False

    def judge(self, step: Step) -> Iterator[WayBack | ast.AST | Definition]:
        if step.way is Way.RETURNED:
            self.returns = True
        yield from super().judge(step)


def _gives_back(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether the functions of the project that a call runs give back an array that they make of its first argument."""
    targets = facts.loops.targets(scope, call)
    for target in targets:
        inner = _Given(facts, target, 0)
        parameter = next((p.arg for p in target.parameters[target.owner is not None :]), None)
        taken = [d for d in inner.flow.definitions if d.kind == "parameter" and d.name == parameter]
        if any(inner.ends(*taken)) or not inner.returns:
            return False
    return bool(targets) and not facts.loops.may_run_others(scope, call)
