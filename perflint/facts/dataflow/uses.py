"""What becomes of a value: each step on its way through the code around it and through the names that are bound to it.

A question about a value ("may somebody write to it?", "does its graph reach a backward pass?") is a `Walk` with a policy: which
steps are harmless for the question, which end it, and where the value goes on. Every field of every node of `ast` that holds an
expression has its way here; what is not listed is `Way.UNKNOWN`, and a policy takes that for the worst.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, Generic, TypeVar

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.source.identifiers import occurrences
from perflint.source.nodes import walk
from perflint.source.records import dataclass
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import words

End = TypeVar("End")
_LABELS = re.compile(rb":[\x20\t]*['\"%{]")
"""What follows the word of a text that shows a number: nothing that is run as code goes on like this."""


class Way(Enum):
    """What code does with a value in one step."""

    ALIAS = "the expression around it may give it"
    BOUND = "a name is bound to it, or to a part of it"
    STORED = "it is put into an attribute, an item or a global variable"
    CONTAINED = "it becomes a part of a new container"
    UNPACKED = "its parts go on"
    CAPTURED = "a function or a class that stands here sees it, now or later"
    ATTRIBUTE = "an attribute of it is read"
    METHOD = "a method of it is called"
    ITEM = "an item of it is read"
    INDEX = "it says which item of another value is meant"
    CALLED = "it is called"
    ARGUMENT = "a call gets it"
    OPERAND = "an operator computes something from it"
    COMPARED = "it is compared"
    FORMATTED = "a text is made of it"
    CHANGED = "an attribute or an item of it is assigned or deleted, or it stands on the left of `+=`"
    TESTED = "a condition asks whether it is true"
    ITERATED = "a loop goes through it"
    MATCHED = "patterns are held against it"
    ENTERED = "a `with` enters it"
    RETURNED = "it is returned"
    YIELDED = "it is yielded or awaited"
    RAISED = "it is raised, or becomes the message of an error"
    DELETED = "a name of it is deleted"
    DROPPED = "it is the value of a statement"
    UNKNOWN = "nobody has said what this code does with it"


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One step of a value.

    value: the expression that gives it. node: the syntax that takes it: an expression, a statement or a part of one; for a
    method the call, for what is stored the target. result: the expression in which it, or what is made of it, goes on.
    definitions: the names that are bound to it or to its parts. index: for unpacking, the way to the part that goes on. name:
    the attribute, the method, or the keyword of an argument (`**` for a mapping of them).
    """

    way: Way
    value: ast.AST
    node: ast.AST
    result: ast.expr | None = None
    definitions: tuple[Definition, ...] = ()
    index: tuple[int | None, ...] = ()
    name: str = ""


_DEFINING: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)

FIELDS: Final[dict[Way, frozenset[str]]] = {
    Way.ALIAS: words("NamedExpr.value IfExp.body IfExp.orelse BoolOp.values Expression.body"),
    Way.BOUND: words("Assign.value AnnAssign.value"),
    Way.CONTAINED: words(
        """
        Tuple.elts List.elts Set.elts Dict.keys Dict.values ListComp.elt SetComp.elt GeneratorExp.elt DictComp.key
        DictComp.value Interpolation.value TemplateStr.values
        """
    ),
    Way.UNPACKED: words("Starred.value"),
    Way.CAPTURED: words(
        """
        FunctionDef.decorator_list AsyncFunctionDef.decorator_list ClassDef.decorator_list FunctionDef.returns
        AsyncFunctionDef.returns ClassDef.bases arguments.defaults arguments.kw_defaults arg.annotation AnnAssign.annotation
        TypeAlias.value TypeVar.bound TypeVar.default_value ParamSpec.default_value TypeVarTuple.default_value
        FunctionType.argtypes FunctionType.returns
        """
    ),
    Way.ATTRIBUTE: words("Attribute.value"),
    Way.ITEM: words("Subscript.value"),
    Way.INDEX: words("Subscript.slice Slice.lower Slice.upper Slice.step"),
    Way.CALLED: words("Call.func"),
    Way.ARGUMENT: words("Call.args keyword.value"),
    Way.OPERAND: words("BinOp.left BinOp.right UnaryOp.operand AugAssign.value JoinedStr.values"),
    Way.COMPARED: words(
        "Compare.left Compare.comparators MatchValue.value MatchMapping.keys MatchClass.cls ExceptHandler.type"
    ),
    Way.FORMATTED: words("FormattedValue.value FormattedValue.format_spec Interpolation.format_spec"),
    Way.CHANGED: words("AugAssign.target"),
    Way.TESTED: words("If.test While.test IfExp.test Assert.test comprehension.ifs match_case.guard"),
    Way.ITERATED: words("For.iter AsyncFor.iter comprehension.iter"),
    Way.MATCHED: words("Match.subject"),
    Way.ENTERED: words("withitem.context_expr"),
    Way.RETURNED: words("Return.value Lambda.body"),
    Way.YIELDED: words("Yield.value YieldFrom.value Await.value"),
    Way.RAISED: words("Raise.exc Raise.cause Assert.msg"),
    Way.DELETED: words("Delete.targets"),
    Way.DROPPED: words("Expr.value"),
}
"""The way of the value in each field of a node that holds one."""

NO_VALUES: Final = words(
    """
    Module.body Module.type_ignores Interactive.body
    FunctionDef.name FunctionDef.args FunctionDef.body FunctionDef.type_comment FunctionDef.type_params
    AsyncFunctionDef.name AsyncFunctionDef.args AsyncFunctionDef.body AsyncFunctionDef.type_comment
    AsyncFunctionDef.type_params ClassDef.name ClassDef.keywords ClassDef.body ClassDef.type_params
    Assign.targets Assign.type_comment TypeAlias.name TypeAlias.type_params AugAssign.op AnnAssign.target AnnAssign.simple
    For.target For.body For.orelse For.type_comment AsyncFor.target AsyncFor.body AsyncFor.orelse AsyncFor.type_comment
    While.body While.orelse If.body If.orelse With.items With.body With.type_comment AsyncWith.items AsyncWith.body
    AsyncWith.type_comment Match.cases Try.body Try.handlers Try.orelse Try.finalbody TryStar.body TryStar.handlers
    TryStar.orelse TryStar.finalbody Import.names Import.is_lazy ImportFrom.module ImportFrom.names ImportFrom.level
    ImportFrom.is_lazy Global.names Nonlocal.names
    BoolOp.op NamedExpr.target BinOp.op UnaryOp.op Lambda.args ListComp.generators SetComp.generators DictComp.generators
    GeneratorExp.generators Compare.ops Call.keywords FormattedValue.conversion Interpolation.str Interpolation.conversion
    Constant.value Constant.kind Attribute.attr Attribute.ctx Subscript.ctx Starred.ctx Name.id Name.ctx List.ctx Tuple.ctx
    comprehension.target comprehension.is_async ExceptHandler.name ExceptHandler.body arguments.posonlyargs arguments.args
    arguments.vararg arguments.kwonlyargs arguments.kwarg arg.arg arg.type_comment keyword.arg alias.name alias.asname
    withitem.optional_vars match_case.pattern match_case.body MatchSingleton.value MatchSequence.patterns
    MatchMapping.patterns MatchMapping.rest MatchClass.patterns MatchClass.kwd_attrs MatchClass.kwd_patterns MatchStar.name
    MatchAs.pattern MatchAs.name MatchOr.patterns TypeIgnore.lineno TypeIgnore.tag TypeVar.name ParamSpec.name
    TypeVarTuple.name
    """
)
"""The fields of nodes that hold no expression whose value goes anywhere: targets, names, operators, statements."""


def _ways() -> dict[type[ast.AST], dict[str, Way]]:
    found: dict[type[ast.AST], dict[str, Way]] = {}
    for way, fields in FIELDS.items():
        for field in sorted(fields):
            kind, _, name = field.partition(".")
            node = getattr(ast, kind, None)  # this Python may be older than the node
            if node is not None:
                found.setdefault(node, {})[name] = way
    return found


_WAYS: Final = _ways()


def steps(flow: Flow, value: ast.AST) -> Iterator[Step]:
    """What becomes of an expression's value right where it stands: mostly one step, several for `a = b.c = x` and the like."""
    parent = flow.parent.get(value)
    way = _way(parent, value)
    if parent is None:
        yield Step(way, value, value)
        return
    match way, parent:
        case Way.BOUND, ast.Assign(targets=targets):
            for target in targets:
                yield from _taken(flow, target, value, parent)
        case Way.BOUND, ast.AnnAssign(target=target):
            yield from _taken(flow, target, value, parent)
        case Way.ALIAS, ast.NamedExpr(target=target):
            yield from _taken(flow, target, value, parent)
            yield Step(way, value, parent, parent)
        case Way.CONTAINED, ast.Tuple(elts=elements) | ast.List(elts=elements):
            displays = [*_unpacking(flow, parent)]
            at = next(i for i, element in enumerate(elements) if element is value)
            for display in displays:
                if display is not None:
                    yield from _taken(flow, display.elts[at], value, flow.statement(parent))
            if not displays or None in displays:
                yield Step(way, value, parent, parent)
        case Way.CONTAINED, ast.Dict(keys=keys, values=values) if value in values and keys[values.index(value)] is None:
            yield Step(Way.UNPACKED, value, parent, parent)
        case Way.ATTRIBUTE, ast.Attribute(attr=name, ctx=ast.Load()):
            call = flow.parent.get(parent)
            if isinstance(call, ast.Call) and call.func is parent:
                yield Step(Way.METHOD, value, call, call, name=name)
            else:
                yield Step(way, value, parent, parent, name=name)
        case Way.ITEM, ast.Subscript(ctx=ast.Load()):
            yield Step(way, value, parent, parent)
        case Way.ATTRIBUTE | Way.ITEM, _:
            yield Step(Way.CHANGED, value, parent)
        case Way.INDEX, ast.Slice():
            yield from steps(flow, parent)
        case Way.INDEX, ast.Subscript(ctx=ast.Store() | ast.Del()):
            yield Step(way, value, parent)
        case Way.OPERAND, ast.UnaryOp(op=ast.Not()):
            yield Step(Way.TESTED, value, parent, parent)
        case Way.OPERAND | Way.CHANGED, ast.AugAssign(target=target):
            yield Step(way, value, parent, definitions=tuple(flow.definitions_at(target)))
        case Way.ARGUMENT, ast.keyword(arg=name):
            call = flow.parent.get(parent)
            if isinstance(call, ast.Call):
                yield Step(way, value, call, call, name=name or "**")
            else:
                yield Step(Way.CAPTURED, value, parent)
        case Way.ITERATED, ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
            container = flow.parent[parent] if isinstance(parent, ast.comprehension) else None
            assert container is None or isinstance(container, ast.expr)
            yield Step(way, value, parent, container, _definitions_in(flow, target))
            yield from _stored_in(target, value)
        case Way.ENTERED, ast.withitem(optional_vars=target):
            yield Step(way, value, parent, definitions=_definitions_in(flow, target) if target is not None else ())
            if target is not None:
                yield from _stored_in(target, value)
        case Way.MATCHED, ast.Match(subject=subject):
            yield Step(way, value, parent, definitions=tuple(flow.definitions_from(subject)))
        case _:
            yield Step(way, value, parent, parent if isinstance(parent, ast.expr) else None)


def _way(parent: ast.AST | None, value: ast.AST) -> Way:
    if isinstance(parent, _DEFINING):
        return Way.CAPTURED  # the defaults of its parameters count as its own
    for field, way in _WAYS.get(type(parent), {}).items() if parent is not None else ():
        held = getattr(parent, field)
        if held is value or (isinstance(held, list) and value in held):
            return way
    return Way.UNKNOWN


def _taken(
    flow: Flow, target: ast.expr, value: ast.AST, statement: ast.AST, index: tuple[int | None, ...] = ()
) -> Iterator[Step]:
    """What a target of an assignment does with a value, or with the part of it at an index."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            starred = next((i for i, part in enumerate(parts) if isinstance(part, ast.Starred)), None)
            for i, part in enumerate(parts):
                if starred is None or i < starred:
                    yield from _taken(flow, part, value, statement, (*index, i))
                else:
                    yield from _taken(flow, part, value, statement, (*index, None if i == starred else i - len(parts)))
        case ast.Starred(value=inner):
            yield from _taken(flow, inner, value, statement, index)
        case ast.Attribute() | ast.Subscript():
            yield Step(Way.STORED, value, target, definitions=tuple(flow.definitions_at(target)), index=index)
        case _:
            yield Step(Way.BOUND, value, statement, definitions=tuple(flow.definitions_at(target)), index=index)


def _unpacking(flow: Flow, container: ast.expr) -> Iterator[ast.Tuple | ast.List | None]:
    """The targets that take a display apart at once, element by element, as in `a, b = b, a`; None for any other target."""
    assert isinstance(container, (ast.Tuple, ast.List))
    targets: list[ast.expr] = []
    match flow.parent.get(container):
        case ast.Assign(targets=assigned):
            targets = assigned
        case (ast.Tuple() | ast.List()) as around:
            at = around.elts.index(container)
            targets = [outer.elts[at] for outer in _unpacking(flow, around) if outer is not None]
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == len(container.elts):
            yield None if any(isinstance(part, ast.Starred) for part in (*container.elts, *target.elts)) else target
        else:
            yield None


def _definitions_in(flow: Flow, target: ast.expr) -> tuple[Definition, ...]:
    return tuple(definition for part in walk(target) for definition in flow.definitions_at(part))


def _stored_in(target: ast.expr, value: ast.AST) -> Iterator[Step]:
    for part in walk(target):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, ast.Store):
            yield Step(Way.STORED, value, part)


def is_changed_in_place(flow: Flow, use: ast.expr) -> bool:
    """Whether code writes to what an expression gives right where it stands: an item, by `+=`, by a method such as `add_`."""
    for step in steps(flow, use):
        match step.way:
            case Way.CHANGED if not isinstance(step.node, ast.Attribute):
                return True
            case Way.METHOD | Way.ATTRIBUTE if step.name.endswith("_") and not step.name.startswith("_"):
                return True
    return False


_NUMBERS_OF: Final = words("numpy item tolist mean sum max min argmax float save")
_TAKES_NUMBERS: Final = words("print float int bool asarray array save")


def looks_at_numbers(flow: Flow, use: ast.expr) -> bool:
    """Whether code looks at the numbers of a tensor right where it stands."""
    for step in steps(flow, use):
        match step.way:
            case Way.OPERAND | Way.COMPARED | Way.FORMATTED | Way.ITEM | Way.INDEX | Way.TESTED | Way.ITERATED:
                return True
            case Way.METHOD | Way.ATTRIBUTE if step.name in _NUMBERS_OF:
                return True
            case Way.ARGUMENT if isinstance(step.node, ast.Call) and last_name(step.node.func) in _TAKES_NUMBERS:
                return True
    return is_changed_in_place(flow, use)


def steps_of_name(flow: Flow, definition: Definition) -> Iterator[Step]:
    """What becomes of what a name is bound to without a use of the name in its own function: others see the name."""
    name = definition.name
    if _hands_out_variables(flow):
        yield Step(Way.CAPTURED, definition.node, definition.node, name=name)
    if name in flow.outer_names:
        yield Step(Way.STORED, definition.node, definition.node, name=name)
    if name in flow.inner_names or (flow.scope.is_module and functions_see(flow.scope.module, name)):
        yield Step(Way.CAPTURED, definition.node, definition.node, name=name)


def _hands_out_variables(flow: Flow) -> bool:
    """Whether a function hands on all its variables at once: `"{loss}".format(**locals())`, `eval(text)`."""
    calls = flow.calls_named
    return any(
        isinstance(call.func, ast.Name) and not (name == "vars" and call.args) and not _is_own_function(flow, name)
        for name in ("locals", "vars", "eval", "exec")
        for call in calls.get(name, ())
    )


def _is_own_function(flow: Flow, name: str) -> bool:
    """Whether a name is that of a plain function of the file, above this one, that nothing else binds or deletes."""
    scope: Scope | None = flow.scope
    while scope is not None and not scope.is_module:
        if name in flow_of(scope).defined:
            return False
        scope = scope.parent
    module, top = flow.scope.module, flow_of(flow.scope.module.top)
    bound = top.definitions_of(name)
    if scope is flow.scope or len(bound) != 1 or module.star_imports or name in top.deleted:
        return False
    if re.search(rb"\bglobal\b[^\n]*\b%s\b" % name.encode(), module.source.body):
        return False
    (defined,) = bound
    is_plain = defined.kind == "function" and defined.block.parent is None
    return is_plain and module.scopes[name].row < flow.scope.row and not module.scopes[name].decorators


def is_shown_whole(node: ast.AST) -> bool:
    """Whether a part of an f-string may show a value by its `str` or `repr`: no format says how a number is written."""
    if not isinstance(node, ast.FormattedValue):
        return False
    spec = node.format_spec
    texts = spec.values if isinstance(spec, ast.JoinedStr) else []
    return node.conversion != -1 or not any(isinstance(part, ast.Constant) and part.value for part in texts)


def functions_see(module: Module, name: str) -> bool:
    """Whether a function or the body of a class of a file may look at, or bind, the variable of a name of the file."""
    holding = (scope for scope in module.scopes_with(name) if not scope.is_module)
    return name in flow_of(module.top).class_names or any(_may_read_global(function, name) for function in holding)


def _may_read_global(function: Scope, name: str) -> bool:
    """Whether a function names something that is no variable of its own, or has the name as a text: `globals()["x"]`."""
    text, word = function.text, name.encode()
    places = list(occurrences(word, text))
    if not places or any(_begins_text(text, at, at + len(word)) for at in places):
        return bool(places)
    try:
        inner = flow_of(function)
    except SyntaxProblem:
        return True
    return name not in inner.defined or name in inner.outer_names or name in inner.inner_names


def _begins_text(text: bytes, start: int, end: int) -> bool:
    """Whether a word begins a text that may be looked up, or run as code: `"x"`, `"x + 1"`, but not the label `"x: {}"`."""
    return text[start - 1 : start] in (b"'", b'"') and _LABELS.match(text, end) is None


class Walk(Generic[End]):
    """Follows a value of a scope from step to step. A subclass is a policy: it says what a step means for its question."""

    def __init__(self, scope: Scope, seen: set[object] | None = None) -> None:
        self.scope, self.flow = scope, flow_of(scope)
        self.seen: set[object] = set() if seen is None else seen
        """The expressions and definitions that were looked at."""

    def judge(self, step: Step) -> Iterator[End | ast.AST | Definition]:
        """What a step means: ends, and the expressions and definitions where the value goes on."""
        raise NotImplementedError

    def uses(self, definition: Definition) -> list[ast.expr]:
        """The uses of a name that count."""
        return self.flow.uses[definition]

    def ends(self, *starts: ast.AST | Definition) -> Iterator[End]:
        """What becomes of values in the end, in the order in which the code around them shows it."""
        pending = [*reversed(starts)]
        while pending:
            start = pending.pop()
            if start in self.seen:
                continue
            self.seen.add(start)
            onward: list[ast.AST | Definition] = []
            for step in self._steps(start):
                for found in self.judge(step):
                    if isinstance(found, (ast.AST, Definition)):
                        onward.append(found)
                    else:
                        yield found
            pending += reversed(onward)

    def _steps(self, start: ast.AST | Definition) -> Iterator[Step]:
        if isinstance(start, ast.AST):
            yield from steps(self.flow, start)
            return
        yield from steps_of_name(self.flow, start)
        for use in self.uses(start):
            yield from steps(self.flow, use)
