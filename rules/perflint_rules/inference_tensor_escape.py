"""A tensor made under `inference_mode` is used in training.

## What it does
Finds tensors that are computed in an `inference_mode` region and meet autograd afterwards: in a loss that is
back-propagated, in a network that is trained, in an in-place operation, also in a caller or by way of an attribute; and
modules that are created in such a region.

## Why it is an error
Autograd cannot save inference tensors: `RuntimeError: Inference tensors cannot be saved for backward`. Some expressions
happen to work (`((a - b) ** 2).mean()`), until the next edit of the loss. A module that is created inside trains without
gradients, and says nothing: `.grad` stays `None`.

## Example
```python
def step(teacher, student, optimizer, x):
    with torch.inference_mode():
        target = teacher(x)
    loss = F.mse_loss(student(x), target)
    loss.backward()
    optimizer.step()
```

## Use instead
```python
def step(teacher, student, optimizer, x):
    with torch.no_grad():
        target = teacher(x)
    loss = F.mse_loss(student(x), target)
    loss.backward()
    optimizer.step()
```

## When it stays silent
When the tensors are read as numbers, cloned outside of the region, or never used after it.

It is an error where torch is sure to raise one: the tensor itself goes to a loss or a layer that saves it, or is changed in
place. Where it only may be saved for the backward pass, it is a warning.

## Fix safety
Safe: `no_grad` computes the same numbers, and everything that worked keeps working. Unsafe where the program asks for the
mode or switches autograd on again, where the error may be caught, and where the fixed program trains what is created inside.
"""

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.api import (
    Code,
    Edit,
    External,
    Finding,
    GradUse,
    Import,
    Kind,
    Object,
    Obligation,
    Output,
    Region,
    Scope,
    Severity,
    Tensor,
    Value,
    flow_of,
    graph_ends,
    is_neural_module,
    path_of,
    replace,
    rule,
    stored_for_training,
    words,
)


@rule(category="autograd", severity=Severity.ERROR, needs=[("inference_mode",)], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each `inference_mode` block whose tensors meet autograd later."""
    for node in list(code.flow.order):
        if not isinstance(node, ast.withitem) or not isinstance(node.context_expr, ast.Call):
            continue
        manager = node.context_expr
        if manager.args or manager.keywords or not code.is_external(manager.func, "torch.inference_mode"):
            continue
        statement = code.flow.parent[node]
        assert isinstance(statement, (ast.With, ast.AsyncWith))
        inside = Region(code.flow, statement.body)
        escape = _escape(code, inside)
        if escape is not None:
            missing = [*_missing(code, statement, inside)]
            fix = code.fix("use no_grad", _renamed(code, manager), unless=missing)
            severity = Severity.ERROR if escape.is_certain else Severity.WARNING
            yield code.finding(manager, f"{escape.words}; use `torch.no_grad()` here", fix, missing, severity=severity)


@dataclass(frozen=True)
class _Escape:
    """How an inference tensor meets autograd. is_certain: whether it is one of the ways of which torch raises an error."""

    words: str
    is_certain: bool


_SWITCH = re.compile(rb"enable_grad|set_grad_enabled|is_inference|\b_version\b")
_CATCHES = re.compile(rb"\bexcept\b")


def _missing(code: Code, statement: ast.stmt, inside: Region) -> Iterator[Obligation]:
    if code.facts.project.program_may_hold(code.source.path, _SWITCH):
        yield Obligation(
            Kind.GRADIENT, "the program switches autograd on again, which `inference_mode` ignores, or asks for the mode"
        )
    if any(_creates_module(code, c) or (path_of(c.func) or "").endswith("Parameter") for c in inside.calls):
        yield Obligation(Kind.GRADIENT, "the fixed program trains what is created inside, the original does not")
    callers = [site.scope for site in code.facts.inference.callers.sites(code.scope).sites]
    if any(_CATCHES.search(scope.text) for scope in (code.scope, *callers)):
        yield Obligation(Kind.ERRORS_ARE_BUGS, "the error may be caught")
    elif (caught := code.caught(statement)) is not None:
        yield caught


def _escape(code: Code, inside: Region) -> _Escape | None:
    flow = code.flow
    for definition in inside.definitions:
        if definition.value is None or definition.kind not in ("assign", "walrus"):
            continue
        value = code.value(definition.value)
        outside = [use for use in flow.uses[definition] if use not in inside]
        for use in outside:
            if value.may(lambda a: isinstance(a, (Tensor, Output))) or _runs_network(value, definition.value):
                if any(end.use is GradUse.BACKWARD for end in graph_ends(code.facts, code.scope, use)):
                    return _gives(f"`{definition.name}` is an inference tensor, and line {use.lineno}", _is_saved(code, use))
                if _in_place(code, use):
                    how = f"`{definition.name}` is an inference tensor, and line {use.lineno} changes it in place, which raises"
                    return _Escape(how, True)
        if outside and isinstance(definition.value, ast.Call) and _creates_module(code, definition.value):
            if _is_trained(code, definition.name):
                how = f"the parameters of `{definition.name}` are inference tensors, so it gets no gradients"
                return _Escape(how, False)
        if _is_tensor(value):
            escape = _used_elsewhere(code, code.scope, definition.value)
            if escape is not None:
                return escape
    for statement in inside.returns:
        if statement.value is None:
            continue
        value = code.value(statement.value)
        if not _is_tensor(value) and not _runs_network(value, statement.value):
            continue
        for site in code.facts.inference.callers.sites(code.scope).sites:
            escape = _used_elsewhere(code, site.scope, site.node)
            if escape is not None:
                return escape
    return None


def _gives(words: str, certain: bool) -> _Escape:
    raises = "which raises" if certain else "which raises where it is saved for the backward pass"
    return _Escape(f"{words} gives it to autograd, {raises}", certain)


_SAVING = words("mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy_with_logits")
_SAVING_LAYERS = words(
    "MSELoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss NLLLoss BCEWithLogitsLoss Linear Conv1d Conv2d Conv3d"
)


def _is_saved(code: Code, use: ast.expr) -> bool:
    """Whether an operation that saves its arguments for the backward pass gets the tensor itself."""
    match code.flow.parent.get(use):
        case ast.Call(func=func):
            return code.value(func).must(
                lambda a: (
                    (isinstance(a, External) and a.qualname.startswith("torch.") and a.qualname.rpartition(".")[2] in _SAVING)
                    or (isinstance(a, Object) and a.qualname.removeprefix("torch.nn.") in _SAVING_LAYERS)
                )
            )
    return False


def _is_tensor(value: Value) -> bool:
    return value.may(lambda a: isinstance(a, (Tensor, Output)))


def _used_elsewhere(code: Code, scope: Scope, node: ast.expr) -> _Escape | None:
    """Where a caller gives an inference tensor to autograd, or a method that reads the attribute it is stored in."""
    flow = flow_of(scope)
    for end in graph_ends(code.facts, scope, node):
        if "clone" in ast.unparse(flow.statement(node)) or "clone" in ast.unparse(flow.statement(end.node)):
            continue  # a clone that is made outside of the region is no inference tensor
        if end.use is GradUse.BACKWARD and scope is not code.scope:
            where = f"line {node.lineno} of {_file(scope)}"
            return _gives(f"an inference tensor is returned, and {where}", False)
        mention = stored_for_training(code.facts, scope, end)
        if mention is not None and not _is_cloned(mention, scope):
            where = f"line {mention.lineno} of {_file(scope)}"
            return _gives(f"`{ast.unparse(mention)}` is an inference tensor, and {where}", False)
    return None


def _is_cloned(mention: ast.expr, scope: Scope) -> bool:
    assert scope.owner is not None
    for method in scope.owner.methods.values():
        flow = flow_of(method)
        if mention in flow.order:
            return "clone" in ast.unparse(flow.statement(mention))
    return False


def _file(scope: Scope) -> str:
    return os.path.basename(scope.module.source.path)


_NETWORK = re.compile(r"(?:teacher|backbone|extractor|policy|agent|target_\w+)$", re.I)


def _runs_network(value: Value, node: ast.expr) -> bool:
    """Whether something unknown is called by the name of a network."""
    return value.open and isinstance(node, ast.Call) and _NETWORK.search(path_of(node.func) or "") is not None


def _in_place(code: Code, use: ast.expr) -> bool:
    parent = code.flow.parent.get(use)
    if isinstance(parent, ast.AugAssign) and parent.target is use:
        return True
    if isinstance(parent, ast.Attribute) and parent.attr.endswith("_") and not parent.attr.startswith("_"):
        return True
    return isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store) and parent.value is use


def _creates_module(code: Code, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train", "to", "cuda", "cpu"):
        return False
    return code.value(call).must(lambda a: is_neural_module(code.facts.inference, a))


def _is_trained(code: Code, name: str) -> bool:
    return bool(code.calls("backward")) and name.encode() in code.scope.text


def _renamed(code: Code, manager: ast.Call) -> Iterator[Edit | Import]:
    if isinstance(manager.func, ast.Attribute):
        yield replace(code.source, manager.func, code.text(manager.func).removesuffix("inference_mode") + "no_grad")
    else:
        torch, imports = code.name_for("torch")
        yield from imports
        yield replace(code.source, manager.func, f"{torch}.no_grad")
