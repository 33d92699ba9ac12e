"""Runs of perflint in a child process, over a tree of its own, with a hook at each of their steps."""

from __future__ import annotations

import io
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import perflint.cli
import perflint.run.workers
from perflint.__main__ import main as start
from perflint.rule.registry import all_rules
from perflint.run.store import FOLDER
from perflint.source.words import words

OLD = "import torch\n\nx = torch.ones(2)\nwith torch.no_grad:\n    x += 1\n"
NEW = OLD.replace("no_grad:", "no_grad():")
FIX = ("fix", "--isolated", "--select", "no-grad-without-call", "--output-format", "concise")
STEPS = words(
    """
    open os.rename os.remove os.chmod os.chown os.utime os.scandir os.listdir os.setxattr os.listxattr os.link os.truncate
    tempfile.mkstemp fcntl.flock
    """
)
"""The audit events that count as a step of a run."""
NAMES = ("a.py", "b c.py", "sub/\u00e9.py", "sub/new\nline.py", "sub/deep/" + "n" * 200 + ".py", "sub/deep/x.py/y.py")
"""Plain and odd names of the files in a tree."""
Hook = Callable[[str, tuple[Any, ...]], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its exit code (negative: the signal that killed it) and what it printed."""

    code: int
    output: str


@dataclass(frozen=True)
class Tree:
    """A folder of files that perflint fixes."""

    root: Path

    @property
    def files(self) -> list[Path]:
        return [self.root / name for name in NAMES]

    def write(self) -> None:
        """Write the old texts."""
        for path in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(old(path))

    def strangers(self) -> list[str]:
        """Files that are none of the tree's own, but for the folder of remembered results."""
        own = set(self.files)
        found = (path for path in self.root.rglob("*") if path.is_file() and FOLDER not in path.parts)
        return [str(path) for path in found if path not in own]


def old(path: Path) -> str:
    """The text of a file before the fix: each has its own."""
    return f"# {len(path.name)}\n{OLD}"


def new(path: Path) -> str:
    """The text of a file after the fix."""
    return f"# {len(path.name)}\n{NEW}"


class Running:
    """perflint in a child of this process, which has everything imported already."""

    def __init__(
        self, arguments: tuple[str, ...], folder: Path, prepare: Callable[[], None] = lambda: None, hook: Hook | None = None
    ) -> None:
        all_rules()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the object
        self._begun, self._begin = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._child(arguments, folder, prepare, hook)

    def _child(self, arguments: tuple[str, ...], folder: Path, prepare: Callable[[], None], hook: Hook | None) -> NoReturn:
        code = 70
        try:
            os.dup2(self._output.fileno(), 1)
            os.dup2(self._output.fileno(), 2)
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "wb", closefd=False), encoding="utf-8")
            sys.stderr = io.TextIOWrapper(io.FileIO(2, "wb", closefd=False), encoding="utf-8", write_through=True)
            os.chdir(folder)
            sys.argv = ["perflint", *arguments]
            signal.signal(signal.SIGINT, signal.default_int_handler)
            prepare()
            if hook is not None:
                sys.addaudithook(hook)
            perflint.cli.main = partial(self._enter, perflint.cli.main)  # type: ignore[assignment]
            start()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def _enter(self, enter: Callable[[], NoReturn]) -> NoReturn:
        os.write(self._begin, b".")
        enter()

    def begun(self) -> None:
        """Wait until the child has entered perflint: a Ctrl-C before that is Python's business."""
        os.read(self._begun, 1)

    def wait(self) -> Outcome:
        """The end of the run."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._begun)
        os.close(self._begin)
        self._output.seek(0)
        return Outcome(os.waitstatus_to_exitcode(status), self._output.read().decode("utf-8", "replace"))


def run(folder: Path, *arguments: str, prepare: Callable[[], None] = lambda: None, hook: Hook | None = None) -> Outcome:
    """Perflint in a folder, with `fix` and its options unless arguments are given."""
    return Running(arguments or FIX, folder, prepare, hook).wait()


Step = Callable[[str, tuple[Any, ...]], bool]
"""Whether an audit event counts."""


def any_step(event: str, arguments: tuple[Any, ...]) -> bool:
    """Any step of a run."""
    return event in STEPS


def at_step(number: int, act: Callable[[str, tuple[Any, ...]], None], counts: Step = any_step) -> Hook:
    """A hook that acts once, at a step of the run."""
    count = -1
    acting = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count, acting
        if not acting and counts(event, arguments):
            count += 1
            if count == number:
                acting = True
                try:
                    act(event, arguments)
                finally:
                    acting = False

    return hook


def steps(tree: Tree, counts: Step) -> int:
    """How many steps a whole run has."""
    tree.write()
    counted = tree.root.parent / "steps"
    counted.write_bytes(b"")
    number = os.open(counted, os.O_WRONLY)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if counts(event, arguments):
            os.write(number, b".")

    run(tree.root, hook=hook)
    os.close(number)
    return counted.stat().st_size


def chosen(tree: Tree, count: int, random_: random.Random, counts: Step = any_step) -> list[int]:
    """At which steps of a run to act: at all of them when there are not more than `count`."""
    total = steps(tree, counts)
    return list(range(total)) if total <= count else sorted(random_.sample(range(total), count))


@contextmanager
def scratch() -> Iterator[Tree]:
    """A tree that goes with the block."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder) / "tree")
        tree.root.mkdir()
        yield tree
