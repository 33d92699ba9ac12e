"""The features of each sample are computed again in each epoch.

## What it does
Finds spectrograms, filter banks, resampling, pitch and fingerprints of molecules in a dataset's `__getitem__`, or in functions
of the project that it calls.

## Why it is slow
The same transform of the same sample is computed as often as there are epochs, on the CPU, and the GPU waits for the slowest
worker. What was computed once only has to be looked up.

## Example
```python
class Speech(Dataset):
    def __init__(self, waves):
        self.waves = waves

    def __getitem__(self, index):
        return torch.stft(self.waves[index], 512, return_complex=True).abs()
```

## Use instead
```python
class Speech(Dataset):
    def __init__(self, waves):
        self.features = [torch.stft(wave, 512, return_complex=True).abs() for wave in waves]

    def __getitem__(self, index):
        return self.features[index]
```
or files that a script writes once; or, for whole batches, the transform on the GPU.

## When it stays silent
Under a condition (a cache), where the code that makes a sample draws random numbers (it may be another one each time), and
outside of datasets.

## Fix safety
There is no fix: all features have to fit into memory, or onto a disk.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Cost, External, Finding, Object, Severity, is_conditional, rule, runs_per_item

_REACH = 2
_RANDOM = re.compile(rb"\b(?:random|rand\w*|choice|sample|shuffle|augment\w*)\b")
_FEATURES = re.compile(
    r"""torch\.stft
    | librosa\.(?:core\.|feature\.|effects\.)?(?:stft|cqt|vqt|melspectrogram|mfcc|chroma\w*|spectral\w*|resample|pyin|yin|hpss)
    | torchaudio\.compliance\.kaldi\.\w+ | torchaudio\.functional\.(?:resample|spectrogram|compute_\w+)
    | torchaudio\.transforms\.(?:MelSpectrogram|MFCC|LFCC|Spectrogram|Resample)
    | python_speech_features\.(?:base\.)?(?:mfcc|fbank|logfbank|ssc) | pyworld\.\w+
    | scipy\.signal\.(?:stft|spectrogram|resample\w*|cwt)
    | rdkit\.Chem\.(?:MolFromSmiles|MolFromMol\w+|AllChem\.\w*(?:Fingerprint|Embed)\w*|rdMolDescriptors\.\w*Fingerprint\w*)""",
    re.VERBOSE,
)


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.INFO,
    needs=[("__getitem__",)],
    near=[("Dataset",), ("stft", "librosa", "torchaudio", "python_speech_features", "pyworld", "scipy", "rdkit")],
)
def check(code: Code) -> Iterator[Finding]:
    """Report the first transform that the code of a sample computes."""
    if not runs_per_item(code.facts, code.scope, 0) or _RANDOM.search(code.scope.text):
        return
    for call in code.flow.calls:
        computed = None if is_conditional(code.scope, call) else _computed(code, call, _REACH)
        if computed is not None:
            message = f"`{computed}` is computed for each sample again in each epoch; compute it once, and keep it"
            yield code.finding(call, message)
            return


def _computed(code: Code, call: ast.Call, depth: int) -> str | None:
    """The transform that a call computes, itself or in a function of the project that makes nothing at random."""
    held = code.value(call.func).single
    if isinstance(held, (External, Object)):
        return held.qualname if _FEATURES.fullmatch(held.qualname) and _runs(held, call) else None
    for target in code.facts.loops.targets(code.scope, call) if depth else ():
        inner = code.at(target)
        if not _RANDOM.search(target.text):
            for other in inner.flow.calls:
                computed = None if is_conditional(target, other) else _computed(inner, other, depth - 1)
                if computed is not None:
                    return computed
    return None


def _runs(held: External | Object, call: ast.Call) -> bool:
    """Whether a call computes the transform: for a class, the call of an object of it."""
    return isinstance(held, Object) or (bool(call.args or call.keywords) and ".transforms." not in held.qualname)
