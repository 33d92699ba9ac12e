"""Calls and containers that keep no tensor beyond the code that they stand in, by how they are written."""

from __future__ import annotations

import ast

from perflint.facts.autograd.without_graph import COMPUTES_NOTHING, is_known_function
from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.facts.operations import operations
from perflint.facts.values.decorators import decorator_name
from perflint.facts.values.values import Alternative, Object
from perflint.source.syntax import Scope
from perflint.source.words import words

_READING_METHODS = words("keys values items get join format split startswith endswith strip lower upper replace copy")
"""Methods of containers and texts that keep nothing."""
_KEEPS_NOTHING = words(
    """
    matmul scaled_dot_product_attention multi_head_attention_forward linear bilinear cdist LSTM GRU RNN LSTMCell GRUCell RNNCell
    MultiheadAttention Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer
    is_grad_enabled all_reduce all_gather reduce broadcast barrier synchronize
    """
)
"""What of torch keeps nothing, though some of it rounds differently without autograd."""


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


def keeps_nothing(name: str) -> bool:
    """Whether a method of a tensor, or of a container that is read, keeps none of its arguments."""
    row = operations.method(name)
    return name in _READING_METHODS or (row is not None and not row.gradients)


def reads_attribute(flow: Flow, call: ast.Call) -> bool:
    """`vars(x)["name"]`: an attribute by its name."""
    item = flow.parent.get(call)
    return path_of(call.func) == "vars" and isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Load)


def is_of_torch(qualname: str) -> bool:
    """Whether a function of torch keeps nothing: it is known, or computes no tensors at all."""
    if qualname.startswith("torch.nn.init."):  # it fills what it is given, and hands it back
        return True
    last = qualname.rpartition(".")[2]
    return is_known_function(qualname) or COMPUTES_NOTHING.match(qualname) is not None or last in _KEEPS_NOTHING
