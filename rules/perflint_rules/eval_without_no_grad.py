"""A forward pass records a graph that nobody uses.

## What it does
Finds forward passes with autograd on, in evaluation functions (by their name, because they call `eval()`, or because all
of their callers have) and wherever the result is only detached, compared or turned into numbers.

## Why it costs memory and time
Every layer keeps what its backward pass would need, until the result is dropped. Reported: validation memory of 6.4 to
8.1 GB against 1.1 to 2.3 GB.

## Example
```python
def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        out = model(x)
        correct += (out.argmax(1) == y).sum().item()
    return correct
```

## Use instead
```python
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        out = model(x)
        correct += (out.argmax(1) == y).sum().item()
    return correct
```

## When it stays silent
Under `no_grad` or `inference_mode`, lexically, by a decorator or by every caller; in functions with a backward pass or
`autograd.grad`; in hooks that a framework runs without autograd; in the tests of a test suite (`test_...` in `test_*.py` or
`*_test.py`, and files that import pytest or unittest), which may run a network for its graph or its hooks; when the result
is back-propagated by a caller; when a function that neither measures, by its name, nor calls `eval()` returns the result of
a network that it was given.

## Fix safety
Safe when no tensor leaves the function with its graph (only numbers, arrays and detached tensors do), nothing that the
function calls, names, hands on or iterates over asks for gradients itself or keeps a tensor (modules, functions, properties,
operators, datasets), and the function is no generator and no coroutine. All that runs writes in place to nothing but what it
has made, makes no text, array or deep copy of a tensor that may have a graph, and the program registers no hooks and puts no
method in the place of another. Otherwise unsafe, so also where something unknown is given a tensor or a network.

Each layer must be known: one of torch's that were measured to give the same bits with and without autograd (9,294 comparisons,
torch 2.13 on the CPU), a container that is built from such layers in sight, or a class of the project that calls nothing else.
A network that is handed in from elsewhere, wrapped, compiled, pruned, quantised or changed from outside is unknown, and so are
methods that a decorator or a metaclass may replace, and functions that a notebook or `getattr` may call with another network.

Unsafe, too, with recurrent layers, `nn.MultiheadAttention`, `nn.Transformer` layers, `scaled_dot_product_attention`,
products of matrices other than those of linear layers, weight norms and some decompositions: torch runs other kernels for
them without autograd, whose results differ in the last bits (torch 2.13 on the CPU: an LSTM by up to 4e-8, an encoder layer
by up to 7e-7, attention with a learned bias by 1e-6, a stack of matrices times a computed weight by 2e-4 of results around
100; GRU and RNN on CUDA were not measured). And inside a region of `torch.autocast`: without pytorch#165068 (December 2025)
the region remembers converted weights without their graph, and what is trained in it afterwards gets no gradients.

The fix never uses `inference_mode`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from perflint.api import (
    NETWORK_CALL,
    OTHER_NETWORK,
    CallSite,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    External,
    Finding,
    GradEnd,
    GradUse,
    Import,
    Instance,
    Kind,
    Obligation,
    Severity,
    any_layout,
    backward_below,
    backward_in,
    flow_of,
    graph_ends,
    hidden_graphs,
    is_neural_module,
    kept_by,
    keyword,
    may_record,
    may_run_module,
    needs_graph,
    path_of,
    rule,
    surgery,
    suspends,
    words,
    wrap_statement,
)

_MEASURES = "eval|evaluate|evaluation|test|valid|validate|validation|vali|val|score|benchmark"
_MEASURE = re.compile(rf"(?:^|_)(?:{_MEASURES})(?:_|$|\d)", re.I)
_EVALUATES = re.compile(
    rf"(?:^|_)(?:{_MEASURES}|infer|inference|predict|prediction|sample|generate|embed|encode|extract)(?:_|$|\d)", re.I
)
_EVALUATION = any_layout(
    rb"def[\s\\]+\w*(?i:eval|test|val|infer|predict|sampl|generat|embed|encod|extract|scor|bench)\w* [\[(]"
)
_MAY_TRAIN = any_layout(rb"backward \(|zero_grad")
_READS = any_layout(rb"\. (?:item|detach|cpu|tolist) \(|argmax")
_EVAL = any_layout(rb"\. eval \(")
_REMEMBERED = Obligation(
    Kind.NO_AUTOCAST, "an autocast region around it may remember weights without their graph and train with them"
)
_NEXT = ("no-grad-to-inference-mode",)
_FRAMEWORK_HOOKS = frozenset(
    ("validation_step", "test_step", "predict_step", "training_step", "forward", "__call__", "training_epoch_end")
)
_FORWARD_METHODS = words(
    """
    forward generate encode decode sample predict get_action act
    """
)


@rule(
    category="autograd",
    costs=Cost.MEMORY,
    severity=Severity.WARNING,
    needs=[
        (_EVALUATION, "backward(", "zero_grad", ".eval(", ".item("),
        (".eval(", *keyword("for"), *keyword("while"), ".detach(", ".data", "argmax"),
        (NETWORK_CALL, ".eval("),
    ],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report forward passes whose graph is dropped."""
    scope = code.scope
    if _is_test(code) or scope.name in _FRAMEWORK_HOOKS or (scope.owner is not None and _is_module_method(code)):
        return
    if not _EVAL.search(code.source.body) and not code.facts.project.near_training(code.source.path):
        return
    unnamed = not _EVALUATION.search(scope.text) and not _MAY_TRAIN.search(scope.text)
    if unnamed and (scope.is_module or not (_calls_eval(code) or _called_in_evaluation(code))):
        return
    trains = backward_in(code.facts, scope)
    evaluates = not scope.is_module and not trains and (unnamed or _is_evaluation(code))
    if not evaluates and not trains and not scope.is_module:
        return
    forwards = [call for call in code.flow.calls if _is_forward(code, call)]
    if unnamed and (not forwards or backward_below(code.facts, scope)):
        return
    if evaluates and not forwards and _EVAL.search(scope.text):
        forwards = [call for call in code.flow.calls if _runs_forward(code, call)]
    rows = sorted({node.lineno for node in code.flow.order if isinstance(node, ast.stmt)})
    reported: list[int] = []
    for call in forwards:
        if code.grad_is_off(call) is not False or _frozen(code, call) or _switches_off(code, call):
            continue
        if evaluates:
            number = rows.index(code.flow.statement(call).lineno)
            if any(abs(number - other) <= 1 for other in reported):
                continue
        elif not _is_used(code, call):
            continue
        ends = graph_ends(code.facts, scope, call)
        if any(end.use is GradUse.BACKWARD for end in ends) or _back_propagated_by_caller(code, ends) or (unnamed and ends):
            continue
        if evaluates and _is_for_caller(code, call, ends):
            continue
        if evaluates:
            reported.append(number)
            missing = [Obligation(Kind.GRADIENT, f"somebody may want the graph of the result: {end.note}") for end in ends]
            missing += [reason for other in forwards for reason in _unsafe(code, other)]
            missing += _other_graphs(code, call)
            missing += [_REMEMBERED] if code.facts.grad_mode.may_be_called_in_autocast(scope) else []
            missing = missing or [*hidden_graphs(code.facts, scope)]
            missing = missing or [*filter(None, [kept_by(code.facts, scope, code.flow.calls, code.flow.order)])]
            fix = None
            if len(reported) == 1:
                fix = code.fix("switch autograd off for the function", _decorated(code), unless=missing, leads_to=_NEXT)
            message = "the evaluation records a graph that nobody uses; put `@torch.no_grad()` on the function"
            yield code.finding(call, message, fix, missing)
        elif not ends:
            missing = [reason for reason in (*_unsafe(code, call), _not_alone(code, call)) if reason]
            missing += [_REMEMBERED] if code.facts.grad_mode.may_autocast(scope, call) else []
            statement = code.flow.statement(call)
            missing = missing or [*hidden_graphs(code.facts, scope, statement)]
            nodes = [*ast.walk(statement)]
            calls = [node for node in nodes if isinstance(node, ast.Call)]
            missing = missing or [*filter(None, [kept_by(code.facts, scope, calls, nodes)])]
            fix = code.fix("switch autograd off for the call", _wrapped(code, call), unless=missing, leads_to=_NEXT)
            message = "this forward pass records a graph, and every use of its result drops it; run it under `torch.no_grad()`"
            yield code.finding(call, message, fix, missing)


def _is_test(code: Code) -> bool:
    """Whether the code is of a test suite, which may run a network for its graph or its hooks, and seldom for long."""
    name = Path(code.source.path).name
    named = code.scope.name.startswith("test_") and (name.startswith("test_") or name.endswith("_test.py"))
    return named or code.scope.module.holds(_TESTS)


_TESTS = any_layout(rb"^[\t\x20]*(?:import|from) (?:pytest|unittest)\b", re.M)


def _is_module_method(code: Code) -> bool:
    owner = code.scope.owner
    return owner is not None and is_neural_module(code.facts.inference, Instance(owner))


def _is_forward(code: Code, call: ast.Call) -> bool:
    inference = code.facts.inference
    if not may_run_module(call):
        return False
    if isinstance(call.func, ast.Attribute) and call.func.attr in _FORWARD_METHODS:
        if code.value(call.func.value).may(lambda a: is_neural_module(inference, a)):
            return True
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train"):
        return False
    name = (path_of(call.func) or "").rpartition(".")[2]
    if re.search(r"crit|loss", name, re.I):
        return False
    if isinstance(call.func, ast.Call):
        return False
    return bool(call.args or call.keywords) and code.value(call.func).may(lambda a: is_neural_module(inference, a))


def _runs_forward(code: Code, call: ast.Call) -> bool:
    """Whether a call runs a function of the project that is no module's and hands a batch to a network."""
    return bool(call.args) and any(
        (target.owner is None or not is_neural_module(code.facts.inference, Instance(target.owner)))
        and NETWORK_CALL.search(target.text)
        and any(
            _is_forward(inside, c) and inside.grad_is_off(c) is not True
            for inside in [Code(code.rule, target, code.facts, code.options)]
            for c in inside.flow.calls
        )
        for target in code.facts.loops.targets(code.scope, call)
    )


def _is_evaluation(code: Code) -> bool:
    if _EVALUATES.search(code.scope.name):
        return True
    return _calls_eval(code)


def _calls_eval(code: Code) -> bool:
    return any(isinstance(c.func, ast.Attribute) and not c.args for c in code.calls("eval"))


def _called_in_evaluation(code: Code) -> bool:
    """Whether all callers are known, and each of them has called `eval()` before."""
    if not _READS.search(code.scope.text) or not code.facts.project.program_holds(code.source.path, _EVAL):
        return False
    found = code.facts.inference.callers.sites(code.scope)
    return found.complete and bool(found.sites) and all(_after_eval(site) for site in found.sites)


def _after_eval(site: CallSite) -> bool:
    if not _EVAL.search(site.scope.text):
        return False
    flow = flow_of(site.scope)
    return any(
        flow.dominates(call, site.node)
        for call in flow.calls_named["eval"]
        if isinstance(call.func, ast.Attribute) and not call.args
    )


def _is_used(code: Code, call: ast.Call) -> bool:
    """Whether the result is used at all: a warm-up call is none of our business."""
    return not isinstance(code.flow.parent.get(call), ast.Expr)


_FREEZES = any_layout(rb"\. requires_grad = False")


def _frozen(code: Code, call: ast.Call) -> bool:
    """Whether the module's parameters are switched off, so that no graph is recorded."""
    name = path_of(call.func) or ""
    owner = name.partition(".")[0] if not name.startswith("self.") else name
    for switch in code.calls("requires_grad_", "requires_grad"):
        if any(isinstance(a, ast.Constant) and a.value is False for a in switch.args) and owner in ast.unparse(switch):
            return True
    for alternative in code.value(call.func).alternatives:
        if isinstance(alternative, Instance):
            init = alternative.cls.methods.get("__init__")
            if init is not None and _FREEZES.search(init.text):
                return True
    return any(
        isinstance(store, ast.Attribute)
        and store.attr == "requires_grad"
        and (loop := code.flow.block[store].loop) is not None
        and loop.iterated is not None
        and owner.rpartition(".")[2] in ast.unparse(loop.iterated)
        for store in code.flow.stores
    )


def _switches_off(code: Code, call: ast.Call) -> bool:
    """Whether the method that is called is itself decorated to run without autograd."""
    targets = code.facts.loops.targets(code.scope, call)
    return bool(targets) and all(any(code.facts.grad_mode.switches(t, d) for d in t.decorators) for t in targets)


def _back_propagated_by_caller(code: Code, ends: list[GradEnd]) -> bool:
    """Whether a caller runs a backward pass on what the function returns."""
    if not any(isinstance(end.node, ast.Return) for end in ends):
        return False
    for site in code.facts.inference.callers.sites(code.scope).sites:
        if any(end.use is GradUse.BACKWARD for end in graph_ends(code.facts, site.scope, site.node)):
            return True
    return False


def _is_for_caller(code: Code, call: ast.Call, ends: list[GradEnd]) -> bool:
    """Whether it is the caller who says what the pass is for: what he gave is run as it is, and its graph is returned."""
    if not any(isinstance(end.node, ast.Return) for end in ends) or _EVAL.search(code.scope.text):
        return False
    return code.value(call.func).open and not _MEASURE.search(code.scope.name)


def _unsafe(code: Code, call: ast.Call) -> Iterator[Obligation]:
    if suspends(code.flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function is a generator or a coroutine")
    targets = code.facts.loops.targets(code.scope, call)
    yield from needs_graph(code.facts, code.scope, call)
    yield from code.feared(*OTHER_NETWORK)
    yield from surgery(code.facts, code.source.path)
    callee = code.value(call.func)
    if callee.open or not (targets or callee.must(lambda a: is_neural_module(code.facts.inference, a))):
        yield Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(call.func)}` is not known, and may ask for gradients itself")


def _other_graphs(code: Code, reported: ast.Call) -> Iterator[Obligation]:
    """Tensors that another call computes than the reported one, but that leave the function and may belong to a graph."""
    for call in code.flow.calls:
        value = code.value(call)
        unknown = value.open and not value.alternatives and not code.value(call.func).must_be(External)
        if call is not reported and (unknown or may_record(value)):
            for end in graph_ends(code.facts, code.scope, call):
                if end.use is not GradUse.UNKNOWN:
                    yield Obligation(Kind.GRADIENT, f"`{ast.unparse(call.func)}`: {end.note} with its graph")
    for statement in code.flow.returns:
        if statement.value is not None and may_record(code.value(statement.value)):
            yield Obligation(Kind.GRADIENT, "a tensor is returned with its graph")
    for store in code.flow.stores:
        definitions = [d for d in code.flow.definitions_at(store) if d.value is not None]
        if any(d.value is not None and may_record(code.value(d.value)) for d in definitions):
            yield Obligation(Kind.GRADIENT, f"a tensor is stored in `{ast.unparse(store)}` with its graph")
    if _PARAMETERS.search(code.scope.text):
        for call in [c for name in ("print", "str", "repr") for c in code.flow.calls_named[name]]:
            if any(may_record(code.value(given)) for given in call.args):
                yield Obligation(Kind.GRADIENT, "a tensor of parameters may be printed with its graph")
    if _GRAD_SWITCH.search(code.scope.text):
        yield Obligation(Kind.GRADIENT, "the function looks at what requires gradients")
    if _NUMPY.search(code.scope.text) and _CATCHES.search(code.scope.text):
        yield Obligation(Kind.GRADIENT, "`numpy()` raises for a tensor of a graph, which may be caught here")


_PARAMETERS = any_layout(rb"parameters \(|\. (?:weight|bias)\b")
_NUMPY = any_layout(rb"\. numpy \(")
_CATCHES = re.compile(rb"\bexcept\b")
_GRAD_SWITCH = re.compile(rb"is_grad_enabled|set_grad_enabled|enable_grad|requires_grad")


def _not_alone(code: Code, call: ast.Call) -> Obligation | None:
    """Whether the statement computes anything but this forward pass and what is made of its result."""
    statement = code.flow.statement(call)
    node = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    while node is not None and node is not call:
        match node:
            case ast.Attribute(value=inner) | ast.Subscript(value=inner, slice=ast.Constant()):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner), args=args, keywords=keywords):
                given = [*args, *(k.value for k in keywords)]
                node = inner if all(isinstance(g, (ast.Constant, ast.UnaryOp)) for g in given) else None
            case _:
                node = None
    return None if node is call else Obligation(Kind.GRADIENT, "the statement computes something else, too")


def _decorated(code: Code) -> Iterator[Edit | Import]:
    function = code.scope.function
    if function is None or isinstance(function, ast.AsyncFunctionDef) or suspends(code.flow):
        raise CannotRewrite("a decorator has no effect on a coroutine")
    torch, imports = code.name_for("torch")
    yield from imports
    row = function.lineno
    start = code.source.starts[row - 1]
    line = code.source.line(row)
    indent = line[: len(line) - len(line.lstrip())]
    yield Edit(start, start, f"{indent}@{torch}.no_grad(){code.source.newline}")


def _wrapped(code: Code, call: ast.Call) -> Iterator[Edit | Import]:
    torch, imports = code.name_for("torch")
    yield from imports
    statement = code.flow.statement(call)
    yield wrap_statement(code.source, statement, f"with {torch}.no_grad():")
