"""Texts do not make perflint crash, break a file, or find something else for their layout: random ones and former failures.

The long run by hand is fuzz/text.py.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from conftest import in_process

from fuzz.changes_of_code import NEWER_SYNTAX
from fuzz.changes_of_layout import spread_out
from fuzz.text import examined, tried
from fuzz.text_properties import Tally, checked, failures, fixed, named, unlike_safety
from fuzz.texts import CHANGES, Texts, repository_sources
from perflint.facts.dataflow.statement_pass import StatementPass
from perflint.rule.finding import Applicability
from perflint.source.source import Source
from perflint.source.syntax import Module

TEXTS = Texts(repository_sources())


@pytest.mark.slow
def test_random_texts() -> None:
    tally = tried(range(36), TEXTS)
    assert tally.failed == {}
    assert tally.fixed >= 8, "the texts no longer show what fixes do"
    assert tally.reformatted >= 20


def test_a_text_depends_on_its_number_only() -> None:
    assert TEXTS.text(5) == Texts(repository_sources()).text(5)
    newer = {name for name, version in NEWER_SYNTAX.items() if sys.version_info < version}
    assert set(CHANGES) - newer <= {change for number in range(250) for change in TEXTS.text(number).changes}


TRAIN = b"""\
import torch
device = torch.device("cuda")
def train(model, loader, optimizer):
    for x, y in loader:
        loss = model(x.to(device)).sum()  # the loss
        loss.backward()
        optimizer.step()
        if loss.item() > 3: print(loss.item())
"""


def test_what_goes_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import fuzz.text_properties as fuzz

    def fixed_badly(**found: bytes) -> set[str]:
        real = fixed(TRAIN, unsafe=True)
        monkeypatch.setattr(fuzz, "fixed", lambda data, unsafe: fuzz.Fixing(found.get("after", real.data), set(), [], set()))
        return set(failures(TRAIN, Tally()))

    assert fixed_badly(after=TRAIN.replace(b"(x.to", b"(x.to(")) == {"unparsable"}
    assert "comments" in fixed_badly(after=TRAIN.replace(b"# the loss", b""))
    assert "line ends" in fixed_badly(after=TRAIN.replace(b"\n", b"\r\n", 1))
    assert "untouched line" in fixed_badly(after=TRAIN.replace(b"import torch\n", b"import torch \n"))
    assert "last line end" in fixed_badly(after=TRAIN.rstrip())
    monkeypatch.setattr(fuzz, "checked", lambda data, backwards=False: [][1])
    assert "crash" in examined(TRAIN, Tally())


# -- what once went wrong ------------------------------------------------------------------------------------------------


def test_the_cost_of_nested_loops_is_not_exponential(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    iteration = StatementPass.iteration

    def counted(*arguments: object, **more: object) -> object:
        nonlocal count
        count += 1
        assert count < 1000
        return iteration(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(StatementPass, "iteration", counted)
    lines = ["import torch", "def train(model, loader):"]
    lines += [" " * k + f"for x{k} in zip(x{k - 1}, loader):" for k in range(1, 19)]
    lines += [" " * 19 + "x0 = model(x18.cuda()); x0.backward(); print(x0.item())"]
    assert "item-every-step in train" in found("\n".join(lines))


def found(text: str) -> list[str]:
    """What is found in a text, by rule and function."""
    source, findings = checked(text.encode())
    assert source is not None
    return named(source, findings)


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_line_ends_change_no_finding(newline: str) -> None:
    text = TRAIN.decode()
    assert found(text) == found(text.replace("\n", newline)) == found(text.replace("\n", newline, 4)) != []
    after = fixed(text.replace("\n", newline).encode(), unsafe=True).data
    assert after == fixed(TRAIN, unsafe=True).data.replace(b"\n", newline.encode())
    assert after != TRAIN.replace(b"\n", newline.encode())


KEEPS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        h = self.layer(x)
        {}
        return h


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x, y in loader:
        total += (model(x) - y).sum().item()
    return total


evaluate(Net(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(8, 3), torch.zeros(8, 2))))
"""


@pytest.mark.parametrize(
    "store",
    [
        "self.h = h",
        "if x is None: self.h = h",
        "a = 1; self.h = h",
        "a, self.h = 1, h",
        "self.h, a = h, 1",
        "a = self.h = h",
        "self.h: object = h",
        "(self.h) = h",
        "self . h = h",
        "self.h \\\n            = h",
        "self.h[0][1] = h",
        "self.h @= h",
        "for self.h in [h]: pass",
        "with f(h) as self.h: pass",
        "self.h['a' + 'b'].append(h)",
        "self.h.insert(0, h)",
        "setattr(self, 'h', h)",
        "object.__setattr__(self, 'h', h)",
        "s = self; s.h = h",
        "memory = self.memory; memory.append(h)",
    ],
)
def test_a_forward_pass_that_keeps_something_is_no_reason_for_a_safe_fix(store: str) -> None:
    _, findings = checked(KEEPS.replace("{}", store).encode())
    (fix,) = [f.fix for f in findings if f.rule == "eval-without-no-grad"]
    assert fix is not None
    assert fix.applicability is not Applicability.SAFE


def test_a_forward_pass_that_keeps_nothing_is_one() -> None:
    _, findings = checked(KEEPS.replace("{}", "outputs = []; outputs.append(h); h = outputs[0] * 2").encode())
    assert [f.fix and f.fix.applicability for f in findings if f.rule == "eval-without-no-grad"] == [Applicability.SAFE]


LAYOUTS = [
    ("if loss.item() > 3:", "if(loss.item() > 3):"),
    ("while loss.item() > 3:", "while(loss.item() > 3):"),
    ("print(loss.item())", "print(loss.item(\n))"),
    ("v = [x.item() for x in loss.chunk(3)]", "v = [\n  x.item()\n  # each\n  for x in loss.chunk(3)\n]"),
    ("with torch.no_grad, f(): pass", "with (\n  torch.no_grad,\n  f(),\n): pass"),
    ("with torch.no_grad(): model(x)", "with (\n  torch.no_grad()\n): model(x)"),
    ("print(x, loss.item())", "print(x,\nloss.item())"),
    ("print(x, loss.item())", "print(x,\n  '[', # {\nloss.item()\n)"),
    ("for y in loader: print(loss.item())", "\x0c  for y in loader: print(loss.item())"),
    ("train(model, loader, optimizer); print(loss.item())", "train (model, loader, optimizer); print(loss.item())"),
    ("v = [x.item() for x in loss.chunk(3)]", "v = [x.item() for\n  x in loss.chunk(3)]"),
    ("v = [x.item() for x in loss.chunk(3)]", "v = [x.item() for x \\\n  in loss.chunk(3)]"),
    ("assert loss.item() > 3", "assert\\\n loss.item() > 3"),
]


@pytest.mark.parametrize(("one", "other"), LAYOUTS)
def test_layout_changes_no_finding(one: str, other: str) -> None:
    head = "import torch\ndef train(model, loader, optimizer):\n for x in loader:\n  loss = model(x.cuda()).sum()\n"
    head += "  loss.backward()\n  optimizer.step()\n  "
    tail = " pass\n" if one.endswith(":") else "\n"
    assert found(head + one + tail) == found(head + other + tail) != found(head + "pass\n")


CASES = sorted((Path(__file__).parent.parent / "fixtures").glob("*/cases.py"))


@pytest.mark.slow
@pytest.mark.parametrize(("inside", "outside"), [("\n ", " "), (" \\\n", " \\\n ")])
@pytest.mark.parametrize("cases", CASES, ids=[path.parent.name for path in CASES])
def test_white_space_around_each_dot_and_bracket_changes_no_finding(cases: Path, inside: str, outside: str) -> None:
    text = cases.read_text(encoding="utf-8")
    other = spread_out(text, inside, outside)
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(other))
    assert text != other
    before, after = checked(text.encode()), checked(other.encode())
    assert before[0] is not None
    assert after[0] is not None
    assert named(before[0], before[1]) == named(after[0], after[1]) != []
    assert unlike_safety(before[0], before[1], after[0], after[1]) is None


@pytest.mark.parametrize("manager", ["torch.no_grad", "torch.inference_mode"])
def test_a_manager_stands_behind_another_one_with_a_walrus(manager: str) -> None:
    head = "import torch\ndef f():\n"
    one = f"    with (bound := open(path)) as file, {manager}:\n        return bound\n"
    other = f"    with (\n        (bound := open(path)) as file,\n        {manager},\n    ):\n        return bound\n"
    assert found(head + one) == found(head + other) == ["no-grad-without-call in f"]


@pytest.mark.parametrize("rule", ["", "[invalid-syntax]"])
def test_a_silenced_syntax_error_is_none_that_nobody_saw(rule: str) -> None:
    text = f"# perflint: ignore-file{rule} why\ndef evaluate(model, x):\n".encode()
    assert failures(text, Tally()) == {}


@pytest.mark.parametrize(
    "statement",
    [
        "print(\n            'loss',\n            loss.item(),\n        )  # perflint: ignore[item-every-step]",
        "# perflint: ignore[item-every-step]\n        print(\n            'loss',\n            loss.item(),\n        )",
        "history.append(\n            loss.item()\n        )  # perflint: ignore[item-every-step]",
    ],
)
def test_a_suppression_holds_for_a_statement_that_a_formatter_has_broken(statement: str) -> None:
    text = TRAIN.decode().replace("if loss.item() > 3: print(loss.item())", "{}")
    assert "item-every-step in train" in found(text.replace("{}", "print('loss', loss.item())"))
    assert "item-every-step in train" not in found(text.replace("{}", statement))
    other = statement.replace("item-every-step", "zero-grad-late")
    assert "item-every-step in train" in found(text.replace("{}", other))


def test_a_syntax_error_in_a_function_hides_no_finding_of_another_rule() -> None:
    text = TRAIN + b"        x = = 1\n\n\nwith torch.no_grad:\n    pass\n"
    _, findings = checked(text)
    assert findings == checked(text, backwards=True)[1]
    assert {"invalid-syntax", "no-grad-without-call"} <= {finding.rule for finding in findings}


def test_evaluation_on_neighbouring_lines_is_one_finding_whatever_the_layout() -> None:
    head = "import torch\ndef evaluate(net, loader):\n    net.eval()\n    for x in loader:\n"
    one = "        first, second = net(x), net(x * 2)\n        print(first.argmax(), second.argmax())\n"
    other = one.replace(", net", ",\\\n\\\n            net")
    assert found(head + one) == found(head + other)
    assert found(head + one).count("eval-without-no-grad in evaluate") == 1


def test_a_function_whose_name_stands_on_the_next_line() -> None:
    text = "import torch\ndef train(model, loader):\n    loss.backward()\ndef{}evaluate(model, loader):\n    for x in loader:\n"
    text += "        hits += model(x).argmax(1).sum()\n"
    assert found(text.replace("{}", " ")) == found(text.replace("{}", " \\\n  ")) != []


def test_a_device_that_stands_on_several_lines() -> None:
    text = "import torch\nclass Net(torch.nn.Module):\n def forward(self, x):\n  return torch.arange(3).to(x\n  .device)\n"
    assert b"torch.arange(3, device=x\n  .device)" in fixed(text.encode(), unsafe=True).data


def test_a_rewritten_expression_keeps_the_line_ends_inside_it() -> None:
    text = (
        "import torch\nclass Net(torch.nn.Module):\n def forward(self, x):\n  return torch.arange(x.size(1)).to(x\n  .device)\n"
    )
    after = fixed(text.replace("\n", "\r\n").encode(), unsafe=True).data
    assert b"device=x\r\n  .device" in after
    assert after == fixed(text.encode(), unsafe=True).data.replace(b"\n", b"\r\n")


def test_what_is_declared_to_be_ascii_is() -> None:
    source, findings = checked(b"# coding: ascii\nimport torch\nwith torch.no_grad:\n    pass  # \xc3\xa9\n")
    assert source is None
    assert [finding.rule for finding in findings] == ["unreadable-file"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_attribute_that_is_assigned_behind_a_backslash(newline: str) -> None:
    text = "class Net:\n def build(self):\n  self.gru \\\n   = 1\n".replace("\n", newline)
    module = Module(Source("net.py", text.encode()), "net")
    assert [method.name for method in module.classes["Net"].methods_assigning("gru")] == ["build"]


def test_ignores_are_added_to_files_with_carriage_returns_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"import torch\rx = torch.ones(2)\rwith torch.no_grad:\r    x += 1\r")
    done = in_process("check", "--isolated", "--no-cache", "--add-ignores", str(file))
    assert done.exit_code == 0, done.output
    assert file.read_bytes().count(b"# perflint: ignore[no-grad-without-call]\r") == 1


def test_an_attribute_that_is_assigned_behind_a_form_feed_is_seen() -> None:
    text = b"class Net:\n    def __init__(self):\n\f        self.lstm = 1\n"
    module = Module(Source.decode("a.py", text), "a")
    assert [method.name for method in module.classes["Net"].methods_assigning("lstm")] == ["__init__"]


CALLED = b"""
import torch
model = Net().cuda()
for epoch in range(3):
    print(evaluate(model, data, 'cuda'))
def evaluate(model, loader, device):
    for x, y in loader:
        x = x.to(device)
        out = model(x)
"""


def test_what_is_left_after_a_fix_is_what_a_check_of_the_result_finds() -> None:
    after = fixed(CALLED, unsafe=True)
    assert after.data != CALLED
    assert after.left == checked(after.data)[1]
