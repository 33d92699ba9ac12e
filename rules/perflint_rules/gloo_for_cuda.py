"""Gradients of GPUs are reduced by the CPU.

## What it does
Finds `init_process_group("gloo")` in programs that name a GPU.

## Why it is slow
gloo copies each bucket of gradients to the host, adds it up on the CPU, and copies it back. NCCL reduces on the GPUs, over
NVLink where there is one, beside the backward pass.

## Example
```python
torch.distributed.init_process_group("gloo")
```

## Use instead
```python
torch.distributed.init_process_group("nccl")
```

## When it stays silent
When the backend is no literal, under a condition (a fallback for machines without a GPU), and in programs that name no GPU.

## Fix safety
There is no fix: NCCL does not run on Windows and macOS, and needs a GPU for each process.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, argument, rule

_INIT = "torch.distributed.init_process_group"


@rule(category="distributed", costs=Cost.COPY, severity=Severity.INFO, calls=[_INIT], needs=[('"gloo"', "'gloo'")])
def check(code: Code) -> Iterator[Finding]:
    """Report each group of a GPU program that reduces on the host."""
    for call in code.calls_to(_INIT):
        backend = argument(call, 0, "backend")
        if not (isinstance(backend, ast.Constant) and backend.value == "gloo"):
            continue
        decided = any(
            block.kind in ("then", "else", "handler") and not _is_main(block.node) for block in code.flow.block[call].ancestry()
        )
        if not decided and code.facts.project.uses_accelerator(code.source.path):
            yield code.finding(call, 'gradients are copied to the host and added up there; use "nccl" for GPUs')


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
