"""The work for a file grows with its length and with its findings, not faster. What is counted is calls, not time."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perflint.facts.compiled.compiled import Compiled
from perflint.facts.values import callers, heirs
from perflint.facts.values.frames import Inferring
from perflint.project import texts
from perflint.project.config import Config
from perflint.project.trace import LastingMemo, Trace
from perflint.rule.finding import Finding
from perflint.rule.registry import all_rules
from perflint.run.result import Result
from perflint.run.run import Run
from perflint.source.source import Source
from perflint.source.syntax import Class, Module

HEAD = "import torch\nfrom torch import nn\n\n\n"
EVALUATION = """\
def evaluate_{i}(model: nn.Module, x: torch.Tensor):
    model.eval()
    with torch.no_grad:
        return model(x)


"""
TRAINING = """\
def train_{i}(model: nn.Module, loader, optimizer, criterion):
    total = 0.0
    for step, (x, y) in enumerate(loader):
        if step % 100 == 0:
            continue
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        total += loss.item()
        optimizer.zero_grad()
        optimizer.step()
    return total


"""
FIRST, TIMES = 10, 5


def many_functions(n: int) -> str:
    """One finding with a fix in each function."""
    return HEAD + "".join(EVALUATION.format(i=i) for i in range(n))


def several_rules(n: int) -> str:
    """Findings of several rules, some with fixes."""
    return HEAD + "".join((TRAINING if i % 2 else EVALUATION).format(i=i) for i in range(n))


def one_function(n: int) -> str:
    """All findings in one function."""
    body = "".join(f"    with torch.no_grad:\n        y{i} = model(x)\n" for i in range(n))
    return f"{HEAD}def evaluate(model: nn.Module, x: torch.Tensor):\n{body}    return y0\n"


def no_function(n: int) -> str:
    """All findings in the module's own code."""
    body = "".join(f"with torch.no_grad:\n    y{i} = model(x)\n" for i in range(n))
    return f"{HEAD}model = nn.Linear(2, 2).cuda()\nx = torch.zeros(2, 2).cuda()\n{body}"


def one_long_loop(n: int) -> str:
    """Two findings at the end of a long loop body with many guards."""
    body = "".join(f"        if x is None:\n            continue\n        y{i} = torch.relu(x)\n" for i in range(n))
    train = "        loss = model(x.cuda())\n        loss.backward()\n        print(loss.item())\n"
    return f"{HEAD}def train(model: nn.Module, loader):\n    for x in loader:\n{body}{train}"


def overlapping_suppressions(n: int) -> str:
    """Suppressions that silence something and suppressions that do not."""
    lines = "".join(f"    y{i} = x  # perflint: ignore[item-every-step]\n" for i in range(n))
    return f"{HEAD}def f(x):\n{lines}    return x\n"


def stored_again_and_again(n: int) -> str:
    """An evaluation stores results in an attribute that a method with a backward pass looks at as often."""
    stores = "".join(f"            self.kept[{i}] = self.net(x)\n" for i in range(n))
    looks = "".join(f"        print(self.kept[{i}].argmax())\n" for i in range(n))
    return (
        f"{HEAD}class Agent:\n    def __init__(self):\n        self.net = nn.Linear(2, 2).cuda()\n        self.kept = {{}}\n\n"
        f"    def evaluate(self, x: torch.Tensor):\n        with torch.no_grad():\n{stores}\n"
        f"    def train(self, loader, optimizer):\n{looks}        for x in loader:\n            loss = self.net(x).mean()\n"
        "            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()\n"
    )


def calls_of(act: Callable[[], Result]) -> tuple[int, Result]:
    """How many calls of Python and C functions something takes, and what comes out."""
    profile = cProfile.Profile()
    result = profile.runcall(act)
    return sum(entry.callcount for entry in profile.getstats()), result


def work(path: Path, text: str, fixing: bool) -> tuple[int, int]:
    """The calls that checking or fixing takes, and the number of findings and fixes."""
    path.write_text(text, encoding="utf-8")
    run = Run(all_rules(), Config(), {"select": ("all",)})
    found = run.find([str(path)])
    if fixing:
        count, result = calls_of(lambda: run.fix(found, unsafe=False, write_files=False))
    else:
        count, result = calls_of(lambda: run.check(found))
    return count, len(result.findings) + sum(result.applied.values())


@pytest.mark.parametrize("fixing", [False, True], ids=["check", "fix"])
@pytest.mark.parametrize(
    "text", [many_functions, several_rules, one_function, no_function, one_long_loop, overlapping_suppressions]
)
def test_the_work_grows_with_the_file(text: Callable[[int], str], fixing: bool, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    work(path, text(2), fixing)  # what is loaded on first use does not count
    few, found = work(path, text(FIRST), fixing)
    many, found_later = work(path, text(FIRST * TIMES), fixing)
    assert found > 1
    assert found_later >= found
    assert many <= 1.2 * TIMES * few


def test_asking_for_each_function_of_a_file_grows_with_their_number() -> None:
    def calls(functions: int) -> int:
        module = Module(Source("m.py", many_functions(functions).encode()), "m")
        profile = cProfile.Profile()
        profile.runcall(lambda: [module.scopes_with(f"evaluate_{i}") for i in range(functions)])
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(500) <= 1.2 * 5 * calls(100)


def test_the_work_grows_with_the_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_FILES_HELD", 20)

    def calls(files: int) -> int:
        for i in range(files):
            (tmp_path / f"m{i}.py").write_text("x = 1\n")
        run = Run(all_rules(), Config(), {"select": ("all",)})
        return calls_of(lambda: run.check(run.find([str(tmp_path)])))[0]

    calls(2)  # what is loaded on first use does not count
    few = calls(10 * FIRST)
    assert calls(10 * FIRST * TIMES) <= 1.2 * TIMES * few


def test_what_training_does_with_an_attribute_is_found_out_once(tmp_path: Path) -> None:
    def calls(n: int) -> int:
        path = tmp_path / "agent.py"
        path.write_text(stored_again_and_again(n))
        run = Run(all_rules(), None, {"select": ("no-grad-to-inference-mode",)}, cached=False)
        count, result = calls_of(lambda: run.check(run.find([str(path)])))
        assert len(result.findings) == 1
        return count

    calls(2)  # what is loaded on first use does not count
    assert calls(FIRST * TIMES) <= 1.2 * TIMES * calls(FIRST)


def clique(folder: Path, files: int) -> None:
    """Files that all import each other, train, and call methods by names that they make up."""
    names = [f"m{i}" for i in range(files)]
    for i, name in enumerate(names):
        others = ", ".join(other for other in names if other != name)
        (folder / f"{name}.py").write_text(
            f"import {others}\nimport torch\n\n\ndef loss_{i}(model, x):\n    return model(x).mean()\n\n\n"
            f"def train(model, loader, optimizer, kind):\n    for x in loader:\n"
            f"        loss = m{(i + 1) % files}.loss_{(i + 1) % files}(model, x.cuda())\n"
            f"        loss.backward()\n        optimizer.step()\n"
            f"        print(loss.item(), getattr(model, kind)(x))\n"
        )


def test_a_text_is_searched_once_for_what_it_takes_by_made_up_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bytes] = []
    found = callers._GETATTR.findall

    def counted(text: bytes) -> list[bytes]:
        searched.append(text)
        return found(text)

    monkeypatch.setattr(callers._GETATTR, "findall", counted)
    clique(tmp_path, 6)
    run = Run(all_rules(), Config())
    run.check(run.find([str(tmp_path)]))
    assert len(searched) == len(set(searched)) == 6


def test_findings_do_not_depend_on_how_much_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clique(tmp_path, 6)

    def findings() -> list[Finding]:
        run = Run(all_rules(), Config(), {"select": ("all",)})
        return [finding for _, finding in run.check(run.find([str(tmp_path)])).findings]

    held = findings()
    monkeypatch.setattr(texts, "MAX_BLOCKS_HELD", -(2**60))
    monkeypatch.setattr(texts, "FILES_BETWEEN_COUNTS", 1)
    assert findings() == held != []


def kinds(folder: Path, classes: int) -> None:
    """Layers that hand what they get to methods of their own, and a file that has a maker of classes among other values."""
    layers = "".join(
        f"\n\nclass Layer{i}(nn.Module):\n    def forward(self, x):\n        return self.mix(x, x)\n\n"
        f"    def mix(self, x, y):\n        return torch.add(x, y)\n"
        for i in range(classes)
    )
    (folder / "layers.py").write_text(f"import torch\nfrom torch import nn\n{layers}")
    made = "".join(f"\n\ndef make_{i}(a, b):\n    return setup(layers.Layer{i}, a, b)\n" for i in range(classes))
    setup = "\n\ndef setup(kind, a, b):\n    return kind(a, b)\n"
    (folder / "use.py").write_text(f"import torch\n\nimport layers\n\nKINDS = (int, type)\n{made}{setup}")


def test_each_class_is_looked_for_only_where_somebody_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    plain = heirs._in_scope

    def counted(*given: Any) -> bool:
        nonlocal looked
        looked += 1
        return plain(*given)

    monkeypatch.setattr(heirs, "_in_scope", counted)

    def looks(classes: int) -> int:
        nonlocal looked
        looked = 0
        kinds(tmp_path, classes)
        run = Run(all_rules(), Config(), {"select": ("all",)}, cached=False)
        run.check(run.find([str(tmp_path)]))
        return looked

    few = looks(FIRST)
    assert few > 0
    assert looks(FIRST * TIMES) <= 1.2 * TIMES * few


NETWORK = """\
import torch
from torch import nn


class Net{i}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.part(x.cuda())

    def part(self, x):
        return self.layer(x) * self.width


class Wide{i}(Net{i}):
    def part(self, x):
        if x.sum() > 0:
            print(x)
        return self.layer(x)
"""


def test_heirs_and_what_runs_compiled_are_found_once_however_often_trees_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    near, reach = heirs._near, Compiled._find_reach

    def counted_near(apart: Inferring, cls: Class) -> list[Class] | None:
        asked.append((cls.module.source.path, cls.qualname))
        return near(apart, cls)

    def counted_reach(compiled: Compiled, file: str) -> Any:
        asked.append(file)
        return reach(compiled, file)

    monkeypatch.setattr(heirs, "_near", counted_near)
    monkeypatch.setattr(Compiled, "_find_reach", counted_reach)
    monkeypatch.setattr(texts, "MAX_BLOCKS_HELD", -(2**60))
    monkeypatch.setattr(texts, "FILES_BETWEEN_COUNTS", 1)
    for i in range(FIRST):
        (tmp_path / f"net_{i}.py").write_text(NETWORK.format(i=i))
    taken = "".join(f"from net_{i} import Wide{i}\n" for i in range(FIRST))
    made = "".join(f"nets.append(torch.compile(Wide{i}(4)))\n" for i in range(FIRST))
    loop = "for x in data:\n    for net in nets:\n        net(x).sum().backward()\n"
    (tmp_path / "train.py").write_text(f"import torch\n{taken}\nnets = []\n{made}{loop}")
    run = Run(all_rules(), Config(), {"select": ("all",)}, cached=False)
    result = run.check(run.find([str(tmp_path)]))
    assert "graph-break" in {finding.rule for _, finding in result.findings}
    assert len(asked) > FIRST
    assert len(asked) == len(set(asked))


def test_what_is_remembered_outlives_a_numbering_of_questions_and_no_change() -> None:
    trace = Trace()
    memo: LastingMemo[str, int] = LastingMemo(trace)
    found = 0

    def find() -> int:
        nonlocal found
        found += 1
        trace.note("text", "a.py")
        return found

    trace.note("text", "before.py")
    assert (memo.get("key", find), memo.get("key", find)) == (1, 1)
    trace.asked = 0
    trace.note("text", "other.py")
    trace.forget()
    trace.asked = 0
    assert memo.get("key", find) == 1
    assert trace.questions() == [("text", "a.py")]
    memo.clear()
    assert memo.get("key", find) == 2
