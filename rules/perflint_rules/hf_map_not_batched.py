"""A data set is tokenised text by text.

## What it does
Finds `dataset.map(f)` without `batched=True` where `f` is a function of the project, or a lambda, that calls a tokenizer.

## Why it is slow
A fast tokenizer takes many texts at once, on all cores; text by text each call goes through Python, and a row is written at a
time.

## Example
```python
def encode(row):
    return tokenizer(row["text"], truncation=True)

tokens = dataset.map(encode)
```

## Use instead
```python
def encode(rows):
    return tokenizer(rows["text"], truncation=True)

tokens = dataset.map(encode, batched=True)
```

## When it stays silent
When `batched` is given, for the `map` of a pool of processes, and when the function calls no tokenizer.

## Fix safety
There is no fix: the function gets lists then.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, FunctionRef, Severity, call_pattern, rule

_TOKENISES = call_pattern("tokenizer", "tokenize", "encode_plus")


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    needs=[(".map(",)],
    in_file=[("tokenize", "tokenizer"), (".map(",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each mapping of a tokenizer over single rows."""
    for call in code.calls("map"):
        if not isinstance(call.func, ast.Attribute) or any(k.arg in (None, "batched") for k in call.keywords):
            continue
        if len(call.args) > 1 and not isinstance(call.args[1], ast.Constant):
            continue  # a pool of processes, that gets what to go over, too
        given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "function"), None)
        if isinstance(given, (ast.Name, ast.Attribute, ast.Lambda)) and _tokenises(code, given):
            yield code.finding(call, "each text is tokenised by a call of its own; pass `batched=True` and take lists")


def _tokenises(code: Code, function: ast.expr) -> bool:
    """Whether a function that is handed over calls a tokenizer."""
    if isinstance(function, ast.Lambda):
        return _TOKENISES.search(code.text(function).encode()) is not None
    return code.value(function).may(lambda a: isinstance(a, FunctionRef) and _TOKENISES.search(a.scope.text) is not None)
