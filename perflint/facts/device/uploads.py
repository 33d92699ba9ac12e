"""Copies from the host to a device for which the host waits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.guards import is_guard
from perflint.facts.dataflow.uses import Step, Walk, Way
from perflint.facts.training.loops import Loops
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.arguments import argument, transfer_target
from perflint.facts.values.inference import Inference
from perflint.facts.values.runtime_calls import COPIES
from perflint.facts.values.values import (
    NOTHING,
    Alternative,
    Batch,
    External,
    Output,
    Place,
    Tensor,
    Value,
    device_place,
    place_of,
)
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made, words


def target_of(inference: Inference, scope: Scope, call: ast.Call) -> Place | None:
    """Where `x.to(...)`, `x.cuda()` or `x.type(...)` puts its receiver; None when it moves nothing."""
    assert isinstance(call.func, ast.Attribute)
    if holds_nothing(inference, scope, call.func.value):
        return None
    match call.func.attr:
        case "to":
            target = transfer_target(inference, call, inference.frame(scope))
            if target == NOTHING:
                return None
            others = [place_of(a) for a in target.alternatives if isinstance(a, (Tensor, Batch, Output))]
            if others:
                return others[0] if others[0].may_be_device else None
            return device_place(target)
        case "cuda":
            return Place.CUDA
        case _:
            places = {place_of(a) for a in inference.value(scope, call).alternatives}
            return next((p for p in places if p in (Place.CUDA, Place.CUDA_OR_HOST)), None)


def copied_source(inference: Inference, scope: Scope, node: ast.expr) -> ast.expr | None:
    """What `x.to(...)`, `x.cuda()` or the runtime's `moved(x, ...)` copies; None for everything else."""
    match node:
        case ast.Call(func=ast.Attribute(value=source, attr="to" | "cuda")):
            return source
        case ast.Call(func=ast.Name() | ast.Attribute(), args=[source, *_]) if last_name(node.func) in COPIES:
            ours = f"perflint_runtime.{last_name(node.func)}"
            return source if inference.value(scope, node.func).must(lambda a: a == External(ours)) else None
    return None


def is_blocking(call: ast.Call) -> bool:
    """Whether a call that copies to a device, if it does, waits for the copy."""
    if not isinstance(call.func, ast.Attribute) or argument(call, None, "non_blocking") is not None:
        return False
    if call.func.attr == "to":
        spread = next((k.value for k in call.keywords if k.arg is None), None)
        first = call.args[0] if call.args else argument(call, None, "device") or spread
        return first is not None and not (isinstance(first, ast.Constant) and first.value == "cpu")
    return True


_CONSTANT_FACTORIES = words(
    """
    zeros ones full empty eye arange rand randn randint randperm
    """
)


def is_built_constant(inference: Inference, scope: Scope, node: ast.expr) -> bool:
    """Whether a tensor of constants or random numbers is built here, on the host, only to be copied."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) as made, args=args):
            constant = name in _CONSTANT_FACTORIES or (name == "tensor" and len(args) == 1 and _is_number(args[0]))
            return constant and inference.value(scope, made).must(lambda a: a == External(f"torch.{name}"))
    return False


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and type(inner.value) in (int, float, bool)


def holds_nothing(inference: Inference, scope: Scope, node: ast.expr) -> bool:
    """Whether torch makes a tensor without an element, `torch.zeros(0, 4)`: to copy it is no work, and waits for nothing."""
    flow = flow_of(scope)
    for _ in range(4):
        while isinstance(node, ast.Call) and last_name(node.func) in _SAME_SIZE and isinstance(node.func, ast.Attribute):
            node = node.func.value
        bound = flow.reaching.get(node, frozenset()) if isinstance(node, ast.Name) else frozenset()
        only = next(iter(bound)) if len(bound) == 1 else None
        resized = any(flow.calls_named[name] for name in _RESIZES)
        if only is None or only.kind != "assign" or only.index or only.value is None or resized:
            break
        node = only.value
    return isinstance(node, ast.Call) and _is_written_empty(node) and inference.value(scope, node.func).must(_is_of_torch)


def _is_of_torch(alternative: Alternative) -> bool:
    return isinstance(alternative, External) and alternative.qualname.startswith("torch.")


def _is_written_empty(call: ast.Call) -> bool:
    """Whether a size of 0 or an empty list is written out for what makes a tensor."""
    name = last_name(call.func)
    match call.args:
        case [] if name in _TENSOR_TYPES:
            return not call.keywords
        case [ast.List(elts=[]) | ast.Tuple(elts=[])]:
            return name == "tensor" or name in _TENSOR_TYPES
        case [ast.List(elts=sizes) | ast.Tuple(elts=sizes), *_] if name in _BY_SIZE:
            return any(map(_is_no_size, sizes))
        case sizes if name in _BY_SIZE or name in _TENSOR_TYPES:
            return any(map(_is_no_size, sizes))
    return False


def _is_no_size(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0


_BY_SIZE = words("zeros ones empty rand randn")
_TENSOR_TYPES = words("Tensor FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ShortTensor ByteTensor BoolTensor")
_SAME_SIZE = words("float double half bfloat16 long int short byte bool clone detach contiguous requires_grad_")
_RESIZES = words("resize_ resize_as_ set_")


def is_of_constants(node: ast.expr) -> bool:
    """Whether data is written out as numbers, so that a tensor of it is always the same."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and all(map(is_of_constants, node.elts))
    return _is_number(node)


def is_made_of_constants(node: ast.expr) -> bool:
    """`torch.tensor([1, 2]).float()`: a tensor that is always the same."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        node = node.func.value
    made = isinstance(node, ast.Call) and len(node.args) == 1 and last_name(node.func).endswith("ensor")
    return made and isinstance(node, ast.Call) and is_of_constants(node.args[0])


def is_set_once(scope: Scope, node: ast.expr) -> bool:
    """Whether something is `self.table`, which its class sets in `__init__` and nowhere writes to, as far as it shows."""
    owner = scope.owner
    if owner is None or not isinstance(node, ast.Attribute) or path_of(node) != f"self.{node.attr}":
        return False
    makers = owner.methods_assigning(node.attr)
    others = [m for m in owner.methods.values() if m.name != "__init__" and node.attr.encode() in m.text]
    written = (path_of(s.value) for m in others for s in flow_of(m).stores if isinstance(s, ast.Subscript))
    return bool(makers) and all(m.name == "__init__" for m in makers) and path_of(node) not in written


def is_left_on_host(inference: Inference, scope: Scope, key: ast.expr) -> bool:
    """Whether the program moves a batch's items, but for that: `if name != "meta": batch[name] = batch[name].to(device)`."""
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return False
    return inference.project.program_holds(scope.module.source.path, _moves_all_but(key.value))


@cache
def _moves_all_but(key: str) -> re.Pattern[bytes]:
    named = rb"(?:!= |not in [(\[{] (?:['\"]\w+['\"] , )*)['\"]" + re.escape(key.encode()) + rb"['\"]"
    return any_layout(rb"if (\w+) " + named + rb"[^:\n]*: (\w+) \[ \1 \] = \2 \[ \1 \] \. (?:to|cuda) \(")


def comes_from_host(inference: Inference, loops: Loops, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression may be a tensor in host memory that arrives with each batch."""
    receiver = inference.value(scope, node)
    if receiver.may(lambda a: is_neural_module(inference, a)):  # a helper for networks, and for batches where these are passed
        return receiver.may(lambda a: isinstance(a, Tensor) and a.place is Place.HOST and not a.random)
    held = [a for a in receiver.alternatives if isinstance(a, (Tensor, Batch, Output))]
    if held:
        held = [a for a in held if not (isinstance(a, Tensor) and (a.random or a.parameter))]  # others say so
        if not held:
            return False
        if any(place_of(a) in (Place.HOST, Place.UNKNOWN) for a in held) and _is_given_to_mover(scope, node):
            return True
        if any(isinstance(a, Tensor) and a.place.may_be_device for a in held):
            return False  # a helper that copies it there, unless it is told not to
        if any(place_of(a) is not Place.UNKNOWN for a in held):
            return any(place_of(a) is Place.HOST for a in held)
    nothing_known = receiver.open and not receiver.alternatives
    if not held and not nothing_known:
        return False
    return _is_loop_variable(loops, scope, node) or _is_given_to_mover(scope, node)


def _is_given_to_mover(scope: Scope, node: ast.expr) -> bool:
    """Whether a helper whose name says that it moves what it is given moves that, or a part of it: `move_to_device(batch)`."""
    names, outer = [scope.name], scope.parent
    while outer is not None:
        names.append(outer.name)
        outer = outer.parent
    if not any(map(_MOVES.fullmatch, names)):
        return False
    found = flow_of(scope).reaching.get(node, frozenset())
    return bool(found) and all(d.kind in ("parameter", "for") for d in found)


_MOVES = made(
    r"_?(?:\w+_)?to_(?:the_)?(?:device|cuda|gpu)|_?(?:move|cuda)_(?:batch|data|inputs?|sample|tensors?)|_?batch_to(?:_\w+)?"
)


def is_one_of_many(flow: Flow, copy: ast.Call) -> bool:
    """`torch.stack([row.to(device) for row in rows])`: a copy for each."""
    rows = flow.parent.get(copy)
    stacked = flow.parent.get(rows) if isinstance(rows, (ast.ListComp, ast.GeneratorExp)) else None
    return isinstance(stacked, ast.Call) and last_name(stacked.func) in ("stack", "cat", "concat", "vstack", "hstack")


def is_read_back(inference: Inference, scope: Scope, copy: ast.Call) -> bool:
    """Whether a function copies something there, and all that it returns is read from there: an agent chooses an action.

    The read waits for everything, so that a copy without a wait gains nothing. An action may be read by whoever asked for it.
    """
    flow = flow_of(scope)
    if flow.loop(copy) is not None or "backward" in flow.calls_named:
        return False
    returned = [node.value for node in flow.returns if node.value is not None]
    if not returned:
        return False
    if all(any(map(_reads, ast.walk(value))) for value in returned):
        return True
    if not any(isinstance(part, ast.Call) and _MAKES_TENSOR.search(last_name(part.func)) for part in ast.walk(copy)):
        return False  # a batch of a loader, which may be large
    sites = inference.callers.sites(scope).sites
    return bool(sites) and all(
        isinstance(site.node, ast.Call)
        and "backward" not in flow_of(site.scope).calls_named
        and is_read_in_step(site.scope, site.node)
        for site in sites
    )


class _Read(Walk[bool]):
    """Whether the host reads what a value is, or what is computed from it, in the same round of the loop that has it."""

    def __init__(self, scope: Scope, node: ast.AST) -> None:
        super().__init__(scope)
        self.loop = self.flow.loop(node)
        self.home = self.flow.block.get(node)

    def judge(self, step: Step) -> Iterator[bool | ast.AST | Definition]:
        if self.is_behind(step.node):
            return
        match step.way:
            case Way.BOUND:
                yield from step.definitions
            case Way.METHOD:
                yield from self._read(step.node) if step.name in _READING else [step.node]
            case Way.ARGUMENT if isinstance(step.node, ast.Call):
                yield from self._read(step.node) if path_of(step.node.func) in _CONVERSIONS else [step.node]
            case Way.OPERAND | Way.ALIAS | Way.ITEM | Way.ATTRIBUTE | Way.COMPARED | Way.CONTAINED if step.result is not None:
                yield step.result

    def _read(self, node: ast.AST) -> Iterator[bool]:
        """What is read every N steps only is not read in most of them."""
        around = self.flow.block[node].ancestry() if node in self.flow.block else ()
        own = set(self.home.ancestry()) if self.home is not None else set()
        if not any(block not in own and is_guard(self.flow, block) for block in around):
            yield True

    def is_behind(self, node: ast.AST) -> bool:
        """Whether a node stands behind the loop: what is read there is read once."""
        inside = self.loop is None or node not in self.flow.block or self.flow.within(node, self.loop.block)
        return not inside


class _Counted(_Read):
    """The same, or whether the host goes through it, so that it has to know how many there are."""

    def judge(self, step: Step) -> Iterator[bool | ast.AST | Definition]:
        call = self.flow.parent.get(step.node)
        if step.way is Way.ITERATED and not self.is_behind(step.node):
            yield True
        elif step.way is Way.CONTAINED and isinstance(call, ast.Call) and last_name(call.func) in _JOINS:
            yield call
        else:
            yield from super().judge(step)


_JOINS = words("stack cat concat hstack vstack")
_READING = words("item cpu numpy tolist")
_CONVERSIONS = words("int float bool")
_MAKES_TENSOR = made(r"^(?:from_numpy|as_tensor|tensor|(?:Float|Double|Long|Int|Byte)?Tensor)$")


def is_read_in_step(scope: Scope, node: ast.AST) -> bool:
    """Whether the host waits for what is made of a value anyway, in the same function: `.item()`, `.cpu()`, `int(x[0])`."""
    return any(True for _ in _Read(scope, node).ends(node))


def is_counted_in_step(scope: Scope, node: ast.AST) -> bool:
    """Whether the same function waits for what is made of a value anyway, or loops over it."""
    return any(True for _ in _Counted(scope, node).ends(node))


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("item", "cpu", "numpy", "tolist")


def is_on_host(value: Value) -> bool:
    """Whether a value is, without doubt, a tensor in host memory."""
    return value.must(lambda a: isinstance(a, (Tensor, Batch, Output)) and place_of(a) is Place.HOST)


def are_all_on_host(value: Value) -> bool:
    """Whether all that is known of a value are tensors in host memory: a guess, and no proof."""
    return bool(value.alternatives) and all(isinstance(a, Tensor) and a.place is Place.HOST for a in value.alternatives)


def without_cuda(scope: Scope, node: ast.AST) -> bool:
    """Whether code stands in the branch for machines without CUDA."""
    for block in flow_of(scope).block[node].ancestry():
        if block.kind in ("then", "else") and isinstance(block.node, ast.If):
            test = block.node.test
            operands = test.values if isinstance(test, ast.BoolOp) else [test]
            asked = [operand for operand in operands if "cuda" in ast.unparse(operand).lower()]
            if not asked or "!=" in ast.unparse(test) or " or " in ast.unparse(test):
                continue
            several = isinstance(test, ast.BoolOp)  # the other arm is for machines with CUDA, too
            decisive = [operand for operand in asked if "is_available" in ast.unparse(operand)]
            absent = all(map(_says_no_cuda, decisive or asked))
            if (block.kind == "else") != absent and not (several and block.kind == "else"):
                return True
    return False


_WITHOUT_CUDA = made(r"(?:no|disable|without)_?cuda", re.I)


def _says_no_cuda(test: ast.expr) -> bool:
    """Whether a test holds without CUDA: `not torch.cuda.is_available()`, `args.no_cuda`."""
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return negated != (_WITHOUT_CUDA.search(ast.unparse(test)) is not None)


def is_off_cuda(flow: Flow, node: ast.AST) -> bool:
    """Whether an expression is evaluated for tensors that are not on a CUDA device alone: `x if x.is_cuda else x.item()`."""
    within = node
    for parent in flow.ancestors(node):
        match parent:
            case ast.stmt():
                return False
            case ast.IfExp(test=ast.Attribute(value=asked, attr="is_cuda"), orelse=other) if within is other:
                return any(isinstance(part, ast.expr) and ast.dump(part) == ast.dump(asked) for part in ast.walk(node))
        within = parent
    return False


def _is_loop_variable(loops: Loops, scope: Scope, node: ast.expr, depth: int = 3) -> bool:
    """Whether an expression of unknown type is what a step loop iterates over or draws, a part of it, or several joined."""
    root = node
    while isinstance(root, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(root, ast.Call):
            if last_name(root.func) == "Variable" and root.args:
                root = root.args[0]
                continue
            if not isinstance(root.func, ast.Attribute) or root.func.attr not in _SAME_DATA:
                return depth > 0 and _joins(loops, scope, root, depth - 1)
            root = root.func
        elif isinstance(root, ast.Subscript) and _is_chosen_in_step(loops, scope, root):
            return True
        root = root.value
    statements = [loop.statement for loop in loops.kinds(scope)]
    for definition in flow_of(scope).reaching.get(root, frozenset()):
        made = definition.value
        if definition.kind != "for" and not (made is not None and (_draws(made) or _hands_on(loops, scope, definition, depth))):
            return False
        loop = definition.block.loop
        while loop is not None:
            if loop.statement is not None and loop.statement in statements:
                return True
            loop = loop.parent
    return False


def _is_chosen_in_step(loops: Loops, scope: Scope, item: ast.Subscript) -> bool:
    """Whether a step chooses what is copied: `graphs[i].to(device)`, with an `i` that each round of a step loop binds."""
    if not isinstance(item.slice, ast.Name) or _NETWORKS.search(last_name(item.value)):
        return False
    found = flow_of(scope).reaching.get(item.slice, frozenset())
    kinds = loops.kinds(scope)
    around = ([*d.block.loop.ancestry()] if d.block.loop is not None else [] for d in found)
    return bool(found) and all(any(loop in kinds for loop in outer) for outer in around)


_NETWORKS = made(r"model|net(?!flow)|layer|module|block|optim|agent|actor|critic|head|crit|loss_f", re.I)


def _hands_on(loops: Loops, scope: Scope, definition: Definition, depth: int) -> bool:
    """Whether a name is bound to what is joined from parts of a batch, or another shape of it: `x = x.view(-1, 3)`."""
    made = definition.value if definition.kind == "assign" else None
    for at in definition.index:
        made = made.elts[at] if isinstance(made, ast.Tuple) and at is not None and at < len(made.elts) else None
    return isinstance(made, ast.Call) and depth > 0 and _is_loop_variable(loops, scope, made, depth - 1)


def _joins(loops: Loops, scope: Scope, call: ast.Call, depth: int) -> bool:
    """`torch.cat(images)`, `torch.cat([x[0], x[1]])`."""
    if last_name(call.func) not in ("cat", "concat", "stack") or not call.args:
        return False
    joined = call.args[0]
    parts = joined.elts if isinstance(joined, (ast.List, ast.Tuple)) else [joined]
    return bool(parts) and all(_is_loop_variable(loops, scope, part, depth) for part in parts)


def _draws(node: ast.expr) -> bool:
    """Whether an expression draws a batch, or takes a sample out of a dataset."""
    match node:
        case ast.Call(func=func):
            return _DRAWS.search(last_name(func)) is not None
        case ast.Subscript(value=base, slice=ast.Name()):
            return _DATASET.search(last_name(base)) is not None
    return False


_DATASET = made(
    r"(?:^|_)(?:data_?set|ds|(?:train|val|valid|test|eval)_?(?:set|data))$|^[XY]_(?:data|train|valid|val|test)$", re.I
)
_DRAWS = made(r"^(?:(?:get|next|sample|draw|fetch|load|make)(?:_\w*)?batch(?:es)?|next|__next__)$")
_SAME_DATA = words(
    """
    unsqueeze squeeze view reshape flatten transpose permute contiguous float double half long int
    """
)
"""Methods that hand on a batch as it is, but for shape and type."""
