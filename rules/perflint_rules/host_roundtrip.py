"""A device tensor is copied to the host, and what is made of it back again, in the same step.

## What it does
Finds `.cpu()` and `.numpy()` of a device tensor in code that runs each step where the copy, or an array computed from it,
becomes a tensor on the device again; and copies of a batch that the step itself has copied to the device, unchanged.

## Why it is slow
The CPU waits for the device, copies, computes on one core, and copies back, from pageable memory, which waits again: two waits
and two copies for what a kernel does where the data is.

## Example
```python
for x, y in loader:
    scores = model(x.to(device))
    ranks = np.argsort(scores.detach().cpu().numpy())
    weights = torch.from_numpy(ranks).to(device)
    (scores * weights).sum().backward()
    optimizer.step()
```

## Use instead
```python
for x, y in loader:
    scores = model(x.to(device))
    weights = torch.argsort(scores.detach())
    (scores * weights).sum().backward()
    optimizer.step()
```

## When it stays silent
When the copy does not come back in the same function, and when it is given to code that is not numpy's.

## Fix safety
There is no fix: numpy and torch differ in types, and in the order of equal elements.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, ReadKind, Severity, rule, ways_back
from perflint_rules.kept_reads import can_wait
from perflint_rules.uploaded_batches import upload_behind


@rule(
    category="transfer",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[
        (".cpu(", ".numpy(", ".tolist(", '.to("cpu"', ".to('cpu'"),
        ("from_numpy", "tensor(", "Tensor(", ".to(", ".cuda(", "moved"),
    ],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each copy to the host that comes back, or of what came from there."""
    for read in code.reads():
        if read.kind is not ReadKind.COPY or not code.is_hot(read.node):
            continue
        upload = upload_behind(code, read.tensor)
        if upload is not None:
            if can_wait(code, read):
                continue  # item-every-step says how
            name = ast.unparse(read.tensor)
            message = f"`{name}` was on the host before line {upload.lineno} copied it to the device; keep the host's for this"
            yield code.finding(read.node, message, waits=[read.node])
            continue
        back = next(iter(ways_back(code.facts, code.scope, read.node)), None)
        if back is not None:
            row = back.call.lineno
            what = "nothing is computed from it meanwhile" if back.bare else "the host computes from it meanwhile"
            message = f"`{ast.unparse(read.tensor)}` goes to the host and comes back in line {row}, {what}; stay on the device"
            yield code.finding(read.node, message, waits=[read.node])
