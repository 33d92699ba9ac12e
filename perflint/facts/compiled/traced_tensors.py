"""Which expressions of a function that torch traces are tensors, arrays of numpy included: torch traces those as tensors.

The parameters of such a function are mostly not known. Here the function itself may say what they are: by its annotations, or
by methods that tensors alone have.
"""

from __future__ import annotations

import ast
from typing import Final

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.operations import operations
from perflint.facts.operations.operations import TORCH_PACKAGES, Result
from perflint.facts.values.inference import Inference
from perflint.facts.values.object_methods import is_module_name
from perflint.facts.values.values import Alternative, Batch, External, Literal, Number, Object, Output, Tensor, Value
from perflint.source.syntax import Scope
from perflint.source.words import words

_TENSORS: Final = (Tensor, Batch, Output)
_SHARED_METHODS: Final = words(
    """
    add all any bfloat16 bool clone contiguous copy count cpu cuda detach dim double expand fill float get half index int item
    pin_memory requires_grad_ size sort split sub to type update zero_
    """
)
"""Methods that modules, containers, texts or batches of other libraries have, too: they show no tensor."""
_OF_LISTS: Final = words(
    """
    as_tensor asarray atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cat chain_matmul column_stack
    concat concatenate dstack einsum from_numpy frombuffer hstack meshgrid row_stack scalar_tensor stack tensor vstack
    """
)
"""Functions of torch whose first argument is, or may be, something else than a tensor."""
_SAME_TENSOR: Final = words("T mT data grad real imag H mH")
MAX_HOPS: Final = 12
_COMPUTED: Final = (ast.BinOp, ast.UnaryOp, ast.Compare)
"""What gives a tensor if a part of it is one, whatever the other parts may be."""


class TracedTensors:
    """The tensors of one function."""

    def __init__(self, inference: Inference, scope: Scope) -> None:
        self._inference, self._scope = inference, scope
        self._flow = flow_of(scope)
        self._parameters: dict[str, bool] = {}
        self._pending: set[Definition] = set()

    def is_tensor(self, node: ast.expr, hops: int = MAX_HOPS) -> bool:
        """Whether an expression is a tensor, as far as the function and its callers show."""
        if not hops or isinstance(node, ast.Constant):
            return False
        value = self._inference.value(self._scope, node)
        if value.must(_is_tensor):
            return True
        if not isinstance(node, _COMPUTED) and any(_speaks_against(a, value.open) for a in value.alternatives):
            return False
        return self._shows(node, hops - 1)

    def is_tensor_value(self, value: Value) -> bool:
        """Whether a value is a tensor without doubt."""
        return value.must(_is_tensor)

    def is_mask(self, node: ast.expr, hops: int = MAX_HOPS) -> bool:
        """Whether an expression is a tensor of truth values."""
        match node:
            case _ if not hops:
                return False
            case ast.Compare():
                return self.is_tensor(node)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self.is_mask(operand, hops - 1)
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.BitXor(), right=right):
                return self.is_mask(left, hops - 1) or self.is_mask(right, hops - 1)
            case ast.Name():
                found = self._flow.reaching.get(node, frozenset())
                sources = [d.value for d in found if d.kind == "assign" and d.value is not None and not d.index]
                if sources and len(sources) == len(found):
                    return all(self.is_mask(source, hops - 1) for source in sources)
        known = self._inference.value(self._scope, node).alternatives
        return bool(known) and all(isinstance(a, Tensor) and a.dtype == "bool" for a in known) and self.is_tensor(node)

    def may_be_container(self, node: ast.expr) -> bool:
        """Whether an expression is what a module gave, which may be a tuple that Python asks whether it is empty."""
        given = self._inference.value(self._scope, node)
        return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) and given.may_be(Output, Batch)

    def may_be_tensor(self, node: ast.expr, method: str) -> bool:
        """Whether an expression whose method is called is a tensor; the name of a method that tensors alone have says so."""
        if self.is_tensor(node):
            return True
        value = self._inference.value(self._scope, node)
        row = operations.method(method)
        telling = method in ("item", "backward", "tolist") or (row is not None and row.telling)
        return telling and not any(_speaks_against(a, value.open) for a in value.alternatives)

    def _shows(self, node: ast.expr, hops: int) -> bool:
        match node:
            case ast.BinOp(left=left, right=right):
                if isinstance(left, ast.Constant) and isinstance(left.value, str):
                    return False
                return self.is_tensor(left, hops) or self.is_tensor(right, hops)
            case ast.UnaryOp(op=op, operand=operand):
                return not isinstance(op, ast.Not) and self.is_tensor(operand, hops)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in ops):
                    return False
                return any(self.is_tensor(part, hops) for part in (left, *comparators))
            case ast.NamedExpr(value=inner):
                return self.is_tensor(inner, hops)
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_tensor(body, hops) and self.is_tensor(orelse, hops)
            case ast.Subscript(value=base):
                return self.is_tensor(base, hops)
            case ast.Attribute(value=base, attr=attr):
                return attr in _SAME_TENSOR and self.is_tensor(base, hops)
            case ast.Call():
                return self._gives_tensor(node, hops)
            case ast.Name(id=name):
                found = self._flow.reaching.get(node, frozenset())
                return bool(found) and all(self._binds_tensor(d, name, hops) for d in found)
        return False

    def _gives_tensor(self, call: ast.Call, hops: int) -> bool:
        row = operations.method(call.func.attr) if isinstance(call.func, ast.Attribute) else None
        if row is None or not isinstance(call.func, ast.Attribute):
            return False
        if row.result is not Result.TENSOR and not (
            row.result is Result.PAIR_ALONG_DIM and not call.args and not call.keywords
        ):
            return False
        owner = self._inference.value(self._scope, call.func.value)
        shown = not owner.may_be(External) and row.name not in _SHARED_METHODS and row.telling
        return shown or self.is_tensor(call.func.value, hops)

    def _binds_tensor(self, definition: Definition, name: str, hops: int) -> bool:
        if definition in self._pending:
            return True  # a variable that a loop computes from itself: what stands before the loop decides
        self._pending.add(definition)
        try:
            return self._binds(definition, name, hops)
        finally:
            self._pending.discard(definition)

    def _binds(self, definition: Definition, name: str, hops: int) -> bool:
        match definition.kind:
            case "parameter":
                return self._is_tensor_parameter(name)
            case "assign" | "walrus" if definition.value is not None and not definition.index:
                return self.is_tensor(definition.value, hops)
            case "augmented" if definition.value is not None and isinstance(definition.node, ast.expr):
                return self.is_tensor(definition.value, hops) or self._shows(definition.node, hops)
            case "for" if definition.value is not None and not definition.index:
                return self.is_tensor(definition.value, hops)
        return False

    def _is_tensor_parameter(self, name: str) -> bool:
        """Whether a parameter gets tensors, is annotated as one, or used as only a tensor can be."""
        if name not in self._parameters:
            passed = self._inference.parameter(self._inference.frame(self._scope), name).alternatives
            self._parameters[name] = (bool(passed) and all(isinstance(a, Tensor) for a in passed)) or self._looks_like_tensor(
                name
            )
        return self._parameters[name]

    def _looks_like_tensor(self, name: str) -> bool:
        for parameter in self._scope.parameters:
            if parameter.arg == name and parameter.annotation is not None:
                return ast.unparse(parameter.annotation).strip("'\"") in ("torch.Tensor", "Tensor")
        for mention in self._flow.mentions.get(name, ()):
            attribute = self._flow.parent.get(mention)
            if isinstance(attribute, ast.Subscript) and attribute.value is mention:
                if isinstance(attribute.slice, (ast.Compare, ast.UnaryOp)) and self._mentions(attribute.slice, name):
                    return True  # `x[x > 0]`
            if isinstance(attribute, ast.Call) and attribute.args[:1] == [mention] and self._takes_tensor(attribute.func):
                return True
            if isinstance(mention, ast.Name) and isinstance(attribute, ast.Attribute) and attribute.value is mention:
                row = operations.method(attribute.attr)
                called = isinstance(self._flow.parent.get(attribute), ast.Call)
                if called and row is not None and row.name not in _SHARED_METHODS and row.telling:
                    return True
        return False

    def _takes_tensor(self, callee: ast.expr) -> bool:
        """Whether the first argument of a call is a tensor: what is called is a layer of torch, or a function of tensors."""
        match self._inference.value(self._scope, callee).single:
            case Object(qualname):
                return qualname.startswith("torch.nn.") and is_module_name(qualname) and "." not in qualname[9:]
            case External(qualname) if qualname.rpartition(".")[0] in TORCH_PACKAGES:
                row = operations.function(qualname)
                return row is not None and not row.factory and row.name not in _OF_LISTS and not row.writes
        return False

    def _mentions(self, node: ast.AST, name: str) -> bool:
        return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _is_tensor(alternative: Alternative) -> bool:
    return isinstance(alternative, _TENSORS) or _is_array(alternative)


def _speaks_against(alternative: Alternative, is_open: bool) -> bool:
    """Whether an alternative shows that a value is no tensor; a comparison of what is not known may also give a truth value."""
    return not _is_tensor(alternative) and alternative != Literal(None) and not (is_open and isinstance(alternative, Number))


def _is_array(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname == "numpy.ndarray"
