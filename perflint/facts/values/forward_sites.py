"""The calls `net(x)` that run a forward pass of the project: they do not say its name."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from functools import partial

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.operations import operations
from perflint.facts.values import classes
from perflint.facts.values.call_sites import CallSite
from perflint.facts.values.frames import MAX_DEPTH, Inferring
from perflint.facts.values.held_modules import modules
from perflint.facts.values.values import (
    Alternative,
    Batch,
    Elements,
    FunctionRef,
    Instance,
    Mapping,
    Object,
    Output,
    Place,
    Sequence,
    Tensor,
    Value,
    is_none,
    join,
    one,
)
from perflint.source.ordered import OrderedFrozenSet
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import words

FORWARD = ("forward", "__call__")
_NO_NETWORKS = frozenset(("torch", "np", "nn", "F", "numpy", "functional", "os", "math", "random", *dir(builtins)))
_SCATTERING = words("torch.nn.DataParallel torch.nn.parallel.DataParallel torch.nn.parallel.DistributedDataParallel")
"""Modules that copy what they are given to the device of the module inside of them."""


def is_forward(inference: Inferring, scope: Scope) -> bool:
    """Whether a function is what calling a module of the project runs."""
    return scope.owner is not None and scope.name in FORWARD and classes.is_module(inference, scope.owner)


def forward_sites(inference: Inferring, scope: Scope, files: Set[str]) -> tuple[CallSite, ...]:
    """The calls in a function's own file, and in some others, that run this forward pass."""
    near = (file for file in sorted({scope.module.source.path, *files}) if inference.project.near_training(file))
    return tuple(site for file in near for site in _sites_in(inference, file).get(scope, ()))


def _sites_in(inference: Inferring, file: str) -> dict[Scope, list[CallSite]]:
    """The forward passes that a file runs, each with the calls that run it."""
    nothing: dict[Scope, list[CallSite]] = {}
    return inference.solver.solve(("forward passes", file), lambda: _find(inference, file), nothing)


def _find(inference: Inferring, file: str) -> dict[Scope, list[CallSite]]:
    found: dict[Scope, list[CallSite]] = {}
    module = inference.project.module(file)
    for caller in (module.top, *module.functions()) if module is not None else ():
        try:
            calls = flow_of(caller).calls
        except SyntaxProblem:
            continue
        for call in calls:
            if _may_be_network(caller, call):
                sites = {site.function.scope: site for site in _run_by(inference, caller, call)}
                for scope, site in sites.items():
                    found.setdefault(scope, []).append(site)
    return found


def _may_be_network(caller: Scope, call: ast.Call) -> bool:
    if not call.args and not call.keywords:
        return False
    match call.func:
        case ast.Name(id=name):
            return not name[:1].isupper() and name not in _NO_NETWORKS and name not in caller.module.scopes
        case ast.Attribute(attr="forward"):
            return True
        case ast.Attribute(attr=name, value=ast.Name(id="self")) if caller.owner is not None:
            return name not in caller.owner.methods
        case ast.Attribute(attr=name):
            first = (path_of(call.func) or "").partition(".")[0]
            return bool(first) and first not in _NO_NETWORKS and operations.method(name) is None
        case ast.Subscript() | ast.Call():
            return True
    return False


def _run_by(inference: Inferring, caller: Scope, call: ast.Call) -> Iterator[CallSite]:
    """The forward passes that a call runs."""
    callee = call.func
    direct = isinstance(callee, ast.Attribute) and callee.attr == "forward"
    held = callee.value if isinstance(callee, ast.Attribute) and direct else callee
    if classes.is_super_call(held):
        above = classes.ancestors(inference, caller.owner)[1:] if caller.owner is not None else []
        overridden = (cls.methods["forward"] for cls in above if not isinstance(cls, str) and "forward" in cls.methods)
        first = next(overridden, None)
        if first is not None and caller.owner is not None:
            yield CallSite(caller, call, FunctionRef(first, one(Instance(caller.owner))))
        return
    called = inference.value(caller, held).alternatives or modules(inference, caller, held)
    for alternative in called:
        for module, scatters in _inside(inference, alternative):
            methods = (classes.find_method(inference, module.cls, name) for name in (("forward",) if direct else FORWARD[::-1]))
            method = next(filter(None, methods), None)
            if method is not None:
                yield CallSite(caller, call, FunctionRef(method, one(module)), scatters)


def _inside(inference: Inferring, alternative: Alternative) -> Iterator[tuple[Instance, bool]]:
    """The modules of the project that a call of something runs, and whether what it is given is scattered by a wrapper."""
    match alternative:
        case Instance():
            yield alternative, False
        case Object(qualname, site=(Scope() as scope, ast.Call(args=[held, *_]))) if qualname in _SCATTERING:
            for inner in inference.infer(held, inference.frame(scope, (), MAX_DEPTH - 1)).alternatives:
                if isinstance(inner, Instance):
                    yield inner, True


def passed(given: Iterable[tuple[CallSite, Value]], declared: Value) -> Value:
    """What a forward pass is given, by the calls that are known; open, for a network may be called in any other way, too."""
    seen = join(
        [value.map(_scattered if site.scatters else partial(_as_passed, guess=_is_guess(value))) for site, value in given]
    )
    known = seen.without(is_none)
    alternatives = seen.alternatives if known.alternatives else (*seen.alternatives, *declared.alternatives)
    return Value(OrderedFrozenSet(alternatives), open=True)


def _as_passed(alternative: Alternative, guess: bool = False) -> Value:
    """What is known of an argument in every call: who else holds its memory, or its graph, differs.

    A batch of which nobody sees that it is copied is where the network is, and so is what was computed from a guess.
    """
    match alternative:
        case Batch(place=place):
            return one(Output(Place.UNKNOWN if place is Place.HOST else place))
        case Tensor(place, ndim, dtype, guessed=guessed):
            unseen = guess and not guessed and place is Place.HOST
            return one(Tensor(Place.UNKNOWN if unseen else place, ndim, dtype, guessed=guessed))
    return _parts(alternative, partial(_as_passed, guess=guess)) or one(alternative)


def _is_guess(value: Value) -> bool:
    """Whether what is known of a value's place rests on a name; not where it was copied to the host, whatever it is."""
    return value.open and not value.may(lambda a: isinstance(a, Tensor) and a.guessed and a.place is Place.HOST)


def _scattered(alternative: Alternative) -> Value:
    match alternative:
        case Tensor(place=Place.HOST) | Batch(place=Place.HOST) | Output(place=Place.HOST):
            return _as_passed(replace(alternative, place=Place.CUDA_OR_HOST))
    return _parts(alternative, _scattered) or _as_passed(alternative)


def _parts(alternative: Alternative, change: Callable[[Alternative], Value]) -> Value | None:
    """A container with a change made in its parts; None for what is none."""
    match alternative:
        case Sequence(items, mutable):
            return one(Sequence(tuple(item.map(change) for item in items), mutable))
        case Mapping(items, rest):
            return one(Mapping(tuple((key, item.map(change)) for key, item in items), rest.map(change)))
        case Elements(element):
            return one(replace(alternative, element=element.map(change)))
    return None
