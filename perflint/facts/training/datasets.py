"""The code that makes samples: which functions run once per item of a dataset, and what is the same for all items."""

from __future__ import annotations

import ast
import re
from typing import Final

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.guards import is_guarded
from perflint.facts.dataflow.latches import is_behind_kept
from perflint.facts.dataflow.same_value import names_behind
from perflint.facts.facts import Facts
from perflint.facts.training.kept_samples import is_kept_by_key
from perflint.facts.values import classes
from perflint.facts.values.arguments import argument
from perflint.facts.values.bound_arguments import given
from perflint.facts.values.call_sites import CallSite
from perflint.facts.values.decorators import memoises
from perflint.facts.values.values import Alternative, ClassRef, External, Sequence
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import words

DATASET_BASES: Final = words(
    """
    torch.utils.data.Dataset torch.utils.data.IterableDataset torch.utils.data.dataset.Dataset
    torch.utils.data.dataset.IterableDataset torchvision.datasets.VisionDataset torchvision.datasets.ImageFolder
    torchvision.datasets.DatasetFolder torch_geometric.data.Dataset
    """
)
ITEM_METHODS: Final = frozenset(("__getitem__", "__getitems__"))
_ONCE: Final = frozenset(("__init__", "setup", "prepare_data", "main"))
REACH: Final = 2
"""How many calls away from `__getitem__` a function still counts as run for each item."""

_KEEPS_EQUAL: Final = words(
    """
    os.path.join os.path.abspath os.path.expanduser os.fspath pathlib.Path builtins.str builtins.open builtins.format io.open
    gzip.open
    """
)
"""Functions that give the same for the same arguments, as far as a file's path or its content goes."""


def runs_per_item(facts: Facts, scope: Scope, depth: int = REACH) -> bool:
    """Whether a function of the project runs for each item of a dataset: `__getitem__` of one, or what that calls."""
    if _is_item_method(facts, scope):
        return True
    if depth == 0 or scope.is_module or scope.name in _ONCE or scope.name.startswith("__"):
        return False
    if _is_kept_for_many(facts, scope):
        return False
    return any(runs_per_item(facts, site.scope, depth - 1) for site in _sites_each_time(facts, scope))


def runs_at_first(facts: Facts, scope: Scope, depth: int = REACH) -> bool:
    """Whether a function runs once for many items, which share what it gives.

    A decorator keeps that (`lru_cache`), or all who call it look first whether it was done, or run once for many items, too.
    """
    if _is_kept_for_many(facts, scope):
        return True
    if depth == 0 or scope.name.startswith("__") or not facts.inference.callers.sites(scope).sites:
        return False  # a retry in a handler is no look: `__getitem__` runs all the same
    return all(runs_at_first(facts, site.scope, depth - 1) for site in _sites_each_time(facts, scope))


_BOUNDED = re.compile(r"lru_cache(?!\((?:maxsize=)?None)")


def _is_kept_for_many(facts: Facts, scope: Scope) -> bool:
    """Whether a decorator keeps what a function gives, and not for a few items alone: `lru_cache` of their numbers."""
    if not memoises(facts.inference.module_name, scope):
        return False
    if not any(_BOUNDED.search(ast.unparse(decorator)) for decorator in scope.decorators):
        return True
    sites = (site for site in facts.inference.callers.sites(scope).sites if _is_item_method(facts, site.scope))
    return not any(_gets_number(site) for site in sites)


def _gets_number(site: CallSite) -> bool:
    number = site.scope.parameters[1].arg if len(site.scope.parameters) > 1 else ""
    handed = (*site.node.args, *(keyword.value for keyword in site.node.keywords))
    return any(isinstance(node, ast.Name) and node.id == number for node in handed)


def _sites_each_time(facts: Facts, scope: Scope) -> list[CallSite]:
    """The calls of a function but for those behind a look whether it was done: `if self.rows is None: self.load()`."""
    return [site for site in facts.inference.callers.sites(scope).sites if not _is_behind_look(site)]


def _is_behind_look(site: CallSite) -> bool:
    flow, node = flow_of(site.scope), site.node
    return is_guarded(flow, node) or is_behind_kept(flow, node) or is_kept_by_key(flow, node)


def _is_item_method(facts: Facts, scope: Scope) -> bool:
    if scope.name not in ITEM_METHODS or scope.owner is None:
        return False
    return classes.derives_from(facts.inference, scope.owner, DATASET_BASES)


def is_conditional(scope: Scope, node: ast.AST) -> bool:
    """Whether something decides if a node runs when its function does: a cache that is filled once, say."""
    flow = flow_of(scope)
    if any(block.kind in ("then", "else", "handler", "operand", "case") for block in flow.block[node].ancestry()):
        return True
    return is_behind_kept(flow, node)


def same_for_all_items(facts: Facts, scope: Scope, node: ast.expr, depth: int = REACH) -> bool:
    """Whether an expression in code that runs per item gives the same for every item; False when that is not known.

    It is made of constants, of variables of the module and of attributes of the dataset that nothing assigns per item; an
    argument of a helper is the same if all its call sites pass such an expression.
    """
    match node:
        case ast.Constant():
            return True
        case ast.Name() | ast.Attribute() if _is_moved_in(flow_of(scope), node):
            return False
        case ast.Name():
            return _is_same_name(facts, scope, node, depth)
        case ast.Attribute(value=value):
            return _is_kept(facts, scope, node) and same_for_all_items(facts, scope, value, depth)
        case ast.JoinedStr(values=parts):
            return all(same_for_all_items(facts, scope, part, depth) for part in parts)
        case ast.FormattedValue(value=value):
            return same_for_all_items(facts, scope, value, depth)
        case ast.BinOp(left=left, right=right):
            return same_for_all_items(facts, scope, left, depth) and same_for_all_items(facts, scope, right, depth)
        case ast.Subscript(value=value, slice=ast.Constant()):
            return same_for_all_items(facts, scope, value, depth)
        case ast.Call(func=func, args=args, keywords=keywords):
            known = facts.inference.value(scope, func).must(lambda a: isinstance(a, External) and a.qualname in _KEEPS_EQUAL)
            given = [*args, *(k.value for k in keywords)]
            return known and all(same_for_all_items(facts, scope, part, depth) for part in given)
    return False


def depends_on_item(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression is computed from what differs between items: their number, or an argument that does."""
    flow = flow_of(scope)
    behind = names_behind(flow, *(n.id for n in ast.walk(node) if isinstance(n, ast.Name)))
    taken = (d for name in behind for d in flow.definitions_of(name) if d.kind == "parameter")
    return any(not _is_same_argument(facts, scope, definition.name, REACH) for definition in taken)


def _is_moved_in(flow: Flow, node: ast.expr) -> bool:
    """Whether a function moves to a place in an open file, `file.seek(self.starts[index])`: what is read there differs."""
    calls = (c for c in flow.calls_named.get("seek", ()) if not all(isinstance(a, ast.Constant) for a in c.args))
    return any(path_of(call.func) == f"{path_of(node)}.seek" for call in calls)


def _is_kept(facts: Facts, scope: Scope, node: ast.Attribute) -> bool:
    """Whether no code that runs per item assigns an attribute."""
    flow = flow_of(scope)
    if flow.reaching.get(node) or flow.definitions_of(path_of(node) or ""):
        return False
    assigning = scope.owner.methods_assigning(node.attr) if scope.owner else []
    per_item = [method for method in assigning if method.name in ITEM_METHODS or runs_per_item(facts, method)]
    return not any(isinstance(s, ast.Attribute) and s.attr == node.attr for m in per_item for s in flow_of(m).stores)


def _is_same_name(facts: Facts, scope: Scope, node: ast.Name, depth: int) -> bool:
    definitions = flow_of(scope).reaching.get(node, frozenset())
    return all(_binds_same(facts, scope, definition, depth) for definition in definitions)


def _binds_same(facts: Facts, scope: Scope, definition: Definition, depth: int) -> bool:
    if definition.kind == "parameter":
        return _is_same_argument(facts, scope, definition.name, depth)
    if definition.kind == "assign" and definition.value is not None and not definition.index:
        return same_for_all_items(facts, scope, definition.value, depth)
    if definition.kind == "with" and definition.value is not None:
        return same_for_all_items(facts, scope, definition.value, depth)
    return definition.kind == "import"


def _is_same_argument(facts: Facts, scope: Scope, name: str, depth: int) -> bool:
    """Whether a parameter gets the same for every item: the dataset itself, or what all call sites agree in."""
    names = [parameter.arg for parameter in scope.parameters]
    if scope.owner is not None and names[:1] == [name] and not any(path_of(d) == "staticmethod" for d in scope.decorators):
        return True
    if _is_item_method(facts, scope) or depth == 0 or name not in names:
        return False
    found = facts.inference.callers.sites(scope)
    bound = scope.owner is not None
    for site in found.sites:
        given = argument(site.node, names.index(name) - bound, name)
        if given is None or not same_for_all_items(facts, site.scope, given, depth - 1):
            return False
    return found.complete and bool(found.sites)


_PARSES_ALL = frozenset(("read_csv", "read_table"))
"""Readers of text, which parse all lines, whichever are asked for."""


def reads_for_item(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether what a call reads of a file is for one item: a part or a member that depends on it, or there is but one item."""
    if _holds_one_item(scope) or _takes_members(facts, scope, call):
        return True
    asked = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    return last_name(call.func) not in _PARSES_ALL and any(depends_on_item(facts, scope, part) for part in asked)


def _takes_members(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """`with np.load(path) as arrays: arrays[self.names[index]]`: of an archive, only members that are asked for are read.

    An array is no context manager, so what `with` opens is an archive; else the name of its file has to say so.
    """
    if not facts.inference.value(scope, call.func).must(lambda a: a == External("numpy.load")):
        return False
    flow = flow_of(scope)
    opened = [definition for definition in flow.definitions if definition.value is call]
    entered = any(definition.kind == "with" for definition in opened)
    if not entered and not any("npz" in ast.unparse(path).lower() for path in call.args[:1]):
        return False
    uses = [use for definition in opened for use in flow.uses[definition]] or [call]
    parents = (flow.parent.get(use) for use in uses)
    members = [parent.slice for parent in parents if isinstance(parent, ast.Subscript) and parent.slice not in uses]
    return bool(members) and all(depends_on_item(facts, scope, member) for member in members)


def _holds_one_item(scope: Scope) -> bool:
    """Whether the dataset of a method has one item, which is made once in an epoch."""
    counter = scope.owner.methods.get("__len__") if scope.owner is not None else None
    given = [statement.value for statement in flow_of(counter).returns] if counter is not None else []
    return bool(given) and all(isinstance(value, ast.Constant) and value.value == 1 for value in given)


_LIMITS = re.compile(r"max_(?:items|samples|examples|images)$|limit$")
"""How parameters of datasets are called that say how many samples there are at most."""


def written_samples(facts: Facts, scope: Scope, node: ast.expr, depth: int = REACH) -> int | None:
    """How many samples a dataset has if it is made of a list that is written out, and has as many, or is told how many."""
    node = _bound_to(scope, node, depth)
    if isinstance(node, ast.Name) and depth:
        return _samples_of_parameter(facts, scope, node, depth - 1)
    if not isinstance(node, ast.Call):
        return None
    callee = facts.inference.value(scope, node.func).alternatives
    made = next(iter(callee)) if len(callee) == 1 else None
    if isinstance(made, External) and made.qualname.rpartition(".")[2] == "Subset" and divides(made):
        return _written_length(facts, scope, argument(node, 1, "indices"))
    maker = classes.find_method(facts.inference, made.cls, "__init__") if isinstance(made, ClassRef) else None
    counter = classes.find_method(facts.inference, made.cls, "__len__") if isinstance(made, ClassRef) else None
    if maker is None or counter is None:
        return None
    limits = (given(maker, node, p.arg) for p in maker.parameters if _LIMITS.match(p.arg))
    limit = next((limit for limit in limits if limit is not None), None)
    if limit is not None:
        return _number(facts, scope, limit)
    match [returned.value for returned in flow_of(counter).returns]:
        case [ast.Attribute() as held]:
            kept = _kept(maker, held)
            count = given(maker, node, kept.id) if kept is not None else None
            return _number(facts, scope, count) if count is not None else None
        case [ast.Call(func=ast.Name(id="len"), args=[ast.Attribute() as held])]:
            kept = _kept(maker, held)
            if kept is not None:
                return _written_length(facts, scope, given(maker, node, kept.id))
            stored = _stored(maker, held)
            return _cut(facts, maker, stored) if stored is not None else None
    return None


def _samples_of_parameter(facts: Facts, scope: Scope, name: ast.Name, depth: int) -> int | None:
    """How many samples the largest dataset has that a function is given by the calls in sight."""
    if any(definition.kind != "parameter" for definition in flow_of(scope).reaching.get(name, ())):
        return None
    handed = [(site.scope, given(scope, site.node, name.id)) for site in facts.inference.callers.sites(scope).sites]
    counts = [written_samples(facts, maker, made, depth) if made is not None else None for maker, made in handed]
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _kept(maker: Scope, held: ast.Attribute) -> ast.Name | None:
    """The name that a constructor stores as an attribute, once: `self.paths = paths`."""
    stored = _stored(maker, held)
    return stored if isinstance(stored, ast.Name) else None


def _stored(maker: Scope, held: ast.Attribute) -> ast.expr | None:
    """What a constructor stores as an attribute, once."""
    stored = [d.value for d in flow_of(maker).definitions if d.name == path_of(held)]
    return stored[0] if len(stored) == 1 else None


def drawn_samples(facts: Facts, scope: Scope, sampler: ast.expr, depth: int = REACH) -> int | None:
    """How many samples `SubsetRandomSampler(indices)` draws, if that is written out."""
    match _bound_to(scope, sampler, depth):
        case ast.Call(func=called, args=[indices, *_]):
            made = facts.inference.value(scope, called).alternatives
            if made and all(isinstance(a, External) and a.qualname.endswith(".SubsetRandomSampler") for a in made):
                return _count(facts, scope, indices, depth)
    return None


def _count(facts: Facts, scope: Scope, indices: ast.expr, depth: int) -> int | None:
    """The number of indices: those that are drawn or cut out, `np.random.choice(len(data), 100)`, `order[:100]`."""
    match _bound_to(scope, indices, depth):
        case ast.Call(func=ast.Attribute(attr="choice"), args=[_, number, *_]):
            return _number(facts, scope, number)
    return _written_length(facts, scope, indices) or None


def _number(facts: Facts, scope: Scope, node: ast.expr) -> int | None:
    """A number above 0 that is written out."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            factors = _number(facts, scope, left), _number(facts, scope, right)
            return factors[0] * factors[1] if factors[0] is not None and factors[1] is not None else None
    count = facts.inference.value(scope, node).literal
    return count if type(count) is int and count > 0 else None


def _bound_to(scope: Scope, node: ast.expr, depth: int) -> ast.expr:
    """What a name is bound to by the only assignment that reaches it, through other names."""
    found = [d.value for d in flow_of(scope).reaching.get(node, ()) if d.kind == "assign" and not d.index]
    return _bound_to(scope, found[0], depth - 1) if len(found) == 1 and found[0] is not None and depth else node


def _cut(facts: Facts, scope: Scope, node: ast.expr) -> int | None:
    """How many elements a slice has at most, where its ends are written out: `paths[:16]`, `paths[-16:]`."""
    match node:
        case ast.Subscript(slice=ast.Slice(lower=None, upper=ast.expr() as end, step=None)):
            return _number(facts, scope, end)
        case ast.Subscript(slice=ast.Slice(lower=ast.UnaryOp(op=ast.USub(), operand=last), upper=None, step=None)):
            return _number(facts, scope, last)
    return None


def _written_length(facts: Facts, scope: Scope, node: ast.expr | None) -> int | None:
    if node is not None:
        node = _bound_to(scope, node, REACH)
        cut = _cut(facts, scope, node)
        if cut is not None:
            return cut
    match node:
        case ast.Call(func=ast.Name(id="list" | "range"), args=[inner]):
            count = facts.inference.value(scope, inner).literal
            return count if type(count) is int else _written_length(facts, scope, inner)
        case ast.expr():
            held = facts.inference.value(scope, node)
            lengths = {len(a.items) if isinstance(a, Sequence) else None for a in held.alternatives}
            return next(iter(lengths)) if len(lengths) == 1 and not held.open else None
    return None


DIVIDING: Final = words("torch.utils.data.Subset torch.utils.data.ConcatDataset torch.utils.data.dataset.Subset")
"""Datasets that consist of others."""


def divides(callee: Alternative) -> bool:
    """Whether a call divides a dataset, or joins several."""
    return isinstance(callee, External) and callee.qualname in DIVIDING | {"torch.utils.data.random_split"}
