"""A device tensor is copied to the host, and what is made of it back again, in the same step.

## What it does
Finds `.cpu()` and `.numpy()` of a device tensor in code that runs each step where the copy, or an array computed from it,
becomes a tensor on the device again; and reads of what was copied to the device with the batch, or is computed from nothing
else: `lengths.max().item()`, `lengths.cpu()` for `pack_padded_sequence`. It follows lengths, masks and labels through the
helpers and the forward passes that hand them on.

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
When the copy does not come back in the same function, and when it is given to code that is neither numpy's nor a function in
sight that gives back what it makes of it. For networks that are moved aside to make room for others, which is a trade of time
for memory. It is reported only if the rule is selected: there is no fix, and where people write it the step mostly waits for
something else, too.

## Fix safety
There is no fix: numpy and torch differ in types, and in the order of equal elements.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    IDLE_SINKS,
    Code,
    Cost,
    Finding,
    HostRead,
    ReadKind,
    Severity,
    Sink,
    Upload,
    operations,
    rule,
    upload_behind,
    ways_back,
)
from perflint_rules.kept_reads import can_wait


@rule(
    category="transfer",
    costs=Cost.WAIT,
    severity=Severity.INFO,
    needs=[(".cpu(", ".numpy(", ".tolist(", '.to("cpu"', ".to('cpu'", ".item(", "int(")],
    steps=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each copy to the host that comes back, or of what came from there."""
    for read in code.reads(formatted=False):
        if read.kind not in (ReadKind.COPY, ReadKind.ITEM, ReadKind.CONVERSION) or not code.is_hot(read.node):
            continue
        sinks = code.sinks(read.node)
        idle = sinks <= IDLE_SINKS | {Sink.RETURN}
        if read.kind is not ReadKind.COPY and (idle or Sink.CONTROL in sinks):
            continue  # item-every-step has a fix, or sync-branch-on-tensor reports it
        upload = upload_behind(code.facts, code.scope, read.tensor)
        if upload is not None and ((idle and not upload.exact) or can_wait(code, read)):
            continue
        if upload is not None:
            yield code.finding(read.node, _host_has_it(code, read, upload), waits=[read.node])
            continue
        back = next(iter(ways_back(code.facts, code.scope, read.node)), None) if read.kind is ReadKind.COPY else None
        if back is not None and not (back.bare and _is_network(code, read.tensor)):
            row = back.call.lineno
            what = "nothing is computed from it meanwhile" if back.bare else "the host computes from it meanwhile"
            message = f"`{ast.unparse(read.tensor)}` goes to the host and comes back in line {row}, {what}; stay on the device"
            yield code.finding(read.node, message, waits=[read.node])


def _is_network(code: Code, node: ast.expr) -> bool:
    """Whether what is moved is called somewhere, or has a method that no tensor has: `vae.encode(x)`."""
    name = ast.unparse(node)
    for call in code.flow.calls:
        if ast.unparse(call.func) == name:
            return True
        match call.func:
            case ast.Attribute(attr=method, value=of) if operations.method(method) is None and ast.unparse(of) == name:
                return True
    return False


def _host_has_it(code: Code, read: HostRead, upload: Upload) -> str:
    name = ast.unparse(read.tensor)
    if upload.node is None:
        held = f"`{name}`" if upload.exact else f"what `{name}` is computed from"
        return f"the batch had {held} on the host before the trainer copied it to the device; keep the host's for this"
    where = f"line {upload.node.lineno}"
    if upload.scope.module is not code.scope.module:
        where += f" of {upload.scope.module.name}"
    if upload.exact:
        return f"`{name}` was on the host before {where} copied it to the device; keep the host's for this"
    return f"`{name}` is computed from what {where} copied to the device; compute it on the host before that, and hand it on"
