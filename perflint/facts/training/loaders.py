"""Calls that make a DataLoader: their arguments, the dataset behind them, who goes over their batches.

All answers are three-valued: an argument that may be hidden in `**kwargs` is neither given nor missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from perflint.facts.dataflow.definitions import Loop, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.reach import called_from
from perflint.facts.training.datasets import drawn_samples, runs_at_first, written_samples
from perflint.facts.training.dead_ends import always_ends, ends_first
from perflint.facts.training.given_options import declares, is_given, sets
from perflint.facts.training.kept_samples import is_kept_by_key, is_kept_whole
from perflint.facts.training.switched_off import is_switched_off
from perflint.facts.training.taken_batches import may_move, takers_of
from perflint.facts.values import classes
from perflint.facts.values.arguments import argument
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.derived_values import item_at
from perflint.facts.values.values import (
    NOTHING,
    UNKNOWN,
    Alternative,
    ClassRef,
    External,
    FunctionRef,
    Instance,
    Literal,
    Loader,
    Mapping,
    Object,
    Sequence,
    Value,
    join,
    one,
)
from perflint.source.nodes import defaults_of
from perflint.source.records import dataclass
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import any_layout

DATA_LOADER = "torch.utils.data.DataLoader"

_ORDER = """
    dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last timeout worker_init_fn
    multiprocessing_context generator
"""
_POSITIONS = {name: position for position, name in enumerate(_ORDER.split())}
"""Of `torch.utils.data.DataLoader`; further arguments are given by name only."""

_WRAPPERS = frozenset(("Subset", "ConcatDataset", "ChainDataset", "StackDataset"))
"""Datasets of torch that hand on the items of others."""

_ITERABLE = frozenset(("torch.utils.data.IterableDataset",))
_SAMPLES = ("__getitem__", "__getitems__", "__iter__", "__next__")
_FEW_BATCHES = 4
"""In so short an epoch next to nothing can be made ahead, and workers start anew for each one."""
_FEW_SAMPLES = 100
_USUAL_BATCH = 32
"""What is taken for the size of a batch that an option gives."""
REACH = 3
"""How many calls deep the code that makes a sample is followed."""


@dataclass(frozen=True)
class Dataset:
    """A class of the project whose instances a loader reads."""

    cls: Class
    is_iterable: bool
    """Whether it derives from `torch.utils.data.IterableDataset`."""


class LoaderCall:
    """One construction of a loader."""

    def __init__(self, facts: Facts, scope: Scope, call: ast.Call) -> None:
        self.facts, self.scope, self.call = facts, scope, call

    @classmethod
    def all_in(cls, facts: Facts, scope: Scope, calls: Iterable[ast.Call]) -> Iterator[LoaderCall]:
        """Those of some calls of a scope that make a loader of torch's own class, or one that derives from it."""
        for call in calls:
            if facts.inference.value(scope, call).must(lambda a: isinstance(a, Loader) and a.site is not None):
                yield cls(facts, scope, call)

    @classmethod
    def kindred(cls, facts: Facts, scope: Scope, calls: Iterable[ast.Call]) -> Iterator[LoaderCall]:
        """Those that make a loader of another package, or of a class of the project that hands its arguments on to torch's."""
        for loader in cls.all_in(facts, scope, (call for call in calls if "DataLoader" in last_name(call.func))):
            made = facts.inference.value(scope, loader.call.func)
            if made.must(lambda a: isinstance(a, External) or (isinstance(a, ClassRef) and _hands_arguments_on(facts, a.cls))):
                yield loader

    # -- arguments ---------------------------------------------------------------------------------------------------

    def argument(self, name: str) -> ast.expr | None:
        """The expression that is written for an argument."""
        return argument(self.call, _POSITIONS.get(name), name)

    def gives(self, name: str) -> bool | None:
        """Whether an argument is given; None where `*args` or `**kwargs` may hold it."""
        if self.argument(name) is not None:
            return True
        if name in _POSITIONS and any(isinstance(a, ast.Starred) for a in self.call.args):
            return None
        unknown = self._may_be_set_by_class(name)
        for keyword in self.call.keywords:
            if keyword.arg is None:
                held = self._holds(keyword.value, name)
                if held:
                    return True
                unknown |= held is None
        return None if unknown else False

    def _may_be_set_by_class(self, name: str) -> bool:
        """Whether a class of the project may give an argument itself: `kwargs.setdefault("num_workers", 8)`."""
        made = self.facts.inference.value(self.scope, self.call.func).alternatives
        found = (classes.find_method(self.facts.inference, a.cls, "__init__") for a in made if isinstance(a, ClassRef))
        for method in (method for method in found if method is not None):
            default = defaults_of(method.node).get(name)
            is_off = isinstance(default, ast.Constant) and not default.value
            if not is_off and any_layout(rb"\b%s\b" % name.encode()).search(method.text):
                return True
        return False

    def _holds(self, node: ast.expr, key: str) -> bool | None:
        """Whether a mapping has a key."""
        value = self.facts.inference.value(self.scope, node)
        if value.open or not value.alternatives or not value.must_be(Mapping):
            return None
        held = {key in dict(a.items) for a in value.alternatives if isinstance(a, Mapping)}
        if held == {True}:
            return True
        if held != {False} or any(isinstance(a, Mapping) and a.rest.open for a in value.alternatives):
            return None
        return False if self._is_complete(node) else None

    def _is_complete(self, node: ast.expr) -> bool:
        """Whether nothing adds keys to a mapping behind its display."""
        if isinstance(node, ast.Dict):
            return True
        flow = flow_of(self.scope)
        if not isinstance(node, ast.Name) or any(d.kind == "parameter" for d in flow.definitions_of(node.id)):
            return False
        if not flow.definitions_of(node.id) or node.id in flow.inner_names:
            return False
        stored = any(isinstance(store, ast.Subscript) and path_of(store.value) == node.id for store in flow.stores)
        calls = (c for name in ("update", "setdefault") for c in flow.calls_named[name])
        return not stored and not any(isinstance(c.func, ast.Attribute) and path_of(c.func.value) == node.id for c in calls)

    def literal(self, name: str, default: object) -> object:
        """The literal value of an argument, `default` if it is surely not given; `Ellipsis` when it is not known."""
        node = self.argument(name)
        if node is None:
            return default if self.gives(name) is False else ...
        return self.facts.inference.value(self.scope, node).literal

    def given(self, name: str) -> list[Value]:
        """What an argument may be where it is given, also by dicts that are spread."""
        inference = self.facts.inference
        node = self.argument(name)
        if node is not None:
            return [inference.value(self.scope, node)]
        options = (inference.value(self.scope, k.value) for k in self.call.keywords if k.arg is None)
        return [item_at(value.without(lambda a: _lacks(a, name)), name) for value in options]

    @property
    def workers(self) -> int | None:
        """How many workers it has; None when that is not known."""
        found = self.literal("num_workers", 0)
        return found if type(found) is int else None

    @property
    def is_left_without_workers(self) -> bool:
        """Whether it has no workers as far as the project tells: nor does a file of settings or a command give it some."""
        if self.workers is not None or self.argument("num_workers") is None:
            return self.workers == 0
        name, project = self.worker_option, self.facts.project
        if name is None or project.configured(name) != {"0.0"}:
            return False
        return not is_given(project, name) and not project.program_holds(self.scope.module.source.path, sets(name))

    @property
    def worker_option(self) -> str | None:
        """The name of the option that its number of workers is: `args.num_workers`, `config["workers"]`."""
        node = self.argument("num_workers")
        return _option_behind(self.facts, self.scope, node, REACH) if node is not None else None

    @property
    def may_have_workers(self) -> bool:
        """Whether a number above 0 is written that may be its number of workers: a default, or one branch's."""
        node, given = self.argument("num_workers"), self.given("num_workers")
        if any(v.may(lambda a: isinstance(a, Literal) and type(a.value) is int and a.value > 0) for v in given):
            return True
        nodes = [node] if node is not None else self.written("num_workers")
        return not any(v.may_be(Literal) for v in given) and any(map(self._is_above_0, nodes))

    def written(self, name: str) -> list[ast.expr]:
        """What dicts that are spread into the call's arguments are made with under a name, or get by `update`."""
        found: list[ast.expr] = []
        for made in self._spread():
            match made:
                case ast.Call(keywords=keywords):
                    found += [k.value for k in keywords if k.arg == name]
                case ast.Dict(keys=keys, values=values):
                    found += [v for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant) and k.value == name]
        return found

    def _spread(self) -> list[ast.expr | None]:
        """The expressions that make dicts which are spread into the call's arguments, or which those are updated by."""
        flow = flow_of(self.scope)
        spread = [k.value for k in self.call.keywords if k.arg is None]
        names = {path_of(node) for node in spread} - {None}
        updates = [
            c for c in flow.calls_named["update"] if isinstance(c.func, ast.Attribute) and path_of(c.func.value) in names
        ]
        held = [*spread, *(c.args[0] for c in updates if len(c.args) == 1 and not c.keywords)]
        bound = (flow.reaching.get(node) or (None,) for node in held)
        return [d.value if d is not None else None for definitions in bound for d in definitions]

    @property
    def has_own_options(self) -> bool:
        """Whether all that it is given stands in its call, and in dicts that the same function writes out."""
        made, starred = self._spread(), any(isinstance(a, ast.Starred) for a in self.call.args)
        written = (isinstance(m, ast.Dict) or (isinstance(m, ast.Call) and path_of(m.func) == "dict") for m in made)
        return all(written) and not starred

    def _is_above_0(self, node: ast.expr) -> bool:
        """Whether an expression is the number of cores, or called like an option that is above 0 by default."""
        match node:
            case ast.Constant(value=int(number)):
                return number > 0
            case ast.Call(func=func) if last_name(func) == "cpu_count":
                return True
            case ast.Call(func=ast.Name(id="int" | "min"), args=parts):
                return any(map(self._is_above_0, parts))
            case ast.BinOp(left=left, op=ast.Mult() | ast.FloorDiv() | ast.Div() | ast.Sub()):
                return self._is_above_0(left)
            case ast.Attribute(value=held, attr=name) if path_of(held) != "self":
                return self._is_set_above_0(name)
            case ast.Subscript(slice=ast.Constant(value=str() as name)):
                return self._is_set_above_0(name) or "worker" in name  # of a file of settings, which nobody reads here
        return False

    def _is_set_above_0(self, name: str) -> bool:
        return self._is_declared(name, rb"(?:[1-9]|(?:\w+ \. )*cpu_count \()")

    def _is_declared(self, name: str, default: bytes) -> bool:
        return self.facts.project.program_holds(self.scope.module.source.path, declares(name, default))

    # -- the dataset -------------------------------------------------------------------------------------------------

    @cached_property
    def dataset(self) -> Value:
        """What the dataset argument may be."""
        node = self.argument("dataset")
        return self.facts.inference.value(self.scope, node) if node is not None else UNKNOWN

    @cached_property
    def samples(self) -> Value:
        """The datasets that it gives samples of, but for those of torch that hand on the samples of others."""
        node = self.argument("dataset")
        return join(_innermost(self.facts, self.scope, node, 4)) if node is not None else UNKNOWN

    @cached_property
    def datasets(self) -> tuple[Dataset, ...]:
        """The classes of the project among them."""
        inference = self.facts.inference
        held = dict.fromkeys(a.cls for a in self.samples.alternatives if isinstance(a, Instance))
        return tuple(Dataset(cls, classes.derives_from(inference, cls, _ITERABLE)) for cls in held)

    @property
    def knows_all_datasets(self) -> bool:
        """Whether nothing but `datasets` is behind it."""
        return self.samples.must_be(Instance)

    @property
    def has_few_batches(self) -> bool:
        """Whether an epoch is a few batches, or some dozens of samples, as far as their number is written out."""
        node, sampler = self.argument("dataset"), self.argument("sampler")
        samples = written_samples(self.facts, self.scope, node) if node is not None else None
        if samples is None and node is not None:
            samples = _part_of_split(self.facts, self.scope, node)
        if samples is None and sampler is not None:
            samples = drawn_samples(self.facts, self.scope, sampler)
        return samples is not None and samples <= max(_FEW_BATCHES * self._samples_per_batch(), _FEW_SAMPLES)

    def _samples_per_batch(self) -> int:
        """As it is written, as the files of settings say, or what is usual."""
        written, size = self.argument("batch_size"), self.literal("batch_size", 1)
        if isinstance(size, int):
            return size
        set_to = self.facts.project.configured(last_name(written)) if written is not None else frozenset[str]()
        only = next(iter(set_to)) if len(set_to) == 1 else ""
        return int(float(only)) if only.replace(".", "", 1).isdecimal() else _USUAL_BATCH

    def sample_code(self) -> list[Scope]:
        """The functions of the project that run for each sample: of its datasets, its collate function, and what they call."""
        return list(called_from(self.facts, *self._makes_samples(), *self._collates(), depth=REACH))

    def code_of_each_sample(self) -> list[Scope]:
        """Those of `sample_code` that run for each sample in all epochs, also if nobody gives an option."""
        run = self.sample_code()
        return [scope for scope in run if not runs_at_first(self.facts, scope) and not self._is_called_for_none(scope, run)]

    def _is_called_for_none(self, scope: Scope, run: list[Scope]) -> bool:
        sites = [site for site in self.facts.inference.callers.sites(scope).sites if any(site.scope is other for other in run)]
        return bool(sites) and all(self._is_left_out(site.scope, site.node) for site in sites)

    def sample_calls(self, scope: Scope) -> Iterator[tuple[ast.Call, bool]]:
        """The calls in code of each sample that run for each one; whether one alone makes what all others use."""
        flow = flow_of(scope)
        yield from ((call, is_kept_whole(flow, call)) for call in flow.calls if not self._is_left_out(scope, call))

    def _is_left_out(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call is made once for each sample, or only if somebody gives an option: `if self.lazy`."""
        return is_kept_by_key(flow_of(scope), call) or is_switched_off(self.facts, scope, call, depth=0)

    def _makes_samples(self) -> list[Scope]:
        inference = self.facts.inference
        methods = (classes.find_method(inference, dataset.cls, name) for dataset in self.datasets for name in _SAMPLES)
        return [method for method in methods if method is not None]

    def collate_code(self) -> list[Scope]:
        """The functions of the project that make batches of samples: its collate function, and what that calls."""
        return list(called_from(self.facts, *self._collates(), depth=REACH))

    def _collates(self) -> list[Scope]:
        collate = self.argument("collate_fn")
        found = self.facts.inference.value(self.scope, collate).alternatives if collate is not None else ()
        return [a.scope for a in found if isinstance(a, FunctionRef)]

    # -- who goes over it --------------------------------------------------------------------------------------------

    def loops_in(self, scope: Scope) -> Iterator[Loop]:
        """The loops of a scope that go over this loader's batches, also through `enumerate`, `tqdm` and the like."""
        try:
            flow = flow_of(scope)
        except SyntaxProblem:
            return
        for loop in flow.loops:
            node = loop.iterated
            while isinstance(node, ast.Call) and node.args and path_of(node.func) is not None:
                if self._is_self(scope, node):
                    break
                node = node.args[0]
            if node is not None and self._is_self(scope, node):
                yield loop

    @property
    def stays_on_host(self) -> bool:
        """Whether all who take its batches are known, and none of them copies a batch to a device."""
        takers = self.takers()
        return bool(takers) and not any(may_move(self.facts, scope, taker) for scope, taker in takers)

    def takers(self) -> list[tuple[Scope, ast.AST]]:
        """The loops that go over its batches, and the calls that draw one; none if others may take them, too."""
        found = takers_of(self.facts, self.scope, self.call)
        return found if all(node is not None for _, node in found) else []  # type: ignore[return-value]

    @property
    def ends_first(self) -> bool:
        """Whether making a sample ends with an error, or so does all that takes batches, before it gets one or a second one."""
        if any(always_ends(self.facts, method) for method in self._makes_samples()):
            return True
        takers = [(scope, taker.body[0] if isinstance(taker, ast.For) else taker) for scope, taker in self.takers()]
        return bool(takers) and all(ends_first(self.facts, scope, taker) for scope, taker in takers)

    @property
    def is_left(self) -> bool:
        """Whether it is bound to a name, and nobody goes over it."""
        bound = isinstance(flow_of(self.scope).parent.get(self.call), ast.Assign)
        return bound and not takers_of(self.facts, self.scope, self.call)

    def _is_self(self, scope: Scope, node: ast.expr) -> bool:
        value = self.facts.inference.value(scope, node)
        return value.may(lambda a: isinstance(a, Loader) and a.site == (self.scope, self.call))


def _option_behind(facts: Facts, scope: Scope, node: ast.expr, depth: int) -> str | None:
    """The name of the option that an expression is, maybe handed on by parameters and attributes of objects."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if depth and scope.owner is not None:
            setters = scope.owner.methods_assigning(name)
            stored = [d.value for d in flow_of(setters[0]).definitions if d.name == path_of(node)] if len(setters) == 1 else []
            only = stored[0] if len(stored) == 1 else None
            return _option_behind(facts, setters[0], only, depth - 1) if only is not None else None
        case ast.Attribute(value=held, attr=name) if path_of(held) != "self":
            return name
        case ast.Subscript(slice=ast.Constant(value=str() as name)):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str() as name), ast.Constant(value=0)]):
            return name
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return _option_behind(facts, scope, inner, depth)
        case ast.Name(id=name) if depth:
            found = flow_of(scope).reaching.get(node, frozenset())
            bound = next(iter(found)) if len(found) == 1 else None
            if bound is not None and bound.kind == "assign" and not bound.index and bound.value is not None:
                return _option_behind(facts, scope, bound.value, depth - 1)
            if bound is not None and bound.kind == "parameter":
                return _option_given(facts, scope, name, depth - 1)
    return None


def _option_given(facts: Facts, scope: Scope, parameter: str, depth: int) -> str | None:
    """The name of the option that all calls in sight give a parameter."""
    names: set[str | None] = set()
    for site in facts.inference.callers.sites(scope).sites:
        written = given(scope, site.node, parameter)
        names.add(_option_behind(facts, site.scope, written, depth) if written is not None else None)
    return next(iter(names)) if len(names) == 1 else None


def _lacks(alternative: Alternative, key: str) -> bool:
    """Whether a dict surely has no such key: `{} if on_cpu else {"num_workers": 4}`."""
    return isinstance(alternative, Mapping) and alternative.rest == NOTHING and key not in dict(alternative.items)


def _hands_arguments_on(facts: Facts, cls: Class) -> bool:
    """Whether a loader takes what it is given by name, and is not known, for the loader that it derives from."""
    method = classes.find_method(facts.inference, cls, "__init__")
    if method is None:
        return True
    rest = method.node.args.kwarg if isinstance(method.node, ast.FunctionDef) else None
    calls = flow_of(method).calls_named["__init__"] if rest is not None else []
    return any(k.arg is None and path_of(k.value) == rest.arg for call in calls for k in call.keywords if rest is not None)


def _split(facts: Facts, scope: Scope, node: ast.expr) -> tuple[ast.Call, int] | None:
    """The call of `random_split` that a name is bound to a part of, and which one."""
    bound = [d for d in flow_of(scope).reaching.get(node, ()) if d.kind == "assign" and len(d.index) == 1]
    made = bound[0].value if len(bound) == 1 == len(flow_of(scope).reaching[node]) else None
    part = bound[0].index[0] if made is not None else None
    if part is None or not isinstance(made, ast.Call) or not made.args:
        return None
    return (made, part) if facts.inference.value(scope, made.func).must(_is_random_split) else None


def _part_of_split(facts: Facts, scope: Scope, node: ast.expr) -> int | None:
    """How many samples are in a part that `random_split` is given a written length of."""
    match _split(facts, scope, node):
        case (ast.Call(args=[_, ast.List(elts=lengths) | ast.Tuple(elts=lengths), *_]), part) if part < len(lengths):
            length = facts.inference.value(scope, lengths[part]).literal
            return length if type(length) is int else None
    return None


def _innermost(facts: Facts, scope: Scope, node: ast.expr, depth: int) -> Iterator[Value]:
    """What a dataset hands on the samples of, through torch's wrappers and a part of what `random_split` gives."""
    split = _split(facts, scope, node) if depth else None
    if split is not None:
        yield from _innermost(facts, scope, split[0].args[0], depth - 1)
    else:
        yield from _unwrapped(facts, facts.inference.value(scope, node), depth)


def _unwrapped(facts: Facts, value: Value, depth: int) -> Iterator[Value]:
    for alternative in value.alternatives:
        match alternative:
            case Object(qualname, site=(Scope() as scope, ast.Call() as built)) if depth and _is_wrapper(qualname):
                given = [*built.args[:1], *(k.value for k in built.keywords if k.arg in ("dataset", "datasets"))]
                for node in given:
                    yield from _innermost(facts, scope, node, depth - 1)
                if not given:
                    yield UNKNOWN
            case Sequence(items) if depth:
                for item in items:
                    yield from _unwrapped(facts, item, depth - 1)
            case _:
                yield one(alternative)
    if value.open or not value.alternatives:
        yield UNKNOWN


def _is_random_split(callee: Alternative) -> bool:
    return (
        isinstance(callee, External)
        and callee.qualname.startswith("torch.utils.data")
        and callee.qualname.endswith(".random_split")
    )


def _is_wrapper(qualname: str) -> bool:
    package, _, name = qualname.rpartition(".")
    return name in _WRAPPERS and package.startswith("torch.utils.data")
