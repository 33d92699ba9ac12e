"""An answer depends on the program alone, never on what was asked before."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from ask import Program
from conftest import FIXTURES, ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.run.engine import check_file
from perflint.run.session import Session
from perflint.source.syntax import Scope

Question = tuple[str, Scope, ast.expr | None]


def call_sites(facts: Facts, scope: Scope) -> object:
    """`callers.sites` in a form that can be compared."""
    found = facts.inference.callers.sites(scope)
    return [(site.scope, site.node, site.function) for site in found.sites], found.complete


def reads(facts: Facts, scope: Scope) -> object:
    """`facts.reads` and `facts.truths` in a form that can be compared."""
    return [(read.node, read.tensor, read.kind) for read in (*facts.reads(scope), *facts.truths(scope))]


ABOUT_SCOPES: dict[str, Callable[[Facts, Scope], Any]] = {
    "sites": call_sites,
    "kinds": lambda facts, scope: {loop.node: kind for loop, kind in facts.loops.kinds(scope).items()},
    "heat": lambda facts, scope: facts.loops.heat(scope),
    "reads": reads,
}


def questions(program: Program) -> list[Question]:
    """The value of each expression, and each question about a scope."""
    found: list[Question] = []
    for scope in program.scopes():
        found += [("value", scope, node) for node in flow_of(scope).order if isinstance(node, ast.expr)]
        found += [(name, scope, None) for name in ABOUT_SCOPES]
    return found


def answer(facts: Facts, question: Question) -> Any:
    """What the facts say."""
    name, scope, node = question
    return facts.inference.value(scope, node) if node is not None else ABOUT_SCOPES[name](facts, scope)


def worded(question: Question) -> str:
    """A question in words."""
    name, scope, node = question
    return f"{name} of {ast.unparse(node)} in row {node.lineno}" if node is not None else f"{name} of {scope.qualname}"


RECURSIVE = {
    "main.py": """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    def walk(x, depth):
        if depth == 0:
            return x
        return walk(x * 2, depth - 1)

    def ping(x, n):
        return pong(x, n - 1) if n else x

    def pong(x, n):
        return ping(x.cuda(), n - 1)

    def even(model, loader):
        for batch in loader:
            loss = model(batch).mean()
            total = odd(model, loader, loss)
        return total

    def odd(model, loader, loss):
        if loss.item() > 3:
            return even(model, loader)
        return loss

    def main():
        even(nn.Linear(2, 2), DataLoader([1]))
        print(walk(ping(torch.zeros(2), 3), 4))
    """
}

TRAINER = {
    "main.py": """
    import torch
    from net import Net, make
    from steps import step as do_step
    from torch.utils.data import DataLoader

    state = torch.zeros(1)

    def train(loader, device):
        global state
        model = make().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        hidden, total = None, 0
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            hidden = model.init(x) if hidden is None else tuple(h.detach() for h in hidden)
            out, hidden = model(x, hidden)
            loss = do_step(model, out, y, optimizer)
            total += loss.item()
            total = total * 0.9
            while loss > 3:
                loss = loss / 2
                x, loss = loss, x
        state = state + total
        return total

    class Trainer:
        def __init__(self, model, loader):
            self.model, self.loader, self.best = model, loader, 0
            self.callback = self.on_step

        def run(self):
            for batch in self.loader:
                self.loss = self.step(batch)
                self.best = max(self.best, self.loss)
                self.callback(self.loss)

        def step(self, batch):
            self.previous = self.loss
            return self.model(batch).sum() + self.previous

        def on_step(self, value):
            self.run_again(value)

        def run_again(self, value):
            if value.item() > 3:
                self.run()
                self.on_step(value)

    def main():
        loader = DataLoader([1], batch_size=2)
        train(loader, torch.device("cuda"))
        trainer = Trainer(make(), loader)
        trainer.run()
        trainer.model = Net(2)
    """,
    "net.py": """
    import torch
    from torch import nn

    class Base(nn.Module):
        def init(self, x):
            return self.zeros(x.size(0)), self.zeros(x.size(0))

        def zeros(self, n):
            return torch.zeros(n, device=next(self.parameters()).device)

    class Net(Base):
        def __init__(self, n):
            super().__init__()
            self.rnn = nn.LSTM(n, n)
            self.child = Net(n - 1) if n else None

        def forward(self, x, hidden):
            out, hidden = self.rnn(x, hidden)
            if self.child is not None:
                out, hidden = self.child(out, hidden)
            return out, hidden

    def make(kind="a"):
        return make("a") if kind == "b" else Net(3)
    """,
    "steps.py": """
    def step(model, out, y, optimizer, depth=0):
        loss = (out - y).mean()
        loss.backward()
        optimizer.step()
        if depth:
            return step(model, out, loss, optimizer, depth - 1)
        helper(loss, step)
        return loss

    def helper(loss, function):
        for k in range(3):
            loss = other(loss, k)
        return function(loss, loss, loss, None)

    def other(v, k):
        return helper(v, other) if k else v * other(v, k - 1)
    """,
}

RECEIVERS_IN_A_CYCLE = {
    "main.py": """
    class A:
        def run(self, q):
            g(q, 3)
            return q

    class B(A):
        def run(self, q):
            h(q, q.run(self))
            return self

    def g(obj, n):
        h(obj.run(obj), n)

    def h(obj, m):
        obj.run(m).run(obj)

    def main():
        A().run(B())
        B().run(A())
    """
}

LOOPS_IN_A_CYCLE = {
    "main.py": """
    from torch import nn

    def a(model, xs):
        for x in xs:
            model(x)
            b(model, x)

    def b(model, xs):
        for x in xs:
            model(x)
            a(model, x)

    def main(loader):
        model = nn.Linear(2, 2)
        model.eval()
        a(model, [1])
    """
}

PROGRAMS = {
    "recursive functions": RECURSIVE,
    "a trainer in three files": TRAINER,
    "receivers in a cycle": RECEIVERS_IN_A_CYCLE,
    "loops in a cycle": LOOPS_IN_A_CYCLE,
}


def assert_order_does_not_matter(files: dict[str, str], seeds: int = 4) -> None:
    """Each question has the answer that it has when it is the only one."""
    files = dict(files)
    program = Program(files.pop("main.py"), files)
    asked = questions(program)
    alone = [answer(Facts(program.project), question) for question in asked]
    for seed in range(seeds):
        facts = Facts(program.project)
        order = list(range(len(asked)))
        random.Random(seed).shuffle(order)
        for i in order:
            assert answer(facts, asked[i]) == alone[i], f"{worded(asked[i])}, asked after others"


@pytest.mark.parametrize("name", PROGRAMS)
def test_order_of_questions_does_not_matter(name: str) -> None:
    assert_order_does_not_matter(PROGRAMS[name])


STATEMENTS = (
    "x = {function}(x)",
    "x = {function}(y)",
    "y = {function}(x, y)",
    "x = x.{method}(y)",
    "y = y.{method}(x)",
    "{function}(model)",
    "return x",
    "return {function}(y, x)",
    "y = x * 2",
    "x, y = y, x",
    "x.a = y",
    "y = x.a",
    "x = {cls}()",
    "y = torch.zeros(2).cuda()",
    "y = x.item()",
    "callback = {function}",
    "x = callback(y)",
    "for y in x: model(y)",
    "for y in DataLoader(x): {function}(y).backward()",
    "for x in y: {function}(x)",
    "for x in y: x = x.{method}(x)",
    "while x > 3: x, y = {function}(y), x",
    "y = [{function}(z) for z in x]",
    "global shared; shared = x",
    "x = shared",
    "y = lambda z: {function}(z, x)",
)


@st.composite
def tangles(draw: st.DrawFn) -> str:
    """A program whose functions and methods call each other without any order."""

    def body(indent: str) -> str:
        rows = draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=4))
        names = {"function": st.sampled_from("fgh"), "method": st.sampled_from("abc"), "cls": st.sampled_from("AB")}
        return "".join(f"{indent}{row.format(**{k: draw(v) for k, v in names.items()})}\n" for row in rows)

    text = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"
    text += "model = nn.Linear(2, 2)\nshared = callback = x = y = None\n"
    for name, base in (("A", "nn.Module"), ("B", "A")):
        text += f"class {name}({base}):\n"
        for method in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True)):
            text += f"    def {method}(self, x, y=None):\n{body('        ')}"
    for name in "fgh":
        text += f"def {name}(x, y=None):\n{body('    ')}"
    return text + body("")


@settings(max_examples=20)
@given(text=tangles())
def test_order_does_not_matter_in_a_tangle(text: str) -> None:
    assert_order_does_not_matter({"main.py": text}, seeds=2)


def test_a_file_keeps_the_trees_that_facts_are_about() -> None:
    program = Program(RECURSIVE["main.py"])
    session = Session(program.project, [])
    facts, module = session.facts, program.module()
    check_file(session, module.source.path, "main.py", always_parse=True)
    assert program.module() is module
    assert session.facts is facts


def test_findings_do_not_depend_on_the_order_of_hashes() -> None:
    command = [
        sys.executable,
        "-m",
        "perflint",
        "check",
        "--select",
        "all",
        "--output-format",
        "json",
        str(FIXTURES / "programs"),
    ]
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "rules", ROOT / "runtime"))
    outputs = []
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed}
        outputs.append(subprocess.run(command, capture_output=True, text=True, env=environment, check=False).stdout)
    assert len(outputs[0]) > 1000
    assert outputs.count(outputs[0]) == len(outputs)
