"""What configuration files and options say about settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Project

from perflint.project.configured import settings

pytestmark = pytest.mark.usefixtures("waits_told")

MAIN = """
parser.add_argument('-t', '--use-tb', action='store_true', help='a (long) text')
parser.add_argument('--quiet', action='store_false')
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--name")
parser.add_argument('--queue', action='store_true')
parser.set_defaults(queue=True)
"""


def said(root: Path, **modules: str) -> dict[str, set[str]]:
    """The settings of a folder, with some Python files."""
    texts = [(str(root / f"{name}.py"), text.encode()) for name, text in modules.items()]
    return {name: set(values) for name, values in settings(str(root), texts).items()}


def test_files_say_numbers_truths_and_none(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text("use_tb: false  # quiet\nsteps: 10\nloss:\n  - aux: no\n  kind: mse\nempty: ~\n")
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "c.yml").write_text("kind: nan\n")
    (tmp_path / "b.json").write_text('{\n  "steps": 10.0,\n  "use_tb": true\n}\n')
    expected = {"use_tb": {"False", "True"}, "steps": {"10.0"}, "aux": {"False"}, "kind": {"?"}, "empty": {"None"}}
    assert said(tmp_path) == expected


def test_options_say_what_they_are_if_nobody_gives_them(tmp_path: Path) -> None:
    expected = {"use_tb": {"False"}, "quiet": {"True"}, "steps": {"3.0"}, "name": {"?"}, "queue": {"True"}}
    assert said(tmp_path, main=MAIN) == expected


def test_files_with_such_names_assign_settings(tmp_path: Path) -> None:
    text = "_C.LOSS.AUX = False\nnet['yaw'] = True\nbase = {'depth': 4, 'act': 'relu'}\n"
    assert said(tmp_path, config=text, others=text) == {"AUX": {"False"}, "yaw": {"True"}, "depth": {"4.0"}, "act": {"?"}}


def test_folders_of_results_and_data_are_left_out(tmp_path: Path) -> None:
    for folder in ("conf/outputs", ".config", "images"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.yaml").write_text("aux: true\n")
    assert said(tmp_path) == {}


def test_no_more_entries_are_looked_at_than_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.project.configured.MAX_ENTRIES", 3)
    (tmp_path / "configs").mkdir()
    for number in range(9):
        (tmp_path / "configs" / f"{number}.yaml").write_text(f"name{number}: 1\n")
    assert len(said(tmp_path)) == 2, "the folder, and two files in it"


TRAIN = """
import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, cfg, model, optimizer, dataset, writer):
        self.cfg, self.optimizer, self.writer = cfg, optimizer, writer
        self.model = model.cuda()
        self.loader = DataLoader(dataset, batch_size=8, num_workers=2, pin_memory=True)

    def train(self):
        for step, (x, y) in enumerate(self.loader):
            loss = (self.model(x.cuda(non_blocking=True)) - y.cuda(non_blocking=True)).square().mean()
            loss.backward()
            self.optimizer.step()
            if self.cfg.use_tb:
                torch.cuda.synchronize()
"""


@pytest.mark.parametrize(
    ("configuration", "readme", "expected"),
    [
        ("use_tb: false\n", "", 0),
        ("use_tb: true\n", "", 1),
        ("use_tb: false\nother: {use_tb: true}\nuse_tb: true\n", "", 1),
        ("steps: 3\n", "", 1),
        ("use_tb: false\n", "python train.py use_tb=true\n", 1),
    ],
    ids=["off", "on", "both", "nothing", "by-command"],
)
def test_what_the_configuration_switches_off_is_on_request(
    project: Project, configuration: str, readme: str, expected: int
) -> None:
    project.write({"train.py": TRAIN, "conf.yaml": configuration, "README.md": readme})
    found = [finding for finding in project.findings() if finding["rule"] == "synchronize-in-loop"]
    assert len(found) == expected
    (project.root / "conf.yaml").write_text("use_tb: true\n")
    assert [f for f in project.findings() if f["rule"] == "synchronize-in-loop"], "what was remembered is asked for again"
