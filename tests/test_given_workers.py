"""The number of workers that an option is given: by whom, and in which words."""

import pytest
from conftest import Project

pytestmark = pytest.mark.usefixtures("waits_told")

CODE = """\
import argparse

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return to_tensor(Image.open(self.paths[index]))


def main(args, network, optimizer, paths):
    for x in DataLoader(Images(paths), batch_size=8, num_workers=args.num_workers):
        network(x.cuda()).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", "--num-workers", type=int, default=0)
    parser.add_argument("-b", "--batches", type=int, default=0)
    from settings import made

    main(parser.parse_args(), *made())
"""
LAUNCHER = "import os, subprocess, sys\nfrom settings import count, args\n"


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("run.sh", "python train.py -b 8 -j 8\n", False),
        ("run.sh", "python train.py -b 8\n", True),
        ("run.sh", "python train.py --num_workers $COUNT\n", False),
        ("run.sh", 'COUNT=${COUNT:-8}\npython train.py --num-workers "${COUNT}"\n', False),
        ("run.sh", "COUNT=0  # none\npython train.py --num-workers ${COUNT}\n", True),
        ("run.sh", "python train.py --num-workers ${COUNT:-0}\n", True),
        ("run.sh", 'ARGS="--lr 0.1 --num-workers 8"\npython train.py $ARGS\n', False),
        ("run.sh", "python train.py --num-workers\n", True),
        ("slurm/job.sbatch", "srun python train.py --num-workers=$SLURM_CPUS_PER_TASK\n", False),
        ("Makefile", "COUNT := $(shell nproc)\ntrain:\n\tpython train.py --num-workers $(COUNT)\n", False),
        ("Makefile", "COUNT ?= 0\ntrain:\n\tpython train.py --num-workers $(COUNT)\n", True),
        ("README.md", "    python train.py [--num-workers {0,1,2}] [-j N]\n", True),
        ("run.sh", "python train.py data.num_workers=8\n", False),
        ("run.sh", "python train.py data.num_workers=0 num_workers 8\n", True),
        ("run.sh", "python train.py data.num_workers 8\n", False),
        ("launch.py", f'{LAUNCHER}subprocess.run([sys.executable, "train.py", "--num-workers", str(count)])\n', False),
        (
            "launch.py",
            f'{LAUNCHER}subprocess.run([sys.executable, "train.py", "--num-workers", str(args.num_workers)])\n',
            True,
        ),
        ("launch.py", f'{LAUNCHER}os.system(f"python train.py --num-workers {{count}}")\n', False),
        ("launch.py", f'{LAUNCHER}os.system(f"python train.py --num-workers {{args.num_workers}}")\n', True),
        ("launch.py", f'{LAUNCHER}os.system("python train.py --num-workers " + str(count))\n', False),
        ("launch.py", f'{LAUNCHER}compose("base", overrides=["data.num_workers=8"])\n', False),
        ("sweep.yaml", 'command:\n  - python\n  - train.py\n  - --num-workers\n  - "8"\n  - ${args}\n', False),
        ("sweep.yaml", "command:\n  - python\n  - train.py\n  - --num-workers\n  - --lr\n  - 8\n", True),
        ("job.json", '{"args": ["--num-workers", "8"]}\n', False),
        ("job.yaml", "command: python train.py --num-workers 8\n", False),
    ],
)
def test_who_gives_an_option_gives_workers(project: Project, file: str, text: str, told: bool) -> None:
    project.write({"train.py": CODE, file: text})
    assert ("dataloader-no-workers" in {rule for rule, _ in project.rules("--select", "dataloader-no-workers")}) is told


def test_an_option_is_left_to_whoever_runs_the_program(project: Project) -> None:
    project.write({"train.py": CODE})
    assert "dataloader-no-workers" not in {rule for rule, _ in project.rules()}
    project.write({"train.py": CODE.replace("args.num_workers", "0")})
    assert "dataloader-no-workers" in {rule for rule, _ in project.rules()}
