"""Which functions run compiled: yes, no, or not known."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.facts import Facts

NET = """
class Block(nn.Module):
    def forward(self, x):
        return helper(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x)

def helper(x):
    return x + 1
"""
HEADER = "import torch\nfrom torch import nn\n"


def compiled(main: str, **files: str) -> set[str]:
    """The functions of all files that run compiled, by qualified name."""
    program = Program(HEADER + main, {f"{name}.py": HEADER + text for name, text in files.items()})
    return {scope.qualname for scope in program.scopes() if program.facts.compiled.runs(scope)}


ALL = {"Net.forward", "Block.forward", "helper"}

ROOTS = {
    "a decorator": ("@torch.compile\ndef f(x): return g(x)\ndef g(x): return x\ndef h(x): return x", {"f", "g"}),
    "a decorator with arguments": ("@torch.compile(mode='reduce-overhead')\ndef f(x): return x", {"f"}),
    "a decorator by another name": ("from torch import compile as fast\n@fast\ndef f(x): return x", {"f"}),
    "a partial decorator": (
        "import functools\n@functools.partial(torch.compile, dynamic=True)\ndef f(x): return x",
        {"f"},
    ),
    "a method's decorator": ("class A(nn.Module):\n    @torch.compile\n    def forward(self, x): return x", {"A.forward"}),
    "an inner function": (
        "def outer():\n    @torch.compile\n    def f(x): return x\n    return f",
        {"outer.<locals>.f"},
    ),
    "switched off": ("@torch.compile(disable=True)\ndef f(x): return x", set()),
    "another compile": ("import re\n@re.compile\ndef f(x): return x\nf = re.compile('f')", set()),
    "a function": ("def f(x): return x\ng = torch.compile(f)", {"f"}),
    "a function that a global takes the place of": (
        "def f(x): return x\ndef main():\n    global f\n    f = torch.compile(f)",
        {"f"},
    ),
    "a lambda": ("f = torch.compile(lambda x: x + 1)", {"<lambda>"}),
    "a maker of compilers": ("def f(x): return x\ng = torch.compile(fullgraph=True)(f)", {"f"}),
    "a bound method": ("class A:\n    def f(self, x): return x\ng = torch.compile(A().f)", {"A.f"}),
    "a trainer's model": (
        f"{NET}\nfrom transformers import Trainer, TrainingArguments\n"
        "Trainer(model=Net(), args=TrainingArguments('out', torch_compile=True)).train()",
        ALL,
    ),
    "a trainer's model, arguments by a name": (
        f"{NET}\nfrom transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments\ndef main():\n"
        "    arguments = Seq2SeqTrainingArguments('out', torch_compile=True)\n    Seq2SeqTrainer(Net(), arguments).train()",
        ALL,
    ),
    "a trainer that compiles nothing": (
        f"{NET}\nfrom transformers import Trainer, TrainingArguments\nother = TrainingArguments('out', torch_compile=True)\n"
        "Trainer(Net(), TrainingArguments('out')).train()",
        set(),
    ),
    "a module": (f"{NET}\nmodel = torch.compile(Net())", ALL),
    "a module by a name": (f"{NET}\nmodel = Net().to('cuda')\nmodel = torch.compile(model)", ALL),
    "a module under a flag": (f"{NET}\ndef main(flag):\n    model = Net()\n    if flag: model = torch.compile(model)", ALL),
    "a module in a helper": (
        f"{NET}\ndef prepare(model): return torch.compile(model)\ndef main(): return prepare(Net())",
        ALL,
    ),
    "in place": (f"{NET}\nmodel = Net()\nmodel.compile()", ALL),
    "in place, a method of its own": (
        f"{NET}\nclass Mine(Net):\n    def compile(self): pass\nmodel = Mine()\nmodel.compile()",
        set(),
    ),
    "a result that nobody takes": (f"{NET}\nmodel = Net()\ntorch.compile(model)", set()),
    "one layer": (f"{NET}\nmodel = Net()\nmodel.block = torch.compile(model.block)", {"Block.forward", "helper"}),
    "a parameter's class": (f"{NET}\n@torch.compile\ndef step(net: Net, x): return net(x)", {*ALL, "step"}),
    "nothing": (NET, set()),
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots(name: str) -> None:
    text, expected = ROOTS[name]
    assert compiled(text) == expected


LAYERS = {
    "a list": ("self.blocks = nn.ModuleList([Block() for _ in range(3)])", "for block in self.blocks: x = block(x)"),
    "a generator": ("self.blocks = nn.ModuleList(Block() for _ in range(3))", "for block in self.blocks: x = block(x)"),
    "numbered": ("self.blocks = nn.ModuleList([Block()])", "for i, block in enumerate(self.blocks[1:]): x = block(x)"),
    "in pairs": (
        "self.blocks, self.norms = nn.ModuleList([Block()]), nn.ModuleList([nn.LayerNorm(8)])",
        "for norm, block in zip(self.norms, self.blocks): x = block(norm(x))",
    ),
    "an item": ("self.blocks = nn.ModuleList([Block()])", "x = self.blocks[0](x)"),
    "a dict": ("self.blocks = nn.ModuleDict({'a': Block()})", "for block in self.blocks.values(): x = block(x)"),
    "a dict's item": ("self.blocks = nn.ModuleDict({'a': Block()})", "x = self.blocks['a'](x)"),
    "a dict with a list": (
        "self.parts = nn.ModuleDict(dict(h=nn.ModuleList([Block() for _ in range(3)])))",
        "for block in self.parts.h: x = block(x)",
    ),
    "a sequence": ("self.blocks = nn.Sequential(nn.Linear(8, 8), Block())", "x = self.blocks(x)"),
    "a sequence of a list": ("self.blocks = nn.Sequential(*[Block() for _ in range(3)])", "x = self.blocks(x)"),
    "appended": ("self.blocks = nn.ModuleList()\n        self.blocks.append(Block())", "for b in self.blocks: x = b(x)"),
    "stored": (
        "self.blocks = nn.ModuleDict()\n        for i in range(3): self.blocks[str(i)] = Block()",
        "for b in self.blocks.values(): x = b(x)",
    ),
    "checkpointed": (
        "self.block = Block()",
        "x = torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False)",
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_a_compiled_module(name: str) -> None:
    build, run = LAYERS[name]
    net = f"""
class Block(nn.Module):
    def forward(self, x): return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {build}

    def forward(self, x):
        {run}
        return x

model = torch.compile(Net())
"""
    assert compiled(net) == {"Net.forward", "Block.forward"}


def test_modules_are_followed_across_files() -> None:
    train = "from nets import Net\ndef main():\n    model = Net()\n    model = torch.compile(model)\n"
    assert compiled(train, nets=NET, other="def helper(x): return x\n") == ALL
    blocks = "class Block(nn.Module):\n    def forward(self, x): return x\n"
    nets = "from blocks import Block\nclass Net(nn.Module):\n    def __init__(self): self.b = Block()\n"
    nets += "    def forward(self, x): return self.b(x)\n"
    models = "from nets import Net\ndef build(): return Net()\n"
    train = "from models import build\nmodel = torch.compile(build())\n"
    assert compiled(train, models=models, nets=nets, blocks=blocks) == {"Net.forward", "Block.forward"}


KEPT_OUT = {
    "disable": ("@torch.compiler.disable\ndef g(x): return h(x)", "g(x)"),
    "disable with arguments": ("@torch.compiler.disable(recursive=True)\ndef g(x): return h(x)", "g(x)"),
    "its old name": ("@torch._dynamo.disable\ndef g(x): return h(x)", "g(x)"),
    "in the graph": ("@torch.compiler.allow_in_graph\ndef g(x): return h(x)", "g(x)"),
    "scripted": ("@torch.jit.script\ndef g(x): return h(x)", "g(x)"),
    "an unknown decorator": ("from elsewhere import changed\n@changed\ndef g(x): return h(x)", "g(x)"),
    "only uncompiled": ("def g(x): return h(x)", "g(x) if not torch.compiler.is_compiling() else x"),
    "else": ("def g(x): return h(x)", "x if torch.compiler.is_compiling() else g(x)"),
    "and": ("def g(x): return h(x)", "torch.jit.is_scripting() and g(x)"),
    "with another condition": ("def g(x): return h(x)", "g(x) if x is None and not torch._dynamo.is_compiling() else x"),
}


@pytest.mark.parametrize("name", KEPT_OUT)
def test_what_torch_does_not_look_into(name: str) -> None:
    defined, called = KEPT_OUT[name]
    assert compiled(f"def h(x): return x\n{defined}\n@torch.compile\ndef f(x):\n    return {called}\n") == {"f"}


def test_what_stands_behind_the_compiled_way_out() -> None:
    text = "def g(x): return x\n@torch.compile\ndef f(x):\n"
    text += "    if torch.compiler.is_compiling():\n        return x\n    return g(x)\n"
    assert compiled(text) == {"f"}


def test_a_program_that_compiles_nothing_says_no_and_one_that_compiles_the_unknown_does_not() -> None:
    program = Program(HEADER + NET)
    assert program.facts.compiled.runs(program.scope("Net.forward")) is False
    program = Program(f"{HEADER}{NET}\ndef main(model): return torch.compile(model)")
    assert program.facts.compiled.runs(program.scope("Net.forward")) is None


def test_roots_that_an_option_names() -> None:
    program = Program(HEADER + NET)
    for pattern in ("main.Net", "main.N*", "main.Net.forward"):
        facts = Facts(program.project, compiled=(pattern,))
        found = {scope.qualname for scope in program.scopes() if facts.compiled.runs(scope)}
        assert found == ALL, pattern
    facts = Facts(program.project, compiled=("main.helper",))
    assert {scope.qualname for scope in program.scopes() if facts.compiled.runs(scope)} == {"helper"}
    facts = Facts(program.project, compiled=("other.*",))
    assert not any(facts.compiled.runs(scope) for scope in program.scopes())


def test_a_root_knows_where_it_stands_and_whether_a_break_is_an_error() -> None:
    program = Program(f"{HEADER}def g(x): return x\n@torch.compile(fullgraph=True)\ndef f(x): return g(x)\n")
    root = program.facts.compiled.root(program.scope("g"))
    assert root is not None
    assert root.whole
    assert root is not None
    assert root.row == 4
