"""Where code that runs compiled breaks its graph, by the rows of `graph_breaks_table`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from perflint.facts.compiled.compiled import DISABLING, Compiled
from perflint.facts.compiled.graph_breaks_table import BREAKS
from perflint.facts.compiled.traced_tensors import TracedTensors
from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.guards import is_guard
from perflint.facts.operations.operations import TORCH_PACKAGES
from perflint.facts.values import classes
from perflint.facts.values.arguments import argument
from perflint.facts.values.inference import Inference
from perflint.facts.values.names import canonical
from perflint.facts.values.values import Elements, External, FunctionRef, Instance, Object, Sequence
from perflint.source.records import dataclass
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, made, words

CURES: Final = {
    "array": "torch does not know this function of numpy; use one of torch, or call it outside of the compiled function",
    "assertion": "the condition is read on the host; give `assert` a constant message, or use `torch._assert_async`",
    "backward": "a backward pass is run; compile the forward pass and the loss, and call this outside",
    "build": "an object is made that torch cannot trace; make it once, outside of the compiled function",
    "check": "Python asks whether a condition on tensors holds, to raise an error; use `torch._assert_async`, or `assert` with "
    "a constant message",
    "clock": "the clock is read; measure around the compiled function",
    "copy": "an object is copied; copy it outside of the compiled function, or `clone` its tensors",
    "debug": "a debugging switch is set; set it outside of the compiled function",
    "explicit": "torch is told to leave the graph here; keep what runs uncompiled out of the compiled function",
    "gradient": "which tensors need gradients is changed; do it outside of the compiled function",
    "message": "something is printed or logged; do it outside of the compiled function, or unless "
    "`torch.compiler.is_compiling()`",
    "number": "a number is read from a tensor; keep it a tensor, or set `torch._dynamo.config.capture_scalar_outputs`",
    "outside": "Python does what torch cannot trace; do it outside of the compiled function",
    "packed": "sequences are packed; pad them, and mask what is padding",
    "pointer": "memory is looked at; do it outside of the compiled function",
    "random": "random numbers come from Python or numpy, or generators are set; draw them by torch, or hand them in",
    "recurrent": "torch does not trace this recurrent layer; compile what stands before and behind it",
    "shape": "the size of the result depends on the data; keep it fixed by `torch.where`, `masked_fill` or a given size",
    "sparse": "a sparse tensor is made or looked at; make it outside of the compiled function",
    "text": "a tensor becomes text; do it outside of the compiled function",
    "truth": "Python asks whether a condition on tensors holds; compute both sides and choose by `torch.where`",
}
"""The kinds of breaks: what happens, and the cure."""

_SWITCHES: Final = {
    "backward": any_layout(rb"\btrace_autograd_ops = True"),
    "number": any_layout(rb"\bcapture_scalar_outputs = True|\bTORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS\b"),
    "recurrent": any_layout(rb"\ballow_rnn = True"),
    "shape": any_layout(rb"\bcapture_dynamic_output_shape_ops = True|\bTORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS\b"),
}
"""What a program sets so that rows with the word `captured` break nothing, by kind."""
_REORDERS: Final = any_layout(rb"\breorderable_logging_functions\b|\bignore_logger_methods\b|\bignore_logging_functions\b")
"""What lets a program print and log in compiled code."""

_KEEPING: Final = words(
    """
    torch.no_grad torch.enable_grad torch.set_grad_enabled torch.inference_mode torch.autocast torch.amp.autocast
    contextlib.nullcontext torch.nn.attention.sdpa_kernel torch.profiler.record_function torch.profiler.profile
    torch.autograd.profiler.record_function torch.autograd.profiler.profile
    """
)
"""Context managers that torch leaves and enters again around a break, so that graphs remain on both sides (measured)."""
_LOGGER: Final = made(r"(?:^|\.)_?(?:logger|log|LOGGER|LOG)$")


@dataclass(frozen=True, slots=True)
class BreakRow:
    """One row. The other fields are the words of the same name in the table."""

    name: str
    kind: str
    captured: bool = False
    of_tensors: bool = False
    of_tensor: int | None = None
    """The position of the argument that must be a tensor; -1 for any of them."""
    without: tuple[int | None, str] | None = None
    scalar: int | None = None
    example: str = ""


@dataclass(frozen=True, eq=False)
class GraphBreak:
    """One place. costly: the loop, the `try` or the `with` because of which no graph of the function remains."""

    node: ast.expr | ast.stmt
    row: BreakRow
    costly: ast.stmt | None = None

    @property
    def cure(self) -> str:
        """What happens there, and what to do."""
        return CURES[self.row.kind]


@cache
def rows() -> dict[str, BreakRow]:
    """The table, by name.

    Raises:
        ValueError: a word that means nothing.

    """
    found = {}
    for line in BREAKS.strip().splitlines():
        if line and not line.startswith("# "):
            row = _row(line)
            found[row.name] = row
    return found


def _row(line: str) -> BreakRow:
    name, about, example = line[:44].rstrip(), *line[44:].split(" | ", 1)
    kind, *rest = about.split()
    captured = of_tensors = False
    of_tensor = scalar = without = None
    for word in rest:
        first, _, second = word.partition("@")
        if word == "captured":
            captured = True
        elif word == "of-tensors":
            of_tensors = True
        elif first == "of-tensor":
            of_tensor = int(second or -1)
        elif first == "scalar":
            scalar = int(second)
        elif first == "without":
            position, _, keyword = second.partition(":")
            without = (int(position) if position else None, keyword)
        else:
            raise ValueError(f"table of graph breaks: `{name}` has the word `{word}`, which means nothing")
    if kind not in CURES:
        raise ValueError(f"table of graph breaks: `{name}` is of the kind `{kind}`, which has no cure")
    return BreakRow(name, kind, captured, of_tensors, of_tensor, without, scalar, example)


@cache
def _last_names() -> frozenset[str]:
    """The last names of all functions and methods that have a row."""
    return frozenset(re.split(r"[ .]", name.removesuffix("()"))[-1] for name in rows())


def find_breaks(inference: Inference, compiled: Compiled, scope: Scope) -> list[GraphBreak]:
    """The places in a function that runs compiled, in the order of the text.

    A place is listed when it is known that the graph breaks there: what is not understood is traced. What runs on errors, or
    now and then, is left out.
    """
    flow = flow_of(scope)
    finder = _Finder(inference, compiled, scope)
    found = [found for node in list(flow.parent) for found in finder.of(node)]
    found = [f for f in dict.fromkeys(found) if finder.counts(f)]
    return sorted(found, key=lambda f: (f.node.lineno, f.node.col_offset))


class _Finder:
    def __init__(self, inference: Inference, compiled: Compiled, scope: Scope) -> None:
        self._inference, self._compiled, self._scope = inference, compiled, scope
        self._flow = flow_of(scope)
        self._tensors = TracedTensors(inference, scope)

    def of(self, node: ast.AST) -> Iterator[GraphBreak]:
        """The breaks at one node, but for those in its parts."""
        match node:
            case ast.Call():
                row = self._called(node)
                if row is not None and self._applies(row, node):
                    yield self._break(node, row)
            case ast.If(test=test, body=[*_, ast.Raise()], orelse=[]):
                yield from (self._break(found.node, rows()["if t: raise"]) for found in self._tested(test))
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield from self._tested(test)
            case ast.Assert(test=test, msg=message):
                yield from self._asserted(test, message)
            case ast.BoolOp(values=values):
                for value in values[:-1]:
                    yield from self._tested(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield from self._tested(operand)
            case ast.Compare(ops=[_, _, *_]) if self._tensors.is_tensor(node):
                yield self._break(node, rows()["a < t < b"])
            case ast.Subscript():
                yield from self._item(node)
            case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str()), right=right):
                parts = right.elts if isinstance(right, ast.Tuple) else [right]
                if any(self._tensors.is_tensor(part) for part in parts):
                    yield self._break(node, rows()['"%s" % t'])
            case ast.Attribute(attr="requires_grad", ctx=ast.Store()):
                yield self._break(node, rows()["t.requires_grad ="])
            case ast.With(items=items):
                for item in items:
                    yield from self._entered(item.context_expr)
            case ast.ClassDef():
                yield self._break(node, rows()["class"])
            case ast.comprehension(ifs=ifs):
                for test in ifs:
                    yield from self._tested(test)

    def _break(self, node: ast.expr | ast.stmt, row: BreakRow) -> GraphBreak:
        return GraphBreak(node, row, self._costly(node))

    # -- which of them count -----------------------------------------------------------------------------------------

    def counts(self, found: GraphBreak) -> bool:
        """Whether the place is traced in each call, and the program does not capture what happens there."""
        project, path = self._inference.project, self._scope.module.source.path
        switch = _SWITCHES.get(found.row.kind) if found.row.captured else None
        if switch is not None and project.program_holds(path, switch):
            return False
        if found.row.kind == "message" and project.program_holds(path, _REORDERS):
            return False
        if not self._compiled.is_traced(self._scope, found.node):
            return False
        return not self._is_rare(found)

    def _is_rare(self, found: GraphBreak) -> bool:
        """Whether the place runs on errors or now and then only; for what is printed, whether it is under any condition."""
        child: ast.AST = found.node
        for parent in (*self._flow.ancestors(found.node),):
            if isinstance(parent, (ast.Raise, ast.ExceptHandler)):
                return True
            if isinstance(parent, ast.Assert) and child is parent.msg:
                return True
            if isinstance(parent, ast.If) and child is not parent.test:
                branch = parent.body if child in parent.body else parent.orelse
                if isinstance(branch[-1], ast.Raise) and not isinstance(child, ast.If):
                    return True
                if found.row.kind == "message" and not self._tensors.is_tensor(parent.test):
                    return True
            child = parent
        blocks = self._flow.block[found.node].ancestry() if found.node in self._flow.block else ()
        return any(is_guard(self._flow, block) for block in blocks)

    def _costly(self, node: ast.AST) -> ast.stmt | None:
        """The statement around a break that torch cannot resume in, so that it gives up the whole function."""
        child = node
        for parent in self._flow.ancestors(node):
            match parent:
                case ast.For() | ast.AsyncFor() if child is not parent.iter:
                    return parent
                case ast.While() if child is not parent.test and not isinstance(node, ast.While):
                    return parent
                case ast.Try():
                    return parent
                case ast.With(items=items) if not isinstance(child, ast.withitem):
                    if any(self._gives_up(item.context_expr) for item in items):
                        return parent
                case ast.With():
                    return parent
            child = parent
        return None

    def _gives_up(self, manager: ast.expr) -> bool:
        """Whether a context manager is known, and none that torch leaves and enters again."""
        callee = manager.func if isinstance(manager, ast.Call) else manager
        value = self._inference.value(self._scope, callee)
        if value.must_be(FunctionRef, Instance):
            return True
        return value.must(lambda a: isinstance(a, External) and canonical(a.qualname) not in _KEEPING)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _called(self, call: ast.Call) -> BreakRow | None:
        """The row of what is called."""
        name = path_of(call.func)
        value = self._inference.value(self._scope, call.func)
        if any(isinstance(a, FunctionRef) and self._compiled.is_disabled(a.scope) for a in value.alternatives):
            return rows()["disabled()"]
        if self._is_disabled(call.func):
            return rows()["disabled()"]
        only = value.single
        if isinstance(only, External):
            return self._function(canonical(only.qualname))
        if value.alternatives and not value.open:
            found = {rows().get(f"{a.qualname}()") if isinstance(a, Object) else None for a in value.alternatives}
            if len(found) == 1 and None not in found:
                return found.pop()
        if isinstance(call.func, ast.Attribute) and call.func.attr in _last_names():
            return self._method(call.func, name or "")
        return None

    def _function(self, qualname: str) -> BreakRow | None:
        package, _, last = qualname.rpartition(".")
        found = rows().get(qualname)
        if found is None and package.startswith("tqdm") and last in ("tqdm", "trange"):
            return rows()["tqdm.tqdm"]
        if found is None and package in TORCH_PACKAGES and package != "torch.cuda":
            return rows().get(f"torch.{last}")
        return found

    def _method(self, func: ast.Attribute, name: str) -> BreakRow | None:
        owner = self._inference.value(self._scope, func.value)
        of_logger = rows().get(f"Logger.{func.attr}")
        if of_logger is not None and not owner.alternatives and _LOGGER.search(name.rpartition(".")[0]):
            return of_logger
        modules = [a for a in owner.alternatives if self._is_module(a)]
        if modules:
            own = [a for a in modules if isinstance(a, Instance) and classes.find_method(self._inference, a.cls, func.attr)]
            return rows().get(f"Module.{func.attr}") if not own else None
        of_tensor = rows().get(f"Tensor.{func.attr}")
        if of_tensor is None:
            return None
        return of_tensor if self._tensors.may_be_tensor(func.value, func.attr) else None

    def _is_module(self, alternative: object) -> bool:
        if isinstance(alternative, Instance):
            return classes.is_module(self._inference, alternative.cls)
        return isinstance(alternative, Object) and alternative.qualname.startswith("torch.nn.")

    def _is_disabled(self, callee: ast.expr, hops: int = 2) -> bool:
        """Whether an expression is what `torch.compiler.disable(f)` gives."""
        match callee:
            case ast.Call(func=func):
                value = self._inference.value(self._scope, func)
                return value.must(lambda a: isinstance(a, External) and a.qualname in DISABLING)
            case ast.Name() if hops:
                found = self._flow.reaching.get(callee, frozenset())
                sources = [d.value for d in found if d.kind == "assign" and d.value is not None and not d.index]
                return bool(sources) and all(self._is_disabled(source, hops - 1) for source in sources)
        return False

    def _applies(self, row: BreakRow, call: ast.Call) -> bool:
        """Whether the arguments of a call are those that its row asks for."""
        given = [*call.args, *(k.value for k in call.keywords)]
        if row.of_tensors:
            return bool(call.args) and self._holds_tensors(call.args[0])
        if row.of_tensor is not None:
            asked = given if row.of_tensor < 0 else call.args[row.of_tensor : row.of_tensor + 1]
            if row.of_tensor >= 0 and not row.name.startswith("Tensor."):
                asked = [*asked, *(k.value for k in call.keywords if k.arg in ("repeats",))]
            if not any(self._tensors.is_tensor(part) or (row.kind == "copy" and self._is_layer(part)) for part in asked):
                return False
        if row.scalar is not None and (len(call.args) > row.scalar or any(k.arg == "size" for k in call.keywords)):
            return False
        if row.without is not None:
            position, keyword = row.without
            return argument(call, position, keyword) is None and not (not keyword and call.keywords)
        return True

    def _is_layer(self, node: ast.expr) -> bool:
        value = self._inference.value(self._scope, node)
        return bool(value.alternatives) and all(map(self._is_module, value.alternatives))

    def _holds_tensors(self, node: ast.expr, hops: int = 2) -> bool:
        """Whether an expression is a tensor, or a container of them."""
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return any(self._tensors.is_tensor(item) for item in items)
            case ast.GeneratorExp(elt=item) | ast.ListComp(elt=item):
                return self._tensors.is_tensor(item)
            case ast.Name() if hops:
                sources = [d.value for d in self._flow.reaching.get(node, ()) if d.kind == "assign" and not d.index]
                if sources and all(s is not None and self._holds_tensors(s, hops - 1) for s in sources):
                    return True
        if self._tensors.is_tensor(node):
            return True
        held = self._inference.value(self._scope, node).alternatives
        parts = [a.items if isinstance(a, Sequence) else (a.element,) for a in held if isinstance(a, (Sequence, Elements))]
        return len(parts) == len(held) > 0 and all(any(map(self._tensors.is_tensor_value, items)) for items in parts)

    # -- conditions --------------------------------------------------------------------------------------------------

    def _tested(self, test: ast.expr) -> Iterator[GraphBreak]:
        match test:
            case ast.BoolOp(values=values):  # the others are tested by the operator itself
                yield from self._tested(values[-1])
            case ast.UnaryOp(op=ast.Not()):
                return
            case ast.Compare(ops=[_, _, *_]):
                return
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[held]):
                if self._tensors.is_tensor(left) and isinstance(held, (ast.List, ast.Tuple, ast.Set)):
                    yield self._break(test, rows()["t in list"])
            case _ if self._tensors.is_tensor(test) and not self._tensors.may_be_container(test):
                yield self._break(test, rows()["if t"])

    def _asserted(self, test: ast.expr, message: ast.expr | None) -> Iterator[GraphBreak]:
        """What is asserted with a constant message becomes part of the graph."""
        match test:
            case ast.BoolOp(values=values):
                if any(self._tensors.is_tensor(value) for value in values[:-1]):
                    return  # the operator is looked at itself
            case ast.UnaryOp(op=ast.Not()):
                return
        if message is not None and not _is_constant_text(message) and self._tensors.is_tensor(test):
            yield self._break(test, rows()["assert t, message"])

    # -- items and context managers ----------------------------------------------------------------------------------

    def _item(self, node: ast.Subscript) -> Iterator[GraphBreak]:
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        stored = isinstance(node.ctx, ast.Store) and not isinstance(self._flow.parent.get(node), ast.AugAssign)
        for key in keys:
            if isinstance(key, ast.Slice):
                if any(self._tensors.is_tensor(b) for b in (key.lower, key.upper, key.step) if b is not None):
                    yield self._break(node, rows()["x[a:b]"])
            elif self._tensors.is_mask(key):
                if not stored and not isinstance(node.ctx, ast.Del):
                    yield self._break(node, rows()["x[mask]"])
            elif isinstance(node.ctx, ast.Load) and self._is_list(node.value) and self._tensors.is_tensor(key):
                yield self._break(node, rows()["list[t]"])

    def _is_list(self, node: ast.expr) -> bool:
        value = self._inference.value(self._scope, node)
        return value.must(lambda a: isinstance(a, Sequence) or (isinstance(a, Elements) and a.kind in ("list", "tuple", "")))

    def _entered(self, manager: ast.expr) -> Iterator[GraphBreak]:
        callee = manager.func if isinstance(manager, ast.Call) else None
        if callee is not None:
            only = self._inference.value(self._scope, callee).single
            if isinstance(only, External) and f"with {canonical(only.qualname)}" in rows():
                yield self._break(manager, rows()[f"with {canonical(only.qualname)}"])
            return
        value = self._inference.value(self._scope, manager)
        names = {f"with {a.qualname}" if isinstance(a, Object) else "" for a in value.alternatives}
        if not value.open and len(names) == 1 and (row := rows().get(names.pop())) is not None:
            yield self._break(manager, row)


def _is_constant_text(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_constant_text(left) and _is_constant_text(right)
        case ast.JoinedStr(values=values):
            return all(isinstance(value, ast.Constant) for value in values)
    return False
