"""Step loops, hot functions and guards."""

from __future__ import annotations

import ast

import pytest
from ask import Program

from perflint.facts.training.loops import Heat, LoopKind

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader
model = nn.Linear(2, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1)
loader = DataLoader([])
"""

KINDS = {
    "training": ("for x in loader:\n    model(x).sum().backward()\n    optimizer.step()", ["training"]),
    "epochs": ("for e in range(3):\n    for x in loader:\n        model(x).sum().backward()", [None, "training"]),
    "evaluation": ("for x in loader: model(x)", ["evaluation"]),
    "steps by number": ("for i in range(3):\n    model(f(i)).sum().backward()", ["training"]),
    "while": ("while True:\n    model(f()).sum().backward()", ["training"]),
    "step of a helper": ("def step(x): model(x).sum().backward()\nfor x in y: step(x)", ["training"]),
    "epochs of a helper": ("def run():\n    for x in loader: model(x)\nfor e in range(3):\n    run()\n    model(e)", [None]),
    "step that is hidden": ("for x in y:\n    optimizer.zero_grad()\n    scaler(x)", ["training"]),
    "epochs around hidden steps": (
        "def run():\n    for x in loader: model(x)\nfor e in range(3):\n    optimizer.zero_grad()\n    run()",
        [None],
    ),
    "one round": ("for e in range(1):\n    model(e).sum().backward()", [None]),
    "one round within a step": (
        "for x in y:\n    for i in range(1):\n        model(x).sum().backward()\n        optimizer.step()",
        ["training", None],
    ),
    "epochs that step an optimizer of their own": (
        "def run():\n    for x in loader:\n        model(x).sum().backward()\n        optimizer.step()\n"
        "other = torch.optim.SGD([y], lr=1)\nfor e in range(3):\n    run()\n    other.step()",
        [None],
    ),
    "a step of micro-batches": (
        "def run(x):\n    for part in x: model(part).sum().backward()\nfor x in y:\n    run(x)\n    optimizer.step()",
        ["training"],
    ),
    "chunks": ("for i in range(0, len(x), n): f(x[i:i + n])", ["evaluation"]),
    "chunks of nothing": ("for i in range(0, len(x), n): f(i)", [None]),
    "every second": ("for i in range(0, len(x), 2): f(x[i:i + 2])", [None]),
    "steps of the runtime's trainer": (
        "from perflint_runtime import Trainer\ntrainer = Trainer(model, optimizer, f)\n"
        "for e in range(3):\n    for i, (loss, _, _) in enumerate(trainer.steps(loader)): loss",
        [None, "training"],
    ),
    "steps of another": ("for x in walker.steps(y): x", [None]),
    "step of a closure": (
        "def run():\n    def forward_backward():\n        for x in parts: model(x).sum().backward()\n        optimizer.step()\n"
        "    forward_backward()\nfor x in y: run()",
        ["training"],
    ),
    "trainings of a function whose loop calls a helper that it calls once more": (
        "def step(x): model(x).sum().backward()\n"
        "def train():\n    for x in y: step(x)\n    step(y)\nfor e in range(3): train()",
        [None],
    ),
    "step of a function that calls a helper once more without a loop": (
        "def step(x): model(x).sum().backward()\ndef train(x):\n    step(x)\n    step(x)\nfor x in y: train(x)",
        ["training"],
    ),
    "no network": ("for x in y: f(x)", [None]),
    "step of something else": ("for x in y: environment.step(x)", [None]),
    "criterion only": ("criterion = nn.MSELoss()\nfor x in y: criterion(x, x)", [None]),
}


def test_a_network_does_not_run_while_it_is_made_but_its_parts_may() -> None:
    program = Program(
        HEAD + "class Net(nn.Module):\n    def make(self, n): return nn.Linear(n, n)\n    def __init__(self):\n"
        "        for n in sizes: self.net = self.make(n)\n        self.net = nn.Linear(2, 2)\n        for x in y: self.net(x)\n"
    )
    scope = program.scope("Net.__init__")
    assert [(loop.statement.lineno, kind) for loop, kind in program.facts.loops.kinds(scope).items() if loop.statement] == [
        (13, LoopKind.EVALUATE)
    ]


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    text, expected = KINDS[name]
    program = Program(HEAD + text)
    kinds = program.facts.loops.kinds(program.scope(""))
    loops = sorted(program.flow().loops, key=lambda loop: loop.statement.lineno if loop.statement else 0)
    assert [kinds[loop].value if loop in kinds else None for loop in loops] == expected


def test_what_is_left_over_is_stepped_once_per_epoch() -> None:
    program = Program(
        HEAD
        + """
scaler = torch.cuda.amp.GradScaler()
for epoch in range(3):
    optimizer.zero_grad()
    for i, x in enumerate(y):
        scaler.scale(model(x).mean()).backward()
        if i % 4 == 3:
            scaler.step(optimizer)
            optimizer.zero_grad()
    scaler.step(optimizer)
    optimizer.zero_grad()
"""
    )
    kinds = program.facts.loops.kinds(program.scope(""))
    assert [ast.unparse(loop.iterated) for loop in kinds if loop.iterated is not None] == ["enumerate(y)"]


def test_gradients_that_are_cleared_without_autograd_train_nothing() -> None:
    program = Program(HEAD + "@torch.no_grad()\ndef f():\n    for x in y:\n        optimizer.zero_grad()\n        model(x)\n")
    assert list(program.facts.loops.kinds(program.scope("f")).values()) == [LoopKind.EVALUATE]


STEP = "for i, x in enumerate(loader):\n    model(x).sum().backward()\n"
GUARDS = {
    "each step": ("    a  #?", True),
    "periodic": ("    if i % 10 == 0:\n        a  #?", False),
    "nearly always": ("    if i % 10:\n        a  #?", True),
    "negated": ("    if not i % 10:\n        a  #?", False),
    "first step": ("    if i == 0:\n        a  #?", False),
    "no step yet": ("    if not i:\n        a  #?", False),
    "some step": ("    if i:\n        a  #?", True),
    "else of periodic": ("    if i % 10 == 0: pass\n    else:\n        a  #?", True),
    "both": ("    if i % 10 == 0 and c:\n        a  #?", False),
    "by chance": ("    if random.random() < 0.001:\n        a  #?", False),
    "nearly always by chance": ("    if random.random() < 0.9:\n        a  #?", True),
    "either": ("    if i % 10 == 0 or c:\n        a  #?", True),
    "by name": ("    if verbose:\n        a  #?", False),
    "through a variable": ("    now = i % 10 == 0\n    if now:\n        a  #?", False),
    "other condition": ("    if c:\n        a  #?", True),
    "handler": ("    try: f()\n    except E:\n        a  #?", False),
    "skipped": ("    if i % 10: continue\n    a  #?", False),
    "before break": ("    if c:\n        a  #?\n        break", False),
    "since the last time": ("    if i - last >= every:\n        a  #?\n        last = i", False),
    "when it is due": ("    if i >= due:\n        a  #?\n        due += every", False),
    "counted": ("    if i >= n:\n        a  #?\n        n += 1", True),
    "the best": ("    if b > best:\n        a  #?\n        best = b", True),
    "never": ("    if False:\n        a  #?", False),
    "a constant": ("    if True:\n        a  #?", True),
    "operand": ("    i % 10 == 0 and a  #?", False),
    "inner loop": ("    for k in y:\n        a  #?", True),
    "the last one": ("    if i // 2 + 1 == n:\n        a  #?", False),
    "from the second on": ("    if i + 1 > n:\n        a  #?", True),
    "through variables": (
        "    last = i + 1 == n\n    shown = i % 50 == 0 or last\n    now = i % 10 == 0 or shown\n    if now:\n        a  #?",
        False,
    ),
    "made anew": ("    if c == self.c:\n        w = self.w\n    else:\n        a  #?\n        self.w = w", False),
    "made in another way": ("    if c:\n        w = self.w\n    else:\n        a  #?\n        self.v = w", True),
    "warns": ("    if x.max() > 9:\n        m = a  #?\n        print('WARNING: large')", False),
    "logs a warning": ("    if x.max() > 9:\n        m = a  #?\n        logger.warning(m)", False),
    "prints": ("    if x.max() > 9:\n        m = a  #?\n        print(m)", True),
    "warns and goes on": ("    if x.max() > 9:\n        m = a  #?\n        logger.warning(m)\n        del m", True),
    "by hand": ("    now = int(e * len(loader) + i + 1)\n    if now == total:\n        a  #?", False),
    "a seldom step": ("    if i % 2 == 0:\n        actor(x).mean().backward()\n        a  #?", True),
}


@pytest.mark.parametrize("name", GUARDS)
def test_guards(name: str) -> None:
    text, each_step = GUARDS[name]
    program = Program(HEAD + STEP + text)
    scope, node = program.at("a")
    assert (program.facts.loops.step_loop(scope, node) is not None) is each_step
    assert program.facts.loops.around(scope, node) is not None


def test_heat() -> None:
    program = Program(
        HEAD
        + """
def each(x): return deeper(x)
def deeper(x): return x
def rarely(x): pass
def never(x): pass
def seldom(x): model(x).mean().backward()
class Net(nn.Module):
    def forward(self, x): return self.part(x)
    def part(self, x): return x
    def build(self): pass
for i, x in enumerate(loader):
    model(each(x)).sum().backward()
    if i % 100 == 0: rarely(x)
    if i % 2 == 0: seldom(x)
never(1)
"""
    )
    heat = {scope.qualname: scope and program.facts.loops.heat(scope) for scope in program.scopes()}
    assert {name: value and value.name for name, value in heat.items()} == {
        "": None, "each": "STEP", "deeper": "STEP", "rarely": None, "never": None, "seldom": "STEP",
        "Net.forward": "FORWARD", "Net.part": "FORWARD", "Net.build": None,
    }  # fmt: skip


def test_targets() -> None:
    program = Program(
        HEAD
        + "class A:\n    def f(self): pass\nclass N(nn.Module):\n    def forward(self, x): pass\ndef g(): pass\n"
        + "A().f(); N()(1); g(); (g if c else unknown)(); unknown()"
    )
    scope = program.scope("")
    calls = sorted(program.flow().calls, key=lambda call: (call.lineno, call.col_offset, ast.unparse(call)))[-8:]
    found = {ast.unparse(call): [t.qualname for t in program.facts.loops.targets(scope, call)] for call in calls}
    assert found["A().f()"] == ["A.f"]
    assert found["N()(1)"] == ["N.forward"]
    assert found["g()"] == found["(g if c else unknown)()"] == ["g"]
    assert found["unknown()"] == []


AGENT = """
import torch

class Agent:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer

    def learn(self, buffer):
        x = buffer.sample()
        self.optimizer.zero_grad()
        torch.relu(self.net(x)).sum().backward()
        self.optimizer.step()
"""
BUFFER = """
class Buffer:
    def sample(self):
        return 1
"""
RUN = """
import torch
from agent import Agent
from buffer import Buffer

net = torch.nn.Linear(4, 1)
agent = Agent(net, torch.optim.SGD(net.parameters(), lr=0.1))
buffer = Buffer()
for step in range(1000):
    if step >= 100:
        agent.learn(buffer)
"""


def test_what_an_agent_in_another_file_does_in_each_step_is_hot() -> None:
    program = Program(RUN, {"agent.py": AGENT, "buffer.py": BUFFER})
    assert program.facts.loops.heat(program.scope("Agent.learn", "agent.py")) is Heat.STEP
    assert program.facts.loops.heat(program.scope("Buffer.sample", "buffer.py")) is Heat.STEP


LAYERS = """
import torch

def grouped(x):
    return sampled(x)

def sampled(x):
    return torch.zeros(4).cuda() + x

def once(x):
    return x

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = once(3)

    def forward(self, x):
        return grouped(x)

def train(loss):
    loss.backward()
"""


def test_functions_that_a_forward_pass_calls_are_part_of_it() -> None:
    program = Program(LAYERS)
    heats = {name: program.facts.loops.heat(program.scope(name)) for name in ("grouped", "sampled", "once")}
    assert heats == {"grouped": Heat.FORWARD, "sampled": Heat.FORWARD, "once": None}


STEPS = """
import torch
from torch import nn

class Agent:
    def __init__(self, net):
        self.net, self.optimizer = net, torch.optim.Adam(net.parameters())

    def update(self, buffer):
        self.learn(buffer.sample())
        if self.late:
            self.learn(1)

    def learn(self, x):
        self.optimizer.zero_grad()
        self.net(x).sum().backward()
        self.optimizer.step()
        self.clip()

    def clip(self): pass

    def act(self, x):
        return self.net(x)

def overfit(net, x, optimizer):
    net(x).sum().backward()
    optimizer.step()

def warm_up(agent: Agent):
    pass

class Lit(nn.Module):
    def training_step(self, batch, index):
        return helper(batch)

def helper(batch): pass

class ReplayMemory:
    def sample(self): pass
    def push(self): pass
"""


def test_what_steps_an_optimizer_is_a_step_whoever_calls_it() -> None:
    program = Program(STEPS)
    hot = {scope.qualname for scope in program.scopes() if scope.name and program.facts.loops.heat(scope) is Heat.STEP}
    assert hot == {
        "Agent.update", "Agent.learn", "Agent.clip", "Lit.training_step", "helper", "ReplayMemory.sample",
    }  # fmt: skip


def test_a_step_that_is_taken_once_is_none() -> None:
    once = "optimizer = torch.optim.Adam([])\ndef step(x):\n    x.backward()\n    optimizer.step()\n"
    assert Program("import torch\n" + once).facts.loops.is_training_step(Program("import torch\n" + once).scope("step"))
    program = Program("import torch\n" + once + "step(1)")
    assert not program.facts.loops.is_training_step(program.scope("step"))


SAMPLER = """
import torch

class Diffusion:
    def loop(self, model, shape):
        x = torch.randn(shape)
        for t in reversed(range(1000)):
            x = self.sample(model, x, t)
        return x

    def sample(self, model, x, t):
        return self.mean(model, x, t) + 1

    def mean(self, model, x, t):
        return model(x, t)

    def describe(self, model):
        for name in ("a", "b"):
            self.show(model, name)

    def show(self, model, name):
        print(name)

def train(loss): loss.backward()
"""


def test_a_sampler_runs_its_model_in_each_step() -> None:
    program = Program(SAMPLER)
    kinds = {
        name: list(program.facts.loops.kinds(program.scope(f"Diffusion.{name}")).values()) for name in ("loop", "describe")
    }
    assert kinds == {"loop": [LoopKind.EVALUATE], "describe": []}


def test_what_computes_the_trainers_loss_runs_each_step() -> None:
    program = Program(
        HEAD
        + """
from perflint_runtime import Trainer
def fit():
    def training_step(model, batch):
        return model(batch)
    def other(model, batch):
        return model(batch)
    return Trainer(model, optimizer, training_step)
"""
    )
    assert program.facts.loops.heat(program.scope("fit.<locals>.training_step")) is Heat.STEP
    assert program.facts.loops.heat(program.scope("fit.<locals>.other")) is None


def test_what_gives_a_step_loop_its_batches_runs_each_step() -> None:
    program = Program(
        HEAD
        + """
class Data:
    def batches(self, xs):
        for i in range(9):
            yield xs[i]
    def names(self, xs):
        for i in range(9):
            yield xs[i]
data = Data()
def train(data):
    for step, x in enumerate(data.batches([])):
        model(x).sum().backward()
    for name in data.names([]):
        print(name)
train(data)
"""
    )
    kinds = {name: list(program.facts.loops.kinds(program.scope(f"Data.{name}")).values()) for name in ("batches", "names")}
    assert kinds == {"batches": [LoopKind.EVALUATE], "names": []}


def test_a_loop_that_evaluates_a_batch_by_a_method_is_a_step_loop() -> None:
    program = Program(
        HEAD
        + """
class Engine:
    def __init__(self): self.model = model
    def eval(self, x, y): return (self.model(x) - y).mean()
    def evaluate(self, batches):
        for x in batches: self.model(x)
    def test(self, text): print(text)
engine = Engine()
for x in batches: engine.eval(x, 1)
for epoch in range(3): engine.evaluate(batches)
for text in texts: engine.test(text)
"""
    )
    kinds = program.facts.loops.kinds(program.scope(""))
    assert [loop.statement.lineno for loop in kinds if loop.statement is not None] == [16]
    assert program.facts.loops.heat(program.scope("Engine.eval")) is Heat.STEP
    assert program.facts.loops.heat(program.scope("Engine.test")) is None


def test_a_loop_in_which_an_agent_chooses_actions_is_a_step_loop_whatever_trains_now_and_then() -> None:
    program = Program(
        HEAD
        + """
class Agent:
    def __init__(self): self.model = model
    def select_action(self, x): return self.model(x).argmax()
    def act(self, text): print(text)
    def update(self):
        for x in loader:
            self.model(x).sum().backward()
            optimizer.step()
agent = Agent()
while True:
    x = world.reset()
    for t in range(1000):
        x = world.step(agent.select_action(x))
        if t % 100 == 0:
            agent.update()
for epoch in range(3):
    agent.act("epoch")
    agent.update()
"""
    )
    kinds = program.facts.loops.kinds(program.scope(""))
    assert [loop.statement.lineno for loop in kinds if loop.statement is not None] == [20]
    assert program.facts.loops.heat(program.scope("Agent.select_action")) is Heat.STEP
    assert program.facts.loops.heat(program.scope("Agent.act")) is None


def test_what_a_forward_pass_hands_on_or_picks_by_its_name_runs_in_it() -> None:
    program = Program(
        HEAD
        + """
class Net(nn.Module):
    def forward(self, x, kind):
        losses = {"boxes": self.of_boxes}
        return losses[kind](x) + getattr(self, "pick_" + kind)(x)
    def of_boxes(self, x): return x
    def pick_one(self, x): return self.inner(x)
    def pick_never(self, x): return x
    def inner(self, x): return x
    def setup(self): self.hook = self.watched = self.pick_never(1)
    def of_masks(self, x): return x
    def watched(self, x): return x
model(1).backward()
"""
    )
    names = ("of_boxes", "pick_one", "pick_never", "inner", "setup", "of_masks", "watched")
    parts = [name for name in names if program.facts.loops.is_part_of_forward(program.scope(f"Net.{name}"))]
    assert parts == ["of_boxes", "pick_one", "inner"]


def test_a_loop_trains_by_a_method_that_calls_a_helper_of_another_file() -> None:
    agent = """
    from memory import Memory
    from helpers import update, tell
    from torch.optim import Adam
    class Agent:
        def __init__(self, net, env):
            self.net, self.env, self.memory = net, env, Memory()
            self.optimizer = Adam(net.parameters())
        def run(self, state):
            while True:
                state = self.env.play(self.act(state))
                self.learn()
                self.show(state)
        def act(self, state): return self.net(state)
        def learn(self):
            update(self.optimizer, self.loss(self.memory.draw()))
        def loss(self, x): return self.net(x).mean()
        def show(self, x): tell(x)
    """
    memory = "class Memory:\n    def draw(self): return self._draw()\n    def _draw(self): return 1\n"
    helpers = "def update(optimizer, loss):\n    loss.backward()\n    optimizer.step()\ndef tell(x): print(x)\n"
    program = Program("", {"agent.py": agent, "memory.py": memory, "helpers.py": helpers})
    loops = program.facts.loops
    assert [kind.value for kind in loops.kinds(program.scope("Agent.run", "agent.py")).values()] == ["training"]
    assert all(loops.heat(program.scope(f"Agent.{name}", "agent.py")) for name in ("act", "learn", "loss"))
    assert loops.heat(program.scope("Memory._draw", "memory.py")) is Heat.STEP


def test_the_step_of_an_optimizer_runs_each_step() -> None:
    program = Program(
        """
        import torch
        class Own(torch.optim.Optimizer):
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.data.add_(self.scale(p.grad))
            def scale(self, g): return g.norm()
            def add(self, g): return g
        class Clock:
            def step(self):
                self.param_groups = 1
        """
    )
    heats = [program.facts.loops.heat(program.scope(name)) for name in ("Own.step", "Own.scale", "Own.add", "Clock.step")]
    assert heats == [Heat.STEP, Heat.STEP, None, None]
