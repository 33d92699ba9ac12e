"""Every way that a value can go: safe fixes change no program in which it goes there, whatever node of `ast` takes it there."""

from __future__ import annotations

import ast
import sys
import textwrap

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

from fuzz.meaning import changes

HEAD = """
import asyncio
import contextlib
import functools
import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
inputs, targets = torch.randn(6, 3), torch.randn(6, 2)
KEPT = []
GIVEN = None


def act(w):
    {act}


class Holder:
    def __init__(self, value=None):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, *error):
        return False


class Acting:
    def __add__(self, w):
        act(w)
        return self

    __iadd__ = __radd__ = __eq__ = __contains__ = __getitem__ = __setitem__ = __add__
    __hash__ = object.__hash__

    def __init_subclass__(cls, w=None):
        act(w)


class Shown:
    def __init__(self, value):
        self.value = value

    def __format__(self, spec):
        act(self.value)
        return ""

    __iter__ = __neg__ = __bool__ = __len__ = lambda self: act(self.value) or 1


class Held(Exception):
    pass


def acting_on(w):
    act(w)
    return lambda function: function


"""

READ_TWICE = """def train(model, optimizer):
    for x, y in zip(inputs.split(2), targets.split(2)):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item())
{code}
        print(loss.item())


model = nn.Linear(3, 2)
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
"""
GRAPH_KEPT = """def evaluate(model):
    model.eval()
    total = 0.0
    for x in inputs.split(2):
{code}
        total += model(x).sum().item()
    return total


print(evaluate(nn.Linear(3, 2)))
for value in KEPT:
    value.sum().backward()
"""
RESULT_KEPT = """def evaluate(model):
    model.eval()
    total = 0.0
    for x in inputs.split(2):
        with torch.no_grad():
{code}
            total += model(x).sum().item()
    return total


model = nn.Linear(3, 2)
print(evaluate(model))
for value in KEPT:
    (model(inputs[:2]) * value).sum().backward()
"""
GRAPH_RETURNED = """def evaluate(model):
    model.eval()
    total, kept = 0.0, []
    for x in inputs.split(2):
{code}
        total += model(x).sum().item()
    return total, kept


total, kept = evaluate(nn.Linear(3, 2))
for value in [*kept, *KEPT]:
    value.sum().backward()
"""
RESULT_RETURNED = """def evaluate(model):
    model.eval()
    total, kept = 0.0, []
    for x in inputs.split(2):
        with torch.no_grad():
{code}
            total += model(x).sum().item()
    return total, kept


model = nn.Linear(3, 2)
total, kept = evaluate(model)
for value in [*kept, *KEPT]:
    (model(inputs[:2]) * value).sum().backward()
"""
ACTS = {
    "written to between two reads": (READ_TWICE, "loss", "w.data.mul_(2)", 8),
    "kept with its graph": (GRAPH_KEPT, "model(x)", "KEPT.append(w)", 8),
    "kept for training": (RESULT_KEPT, "model(x)", "KEPT.append(w)", 12),
    "returned with its graph": (GRAPH_RETURNED, "model(x)", "kept.append(w)", 8),
    "returned for training": (RESULT_RETURNED, "model(x)", "kept.append(w)", 12),
}
"""Programs that a way is put into: the program, what goes, what is done with it in the end, and the indentation."""

WAYS = {
    "name": "w = {v}\n{act}",
    "several names": "u = w = {v}\n{act}",
    "unpacking": "w, u = {v}, 1\n{act}",
    "unpacking into a list": "[u, w] = 1, {v}\n{act}",
    "unpacking a list": "pair = [{v}, 1]\nw, u = pair\n{act}",
    "starred target": "w, *u = {v}, 1, 2\n{act}",
    "in a starred target": "u, *(w,) = 1, {v}\n{act}",
    "swap": "u, t = 1, {v}\nu, t = t, u\nw = u\n{act}",
    "annotated name": "w: object = {v}\n{act}",
    "walrus": "(w := {v})\n{act}",
    "walrus in a condition": "if (w := {v}) is not None:\n    {act}",
    "walrus in a loop": "while (w := {v}) is not None:\n    {act}\n    break",
    "walrus in an assertion": "assert (w := {v}) is not None\n{act}",
    "conditional expression": "w = {v} if KEPT is not None else None\n{act}",
    "or": "w = None or {v}\n{act}",
    "and": "w = 1 and {v}\n{act}",
    "list": "w = [{v}][0]\n{act}",
    "tuple": "w = ({v}, 1)[0]\n{act}",
    "set": "w = {{{v}}}.pop()\n{act}",
    "dict": "w = {{'k': {v}}}['k']\n{act}",
    "key of a dict": "w = [*{{{v}: 1}}][0]\n{act}",
    "dict in a dict": "w = {{**{{'k': {v}}}}}['k']\n{act}",
    "starred element": "w = [*[{v}]][0]\n{act}",
    "list that is extended": "ws = []\nws += [{v}]\nw = ws[0]\n{act}",
    "list that is appended to": "ws = []\nws.append({v})\nw = ws[0]\n{act}",
    "list comprehension": "w = [{v} for _ in 'a'][0]\n{act}",
    "set comprehension": "w = {{{v} for _ in 'a'}}.pop()\n{act}",
    "dict comprehension": "w = {{k: {v} for k in 'a'}}['a']\n{act}",
    "key of a dict comprehension": "w = [*{{{v}: k for k in 'a'}}][0]\n{act}",
    "generator expression": "w = next({v} for _ in 'a')\n{act}",
    "variable of a comprehension": "[act(w) for w in [{v}]]",
    "condition of a comprehension": "[1 for w in [{v}] if act(w)]",
    "loop": "for w in [{v}]:\n    {act}",
    "loop that goes on": "for w in [None, {v}]:\n    if w is None:\n        continue\n    {act}",
    "loop over its rows": "for w in {v}.view(1, -1):\n    {act}",
    "loop that fills an attribute": "holder = Holder()\nfor holder.value in [{v}]:\n    act(holder.value)",
    "loop over pairs": "for i, w in enumerate([{v}]):\n    {act}",
    "context manager": "with contextlib.nullcontext({v}) as w:\n    {act}",
    "context manager of the program": "with Holder({v}) as w:\n    {act}",
    "context manager that is closed": "with contextlib.ExitStack() as stack:\n    stack.callback(act, {v})",
    "error": "try:\n    raise Held({v})\nexcept Held as error:\n    act(error.args[0])",
    "cause of an error": "try:\n    raise Held() from Held({v})\nexcept Held as error:\n    act(error.__cause__.args[0])",
    "message of an assertion": "try:\n    assert False, {v}\nexcept AssertionError as error:\n    act(error.args[0])",
    "else and finally": "try:\n    w = {v}\nexcept Held:\n    raise\nelse:\n    u = w\nfinally:\n    act(u)",
    "pattern": "match {v}:\n    case w:\n        {act}",
    "pattern with a name": "match {v}:\n    case object() as w:\n        {act}",
    "pattern of a sequence": "match [{v}]:\n    case [w]:\n        {act}",
    "pattern of a rest": "match 1, {v}:\n    case [1, *ws]:\n        act(ws[0])",
    "pattern of a dict": "match {{'k': {v}}}:\n    case {{'k': w}}:\n        {act}",
    "pattern of the rest of a dict": "match {{'k': {v}}}:\n    case {{**ws}}:\n        act(ws['k'])",
    "pattern of an object": "match Holder({v}):\n    case Holder(value=w):\n        {act}",
    "one of two patterns": "match [{v}]:\n    case [w] | (w, _):\n        {act}",
    "guard of a pattern": "match {v}:\n    case w if act(w):\n        pass",
    "patterns that do not match": "match {v}, None:\n    case _, True:\n        pass\n    case w, None:\n        {act}",
    "value in a pattern": "holder = Holder({v})\nmatch Acting():\n    case holder.value:\n        pass",
    "default": "def inner(w={v}):\n    {act}\ninner()",
    "default by name": "def inner(*, w={v}):\n    {act}\ninner()",
    "default of a lambda": "(lambda w={v}: act(w))()",
    "closure": "u = {v}\ndef inner():\n    act(u)\ninner()",
    "lambda": "u = {v}\n(lambda: act(u))()",
    "result of a lambda": "w = (lambda: {v})()\n{act}",
    "decorator": "@acting_on({v})\ndef inner():\n    pass",
    "decorator of a class": "@acting_on({v})\nclass Inner:\n    pass",
    "annotation": "def inner(w: {v}):\n    pass\nact(inner.__annotations__['w'])",
    "annotation of a result": "def inner() -> {v}:\n    pass\nact(inner.__annotations__['return'])",
    "attribute of a class": "class Inner:\n    w = {v}\nact(Inner.w)",
    "body of a class": "class Inner:\n    w = {v}\n    {act}",
    "keyword of a class": "class Inner(Acting, w={v}):\n    pass",
    "base of a class": "class Inner(*[acting_on({v}) and Holder]):\n    pass",
    "nonlocal variable": "u = None\ndef inner():\n    nonlocal u\n    u = {v}\ninner()\nw = u\n{act}",
    "global variable": "global GIVEN\nGIVEN = {v}\nact(GIVEN)",
    "function": "def inner():\n    return {v}\nw = inner()\n{act}",
    "generator": "def inner():\n    yield {v}\nw = next(inner())\n{act}",
    "generator that is sent to": "def inner():\n    act((yield))\nrun = inner()\nnext(run)\n"
    "try:\n    run.send({v})\nexcept StopIteration:\n    pass",
    "generator of a generator": "def inner():\n    yield from [{v}]\nw = next(inner())\n{act}",
    "coroutine": "async def inner():\n    return {v}\nw = asyncio.run(inner())\n{act}",
    "await": "async def give():\n    return {v}\nasync def inner():\n    act(await give())\nasyncio.run(inner())",
    "async for": "async def give():\n    yield {v}\nasync def inner():\n    async for w in give():\n"
    "        {act}\nasyncio.run(inner())",
    "async with": "@contextlib.asynccontextmanager\nasync def give():\n    yield {v}\nasync def inner():\n"
    "    async with give() as w:\n        {act}\nasyncio.run(inner())",
    "attribute": "holder = Holder()\nholder.value = {v}\nw = holder.value\n{act}",
    "attribute by name": "holder = Holder()\nsetattr(holder, 'value', {v})\nw = getattr(holder, 'value')\n{act}",
    "attribute that is unpacked into": "holder = Holder()\nholder.value, u = {v}, 1\nact(holder.value)",
    "item": "box = [None]\nbox[0] = {v}\nw = box[0]\n{act}",
    "slice": "box = []\nbox[:] = [{v}]\nw = box[0]\n{act}",
    "operand": "Acting() + {v}",
    "left operand": "{v} + Acting()",
    "operand of +=": "acting = Acting()\nacting += {v}",
    "operand of a comparison": "Acting() == {v}",
    "operand of in": "{v} in Acting()",
    "index": "Acting()[{v}]",
    "index of an item": "Acting()[{v}] = 1",
    "slice of an index": "Acting()[1:{v}]",
    "item of an object": "Acting()[0] = {v}",
    "text": 'f"{{Shown({v})}}"',
    "specification of a text": 'f"{{1:{{Shown({v})}}}}"',
    "method that formats": '"{{}}".format(Shown({v}))',
    "negation": "-Shown({v})",
    "condition": "if Shown({v}):\n    pass",
    "truth of an operand": "Shown({v}) and 1",
    "not": "not Shown({v})",
    "starred argument": "print(*Shown({v})) if 0 else [*iter(range(len(Shown({v}))))]",
    "argument": "act({v})",
    "argument by name": "act(w={v})",
    "argument in a list": "act(*[{v}])",
    "argument in a dict": "act(**{{'w': {v}}})",
    "argument that is bound before": "functools.partial(act, {v})()",
    "function that is mapped": "list(map(act, [{v}]))",
    "key to sort by": "sorted([{v}], key=act)",
    "name of a function": "acts = act\nacts({v})",
    "method": "append = act if GIVEN is None else print\nappend({v})",
    "deleted name": "w = {v}\nu = w\ndel w\nact(u)",
    "deleted item": "box = {{'k': {v}}}\nw = box['k']\ndel box['k']\n{act}",
}
"""Code that takes the value `{v}` to where `{act}` happens to it under the name `w`."""
if sys.version_info >= (3, 11):
    WAYS["group of errors"] = (
        "try:\n    raise ExceptionGroup('', [Held({v})])\nexcept* Held as group:\n    act(group.exceptions[0].args[0])"
    )
if sys.version_info >= (3, 12):
    WAYS["alias of a type"] = "type Inner = acting_on({v})\nInner.__value__"
    WAYS["bound of a type"] = "def inner[T: acting_on({v})]():\n    pass\ninner.__type_params__[0].__bound__"
if sys.version_info >= (3, 14):
    WAYS["template"] = 't = t"{{{v}}}"\nw = t.values[0]\n{act}'


def program(way: str, act: str) -> str:
    """A program in which a value goes a way."""
    frame, value, action, indent = ACTS[act]
    code = textwrap.indent(WAYS[way].format(v=value, act=action), " " * indent)
    return HEAD.replace("{act}", action.replace("kept", "KEPT")) + frame.replace("{code}", code)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_safe_fixes_change_nothing(way: str) -> None:
    assert {act: changed for act in ACTS if (changed := changes({"main.py": program(way, act)})[0])} == {}


def test_each_node_takes_part() -> None:
    taken = {type(node) for way in WAYS for act in ACTS for node in ast.walk(ast.parse(program(way, act)))}
    kinds = {kind for base in (ast.stmt, ast.expr, ast.pattern, ast.excepthandler) for kind in base.__subclasses__()}
    assert {kind.__name__ for kind in kinds - taken} == set()
