"""Where a tensor that is made under `inference_mode` meets autograd later."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator

from perflint.facts.autograd.gradflow import GradUse, graph_ends, stored_for_training
from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow, Region, flow_of
from perflint.facts.dataflow.uses import is_changed_in_place
from perflint.facts.facts import Facts
from perflint.facts.operations import operations
from perflint.facts.training.training_objects import is_neural_module
from perflint.facts.values.values import Alternative, External, Object, Output, Tensor, Value
from perflint.source.records import dataclass
from perflint.source.syntax import Scope
from perflint.source.words import made, words


@dataclass(frozen=True)
class InferenceEscape:
    """How an inference tensor meets autograd. is_certain: whether it is one of the ways of which torch raises an error."""

    words: str
    is_certain: bool


def inference_escapes(facts: Facts, scope: Scope, inside: Region) -> Iterator[InferenceEscape]:
    """The ways by which tensors of a region meet autograd: through names and attributes, and through what it returns."""
    for definition in inside.definitions:
        if definition.value is not None and definition.kind in ("assign", "walrus"):
            yield from _named(facts, scope, inside, definition, definition.value)
    for statement in inside.returns:
        if statement.value is None:
            continue
        value = facts.inference.value(scope, statement.value)
        if value.may(_is_tensor) or _runs_network(value, statement.value):
            for site in facts.inference.callers.sites(scope).sites:
                yield from _handed_on(facts, site.scope, site.node, returned=site.scope is not scope)


def _named(facts: Facts, scope: Scope, inside: Region, definition: Definition, made: ast.expr) -> Iterator[InferenceEscape]:
    """What becomes of a name that the region binds."""
    flow, name = flow_of(scope), definition.name
    value = facts.inference.value(scope, made)
    outside = [use for use in flow.uses[definition] if use not in inside]
    if any(_takes_key(flow, use) for use in outside):
        return  # of a dict of tensors nothing is known
    outside = [use for use in outside if not _gives_ordinary(flow, use)]
    for use in outside if value.may(_is_tensor) or _runs_network(value, made) else ():
        if any(end.use is GradUse.BACKWARD for end in graph_ends(facts, scope, use)):
            yield _gives(f"`{name}` is an inference tensor, and line {use.lineno}", _is_saved(facts, scope, use))
        if is_changed_in_place(flow, use) and not _may_be_list(flow, use, value):
            how = f"`{name}` is an inference tensor, and line {use.lineno} changes it in place, which raises"
            yield InferenceEscape(how, True)
    if outside and isinstance(made, ast.Call) and creates_module(facts, scope, made) and flow.calls_named["backward"]:
        yield InferenceEscape(f"the parameters of `{name}` are inference tensors, so it gets no gradients", False)
    if value.may(_is_tensor):
        yield from _handed_on(facts, scope, made, returned=False)


def _gives_ordinary(flow: Flow, use: ast.expr) -> bool:
    """Whether only what is computed from a tensor is used, and from nothing else: `target.clone()`, `(target + 1) * 2`.

    Outside of the region that is an ordinary tensor, and no graph is recorded that might save the tensor itself.
    """
    node: ast.AST = use
    while True:
        parent = flow.parent.get(node)
        match parent:
            case ast.Subscript(value=ast.expr() as whole, ctx=ast.Load()) if whole is node:
                node = parent
            case ast.Attribute(attr=name):
                call, row = flow.parent.get(parent), operations.method(name)
                if not isinstance(call, ast.Call) or call.func is not parent:
                    node = parent  # `output.logits`, `target.T`
                    continue
                if row is None or row.writes:
                    return False
                if row.only_computes:
                    others = (n for part in (*call.args, *call.keywords) for n in ast.walk(part))
                    return not any(isinstance(n, ast.Name) for n in others)
                node = call
            case ast.BinOp(left=left, right=right):
                return isinstance(right if left is node else left, ast.Constant)
            case _:
                return isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.USub)


def _may_be_list(flow: Flow, use: ast.expr, value: Value) -> bool:
    """`codes[i] = codes[i].cpu()` of what may be a list; no tensor takes the array of `codes[i] = codes[i].cpu().numpy()`."""
    if not isinstance(flow.parent[use], ast.Subscript):
        return False
    match flow.statement(use):
        case ast.Assign(value=ast.Call(func=ast.Attribute(attr="numpy"))):
            return True
    return not value.may(_is_tensor)


def _takes_key(flow: Flow, use: ast.expr) -> bool:
    """`output["logits"]`, `output.items()`: it is no tensor."""
    match flow.parent.get(use):
        case ast.Subscript(slice=ast.Constant(value=str())) | ast.Attribute(attr="keys" | "items" | "values"):
            return True
    return False


def _handed_on(facts: Facts, scope: Scope, node: ast.expr, returned: bool) -> Iterator[InferenceEscape]:
    """Where a caller gives an inference tensor to autograd, or a method that reads the attribute it is stored in."""
    flow = flow_of(scope)
    for end in graph_ends(facts, scope, node):
        if "clone" in ast.unparse(flow.statement(node)) or "clone" in ast.unparse(flow.statement(end.node)):
            continue  # a clone that is made outside of the region is no inference tensor
        if end.use is GradUse.BACKWARD and returned:
            yield _gives(f"an inference tensor is returned, and line {node.lineno} of {_file(scope)}", False)
        mention = stored_for_training(facts, scope, end)
        if mention is not None and not _is_cloned(mention, scope):
            where = f"line {mention.lineno} of {_file(scope)}"
            yield _gives(f"`{ast.unparse(mention)}` is an inference tensor, and {where}", False)


def _gives(words: str, certain: bool) -> InferenceEscape:
    raises = "which raises" if certain else "which raises where it is saved for the backward pass"
    return InferenceEscape(f"{words} gives it to autograd, {raises}", certain)


_SAVING = words("mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy_with_logits")
_SAVING_LAYERS = words(
    "MSELoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss NLLLoss BCEWithLogitsLoss Linear Conv1d Conv2d Conv3d"
)


def _is_saved(facts: Facts, scope: Scope, use: ast.expr) -> bool:
    """Whether an operation that saves its arguments for the backward pass gets the tensor itself."""
    call = flow_of(scope).parent.get(use)
    return isinstance(call, ast.Call) and facts.inference.value(scope, call.func).must(_saves)


def _saves(callee: Alternative) -> bool:
    match callee:
        case External(qualname):
            return qualname.startswith("torch.") and qualname.rpartition(".")[2] in _SAVING
        case Object(qualname):
            return qualname.removeprefix("torch.nn.") in _SAVING_LAYERS
    return False


def _is_tensor(alternative: Alternative) -> bool:
    return isinstance(alternative, (Tensor, Output))


def _is_cloned(mention: ast.expr, scope: Scope) -> bool:
    assert scope.owner is not None
    flows = (flow_of(method) for method in scope.owner.methods.values())
    return any("clone" in ast.unparse(flow.statement(mention)) for flow in flows if mention in flow.order)


def _file(scope: Scope) -> str:
    return os.path.basename(scope.module.source.path)


_NETWORK = made(r"(?:teacher|backbone|extractor|policy|agent|target_\w+)$", re.I)


def _runs_network(value: Value, node: ast.expr) -> bool:
    """Whether something unknown is called by the name of a network."""
    return value.open and isinstance(node, ast.Call) and _NETWORK.search(path_of(node.func) or "") is not None


def creates_module(facts: Facts, scope: Scope, call: ast.Call) -> bool:
    """Whether a call gives a network that was not there before."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train", "to", "cuda", "cpu"):
        return False
    return facts.inference.value(scope, call).must(lambda a: is_neural_module(facts.inference, a))
