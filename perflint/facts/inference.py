"""What an expression may evaluate to, worked out on demand.

A question about one node follows reaching definitions backwards, into the function that a call runs, out to the call
sites of a parameter, to the methods that assign an attribute, and into other files, as far as `MAX_DEPTH` functions.
Only what is asked is computed, and an answer depends on the program alone, never on what was asked before (see `solver`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from perflint.facts import calls, classes, object_methods, operations, tensor_methods
from perflint.facts.callers import Callers
from perflint.facts.decorators import hands_on, is_plain_class
from perflint.facts.definitions import Definition, path_of
from perflint.facts.flow import Flow, flow_of
from perflint.facts.frames import MAX_DEPTH, Frame
from perflint.facts.names import canonical, hinted, hinted_call
from perflint.facts.solver import Solver
from perflint.facts.uses import Step, Walk, Way, steps
from perflint.facts.values import (
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
    join,
    meeting_place,
    one,
    place_of,
)
from perflint.project.project import Project
from perflint.source.bindings import Binding
from perflint.source.syntax import Class, Module, Scope, SyntaxProblem
from perflint.source.words import words


class Inference:
    """Answers questions about one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.solver = Solver(project.trace)
        self.callers = Callers(self)
        self._frames: dict[tuple[Scope, tuple[tuple[str, Value], ...], int], Frame] = {}

    # -- questions ---------------------------------------------------------------------------------------------------

    def value(self, scope: Scope, node: ast.expr) -> Value:
        """What `node`, an expression of `scope`, may evaluate to."""
        return self.infer(node, self.frame(scope))

    def frame(self, scope: Scope, arguments: Iterable[tuple[str, Value]] = (), depth: int = MAX_DEPTH) -> Frame:
        """The frame of a scope. The same arguments give the same frame."""
        key = (scope, tuple(arguments), depth)
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = Frame(*key)
        return found

    def solve(self, key: object, compute: Callable[[], Value]) -> Value:
        """`compute()`, remembered under `key`; `NOTHING` when it asks for itself."""

        def parsed() -> Value:
            try:
                return compute()
            except SyntaxProblem:
                return UNKNOWN

        return self.solver.solve(key, parsed, NOTHING)

    def infer(self, node: ast.expr, frame: Frame) -> Value:
        """What `node` may evaluate to in `frame`."""
        if isinstance(node, ast.Constant):
            return one(Literal(node.value))
        return self.solve((node, frame), lambda: self._infer(node, frame))

    def known(self, node: ast.expr, frame: Frame) -> Value:
        """Like `infer`, but a cycle counts as not known: for operands of an operation that changes the value."""
        value = self.infer(node, frame)
        return value if value.open or value.alternatives else UNKNOWN

    # -- expressions -------------------------------------------------------------------------------------------------

    def _infer(self, node: ast.expr, frame: Frame) -> Value:
        match node:
            case ast.Name(id=name):
                return _with_hint(self.name(node, name, frame), name)
            case ast.Attribute(attr=name):
                return _with_hint(self.attribute(node, frame), name)
            case ast.Subscript():
                return self.subscript(node, frame)
            case ast.Call():
                value = self.call(node, frame)
                return value if value.alternatives or not value.open else hinted_call(path_of(node.func) or "")
            case ast.BinOp():
                return self.binary(node, frame)
            case ast.UnaryOp(op=op, operand=operand):
                if isinstance(op, ast.Not):
                    return join((TRUE, FALSE))
                return self.known(operand, frame).map(lambda a: _negated(a, op))
            case ast.Compare(left=left, comparators=comparators, ops=ops):
                if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in ops):
                    return one(Number("bool"))
                return self._elementwise([left, *comparators], frame, "bool")
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
        left = self.known(node.left, frame)
        text = left.single
        if isinstance(text, (Literal, Text)) and isinstance(node.op, (ast.Add, ast.Mod)):
            known = text.value if isinstance(text, Literal) else text.prefix
            if isinstance(known, str):
                return one(Text(known.partition("%")[0] if isinstance(node.op, ast.Mod) else known))
        result = self._elementwise([node.left, node.right], frame, "")
        return result.map(_quotient) if isinstance(node.op, ast.Div) else result

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

    def name(self, node: ast.expr, name: str, frame: Frame) -> Value:
        """The value of a name where it is used."""
        flow = flow_of(frame.scope)
        reaching = flow.reaching.get(node, frozenset())
        if reaching and name not in flow.outer_names:
            values = [self.definition(d, frame, flow) for d in sorted(reaching, key=_by_order)]
            return join((*values, *self._rebound(frame.scope, flow, name, frame.depth)))
        return self.free_name(frame.scope, name, frame.depth, local=bool(reaching))

    def free_name(self, scope: Scope, name: str, depth: int, local: bool = False) -> Value:
        """The value of a name that the scope does not bind itself, or binds as `global`."""
        if scope.parent is not None and not local:
            flow = flow_of(scope.parent)
            found = flow.definitions_of(name)
            if found:
                frame = self.frame(scope.parent, (), depth)
                values = [self.definition(d, frame, flow) for d in found]
                return join((*values, *self._rebound(scope.parent, flow, name, depth)))
            return self.free_name(scope.parent, name, depth)
        return self.module_name(scope.module, name, depth)

    def _rebound(self, scope: Scope, flow: Flow, name: str, depth: int) -> list[Value]:
        """What functions inside a scope may put in the place of its variable."""
        if scope.is_module:
            return self._assigned_as_global(scope.module, name, depth)
        return [UNKNOWN] if name in flow.rebound_inside else []

    def module_name(self, module: Module, name: str, depth: int) -> Value:
        """The value of a module's global variable, joined over all its assignments."""
        return self.solve(("global", module.source.path, name, depth), lambda: self._module_name(module, name, depth))

    def _module_name(self, module: Module, name: str, depth: int) -> Value:
        if name in module.bindings:
            binding = module.bindings[name]
            values = self._defined(module, name, depth) if binding is None else [self._bound(binding, name, module)]
            if values:
                return join((*values, *self._assigned_as_global(module, name, depth)))
        foreign = False
        for dotted, level in module.star_imports:
            target = self.project.resolve(dotted, module.source.path, level)
            foreign |= target is None
            if target is None or depth <= 0 or not self.project.mentions(target, name):
                continue
            other = self.project.module(target)
            if other is not None:
                value = self.module_name(other, name, depth - 1)
                if value.alternatives:
                    return value
                foreign |= value.open
        if name not in _BUILTINS:
            return UNKNOWN
        builtin = Value(one(External(f"builtins.{name}")).alternatives, open=foreign)
        return join((builtin, *self._assigned_as_global(module, name, depth)))

    def _bound(self, binding: Binding, name: str, module: Module) -> Value:
        """What the only statement that binds a variable of a module gives it: no other need be looked at."""
        match binding.node:
            case ast.alias() as alias:
                return self._imported(alias, binding.statement, module)
            case ast.ClassDef() as node:
                return self._class(name, module, node)
            case ast.Assign(value=ast.Constant(value=value)) | ast.AnnAssign(value=ast.Constant(value=value)):
                return one(Literal(value))
        return self._function(binding.node, module.top)

    def _defined(self, module: Module, name: str, depth: int) -> list[Value]:
        """The values that a module's own statements give a variable."""
        flow = flow_of(module.top)
        frame = self.frame(module.top, (), depth)
        return [self.definition(d, frame, flow) for d in flow.definitions_of(name)]

    def _assigned_as_global(self, module: Module, name: str, depth: int) -> list[Value]:
        if not module.global_writers:
            return []
        if depth <= 0:
            return [UNKNOWN]
        values = []
        for scope in module.global_writers:
            if name.encode() in scope.text:
                flow = flow_of(scope)
                if name in flow.outer_names:
                    frame = self.frame(scope, (), depth - 1)
                    values += [self.definition(d, frame, flow) for d in flow.definitions_of(name)]
        return values

    def definition(self, definition: Definition, frame: Frame, flow: Flow) -> Value:
        """The value that a definition binds."""
        match definition.kind:
            case "parameter":
                return self.parameter(frame, definition.name)
            case "assign" | "walrus" if definition.value is not None:
                value = self.infer(definition.value, frame)
                if isinstance(definition.value, _DISPLAYS) and _may_change(definition, flow):
                    value = Value(value.alternatives, open=True)
            case "for" if definition.value is not None:
                value = self.element(self.known(definition.value, frame), frame.depth)
            case "with" if definition.value is not None:
                value = self.known(definition.value, frame).map(_entered)
            case "augmented" if isinstance(definition.node, ast.expr) and definition.value is not None:
                old = self.infer(definition.node, frame)
                return combined([old if old != NOTHING else UNKNOWN, self.known(definition.value, frame)], "")
            case "import":
                return self._imported(definition.node, flow.parent[definition.node], frame.scope.module)
            case "function":
                return self._function(definition.node, frame.scope)
            case "class":
                return self._class(definition.name, frame.scope.module, definition.node)
            case "except":
                return one(Object("builtins.Exception"))
            case _:
                return UNKNOWN
        for index in definition.index:
            value = self.item(value, index)
        return value

    def parameter(self, frame: Frame, name: str) -> Value:
        """The value of a parameter: what this frame binds, else what the call sites pass."""
        bound = frame.argument(name)
        return bound if bound is not None else self.callers.parameter(frame.scope, name, frame.depth)

    def _function(self, node: ast.AST, scope: Scope) -> Value:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not scope.is_module:
                return self.reference(flow_of(scope).inner_scope(node))
            found: Scope | None = scope.module.scopes.get(node.name)
            return self.reference(found) if found is not None else UNKNOWN
        placeholder = scope.module.placeholders.get(getattr(node, "lineno", 0))
        return self.reference(placeholder) if isinstance(placeholder, Scope) else UNKNOWN

    def reference(self, scope: Scope, receiver: Value | None = None) -> Value:
        """What a function's name gives: the function, or also what its decorators put in its place."""
        return Value(frozenset((FunctionRef(scope, receiver),)), open=not hands_on(self.module_name, scope))

    def _class(self, name: str, module: Module, node: ast.AST) -> Value:
        """What a class statement gives: the class, or also what its decorators and its metaclass make of it."""
        found = module.classes.get(name)
        if found is None or found.node is not node:
            return UNKNOWN
        return Value(frozenset((ClassRef(found),)), open=not is_plain_class(self.module_name, found))

    def _imported(self, alias: ast.AST, statement: ast.AST, module: Module) -> Value:
        assert isinstance(alias, ast.alias)
        if isinstance(statement, ast.ImportFrom):
            base, level = statement.module or "", statement.level
            inner = self.project.resolve(f"{base}.{alias.name}" if base else alias.name, module.source.path, level)
            if inner is not None and (found := self.project.module(inner)) is not None:
                package = self.project.resolve(base, module.source.path, level) if base else None
                exported = self._exported(package, alias.name) if package else UNKNOWN
                return exported if exported.alternatives else one(ModuleRef(found))
            target = self.project.resolve(base, module.source.path, level)
            if target is not None:
                return self._exported(target, alias.name)
            return UNKNOWN if level else one(External(canonical(f"{base}.{alias.name}")))
        dotted = alias.name if alias.asname else alias.name.partition(".")[0]
        target = self.project.resolve(dotted, module.source.path)
        other = self.project.module(target) if target is not None else None
        if other is not None:
            return one(ModuleRef(other))
        return one(External(dotted)) if target is None else UNKNOWN

    def _exported(self, path: str, name: str) -> Value:
        other = self.project.module(path)
        return self.module_name(other, name, MAX_DEPTH - 1) if other is not None else UNKNOWN

    # -- parts -------------------------------------------------------------------------------------------------------

    def attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        """`base.name`, through modules, classes, instances and tensors."""
        flow = flow_of(frame.scope)
        reaching = flow.reaching.get(node)
        if reaching:
            return join(self.definition(d, frame, flow) for d in sorted(reaching, key=_by_order))
        base = self.known(node.value, frame)
        return base.map(lambda alternative: self.member(alternative, node.attr, frame.depth))

    def member(self, base: Alternative, name: str, depth: int) -> Value:
        """The attribute `name` of an alternative."""
        match base:
            case External(qualname):
                return one(External(canonical(f"{qualname}.{name}")))
            case ModuleRef(module):
                found = self.module_name(module, name, depth)
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
                known = (
                    tensor_methods.tensor_attribute(Tensor(base.place), name)
                    if name in tensor_methods.HOST_ATTRIBUTES
                    else UNKNOWN
                )
                return known if known.alternatives else one(base)
            case Object():
                return object_methods.object_attribute(base, name)
            case Elements(element, kind) if kind == "namedtuple":
                return element
        return UNKNOWN

    def subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        """`base[key]`."""
        flow = flow_of(frame.scope)
        reaching = flow.reaching.get(node)
        if reaching:
            return join(self.definition(d, frame, flow) for d in sorted(reaching, key=_by_order))
        base = self.known(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            return base.map(_sliced)
        key = self.infer(node.slice, frame).literal
        if isinstance(node.slice, ast.Tuple):
            return base.map(lambda a: one(replace(a, ndim=None, fresh=False)) if isinstance(a, Tensor) else _opaque(a))
        if path := path_of(node.value):
            stored = [d for d in flow.definitions if d.name == f"{path}[{key!r}]"]
            if stored and base.must_be(Mapping):
                return join((self.item(base, key), *(self.definition(d, frame, flow) for d in stored)))
        return self.item(base, key)

    def item(self, value: Value, key: object) -> Value:
        """`value[key]` for a constant key; `...` or None for one that is not known."""
        return value.map(lambda alternative: _item(alternative, key))

    def element(self, value: Value, depth: int = MAX_DEPTH) -> Value:
        """What iterating over a value gives."""
        return value.map(lambda alternative: self._element(alternative, depth))

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
            receiver = self.known(node.func.value, frame)
            if classes.is_super_call(node.func.value):
                return classes.super_call(self, node, frame)
            method = node.func.attr
            return join(
                [
                    *(self._method(a, method, node, frame) for a in receiver.alternatives),
                    *([tensor_methods.method_of_unknown(self, receiver, method, node, frame)] if receiver.open else []),
                ]
            )
        return self.known(node.func, frame).map(lambda callee: self.apply(callee, node, frame))

    def _method(self, receiver: Alternative, name: str, node: ast.Call, frame: Frame) -> Value:
        match receiver:
            case External() | ModuleRef() | ClassRef():
                member = self.member(receiver, name, frame.depth)
                return member.map(lambda callee: self.apply(callee, node, frame))
            case Instance():
                method = classes.find_method(self, receiver.cls, name)
                if method is not None:
                    return self.inline(FunctionRef(method, one(receiver)), node, frame)
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
            (frame.depth >= MAX_DEPTH - 1 and not self._is_in_module(frame.scope)) or _is_loss(callee.cls)
        ):
            result = self.inline(FunctionRef(forward, one(callee)), node, frame)
        if result.open or not result.alternatives:
            result = join((Value(result.alternatives), one(Output(place))))
        return result.map(lambda a: one(_settled(a, place)))

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
        bound = self.bind(function, node, frame)
        if bound is None:
            return UNKNOWN
        return self.returned(self.frame(function.scope, bound, frame.depth - 1))

    def bind(self, function: FunctionRef, node: ast.Call, frame: Frame) -> list[tuple[str, Value]] | None:
        """The parameters of a function as this call binds them; None when the call does not fit."""
        scope = function.scope
        definition = scope.node
        if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        args = definition.args
        positional = [a.arg for a in (*args.posonlyargs, *args.args)]
        bound: dict[str, Value] = {}
        is_static = any(path_of(d) == "staticmethod" for d in scope.decorators)
        if scope.owner is not None and positional and not is_static and function.receiver is not None:
            bound[positional.pop(0)] = function.receiver
        star = next((i for i, a in enumerate(node.args) if isinstance(a, ast.Starred)), None)
        given = node.args if star is None else node.args[:star]
        for name, argument in zip(positional, given, strict=False):
            bound[name] = self.infer(argument, frame)
        extra = [self.infer(a, frame) for a in given[len(positional) :]]
        keywords = {k.arg: self.infer(k.value, frame) for k in node.keywords if k.arg is not None}
        spread: dict[str, Value] = {}
        uncertain = star is not None
        for keyword in node.keywords:
            if keyword.arg is None:
                mapping = self.infer(keyword.value, frame).single
                if isinstance(mapping, Mapping) and mapping.rest == NOTHING:
                    spread.update(mapping.items)
                else:
                    uncertain = True
        keywords = {**spread, **keywords}
        names = [*positional, *(a.arg for a in args.kwonlyargs)]
        defaults = _defaults(args)
        outer = self.frame(scope.parent or scope.module.top, (), frame.depth)
        for name in names:
            if name in keywords:
                bound[name] = keywords.pop(name)
            elif name not in bound:
                default = defaults.get(name)
                value = self.infer(default, outer) if default is not None else UNKNOWN
                bound[name] = join((value, UNKNOWN)) if uncertain else value
        if args.vararg is not None:
            bound[args.vararg.arg] = UNKNOWN if star is not None else one(Sequence(tuple(extra)))
        if args.kwarg is not None:
            bound[args.kwarg.arg] = UNKNOWN if uncertain else one(Mapping(tuple(keywords.items()), NOTHING))
        return sorted(bound.items(), key=lambda pair: pair[0])

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


# -- helpers without state -----------------------------------------------------------------------------------------------


def combined(operands: list[Value], dtype: str) -> Value:
    """Elementwise arithmetic on values: a tensor wins over a number."""
    opened = any(o.open for o in operands)
    tensors = [a for o in operands for a in o.alternatives if isinstance(a, (Tensor, Batch, Output))]
    if tensors:
        place = meeting_place(place_of(t) for t in tensors)
        scalar = all(
            o.must(lambda a: isinstance(a, (Number, Literal)) or (isinstance(a, Tensor) and a.ndim == 0)) for o in operands
        )
        exact = [t for t in tensors if isinstance(t, Tensor)]
        if not dtype and any(t.dtype.startswith(("float", "bfloat")) for t in exact):
            dtype = "" if any(isinstance(o.literal, complex) for o in operands) else "float"
        outside = len(exact) == len(tensors) and all(t.grad is False or t.dtype in ("int64", "bool") for t in exact)
        grad = None if opened else False if outside else any(t.grad for t in exact) or None
        result = one(Tensor(place, 0 if scalar else None, dtype, fresh=True, grad=grad))
        every = all(o.must_be(Tensor, Batch, Output, Number, Literal) for o in operands)
        some = any(o.must_be(Tensor, Batch, Output) for o in operands)
        return result if every and some else Value(result.alternatives, open=True)
    if any(o.may_be(Object) for o in operands):
        arrays = [a for o in operands for a in o.alternatives if isinstance(a, Object) and a.qualname.startswith("numpy")]
        return Value(frozenset(arrays[:1]), open=opened or not arrays)
    if all(o.must_be(Number, Literal) for o in operands):
        kinds = {_number_kind(a) for o in operands for a in o.alternatives}
        whole = "int" if kinds <= {"int", "bool"} else "float" if kinds <= {"int", "bool", "float"} else ""
        return one(Number("bool" if dtype == "bool" else whole))
    if dtype == "bool":
        return Value(frozenset((Number("bool"),)), open=True)
    return UNKNOWN


def _quotient(alternative: Alternative) -> Value:
    """What `/` makes of the number that other arithmetic would give."""
    return one(Number("float")) if isinstance(alternative, Number) and alternative.kind else one(alternative)


def _number_kind(alternative: Alternative) -> str:
    if isinstance(alternative, Number):
        return alternative.kind
    return type(alternative.value).__name__ if isinstance(alternative, Literal) else ""


def _is_loss(cls: Class) -> bool:
    return "loss" in cls.name.lower() or "criterion" in cls.name.lower()


def _negated(alternative: Alternative, op: ast.unaryop) -> Value:
    match alternative:
        case Tensor():
            return one(replace(alternative, fresh=not isinstance(op, ast.UAdd), zeros=False, parameter=False))
        case Literal(int() | float() as number) if isinstance(op, ast.USub):
            return one(Literal(-number))
        case Batch(place=place) | Output(place=place):
            return one(Tensor(place, fresh=True))
        case Number():
            return one(alternative)
    return UNKNOWN


def _entered(manager: Alternative) -> Value:
    if isinstance(manager, (Instance, Elements, Loader)):
        return one(manager)
    if isinstance(manager, Object) and manager.qualname.startswith("tqdm"):
        return one(manager)
    return UNKNOWN


def _sliced(alternative: Alternative) -> Value:
    match alternative:
        case Sequence(items):
            return one(Elements(join(items), "list"))
        case Tensor():
            return one(replace(alternative, fresh=False))
        case Elements() | Batch() | Output() | Text():
            return one(alternative)
        case Object("numpy.ndarray"):
            return one(alternative)
    return UNKNOWN


def _opaque(alternative: Alternative) -> Value:
    return one(alternative) if isinstance(alternative, (Batch, Output, Object)) else UNKNOWN


def _item(alternative: Alternative, key: object) -> Value:
    match alternative:
        case Sequence(items):
            if isinstance(key, int) and -len(items) <= key < len(items):
                return items[key]
            return one(Elements(join(items), "list")) if key is None else join(items) if items else UNKNOWN
        case Elements(element, kind):
            return one(alternative) if key is None else element if kind not in ("set", "dict") else UNKNOWN
        case Mapping(items, rest):
            if isinstance(key, str):
                known = dict(items)
                return known.get(key, rest if rest != NOTHING else UNKNOWN)
            return join((*(v for _, v in items), rest)) if items or rest != NOTHING else UNKNOWN
        case Tensor(ndim=ndim):
            return one(replace(alternative, ndim=ndim - 1 if ndim else None, fresh=False, zeros=False))
        case Batch() | Output() | Object("numpy.ndarray"):
            return one(alternative)
    return UNKNOWN


def _settled(alternative: Alternative, place: Place) -> Alternative:
    if isinstance(alternative, (Tensor, Output)) and alternative.place is Place.UNKNOWN:
        return replace(alternative, place=place)
    return alternative


def _with_hint(value: Value, name: str) -> Value:
    """What the name suggests, where nothing better is known."""
    if not value.open:
        return value
    guesses = [a for a in value.alternatives if isinstance(a, Tensor) and a.guessed]
    if len(guesses) < len(value.alternatives):
        return value
    suggested = hinted(name)
    if not guesses or (not suggested.may_be(Tensor, Batch, Output) and suggested.alternatives):
        return suggested.map(lambda a: one(replace(a, place=guesses[0].place)) if guesses and isinstance(a, Object) else one(a))
    return value


def _defaults(args: ast.arguments) -> dict[str, ast.expr]:
    positional = [*args.posonlyargs, *args.args]
    pairs: dict[str, ast.expr] = {}
    if args.defaults:
        pairs.update({a.arg: d for a, d in zip(positional[-len(args.defaults) :], args.defaults, strict=True)})
    pairs.update({a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None})
    return pairs


def _by_order(definition: Definition) -> int:
    return definition.order


_DISPLAYS = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
_READING_FUNCTIONS: Final = words(
    """
    len enumerate zip range list tuple dict set sorted sum min max print any all iter next reversed isinstance stack cat
    """
)
_READING_CONTAINER_METHODS: Final = words("get items keys values copy index count")


def _may_change(definition: Definition, flow: Flow) -> bool:
    """Whether a list or dict may get other items than those that it was built with, as far as its function shows."""
    if definition.name in flow.inner_names:
        return True
    built = steps(flow, definition.value) if definition.value is not None else ()
    if any(step.way is not Way.BOUND or definition not in step.definitions for step in built):
        return True
    return next(_Changing(flow.scope).ends(*flow.uses[definition]), None) is not None


class _Changing(Walk[Step]):
    """Which uses of a container may give it other items, or hand it to somebody who may."""

    def judge(self, step: Step) -> Iterator[Step | ast.AST | Definition]:
        match step.way:
            case Way.ITEM | Way.COMPARED | Way.FORMATTED | Way.UNPACKED | Way.ITERATED | Way.TESTED | Way.DROPPED | Way.DELETED:
                return
            case Way.ALIAS if step.result is not None:
                yield step.result
            case Way.METHOD | Way.ATTRIBUTE if step.name in _READING_CONTAINER_METHODS:
                return
            case Way.ARGUMENT if step.name == "**" or _only_reads(step.node):
                return  # `f(**options)` gets a copy
            case _:
                yield step


def _only_reads(call: ast.AST) -> bool:
    """Whether a call looks at the items of its arguments, by the name of what is called."""
    path = path_of(call.func) if isinstance(call, ast.Call) else None
    return path is not None and path.rpartition(".")[2] in _READING_FUNCTIONS


_BUILTINS: Final = frozenset(dir(builtins))
