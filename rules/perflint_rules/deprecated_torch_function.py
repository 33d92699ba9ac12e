"""A function that torch has replaced is called.

## What it does
Finds calls of `torch.symeig`, `torch.qr`, `torch.cholesky`, `torch.chain_matmul`, `torch.ger`, `torch.range`, `torch.norm`
and the other functions that newer versions have removed or announced to remove, and `F.tanh`, `F.sigmoid`, `F.upsample`.

## Why it is slow
It mostly is not: the names are gone, or warn. The rule is here so that nobody needs a second linter for them.

## Example
```python
outer = torch.ger(torch.ones(2), torch.ones(3))
```

## Use instead
```python
outer = torch.outer(torch.ones(2), torch.ones(3))
```

## When it stays silent
For functions of one's own, for methods of tensors, and where `hasattr` has asked which of the names there is.

## Fix safety
Safe for names that are two for one function (`torch.ger` is `torch.outer`), in programs without a tensor class of their own.
Without a fix where arguments or results differ.
"""

import ast
from collections.abc import Iterator

from perflint.api import OWN_TENSORS, CannotRewrite, Code, Cost, Edit, Finding, Import, Severity, path_of, replace, rule

_REPLACED = {
    "torch.symeig": "torch.linalg.eigh",
    "torch.eig": "torch.linalg.eig",
    "torch.qr": "torch.linalg.qr",
    "torch.svd": "torch.linalg.svd",
    "torch.cholesky": "torch.linalg.cholesky",
    "torch.lstsq": "torch.linalg.lstsq",
    "torch.solve": "torch.linalg.solve",
    "torch.triangular_solve": "torch.linalg.solve_triangular",
    "torch.chain_matmul": "torch.linalg.multi_dot",
    "torch.matrix_rank": "torch.linalg.matrix_rank",
    "torch.lu_solve": "torch.linalg.lu_solve",
    "torch.lu": "torch.linalg.lu_factor",
    "torch.nn.utils.clip_grad_norm": "torch.nn.utils.clip_grad_norm_",
}
_RENAMED = {"torch.ger": "outer"}
"""Two names for one function."""


@rule(category="autograd", costs=Cost.LAUNCH, severity=Severity.INFO, calls=(*_RENAMED, *_REPLACED), fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each call by an old name."""
    for call in code.calls_to(*_RENAMED, *_REPLACED):
        for old in (*_RENAMED, *_REPLACED):
            if code.is_external(call.func, old) and not _is_a_fallback(code, call):
                new = _REPLACED.get(old) or f"torch.{_RENAMED[old]}"
                missing = [*code.feared(OWN_TENSORS)] if old in _RENAMED else []
                fix = (
                    code.fix(f"call `{new}`", _renamed(code, call, _RENAMED[old]), unless=missing) if old in _RENAMED else None
                )
                yield code.finding(call.func, f"`{old}` is deprecated or gone; use `{new}`", fix, missing)


def _is_a_fallback(code: Code, call: ast.Call) -> bool:
    """Whether a condition around a call asks for the names that a version of torch has."""
    tests = (getattr(block.node, "test", None) for block in code.flow.block[call].ancestry())
    asked = (node for test in tests if test is not None for node in ast.walk(test))
    return any(isinstance(node, ast.Call) and path_of(node.func) == "hasattr" for node in asked)


def _renamed(code: Code, call: ast.Call, new: str) -> Iterator[Edit | Import]:
    if not isinstance(call.func, ast.Attribute):
        raise CannotRewrite("the name is imported by itself")
    yield replace(code.source, call.func, f"{code.text(call.func.value)}.{new}")
