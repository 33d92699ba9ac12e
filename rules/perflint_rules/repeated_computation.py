"""The same tensor is computed twice in a step, or again in each round of a loop.

## What it does
Finds costly functions of torch (products of matrices, softmax, sorting, distances, decompositions, Fourier transforms) and
calls of `nn.Linear`, `nn.Embedding` and `nn.Softmax` that are written twice with the same operands in one step, and those in
an inner loop that changes none of their operands: there also calls of networks that evaluate (`net.eval()` before the loop).

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
When an operand or a view of it is bound, written to or changed in between, when somebody gets the network and may set what
evaluates (`net.apply(drop_at_random)`), under another context manager, where an optimizer steps or a backward pass runs in
between, for functions that draw random numbers, and outside of code that runs each step.

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
    Loop,
    Object,
    Output,
    Severity,
    Tensor,
    brief,
    last_name,
    path_of,
    rule,
    words,
)
from perflint_rules.rounds_alike import computes_same, is_changed, loop_alike, networks_run_again, operands

_COSTLY = words(
    """
    softmax log_softmax logsumexp matmul mm bmm einsum cdist sort argsort topk unique one_hot inverse pinverse det slogdet
    cholesky qr svd eigh eig inv pinv solve lstsq norm fft ifft rfft irfft fft2 ifft2 stft normalize cosine_similarity
    interpolate grid_sample cumsum cumprod logcumsumexp
    """
)
_PACKAGES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft")
_LAYERS = frozenset(f"torch.nn.{name}" for name in ("Linear", "Embedding", "Softmax", "LogSoftmax", "Conv1d", "Conv2d"))
_SHAPES = words(
    "view reshape flatten transpose permute t unsqueeze squeeze expand contiguous float double long size len detach"
)


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
    flow = code.flow
    named_alike = Counter(path_of(call.func) for call in flow.calls)
    written = {call: ast.dump(call) for call in flow.calls if named_alike[path_of(call.func)] > 1}
    written_alike = Counter(written.values())
    for call in flow.calls:
        may_repeat = call in written and written_alike[written[call]] > 1
        if not may_repeat and flow.block[call].loop is None:
            continue
        alike = loop_alike(code, call, directly=last_name(call.func) not in _COSTLY)
        if not (may_repeat or alike is not None) or not _is_costly(code, call):
            continue
        same = earlier.setdefault(written[call], []) if call in written else []
        first = next((other for other in same if _is_repeated(code, other, call)), None)
        same.append(call)
        text = brief(call)
        if first is not None:
            if code.is_hot(call):
                message = f"`{text}` has been computed in line {first.lineno}; keep what it gave"
                yield code.finding(call, message)
        elif alike is not None and computes_same(code, call, alike) and _is_repeatable(code, call):
            yield code.finding(call, _again(text, alike, flow.loop(call)))
    for call, loop in networks_run_again(code):
        yield code.finding(call, _again(brief(call), loop, flow.loop(call)))


def _again(text: str, loop: Loop, innermost: Loop | None) -> str:
    if loop is innermost:
        return f"`{text}` is the same in each round of the loop; compute it before"
    assert loop.statement is not None
    return f"`{text}` is computed again in each round of the loop in line {loop.statement.lineno}; keep what the first gave"


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


def _is_repeated(code: Code, first: ast.Call, second: ast.Call) -> bool:
    """Whether one call has computed the same in the same round, for all that is seen."""
    flow = code.flow
    home = flow.block[first]
    if flow.loop(first) is not flow.loop(second) or not _is_within(flow.block[second], home):
        return False
    if not _is_repeatable(code, second):
        return False
    pairs = zip(operands(code, first), operands(code, second), strict=True)
    if not all(flow.reaching.get(a, frozenset()) == flow.reaching.get(b, frozenset()) for a, b in pairs):
        return False
    return not is_changed(code, second, flow.order[first], flow.order[second])


def _is_within(block: Block, home: Block) -> bool:
    """Whether a block runs only where another has run before, under the same context managers."""
    for outer in block.ancestry():
        if outer is home:
            return True
        if outer.kind not in ("then", "else", "operand"):
            return False
    return False


def _is_repeatable(code: Code, call: ast.Call) -> bool:
    """Whether the calls within a call give the same each time: they give other shapes, or are costly themselves."""
    inner = (node for node in ast.walk(call) if isinstance(node, ast.Call) and node is not call)
    return all((path_of(node.func) or "").rpartition(".")[2] in _SHAPES or _is_costly(code, node) for node in inner)
