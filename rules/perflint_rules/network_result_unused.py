"""A network computes what nobody looks at.

## What it does
Finds assignments in code that runs each step whose value a network computes, and whose names nothing reads but assignments that
nothing reads either.

## Why it is slow
The whole forward pass is for nothing: its kernels, and in training the memory of its activations until the names are bound
again. It is mostly a remainder: the loss that it was for is commented out, or computed from another variable.

## Example
```python
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
teacher = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
for x, y in loader:
    guide = teacher(x)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## Use instead
```python
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
```

## When it stays silent
When the name begins with `_`, which says that the pass is for what it does beside; when an inner function, a text or
`locals()` may read the name; for networks of the project that leave something behind (`self.features = x`); for single layers
of torch, which take little; where a clock is read or hooks are registered; in a `forward` that returns nothing; in notebooks,
whose other cells may read it. It reports on request: of 14 that were read in public code, 3 were worth a minute, and the
networks of the others small or never built.

## Fix safety
There is no fix: in training a pass also moves the statistics of batch normalisation, and draws the random numbers of dropout.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    Code,
    Cost,
    Definition,
    External,
    Finding,
    Object,
    Output,
    Severity,
    Tensor,
    any_layout,
    brief,
    called_from,
    computes_with_network,
    functions_see,
    inspects_itself,
    is_known_function,
    is_test,
    last_name,
    rule,
    untimed,
    words,
)

_ACTS = words("backward register_hook")
"""Methods of a tensor that do something beside, whatever their names end with."""
_FILLS = words("append extend insert update add put setattr register_buffer setdefault")
_HOOKS = any_layout(rb"\bregister_forward_\w*hook \(")
_LARGE = ("Sequential", "Transformer", "TransformerEncoder", "TransformerDecoder", "LSTM", "GRU")
"""What is no single layer of torch."""


@rule(
    category="memory",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("forward", "backward(")],
    in_file=[("torch",)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each pass of a network whose result is dropped."""
    if is_test(code.scope) or code.source.cells is not None or inspects_itself(code.flow):
        return
    if _HOOKS.search(code.source.body) or (code.scope.name == "forward" and not code.flow.returns):
        return
    for statement in _unread(code):
        passes = [call for call in _calls(statement) if _is_pass(code, call)]
        if passes and code.is_hot(statement) and untimed(code.flow.calls) is None:
            names = ", ".join(f"`{ast.unparse(target)}`" for target in statement.targets)
            message = f"nobody reads {names}, which `{brief(passes[0])}` computes in every step; leave it out"
            yield code.finding(passes[0], message)


def _calls(statement: ast.Assign) -> list[ast.Call]:
    return [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]


def _unread(code: Code) -> list[ast.Assign]:
    """The assignments whose names are read by nothing, or by such assignments alone, in the order of the code."""
    bound: dict[ast.Assign, list[Definition]] = {}
    for definition in code.flow.definitions:
        statement = code.flow.statement(definition.node) if definition.kind == "assign" else None
        if not isinstance(statement, ast.Assign) or not all(map(_binds_names, statement.targets)):
            continue
        if all(_only_computes(code, call) for call in _calls(statement)):
            bound.setdefault(statement, []).append(definition)
    unread = {s for s, definitions in bound.items() if not any(_may_be_seen(code, d) for d in definitions)}
    while read := {
        s for s in unread if any(code.flow.statement(use) not in unread for d in bound[s] for use in code.flow.uses[d])
    }:
        unread -= read
    return [statement for statement in bound if statement in unread]


def _only_computes(code: Code, call: ast.Call) -> bool:
    """Whether a call is a network's pass, or gives a tensor and changes nothing: no `backward`, `append`, `copy_` or `out=`.

    A lambda's calls are none of the function itself.
    """
    if call not in code.flow.block:
        return False
    if _is_pass(code, call):
        return True
    name = last_name(call.func)
    if name.endswith("_") or name in _ACTS or any(k.arg == "out" for k in call.keywords):
        return False
    if isinstance(call.func, ast.Attribute) and code.value(call.func.value).must_be_if_known(Tensor, Output):
        return True
    return code.value(call.func).must(lambda a: isinstance(a, External) and is_known_function(a.qualname))


def _binds_names(target: ast.expr) -> bool:
    match target:
        case ast.Name(id=name):
            return not name.startswith("_")
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(isinstance(part, ast.Name) for part in parts) and any(map(_binds_names, parts))
    return False


def _may_be_seen(code: Code, definition: Definition) -> bool:
    """Whether other code than that of the function itself may read a name."""
    name, flow = definition.name, code.flow
    if code.scope.is_module and (functions_see(code.scope.module, name) or code.facts.project.importers(code.source.path)):
        return True
    return name in flow.inner_names or name in flow.outer_names


def _is_pass(code: Code, call: ast.Call) -> bool:
    """Whether a call is a forward pass of a network that keeps nothing of it, and is no single layer of torch."""
    if not computes_with_network(code.facts, code.scope, call):
        return False
    networks = code.value(call.func).alternatives
    runs = called_from(code.facts, *code.facts.loops.targets(code.scope, call), depth=None)
    return all(map(_is_large, networks)) and not any(_keeps(code.at(target)) for target in runs)


def _is_large(alternative: Alternative) -> bool:
    if isinstance(alternative, Object) and alternative.qualname.startswith("torch.nn."):
        return alternative.qualname.rpartition(".")[2] in _LARGE
    return True


def _keeps(code: Code) -> bool:
    """Whether a part of a forward pass leaves something behind: an attribute, an item, an entry of a list, other numbers."""
    stores = any(isinstance(store, (ast.Attribute, ast.Subscript)) for store in code.flow.stores)
    return stores or any(calls and (name in _FILLS or name.endswith("_")) for name, calls in code.flow.calls_named.items())
