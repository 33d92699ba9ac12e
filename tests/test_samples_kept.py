"""Samples that are in memory after the first epoch, or that nobody reads unless an option is given."""

import pytest
from conftest import Project

pytestmark = pytest.mark.usefixtures("waits_told")

CODE = """\
import h5py
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor


def read(path):
    return to_tensor(Image.open(path))


class Images(Dataset):
    def __init__(self, paths, lazy=False, cached=False):
        self.paths, self.lazy, self.cached = paths, lazy, cached
        self.images = [None] * len(paths) if lazy else [read(path) for path in paths]
        self.table, self.file = {{}}, None

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
{item}


def main(network, optimizer, paths):
    for x in DataLoader(Images(paths{given}), batch_size=8):
        network(x.cuda()).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    from settings import made

    main(*made())
"""
READ = "to_tensor(Image.open(self.paths[index]))"
KEEP = f"x = {READ}\nself.table[index] = x\nreturn x"


@pytest.mark.parametrize(
    ("item", "given", "told"),
    [
        (f"if self.images[index] is None:\n    self.images[index] = {READ}\nreturn self.images[index]", "", False),
        (f"if index not in self.table:\n    x = {READ}\n    self.table[index] = x\nreturn self.table[index]", "", False),
        (f"if index in self.table:\n    return self.table[index]\n{KEEP}", "", False),
        (f"x = self.table.get(index)\nif x is None:\n    x = {READ}\n    self.table[index] = x\nreturn x", "", False),
        ("if (x := self.images[index]) is None:\n    x = self.images[index] = read(self.paths[index])\nreturn x", "", False),
        (f"if index in self.table:\n    return self.table[index]\nreturn {READ}", "", True),
        (f"if self.cached and index in self.table:\n    return self.table[index]\n{KEEP}", "", True),
        (f"self.table[index] = {READ}\nreturn self.table[index]", "", True),
        (f"if index in self.table:\n    return self.table[index]\nself.table.popitem()\n{KEEP}", "", True),
        (
            f"if index in self.table:\n    return self.table[index]\nx = {READ}\n"
            "if len(self.table) < 100:\n    self.table[index] = x\nreturn x",
            "",
            True,
        ),
        ("if self.file is None:\n    self.file = h5py.File('images.h5')\nreturn self.file['images'][index]", "", True),
        ("if self.lazy:\n    return read(self.paths[index])\nreturn self.images[index]", "", False),
        ("return read(self.paths[index]) if self.lazy else self.images[index]", "", False),
        ("return read(self.paths[index]) if self.lazy else self.images[index]", ", lazy=True", True),
        ("return read(self.paths[index]) if self.lazy else self.images[index]", ", lazy=paths", True),
    ],
)
def test_workers_are_for_samples_that_are_read_each_time(project: Project, item: str, given: str, told: bool) -> None:
    lines = "\n".join(f"        {line}" for line in item.splitlines())
    project.write({"train.py": CODE.format(item=lines, given=given)})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules()}) is told
