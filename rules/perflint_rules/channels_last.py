"""Convolutions in half precision get their images channel by channel.

## What it does
Finds optimizers of GPU programs that train with mixed precision, build several `Conv2d` layers and never name `channels_last`.

## Why it is slow
cuDNN's kernels for tensor cores take images with the channels last; for others it transposes before and behind a convolution.
PyTorch's tuning guide recommends the format together with mixed precision. Reports go both ways, because one `view` in
between undoes it, and nothing was measured here.

## Example
```python
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cuda"):
    loss = model(x).sum()
```

## Use instead
```python
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3))
model = model.to("cuda", memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.autocast("cuda"):
    loss = model(x.to(memory_format=torch.channels_last)).sum()
```

## When it stays silent
Without mixed precision in the file, with fewer than three `Conv2d`, and when the program names `channels_last` anywhere.

## Fix safety
There is no fix: sums are added up in another order, and whether it pays has to be measured.
"""

from collections.abc import Iterator

from perflint.api import Code, Cost, Finding, Severity, any_layout, rule

_OPTIMIZERS = tuple(f"torch.optim.{name}" for name in ("Adagrad", "Adam", "AdamW", "RMSprop", "SGD"))
_CHOSEN = any_layout(rb"channels_last")
_MIXED = any_layout(
    rb"(?<!accelerator\.)\bautocast \((?![^()]*enabled = False)|\. (?:half|bfloat16) \("
    rb"|\b(?:fp16|bf16|(?:use_|native_)?amp) = True\b"
    rb"|\b(?:mixed_)?precision = ['\"]?(?:16|bf16|fp16)\b[^\n]{0,9} [,)\n]|= torch \. b?float16|\. to \( torch \. b?float16"
)
_SCALES, _CASTS = any_layout(rb"\bGradScaler \((?![^()]*enabled = False)"), any_layout(rb"(?<!accelerator\.)\bautocast \(")
_CONVOLVES = any_layout(rb"(?:Conv2d \([\s\S]*?){3}|resnet|torchvision \. models")


@rule(category="memory", costs=Cost.LAUNCH, severity=Severity.INFO, calls=_OPTIMIZERS)
def check(code: Code) -> Iterator[Finding]:
    """Report the first optimizer of a program that trains convolutions in half precision."""
    for call in code.calls_to(*_OPTIMIZERS):
        project, path = code.facts.project, code.source.path
        if not project.uses_accelerator(path) or project.program_may_hold(path, _CHOSEN):
            return
        mixed = project.holds(path, _MIXED) or (project.holds(path, _SCALES) and project.program_holds(path, _CASTS))
        if mixed and project.program_holds(path, _CONVOLVES):
            yield code.finding(call, "convolutions in half precision are made for `memory_format=torch.channels_last`; try it")
            return
