"""A tensor's elements are read one by one.

## What it does
Finds `[v.item() for v in t]`, `[float(v) for v in t]` and `[int(v) for v in t]` over the elements of a device tensor or of
a list of device scalars, and `t[i].item()` in a loop over the indices `i`.

## Why it is slow
Each element is a tensor of its own and each read a wait. For a queue that is drained already that is about 10 us per
element; the first read waits for the queued work in either form.

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
a loop makes only now and then, and where the loop writes to the tensor.

## Fix safety
Safe when the iterated value is a one-dimensional tensor without doubt, and `float` or `int` does not change the type of
its numbers. A tensor of unknown shape is flattened first, so that elements of shape `[1]` are numbers, too; that others
raise an error is what such a fix gives up (`errors-are-bugs`). A comprehension with a condition or a comment gets no fix.
For a list of scalars
(`torch.stack(losses).tolist()`) the fix is unsafe: `stack` promotes mixed types and fails on an empty list.

In a loop over indices the fix reads the tensor before the loop. It is safe under the same proofs, when the tensor is a
local that nothing can write to until the loop ends, the loop is over `range(len(t))` (a list raises with other words for
an index past its end), each iteration reads, and no clock is read in the loop.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    BUILT_FROM_TEXT,
    OWN_TENSORS,
    Alternative,
    Batch,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Elements,
    Finding,
    Flow,
    Import,
    Kind,
    Loop,
    Obligation,
    Output,
    Severity,
    Tensor,
    Value,
    any_layout,
    free_name,
    insert_before,
    is_guard,
    keyword,
    no_copy_in_flight,
    once_then_leaves,
    path_of,
    replace,
    rule,
    single_definition,
    suspends,
    unshared,
    untimed,
    untouched,
)

_INDEXED = [any_layout(rb"\] \. item \(")]
_INDEXED += [any_layout(kind + rb"(?<!\w" + kind + rb") \( [\w\s.\[\]'\"\\]+\[ \w+ \] \)") for kind in (b"float", b"int")]
_READS = (rb"\. item \(", rb"float \( \w+ ,?", rb"int \( \w+ ,?")
_ELEMENT_READS = [any_layout(read + rb" \) (?:\) )*for\b (?:\( )*\w+ (?:\) )*in\b") for read in _READS]


@rule(
    category="device-sync",
    costs=Cost.WAIT,
    severity=Severity.WARNING,
    needs=[keyword("for"), (*_ELEMENT_READS, *_INDEXED)],
    in_file=[("torch", ".item(")],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loop that reads a tensor element by element."""
    if any(reads.search(code.scope.text) for reads in _INDEXED):
        yield from _indexed(code)
    for node in code.flow.order:
        if not isinstance(node, ast.ListComp) or len(node.generators) != 1:
            continue
        generator = node.generators[0]
        if not isinstance(generator.target, ast.Name) or not _reads(node.elt, generator.target.id):
            continue
        if not code.may_be_on_device(generator.iter) and not code.may_be_on_device(_read_name(node.elt)):
            continue
        value = code.value(generator.iter)
        if value.may(lambda a: isinstance(a, Tensor)):
            missing = [
                _no_row(value),
                Obligation(Kind.REWRITE, "the comprehension has a condition") if generator.ifs else None,
                *code.feared(OWN_TENSORS),
                None
                if _keeps_type(code, node.elt, value)
                else Obligation(Kind.NUMBERS, "`float` and `int` change the type of the numbers"),
            ]
            fix = None
            if not generator.ifs:
                fix = code.fix("read all elements at once", _listed(code, node, generator.iter), unless=missing)
        elif value.may(lambda a: isinstance(a, Elements) and a.element.may_be(Tensor)) and not generator.ifs:
            missing = [Obligation(Kind.NUMBERS, "`torch.stack` promotes mixed types and fails on an empty list")]
            fix = code.fix(
                "stack the scalars and read them at once",
                _stacked(code, node, generator.iter),
                unless=missing,
            )
        else:
            continue
        message = f"each element of `{ast.unparse(generator.iter)}` is read from the device by itself; use `tolist()`"
        yield code.finding(node, message, fix, missing)


def _indexed(code: Code) -> Iterator[Finding]:
    """The reads of `t[i]` in a loop over `i` that leaves `t` as it is."""
    found: dict[tuple[Loop, str], list[ast.Call]] = {}
    for call in code.flow.calls:
        item = _read_name(call)
        if not isinstance(item, ast.Subscript) or not isinstance(item.slice, ast.Name):
            continue
        loop = _loop_over(code, item.slice)
        path = path_of(item.value)
        if loop is None or path is None or not code.value(item.value).may_be(Tensor, Batch, Output):
            continue
        if code.may_be_on_device(item.value) and _stays(code, item.value, loop) and _each_time(code, call, loop):
            found.setdefault((loop, path), []).append(call)
    for (loop, path), calls in found.items():
        missing = list(_unproven(code, loop, calls))
        fix = code.fix("read all elements at once", _read_before(code, loop, calls), unless=missing)
        message = f"each element of `{path}` is read from the device by itself; read them all before the loop with `tolist()`"
        yield code.finding(calls[0], message, fix, missing, waits=calls)


def _loop_over(code: Code, index: ast.Name) -> Loop | None:
    """The loop statement over a `range` whose variable `index` is."""
    definitions = code.flow.reaching.get(index, frozenset())
    if len(definitions) != 1:
        return None
    (definition,) = definitions
    loop = definition.block.loop
    if definition.kind != "for" or definition.index or loop is None or loop.statement is None:
        return None
    match loop.iterated:
        case ast.Call(func=ast.Name() as func, args=args) if code.is_external(func, "builtins.range"):
            few = all(isinstance(argument, ast.Constant) for argument in args)
            return None if few and not code.is_hot(loop.statement) else loop
    return None


def _stays(code: Code, tensor: ast.expr, loop: Loop) -> bool:
    """Whether a loop, as far as one can see, reads the same tensor in each iteration."""
    path = path_of(tensor) or ""
    root: ast.expr = tensor
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    bound = [d for d in code.flow.definitions if path == d.name or path.startswith((f"{d.name}.", f"{d.name}["))]
    if any(block is loop.block for d in bound for block in d.block.ancestry()):
        return False
    if any(ast.unparse(store).startswith(path) for store in code.flow.stores if code.flow.within(store, loop.block)):
        return False
    reaching = code.flow.reaching.get(root, frozenset())
    missing = [untouched(code.facts, code.scope, definition, root) for definition in reaching]
    return not any(obligation is not None and obligation.kind is Kind.WRITE for obligation in missing)


def _each_time(code: Code, call: ast.Call, loop: Loop) -> bool:
    """Whether a read runs in most iterations: under no guard such as `i % 100 == 0`, and not before the loop is left."""
    for block in code.flow.block[call].ancestry():
        if block is loop.block:
            return not once_then_leaves(code.flow, call, loop)
        if is_guard(code.flow, block) or block.kind == "handler":
            return False
    return False


def _unproven(code: Code, loop: Loop, calls: list[ast.Call]) -> Iterator[Obligation | None]:
    """The proofs that a safe fix needs and that do not hold."""
    flow = code.flow
    tensors = [item.value for item in map(_read_name, calls) if isinstance(item, ast.Subscript)]
    value = code.value(tensors[0])
    name = ast.unparse(tensors[0])
    definition = single_definition(flow, *tensors)
    if not isinstance(tensors[0], ast.Name):
        yield Obligation(Kind.VALUE, f"`{name}` is an attribute or an item, which may be another object at each access")
    elif definition is None:
        yield Obligation(Kind.VALUE, f"several definitions of `{name}` reach the loop")
    else:
        yield untouched(code.facts, code.scope, definition, calls[-1])
        yield unshared(code.facts, code.scope, tensors[0])
    yield _no_row(value)
    if not all(_keeps_type(code, call, value) for call in calls):
        yield Obligation(Kind.NUMBERS, "`float` and `int` change the type of the numbers")
    if not _over_length(loop, name):
        yield Obligation(Kind.ERRORS_ARE_BUGS, f"an index past the end of `{name}` raises with other words")
    if not any(Flow.always(flow.block[call]) is loop.block for call in calls):
        yield Obligation(Kind.CONTROL_FLOW, "the loop may read nothing at all")
    if suspends(flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function yields or awaits")
    inside = [call for call in flow.calls if flow.within(call, loop.block)]
    yield from code.feared(OWN_TENSORS, BUILT_FROM_TEXT)
    yield untimed(inside)
    yield no_copy_in_flight(code.facts, code.scope, inside)


def _no_row(value: Value) -> Obligation | None:
    """What stands against one list of numbers, element by element."""
    if value.must(_is_row):
        return None
    if value.must(lambda a: isinstance(a, Tensor)):
        return Obligation(Kind.ERRORS_ARE_BUGS, "it would not be noticed that an element is no single number")
    return Obligation(Kind.VALUE, "it may be something else than a tensor")


def _is_row(alternative: Alternative) -> bool:
    return isinstance(alternative, Tensor) and alternative.ndim == 1


def _numbers(code: Code, tensor: ast.expr) -> str:
    """The text that reads all numbers of a tensor; of shape `[n, 1]`, too, each element is a number and no list."""
    text = code.text(tensor)
    held = text if isinstance(tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({text})"
    return f"{held}.tolist()" if code.value(tensor).must(_is_row) else f"{held}.flatten().tolist()"


def _over_length(loop: Loop, name: str) -> bool:
    """Whether a loop is `for i in range(n)` where `n` is the length of the tensor."""
    match loop.iterated:
        case ast.Call(args=[length], keywords=[]):
            lengths = ("len({})", "{}.shape[0]", "{}.size(0)", "{}.size()[0]", "{}.numel()")
            return ast.unparse(length) in [form.format(name) for form in lengths]
    return False


def _read_before(code: Code, loop: Loop, calls: list[ast.Call]) -> Iterator[Edit | Import]:
    first = _read_name(calls[0])
    assert isinstance(first, ast.Subscript)
    wanted = (path_of(first.value) or "").replace(".", "_").replace("[", "_").replace("]", "").replace("'", "")
    name = free_name(code.scope, f"{wanted}_values")
    if name is None or not name.isidentifier() or loop.statement is None:
        raise CannotRewrite("there is no name for the numbers")
    if any("#" in code.text(call) for call in calls):
        raise CannotRewrite("a comment would be lost")
    yield insert_before(code.source, loop.statement, f"{name} = {_numbers(code, first.value)}")
    for call in calls:
        item = _read_name(call)
        assert isinstance(item, ast.Subscript)
        yield replace(code.source, call, f"{name}[{code.text(item.slice)}]")


def _reads(element: ast.expr, name: str) -> bool:
    read = _read_name(element)
    return read is not element and isinstance(read, ast.Name) and read.id == name


def _read_name(element: ast.expr) -> ast.expr:
    match element:
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[]):
            return inner
        case ast.Call(func=ast.Name(id="float" | "int"), args=[inner]):
            return inner
    return element


def _keeps_type(code: Code, element: ast.expr, value: Value) -> bool:
    """Whether an element read gives the number that `tolist()` gives."""
    match element:
        case ast.Call(func=ast.Name(id=("float" | "int") as kind) as func):
            if not code.is_external(func, f"builtins.{kind}"):
                return False
            return value.must(
                lambda a: isinstance(a, Tensor) and ("float" in a.dtype if kind == "float" else a.dtype == "int64")
            )
    return True


def _listed(code: Code, node: ast.ListComp, iterated: ast.expr) -> Iterator[Edit | Import]:
    if "#" in code.text(node):
        raise CannotRewrite("a comment would be lost")
    yield replace(code.source, node, _numbers(code, iterated))


def _stacked(code: Code, node: ast.ListComp, iterated: ast.expr) -> Iterator[Edit | Import]:
    if path_of(iterated) is None or "#" in code.text(node):
        raise CannotRewrite("the list is computed here, or a comment would be lost")
    torch, imports = code.name_for("torch")
    yield from imports
    text = code.text(iterated)
    stacked = f"{torch}.stack({text}).tolist() if {text} else []"
    alone = isinstance(code.flow.parent.get(node), (ast.Assign, ast.Return))
    yield replace(code.source, node, stacked if alone else f"({stacked})")
