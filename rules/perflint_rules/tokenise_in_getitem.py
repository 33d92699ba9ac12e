"""Each sample is tokenised again in each epoch.

## What it does
Finds calls of a tokenizer in code that runs for each item of a dataset.

## Why it is slow
The same text is split into the same tokens as often as there are epochs, one text at a time, where the tokens of
an earlier epoch only have to be looked up.

## Example
```python
class Texts(Dataset):
    def __init__(self, texts, tokenizer):
        self.texts, self.tokenizer = texts, tokenizer

    def __getitem__(self, index):
        return self.tokenizer(self.texts[index], truncation=True)
```

## Use instead
```python
class Texts(Dataset):
    def __init__(self, texts, tokenizer):
        self.tokens = tokenizer(texts, truncation=True)["input_ids"]

    def __getitem__(self, index):
        return self.tokens[index]
```
or `Dataset.map(..., batched=True)` of Hugging Face's datasets, which keeps what it made on disk.

## When it stays silent
Under a condition (a cache), where the code that makes a sample draws random numbers (the text may be another one each time),
and outside of datasets.

## Fix safety
There is no fix: all tokens have to fit into memory.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, call_pattern, is_conditional, rule, runs_per_item, words

_CALLED = words("tokenizer tokenize encode_plus batch_encode_plus")
_RANDOM = re.compile(rb"\b(?:random|rand\w*|choice|sample|shuffle|augment\w*)\b")


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    needs=[(call_pattern(*sorted(_CALLED)),)],
    in_file=[("Dataset",), ("__getitem__",)],
)
def check(code: Code) -> Iterator[Finding]:
    """Report the first call of a tokenizer in code that makes a sample."""
    if _RANDOM.search(code.scope.text):
        return
    for call in code.calls(*sorted(_CALLED)):
        if not is_conditional(code.scope, call) and runs_per_item(code.facts, code.scope):
            message = f"`{ast.unparse(call.func)}` runs for each sample again in each epoch; tokenise once, and keep the tokens"
            yield code.finding(call, message)
            return
