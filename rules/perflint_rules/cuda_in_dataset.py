"""A dataset copies each sample to the GPU by itself.

## What it does
Finds `.cuda()` and `.to("cuda")` in code that runs for each item of a dataset.

## Why it is slow
Each sample is a small copy of its own that the CPU waits for, where one copy for the whole batch would do; then the default
`collate_fn` joins the pieces by one more kernel. In a worker that is forked the first such call raises, because a forked
process cannot use CUDA.

## Example
```python
class Points(Dataset):
    def __init__(self, points):
        self.points = points

    def __getitem__(self, index):
        return self.points[index].cuda()
```

## Use instead
```python
class Points(Dataset):
    def __init__(self, points):
        self.points = points

    def __getitem__(self, index):
        return self.points[index]
```
and `x.to(device, non_blocking=True)` for the batch, in the loop.

## When it stays silent
Where the device is not known to be a GPU, for modules, and under a condition. Select it to see what it finds: where samples are
made on the GPU, moving the copy is a rewrite.

## Fix safety
There is no fix: the loop has to move the batch then.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Place, Severity, is_conditional, is_neural_module, rule, runs_per_item, target_of


@rule(
    category="transfer",
    costs=Cost.COPY,
    severity=Severity.WARNING,
    needs=[(".cuda(", ".to(")],
    in_file=[("Dataset",), ("__getitem__",), ("cuda",)],
    by_fix=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each copy of a single sample."""
    for call in code.calls("cuda", "to"):
        if not isinstance(call.func, ast.Attribute) or is_conditional(code.scope, call):
            continue
        if code.value(call.func.value).may(lambda a: is_neural_module(code.facts.inference, a)):
            continue
        if runs_per_item(code.facts, code.scope) and _goes_to_gpu(code, call):
            sample = ast.unparse(call.func.value)
            yield code.finding(call, f"`{sample}` is copied to the GPU for each sample; copy the batch in the loop")


def _goes_to_gpu(code: Code, call: ast.Call) -> bool:
    place = target_of(code.facts.inference, code.scope, call)
    return place in (Place.CUDA, Place.CUDA_OR_HOST)
