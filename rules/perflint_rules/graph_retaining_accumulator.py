"""A running total keeps the graph of every step alive.

## What it does
Finds `total += loss`, `total = total + loss` and `losses.append(loss)` beside `loss.backward()` in a training loop, where
nobody runs a backward pass through the sum. The total may be an attribute or an item, too (`self.total`, `logs["loss"]`).

## Why it costs memory
The total is a tensor that belongs to the graphs of all steps so far. The backward pass has freed what they saved, but the
nodes stay, each with its Python and C++ objects, and what functions of one's own keep in `ctx`: memory grows with every step,
until the total is dropped, and dropping a chain of thousands of nodes takes time, too.

## Example
```python
total = 0.0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss
print(f"{float(total):.3f}")
```

## Use instead
```python
total = 0.0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.detach()
print(f"{float(total):.3f}")
```

## When it stays silent
When the backward pass runs through the sum, where an object or a dict is made anew in each step, with
`retain_graph=True`, without autograd, for totals of `.item()` and `.detach()`, and in test suites. Where a backward
pass has freed what the graph holds, so that some objects of the host are kept, select it.

## Fix safety
Safe behind `loss.backward()`, for a total that starts at a literal number, or a list that starts empty and has no other name,
where every use of it is known to see numbers and lengths alone: arithmetic with numbers and tensors, comparisons with `<`, a
written-out format, `torch.stack`, `sum`, `len`, `.item()`, in a program without finalizers, weak references and hooks that does
not look at warnings (torch warns where `%f` shows a tensor with a graph). Unsafe for every other use: `requires_grad`, the text
of a printed tensor, its identity, its attributes and the errors that its graph raises change.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    BUILT_FROM_TEXT,
    FINALIZERS,
    HOOKS,
    LOOKS_AT_FRAMES,
    LOOKS_AT_OBJECTS,
    OWN_TENSORS,
    WATCHES_WARNINGS,
    Code,
    Cost,
    Edit,
    Elements,
    Finding,
    GradUse,
    Kind,
    Literal,
    Loop,
    Obligation,
    Sequence,
    Severity,
    any_layout,
    graph_ends,
    graph_noticed,
    inspects_itself,
    is_differentiated,
    is_differentiated_in,
    is_test,
    replace,
    rule,
)

_NOTICES = (OWN_TENSORS, LOOKS_AT_FRAMES, BUILT_FROM_TEXT, FINALIZERS, WATCHES_WARNINGS, HOOKS, LOOKS_AT_OBJECTS)
_ADDS = any_layout(rb"\+= |\+ |append \(")


@rule(
    category="memory",
    costs=Cost.MEMORY,
    severity=Severity.WARNING,
    needs=[("backward(",), ("+=", "append(", _ADDS)],
    fixes=True,
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loss that is added up, or kept, with its graph."""
    if is_test(code.scope):
        return
    for loss, kept in _accumulated(code):
        loop = code.training_loop_of(loss)
        if loop is None or code.grad_is_off(loss) or _begins_anew(code, kept, loop):
            continue
        is_proved = is_differentiated(code.facts, code.scope, loss)
        if not (is_proved or is_differentiated_in(code.flow, loss)) or _is_retained(code):
            continue
        ends = graph_ends(code.facts, code.scope, loss)
        if any(end.use is GradUse.BACKWARD and not _is_its_own(code, end.node, loss) for end in ends):
            continue
        name = ast.unparse(kept)
        if isinstance(kept, ast.Name):
            missing = [*graph_noticed(code.facts, code.scope, kept.id, loss)]
        else:
            missing = [Obligation(Kind.RETENTION, f"others may look at `{name}`")]
        missing += code.feared(*_NOTICES)
        missing += [] if is_proved else [Obligation(Kind.VALUE, f"`{loss.id}` may be no tensor: its backward pass comes later")]
        missing += [Obligation(Kind.NAMES, "the function looks at its own variables")] if inspects_itself(code.flow) else []
        if not isinstance(kept, ast.Name) or not _starts_as_number(code, kept):
            missing.append(Obligation(Kind.VALUE, f"`{name}` may be a tensor to begin with"))
        if code.scope.is_module:
            missing.append(Obligation(Kind.RETENTION, f"`{name}` is a variable of the module, which others may look at"))
        message = f"`{name}` keeps the graph of every step alive; add `{loss.id}.detach()`"
        fix = code.fix("detach it", _detached(code, loss), unless=missing)
        freed = not is_proved or any(_is_freed(code, call, loss) for call in code.calls("backward"))
        yield code.finding(loss, message, fix, missing, severity=Severity.INFO if freed else None)


def _accumulated(code: Code) -> Iterator[tuple[ast.Name, ast.expr]]:
    """What is added to a variable, an attribute or an item, or appended to a list, and what keeps it."""
    for node in code.flow.order:
        match node:
            case ast.AugAssign(op=ast.Add(), target=(ast.Name() | ast.Attribute() | ast.Subscript()) as kept, value=value):
                added: ast.expr | None = value
            case ast.Assign(targets=[ast.Name() as kept], value=ast.BinOp(ast.Name(id=same), ast.Add(), value)) if (
                same == kept.id
            ):
                added = value
            case ast.Call(func=ast.Attribute(value=ast.Name() as kept, attr="append"), args=[value]):
                added = value
            case ast.Call(
                func=ast.Attribute(value=(ast.Attribute() | ast.Subscript()) as kept, attr="append"), args=[value]
            ) if code.value(kept).may_be(Sequence, Elements):
                added = value
            case _:
                continue
        if isinstance(added, ast.BinOp) and isinstance(added.op, (ast.Mult, ast.Div)):
            added = added.left
        if isinstance(added, ast.Name):
            yield added, kept


def _begins_anew(code: Code, kept: ast.expr, loop: Loop) -> bool:
    """Whether what keeps the losses is made in the loop: it holds those of one step."""
    if isinstance(kept, ast.Name):
        return False
    root = kept
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    made = code.flow.reaching.get(root, frozenset())
    paths = {ast.unparse(part) for part in ast.walk(kept) if isinstance(part, (ast.Attribute, ast.Subscript))}
    stores = [store for store in code.flow.stores if ast.unparse(store) in paths and store is not kept]
    return any(code.flow.within(node, loop.block) for node in (*(d.node for d in made), *stores))


def _is_freed(code: Code, backward: ast.Call, loss: ast.Name) -> bool:
    """Whether a backward pass has freed what the graph of a loss holds before it is kept: some objects of the host are left."""
    return backward in code.flow.order and code.flow.dominates(backward, loss) and _is_its_own(code, backward, loss)


def _is_its_own(code: Code, backward: ast.AST, loss: ast.Name) -> bool:
    """Whether a backward pass starts from the very value that is added up, and not from a total of earlier steps."""
    match backward:
        case ast.Call(func=ast.Attribute(value=ast.Name() as started, attr="backward"), args=[]):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Call(args=[ast.Name() as started]), attr="backward"), args=[]):
            pass  # scaler.scale(loss)
        case ast.Call(func=ast.Attribute(attr="backward"), args=[ast.Name() as started]):
            pass  # accelerator.backward(loss)
        case _:
            return False
    return started.id == loss.id and code.flow.reaching.get(started) == code.flow.reaching.get(loss)


def _is_retained(code: Code) -> bool:
    return any(k.arg in ("retain_graph", "create_graph") for call in code.calls("backward") for k in call.keywords)


def _starts_as_number(code: Code, kept: ast.Name) -> bool:
    """Whether a total begins as a number, or a list as an empty one."""
    first = [d for d in code.flow.definitions_of(kept.id) if d.kind != "augmented" and d.value is not None]
    begins = [
        d.value for d in first if d.value is not None and kept.id not in {getattr(n, "id", None) for n in ast.walk(d.value)}
    ]
    return bool(begins) and all(
        (isinstance(v, ast.List) and not v.elts) or code.value(v).must(lambda a: isinstance(a, Literal)) for v in begins
    )


def _detached(code: Code, loss: ast.Name) -> Iterator[Edit]:
    yield replace(code.source, loss, f"{loss.id}.detach()")
