"""Training loops of the textbook's shape: what of them is training, and what the program does beside it.

Such a loop clears gradients, computes a loss from a batch, runs it backward and steps one optimizer; perhaps it clips, scales
and updates every few batches only. Each of these acts is known, or the loop is not of this shape.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.statement_names import (
    assigned,
    assigned_in_order,
    bound_names,
    names_read,
    paths_in,
    read_before_bound,
    shown_target,
    surely_assigned,
)
from perflint.facts.facts import Facts
from perflint.facts.proofs.proofs import inspects_itself
from perflint.facts.training.batch_moves import BatchMoves, batch_moves
from perflint.facts.training.loop_heads import Head, UnknownLoop, is_bound_in
from perflint.facts.training.training_acts import Acts
from perflint.facts.values.inference import Inference
from perflint.source.syntax import Scope


@dataclass
class TrainingLoop:
    """A training loop, taken apart.

    loader: what gives the batches. target: what a batch is bound to. forward: the statements at the top of the body that
    compute the loss, rest: those that are left for the loop; acts may stand inside of both. moves: the copies of the batches to
    the device, where those are left to the trainer. results, batch_names: the names that `forward` and the target bind and
    somebody needs afterwards. has_early_rest: something of the rest stood before the update. epochs: the loop around it, where
    the trainer can be made before that.
    """

    loop: Loop
    acts: Acts
    loader: ast.expr
    target: ast.expr
    forward: list[ast.stmt]
    rest: list[ast.stmt]
    moves: BatchMoves | None = None
    results: list[str] = field(default_factory=list)
    batch_names: set[str] = field(default_factory=set)
    loss_is_used: bool = False
    has_early_rest: bool = False
    epochs: ast.stmt | None = None

    @property
    def statement(self) -> ast.For:
        """The loop's own statement."""
        assert isinstance(self.loop.node, ast.For)
        return self.loop.node

    @property
    def batch_target(self) -> str:
        """What is left of the batch's target: the names that somebody needs, in their places."""
        return shown_target(self.target, self.batch_names)


def training_loop(facts: Facts, scope: Scope, loop: Loop) -> TrainingLoop | None:
    """A loop taken apart, if it is of the textbook's shape and each of its statements is known."""
    statement, flow = loop.statement, flow_of(scope)
    if not isinstance(statement, ast.For) or statement.orelse or flow.yields or inspects_itself(flow):
        return None
    try:
        head = Head(statement)
        acts = Acts(facts, scope, loop, statement.body, head)
        return _Division(facts, scope, loop, statement.body, head, acts).result
    except UnknownLoop:
        return None


class _Division:
    """A loop's statements, divided into those that compute the loss and those that are left."""

    def __init__(self, facts: Facts, scope: Scope, loop: Loop, body: list[ast.stmt], head: Head, acts: Acts) -> None:
        self.flow, self.body, self.head, self.acts = flow_of(scope), body, head, acts
        acting = {n for statement in acts.statements for n in ast.walk(statement)}
        forward = self._forward()
        rest = [s for s in body if s not in forward and not acts.are_all_of(s)]
        self.result = TrainingLoop(loop, acts, head.loader, head.target, forward, rest)
        self._see_to_early_rest()
        self._leave_moves(facts.inference, scope)
        self._see_to_number()
        self._see_to_names(acting)
        self.result.epochs = self._epochs()

    def _top(self, statement: ast.stmt) -> int:
        return next(i for i, top in enumerate(self.body) if any(n is statement for n in ast.walk(top)))

    def _forward(self) -> list[ast.stmt]:
        """All up to the last statement that makes the loss, but for totals that live on."""
        loss = names_read(self.acts.loss)
        before = [s for s in self.body[: self._top(self.acts.backward.statement) + 1] if not self.acts.are_all_of(s)]
        ends = [i for i, s in enumerate(before) if loss & assigned(s)]
        if not ends:
            raise UnknownLoop
        forward: list[ast.stmt] = []
        needed = set(loss)
        for statement in reversed(before[: ends[-1] + 1]):
            is_total = isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name)
            if not is_total or assigned(statement) & needed:
                forward.insert(0, statement)
                needed |= names_read(statement)
        if any(isinstance(n, _STAYS) for s in forward for n in ast.walk(s)):
            raise UnknownLoop
        return forward

    def _see_to_early_rest(self) -> None:
        """What stood before the weights' update and comes after it now must neither notice nor change what it passes."""
        result = self.result
        last = max(self._top(statement) for statement in self.acts.statements)
        acting = set(self.acts.statements)
        computed = {name for s in result.forward for name in names_read(s)}
        for statement in result.rest:
            nodes = list(ast.walk(statement))
            if any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in nodes):
                raise UnknownLoop
            if self.body.index(statement) > last or any(n in acting for n in nodes):
                continue
            result.has_early_rest = True
            mentioned = {path for n in nodes if isinstance(n, (ast.Name, ast.Attribute)) and (path := path_of(n))}
            timed = any(name.partition(".")[0] in ("time", "timer") for name in mentioned)
            leaves = any(isinstance(n, (ast.Continue, ast.Break, ast.Return)) for n in nodes)
            if leaves or timed or mentioned & {self.acts.network, self.acts.optimizer} or assigned(statement) & computed:
                raise UnknownLoop

    def _leave_moves(self, inference: Inference, scope: Scope) -> None:
        """Let the trainer move the batches, if nothing looks at a part of them before it is moved."""
        result, target = self.result, self.head.target
        found = batch_moves(inference, scope, result.loop, result.forward, target)
        if found is not None:
            result.moves = found
            result.forward = [s for s in result.forward if s not in found.statements]

    def _see_to_number(self) -> None:
        """Where the batch's number is needed to compute the loss, it is a part of the batch."""
        if {name for s in self.result.forward for name in names_read(s)} & set(self.head.index):
            if self.acts.at_end or self.head.counted is None:
                raise UnknownLoop
            self.result.loader, self.result.target = self.head.counted

    def _see_to_names(self, acting: set[ast.AST]) -> None:
        """Which names the function that computes the loss has to give back; none may live on from one batch to the next."""
        result, loss = self.result, names_read(self.acts.loss)
        own = self.acts.loss.id if isinstance(self.acts.loss, ast.Name) else None
        given_in = set(bound_names(result.target))
        local = {name for s in result.forward for name in assigned(s)}
        if local & (self.flow.outer_names | set(self.head.index)):
            raise UnknownLoop
        if (read_before_bound(result.forward) - given_in) & local:
            raise UnknownLoop  # the value of the batch before
        forward = {
            n for s in [*result.forward, *(result.moves.statements if result.moves else ())] for n in ast.walk(s)
        } | acting
        given = {d for n in [*forward, *ast.walk(result.target)] for d in self.flow.definitions_at(n)}
        needed = {d.name for d in given if any(use not in forward for use in self.flow.uses[d])}
        needed |= (local | given_in) & self.flow.inner_names
        result.batch_names = (needed & given_in) - local
        result.results = [name for name in dict.fromkeys(assigned_in_order(result.forward)) if name in needed and name != own]
        result.loss_is_used = own in needed
        always = given_in.union(*map(surely_assigned, result.forward))
        if not {*result.results, *(loss & local)} <= always:
            raise UnknownLoop

    def _epochs(self) -> ast.stmt | None:
        """The loop around, where nothing in it binds what the trainer is made from."""
        result, acts = self.result, self.acts
        around = result.loop.parent
        if around is None or around.statement is None or self.flow.parent[result.statement] is not around.statement:
            return None
        parts = [acts.limit, result.moves.device if result.moves else None, acts.mixed[0] if acts.mixed else None]
        needs = {acts.network, acts.optimizer, acts.scaler or ""}.union(*map(paths_in, parts))
        return None if is_bound_in(self.flow, around, needs) else around.statement


_STAYS = (
    *(ast.Continue, ast.Break, ast.Return, ast.NamedExpr, ast.Global, ast.Nonlocal),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
)
"""What means something else in a function of its own, or binds names that are not looked for."""
