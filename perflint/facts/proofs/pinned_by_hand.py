"""Whether a program pins host memory by hand, perhaps that of its batches, and may fill it again while it is being copied.

A loader pins new memory for each batch, and what is copied from other memory is staged first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations.api_tables import LOADER_CLASSES
from perflint.facts.values.values import Batch, ClassRef, External, FunctionRef, Mapping, Tensor
from perflint.rule.obligations import Kind, Obligation
from perflint.source.renaming import renamed
from perflint.source.scopes import in_any_scope
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, words

_NAME: Final = "pin_memory"
_SPREADS: Final = any_layout(
    rb"\b(?:torch \. \w+|new_\w+|(?:empty|zeros|ones|full|rand\w*|tensor)(?:_like|_strided)?)"
    rb" \((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\*\*"
)
"""A factory may get the word from a dict, of this file or of another one."""
_ALLOCATES: Final = re.compile(r"HostRegister|Host_?Alloc|alloc_pinned|^pinned_|_pinned$|page_?locked")
"""Functions of CUDA's own interfaces, of CuPy, Numba and PyCUDA."""
_ALLOCATORS: Final = any_layout(rb"HostRegister|Host_?Alloc|alloc_pinned|pinned_|_pinned\b|page_?locked")
_GATE: Final = any_layout(rb"pin_memory|HostRegister|Host_?Alloc|alloc_pinned|pinned_|_pinned\b|page_?locked")
_LOOKED_UP: Final = words("get pop setdefault hasattr add_argument getboolean")
"""What takes the word as a key, or as the name of an option."""


def pinned_by_hand(facts: Facts, path: str) -> Obligation | None:
    """What stands against copies that nobody waits for: memory that the program may have pinned itself."""
    project = facts.project
    if not project.program_may_hold(path, _GATE):
        return None
    found = Obligation(
        Kind.MUTATION,
        "the program pins memory by hand, perhaps that of its batches, and may fill it again while it is being copied",
    )
    members = project.members(path)
    if members is None:
        return found
    files = (file for file in members if project.holds(file, _GATE) or project.holds(file, _SPREADS))
    return found if any(facts.pins.get(file, partial(_pins_in, facts, file)) for file in files) else None


def _pins_in(facts: Facts, file: str) -> bool:
    return in_any_scope(facts.project.module(file), partial(_in_scope, facts))


def _in_scope(facts: Facts, scope: Scope) -> bool:
    source = scope.module.source
    others = renamed(source, (_NAME,))
    allocates = _ALLOCATORS.search(source.body) is not None
    if not (allocates or others or _NAME.encode() in scope.text or _SPREADS.search(scope.text)):
        return False
    flow = flow_of(scope)
    return (
        any(_pins_as_function(facts, scope, mention) for name in (_NAME, *others) for mention in flow.mentions.get(name, ()))
        or any(_pins_by_text(facts, scope, text) for text in _texts(flow, scope))
        or any(_pins_when_called(facts, scope, call, allocates) for call in flow.calls)
        or any(_in_scope(facts, inner) for inner in flow.parts())
    )


def _pins_as_function(facts: Facts, scope: Scope, mention: ast.expr) -> bool:
    """Whether a method of that name, or a function, is called or handed on; a setting of that name may be."""
    around = flow_of(scope).parent.get(mention)
    if isinstance(around, ast.Call) and around.func is mention:
        return True
    if not isinstance(mention, ast.Attribute) or not isinstance(mention.ctx, ast.Load):
        return False
    return _is_of_tensors(facts, scope, mention.value) and not _is_setting(flow_of(scope), mention)


def _is_of_tensors(facts: Facts, scope: Scope, owner: ast.expr) -> bool:
    """Whether something may be a tensor, or the class of tensors."""
    value = facts.inference.value(scope, owner)
    return value.open or value.may(lambda a: isinstance(a, (Tensor, Batch, ClassRef, External)))


def _is_setting(flow: Flow, node: ast.expr) -> bool:
    """Whether an expression only says whether something shall be pinned: a keyword of that name, a test."""
    while True:
        match flow.parent.get(node):
            case ast.keyword(arg=name):
                return name == _NAME
            case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test) if test is node:
                return True
            case ast.UnaryOp() | ast.Compare() | ast.FormattedValue():
                return True
            case ast.IfExp(test=test) if test is node:
                return True
            case (ast.BoolOp() | ast.IfExp()) as around:
                node = around
            case _:
                return False


def _texts(flow: Flow, scope: Scope) -> Iterator[ast.Constant]:
    if f'"{_NAME}"'.encode() in scope.text or f"'{_NAME}'".encode() in scope.text:
        yield from (node for node in flow.order if isinstance(node, ast.Constant) and node.value == _NAME)


def _pins_by_text(facts: Facts, scope: Scope, text: ast.Constant) -> bool:
    """Whether the word gets the method of a tensor: `getattr(x, "pin_memory")()`, `methodcaller("pin_memory")`."""
    flow = flow_of(scope)
    call = flow.parent.get(text)
    if not isinstance(call, ast.Call) or call.func is text:
        return False
    value = facts.inference.value(scope, call.func)
    if value.must(lambda a: a == External("builtins.getattr")):
        around = flow.parent.get(call)
        if isinstance(around, ast.Call) and around.func is call:
            return True
        return _is_of_tensors(facts, scope, call.args[0]) and len(call.args) == 2 and not _is_setting(flow, call)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name not in _LOOKED_UP and value.may(lambda a: isinstance(a, External) and a.qualname.startswith("operator."))


def _pins_when_called(facts: Facts, scope: Scope, call: ast.Call, allocates: bool) -> bool:
    """Whether a call makes pinned memory: a factory that is told so, or a function that makes nothing else."""
    func = call.func
    if allocates:
        known = facts.inference.value(scope, func)
        names = [a.qualname.rpartition(".")[2] for a in known.alternatives if isinstance(a, External)]
        names += [func.attr] if isinstance(func, ast.Attribute) else [getattr(func, "id", "")]
        if any(map(_ALLOCATES.search, names)) and not known.may_be(FunctionRef, ClassRef):
            return True
    told = [k.value for k in call.keywords if k.arg == _NAME]
    if told and all(isinstance(value, ast.Constant) and not value.value for value in told):
        return False
    spread = [k.value for k in call.keywords if k.arg is None]
    if not told and all(_lacks_word(facts, scope, given) for given in spread):
        return False
    value = facts.inference.value(scope, func)
    if value.may(lambda a: a == External("functools.partial")) and call.args:
        value = facts.inference.value(scope, call.args[0])
    if told and value.open:
        return True
    return value.may(lambda a: isinstance(a, External) and _is_factory(a.qualname))


def _lacks_word(facts: Facts, scope: Scope, given: ast.expr) -> bool:
    """Whether a dict that is spread over a call holds other words alone."""
    return facts.inference.value(scope, given).must(
        lambda a: isinstance(a, Mapping) and all(key != _NAME for key, _ in a.items)
    )


def _is_factory(qualname: str) -> bool:
    """Whether a function makes tensors: what torch has, but for its loaders."""
    return qualname.startswith("torch.") and qualname not in LOADER_CLASSES and not qualname.startswith("torch.utils.data.")
