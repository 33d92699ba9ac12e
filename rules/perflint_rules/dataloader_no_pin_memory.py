"""A GPU program's DataLoader hands out batches in ordinary memory.

## What it does
Finds `DataLoader(...)` without `pin_memory` in a program that uses a GPU.

## Why it is slow
A copy to the GPU from ordinary (pageable) memory is first staged through a pinned buffer, on the thread that issues it.
With `pin_memory=True` a background thread of the loader does that work, and `non_blocking` copies return at once. Without
workers the training thread itself fills the pinned memory, so that only the wait for the copy goes.
Reported effects range from none to 8.6 % of throughput (metatrain#1273).

## Example
```python
device = torch.device("cuda")
loader = DataLoader(dataset, batch_size=64, num_workers=4)
```

## Use instead
```python
device = torch.device("cuda")
loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
```

## When it stays silent
When `pin_memory` is given in any way but as `False` (also through `**kwargs`), in programs that never name a device,
when all who take the loader's batches are known, and none of them copies one to a device, when batches hold arrays or are an
iterator, and when the dataset or the `collate_fn` returns device tensors. Select it to see what it finds: what pinning gains
depends on the size of a batch, which a source seldom tells. Two readers of 48 findings in public repositories called a quarter
worth the minute: those of batches of some 10 MB and more, which workers make in time.

## Fix safety
Unsafe: pinned memory is taken from the machine's RAM for good, a batch type of one's own needs a method `pin_memory`,
and a dataset that returns device tensors raises.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    DATA_LOADER,
    Code,
    Cost,
    Edit,
    Elements,
    Finding,
    FunctionRef,
    Import,
    Instance,
    Kind,
    Literal,
    Loader,
    LoaderCall,
    Mapping,
    Object,
    Obligation,
    Scope,
    Sequence,
    Severity,
    Tensor,
    Value,
    add_keyword,
    any_layout,
    argument,
    find_method,
    is_test,
    place_of,
    replace,
    rule,
)
from perflint_rules.pinned_by_hand import gains_nothing

_CUDA = any_layout(rb"\. cuda \(")
_NEXT = ("blocking-h2d-in-loop",)
_PINNABLE = (
    Obligation(Kind.MEMORY_TO_SPARE, "pinned memory is taken from RAM"),
    Obligation(Kind.PLAIN_BATCHES, "a batch type of one's own needs a method `pin_memory`"),
)
_OF_ANOTHER_CLASS = Obligation(Kind.UNKNOWN_CODE, "the loader's class may do something else with the argument")


@rule(category="data-loading", costs=Cost.LOADING, severity=Severity.WARNING, calls=[DATA_LOADER], fixes=True)
def check(code: Code) -> Iterator[Finding]:
    """Report each DataLoader of a GPU program that says nothing about pinning."""
    if not code.shows_info or is_test(code.scope):
        return
    kindred = code.kindred_loaders()
    for loader in (*code.loaders(), *kindred):
        call = loader.call
        refused = next((k.value for k in call.keywords if k.arg == "pin_memory" and _is_false(k.value)), None)
        told = refused is None and loader.gives("pin_memory") is not False
        if (told and not _is_refused_by_dict(loader)) or not code.facts.project.uses_accelerator(code.source.path):
            continue
        if loader.stays_on_host or _arrives_on_device(code, call) or gains_nothing(loader):
            continue
        alone = loader.is_left_without_workers
        helped = alone and not _gains_no_workers(loader)
        hint = "; with `num_workers=` others make and pin them while the GPU computes" if helped else ""
        own = (_OF_ANOTHER_CLASS,) if loader in kindred else ()
        missing = [*_PINNABLE, *own, *code.replaced(DATA_LOADER, "torch.cuda.is_available")]
        cure, pinned = "pin the loader's batches when there is a GPU", _pinned(code, call, refused)
        fix = code.fix(cure, pinned, unless=missing, leads_to=_NEXT) if not told else None  # the dict is in another place
        yield code.finding(
            call,
            "batches arrive in pageable memory, so copies to the GPU are staged by the training thread; pass `pin_memory=True`"
            + hint,
            fix,
            missing,
            severity=Severity.INFO,
        )


def _is_refused_by_dict(loader: LoaderCall) -> bool:
    """`DataLoader(data, **options)`, where `options` say `pin_memory=False`, if they say anything."""
    given = loader.given("pin_memory") if loader.argument("pin_memory") is None else []
    return bool(given) and all(value.must(lambda a: isinstance(a, Literal) and a.value is False) for value in given)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _pinned(code: Code, call: ast.Call, refused: ast.expr | None) -> Iterator[Edit | Import]:
    torch, imports = code.name_for("torch")
    yield from imports
    pinned = f"{torch}.cuda.is_available()"
    yield replace(code.source, refused, pinned) if refused is not None else add_keyword(code.source, call, "pin_memory", pinned)


def _gains_no_workers(loader: LoaderCall) -> bool:
    """Whether the samples are rows of tensors, which workers would copy, or a stream, which each of them would begin anew."""
    return any(dataset.is_iterable for dataset in loader.datasets) or loader.dataset.may(
        lambda a: isinstance(a, Object) and a.qualname.endswith(".TensorDataset")
    )


def _arrives_on_device(code: Code, call: ast.Call) -> bool:
    """Whether the samples are, or the collate function puts them, on a device: pinning them raises."""
    collate = argument(call, 6, "collate_fn")
    for alternative in code.value(collate).alternatives if collate is not None else ():
        if isinstance(alternative, FunctionRef):
            frame = code.facts.inference.frame(alternative.scope, (), 3)
            if _holds_device(code.facts.inference.returned(frame)):
                return True
    dataset = argument(call, 0, "dataset")
    return dataset is not None and _is_on_device(code, code.value(dataset))


def _is_on_device(code: Code, dataset: Value) -> bool:
    inference = code.facts.inference
    for alternative in dataset.alternatives:
        match alternative:
            case Loader():
                return True
            case Tensor():
                if alternative.place.may_be_device:
                    return True
            case Sequence(items):
                if any(_is_on_device(code, item) for item in items):
                    return True
            case Object(site=(Scope() as scope, ast.Call() as built)):  # TensorDataset, Subset, ConcatDataset
                if any(_is_on_device(code, inference.value(scope, given)) for given in built.args):
                    return True
            case Instance(cls):
                for name in ("__getitem__", "__iter__"):
                    method = find_method(inference, cls, name)
                    if method is None:
                        continue
                    frame = inference.bound(method, alternative, 3)
                    if (
                        _CUDA.search(method.text)
                        or b"device" in method.text
                        or (frame is not None and _holds_device(inference.returned(frame)))
                    ):
                        return True
    return False


def _holds_device(value: Value) -> bool:
    """Whether a value is, or is a container of, a tensor on a device."""
    for alternative in value.alternatives:
        if isinstance(alternative, Sequence):
            parts = alternative.items
        elif isinstance(alternative, Mapping):
            parts = (*(item for _, item in alternative.items), alternative.rest)
        else:
            parts = (alternative.element,) if isinstance(alternative, Elements) else ()
        if place_of(alternative).may_be_device or any(map(_holds_device, parts)):
            return True
    return False
