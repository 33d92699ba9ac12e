"""What expressions may evaluate to: through names, calls, attributes and files, and never more than is certain."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.values.values import Tensor

HEAD = "import torch\nfrom torch import nn\nimport numpy as np\n"
CUDA, HOST = "tensor on cuda", "tensor on host"
GPU, CPU = "torch.zeros(2, device='cuda')", "torch.zeros(2)"

CERTAIN = {
    "constant": ("3  #?", "3"),
    "tensors of a tokenizer": ("make()(texts, return_tensors='pt')  #?", "batch on host"),
    "a part of what a tokenizer gives": ("make().encode(texts, return_tensors='pt')['ids']  #?", "batch on host"),
    "loss of the runtime's trainer": (
        "from perflint_runtime import Trainer\nt = Trainer(m, o, f, device='cuda')\nfor l, _, _ in t.steps(x):\n    l  #?",
        CUDA,
    ),
    "batch of the runtime's prefetcher": (
        "from perflint_runtime import DevicePrefetcher\nfor x, y in DevicePrefetcher(z, 'cuda'):\n    x  #?",
        "batch on cuda",
    ),
    "copy of the runtime's": ("from perflint_runtime import moved\nmoved(torch.zeros(2), 'cuda')  #?", CUDA),
    "copy of the runtime's, in its module": (f"import perflint_runtime as p\np.moved_copy_to_cuda({CPU})  #?", CUDA),
    "what the runtime uploads": (
        "from perflint_runtime import uploaded\nuploaded(torch.tensor, [1.0], device='cuda')  #?",
        CUDA,
    ),
    "either": (f"x = {GPU} if c else {CPU}\nx  #?", f"{CUDA} | {HOST}"),
    "arithmetic": ("x = 1 + 2.0\nx  #?", "float"),
    "tensor and number": (f"(2 * {GPU})  #?", CUDA),
    "tuple": ("x = 1, 'a'\nx[1]  #?", "'a'"),
    "unpacked": ("(a, b), c = (1, 2), 3\nb  #?", "2"),
    "starred": ("a, *b = 1, 2, 3\nb  #?", "[1 | 2 | 3]"),
    "dict": ("d = {'a': 1, 'b': 2}\nd['b']  #?", "2"),
    "dict with a later item": ("d = {'a': 1}\nd['b'] = 2\nd['b']  #?", "2"),
    "dict comprehension": ("d = {k: 1 for k in x}\nd['b']  #?", "1"),
    "list comprehension": (f"x = [{GPU} for i in y]\nx[0]  #?", CUDA),
    "for over a display": ("for x in (1, 2):\n    x  #?", "1 | 2"),
    "enumerate": ("for i, x in enumerate([1, 2]):\n    i  #?", "int"),
    "walrus": ("if (x := 3): x  #?", "3"),
    "f-string": ("f'cuda:{i}'  #?", "text cuda:"),
    "function": ("def f(): return 3\nf()  #?", "3"),
    "function without return": ("def f(): pass\nf()  #?", "None"),
    "function with two ends": ("def f(c):\n    if c: return 3\nf(1)  #?", "3 | None"),
    "tuples of two lengths": ("def f(c):\n    if c: return 1, 'a'\n    return 2, 'b', 3\nx, y, z = f(c)\nz  #?", "3"),
    "argument": (f"def f(x): return x\nf({GPU})  #?", CUDA),
    "keyword": ("def f(a, *, b=1): return b\nf(0, b=2)  #?", "2"),
    "default": ("def f(a, b=1): return b\nf(0)  #?", "1"),
    "varargs": ("def f(*a): return a\nf(1, 2)  #?", "(1, 2)"),
    "keyword arguments": ("def f(**k): return k['b']\nf(a=1, b=2)  #?", "2"),
    "spread": ("def f(a, b): return b\nd = {'a': 1, 'b': 2}\nf(**d)  #?", "2"),
    "lambda": ("f = lambda x: x\nf(3)  #?", "3"),
    "closure": ("def f():\n    x = 3\n    def g(): return x\n    return g()\nf()  #?", "3"),
    "generator": ("def f():\n    yield 1\n    yield 2\nfor x in f():\n    x  #?", "1 | 2"),
    "yield from": ("def g(): yield 1\ndef f(): yield from g()\nnext(f())  #?", "1"),
    "global in a function": ("x = 1\ndef f():\n    global x\n    x = 2\ndef g():\n    x  #?", "1 | 2"),
    "conditional definition": ("if c:\n    def f(): return 1\nelse:\n    def f(): return 2\nf()  #?", "1 | 2"),
    "conditional import": ("try: import numpy as q\nexcept ImportError: q = None\nq  #?", "None | numpy"),
    "class": ("class A: pass\nA()  #?", "instance A"),
    "attribute of self": ("class A:\n    def __init__(self): self.x = 3\nA().x  #?", "3"),
    "attribute from an argument": (
        "class A:\n    def __init__(self, x): self.x = x\n    def f(self):\n        self.x  #?\nA(3)",
        "3",
    ),
    "chained attributes": ("class A:\n    def f(self): self.x = self.y = 3\nA().y  #?", "3"),
    "attribute of two methods": (
        "class A:\n    def f(self): self.x = 1\n    def g(self): a = 0; self.x = 2\nA().x  #?",
        "1 | 2",
    ),
    "attribute set from outside": ("class A:\n    def f(self): self.x = 1\ndef g(a=A()):\n    a.x = 2\nA().x  #?", "1 | 2"),
    "attribute set from outside on a call": ("class A:\n    def f(self): self.x = 1\nA().x = 2\nA().x  #?", "1 | ?"),
    "method": ("class A:\n    def f(self): return 3\nA().f()  #?", "3"),
    "inherited method": ("class A:\n    def f(self): return 3\nclass B(A): pass\nB().f()  #?", "3"),
    "super of a network": (
        "from torch import nn\nclass N(nn.Module):\n    def to(self, d): return super(N, self).to(d)\nN().to('cuda')  #?",
        "instance N",
    ),
    "super": ("class A:\n    def f(self): return 3\nclass B(A):\n    def f(self): return super().f()\nB().f()  #?", "3"),
    "property": ("class A:\n    @property\n    def f(self): return 3\nA().f  #?", "3"),
    "static method": ("class A:\n    @staticmethod\n    def f(x): return x\nA.f(3)  #?", "3"),
    "call of an instance": ("class A:\n    def __call__(self, x): return x\nA()(3)  #?", "3"),
    "iteration over an instance": ("class A:\n    def __iter__(self): yield 3\nfor x in A():\n    x  #?", "3"),
    "getattr": ("class A:\n    def __init__(self): self.x = 3\ngetattr(A(), 'x')  #?", "3"),
}  # fmt: skip


@pytest.mark.parametrize("name", CERTAIN)
def test_certain(name: str) -> None:
    text, expected = CERTAIN[name]
    assert Program(HEAD + text).said() == expected


OPEN = {
    "declared in a class": "class A:\n    x: torch.Tensor\ndef f(a: A):\n    a.x  #?",
    "parameter of a method that something unknown may call": (
        "class A:\n    def f(self, x):\n        x  #?\nA().f(1)\ndef g(a): a.f(2)"
    ),
    "constructor of a class that is handed on": (
        "class A:\n    def __init__(self, x):\n        x  #?\nA(1)\nKINDS = {'a': A}\nKINDS['a'](f())"
    ),
    "parameter of nobody": "def f(x):\n    x  #?",
    "unknown function": "f()  #?",
    "unknown attribute": "class A: pass\nA().x  #?",
    "starred argument": "def f(a, b=1): return b\nf(*x)  #?",
    "spread of an unknown dict": "def f(a=1): return a\nf(**x)  #?",
    "unknown decorator": "@decorate\ndef f(): return 3\nf()  #?",
    "star import": "from somewhere import *\nx  #?",
    "name of a loader": "def f(train_loader):\n    train_loader  #?",
    "name of a model": "def f(model):\n    model  #?",
    "name of a loss": "def f(loss):\n    loss  #?",
    "name of a device": "def f(device):\n    device  #?",
    "name of an optimizer": "def f(optimizer):\n    optimizer  #?",
    "method that tensors have": "def f(x):\n    x.mean()  #?",
    "annotation": "def f(x: torch.Tensor):\n    x  #?",
    "gradient": "torch.zeros(2).grad  #?",
    "abstract method": "class A:\n    def f(self): raise NotImplementedError\nA().f()  #?",
    "coroutine": "async def f(): return 3\nf()  #?",
    "match capture": "match y:\n    case x: x  #?",
    "with an unknown manager": "with y as x: x  #?",
    "unknown base class": "class A(B): pass\nA().f()  #?",
    "augmented by something unknown": "x = 1\nx += y\nx  #?",
    "loop-carried and unknown": "x = 1\nfor i in y:\n    x = f(x)\nx  #?",
    "global that another file may set": "def f():\n    global x\n    x = g()\nx = 1\ndef h():\n    x  #?",
    "nonlocal": "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = h()\n    g()\n    x  #?",
    "nonlocal read by another closure": (
        "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = h()\n    def k():\n        x  #?"
    ),
    "attribute set by setattr": "class A:\n    def __init__(self): self.x = 1\na = A()\nsetattr(a, 'x', f())\na.x  #?",
    "attribute that options fill in": "class A:\n    x = 1\na = A()\nparser.parse_args(argv, namespace=a)\na.x  #?",
    "attribute set on the class": "class A:\n    def __init__(self): self.x = 1\nA.x = f()\nA().x  #?",
    "list that grows": "x = [1]\nx.append(f())\nx[1]  #?",
    "list that is filled": "x = [1]\nx[0] = f()\nx[0]  #?",
    "list that grows by +=": "x = [1]\nx += f()\nx[0]  #?",
    "list handed away": "x = [1]\nf(x)\nx[0]  #?",
    "dict that grows": "x = {'a': 1}\nx['a'] = f()\ndef g():\n    x['a']  #?",
    "dict updated": "x = {'a': 1}\nx.update(a=f())\nx['a']  #?",
    "monkey-patched method": "class A:\n    def f(self): return 3\nA.f = g\nA().f()  #?",
    "monkey-patched function": "def f(): return 3\nf = g(f)\nf()  #?",
    "overridden method": "class A:\n    def f(self): return 3\nclass B(A):\n    f = g\nB().f()  #?",
    "method of a subclass that is passed": (
        "class A:\n    def f(self): return 3\n    def h(self):\n        self.f()  #?\n"
        "class B(A):\n    def f(self): return g()\nB().h()"
    ),
    "reassigned self": "class A:\n    def f(self):\n        self = g()\n        self.x  #?\n    def h(self): self.x = 1",
    "shadowed builtin": "def int(x): return f(x)\nint(3)  #?",
    "builtin shadowed by a star import": "from somewhere import *\nint(3)  #?",
    "deleted and unknown": "x = 1\nif c: x = f()\nx  #?",
    "exception": "try: f()\nexcept E as x: x.value  #?",
}


NOT_SEEN = {
    "attribute set by setattr",
}
"""What the analysis takes for certain though it is not."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xfail(strict=True) if name in NOT_SEEN else ()) for name in OPEN]
)
def test_open(name: str) -> None:
    assert Program(HEAD + OPEN[name]).value().open


FILES = {
    "pkg/__init__.py": "from .models import Net as Model\nfrom . import tools\nfrom .all import *\nDEVICE = 'cuda'\n",
    "pkg/models.py": (
        "import torch\nfrom torch import nn\nfrom .tools import helper\nclass Base:\n    def name(self): return 'base'\n"
        "class Net(Base):\n    def __init__(self, n): self.n = n; self.made = helper()\n"
        "    @property\n    def size(self): return self.n\n"
        "def make(kind): return Net(3) if kind else None\n"
    ),
    "pkg/tools.py": "def helper(): return 3\ndef apply(f, x): return f(x)\nclass Registry(dict): pass\n",
    "pkg/all.py": "from .tools import helper as hidden\nstarred = 'star'\n",
    "pkg/eval.py": "def score(): return 1\n",
    "patched.py": "def one(): return 1\nclass Made: pass\ndef two(): return 2\ndef three(): return 3\n",
    "patches.py": (
        "import patched\nfrom patched import two\npatched.one = lambda: 5\npatched.Made, patched.other = two, 4\n"
        "two.three = 4\n"
    ),
    "tables.py": (
        "import torch\nLAYERS = {'a': [64, 'M']}\nSHARED = {'a': 1}\n"
        "OWN = {'a': 1}\nFILLED = {'a': 1}\nREAD = {'a': 1}\nNAMES = ['a']\n"
        "def fill(): FILLED['a'] = 2\n"
        "def read(k): return READ[k], READ.get(k), len(READ), torch.tensor(NAMES)\n"
    ),
    "fills.py": "from tables import SHARED as TABLE, READ\nimport tables\nTABLE['a'] = 2\nx = READ['a']\n",
    "loop_a.py": "from loop_b import b\ndef a(): return 1\nx = b\n",
    "loop_b.py": "from loop_a import a, x\ndef b(): return a()\ny = x\n",
}

ACROSS = {
    "re-export": ("from pkg import Model\nModel(3)  #?", "instance Net"),
    "module attribute": ("import pkg\npkg.DEVICE  #?", "'cuda'"),
    "submodule": ("import pkg.tools\npkg.tools.helper()  #?", "3"),
    "aliased submodule": ("import pkg.tools as t\nt.helper()  #?", "3"),
    "from a package import a module": ("from pkg import tools\ntools.helper()  #?", "3"),
    "star import in the package": ("from pkg import starred\nstarred  #?", "'star'"),
    "star import here": ("from pkg.all import *\nstarred  #?", "'star'"),
    "alias": ("from pkg.tools import helper as h\nh()  #?", "3"),
    "factory": ("from pkg.models import make\nmake(1)  #?", "None | instance Net"),
    # the package hands the class on under another name, so somebody may build it with something else
    "attribute of an instance": ("from pkg.models import Net\nNet(3).n  #?", "3 | ?"),
    "attribute from another file's function": ("from pkg.models import Net\nNet(3).made  #?", "3"),
    "property": ("from pkg.models import Net\nNet(3).size  #?", "3 | ?"),
    "inherited": ("from pkg.models import Net\nNet(3).name()  #?", "'base'"),
    "callback": ("from pkg.tools import apply\napply(lambda v: v, 3)  #?", "3"),
    "files that import each other": ("from loop_b import b, y\nb()  #?", "1"),
    "name through a circle": ("from loop_b import y\ny()  #?", "1"),
    "outside": ("from somewhere.else_ import thing\nthing  #?", "somewhere.else_.thing"),
    "not there": ("from pkg.tools import missing\nmissing  #?", "?"),
    "module named like a builtin": ("from pkg import eval\neval.score()  #?", "1"),
    "module named like a builtin, of its package": ("import pkg.eval\npkg.eval.score()  #?", "1"),
    "function that another file replaces": ("from patched import one\none()  #?", "1 | 5"),
    "class that another file replaces": ("import patched\npatched.Made()  #?", "2 | instance Made"),
    "function of which another file sets an attribute": ("import patched\npatched.three()  #?", "3"),
    "table that nobody changes": ("from tables import OWN\nOWN['a']  #?", "1"),
    "table that is read elsewhere": ("import tables\ntables.READ['a']  #?", "1"),
    "row of a table of numbers": ("import tables\nprint(tables.LAYERS['a'])\ntables.LAYERS['a'][1]  #?", "'M'"),
    "list that torch gets": ("from tables import NAMES\nNAMES[0]  #?", "'a'"),
    "table that another file changes": ("from tables import SHARED\nSHARED['a']  #?", "1 | ?"),
    "table that its own function changes": ("from tables import FILLED\nFILLED['a']  #?", "1 | ?"),
    "table that is changed here": ("import tables\ntables.OWN.update(b=2)\ndef f():\n    tables.OWN['a']  #?", "1 | ?"),
    "subclass of a foreign class": ("from pkg.tools import Registry\nRegistry()['x']  #?", "?"),
}


@pytest.mark.parametrize("name", ACROSS)
def test_across_files(name: str) -> None:
    text, expected = ACROSS[name]
    assert Program(text, FILES).said() == expected


@pytest.mark.parametrize(
    ("expression", "dtype", "ndim"),
    [
        ("(x > 0) & (x < 1)", "bool", None), ("(x > 0) | ~(x < 1)", "bool", None), ("(x > 0) & x.long()", "", None),
        ("x.view(-1)[0]", "float32", 0), ("x.view(-1)[len(names)]", "float32", 0), ("x.view(-1)[x > 0]", "float32", None),
        ("x.view(-1)[None]", "float32", None), ("x.view(-1)[[1]]", "float32", None), ("x.view(-1)[unknown]", "float32", None),
    ],
)  # fmt: skip
def test_what_keys_and_bits_make_of_a_tensor(expression: str, dtype: str, ndim: int | None) -> None:
    value = Program(
        f"import torch\ndef f(names, unknown):\n    x = torch.zeros(3, 3, dtype=torch.float32)\n    {expression}  #?\n"
    ).value()
    (found,) = value.alternatives
    assert isinstance(found, Tensor)
    assert (found.dtype, found.ndim) == (dtype, ndim)


def test_an_item_of_an_object_is_what_its_class_gives() -> None:
    program = Program(
        """
        import torch
        class Items:
            def __getitem__(self, index):
                return torch.zeros(3), str(index)
        def f():
            items = Items()
            items[3][0]  #?
        """
    )
    assert program.said() == "tensor on host"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.is_autocast_enabled()", "?"), ("torch.get_num_threads()", "?"), ("torch.are_any_enabled()", "?"),
        ("torch.somewhat_new(x)", "tensor on host"), ("torch.zeros(3)", "tensor on host"),
    ],
)  # fmt: skip
def test_functions_of_torch_that_give_no_tensor(call: str, expected: str) -> None:
    assert Program(f"import torch\ndef f():\n    x = torch.ones(3)\n    {call}  #?\n").said() == expected


def test_arithmetic_with_what_is_only_guessed_to_be_a_tensor_is_a_guess() -> None:
    value = Program("import torch\ndef f(unknown):\n    unknown.sum() / 2  #?\n").value()
    assert all(isinstance(found, Tensor) and found.guessed for found in value.alternatives)
    assert value.alternatives


@pytest.mark.parametrize(
    ("added", "ndim", "fresh"),
    [
        ("x = torch.ones(2).sum()\nx += torch.ones(())", 0, True),
        ("x = torch.ones(2).sum()\nx += torch.ones(y, y).sum(z)", 0, True),  # no operand makes it larger
        ("x = torch.ones(2)\nx += 1", None, True),
        ("y = torch.ones(2)\nx = y.view(-1)\nx += 1", None, False),  # it is the memory of `y`
        ("x = 0\nx += torch.ones(2)", None, True),
    ],
)
def test_what_is_added_to_stays_the_tensor_that_it_was(added: str, ndim: int | None, fresh: bool) -> None:
    program = Program(f"{HEAD}{added}\nx  #?\n")
    value = program.facts.inference.value(*program.at())
    tensors = [a for a in value.alternatives if isinstance(a, Tensor)]
    assert [(t.ndim, t.fresh) for t in tensors] == [(ndim, fresh)]


@pytest.mark.parametrize(
    ("text", "ndims"),
    [
        ("t.view(1)", {None}),
        ("t.view(-1)", {1}),
        ("t.view(torch.int32)", {0}),
        ("t.view_as(torch.ones(2).flatten())", {1}),
        ("t.view_as(y)", {None}),
        ("sum([t, torch.ones(2)[:1]])", {None}),
        ("sum([t, torch.ones(2).mean()])", {0}),
        ("max(t, torch.ones(2)[:1])", {0, None}),
    ],
)
def test_number_of_dimensions(text: str, ndims: set[int | None]) -> None:
    program = Program(f"{HEAD}t = torch.ones(2).sum()\n{text}  #?\n")
    value = program.facts.inference.value(*program.at())
    assert {a.ndim for a in value.alternatives if isinstance(a, Tensor)} == ndims


def test_the_larger_of_a_tensor_and_a_number_may_be_the_number() -> None:
    program = Program(f"{HEAD}max(torch.ones(2).sum(), 3)  #?\n")
    assert not program.facts.inference.value(*program.at()).must_be(Tensor)
