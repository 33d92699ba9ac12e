"""Training loops of the textbook's shape: what of them is training, and what the program does beside it.

Such a loop clears gradients, computes a loss from a batch, runs it backward and steps one optimizer; perhaps it clips, scales
and updates every few batches only. Each of these acts is known, or the loop is not of this shape.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from perflint.facts.definitions import Loop, path_of
from perflint.facts.facts import Facts
from perflint.facts.flow import Flow, flow_of
from perflint.facts.loops import is_neural_module, is_optimizer
from perflint.facts.proofs import inspects_itself
from perflint.source.syntax import Scope


@dataclass(frozen=True)
class Act:
    """A statement that the trainer does. kind: zero, backward, unscale, clip, step or update.

    about: the path that it is about: the optimizer, the network, the loss. scaler: the path of the scaler that it goes through.
    """

    kind: str
    about: str
    statement: ast.stmt
    scaler: str | None = None
    limit: ast.expr | None = None


@dataclass
class TrainingLoop:
    """A training loop, taken apart.

    loader: what gives the batches. target: what a batch is bound to. The statements at the top of its body: acts train, forward
    compute the loss (acts may stand inside of them), rest is left for the loop, likewise.
    moved: the device that batches are moved to, where that is left to the trainer; moves: the statements that do nothing else.
    mixed: the condition under which the scaler is used. every: how many batches make an update, at_end: whether the last batch
    does in any case. results, batch_names: the names that `forward` and the target bind and somebody needs afterwards.
    has_early_rest: something of the rest stood before the update. epochs: the loop around it, where the trainer can be made
    before that.
    """

    loop: Loop
    loader: ast.expr
    target: ast.expr
    network: str
    optimizer: str
    loss: str
    acts: list[ast.stmt]
    forward: list[ast.stmt]
    rest: list[ast.stmt]
    scaler: str | None = None
    mixed: tuple[ast.expr, bool] | None = None
    limit: ast.expr | None = None
    every: ast.expr | None = None
    at_end: bool = False
    moved: ast.expr | None = None
    moves: list[ast.stmt] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    batch_names: list[str] = field(default_factory=list)
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
    parts = _Parts(facts, scope, flow, loop, statement)
    return parts.found() if parts.are_known() else None


_TRAINS = ("backward", "unscale_", "zero_grad")


class _Unknown(Exception):
    """A statement is of no known kind."""


class _Parts:
    """A loop while it is taken apart."""

    def __init__(self, facts: Facts, scope: Scope, flow: Flow, loop: Loop, statement: ast.For) -> None:
        self.facts, self.scope, self.flow, self.loop = facts, scope, flow, loop
        self.body = statement.body
        self.loader, self.target = statement.iter, statement.target
        self.index: list[str] = []
        self.mixed: tuple[ast.expr, bool] | None = None
        self.plain: list[ast.stmt] = []
        self.every: ast.expr | None = None
        self.at_end = False
        self.result: TrainingLoop | None = None

    def are_known(self) -> bool:
        """Whether each statement is; then `found` has the loop."""
        try:
            self.result = self._taken_apart()
        except _Unknown:
            return False
        return True

    def found(self) -> TrainingLoop:
        assert self.result is not None
        return self.result

    def _taken_apart(self) -> TrainingLoop:
        self._unwrap()
        tops = {statement: list(self._acts(statement)) for statement in self.body}
        acts = [act for found in tops.values() for act in found]
        acting = [*(act.statement for act in acts), *self.plain]
        sequence = self._sequence(acts)
        backward, step = sequence["backward"], sequence["step"]
        limit = sequence["clip"].limit if "clip" in sequence else None
        optimizer = step.about
        if sequence["zero"].about not in (optimizer, self._network(acts, optimizer)):
            raise _Unknown
        network = self._network(acts, optimizer)
        first, last = self._top(backward), max(self.body.index(self._top(act)) for act in acts)
        if not backward.about.isidentifier():
            raise _Unknown
        forward, rest = self._divided(acting, first, backward.about)
        result = TrainingLoop(
            self.loop, self.loader, self.target, network, optimizer, backward.about, acting, forward, rest,
            next((act.scaler for act in acts if act.scaler), None), self.mixed, limit, self.every, self.at_end,
        )  # fmt: skip
        self._see_to_early_rest(result, last)
        self._see_to_moves(result)
        self._see_to_names(result)
        result.epochs = self._epochs(result)
        return result

    def _epochs(self, result: TrainingLoop) -> ast.stmt | None:
        """The loop around, where nothing in it binds what the trainer is made from."""
        around = self.loop.parent
        if around is None or around.statement is None or self.flow.parent[result.statement] is not around.statement:
            return None
        needs = {result.network, result.optimizer, result.scaler or "", *_words(result.limit), *_words(result.moved)}
        needs |= _words(result.mixed[0]) if result.mixed else set()
        if self._is_bound_in(around, needs):
            return None
        return around.statement

    # -- the acts ----------------------------------------------------------------------------------------------------

    def _unwrap(self) -> None:
        """Look through `enumerate` and progress bars around it."""
        inner = self.loader
        while isinstance(inner, ast.Call) and inner.args:
            name = (path_of(inner.func) or "").rpartition(".")[2]
            if name == "enumerate":
                if not isinstance(self.target, ast.Tuple) or len(self.target.elts) != 2:
                    raise _Unknown
                self.loader = inner.args[0]
                self.index = list(_bound_names(self.target.elts[0]))
                self.target = self.target.elts[1]
                break
            if name not in ("tqdm", "trange", "track"):
                break
            inner = inner.args[0]
        if isinstance(self.loader, ast.Call) and (path_of(self.loader.func) or "").rpartition(".")[2] in ("zip", "range"):
            raise _Unknown

    def _acts(self, statement: ast.stmt, at_top: bool = True) -> Iterator[Act]:
        """The acts in a statement of the body, in their order; those in two branches once."""
        act = self._act(statement)
        if act is not None:
            yield act
            return
        inside = [self._act(s) for s in ast.walk(statement) if isinstance(s, ast.Expr)]
        if not any(inside):
            if any(isinstance(n, ast.Attribute) and n.attr in _TRAINS for n in ast.walk(statement)):
                raise _Unknown
            return
        if not (at_top and isinstance(statement, ast.If)):
            raise _Unknown
        then = [act for s in statement.body for act in self._acts(s, at_top=False)]
        otherwise = [act for s in statement.orelse for act in self._acts(s, at_top=False)]
        if statement.orelse:
            self._see_to_branches(statement, then, otherwise)
            yield from then if any(act.scaler for act in then) else otherwise
        else:
            self._see_to_period(statement, then)
            yield from then

    def _act(self, statement: ast.stmt) -> Act | None:
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            return None
        call = statement.value
        if (path_of(call.func) or "").rpartition(".")[2] == "clip_grad_norm_":
            return self._clip(call, statement)
        if not isinstance(call.func, ast.Attribute):
            return None
        receiver, name, args, keywords = call.func.value, call.func.attr, call.args, call.keywords
        about = path_of(receiver) or ""
        first = path_of(args[0]) if args else None
        match name:
            case "zero_grad" if about and not args and all(k.arg == "set_to_none" for k in keywords):
                return Act("zero", about, statement)
            case "backward" if about and not args and not keywords:
                return Act("backward", about, statement)
            case "backward" if not args and not keywords:
                match receiver:
                    case ast.Call(func=ast.Attribute(value=scaler, attr="scale"), args=[ast.Name(id=loss)], keywords=[]):
                        return Act("backward", loss, statement, path_of(scaler))
            case "unscale_" if about and first and len(args) == 1 and not keywords:
                return Act("unscale", first, statement, about)
            case "step" if about and first and len(args) == 1 and not keywords:
                return Act("step", first, statement, about)
            case "step" if about and not args and not keywords and self._is_optimizer(receiver):
                return Act("step", about, statement)
            case "update" if about and not args and not keywords and "scaler" in about:
                return Act("update", about, statement, about)
        return None

    def _clip(self, call: ast.Call, statement: ast.stmt) -> Act | None:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        given.update(zip(("parameters", "max_norm"), call.args, strict=False))
        match given.get("parameters"):
            case ast.Call(func=ast.Attribute(value=network, attr="parameters"), args=[], keywords=[]) if (
                set(given) == {"parameters", "max_norm"} and len(call.args) <= 2
            ):
                return Act("clip", path_of(network) or "", statement, limit=given["max_norm"])
        return None

    def _is_optimizer(self, node: ast.expr) -> bool:
        path = (path_of(node) or "").rpartition(".")[2].lower()
        return self.facts.inference.value(self.scope, node).may(is_optimizer) or ("opt" in path and "sched" not in path)

    def _see_to_branches(self, statement: ast.If, then: Sequence[Act], otherwise: Sequence[Act]) -> None:
        """With mixed precision in one branch and without it in the other, both train alike."""
        scaled = any(act.scaler for act in then)
        if scaled == any(act.scaler for act in otherwise) or self.mixed is not None:
            raise _Unknown
        if _unscaled(then) != _unscaled(otherwise) or self._binds_in_loop(statement.test):
            raise _Unknown
        self.mixed = (statement.test, scaled)
        self.plain += [act.statement for act in (otherwise if scaled else then)]

    def _see_to_period(self, statement: ast.If, acts: Sequence[Act]) -> None:
        """`if (i + 1) % n == 0:`, perhaps `or i + 1 == len(loader)`, around the update, and the gradients cleared in it."""
        tests = [statement.test]
        match statement.test:
            case ast.BoolOp(op=ast.Or(), values=[_, _] as values):
                tests = values
        match tests[0]:
            case ast.Compare(left=remainder, ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if isinstance(
                remainder, ast.BinOp
            ) and isinstance(remainder.op, ast.Mod):
                left, every = remainder.left, remainder.right
            case _:
                raise _Unknown
        kinds = [act.kind for act in acts]
        if self.every is not None or "backward" in kinds or kinds[-1:] != ["zero"] or not self._counts_batches(left):
            raise _Unknown
        if self._binds_in_loop(every):
            raise _Unknown
        if len(tests) == 2:
            match tests[1]:
                case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Call(func=ast.Name(id="len"), args=[of])]) if (
                    self._counts_batches(left) and _dump(of) == _dump(self.loader)
                ):
                    self.at_end = True
                case _:
                    raise _Unknown
        self.every = every

    def _counts_batches(self, node: ast.expr) -> bool:
        """Whether an expression is the number of batches so far, from 1."""
        match node:
            case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=ast.Constant(value=1)) if [name] == self.index:
                iterated = self.loop.iterated
                return isinstance(iterated, ast.Call) and len(iterated.args) == 1 and not iterated.keywords
        return False

    def _binds_in_loop(self, node: ast.expr) -> bool:
        """Whether the loop binds a name that an expression holds, or whether the expression does more than to read names."""
        if any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Await)) for n in ast.walk(node)):
            return True
        return self._is_bound_in(self.loop, _words(node))

    def _is_bound_in(self, loop: Loop, paths: Iterable[str]) -> bool:
        """Whether a loop binds one of some names or paths."""
        paths = set(paths)
        names = paths | {path.partition(".")[0] for path in paths}
        found = (d for name in names for d in self.flow.definitions_of(name))
        return any(d.value is loop.iterated or any(b is loop.block for b in d.block.ancestry()) for d in found)

    def _sequence(self, acts: Sequence[Act]) -> dict[str, Act]:
        """The acts by kind.

        Raises:
            _Unknown: one is missing, done twice, or out of order.

        """
        kinds = [act.kind for act in acts if act.kind not in ("unscale", "update")]
        orders: list[list[str]] = [["zero", "backward", "step"], ["backward", "step", "zero"]]
        if self.every is not None:
            del orders[0]
        clipped = [[*order[: (at := order.index("step"))], "clip", *order[at:]] for order in orders]
        if kinds not in (*orders, *clipped):
            raise _Unknown
        sequence = {act.kind: act for act in acts}
        scaled = [act.kind for act in acts if act.scaler]
        if scaled and (not {"backward", "step", "update"} <= set(scaled) or ("clip" in sequence) != ("unscale" in scaled)):
            raise _Unknown
        if len({act.scaler for act in acts if act.scaler}) > 1 or len(scaled) != len(set(scaled)):
            raise _Unknown
        if "unscale" in scaled and sequence["unscale"].about != sequence["step"].about:
            raise _Unknown
        limit = sequence["clip"].limit if "clip" in sequence else None
        if limit is not None and self._binds_in_loop(limit):
            raise _Unknown
        return sequence

    def _network(self, acts: Sequence[Act], optimizer: str) -> str:
        """The path of what is trained: whose gradients are clipped, which is put in train mode, or the optimizer is over."""
        found = {act.about for act in acts if act.kind == "clip"}
        found = found or {act.about for act in acts if act.kind == "zero" and act.about != optimizer}
        if not found:
            for call in self.flow.calls_named["train"]:
                if isinstance(call.func, ast.Attribute) and not call.args and self.flow.order[call] < self._start():
                    found.add(path_of(call.func.value) or "")
        if not found:
            for call in self.flow.calls_named["parameters"]:
                if isinstance(call.func, ast.Attribute) and self.flow.order[call] < self._start():
                    found.add(path_of(call.func.value) or "")
        if not found:
            for call in self.flow.calls:
                if self.flow.within(call, self.loop.block) and path_of(call.func):
                    value = self.facts.inference.value(self.scope, call.func)
                    if value.may(lambda a: is_neural_module(self.facts.inference, a)):
                        found.add(path_of(call.func) or "")
        if len(found) != 1 or "" in found or found & {"self"}:
            raise _Unknown
        return found.pop()

    def _start(self) -> int:
        return min(self.flow.order[node] for statement in self.body for node in ast.walk(statement) if node in self.flow.order)

    def _top(self, act: Act) -> ast.stmt:
        return next(statement for statement in self.body if any(n is act.statement for n in ast.walk(statement)))

    # -- what computes the loss, and what is left --------------------------------------------------------------------

    def _divided(self, acting: Sequence[ast.stmt], backward: ast.stmt, loss: str) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """The statements that compute the loss, and those that are left."""
        before = [s for s in self.body[: self.body.index(backward) + 1] if s not in acting]
        ends = [i for i, s in enumerate(before) if loss in _assigned(s)]
        if not ends:
            raise _Unknown
        forward: list[ast.stmt] = []
        needed: set[str] = {loss}
        for statement in reversed(before[: ends[-1] + 1]):
            carries = isinstance(statement, ast.AugAssign) and not (_assigned(statement) & needed)
            if not carries:
                forward.insert(0, statement)
                needed |= _read(statement)
        if any(isinstance(n, (ast.Continue, ast.Break, ast.Return, ast.NamedExpr)) for s in forward for n in ast.walk(s)):
            raise _Unknown
        rest = [s for s in self.body if s not in forward and s not in acting]
        return forward, rest

    def _see_to_early_rest(self, result: TrainingLoop, last: int) -> None:
        """What stood before the weights' update and comes after it now must neither notice nor change what it passes."""
        acting = set(result.acts)
        computed = {name for s in result.forward for name in _read(s)}
        for statement in result.rest:
            nodes = list(ast.walk(statement))
            if any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in nodes):
                raise _Unknown
            if self.body.index(statement) > last or any(n in acting for n in nodes):
                continue
            result.has_early_rest = True
            leaves = any(isinstance(n, (ast.Continue, ast.Break, ast.Return)) for n in nodes)
            mentioned = {path_of(n) for n in nodes if isinstance(n, (ast.Name, ast.Attribute))}
            timed = any(name and name.partition(".")[0] in ("time", "timer") for name in mentioned)
            if leaves or timed or mentioned & {result.network, result.optimizer} or _assigned(statement) & computed:
                raise _Unknown

    def _see_to_moves(self, result: TrainingLoop) -> None:
        """Which device the trainer can move the batches to: if nothing looks at a part of them before it is moved."""
        names = list(_bound_names(self.target))
        devices: dict[str, ast.expr] = {}
        moved: set[str] = set()
        for statement in result.forward:
            pairs = _moved_in_place(statement)
            if pairs is None or not set(pairs) <= set(names) or moved & set(pairs):
                break
            moved |= set(pairs)
            devices.update((_dump(device), device) for device in pairs.values())
            result.moves.append(statement)
        loads = {n.id for s in self.body if s not in result.moves for n in ast.walk(s) if isinstance(n, ast.Name)}
        unmoved = [name for name in names if name not in moved and name in loads]
        if not moved and isinstance(self.target, ast.Name):
            devices = self._devices_of_items(self.target.id)
            unmoved = []
        if devices and not unmoved and len(devices) == 1 and not any(self._binds_in_loop(d) for d in devices.values()):
            (result.moved,) = devices.values()
            result.forward = [s for s in result.forward if s not in result.moves]
        else:
            result.moves = []

    def _devices_of_items(self, batch: str) -> dict[str, ast.expr]:
        """Where the items of a batch are moved to, if each is where it is taken out: `batch["labels"].to(device)`."""
        devices: dict[str, ast.expr] = {}
        for node in (n for s in self.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == batch):
            item = self.flow.parent.get(node)
            taken = self.flow.parent.get(item) if isinstance(item, ast.Subscript) else None
            match self.flow.parent.get(taken) if isinstance(taken, ast.Attribute) and taken.attr == "to" else None:
                case ast.Call(args=[device], keywords=keywords) if all(k.arg == "non_blocking" for k in keywords):
                    devices[_dump(device)] = device
                case _:
                    return {}
        return devices

    def _see_to_names(self, result: TrainingLoop) -> None:
        """Which names the function that computes the loss has to give back; none may live on from one batch to the next."""
        bound: set[str] = set(_bound_names(self.target))
        always = set(bound)
        for statement in result.forward:
            assigned = _assigned(statement)
            if any(name in self.flow.outer_names for name in assigned):
                raise _Unknown
            bound |= assigned
            always |= _surely_assigned(statement)
        local = {name for statement in result.forward for name in _assigned(statement)}
        reached: set[str] = set(_bound_names(self.target))
        for statement in result.forward:
            if _read(statement) & (local - reached) - _own_reads(statement):
                raise _Unknown  # the value of the batch before
            reached |= _assigned(statement)
        if {name for s in result.forward for name in _read(s)} & set(self.index):
            raise _Unknown
        forward = {n for s in result.forward for n in ast.walk(s)}
        given = {d for s in [*result.forward, *result.moves] for n in ast.walk(s) for d in self.flow.definitions_at(n)}
        given |= {d for n in ast.walk(self.target) for d in self.flow.definitions_at(n)}
        acting = {n for act in result.acts for n in ast.walk(act)}
        needed = {
            d.name
            for d in given
            if any(use not in forward and use not in acting and not self._is_moved(use, result) for use in self.flow.uses[d])
        }
        needed |= self.flow.inner_names
        result.batch_names = sorted((needed & set(_bound_names(self.target))) - local)
        result.results = [name for name in dict.fromkeys(_in_order(result.forward)) if name in needed and name != result.loss]
        result.loss_is_used = result.loss in needed
        if not set(result.results) <= always or result.loss not in always:
            raise _Unknown

    def _is_moved(self, use: ast.expr, result: TrainingLoop) -> bool:
        return self.flow.statement(use) in result.moves


def _words(node: ast.expr | None) -> set[str]:
    """The names and attributes that an expression is made from."""
    return set() if node is None else {path_of(n) or "" for n in ast.walk(node)} - {""}


def shown_target(target: ast.expr, wanted: Collection[str]) -> str:
    """A target as text, with `_` for the names that nobody wants."""
    names = set(_bound_names(target)) & set(wanted)
    match target:
        case ast.Name(id=name):
            return name if names else "_"
        case ast.Starred(value=value):
            return f"*{shown_target(value, wanted)}"
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if names or any(isinstance(p, ast.Starred) for p in parts):
            return f"({', '.join(shown_target(part, wanted) for part in parts)}{',' if len(parts) == 1 else ''})"
    return "_"


def _unscaled(acts: Sequence[Act]) -> list[tuple[str, str, str]]:
    """Acts without what mixed precision adds."""
    return [(act.kind, act.about, _dump(act.limit)) for act in acts if act.kind not in ("unscale", "update")]


def _dump(node: ast.expr | None) -> str:
    return "" if node is None else ast.dump(node)


def _bound_names(target: ast.AST) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id


def _assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement binds."""
    found = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return found - {name for c in ast.walk(statement) if isinstance(c, ast.comprehension) for name in _bound_names(c.target)}


def _in_order(statements: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        names = _assigned(statement)
        found = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in names]
        yield from (n.id for n in sorted(found, key=lambda n: (n.lineno, n.col_offset)))


def _surely_assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement binds whichever way it goes."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            branches = [set().union(*map(_surely_assigned, branch)) for branch in (body, orelse)]
            return branches[0] & branches[1]
        case ast.With(body=body):
            return set().union(_assigned_by_items(statement), *map(_surely_assigned, body))
        case ast.For() | ast.While() | ast.Try():
            return set()
    return _assigned(statement)


def _assigned_by_items(statement: ast.With) -> set[str]:
    return {name for item in statement.items if item.optional_vars is not None for name in _bound_names(item.optional_vars)}


def _read(statement: ast.AST) -> set[str]:
    found = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return found | (_assigned(statement) if isinstance(statement, ast.AugAssign) else set())


def _own_reads(statement: ast.stmt) -> set[str]:
    """The names that a compound statement reads after it has bound them itself, in each of its branches."""
    bodies: list[list[ast.stmt]] = []
    match statement:
        case ast.If(body=body, orelse=orelse):
            bodies = [body, orelse]
        case ast.With(body=body) | ast.For(body=body):
            bodies = [body]
    if not bodies:
        inner = [c for c in ast.walk(statement) if isinstance(c, ast.comprehension)]
        return {name for c in inner for name in _bound_names(c.target)}
    early: set[str] = set()
    bound = set(_bound_names(statement.target)) if isinstance(statement, ast.For) else set()
    for body in bodies:
        reached = set(bound)
        for inside in body:
            early |= _read(inside) - reached - _own_reads(inside)
            reached |= _assigned(inside)
    return _assigned(statement) - early


def _moved_in_place(statement: ast.stmt) -> dict[str, ast.expr] | None:
    """The names that a statement moves to a device, with the device, and does nothing else."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.DictComp() as made):
            return _dict_moved(name, made)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            pairs = [(name, value)]
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            pairs = [(n.id if isinstance(n, ast.Name) else "", v) for n, v in zip(names, values, strict=True)]
        case _:
            return None
    found: dict[str, ast.expr] = {}
    for name, value in pairs:
        match value:
            case ast.Call(func=ast.Name(id="moved" | "moved_copy"), args=[ast.Name(id=source), device], keywords=[]):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id=source), attr="to"), args=[device], keywords=keywords) if all(
                k.arg == "non_blocking" for k in keywords
            ):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id=source), attr="cuda"), args=[], keywords=keywords) if all(
                k.arg == "non_blocking" for k in keywords
            ):
                device = ast.Constant("cuda")
            case _:
                return None
        if source != name or (path_of(device) is None and not isinstance(device, ast.Constant)):
            return None
        found[name] = device
    return found


def _dict_moved(name: str, made: ast.DictComp) -> dict[str, ast.expr] | None:
    match made:
        case ast.DictComp(
            key=ast.Name(id=key),
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=value), attr="to"), args=[device], keywords=keywords),
            generators=[
                ast.comprehension(
                    target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                    iter=ast.Call(func=ast.Attribute(value=ast.Name(id=source), attr="items"), args=[]),
                    ifs=[],
                )
            ],
        ) if (key, value, source) == (first, second, name) and all(k.arg == "non_blocking" for k in keywords):
            return {name: device} if path_of(device) else None
    return None
