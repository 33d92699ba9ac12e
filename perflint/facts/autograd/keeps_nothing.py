"""Calls and containers that keep no tensor beyond the code that they stand in, by how they are written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from perflint.facts.autograd.without_graph import COMPUTES_NOTHING, DISTRIBUTIONS, OPERATORS, is_known_function
from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.values.calls import iterating_runs
from perflint.facts.values.decorators import decorator_name
from perflint.facts.values.frames import Inferring
from perflint.facts.values.values import Alternative, External, Literal, Number, Object, Text
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import any_layout, words

_READING_METHODS = words("keys values items get join format split startswith endswith strip lower upper replace copy")
"""Methods of containers and texts that keep nothing."""
_PURE_PACKAGES = tuple(
    f"{package}."
    for package in words(
        """
        torch torchvision builtins math random numpy pandas PIL einops itertools typing
        os re json csv glob pathlib copy time datetime string collections ast
        """
    )
)
_WITH_TYPES = words("builtins collections")
"""Packages of which nothing but types has functions: `list.append`, `collections.deque.append`."""
_KEEPING_FUNCTIONS = words("builtins.setattr builtins.exec builtins.eval builtins.globals builtins.vars builtins.__import__")
_KEEPS_NOTHING = words(
    """
    matmul scaled_dot_product_attention multi_head_attention_forward linear bilinear cdist LSTM GRU RNN LSTMCell GRUCell RNNCell
    MultiheadAttention Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer
    is_grad_enabled all_reduce all_gather reduce broadcast barrier synchronize
    """
)
"""What of torch keeps nothing, though some of it rounds differently without autograd."""


COLLECTING = words("append extend insert add update setdefault appendleft pop clear")
"""Methods by which a container gets items, or loses some."""
_MAKES_ITEMS = any_layout(
    rb"\bdefaultdict \( (?!(?:int|float|list|dict|set|str|bool|tuple|deque|Counter|collections|None)\b|\)"
    rb"|lambda : (?:[-+]?\d[\d.e-]*|\[ \]|\{ \}|(?:int|float|list|dict|set|defaultdict|deque|Counter) \())"
)
"""A dict that makes items of another kind than numbers and containers."""
_GIVES_AGAIN = any_layout(rb"\b(?:cycle|tee) \(")
"""What keeps the batches that it hands out, to hand them out again."""


def is_distribution_of(made: Alternative, scope: Scope) -> bool:
    """Whether something is a distribution that is made by a call in a scope: what it remembers goes with it."""
    match made:
        case Object(qualname=qualname, site=(inner, _)):
            return inner is scope and qualname.startswith("torch.distributions.")
    return False


def changes(qualname: str) -> bool:
    """Whether a function of torch may put other memory into parameters."""
    return qualname.startswith("torch.nn.utils.") and not qualname.startswith(("torch.nn.utils.rnn.", "torch.nn.utils.clip_"))


def is_abstract(scope: Scope) -> bool:
    """Whether a function is there to be overridden: it is marked so, or only raises."""
    if any(decorator_name(d) == "abstractmethod" for d in scope.decorators):
        return True
    body = scope.function.body if scope.function is not None else []
    first = next((s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))), None)
    return isinstance(first, ast.Raise)


def is_made_here(flow: Flow, definition: Definition) -> bool:
    """Whether a name is bound to a container that is made for it alone: no `self.kept = kept = []`."""
    made = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    if definition.kind == "augmented":
        return True
    if definition.kind != "assign" or definition.value is None or not flow.binds_alone(definition.node):
        return False
    if isinstance(definition.value, ast.Call):
        return path_of(definition.value.func) in ("list", "dict", "set", "defaultdict", "collections.defaultdict")
    return isinstance(definition.value, made)


_ARRAYS_OF_NUMBERS = words("numpy.zeros numpy.ones numpy.empty")
_NUMBER_TYPES = words(
    "float int bool double float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ single half"
)


def holds_numbers(inference: Inferring, scope: Scope, node: ast.expr) -> bool:
    """Whether a name is bound to arrays of numpy that are made here of numbers: what is put there is copied."""
    reaching = flow_of(scope).reaching.get(node, frozenset())
    made = [d.value for d in reaching if d.kind == "assign" and not d.index]
    return bool(made) and len(made) == len(reaching) and all(_makes_numbers(inference, scope, call) for call in made)


def _makes_numbers(inference: Inferring, scope: Scope, call: ast.expr | None) -> bool:
    if not isinstance(call, ast.Call) or any(k.arg is None for k in call.keywords):
        return False
    types = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "dtype")]
    known = all((path_of(kind) or "").rpartition(".")[2] in _NUMBER_TYPES for kind in types)
    function = inference.value(scope, call.func)
    return known and function.must(lambda a: isinstance(a, External) and a.qualname in _ARRAYS_OF_NUMBERS)


def keeps_nothing(name: str) -> bool:
    """Whether a method of a tensor, or of a container that is read, keeps none of its arguments."""
    row = operations.method(name)
    return name in _READING_METHODS or (row is not None and not row.gradients)


def is_of_pure_package(qualname: str) -> bool:
    """Whether a function or class is of a package whose functions keep none of their arguments."""
    package, _, last = qualname.rpartition(".")
    if package.partition(".")[0] in _WITH_TYPES and package not in _WITH_TYPES:
        return keeps_nothing(last)
    return qualname in OPERATORS or (qualname.startswith(_PURE_PACKAGES) and qualname not in _KEEPING_FUNCTIONS)


def reads_attribute(flow: Flow, call: ast.Call) -> bool:
    """`vars(x)["name"]`: an attribute by its name."""
    item = flow.parent.get(call)
    return path_of(call.func) == "vars" and isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load)


def is_of_torch(qualname: str) -> bool:
    """Whether a function of torch keeps nothing: it is known, or computes no tensors at all."""
    if (
        qualname.startswith("torch.nn.init.") or qualname in DISTRIBUTIONS
    ):  # the first fill what they are given, and hand it back
        return True
    last = qualname.rpartition(".")[2]
    return is_known_function(qualname) or COMPUTES_NOTHING.match(qualname) is not None or last in _KEEPS_NOTHING


def remembers(facts: Facts, scope: Scope, node: ast.Attribute | ast.Subscript) -> bool:
    """Whether an object makes an attribute or an item when it is asked for it, and keeps it, or keeps what it gets later.

    torch's distributions and a `defaultdict` do the first; a method that fills a container may be called under another name.
    """
    value = facts.inference.value(scope, node.value)
    flow = flow_of(scope)
    if isinstance(node, ast.Attribute):
        if value.may(lambda a: _is_distribution(a) and not is_distribution_of(a, scope)):
            return True
        call = flow.parent.get(node)
        called = isinstance(call, ast.Call) and call.func is node
        return node.attr in COLLECTING and not called and not facts.inference.value(scope, node).alternatives
    made = flow.reaching.get(node.value, frozenset())
    if (value.alternatives and not value.may(_has_defaults)) or (made and all(is_made_here(flow, d) for d in made)):
        return False
    return facts.project.program_may_hold(scope.module.source.path, _MAKES_ITEMS)


def _is_distribution(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname.startswith("torch.distributions.")


def _has_defaults(alternative: Alternative) -> bool:
    return isinstance(alternative, Object) and alternative.qualname == "collections.defaultdict"


def given_again(facts: Facts, scope: Scope, node: ast.AST) -> Iterator[Obligation]:
    """Whether what a node takes items of keeps them, or goes on with what it has made for the last one."""
    source = _taken_from(node)
    if source is None:
        return
    shown, value = ast.unparse(source), facts.inference.value(scope, source)
    if facts.inference.element(value).must_be(Number, Literal, Text):
        return
    if facts.project.program_may_hold(scope.module.source.path, _GIVES_AGAIN):
        yield Obligation(Kind.RETENTION, f"`{shown}` may give again what it has given: `cycle`, `tee`")
    reaching = flow_of(scope).reaching.get(source, frozenset())
    begun = not isinstance(source, ast.Call) and not (reaching and all(d.kind == "assign" for d in reaching))
    if begun and any(isinstance(ran, Scope) and flow_of(ran).yields for ran in iterating_runs(value)):
        yield Obligation(Kind.RETENTION, f"`{shown}` is a generator, and may keep what it makes until the next step")


def goes_on(facts: Facts, scope: Scope, node: ast.AST, inside: Set[ast.AST]) -> Obligation | None:
    """Whether items are taken of an iterator that was begun before, whose workers may send what is used later.

    A batch that arrives too early is made a tensor at once, and kept until its turn: one of `inference_mode`, if it is on then.
    inside: all nodes of the region.
    """
    source = _taken_from(node)
    while isinstance(source, ast.Call) and source.args and last_name(source.func) in _HANDS_ON:
        source = source.args[0]
    if source is None or isinstance(source, ast.Call):
        return None
    leaves = isinstance(node, ast.For) and any(isinstance(inner, (ast.Break, ast.Return)) for inner in ast.walk(node))
    if not (leaves or isinstance(node, ast.Call)):
        return None
    reaching = flow_of(scope).reaching.get(source, frozenset())
    made_here = reaching and all(d.kind == "assign" and isinstance(d.value, ast.Call) and d.node in inside for d in reaching)
    if made_here or not facts.project.program_may_hold(scope.module.source.path, _MAKES_ITERATORS):
        return None
    return Obligation(Kind.RETENTION, f"`{ast.unparse(source)}` may go on elsewhere, and keep batches that came too early")


_HANDS_ON = words("enumerate zip tqdm islice map filter")
_MAKES_ITERATORS = any_layout(rb"(?<!\.)\biter \(|\b__iter__ \(")


def _taken_from(node: ast.AST) -> ast.expr | None:
    """What a node takes items of, one after the other: a loop, `next(it)`."""
    match node:
        case ast.For(iter=source) | ast.AsyncFor(iter=source) | ast.comprehension(iter=source):
            return source
        case ast.Call(func=ast.Name(id="next"), args=[source, *_]):
            return source
        case ast.Call(func=ast.Attribute(value=source, attr="__next__")):
            return source
    return None
