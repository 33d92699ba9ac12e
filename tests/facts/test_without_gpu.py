"""Programs that nobody is told to run on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from perflint.facts.facts import Facts
from perflint.facts.training.without_gpu import is_run_without_gpu
from perflint.project.project import Project

SWITCH = "parser.add_argument('--cuda', action='store_true', help='use a GPU')\n"
CHOICE = "parser.add_argument('-d', '--device', type=str, default='cpu')\n"
MAIN = "from agent import Agent\nimport argparse\nparser = argparse.ArgumentParser()\n{}Agent(parser.parse_args())\n"
AGENT = "import torch\nclass Agent:\n    def __init__(self, args):\n        self.device = torch.device({})\n"
CHOSEN = "'cuda' if args.cuda else 'cpu'"
SHOWN = "# Agent\n\n```\npython main.py --lr 0.1 \\\n    --steps 3\n```\n"


@pytest.mark.parametrize(
    ("option", "device", "readme", "expected"),
    [
        (SWITCH, CHOSEN, SHOWN, True),
        (CHOICE, "args.device", SHOWN, True),
        (SWITCH, CHOSEN, SHOWN.replace("--steps 3", "--cuda"), False),
        (SWITCH, CHOSEN, "# Agent\n\nIt plays.\n", False),
        (SWITCH, CHOSEN, SHOWN.replace("main.py", "others.py"), False),
        ("", CHOSEN, SHOWN, False),
        (SWITCH, "'cuda' if torch.cuda.is_available() else 'cpu'", SHOWN, False),
        (CHOICE.replace("cpu", "cuda"), "args.device", SHOWN, False),
    ],
    ids=["switch", "choice", "given", "no-command", "another-script", "no-option", "available", "cuda"],
)
def test_what_a_project_says_about_how_it_is_run(tmp_path: Path, option: str, device: str, readme: str, expected: bool) -> None:
    texts = {"main.py": MAIN.format(option), "agent.py": AGENT.format(device)}
    for name, text in {**texts, "README.md": readme}.items():
        (tmp_path / name).write_text(text)
    project = Project(str(tmp_path), [str(tmp_path / name) for name in texts])
    assert is_run_without_gpu(Facts(project), str(tmp_path / "agent.py")) is expected


NUMPY = "x = torch.as_tensor(numpy.ones(3))\nprint(x.sum().item())\n"
TURNED = "    {0} = {1}\n    device = torch.device('cuda' if {0} else 'cpu')\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (NUMPY, True),
        (NUMPY + "# net.load(map_location='cuda:0')\n", True),
        (NUMPY + "x.cuda()\n", False),
        (TURNED.format("USE_CUDA", "False"), True),
        ("# USE_CUDA = torch.cuda.is_available()\n" + TURNED.format("USE_CUDA", "False"), True),
        (TURNED.format("use_gpu", "True"), False),
        (TURNED.format("use_gpu", "args.gpu"), False),
        (TURNED.format("use_gpu", "False") + "    use_gpu = torch.cuda.is_available()\n", False),
    ],
    ids=["none", "comment", "moved", "off", "off-now", "on", "option", "asked"],
)
def test_what_a_script_says_itself(tmp_path: Path, script: str, expected: bool) -> None:
    path = tmp_path / "main.py"
    path.write_text(f"import numpy\nimport torch\n\nif __name__ == '__main__':\n    pass\n{script}")
    assert is_run_without_gpu(Facts(Project(str(tmp_path), [str(path)])), str(path)) is expected


NUMBER = "parser.add_argument('--gpu', type=int, default=-1)\n"


@pytest.mark.parametrize(
    ("script", "module", "expected"),
    [
        ("Agent('cpu')\n", "self.net = Net().to(device)", True),
        ("Agent('cpu')  # or cuda\n", "self.net = Net().to(device)", True),
        ("Agent('cuda')\n", "self.net = Net().to(device)", False),
        ("Agent('cpu')\n", "self.net = Net().to('cuda:0' if big else device)", False),
        ("Agent('cpu')\n", "self.net = Net()", True),
    ],
)
def test_a_script_that_names_no_device_but_the_cpu(tmp_path: Path, script: str, module: str, expected: bool) -> None:
    (tmp_path / "main.py").write_text(f"from agent import Agent\n{script}")
    (tmp_path / "agent.py").write_text(f"class Agent:\n    def __init__(self, device):\n        {module}\n")
    (tmp_path / "other.py").write_text("from agent import Agent\nAgent('cpu')\n")
    facts = Facts(Project(str(tmp_path), [str(tmp_path / name) for name in ("main.py", "agent.py", "other.py")]))
    assert is_run_without_gpu(facts, str(tmp_path / "main.py")) is expected
    assert is_run_without_gpu(facts, str(tmp_path / "agent.py")) is expected


@pytest.mark.parametrize(("command", "expected"), [("--lr 0.1", True), ("--gpu 0", False)])
def test_the_number_of_no_gpu(tmp_path: Path, command: str, expected: bool) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/run.sh").write_text(f"python main.py {command}\n")
    (tmp_path / "main.py").write_text(f"import argparse\nparser = argparse.ArgumentParser()\n{NUMBER}net.cuda()\n")
    facts = Facts(Project(str(tmp_path), [str(tmp_path / "main.py")]))
    assert is_run_without_gpu(facts, str(tmp_path / "main.py")) is expected


TRAINS = """
import torch
def main():
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.randn(8, 4, 2):
        net(x).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("added", "expected"), [("", True), ("    net.cuda()\n", False)], ids=["alone", "moves"])
def test_a_script_that_trains_alone_may_lend_a_function(tmp_path: Path, added: str, expected: bool) -> None:
    train = TRAINS.replace("    optimizer =", f"{added}    optimizer =")
    texts = {"train.py": train, "compare.py": "from train import main\nx.cuda()\nmain()\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    project = Project(str(tmp_path), [str(tmp_path / name) for name in texts])
    assert is_run_without_gpu(Facts(project), str(tmp_path / "train.py")) is expected


LEADS = """
import lightning as L
from nets import Net
{above}
if __name__ == "__main__":
    net = Net()
    trainer = L.Trainer(max_epochs=10, callbacks=[L.Timer()], {options})
    trainer.fit(net)
"""


@pytest.mark.parametrize(
    ("above", "options", "expected"),
    [
        ("", "gpus=0", True),
        ("", "accelerator='cpu', devices=8", True),
        ("gpu = 0", "gpus=gpu", True),
        ("gpu = 0", "gpus=gpu, logger=False", True),
        ("gpu = 1", "gpus=gpu", False),
        ("gpu = 0\ngpu = torch.cuda.device_count()", "gpus=gpu", False),
        ("", "gpus=args.gpus", False),
        ("", "accelerator='cpu' if debug else 'gpu'", False),
        ("", "devices=1", False),
        ("L.Trainer(gpus=1).fit(Net())", "gpus=0", False),
        ("L.Trainer(logger=logger(name(x)), gpus=1).fit(Net())", "gpus=0", False),
        ("x = x.cuda()", "gpus=0", False),
    ],
)
def test_a_trainer_that_is_told_to_compute_on_the_cpu(tmp_path: Path, above: str, options: str, expected: bool) -> None:
    (tmp_path / "main.py").write_text(LEADS.format(above=above, options=options))
    (tmp_path / "nets.py").write_text("import torch\nclass Net:\n    place = torch.device('cuda')\n")
    facts = Facts(Project(str(tmp_path), [str(tmp_path / name) for name in ("main.py", "nets.py")]))
    assert is_run_without_gpu(facts, str(tmp_path / "main.py")) is expected
