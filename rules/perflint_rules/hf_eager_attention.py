"""A model of transformers is asked for the slow attention.

## What it does
Finds `attn_implementation="eager"` and `output_attentions=True` as literal arguments.

## Why it costs memory and time
Both make each layer compute and keep the matrix of queries by keys, which `scaled_dot_product_attention` and flash attention
never store: memory that grows with the square of the length. transformers falls back to the eager form when attentions are
asked for.

## Example
```python
from transformers import AutoModel

model = AutoModel.from_pretrained("some/model", attn_implementation="eager")
```

## Use instead
```python
from transformers import AutoModel

model = AutoModel.from_pretrained("some/model")
```

## When it stays silent
When the value is no literal, under a condition, in test suites, and where the file takes the `attentions` that it asks for.

## Fix safety
There is no fix: somebody may look at the attentions.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, any_layout, is_conditional, is_test, rule

_WEIGHTS = any_layout(rb"(?:\. |['\"])(?:\w+_)?attentions\b(?<!output_attentions)(?! =)")
"""What takes the matrices that were asked for."""
_SLOW: dict[str | None, object] = {"attn_implementation": "eager", "output_attentions": True}


@rule(
    category="memory",
    costs=Cost.MEMORY,
    severity=Severity.INFO,
    needs=[("attn_implementation=", "output_attentions=True")],
    in_file=[("transformers",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report each literal that switches fused attention off."""
    if is_test(code.scope):
        return
    takes_weights = code.facts.project.holds(code.source.path, _WEIGHTS)
    for call in code.flow.calls:
        for given in call.keywords:
            if takes_weights and given.arg == "output_attentions":
                continue
            if given.arg in _SLOW and isinstance(given.value, ast.Constant) and given.value.value == _SLOW[given.arg]:
                if not is_conditional(code.scope, call):
                    message = (
                        f"with `{given.arg}={given.value.value!r}` each layer keeps a matrix of queries by keys; leave it out"
                    )
                    yield code.finding(given.value, message)
