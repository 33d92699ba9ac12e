"""Each text is padded to the longest that the model takes.

## What it does
Finds tokenizers that are called with `padding="max_length"`.

## Why it is slow
A text of 30 tokens becomes 512: the model computes seventeen times as many positions, and attention 290 times as many pairs.
`padding="longest"`, or `DataCollatorWithPadding`, pads to the longest text of the batch.

## Example
```python
for texts, y in loader:
    tokens = tokenizer(texts, padding="max_length", truncation=True)
    out = model(tokens)
```

## Use instead
```python
for texts, y in loader:
    tokens = tokenizer(texts, padding="longest", truncation=True)
    out = model(tokens)
```

## When it stays silent
When the padding is no literal, and for functions that are no tokenizer by their name.

## Fix safety
There is no fix: programs for TPUs and compiled models need one length.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, rule, words

_CALLED = words("tokenizer encode_plus batch_encode_plus encode tokenize processor")


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    needs=[('padding="max_length"', "padding='max_length'")],
    in_file=[("token", "processor", "encode")],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each tokenizer that pads to the maximum."""
    for call in code.flow.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in _CALLED and not name.lower().endswith("tokenizer"):
            continue
        for given in call.keywords:
            if given.arg == "padding" and isinstance(given.value, ast.Constant) and given.value.value == "max_length":
                yield code.finding(
                    given.value,
                    'the model computes all positions up to the maximum; pad to the longest of a batch (`"longest"`)',
                )
