"""Which programs take functions as a whole, so that TorchScript or a single graph refuses what a fix would write."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.proofs.taken_whole import taken_whole

CODE = """import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x):
        return self.scaled(x)

    def scaled(self, x):
        return x * float(x.sum())


{code}
"""
TAKES = [
    "torch.jit.script(Net())",
    "@torch.jit.script\ndef f(x):\n    return x",
    "import torch.jit as j\n\n\n@j.script\ndef f(x):\n    return x",
    "@torch.compile(fullgraph=True)\ndef f(x):\n    return Net()(x)",
    "import functools\n\n\n@functools.partial(torch.compile, fullgraph=True)\ndef f(x):\n    return Net()(x)",
    "def f(x, net=torch.jit.script(Net())):\n    return net(x)",
    "from torch.jit import script as s\ns(Net())",
    "from torch import jit as j\nj.script(Net())",
    "import torch.jit as j\nj.script_if_tracing(Net())",
    "from torch.jit import *\nscript(Net())",
    "tool = torch.jit\ntool.script(Net())",
    "def use(tool):\n    return tool.script(Net())\n\n\nuse(torch.jit)",
    "class Other(torch.jit.ScriptModule):\n    pass",
    "torch.compile(Net(), fullgraph=True)",
    "options = {'fullgraph': True}\ntorch.compile(Net(), **options)",
    "import functools\nfast = functools.partial(torch.compile, fullgraph=True)\nfast(Net())",
    "def fast(**options):\n    return torch.compile(Net(), **options)",
    "Net().compile(fullgraph=True)",
    "torch.export.export(Net(), (torch.ones(2),))",
    "from torch.export import export as out\nout(Net(), (torch.ones(2),))",
    "torch.onnx.export(Net(), torch.ones(2), dynamo=True)",
    "import torch._dynamo as d\nd.export(Net())",
    "torch._dynamo.optimize('inductor', nopython=True)(Net())",
]
TAKES_NOTHING = [
    "# torch.jit.script(Net())",
    "'torch.jit.script(Net())'",
    "torch.jit.trace(Net(), torch.ones(2))",
    "from torch.jit import trace\ntrace(Net(), torch.ones(2))",
    "from numba import jit\n\n\n@jit\ndef f(x):\n    return x",
    "import jax\n\n\n@jax.jit\ndef f(x):\n    return x",
    "torch.compile(Net(), fullgraph=False)",
    "torch.compile(Net())",
    "import re\noptions = {}\nre.compile('export', **options)",
    "torch.onnx.export(Net(), torch.ones(2))",
    "import torch._dynamo\ntorch._dynamo.config.suppress_errors = True",
    "torch._dynamo.reset()",
]


def _found(code: str, file: str = "main.py") -> bool:
    files = {"main.py": CODE.format(code="import other"), "other.py": f"import torch\nfrom main import Net\n{code}\n"}
    program = Program(CODE.format(code=code)) if file == "main.py" else Program(files["main.py"], files)
    return taken_whole(program.facts, program.module().scopes["Net.scaled"]) is not None


@pytest.mark.parametrize("code", TAKES)
@pytest.mark.parametrize("file", ["main.py", "other.py"])
def test_what_takes_functions_as_a_whole_is_found_under_any_name(code: str, file: str) -> None:
    assert _found(code, file)


@pytest.mark.parametrize("code", TAKES_NOTHING)
@pytest.mark.parametrize("file", ["main.py", "other.py"])
def test_what_else_a_program_does_with_functions_is_harmless(code: str, file: str) -> None:
    assert not _found(code, file)


NET = CODE.format(code="import parts")
EXPORTS = "import torch\nimport parts\ntorch.export.export(parts.Other(), (torch.ones(2),))\n"
PARTS = "from torch import nn\n\n\nclass Other(nn.Module):\n    pass\n"
APART = {
    "a tool exports another network": {"tool.py": EXPORTS},
    "it loads its weights": {"tool.py": f"{EXPORTS}parts.Other().load_state_dict(torch.load('weights.pt'), strict=False)\n"},
}
HANDED = {
    "a program that has both": {"tool.py": EXPORTS, "run.py": "import tool\nimport main\n"},
    "a program further up": {"tool.py": EXPORTS, "mid.py": "import tool\n", "run.py": "import mid\nfrom main import Net\n"},
    "what the tool imports imports it": {"tool.py": f"import more\n{EXPORTS}", "more.py": "import main\n"},
    "it is imported by its name": {"tool.py": f"import importlib\nimportlib.import_module('main')\n{EXPORTS}"},
    "a network out of a pickle": {"tool.py": f"{EXPORTS}torch.export.export(torch.load('net.pt'), ())\n"},
}


@pytest.mark.parametrize("name", [*APART, *HANDED])
def test_who_takes_functions_must_get_them(name: str) -> None:
    files = {"main.py": NET, "parts.py": PARTS, **(APART | HANDED)[name]}
    program = Program(files["main.py"], files)
    assert (taken_whole(program.facts, program.module().scopes["Net.scaled"]) is not None) is (name in HANDED)
