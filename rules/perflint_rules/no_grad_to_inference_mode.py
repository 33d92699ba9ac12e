"""Evaluation runs under `no_grad` where `inference_mode` would do.

## What it does
Finds `with torch.no_grad():` and `@torch.no_grad()` around a forward pass whose results never meet autograd again.

## Why it is slower
`inference_mode` also skips version counters and view tracking, a part of what each operation costs the CPU. Where kernels
dominate there is no difference. Under `torch.compile` it adds one more compilation.

## Example
```python
def evaluate(model, loader):
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
    return correct
```

## Use instead
```python
def evaluate(model, loader):
    correct = 0
    with torch.inference_mode():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
    return correct
```

## When it stays silent
When a tensor from the block reaches a backward pass, a loss or the rest of a module's `forward`, also by way of an
attribute that a method with a backward pass reads, when nothing in the block
runs a network, when parameters are created inside, and when a comment nearby says why it is `no_grad`.

## Fix safety
Safe when no tensor leaves the block (only numbers, arrays and host copies that nothing differentiates), none is part of an
operation behind it that autograd may record, the networks are plain modules of the project that cache nothing in attributes,
and none of them is compiled or wrapped. A dataset or a loader that nobody can see is assumed to keep nothing. Otherwise unsafe:
tensors made under `inference_mode` raise when autograd meets them later, and in one case (parameters created inside)
gradients are missing without a word. See inference-tensor-escape.
"""

import ast
import re
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import (
    NETWORK_CALL,
    Code,
    Cost,
    Edit,
    External,
    Finding,
    Import,
    Kind,
    Obligation,
    Region,
    Severity,
    any_layout,
    is_neural_module,
    keyword,
    path_of,
    replace,
    rule,
    runs_network,
    stays_inside,
)

_FIRST = Version("1.9")
_ENTERED = any_layout(rb"no_grad \( \) (?:[:,)]|\bas\b)")
_OWN_CALL = any_layout(rb"self\w*(?: \. \w+)? \(")


@rule(
    category="autograd",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("no_grad",), (NETWORK_CALL, _OWN_CALL, ".eval("), (".eval(", *keyword("for"), *keyword("while"), _ENTERED)],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each `no_grad` region that could be an `inference_mode` region."""
    for node in list(code.flow.order):
        if isinstance(node, ast.withitem) and _is_no_grad(code, node.context_expr):
            statement = code.flow.parent[node]
            assert isinstance(statement, (ast.With, ast.AsyncWith))
            yield from _region(code, node.context_expr, statement.body)
    function = code.scope.function
    for decorator in code.scope.decorators:
        if function is not None and _decorates_with_no_grad(decorator):
            yield from _region(code, decorator, function.body, whole=True)


def _is_no_grad(code: Code, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and not node.args and code.is_external(node.func, "torch.no_grad")


def _decorates_with_no_grad(node: ast.expr) -> bool:
    callee = node.func if isinstance(node, ast.Call) else node
    return (path_of(callee) or "").rpartition(".")[2] == "no_grad" and not (isinstance(node, ast.Call) and node.args)


def _is_of_torch(code: Code, decorator: ast.expr) -> bool:
    """Whether a decorator is torch's, by what its first name is in the file."""
    path = path_of(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
    root, _, rest = path.partition(".")
    first = code.facts.inference.module_name(code.scope.module, root, 2)
    return first.must(lambda a: isinstance(a, External) and f"{a.qualname}.{rest}".strip(".").startswith("torch."))


def _region(code: Code, manager: ast.expr, body: list[ast.stmt], whole: bool = False) -> Iterator[Finding]:
    flow = code.flow
    if body[0] not in flow.order:
        return
    inside = Region(flow, body)
    calls = inside.calls
    if _says_why(code, manager) or not _is_evaluation(code, calls, whole):
        return
    if not any(_is_forward(code, c) for c in calls):
        return
    if code.facts.target_versions.get("torch", _FIRST) < _FIRST:
        return
    missing = stays_inside(code.facts, code.scope, body, whole=whole)
    if missing is None:
        return
    if whole and not _is_of_torch(code, manager):
        missing.append(Obligation(Kind.NAMES, "the decorator may be another `no_grad` than torch's"))
    message = "`no_grad` still tracks versions and views for this forward pass; `inference_mode` does not"
    oldest = code.facts.versions.get("torch", _FIRST)
    if oldest < _FIRST:
        yield code.finding(manager, f"{message} (torch {_FIRST} has it; the project admits {oldest})")
        return
    fix = code.fix("use inference_mode", _renamed(code, manager), unless=missing)
    yield code.finding(manager, message, fix, missing)


def _is_forward(code: Code, call: ast.Call) -> bool:
    inference = code.facts.inference
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in ("eval", "train", "to", "cuda", "cpu", "parameters", "zero_grad", "state_dict", "float", "half"):
            return False
        if code.value(call.func.value).may(lambda a: is_neural_module(inference, a)):
            return bool(call.args or call.keywords)
    name = (path_of(call.func) or "").rpartition(".")[2]
    if re.search(r"crit(?!ic)|loss", name, re.I):
        return False
    return runs_network(code.facts, code.scope, call)


def _is_evaluation(code: Code, calls: list[ast.Call], whole: bool) -> bool:
    """A decorated function counts when it loops over batches or switches to evaluation; a `with` block always does."""
    if not whole:
        return True
    if any(isinstance(c.func, ast.Attribute) and c.func.attr == "eval" for c in calls):
        return True
    return bool(code.step_loops())


def _says_why(code: Code, manager: ast.expr) -> bool:
    """Whether a comment near the manager mentions `inference_mode`."""
    row = manager.lineno
    rows = range(max(1, row - 2), min(len(code.source.starts), row + 1) + 1)
    return any(re.search(r"#.*inference", code.source.line(r)) for r in rows)


def _renamed(code: Code, manager: ast.expr) -> Iterator[Edit | Import]:
    callee = manager.func if isinstance(manager, ast.Call) else manager
    if isinstance(callee, ast.Attribute):
        yield replace(code.source, callee, code.text(callee).removesuffix("no_grad") + "inference_mode")
    else:
        torch, imports = code.name_for("torch")
        yield from imports
        yield replace(code.source, callee, f"{torch}.inference_mode")
    if not isinstance(manager, ast.Call):
        _start, end = code.span(manager)
        yield Edit(end, end, "()")
