"""Cached GPU memory is given back in every step, and asked for again in the next.

## What it does
Finds `torch.cuda.empty_cache()` and `gc.collect()` in code that runs each step.

## Why it is slow
`empty_cache` waits for the device, hands free blocks back to the driver, and the next step allocates them again, which waits,
too. It frees nothing that a tensor still holds, so it prevents no out-of-memory error in steps of one shape. `gc.collect` walks
all objects of the program: milliseconds in a program with many.

## Example
```python
for x, y in loader:
    loss = criterion(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()
```

## Use instead
```python
for x, y in loader:
    loss = criterion(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
```
Against fragmentation, set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; `perflint_runtime.MemoryManager` empties the
cache when memory runs short, and not before.

## When it stays silent
Under a guard such as `step % 100 == 0` or a test of free memory, in an exception handler, once per epoch or between phases.
For `gc.collect(0)` and `gc.collect(1)`, which look at young objects only.
To ask whether there is a GPU (`if torch.cuda.is_available():`) is no guard.
In evaluations, in functions that are named for trying out what fits into memory (`find_batch_size`) or that measure how much
memory is taken (`reset_peak_memory_stats`), select it to see it. So where another library needs memory of the GPU,
which it cannot get while torch keeps it: the file, or one that calls it in each step, imports TIGRE, ASTRA, CuPy, PyCUDA,
Numba's CUDA, JAX, TensorFlow, TensorRT, ONNX Runtime, Warp, Taichi or MinkowskiEngine, or a comment right above the call names
one of them or another allocator.

## Fix safety
Assumes `memory-to-spare`: a program at the last byte of its GPU, or one that shares it, may run out of memory. Unsafe for
`gc.collect`, for finalizers run at another time, and where a clock is read or something may need the wait.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import (
    Block,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Kind,
    LoopKind,
    Obligation,
    Severity,
    argument,
    delete_statement,
    rule,
    untimed,
)
from perflint_rules.comments import comment_above

_FREES = (
    "torch.cuda.empty_cache",
    "torch.mps.empty_cache",
    "torch.xpu.empty_cache",
    "torch.accelerator.empty_cache",
    "gc.collect",
)
_ASKS = tuple(f"torch.{kind}.is_available" for kind in ("cuda", "mps", "xpu", "accelerator"))
_TRIES_SIZES = re.compile(r"batch_?size|memory|oom", re.I)
"""How functions are called that try out what fits into memory."""
_GPU = re.compile(
    r"torch\.(?:cuda|mps|xpu|accelerator)\.is_available\(\)|[\w.]+\.type == '(?:cuda|mps|xpu)'"
    r"|[\w.]*device == '(?:cuda|mps)[\w:]*'"
    r"|'cuda' in str\([\w.]+\)|[\w.]*device != 'cpu'|(?:\w+\.)*(?:use_|is_)?(?:cuda|gpu)",
    re.IGNORECASE,
)
_FLAG = re.compile(r"not (?:\w+\.)*\w+")
"""What leaves machines out, such as a cluster; one that holds is a wish to give memory back."""
_OTHERS = r"tigre|astra|cupyx?|pycuda|numba\.cuda|jax|tensorflow|tensorrt|onnxruntime|taichi"
_ALLOCATES = re.compile(rf"(?:{_OTHERS}|warp|MinkowskiEngine)(?:\.|$)")
"""Packages with an allocator of their own, which cannot get what torch keeps."""
_FOR_OTHERS = re.compile(rf"\b(?:{_OTHERS}|onnx ?runtime)\b|\b(?:another|other|own|separate)(?: [\w'-]+)? allocator", re.I)
_RUNS_SHORT = Obligation(Kind.MEMORY_TO_SPARE, "a program at the last byte of its memory may need what is freed")
_FINALIZES = Obligation(Kind.UNKNOWN_CODE, "finalizers run at another time")


@rule(category="memory", costs=Cost.WAIT, severity=Severity.WARNING, calls=_FREES, in_file=[("torch",)], fixes=True, steps=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each call that frees memory in code that runs each step."""
    for call in code.calls_to(*_FREES):
        collects = code.is_external(call.func, "gc.collect")
        if not code.is_hot(call) or _is_on_purpose(code, call) or (collects and _is_young(code, call)):
            continue
        missing = [_RUNS_SHORT, _FINALIZES if collects else None, *_relied_upon(code, call), *code.replaced(*_FREES)]
        if not collects and not code.is_external(call.func, "torch.cuda.empty_cache"):
            missing.append(code.caught(call))  # without such a device it raises; CUDA's does nothing then
        what = "all objects of the program are walked" if collects else "cached memory is given back and asked for again"
        message = f"{what} in every step; leave it out"
        fix = code.fix("leave it out", _dropped(code, call), unless=missing)
        trains = code.facts.loops.is_of_training(code.scope, call) and not _TRIES_SIZES.search(code.scope.qualname)
        named = code.flow.calls_named
        trains = trains and ("backward" not in named or "step" in named)  # without a step it only looks at gradients
        trains = trains and (code.step_loop(call) is not None or LoopKind.TRAIN not in code.step_loops().values())
        trains = trains and not _unrolls(code, call)
        trains = trains and not _is_for_others(code, call)
        trains = trains and not any(code.calls("reset_peak_memory_stats", "reset_max_memory_allocated"))
        yield code.finding(call, message, fix, missing, severity=None if trains else Severity.INFO)


def _is_young(code: Code, call: ast.Call) -> bool:
    """`gc.collect(0)` looks at what has been made since the last time."""
    generation = argument(call, 0, "generation")
    return generation is not None and code.value(generation).literal in (0, 1)


def _unrolls(code: Code, call: ast.Call) -> bool:
    """Whether a step goes through loops of gradients of their own: all of them take far longer than to free memory once."""
    step = code.step_loop(call)
    within = (code.flow.loop(taken) for taken in code.flow.calls_named["grad"])
    return any(loop is not None and loop is not step and (step is None or step in loop.ancestry()) for loop in within)


def _is_for_others(code: Code, call: ast.Call) -> bool:
    """Whether another library takes memory of the GPU: the files that are involved import it, or a comment says so."""
    callers = (site.scope.module.source.path for site in code.facts.loops.hot_calls(code.scope))
    imported = (name for file in {code.source.path, *callers} for name in code.facts.project.outside(file))
    return any(map(_ALLOCATES.match, imported)) or _FOR_OTHERS.search(comment_above(code, call)) is not None


def _relied_upon(code: Code, call: ast.Call) -> Iterator[Obligation | None]:
    """What may need the wait for the device that freeing memory is."""
    others = [other for other in code.flow.calls if other is not call]
    yield untimed(others)
    yield from code.needs_wait()


def _is_on_purpose(code: Code, call: ast.Call) -> bool:
    """Whether the call stands in a handler, or behind a test: somebody has looked whether it is needed."""
    loop = code.step_loop(call)
    for block in code.flow.block[call].ancestry():
        if loop is not None and block is loop.block:
            return False
        if block.kind in ("handler", "then", "else", "finally") and not _asks_for_gpu(block):
            return True
    return False


def _asks_for_gpu(block: Block) -> bool:
    """Whether a condition asks for a GPU, `device.type == "cuda"`, and for no more than some flags that are not set."""
    if block.kind != "then" or not isinstance(block.node, ast.If):
        return False
    test = block.node.test
    asked = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    flags = [operand for operand in asked if not _GPU.fullmatch(ast.unparse(operand))]
    return len(flags) < len(asked) and all(_FLAG.fullmatch(ast.unparse(flag)) for flag in flags)


def _dropped(code: Code, call: ast.Call) -> Iterator[Edit]:
    statement: ast.stmt = code.flow.statement(call)
    if not isinstance(statement, ast.Expr) or statement.value is not call:
        raise CannotRewrite("something becomes of what it returns")
    match code.flow.parent.get(statement):
        case ast.If(test=ast.Call(func=asks, args=[]), body=[_], orelse=[]) as around if code.is_external(asks, *_ASKS):
            statement = around
    yield delete_statement(code.source, statement, list(code.flow.siblings(statement)))
