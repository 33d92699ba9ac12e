"""Every place where the host waits for the device, by the table of operations: what the sync budget counts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.device.batch_masks import is_mask_of_dataset
from perflint.facts.device.keys import (
    as_key,
    fills_from_host,
    indexes_from_host,
    is_bools,
    is_built_list,
    is_guess,
    may_hold_bools,
)
from perflint.facts.device.library_waits import checked_for, detects_anomalies, is_tokenized, is_waived, numbers_of
from perflint.facts.device.reads import HostRead, ReadKind, device_value, value_on_device
from perflint.facts.device.uploads import (
    are_all_on_host,
    comes_from_host,
    is_blocking,
    is_off_cuda,
    is_on_host,
    target_of,
    without_cuda,
)
from perflint.facts.device.waiting_places import MASK, bounds_of, counts_sizes, keys_of, made_on_host, places
from perflint.facts.operations import operations
from perflint.facts.operations.operations import Operation, Road, Wait
from perflint.facts.training.loops import Loops
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.arguments import argument
from perflint.facts.values.array_methods import NDARRAY, makes_array
from perflint.facts.values.inference import Inference
from perflint.facts.values.names import canonical
from perflint.facts.values.values import (
    Batch,
    Elements,
    External,
    Literal,
    Mapping,
    Number,
    Object,
    Output,
    Place,
    Sequence,
    Tensor,
    Value,
    device_place,
    place_of,
    seems_number,
)
from perflint.project.trace import Memo
from perflint.source.records import dataclass
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import words

_ROADS = {ReadKind.COPY: Road.COPY, ReadKind.FORMAT: Road.FORMAT, ReadKind.TRUTH: Road.TRUTH}


@dataclass(frozen=True, eq=False)
class HostWait:
    """One place. `times` is how often the host waits whenever `node` is evaluated; `least`: it may be more often.

    cause: the call whose arguments decide whether it waits, with its scope.
    """

    node: ast.expr
    road: Road
    times: int = 1
    least: bool = False
    cause: tuple[Scope, ast.Call] | None = None


class Waits:
    """The waits of a project's scopes. Each place is looked at when it is asked about, and once.

    A wait is listed when it is known that one happens on an accelerator: what is not understood waits for nothing.
    """

    def __init__(self, inference: Inference, loops: Loops, reads: Callable[[Scope], Iterable[HostRead]]) -> None:
        """`reads` gives the waits of a scope that are known already."""
        self._inference, self._loops, self._reads = inference, loops, reads
        self._at: Memo[ast.AST, list[HostWait]] = Memo(inference.project.trace)
        self._of: Memo[Scope, list[HostWait]] = Memo(inference.project.trace)

    def at(self, scope: Scope, node: ast.expr) -> list[HostWait]:
        """The waits at one place of `places`, but for those in its parts and those that are reads."""
        return self._at.get(node, lambda: list(_Finder(self._inference, self._loops, scope, self._reads).of(node)))

    def of(self, scope: Scope) -> list[HostWait]:
        """The waits of a scope, reads too, in evaluation order; of one with step loops, those in loops."""
        return self._of.get(scope, lambda: self._find(scope))

    def _find(self, scope: Scope) -> list[HostWait]:
        found = [HostWait(read.node, _ROADS.get(read.kind, Road.NUMBER)) for read in self._reads(scope)]
        flow = flow_of(scope)
        only_in_loops = bool(self._loops.kinds(scope)) and self._loops.heat(scope) is None
        for node in places(flow):
            if not (only_in_loops and flow.loop(node) is None):
                found += self.at(scope, node)
        return sorted(found, key=lambda wait: flow.order[wait.node])


def _chain(read: HostRead) -> Iterator[ast.expr]:
    """What a read consists of: `x.cpu()`, `.data` and `.numpy()` of `x.cpu().data.numpy()`, which waits once."""
    yield read.node
    node = read.node
    while isinstance(node, (ast.Call, ast.Attribute)):
        inner = node.func if isinstance(node, ast.Call) else node.value
        if inner is read.tensor:
            return
        yield inner
        node = inner


class _Finder:
    """What waits at a place of a scope. `reads` gives the waits of a scope that are known already."""

    def __init__(self, inference: Inference, loops: Loops, scope: Scope, reads: Callable[[Scope], Iterable[HostRead]]) -> None:
        self._inference, self._loops, self._scope, self._reads = inference, loops, scope, reads
        self._flow = flow_of(scope)

    def _is_read(self, node: ast.expr) -> bool:
        return any(part is node for read in self._reads(self._scope) for part in _chain(read))

    def of(self, node: ast.AST) -> Iterator[HostWait]:
        """The waits at one node, but for those in its parts."""
        match node:
            case ast.Call():
                if self._may_wait(node) and not self._is_read(node):
                    yield from self._call(node)
                for factor in numbers_of(node):
                    if self._may_be_number_on_device(factor) and not self._is_function_of(node, factor):
                        yield HostWait(factor, _road("alpha=t"))
                if last_name(node.func) == "backward" and detects_anomalies(self._inference.project, self._scope):
                    yield HostWait(node, _road("backward in anomaly mode"), least=True)
            case ast.Subscript(ctx=ast.Load()):
                yield from self._item(node)
            case ast.Subscript(ctx=ast.Store()):
                yield from self._stored(node)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[held]) if self._is_number_on_device(left):
                yield from self._searched(node, held)

    def _is_function_of(self, call: ast.Call, factor: ast.expr) -> bool:
        """Whether what would be a factor in front of a method's tensor is the first tensor of a function: `torch.add(x, y)`."""
        return factor in call.args and isinstance(call.func, ast.Attribute) and self._value(call.func).must_be(External)

    def _may_wait(self, call: ast.Call) -> bool:
        """Whether a call may wait, by the last name of what is called, or by the module that it belongs to."""
        match call.func:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in operations.waiting_names():
                return True
            case ast.Attribute(value=ast.Name(id=name) as owner) if not self._flow.definitions_of(name):
                only = self._value(owner).single
                return isinstance(only, External) and operations.function(f"{only.qualname}.") is not None
        return False

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> Iterator[HostWait]:
        row, receiver, others = self._operation(call)
        wait = row.wait if row is not None else None
        if row is None or wait is None or is_waived(wait, call, others) or is_off_cuda(self._flow, call):
            return
        if wait.road is Road.UPLOAD or wait.road is Road.TRANSFER:
            road = self._copied(row, call, receiver)
            if road is not None:
                of_tokens = road is Road.UPLOAD and receiver is not None and is_tokenized(self._flow, receiver)
                yield HostWait(call, road, least=of_tokens)
            return
        if wait.of == "any":
            cause = checked_for(self._inference, self._scope, wait, call)
            if cause is not None:
                yield HostWait(call, wait.road, wait.times, cause=cause)
            return
        if wait.road is Road.OVERFLOW and self._takes_care(call):
            return
        if wait.of == "receiver":
            function = self._value(call.func).must_be(External)  # of torch: what it gets is a tensor
            waits = receiver is not None and (self._is_tensor(receiver) or (function and self._may_be_tensor(receiver)))
            times, least = int(waits), False
        else:
            times, least = self._times(wait, [*([receiver] if receiver is not None else []), *others], others)
        if times:
            yield HostWait(call, wait.road, times * wait.times, least)

    def _operation(self, call: ast.Call) -> tuple[Operation | None, ast.expr | None, list[ast.expr]]:
        """The row of what is called, its first tensor, and its other arguments."""
        named = (k.value for k in call.keywords if k.arg not in (None, "out"))
        given = [*(a for a in call.args if not isinstance(a, ast.Starred)), *named]
        callee = self._value(call.func).single
        if isinstance(callee, External):
            row = operations.function(canonical(callee.qualname))
            return row, given[0] if given else None, given[1:]
        if not isinstance(call.func, ast.Attribute):
            return None, None, []
        owner = self._value(call.func.value)
        rows = [
            operations.function(canonical(f"{a.qualname}.{call.func.attr}"))
            for a in owner.alternatives
            if isinstance(a, Object)
        ]
        if rows:  # of several optimizers, the one that waits
            return next((row for row in rows if row is not None and row.wait is not None), rows[0]), None, given
        if not owner.alternatives and not self._is_copied_batch(call.func):
            return None, None, []
        if not all(isinstance(a, (Tensor, Batch, Output)) for a in owner.alternatives):
            return None, None, []
        return operations.method(call.func.attr), call.func.value, given

    def _is_copied_batch(self, method: ast.Attribute) -> bool:
        """Whether a method that copies is called on what each step gets, of which nothing else is known."""
        if method.attr not in ("to", "cuda"):
            return False
        arrives = comes_from_host(self._inference, self._loops, self._scope, method.value)
        return arrives or is_tokenized(self._flow, method.value)

    def _times(self, wait: Wait, everything: list[ast.expr], others: list[ast.expr]) -> tuple[int, bool]:
        """How often a call waits for its arguments, and whether that is the least."""
        match wait.of:
            case "nothing" | "many":
                return 1, wait.of == "many"
            case "arguments" | "mixed":
                counted = wait.of == "arguments" or any(self._value(given).must_be(Number, Literal) for given in others)
                return sum(map(self._is_number_on_device, others)) * counted, False
            case "each":
                counts = [self._elements(part) for part in everything]
                return sum(n for n, _ in counts), any(least for _, least in counts)
            case "pairs":
                if len(everything) == 1:
                    count, least = self._elements(everything[0])
                    return max(count - 1, int(least and count > 0)), least
                count = sum(map(self._is_number_on_device, everything))
                return min(count, len(everything) - 1), False
        return 0, False

    def _elements(self, node: ast.expr) -> tuple[int, bool]:
        """How many tensors on the device an argument is or holds, and whether it may hold more."""
        if self._is_read(node):
            return 0, False
        if self._is_number_on_device(node):
            return 1, False
        if isinstance(node, (ast.List, ast.Tuple)):
            return sum(map(self._is_number_on_device, node.elts)), False
        value = self._value(node).single
        if isinstance(value, Elements) and not isinstance(node, ast.GeneratorExp):
            return int(value.element.must_be(Tensor) and value_on_device(self._inference, self._scope, value.element)), True
        return 0, False

    def _takes_care(self, call: ast.Call) -> bool:
        """Whether the optimizer that a `GradScaler` steps is fused, and looks for infinities itself."""
        optimizer = self._value(call.args[0]).single if call.args else None
        if not isinstance(optimizer, Object) or not isinstance(optimizer.site, tuple):
            return False
        fused = argument(optimizer.site[1], None, "fused")
        return isinstance(fused, ast.Constant) and fused.value is True

    # -- copies ------------------------------------------------------------------------------------------------------

    def _copied(self, row: Operation, call: ast.Call, receiver: ast.expr | None) -> Road | None:
        """Which way a call copies, and waits for it; None when it does not."""
        if any(k.arg in ("non_blocking", None) for k in call.keywords):
            return None
        if row.name in ("to", "cuda", "type", "type_as", "copy_"):
            return self._moved(row.name, call, receiver)
        if receiver is None or (isinstance(receiver, (ast.List, ast.Tuple)) and not receiver.elts):
            return None  # of `[]` nothing is copied
        target = argument(call, None, "device")
        if row.name == "new_tensor":
            return Road.UPLOAD if self._is_tensor(receiver) else None
        if target is None:
            made = self._value(call).must(lambda a: isinstance(a, Tensor) and a.place.may_be_device)
            if not row.name.startswith("torch.cuda.") and (not made or row.name == "from_numpy"):
                return None
            if row.name == "torch.Tensor" and (len(call.args) != 1 or self._value(receiver).must_be(Literal, Number)):
                return None  # sizes
        elif device_place(self._value(target)) is Place.HOST:
            return None
        fresh = row.name in ("tensor", "scalar_tensor")
        return Road.UPLOAD if self._is_host_data(receiver) or (fresh and not self._is_tensor(receiver)) else None

    def _moved(self, name: str, call: ast.Call, receiver: ast.expr | None) -> Road | None:
        """Which way `x.to(...)`, `x.copy_(y)` and the like copy."""
        if receiver is None or self._value(receiver).may(lambda a: is_neural_module(self._inference, a)):
            return None
        if name == "copy_":
            given = call.args[0] if call.args else receiver
            come, go = self._value(given), self._value(receiver)
            if is_on_host(come) or comes_from_host(self._inference, self._loops, self._scope, given):
                return Road.UPLOAD if value_on_device(self._inference, self._scope, go) else None
        else:
            come, go = self._value(receiver), self._value(call)
            target = target_of(self._inference, self._scope, call) if is_blocking(call) else None
            if target is not None and target is not Place.HOST:
                arrives = is_on_host(come) or comes_from_host(self._inference, self._loops, self._scope, receiver)
                arrives = arrives or is_tokenized(self._flow, receiver)
                return Road.UPLOAD if arrives and not without_cuda(self._scope, call) else None
        lands = is_on_host(go) or (name == "type" and are_all_on_host(go))  # `x.type(torch.FloatTensor)`, whatever `x` is
        return Road.COPY if lands and value_on_device(self._inference, self._scope, come) else None

    def _is_host_data(self, node: ast.expr) -> bool:
        """Whether an expression is Python data or an array, or a tensor on the host, or of a batch that arrives there."""
        if self._value(node).must_be_if_known(Batch):
            return comes_from_host(self._inference, self._loops, self._scope, node)
        return self._value(node).must(
            lambda a: (
                isinstance(a, (Literal, Sequence, Elements))
                or (isinstance(a, Object) and a.qualname.startswith(("numpy.", "pandas.")))
                or (isinstance(a, Tensor) and a.place is Place.HOST)
            )
        )

    # -- items -------------------------------------------------------------------------------------------------------

    def _item(self, node: ast.Subscript) -> Iterator[HostWait]:
        """`x[key]`, read."""
        keys = keys_of(node.slice)
        if not any(map(self._may_index, keys)):
            return
        if self._is_tensor(node.value):
            yield from self._indexed(node, keys, "x[mask]")
        elif not self._value(node.value).may_be(Mapping):
            listed = self._value(node.value).must_be(Sequence, Elements)  # which takes nothing but a number
            for key in keys:
                if self._is_number_on_device(key) and (listed or self._value(key).must(lambda a: getattr(a, "ndim", 1) == 0)):
                    yield HostWait(node, _road("list[0-d]"))

    def _stored(self, node: ast.Subscript) -> Iterator[HostWait]:
        """`x[key] = value`: whether it waits depends on what is stored."""
        parent = self._flow.parent.get(node)
        keys = keys_of(node.slice)
        stored = made_on_host(self._flow, node)
        if stored is not None and self._value(stored).must(fills_from_host) and self._is_tensor(node.value):
            yield HostWait(node, _road("x[key] = host tensor"))
        if all(isinstance(key, (ast.Constant, ast.Slice)) for key in keys) or not any(map(self._may_index, keys)):
            return
        if self._is_tensor(node.value) and isinstance(parent, ast.AugAssign):
            yield from self._indexed(node, keys, "x[mask]")
            yield from self._indexed(node, keys, "x[mask] = tensor")
        elif isinstance(parent, ast.Assign) and self._is_tensor(node.value):
            number = counts_sizes(parent.value) or seems_number(self._value(parent.value))
            yield from self._indexed(node, keys, "x[mask] = number" if number else "x[mask] = tensor")

    def _indexed(self, node: ast.Subscript, keys: list[ast.expr], masked: str) -> Iterator[HostWait]:
        for key in keys:
            form = masked if self._is_mask(key) else self._index_form(key)
            wait = row.wait if form and (row := operations.operator(form)) is not None else None
            if wait is not None:
                times = len([b for b in bounds_of(key) if self._is_bound_on_device(b)]) if form == "x[a:b]" else 1
                if times:
                    yield HostWait(node, wait.road, times)

    def _may_index(self, key: ast.expr) -> bool:
        """Whether a wait may come of a key, whatever it is a key to."""
        if isinstance(key, ast.Slice):
            return any(map(self._is_bound_on_device, bounds_of(key)))
        if isinstance(key, ast.List) or as_key(self._value(key)).must_be(Tensor, Batch, Elements, Sequence):
            return True
        return self._is_array_or_list(key) or self._is_compared(key) or self._is_mask(key)

    def _index_form(self, key: ast.expr) -> str | None:
        if isinstance(key, ast.Slice):
            return "x[a:b]"
        value = as_key(self._value(key))
        if isinstance(key, ast.List) or value.must(indexes_from_host) or self._is_array_or_list(key):
            return "x[host index]"
        return (
            "x[0-d]"
            if value.must(lambda a: isinstance(a, Tensor) and a.ndim == 0)
            and value_on_device(self._inference, self._scope, value)
            else None
        )

    def _is_array_or_list(self, key: ast.expr) -> bool:
        """Whether an index is an array of numpy, and no number out of one, or a list or a range that is built there."""
        if is_built_list(key, self._scope):
            return True
        bound = self._flow.reaching.get(key, frozenset())
        return bool(bound) and all(
            self._is_array(key, d) or (d.kind == "assign" and not d.index and self._is_host_index(d.value)) for d in bound
        )

    def _is_array(self, key: ast.expr, definition: Definition) -> bool:
        held = self._value(key)
        if not held.alternatives or not all(
            isinstance(a, Object) and a.qualname == NDARRAY.qualname for a in held.alternatives
        ):
            return False
        made = definition.value if definition.kind == "assign" and not definition.index else None
        return (isinstance(made, ast.Call) and makes_array(made)) or (definition.kind == "parameter" and not held.open)

    def _is_host_index(self, made: ast.expr | None) -> bool:
        """Whether what a name is bound to is a list of numbers: a comprehension, or what Python makes a list of."""
        if isinstance(made, ast.ListComp):
            return self._value(made).must(lambda a: isinstance(a, Elements) and a.element.must_be(Number, Literal))
        if isinstance(made, ast.Call) and last_name(made.func) in ("where", "nonzero") and len(made.args) == 1:
            return self._value(made.func).must(lambda a: isinstance(a, External) and a.qualname.startswith("numpy."))
        return made is not None and is_built_list(made, self._scope)

    def _is_mask(self, key: ast.expr) -> bool:
        if isinstance(key, ast.BinOp) and isinstance(key.op, ast.Mult):
            return self._is_mask(key.left) and self._is_mask(key.right)
        known = [a for a in self._value(key).alternatives if not is_guess(a)]
        if not self._is_tensor(key):
            return False
        named = MASK.search(last_name(key)) is not None and all(map(may_hold_bools, known))
        return named or all(map(is_bools, known)) or is_mask_of_dataset(self._inference, self._scope, key)

    def _is_compared(self, key: ast.expr) -> bool:
        """Whether an expression is a comparison with a tensor, or a name for one: whatever stands on the other side."""
        if isinstance(key, ast.Compare):
            sides = (key.left, *key.comparators)
            return len(key.ops) == 1 and any(self._value(side).must_be_if_known(Tensor, Output) for side in sides)
        bound = self._flow.reaching.get(key, frozenset())
        compared = [d.value for d in bound if d.kind == "assign" and not d.index and isinstance(d.value, ast.Compare)]
        return bool(bound) and len(compared) == len(bound) and all(map(self._is_compared, compared))

    def _searched(self, node: ast.Compare, held: ast.expr) -> Iterator[HostWait]:
        """`t in held`: each element is compared, and the host asks whether it was equal."""
        if isinstance(held, (ast.List, ast.Tuple, ast.Set)):
            yield HostWait(node, _road("t in list"), len(held.elts))
        elif self._value(held).must_be(Sequence, Elements):
            yield HostWait(node, _road("t in list"), least=True)

    # -- values ------------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Value:
        return self._inference.value(self._scope, node)

    def _is_tensor(self, node: ast.expr) -> bool:
        """Whether an expression that an operation on tensors works on is on a device, as far as one can see."""
        held = self._value(node)
        if held.must_be(Tensor, Batch, Output):
            return value_on_device(self._inference, self._scope, held)
        known = [a for a in held.alternatives if not is_guess(a)]
        if not known or not all(isinstance(a, (Tensor, Batch, Output)) for a in known):
            return False
        moved = any(place_of(a).may_be_device for a in known)  # what `if use_cuda:` copies is on the host otherwise
        elsewhere = moved or all(place_of(a) is not Place.HOST for a in known)
        return elsewhere and value_on_device(self._inference, self._scope, held)

    def _may_be_tensor(self, node: ast.expr) -> bool:
        return device_value(self._inference, self._scope, node)

    def _is_number_on_device(self, node: ast.expr) -> bool:
        """Whether an expression is, without doubt, a tensor, and without much doubt one on a device."""
        if isinstance(node, (ast.Constant, ast.Slice)):
            return False
        held = self._value(node)
        known = isinstance(node, ast.Call) and last_name(node.func) in _REDUCED and bool(held.alternatives)
        if known and all(isinstance(a, Tensor) and not a.guessed and a.place is not Place.HOST for a in held.alternatives):
            return device_value(self._inference, self._scope, node)  # of what a forward pass is given, say
        if not held.must(lambda a: isinstance(a, Tensor) or (isinstance(a, Batch) and a.default_collate)):
            return False
        return device_value(self._inference, self._scope, node)

    def _may_be_number_on_device(self, factor: ast.expr) -> bool:
        """Whether a factor is computed from a tensor on a device, as far as one can see: `-scale * group["lr"]`."""
        held = [a for a in self._value(factor).alternatives if isinstance(a, Tensor) and not a.guessed]
        return any(a.place is not Place.HOST and a.ndim in (None, 0) for a in held) and self._may_be_tensor(factor)

    def _is_bound_on_device(self, bound: ast.expr) -> bool:
        """Whether a slice ends at a tensor on a device, as far as one can see: all that is known of it are tensors there."""
        if isinstance(bound, ast.Constant):
            return False
        held = self._value(bound)
        return self._is_number_on_device(bound) or (
            held.may(lambda a: isinstance(a, (Tensor, Batch)) and a.place.may_be_device)
            and all(isinstance(a, (Tensor, Batch, Output)) for a in held.alternatives)
            and device_value(self._inference, self._scope, bound)
        )


def _road(form: str) -> Road:
    row = operations.operator(form)
    assert row is not None
    assert row.wait is not None
    return row.wait.road


_REDUCED = words("min max sum amin amax")
