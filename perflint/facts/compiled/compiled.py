"""Which functions run compiled by `torch.compile`: yes, no, or not known.

A *root* is what a program hands to `torch.compile`: a decorated function, the function or module that a call gets, the module
whose own `compile` is called, the model of a trainer of transformers whose arguments say `torch_compile=True`, and what the
option `compiled` names. torch traces a root and all that it calls, so a function runs compiled when a root reaches it through
calls that are known, and nothing on the way keeps torch out: `torch.compiler.disable`, `allow_in_graph`, or a test of
`torch.compiler.is_compiling()`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Final

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.values import classes
from perflint.facts.values.arguments import argument
from perflint.facts.values.decorators import decorator_qualname, hands_on
from perflint.facts.values.held_modules import modules
from perflint.facts.values.inference import Inference
from perflint.facts.values.names import canonical
from perflint.facts.values.values import Alternative, ClassRef, External, FunctionRef, Instance, Object
from perflint.facts.values.variables import free_name
from perflint.project.trace import LastingMemo, Memo
from perflint.source.records import dataclass
from perflint.source.renaming import renamed
from perflint.source.syntax import Class, Module, Scope, SyntaxProblem
from perflint.source.words import any_layout, words

COMPILES: Final = any_layout(
    rb"torch \. compile\b|\bimport compile\b|(?<!\bre)\. compile \(|_dynamo \. optimize\b|torch_compile = True"
)
"""What compiles in a text."""
_DECORATORS: Final = words("torch.compile torch._dynamo.optimize")
DISABLING: Final = words(
    """
    torch.compiler.disable torch._dynamo.disable torch._dynamo.disallow_in_graph torch._dynamo.eval_frame.disable
    torch._disable_dynamo torch._dynamo.skip
    """
)
"""What keeps torch out of a function: a call of it breaks the graph."""
_OPAQUE: Final = words(
    """
    torch.compiler.allow_in_graph torch._dynamo.allow_in_graph torch.compiler.assume_constant_result torch.jit.script
    torch._dynamo.assume_constant_result torch._dynamo.nonstrict_trace torch.compiler.nonstrict_trace torch.library.custom_op
    torch.compiler.substitute_in_graph torch.library.triton_op triton.jit
    """
)
"""Decorators of functions that stand in a graph as they are: torch does not look into them."""
_CHECKPOINTS: Final = words("torch.utils.checkpoint.checkpoint torch.utils.checkpoint.checkpoint_sequential")
_TRUE_WHEN_COMPILED: Final = words("is_compiling is_dynamo_compiling is_torchdynamo_compiling")
_FALSE_WHEN_COMPILED: Final = words("is_scripting is_tracing is_torchdynamo_exporting is_exporting")

MAX_REACHED: Final = 600
"""How many functions one file's roots are followed into."""
MAX_FILES_ABOVE: Final = 150
"""Of how many files that lead to a file by their imports the roots are looked for."""


@dataclass(frozen=True)
class Root:
    """Where a program compiles something: a file, and the row of the decorator or call; None for the option `compiled`.

    whole: `fullgraph=True`, so that a graph break is an error.
    """

    path: str
    row: int | None
    whole: bool = False


_Place = tuple[str, str, int, int]
"""A function by its file, its name and where it begins: it outlives the tree that the function was found in."""


class Compiled:
    """The compiled functions of a project.

    named: qualified names of functions and classes, from the option `compiled`; one with `*` means the `forward` of classes.
    """

    def __init__(self, inference: Inference, named: tuple[str, ...] = ()) -> None:
        self._inference, self._named = inference, named
        trace = inference.project.trace
        self._reaches: LastingMemo[tuple[str, tuple[str, ...]], dict[_Place, Root]] = inference.project.lasting("compiled")
        self._above: Memo[str, tuple[str, ...] | None] = Memo(trace)
        self._roots: Memo[Scope, Root | None] = Memo(trace)

    def root(self, scope: Scope) -> Root | None:
        """What runs a function compiled; None where nothing does, as far as is known."""
        return self._roots.get(scope, lambda: self._root(scope))

    def _root(self, scope: Scope) -> Root | None:
        for file in self._files_above(scope.module.source.path) or ():
            found = self._reach(file).get(_place_of(scope))
            if found is not None:
                return found
        return None

    def runs(self, scope: Scope) -> bool | None:
        """Whether a function runs compiled; None when that is not known."""
        if self.root(scope) is not None:
            return True
        files = self._files_above(scope.module.source.path)
        return False if files is not None and not files else None

    def may_reach(self, path: str) -> bool:
        """Whether anything may run functions of a file compiled."""
        return self._files_above(path) != ()

    def is_traced(self, scope: Scope, node: ast.AST) -> bool:
        """Whether a node of a function that runs compiled does so itself: it is under no test for running uncompiled."""
        flow = flow_of(scope)
        while (parent := flow.parent.get(node)) is not None:
            if _leaves_out(parent, node) or (isinstance(node, ast.stmt) and _has_left(flow, node)):
                return False
            node = parent
        return True

    # -- roots -------------------------------------------------------------------------------------------------------

    def _files_above(self, path: str) -> tuple[str, ...] | None:
        """The files with roots that may reach a file: itself, and those that lead to it by their imports.

        None where there are more than are looked at and none has a root.
        """
        return self._above.get(path, lambda: self._find_above(path))

    def _find_above(self, path: str) -> tuple[str, ...] | None:
        project = self._inference.project
        near = (path, *sorted(project.importers(path)))
        if not self._named and not any(project.program_holds(file, COMPILES) for file in near):
            return ()
        pending, seen = [path], {path}
        for file in pending:
            importers = project.importers(file)
            pending += sorted(importers - seen)
            seen |= importers
            if len(pending) > MAX_FILES_ABOVE:
                break
        found = tuple(f for f in pending[:MAX_FILES_ABOVE] if self._may_be_named(f) or project.holds(f, COMPILES))
        return found if found or len(pending) <= MAX_FILES_ABOVE else None

    def _reach(self, file: str) -> dict[_Place, Root]:
        """What the roots of a file run compiled."""
        return self._reaches.get((file, self._named), lambda: self._find_reach(file))

    def _find_reach(self, file: str) -> dict[_Place, Root]:
        module = self._inference.project.module(file)
        reached: dict[Scope, Root] = {}
        for root, scopes in self._roots_of(module) if module is not None else ():
            pending = [scope for scope in scopes if scope not in reached and not self._keeps_out(scope)]
            while pending and len(reached) < MAX_REACHED:
                scope = pending.pop()
                if scope in reached:
                    continue
                reached[scope] = root
                with suppress(SyntaxProblem):
                    pending += [found for found in self._callees(scope) if found not in reached]
        return {_place_of(scope): root for scope, root in reached.items()}

    def _roots_of(self, module: Module) -> Iterator[tuple[Root, list[Scope]]]:
        """What a file compiles, each with the functions that it begins with."""
        for scope in _scopes(module):
            try:
                yield from self._roots_in(scope)
            except SyntaxProblem:
                continue
        if self._named:
            yield from self._named_roots(module)

    def _roots_in(self, scope: Scope) -> Iterator[tuple[Root, list[Scope]]]:
        path = scope.module.source.path
        for decorator in scope.decorators:
            if self._compiles_as_decorator(scope, decorator) and not _is_switched_off(decorator):
                yield Root(path, decorator.lineno, _is_whole(decorator)), [scope]
        flow = flow_of(scope)
        for name in ("compile", *renamed(scope.module.source, ("compile",))):
            for call in flow.calls_named[name]:
                compiled = self.compiled_by(scope, call)
                if compiled is not None and not _is_switched_off(call) and not isinstance(flow.parent.get(call), ast.Expr):
                    yield Root(path, call.lineno, _is_whole(call)), self._begun(scope, compiled)
                elif self.is_method_call(scope, call) and isinstance(call.func, ast.Attribute) and not _is_switched_off(call):
                    yield Root(path, call.lineno, _is_whole(call)), self._begun(scope, call.func.value)
        for call in flow.calls if b"torch_compile" in scope.text else ():
            model = _trained_compiled(flow, call)
            if model is not None:
                yield Root(path, call.lineno), self._begun(scope, model)

    def _named_roots(self, module: Module) -> Iterator[tuple[Root, list[Scope]]]:
        for qualname, cls in module.classes.items():
            if self._is_named(f"{module.name}.{qualname}"):
                forward = self._forward(cls)
                if forward is not None:
                    yield Root(module.source.path, None), [forward]
        for qualname, scope in module.scopes.items():
            if f"{module.name}.{qualname}" in self._named:
                yield Root(module.source.path, None), [scope]

    def _is_named(self, qualname: str) -> bool:
        return any(fnmatchcase(qualname, pattern) for pattern in self._named)

    def _may_be_named(self, file: str) -> bool:
        """Whether the option may name something in a file."""
        module = self._inference.project.dotted_name(file)
        literal = (re.split(r"[*?[]", pattern, maxsplit=1)[0] for pattern in self._named)
        return any(module.startswith(text) or text.startswith(f"{module}.") for text in literal)

    def compiled_by(self, scope: Scope, call: ast.Call) -> ast.expr | None:
        """What a call of `torch.compile` compiles; None for any other call, and for one that makes a decorator."""
        if not self.is_compile(scope, call.func):
            return None
        given = argument(call, 0, "model")
        if given is None:
            outer = flow_of(scope).parent.get(call)
            return outer.args[0] if isinstance(outer, ast.Call) and outer.func is call and outer.args else None
        return None if isinstance(given, ast.Constant) else given

    def is_compile(self, scope: Scope, callee: ast.expr) -> bool:
        """Whether an expression is `torch.compile`."""
        return self._inference.value(scope, callee).must(lambda a: isinstance(a, External) and a.qualname in _DECORATORS)

    def is_method_call(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call is that of the method `compile` that each `torch.nn.Module` has."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "compile":
            return False
        found = [a for a in modules(self._inference, scope, call.func.value) if not isinstance(a, Object)]
        return bool(found) and all(
            isinstance(a, Instance)
            and classes.is_module(self._inference, a.cls)
            and classes.find_method(self._inference, a.cls, "compile") is None
            for a in found
        )

    def _begun(self, scope: Scope, node: ast.expr) -> list[Scope]:
        """The functions that calling an expression runs first."""
        return [found for a in modules(self._inference, scope, node) if (found := self._entered(a)) is not None]

    def _compiles_as_decorator(self, scope: Scope, decorator: ast.expr) -> bool:
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        if self._decorator(scope, decorator) in _DECORATORS:
            return True
        bound = decorator.args[0] if isinstance(decorator, ast.Call) and decorator.args else None
        if bound is not None and self._decorator(scope, inner) == "functools.partial":
            return self._decorator(scope, bound) in _DECORATORS
        return False

    def _decorator(self, scope: Scope, decorator: ast.expr) -> str:
        """The qualified name of a decorator, also of a function inside another one."""
        if scope.parent is None:
            return decorator_qualname(self._inference.module_name, scope, decorator)
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        parts = (path_of(inner) or "").split(".")
        frame_depth = 2
        only = free_name(self._inference, scope.parent, parts[0], frame_depth).single
        return canonical(".".join((only.qualname, *parts[1:]))) if isinstance(only, External) else ""

    # -- what a compiled function calls ------------------------------------------------------------------------------

    def is_disabled(self, scope: Scope) -> bool:
        """Whether a decorator keeps torch out of a function, so that a call of it breaks the graph."""
        return any(self._decorator(scope, decorator) in DISABLING for decorator in scope.decorators)

    def _keeps_out(self, scope: Scope) -> bool:
        """Whether torch does not look into a function, or may not: a decorator replaces it by something that is not known."""
        if isinstance(scope.node, ast.AsyncFunctionDef):
            return True
        named = [self._decorator(scope, decorator) for decorator in scope.decorators]
        if any(name in DISABLING or name in _OPAQUE for name in named):
            return True
        compiled = [self._compiles_as_decorator(scope, decorator) for decorator in scope.decorators]
        return (
            not any(compiled)
            and not (scope.parent is not None and all(named))
            and not hands_on(self._inference.module_name, scope)
        )

    def _callees(self, scope: Scope) -> Iterator[Scope]:
        """The functions of the project that a compiled function runs, as far as they are known and torch looks into them."""
        for call in flow_of(scope).calls:
            if self.is_traced(scope, call):
                for alternative in self._called(scope, call):
                    found = self._entered(alternative)
                    if found is not None and not self._keeps_out(found):
                        yield found

    def _called(self, scope: Scope, call: ast.Call) -> Iterable[Alternative]:
        if isinstance(call.func, ast.Attribute) and classes.is_super_call(call.func.value):
            return self._inherited(scope, call.func.attr)
        value = self._inference.value(scope, call.func)
        if call.args and value.must(lambda a: isinstance(a, External) and a.qualname in _CHECKPOINTS):
            return modules(self._inference, scope, call.args[0])
        return modules(self._inference, scope, call.func)

    def _inherited(self, scope: Scope, name: str) -> Iterator[Alternative]:
        """What `super().name` is in a method."""
        if scope.owner is None:
            return
        for ancestor in classes.ancestors(self._inference, scope.owner)[1:]:
            if isinstance(ancestor, Class) and name in ancestor.methods:
                yield FunctionRef(ancestor.methods[name])
                return

    def _entered(self, alternative: Alternative) -> Scope | None:
        """The function that calling an alternative runs."""
        match alternative:
            case FunctionRef(scope):
                return scope
            case Instance(cls):
                return self._forward(cls)
            case ClassRef(cls) if not classes.is_module(self._inference, cls):
                return classes.find_method(self._inference, cls, "__init__")
        return None

    def _forward(self, cls: Class) -> Scope | None:
        found = classes.find_method(self._inference, cls, "__call__")
        if found is None and classes.is_module(self._inference, cls):
            found = classes.find_method(self._inference, cls, "forward")
        return found


def _place_of(scope: Scope) -> _Place:
    return scope.module.source.path, scope.qualname, scope.row, getattr(scope.node, "col_offset", 0) if scope.parent else 0


def _scopes(module: Module) -> Iterator[Scope]:
    """The scopes of a file that may compile something."""
    pending: list[Scope] = module.scopes_with("compile") + [
        scope for name in sorted(renamed(module.source, ("compile",))) for scope in module.scopes_with(name)
    ]
    pending += module.scopes_with("optimize") + module.scopes_with("torch_compile")
    seen: set[Scope] = set()
    for scope in pending:
        if scope in seen:
            continue
        seen.add(scope)
        yield scope
        if scope.may_hold_functions:
            try:
                flow = flow_of(scope)
            except SyntaxProblem:
                continue
            pending += [flow.inner_scope(node) for node in flow.inner]


def _is_whole(node: ast.expr) -> bool:
    given = argument(node, None, "fullgraph") if isinstance(node, ast.Call) else None
    return isinstance(given, ast.Constant) and given.value is True


def _trained_compiled(flow: Flow, call: ast.Call) -> ast.expr | None:
    """The model of `Trainer(model, TrainingArguments(torch_compile=True))`, the arguments written there or under a name."""
    if not (path_of(call.func) or "").endswith("Trainer"):
        return None
    given = argument(call, 1, "args")
    found = [d.value for d in flow.reaching.get(given, ())] if isinstance(given, ast.Name) else [given]
    for value in found:
        if not isinstance(value, ast.Call) or not (path_of(value.func) or "").endswith(("Arguments", "Config")):
            return None
        if not any(
            k.arg == "torch_compile" and isinstance(k.value, ast.Constant) and k.value.value is True for k in value.keywords
        ):
            return None
    return argument(call, 0, "model") if found else None


def _is_switched_off(node: ast.expr) -> bool:
    given = argument(node, None, "disable") if isinstance(node, ast.Call) else None
    return isinstance(given, ast.Constant) and given.value is True


# -- tests for running compiled ------------------------------------------------------------------------------------------


def _leaves_out(parent: ast.AST, child: ast.AST) -> bool:
    """Whether a compiled function never comes into a part of a node, for a test asks whether it runs compiled."""
    match parent:
        case ast.If(test=test, body=body, orelse=orelse):
            compiled = _when_compiled(test)
            return (compiled is False and child in body) or (compiled is True and child in orelse)
        case ast.IfExp(test=test, body=first, orelse=other):
            compiled = _when_compiled(test)
            return (compiled is False and child is first) or (compiled is True and child is other)
        case ast.BoolOp(op=op, values=values) if child in values:
            ends = isinstance(op, ast.Or)
            return any(_when_compiled(value) is ends for value in values[: values.index(child)])
    return False


def _has_left(flow: Flow, statement: ast.stmt) -> bool:
    """Whether a compiled function has returned before it comes to a statement: `if torch.compiler.is_compiling(): return x`."""
    for earlier in flow.siblings(statement):
        if earlier is statement:
            return False
        if isinstance(earlier, ast.If) and _when_compiled(earlier.test) is True:
            if isinstance(earlier.body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                return True
    return False


def _when_compiled(test: ast.expr) -> bool | None:
    """What a test gives in a compiled function; None when it is about something else."""
    match test:
        case ast.Call(func=func):
            name = (path_of(func) or "").rpartition(".")[2]
            return True if name in _TRUE_WHEN_COMPILED else False if name in _FALSE_WHEN_COMPILED else None
        case ast.Constant(value=bool(value)):
            return value
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _when_compiled(operand)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=values):
            decides = isinstance(op, ast.Or)
            known = [_when_compiled(value) for value in values]
            if decides in known:
                return decides
            return None if None in known else not decides
    return None
