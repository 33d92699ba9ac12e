"""Zero states are built for a recurrent layer that would start from zeros anyway.

## What it does
Finds `self.lstm(x, (h0, c0))` where the states are fresh `torch.zeros(...)`.

## Why it is slow
With `.to(device)`, each batch pays two fills on the host, two copies and two waits. With `device=`, the layer would build
the same zeros itself, so nothing is gained but shorter code.

## Example
```python
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x):
        h0 = torch.zeros(1, x.size(0), 16).to(x.device)
        c0 = torch.zeros(1, x.size(0), 16).to(x.device)
        out, _ = self.lstm(x, (h0, c0))
        return out
```

## Use instead
```python
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x):
        out, _ = self.lstm(x)
        return out
```

## When it stays silent
For states that are carried from batch to batch, learnable, random or otherwise not zero, and for zeros that are used
elsewhere too (see rnn-zero-state-on-cpu). Where the fix needs a look, select it to see it.

## Fix safety
Assumes `errors-are-bugs` where the callee is torch's LSTM, GRU or RNN (or a cell), the states are zeros without doubt, nothing
writes to them, and nothing else uses them. The outputs are bit-identical (checked for LSTM, GRU, RNN and cells, also
bidirectional, with several layers and `proj_size`). A state of another shape or type than the layer takes raises (a smaller
last batch, an input without a batch, weights in float64); without it, nothing does. In a program with autocast it assumes
`no-autocast`, too. It is unsafe for a state of another type than float32 that is written out (a cell hands it on, a layer
raises), and in a program that registers hooks or puts other layers in the place of its own.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    AUTOCAST,
    BUILT_FROM_TEXT,
    HOOKS,
    PATCHED,
    RECURRENT_CALL,
    RECURRENT_LAYER,
    SET_BY_NAME,
    CannotRewrite,
    Code,
    Cost,
    Definition,
    Edit,
    Finding,
    Import,
    Kind,
    Obligation,
    RnnCall,
    Severity,
    asks_for_gradient,
    built_for,
    change_call,
    delete_statement,
    has_type_of_its_own,
    inspects_itself,
    is_zero_state,
    rnn_calls,
    rule,
    state_parts,
    untouched,
    without_effect,
)


@rule(
    category="hidden-state",
    costs=Cost.ALLOCATION,
    severity=Severity.WARNING,
    needs=[("zeros", "zero_", "hidden", "state"), RECURRENT_CALL],
    near=[RECURRENT_LAYER],
    fixes=True,
    by_fix=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each recurrent call that is given fresh zeros and nothing but zeros."""
    for call in rnn_calls(code.facts, code.scope):
        parts = state_parts(code.scope, call.state)
        if not all(is_zero_state(code.facts, code.scope, part) for part in parts) or not code.is_hot(call.node):
            continue
        made = built_for(code.facts, code.scope, call)
        if made is None:
            continue
        missing = [
            None if call.certain else Obligation(Kind.VALUE, "the layer may be no LSTM, GRU or RNN of torch"),
            *(untouched(code.facts, code.scope, d, call.node) for d in made),
            *_lost(code, call, made),
        ]
        fix = code.fix("leave the state out", _without_state(code, call, made), unless=missing)
        message = (
            f"the zero state for `{ast.unparse(call.node.func)}` is built for every batch; leave it out, the layer starts "
            "from zeros"
        )
        waits = list(_transfers(call, made))
        little = None if waits or code.may_take(fix) else Severity.INFO
        yield code.finding(call.state, message, fix, missing, waits=waits, severity=little)


def _lost(code: Code, call: RnnCall, made: list[Definition]) -> Iterator[Obligation]:
    """What the program does by building the state, apart from building it."""
    parts = state_parts(code.scope, call.state)
    for source in (call.state, *parts, *(d.value for d in made)):
        reason = without_effect(code.facts, code.scope, source) if source is not None else None
        if reason is not None:
            yield reason
    if any(code.value(part).may(asks_for_gradient) for part in parts):
        yield Obligation(Kind.GRADIENT, "the state asks for a gradient")
    if any(code.value(part).may(has_type_of_its_own) for part in parts):
        yield Obligation(
            Kind.VALUE, "the state has a type of its own: a cell hands it on, a layer raises if its input has another one"
        )
    if any(code.feared(AUTOCAST)):
        yield Obligation(Kind.NO_AUTOCAST, "with autocast the input may have another type than the state")
    yield from code.feared(HOOKS, PATCHED, SET_BY_NAME, BUILT_FROM_TEXT)
    yield from code.replaced(*(f"torch.nn.{kind}{cell}" for kind in ("LSTM", "GRU", "RNN") for cell in ("", "Cell")))
    yield from code.changes_factories(made[0].node if made else call.node, "torch.zeros")
    yield Obligation(
        Kind.ERRORS_ARE_BUGS, "a state of another shape or type than the layer takes raises, and the call without it does not"
    )
    if inspects_itself(code.flow):
        yield Obligation(Kind.NAMES, "the function asks for its own variables by name")


def _transfers(call: RnnCall, made: list[Definition]) -> list[ast.expr]:
    """The copies to the device that building the state takes."""
    sources = [d.value for d in made if d.value is not None] or [call.state]
    return [
        part
        for source in sources
        for part in ast.walk(source)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in ("to", "cuda")
    ]


def _without_state(code: Code, call: RnnCall, made: list[Definition]) -> Iterator[Edit | Import]:
    import libcst as cst

    statements: dict[ast.stmt, list[Definition]] = {}
    for definition in made:
        statements.setdefault(code.flow.statement(definition.node), []).append(definition)
    for statement, definitions in statements.items():
        bound = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if bound != {d.name for d in definitions} or not isinstance(statement, ast.Assign):
            raise CannotRewrite("the statement binds something else too")
        siblings = code.flow.siblings(statement)
        if all(sibling in statements for sibling in siblings):
            raise CannotRewrite("a branch would be empty")
        yield delete_statement(code.source, statement, siblings)

    def change(node: cst.Call) -> cst.Call:
        kept = [a for i, a in enumerate(node.args) if not (i == 1 and a.keyword is None) and _keyword(a) != "hx"]
        if kept:
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return node.with_changes(args=kept)

    edit = change_call(code.source, call.node, change)
    if code.text(call.node).count("#") > edit.content.count("#"):
        raise CannotRewrite("a comment would be lost")
    yield edit


def _keyword(argument: object) -> str | None:
    keyword = getattr(argument, "keyword", None)
    return keyword.value if keyword is not None else None
