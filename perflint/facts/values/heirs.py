"""The classes of the project that inherit from a class, and whether there may be others that no class statement shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.values.classes import ancestors, find_method
from perflint.facts.values.frames import Frame, Inferring
from perflint.facts.values.values import Alternative, ClassRef, External, FunctionRef, Literal, ModuleRef, Sequence
from perflint.project.project import MAX_IMPORTERS
from perflint.project.trace import LastingMemo
from perflint.source.renaming import renamed_in
from perflint.source.scopes import Defining, scopes_where
from perflint.source.syntax import Class, Module, Scope, SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.vocabulary import branches
from perflint.source.words import any_layout, words

_STAR = any_layout(rb"\bimport \*")
_FOREIGN = words("Dataset object Exception ValueError RuntimeError NamedTuple Enum ABC")
"""Names of classes of others that many classes derive from, and of no class of the project that is not called so."""
_ANY_FOREIGN = b"|".join(sorted(name.encode() for name in _FOREIGN))
_HAS_HEIRS = any_layout(
    rb"class[\s\\]+\w+[^(:]*\( (?!\)|(?:(?:torch \. )?nn \. Module|(?:(?:torch \. )?utils \. )?(?:data \. )?(?:%b)) \))"
    rb"|\bas (?:%b)\b|\b(?:%b) =(?!=)" % ((_ANY_FOREIGN,) * 3)
)
"""A class with another base than these, or another class by one of their names."""
_MAKER_NAMES = words("type new_class make_dataclass")
_MAKER = rb"\b(?:type|new_class|make_dataclass)"
_MENTION = _MAKER + rb"\b (?![(\w'\"=:.-])|" + _MAKER + rb" as\b"
_MENTIONS = any_layout(_MENTION)
"""What makes classes may be given another name in such a text."""
_MAKES = any_layout(
    _MAKER + rb" \([^()]*,|\b__bases__\b|\btype \([^()]*\) \(|Meta \(|\( type \) :|\bas\b " + _MAKER + rb"\b|" + _MENTION
)
"""What makes classes without a class statement, whatever it is called, stands in such a text."""
_INNER = any_layout(rb"^[\x20\t]+class[\s\\]+\w+[^(:\n]*\(", re.M)
"""A class statement in a function, or in a class."""
_NAMED_BASE = any_layout(rb"\bclass[\s\\]+\w+ (?:\[[^]]*\])? \([^():]*(?:getattr|import_module|__import__) \(")
"""A class statement whose base is found by a name, which may be any class of a module."""
_FINDS_MODULES = words("importlib.import_module builtins.__import__")
_Place = tuple[str, int]
"""A class by its file and its number among all classes there: it outlives the tree that the class was found in."""
_MAKERS = words("builtins.type types.new_class dataclasses.make_dataclass abc.ABCMeta enum.EnumMeta enum.EnumType")


def subclasses(inference: Inferring, cls: Class) -> list[Class] | None:
    """The classes of the project that inherit from a class; None where there may be others: too many files import its file
    to look through them, or one of them makes classes of it that no class statement at its own level shows.

    An inference apart finds them, which knows no heirs: what a call makes may depend on who calls a method of the class.
    """
    apart, nobody_knows = inference.apart, None
    if apart is None:
        return None
    return inference.solver.solve(("subclasses", cls), lambda: _subclasses(apart, cls), nobody_knows)


def _subclasses(apart: Inferring, cls: Class) -> list[Class] | None:
    known: LastingMemo[_Place, list[_Place] | None] = apart.project.lasting("near heirs")
    found = [cls]
    for one in found:  # grows, by what is in files that know an heir alone
        near = _at(apart, known.get(_place_of(one), partial(_near_places, apart, one)))
        if near is None:
            return None
        found += [heir for heir in near if heir not in found]
    return found[1:]


def _near_places(apart: Inferring, cls: Class) -> list[_Place] | None:
    near = _near(apart, cls)
    return None if near is None else [_place_of(heir) for heir in near]


def _place_of(cls: Class) -> _Place:
    return cls.module.source.path, cls.module.all_classes.index(cls)


def _at(inference: Inferring, places: list[_Place] | None) -> list[Class] | None:
    """The classes at some places; None for None, or where a file is gone."""
    if places is None:
        return None
    held = [(inference.project.module(path), number) for path, number in places]
    return [module.all_classes[number] for module, number in held if module is not None] if all(m for m, _ in held) else None


def _near(inference: Inferring, cls: Class) -> list[Class] | None:
    """The classes that inherit from a class, in the files that have a name of it."""
    project, path = inference.project, cls.module.source.path
    if len(project.importers(path)) > MAX_IMPORTERS:
        return None
    texts = {file: project.read(file) or b"" for file in project.importers(path)} | {path: cls.module.source.body}
    word = cls.name.encode()
    names = frozenset((cls.name,)).union(*(renamed_in(text, (cls.name,)) for text in texts.values() if word in text))
    has_common_name = cls.name in _FOREIGN or cls.name == "Module"
    found: list[Class] = []
    for file, text in sorted(texts.items()):
        if not any(name.encode() in text for name in names) and _NAMED_BASE.search(text) is None:
            continue
        may_make = project.holds(file, _MAKES) or project.holds(file, _INNER) or _is_handed_on(text, names)
        if not (may_make or has_common_name or project.holds(file, _HAS_HEIRS)):
            continue
        module = cls.module if file == path else project.module(file)
        others = [other for other in module.all_classes if other is not cls] if module is not None else []
        if may_make and module is not None and _makes_heir(inference, module, cls, names):
            return None
        if any(_has_base_that_is_made(inference, other, names) for other in others):
            return None
        found += [other for other in others if cls in ancestors(inference, other)]
    return found


def _is_handed_on(text: bytes, names: frozenset[str]) -> bool:
    """Whether a text may give a class to a function: not only to a class statement, or to an import."""
    before = (
        text[text.rfind(b"\n", 0, match.start()) + 1 : match.start()].lstrip()
        for name in names
        for match in _handed(name).finditer(text)
    )
    return any(
        not (line.startswith(b"class ") and b":" not in line)
        and not (line.startswith((b"from ", b"import ")) and b";" not in line)
        for line in before
    )


@cache
def _handed(name: str) -> re.Pattern[bytes]:
    return any_layout(rb"\b%b [,)\]}]" % name.encode())


@dataclass(frozen=True)
class _Makers:
    """Where a file may make classes without a class statement.

    scopes: its own code and those of its outermost functions that may, whatever class they are asked for.
    names: by which it may call what makes classes; None where it hands such a thing on.
    """

    scopes: tuple[Scope, ...]
    names: frozenset[str] | None

    def may_be(self, function: ast.expr) -> bool:
        """Whether what is called may make classes, by its name."""
        name = last_name(function)
        return self.names is None or not name or name in self.names or name.endswith("Meta")


def _makers(inference: Inferring, module: Module) -> _Makers:
    nobody = _Makers((), None)
    return inference.solver.solve(("makers", module), lambda: _find_makers(inference, module), nobody)


def _find_makers(inference: Inferring, module: Module) -> _Makers:
    scopes = scopes_where(module, _MAKES, _INNER)
    known: LastingMemo[str, frozenset[str] | None] = inference.project.lasting("makers")
    return _Makers(tuple(scopes), known.get(module.source.path, lambda: _names_of_makers(module, scopes)))


def _names_of_makers(module: Module, scopes: list[Scope]) -> frozenset[str] | None:
    names = set(_MAKER_NAMES)
    for scope in scopes if module.holds(_MENTIONS) else ():
        harmless: set[ast.AST] = set()
        for parent in ast.walk(module.tree if scope.is_module else scope.node):
            if isinstance(parent, ast.ImportFrom):
                names.update(alias.asname for alias in parent.names if alias.name in _MAKER_NAMES and alias.asname)
            harmless.update(_harmless_mentions(parent))
            for mention in ast.iter_child_nodes(parent):
                if not isinstance(mention, (ast.Name, ast.Attribute)) or last_name(mention) not in _MAKER_NAMES:
                    continue
                if mention in harmless or (isinstance(mention, ast.Attribute) and mention.attr == "type"):
                    continue
                if isinstance(parent, ast.ClassDef):
                    names.add(parent.name)
                elif isinstance(parent, ast.Assign) and all(isinstance(target, ast.Name) for target in parent.targets):
                    names.update(target.id for target in parent.targets if isinstance(target, ast.Name))
                else:
                    return None
    return frozenset(names)


def _harmless_mentions(node: ast.AST) -> Iterable[ast.AST]:
    """The parts of a node, or of its parts, in which what makes classes may be named without being handed on."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=args):
            return (node.func, *args, *(part for arg in args for part in getattr(arg, "elts", ())))
        case ast.Call(func=function) | ast.Subscript(value=function):
            return (function,)
        case ast.keyword(arg="metaclass", value=value):
            return (value,)
        case ast.Compare():
            return (node.left, *node.comparators)
        case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
            return ast.walk(annotation)
        case ast.FunctionDef(returns=ast.expr() as annotation) | ast.AsyncFunctionDef(returns=ast.expr() as annotation):
            return ast.walk(annotation)
    return ()


def _makes_heir(inference: Inferring, module: Module, cls: Class, names: frozenset[str]) -> bool:
    """Whether a file may make an heir of a class, which it has by some names, elsewhere than in a class statement at top."""
    try:
        makers = _makers(inference, module)
        named = scopes_where(module, *map(_handed, sorted(names)))
        return any(_in_scope(inference, scope, cls, names, makers) for scope in dict.fromkeys((*makers.scopes, *named)))
    except SyntaxProblem:
        return True


def _in_scope(inference: Inferring, scope: Scope, cls: Class, names: frozenset[str], makers: _Makers) -> bool:
    text = scope.text
    makes = _stands_in(_MAKES, scope)
    inner = not scope.is_module and _stands_in(_INNER, scope)
    is_given = any(_handed(name).search(text) for name in names)
    if not (makes or inner or is_given):
        return False
    flow = flow_of(scope)
    return (
        (makes and isinstance(scope, Defining) and any(flow.mentions.get(name) for name in names))
        or any(_may_be_base(inference, scope, base, cls) for base in (_inner_bases(flow) if inner else ()))
        or (makes and any(isinstance(store, ast.Attribute) and store.attr == "__bases__" for store in flow.stores))
        or b"'__bases__'" in text
        or b'"__bases__"' in text
        or any(
            _makes_class_of(inference, scope, call, cls, names, makers) for call in (flow.calls if makes or is_given else ())
        )
        or any(_in_scope(inference, part, cls, names, makers) for part in flow.parts())
    )


def _stands_in(pattern: re.Pattern[bytes], scope: Scope) -> bool:
    return scope.module.holds(pattern) and any(part.search(scope.text) for part in branches(pattern))


def _inner_bases(flow: Flow) -> Iterator[ast.expr]:
    for node in flow.order:
        if isinstance(node, ast.ClassDef):
            yield from node.bases


def _may_be_base(inference: Inferring, scope: Scope, base: ast.expr, cls: Class) -> bool:
    """Whether a base may be a class, or an heir of it: it is, or nobody knows what it is."""
    node = base.value if isinstance(base, ast.Subscript) else base
    value = inference.value(scope, node)
    return not value.must(
        lambda a: isinstance(a, External) or (isinstance(a, ClassRef) and cls not in ancestors(inference, a.cls))
    )


def _makes_class_of(
    inference: Inferring, scope: Scope, call: ast.Call, cls: Class, names: frozenset[str], makers: _Makers
) -> bool:
    """Whether a call may make an heir of a class: `type("Heir", (Base,), {})`, or a function that makes classes gets it."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    displayed = [a for a in given if isinstance(a, (ast.Tuple, ast.List))]
    in_tuple = any(_is_class(inference, scope, part, cls, names) for a in displayed for part in a.elts)
    is_given = in_tuple or any(_is_class(inference, scope, part, cls, names) for part in given)
    gives_bases = len(call.args) >= 2 or any(keyword.arg in ("bases", None) for keyword in call.keywords)
    if not is_given and not (gives_bases and (makers.may_be(call.func) or _may_be_maker_elsewhere(scope, call.func))):
        return False
    value = inference.value(scope, call.func)
    for made_by in value.alternatives:
        if _makes_classes(inference, made_by):
            bases = [k.value for k in call.keywords if k.arg == "bases"] or call.args[1:2]
            if is_given or any(_may_hold(inference, scope, base, cls) for base in bases):
                return True
        elif is_given and _may_make_classes(inference, made_by):
            return True
    return in_tuple and not value.alternatives


def _may_be_maker_elsewhere(scope: Scope, function: ast.expr) -> bool:
    """Whether what is called may be another file's, or a function's own parameter, in a file that makes classes."""
    root = (path_of(function) or "").partition(".")[0]
    bound = flow_of(scope).definitions_of(root)
    is_of_function = isinstance(function, ast.Name) and any(isinstance(d.node, ast.arg) for d in bound)
    return scope.module.holds(_MAKES) and (not bound or is_of_function or any(isinstance(d.node, ast.alias) for d in bound))


def _is_class(inference: Inferring, scope: Scope, node: ast.expr, cls: Class, names: frozenset[str]) -> bool:
    return last_name(node) in names and inference.value(scope, node).may(lambda a: a == ClassRef(cls))


def _may_hold(inference: Inferring, scope: Scope, bases: ast.expr, cls: Class) -> bool:
    """Whether the bases that a class gets may be a class or an heir of it."""
    if isinstance(bases, (ast.Tuple, ast.List)):
        return any(_may_be_base(inference, scope, part, cls) for part in bases.elts)
    value = inference.value(scope, bases)
    if not value.must_be(Sequence):
        return True
    items = [item for a in value.alternatives if isinstance(a, Sequence) for item in a.items]
    others = [a for item in items for a in item.alternatives if isinstance(a, ClassRef) and cls in ancestors(inference, a.cls)]
    return bool(others) or not all(item.must_be(External, ClassRef) for item in items)


def _makes_classes(inference: Inferring, alternative: Alternative) -> bool:
    """Whether a call of something makes a class: `type`, a metaclass."""
    if isinstance(alternative, External):
        return alternative.qualname in _MAKERS
    return isinstance(alternative, ClassRef) and any(a in _MAKERS for a in ancestors(inference, alternative.cls))


def _may_make_classes(inference: Inferring, alternative: Alternative) -> bool:
    """Whether a function, or a class's constructor, may make classes of what it gets, as far as its text tells."""
    match alternative:
        case FunctionRef(scope=scope):
            return _stands_in(_MAKES, scope) or _stands_in(_INNER, scope)
        case ClassRef(cls=cls):
            made = (find_method(inference, cls, name) for name in ("__init__", "__new__"))
            return any(_stands_in(p, method) for p in (_MAKES, _INNER) for method in made if method is not None)
    return False


def _has_base_that_is_made(inference: Inferring, cls: Class, names: frozenset[str]) -> bool:
    """Whether a base of a class is not known, or made of a class by its name, by a function or a table of the project's."""
    frame = inference.frame(cls.module.top, (), 3)
    return any(_is_made(inference, cls, base, names, frame) for base in cls.node.bases)


def _is_bound_plainly(cls: Class, name: str) -> bool:
    """Whether a name is a class's by its statement, or nobody's in its file: Python refuses it there."""
    module = cls.module
    return name in module.classes or (name not in module.bindings and not _STAR.search(module.source.body))


def _is_made(inference: Inferring, cls: Class, base: ast.expr, names: frozenset[str], frame: Frame) -> bool:
    root = base
    while isinstance(root, ast.Attribute):
        root = root.value
    match root:
        case ast.Name(id=named) if root is base and _is_bound_plainly(cls, named):
            return False
        case ast.Name():
            return not inference.infer(base, frame).must(lambda a: isinstance(a, (External, ClassRef)) or a == Literal(None))
        case ast.Subscript(value=generic):
            return not inference.infer(generic, frame).must_be(External, ClassRef)
        case ast.Call(func=maker, args=given):
            by_name = any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(root))
            made_by = inference.infer(maker, frame)
            if by_name or not made_by.must(lambda a: isinstance(a, External) and a.qualname not in _FINDS_MODULES):
                return True
            return any(inference.infer(part, frame).may_be(ModuleRef) for part in given)
    return True
