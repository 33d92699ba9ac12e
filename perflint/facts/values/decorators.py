"""What decorators do, by what their names mean in the file: only those that are listed hand a function on as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Final

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.values.names import canonical
from perflint.facts.values.values import External, Value
from perflint.source.syntax import Class, Module, Scope
from perflint.source.words import words

ModuleName = Callable[[Module, str, int], Value]
"""`Inference.module_name`: what a variable of a module may be."""

_CACHING: Final = words("functools.cached_property functools.lru_cache functools.cache")
_SAYS_CACHED: Final = re.compile(
    r"(?!(?:clear|no|disable|invalidate|reset)_)(?:\w+_)?(?:cache|cached|memo|memoi[sz]ed?)(?:_\w+)?|cachedmethod"
)
"""How decorators that keep results are called: `memory.cache` of joblib, `cachetools.cached`, those of a project."""
_CASTS: Final = words("torch.amp.autocast torch.autocast torch.cuda.amp.autocast torch.amp.custom_fwd torch.amp.custom_bwd")
_HARMLESS: Final = words(
    """
    builtins.staticmethod builtins.classmethod builtins.property abc.abstractmethod abc.abstractproperty
    typing.override typing.final typing.overload typing.no_type_check typing_extensions.override
    typing_extensions.final typing_extensions.overload torch.no_grad torch.inference_mode functools.wraps
    torch.distributed.elastic.multiprocessing.errors.record overrides.overrides
    """
)
_PASSING: Final = (
    _HARMLESS
    | _CACHING
    | _CASTS
    | words(
        """
    torch.enable_grad torch.set_grad_enabled
    lightning.rank_zero_only lightning.pytorch.utilities.rank_zero_only lightning.pytorch.utilities.rank_zero.rank_zero_only
    pytorch_lightning.utilities.rank_zero_only pytorch_lightning.utilities.rank_zero.rank_zero_only
    """
    )
)
_ATTRIBUTES: Final = words("builtins.property abc.abstractproperty functools.cached_property")
_OF_CLASSES: Final = words(
    """
    dataclasses.dataclass functools.total_ordering typing.final typing.runtime_checkable typing_extensions.final
    enum.unique
    """
)
_PLAIN_METACLASSES: Final = words("abc.ABCMeta builtins.type enum.EnumMeta")
_CHANGES_INSTANCES: Final = words("__new__ __init_subclass__ __getattribute__ __class_getitem__ __set_name__")


def decorator_name(node: ast.expr) -> str:
    """The last name of a decorator: `no_grad` for `@torch.no_grad()`."""
    inner = node.func if isinstance(node, ast.Call) else node
    return (path_of(inner) or "").rpartition(".")[2]


def switches_gradients_off(scope: Scope) -> bool:
    """Whether a function is decorated with `torch.no_grad()` or `inference_mode()`, by their names."""
    return any(decorator_name(d) in ("no_grad", "inference_mode") for d in scope.decorators)


def decorator_qualname(module_name: ModuleName, scope: Scope, decorator: ast.expr) -> str:
    """What a decorator of a function is, by its qualified name; "" for one of the project or one that is not known."""
    path = path_of(decorator.func if isinstance(decorator, ast.Call) else decorator)
    if path is None:
        return ""
    root, _, rest = path.partition(".")
    if scope.owner is not None and rest in ("setter", "getter", "deleter") and root in scope.owner.methods:
        return "builtins.property"
    if scope.parent is not None or (scope.owner is not None and root in scope.owner.variables | scope.owner.methods.keys()):
        return ""
    value = module_name(scope.module, root, 2)
    only = value.single
    if not isinstance(only, External):
        return ""
    return canonical(f"{only.qualname}.{rest}" if rest else only.qualname)


def hands_on(module_name: ModuleName, scope: Scope) -> bool:
    """Whether all decorators of a function leave to its callers what it takes and returns."""
    return all(decorator_qualname(module_name, scope, d) in _PASSING for d in scope.decorators)


def runs_unnamed(module_name: ModuleName, scope: Scope) -> bool:
    """Whether a method runs without a call of its name: a property, and what Python calls for an operator, `with` or `len`."""
    if scope.owner is None:
        return False
    special = scope.name.startswith("__") and scope.name.endswith("__")
    return special or any(decorator_qualname(module_name, scope, d) in _ATTRIBUTES for d in scope.decorators)


def is_plain(module_name: ModuleName, scope: Scope) -> bool:
    """Whether the decorators of a function do nothing at all, but switch autograd off."""
    return all(decorator_qualname(module_name, scope, d) in _HARMLESS for d in scope.decorators)


def caches(module_name: ModuleName, scope: Scope) -> bool:
    """Whether a decorator keeps what a function returns, as far as its name tells."""
    for decorator in scope.decorators:
        path = path_of(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        root, _, rest = path.partition(".")
        for meant in module_name(scope.module, root, 2).alternatives:
            if isinstance(meant, External) and (f"{meant.qualname}.{rest}" if rest else meant.qualname) in _CACHING:
                return True
    return False


def memoises(module_name: ModuleName, scope: Scope) -> bool:
    """Whether a function runs once for what it is given, as far as names tell: no proof rests on this."""
    return any(_SAYS_CACHED.fullmatch(decorator_name(d)) for d in scope.decorators) or caches(module_name, scope)


def is_plain_class(module_name: ModuleName, cls: Class) -> bool:
    """Whether a class has the methods and attributes that stand in its body: nothing changes it while it is made."""
    for decorator in cls.node.decorator_list:
        path = path_of(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
        if _module_qualname(module_name, cls, path) not in _OF_CLASSES:
            return False
    for keyword in cls.node.keywords:
        if (
            keyword.arg != "metaclass"
            or _module_qualname(module_name, cls, path_of(keyword.value) or "") not in _PLAIN_METACLASSES
        ):
            return False
    return not _CHANGES_INSTANCES & cls.methods.keys()


def _module_qualname(module_name: ModuleName, cls: Class, path: str) -> str:
    root, _, rest = path.partition(".")
    only = module_name(cls.module, root, 2).single
    return f"{only.qualname}.{rest}".rstrip(".") if isinstance(only, External) else ""
