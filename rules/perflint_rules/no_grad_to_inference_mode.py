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
Safe when no tensor leaves the block (only numbers, arrays and host copies that nothing differentiates), the networks are
plain modules of the project that cache nothing in attributes, and none of them is compiled or wrapped. Otherwise unsafe:
tensors made under `inference_mode` raise when autograd meets them later, and in one case (parameters created inside)
gradients are missing without a word. See inference-tensor-escape.
"""

import ast
import re
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import (
    NETWORK_CALL,
    Batch,
    ClassRef,
    Code,
    Cost,
    Definition,
    Edit,
    Elements,
    External,
    Finding,
    FunctionRef,
    GradUse,
    Import,
    Instance,
    Kind,
    Literal,
    Mapping,
    Number,
    Object,
    Obligation,
    Output,
    Region,
    Sequence,
    Severity,
    Tensor,
    Value,
    any_layout,
    backward_in,
    is_neural_module,
    is_optimizer,
    kept_by,
    keyword,
    path_of,
    replace,
    rule,
    stored_for_training,
    suspends,
    tensor_ends,
    untouched,
)

_ENTERED = any_layout(rb"no_grad \( \) (?:[:,)]|\bas\b)")
_OWN_CALL = any_layout(rb"self\w*(?: \. \w+)? \(")


@rule(
    category="autograd",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("no_grad",), (NETWORK_CALL, _OWN_CALL), (".eval(", *keyword("for"), *keyword("while"), _ENTERED)],
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
        if function is not None and _decorates_with_no_grad(code, decorator):
            yield from _region(code, decorator, function.body, whole=True)


def _is_no_grad(code: Code, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and not node.args and code.is_external(node.func, "torch.no_grad")


def _decorates_with_no_grad(code: Code, node: ast.expr) -> bool:
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
    oldest = code.facts.versions.get("torch")
    if oldest is not None and oldest < Version("1.9"):
        return
    missing: list[Obligation] = []
    for reason in _escapes(code, inside):
        if reason is None:
            return
        missing.append(reason)
    missing += [r for c in calls for r in _creates(code, c)]
    modes = code.facts.grad_mode
    if modes.may_be_called_in_autocast(code.scope) if whole else modes.may_autocast(code.scope, body[0]):
        words = "an autocast region around it may remember weights that it converts here, and train with them"
        missing.append(Obligation(Kind.NO_AUTOCAST, words))
    missing += [r for node in inside.nodes for r in _shares_samples(code, node)]
    if not missing:
        seeing = [c for c in calls if _sees_tensors(code, c)]
        missing += filter(None, [kept_by(code.facts, code.scope, seeing, inside.nodes)])
    if suspends(flow):
        missing.append(Obligation(Kind.CONTROL_FLOW, "the function yields or awaits"))
    if whole and not _is_of_torch(code, manager):
        missing.append(Obligation(Kind.NAMES, "the decorator may be another `no_grad` than torch's"))
    fix = code.fix("use inference_mode", _renamed(code, manager), unless=missing)
    message = "`no_grad` still tracks versions and views for this forward pass; `inference_mode` does not"
    yield code.finding(manager, message, fix, missing)


def _is_forward(code: Code, call: ast.Call) -> bool:
    inference = code.facts.inference
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in ("eval", "train", "to", "cuda", "cpu", "parameters", "zero_grad", "state_dict", "float", "half"):
            return False
        if code.value(call.func.value).may(lambda a: is_neural_module(inference, a)):
            return bool(call.args or call.keywords)
    name = (path_of(call.func) or "").rpartition(".")[2]
    if re.search(r"crit|loss", name, re.I):
        return False
    return code.value(call.func).may(lambda a: is_neural_module(inference, a))


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


def _escapes(code: Code, inside: Region) -> Iterator[Obligation | None]:
    """How tensors get out of the region: a reason each, or None for one that reaches autograd."""
    flow = code.flow
    trains = backward_in(code.facts, code.scope) or _is_part_of_network(code)
    for definition in inside.definitions:
        if definition.value is None or definition.kind in ("function", "class"):
            continue
        if definition.name in flow.outer_names and _may_be_tensor(code, definition.value):
            yield Obligation(Kind.NAMES, f"`{definition.name}` is a variable of an outer scope")
        if definition.kind == "augmented" and _extends_given(code, definition):
            yield Obligation(Kind.RETENTION, f"`{definition.name}` is extended, which its owner sees")
        outside = [u for u in flow.uses[definition] if u not in inside]
        added = definition.kind == "augmented"
        if not (outside or code.scope.is_module) or not _holds_tensor(
            code.value(definition.value) if added else code.bound(definition)
        ):
            continue
        if code.scope.is_module and code.facts.project.importers(code.source.path):
            yield Obligation(Kind.RETENTION, f"a file that imports this one may read `{definition.name}`")
        if _is_read_by_functions(code, definition.name):
            yield Obligation(Kind.NAMES, f"a function may read the global `{definition.name}`")
        if any(_in_place(code, use) for use in outside) or (trains and tensor_ends(code.facts, code.scope, outside)):
            yield None
        elif outside and (reason := untouched(code.facts, code.scope, definition)) is not None:
            yield Obligation(Kind.MUTATION, f"inference tensors cannot be written to outside: {reason}")
    made = [d.value for d in inside.definitions if d.value is not None and d.kind in ("assign", "walrus")]
    roots = dict.fromkeys([*made, *inside.calls])
    for end in tensor_ends(code.facts, code.scope, [root for root in roots if _may_be_tensor(code, root)]):
        if not (isinstance(end.node, ast.Return) and end.node in inside):
            read = end.use is GradUse.BACKWARD or stored_for_training(code.facts, code.scope, end) is not None
            yield None if read else Obligation(Kind.RETENTION, f"the result may outlive the evaluation: {end.note}")
    for store in inside.stores:
        yield from _stored(code, store, inside, trains)
    for statement in inside.returns:
        if statement.value is not None and _is_tensor(code, statement.value):
            if _caller_differentiates(code):
                yield None  # also by way of an attribute that training reads
            else:
                yield Obligation(Kind.RETENTION, "a tensor is returned")


def _extends_given(code: Code, definition: Definition) -> bool:
    """Whether `+=` may put a tensor into a container that was there before."""
    if definition.value is None or not _may_be_tensor(code, definition.value):
        return False
    before = code.flow.reaching.get(definition.node, frozenset())
    return not before or any(d.kind == "parameter" and not code.bound(d).must_be(Tensor, Number, Literal) for d in before)


def _is_read_by_functions(code: Code, name: str) -> bool:
    """Whether a function of the file names a variable of its module."""
    return code.scope.is_module and any(name.encode() in function.text for function in code.scope.module.functions())


def _is_part_of_network(code: Code) -> bool:
    """Whether the scope is a module's `forward`: what it computes behind the region, training differentiates."""
    owner = code.scope.owner
    return code.scope.name == "forward" and owner is not None and is_neural_module(code.facts.inference, Instance(owner))


def _may_be_tensor(code: Code, node: ast.expr) -> bool:
    return code.value(node).open or _is_tensor(code, node)


def _is_tensor(code: Code, node: ast.expr) -> bool:
    return _holds_tensor(code.value(node))


def _holds_tensor(value: Value, depth: int = 3) -> bool:
    """Whether a value may be a tensor or hold one, as far as is known."""
    if value.open and not value.alternatives:
        return True
    for alternative in value.alternatives:
        match alternative:
            case Tensor() | Batch() | Output():
                return True
            case Sequence(items) if depth:
                if any(_holds_tensor(i, depth - 1) for i in items):
                    return True
            case Elements(element) if depth:
                if _holds_tensor(element, depth - 1):
                    return True
            case Mapping(items, rest) if depth:
                if any(_holds_tensor(v, depth - 1) for _, v in items) or (rest.alternatives and _holds_tensor(rest, depth - 1)):
                    return True
    return False


def _in_place(code: Code, use: ast.expr) -> bool:
    parent = code.flow.parent.get(use)
    if isinstance(parent, ast.AugAssign) and parent.target is use:
        return True
    return isinstance(parent, ast.Attribute) and parent.attr.endswith("_") and not parent.attr.startswith("_")


def _stored(code: Code, store: ast.Attribute | ast.Subscript, inside: Region, trains: bool) -> Iterator[Obligation | None]:
    root: ast.expr = store
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if isinstance(root, ast.Name):
        definitions = code.flow.reaching.get(root, frozenset())
        if definitions and all(d.node in inside for d in definitions):
            return
        value = code.value(store.value)
        if value.must(lambda a: isinstance(a, Object) and a.qualname.startswith("numpy")):
            return
        if isinstance(store, ast.Subscript) and definitions and not trains:
            if all(d.kind != "parameter" for d in definitions):
                return  # a local container: copied into a normal tensor, or followed through its own uses
    if trains:
        yield None
    else:
        yield Obligation(Kind.RETENTION, f"`{ast.unparse(store)}` is assigned")


def _caller_differentiates(code: Code) -> bool:
    for site in code.facts.inference.callers.sites(code.scope).sites:
        for end in tensor_ends(code.facts, site.scope, [site.node]):
            if end.use is GradUse.BACKWARD or stored_for_training(code.facts, site.scope, end) is not None:
                return True
    return False


def _sees_tensors(code: Code, call: ast.Call) -> bool:
    """Whether a call may keep a tensor of the region: it gets one, or the project's own code makes one."""
    if any(_may_be_tensor(code, a) for a in [*call.args, *(k.value for k in call.keywords)]):
        return True
    return code.value(call.func).may(lambda a: isinstance(a, (FunctionRef, Instance, ClassRef)))


def _shares_samples(code: Code, node: ast.AST) -> Iterator[Obligation]:
    """A loader whose batches are not fresh copies: its dataset may keep what it made inside the region."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        element = code.facts.inference.element(code.value(node.iter))
        if element.may(lambda a: isinstance(a, Batch)) and not element.must(_is_fresh):
            yield Obligation(Kind.RETENTION, f"`{ast.unparse(node.iter)}` may hand out tensors that its dataset keeps")


def _is_fresh(alternative: object) -> bool:
    match alternative:
        case Batch(default_collate):
            return default_collate
        case Sequence(items):
            return all(item.must(_is_fresh) for item in items)
    return isinstance(alternative, (Number, Literal))


def _creates(code: Code, call: ast.Call) -> Iterator[Obligation]:
    callee = code.value(call.func)
    if isinstance(call.func, ast.Attribute) and call.func.attr == "step" and code.value(call.func.value).may(is_optimizer):
        yield Obligation(Kind.RETENTION, "the optimizer's state would be inference tensors")
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("requires_grad_", "load_state_dict", "export", "backward"):
        yield Obligation(Kind.RETENTION, f"`{call.func.attr}` is called inside")
    if code.value(call).may(lambda a: is_neural_module(code.facts.inference, a)) and not _switches_training(call):
        yield Obligation(
            Kind.RETENTION, "a module is created, moved or converted inside, whose parameters would be inference tensors"
        )
    if callee.may(lambda a: isinstance(a, External) and a.qualname in ("torch.enable_grad", "torch.set_grad_enabled")):
        yield Obligation(Kind.GRADIENT, "autograd is switched on again inside, which inference_mode ignores")


def _switches_training(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train")


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
