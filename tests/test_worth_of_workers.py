"""Loaders without workers for which workers would do little, or which have them already."""

import pytest
from conftest import Project

pytestmark = pytest.mark.usefixtures("waits_told")

IMAGES = """\
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms.functional import to_tensor


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]))
"""
TRAIN = """\
{imports}
from data import Images
from settings import made


def main(args, network, optimizer, paths):
{loader}
    for epoch in range(30):
        for x in {batches}:
            network(x.cuda()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main(*made())
"""
PLAIN = "import os, sys\nfrom torch.utils.data import DataLoader"
LOADER = "loader = DataLoader(Images(paths), batch_size=8{given}"


def is_told(project: Project, loader: str, imports: str = PLAIN, batches: str = "loader", **files: str) -> bool:
    indented = "\n".join(f"    {line}" for line in loader.splitlines())
    code = TRAIN.format(imports=imports, loader=indented, batches=batches)
    project.write({"data.py": IMAGES, "train.py": code, **{f"{name}.py": text for name, text in files.items()}})
    return "dataloader-no-workers" in {rule for rule, _ in project.rules()}


ZERO = LOADER.format(given=", num_workers=0)")


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        (LOADER.format(given=")"), True),
        ('loader = DataLoader(Images("pictures/val.csv"), batch_size=8)', False),
        ('kept = Images("pictures/Test")\nloader = DataLoader(kept, batch_size=8)', False),
        ('kept = Images("pictures/train_val")\nloader = DataLoader(kept, batch_size=8)', True),
        ('kept = Images("test/pictures")\nloader = DataLoader(kept, batch_size=8)', True),
        (f'loader = paths\nif args.phase == "train":\n    {ZERO}', True),
        (f'loader = paths\nif args.phase == "val":\n    {ZERO}', False),
        (f'loader = paths\nif args.phase in ("val", "test"):\n    {ZERO}', False),
        (f'loader = paths\nif args.phase in ("train", "test"):\n    {ZERO}', True),
        (f'loader = paths\nif args.phase == "val":\n    pass\nelse:\n    {ZERO}', True),
        (f"{ZERO}  # must stay 0: workers deadlock", False),
        (f"{ZERO}  # num_workers=0 to avoid data duplication in memory", False),
        (f"{ZERO}  # Important for SLURM", False),
        (f"{ZERO}  # 4", True),
        (f"{ZERO}  # TODO: must be raised", True),
        (f"# handles cannot be shared by forked workers\n{ZERO}", False),
        (f"# the test set has to be loaded first\n{ZERO}", True),
        (f"# the network needs images of one size\n{ZERO}", True),
        (f"# preprocessing must be the same as in the evaluation\n{ZERO}", True),
        (f"# DataParallel splits a batch, so batch_size must be divisible\n{ZERO}", True),
        ("loader = DataLoader(Images(paths), num_workers=0, batch_size=8)  # must be even", True),
        (f"n = 0  # more of them crash\n{LOADER.format(given=', num_workers=n)')}", False),
        (f"loader = DataLoader(Images(paths), num_workers=8)\nif sys.gettrace() is not None:\n    {ZERO}", False),
        (f"loader = DataLoader(Images(paths), num_workers=8)\nif sys.platform == 'win32':\n    {ZERO}", False),
        (f"loader = DataLoader(Images(paths), num_workers=8)\nif os.name == 'nt':\n    {ZERO}", False),
        (f"loader = DataLoader(Images(paths), num_workers=8)\nif args.small:\n    {ZERO}", True),
        (f"if args.debug:\n    loader = DataLoader(Images(paths[:8]))\nelse:\n    {ZERO}", True),
        (f"if sys.platform != 'win32':\n    loader = DataLoader(Images(paths), num_workers=8)\nelse:\n    {ZERO}", False),
    ],
)
def test_it_may_be_said_why_there_are_no_workers(project: Project, loader: str, told: bool) -> None:
    assert is_told(project, loader) is told


MOVES = """\
class Moves:
    def __call__(self, sample):
        return sample{moved}


"""


@pytest.mark.parametrize(("moved", "told"), [(".cuda()", False), (".to('cuda')", False), (".float()", True)])
def test_what_moves_samples_may_be_handed_to_the_dataset(project: Project, moved: str, told: bool) -> None:
    assert is_told(project, ZERO, f"{PLAIN}\n\n\n{MOVES.format(moved=moved)}") is told


BY_TRAINER = """\
import lightning
import torch
from torch.utils.data import DataLoader
from data import Images
from settings import network, paths


def main():
    trainer = lightning.Trainer(accelerator="gpu")
    trainer.{does}(network, DataLoader(Images(paths), batch_size=8))


main()
"""


@pytest.mark.parametrize(("does", "told"), [("fit", True), ("test", False), ("predict", False)])
def test_a_trainer_tests_once_with_what_is_made_right_there(project: Project, does: str, told: bool) -> None:
    project.write({"data.py": IMAGES, "train.py": BY_TRAINER.format(does=does)})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("loader.dataset.paths = made()", False),
        ("loader.dataset.epoch = 3", True),
        ("assert loader.dataset.paths == made()", True),
        ("torch.set_default_tensor_type('torch.cuda.FloatTensor')", False),
        ("torch.set_default_tensor_type(torch.DoubleTensor)", True),
        ("torch.set_default_device('cuda:0')", False),
    ],
)
def test_workers_see_no_change_and_no_gpu(project: Project, said: str, told: bool) -> None:
    assert is_told(project, f"{ZERO}\n{said}", f"import torch\n{PLAIN}") is told


OWN = """\
import torch
{imports}


class DataLoader(torch.utils.data.DataLoader):
    def {method}
"""


@pytest.mark.parametrize(
    ("imports", "method", "told"),
    [
        (
            "",
            "__init__(self, data, **more):\n        more.setdefault('num_workers', 8)\n        super().__init__(data, **more)",
            False,
        ),
        (
            "",
            "__init__(self, data, **more):\n        more.setdefault('drop_last', True)\n        super().__init__(data, **more)",
            True,
        ),
        ("", "__init__(self, data, **more):\n        super().__init__(data, num_workers=8, **more)", False),
        (
            "",
            "__init__(self, data, num_workers=0, **more):\n        super().__init__(data, num_workers=num_workers, **more)",
            True,
        ),
        (
            "from prefetch_generator import BackgroundGenerator",
            "__iter__(self):\n        return BackgroundGenerator(super().__iter__(), max_prefetch=8)",
            False,
        ),
    ],
    ids=["set", "another", "handed", "a parameter", "a thread"],
)
def test_a_class_of_loaders_may_see_to_it(project: Project, imports: str, method: str, told: bool) -> None:
    loaders = OWN.format(imports=imports, method=method)
    imported = "import torch\nfrom loaders import DataLoader"
    assert is_told(project, LOADER.format(given=")"), imports=imported, loaders=loaders) is told


def test_a_thread_may_make_the_batches(project: Project) -> None:
    imports = f"from prefetch_generator import BackgroundGenerator\n{PLAIN}"
    assert not is_told(project, LOADER.format(given=")"), imports, "BackgroundGenerator(loader)")


RECORDS = """\
import io
import h5py
import lmdb
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms.functional import to_tensor


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths
        {opened}

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(io.BytesIO({read})))
"""


@pytest.mark.parametrize(
    ("opened", "read", "told"),
    [
        ("self.env = lmdb.open('a'); self.records = self.env.begin()", "self.records.get(self.paths[index])", False),
        ("self.records = h5py.File('a')['images']", "self.records[index]", True),
        ("self.env = lmdb.open('a', lock=False)", "self.env.begin().get(self.paths[index])", True),
        ("self.records = h5py.File('a')['images'][:]", "self.records[index]", True),
    ],
)
def test_workers_would_share_an_open_file(project: Project, opened: str, read: str, told: bool) -> None:
    code = TRAIN.format(imports=PLAIN, loader=f"    {LOADER.format(given=')')}", batches="loader")
    project.write({"data.py": RECORDS.format(opened=opened, read=read), "train.py": code})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told


EVALUATED = """\
import torch
from torch.utils.data import DataLoader
from data import Images


def score(network, optimizer, paths):
    loader = DataLoader(Images(paths), batch_size=8)
    for epoch in range(3):
        for x in loader:
            network(x.cuda()).sum().backward()
            optimizer.step()
"""


@pytest.mark.parametrize(("page", "told"), [("import streamlit as st", False), ("import json as st", True)])
def test_a_page_needs_no_workers(project: Project, page: str, told: bool) -> None:
    app = f"{page}\nfrom tune import score\nst.write(score(*st.session_state.all))\n"
    project.write({"data.py": IMAGES, "tune.py": EVALUATED, "app.py": app})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told
