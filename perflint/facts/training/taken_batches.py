"""Where batches get to: who takes those of a loader, and how they get to a device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.uses import Step, Walk, Way, functions_see
from perflint.facts.device.uploads import target_of
from perflint.facts.facts import Facts
from perflint.facts.values.values import External, Place
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import words

_REACH = 3
"""How many calls deep batches are followed."""
_MOVING = words("to cuda type")
_SAYS = words("numel size dim item tolist keys shape ndim dtype device")
"""What says something about a batch, or takes its numbers out of it."""
_LOOKS = words("len print str repr isinstance range int float bool id")
_COMPUTES_ARRAYS = words("scipy sklearn cv2 skimage PIL matplotlib math")
"""Packages whose functions give nothing back that is a batch's own memory."""


def may_move(facts: Facts, scope: Scope, taker: ast.AST) -> bool:
    """Whether a batch that a loop or a call takes may be copied to a device, or gets to where nobody can say."""
    flow = flow_of(scope)
    loop = next((loop for loop in flow.loops if loop.node is taker), None)
    taken = [d for d in flow.definitions if d.kind == "for" and d.value is loop.iterated] if loop is not None else [taker]
    return any(True for _ in _Moves(facts, scope).ends(*taken))


def takers_of(facts: Facts, scope: Scope, loader: ast.Call) -> list[tuple[Scope, ast.AST | None]]:
    """The loops that go over a loader's batches, and the calls that draw one; None where others may take them, too."""
    return list(_Batches(facts, scope).ends(loader))


class _Moves(Walk[Way]):
    """How a batch gets to a device, or out of sight; what is computed from its numbers on the host is no batch."""

    def __init__(self, facts: Facts, scope: Scope, depth: int = _REACH, seen: set[object] | None = None) -> None:
        super().__init__(scope, seen)
        self._facts, self._depth = facts, depth

    def judge(self, step: Step) -> Iterator[Way | ast.AST | Definition]:
        match step.way:
            case Way.COMPARED | Way.TESTED | Way.FORMATTED | Way.DROPPED | Way.DELETED | Way.INDEX | Way.RAISED:
                return
            case Way.ATTRIBUTE | Way.METHOD if step.name in _SAYS:
                return
            case Way.OPERAND if isinstance(step.node, ast.AugAssign):
                return  # a total of what batches hold
            case Way.BOUND | Way.ENTERED | Way.CHANGED:
                yield from step.definitions
            case Way.ITERATED | Way.OPERAND:
                yield from step.definitions
                yield from filter(None, [step.result])
            case Way.CONTAINED | Way.ITEM | Way.ALIAS | Way.UNPACKED if step.result is not None:
                yield step.result
            case Way.ATTRIBUTE | Way.METHOD if step.result is not None and not self._is_moved(step):
                yield step.result
            case Way.ARGUMENT if isinstance(step.node, ast.Call):
                yield from self._given(step.node, step)
            case way:
                yield way

    def _is_moved(self, step: Step) -> bool:
        if step.name not in _MOVING or not isinstance(step.result, ast.Call):
            return step.name in _MOVING
        return target_of(self._facts.inference, self.scope, step.result) is not Place.HOST

    def _given(self, call: ast.Call, step: Step) -> Iterator[Way | ast.AST]:
        name, function = last_name(call.func), self._facts.inference.value(self.scope, call.func).single
        if name in _LOOKS:
            return
        if isinstance(function, External):
            package = function.qualname.partition(".")[0]
            if package in _COMPUTES_ARRAYS:
                return
            moved = any(keyword.arg == "device" for keyword in call.keywords)
            yield call if package in ("torch", "numpy", "builtins") and not moved else step.way
        elif name in ("list", "tuple", "dict", "enumerate", "zip") and function is None:
            yield call
        else:
            yield from self._followed(call, step)

    def _followed(self, call: ast.Call, step: Step) -> Iterator[Way | ast.AST]:
        """Into the functions of the project that a call may run."""
        loops = self._facts.loops
        place = next((i for i, a in enumerate(call.args) if a is step.value), None)
        targets = loops.targets(self.scope, call) if self._depth else []
        if not targets or loops.may_run_others(self.scope, call) or any(target.name == "forward" for target in targets):
            yield step.way
            return
        for target in targets:
            inner = _Moves(self._facts, target, self._depth - 1, self.seen)
            names = [p.arg for p in target.parameters]
            names = [step.name] if place is None else names[(target.owner is not None) + place :][:1]
            parameters = [d for d in inner.flow.definitions if d.kind == "parameter" and d.name in names]
            for end in inner.ends(*parameters) if parameters else [step.way]:
                yield call if end is Way.RETURNED else end


def _place(container: ast.Tuple, part: ast.AST) -> int:
    return next(i for i, held in enumerate(container.elts) if held is part)


class _Batches(Walk[tuple[Scope, ast.AST | None]]):
    """Who may take a loader's batches, through names, containers and functions of the project; None where nobody can say."""

    def __init__(self, facts: Facts, scope: Scope, depth: int = _REACH, seen: set[object] | None = None) -> None:
        super().__init__(scope, seen)
        self._facts, self._depth = facts, depth
        self._part: tuple[ast.AST, int] | None = None
        """A call that returns a tuple, and where in it the loader is."""

    def judge(self, step: Step) -> Iterator[tuple[Scope, ast.AST | None] | ast.AST | Definition]:
        match step.way:
            case Way.COMPARED | Way.TESTED | Way.DROPPED | Way.DELETED | Way.ATTRIBUTE:
                return
            case Way.BOUND if self._part is not None and self._part[0] is step.value and len(step.index) == 1:
                if step.index[0] is None or step.index[0] < 0:
                    yield self.scope, None
                elif step.index[0] == self._part[1]:
                    yield from step.definitions
            case Way.BOUND | Way.ENTERED if not step.index and (
                not self.scope.is_module or self._is_of_the_program_alone(step)
            ):
                yield from step.definitions
            case Way.CONTAINED if isinstance(step.result, ast.Tuple) and self._is_returned(step.result):
                yield from self._returned(_place(step.result, step.value))
            case Way.RETURNED if self._depth:
                yield from self._returned(None)
            case Way.CONTAINED | Way.ITEM if step.result is not None:
                yield step.result
            case Way.ITERATED:
                yield self.scope, step.node
            case Way.ARGUMENT if isinstance(step.node, ast.Call):
                yield from self._given(step.node, step.value)
            case Way.METHOD if (step.name or "").startswith(("set_", "update", "close")):
                return
            case Way.METHOD if step.name == "__iter__" and step.result is not None:
                yield step.result
            case Way.METHOD if step.name in ("next", "__next__") and step.result is not None:
                yield self.scope, step.result
            case _:
                yield self.scope, None

    def _given(self, call: ast.Call, value: ast.AST) -> Iterator[tuple[Scope, ast.AST | None] | ast.AST]:
        match path_of(call.func):
            case "len":
                return
            case "next":
                yield self.scope, call
            case "enumerate" | "tqdm" | "iter" | "tqdm.tqdm" | "islice" | "itertools.islice":
                yield call
            case _:
                yield from self._followed(call, value)

    def _is_returned(self, node: ast.expr) -> bool:
        return self._depth > 0 and isinstance(self.flow.parent[node], ast.Return)

    def _returned(self, part: int | None) -> Iterator[tuple[Scope, ast.AST | None]]:
        """To where the scope is called: `train_loader, test_loader = make_loaders()`. part: which one of a tuple it is."""
        found = self._facts.inference.callers.sites(self.scope)
        if not found.complete or not found.sites:
            yield self.scope, None
            return
        for site in found.sites:
            outer = _Batches(self._facts, site.scope, self._depth - 1, self.seen)
            outer._part = (site.node, part) if part is not None else None
            yield from outer.ends(site.node)

    def _followed(self, call: ast.Call, value: ast.AST) -> Iterator[tuple[Scope, ast.AST | None]]:
        """Into the functions of the project that a call may run."""
        loops, place = self._facts.loops, next((i for i, a in enumerate(call.args) if a is value), None)
        targets = loops.targets(self.scope, call) if self._depth and place is not None else []
        if not targets or place is None or loops.may_run_others(self.scope, call):
            yield self.scope, None
            return
        for target in targets:
            inner = _Batches(self._facts, target, self._depth - 1, self.seen)
            names = [p.arg for p in target.parameters][(target.owner is not None) + place :][:1]
            parameters = [d for d in inner.flow.definitions if d.kind == "parameter" and d.name in names]
            yield from inner.ends(*parameters) if parameters else [(target, None)]

    def _is_of_the_program_alone(self, step: Step) -> bool:
        """Whether a global variable is of a script that nobody imports, and no function looks at it."""
        alone = not self._facts.project.importers(self.scope.module.source.path) or any(
            isinstance(a, ast.If) and "__main__" in ast.unparse(a.test)
            for definition in step.definitions
            for a in self.flow.ancestors(definition.node)
        )
        return alone and not any(functions_see(self.scope.module, d.name) for d in step.definitions)
