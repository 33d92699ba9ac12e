"""Whether anybody could tell that tensors which were added up or kept in a list have no graph, or are other objects.

The proof goes by what is known to look at nothing but numbers and lengths. Whatever else gets such a tensor may print its
`grad_fn`, compare it by identity, look for an attribute that somebody set, or rely on the error that a graph raises.
"""

from __future__ import annotations

import ast
import string
from collections.abc import Callable, Iterator

from perflint.facts.dataflow.definitions import Definition
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.uses import Step, Walk, Way
from perflint.facts.facts import Facts
from perflint.facts.values.values import External, Literal, Number, Tensor
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope
from perflint.source.texts import brief
from perflint.source.words import made, words

_READ = words("item tolist detach")
_COMPUTED = words("mean sum cpu float double to clone sqrt exp log abs")
_BUILTINS = words("builtins.sum builtins.max builtins.min")
_JOINED = words("torch.stack torch.cat")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_CONVERSION = made(r"%[-+ #0]*[0-9]*(?:\.[0-9]+)?[dfFeEgG]|%%")


def graph_noticed(facts: Facts, scope: Scope, name: str, added: ast.Name) -> Iterator[Obligation]:
    """What may notice that the tensors lose their graph that a variable of a function takes.

    name: the variable, a total or a list. added: the tensor where it is added or appended.
    """
    starts: list[ast.AST | Definition] = []
    flow = flow_of(scope)
    for definition in flow.definitions_of(name):
        if definition.kind not in ("assign", "augmented") or definition.index:
            yield Obligation(Kind.RETENTION, f"`{name}` may come from elsewhere")
            return
        starts.append(definition)
        if definition.value is not None and definition.kind == "assign" and not isinstance(definition.value, ast.Constant):
            starts.append(definition.value)  # it may have other names
    yield from _Kept(facts, scope, added).ends(*starts, *_later_uses(flow, added))


def _later_uses(flow: Flow, added: ast.Name) -> list[ast.expr]:
    """Where the tensor may get other memory after it was added: what is kept would follow it, and a detached one not."""
    uses = [use for definition in flow.reaching.get(added, ()) for use in flow.uses[definition] if use is not added]
    return [use for use in uses if flow.order[use] > flow.order[added] or isinstance(flow.parent.get(use), ast.Assign)]


class _Kept(Walk[Obligation]):
    def __init__(self, facts: Facts, scope: Scope, added: ast.Name) -> None:
        super().__init__(scope)
        self.facts, self.added = facts, added

    def judge(self, step: Step) -> Iterator[Obligation | ast.AST | Definition]:
        harmless = False
        match step.way, step.node:
            case ((Way.TESTED | Way.DROPPED | Way.DELETED), _):
                return
            case Way.METHOD, ast.Call(args=[given]) if step.name == "append":
                harmless = given is self.added or self._is_plain(given) or self._holds_added(given)
                yield from () if self._is_dropped(step.node) else [self._noticed(step)]
            case Way.METHOD, _ if step.name in _READ:
                return
            case Way.METHOD, _ if step.name in _COMPUTED:
                harmless = True
                yield from filter(None, [step.result])
            case Way.ARGUMENT, ast.Call(func=ast.Attribute(value=text, attr="format")):
                harmless = self._is_text(text, _formats_numbers)
            case Way.ARGUMENT, ast.Call(func=function) if not step.name:
                if self._is_called(function, "builtins.len"):
                    return
                harmless = self._is_called(function, *_BUILTINS, *_JOINED)
                yield from filter(None, [step.result])
            case Way.OPERAND, ast.BinOp(left=text, op=ast.Mod()) if text is not step.value:
                harmless = self._is_text(text, _shows_numbers)
            case Way.OPERAND, ast.BinOp(left, op, right) if isinstance(op, _ARITHMETIC):
                harmless = self._is_plain(right if left is step.value else left)
                yield from filter(None, [step.result])
            case Way.OPERAND, ast.UnaryOp():
                harmless = True
                yield from filter(None, [step.result])
            case Way.OPERAND, ast.AugAssign(target=ast.Name() as target, op=op) if isinstance(op, _ARITHMETIC):
                harmless = self._is_plain(target)
                yield from step.definitions
            case Way.CHANGED, ast.AugAssign(target=ast.Name(), op=op, value=value) if isinstance(op, _ARITHMETIC):
                harmless = self._holds_added(value) or self._is_plain(value)
                yield from step.definitions
            case Way.COMPARED, ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _ORDER):
                harmless = self._is_plain(right if left is step.value else left)
            case Way.FORMATTED, ast.FormattedValue(conversion=-1, format_spec=spec, value=value) if value is step.value:
                harmless = _is_written(spec) or self._is_single_number(value)
            case Way.BOUND, _:
                harmless = True
                yield from step.definitions
            case Way.ALIAS, _:
                harmless = True
                yield from filter(None, [step.result])
            case Way.ITEM, _:
                harmless = True
                yield from filter(None, [step.result])
            case Way.CONTAINED, ast.Tuple() | ast.List() | ast.ListComp() | ast.GeneratorExp():
                harmless = True
                yield from filter(None, [step.result])
            case Way.ITERATED, _:
                harmless = bool(step.definitions)
                yield from step.definitions
        if not harmless:
            yield self._noticed(step)

    def _noticed(self, step: Step) -> Obligation:
        return Obligation(Kind.GRADIENT, f"`{brief(step.node)}` may notice that the graph is gone")

    def _is_dropped(self, call: ast.AST) -> bool:
        return isinstance(self.flow.parent.get(call), ast.Expr)

    def _is_called(self, function: ast.expr, *names: str) -> bool:
        return self.facts.inference.value(self.scope, function).must(lambda a: isinstance(a, External) and a.qualname in names)

    def _is_plain(self, node: ast.expr) -> bool:
        """Whether an operand is a number or a tensor, whose operators are known, or made of the kept tensors."""
        if node in self.seen or node is self.added:
            return True
        return self.facts.inference.value(self.scope, node).must(
            lambda a: isinstance(a, (Number, Tensor)) or (isinstance(a, Literal) and isinstance(a.value, (int, float)))
        )

    def _holds_added(self, node: ast.expr) -> bool:
        """Whether an expression is the added tensor, or a multiple of it by a number or a tensor."""
        match node:
            case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
                return left is self.added and self._is_plain(right)
        return node is self.added

    def _is_text(self, node: ast.expr, shows: Callable[[str], bool]) -> bool:
        """Whether an expression is a text that is known, and shows what it is given in a certain way."""
        return self.facts.inference.value(self.scope, node).must(
            lambda a: isinstance(a, Literal) and isinstance(a.value, str) and shows(a.value)
        )

    def _is_single_number(self, node: ast.expr) -> bool:
        return self.facts.inference.value(self.scope, node).must(lambda a: isinstance(a, Tensor) and a.ndim == 0)


def _shows_numbers(text: str) -> bool:
    """Whether `text % values` makes numbers of all values: `%.4f`."""
    return "%" not in _CONVERSION.sub("", text)


def _formats_numbers(text: str) -> bool:
    """Whether `text.format(...)` has a format for each value: of a tensor with one number it then shows the number alone."""
    try:
        fields = [field for field in string.Formatter().parse(text) if field[1] is not None]
    except ValueError:
        return False
    return all(name.isalnum() or not name for _, name, _, _ in fields if name is not None) and all(
        spec and "{" not in spec and conversion is None for _, _, spec, conversion in fields
    )


def _is_written(spec: ast.expr | None) -> bool:
    """Whether a format is written out, and not empty: of a tensor with one number it then shows the number alone."""
    return isinstance(spec, ast.JoinedStr) and bool(spec.values) and all(isinstance(v, ast.Constant) for v in spec.values)
