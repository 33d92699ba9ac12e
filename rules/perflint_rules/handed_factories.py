"""Tensors that a helper copies to the device as soon as they are made, `to_var(torch.randn(n))`: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import Code, Finding, any_layout, moved_to, path_of
from perflint_rules.host_factories import EXACT, RANDOM, is_factory

_NAMES = rb"(?:zeros|ones|empty|eye|full|arange|rand|randn|randint|randperm|normal)"
HANDED = any_layout(rb"(?:[vV]ar|cuda|device|gpu|GPU)\w* \( \w+ \. " + _NAMES + rb" \(")
"""What a call of such a helper looks like."""


def factories_handed_on(code: Code) -> Iterator[Finding]:
    """Report each factory whose result a function of the project copies to a device, and does nothing else with."""
    for call in code.flow.calls:
        given = call.args[0] if call.args else None
        if not isinstance(given, ast.Call) or not is_factory(code, given, EXACT | RANDOM) or not code.is_hot(call):
            continue
        if any(keyword.arg == "device" for keyword in given.keywords) or not HANDED.search(code.text(call).encode()):
            continue
        targets = code.facts.loops.targets(code.scope, call)
        if targets and all(_copies(code.at(target)) for target in targets):
            random = is_factory(code, given, RANDOM)
            made = "random numbers are drawn" if random else f"the result of `{ast.unparse(given.func)}` is built"
            helper, what = ast.unparse(call.func), "them" if random else "it"
            message = f"{made} on the host, and `{helper}` copies {what} to the device in every step; pass `device=` instead"
            yield code.finding(call, message, waits=[call])


def _copies(code: Code) -> bool:
    """Whether a function returns its first parameter, copied to a device, if there is one, and maybe in a `Variable`."""
    parameters = code.scope.parameters[code.scope.owner is not None :]
    name = parameters[0].arg if parameters else None
    moves = [
        call
        for call in code.calls("to", "cuda")
        if isinstance(call.func, ast.Attribute) and path_of(call.func.value) == name and moved_to(code.facts, code.scope, call)
    ]
    return bool(moves) and all(node.value is not None and _is_same(node.value, name, moves) for node in code.flow.returns)


def _is_same(node: ast.expr, name: str | None, moves: list[ast.Call]) -> bool:
    if isinstance(node, ast.Call) and (path_of(node.func) or "").endswith("Variable") and node.args:
        node = node.args[0]
    return node in moves or path_of(node) == name
