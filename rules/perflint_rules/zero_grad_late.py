"""Old gradients stay alive during the forward pass.

## What it does
Finds `optimizer.zero_grad()` between the forward pass and the backward pass of a step.

## Why it costs memory
The gradients of the step before are still allocated while the activations of this step pile up. Cleared before the
forward pass (or right after the step), they are free by then: the peak is lower by up to one copy of the gradients, 4
bytes per parameter in float32. The time does not change, and neither do the weights.

## Example
```python
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
```

## When it stays silent
When another backward pass stands between the forward pass and the `zero_grad` (GANs: it must stay behind it), in closures,
with gradient accumulation (a condition around it), and when the forward pass comes after it.

## Fix safety
Safe when everything stands in one block without a way out, the optimizer is the same object, no gradient is read or copied
in between, and the forward pass runs no backward pass of its own (SAM, MAML, gradient penalties). No caller handles an error
and goes on, and the program registers no hooks and puts no method in the place of another.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    LOOKS_AT_OBJECTS,
    RUNS_WITHIN,
    WRAPPED,
    Alternative,
    Batch,
    Code,
    Cost,
    Edit,
    Elements,
    External,
    Finding,
    FunctionRef,
    Instance,
    Kind,
    Literal,
    Loop,
    Mapping,
    Number,
    Object,
    Obligation,
    Output,
    Scope,
    Sequence,
    Severity,
    Tensor,
    Text,
    any_layout,
    find_method,
    flow_of,
    hidden_runs,
    is_known_function,
    is_module_name,
    is_neural_module,
    is_optimizer,
    move_before,
    operations,
    path_of,
    rule,
    surgery,
    suspends,
    words,
)


@rule(category="optimizer", costs=Cost.MEMORY, severity=Severity.WARNING, needs=[("zero_grad",), ("backward",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each `zero_grad` that comes after the forward pass."""
    flow = code.flow
    for zero in code.calls("zero_grad"):
        statement = flow.statement(zero)
        if not isinstance(statement, ast.Expr) or statement.value is not zero or not isinstance(zero.func, ast.Attribute):
            continue
        backward = _backward_after(code, zero)
        if backward is None or not _repeats(code, zero):
            continue
        forward = _forward_before(code, zero, backward)
        if forward is None:
            continue
        missing = [*_missing(code, zero, forward)]
        siblings = flow.siblings(statement)
        target = next((s for s in siblings if s is forward), None)
        fix = None
        receiver = path_of(zero.func.value)
        if target is not None and not (receiver and _is_assigned(code, receiver, forward, zero)):
            fix = code.fix(
                "clear the gradients before the forward pass",
                _moved(code, statement, target, siblings),
                unless=missing,
            )
        message = (
            f"the last step's gradients stay alive during the forward pass of line {forward.lineno}; "
            "clear them before it to lower the memory peak"
        )
        yield code.finding(zero, message, fix, missing)


_ABOUT = re.compile(r"zero|grad|clear|reset", re.I)
"""A comment that speaks of clearing gradients; any other heads the lines below it and stays."""


def _moved(code: Code, statement: ast.stmt, target: ast.stmt, siblings: list[ast.stmt]) -> Iterator[Edit]:
    yield from move_before(code.source, statement, target, siblings, _ABOUT)


def _backward_after(code: Code, zero: ast.Call) -> ast.Call | None:
    """The next backward pass, if it always follows in the same iteration."""
    flow = code.flow
    for call in flow.calls:
        if flow.order[call] > flow.order[zero] and code.facts.loops.training_acts(code.scope, call, 2)[0]:
            return call if flow.loop(call) is flow.loop(zero) else None
    return None


def _repeats(code: Code, zero: ast.Call) -> bool:
    """Whether the step runs again and again, so that there are old gradients."""
    return code.around(zero) is not None or code.is_hot(zero)


def _forward_before(code: Code, zero: ast.Call, backward: ast.Call) -> ast.stmt | None:
    """The first statement of the forward pass that the backward pass belongs to, if it stands before `zero`."""
    flow = code.flow
    block = flow.block[zero]
    since = max(
        (
            flow.order[c]
            for c in flow.calls
            if flow.order[c] < flow.order[zero]
            and flow.within(c, block)
            and "backward" in (path_of(c.func) or getattr(c.func, "attr", "") or "")
        ),
        default=0,
    )
    calls = [
        call
        for call in _slice(code, backward)
        if since < flow.order[call] < flow.order[zero] and flow.within(call, block) and _is_forward(code, call)
    ]
    if not calls:
        return None
    first: ast.AST = flow.statement(min(calls, key=flow.order.__getitem__))
    siblings = flow.siblings(flow.statement(zero))
    while first not in siblings:
        parent = flow.parent.get(first)
        if parent is None:
            return None
        first = parent
    return first if isinstance(first, ast.stmt) else None


def _slice(code: Code, backward: ast.Call) -> Iterator[ast.Call]:
    """The calls whose results flow into the loss, in this iteration."""
    flow = code.flow
    pending: list[ast.AST] = []
    if isinstance(backward.func, ast.Attribute):
        pending += [backward.func.value, *backward.args]
    else:
        pending += backward.args
    seen: set[object] = set()
    while pending:
        node = pending.pop()
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and part in flow.order:
                yield part
            for definition in flow.reaching.get(part, frozenset()):
                if definition not in seen and definition.value is not None:
                    seen.add(definition)
                    if definition.kind in ("assign", "augmented", "walrus") and definition.order < flow.order[backward]:
                        pending.append(definition.value)
                        if definition.kind == "augmented":
                            pending.append(definition.node)


def _is_forward(code: Code, call: ast.Call) -> bool:
    """Whether a call runs a network: a module that is no loss, or a method of one."""
    inference = code.facts.inference
    if isinstance(call.func, ast.Attribute):
        owner = code.value(call.func.value)
        if owner.may(lambda a: isinstance(a, Instance) and is_neural_module(inference, a)) and not _NO_FORWARD.search(
            call.func.attr
        ):
            return code.value(call.func).may(lambda a: isinstance(a, (FunctionRef, Instance, Object)) and not is_optimizer(a))
    return code.value(call.func).may(lambda a: is_neural_module(inference, a))


_NO_FORWARD = re.compile(r"^(?:parameters|zero_grad|train|eval|to|cuda|cpu|state_dict|size|backward|_*(?:init|reset)\w*)$")


def _missing(code: Code, zero: ast.Call, forward: ast.stmt) -> Iterator[Obligation | None]:
    flow = code.flow
    assert isinstance(zero.func, ast.Attribute)
    receiver = path_of(zero.func.value)
    low, high = flow.order[forward], flow.order[zero]
    for node in flow.block:
        if isinstance(node, (ast.Continue, ast.Break, ast.Return, ast.Raise)) and low <= flow.order.get(node, -1) <= high:
            yield Obligation(Kind.CONTROL_FLOW, f"line {node.lineno} may leave the step in between")
    if receiver is None:
        yield Obligation(Kind.NAMES, "the optimizer is not a variable")
    elif _is_assigned(code, receiver, forward, zero):
        yield Obligation(Kind.NAMES, f"`{receiver}` is assigned in between")
    if _READS_GRADIENTS.search(code.scope.text):
        yield Obligation(Kind.GRADIENT, "the function reads gradients")
    if (zero.args or zero.keywords) and code.facts.project.program_may_hold(code.source.path, _READS_GRADIENTS):
        yield Obligation(Kind.GRADIENT, "gradients that are filled with zeros may be held elsewhere")
    yield from code.feared(*RUNS_WITHIN, WRAPPED, LOOKS_AT_OBJECTS)
    yield from surgery(code.facts, code.source.path)
    if suspends(flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function is suspended in between, and others may read gradients")
    for block in flow.block[zero].ancestry():
        if block.kind == "try" and getattr(block.node, "handlers", []):
            yield Obligation(Kind.ERRORS_ARE_BUGS, "an exception in between is caught, and old gradients may be used then")
    for block in flow.block[zero].ancestry():
        if block.kind == "with" and flow.within(zero, block) and isinstance(block.node, (ast.With, ast.AsyncWith)):
            if not all(
                code.value(i.context_expr).must(_lets_run) or _is_harmless_manager(code, i.context_expr)
                for i in block.node.items
            ):
                yield Obligation(
                    Kind.CONTROL_FLOW,
                    f"`{ast.unparse(block.node.items[0].context_expr)}` is around it, and may change what it does",
                )
    if _caught_by_caller(code, code.scope):
        yield Obligation(Kind.ERRORS_ARE_BUGS, "a caller handles errors and goes on, with gradients that may be old ones then")
    if not code.value(zero.func.value).must(_has_plain_zero_grad):
        yield Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(zero.func.value)}` may do more than clear gradients")
    for call in flow.calls:
        if not low <= flow.order[call] < high:
            continue
        name = (path_of(call.func) or getattr(call.func, "attr", "") or "").rpartition(".")[2]
        if "grad" in name and name not in ("no_grad", "enable_grad", "set_grad_enabled"):
            yield Obligation(Kind.GRADIENT, f"`{ast.unparse(call.func)}` works on gradients in between")
        elif name in ("backward", "step", "closure", "unscale_"):
            yield Obligation(Kind.CONTROL_FLOW, f"`{ast.unparse(call.func)}` stands in between")
        elif _uses_gradients(code, code.scope, call):
            yield Obligation(Kind.GRADIENT, f"`{ast.unparse(call.func)}` may run a backward pass or read gradients")
    between = [node for node in flow.order if low <= flow.order[node] < high]
    if any(isinstance(node, ast.ClassDef) for node in between):
        yield Obligation(Kind.GRADIENT, "a class is defined in between, and its body may read gradients")
    for function in dict.fromkeys(hidden_runs(code.facts, code.scope, between)):
        if _reaches_gradients(code, function, 4):
            yield Obligation(Kind.GRADIENT, f"`{function.name}` may run in between, and run a backward pass or read gradients")
    if flow.calls_named["step"] and not any(_steps(code, zero, s) for s in flow.calls_named["step"]):
        yield Obligation(Kind.CONTROL_FLOW, "the step of this optimizer is conditional or elsewhere")
    loop: Loop | None = flow.loop(zero)
    if loop is None and not flow.calls_named["step"]:
        yield Obligation(Kind.CONTROL_FLOW, "the step of this optimizer is elsewhere")


def _lets_run(manager: Alternative) -> bool:
    """Whether a context manager has nothing to do with gradients: a progress bar."""
    return isinstance(manager, Object) and manager.qualname.startswith("tqdm")


_MANAGERS = words(
    """
    torch.amp.autocast torch.autocast torch.cuda.amp.autocast torch.profiler.record_function
    torch.autograd.profiler.record_function
    torch.device torch.cuda.device tqdm.tqdm torch.enable_grad torch.autograd.set_detect_anomaly
    """
)


def _is_harmless_manager(code: Code, manager: ast.expr) -> bool:
    """Whether a context manager lets `zero_grad` do what it does without it."""
    callee = manager.func if isinstance(manager, ast.Call) else manager
    return code.value(callee).must(lambda a: isinstance(a, External) and a.qualname in _MANAGERS)


def _caught_by_caller(code: Code, scope: Scope, depth: int = 3) -> bool:
    """Whether an error in the forward pass reaches a handler after which gradients may be used.

    After a Ctrl-C, programs save what they have: there, the handler's function must work with gradients itself.
    """
    if isinstance(scope.node, ast.Lambda):
        return True  # it is called elsewhere
    for site in code.facts.inference.callers.sites(scope).sites if depth and not scope.is_module else ():
        for block in flow_of(site.scope).block[site.node].ancestry():
            handlers = getattr(block.node, "handlers", []) if block.kind == "try" else []
            if any(_goes_on(handler) or _USES_GRADIENTS.search(site.scope.text) for handler in handlers):
                return True
            if getattr(block.node, "finalbody", []) and _USES_GRADIENTS.search(site.scope.text):
                return True
            if isinstance(block.node, (ast.With, ast.AsyncWith)) and any(
                _may_swallow(code, site.scope, item.context_expr) for item in block.node.items
            ):
                return True
        if _caught_by_caller(code, site.scope, depth - 1):
            return True
    return False


def _may_swallow(code: Code, scope: Scope, manager: ast.expr) -> bool:
    """Whether a context manager may end an error: `contextlib.suppress`, or a class of the project."""
    value = code.facts.inference.value(scope, manager.func if isinstance(manager, ast.Call) else manager)
    return not value.must(lambda a: isinstance(a, (External, Object)) and "suppress" not in a.qualname)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether the program runs on after an error other than a Ctrl-C."""
    if handler.type is not None and path_of(handler.type) == "KeyboardInterrupt":
        return False
    return not isinstance(handler.body[-1], ast.Raise)


def _is_assigned(code: Code, path: str, forward: ast.stmt, zero: ast.Call) -> bool:
    """Whether a variable, or what it is a part of, gets another value between the forward pass and the `zero_grad`."""
    low, high = code.flow.order[forward], code.flow.order[zero]
    names = [path[:at] for at, character in enumerate(f"{path}.") if character in ".["]
    return any(low <= d.order <= high for name in names for d in code.flow.definitions_of(name))


def _steps(code: Code, zero: ast.Call, step: ast.Call) -> bool:
    """Whether a step runs in the same iterations as the `zero_grad`: no gradient accumulation."""
    return code.flow.loop(step) is code.flow.loop(zero) and not any(
        block.kind in ("then", "else") and "%" in ast.unparse(getattr(block.node, "test", ast.Constant(0)))
        for block in code.flow.block[step].ancestry()
    )


_READS_GRADIENTS = any_layout(rb"\. _?grad\b|['\"]_?grad['\"]|clip_grad|get_total_norm|grad_norm")
_USES_GRADIENTS = any_layout(
    rb"\. (?:_?grad\b|(?:zero_grad|step) \()|backward \(|['\"]_?grad['\"]|_hook \(|clip_grad|grad_norm"
)


def _has_plain_zero_grad(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and (is_optimizer(alternative) or is_module_name(alternative.qualname))


def _uses_gradients(code: Code, scope: Scope, call: ast.Call, depth: int = 4) -> bool:
    """Whether a call may run a backward pass, read gradients or clear them; yes when it is not known what it runs."""
    inference = code.facts.inference
    targets = code.facts.loops.targets(scope, call)
    if any(_reaches_gradients(code, target, depth) for target in targets):
        return True
    if isinstance(call.func, ast.Attribute):
        row = operations.method(call.func.attr)
        if row is not None and not row.gradients and not code.facts.project.backward_helpers((call.func.attr,)):
            return False
        owner = inference.value(scope, call.func.value)
        if owner.must_be(Tensor, Batch, Output, Number, Text, Literal, Sequence, Elements, Mapping):
            return False
        if not targets and call.func.attr in _HOUSEKEEPING and owner.must(lambda a: is_neural_module(inference, a)):
            return False
        if owner.must(lambda a: isinstance(a, Object) and not is_optimizer(a)):
            return owner.may(lambda a: _module_uses_gradients(code, a, depth))
    callee = inference.value(scope, call.func)
    if callee.may(lambda a: isinstance(a, External) and not _sees_no_gradients(code, scope, call, a.qualname)):
        return True
    if callee.may(lambda a: _module_uses_gradients(code, a, depth)):
        return True
    return (callee.open or not targets) and not callee.must_be(External, Object)


def _reaches_gradients(code: Code, scope: Scope, depth: int) -> bool:
    if depth == 0 or _USES_GRADIENTS.search(scope.text):
        return True
    flow = flow_of(scope)
    if any(_uses_gradients(code, scope, inner, depth - 1) for inner in flow.calls):
        return True
    called = {target for call in flow.calls for target in code.facts.loops.targets(scope, call)}
    others = {*hidden_runs(code.facts, scope, flow.order)} - called - {scope}
    return any(_reaches_gradients(code, other, depth - 1) for other in others)


def _module_uses_gradients(code: Code, alternative: Alternative, depth: int) -> bool:
    """Whether the forward pass of a module from outside the project may, through modules of the project that it holds."""
    if isinstance(alternative, Instance):
        forward = find_method(code.facts.inference, alternative.cls, "forward")
        return forward is not None and _reaches_gradients(code, forward, depth)
    if not isinstance(alternative, Object) or alternative.qualname not in _CONTAINERS:
        return False
    if not isinstance(alternative.site, tuple) or depth == 0:
        return True
    scope, call = alternative.site
    held = [code.facts.inference.value(scope, argument) for argument in (*call.args, *(k.value for k in call.keywords))]
    return any(
        value.may(lambda a: isinstance(a, (Instance, Object)) and _module_uses_gradients(code, a, depth - 1))
        or (value.open and alternative.qualname != "torch.nn.Module")
        for value in held
    )


_HOUSEKEEPING = words("parameters named_parameters buffers modules children train eval state_dict")
_PACKAGES = (
    "math.",
    "numpy.",
    "random.",
    "time.",
    "logging.",
    "tqdm.",
    "torch.utils.data.",
    "collections.",
    "itertools.",
    "os.",
)
_SEES = words("builtins.eval builtins.exec builtins.vars builtins.dir builtins.globals builtins.locals builtins.setattr")


def _sees_no_gradients(code: Code, scope: Scope, call: ast.Call, qualname: str) -> bool:
    """Whether a function of a package reads, writes or uses no gradients, whatever it is given."""
    if qualname in ("builtins.getattr", "builtins.hasattr"):
        name = code.facts.inference.value(scope, call.args[1]).literal if len(call.args) > 1 else None
        return isinstance(name, str) and "grad" not in name
    if qualname.startswith(("builtins.", *_PACKAGES)):
        return qualname not in _SEES
    return is_known_function(qualname) or not any(
        code.facts.inference.value(scope, given).may(lambda a: not isinstance(a, (Number, Literal, Text)))
        or code.facts.inference.value(scope, given).open
        for given in (*call.args, *(k.value for k in call.keywords))
    )


_CONTAINERS = words(
    """
    torch.nn.Module torch.nn.Sequential torch.nn.ModuleList torch.nn.ModuleDict torch.nn.DataParallel
    """
)
