"""A constant tensor is built on the host and then copied to the device.

## What it does
Finds `torch.zeros(...).to(device)`, `torch.arange(...).cuda()` and the like in code that runs each step, also
`torch.cuda.FloatTensor(np.ones(...))`, and `to_var(torch.ones(...))` where a helper copies it.

## Why it is slow
The CPU fills memory, copies it (from pageable memory) and waits for the copy. With `device=` one kernel fills the tensor
where it is needed: no copy, no wait.

## Example
```python
def forward(self, x):
    mask = torch.zeros(x.size(0), x.size(1)).to(x.device)
    return self.layer(x, mask)
```

## Use instead
```python
def forward(self, x):
    mask = torch.zeros(x.size(0), x.size(1), device=x.device)
    return self.layer(x, mask)
```

## When it stays silent
Outside of code that runs each step, when the call has `device=` already, for zero states of an RNN (rnn-zero-state-on-cpu) and
random numbers (rng-factory-then-transfer). Each step's waits are counted by the sync budget; select the rule to see them one by
one.

## Fix safety
Safe for `zeros`, `ones`, `empty`, `eye`, `full` and for `arange` with integers, if `.to` or `.cuda` gets exactly a device, and
nothing in the program may need the wait (blocking-h2d-in-loop says what). Unsafe when the device is known by its name only:
`.to` takes a tensor or a type as well, a factory does not. A change of type in the same call keeps its own rounding, so it is
left alone; zeros and ones are the same in each type. The same holds for a layout that is made before the copy
(`torch.arange(n).unsqueeze(0).to(device)`) and a `Variable`, if it is memory of its own or computed with at once. There is no
fix for `.to(other_tensor)`, which also converts the type, and for what else is computed before the copy: the device may round
otherwise. Where fixes may import the runtime, `moved_copy(torch.linspace(0, 1, n), device)` copies the same.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Alternative,
    Code,
    Cost,
    Device,
    Finding,
    Heat,
    Literal,
    Obligation,
    Output,
    Place,
    Severity,
    Tensor,
    any_layout,
    feeds_rnn,
    is_refuted,
    last_name,
    moved_to,
    no_device,
    path_of,
    rule,
    without_effect,
)
from perflint_rules.constant_arrays import arrays_of_constants
from perflint_rules.guarded_copies import copied, folded, stays_on_host, takes_device
from perflint_rules.handed_factories import HANDED, factories_handed_on
from perflint_rules.host_factories import factories_behind, inexact, is_factory, is_used_on_host
from perflint_rules.host_fills import made_by_helper
from perflint_rules.laid_out_factories import laid_out

_MOVED_FACTORY = any_layout(
    rb"\b(?:zeros|ones|empty|eye|full|arange|linspace) \("
    rb"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)[^=]{0,60}? \. (?:to|cuda) \("
)
_FROM_NUMPY = any_layout(rb"Tensor \( (?:np|numpy) \.")
_FACTORY = any_layout(
    rb"\b(?:torch|np|numpy) \. (?:zeros|ones|empty|eye|identity|full|arange|array) \("
    rb"|Tensor \((?:[^()]|\([^()]*\))*\) \. (?:zero_|fill_|to \(|cuda \()"
)
_BY_HELPER = any_layout(rb"\w \( [\w\s.,=*/+-]*\) \. (?:to|cuda) \(")
_DRAWN = any_layout(rb"(?:sampl|rand|nois|draw|perm(?!ute))\w* \(")


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[(".to(", ".cuda(", _FROM_NUMPY, HANDED), (_MOVED_FACTORY, _FROM_NUMPY, _FACTORY, HANDED, _DRAWN, _BY_HELPER)],
    fixes=True,
    in_budget=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each tensor that is built on the host and moved at once."""
    for call in (c for c in code.calls("to", "cuda") if isinstance(c.func, ast.Attribute)):
        factory = _factory(code, call)
        if factory is None:
            yield from _computed(code, call)
            continue
        if not code.is_hot(call) or feeds_rnn(code.facts, code.scope, call):
            continue
        device = moved_to(code.facts, code.scope, call)
        if stays_on_host(code, device):
            continue
        if device is None:
            yield from _like_another(code, call, factory)
            continue
        missing, fix, cure = [*_open(code, call, factory, device)], None, "pass `device=` instead"
        if takes_device(factory):
            fix = code.fix("build the tensor on the device", folded(code, call, factory, device), unless=missing)
        if (fix is None or is_refuted(filter(None, missing))) and (copy := copied(code, call)):
            fix, missing, cure = copy, list(code.needs_wait()), copy.message
        name = last_name(factory.func)
        message = f"the result of `torch.{name}` is built on the host and copied to the device in every step; {cure}"
        yield code.finding(call, message, fix, missing, waits=[call])
    yield from arrays_of_constants(code)
    yield from factories_handed_on(code)


def _like_another(code: Code, call: ast.Call, factory: ast.Call) -> Iterator[Finding]:
    """`torch.zeros(n).to(x)`: its type and its device are those of `x`."""
    if _likens(code, call):
        name, like = ast.unparse(factory.func), ast.unparse(call.args[0])
        message = f"the result of `{name}` is built on the host and copied to the device in every step"
        fix, cure = copied(code, call), f"pass `{like}`'s `device=` and `dtype=` instead"
        missing = code.needs_wait() if fix else ()
        yield code.finding(call, f"{message}; {cure}", fix, missing, waits=[call])


def _computed(code: Code, call: ast.Call) -> Iterator[Finding]:
    """`torch.exp(torch.arange(n) * 2).to(device)`: computed on the host from nothing but numbers, maybe named, then copied."""
    if not isinstance(call.func, ast.Attribute):
        return  # a function of the project's own: `cuda(torch.rand(n), use_cuda)`
    factories = factories_behind(code, call.func.value)
    unseen = _likens(code, call) or code.heat is Heat.FORWARD  # other copies are blocking-h2d-in-loop's
    made = made_by_helper(code, call.func.value, unseen) if not factories and code.is_hot(call) else None
    if made is not None:
        yield code.finding(call, made, waits=[call])
    if not factories or not code.is_hot(call) or feeds_rnn(code.facts, code.scope, call):
        return
    if is_used_on_host(code, call.func.value):
        return
    device = moved_to(code.facts, code.scope, call)
    if (_likens(code, call) or device is not None) and not stays_on_host(code, device):
        name = ast.unparse(factories[0].func)
        message = f"what is computed from `{name}` is computed on the host and copied to the device in every step"
        missing: list[Obligation | None] = []
        fix = None
        if device is not None and laid_out(code, call) == factories and takes_device(factories[0]):
            missing = [*_open(code, call, factories[0], device)]
            fix = code.fix("build the tensor on the device", folded(code, call, factories[0], device), unless=missing)
        cure = f"pass `device=` to `{name}`{'' if fix else ', or keep the result'}"
        if not is_factory(code, factories[0]):
            cure = "build it on the device, or keep the result"
        if (fix is None or is_refuted(filter(None, missing))) and (copy := copied(code, call)):
            fix, missing = copy, list(code.needs_wait())
        yield code.finding(call, f"{message}; {cure}", fix, missing, waits=[call])


def _open(code: Code, call: ast.Call, factory: ast.Call, device: ast.expr) -> Iterator[Obligation | None]:
    """What is open about building a tensor of numbers on the device."""
    yield inexact(code, factory)
    yield from code.needs_wait()
    yield None if device is call else no_device(code.facts, code.scope, device)
    yield from code.changes_factories(factory, ast.unparse(factory.func))
    yield None if device is call or path_of(device) is not None else without_effect(code.facts, code.scope, device)


def _likens(code: Code, call: ast.Call) -> bool:
    """Whether a call is `x.to(other)`, of a tensor that may be on the device."""
    given = call.args[0] if len(call.args) == 1 and not call.keywords else None
    return given is not None and code.value(given).must_be_if_known(Tensor, Output) and code.may_be_on_device(given)


def _factory(code: Code, call: ast.Call) -> ast.Call | None:
    """The factory call that `call` moves to a device, if that is all it does."""
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Call):
        return None
    return call.func.value if is_factory(code, call.func.value) and _is_built_on_host(code, call.func.value) else None


def _is_built_on_host(code: Code, factory: ast.Call) -> bool:
    """Whether no argument of a factory says where the tensor is to be, but the host."""
    given = [keyword.value for keyword in factory.keywords if keyword.arg in ("device", None)]
    return all(code.value(device).must(_is_host) for device in given)


def _is_host(alternative: Alternative) -> bool:
    match alternative:
        case Device(Place.HOST) | Literal("cpu" | None):
            return True
    return False
