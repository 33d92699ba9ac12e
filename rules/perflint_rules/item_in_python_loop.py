"""A tensor's elements are read one by one.

## What it does
Finds `[v.item() for v in t]`, `[float(v) for v in t]` and `[int(v) for v in t]` over the elements of a device tensor or of
a list of device scalars, `t[i].item()` in a loop over the indices `i` (in a step also `t[i][j].item()`, `t[i, 0].item()` and
rows, `t[i].tolist()`, and what is computed from one alone, `t[i].argmax().item()`, if the round needs it),
and in a step `row.cpu()` and `names[int(v)]` in a loop over the rows or elements of a tensor, or over a list of tensors, that
the host needs at once, or rows `t[i]` that it gives to a function that reads their numbers.

## Why it is slow
Each element is a tensor of its own and each read a wait. For a queue that is drained already that still is a call into the
driver for each element; the first read waits for the queued work in either form.

## Example
```python
scores = model(x.cuda()).softmax(-1)[0]
values = [v.item() for v in scores]
```

## Use instead
```python
scores = model(x.cuda()).softmax(-1)[0]
values = scores.tolist()
```

## When it stays silent
For host lists of Python numbers, for comprehensions that do more than read, for tensors used as dict keys, for reads that
a loop makes only now and then, and where the loop writes to the tensor. Reported only if the rule is selected: where no fix
can be taken without a look, in an evaluation that draws, and where nothing but `int` or `float` reads what may be a list.

## Fix safety
Safe when the iterated value is a one-dimensional tensor without doubt, and `float` or `int` does not change the type of
its numbers. A tensor of unknown shape is flattened first, so that elements of shape `[1]` are numbers, too; that others
raise an error is what such a fix gives up (`errors-are-bugs`). A comprehension with a condition or a comment gets no fix.
For a list of scalars
(`torch.stack(losses).tolist()`) the fix is unsafe: `stack` promotes mixed types and fails on an empty list. With
`runtime = true` these become `item_list(losses)`, which looks at what it is given when the program runs, and
`[names[int(i)] for i in t]` becomes `[names[i] for i in item_list(t, of=int)]`, where nothing in between writes to a tensor.

In a loop over indices the fix reads the tensor before the loop. It is safe under the same proofs, when the tensor is a
local that nothing can write to until the loop ends, the loop is over `range(len(t))` (a list raises with other words for
an index past its end), each iteration reads, and no clock is read in the loop.

With `runtime = true` a loop in which all that runs is known, and writes to no tensor, gets `TensorItems(t)` instead, which
looks at the tensor when the program runs: whatever is no plain tensor with a number for each index is read as before, errors
included.

    items = TensorItems(scores)
    for i in range(len(names)):
        if items[i] > threshold:    # scores[i].item() > threshold
            found.append(names[i])

Rows that a function of the project only reads (`row[k].item()`, `row.argmax().item()`, `row.tolist()`, `len(row)`) come from a
`TensorRows`, which copies the whole tensor to the host with the first row, where it is a plain one on CUDA:

    host_rows = TensorRows()
    for i in range(len(names)):
        found.append(best_end(host_rows[ends, i], longest))    # best_end(ends[i], longest)
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    OWN_TENSORS,
    SPARSE,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Elements,
    Finding,
    Import,
    Kind,
    Obligation,
    Severity,
    Tensor,
    any_layout,
    is_refuted,
    is_test,
    keyword,
    path_of,
    place_of,
    replace,
    rule,
)
from perflint_rules.element_lists import listed_at_run_time
from perflint_rules.element_reads import keeps_type, may_be_no_tensor, no_row, numbers, read_name
from perflint_rules.handed_rows import handed_rows
from perflint_rules.indexed_reads import indexed_reads
from perflint_rules.nested_reads import nested_reads
from perflint_rules.reads_of_rows import reads_of_rows
from perflint_rules.row_copies import row_copies

_INDEXED = [any_layout(rb"\] \. item \(")]
_INDEXED += [any_layout(kind + rb"(?<!\w" + kind + rb") \( [\w\s.\[\]'\"\\]+\[ \w+ \] \)") for kind in (b"float", b"int")]
_ROWS = any_layout(rb"\[ \w+ \][^\n]*\. item \(")
_AS_INDEX = any_layout(rb"\[ int \( \w")
_HANDED = any_layout(rb"\[ \w+ \] [,)]")
_READS = (rb"\. item \(", rb"float \( \w+ ,?", rb"int \( \w+ ,?")
_ELEMENT_READS = [any_layout(read + rb" \) (?:[\])] )*for\b (?:\( )*\w+ (?:\) )*in\b") for read in _READS]


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[keyword("for"), (*_ELEMENT_READS, *_INDEXED, _ROWS, _HANDED, _AS_INDEX, ".item(", ".cpu(", ".numpy(", ".tolist(")],
    in_file=[("torch", ".item(")],
    fixes=True,
    by_fix=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loop that reads a tensor element by element."""
    if is_test(code.scope):
        return
    if any(reads.search(code.scope.text) for reads in _INDEXED):
        yield from indexed_reads(code)
        yield from nested_reads(code)
    if code.step_loops() or code.heat is not None:
        yield from row_copies(code)
        yield from reads_of_rows(code)
    if _HANDED.search(code.scope.text):
        yield from handed_rows(code)
    comprehended = any(reads.search(code.scope.text) for reads in _ELEMENT_READS)
    for node in code.flow.order if comprehended else ():
        if not isinstance(node, ast.ListComp):
            continue
        generator = node.generators[-1]
        if not isinstance(generator.target, ast.Name):
            continue
        if len(node.generators) != 1 or not _reads(node.elt, generator.target.id):
            yield from _deeper(code, node, generator)
            continue
        if not code.may_be_on_device(generator.iter) and not code.may_be_on_device(read_name(node.elt)):
            continue
        value = code.value(generator.iter)
        if value.may(lambda a: isinstance(a, Tensor)):
            missing = [
                no_row(value),
                Obligation(Kind.REWRITE, "the comprehension has a condition") if generator.ifs else None,
                *code.feared(OWN_TENSORS, SPARSE),
                None
                if keeps_type(code, node.elt, value)
                else Obligation(Kind.NUMBERS, "`float` and `int` change the type of the numbers"),
            ]
            fix = None
            if not generator.ifs:
                edits = _listed(code, node, generator.iter)
                fix = code.fix("read all elements at once", edits, unless=missing, leads_to=("item-every-step",))
        elif value.may(lambda a: isinstance(a, Elements) and a.element.may_be(Tensor)) and not generator.ifs:
            missing = [Obligation(Kind.NUMBERS, "`torch.stack` promotes mixed types and fails on an empty list")]
            fix = code.fix(
                "stack the scalars and read them at once",
                _stacked(code, node, generator.iter),
                unless=missing,
            )
        else:
            continue
        if code.offers_runtime and is_refuted(filter(None, missing)):
            listed = listed_at_run_time(code, node)
            fix, missing = listed if listed is not None and listed[0] is not None else (fix, missing)
        message = f"each element of `{ast.unparse(generator.iter)}` is read from the device by itself; use `tolist()`"
        worth = Severity.INFO if may_be_no_tensor(code, [node.elt], generator.iter) else None
        yield code.finding(node, message, fix, missing, severity=worth)


def _deeper(code: Code, node: ast.ListComp, generator: ast.comprehension) -> Iterator[Finding]:
    """`[names[int(i)] for i in t]`, `[x.item() for t in tensors for x in t]`: for these only the runtime has a fix."""
    assert isinstance(generator.target, ast.Name)
    name = generator.target.id
    reads = [part for part in ast.walk(node.elt) if isinstance(part, ast.expr) and _reads(part, name)]
    value = code.value(generator.iter)
    if reads and value.must_be_if_known(Tensor) and all(place_of(a).may_be_device for a in value.alternatives):
        text = ast.unparse(generator.iter)
        fix, missing = (listed_at_run_time(code, node) if code.offers_runtime else None) or (None, [])
        message = f"each element of `{text}` is read from the device by itself; go over `{text}.tolist()`"
        yield code.finding(node, message, fix, missing)


def _listed(code: Code, node: ast.ListComp, iterated: ast.expr) -> Iterator[Edit | Import]:
    if "#" in code.text(node):
        raise CannotRewrite("a comment would be lost")
    yield replace(code.source, node, numbers(code, iterated))


def _stacked(code: Code, node: ast.ListComp, iterated: ast.expr) -> Iterator[Edit | Import]:
    if path_of(iterated) is None or "#" in code.text(node):
        raise CannotRewrite("the list is computed here, or a comment would be lost")
    torch, imports = code.name_for("torch")
    yield from imports
    text = code.text(iterated)
    stacked = f"{torch}.stack({text}).tolist() if {text} else []"
    alone = isinstance(code.flow.parent.get(node), (ast.Assign, ast.Return))
    yield replace(code.source, node, stacked if alone else f"({stacked})")


def _reads(element: ast.expr, name: str) -> bool:
    read = read_name(element)
    return read is not element and isinstance(read, ast.Name) and read.id == name
