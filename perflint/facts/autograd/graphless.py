"""What code does otherwise when its tensors belong to no graph, without asking: writes in place, arrays, texts of tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perflint.facts.autograd.graphs_of_parameters import computes_graph, is_parameter, may_record
from perflint.facts.autograd.without_graph import MODULE_METHODS
from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.uses import is_shown_whole
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.operations.operations import Memory, Result
from perflint.facts.proofs.fears import CATCHES, feared
from perflint.facts.values import classes
from perflint.facts.values.values import (
    Alternative,
    External,
    FunctionRef,
    Instance,
    Literal,
    Number,
    Object,
    Tensor,
    Text,
    Value,
    held_by,
)
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, made, words

_SHOWN_WHOLE = made(r"%[-#0 +\d.*]*[rsa]")
_RAISES_FOR_GRAPHS = any_layout(rb"\. numpy \(|\b(?:np|numpy) \.|\bresize_|\bset_ \(|\bdeepcopy\b")
_CATCHES = made(rb"\bexcept\b")
_SHOWS = words("print str repr ascii format")
_ARRAYS = words("numpy __array__ array asarray asanyarray ascontiguousarray from_dlpack")
_COPIES = words(
    "copy.deepcopy copy.copy pickle.dumps pickle.dump "
    "torch.from_dlpack torch.utils.dlpack.from_dlpack torch.utils.dlpack.to_dlpack torch.to_dlpack"
)
_TEXTS = words("__repr__ __str__ __format__")
_KEEPING_NUMBERS = words("requires_grad_ detach_ share_memory_ unscale_")
_IN_PLACE = made(r"__(?:setitem|i(?:add|sub|mul|matmul|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift))__")
_MADE = (ast.BinOp, ast.Compare, ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp, ast.Constant)


def differs_without_graph(facts: Facts, scope: Scope, nodes: Iterable[ast.AST]) -> str | None:
    """Why some code may do something else when autograd is off, though it asks nobody; None when it does not.

    It shows a tensor, with its `grad_fn`; copies it or makes an array of it, which a graph forbids; or writes in place to
    what it has not made itself: a parameter, whose graph forbids it, or a buffer that would belong to the graph.
    """
    if (raises := _RAISES_FOR_GRAPHS.search(scope.text)) and _CATCHES.search(scope.text):
        name = raises[0].decode().strip(". (")
        return f"calls `{name}`, which raises for a tensor of a graph, and may catch that"
    look = _Look(facts, scope)
    return next(filter(None, map(look.at, nodes)), None)


class _Look:
    def __init__(self, facts: Facts, scope: Scope) -> None:
        self.facts, self.scope, self.flow = facts, scope, flow_of(scope)

    def value(self, node: ast.expr) -> Value:
        return self.facts.inference.value(self.scope, node)

    def records(self, node: ast.expr, scalars: bool = True) -> bool:
        return computes_graph(self.facts, self.scope, node, scalars)

    def at(self, node: ast.AST) -> str | None:
        if self.shows(node):
            return "shows a tensor, and `grad_fn=` with it"
        if isinstance(node, ast.Call) and self.copies(node):
            return f"calls `{ast.unparse(node.func)}`, which raises for a tensor of a graph"
        return next(
            (
                f"writes to `{ast.unparse(written)}` in place, which it has not made"
                for written in self.written(node)
                if not _is_made_here(self.facts, self.scope, written, set())
            ),
            None,
        )

    def shows(self, node: ast.AST) -> bool:
        """Whether a text is made of a tensor that may belong to a graph; a formatted scalar is a number only."""
        match node:
            case ast.Call(func=func, args=args) if self.value(func).may(_is_of_pandas):
                return any(map(self.records, args))  # a table shows its items
            case ast.Call(func=func, args=args, keywords=keywords) if (path_of(func) or "") in _SHOWS:
                shown = [*args, *(k.value for k in keywords)]
                return any(self.records(given) or self.value(given).may(self.shows_parts) for given in shown)
            case ast.Name(id=name, ctx=ast.Load()) if name in _SHOWS and name not in self.flow.defined:
                parent = self.flow.parent.get(node)
                return isinstance(parent, ast.Call) and parent.func is not node and path_of(parent.func) != "isinstance"
            case ast.FormattedValue(value=value) if self.value(value).may(self.shows_parts):
                return True
            case ast.FormattedValue(value=value, conversion=conversion):
                return is_shown_whole(node) and self.records(value, scalars=conversion != -1)
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                text = self.value(left)
                if not text.may(lambda a: isinstance(a, Text) or (isinstance(a, Literal) and isinstance(a.value, str))):
                    return False
                literal = text.literal
                return (not isinstance(literal, str) or bool(_SHOWN_WHOLE.search(literal))) and self.records(right)
            case ast.Call(func=ast.Attribute(value=text_node, attr="format"), args=args, keywords=keywords):
                whole = "!" in ast.unparse(text_node)
                return any(self.records(given, scalars=whole) for given in (*args, *(k.value for k in keywords)))
        return False

    def shows_parts(self, alternative: object) -> bool:
        """Whether the text of an object may be made of its parts: a dataclass, or a class that says itself how it is shown."""
        if not isinstance(alternative, Instance) or classes.is_module(self.facts.inference, alternative.cls):
            return False
        return any(
            isinstance(a, str) or a.node.decorator_list or _TEXTS & a.methods.keys()
            for a in classes.ancestors(self.facts.inference, alternative.cls)
        )

    def copies(self, call: ast.Call) -> bool:
        """Whether a call makes an array of a tensor that may belong to a graph, or copies it with its graph."""
        callee = self.value(call.func)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("numpy", "__array__", "__dlpack__"):
            base = call.func.value
            dropped = isinstance(base, ast.Attribute) and base.attr == "data"
            dropped |= isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr == "detach"
            return not dropped and self.records(base)
        names = [a.qualname for a in callee.alternatives if isinstance(a, (External, Object))]
        if not any(n in _COPIES or (n.startswith("numpy.") and n.rpartition(".")[2] in _ARRAYS) for n in names):
            return False
        return any(map(self.records, call.args))

    def written(self, node: ast.AST) -> list[ast.expr]:
        """The tensors that a node writes to in place, as far as a graph may take part."""
        match node:
            case ast.AugAssign(target=target, value=value):
                counts = self.value(value).must_be(Number, Literal, Text) and self.may_count(target)
                return [target] if self.matters(target, [value], counts) else []
            case ast.Subscript(value=container, slice=key, ctx=ast.Store()):
                held = self.value(container)
                counts = may_record(held, depth=0) or self.is_of_network(container) or self.may_take(node, held)
                is_part = isinstance(container, ast.Attribute) and not held.alternatives and not self.is_key(key)
                return [container] if counts or (is_part and not self.may_count(node)) else []
            case ast.Call(func=func, args=args, keywords=keywords):
                written = [k.value for k in keywords if k.arg == "out"]
                name = func.attr if isinstance(func, ast.Attribute) else path_of(func) or ""
                if name.startswith("_foreach"):
                    written += [part for given in args[:1] for part in getattr(given, "elts", [given])]
                elif isinstance(func, ast.Attribute) and _IN_PLACE.fullmatch(name):
                    written.append(func.value)
                elif name.endswith("_") and not name.endswith("__") and name not in _KEEPING_NUMBERS:
                    callee = self.value(func)
                    if callee.may_be(External):
                        if not callee.must(lambda a: isinstance(a, External) and a.qualname.startswith("torch.nn.init.")):
                            written += args[:1]
                    elif isinstance(func, ast.Attribute) and not callee.may_be(FunctionRef):
                        written.append(func.value)
                return [w for w in written if self.matters(w, args)]
        return []

    def may_take(self, item: ast.Subscript, held: Value) -> bool:
        """Whether what may be a tensor gets an item of a graph: a buffer, say, which belongs to the graph then."""
        if not (held.may_be(Tensor) or (held.open and not held.alternatives)):
            return False
        if self.is_key(item.slice):
            return False
        statement = self.flow.parent.get(item)
        stored = [d.value for d in self.flow.definitions_at(item) if d.value is not None and not d.index]
        if not stored and isinstance(statement, ast.Assign):
            stored = [statement.value]
        return any(may_record(self.value(value)) for value in stored)

    def is_key(self, key: ast.expr) -> bool:
        """Whether what has such an item is a dict."""
        return self.value(key).must(lambda a: isinstance(a, Text) or (isinstance(a, Literal) and isinstance(a.value, str)))

    def matters(self, target: ast.expr, operands: list[ast.expr], counts: bool = False) -> bool:
        """Whether a tensor that is written to, or what it is computed with, may belong to a graph.

        counts: the target may be a number if it is not known.
        """
        value = self.value(target)
        if value.may(is_parameter) or self.is_of_network(target) or (value.open and not value.alternatives and not counts):
            return True
        return any(may_record(v) for v in (value, *map(self.value, operands)))

    def may_count(self, target: ast.expr) -> bool:
        """Whether something that grows by a number is one, or raises where nobody handles it: no parameter is written to."""
        owner = target
        while isinstance(owner, ast.Subscript):
            owner = owner.value
        if isinstance(owner, ast.Attribute):
            base = self.value(owner.value)
            given = self.scope.parameters[:1] if self.scope.owner is not None else []
            is_known = path_of(owner.value) in [own.arg for own in given] or (bool(base.alternatives) and not base.open)
        else:
            is_known = owner is not target and self.is_closed(owner)
        if is_known or isinstance(target, ast.Name):
            return is_known
        return not any(feared(self.facts.project, self.scope.module.source.path, CATCHES))

    def is_closed(self, owner: ast.expr) -> bool:
        """Whether it is known what a container holds; a `defaultdict` makes what it lacks by itself."""
        flow = self.flow
        values = [d.value for d in flow.reaching.get(owner, ())] if isinstance(owner, ast.Name) else [owner]
        if values and all(isinstance(v, ast.Call) and (path_of(v.func) or "").endswith("defaultdict") for v in values):
            return True
        value = self.value(owner)
        return bool(value.alternatives) and not value.open and not value.may(_holds_unknown)

    def is_of_network(self, node: ast.expr) -> bool:
        """Whether something that is not known is an attribute of a layer of torch: a weight, say."""
        if not isinstance(node, ast.Attribute) or not self.value(node).open:
            return False
        return self.value(node.value).may(lambda a: isinstance(a, Object) and a.qualname.startswith("torch.nn."))


def _is_of_pandas(alternative: object) -> bool:
    return isinstance(alternative, External) and alternative.qualname.startswith("pandas.")


def _holds_unknown(alternative: Alternative) -> bool:
    return any(part.open for part in held_by(alternative))


def _is_made_here(facts: Facts, scope: Scope, node: ast.expr, seen: set[Definition]) -> bool:
    """Whether a function has computed a tensor itself, and not as one of several views."""

    def inner(part: ast.expr) -> bool:
        return _is_made_here(facts, scope, part, seen)

    match node:
        case ast.Name(id=name):
            flow = flow_of(scope)
            definitions = flow.reaching.get(node, frozenset())
            if not definitions or name in flow.outer_names or name in flow.inner_names:
                return False
            new = definitions - seen
            seen |= new
            return all(
                not d.index
                and (
                    (d.kind in ("assign", "walrus") and d.value is not None and inner(d.value))
                    or (d.kind == "augmented" and isinstance(d.node, ast.expr) and inner(d.node))
                )
                for d in new
            )
        case ast.Attribute(value=base, attr=name):
            part = operations.attribute(name)
            return name == "data" or (part is not None and part.memory is Memory.VIEW and inner(base))
        case ast.Subscript(value=base):
            return inner(base)
        case ast.IfExp(body=body, orelse=orelse):
            return inner(body) and inner(orelse)
        case ast.Call(func=func, args=args):
            name = func.attr if isinstance(func, ast.Attribute) else path_of(func) or ""
            callee = facts.inference.value(scope, func)
            only = callee.single
            outside = isinstance(only, External)
            row = operations.function(only.qualname) if isinstance(only, External) else operations.method(name)
            if (row is not None and row.result is Result.SEVERAL) or callee.may_be(FunctionRef):
                return False
            shares = outside if row is None else row.shares_memory
            if name in MODULE_METHODS:
                return False  # a buffer or a parameter, or a dict of them
            if name == "detach" or not (shares or name.endswith("_")):
                return True
            if isinstance(func, ast.Attribute) and not callee.may_be(External):
                return inner(func.value)
            return bool(args) and inner(args[0])
        case ast.UnaryOp(op=op):
            return not isinstance(op, ast.UAdd)
    return isinstance(node, _MADE)
