"""A backward pass computes the gradients of all weights, and only the input's is read.

## What it does
Finds `loss.backward()` in code that runs each step where all that is read of the gradients is that of a tensor which the
function itself makes a leaf (`delta.requires_grad = True`): an adversarial attack, a latent that is searched for.

## Why it is slow
Backward computes the gradients of all weights, too, and adds them to what is there: of a network's forward pass, backward
to the input and backward to the weights, the last third is for nothing. `inputs=` says whose gradients are wanted (torch
1.8). What is added to the weights' gradients also stays there: without a `zero_grad` behind the attack, the next step takes
it along.

## Example
```python
def attack(model, x, y):
    delta = torch.zeros_like(x).uniform_(-0.03, 0.03)
    delta.requires_grad = True
    for _ in range(10):
        loss = criterion(model(x + delta), y)
        loss.backward()
        delta.data = (delta + 0.01 * delta.grad.sign()).clamp(-0.03, 0.03)
        delta.grad.zero_()
    return delta.detach()
```

## Use instead
```python
def attack(model, x, y):
    delta = torch.zeros_like(x).uniform_(-0.03, 0.03)
    delta.requires_grad = True
    for _ in range(10):
        loss = criterion(model(x + delta), y)
        loss.backward(inputs=[delta])
        delta.data = (delta + 0.01 * delta.grad.sign()).clamp(-0.03, 0.03)
        delta.grad.zero_()
    return delta.detach()
```

## When it stays silent
When an optimizer steps in the same function, or in a caller with what the function leaves in the weights, when other
gradients are read there, when backward is told whose gradients are wanted (`inputs=`), when no network computes there, and
when the program may switch `requires_grad` off anywhere: the weights may be frozen. Attacks that no training runs in its
steps are on request: most are evaluations and demonstrations of seconds.

## Fix safety
Unsafe: the weights get no gradients then, which others may read, or add to.
"""

import ast
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import (
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    Obligation,
    Scope,
    Severity,
    add_keyword,
    any_layout,
    computes_with_network,
    flow_of,
    is_test,
    rule,
)

_FREEZES = any_layout(
    rb"\brequires_grad = False|\. requires_grad =(?!=)(?! True\b)"
    rb"|\brequires_grad_ \((?! \))(?! (?:requires_grad = )?True\b)|\b\w*(?:toggle|freez|frozen|set_requires_grad)\w* \("
)
"""What may switch the gradients of weights off."""
_FIRST = Version("1.8")
"""Where backward is told whose gradients are wanted."""
_ENDS = ("backward", "zero_grad", "step")
_DEPTH = 4
"""Through how many calls the loop of a training is looked for."""
_ADDS = Obligation(Kind.VALUE, "the weights get no gradients then, which others may read, or add to")


@rule(
    category="autograd",
    costs=Cost.LAUNCH,
    severity=Severity.WARNING,
    needs=[("backward(",), (".grad",), ("requires_grad",)],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each backward pass that is for one tensor's gradient."""
    if is_test(code.scope) or code.scope.is_module or any(code.calls("step")):
        return
    if code.facts.target_versions.get("torch", _FIRST) < _FIRST:
        return
    read = {node.value for node in code.flow.order if isinstance(node, ast.Attribute) and node.attr == "grad"}
    names = {node.id if isinstance(node, ast.Name) else "" for node in read}
    if len(names) != 1 or "" in names or code.facts.project.program_may_hold(code.source.path, _FREEZES):
        return
    (name,) = names
    if not _is_made_leaf(code, name) or not any(computes_with_network(code.facts, code.scope, c) for c in code.flow.calls):
        return
    if _are_for_a_step(code, code.scope, _DEPTH):
        return
    for call in code.calls("backward"):
        if isinstance(call.func, ast.Attribute) and not any(k.arg == "inputs" for k in call.keywords) and code.is_hot(call):
            message = f"this computes the gradients of all weights, and only `{name}.grad` is read; pass `inputs=[{name}]`"
            fix = code.fix(f"ask for the gradient of `{name}`", _asked_for(code, call, name), unless=[_ADDS])
            severity = None if _is_of_steps(code) else Severity.INFO
            yield code.finding(call, message, fix, [_ADDS], severity=severity)


def _is_of_steps(code: Code) -> bool:
    """Whether a loop whose function has an optimizer step calls the function, maybe through others."""
    sites = code.facts.inference.callers.above(code.scope, _DEPTH)
    return any(
        flow_of(site.scope).calls_named.get("step") and flow_of(site.scope).loop(site.node) is not None for site in sites
    )


def _are_for_a_step(code: Code, scope: Scope, depth: int) -> bool:
    """Whether a caller steps with the gradients that a function leaves in the weights: no backward pass is in between."""
    for site in code.facts.inference.callers.sites(scope).sites:
        flow = flow_of(site.scope)
        behind = {name: [c for c in flow.calls_named.get(name, ()) if flow.order[c] > flow.order[site.node]] for name in _ENDS}
        if behind["backward"] or behind["zero_grad"]:
            continue
        if behind["step"] or (depth and _are_for_a_step(code, site.scope, depth - 1)):
            return True
    return False


def _is_made_leaf(code: Code, name: str) -> bool:
    """Whether a function asks for the gradient of a tensor of its own: `delta.requires_grad = True`, and the like."""
    for store in code.flow.stores:
        match store:
            case ast.Attribute(value=ast.Name(id=held), attr="requires_grad") if held == name:
                return True
    for call in code.flow.calls:
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr="requires_grad_")) if held == name:
                return True
    made = [d.value for d in code.flow.definitions_of(name) if d.kind == "assign"]
    return bool(made) and any(_asks(value) for value in made)


def _asks(value: ast.expr | None) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(attr="requires_grad_")):
            return True
        case ast.Call(keywords=keywords):
            asked = (k.value for k in keywords if k.arg == "requires_grad")
            return any(isinstance(given, ast.Constant) and given.value is True for given in asked)
    return False


def _asked_for(code: Code, call: ast.Call, name: str) -> Iterator[Edit]:
    yield add_keyword(code.source, call, "inputs", f"[{name}]")
