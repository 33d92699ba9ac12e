"""A loop in the step launches kernels for one element of a tensor after the other.

## What it does
Finds loops in code that runs each step that go over a tensor, or over `range(x.size(0))`, `range(x.shape[1])` and
`range(len(x))` and take `x[i]` in each round, where no round needs what another has computed.

## Why it is slow
Each round is Python with kernels of its own, each of them too small for the device. One operation on all of the tensor takes
one launch, however many elements there are.

## Example
```python
class Rows(nn.Module):
    def forward(self, x):
        rows = []
        for i in range(x.size(0)):
            rows.append(self.layer(x[i]) * x[i].norm())
        return torch.stack(rows)
model = Rows().to("cuda")
```

## Use instead
```python
class Rows(nn.Module):
    def forward(self, x):
        return self.layer(x) * x.norm(dim=-1, keepdim=True)
model = Rows().to("cuda")
```

## When it stays silent
When a round reads what the one before has bound or stored (a recurrence, a decoder), when the loop reads numbers of the
device (item-in-python-loop), for loops over layers, lists or a few written-out rounds, and in programs that name no device.

## Fix safety
There is no fix: an operation on all elements sums in another order, and what to do with elements of different length is for
the author to say.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    Code,
    Cost,
    Finding,
    Loop,
    LoopKind,
    Option,
    Output,
    Severity,
    Tensor,
    brief,
    path_of,
    rule,
    written_rounds,
)
from perflint_rules.element_uses import is_computed_with

_MIN_ROUNDS = Option("min-rounds", 4, "Loops over a written-out `range` of fewer rounds are left alone")


@rule(
    category="memory",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("for",), ("range(", "enumerate(", "zip(", "in")],
    in_file=[("torch",)],
    steps=True,
    options=[_MIN_ROUNDS],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loop whose rounds are kernels for one element each."""
    for loop in code.flow.loops:
        if loop.iterated is None or not _goes_over_elements(code, loop) or not _runs_in_step(code, loop):
            continue
        if (rounds := written_rounds(loop)) is not None and rounds < code.option(_MIN_ROUNDS):
            continue
        nodes = [node for node in code.flow.order if code.flow.within(node, loop.block)]
        element = next((node for node in nodes if _is_element(code, loop, node) and is_computed_with(code, node)), None)
        if element is None or _carries(code, loop, nodes):
            continue
        if not {read.node for read in (*code.reads(), *code.truths())}.isdisjoint(nodes):
            continue
        yield code.finding(
            loop.iterated, f"each round launches kernels for `{brief(element)}` alone; compute all elements at once"
        )


def _runs_in_step(code: Code, loop: Loop) -> bool:
    """Whether all of a loop belongs to one step, in code that runs each step."""
    assert loop.iterated is not None
    within = code.heat is not None or code.around(loop.iterated) is not None
    return within and code.step_loops().get(loop) is not LoopKind.TRAIN and code.is_hot(loop.iterated)


def _goes_over_elements(code: Code, loop: Loop) -> bool:
    """Whether a loop goes over a tensor, or counts the elements of one."""
    match loop.iterated:
        case ast.Call(func=ast.Name(id="range"), args=[count]) | ast.Call(func=ast.Name(id="range"), args=[_, count]):
            return _counts(code, count)
        case ast.Call(func=ast.Name(id="enumerate" | "zip"), args=args):
            return any(_is_tensor(code, argument) for argument in args)
        case ast.Call(func=ast.Attribute(attr="items" | "keys" | "values")):
            return False
        case ast.expr() as iterated:
            return _is_tensor(code, iterated)
    return False


def _is_tensor(code: Code, node: ast.expr) -> bool:
    held = code.value(node).alternatives
    return bool(held) and all(isinstance(a, Tensor) and not a.guessed for a in held) and code.may_be_on_device(node)


def _counts(code: Code, node: ast.expr, depth: int = 2) -> bool:
    """Whether a number is how many elements a tensor has in a dimension."""
    match node:
        case ast.Call(func=ast.Attribute(attr="size"), args=[_]) | ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="size"), args=[])):
            return True
        case ast.Call(func=ast.Name(id="len"), args=[held]):
            return _is_tensor(code, held)
        case ast.Name() if depth:
            found = code.flow.reaching.get(node, frozenset())
            made = [d.value for d in found if d.kind == "assign" and d.value is not None]
            return bool(made) and len(made) == len(found) and all(_is_size(code, value, depth - 1) for value in made)
    return False


def _is_size(code: Code, node: ast.expr, depth: int) -> bool:
    """Whether a name is bound to a size: `n = x.size(0)`, and `b, n = x.shape` or `b, n = x.size()`."""
    match node:
        case ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size"), args=[]):
            return True
    return _counts(code, node, depth)


def _is_variable(code: Code, loop: Loop, node: ast.AST) -> bool:
    """Whether a name is what a loop binds in each round."""
    bound = code.flow.reaching.get(node, frozenset()) if isinstance(node, ast.Name) else frozenset()
    return bool(bound) and all(d.kind == "for" and d.block is loop.block for d in bound)


def _is_element(code: Code, loop: Loop, node: ast.AST) -> bool:
    """Whether an expression is the element of a tensor that belongs to a round, which is not read."""
    match node:
        case ast.Subscript(value=base, slice=index):
            keys = index.elts if isinstance(index, ast.Tuple) else [index]
            held = (Tensor, Output) if len(keys) > 1 or _has_shape(code, base) else (Tensor,)
            own = any(_is_variable(code, loop, key) for key in keys)
            return own and code.value(base).must_be_if_known(*held) and code.may_be_on_device(base)
        case ast.Name(ctx=ast.Load()):
            return _is_variable(code, loop, node) and _is_tensor(code, node)
    return False


def _has_shape(code: Code, node: ast.expr) -> bool:
    """Whether the scope looks at the shape of a variable: it is no list of tensors."""
    looked_at = (n.value for n in code.flow.order if isinstance(n, ast.Attribute) and n.attr in ("shape", "size"))
    return path_of(node) in {path_of(value) for value in looked_at}


def _carries(code: Code, loop: Loop, nodes: list[ast.AST]) -> bool:
    """Whether a round needs what an earlier one has bound or stored; sums and lists only grow."""
    flow = code.flow
    stored = {path_of(n.value) for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)} - {None}
    here = {d.name for d in flow.definitions if any(block is loop.block for block in d.block.ancestry())}
    stored -= here  # made in the same round
    bound = [t for n in nodes for t in (*getattr(n, "targets", ()), getattr(n, "target", None)) if isinstance(t, ast.expr)]
    targets = {id(part) for target in bound for part in ast.walk(target)}
    for node in nodes:
        if not isinstance(node, (ast.Name, ast.Attribute)) or id(node) in targets:
            continue
        if path_of(node) in stored:
            return True
        for definition in flow.reaching.get(node, ()):
            inside = any(block is loop.block for block in definition.block.ancestry())
            if inside and definition.kind not in ("for", "augmented") and definition.order >= flow.order[node]:
                return True
    return any(isinstance(node, (ast.Break, ast.Return)) for node in nodes)
