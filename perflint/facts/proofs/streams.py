"""Whether a wait may be what keeps several streams apart: nothing of the kind is known of what a program's loops go over."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Final

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.fears import SIDE_STREAM, feared
from perflint.facts.values.values import Alternative, External, Literal, Loader, Mapping, Number, Sequence, Tensor
from perflint.project.project import Project
from perflint.rule.obligations import Kind, Obligation
from perflint.source.syntax import Scope, SyntaxProblem
from perflint.source.words import any_layout, words

HANDS_ON: Final = words(
    "builtins.enumerate builtins.zip builtins.iter tqdm.tqdm tqdm.auto.tqdm tqdm.std.tqdm tqdm.notebook.tqdm"
)
"""What gives the elements of what it is given."""
_ON_CURRENT_STREAM: Final = words(
    """
    torch torchvision torchaudio torchtext torchmetrics functorch perflint_runtime transformers peft tokenizers datasets
    safetensors huggingface_hub sentencepiece tiktoken evaluate timm.__version__ timm.create_model timm.models timm.layers
    timm.loss timm.optim timm.scheduler timm.utils timm.data.Mixup timm.data.create_transform timm.data.constants
    torch_geometric.nn torch_geometric.data.Data torch_geometric.data.Batch torch_geometric.data.Dataset
    torch_geometric.data.InMemoryDataset torch_geometric.datasets torch_geometric.loader.DataLoader
    torch_geometric.data.DataListLoader torch_geometric.data.DataLoader torch_geometric.transforms
    torch_geometric.utils torch_scatter torch_sparse torch_cluster ogb.graphproppred ogb.nodeproppred einops opt_einsum
    numpy scipy pandas polars sklearn skimage sympy networkx igraph numba.jit numba.njit numba.prange joblib xgboost lightgbm
    PIL cv2 imageio tifffile rasterio albumentations imgaug matplotlib mpl_toolkits seaborn plotly pylab pycocotools
    h5py lmdb zarr pyarrow netCDF4 nibabel pydicom SimpleITK openslide librosa soundfile resampy pesq pystoi mido pretty_midi
    nltk spacy sacrebleu rouge rouge_score jieba gensim rdkit ase pymatgen trimesh shapely Bio
    gym gymnasium ale_py minigrid mujoco mujoco_py dm_control pettingzoo atari_py
    lpips pytorch_msssim kornia torchinfo torchsummary torchviz thop ptflops fvcore flash_attn xformers
    tqdm rich loguru termcolor colorama colorlog prettytable tabulate texttable
    tensorboard tensorboardX wandb mlflow comet_ml neptune visdom swanlab
    yaml ruamel toml tomli omegaconf hydra absl fire click typer jsonargparse configargparse easydict addict attr attrs munch
    box ml_collections pydantic dotenv psutil requests packaging six future typing_extensions dill cloudpickle pytest setuptools
    """
)
"""Packages that have no loader which copies to a device: they compute on the CPU, or on the stream that is current where they
are called (transformers has streams for generation alone, which it keeps apart itself). Not among them, because the memory of
a batch may be given to the next one while the model still reads it: loaders that copy ahead, as `timm.data.create_loader`'s,
those of NVIDIA's DALI and apex, of DGL, and `torch_geometric.loader.PrefetchLoader`."""

_WORDS: Final = (
    "load data prefetch fetch batch iter stream pipe sampl queue feed read provid dali ffcv train engine runner learner"
)
_GIVES_BATCHES: Final = re.compile(
    rf"(?<![A-Za-z])(?i:{_WORDS.replace(' ', '|')}|dls?\b)|{_WORDS.title().replace(' ', '|')}|loader|fetcher|iterator"
)
"""What a package that is not known would call what gives batches, or what runs the loops: of others, layers, losses, drawing,
nobody's loop gets any."""


def one_stream(facts: Facts, scope: Scope) -> Obligation | None:
    """What stands against all work of a function's steps being on one stream, in whose order memory is used again.

    Streams that the program names; or batches of a loader that is not known, in a program with packages that may have one.
    """
    path = scope.module.source.path
    if (streams := next(feared(facts.project, path, SIDE_STREAM), None)) is not None:
        return streams
    if all(_is_known(facts, *loop) for loop in _loops(facts, scope)):
        return None
    files = facts.project.members(path) or ()
    strangers = (name for file in files for name in facts.project.outside(file) if not _is_harmless(facts.project, file, name))
    unknown = min(strangers, default=None)
    if unknown is None:
        return None
    words = f"batches may come from `{unknown.rstrip('.*')}`, which may copy the next one while this one is still in use"
    return Obligation(Kind.ONE_STREAM, words)


def _loops(facts: Facts, scope: Scope) -> Iterator[tuple[Scope, ast.expr | None]]:
    """What the loops of a function, and those of its callers, go over or take by `next`; None for what is not known."""
    pending, seen = [scope], {scope}
    while pending:
        found = pending.pop()
        try:
            loops = [loop for loop in flow_of(found).loops if loop.statement is not None]
            sites = facts.inference.callers.sites(found)
        except SyntaxProblem:
            yield found, None
            continue
        yield from ((found, loop.iterated) for loop in loops)
        for call in flow_of(found).calls_named["next"]:
            yield found, call.func.value if isinstance(call.func, ast.Attribute) else next(iter(call.args), None)
        if not sites.sites and not loops and not found.is_module:
            yield found, None
        new = {site.scope for site in sites.sites} - seen
        seen |= new
        pending += new


def _is_known(facts: Facts, scope: Scope, iterated: ast.expr | None) -> bool:
    """Whether a loop goes over torch's own loaders, numbers, or what is in memory."""
    if iterated is None:
        return False
    value = facts.inference.value(scope, iterated)
    if value.must(_is_plain):
        return True
    if not isinstance(iterated, ast.Call):
        return False
    callee = facts.inference.value(scope, iterated.func).single
    if not isinstance(callee, External):
        return False
    if callee.qualname == "builtins.range":
        return True
    return callee.qualname in HANDS_ON and all(_is_known(facts, scope, part) for part in iterated.args)


def _is_plain(alternative: Alternative) -> bool:
    return isinstance(alternative, (Loader, Tensor, Sequence, Mapping, Number, Literal))


def _is_harmless(project: Project, file: str, name: str) -> bool:
    """Whether what a file imports gives no batches that are copied ahead; of a whole module, what the file takes of it."""
    if _is_known_package(name):
        return True
    if _GIVES_BATCHES.search(name) or name.endswith("*"):
        return False
    return not name.endswith(".") or not project.holds(file, _taken_of(name[:-1]))


@cache
def _is_known_package(dotted: str) -> bool:
    """Whether a module, or a part of it, is Python's own or of one of the packages that are known."""
    parts = dotted.split(".")
    return parts[0] in sys.stdlib_module_names or any(
        ".".join(parts[:n]) in _ON_CURRENT_STREAM for n in range(1, len(parts) + 1)
    )


@cache
def _taken_of(module: str) -> re.Pattern[bytes]:
    """What a text holds that takes batches from a module by its name, or hands the module on."""
    name, words = re.escape(module.encode()), _GIVES_BATCHES.pattern.encode()
    first = re.escape(module.partition(".")[0].encode())
    return any_layout(rb"\b%b(?: \. \w+)* \. (?=\w*(?:%b))|[(,=\[{] %b [],)}]|\bimport %b as\b" % (first, words, first, name))
