"""Where the host waits for a number that the device computes, and what becomes of the number.

`.item()` is one of many ways (measured with a dispatch mode that counts `aten::_local_scalar_dense`): `float(t)`, a format
specifier, a truth value, `print`, `.tolist()`, `.numpy()` and `.cpu()` make the CPU wait in the same way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.device.seeming_tensors import REDUCTIONS, is_differentiated_in, is_reduced_gradient
from perflint.facts.device.uploads import is_left_on_host, is_off_cuda
from perflint.facts.operations import operations
from perflint.facts.operations.operations import Operation, Road
from perflint.facts.training.loops import Loops
from perflint.facts.values.arguments import argument
from perflint.facts.values.inference import Inference
from perflint.facts.values.tensor_methods import HOST_ATTRIBUTES
from perflint.facts.values.values import (
    UNKNOWN,
    Alternative,
    Batch,
    Device,
    External,
    Literal,
    Number,
    Object,
    Output,
    Place,
    Tensor,
    Value,
    is_known_tensor,
    place_of,
)
from perflint.source.records import dataclass
from perflint.source.syntax import Scope
from perflint.source.words import made, words


class ReadKind(Enum):
    """How the host gets the number."""

    ITEM = ".item()"
    COPY = "copy to the host"
    CONVERSION = "conversion to a Python number"
    FORMAT = "formatting"
    TRUTH = "truth value"
    LOGGER = "logging of a tensor"


@dataclass(frozen=True, eq=False)
class HostRead:
    """One read. `node` is the expression that gives the host value, `tensor` the device value that it reads.

    is_guess: whether neither what is known of the value nor how it is read says that it is a tensor: `batch["label"].tolist()`.
    """

    node: ast.expr
    tensor: ast.expr
    kind: ReadKind
    is_guess: bool = False


_COPIES = frozenset(("cpu", "numpy", "tolist"))
_CHAINED = words(
    """
    detach data cpu numpy float double half clone squeeze flatten to contiguous
    """
)
_MATH_NAMES = words("log10 log2 log sqrt exp isnan isinf isfinite floor ceil pow")
_MATH = frozenset(f"{module}.{name}" for module in ("math", "numpy") for name in _MATH_NAMES)
_LOGGER = made(r"^(?:add_scalar|add_scalars|log|log_metrics|log_dict|log_scalar|add_histogram|scalar_summary)$")


def find_reads(inference: Inference, loops: Loops, scope: Scope) -> list[HostRead]:
    """The reads in a scope's step loops, or in all of it if it is hot, in evaluation order.

    `find_formatted` and `find_truths` have the others.
    """
    if _is_apart(inference, loops, scope):
        return []
    flow = flow_of(scope)
    reads: list[HostRead] = []
    taken: set[ast.AST] = set()
    for call in flow.calls:
        if not _may_read(inference, scope, flow, call) or not _counts(loops, scope, call):
            continue
        read = _read_call(inference, scope, flow, call)
        if read is not None and read.node not in taken and not is_off_cuda(flow, read.node):
            taken.add(read.node)
            reads.append(read)
    for store, value in _filled(flow):
        if _counts(loops, scope, store) and value not in taken and _lands_on_host(inference, scope, store, value):
            reads.append(HostRead(value, value, ReadKind.COPY))
    return sorted(reads, key=lambda read: flow.order[read.node])


def find_formatted(inference: Inference, loops: Loops, scope: Scope) -> list[HostRead]:
    """The device values that are turned to text, where `find_reads` looks, but for forward passes."""
    if loops.is_part_of_forward(scope):
        return []
    return [
        HostRead(value, value, ReadKind.FORMAT)
        for node, value in _formatted(flow_of(scope))
        if not isinstance(value, ast.Constant) and _counts(loops, scope, node) and _strictly_device(inference, scope, value)
    ]


def find_truths(inference: Inference, loops: Loops, scope: Scope) -> list[HostRead]:
    """The conditions that read a device value, where `find_reads` looks, in evaluation order."""
    if _is_apart(inference, loops, scope):
        return []
    return list(_truth_reads(inference, loops, scope))


def _is_apart(inference: Inference, loops: Loops, scope: Scope) -> bool:
    """Whether a scope is part of a forward pass that no training is near."""
    return loops.is_part_of_forward(scope) and not inference.project.near_training(scope.module.source.path)


def _counts(loops: Loops, scope: Scope, node: ast.AST) -> bool:
    """Whether a node of a scope runs each step, or stands in a step loop. It costs much, so look at the node first."""
    return loops.around(scope, node) is not None or loops.heat(scope) is not None


def _may_read(inference: Inference, scope: Scope, flow: Flow, call: ast.Call) -> bool:
    """Whether a call may wait for the device, by the look of it and by what is imported."""
    match call:
        case ast.Call(func=ast.Attribute(value=receiver, attr="item"), args=[]):
            return not call.keywords and not _counts_steps(_source(receiver))
        case ast.Call(func=ast.Attribute(attr="to")):
            target = argument(call, 0, "device")
            is_plain = isinstance(target, ast.Constant) or _is_of_import(flow, target)
            return target is not None and (not is_plain or _is_to_host(inference, scope, call))
        case ast.Call(func=ast.Attribute(attr=name), args=[]):
            return name in _COPIES
        case ast.Call(func=ast.Attribute(attr="add_scalar"), args=[_, _, *_]):
            return True
        case ast.Call(func=ast.Attribute(attr=name)) if name in _MATH_NAMES and not _LOGGER.match(name):
            return not _is_of_import(flow, call.func) or _qualified(inference, scope, call.func) in _MATH
        case ast.Call(func=ast.Name(id=name)) if name in _MATH_NAMES:
            return _qualified(inference, scope, call.func) in _MATH
        case ast.Call(func=ast.Name(id="print"), args=values):
            return any(isinstance(value, (ast.Name, ast.Attribute)) for value in values)
        case ast.Call(func=ast.Name(id="float" | "int" | "bool"), args=[given]):
            return not isinstance(given, ast.Constant)
    return False


def _is_of_import(flow: Flow, node: ast.expr | None) -> bool:
    """Whether an expression is `module.name`, of a name that the scope does not bind: what it is, is found out soon."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and not flow.reaching.get(node.value)


def written_out(flow: Flow) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls of a scope that look like reads, as (call, what is read): cheap, and no proof of anything."""
    for name in ("item", "cpu", "numpy", "tolist"):
        for call in flow.calls_named[name]:
            if isinstance(call.func, ast.Attribute) and not call.args:
                yield call, _source(call.func.value)


def implied(flow: Flow) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What `find_reads` looks at in a scope beside `written_out`, as (what gives the host value, what is read): cheap, too."""
    for call in flow.calls:
        match call:
            case ast.Call(func=ast.Attribute(attr="add_scalar"), args=[_, value, *_]):
                yield value, value
            case ast.Call(func=ast.Attribute(attr="to", value=value)) if argument(call, 0, "device") is not None:
                yield call, value
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[value, *_]) if name in _MATH_NAMES:
                yield call, value
            case ast.Call(func=ast.Name(id="float" | "int" | "bool"), args=[value]):
                yield call, value
            case ast.Call(func=ast.Name(id="print"), args=values):
                yield from ((value, value) for value in values if isinstance(value, (ast.Name, ast.Attribute)))
    for _, value in (*_formatted(flow), *_filled(flow)):
        yield value, value


def _filled(flow: Flow) -> Iterator[tuple[ast.Subscript, ast.expr]]:
    """What `losses[i] = loss` puts into a tensor that a factory made, as (the place, the value)."""
    for store in flow.stores:
        parent = flow.parent.get(store)
        if isinstance(store, ast.Subscript) and isinstance(parent, ast.Assign) and not isinstance(parent.value, ast.Constant):
            bound = flow.reaching.get(store.value, frozenset())
            made = [d.value.func for d in bound if isinstance(d.value, ast.Call) and isinstance(d.value.func, ast.Attribute)]
            if made and all(func.attr in _FACTORIES for func in made):
                yield store, parent.value


_FACTORIES = words("zeros ones empty full")


def _lands_on_host(inference: Inference, scope: Scope, store: ast.Subscript, value: ast.expr) -> bool:
    """Whether a tensor of the device is put into one on the host, which copies it there at once."""
    on_host = inference.value(scope, store.value).must(lambda a: isinstance(a, Tensor) and a.place is Place.HOST)
    return on_host and _strictly_device(inference, scope, value)


def device_value(inference: Inference, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression may be a tensor on an accelerator.

    A tensor of unknown place counts when the program names a device somewhere.
    """
    return value_on_device(inference, scope, inference.value(scope, node))


def value_on_device(inference: Inference, scope: Scope, value: Value) -> bool:
    """Whether a value of a scope may be a tensor on an accelerator, as `device_value` says of an expression."""
    held = [a for a in value.alternatives if isinstance(a, (Tensor, Batch, Output))]
    if not held:
        return False
    places = {place_of(a) for a in held}
    if any(place.may_be_device for place in places):
        return True
    return Place.UNKNOWN in places and inference.project.uses_accelerator(scope.module.source.path)


def _nothing_else(inference: Inference, scope: Scope, node: ast.expr, *silent: type) -> bool:
    """Whether nothing is known about an expression whose method `item` or `cpu` is called: hardly anything but a tensor.

    In programs that name a device, and unless the expression is computed on the host, as far as one can see. `silent`
    are guesses that say nothing against it: `loss = 0` before `loss += ...`, a batch that is copied to the host.
    """
    value = inference.value(scope, node)
    if (
        not value.open
        or not all(isinstance(a, silent) for a in value.alternatives)
        or not inference.project.uses_accelerator(scope.module.source.path)
    ):
        return False
    root: ast.expr = node
    while isinstance(root, (ast.Subscript, ast.Attribute)):
        if isinstance(root, ast.Subscript) and is_left_on_host(inference, scope, root.slice):
            return False
        root = root.value
    flow = flow_of(scope)
    definitions = flow.reaching.get(root, frozenset())
    if definitions and all(_is_copied_apart(flow, d) for d in definitions):
        return False
    sources = [d.value for d in definitions if d.value is not None] if definitions else [node]
    return not any(_COMPUTED_ON_HOST.search(ast.unparse(source)) for source in sources)


def _is_copied_apart(flow: Flow, definition: Definition) -> bool:
    """Whether a name is what a loop goes over, of which the loop copies something to a device, under another name."""
    copies = (*flow.calls_named["to"], *flow.calls_named["cuda"]) if definition.kind == "for" else ()
    return any(flow.within(call, definition.block) for call in copies)


_COMPUTED_ON_HOST = made(r"\b(?:np|numpy|pd|pandas|scipy|cv2|jnp)\.|\.(?:cpu|numpy)\(\)|(?<![.\w])(?:float|int|len)\(")


def _on_host(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname.startswith(("numpy.", "pandas."))


def _read_call(inference: Inference, scope: Scope, flow: Flow, call: ast.Call) -> HostRead | None:
    func = call.func
    if isinstance(func, ast.Attribute):
        if func.attr == "item" and not call.args and not call.keywords:
            tensor = _source(func.value)
            if device_value(inference, scope, tensor) and device_value(inference, scope, func.value) | _copied(func.value):
                return HostRead(call, tensor, ReadKind.ITEM)
            return HostRead(call, tensor, ReadKind.ITEM) if _nothing_else(inference, scope, tensor, Literal, Number) else None
        if func.attr in _COPIES and not call.args and (func.attr != "numpy" or call.keywords):  # a device's has none
            tensor = _source(func.value)
            known = device_value(inference, scope, tensor)
            if known or (func.attr == "cpu" and _nothing_else(inference, scope, tensor, Literal, Number, Batch)):
                end = _outermost(flow, call)
                may_be_list = func.attr != "cpu" and tensor is func.value  # arrays and columns of tables have `tolist`, too
                is_guess = may_be_list and not is_known_tensor(inference.value(scope, tensor))
                return HostRead(end, tensor, ReadKind.ITEM if _is_item_of(end, tensor) else ReadKind.COPY, is_guess)
            return None
        if func.attr == "to" and _is_to_host(inference, scope, call):
            if device_value(inference, scope, func.value):
                return HostRead(_outermost(flow, call), _source(func.value), ReadKind.COPY)
            return None
        if _LOGGER.match(func.attr):
            return _logger_read(inference, scope, call)
    if isinstance(func, ast.Name) and func.id in ("float", "int", "bool") and len(call.args) == 1:
        if _strictly_device(inference, scope, call.args[0]) and _is_builtin(inference, scope, func):
            return HostRead(call, call.args[0], ReadKind.CONVERSION)
        return None
    name = _qualified(inference, scope, func)
    if name is not None and name in _MATH and call.args and _strictly_device(inference, scope, call.args[0]):
        return HostRead(call, call.args[0], ReadKind.CONVERSION)
    if isinstance(func, ast.Name) and func.id == "print":
        shown = (given for given in call.args if isinstance(given, (ast.Name, ast.Attribute)))
        return next((HostRead(n, n, ReadKind.FORMAT) for n in shown if _strictly_device(inference, scope, n)), None)
    return None


def _is_to_host(inference: Inference, scope: Scope, call: ast.Call) -> bool:
    """Whether `x.to(...)` names the host, and nothing else."""
    target = argument(call, 0, "device")
    value = inference.value(scope, target) if target is not None else UNKNOWN
    return value.literal == "cpu" or value.must(lambda a: isinstance(a, Device) and a.place is Place.HOST)


def _counts_steps(tensor: ast.expr) -> bool:
    """`state["step"]`: optimizers keep on the host how many steps they have made."""
    return isinstance(tensor, ast.Subscript) and isinstance(tensor.slice, ast.Constant) and tensor.slice.value == "step"


def _is_builtin(inference: Inference, scope: Scope, func: ast.Name) -> bool:
    return inference.value(scope, func).must(lambda a: a == External(f"builtins.{func.id}"))


def _is_item_of(node: ast.expr, tensor: ast.expr) -> bool:
    """Whether `node` is `.item()` of a tensor, through nothing that changes the number."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="item"), args=[]):
            return _source(value) is tensor
    return False


def _copied(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cpu"


def _logger_read(inference: Inference, scope: Scope, call: ast.Call) -> HostRead | None:
    """`writer.add_scalar(name, tensor, step)`: the writer converts the tensor at once."""
    if _strictly_device(inference, scope, call.args[1]):
        return HostRead(call.args[1], call.args[1], ReadKind.LOGGER)
    return None


def _qualified(inference: Inference, scope: Scope, func: ast.expr) -> str | None:
    only = inference.value(scope, func).single if isinstance(func, (ast.Name, ast.Attribute)) else None
    return only.qualname if isinstance(only, External) else None


def _strictly_device(inference: Inference, scope: Scope, node: ast.expr) -> bool:
    """For reads that are not written out: a tensor without doubt, on a device without much doubt.

    Where more may be passed than is seen, what is seen must be tensors of which one is on a device.
    """
    value = inference.value(scope, node)
    if value.open:
        if is_reduced_gradient(node):
            return inference.project.uses_accelerator(scope.module.source.path)
        seen = [a for a in value.alternatives if isinstance(a, Tensor) and not a.guessed]
        if len(seen) < len(value.alternatives):
            return False
        if any(a.place.may_be_device for a in seen):
            return True
        return is_differentiated_in(flow_of(scope), node) and value_on_device(inference, scope, value)
    return value.must_be(Tensor) and value_on_device(inference, scope, value)


def _source(node: ast.expr) -> ast.expr:
    """The tensor behind `.detach()`, `.cpu()` and the like, which do not change the number that is read."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=inner, attr="detach" | "cpu" | "data"), args=[]):
                node = inner
            case ast.Attribute(value=inner, attr="data"):
                node = inner
            case _:
                return node


def _outermost(flow: Flow, node: ast.expr) -> ast.expr:
    """The end of a chain such as `x.detach().cpu().numpy()`, which is one read."""
    while True:
        attribute = flow.parent.get(node)
        if not isinstance(attribute, ast.Attribute) or attribute.attr not in _CHAINED | {"item", "tolist"}:
            return node
        if attribute.attr == "data":
            node = attribute
            continue
        call = flow.parent.get(attribute)
        if not (isinstance(call, ast.Call) and call.func is attribute):
            return node
        node = call


def _formatted(flow: Flow) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What `f"{x}"`, `"{}".format(x)` and `"%f" % x` turn to text, as (what does it, x)."""
    for node in list(flow.order):
        match node:
            case ast.FormattedValue(value=value, conversion=-1) if value in flow.order:
                yield node, value
            case ast.Call(func=ast.Attribute(attr="format", value=ast.Constant()), args=args):
                yield from ((node, argument) for argument in args)
            case ast.BinOp(op=ast.Mod(), left=left, right=right) if _is_text(left):
                for argument in right.elts if isinstance(right, ast.Tuple) else [right]:
                    inner = argument.value if isinstance(argument, ast.Starred) else argument
                    if inner in flow.order:
                        yield node, inner


def _is_text(node: ast.expr) -> bool:
    """Whether an expression is a literal text, or one that is repeated or added to."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, str)
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
            return _is_text(left) or _is_text(right)
    return False


def _truth_reads(inference: Inference, loops: Loops, scope: Scope) -> Iterator[HostRead]:
    flow = flow_of(scope)
    compared = not loops.is_part_of_forward(scope)  # in a forward pass, what gives the host a bool is a wait like others
    for node in list(flow.order):
        if not isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            continue
        operands = [operand for operand in _operands(node.test) if operand in flow.order and _may_be_tensor(flow, operand)]
        if not operands or not _counts(loops, scope, node):
            continue
        for operand in operands:
            if (
                _strictly_device(inference, scope, operand)
                or (compared and _compares_on_device(inference, scope, operand))
                or _is_truth_of_tensors(inference, scope, operand)
            ):
                yield HostRead(operand, operand, ReadKind.TRUTH)


def may_read_truth(flow: Flow, test: ast.expr) -> bool:
    """Whether a condition may read a device value as a truth, by the look of it."""
    return any(_may_be_tensor(flow, operand) for operand in _operands(test))


def _may_be_tensor(flow: Flow, node: ast.expr) -> bool:
    """Whether a condition may be a tensor, by the look of it: a test for identity is none, nor is one of sizes or texts."""
    match node:
        case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn(), *_]):
            return False
        case ast.Compare(comparators=[ast.Constant(value=str() | None)]):
            return False  # `p.grad != None`: of None a tensor knows that it is another object
        case ast.Compare(left=left, comparators=others):
            return any(_may_be_tensor(flow, n) for n in (left, *others))
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass" | "hasattr" | "callable" | "len" as name)):
            return bool(flow.definitions_of(name))
        case ast.Attribute(attr=name) | ast.Subscript(value=ast.Attribute(attr=name)):
            return name not in HOST_ATTRIBUTES
    return not isinstance(node, (ast.Constant, ast.JoinedStr))


def _is_truth_of_tensors(inference: Inference, scope: Scope, node: ast.expr) -> bool:
    """Whether a condition is what tensors are reduced to, as far as one can see: `x.sum() > 0`, `legal.all()`."""
    match node:
        case ast.Compare(left=left, comparators=others):
            reduced = any(_reduces(flow_of(scope), side) for side in (left, *others))
        case ast.Call(func=ast.Attribute(attr="any" | "all"), args=[], keywords=[]):
            reduced = True
        case _:
            reduced = False
    if not reduced:
        return False
    held = inference.value(scope, node).alternatives
    tensors = [a for a in held if isinstance(a, Tensor) and a.place is not Place.HOST]
    there = len(tensors) == len(held) and not all(tensor.guessed for tensor in tensors)
    return there and inference.project.uses_accelerator(scope.module.source.path)


def _reduces(flow: Flow, node: ast.expr) -> bool:
    """`x.sum()`, or a name for it: more than a guess that a parameter is a tensor."""
    if isinstance(node, ast.Name):
        bound = flow.reaching.get(node, frozenset())
        made = [d.value for d in bound if d.kind == "assign" and not d.index]
        return bool(made) and len(made) == len(bound) and all(isinstance(m, ast.Call) and _reduces(flow, m) for m in made)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REDUCTIONS


def _compares_on_device(inference: Inference, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression is a bool that the host gets from a comparison of tensors: `torch.equal(x, y)`."""
    if not isinstance(node, ast.Call):
        return False
    row = operations.function(_qualified(inference, scope, node.func) or "")
    if row is not None:
        return _asks_for_truth(row) and any(device_value(inference, scope, given) for given in node.args)
    if not isinstance(node.func, ast.Attribute) or not _asks_for_truth(operations.method(node.func.attr)):
        return False
    receiver = inference.value(scope, node.func.value)
    return receiver.must_be(Tensor, Batch, Output) and value_on_device(inference, scope, receiver)


def _asks_for_truth(row: Operation | None) -> bool:
    return row is not None and row.wait is not None and row.wait.road is Road.TRUTH


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _operands(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _operands(operand)
        case _:
            yield test
