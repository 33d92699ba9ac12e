"""A backward pass computes gradients that are thrown away.

## What it does
Finds backward passes through a network whose own optimizer then clears the gradients that it got: the critic in the loss of an
actor, the discriminator in the loss of a generator, the generator in the loss of a discriminator.

## Why it is slow
The gradients of all its weights are computed, added to what is there and dropped by `zero_grad`: for a linear layer that is
half of its backward pass.

## Example
```python
actor = nn.Linear(4, 4).to(device)
critic = nn.Linear(4, 1).to(device)
actor_optimizer = torch.optim.Adam(actor.parameters())
critic_optimizer = torch.optim.Adam(critic.parameters())
for x, y in loader:
    critic_optimizer.zero_grad()
    criterion(critic(x), y).backward()
    critic_optimizer.step()
    actor_optimizer.zero_grad()
    actor_loss = -critic(actor(x)).mean()
    actor_loss.backward()
    actor_optimizer.step()
```

## Use instead
```python
actor = nn.Linear(4, 4).to(device)
critic = nn.Linear(4, 1).to(device)
actor_optimizer = torch.optim.Adam(actor.parameters())
critic_optimizer = torch.optim.Adam(critic.parameters())
for x, y in loader:
    critic_optimizer.zero_grad()
    criterion(critic(x), y).backward()
    critic_optimizer.step()
    actor_optimizer.zero_grad()
    critic.requires_grad_(False)
    actor_loss = -critic(actor(x)).mean()
    actor_loss.backward()
    critic.requires_grad_(True)
    actor_optimizer.step()
```
Where the loss needs no gradient through the network at all (a generator in the loss of a discriminator), detach what it gave.

## When it stays silent
Where the function switches `requires_grad`, where what the network gave is detached, and where the network's optimizer steps
before it clears the gradients.

## Fix safety
There is no fix: who else reads these gradients is not known.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from perflint.api import Code, Cost, Finding, Severity, any_layout, path_of, rule

_OPTIMIZES = any_layout(
    rb"= \w+(?: \. \w+)* \( (?:params = )?(?:filter \( lambda \w+ : \w+ \. requires_grad , )?"
    rb"((?:self \. )?\w+) \. parameters \( \)"
)
_TARGET = any_layout(rb"(?:self \. )?\w+ \Z")
_LOOK_BACK = 500
_SWITCHES = any_layout(rb"requires_grad(?! = True [,)])|toggle_grad|backward \([^()]*inputs =")
"""What switches gradients off, or says whose are wanted; `Variable(x, requires_grad=True)` asks for those of an input."""
_CLEARS = any_layout(rb"_grad \(")
_DETACHES = frozenset(("detach", "data", "item", "numpy"))


@rule(
    category="autograd",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("backward(",), (_CLEARS,), (".step(",)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each network that a backward pass goes through and whose gradients are cleared before its optimizer steps."""
    if _SWITCHES.search(code.scope.text):
        return
    trained = _trained(code.source.body)
    if len(trained) < 2:
        return
    for call in code.calls("backward"):
        stepped = _next(code, call, trained, "step")
        if not isinstance(call.func, ast.Attribute) or stepped is None:
            continue
        reached = dict(_networks(code, call.func.value, set()))
        for optimizer, network in sorted(trained.items()):
            shared = [o for o, n in trained.items() if n == network and o != optimizer]
            if network == trained[stepped] or network not in reached or shared:
                continue
            if _is_cleared_next(code, call, optimizer):
                message = (
                    f"the backward pass also computes the gradients of `{network}`, which `{optimizer}.zero_grad()` drops; "
                )
                yield code.finding(reached[network], message + "switch them off, or detach what it gave")
                break


@lru_cache(maxsize=1)
def _trained(body: bytes) -> dict[str, str]:
    """The networks of a file's optimizers, by these."""
    if body.count(b"parameters") < 2:  # cheaper than the pattern, which looks at every word
        return {}
    trained: dict[str, str] = {}
    for found in _OPTIMIZES.finditer(body):  # what is assigned is looked for backwards: so a search jumps from `=` to `=`
        at = found.start()
        if (target := _TARGET.search(body, max(at - _LOOK_BACK, 0), at)) is not None:
            trained[path(target[0])] = path(found[1])
    return trained


def path(text: bytes) -> str:
    """A name or an attribute without what stands between its parts."""
    return b".".join(re.findall(rb"\w+", re.sub(rb"#[^\n]*", b"", text))).decode()


def _next(code: Code, call: ast.Call, trained: dict[str, str], method: str) -> str | None:
    """The optimizer whose method is called first behind a call."""
    for other in code.calls(method):
        if code.flow.order[other] > code.flow.order[call]:
            for owner in _optimizers(other):
                if owner in trained:
                    return owner
    return None


def _optimizers(call: ast.Call) -> list[str | None]:
    """Whose method may be called: `optimizer.step()`, `scaler.step(optimizer)`."""
    if not isinstance(call.func, ast.Attribute):
        return []
    return [path_of(call.func.value), *(path_of(given) for given in call.args[:1] if call.func.attr == "step")]


def _is_cleared_next(code: Code, call: ast.Call, optimizer: str) -> bool:
    """Whether what an optimizer does next after a call, in this round or the following, is to clear its gradients."""
    spelt = re.escape(optimizer.encode()).replace(rb"\.", rb" \. ")
    clears = any_layout(rb"\b%b \. zero_grad \(" % spelt)
    own = [
        c
        for c in code.flow.calls
        if isinstance(c.func, ast.Attribute)
        and ((c.func.attr in ("step", "zero_grad") and optimizer in _optimizers(c)) or _helps_to_clear(code, c, clears))
    ]
    if not own:  # another function does it
        text = any_layout(rb"%b \. (zero_grad|step) \(" % spelt).search(code.source.body)
        return text is not None and text[1] == b"zero_grad"
    later = [c for c in own if code.flow.order[c] > code.flow.order[call]]
    nearest = (later or own)[:1]
    return any(isinstance(c.func, ast.Attribute) and c.func.attr != "step" for c in nearest)


def _helps_to_clear(code: Code, call: ast.Call, clears: re.Pattern[bytes]) -> bool:
    """`self.reset_grad()`."""
    if not isinstance(call.func, ast.Attribute) or "grad" not in call.func.attr or call.func.attr == "zero_grad":
        return False
    return any(clears.search(target.text) for target in code.facts.loops.targets(code.scope, call))


def _networks(code: Code, node: ast.AST, seen: set[ast.AST]) -> Iterator[tuple[str, ast.Call]]:
    """What was called for a value, as far as its gradient flows, by its name."""
    if node in seen or (isinstance(node, ast.Attribute) and node.attr in _DETACHES):
        return
    seen.add(node)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _DETACHES:
            return
        if code.grad_is_off(node) is True:
            return
        called = path_of(node.func) or ""
        yield from ((name, node) for name in (called, called.rpartition(".")[0]))
    if isinstance(node, ast.Name):
        for definition in code.flow.reaching.get(node, ()):
            if definition.value is not None and definition.kind in ("assign", "augmented", "for"):
                yield from _networks(code, definition.value, seen)
                if definition.kind == "augmented":
                    yield from _networks(code, definition.node, seen)  # what it was before
    for child in ast.iter_child_nodes(node):
        yield from _networks(code, child, seen)
