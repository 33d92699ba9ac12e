"""Samples are decoded by the process that trains.

## What it does
Finds `DataLoader(...)` without workers over a dataset of the project whose samples are read from files, decoded or
tokenised, or over images of `torchvision.datasets` that are read from files or transformed, also by way of a dataset of the
project (`self.images[i]`) or of `random_split`. Without workers is also `num_workers=0`, and an option that is 0 by default
and that no command or file of settings of the project sets.

## Why it is slow
With `num_workers=0` the training process makes each batch itself, and the GPU waits meanwhile. With workers, batches are
made beside the training. Reports of ten times the speed exist where decoding dominates; for tensors that are in memory
already, workers are slower.

## Example
```python
class Images(Dataset):
    def __getitem__(self, index):
        return torch.load(self.paths[index])

loader = DataLoader(Images(), batch_size=64)
```

## Use instead
```python
class Images(Dataset):
    def __getitem__(self, index):
        return torch.load(self.paths[index])

loader = DataLoader(Images(), batch_size=64, num_workers=4)
```
`perflint_runtime.tune_loader` measures how many pay.

## When it stays silent
When the number of workers is not 0, or not known; for datasets that are not the project's own; when no sample opens a file,
decodes, tokenises, or draws a random number for each of its parts in a loop of Python; for iterable datasets, which workers
would repeat. Where batches stay on the host, where all that is seen takes one batch, or has a language model write text, or
evaluates, in programs that are run without a GPU or move all to the CPU, where a sample is only tokenised or masked or uses
the GPU itself, where the loader is made in a step, where the few samples are written out or kept in memory by an option,
and for the digits of MNIST and the like, where the help of an option says what its 0 is for, where samples draw from a
generator of the dataset (each worker would draw the same in every epoch), where workers are spawned (the program says so,
or has paths of Windows), and beside a latent diffusion model, whose step takes far longer than a picture, select it to see
it.

## Fix safety
Unsafe: random numbers that samples draw come from other generators in workers, which see no later change of the dataset,
and how many workers pay depends on the machine. There is no fix where samples use the GPU or draw from a generator of the
dataset, where workers are spawned or get a lambda, and where a file's top makes the loader without a main guard or a cell of
a notebook defines the dataset: workers that are spawned (Windows, macOS) would run the program anew, or not find the
dataset. An option keeps its default.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    DATA_LOADER,
    Code,
    Cost,
    External,
    Finding,
    Kind,
    LoaderCall,
    Obligation,
    Option,
    Scope,
    Severity,
    Whereabouts,
    ancestors,
    any_layout,
    find_method,
    flow_of,
    is_behind_the_end,
    is_guarded,
    is_run_without_gpu,
    is_test,
    rule,
    words,
)
from perflint_rules.loader_use import begins_anew, worth
from perflint_rules.loader_workers import SOME_WORKERS, gain_little, how_to_get_workers, with_workers
from perflint_rules.loaders_of_evaluations import is_for_evaluation
from perflint_rules.pictures import images, is_quick
from perflint_rules.repeated_calls import is_called_again

_READS = words(
    """
    builtins.open io.open gzip.open PIL.Image.open cv2.imread cv2.imdecode cv2.VideoCapture imageio.imread imageio.v2.imread
    skimage.io.imread numpy.load numpy.loadtxt numpy.genfromtxt torch.load torchaudio.load torchvision.io.read_image
    torchvision.io.read_video librosa.load soundfile.read scipy.io.wavfile.read scipy.io.loadmat h5py.File pickle.load
    json.load pandas.read_csv pandas.read_parquet pandas.read_pickle pandas.read_json nibabel.load pydicom.dcmread
    safetensors.torch.load_file
    """
)
_READY = ("torchvision.datasets.", "torchaudio.datasets.")
_TO_GPU = any_layout(rb"\. cuda \(|\. to \( (?:self \. )?device\b|device = (?:self \. )?device\b|requires_grad")
_OWN = Option("readers", (), "Names of further functions and methods that read or decode a sample")
_ELSEWHERE = Obligation(
    Kind.RANDOMNESS, "samples are made in other processes: their random numbers differ, and they see no change of the dataset"
)
_DRAWS = words("random randint randrange choice uniform rand")
_TOKENISES = words("tokenizer tokenize encode_plus batch_encode_plus")
_CHEAP = _DRAWS | _TOKENISES


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.WARNING,
    calls=[DATA_LOADER],
    near=[("Dataset", "datasets"), ("__getitem__", "torchvision")],
    options=[_OWN],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loader without workers whose samples take work."""
    if is_test(code.scope):
        return
    for loader in (*code.loaders(), *code.kindred_loaders()):
        if not loader.is_left_without_workers or any(d.is_iterable for d in loader.datasets) or _goes_on(loader):
            continue
        each = (scope for scope in loader.sample_code() if not _runs_at_first(code, scope))
        work = next(filter(None, (_work(code, scope) for scope in each)), images(loader.samples))
        if work is not None:
            idle = loader.stays_on_host  # nothing trains on it
            waits = "the GPU" if code.facts.project.uses_accelerator(code.source.path) else "the training"
            waits = "what goes over the batches" if idle else waits
            cure = how_to_get_workers(code, loader)
            message = f"the main process itself makes each sample (`{work}`), and {waits} waits; {cure}"
            moves = _moves_samples(loader)
            little = idle or moves or gain_little(code, loader) or _is_made_often(code, loader)
            little = little or work.rpartition(".")[2] in _CHEAP or is_for_evaluation(code, loader) or is_quick(loader)
            little = little or is_run_without_gpu(code.facts, code.source.path) or _is_drawn_anew(code, loader)
            little = little or code.whereabouts() is Whereabouts.HOST or loader.has_few_batches
            fix = code.fix(SOME_WORKERS, with_workers(code, loader, moves), unless=[_ELSEWHERE])
            severity = Severity.INFO if little else worth(code, loader)
            yield code.finding(loader.call, message, fix, [_ELSEWHERE], severity=severity)


def _goes_on(loader: LoaderCall) -> bool:
    """Whether a sample is the next one of something, whatever its number is: each worker would begin anew."""
    for dataset in loader.datasets:
        method = find_method(loader.facts.inference, dataset.cls, "__getitem__")
        if method is not None and len(method.parameters) > 1:
            flow, number = flow_of(method), method.parameters[1].arg
            if not any(flow.uses[d] for d in flow.definitions_of(number) if d.kind == "parameter"):
                return True
    return False


def _runs_at_first(code: Code, scope: Scope) -> bool:
    """`if self.data is None: self.load()`: whether all calls of a function stand behind a look whether that was done."""
    sites = code.facts.inference.callers.sites(scope).sites
    return bool(sites) and all(is_guarded(flow_of(site.scope), site.node) for site in sites)


def _moves_samples(loader: LoaderCall) -> bool:
    """Whether the code of a sample uses the GPU, which workers that are forked cannot (cuda-in-dataset)."""
    return any(_TO_GPU.search(scope.text) for scope in loader.sample_code())


def _is_made_often(code: Code, loader: LoaderCall) -> bool:
    """Whether a loader is made in each step, for a batch or some: starting workers takes longer."""
    return code.heat is not None or code.around(loader.call) is not None or any(code.facts.loops.hot_calls(code.scope))


def _is_drawn_anew(code: Code, loader: LoaderCall) -> bool:
    """Whether a loader is made again and again, and gives single batches: `next(iter(loader))` of an episode."""
    return is_called_again(code, code.scope, 2) and any(begins_anew(taker) for _, taker in loader.takers())


def _is_of_ready_dataset(code: Code, scope: Scope, call: ast.Call) -> bool:
    """`super().__getitem__(index)` of a dataset of torchvision or torchaudio, which reads and decodes a file."""
    match call.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__getitem__") if scope.owner is not None:
            above = ancestors(code.facts.inference, scope.owner)
            return any(isinstance(base, str) and base.startswith(_READY) for base in above)
    return False


def _work(code: Code, scope: Scope) -> str | None:
    """The call of a function that reads, decodes, tokenises, or draws for each part of a sample, as it is written."""
    for call in (call for call in flow_of(scope).calls if not is_behind_the_end(flow_of(scope), call)):
        if _is_of_ready_dataset(code, scope, call):
            return ast.unparse(call.func)
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _TOKENISES or name in code.option(_OWN):
            return ast.unparse(call.func)
        loop = flow_of(scope).loop(call) if name in _DRAWS else None
        if loop is not None and isinstance(loop.statement, ast.For):
            return ast.unparse(call.func)
        value = code.at(scope).value(call.func)
        if value.must(lambda a: isinstance(a, External) and a.qualname in _READS):
            return ast.unparse(call.func)
    for node in flow_of(scope).order:  # `self.images[i]`, of a dataset that this one takes its samples from
        match node:
            case ast.Subscript(value=ast.Attribute() as held, ctx=ast.Load()):
                if images(code.at(scope).value(held)) is not None:
                    return ast.unparse(node)
    return None
