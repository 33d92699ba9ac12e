"""What code may run, through all that it calls."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.proofs.copies import MAX_FUNCTIONS, no_copy_in_flight
from perflint.facts.proofs.reach import called_from

RING = "def f(): g()\ndef g(): h()\ndef h(): f()\n"


@pytest.mark.parametrize(("depth", "expected"), [(0, "f"), (1, "fg"), (3, "fgh"), (None, "fgh")])
def test_calls_are_followed_some_deep_and_each_function_once(depth: int | None, expected: str) -> None:
    program = Program(RING)
    assert "".join(scope.name for scope in called_from(program.facts, program.scope("f"), depth=depth)) == expected


def test_what_runs_without_a_call_counts_if_it_is_asked_for() -> None:
    program = Program("class C:\n    @property\n    def p(self): return g()\ndef g(): pass\ndef f():\n    c = C()\n    c.p\n")
    start = program.scope("f")
    assert [scope.name for scope in called_from(program.facts, start)] == ["f"]
    assert [scope.name for scope in called_from(program.facts, start, hidden=True)] == ["f", "p", "g"]


@pytest.mark.parametrize("length", [2, 6, MAX_FUNCTIONS + 5])
def test_a_copy_is_found_however_deep_it_is_started(length: int) -> None:
    chain = [f"def f{i}(x): return f{i + 1}(x)" for i in range(length)]
    copying = Program("\n".join([*chain, f"def f{length}(x): return x.to('cpu', non_blocking=True)"]))
    plain = Program("\n".join([*chain, f"def f{length}(x): return x + 1"]))
    for program, is_open in ((copying, True), (plain, length > MAX_FUNCTIONS)):
        scope = program.scope("f0")
        assert (no_copy_in_flight(program.facts, scope, flow_of(scope).calls) is not None) is is_open


STEPS = """import torch
from tqdm import tqdm
from torch.utils.data import DataLoader, TensorDataset


buffer = torch.empty(4).pin_memory()
made = [buffer]


class Step:
    def __init__(self):
        self.buffer = torch.empty(4).pin_memory()

    def moved(self, x):
        return {}


def to_gpu(x):
    x = x.contiguous()
    if torch.cuda.is_available():
        x = x.cuda(non_blocking=True)
    return x


def both(batch):
    x, y = batch
    return to_gpu(x), to_gpu(y)


def run(data, other):
    step = Step()
    for batch in DataLoader(TensorDataset(data, data)):
        {}


run(torch.ones(8), torch.ones(8).pin_memory())
"""
COPIES = {
    "both(batch)": True,
    "x, y = batch; to_gpu(x)": True,
    "to_gpu(torch.stack(list(batch)))": True,
    "[to_gpu(x) for x in batch]": True,
    "to_gpu(buffer)": False,
    "to_gpu(other)": False,
    "to_gpu(other[:2].float())": False,
    "to_gpu(step.buffer)": False,
    "to_gpu(made[0])": False,
    "both(made * 2)": False,
    "[to_gpu(x) for x in made]": False,
    "x = buffer; to_gpu(x)": False,
    "to_gpu(torch.as_tensor(buffer))": False,
    "to_gpu(batch[0]); both([batch[0], buffer])": False,
}
METHODS = {
    "x.to('cuda', non_blocking=True)": True,
    "x.to('cuda', non_blocking=False)": True,
    "x.cuda(None, True)": True,
    "self.buffer.cuda(None, True)": False,
    "self.buffer.to('cuda', non_blocking=True)": False,
    "x.cuda().to('cpu', non_blocking=True)": False,
    "x.cuda().to('cpu', non_blocking=x.is_cuda)": False,
    "self.buffer.copy_(x.cuda(), non_blocking=True)": False,
    "self.buffer.copy_(x.cuda(), True)": False,
    "[lambda: x.cuda().to('cpu', non_blocking=True)][0]()": False,
    "torch.utils.unknown(x, non_blocking=True)": False,
    "torch.cuda.CUDAGraph().replay()": False,
}


@pytest.mark.parametrize(("in_step", "is_proved"), COPIES.items())
def test_what_a_helper_copies_is_of_the_step(in_step: str, is_proved: bool) -> None:
    assert _is_proved(STEPS.format("x.sum()", in_step)) is is_proved


@pytest.mark.parametrize(("copied", "is_proved"), METHODS.items())
def test_which_copies_of_a_method_need_no_wait(copied: str, is_proved: bool) -> None:
    assert _is_proved(STEPS.format(copied, "step.moved(batch[0])")) is is_proved


LOOPS = {
    "for batch in DataLoader(TensorDataset(data, data)):": True,
    "for i, batch in enumerate(DataLoader(TensorDataset(data, data))):": True,
    "for batch, _ in zip(DataLoader(TensorDataset(data, data)), DataLoader(TensorDataset(data))):": True,
    "for batch in refilled(data):": False,
    "for i, batch in enumerate(refilled(data)):": False,
    "for batch, _ in zip(DataLoader(TensorDataset(data, data)), refilled(data)):": False,
    "for i, batch in tqdm(enumerate(DataLoader(TensorDataset(data, data)))):": True,
    "for batch, _ in torch.unknown.zip(DataLoader(TensorDataset(data, data)), refilled(data)):": False,
    "for batch in other:": False,
}
REFILLED = """def refilled(data):
    held = torch.empty(4).pin_memory(), torch.empty(4).pin_memory()
    for _ in data:
        held[0].random_()
        yield held


"""


@pytest.mark.parametrize(("loop", "is_proved"), LOOPS.items())
def test_a_loop_may_go_over_the_same_memory_again(loop: str, is_proved: bool) -> None:
    code = STEPS.format("x.sum()", "both(batch)").replace("def run(", f"{REFILLED}def run(")
    assert _is_proved(code.replace("for batch in DataLoader(TensorDataset(data, data)):", loop)) is is_proved


@pytest.mark.parametrize(("loop", "is_proved"), {**LOOPS, "for batch in list(other):": False}.items())
def test_the_step_itself_copies_from_memory_that_is_filled_again(loop: str, is_proved: bool) -> None:
    code = STEPS.format("x.sum()", "batch[0].cuda(non_blocking=True)").replace("def run(", f"{REFILLED}def run(")
    code = code.replace("for batch in DataLoader(TensorDataset(data, data)):", loop)
    assert _is_proved(code) is is_proved
    assert _is_proved(code.replace(".pin_memory()", ""))


def _is_proved(code: str) -> bool:
    program = Program(code)
    scope = program.scope("run")
    flow = flow_of(scope)
    calls = [call for call in flow.calls if flow.loop(call) is not None]
    return no_copy_in_flight(program.facts, scope, calls) is None
