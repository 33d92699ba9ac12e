"""What running a module may do with the autograd graph, apart from handing it on in its result."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator

from perflint.facts import classes
from perflint.facts.facts import Facts
from perflint.facts.flow import Flow, flow_of
from perflint.facts.graphless import differs_without_graph
from perflint.facts.hidden import hidden_runs
from perflint.facts.loops import may_run_module
from perflint.facts.values import ClassRef, External, FunctionRef, Instance, Literal, Number, Object, Text, Value
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Class, Scope, SyntaxProblem
from perflint.source.words import any_layout, words

MAX_REACHED = 60
"""A network of more classes and functions than this is not looked through."""

_WORD = re.compile(rb"[A-Za-z_]\w*")
_ASKS = any_layout(
    rb"autograd \. grad|(?<![\w.])grad \(|\. backward \(|is_grad_enabled|set_grad_enabled|enable_grad|_hook \(|retain_grad|"
    rb"torch \. func\b|functorch"
)
_LOOKS_AT_GRAPH = re.compile(rb"requires_grad|grad_fn|is_leaf|needs_input_grad")
_FUSED = any_layout(
    rb"\bnn \. (?:LSTM|GRU|RNN|MultiheadAttention|Transformer\w*)\b|\bmodels \. vit_|\bgetattr \( (?:torch \. )?nn ,"
    rb"|\b(?:scaled_dot_product_attention|multi_head_attention_forward|flex_attention|svdvals|eigvalsh)\b"
    rb"|(?<!np\.)(?<!numpy\.)\b(?:matmul|linalg \. (?:norm|matrix_norm|cond|lstsq))\b"
    rb"|\b(?:weight_norm|spectral_norm|parametriz\w+|prune)\b"
    rb"|(?<![\w.])(LSTM|GRU|RNN|MultiheadAttention|Transformer(?:Encoder|Decoder)?(?:Layer)?) \("
)
"""What of torch runs another kernel without autograd, whose results differ in the last bits (torch 2.13): an LSTM on the CPU;
attention in evaluation mode, which also gives zeros for padded positions, and attention with a mask that was computed from
parameters; the product of a stack of matrices and a matrix that was computed from parameters, which is what makes the weight
of a layer that is normalised; decompositions that give fewer results. On CUDA, cuDNN runs recurrent layers in another mode,
whose rounding was not measured."""


_PRODUCT = any_layout(rb"@|linear \(")
_COLLECTING = frozenset(("append", "extend", "insert", "add", "update", "setdefault", "appendleft", "put"))
_ROUNDS = "has an operation of torch that rounds differently without autograd"


def needs_graph(facts: Facts, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
    """Why a forward pass may need or keep the graph that it records, or compute otherwise without: a line for each reason.

    Looked at is the text of all that may run: the module's class, and every class and function of the project that is
    named in it or where it is built.
    """
    name = ast.unparse(call.func)
    receivers = [facts.inference.value(scope, call.func)]
    if isinstance(call.func, ast.Attribute) and not receivers[0].must(lambda a: isinstance(a, (Instance, Object))):
        receivers.append(facts.inference.value(scope, call.func.value))
    pending: list[Class | Scope] = [a.cls for v in receivers for a in v.alternatives if isinstance(a, Instance)]
    pending += [a.scope for v in receivers for a in v.alternatives if isinstance(a, FunctionRef)]
    for value in receivers:
        for alternative in value.alternatives:
            site = getattr(alternative, "site", None)
            if isinstance(site, tuple):
                pending += _built_with(facts, *site)
    if any(isinstance(a, Object) and _FUSED.search(a.qualname.encode()) for v in receivers for a in v.alternatives):
        yield Obligation(Kind.EVALUATION_ROUNDING, f"`{name}` {_ROUNDS}")
    if any(isinstance(a, Object) and not _is_understood(a.qualname) for v in receivers for a in v.alternatives):
        yield Obligation(Kind.KNOWN_LAYERS, f"`{name}` may be any network")
    yield from _in_network(facts, name, pending, set())


def _in_network(facts: Facts, name: str, pending: list[Class | Scope], seen: set[Class | Scope]) -> Iterator[Obligation]:
    """What a network does with the graph: one reason at most, for the first of its classes and functions that has one."""
    while pending:
        reached = pending.pop()
        if reached in seen:
            continue
        seen.add(reached)
        if len(seen) > MAX_REACHED:
            yield Obligation(Kind.UNKNOWN_CODE, f"`{name}` is too large to be looked through")
            return
        for function in reached.methods.values() if isinstance(reached, Class) else [reached]:
            text = function.text
            if _ASKS.search(text):
                yield Obligation(Kind.GRADIENT, f"`{name}` asks for gradients itself")
                return
            if function.name != "__init__" and _LOOKS_AT_GRAPH.search(text):
                yield Obligation(Kind.GRADIENT, f"`{name}` looks at what requires gradients")
                return
            if function.name != "__init__" and _keeps(facts, function, isinstance(reached, Class)):
                yield Obligation(Kind.RETENTION, f"`{name}` keeps something of each forward pass, in `{function.name}`")
                return
            if function.name != "__init__" and (reason := differs_without_graph(facts, function, flow_of(function).order)):
                yield Obligation(Kind.GRADIENT, f"`{function.name}` of `{name}` {reason}")
                return
            if _has_fused(facts, function):
                yield Obligation(Kind.EVALUATION_ROUNDING, f"`{name}` {_ROUNDS}")
                return
            pending += _named(facts, function)
        if isinstance(reached, Class):
            foreign = _foreign_part(facts, reached)
            if foreign is not None:
                yield Obligation(Kind.KNOWN_LAYERS, f"`{name}` is built with `{foreign}` of another package")
                return
            pending += [a for a in classes.ancestors(facts.inference, reached) if isinstance(a, Class)]
            heirs = classes.subclasses(facts.inference, reached)
            if heirs is None:
                yield Obligation(Kind.KNOWN_LAYERS, f"`{name}` may be any of the classes that inherit from `{reached.name}`")
                return
            pending += heirs
            init = reached.methods.get("__init__")
            for site in facts.inference.callers.sites(init).sites if init is not None else ():
                pending += _built_with(facts, site.scope, site.node)


def hidden_graphs(facts: Facts, scope: Scope, statement: ast.stmt | None = None) -> Iterator[Obligation]:
    """Why a function, or one statement of it, may need a graph or compute otherwise without one: a line for each reason.

    Followed are the functions of the project that the code names, calls or hands on, their callees, and all of each
    network that any of them names. A call of something that is not known counts if it may get a tensor or a network.
    """
    hidden = _Hidden(facts)
    yield from hidden.function(scope) if statement is None else hidden.code(scope, ast.walk(statement))


class _Hidden:
    def __init__(self, facts: Facts) -> None:
        self.facts, self.inference = facts, facts.inference
        self.seen: set[Class | Scope] = set()

    def code(self, scope: Scope, nodes: Iterable[ast.AST]) -> Iterator[Obligation]:
        flow, nodes = flow_of(scope), list(nodes)
        if reason := differs_without_graph(self.facts, scope, nodes):
            yield Obligation(Kind.GRADIENT, f"the code {reason}")
        for function in hidden_runs(self.facts, scope, nodes):
            yield from self.function(function)
        for node in nodes:
            match node:
                case ast.Call():
                    yield from self.call(scope, node)
                case ast.Attribute(ctx=ast.Load()) | ast.Name(ctx=ast.Load()):
                    yield from self.value(scope, node)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if node in flow.inner:
                    yield from self.function(flow.inner_scope(node))

    def value(self, scope: Scope, node: ast.expr) -> Iterator[Obligation]:
        for alternative in self.inference.value(scope, node).alternatives:
            if isinstance(alternative, Object) and _FUSED.search(alternative.qualname.encode()):
                yield Obligation(Kind.EVALUATION_ROUNDING, f"`{ast.unparse(node)}` {_ROUNDS}")
            elif isinstance(alternative, (ClassRef, Instance)):
                if classes.is_module(self.inference, alternative.cls):
                    yield from _in_network(self.facts, alternative.cls.name, [alternative.cls], self.seen)
                elif isinstance(alternative, ClassRef):
                    yield from self.function(alternative.cls.methods.get("__init__"))

    def function(self, function: Scope | None) -> Iterator[Obligation]:
        """What a function of the project runs."""
        if function is None or function in self.seen:
            return
        self.seen.add(function)
        if len(self.seen) > MAX_REACHED:
            yield Obligation(Kind.UNKNOWN_CODE, "too much is called to be looked through")
        elif _ASKS.search(function.text):
            yield Obligation(Kind.GRADIENT, f"`{function.name}` asks for gradients itself")
        elif _LOOKS_AT_GRAPH.search(function.text):
            yield Obligation(Kind.GRADIENT, f"`{function.name}` looks at what requires gradients")
        elif _has_fused(self.facts, function):
            yield Obligation(Kind.EVALUATION_ROUNDING, f"`{function.name}` {_ROUNDS}")
        else:
            try:
                flow = flow_of(function)
            except SyntaxProblem:
                yield Obligation(Kind.UNKNOWN_CODE, f"`{function.name}` cannot be parsed")
            else:
                yield from self.code(function, flow.order)

    def call(self, scope: Scope, call: ast.Call) -> Iterator[Obligation]:
        """Whether a call of something that is not known may run a network."""
        if not may_run_module(call) or self.is_known(self.inference.value(scope, call.func)):
            return
        if isinstance(call.func, ast.Attribute):
            receiver = self.inference.value(scope, call.func.value)
            if classes.is_super_call(call.func.value) or self.is_known(receiver):
                return
        given = [*call.args, *(k.value for k in call.keywords)]
        if not all(self.inference.value(scope, g).must_be(Number, Literal, Text) for g in given):
            yield Obligation(Kind.UNKNOWN_CODE, f"`{ast.unparse(call.func)}` is not known, and may ask for gradients itself")

    def is_known(self, value: Value) -> bool:
        """Whether all that a value may be is known, and nothing of it is of a package that is not."""
        foreign = [a.qualname for a in value.alternatives if isinstance(a, (External, Object))]
        return not value.open and bool(value.alternatives) and all(map(_is_understood, foreign))


def _has_fused(facts: Facts, function: Scope) -> bool:
    """Whether a function names what is in `_FUSED`, and not a class of the project of that name, or multiplies matrices."""
    for found in _FUSED.finditer(function.text):
        if found[1] is None:
            return True
        value = facts.inference.module_name(function.module, found[1].decode(), 2)
        if not value.must(lambda a: isinstance(a, ClassRef)):
            return True
    return _PRODUCT.search(function.text) is not None and any(map(_multiplies, ast.walk(function.node)))


def _multiplies(node: ast.AST) -> bool:
    """Whether a node is a product of matrices, that of a linear layer with a weight of its own left out."""
    match node:
        case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
            return True
        case ast.Call(func=ast.Attribute(attr="linear") | ast.Name(id="linear"), args=[_, weight, *_]):
            return not isinstance(weight, ast.Attribute)
        case ast.Call(func=ast.Attribute(attr="linear") | ast.Name(id="linear"), keywords=[_, *_]):
            return True
    return False


def _keeps(facts: Facts, function: Scope, is_method: bool) -> bool:
    """Whether a function stores something where others find it: in a global or an object that was there before, in a cache."""
    if any("cache" in ast.unparse(decorator) for decorator in function.decorators):
        return True
    flow = flow_of(function)
    if flow.outer_names:
        return True
    stores = [s.value for s in flow.stores if isinstance(s, (ast.Attribute, ast.Subscript))]
    for call in flow.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _COLLECTING and call.args:
            if not facts.inference.value(function, call.func.value).must_be(External) and not all(
                facts.inference.value(function, given).must_be(Number, Literal, Text) for given in call.args
            ):
                stores.append(call.func.value)
    stores += [call.args[0] for word in ("setattr", "__setattr__") for call in flow.calls_named[word] if call.args]
    own = function.parameters[0] if is_method and function.parameters else None
    return any(_outlives(flow, store, own) for store in stores)


def _outlives(flow: Flow, node: ast.expr, own: ast.arg | None) -> bool:
    """Whether an expression starts at a name that the function does not bind, at a parameter's default, or at `own`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if not isinstance(node, ast.Name):
        return False
    definitions = flow.reaching.get(node, frozenset())
    if not definitions or any(d.kind == "parameter" and (d.value is not None or d.node is own) for d in definitions):
        return True
    roots = [_root(d.value) for d in definitions if d.value is not None]
    return any(d.node is own for root in roots if isinstance(root, ast.Name) for d in flow.reaching.get(root, ()))


def _root(node: ast.expr) -> ast.expr:
    """What the first dot or bracket of an expression comes behind."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def _is_understood(qualname: str) -> bool:
    """Whether what a package offers under a name runs no kernel that depends on autograd, `_FUSED` layers apart."""
    package, _, _rest = qualname.partition(".")
    if qualname == "torch.nn.Module":
        return False
    return package in _UNDERSTOOD or package in sys.stdlib_module_names


_UNDERSTOOD = words(
    """
    torch torchvision torchtext numpy builtins einops tqdm PIL cv2 matplotlib seaborn sklearn scipy pandas skimage imageio
    wandb tensorboardX tensorboard nltk yaml sacrebleu gym gymnasium
    """
)


def _foreign_part(facts: Facts, cls: Class) -> str | None:
    """What a class takes from a package that is not looked into, to build its parts with."""
    init = cls.methods.get("__init__")
    if init is None:
        return None
    for call in flow_of(init).calls:
        for alternative in facts.inference.value(init, call.func).alternatives:
            if isinstance(alternative, External) and not _is_understood(alternative.qualname):
                return ast.unparse(call.func)
    return None


def _built_with(facts: Facts, scope: Scope, call: ast.Call) -> list[Class | Scope]:
    """What a module that is built by a call may get to run: nothing when it is given numbers only."""
    given = [*call.args, *(k.value for k in call.keywords)]
    if all(facts.inference.value(scope, g).must_be(Literal, Number, Text) for g in given):
        return []
    return [found for found in _named(facts, scope) if isinstance(found, Class)]


def _named(facts: Facts, scope: Scope) -> list[Class | Scope]:
    """The classes and functions of the project that a function's text names."""
    found: list[Class | Scope] = []
    module = scope.module
    bound = flow_of(module.top).defined
    for word in sorted({w.decode() for w in _WORD.findall(scope.text)} & bound.keys()):
        try:
            value = facts.inference.module_name(module, word, 2)
        except SyntaxProblem:
            continue
        for alternative in value.alternatives:
            if isinstance(alternative, ClassRef) and classes.is_module(facts.inference, alternative.cls):
                found.append(alternative.cls)
            elif isinstance(alternative, FunctionRef) and alternative.scope is not scope:
                found.append(alternative.scope)
    return found
