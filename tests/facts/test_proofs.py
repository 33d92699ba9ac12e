"""The proofs that rewrites share: each trap must stand against its proof."""

from __future__ import annotations

import ast

import pytest
from ask import Program

from perflint.facts.autograd.forward import needs_graph
from perflint.facts.autograd.retention import kept_by
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.same_value import single_definition
from perflint.facts.proofs.effectless import loop_without_effect, without_effect
from perflint.facts.proofs.errors import error_is_caught, relied_on
from perflint.facts.proofs.fears import ASKS_FOR_GRADIENTS, BUILT_FROM_TEXT, SET_BY_NAME, SEVERAL_GPUS, feared
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.proofs import free_name, inspects_itself, suspends
from perflint.facts.proofs.tampering import unshared, untouched
from perflint.facts.training.recurrent import is_zero_state, rnn_calls
from perflint.rule.obligations import Kind

HEAD = "import torch\nfrom torch import nn\nmodel = nn.Linear(2, 2)\ndef f(x, buffer):\n    y = x.sum() * 2\n"

UNTOUCHED = {
    "pass": True,
    "print(y)": True,
    "z = y.item()": True,
    "z = y * 2; z.mul_(3)": True,
    "y += 1": False,
    "y.mul_(2)": False,
    "y.data = x": False,
    "y[0] = 1": False,
    "z = y; z.mul_(2)": False,
    "z = y.view(-1); z += 1": False,
    "torch.add(y, 1, out=y)": False,
    "torch.distributed.all_reduce(y)": False,
    "unknown(y)": False,
    "zs = [y]; zs[0].mul_(2)": False,
    "buffer.y = y": False,
    "g = lambda: y.mul_(2)": False,
    "yield y": False,
    "for z in y: z.mul_(2)": False,
    "(z := y).mul_(2)": False,
    "z = y if x else x; z.mul_(2)": False,
    "nn.ReLU(inplace=True)(y)": False,
    "match y:\n        case z: z.mul_(2)": False,
}


@pytest.mark.parametrize("text", UNTOUCHED)
def test_untouched(text: str) -> None:
    program = Program(f"{HEAD}    {text}\n    y.item()  #?\n")
    scope, node = program.at("y.item()")
    definition = next(d for d in flow_of(scope).definitions_of("y") if d.kind == "assign")
    assert (untouched(program.facts, scope, definition, node) is None) is UNTOUCHED[text]


BEFORE_THE_FIRST_READ = {
    "y += 1": (True, "augmented"),
    "y.mul_(2)": (True, "assign"),
    "z = y.detach(); y += 1; later = z.mul_(2)": (True, "augmented"),
    "z = y.mul_(2); later = lambda: z": (False, "assign"),
    "buffer.y = y; y += 1": (False, "augmented"),
    "torch.distributed.all_reduce(y)": (True, "assign"),
    "torch.distributed.all_reduce(y, async_op=True)": (False, "assign"),
    "torch.distributed.irecv(y)": (False, "assign"),
}
BETWEEN_THE_READS = {"z = y.detach(); y += 1": "z.mul_(2)", "z = y.mul_(2)": "z.mul_(3)", "y += 1": "y += 1"}


@pytest.mark.parametrize("text", BEFORE_THE_FIRST_READ)
def test_what_is_written_before_the_first_read_is_read(text: str) -> None:
    program = Program(f"{HEAD}    {text}\n    y.item()\n    y.item()  #?\n")
    untouched_, kind = BEFORE_THE_FIRST_READ[text]
    scope, last = program.at("y.item()")
    flow = flow_of(scope)
    first = min((call for call in flow.calls_named["item"]), key=lambda call: call.lineno)
    definition = next(d for d in flow.definitions_of("y") if d.kind == kind)
    assert (untouched(program.facts, scope, definition, last, first=first) is None) is untouched_


@pytest.mark.parametrize("text", BETWEEN_THE_READS)
def test_other_names_of_what_is_added_to_are_followed(text: str) -> None:
    program = Program(f"{HEAD}    {text}\n    y.item()\n    {BETWEEN_THE_READS[text]}\n    y.item()  #?\n")
    scope, last = program.at("y.item()")
    flow = flow_of(scope)
    first = min((call for call in flow.calls_named["item"]), key=lambda call: call.lineno)
    reached = flow.reaching[next(n for n in ast.walk(first) if isinstance(n, ast.Name))]
    assert any(untouched(program.facts, scope, definition, last, first=first) is not None for definition in reached)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("y = x * 2", True), ("y = buffer", False), ("y = x.view(-1)", False), ("y = torch.ones(2); buffer.y = y", True),
        ("y = buffer[0]", False), ("y = torch.ones(2) if x else buffer", False),
        ("y = torch.ones(2); y += x", True), ("y = buffer; y += x", False), ("y = x.view(-1); y += x", False),
    ],
)  # fmt: skip
def test_unshared(text: str, own: bool) -> None:
    program = Program(f"import torch\ndef f(buffer):\n    x = torch.ones(2)\n    {text}\n    y  #?\n")
    scope, node = program.at("y")
    assert (unshared(program.facts, scope, node) is None) is own


@pytest.mark.parametrize(
    ("text", "single"),
    [
        ("x = 1\nuse(x, x)", True),
        ("x = 1\nif c: x = 2\nuse(x, x)", False),
        ("use(x, x)", False),
        ("x = 1\nx = 2\nuse(x, x)", True),
    ],
)
def test_single_definition(text: str, single: bool) -> None:
    flow = Program(text).flow()
    assert (single_definition(flow, *flow.calls_named["use"][0].args) is not None) is single


@pytest.mark.parametrize(
    ("text", "pure"),
    [("len(x)", True), ("pure(x)", True), ("keeps(x)", False), ("unknown(x)", False), ("(y := 1)", False), ("next(x)", False)],
)
def test_without_effect(text: str, pure: bool) -> None:
    head = "s = []\ndef pure(x): return len(x)\ndef keeps(x): s[0] = x\n"
    program = Program(f"{head}def f(x):\n    {text}  #?\n")
    assert (without_effect(program.facts, *program.at()) is None) is pure


def test_names_and_suspension() -> None:
    program = Program("def f(): total = 1\ndef g(): locals()\nasync def h(): await x\n")
    scopes = {name: program.scope(name) for name in "fgh"}
    assert free_name(scopes["f"], "total") == "total_2"
    assert free_name(program.scope(""), "new") is None
    assert free_name(scopes["g"], "new") is None
    assert [inspects_itself(program.flow(name)) for name in "fgh"] == [False, True, False]
    assert [suspends(program.flow(name)) for name in "fgh"] == [False, False, True]


MODULE = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
    def forward(self, x):
        {}
        return self.layer(x)
def run(x):
    net = Net()
    net(x)  #?
"""


@pytest.mark.parametrize(
    ("text", "kept", "graph"),
    [
        ("pass", False, False), ("y = x * 2", False, False), ("self.y = x", True, False), ("store.append(x)", True, False),
        ("global g; g = x", True, False), ("unknown(x)", True, True), ("torch.autograd.grad(x, x)", True, True),
        ("x.requires_grad", False, True), ("self.cache['a'] = x", True, False), ("zs = []; zs.append(x)", False, False),
    ],
)  # fmt: skip
def test_what_a_forward_pass_keeps(text: str, kept: bool, graph: bool) -> None:
    program = Program(MODULE.format(text))
    scope, call = program.at()
    assert isinstance(call, ast.Call)
    assert bool(kept_by(program.facts, scope, [call], [call])) is kept
    assert bool(list(needs_graph(program.facts, scope, call))) is graph


def test_a_layer_that_nobody_knows_ends_no_proof_that_a_result_is_kept() -> None:
    program = Program(
        "import torch\ndef adapt(model, x, step=[]):\n    step.append(model(x))\n    return step[-1]\n"
        "def f(model, x):\n    adapt(model, x)  #?\n"
    )
    scope, call = program.at()
    assert isinstance(call, ast.Call)
    assert {o.kind for o in kept_by(program.facts, scope, [call], [call])} == {Kind.KNOWN_LAYERS, Kind.RETENTION}


def test_what_may_be_another_layer_is_asked_for_the_layers_that_it_is_known_to_be() -> None:
    program = Program(
        "import torch\nfrom torch import nn\nclass Keeper(nn.Module):\n    kept = []\n    def forward(self, x):\n"
        "        self.kept.append(x)\n        return x\ndef f(head, x):\n    return head(x)  #?\nf(Keeper(), torch.ones(2))\n"
    )
    scope, call = program.at("head(x)")
    assert isinstance(call, ast.Call)
    assert Kind.RETENTION in {o.kind for o in kept_by(program.facts, scope, [call], [call])}


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("list(map(Keep, [x]))", True), ("make = Keep\n    make(x)", True), ("buffer.register(factory=Keep)", True),
        ("isinstance(x, Keep)", False), ("Keep.size", False),
    ],
)  # fmt: skip
def test_a_class_that_is_handed_on_is_called_by_others(text: str, runs: bool) -> None:
    made = "class Keep:\n    size = 1\n    def __init__(self, x):\n        kept.append(x)\n"
    program = Program(f"{made}def f(x, buffer):\n    {text}\n    x  #?\n")
    scope, _ = program.at()
    assert ("__init__" in {run.name for run in hidden_runs(program.facts, scope, flow_of(scope).order)}) is runs


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("own[0] + 1", "__add__"), ("1 in own", "__eq__"), ("print(own)", "__repr__"), ("made() or 1", "__bool__"),
        ("list(one if x else 2)", "__iter__"), ("len(table['a'])", "__len__"), ("holder.one += 1", "__iadd__"),
        ("own[0] += 1", "__iadd__"), ("f'{own[0]}'", "__format__"), ("f'{own}'", "__repr__"),
    ],
)  # fmt: skip
def test_objects_run_their_operators_wherever_they_come_from(text: str, runs: str) -> None:
    cls = f"class Own:\n    def {runs}(self, *given):\n        print(given)\n"
    made = "class Holder:\n    def __init__(self):\n        self.one = Own()\ndef made():\n    return Own()\n"
    held = "    one, own, table, holder = Own(), [Own()], {'a': Own()}, Holder()\n"
    program = Program(f"{cls}{made}def f(x):\n{held}    {text}\n    x  #?\n")
    scope, _ = program.at()
    statement = flow_of(scope).siblings(flow_of(scope).statement(program.at()[1]))[-2]
    assert runs in {run.name for run in hidden_runs(program.facts, scope, ast.walk(statement))}


@pytest.mark.parametrize(
    ("state", "zero"),
    [
        ("(torch.zeros(1), torch.zeros(1))", True), ("(torch.zeros(1), torch.ones(1))", False), ("s", False),
        ("torch.zeros(1).add_(1)", False), ("(torch.zeros(1), s)", False),
    ],
)  # fmt: skip
def test_states(state: str, zero: bool) -> None:
    program = Program(
        f"import torch\nfrom torch import nn\nrnn = nn.LSTM(2, 2)\ndef f(x, s):\n    rnn(x, {state})\n    rnn(x)\n"
    )
    (call,) = rnn_calls(program.facts, program.scope("f"))
    assert call.certain
    assert is_zero_state(program.facts, program.scope("f"), call.state) is zero


def test_a_pattern_reads_properties() -> None:
    text = "class Box:\n    @property\n    def size(self): return 1\nbox = Box()\n"
    program = Program(f"{text}def f():\n    match box:\n        case Box(size=x):\n            pass\n")
    scope = program.scope("f")
    assert "size" in {run.name for run in hidden_runs(program.facts, scope, flow_of(scope).order)}


LOOPS = {
    "pass": True,
    "found.append(x[i].item())": True,
    "table[i] = x[i].item()": True,
    "total += x[i].item()": True,
    "if x[i].item() > 0.5:\n            continue": True,
    "print(i, x[i].item())": True,
    "best = max(best, round(x[i].item(), 2))": False,  # `max` of what is not known may compare objects of the program
    "worst = max(0.5, x[i].item())": True,
    "y = torch.sigmoid(x)": False,
    "y = torch.sigmoid(torch.ones(2))": True,
    "y = x.sum() * 2": False,  # `x` may be anything that has a method `sum`
    "y = torch.ones(2).sum() * 2": True,
    "y = double(i)": True,
    "y = store(i)": False,
    "y = scan(i)": True,
    "y = scan_and_store(i)": False,
    "y = scan_buffer(buffer)": False,
    "y = counted(i)": False,
    "import random; y = random.randint(0, i)": False,
    "y = draws.randint(0, i)": True,
    "draws.shuffle(buffer)": False,
    "y = np.random.randint(0, i)": True,
    "np.random.shuffle(buffer)": False,
    "x.mul_(2)": False,
    "torch.relu_(x)": False,
    "torch.nn.functional.relu(x, inplace=True)": False,
    "torch.add(x, 1, out=x)": False,
    "x[i] = 0": False,
    "x.data = buffer": False,
    "buffer += 1": False,
    "alias = x; alias += 1": False,
    "buffer.append(i)": False,
    "buffer.log(i)": False,
    "unknown(i)": False,
    "model(x)": False,
    "next(buffer)": False,
    "del x": False,
    "x = buffer; x *= 2": False,
    "with buffer: pass": False,
    "yield i": False,
    "found.append([b.step() for b in buffer])": False,
    "print(i, file=buffer)": False,
    "y = sorted(buffer, key=unknown)": False,
    "y = Own() + i": False,
    "total += Own()": False,
    "y = own.anything": False,
    "y = i in [own]": False,
    "print([own])": False,
    "y = max([own, own])": False,
    "y = f'{(own, i)}'": False,
    "y = [own][0]": True,
}


@pytest.mark.parametrize("text", LOOPS)
def test_what_runs_in_a_loop_writes_to_no_tensor(text: str) -> None:
    program = Program(
        "import random as draws\nimport numpy as np\n"
        "import torch\nfrom torch import nn\nmodel = nn.Linear(2, 2)\nseen = torch.ones(3)\n"
        "def double(i):\n    return i * 2\n"
        "def store(i):\n    seen[0] = i\n"
        "def scan(i):\n    best = []\n    for j in range(i):\n        best.append(double(j))\n    return best\n"
        "def scan_and_store(i):\n    for j in range(i):\n        store(j)\n"
        "def scan_buffer(b):\n    for j in range(3):\n        b += j\n"
        "def counted(i):\n    global seen\n    for j in range(i):\n        seen = j\n"
        "class Own:\n    def __add__(self, other):\n        seen.add_(1)\n"
        "    def __getattr__(self, name):\n        seen.add_(1)\n"
        "def f(x, buffer):\n    found = []\n    table = {}\n    own = Own()\n"
        "    total = 0.0\n    best = 0.0\n    for i in range(3):\n"
        f"        {text}\n    x  #?\n"
    )
    scope, _ = program.at("x")
    flow = flow_of(scope)
    loop = next(node for node in flow.order if isinstance(node, ast.For))
    reads = [call for call in flow.calls if ast.unparse(call) == "x[i].item()"]
    assert (loop_without_effect(program.facts, scope, loop, reads) is None) is LOOPS[text]


OF_UNKNOWN = {
    "found.append(i > limit)": "__gt__",
    "found.append(limit + i)": "__add__",
    "found.append(limit.level)": "level",
    "found.append(limit.size())": "size",
    "if limit: continue": "__bool__",
    "first, second = limit": "__iter__",
    "found.append(limit[i])": "__getitem__",
    "found.append(table[limit])": "__hash__",
    "found.append(len(limit))": "__len__",
    "print(f'{limit}')": "__format__",
    "print([limit])": "__repr__",
    "total += limit": "__radd__",
    "found.append(i in limit)": "__contains__",
    "found.append(larger(limit))": "__gt__",
}


@pytest.mark.parametrize("text", OF_UNKNOWN)
def test_what_is_not_known_runs_methods_that_the_program_has(text: str) -> None:
    def proof(method: str) -> Kind | None:
        program = Program(
            f"import torch\nseen = torch.ones(3)\nclass Own:\n    def {method}(self, *given):\n        seen.add_(1)\n"
            "def larger(a):\n    return a > 1\n"
            f"def f(limit):\n    found, table, total = [], {{1: 2}}, 0.0\n    for i in range(3):\n        {text}\n    i  #?\n"
        )
        scope, _ = program.at("i")
        loop = next(node for node in flow_of(scope).order if isinstance(node, ast.For))
        missing = loop_without_effect(program.facts, scope, loop)
        return missing.kind if missing is not None else None

    assert proof(OF_UNKNOWN[text]) is not None
    assert proof("unused") is None


@pytest.mark.parametrize(("line", "feared"), [("__gt__ = write", True), ("low.__gt__(1)", False), ("__gt__ == write", False)])
def test_what_is_assigned_is_a_method_too(line: str, feared: bool) -> None:
    program = Program(
        f"class Own(Base):\n    {line}\ndef f(limit):\n    for i in range(3):\n        found = i > limit\n    i  #?\n"
    )
    scope, _ = program.at("i")
    loop = next(node for node in flow_of(scope).order if isinstance(node, ast.For))
    assert (loop_without_effect(program.facts, scope, loop) is not None) is feared


CAUGHT = {
    "f()": None,
    "try:\n    f()\nexcept ValueError:\n    pass": Kind.CONTROL_FLOW,
    "try:\n    g()\nexcept ValueError:\n    pass": Kind.CONTROL_FLOW,
    "use(f)\ntry:\n    g()\nexcept ValueError:\n    pass": Kind.CONTROL_FLOW,
    "use(f)\ntry:\n    h()\nexcept ValueError:\n    pass": Kind.ERRORS_ARE_BUGS,
}


@pytest.mark.parametrize("text", CAUGHT)
def test_an_error_is_caught_by_the_worst_of_those_who_run_it(text: str) -> None:
    program = Program(f"from elsewhere import use\ndef f():\n    1 / x  #?\ndef g():\n    f()\ndef h():\n    pass\n{text}\n")
    missing = error_is_caught(program.facts, *program.at())
    assert (missing.kind if missing is not None else None) is CAUGHT[text]


@pytest.mark.parametrize(
    ("around", "relied"),
    [
        ("try:\n        x  #?\n    except RuntimeError:\n        pass", True),
        ("try:\n        x  #?\n    except KeyError:\n        pass", False),
        ("with contextlib.suppress(RuntimeError):\n        x  #?", True),
        ("with torch.no_grad():\n        x  #?", False),
    ],
)
def test_a_handler_around_a_line_is_relied_on(around: str, relied: bool) -> None:
    program = Program(f"import contextlib, torch\ndef f(x):\n    {around}\n")
    assert (relied_on(program.facts, *program.at("x")) is not None) is relied


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("'cuda:0'", False), ("f'cuda:{args.gpu}'", False), ("'cuda:{}'.format(args.gpu)", False),
        ("'cuda:{0}'.format(self.args.gpu)", False), ("'cuda:' + str(args.gpu)", False),
        ("'cuda:1'", True), ("f'cuda:{i}'", True), ("'cuda:{}'.format(i)", True), ("'cuda:{}'.format(args.gpus[i])", True),
        ("'cuda:{}'.format(args.gpu + i)", True), ("'cuda:' + str(i)", True), ("'cuda:' + str(args.gpus[i])", True),
        ("'cuda:{}'", True), ("'cuda:' + name", True),
    ],
)  # fmt: skip
def test_the_index_of_a_gpu_is_the_same_if_it_is_an_option(device: str, expected: bool) -> None:
    program = Program(f"import torch\nwhere = torch.device({device})\n")
    assert any(feared(program.project, program.module().source.path, SEVERAL_GPUS)) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("setattr(lib, 'act', new)", True),
        ("functools.partial(setattr, lib)('act', new)", True),
        ("into = setattr", True),
        ("builtins.setattr(lib, 'act', new)", True),
        ("from builtins import setattr as put", True),
        ("into = functools.partial(object.__setattr__, lib)", True),
        ("names = map(vars, [lib])", True),
        ("lib.act.__globals__.update(act=new)", True),
        ("find = globals", True),
        ("from sys import argv, modules", True),
        ("class Options(dict):\n    __setattr__ = dict.__setitem__", False),
        ("hook.setattr(lib, 'act', new)", False),
        ("vars = [1, 2]\nprint(vars[0])", False),
        ("from sys import argv", False),
    ],
)
def test_names_may_be_set_by_functions_that_are_handed_on(line: str, expected: bool) -> None:
    program = Program(f"import lib\n{line}\n")
    assert any(feared(program.project, program.module().source.path, SET_BY_NAME, BUILT_FROM_TEXT)) is expected


@pytest.mark.parametrize(
    ("text", "is_feared"),
    [
        ("flat_grad(kl, hessian=True)", False),
        ("def flat_grad(grads, hessian=False):\n    if hessian == False:\n        pass", False),
        ("jacobian = layer.weight @ x", False),
        ("from torch.autograd.functional import jacobian", True),
        ("from torch.autograd import functional\nfunctional.hessian(f, x)", True),
        ("from tools import (\n    train,\n    jvp,\n)", True),
        ("from torch.func import *", True),
        ('getattr(tools, "vjp")(f, x)', True),
        ("tools . \\\n hvp(f, x)", True),
    ],
)
def test_a_bare_name_differentiates_nothing(text: str, is_feared: bool) -> None:
    program = Program(text + "\n")
    assert any(feared(program.project, program.module().source.path, ASKS_FOR_GRADIENTS)) is is_feared
