"""A convolution adds a bias that the normalisation behind it takes away.

## What it does
Finds `nn.Sequential(..., nn.Conv2d(a, b, 3), nn.BatchNorm2d(b), ...)` whose convolution or linear layer has a bias.

## Why it does not pay
`BatchNorm` subtracts the mean of each channel, and with it whatever the bias has added: the bias is a parameter that cannot
learn, with a gradient and two moments in the optimizer. What leaving it out saves is small: no difference was measured on a
CPU.

## Example
```python
block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
```

## Use instead
```python
block = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
```

## When it stays silent
When another `bias` than `True` is given, when something stands between the two, and for normalisations that are no `BatchNorm`.

## Fix safety
Unsafe: checkpoints have the parameter, and layers that are made later draw other initial values.
"""

import ast
from collections.abc import Iterator

from perflint.api import Code, Cost, Edit, Finding, Kind, Obligation, Severity, add_keyword, replace, rule

_LAYERS = tuple(f"torch.nn.{name}" for name in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "Linear"))
_NORMS = tuple(f"torch.nn.{name}" for name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"))
_POSITION = {"torch.nn.Linear": 2}
_DRAWS = Obligation(Kind.RANDOMNESS, "checkpoints have the bias, and layers that are made later draw other initial values")


@rule(
    category="memory",
    costs=Cost.MEMORY,
    severity=Severity.INFO,
    calls=["torch.nn.Sequential"],
    needs=[("BatchNorm",), ("Conv", "Linear(")],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each layer with a bias right before a batch normalisation."""
    for call in code.calls_to("torch.nn.Sequential"):
        for layer, norm in zip(call.args, call.args[1:], strict=False):
            if not (isinstance(layer, ast.Call) and isinstance(norm, ast.Call)) or not code.is_external(norm.func, *_NORMS):
                continue
            if not code.is_external(layer.func, *_LAYERS) or any(k.arg is None for k in layer.keywords):
                continue
            given = next((k.value for k in layer.keywords if k.arg == "bias"), None)
            if given is not None and not (isinstance(given, ast.Constant) and given.value is True):
                continue
            name = layer.func.attr if isinstance(layer.func, ast.Attribute) else getattr(layer.func, "id", "")
            if len(layer.args) > _POSITION.get(f"torch.nn.{name}", 7):
                continue
            message = "the normalisation behind it takes the bias away again; pass `bias=False`"
            yield code.finding(
                layer, message, code.fix("pass `bias=False`", _without(code, layer, given), unless=[_DRAWS]), [_DRAWS]
            )


def _without(code: Code, layer: ast.Call, given: ast.expr | None) -> Iterator[Edit]:
    yield add_keyword(code.source, layer, "bias", "False") if given is None else replace(code.source, given, "False")
