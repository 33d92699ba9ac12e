"""What code computes of a network's parameters without running it: `model.logit_scale.exp()` has a graph of its own."""

from __future__ import annotations

import ast
from typing import Final

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.values import Elements, External, Mapping, Object, Output, Sequence, Tensor, Value, held_by
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_HAS_PARAMETERS: Final = any_layout(
    rb"\bParameter \(|\bregister_parameter \(|\brequires_grad (?:= True|_? \()|\. (?:weight|bias)\b|\w_weight\b"
)
"""What a program holds that gets hold of a parameter, so that anything unknown may be one."""
_DEPTH: Final = 6
_VIEWS: Final = words("T mT H mH real imag")
_NUMBERS: Final = words("item tolist numpy detach argmax argmin size dim numel ndimension nelement data_ptr get_device")
_PASSES_ON: Final = words(
    "sum abs max min list tuple zip reversed sorted next iter getattr map filter enumerate dict set round pow"
)
"""Python's own functions that give what they get, or an item or a sum of it; what packages make of tensors may have a graph."""
_WITHOUT_TENSORS: Final = words("builtins math numpy time datetime os sys json random logging")


def may_record(value: Value, scalars: bool = True, depth: int = 3) -> bool:
    """Whether a value may be or hold a tensor of a graph, as far as is known. scalars: 0-d tensors count."""
    for alternative in value.alternatives:
        match alternative:
            case Tensor(grad=False) | Tensor(dtype="int64" | "bool"):
                continue
            case Tensor(ndim=ndim):
                if scalars or ndim != 0:
                    return True
            case Output() | Object("torch.nn.Parameter" | "torch.nn.parameter.Parameter"):
                return True
            case Sequence(items=items) if depth and any(may_record(i, True, depth - 1) for i in items):
                return True
            case Elements(element=element) if depth and may_record(element, True, depth - 1):
                return True
            case Mapping(items=items, rest=rest) if depth:
                if may_record(rest, True, depth - 1) or any(may_record(v, True, depth - 1) for _, v in items):
                    return True
    return False


def is_parameter(alternative: object) -> bool:
    """Whether something is a parameter of a network."""
    match alternative:
        case Object("torch.nn.Parameter" | "torch.nn.parameter.Parameter"):
            return True
    return isinstance(alternative, Tensor) and alternative.parameter


def computes_graph(facts: Facts, scope: Scope, node: ast.expr, scalars: bool = True, depth: int = _DEPTH) -> bool:
    """Whether an expression may give, or hold, a tensor whose graph is recorded where it is computed.

    scalars: 0-d tensors that are known as such count. Of what is not known, all counts that is computed of something which
    may be a parameter; the parameter itself, and whatever has its graph from elsewhere, is the same without autograd.
    """
    value = facts.inference.value(scope, node)
    if may_record(value, scalars):
        return True
    if depth <= 0:
        return True
    return not _is_known(value) and _Parameters(facts, scope, depth).computes(node)


class _Parameters:
    def __init__(self, facts: Facts, scope: Scope, depth: int) -> None:
        self.facts, self.scope, self.flow, self.depth = facts, scope, flow_of(scope), depth

    def value(self, node: ast.expr) -> Value:
        return self.facts.inference.value(self.scope, node)

    def inner(self, node: ast.expr) -> bool:
        return computes_graph(self.facts, self.scope, node, depth=self.depth - 1)

    def takes(self, node: ast.expr) -> bool:
        """Whether something is a parameter, or computed of one."""
        return self.is_parameter(node) or self.inner(node)

    def computes(self, node: ast.expr) -> bool:
        """Whether an expression of which nothing is known computes something of what may be a parameter."""
        match node:
            case ast.Name():
                return any(map(self.binds, self.flow.reaching.get(node, ())))
            case ast.Attribute(value=base, attr=name):
                return self.takes(base) if name in _VIEWS else self.is_property(base, name) or self.inner(base)
            case ast.Subscript(value=base):
                return self.takes(base)
            case ast.Call():
                return self.calls(node)
            case ast.BinOp(left=left, right=right):
                return self.takes(left) or self.takes(right)
            case ast.UnaryOp(op=op, operand=operand):
                return not isinstance(op, ast.Not) and self.takes(operand)
            case ast.Compare() | ast.Constant() | ast.JoinedStr() | ast.Lambda():
                return False
            case ast.Dict(values=values):
                return any(map(self.inner, values))
        return any(self.inner(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))

    def binds(self, definition: Definition) -> bool:
        """Whether a name is bound to something of the kind."""
        if definition.kind == "parameter" or definition.value is None:
            return definition.kind not in ("parameter", "import", "function", "class", "except", "del")
        if definition.kind == "for" or definition.index:
            return self.takes(definition.value)  # a tensor is taken apart into views
        return self.inner(definition.value)

    def calls(self, call: ast.Call) -> bool:
        given = [*call.args, *(k.value for k in call.keywords)]
        targets = self.facts.loops.targets(self.scope, call)
        if targets:
            return any(map(self.returns, targets))
        callee = self.value(call.func)
        if callee.must(lambda a: isinstance(a, External) and _gives_no_tensor(a.qualname)):
            return False
        if callee.must(lambda a: is_neural_module(self.facts.inference, a)):
            return False  # a forward pass, whose graph is followed elsewhere
        if isinstance(call.func, ast.Attribute) and not callee.may(lambda a: isinstance(a, External)):
            name, base = call.func.attr, call.func.value
            if name in _NUMBERS:
                return False
            if operations.method(name) is None:
                return self.may_be_network(base)
            return self.takes(base) or any(map(self.takes, given))
        return any(map(self.takes, given))

    def returns(self, target: Scope) -> bool:
        try:
            returned = [statement.value for statement in flow_of(target).returns if statement.value is not None]
        except SyntaxProblem:
            return True
        return any(computes_graph(self.facts, target, value, depth=self.depth - 1) for value in returned)

    def is_parameter(self, node: ast.expr) -> bool:
        """Whether something may be a parameter itself."""
        value = self.value(node)
        if value.may(is_parameter):
            return True
        if _is_known(value):
            return False
        match node:
            case ast.Attribute(value=base):
                return self.may_be_network(base)
            case ast.Subscript(value=base):
                return self.is_parameter(base)
            case ast.Call(func=ast.Name(id="getattr"), args=[base, *_]):
                return self.may_be_network(base)
            case ast.Call(func=ast.Attribute(attr="parameters" | "named_parameters")):
                return True
            case ast.Name():
                definitions = self.flow.reaching.get(node, frozenset())
                given = any(d.kind == "parameter" for d in definitions)
                bound = [d.value for d in definitions if d.value is not None and d.kind != "parameter"]
                return (given and self.has_parameters()) or any(map(self.is_parameter, bound))
        return False

    def is_network(self, node: ast.expr) -> bool:
        """Whether something may be a network: its attributes may be parameters."""
        value = self.value(node)
        if value.may(lambda a: is_neural_module(self.facts.inference, a)):
            return True
        if value.may(lambda a: isinstance(a, Object) and a.qualname.startswith("torch.nn.")):
            return True
        if _is_known(value):
            return False
        path = path_of(node)
        return path is not None and any(
            path in (path_of(call.func), path_of(getattr(call.func, "value", call.func)))
            for call in self.flow.calls
            if not isinstance(call.func, ast.Attribute) or call.func.attr in _OF_NETWORKS or path_of(call.func) == path
        )

    def may_be_network(self, node: ast.expr) -> bool:
        """The same of what is not known, either, in a program that gets hold of parameters."""
        return self.is_network(node) or (not _is_known(self.value(node)) and self.has_parameters())

    def is_property(self, base: ast.expr, name: str) -> bool:
        """Whether an attribute is computed when it is asked for, perhaps of parameters."""
        runs = self.facts.project.program_may_hold(self.scope.module.source.path, any_layout(rb"\bdef %b \(" % name.encode()))
        return runs and (self.is_network(base) or not _is_known(self.value(base)))

    def has_parameters(self) -> bool:
        return self.facts.project.program_may_hold(self.scope.module.source.path, _HAS_PARAMETERS)


_OF_NETWORKS: Final = words("eval train parameters named_parameters state_dict load_state_dict")


def _gives_no_tensor(qualname: str) -> bool:
    package, _, name = qualname.rpartition(".")
    return package.partition(".")[0] in _WITHOUT_TENSORS and not (package == "builtins" and name in _PASSES_ON)


def _is_known(value: Value, depth: int = 3) -> bool:
    """Whether it is known what something is, and what it holds."""
    if value.open:
        return False
    return all(_is_known(part, depth - 1) for a in value.alternatives for part in held_by(a)) if depth else True
