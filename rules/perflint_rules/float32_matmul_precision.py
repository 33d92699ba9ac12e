"""Matrices are multiplied in full float32, where the program never says that it needs it.

## What it does
Finds optimizers of GPU programs that choose no precision anywhere: no autocast, no half or bfloat16, no
`torch.set_float32_matmul_precision`, no `allow_tf32`.

## Why it is slow
On NVIDIA GPUs since Ampere, TF32 multiplies matrices on the tensor cores, with 10 bits of mantissa in place of 23. torch uses
it for convolutions by default, for matrix products only when it is told. transformers' guide on training on one GPU speaks of
up to three times the throughput; nothing was measured here.

## Example
```python
model = nn.TransformerEncoderLayer(512, 8).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
```

## Use instead
```python
torch.set_float32_matmul_precision("high")
model = nn.TransformerEncoderLayer(512, 8).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
```

## When it stays silent
When the program names a precision, in any of these ways, when it names no GPU, and when nothing in it looks like large
products: attention, recurrent layers, `matmul`, `bmm`, `einsum`, a pretrained model.

## Fix safety
There is no fix: results change in the fourth digit, and whether that is enough is known to those who train.
"""

from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, any_layout, rule

_OPTIMIZERS = tuple(f"torch.optim.{name}" for name in ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "RMSprop", "SGD"))
_CHOSEN = any_layout(
    rb"matmul_precision|allow_tf32|fp32_precision|autocast|\bamp\b|bfloat16|float16|\bhalf \(|\bfp16|\bbf16|mixed_precision"
)

_PRODUCTS = any_layout(rb"(?i:attention|transformer)|from_pretrained|\b(?:LSTM|GRU|RNN) \(|\b(?:bmm|matmul|einsum)\b")
"""What multiplies large matrices: for a few small layers the precision makes no difference."""


@rule(category="precision", costs=Cost.LAUNCH, severity=Severity.INFO, calls=_OPTIMIZERS)
def check(code: Code) -> Iterator[Finding]:
    """Report the optimizers of a program that leaves the precision to torch's default."""
    for call in code.calls_to(*_OPTIMIZERS):
        project, path = code.facts.project, code.source.path
        if not project.uses_accelerator(path) or project.program_may_hold(path, _CHOSEN):
            return
        if not project.program_may_hold(path, _PRODUCTS):
            return
        message = 'products of matrices run in full float32; `torch.set_float32_matmul_precision("high")` allows TF32'
        yield code.finding(call, message)
        return
