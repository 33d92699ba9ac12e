"""What a name stands for: a local variable, one of a scope around, a module's, an import, a builtin."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache
from typing import Final

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.values.decorators import is_plain_class
from perflint.facts.values.frames import MAX_DEPTH, Frame, Inferring
from perflint.facts.values.names import from_elsewhere
from perflint.facts.values.put_outside import put_from_outside
from perflint.facts.values.shared_tables import holds_tables, may_change_elsewhere
from perflint.facts.values.values import (
    UNKNOWN,
    Batch,
    ClassRef,
    Elements,
    External,
    Literal,
    Mapping,
    ModuleRef,
    Output,
    Sequence,
    Tensor,
    Value,
    join,
    one,
)
from perflint.source.bindings import Binding
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.words import any_layout, made

_BUILTINS: Final = frozenset(dir(builtins))
_SETS_BY_TEXT: Final = any_layout(rb"(?<![\w.])(?:exec|globals) \(")
_GLOBAL: Final = made(rb"\bglobal ")
_NAMES_BUILTINS: Final = made(rb"builtin")
_REPLACES_BUILTINS: Final = any_layout(
    rb"builtins?(?:__)? \. (?:\w+ =(?!=)|__)|(?:attr|vars|object) \( (?:__)?builtin|__builtins__ [.[]|import builtins as\b"
    rb"|['\"]builtins(?:\.\w+)?['\"]"
)
"""What may put something else in the place of a function of Python's own."""


def question(node: ast.Name, frame: Frame) -> object:
    """What is asked for the value of a name: all uses with one definition ask the same, and so do all without any."""
    try:
        reaching = flow_of(frame.scope).reaching.get(node)
    except SyntaxProblem:
        reaching = None
    if not reaching:
        return node.id, frame.scope, frame.depth
    return (next(iter(reaching)), frame) if len(reaching) == 1 else (node, frame)


def local_name(inference: Inferring, node: ast.expr, name: str, frame: Frame) -> Value:
    """The value of a name where it is used."""
    flow = flow_of(frame.scope)
    reaching = flow.reaching.get(node, frozenset())
    if reaching and name not in flow.outer_names:
        ordered = sorted(reaching, key=by_order) if len(reaching) > 1 else reaching
        values = [inference.definition(d, frame, flow) for d in ordered]
        if len(values) > 1 and _is_sorted_out(inference, node, list(ordered), flow, frame):
            given = values[0].without(lambda a: isinstance(a, (Tensor, Batch, Output)))
            values[0] = Value(given.alternatives, open=True)
        return join([*values, *_rebound(inference, frame.scope, flow, name, frame.depth)])
    return free_name(inference, frame.scope, name, frame.depth, local=bool(reaching))


def _is_sorted_out(inference: Inferring, node: ast.expr, reaching: list[Definition], flow: Flow, frame: Frame) -> bool:
    """Whether tensors among what a parameter may be were made something else before: `if torch.is_tensor(x): x = x.numpy()`."""
    given, *others = reaching
    return given.kind == "parameter" and any(
        other.block.kind == "then"
        and isinstance(other.block.node, ast.If)
        and _asks_for_tensor(inference, other.block.node.test, given.name, frame)
        and flow.dominates(other.block.node.test, node)
        for other in others
    )


def _asks_for_tensor(inference: Inferring, test: ast.expr, name: str, frame: Frame) -> bool:
    match test:
        case ast.Call(func=function, args=[ast.Name(id=asked)], keywords=[]) if asked == name:
            return inference.infer(function, frame) == one(External("torch.is_tensor"))
        case ast.Call(func=ast.Name(id="isinstance") as function, args=[ast.Name(id=asked), kind], keywords=[]) if (
            asked == name
        ):
            known = inference.infer(function, frame) == one(External("builtins.isinstance"))
            return known and inference.infer(kind, frame) == one(External("torch.Tensor"))
    return False


def free_name(inference: Inferring, scope: Scope, name: str, depth: int, local: bool = False) -> Value:
    """The value of a name that the scope does not bind itself, or binds as `global`."""
    if scope.parent is not None and not local:
        flow = flow_of(scope.parent)
        found = flow.definitions_of(name)
        if found:
            frame = inference.frame(scope.parent, (), depth)
            values = [inference.definition(d, frame, flow) for d in found]
            return join((*values, *_rebound(inference, scope.parent, flow, name, depth)))
        return free_name(inference, scope.parent, name, depth)
    return inference.module_name(scope.module, name, depth)


def _rebound(inference: Inferring, scope: Scope, flow: Flow, name: str, depth: int) -> list[Value]:
    """What functions inside a scope may put in the place of its variable."""
    if scope.is_module:
        return _assigned_as_global(inference, scope.module, name, depth)
    return [UNKNOWN] if name in flow.rebound_inside else []


def module_variable(inference: Inferring, module: Module, name: str, depth: int) -> Value:
    """The value of a module's global variable, for `Inferring.module_name`, which remembers it."""
    if name in module.bindings:
        binding = module.bindings[name]
        values = _defined(inference, module, name, depth) if binding is None else [_bound(inference, binding, name, module)]
        if values:
            later, _ = _by_stars(inference, module, name, depth, behind=True)
            elsewhere = put_from_outside(inference, module, name, depth)
            return join((*values, *later, *elsewhere, *_assigned_as_global(inference, module, name, depth)))
    found, foreign = _by_stars(inference, module, name, depth)
    if found:
        return join(found)
    if name not in _BUILTINS:
        return UNKNOWN
    foreign |= _may_be_replaced(inference, module, name)
    builtin = Value(one(External(f"builtins.{name}")).alternatives, open=foreign)
    elsewhere = put_from_outside(inference, module, name, depth)
    return join((builtin, *elsewhere, *_assigned_as_global(inference, module, name, depth)))


def _by_stars(inference: Inferring, module: Module, name: str, depth: int, *, behind: bool = False) -> tuple[list[Value], bool]:
    """What `from x import *` gives a name, and whether one of them is of a file that nobody knows.

    behind: only by what stands behind a statement of the file that binds the name.
    """
    found, foreign = list[Value](), False
    for dotted, level, row in module.star_imports:
        if behind and not _is_bound_before(module, name, row):
            continue
        target = inference.project.resolve(dotted, module.source.path, level)
        foreign |= target is None
        if target is None or depth <= 0 or not inference.project.mentions(target, name):
            continue
        other = inference.project.module(target)
        if other is not None:
            value = inference.module_name(other, name, depth - 1)
            if value.alternatives:
                found.append(value)
            foreign |= value.open
    return found, foreign


def _is_bound_before(module: Module, name: str, row: int) -> bool:
    """Whether the first statement of a file that binds a name stands above a row."""
    binding = module.bindings.get(name)
    if binding is not None:
        return getattr(binding.statement, "lineno", 0) < row
    rows = (getattr(d.node, "lineno", 0) for d in flow_of(module.top).definitions_of(name))
    return min(rows, default=0) < row


def _may_be_replaced(inference: Inferring, module: Module, name: str) -> bool:
    """Whether the program puts something else in the place of Python's own `name`: `builtins.print = quiet`."""
    project, path = inference.project, module.source.path
    return project.program_holds(path, _REPLACES_BUILTINS, _NAMES_BUILTINS) and project.program_holds(
        path, _replaces_builtin(name), _NAMES_BUILTINS
    )


@cache
def _replaces_builtin(name: str) -> re.Pattern[bytes]:
    return any_layout(
        rb"\. %b =(?!=)|['\"](?:builtins\.)?%b['\"]|[(,] %b =(?!=)|attr \( \w+ , (?!['\"])" % ((name.encode(),) * 3)
    )


def _bound(inference: Inferring, binding: Binding, name: str, module: Module) -> Value:
    """What the only statement that binds a variable of a module gives it: no other need be looked at."""
    match binding.node:
        case ast.alias() as alias:
            return imported(inference, alias, binding.statement, module)
        case ast.ClassDef() as node:
            return class_value(inference, name, module, node)
        case ast.Assign(value=ast.Constant(value=value)) | ast.AnnAssign(value=ast.Constant(value=value)):
            return one(Literal(value))
    return function_value(inference, binding.node, module.top)


def _defined(inference: Inferring, module: Module, name: str, depth: int) -> list[Value]:
    """The values that a module's own statements give a variable."""
    flow = flow_of(module.top)
    frame = inference.frame(module.top, (), depth)
    definitions = flow.definitions_of(name)
    values = [inference.definition(d, frame, flow) for d in definitions]
    bound = zip(definitions, values, strict=True)
    tables = [(d, v, holds_tables(v)) for d, v in bound if v.may_be(Elements, Mapping, Sequence)]
    shared = [deep for d, _, deep in tables if deep or not isinstance(d.value, ast.Tuple)]
    return [*values, UNKNOWN] if shared and may_change_elsewhere(inference, module, name, any(shared)) else values


def _is_set_by_text(module: Module, name: str) -> bool:
    """Whether code that a file runs from a text, or finds by name, may give a constant of its own another value."""
    if not module.holds(_SETS_BY_TEXT):
        return False
    found = flow_of(module.top).definitions_of(name)
    return bool(found) and all(isinstance(d.value, ast.Constant) for d in found)


def _assigned_as_global(inference: Inferring, module: Module, name: str, depth: int) -> list[Value]:
    if _is_set_by_text(module, name):
        return [UNKNOWN]
    if not module.holds(_GLOBAL):
        return []
    if (depth <= 0 and module.global_writers) or any(
        isinstance(s, ast.Global) and name in s.names for cls in module.all_classes for s in cls.node.body
    ):
        return [UNKNOWN]
    values = []
    for scope in module.global_writers:
        if name.encode() in scope.text:
            flow = flow_of(scope)
            if name in flow.outer_names:
                frame = inference.frame(scope, (), depth - 1)
                values += [inference.definition(d, frame, flow) for d in flow.definitions_of(name)]
    return values


def function_value(inference: Inferring, node: ast.AST, scope: Scope) -> Value:
    """What a `def` gives that stands in a scope."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if not scope.is_module:
            return inference.reference(flow_of(scope).inner_scope(node))
        found: Scope | None = scope.module.scopes.get(node.name)
        return inference.reference(found) if found is not None else UNKNOWN
    placeholder = scope.module.placeholders.get(getattr(node, "lineno", 0))
    return inference.reference(placeholder) if isinstance(placeholder, Scope) else UNKNOWN


def class_value(inference: Inferring, name: str, module: Module, node: ast.AST) -> Value:
    """What a class statement gives: the class, or also what its decorators and its metaclass make of it."""
    found = module.classes.get(name)
    if found is None or found.node is not node:
        return UNKNOWN
    return Value(frozenset((ClassRef(found),)), open=not is_plain_class(inference.module_name, found))


def imported(inference: Inferring, alias: ast.AST, statement: ast.AST, module: Module) -> Value:
    """What one name of an import statement gives."""
    assert isinstance(alias, ast.alias)
    if isinstance(statement, ast.ImportFrom):
        base, level = statement.module or "", statement.level
        inner = inference.project.resolve(f"{base}.{alias.name}" if base else alias.name, module.source.path, level)
        if inner is not None and (found := inference.project.module(inner)) is not None:
            package = inference.project.resolve(base, module.source.path, level) if base else None
            exported = _exported(inference, package, alias.name) if package else UNKNOWN
            return exported if exported.alternatives else one(ModuleRef(found))
        target = inference.project.resolve(base, module.source.path, level)
        if target is not None:
            return _exported(inference, target, alias.name)
        return UNKNOWN if level else from_elsewhere(f"{base}.{alias.name}")
    dotted = alias.name if alias.asname else alias.name.partition(".")[0]
    target = inference.project.resolve(dotted, module.source.path)
    other = inference.project.module(target) if target is not None else None
    if other is not None:
        return one(ModuleRef(other))
    return one(External(dotted)) if target is None else UNKNOWN


def _exported(inference: Inferring, path: str, name: str) -> Value:
    other = inference.project.module(path)
    return member_of_module(inference, other, name, MAX_DEPTH - 1) if other is not None else UNKNOWN


def member_of_module(inference: Inferring, module: Module, name: str, depth: int) -> Value:
    """What a module has under a name: Python's own functions are no part of it, so `pkg.eval` may be a file of the package."""
    found = inference.module_name(module, name, depth)
    return (
        found.without(lambda a: a == External(f"builtins.{name}"))
        if name in _BUILTINS and name not in module.bindings
        else found
    )


def by_order(definition: Definition) -> int:
    """Sorts definitions as they stand in the text."""
    return definition.order
