"""What packages do by themselves, which no source of a program shows: only of those that are known is it known."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Final

from perflint.project.project import Project
from perflint.source.words import any_layout, words

_KNOWN: Final = words(
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
"""Packages that put nothing in the place of torch's functions, and have no loader which copies to a device: they compute on the
CPU, or on the stream that is current where they are called (transformers has streams for generation alone, which it keeps apart
itself). Not among them, because the memory of a batch may be given to the next one while the model still reads it: loaders that
copy ahead, as `timm.data.create_loader`'s, those of NVIDIA's DALI and apex, of DGL, `torch_geometric.loader.PrefetchLoader`."""


def stranger(project: Project, path: str) -> str | None:
    """What the program of a file takes from a package that is not known, the first by name; None if there is nothing."""
    files = project.members(path) or ()
    found = (name for file in files for name in project.outside(file) if not _is_known(project, file, name))
    return min((name.rstrip(".*") for name in found), default=None)


def _is_known(project: Project, file: str, name: str) -> bool:
    """Whether what a file imports is of a package that is known; of a whole module, what the file takes of it."""
    if is_known_package(name):
        return True
    parts = _listed_parts(name.removesuffix(".")) if name.endswith(".") else None
    return parts is not None and not project.holds(file, parts)


@cache
def is_known_package(dotted: str) -> bool:
    """Whether a module, or a part of it, is Python's own or of one of the packages that are known."""
    parts = dotted.split(".")
    return parts[0] in sys.stdlib_module_names or any(".".join(parts[:n]) in _KNOWN for n in range(1, len(parts) + 1))


@cache
def _listed_parts(package: str) -> re.Pattern[bytes] | None:
    """What a text holds that takes another part of a package than those that are known; None where no part of it is."""
    rows = (name.split(".") for name in sorted(_KNOWN))
    parts = [re.escape(row[1].encode()) for row in rows if row[0] == package and len(row) == 2]
    if not parts:
        return None
    name = re.escape(package.encode())
    return any_layout(rb"\b%b \. (?!(?:%b)\b)|[(,=\[{] %b (?! \.)|\b%b as\b" % (name, b"|".join(parts), name, name))
