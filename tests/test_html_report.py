"""The page of `check --output-format html`: what it says, that it needs nothing else, that text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, Project, in_process
from html_reader import Reader, read

from perflint.page.document import anchor, without_folders
from perflint.run.outcome import StepWait
from perflint.run.run import Run

TRAIN = """\
import torch
from torch.utils.data import DataLoader
from steps import report


def train(model, data, optimizer):
    for step, (x, y) in enumerate(DataLoader(data, pin_memory=True)):
        x = x.cuda()
        loss = model(x, y.cuda())
        loss.backward()
        optimizer.step()
        report(loss)
        print(loss.item(), loss.item())
"""
STEPS = """\
import torch


def report(loss: torch.Tensor):
    print(step := 1, loss.item())
"""


WORTH_LITTLE = ("--extend-select", "blocking-h2d-in-loop,item-every-step,duplicate-item-read")
"""What shows also findings of these rules that are not worth much."""


def page_of(project: Project, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The page for a project, made in its folder."""
    monkeypatch.chdir(project.root)
    result = in_process("check", "--output-format", "html", "--exit-zero", *WORTH_LITTLE, *arguments)
    assert result.exit_code == 0, result.output
    text: str = result.stdout
    return text


@pytest.fixture
def text(project: Project, monkeypatch: pytest.MonkeyPatch) -> str:
    project.write(
        {"src/train.py": TRAIN, "src/steps.py": STEPS, "other/model.py": "import torch\nwith torch.no_grad:\n    pass\n"}
    )
    return page_of(project, monkeypatch)


def ids(reader: Reader) -> set[str]:
    return {value for _, attributes in reader.elements if (value := attributes.get("id")) is not None}


def test_each_finding_stands_in_it_with_its_rule_place_and_fix(text: str, project: Project) -> None:
    reader = read(text)
    found = project.findings(*WORTH_LITTLE)
    assert len(found) > 5
    for finding in found:
        assert finding["rule"] in reader.text
        assert anchor("rule", finding["rule"]) in ids(reader)
    assert f"Findings{len(found)}" in reader.text
    assert "non_blocking=True" in reader.text
    assert re.search(r'<span class="added">\+ +x = x\.cuda\(non_blocking=True\)', text)
    assert "src/train.py:7" in reader.text


def test_links_within_the_page_lead_somewhere(text: str) -> None:
    reader = read(text)
    links = [attributes["href"] for tag, attributes in reader.elements if tag == "a"]
    assert len(links) > 10
    assert {link[1:] for link in links if link is not None} <= ids(reader)


def test_no_anchor_stands_twice(text: str) -> None:
    found = re.findall(r' id="([^"]+)"', text)
    assert len(found) == len(set(found))


def test_nothing_is_loaded_and_no_script_runs_but_the_pages_own(text: str) -> None:
    reader = read(text)
    assert not {tag for tag, _ in reader.elements} & {
        "link",
        "img",
        "iframe",
        "object",
        "image",
        "base",
        "form",
        "style@import",
    }
    for _, attributes in reader.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcset", "action")]
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search(r"https?://", text)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


def test_a_step_is_drawn_with_its_waits(text: str) -> None:
    reader = read(text)
    (label,) = [attributes["aria-label"] for tag, attributes in reader.elements if tag == "svg"]
    assert label is not None
    assert label.startswith("src/train.py:7: ")
    number = re.search(r"(\d+) waits per step -> (\d+)", label)
    assert number is not None
    lanes = re.split(r"<text [^>]*>(as written|safe fixes|all fixes)</text>", text)
    drawn = {name: len(re.findall('<rect class="wait"', bar)) for name, bar in zip(lanes[1::2], lanes[2::2], strict=True)}
    assert drawn["as written"] == int(number[1])
    assert drawn["safe fixes"] == int(number[2])


def test_the_waits_of_a_step_in_the_order_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Project(tmp_path).write({"train.py": TRAIN, "lib/steps.py": STEPS, "pyproject.toml": "", "lib/__init__.py": ""})
    (tmp_path / "train.py").write_text(TRAIN.replace("from steps", "from lib.steps"))
    monkeypatch.chdir(tmp_path)
    run = Run(overrides={"select": ("all",)})
    (budget,) = [budget for checked in run.check(run.find(["."])).checked for budget in checked.budgets]
    waits = budget.timeline
    assert [(wait.row, wait.how, wait.rule) for wait in waits if not wait.file] == [
        (8, "upload", "blocking-h2d-in-loop"),
        (9, "upload", "blocking-h2d-in-loop"),
        (13, "number", "item-every-step"),
        (13, "number", "duplicate-item-read"),
    ]
    assert [wait for wait in waits if wait.file] == [StepWait(12, 1, "number", line=5, file=str(Path("lib/steps.py")))]
    assert sum(wait.times for wait in waits) == budget.written
    assert sum(wait.times for wait in waits if wait.fix != "safe") == budget.after_safe


def test_it_is_the_same_from_the_cache(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE", raising=False)
    project.write({"train.py": TRAIN, "steps.py": STEPS, "pyproject.toml": ""})
    first, second = (re.sub(r"\d\d:\d\d UTC", "", page_of(project, monkeypatch)) for _ in range(2))
    assert (project.root / ".perflint_cache").is_dir()
    assert first == second


NAMES = ("</script><script>document.title='broken'</script>.py", '"><img src=x onerror=alert(1)>.py', "a b&amp;<b>.py")
CODE = """\
import torch
# </script><script>document.title='broken'</script><!--
def train(model, loader, optimizer):
    for x in loader:
        loss = model(x.cuda(), "</pre></script><script>document.title='broken'</script>\u202e")
        loss.backward()
        optimizer.step()
        print(f"<img src=x onerror=alert(1)> {loss.item()} & &lt;")
"""


def hostile(project: Project) -> Project:
    """A project whose names and code are markup, and would run if they came to stand in the page as such."""
    usable = [name.replace("/", "\N{FRACTION SLASH}") for name in NAMES]
    return project.write({"<svg onload=alert(1)>/" + name: CODE for name in usable})


def test_names_and_code_that_are_markup_stay_text(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page_of(hostile(project), monkeypatch)
    reader = read(text)
    assert not {tag for tag, _ in reader.elements} & {"img", "b"}
    assert text.count("<script>") == text.count("</script>") == 1
    assert "<script>document.title='broken'</script>" in reader.text
    assert "<img src=x onerror=alert(1)>" in reader.text
    assert "\u202e" not in text


def test_a_bytes_name_and_broken_files_are_shown(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.root / "odd\udcff.py").write_text("def (\n")
    (project.root / "bytes.py").write_bytes(b"x = '\xff'\n")
    text = page_of(project, monkeypatch)
    text.encode("utf-8")
    assert "invalid-syntax" in read(text).text
    assert "unreadable-file" in read(text).text


def test_no_folder_of_the_machine_is_named(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.write({"src/train.py": TRAIN, "src/bad.py": "def (\n"})
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    text: str = in_process("check", "--output-format", "html", "--exit-zero", str(project.root)).stdout
    assert str(project.root) not in text
    assert str(project.root.parent) not in text
    assert "src/train.py:7" in read(text).text


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (
            "perflint verify train.py --html /home/ann/out/page.html",
            "perflint verify train.py --html \N{HORIZONTAL ELLIPSIS}/page.html",
        ),
        ('File "/usr/lib/python3.11/json/decoder.py", line 3', 'File "json/decoder.py", line 3'),
        ("/opt/env/lib/python3.11/site-packages/torch/nn/linear.py", "torch/nn/linear.py"),
        ("C:\\Users\\Ann\\x.py", "\N{HORIZONTAL ELLIPSIS}/x.py"),
        ("a/b and 3 / 4 and <project>/src/x.py", "a/b and 3 / 4 and <project>/src/x.py"),
        ("--data=/mnt/data/big.csv", "--data=\N{HORIZONTAL ELLIPSIS}/big.csv"),
    ],
)
def test_what_is_left_of_a_path(said: str, left: str) -> None:
    assert without_folders(said) == left


def test_measured_effects_come_from_the_records(text: str) -> None:
    reader = read(text)
    measured = json.loads((ROOT / "rules/perflint_rules/measured.json").read_text(encoding="utf-8"))
    shown = {anchor("rule", rule) for rule in measured} & ids(reader)
    for rule, records in measured.items():
        if anchor("rule", rule) in shown:
            assert f"{records[0]['pairs']} pairs of runs" in reader.text
    assert "not measured" in reader.text


def test_a_profile_puts_milliseconds_beside_findings(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write({"train.py": TRAIN, "steps.py": STEPS})
    sha = hashlib.sha256((project.root / "train.py").read_bytes()).hexdigest()
    statement = {
        "line": 8,
        "last_line": 8,
        "block_end": 8,
        "is_timed": True,
        "own_ms": 3.25,
        "device_ms": 0.0,
        "whole_ms": 3.25,
    }
    profile = {
        "kind": "profile",
        "format": 1,
        "unit": "step",
        "unit_ms": 10.0,
        "machine": {"device": None},
        "files": {"train.py": {"sha256": sha, "statements": [statement]}},
        "findings": [],
    }
    (project.root / "profile.json").write_text(json.dumps(profile))
    reader = read(page_of(project, monkeypatch, "--profile", "profile.json"))
    assert "3.25 ms per step" in reader.text
    assert "Measured at the findings3.25 ms" in reader.text


def test_a_large_report_is_cut_and_says_so(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflint.report.html.MOST_FLAWS", 2)
    monkeypatch.setattr("perflint.report.html.MOST_LOOPS", 1)
    project.write({"train.py": TRAIN, "again.py": TRAIN, "steps.py": STEPS})
    text = page_of(project, monkeypatch)
    assert len(re.findall('class="flaw"', text)) == 2
    assert len(re.findall('class="loop"', text)) == 1
    assert "1 loop more" in read(text).text
    assert re.search(r"\d+ findings? more, which `perflint check` prints", read(text).text)


def test_without_findings(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = read(page_of(project.write({"a.py": "x = 1\n"}), monkeypatch))
    assert "All checks passed." in reader.text
    assert "svg" not in {tag for tag, _ in reader.elements}


RARE = """\
import torch

torch.autograd.set_detect_anomaly(True)


def run(batches):
    model = torch.nn.Linear(2, 2).cuda()
    for x in batches:
        model(x).sum().backward()
"""


def test_what_runs_most_often_comes_first(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write({"a_rare.py": RARE, "b_train.py": TRAIN, "c_error.py": "def (\n"})
    (part,) = re.findall(r'<section id="findings">.*?</section>', page_of(project, monkeypatch), re.S)
    assert re.findall(r"<h3><code>([^<:]+)", part) == ["c_error.py", "b_train.py", "a_rare.py"]
