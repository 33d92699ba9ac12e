"""What becomes of a number on the host: is it printed, collected, added up, or needed to go on?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum

from perflint.facts.dataflow.definitions import Definition, Loop, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.facts.dataflow.guards import is_guard
from perflint.facts.dataflow.uses import Step, Walk, Way
from perflint.facts.training.loops import Loops
from perflint.facts.values.bound_arguments import parameter_of
from perflint.facts.values.classes import find_method
from perflint.facts.values.inference import Inference
from perflint.facts.values.values import (
    Alternative,
    ClassRef,
    Elements,
    External,
    FunctionRef,
    Instance,
    Mapping,
    Number,
    Output,
    Place,
    Sequence,
    Tensor,
    Text,
    Value,
    place_of,
)
from perflint.source.nodes import walk
from perflint.source.syntax import Scope
from perflint.source.words import made, words


class Sink(Enum):
    """What a host value is used for."""

    ACCUMULATE = "added to a running total"
    COLLECT = "collected in a list"
    LOG = "printed or logged"
    METER = "given to a meter"
    METRIC = "given to a metric"
    STORE = "stored"
    RETURN = "returned"
    COMPUTED = "computed with on the device"
    CONTROL = "needed to decide what happens next"
    NEEDED = "needed on the host"


_SHAPES = frozenset(("view", "reshape"))
_IN_PLACE = words("mul_ div_ add_ sub_ pow_")
"""Methods that tensors alone have, and that take numbers and tensors alike."""

NOW = frozenset((Sink.NEEDED, Sink.CONTROL))
"""What a value is for that the host cannot go on without."""

IDLE_SINKS = frozenset((Sink.ACCUMULATE, Sink.COLLECT, Sink.LOG, Sink.METER, Sink.METRIC, Sink.STORE))
"""Uses that can wait: none of them decides what the next step does."""

_LOG_CALLS = made(
    r"^(?:print|pprint|rprint|tprint|format|str|repr|write|info|debug|warning|warn|error|set_postfix|set_postfix_str|log"
    r"|set_description|set_description_str|add_scalar|add_scalars|log_metrics|log_dict|log_scalar|log_metric|log_scalars"
    r"|progress_bar|scalar_summary|add_row|logkv|record_tabular|echo|track|report|display|add_histogram|plot|dump|line"
    r"|log_training|log_validation|log_losses|print_status|update_task|advance|text|msg|logger)$"
)
_BAR = made(r"(?:bar|tqdm|progress|prog)$", re.I)
"""What shows how far a loop is: it compares what it is given with what it has shown."""
_METER_CALLS = words(
    """
    update add append_value add_value put meter step_update accumulate push
    """
)
_COLLECT_CALLS = words(
    """
    append extend insert add appendleft concatenate vstack hstack
    """
)
_JOINS = frozenset(("concatenate", "vstack", "hstack"))
_METRIC = made(
    r"acc(?:uracy)?\b|_acc|metric|f1|auc|roc|recall|precision|iou|confusion|psnr|ssim|mse|mae|rmse|perplex|wer\b|cer\b"
    r"|bleu|rouge|dice|score|correct|r2|ndcg|mrr|hits?_at|evaluat|compute_loss|(?<!td_)(?<!td)error",
    re.I,
)
_ARITHMETIC_CALLS = words(
    """
    round float int abs sum max min len list tuple sqrt log exp log10 mean average array asarray squeeze argmax argmin
    reshape flatten tolist astype item detach transpose numpy cpu join zip isnan isinf isfinite stack view copy
    from_numpy where
    """
)


_CONTAINERS = words("dict OrderedDict Munch EasyDict AttrDict SimpleNamespace Namespace Box")
"""What only holds the values that it is given by name."""
_CRITERION = made(r"crit(?!ic)|loss(?:_f|$)", re.I)
"""A loss on the host gives a host value."""


class Sinks:
    """What becomes of host values, through local variables and returns."""

    def __init__(self, inference: Inference, loops: Loops) -> None:
        self.inference, self.loops = inference, loops
        self.follows_items = False
        """Whether the items of a list are being followed: whether they are needed does not depend on the lists they fill."""

    def of(self, scope: Scope, node: ast.expr, depth: int = 2) -> frozenset[Sink]:
        """Every use of the value of `node`."""
        return frozenset(_Fate(self, scope, depth, set()).ends(node))


class _Fate(Walk[Sink]):
    """Where a host value ends."""

    def __init__(self, sinks: Sinks, scope: Scope, depth: int, seen: set[object], entered: bool = False) -> None:
        """entered: what the scope returns is for a call that is looked at already."""
        super().__init__(scope, seen)
        self._sinks, self._depth, self._entered = sinks, depth, entered

    def judge(self, step: Step) -> Iterator[Sink | ast.AST | Definition]:
        match step.way:
            case Way.DELETED:
                return
            case Way.DROPPED:
                yield from [Sink.CONTROL] if isinstance(step.value, ast.BoolOp) else []
            case Way.TESTED | Way.COMPARED:
                yield step.result or Sink.CONTROL
            case Way.CONTAINED if _is_key(step):
                yield Sink.NEEDED
            case Way.CONTAINED if not self._entered and (place := _place_in_return(self.flow, step)) is not None:
                yield from self._returned(place)
            case Way.METHOD if step.name == "backward":
                yield Sink.NEEDED  # what the host computes a loss of
            case Way.ALIAS | Way.UNPACKED | Way.CONTAINED | Way.ATTRIBUTE | Way.METHOD | Way.ITEM | Way.FORMATTED | Way.CALLED:
                yield from filter(None, [step.result])
            case Way.BOUND:
                yield from step.definitions
            case Way.STORED:
                yield Sink.NEEDED if _is_of_optimizer(step.node) else Sink.STORE
            case Way.CHANGED:
                grows = isinstance(step.node, ast.AugAssign) and isinstance(step.value, ast.Name)
                yield from step.definitions if grows else [Sink.STORE]
            case Way.OPERAND:
                yield from self._added(step)
            case Way.ITERATED:
                yield step.result or Sink.NEEDED
            case Way.RETURNED:
                yield from self._returned()
            case Way.ARGUMENT:
                assert isinstance(step.node, ast.Call)
                sink = self._argument(step.node, step.value)
                if sink is Sink.NEEDED and self._is_shown_now_and_then(step.node):
                    yield Sink.LOG
                    return
                if sink is Sink.NEEDED:
                    yield from self._handed_on(step.node, step.value)
                    return
                yield sink or step.node
                if sink is Sink.METRIC:
                    yield step.node  # the step may go on with the score
            case Way.CAPTURED if step.name and step.name not in self.flow.inner_names:
                return  # whether functions look at a module's variable is not asked
            case _:
                yield Sink.NEEDED

    def _is_shown_now_and_then(self, call: ast.Call) -> bool:
        """Whether a call of which nothing becomes stands under a guard, such as `if step % 100 == 0: save_images(found)`."""
        guarded = any(is_guard(self.flow, block) for block in self.flow.block[call].ancestry())
        return guarded and isinstance(self.flow.parent.get(call), ast.Expr)

    def _value(self, node: ast.AST) -> Value:
        assert isinstance(node, ast.expr)
        return self._sinks.inference.value(self.scope, node)

    def _added(self, step: Step) -> Iterator[Sink | ast.AST]:
        target = _grown(self.flow, step)
        if self._meets_tensor(step):
            yield Sink.COMPUTED
        elif target is None:
            yield from filter(None, [step.result])
        elif self._value(step.value).must_be(Elements, Sequence):
            yield Sink.NEEDED if self._is_needed_at_once(target) else Sink.COLLECT
        else:
            yield Sink.LOG if _is_format(step.value) or self._value(step.value).must_be(Text) else Sink.ACCUMULATE
            if isinstance(target, ast.Name):
                yield from self._decides(target)

    def _meets_tensor(self, step: Step) -> bool:
        """Whether the other operand is a tensor that may be on the device: the result is one, too."""
        match step.node:
            case ast.BinOp(left=left, right=right):
                others = [side for side in (left, right) if side is not step.value]
            case ast.AugAssign(target=other) if other is not step.value and not isinstance(step.value, (ast.List, ast.Tuple)):
                others = [other]
            case _:
                return False
        return any(self._value(other).must_be_if_known(Tensor, Output) and _off_host(self._value(other)) for other in others)

    def _decides(self, target: ast.Name) -> Iterator[Sink]:
        """A running total that a condition inside the same step loop looks at."""
        loop = self._sinks.loops.around(self.scope, target)
        if loop is not None and _is_tested(self.flow, target.id, loop):
            yield Sink.CONTROL

    def _is_decided_by(self, call: ast.Call) -> bool:
        """Whether `tokens.append(token)` fills a list of which the same step loop needs an item, in a condition or to go on."""
        loop, sinks = self._sinks.loops.around(self.scope, call), self._sinks
        match call.func:
            case ast.Attribute(value=ast.Name(id=name)) if loop is not None and not sinks.follows_items:
                if _is_tested(self.flow, name, loop, items=True):
                    return True
                sinks.follows_items = True
                try:
                    return any(Sink.NEEDED in sinks.of(self.scope, item, 0) for item in _items_in(self.flow, name, loop))
                finally:
                    sinks.follows_items = False
        return False

    def _leads_on(self, call: ast.Call) -> bool:
        """`grid.update(values); points = grid.query()` in a `while len(points)`: what is no meter says what comes next."""
        loop = self.flow.loop(call)
        if not isinstance(call.func, ast.Attribute) or loop is None or not isinstance(loop.node, ast.While):
            return False
        tested = {node.id for node in walk(loop.node.test) if isinstance(node, ast.Name)}
        return any(
            definition.name in tested
            and isinstance(definition.value, ast.Call)
            and (path_of(definition.value.func) or "").rpartition(".")[0] == path_of(call.func.value)
            for definition in self.flow.definitions
            if definition.block is loop.block
        )

    def _is_needed_at_once(self, filled: ast.expr) -> bool:
        """Whether the function goes on with what an attribute has collected: `self.seen.append(x); quantile(self.seen)`."""
        name = path_of(filled.value if isinstance(filled, ast.Subscript) else filled) or ""
        _, _, filled_name = name.rpartition(".")
        if filled_name == name or self._depth <= 0:
            return False
        loop, filled_at = self._sinks.loops.around(self.scope, filled), self.flow.order[filled]
        looks = [
            node
            for node in self.flow.order
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and node.attr == filled_name
            and path_of(node) == name
            and (self.flow.within(node, loop.block) if loop is not None else self.flow.order[node] > filled_at)
            and not any(is_guard(self.flow, block) for block in self.flow.block[node].ancestry())
            and not _is_counted(self.flow.parent[node])
        ]
        return any(self._sinks.of(self.scope, look, 0) & {Sink.NEEDED, Sink.CONTROL} for look in looks)

    def _argument(self, call: ast.Call, node: ast.AST) -> Sink | None:
        """The sink that a call is for its argument; None when the argument lives on in the result."""
        name = (path_of(call.func) or getattr(call.func, "attr", "") or "").rpartition(".")[2]
        if not name and isinstance(call.func, ast.Attribute):
            name = call.func.attr
        if name in _JOINS and not self._grows(call):
            return None
        if name in _IN_PLACE and node in call.args[:1]:
            return Sink.COMPUTED
        if name in _COLLECT_CALLS:
            if isinstance(call.func, ast.Attribute) and self._is_needed_at_once(call.func.value):
                return Sink.NEEDED
            if self._is_decided_by(call):
                return Sink.CONTROL
            of_project = isinstance(call.func, ast.Attribute) and self._value(call.func.value).must_be(Instance)
            return Sink.METER if of_project else Sink.COLLECT
        if name == "write" and not self._value(node).may_be(Text):
            return Sink.NEEDED
        if name == "update" and isinstance(call.func, ast.Attribute) and _BAR.search(path_of(call.func.value) or ""):
            return Sink.LOG
        if name in _METER_CALLS:
            if isinstance(call.func, ast.Attribute) and self._value(call.func.value).may_be(Mapping):
                return Sink.STORE  # `shown.update({"loss": loss.item()})` of a dict
            return Sink.CONTROL if self._leads_on(call) else Sink.METER
        if name in _ARITHMETIC_CALLS and self._value(call.func).may(_is_in_a_library_of_numbers):
            return None
        if _LOG_CALLS.match(name) or (isinstance(call.func, ast.Attribute) and name == "format"):
            return Sink.LOG if name not in ("format", "str", "repr") else None
        if name in _ARITHMETIC_CALLS:
            return Sink.NEEDED if name in _SHAPES and isinstance(call.func, ast.Attribute) else None
        if name in _CONTAINERS:
            return None
        if name[:1].isupper():
            return Sink.NEEDED
        if _CRITERION.search(name):
            return Sink.NEEDED if self._is_factor(call, node) else None
        receiver = path_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if re.search(r"log(?:ger|ging)?$|wandb|writer|pbar|tqdm|bar$|console|viz", receiver or "", re.I):
            return Sink.LOG
        if re.search(r"meter|metric", receiver or "", re.I) or _METRIC.search(name):
            return Sink.METRIC
        if re.search(r"log|print|^(?:vis|viz|plot)_", name, re.I):
            return Sink.LOG
        return Sink.NEEDED

    def _handed_on(self, call: ast.Call, value: ast.AST) -> Iterator[Sink | ast.AST]:
        """What a function of the project does with what it is given; an object that only keeps it goes on in its place."""
        function = self._runs(call) if self._depth > 0 else None
        taken = None if function is None else parameter_of(function, call, value)
        if function is None or taken is None:
            yield Sink.NEEDED
            return
        inner = _Fate(self._sinks, function, self._depth - 1, self.seen, entered=True)
        ends = [*inner.ends(*(d for d in inner.flow.definitions_of(taken) if d.kind == "parameter"))]
        made = function.name == "__init__"
        for end in ends:
            if end is not Sink.RETURN:  # what an object keeps that others have, they may look at in the same step
                yield Sink.NEEDED if end is Sink.STORE and not made else end
        if Sink.RETURN in ends or made:
            yield call

    def _runs(self, call: ast.Call) -> Scope | None:
        """The one function of the project that a call runs: of a class its constructor."""
        match self._value(call.func).single:
            case FunctionRef(scope=function):
                return function
            case ClassRef(cls):
                return find_method(self._sinks.inference, cls, "__init__")
        return None

    def _grows(self, call: ast.Call) -> bool:
        """Whether what a call joins is bound to a name of one of the parts: `rows = np.concatenate((rows, row))`."""
        statement = self.flow.statement(call)
        if not isinstance(statement, ast.Assign):
            return False
        parts = {path_of(node) for given in call.args for node in ast.walk(given)} - {None}
        return any(path_of(target) in parts for target in statement.targets)

    def _is_factor(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether an argument is a plain number beside others: the result need not be a host value, too."""
        if len(call.args) + len(call.keywords) < 2:
            return False
        value = self._value(node)
        return value.may_be(Number) and not value.may_be(Tensor)

    def _returned(self, place: int | None = None) -> Iterator[Sink]:
        """What becomes of a result, or of the part of it that stands at a place of a tuple."""
        if self._entered:
            yield Sink.RETURN
            return
        calls = self._sinks.loops.hot_calls(self.scope) or self._sinks.inference.callers.sites(self.scope).sites
        if not calls or self._depth <= 0:
            yield Sink.RETURN
        for call in calls if self._depth > 0 else ():
            fate = _Fate(self._sinks, call.scope, self._depth - 1, self.seen)
            yield from fate.ends(*_parts_taken(fate.flow, call.node, place))


def _is_format(node: ast.AST) -> bool:
    """`"loss %.4f" % loss.item()`."""
    match node:
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            return True
    return False


def _off_host(value: Value) -> bool:
    """Whether something is known of a value, and not that it is on the host."""
    return bool(value.alternatives) and not value.may(lambda a: place_of(a) is Place.HOST)


def _is_counted(parent: ast.AST) -> bool:
    return isinstance(parent, ast.Call) and path_of(parent.func) == "len"


def _grown(flow: Flow, step: Step) -> ast.expr | None:
    """What a value is added to: by `total += value`, or by `total = total + value`."""
    match step.node, flow.parent.get(step.node):
        case ast.AugAssign(target=target), _:
            return target
        case ast.BinOp(left=ast.Name(id=before) as left, op=ast.Add(), right=added) as grown, ast.Assign(
            targets=[ast.Name(id=name) as target]
        ):
            if added is step.value and before == name and any(d.value is grown for d in flow.reaching.get(left, ())):
                return target  # what it was in the round before
    return None


def _place_in_return(flow: Flow, step: Step) -> int | None:
    """Which place a value has in the tuple that a function returns: `return loss, hits.item()`."""
    match step.node, flow.parent.get(step.node):
        case ast.Tuple(elts=parts), ast.Return() if not any(isinstance(part, ast.Starred) for part in parts):
            return next(i for i, part in enumerate(parts) if part is step.value)
    return None


def _parts_taken(flow: Flow, call: ast.Call, place: int | None) -> list[ast.AST | Definition]:
    """Where a result goes on, or the part of it that `loss, hits = step(...)` takes from a place; else all of it."""
    match flow.parent.get(call):
        case ast.Assign(targets=[ast.Tuple(elts=targets)]) if place is not None and place < len(targets):
            if all(isinstance(target, ast.Name) for target in targets):
                return [*flow.definitions_at(targets[place])]
    return [call]


def _is_of_optimizer(target: ast.AST) -> bool:
    """`optimizer.param_groups[0]["lr"]`, `group["lr"]`: the next step needs it."""
    return isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and "group" in ast.unparse(target.value)


def _is_key(step: Step) -> bool:
    """Whether a value is the key of a dict, which is looked up by it."""
    match step.node:
        case ast.Dict(keys=keys):
            return any(key is step.value for key in keys)
        case ast.DictComp(key=key):
            return key is step.value
    return False


def _is_in_a_library_of_numbers(alternative: Alternative) -> bool:
    return isinstance(alternative, External) and alternative.qualname.partition(".")[0] in ("torch", "numpy", "math")


def _is_tested(flow: Flow, name: str, loop: Loop, items: bool = False) -> bool:
    """Whether a condition inside a loop looks at a variable, or at an item of it."""
    return any(
        flow.within(use, loop.block) and _in_test(flow, use) and (not items or _looks_inside(flow.parent[use]))
        for definition in flow.definitions_of(name)
        for use in flow.uses[definition]
    )


def _looks_inside(parent: ast.AST) -> bool:
    """`x[0]`, `1 in x`."""
    inside = isinstance(parent, ast.Compare) and any(isinstance(op, (ast.In, ast.NotIn)) for op in parent.ops)
    return inside or isinstance(parent, ast.Subscript)


def _items_in(flow: Flow, name: str, loop: Loop) -> Iterator[ast.Subscript]:
    """Where a loop looks at items of a list."""
    for definition in flow.definitions_of(name):
        for use in flow.uses[definition]:
            parent = flow.parent[use]
            if isinstance(parent, ast.Subscript) and parent.value is use and flow.within(use, loop.block):
                yield parent


def _in_test(flow: Flow, node: ast.AST) -> bool:
    for ancestor in flow.ancestors(node):
        if isinstance(ancestor, (ast.If, ast.While)):
            return any(n is node for n in ast.walk(ancestor.test))
        if isinstance(ancestor, ast.stmt):
            return False
    return False
