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
from PIL import Image

class Images(Dataset):
    def __getitem__(self, index):
        return torch.from_numpy(np.array(Image.open(self.paths[index])))

loader = DataLoader(Images(), batch_size=64)
```

## Use instead
```python
from PIL import Image

class Images(Dataset):
    def __getitem__(self, index):
        return torch.from_numpy(np.array(Image.open(self.paths[index])))

loader = DataLoader(Images(), batch_size=64, num_workers=4)
```
`perflint_runtime.tune_loader` measures how many pay.

## When it stays silent
When the number of workers is not 0, or not known; for datasets that are not the project's own; when no sample opens a file,
decodes, tokenises, or draws a random number for each of its parts in a loop of Python, or only those of the first epoch do
(`if self.images[i] is None`) or those of whoever asks for it (`if self.lazy`); for iterable datasets, which workers would
repeat.

Select it to see the loaders that workers gain little for:
- batches stay on the host, or all that is seen takes a few, shows them, has a language model write text, or evaluates, also by
  what the dataset is made with (`"data/test"`, `train=False`) or a test above (`if phase == "val"`);
- the program is run without a GPU, or moves all to the CPU;
- a sample is read as it is stored (`np.load`, `torch.load`, JSON), decoded by torchvision itself (`read_image`), only
  tokenised or masked, or uses the GPU itself, also because tensors are made there by default;
- pictures lie in memory: the digits of MNIST and the like, and those of CIFAR if they are cut and flipped at most;
- the loader is made in a step, the few samples are written out, drawn or kept in memory by an option, or there are a thousand
  epochs, which are short;
- samples draw from a generator of the dataset: each worker would draw the same in every epoch;
- the program sets what samples read of their dataset (`loader.dataset.index = i`): each worker has a copy;
- workers are spawned: the program says so, has paths or modules of Windows, or names the GPU of a Mac alone;
- their number is an option that is 0 by default, and that no command or file of settings of the project gives: of 14 such
  findings on code that we had not seen 57 % were called useful, of 19 others 79 %;
- a comment says what the 0 is for, or a test asks for another system or a debugger;
- samples are read by a file that the dataset opens when it is made: workers would share it (`shared-handle-across-fork`);
- a thread makes the batches beside the training (prefetch_generator, MONAI), or they are for a page of streamlit or gradio;
- a latent diffusion model is trained, whose step takes far longer than a picture.

## Fix safety
Unsafe: random numbers that samples draw come from other generators in workers, which see no later change of the dataset,
and how many workers pay depends on the machine. There is no fix where samples use the GPU or draw from a generator of the
dataset, where workers are spawned or get a lambda, and where a file's top makes the loader without a main guard or a cell of
a notebook defines the dataset: workers that are spawned (Windows, macOS) would run the program anew, or not find the
dataset. An option keeps its default. Workers stay (`persistent_workers=True`) where one loop goes over a loader that is made
once, the dataset has no methods but those that make samples, and nothing in sight reaches for it.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    DATA_LOADER,
    Code,
    Cost,
    Finding,
    Kind,
    LoaderCall,
    Obligation,
    Place,
    Scope,
    Severity,
    Whereabouts,
    any_layout,
    find_method,
    flow_of,
    is_run_without_gpu,
    is_test,
    rule,
    target_of,
)
from perflint_rules.loader_use import begins_anew, worth
from perflint_rules.loader_workers import SOME_WORKERS, how_to_get_workers, may_stay, with_workers
from perflint_rules.loaders_of_evaluations import is_for_evaluation
from perflint_rules.pictures import is_quick
from perflint_rules.repeated_calls import is_called_again
from perflint_rules.sample_work import OWN_READERS, sample_work
from perflint_rules.worth_of_workers import gain_little

_DEVICE = rb"(?:(?:\w+ \. )*DEVICE|(?:self \. )?(?:\w*(?:arg|opt|cfg|conf|config|param|setting)s? \. )?device)\b"
_TO_GPU = any_layout(rb"\. cuda \(|\. to \( (?:device = )?%b|device = (?:%b|['\"]cuda)|requires_grad" % (_DEVICE, _DEVICE))
"""What uses the GPU, by its names; `x.device` is the host, where samples are."""
_ON_GPU = any_layout(rb"\bset_default_(?:tensor_type \([^()]*\bcuda|device \([^()]*\bcuda)")
_ELSEWHERE = Obligation(
    Kind.RANDOMNESS, "samples are made in other processes: their random numbers differ, and they see no change of the dataset"
)


@rule(
    category="data-loading",
    costs=Cost.LOADING,
    severity=Severity.WARNING,
    calls=[DATA_LOADER],
    near=[("Dataset", "datasets"), ("__getitem__", "torchvision")],
    options=[OWN_READERS],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each loader without workers whose samples take work."""
    if is_test(code.scope):
        return
    for loader in (*code.loaders(), *code.kindred_loaders()):
        if not loader.is_left_without_workers or any(d.is_iterable for d in loader.datasets) or _goes_on(loader):
            continue
        found = sample_work(code, loader)
        if found is not None:
            work, pays = found
            idle = loader.stays_on_host  # nothing trains on it
            waits = "the GPU" if code.facts.project.uses_accelerator(code.source.path) else "the training"
            waits = "what goes over the batches" if idle else waits
            stay = may_stay(code, loader) and not is_for_evaluation(code, loader)
            cure = how_to_get_workers(code, loader, stay)
            message = f"the main process itself makes each sample (`{work}`), and {waits} waits; {cure}"
            moves = _moves_samples(code, loader)
            little = idle or moves or gain_little(code, loader) or _is_made_often(code, loader)
            little = little or not pays or is_for_evaluation(code, loader) or is_quick(loader.samples)
            little = little or is_run_without_gpu(code.facts, code.source.path) or _is_drawn_anew(code, loader)
            little = little or code.whereabouts() is Whereabouts.HOST or loader.has_few_batches
            little = little or loader.ends_first
            fix = code.fix(SOME_WORKERS, with_workers(code, loader, moves, stay), unless=[_ELSEWHERE])
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


def _moves_samples(code: Code, loader: LoaderCall) -> bool:
    """Whether the code of a sample uses the GPU, which workers that are forked cannot (cuda-in-dataset).

    So do what makes a batch of numbers where tensors are made on the GPU if nothing else is said, and transforms beside a
    dataset or a loader that move what they get.
    """
    if code.facts.project.program_holds(code.source.path, _ON_GPU):
        return True
    modules = {scope.module for scope in (code.scope, *loader.sample_code())}
    transforms = (scope for module in modules for scope in module.scopes_with("__call__") if scope.name == "__call__")
    return any(_TO_GPU.search(scope.text) or _moves_to_gpu(loader, scope) for scope in (*loader.sample_code(), *transforms))


def _moves_to_gpu(loader: LoaderCall, scope: Scope) -> bool:
    moves = (call for call in flow_of(scope).calls_named.get("to", ()) if isinstance(call.func, ast.Attribute))
    return any(target_of(loader.facts.inference, scope, call) in (Place.CUDA, Place.CUDA_OR_HOST) for call in moves)


def _is_made_often(code: Code, loader: LoaderCall) -> bool:
    """Whether a loader is made in each step, for a batch or some: starting workers takes longer."""
    return code.heat is not None or code.around(loader.call) is not None or any(code.facts.loops.hot_calls(code.scope))


def _is_drawn_anew(code: Code, loader: LoaderCall) -> bool:
    """Whether a loader is made again and again, and gives single batches: `next(iter(loader))` of an episode."""
    return is_called_again(code, code.scope, 2) and any(begins_anew(taker) for _, taker in loader.takers())
