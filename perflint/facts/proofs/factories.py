"""Whether a factory of torch makes what it says, where it says: nothing replaces it, and no region gives it another device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.own_tensors import own_tensors
from perflint.facts.proofs.replaced import replaced
from perflint.facts.values.values import ClassRef, Device, External, FunctionRef, Instance, Object
from perflint.rule.obligations import Kind, Obligation
from perflint.source.scopes import every_scope
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words

_PLAIN: Final = (
    rb"(?:torch \. )?(?:no_grad|inference_mode|enable_grad|set_grad_enabled|autocast|amp \. autocast) \( [^()\n]*\) :"
)
_ENTERS: Final = any_layout(rb"^[\t\x20]*(?:async )?with\b(?! %b)|\. __enter__\b|\benter_context \(" % _PLAIN, re.M)
"""What may enter another region than the usual ones."""
_HARMLESS: Final = words(
    """
    builtins contextlib io os threading multiprocessing concurrent tempfile zipfile tarfile gzip bz2 lzma time warnings
    socket sqlite3 subprocess logging pathlib json pickle numpy pandas tqdm h5py PIL rasterio lmdb wandb mlflow tensorboardX
    matplotlib filelock decimal
    torch.amp torch.autocast torch.autograd torch.backends torch.cpu.amp torch.cuda torch.distributed torch.enable_grad
    torch.inference_mode torch.jit torch.multiprocessing torch.nn torch.no_grad torch.optim torch.profiler torch.random
    torch.set_grad_enabled torch.utils.checkpoint torch.utils.data torch.utils.tensorboard
    """
)
"""Packages, and parts of torch, whose managers leave alone where factories make tensors."""
_HARMLESS_METHODS: Final = words(
    """
    accumulate autocast join join_uneven_inputs local_main_process_first main_process_first no_sync profile
    split_between_processes
    """
)
"""Methods of wrappers and of accelerators that make such a manager; Fabric's `init_module` and `init_tensor` do not."""
_CALLERS: Final = 3


def changes_factories(facts: Facts, scope: Scope, node: ast.AST, *factories: str) -> Iterator[Obligation]:
    """What may make something else of calls of factories at `node`: of `torch.zeros`, by its name."""
    path = scope.module.source.path
    yield from own_tensors(facts, path)
    yield from replaced(facts, path, *factories)
    if not facts.project.program_may_hold(path, _ENTERS):
        return
    members = facts.project.members(path)
    if members is None:
        yield Obligation(Kind.PLAIN_TENSORS, "the program is too large to be looked through for regions with a device")
        return
    holders = [file for file in members if facts.project.holds(file, _ENTERS)]
    found = [obligation for file in holders for obligation in facts.regions.get(file, partial(_found, facts, file))]
    yield from found[:1]
    if found and _is_within(facts, scope, node, _CALLERS):
        yield Obligation(Kind.VALUE, "a region around it says on which device tensors are made")


def _found(facts: Facts, file: str) -> list[Obligation]:
    module = facts.project.module(file)
    if module is None:
        return []
    try:
        return [found for scope in every_scope(module) for found in _in_scope(facts, scope, file)][:1]
    except SyntaxProblem:
        return [Obligation(Kind.UNKNOWN_CODE, f"`{module.name}` cannot be parsed")]


def _in_scope(facts: Facts, scope: Scope, file: str) -> Iterator[Obligation]:
    if not _ENTERS.search(scope.text):
        return
    flow = flow_of(scope)
    for manager in filter(None, map(_entered, flow.order)):
        if not _leaves_factories(facts, scope, manager):
            words = f"`{ast.unparse(manager)}` in {scope.module.name} may be a device, on which tensors are made then"
            yield Obligation(Kind.PLAIN_TENSORS, words, file)
    for inner in flow.parts():
        yield from _in_scope(facts, inner, file)


def _entered(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.withitem(context_expr=manager):
            return manager
        case ast.Call(func=ast.Attribute(attr="enter_context" | "enter_async_context"), args=[manager]):
            return manager
        case ast.Attribute(value=manager, attr="__enter__"):
            return manager
    return None


def _leaves_factories(facts: Facts, scope: Scope, manager: ast.expr) -> bool:
    """Whether a region is known to leave alone where tensors are made; what the program's own do is looked at by itself."""
    value = facts.inference.value(scope, manager)
    if value.must(_is_plain_manager):
        return True
    if value.may_be(Device) or not isinstance(manager, ast.Call):
        return False
    if facts.inference.value(scope, manager.func).must(_makes_plain_manager):
        return True
    return isinstance(manager.func, ast.Attribute) and _is_plain_method(facts, scope, manager.func)


def _is_plain_manager(value: object) -> bool:
    return isinstance(value, Instance) or (isinstance(value, (Object, External)) and _is_harmless(value.qualname))


def _makes_plain_manager(callee: object) -> bool:
    if isinstance(callee, External):
        return _is_harmless(callee.qualname)
    return isinstance(callee, ClassRef) or (isinstance(callee, FunctionRef) and bool(callee.scope.decorators))


def _is_harmless(qualname: str) -> bool:
    parts = qualname.split(".")
    return any(".".join(parts[:length]) in _HARMLESS for length in range(1, len(parts) + 1))


def _is_plain_method(facts: Facts, scope: Scope, func: ast.Attribute) -> bool:
    """Whether a method of an object from outside of the project makes the manager: `accelerator.accumulate(model)`."""
    owner = facts.inference.value(scope, func.value)
    return owner.must(
        lambda a: isinstance(a, Object) and (func.attr in _HARMLESS_METHODS or a.qualname.partition(".")[0] in _HARMLESS)
    )


def _is_within(facts: Facts, scope: Scope, node: ast.AST, depth: int) -> bool:
    """Whether a node, or a call of the function that it stands in, is within a region that a device begins."""
    for block in flow_of(scope).block[node].ancestry():
        managers = [item.context_expr for item in block.node.items] if isinstance(block.node, (ast.With, ast.AsyncWith)) else []
        if any(facts.inference.value(scope, manager).may_be(Device) for manager in managers):
            return True
    sites = facts.inference.callers.sites(scope).sites if depth and not scope.is_module else ()
    return any(_is_within(facts, site.scope, site.node, depth - 1) for site in sites)
