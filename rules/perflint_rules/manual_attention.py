"""Attention is written out: the matrix of queries by keys is kept in memory.

## What it does
Finds `softmax(q @ k.transpose(-2, -1) ...)` whose result, perhaps after a dropout, is multiplied by values, in a forward pass;
also where the products are an `einsum`.

## Why it costs memory and time
The scores, their softmax and the dropped ones are each a tensor of length times length, kept for the backward pass, and
written and read by a kernel each. `scaled_dot_product_attention` computes the same in one kernel that never stores them.

## Example
```python
class Attention(nn.Module):
    def forward(self, q, k, v):
        weights = torch.softmax(q @ k.transpose(-2, -1) / 8.0, dim=-1)
        return weights @ v
```

## Use instead
```python
class Attention(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)
```

## When it stays silent
When the weights are used for something else, too (returned, kept, shown), but for what a flag or a mask asks for; for torch
below 2.0, and where the scores are not the product of two tensors of which one is transposed (or of a `q` and a `k` that a
function is given, as those of GPT-2 are).

## Fix safety
There is no fix: it rounds differently, a row that is masked as a whole gives zeros instead of nan, and dropout draws other
numbers.
"""

import ast
import re
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import Code, Cost, Finding, Severity, any_layout, rule, words

_PASSED_ON = words("dropout attn_dropout attention_dropout attn_drop drop masked_fill type_as to float half contiguous")
_QUERIES_BY_KEYS = any_layout(rb"\bq\w* (?:[@,] |\. (?:matmul|bmm) \( )k\w*\b")
_QUERIES, _KEYS = re.compile(r"q|query\w*"), re.compile(r"k|key\w*")
_TURNS = words("transpose t permute mT T swapaxes")


@rule(
    category="memory",
    costs=Cost.MEMORY,
    severity=Severity.INFO,
    needs=[
        ("softmax(", "Softmax("),
        ("@", "matmul(", "bmm(", "einsum("),
        (any_layout(rb"\. (?:transpose|permute|mT|T|t|swapaxes)\b"), "einsum(", _QUERIES_BY_KEYS),
    ],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each softmax of products that is multiplied again."""
    if code.facts.versions.get("torch", Version("2.0")) < Version("2.0"):
        return
    made = (code.flow.parent.get(layer) for layer in code.calls("Softmax"))
    for call in (*code.calls("softmax"), *(c for c in made if isinstance(c, ast.Call) and isinstance(c.func, ast.Call))):
        scores = _scores(call)
        if scores is not None and _is_product_of_turned(code, scores, 6) and _is_multiplied(code, call, 4):
            message = (
                "the matrix of queries by keys is stored and kept for the backward pass; use `scaled_dot_product_attention`"
            )
            yield code.finding(call, message)


def _scores(call: ast.Call) -> ast.expr | None:
    """What a softmax is taken of: its first argument, or its receiver."""
    if call.args and not isinstance(call.args[0], (ast.Constant, ast.UnaryOp)):
        return call.args[0]
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _bound_to(code: Code, node: ast.expr) -> list[ast.expr]:
    """The expressions that a name may stand for."""
    return [d.value for d in code.flow.reaching.get(node, ()) if d.value is not None and not d.index and d.kind == "assign"]


def _is_product_of_turned(code: Code, node: ast.expr, depth: int) -> bool:
    """Whether scores are `q @ k.transpose(...)`, scaled, masked or with something added."""
    if depth == 0:
        return False
    factors = _factors(node)
    if factors:
        return any(_is_turned(code, factor) for factor in factors) or _are_queries_and_keys(code, *factors)
    if (terms := _equation(node)) is not None:
        return _compares_all(*terms)
    match node:
        case ast.BinOp(left=left, right=right):
            return _is_product_of_turned(code, left, depth - 1) or _is_product_of_turned(code, right, depth - 1)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _PASSED_ON:
            return _is_product_of_turned(code, value, depth - 1)
        case ast.Name():
            return any(_is_product_of_turned(code, value, depth - 1) for value in _bound_to(code, node))
    return False


def _are_queries_and_keys(code: Code, left: ast.expr, right: ast.expr) -> bool:
    """Whether two factors are parameters by these names: the caller has transposed the keys."""
    given = all(d.kind == "parameter" for factor in (left, right) for d in code.flow.reaching.get(factor, ()))
    match left, right:
        case ast.Name(id=queries), ast.Name(id=keys):
            return given and _QUERIES.fullmatch(queries) is not None and _KEYS.fullmatch(keys) is not None
    return False


def _factors(node: ast.expr) -> list[ast.expr]:
    """The two factors of a product of matrices."""
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return [left, right]
        case ast.Call(func=ast.Attribute(attr="matmul" | "bmm"), args=[left, right]):
            return [left, right]
        case ast.Call(func=ast.Attribute(value=left, attr="matmul" | "bmm"), args=[right]):
            return [left, right]
    return []


def _equation(node: ast.AST | None) -> tuple[str, str, str] | None:
    """The letters of `einsum("blhe,bshe->bhls", q, k)`: of both factors, and of the product."""
    match node:
        case ast.Call(func=ast.Attribute(attr="einsum") | ast.Name(id="einsum"), args=[ast.Constant(value=str(text)), _, _]):
            found = re.fullmatch(r"(\w+),(\w+)->(\w+)", text.replace(" ", ""))
            return (found[1], found[2], found[3]) if found is not None else None
    return None


def _compares_all(left: str, right: str, product: str) -> bool:
    """Whether each row of one factor meets each row of the other, along one dimension: queries by keys."""
    one, other = set(left) - set(right), set(right) - set(left)
    met = set(left) & set(right) - set(product)
    return len(one) == len(other) == len(met) == 1 and set(product) == set(left) ^ set(right) | set(left) & set(right) - met


def _is_turned(code: Code, node: ast.expr) -> bool:
    found = [node, *(_bound_to(code, node) if isinstance(node, ast.Name) else [])]
    return any(isinstance(part, ast.Attribute) and part.attr in _TURNS for value in found for part in ast.walk(value))


def _is_multiplied(code: Code, node: ast.expr, depth: int, turned: bool = False) -> bool:
    """Whether the weights are a factor of a product of matrices, and nothing else becomes of them: the left one, or, turned,
    the right one.
    """
    parent = code.flow.parent.get(node)
    if (terms := _equation(parent)) is not None:
        return _compares_all(*terms)
    match parent:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)) if depth and name in _PASSED_ON:
            return _is_multiplied(code, parent, depth - 1, turned)
        case ast.Attribute(attr="matmul" | "bmm"):
            return not turned
        case ast.Attribute(attr=name) if depth and name in _PASSED_ON | _TURNS:
            call = code.flow.parent.get(parent)
            given = call if isinstance(call, ast.Call) and call.func is parent else parent
            return _is_multiplied(code, given, depth - 1, turned != (name in _TURNS))
        case ast.Assign(targets=[ast.Name() as name]) if depth:
            uses = [
                use for d in code.flow.definitions_at(name) for use in code.flow.uses[d] if not _is_asked_for(code, use, node)
            ]
            return len(uses) == 1 and _is_multiplied(code, uses[0], depth - 1, turned)
        case ast.expr():
            return node in (_factors(parent)[1:] if turned else _factors(parent)[:1])
    return False


def _is_asked_for(code: Code, use: ast.AST, weights: ast.expr) -> bool:
    """Whether somebody may ask for the weights there, by a flag or a mask: `(x, weights) if self.keeps_weights else (x,)`."""
    for block in code.flow.block[use].ancestry():
        if code.flow.within(weights, block):
            return False
        if isinstance(block.node, ast.IfExp) or (block.kind == "then" and isinstance(block.node, ast.If)):
            match block.node.test:
                case ast.Name() | ast.Attribute() | ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
                    return True
    return False
