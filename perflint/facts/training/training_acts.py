"""The acts of a training loop: gradients are cleared, a loss runs backward, an optimizer steps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.training.loop_heads import Head, UnknownLoop, is_fixed_in
from perflint.facts.training.training_objects import is_neural_module, is_optimizer
from perflint.source.records import dataclass
from perflint.source.syntax import Scope


@dataclass(frozen=True)
class Act:
    """A statement that trains. kind: zero, backward, unscale, clip, step or update.

    about: what it is about, as text: the path of the optimizer or of the network, the loss. scaler: the path of the scaler that
    it goes through. operand: the loss, or what a norm is clipped to.
    """

    kind: str
    about: str
    statement: ast.stmt
    scaler: str | None = None
    operand: ast.expr | None = None


class Acts:
    """The acts of a loop.

    statements: those that act, with those in the branch without mixed precision. mixed: the condition under which the scaler
    is used, and whether it has to hold or not. every: how many batches make an update, at_end: whether the last batch does.

    Raises:
        UnknownLoop: an act is missing, done twice, out of order, or not known.

    """

    def __init__(self, facts: Facts, scope: Scope, loop: Loop, body: Sequence[ast.stmt], head: Head) -> None:
        self._facts, self._scope, self._flow, self._loop, self._head = facts, scope, flow_of(scope), loop, head
        self.mixed: tuple[ast.expr, bool] | None = None
        self.every: ast.expr | None = None
        self.at_end = False
        self._plain: list[ast.stmt] = []
        found = [act for statement in body for act in self._in(statement)]
        self.statements = [*(act.statement for act in found), *self._plain]
        sequence = self._sequence(found)
        self.backward, self.optimizer = sequence["backward"], sequence["step"].about
        assert self.backward.operand is not None
        self.loss = self.backward.operand
        self.scaler = next((act.scaler for act in found if act.scaler), None)
        self.limit = sequence["clip"].operand if "clip" in sequence else None
        self.network = self._network(sequence)
        if sequence["zero"].about not in (self.optimizer, self.network):
            raise UnknownLoop

    def are_all_of(self, statement: ast.stmt) -> bool:
        """Whether a statement is an act, or holds nothing else."""
        if isinstance(statement, ast.If):
            return all(map(self.are_all_of, [*statement.body, *statement.orelse]))
        return statement in self.statements

    def _in(self, statement: ast.stmt, at_top: bool = True) -> Iterator[Act]:
        """The acts in a statement of the body, in their order; those in two branches once."""
        act = self._act(statement)
        if act is not None:
            yield act
            return
        if not any(self._act(s) for s in ast.walk(statement) if isinstance(s, ast.Expr)):
            if any(isinstance(n, ast.Attribute) and n.attr in _TRAINS for n in ast.walk(statement)):
                raise UnknownLoop
            return
        if not (at_top and isinstance(statement, ast.If)):
            raise UnknownLoop
        then, otherwise = ([a for s in b for a in self._in(s, at_top=False)] for b in (statement.body, statement.orelse))
        if statement.orelse:
            self._see_to_branches(statement, then, otherwise)
        else:
            self._see_to_period(statement, then)
        yield from then if self.mixed is None or self.mixed[1] or not statement.orelse else otherwise

    def _act(self, statement: ast.AST) -> Act | None:
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            return None
        call = statement.value
        if (path_of(call.func) or "").rpartition(".")[2] == "clip_grad_norm_":
            return _clipping(call, statement)
        if not isinstance(call.func, ast.Attribute):
            return None
        receiver, args, keywords = call.func.value, call.args, call.keywords
        about, first = path_of(receiver) or "", path_of(args[0]) if len(args) == 1 and not keywords else None
        match call.func.attr:
            case "zero_grad" if about and not args and all(k.arg == "set_to_none" for k in keywords):
                return Act("zero", about, statement)
            case "backward" if not args and not keywords:
                match receiver:
                    case ast.Call(func=ast.Attribute(value=scaler, attr="scale"), args=[loss], keywords=[]):
                        return Act("backward", ast.unparse(loss), statement, path_of(scaler), loss)
                return Act("backward", ast.unparse(receiver), statement, operand=receiver)
            case "unscale_" if about and first:
                return Act("unscale", first, statement, about)
            case "step" if about and first and self._is_optimizer(args[0]):
                return Act("step", first, statement, about)
            case "step" if about and not args and not keywords and self._is_optimizer(receiver):
                return Act("step", about, statement)
            case "update" if "scaler" in about and not args and not keywords:
                return Act("update", about, statement, about)
        return None

    def _is_optimizer(self, node: ast.expr) -> bool:
        """Whether something is one of torch's optimizers: where nothing is known about it, by its name."""
        value = self._facts.inference.value(self._scope, node)
        if value.alternatives:
            return value.may(is_optimizer)
        name = (path_of(node) or "").rpartition(".")[2].lower()
        return "opt" in name and "sched" not in name

    def _see_to_branches(self, statement: ast.If, then: Sequence[Act], otherwise: Sequence[Act]) -> None:
        """With mixed precision in one branch and without it in the other, both train alike."""
        scaled = any(act.scaler for act in then)
        if scaled == any(act.scaler for act in otherwise):
            raise UnknownLoop
        if self.mixed is not None and (ast.dump(self.mixed[0]), self.mixed[1]) != (ast.dump(statement.test), scaled):
            raise UnknownLoop
        if _unscaled(then) != _unscaled(otherwise) or not self._is_fixed(statement.test):
            raise UnknownLoop
        self.mixed = (statement.test, scaled)
        self._plain += [act.statement for act in (otherwise if scaled else then)]

    def _see_to_period(self, statement: ast.If, acts: Sequence[Act]) -> None:
        """`if (i + 1) % n == 0:`, perhaps `or i + 1 == len(loader)`, around the update, and the gradients cleared in it."""
        last: ast.expr | None = None
        match statement.test:
            case ast.BoolOp(op=ast.Or(), values=[test, last]):
                pass
            case test:
                pass
        match test:
            case ast.Compare(
                left=ast.BinOp(left=number, op=ast.Mod(), right=every), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]
            ) if self._head.counts(number) and self._is_fixed(every):
                pass
            case _:
                raise UnknownLoop
        kinds = [act.kind for act in acts]
        if self.every is not None or "backward" in kinds or kinds[-1:] != ["zero"]:
            raise UnknownLoop
        match last:
            case None:
                pass
            case ast.Compare(left=number, ops=[ast.Eq()], comparators=[ast.Call(func=ast.Name(id="len"), args=[of])]) if (
                self._head.counts(number) and ast.dump(of) == ast.dump(self._head.loader)
            ):
                self.at_end = True
            case _:
                raise UnknownLoop
        self.every = every

    def _is_fixed(self, node: ast.expr) -> bool:
        return is_fixed_in(self._flow, self._loop, node)

    def _sequence(self, acts: Sequence[Act]) -> dict[str, Act]:
        """The acts by kind.

        Raises:
            UnknownLoop: one is missing, done twice, or out of order.

        """
        kinds = [act.kind for act in acts if act.kind not in ("unscale", "update", "clip")]
        orders = [["backward", "step", "zero"], *([] if self.every is not None else [["zero", "backward", "step"]])]
        if kinds not in orders:
            raise UnknownLoop
        sequence = {act.kind: act for act in acts}
        order = [act.kind for act in acts]
        if len(sequence) < len(acts):
            raise UnknownLoop
        clips = "clip" in sequence
        if clips and not order.index("backward") < order.index("clip") < order.index("step"):
            raise UnknownLoop
        limit = sequence["clip"].operand if clips else None
        if limit is not None and not self._is_fixed(limit):
            raise UnknownLoop
        scaled = {act.kind for act in acts if act.scaler}
        if scaled:
            one = len({act.scaler for act in acts if act.scaler}) == 1
            if not one or scaled - {"unscale"} != {"backward", "step", "update"} or clips != ("unscale" in scaled):
                raise UnknownLoop
            if clips and (sequence["unscale"].about != sequence["step"].about or order.index("unscale") > order.index("clip")):
                raise UnknownLoop
        return sequence

    def _network(self, sequence: dict[str, Act]) -> str:
        """The path of what is trained: whose gradients are clipped, which is put in train mode, or the optimizer is over."""
        zero = sequence["zero"].about
        found = {sequence["clip"].about} if "clip" in sequence else {zero} - {self.optimizer}
        found = found or set(self._receivers("train")) or set(self._receivers("parameters")) or set(self._networks())
        if len(found) != 1 or found & {"", "self"}:
            raise UnknownLoop
        return found.pop()

    def _receivers(self, method: str) -> Iterator[str]:
        first = self._flow.order[self._loop.node.iter] if isinstance(self._loop.node, ast.For) else 0
        for call in self._flow.calls_named[method]:
            if isinstance(call.func, ast.Attribute) and self._flow.order[call] < first:
                yield path_of(call.func.value) or ""

    def _networks(self) -> Iterator[str]:
        inference = self._facts.inference
        for call in self._flow.calls:
            name = (path_of(call.func) or "").rpartition(".")[2]
            if name and self._flow.within(call, self._loop.block) and not re.search(r"crit|loss", name, re.I):
                if inference.value(self._scope, call.func).may(lambda a: is_neural_module(inference, a)):
                    yield path_of(call.func) or ""


_TRAINS = ("backward", "unscale_", "zero_grad")


def _clipping(call: ast.Call, statement: ast.stmt) -> Act | None:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    given.update(zip(("parameters", "max_norm"), call.args, strict=False))
    match given.get("parameters"):
        case ast.Call(func=ast.Attribute(value=network, attr="parameters"), args=[], keywords=[]) if (
            set(given) == {"parameters", "max_norm"} and len(call.args) <= 2
        ):
            return Act("clip", path_of(network) or "", statement, operand=given["max_norm"])
    return None


def _unscaled(acts: Sequence[Act]) -> list[tuple[str, str, str]]:
    """Acts without what mixed precision adds."""
    kept = (act for act in acts if act.kind not in ("unscale", "update"))
    return [(act.kind, act.about, "" if act.operand is None else ast.dump(act.operand)) for act in kept]
