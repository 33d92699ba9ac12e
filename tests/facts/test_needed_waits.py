"""Whether a program has anything that only a wait makes safe."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.proofs.copies import no_copy_in_flight

STEPS = """import torch
{imports}
from torch.utils.data import DataLoader, TensorDataset

def helper(x, buffer):
    {helper}
    return x

def run(data, model, {given}):
    for batch in {loader}:
        x = batch[0].cuda(non_blocking=True)
        helper(x, batch)
        {step}

run(torch.ones(8), torch.nn.Linear(8, 1), torch.load("batches.pt"))
"""
TORCHS_LOADER = "DataLoader(TensorDataset(data, data), pin_memory=True)"
KEPT = {
    "pass": True,
    "x.to('cuda', non_blocking=True)": True,
    "x.to('cpu', non_blocking=True)": False,
    "x.to('cpu', non_blocking=False)": True,
    "x.to('cpu', non_blocking=x.is_cuda)": False,
    "x.to(torch.device(str('cpu')), True)": False,
    "torch.ones(3).to('cuda', non_blocking=True)": True,
    "torch.ones(3).to(data, non_blocking=True)": True,
    "torch.zeros(3, device='cuda').copy_(torch.ones(3), non_blocking=True)": True,
    "torch.zeros(3).copy_(x, non_blocking=True)": False,
    "torch.zeros(3).copy_(x, True)": False,
    "[lambda: x.to('cpu', non_blocking=True)][0]()": False,
    "torch.utils.unknown(x, non_blocking=True)": False,
    "functools.partial(torch.Tensor.to, device='cpu', non_blocking=True)": False,
    "x.to(**{'device': 'cpu', 'non_blocking': True})": False,
    "x.to(**dict(device='cpu', non_blocking=True))": False,
    "torch.empty(4).pin_memory()": False,
    "torch.empty(4, pin_memory=True)": False,
    "torch.cuda.CUDAGraph().replay()": False,
    "torch.cuda.make_graphed_callables(model, (x,))": False,
    "torch.get_device_module('cuda').Stream(device=0)": False,
    "torch.cuda.current_stream().wait_event(x)": False,
    "start.elapsed_time(end)": False,
    "model.share_memory()": False,
    "batch[0][:2] = 0": False,
    "batch[0].zero_()": False,
    "session.run_with_iobinding(x.data_ptr())": False,
    "torch.utils.dlpack.to_dlpack(x)": False,
}


@pytest.mark.parametrize(("code", "is_proved"), KEPT.items())
@pytest.mark.parametrize("where", ["step", "helper"])
def test_what_a_program_has_that_needs_a_wait(code: str, where: str, is_proved: bool) -> None:
    if where == "helper":
        code = code.replace("batch", "buffer")
    assert _is_proved(**{where: code}) is is_proved


LOADERS = {
    TORCHS_LOADER: True,
    f"enumerate({TORCHS_LOADER})": True,
    f"zip({TORCHS_LOADER}, {TORCHS_LOADER})": True,
    f"tqdm(enumerate({TORCHS_LOADER}))": True,
    "range(10)": True,
    "[data, data]": True,
    "given": True,
}
PACKAGES = {
    "import numpy, transformers": True,
    "from tqdm import tqdm": True,
    "from timm.models import create_model": True,
    "import timm\ntimm.create_model('resnet18')": True,
    "import unknown\nunknown.Layer()": False,
    "from unknown import Layer": False,
    "import timm\ntimm.data.create_loader(None)": False,
    "from timm.data import create_loader": False,
    "import unknown\nunknown.PrefetchedBatches()": False,
    "import unknown\nuse(unknown)": False,
    "import unknown as other\nother.Loader()": False,
    "from unknown.dataloading import Layer": False,
    "from unknown import get_dls": False,
    "from nvidia.dali.plugin.pytorch import DALIGenericIterator": False,
    "from .missing import prefetched": False,
}


def test_any_name_may_be_of_a_package_that_gives_all_its_names() -> None:
    assert not _is_proved(imports="from unknown import *", loader="range(10)")


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("imports", "is_known"), PACKAGES.items())
def test_batches_are_of_a_loader_that_is_known_or_of_a_program_that_has_no_other(
    imports: str, is_known: bool, loader: str
) -> None:
    imports = f"from tqdm import tqdm\n{imports}"
    assert _is_proved(loader=loader, imports=imports) is (is_known or loader != "given")


@pytest.mark.parametrize(("batch", "is_proved"), [("next(given)", False), ("given.next()", False), ("given.pop()", True)])
def test_batches_are_taken_one_by_one(batch: str, is_proved: bool) -> None:
    step = f"y = {batch}"
    assert _is_proved(imports="from yolox.data import DataPrefetcher", loader="range(10)", step=step) is is_proved
    assert _is_proved(imports="from torchvision.models import resnet18", loader="range(10)", step=step)


@pytest.mark.parametrize(
    ("given", "loader", "source"),
    [
        ("train_batches", "enumerate(train_batches)", "`train_batches`"),
        ("indices", "indices", "a loader that is not known"),
    ],
)
def test_a_reason_names_what_gives_batches_and_no_package_that_may_give_none(given: str, loader: str, source: str) -> None:
    training = "model(x).sum().backward()"
    imports = "from accelerate import init_empty_weights"
    program = Program(STEPS.format(imports=imports, helper="pass", step=training, loader=loader, given=given))
    missing = no_copy_in_flight(program.facts, program.scope("run"))
    assert missing is not None
    assert missing.words.startswith(f"batches may come from {source}, which")


def _is_proved(imports: str = "", helper: str = "pass", step: str = "pass", loader: str = TORCHS_LOADER) -> bool:
    program = Program(STEPS.format(imports=imports, helper=helper, step=step, loader=loader, given="given"))
    return no_copy_in_flight(program.facts, program.scope("run")) is None
