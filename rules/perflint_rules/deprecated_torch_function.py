"""A function that torch has replaced is called.

## What it does
Finds calls of functions of torch that the current version no longer has (`torch.symeig`, `torch.solve`) or that its own
documentation calls deprecated (`torch.ger`, `torch.norm`, `torch.range`, `F.upsample`, `nn.init.xavier_uniform`,
`functorch.vmap` and others), and `F.tanh` and `F.sigmoid`. It holds all names of TorchFix's list.

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
For functions of one's own, for methods of tensors, and where `hasattr` has asked which of the names there is. Mixed precision
has a rule of its own: `deprecated-cuda-amp`.

## Fix safety
Safe for names that are two for one function (`torch.ger` is `torch.outer`), in programs without a tensor class of their
own that neither replace these functions nor look at which ones are called (`torch.fx`, a profiler).
Without a fix where arguments or results differ.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    LOOKS_AT_CALLS,
    OWN_TENSORS,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Import,
    Obligation,
    Severity,
    any_layout,
    path_of,
    replace,
    rule,
    words,
)
from perflint_rules.old_torch import lacks_name

_LINALG = {
    "cholesky": "cholesky",
    "eig": "eig",
    "lstsq": "lstsq",
    "lu": "lu_factor",
    "lu_solve": "lu_solve",
    "matrix_rank": "matrix_rank",
    "norm": "vector_norm` or `torch.linalg.matrix_norm",
    "qr": "qr",
    "solve": "solve",
    "svd": "svd",
    "symeig": "eigh",
    "triangular_solve": "solve_triangular",
    "chain_matmul": "multi_dot",
}
_INITIALISERS = words(
    "constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform xavier_normal xavier_uniform"
)
_REPLACED = {
    **{f"torch.{old}": f"torch.linalg.{new}" for old, new in _LINALG.items()},
    **{f"torch.nn.init.{name}": f"torch.nn.init.{name}_" for name in _INITIALISERS},
    **{f"functorch.{name}": f"torch.func.{name}" for name in words("grad hessian jacfwd jacrev jvp vjp vmap functionalize")},
    "torch.range": "torch.arange",
    "torch.backends.cuda.sdp_kernel": "torch.nn.attention.sdpa_kernel",
    "torch.cuda.max_memory_cached": "torch.cuda.max_memory_reserved",
    "torch.cuda.memory_cached": "torch.cuda.memory_reserved",
    "torch.nn.UpsamplingBilinear2d": "torch.nn.Upsample",
    "torch.nn.UpsamplingNearest2d": "torch.nn.Upsample",
    "torch.nn.functional.sigmoid": "torch.sigmoid",
    "torch.nn.functional.tanh": "torch.tanh",
    "torch.nn.functional.upsample": "torch.nn.functional.interpolate",
    "torch.nn.functional.upsample_bilinear": "torch.nn.functional.interpolate",
    "torch.nn.functional.upsample_nearest": "torch.nn.functional.interpolate",
    "torch.nn.utils.clip_grad_norm": "torch.nn.utils.clip_grad_norm_",
    "torch.nn.utils.stateless.functional_call": "torch.func.functional_call",
    "torch.nn.utils.weight_norm": "torch.nn.utils.parametrizations.weight_norm",
    "torch.set_default_tensor_type": "torch.set_default_dtype` and `torch.set_default_device",
    "torch.testing.assert_allclose": "torch.testing.assert_close",
    "torch.utils._pytree._register_pytree_node": "torch.utils._pytree.register_pytree_node",
    "torch.ger": "torch.outer",
}
_TWO_NAMES = {"torch.ger": "outer"}
"""Old names that are the new function itself, with the new last name."""
_NAMED = any_layout(rb"\b(?:%b)\b" % b"|".join(sorted(old.rpartition(".")[2].encode() for old in _REPLACED)))


@rule(
    category="autograd",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    calls=_REPLACED,
    in_file=[("torch", "functorch"), (_NAMED,)],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each call by an old name."""
    said: set[str] = set()
    for call in code.calls_to(*_REPLACED):
        old = next(name for name in _REPLACED if code.is_external(call.func, name))
        if _is_a_fallback(code, call) or old in said:
            continue
        if old not in _TWO_NAMES:
            said.add(old)
        missing, fix = list[Obligation | None](), None
        if old in _TWO_NAMES:
            missing = [lacks_name(code, _REPLACED[old], "1.7"), *code.feared(OWN_TENSORS, LOOKS_AT_CALLS)]
            missing += code.replaced(old, _REPLACED[old])
            fix = code.fix(f"call `{_REPLACED[old]}`", _renamed(code, call, _TWO_NAMES[old]), unless=missing)
        yield code.finding(call.func, f"`{old}` is deprecated or gone; use `{_REPLACED[old]}`", fix, missing)


def _is_a_fallback(code: Code, call: ast.Call) -> bool:
    """Whether a condition around a call asks for the names that a version of torch has."""
    tests = (getattr(block.node, "test", None) for block in code.flow.block[call].ancestry())
    asked = (node for test in tests if test is not None for node in ast.walk(test))
    return any(isinstance(node, ast.Call) and path_of(node.func) == "hasattr" for node in asked)


def _renamed(code: Code, call: ast.Call, new: str) -> Iterator[Edit | Import]:
    if not isinstance(call.func, ast.Attribute):
        raise CannotRewrite("the name is imported by itself")
    yield replace(code.source, call.func, f"{code.text(call.func.value)}.{new}")
