"""The same tensor is computed twice in a step, or again in each round of a loop.

## What it does
Finds costly functions of torch (products of matrices, softmax, sorting, distances, decompositions, Fourier transforms) and
calls of `nn.Linear`, `nn.Embedding` and `nn.Softmax` that are written twice with the same operands in one step, and those in
an inner loop that changes none of their operands.

## Why it is slow
The second result is the first one again: as many kernels, and in training as much memory for the backward pass.

## Example
```python
for x, y in loader:
    scores = model(x)
    loss = -(torch.log_softmax(scores, 1) * y).sum()
    entropy = torch.log_softmax(scores, 1).exp().sum()
    (loss + entropy).backward()
```

## Use instead
```python
for x, y in loader:
    scores = model(x)
    log_probabilities = torch.log_softmax(scores, 1)
    loss = -(log_probabilities * y).sum()
    entropy = log_probabilities.exp().sum()
    (loss + entropy).backward()
```

## When it stays silent
When an operand is bound, written to or changed in between, under another context manager, where an optimizer steps or a
backward pass runs in between, for functions that draw random numbers, and outside of code that runs each step.

## Fix safety
There is no fix: what is done to the one result in place would be done to the other.
"""

import ast
from collections import Counter
from collections.abc import Iterator

from perflint.api import (
    Block,
    Code,
    Cost,
    External,
    Finding,
    Object,
    Output,
    Severity,
    Tensor,
    path_of,
    rule,
    words,
    written_rounds,
)

_COSTLY = words(
    """
    softmax log_softmax logsumexp matmul mm bmm einsum cdist sort argsort topk unique one_hot inverse pinverse det slogdet
    cholesky qr svd eigh eig inv pinv solve lstsq norm fft ifft rfft irfft fft2 ifft2 stft normalize cosine_similarity
    interpolate grid_sample cumsum cumprod logcumsumexp
    """
)
_PACKAGES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft")
_LAYERS = frozenset(f"torch.nn.{name}" for name in ("Linear", "Embedding", "Softmax", "LogSoftmax", "Conv1d", "Conv2d"))
_CHANGES = frozenset(("step", "backward", "train", "eval", "load_state_dict", "copy_"))
_SHAPES = words(
    "view reshape flatten transpose permute t unsqueeze squeeze expand contiguous float double long size len detach"
)
_FEW = 4


@rule(
    category="memory",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    needs=[("for", "forward"), ("(",)],
    in_file=[("torch",)],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each computation that a step has made already."""
    earlier: dict[str, list[ast.Call]] = {}
    named_alike = Counter(path_of(call.func) for call in code.flow.calls)
    written = {call: ast.dump(call) for call in code.flow.calls if named_alike[path_of(call.func)] > 1}
    written_alike = Counter(written.values())
    for call in code.flow.calls:
        may_repeat = call in written and written_alike[written[call]] > 1
        if not (may_repeat or _has_rounds_alike(code, call)) or not _is_costly(code, call):
            continue
        same = earlier.setdefault(written[call], []) if call in written else []
        first = next((other for other in same if _is_repeated(code, other, call)), None)
        same.append(call)
        text = ast.unparse(call)[:60]
        if first is not None:
            if code.is_hot(call):
                yield code.finding(call, f"`{text}` has been computed in line {first.lineno}; keep what it gave")
        elif _is_invariant(code, call):
            yield code.finding(call, f"`{text}` is the same in each round of the loop; compute it before")


def _is_costly(code: Code, call: ast.Call) -> bool:
    """Whether a call computes a tensor by a function or a layer of the table; a result that is written in place is another."""
    name = (path_of(call.func) or "").rpartition(".")[2]
    if name in _COSTLY:
        held = code.value(call.func).single
        if isinstance(held, External):
            package, _, function = held.qualname.rpartition(".")
            return package in _PACKAGES and function in _COSTLY and not any(k.arg == "out" for k in call.keywords)
        return isinstance(call.func, ast.Attribute) and code.value(call.func.value).must_be_if_known(Tensor, Output)
    layer = code.value(call.func).single if call.args else None
    return isinstance(layer, Object) and layer.qualname in _LAYERS


def _operands(code: Code, call: ast.Call) -> list[ast.Name]:
    """The variables that a call takes; the module or package whose function it is left out."""
    return [part for part in ast.walk(call) if isinstance(part, ast.Name) and not code.value(part).must_be(External)]


def _is_repeated(code: Code, first: ast.Call, second: ast.Call) -> bool:
    """Whether one call has computed the same in the same round, for all that is seen."""
    flow = code.flow
    home = flow.block[first]
    if flow.loop(first) is not flow.loop(second) or not _is_within(flow.block[second], home):
        return False
    if not _is_repeatable(code, second):
        return False
    pairs = zip(_operands(code, first), _operands(code, second), strict=True)
    if not all(flow.reaching.get(a, frozenset()) == flow.reaching.get(b, frozenset()) for a, b in pairs):
        return False
    return not _is_changed(code, second, flow.order[first], flow.order[second])


def _is_within(block: Block, home: Block) -> bool:
    """Whether a block runs only where another has run before, under the same context managers."""
    for outer in block.ancestry():
        if outer is home:
            return True
        if outer.kind not in ("then", "else", "operand"):
            return False
    return False


def _has_rounds_alike(code: Code, call: ast.Call) -> bool:
    """Whether a call stands in a loop that binds nothing of what the call names."""
    flow = code.flow
    loop = flow.loop(call)
    if loop is None or loop.statement is None or loop.iterated is None or flow.block[call] is not loop.block:
        return False
    bound = [d for part in ast.walk(call) if isinstance(part, ast.Name) for d in flow.reaching.get(part, ())]
    return (written_rounds(loop) or _FEW) >= _FEW and not any(b is loop.block for d in bound for b in d.block.ancestry())


def _is_invariant(code: Code, call: ast.Call) -> bool:
    """Whether a call in a loop within a step takes nothing that the loop changes."""
    flow = code.flow
    loop = flow.loop(call)
    if loop is None or loop.iterated is None or loop in code.step_loops() or not _has_rounds_alike(code, call):
        return False
    if not code.is_hot(loop.iterated) or not _is_repeatable(code, call):
        return False
    inside = [flow.order[node] for node in flow.order if flow.within(node, loop.block)]
    return not _is_changed(code, call, min(inside) - 1, max(inside) + 1)


def _is_repeatable(code: Code, call: ast.Call) -> bool:
    """Whether the calls within a call give the same each time: they give other shapes, or are costly themselves."""
    inner = (node for node in ast.walk(call) if isinstance(node, ast.Call) and node is not call)
    return all((path_of(node.func) or "").rpartition(".")[2] in _SHAPES or _is_costly(code, node) for node in inner)


def _is_changed(code: Code, call: ast.Call, after: int, before: int) -> bool:
    """Whether something in between may write to an operand, or to the weights of a network."""
    names = {part.id for part in _operands(code, call)}
    for node in code.flow.order:
        if not after < code.flow.order[node] < before:
            continue
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                changes = name.endswith("_") and not name.startswith("_")
                if name in _CHANGES or (changes and (path_of(owner) or "").partition(".")[0] in names):
                    return True
            case (
                ast.Subscript(value=base, ctx=ast.Store())
                | ast.AugAssign(target=base)
                | ast.Attribute(value=base, ctx=ast.Store())
            ):
                if (path_of(base) or "").partition(".")[0] in names:
                    return True
    return False
