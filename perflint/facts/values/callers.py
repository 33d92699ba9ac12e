"""Who calls a function, and what its parameters are in consequence.

Call sites are searched in the file itself and in the files that import it, by a byte search first. The project is taken
to be closed: a parameter is what the project's own calls pass. A function that is also used in another way than by
calling it (handed over as a callback, say) has parameters that stay open.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.operations.api_tables import LIGHTNING_STEP_HOOKS
from perflint.facts.values import classes
from perflint.facts.values.annotations import annotated
from perflint.facts.values.bound_arguments import bound_arguments, may_bind
from perflint.facts.values.call_sites import (
    CallSite,
    CallSites,
    calls_by_another_name,
    calls_of_lambda,
    may_have_another_name,
    nested,
)
from perflint.facts.values.decorators import hands_on, runs_unnamed
from perflint.facts.values.forward_sites import forward_sites, is_forward, passed
from perflint.facts.values.frames import Inferring
from perflint.facts.values.heirs import subclasses
from perflint.facts.values.values import (
    UNKNOWN,
    Alternative,
    Batch,
    ClassRef,
    External,
    FunctionRef,
    Instance,
    ModuleRef,
    Output,
    Place,
    Value,
    join,
    one,
)
from perflint.project.project import MAX_IMPORTERS
from perflint.source.cells import SUFFIX
from perflint.source.identifiers import calls_of, is_called, is_renamed, stands_in_code
from perflint.source.scopes import Defining, scopes_with
from perflint.source.syntax import Class, Module, Scope, SyntaxProblem
from perflint.source.words import NO_MEMBER, any_layout, made

MAX_SITES = 12
"""A function with more call sites than this is a utility: its parameters stay open."""

MAX_HEIRS = 3
"""Of a class with more subclasses, `self` may be something that is not known."""

MAX_MENTIONS = 16
"""A name that more scopes mention is too common to look for."""

_MAKES_MODELS = made(rb"^def (?:define|create|build|get|make|select)_?\w*model", re.M | re.I)

_MAY_BE_FOUND = any_layout(rb"eval(?<![\w.]eval) \(|exec(?<![\w.]exec) \(|globals(?<![\w.]globals) \(|sys \. modules\b")
"""What `_FOUND_BY_NAME` finds holds this, for which a search is faster."""
_FOUND_BY_NAME = any_layout(NO_MEMBER + rb"(?:eval|exec|globals) \(|sys \. modules\b")
_MAY_BE_BY_KEY = any_layout(rb"__dict__ \[")
_BY_KEY = any_layout(rb"([\w.\x80-\xff]*) \. __dict__ \[")
_CALLED_ON_SELF = any_layout(rb"\bself \. ([\w\x80-\xff]+) \(")
_GETATTR = any_layout(rb"getattr(?<![\w.]getattr) \( (\w+) ,")


class Callers:
    """Call sites and parameter values, on demand."""

    def __init__(self, inference: Inferring) -> None:
        self._inference = inference

    def parameter(self, scope: Scope, name: str, depth: int) -> Value:
        """What a parameter may hold, joined over the call sites; open when there are none."""
        key = ("parameter", scope, name, depth)
        return self._inference.solve(key, lambda: self._parameter(scope, name, depth))

    def _parameter(self, scope: Scope, name: str, depth: int) -> Value:
        receiver = self._receiver(scope, name)
        if receiver is not None:
            return receiver
        declared = _declared(scope, name, self._inference)
        if depth <= 0 or (scope.owner is not None and scope.name == "__getitem__"):
            return declared  # called by torch; a function of that name is called by the project alone
        if scope.owner is not None and scope.name == "forward":
            return self._passed_on(scope, name, depth, declared)
        if scope.name in LIGHTNING_STEP_HOOKS and scope.parameters[1:2] and scope.parameters[1].arg == name:
            return Value(frozenset((Batch(place=Place.ELSEWHERE),)), open=True)
        found = self.sites(scope)
        if not found.sites:
            return declared
        result = join([self._given(site, name, depth) for site in found.sites])
        if not result.alternatives:
            return declared
        return result if found.complete else Value(result.alternatives, open=True)

    def _given(self, site: CallSite, name: str, depth: int) -> Value:
        """What a call gives a parameter."""
        frame = self._inference.frame(site.scope, (), depth - 1)
        bound = bound_arguments(self._inference, site.function, site.node, frame, (name,))
        return dict(bound or ()).get(name, UNKNOWN)

    def _passed_on(self, scope: Scope, name: str, depth: int, declared: Value) -> Value:
        """What a forward pass is given, by `__call__` of its module, which torch has.

        What a package offers runs in programs elsewhere; to look for its calls takes a fifth of the time over packages.
        """
        if self._is_offered(scope):
            return declared
        sites = self.forward_sites(scope)
        if not sites or len(sites) > MAX_SITES:
            return declared
        return passed([(site, self._given(site, name, depth)) for site in sites], declared)

    def forward_sites(self, scope: Scope) -> tuple[CallSite, ...]:
        """The calls that run `forward`, or `__call__`, of a module of the project, as far as their networks are known."""

        def found() -> tuple[CallSite, ...]:
            if not is_forward(self._inference, scope):
                return ()
            importers = self._inference.project.importers(scope.module.source.path)
            if len(importers) > MAX_IMPORTERS:
                return ()
            return forward_sites(self._inference, scope, importers | self.handed_objects_of(importers))

        return self._inference.solver.solve(("forward sites", scope), found, ())

    def _receiver(self, scope: Scope, name: str) -> Value | None:
        """The value of `self` or `cls`: the class that defines the method, or one that inherits it."""
        parameters = scope.parameters
        if scope.owner is None or not parameters or parameters[0].arg != name:
            return None
        kinds = {path_of(d) for d in scope.decorators}
        if "staticmethod" in kinds:
            return None
        heirs = subclasses(self._inference, scope.owner)
        heirs = [c for c in heirs if scope.name not in c.methods] if heirs is not None else None
        certain = heirs is not None and len(heirs) <= MAX_HEIRS
        known = [scope.owner, *(heirs if heirs is not None and certain else ())]
        value = join(one(ClassRef(c) if "classmethod" in kinds else Instance(c)) for c in known)
        return value if certain else Value(value.alternatives, open=True)

    def sites(self, scope: Scope) -> CallSites:
        """The calls in the project that run a function."""

        def found() -> CallSites:
            try:
                return self._find(scope)
            except SyntaxProblem:
                return CallSites((), False)

        return self._inference.solver.solve(("sites", scope), found, CallSites((), False))

    def above(self, scope: Scope, depth: int) -> Iterator[CallSite]:
        """The calls by which a function is reached, through up to `depth` of them, the nearest first."""
        level = dict.fromkeys((scope,))
        reached = set(level)
        for _ in range(depth):
            sites = [site for callee in level for site in self.sites(callee).sites]
            yield from sites
            level = dict.fromkeys(site.scope for site in sites if site.scope not in reached)
            reached.update(level)

    def _find(self, scope: Scope) -> CallSites:
        if scope.is_module or isinstance(scope, Defining):
            return CallSites((), True, True)
        if isinstance(scope.node, ast.Lambda):
            return CallSites(tuple(islice(calls_of_lambda(self._inference, scope), MAX_SITES)), False)
        if scope.owner is not None and scope.name == "__call__":
            return CallSites(tuple(islice(self._calls_of_objects(scope, scope.owner), MAX_SITES)), False)
        constructed = scope.name == "__init__" and scope.owner is not None
        name = scope.owner.name if constructed and scope.owner is not None else scope.name
        sites: list[CallSite] = []
        callers, complete = self._candidates(scope, name, constructed)
        is_method = scope.owner is not None and not constructed
        for caller in callers:
            flow = flow_of(caller)
            for mention in list(flow.mentions.get(name, ())):
                if is_method and not isinstance(mention, ast.Attribute):
                    continue
                parent = flow.parent.get(mention)
                if isinstance(parent, ast.Call) and parent.func is mention:
                    if len(sites) >= MAX_SITES:
                        return CallSites(tuple(sites), False)
                    target = self._target(caller, parent, scope, constructed)
                    if target is not None:
                        sites.append(CallSite(caller, parent, target))
                    elif not constructed and complete and may_bind(scope, parent):
                        complete = not self._may_run(caller, mention)
                elif complete and self._refers(caller, mention, scope, constructed):
                    complete = False
        if constructed and scope.owner is not None:
            sites += self._super_sites(scope.owner)
        if scope.owner is None and scope.parent is None and may_have_another_name(name, scope.module):
            users = (user for outer in _scopes_with(scope.module, name) for user in nested(outer, name))
            by_name = (site for user in users if not user.is_module for site in calls_by_another_name(user, scope))
            sites += islice(by_name, MAX_SITES - len(sites))
        unnamed = not constructed and (runs_unnamed(self._inference.module_name, scope) or is_forward(self._inference, scope))
        if unnamed or not hands_on(self._inference.module_name, scope):
            complete = False
        if scope.parent is None and len(self._inference.project.importers(scope.module.source.path)) > MAX_IMPORTERS:
            complete = False
        hidden = complete and (self._is_offered(scope) or self._is_found_by_name(scope, name))
        return CallSites(tuple(sites), complete and not hidden, complete)

    def _calls_of_objects(self, scope: Scope, cls: Class) -> Iterator[CallSite]:
        """`criterion(x)` where `criterion = Loss()`, or a parameter or attribute of that name, is an object with `__call__`."""
        names: set[str] = set()
        for maker in self._candidates(scope, cls.name, True)[0]:
            flow = flow_of(maker)
            for built in flow.calls_named[cls.name]:
                match flow.parent.get(built):
                    case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)]):
                        names.add(name)
                    case ast.Call(func=func) as call if func is built and self._is_object_of(maker, func, scope):
                        yield CallSite(maker, call, FunctionRef(scope, one(Instance(cls))))
        for name in sorted(names):
            for caller in self._candidates(scope, name, False)[0]:
                for call in flow_of(caller).calls_named[name]:
                    if self._is_object_of(caller, call.func, scope):
                        yield CallSite(caller, call, FunctionRef(scope, one(Instance(cls))))

    def _is_object_of(self, caller: Scope, callee: ast.expr, scope: Scope) -> bool:
        """Whether what is called may be an object, whose `__call__` is a method."""
        called = self._inference.infer(callee, self._inference.frame(caller, (), 3))
        return called.may(
            lambda a: isinstance(a, Instance) and classes.find_method(self._inference, a.cls, "__call__") is scope
        )

    def namesakes(self, scope: Scope) -> tuple[tuple[Scope, ast.Call], ...]:
        """The calls of a method's name on objects that are not known, in files that may have an object of its class.

        Of a class in a file that nobody imports, which may be made by its name (in a configuration, say), the files beside it.
        """
        if scope.owner is None or scope.parent is not None:
            return ()

        def found() -> tuple[tuple[Scope, ast.Call], ...]:
            try:
                callers = [*self._candidates(scope, scope.name, False)[0], *self._callers_beside(scope)]
                return tuple((c, call) for c in callers for call in flow_of(c).calls_named[scope.name])
            except SyntaxProblem:
                return ()

        return self._inference.solver.solve(("namesakes", scope), found, ())

    def _callers_beside(self, scope: Scope) -> Iterator[Scope]:
        """The scopes in the files beside that of a class, which nobody imports, that call a method of its name."""
        project, path = self._inference.project, scope.module.source.path
        if scope.owner is None or project.importers(path) or is_called(scope.owner.name, scope.module.source.body):
            return
        for file in project.beside(path)[:MAX_IMPORTERS]:
            if file != path and is_called(scope.name, project.read(file) or b""):
                module = project.module(file)
                yield from _scopes_with(module, scope.name) if module is not None else ()

    def _is_found_by_name(self, scope: Scope, name: str) -> bool:
        """Whether a function may be called by code that is not followed: a notebook, `getattr` of its module."""
        project = self._inference.project
        if scope.parent is not None:
            return False
        path = scope.module.source.path
        if not path.endswith(SUFFIX) and project.is_named_in_notebook(name):
            return True
        importers = project.importers(path)
        files = sorted({path, *(importers if len(importers) <= MAX_IMPORTERS else ())})
        return any(
            (project.holds(file, _MAY_BE_FOUND) and project.holds(file, _FOUND_BY_NAME)) or self._takes_from(path, file)
            for file in files
        )

    def _takes_from(self, path: str, file: str) -> bool:
        """Whether a file may take functions of another one by names that it makes up.

        By `getattr(nets, name)` or `nets.__dict__[name]`, out of its module or of one that imports it.
        """
        project = self._inference.project

        def owners() -> tuple[tuple[str, bool], ...]:
            by_name = set(_GETATTR.findall(project.read(file) or b"")) if project.holds(file, _GETATTR) else set()
            by_key = set(_BY_KEY.findall(project.read(file) or b"")) if project.holds(file, _MAY_BE_BY_KEY) else set()
            return tuple(sorted((owner.decode("utf-8", "replace"), owner in by_key) for owner in by_name | by_key))

        nothing: tuple[tuple[str, bool], ...] = ()
        found = self._inference.solver.solve(("owners of what is taken by name", file), owners, nothing)

        def takes() -> bool:
            module = project.module(file)
            return module is None or any(self._gives(owner, module, path, is_read) for owner, is_read in found)

        return bool(found) and self._inference.solver.solve(("taken by name", path, file), takes, False)

    def _gives(self, owner: str, module: Module, path: str, is_read: bool) -> bool:
        """Whether what a file calls `owner` may be a module that has functions of another file. is_read: by `__dict__`."""
        if owner == "self":
            return False
        first, _, rest = owner.partition(".")
        value = self._inference.module_name(module, first, 2)
        holders = (path, *self._inference.project.importers(path))

        def gives(alternative: Alternative) -> bool:
            if not isinstance(alternative, ModuleRef):
                return False
            package, is_package, _ = alternative.module.source.path.rpartition("__init__.py")
            return bool(rest) or alternative.module.source.path in holders or bool(is_package and path.startswith(package))

        return value.may(gives) or (is_read and not value.must(lambda a: isinstance(a, (ModuleRef, External))))

    def _is_offered(self, scope: Scope) -> bool:
        """Whether programs elsewhere may call a function: it is public in a package of a project that can be installed."""
        if scope.parent is not None or _is_private(scope.name) or (scope.owner is not None and _is_private(scope.owner.name)):
            return False
        return self._inference.project.is_offered(scope.module.source.path)

    def _candidates(self, scope: Scope, name: str, constructed: bool) -> tuple[list[Scope], bool]:
        """The scopes that may call a function by this name, and whether nobody uses it in another way than by a call.

        No scopes if there are too many of them.
        """
        if scope.parent is not None:  # functions beside it, and inside of it, may call it, too
            return list(nested(scope.parent, name)), True
        project = self._inference.project
        path = scope.module.source.path
        calling: list[Scope] = []
        complete = True
        importers = project.importers(path)
        files = {path, *(importers if len(importers) <= MAX_IMPORTERS else ())}
        if scope.owner is not None and not constructed and len(importers) <= MAX_IMPORTERS:
            files |= self.handed_objects_of(importers)  # an object is handed on to code that does not import its class
            files |= self._users_of_factories(importers)
        if not constructed:
            files |= {cls.module.source.path for cls in self._above(scope)}
        for file in sorted(files):
            data = None if file == path else project.read(file)
            if file == path:
                text = scope.module.source.body
                complete = complete and not is_renamed(name, text, scope.module.occurrences(name))
            elif data is None or name.encode() not in data or not (complete or is_called(name, data)):
                continue
            elif is_renamed(name, data):
                complete = False
            module = scope.module if file == path else project.module(file)
            for caller in _scopes_with(module, name) if module is not None else ():
                if is_called(name, caller.text):
                    if self._may_be_meant(scope, caller, name, constructed):
                        calling.append(caller)
                elif complete:
                    complete = not any(
                        self._refers(inner, mention, scope, constructed)
                        for inner in nested(caller, name)
                        for mention in _mentions(inner, name)
                    )
            if len(calling) > MAX_MENTIONS:
                return [], False
        return [inner for caller in calling for inner in nested(caller, name)], complete

    def _above(self, scope: Scope) -> list[Class]:
        """The classes of the project that a method's class inherits from."""
        if scope.owner is None:
            return []
        above = classes.ancestors(self._inference, scope.owner)
        return [cls for cls in above if isinstance(cls, Class) and cls is not scope.owner]

    def handed_objects_of(self, importers: frozenset[str]) -> set[str]:
        """The files to which scripts that import a class may hand its instances."""
        project = self._inference.project
        imported = set().union(*(project.imports(file) for file in importers if not project.importers(file)))
        return imported if len(imported) <= MAX_IMPORTERS else set()

    def _users_of_factories(self, importers: frozenset[str]) -> set[str]:
        """The files that may get an object from a function such as `define_model`, in a file that imports its class."""
        project = self._inference.project
        makers = [file for file in importers if project.holds(file, _MAKES_MODELS)]
        users = set[str]().union(*map(project.importers, makers))
        return users if len(users) <= MAX_IMPORTERS else set()

    def _may_be_meant(self, scope: Scope, caller: Scope, name: str, constructed: bool) -> bool:
        """Whether a method that is only called on `self` is called in a related class."""
        if scope.owner is None or constructed or caller.owner is scope.owner:
            return True
        on_self = sum(found == name.encode() for found in _CALLED_ON_SELF.findall(caller.text))
        if sum(1 for _ in calls_of(name, caller.text)) > on_self:
            return True
        if caller.owner is None:
            return False
        above_caller = classes.ancestors(self._inference, caller.owner)
        return scope.owner in above_caller or caller.owner in classes.ancestors(self._inference, scope.owner)

    def _target(self, caller: Scope, call: ast.Call, scope: Scope, constructed: bool) -> FunctionRef | None:
        inference = self._inference
        frame = inference.frame(caller, (), 3)
        if isinstance(call.func, ast.Attribute) and not constructed and scope.owner is not None:
            receiver = inference.infer(call.func.value, frame)
            for alternative in receiver.alternatives:
                if isinstance(alternative, Instance):
                    if classes.find_method(inference, alternative.cls, scope.name) is scope:
                        return FunctionRef(scope, one(alternative))
                    if is_self(caller, call.func.value) and alternative.cls in self._above(scope):
                        return FunctionRef(scope, one(Instance(scope.owner)))  # overridden: `self` may be of any class below
                elif isinstance(alternative, ClassRef) and classes.find_method(inference, alternative.cls, scope.name) is scope:
                    of_class = any(path_of(d) == "classmethod" for d in scope.decorators)
                    return FunctionRef(scope, one(alternative) if of_class else None)
            return None
        for alternative in inference.infer(call.func, frame).alternatives:
            match alternative:
                case FunctionRef(target) if target is scope:
                    return alternative
                case ClassRef(cls) if constructed:
                    if classes.find_method(inference, cls, "__init__") is scope:
                        return FunctionRef(scope, one(Instance(cls)))
        return None

    def _may_run(self, caller: Scope, callee: ast.expr) -> bool:
        """Whether `something.name(...)` may run any function of that name. A bare name that is bound otherwise does not."""
        if not isinstance(callee, ast.Attribute):
            return False
        return self._inference.infer(callee.value, self._inference.frame(caller, (), 3)).open

    def _super_sites(self, owner: Class) -> list[CallSite]:
        """`super().__init__(...)` in the subclasses of this file."""
        found = []
        for cls in owner.module.classes.values():
            init = cls.methods.get("__init__")
            if cls is not owner and init is not None and owner in classes.ancestors(self._inference, cls):
                for call in flow_of(init).calls_named["__init__"]:
                    if isinstance(call.func, ast.Attribute) and classes.is_super_call(call.func.value):
                        target = owner.methods.get("__init__")
                        if target is not None:
                            found.append(CallSite(init, call, FunctionRef(target, one(Instance(cls)))))
        return found

    def _refers(self, caller: Scope, mention: ast.expr, scope: Scope, constructed: bool) -> bool:
        """Whether a mention that is no call of a function, or of a class for its `__init__`, hands it on."""
        if constructed:
            parent = flow_of(caller).parent.get(mention)
            asked = isinstance(parent, ast.Call) and path_of(parent.func) in ("isinstance", "issubclass", "super", "type")
            if asked or isinstance(parent, (ast.ClassDef, ast.Attribute, ast.Compare)):
                return False
            value = self._inference.infer(mention, self._inference.frame(caller, (), 2))
            return value.may(lambda a: isinstance(a, ClassRef) and a.cls is scope.owner)
        value = self._inference.infer(mention, self._inference.frame(caller, (), 2))
        return value.may(lambda a: isinstance(a, FunctionRef) and a.scope is scope)


def _scopes_with(module: Module, name: str) -> Iterator[Scope]:
    """The outermost scopes of a file that mention a name otherwise than by defining it."""
    word = name.encode()
    for scope in scopes_with(module, name):
        if scope.name != name or scope.text.count(word) > 1:
            yield scope


def _mentions(scope: Scope, name: str) -> list[ast.expr]:
    if not stands_in_code(name, scope.text):
        return []
    try:
        return list(flow_of(scope).mentions.get(name, ()))  # an import is none
    except SyntaxProblem:
        return []


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _declared(scope: Scope, name: str, inference: Inferring) -> Value:
    """What the annotation says, or the name of the function."""
    for parameter in scope.parameters:
        if parameter.arg == name and parameter.annotation is not None:
            said = annotated(inference, scope.module, parameter.annotation)
            if said is not None:
                return said
    if scope.name == "forward":
        return Value(frozenset((Output(),)), open=True)
    return UNKNOWN


def is_self(scope: Scope, node: ast.expr) -> bool:
    """Whether an expression is the object that a method belongs to."""
    return (
        scope.owner is not None and isinstance(node, ast.Name) and bool(scope.parameters) and node.id == scope.parameters[0].arg
    )
