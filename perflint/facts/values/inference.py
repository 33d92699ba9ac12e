"""What an expression may evaluate to, worked out on demand.

A question about one node follows reaching definitions backwards, into the function that a call runs, out to the call
sites of a parameter, to the methods that assign an attribute, and into other files, as far as `MAX_DEPTH` functions.
Only what is asked is computed, and an answer depends on the program alone, never on what was asked before (see `solver`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.displays import DISPLAYS, may_change
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.operations import operations
from perflint.facts.values import calls, classes, object_methods, runtime_calls, tensor_methods, variables
from perflint.facts.values.array_methods import FRAME, selects_rows_or_columns
from perflint.facts.values.bound_arguments import bound_arguments, returned_parameters
from perflint.facts.values.callers import Callers
from perflint.facts.values.decorators import hands_on
from perflint.facts.values.derived_values import (
    added_to,
    combined,
    compared,
    entered,
    is_guess,
    is_one_index,
    item_at,
    item_of,
    negated,
    part,
    quotient,
    settled,
    sliced,
    type_of_bits,
    with_hint,
)
from perflint.facts.values.frames import MAX_DEPTH, Frame
from perflint.facts.values.names import from_elsewhere, hinted_call, name_of_item, names_class, names_sizes
from perflint.facts.values.solver import Solver
from perflint.facts.values.values import (
    FALSE,
    NONE,
    NOTHING,
    TRUE,
    UNKNOWN,
    Alternative,
    Batch,
    ClassRef,
    Elements,
    External,
    FunctionRef,
    Instance,
    Literal,
    Loader,
    Mapping,
    ModuleRef,
    Number,
    Object,
    Output,
    Place,
    Sequence,
    Tensor,
    Text,
    Value,
    is_none,
    join,
    meeting_place,
    one,
    place_of,
)
from perflint.project.project import Project
from perflint.source.syntax import Module, Scope, SyntaxProblem


class Inference:
    """Answers questions about one project."""

    def __init__(self, project: Project, *, finds_heirs: bool = True) -> None:
        self.project = project
        self.apart = Inference(project, finds_heirs=False) if finds_heirs else None
        self.solver = Solver(project.trace)
        self.callers = Callers(self)
        self._frames: dict[tuple[Scope, tuple[tuple[str, Value], ...], int], Frame] = {}
        self._own_frames: dict[Scope, Frame] = {}
        """Those in which most questions are asked: nothing is bound, all of the depth is left."""

    # -- questions ---------------------------------------------------------------------------------------------------

    def value(self, scope: Scope, node: ast.expr) -> Value:
        """What `node`, an expression of `scope`, may evaluate to."""
        frame = self._own_frames.get(scope)
        if frame is None:
            frame = self._own_frames[scope] = self.frame(scope)
        return self.infer(node, frame)

    def frame(self, scope: Scope, arguments: Iterable[tuple[str, Value]] = (), depth: int = MAX_DEPTH) -> Frame:
        """The frame of a scope. The same arguments give the same frame."""
        key = (scope, tuple(arguments), depth)
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = Frame(*key)
        return found

    def solve(self, key: object, compute: Callable[[], Value], *, passing: bool = False) -> Value:
        """`compute()`, remembered under `key`, as `Solver.solve` does; `NOTHING` when it asks for itself."""

        def parsed() -> Value:
            try:
                return compute()
            except SyntaxProblem:
                return UNKNOWN

        return self.solver.solve(key, parsed, NOTHING, passing=passing)

    def infer(self, node: ast.expr, frame: Frame) -> Value:
        """What `node` may evaluate to in `frame`."""
        if isinstance(node, ast.Constant):
            return one(Literal(node.value))
        key = (node, frame) if not isinstance(node, ast.Name) else variables.question(node, frame)
        value: Value | None = self.solver.recall(key)
        if value is not None:
            return value
        return self.solve(key, lambda: self._infer(node, frame), passing=bool(frame.arguments))

    def known(self, node: ast.expr, frame: Frame) -> Value:
        """Like `infer`, but a cycle counts as not known: for operands of an operation that changes the value."""
        value = self.infer(node, frame)
        return value if value.open or value.alternatives else UNKNOWN

    # -- expressions -------------------------------------------------------------------------------------------------

    def _infer(self, node: ast.expr, frame: Frame) -> Value:
        match node:
            case ast.Name(id=name):
                value = variables.local_name(self, node, name, frame)
                return value if names_class(name) else with_hint(value, name)
            case ast.Attribute(attr=name):
                return with_hint(self.attribute(node, frame), name)
            case ast.Subscript(value=base, slice=key):
                return with_hint(self.subscript(node, frame), name_of_item(path_of(base) or "", key))
            case ast.Call():
                value = self.call(node, frame)
                return value if value.alternatives or not value.open else hinted_call(node)
            case ast.BinOp():
                return self.binary(node, frame)
            case ast.UnaryOp(op=op, operand=operand):
                if isinstance(op, ast.Not):
                    return join((TRUE, FALSE))
                return self.known(operand, frame).map(lambda a: negated(a, op))
            case ast.Compare(left=left, comparators=comparators, ops=ops):
                if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in ops):
                    return one(Number("bool"))
                return compared([left, *comparators], self._elementwise([left, *comparators], frame, "bool"))
            case ast.BoolOp(values=values):
                return join(self.infer(v, frame) for v in values)
            case ast.IfExp(body=body, orelse=orelse):
                return join((self.infer(body, frame), self.infer(orelse, frame)))
            case ast.Tuple(elts=items) | ast.List(elts=items):
                if any(isinstance(item, ast.Starred) for item in items):
                    return one(Elements(join(self._starred(item, frame) for item in items), "list"))
                return one(Sequence(tuple(self.infer(i, frame) for i in items), isinstance(node, ast.List)))
            case ast.Dict():
                return self._dict(node, frame)
            case ast.ListComp(elt=item) | ast.SetComp(elt=item):
                return one(Elements(self.infer(item, frame), "list"))
            case ast.GeneratorExp(elt=item):
                return one(Elements(self.infer(item, frame), "list", (frame.scope,)))
            case ast.DictComp(value=item):
                return one(Mapping((), self.infer(item, frame)))
            case ast.JoinedStr(values=parts):
                first = parts[0] if parts else None
                return one(Text(str(first.value) if isinstance(first, ast.Constant) else ""))
            case ast.Lambda():
                return one(FunctionRef(flow_of(frame.scope).inner_scope(node)))
            case ast.NamedExpr(value=inner):
                return self.infer(inner, frame)
            case ast.Starred(value=inner):
                return self.element(self.infer(inner, frame), frame.depth)
        return UNKNOWN

    def _starred(self, node: ast.expr, frame: Frame) -> Value:
        if isinstance(node, ast.Starred):
            return self.element(self.known(node.value, frame), frame.depth)
        return self.infer(node, frame)

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        items: dict[str, Value] = {}
        rest: list[Value] = []
        for key, item in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                items[key.value] = self.infer(item, frame)
            elif key is None:
                for alternative in (inner := self.known(item, frame)).alternatives:
                    if isinstance(alternative, Mapping):
                        items.update(alternative.items)
                        rest.append(alternative.rest)
                    else:
                        rest.append(UNKNOWN)
                rest.extend([UNKNOWN] if inner.open else [])
            else:
                rest.append(self.infer(item, frame))
        return one(Mapping(tuple(items.items()), join(rest)))

    def binary(self, node: ast.BinOp, frame: Frame) -> Value:
        """Arithmetic, and the beginnings of formatted strings."""
        left, right = self.known(node.left, frame), self.infer(node.right, frame)
        text = left.single
        if isinstance(text, (Literal, Text)) and isinstance(node.op, (ast.Add, ast.Mod)):
            known = text.value if isinstance(text, Literal) else text.prefix
            if isinstance(known, str):
                return one(Text(known.partition("%")[0] if isinstance(node.op, ast.Mod) else known))
        result = self._elementwise([node.left, node.right], frame, type_of_bits(node.op, left, right))
        return result.map(quotient) if isinstance(node.op, ast.Div) else result

    def _elementwise(self, operands: list[ast.expr], frame: Frame, dtype: str) -> Value:
        values = [self.infer(o, frame) for o in operands]
        if any(v == NOTHING for v in values):
            # a loop-carried operand: whatever it is, arithmetic with a tensor gives a tensor
            rest = [v for v in values if v != NOTHING]
            if rest and any(v.must_be(Tensor) for v in rest):
                return combined(rest, dtype).map(lambda a: one(replace(a, ndim=None)) if isinstance(a, Tensor) else one(a))
            values = [UNKNOWN if v == NOTHING else v for v in values]
        return combined(values, dtype)

    # -- names -------------------------------------------------------------------------------------------------------

    def module_name(self, module: Module, name: str, depth: int) -> Value:
        """The value of a module's global variable, joined over all its assignments."""
        return self.solve(
            ("global", module.source.path, name, depth), lambda: variables.module_variable(self, module, name, depth)
        )

    def definition(self, definition: Definition, frame: Frame, flow: Flow) -> Value:
        """The value that a definition binds."""
        match definition.kind:
            case "parameter":
                return self.parameter(frame, definition.name)
            case "assign" | "walrus" if definition.value is not None:
                value = self.infer(definition.value, frame)
                if isinstance(definition.value, DISPLAYS) and may_change(definition, flow):
                    value = Value(value.alternatives, open=True)
            case "for" if definition.value is not None:
                value = self.element(self.known(definition.value, frame), frame.depth)
            case "with" if definition.value is not None:
                value = self.known(definition.value, frame).map(entered)
            case "augmented" if isinstance(definition.node, ast.expr) and definition.value is not None:
                return added_to(self.infer(definition.node, frame), self.known(definition.value, frame))
            case "import":
                return variables.imported(self, definition.node, flow.parent[definition.node], frame.scope.module)
            case "function":
                return variables.function_value(self, definition.node, frame.scope)
            case "class":
                return variables.class_value(self, definition.name, frame.scope.module, definition.node)
            case "except":
                return one(Object("builtins.Exception"))
            case _:
                return UNKNOWN
        for index in definition.index:
            value = item_at(value.without(is_guess), index)  # what is taken apart is seldom a tensor
        return value

    def parameter(self, frame: Frame, name: str) -> Value:
        """The value of a parameter: what this frame binds, else what the call sites pass."""
        bound = frame.argument(name)
        return bound if bound is not None else self.callers.parameter(frame.scope, name, frame.depth)

    def reference(self, scope: Scope, receiver: Value | None = None) -> Value:
        """What a function's name gives: the function, or also what its decorators put in its place."""
        return Value(frozenset((FunctionRef(scope, receiver),)), open=not hands_on(self.module_name, scope))

    # -- parts -------------------------------------------------------------------------------------------------------

    def attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        """`base.name`, through modules, classes, instances and tensors."""
        flow = flow_of(frame.scope)
        reaching = flow.reaching.get(node)
        if reaching:
            return join(self.definition(d, frame, flow) for d in sorted(reaching, key=variables.by_order))
        base = self.known(node.value, frame).without(is_none)
        return base.map(lambda alternative: self.member(alternative, node.attr, frame.depth)).or_unknown

    def member(self, base: Alternative, name: str, depth: int) -> Value:
        """The attribute `name` of an alternative."""
        match base:
            case External(qualname):
                return from_elsewhere(f"{qualname}.{name}")
            case ModuleRef(module):
                found = variables.member_of_module(self, module, name, depth)
                if found.alternatives:
                    return found
                inner = self.project.resolve(name, module.source.path, 1)
                other = self.project.module(inner) if inner else None
                return one(ModuleRef(other)) if other is not None else found
            case Instance() | ClassRef():
                return classes.attribute(self, base, name, depth)
            case Object("argparse.Namespace"):
                return object_methods.namespace_attribute(self, base, name, depth)
            case Tensor():
                return tensor_methods.tensor_attribute(base, name)
            case Batch() | Output():
                plain = name in tensor_methods.HOST_ATTRIBUTES or names_sizes(name)
                return tensor_methods.tensor_attribute(Tensor(base.place), name) if plain else one(base)
            case Object():
                return object_methods.object_attribute(base, name)
            case Elements(element, kind) if kind == "namedtuple":
                return element
            case Sequence(items) if len(items) == 2 and name in ("values", "indices"):  # of `x.topk(5)`
                return items[name == "indices"]
        return UNKNOWN

    def subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        """`base[key]`."""
        flow = flow_of(frame.scope)
        reaching = flow.reaching.get(node)
        if reaching:
            return join(self.definition(d, frame, flow) for d in sorted(reaching, key=variables.by_order))
        base = self.known(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            return base.map(sliced)
        key = (index := self.infer(node.slice, frame)).literal
        if base.must(lambda a: a == FRAME) and selects_rows_or_columns(node.slice):
            return base
        if isinstance(node.slice, ast.Tuple):
            return runtime_calls.row(self, node.slice, frame) if base.must(runtime_calls.has_rows) else base.map(part)
        if path := path_of(node.value):
            stored = [d for d in flow.definitions if d.name == f"{path}[{key!r}]"]
            if stored and base.must_be(Mapping):
                return join((item_at(base, key), *(self.definition(d, frame, flow) for d in stored)))
        if not is_one_index(index):  # a mask, a new dimension, or as many indices as there are
            base = base.map(lambda a: one(replace(a, ndim=None)) if isinstance(a, Tensor) else one(a))
        return base.map(lambda a: classes.item(self, a, frame.depth) if isinstance(a, Instance) else item_of(a, key))

    def element(self, value: Value, depth: int = MAX_DEPTH) -> Value:
        """What iterating over a value gives: where it is None, that raises, and nobody gets an element."""
        return value.without(is_none).map(lambda alternative: self._element(alternative, depth)).or_unknown

    def _element(self, alternative: Alternative, depth: int) -> Value:
        match alternative:
            case Loader(default_collate, pinned, _, place):
                return one(Batch(default_collate, pinned, place))
            case Elements(element):
                return element
            case Sequence(items):
                return join(items) if items else UNKNOWN
            case Tensor(ndim=ndim):
                return one(replace(alternative, ndim=ndim - 1 if ndim else None, fresh=False))
            case Batch() | Output():
                return one(alternative)
            case Mapping(items) if items:
                return join(one(Literal(key)) for key, _ in items)
            case Text() | Mapping() | Literal(str()):
                return one(Text(""))
            case Object("builtins.range"):
                return one(Number("int"))
            case Object("numpy.ndarray"):
                return one(alternative)
            case Instance():
                method = classes.find_method(self, alternative.cls, "__iter__")
                if method is not None:
                    frame = self.bound(method, alternative, depth - 1)
                    return self.element(self.returned(frame), depth - 1) if frame is not None else UNKNOWN
        return UNKNOWN

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, frame: Frame) -> Value:
        """What a call returns."""
        if isinstance(node.func, ast.Attribute):
            receiver = self.known(node.func.value, frame).without(is_none)
            if classes.is_super_call(node.func.value):
                return classes.super_call(self, node, frame)
            method = node.func.attr
            return join(
                [
                    *(self._method(a, method, node, frame) for a in receiver.alternatives),
                    *([tensor_methods.method_of_unknown(self, receiver, method, node, frame)] if receiver.open else []),
                ]
            ).or_unknown
        return self.known(node.func, frame).without(is_none).map(lambda callee: self.apply(callee, node, frame)).or_unknown

    def _method(self, receiver: Alternative, name: str, node: ast.Call, frame: Frame) -> Value:
        match receiver:
            case External() | ModuleRef() | ClassRef():
                member = self.member(receiver, name, frame.depth)
                return member.map(lambda callee: self.apply(callee, node, frame))
            case Instance():
                method = classes.find_method(self, receiver.cls, name)
                if method is not None:
                    others = classes.put_in_its_place(self, receiver.cls, name, frame.depth)
                    called = (other.map(lambda callee: self.apply(callee, node, frame)) for other in others)
                    return join((self.inline(FunctionRef(method, one(receiver)), node, frame), *called))
                held = classes.attribute(self, receiver, name, frame.depth)
                if not held.open or (held.alternatives and operations.method(name) is None):
                    return held.map(lambda callee: self.apply(callee, node, frame))
                if classes.is_module(self, receiver.cls):
                    return object_methods.module_method(self, receiver, name, node, frame)
                return UNKNOWN
        return object_methods.method(self, receiver, name, node, frame)

    def apply(self, callee: Alternative, node: ast.Call, frame: Frame) -> Value:
        """What calling an alternative returns."""
        match callee:
            case FunctionRef():
                return self.inline(callee, node, frame)
            case ClassRef(cls):
                return classes.construct(self, cls, node, frame)
            case Instance(cls):
                return self._call_instance(callee, node, frame)
            case External(qualname):
                return calls.external(self, qualname, node, frame)
            case Object():
                return object_methods.call_object(self, callee, node, frame)
            case Output():
                return one(callee)
        return UNKNOWN

    def _call_instance(self, callee: Instance, node: ast.Call, frame: Frame) -> Value:
        method = classes.find_method(self, callee.cls, "__call__")
        if method is not None:
            return self.inline(FunctionRef(method, one(callee)), node, frame)
        if not classes.is_module(self, callee.cls):
            return UNKNOWN
        place = meeting_place((callee.place, *self.argument_places(node, frame)))
        result = UNKNOWN
        forward = classes.find_method(self, callee.cls, "forward")
        if forward is not None and (
            (frame.depth >= MAX_DEPTH - 1 and not self._is_in_module(frame.scope)) or classes.is_loss(callee.cls)
        ):
            result = self.inline(FunctionRef(forward, one(callee)), node, frame)
        if result.open or not result.alternatives:
            result = join((Value(result.alternatives), one(Output(place))))
        return result.map(lambda a: one(settled(a, place)))

    def _is_in_module(self, scope: Scope) -> bool:
        """Whether a scope belongs to a module, where calls of other modules are layers: their insides are not looked at."""
        return scope.owner is not None and classes.is_module(self, scope.owner)

    def argument_places(self, node: ast.Call, frame: Frame) -> list[Place]:
        """Where the tensors among a call's arguments are."""
        return [
            place_of(alternative)
            for argument in (*node.args, *(k.value for k in node.keywords))
            for alternative in self.infer(argument, frame).alternatives
            if isinstance(alternative, (Tensor, Batch, Output))
        ]

    def inline(self, function: FunctionRef, node: ast.Call, frame: Frame) -> Value:
        """What a project function returns for the arguments of this call."""
        if frame.depth <= 0:
            return UNKNOWN
        bound = bound_arguments(self, function, node, frame, returned_parameters(flow_of(function.scope)))
        if bound is None:
            return UNKNOWN
        return self.returned(self.frame(function.scope, bound, frame.depth - 1))

    def bound(self, method: Scope, receiver: Alternative, depth: int) -> Frame | None:
        """The frame of a method with nothing known but its receiver."""
        if depth <= 0:
            return None
        parameters = method.parameters
        if not parameters:
            return self.frame(method, (), depth)
        return self.frame(method, ((parameters[0].arg, one(receiver)),), depth)

    def returned(self, frame: Frame) -> Value:
        """What a function returns in a frame."""
        return self.solve(("returned", frame), lambda: self._returned(frame))

    def _returned(self, frame: Frame) -> Value:
        scope = frame.scope
        if isinstance(scope.node, ast.AsyncFunctionDef):
            return UNKNOWN
        flow = flow_of(scope)
        produced = [y for y in flow.yields if isinstance(y, (ast.Yield, ast.YieldFrom))]
        if produced:
            if scope.decorators:
                return UNKNOWN
            parts = [
                self.element(self.known(y.value, frame), frame.depth)
                if isinstance(y, ast.YieldFrom)
                else self.infer(y.value, frame)
                for y in produced
                if y.value is not None
            ]
            return one(Elements(join(parts), "generator", (scope,)))
        values = [self.infer(r.value, frame) if r.value is not None else NONE for r in flow.returns]
        if flow.falls_through:
            values.append(NONE)
        if not values:
            return UNKNOWN  # abstract: a subclass says what it returns
        result = join(values)
        return result if hands_on(self.module_name, scope) else Value(result.alternatives, open=True)
