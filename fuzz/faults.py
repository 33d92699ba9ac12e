"""What `perflint fix` leaves behind when something goes wrong in its middle: a killed process, a Ctrl-C, a disk that fails,
an editor that writes at the same moment, a second perflint, and trees that are large or strange.

    python -m fuzz.faults [--count N] [--seed N] [--no-large] [--json FILE]

A fault hits a run at one of its own steps (an opened, written, renamed, removed file: Python's audit events) or at a random
moment. Then each file must be the old or the new text (with an edit in it where somebody made one), and a run after it must
end with every file fixed and nothing else in the tree. Needs POSIX. Faults are functions in `FAULTS`: more go there.
"""

from __future__ import annotations

import argparse
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import perflint.cli
import perflint.run.workers
from benchmarks.surroundings import ROOT, record, write
from fuzz.fault_runs import FIX, NEW, OLD, STEPS, Outcome, Running, Tree, at_step, chosen, new, old, run, scratch

WITH_WORKERS = (*FIX, "--jobs", "2")


def judge(tree: Tree, edits: dict[Path, str] | None = None) -> Counter[str]:
    """What is wrong in a tree after a fault, and after the run that follows it.

    edits: the texts that somebody else has put into files meanwhile.
    """
    found: Counter[str] = Counter()
    for path in tree.files:
        allowed = {old(path), new(path)} if not edits or path not in edits else {edits[path], edits[path].replace(OLD, NEW)}
        found["files torn or lost"] += not path.is_file() or path.read_text() not in allowed
    found["temporary files until the next run"] += len(tree.strangers())
    again = run(tree.root)
    found["files not fixed by the next run"] += sum(OLD in path.read_text() for path in tree.files)
    found["temporary files after the next run"] += len(tree.strangers())
    found["tracebacks"] += "Traceback" in again.output
    return found


def kills_at_steps(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """Kill -9 before a step."""
    found: Counter[str] = Counter()
    for number in chosen(tree, count, random_):
        tree.write()
        outcome = run(tree.root, hook=at_step(number, lambda event, arguments: os.kill(os.getpid(), signal.SIGKILL)))
        found["faults"] += outcome.code == -signal.SIGKILL
        found += judge(tree)
    return found


def kills_at_random_moments(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """Kill -9 after a random time."""
    return _signalled(tree, count, random_, signal.SIGKILL)


def interrupts_at_steps(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """Ctrl-C at a step."""
    found: Counter[str] = Counter()
    for number in chosen(tree, count, random_):
        tree.write()
        outcome = run(tree.root, hook=at_step(number, lambda event, arguments: os.kill(os.getpid(), signal.SIGINT)))
        found["faults"] += 1
        found["wrong exit codes"] += outcome.code != 130
        found["tracebacks"] += "Traceback" in outcome.output
        found["temporary files after Ctrl-C"] += len(tree.strangers())
        found += judge(tree)
    return found


def interrupts_at_random_moments(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """Ctrl-C after a random time."""
    return _signalled(tree, count, random_, signal.SIGINT)


def interrupts_at_lines(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """Ctrl-C when a line of perflint or of a library runs, in a run with two workers."""
    lines = lines_run(tree)
    found: Counter[str] = Counter()
    for line in random_.sample(lines, min(count, len(lines))):
        tree.write()
        outcome, came = interrupted_at(tree, line, random_.choice((1, 1, 2, 10)))
        found["faults"] += came
        found["wrong exit codes"] += outcome.code != (130 if came else 0)
        found["tracebacks"] += any(words in outcome.output for words in ("Traceback", "Exception ignored"))
        found["temporary files after Ctrl-C"] += len(tree.strangers())
        found += judge(tree)
    return found


Line = tuple[str, int]
"""A file and a row."""


def lines_run(tree: Tree) -> list[Line]:
    """The lines that a run runs."""
    tree.write()
    lines: dict[Line, None] = {}
    listed = tree.root.parent / "lines"
    with listed.open("w", buffering=1) as out:

        def note(line: Line) -> None:
            if line not in lines:
                lines[line] = None
                out.write(f"{line[1]} {line[0]}\n")

        run(tree.root, *WITH_WORKERS, prepare=lambda: watch_lines(note))
    pairs = (line.split(" ", 1) for line in listed.read_text().splitlines())
    return [(file, int(row)) for row, file in pairs]


def interrupted_at(tree: Tree, line: Line, time_: int) -> tuple[Outcome, bool]:
    """A run with a Ctrl-C when a line runs for the first, second, ... time, and whether it came so often."""
    came = tree.root.parent / "came"
    came.unlink(missing_ok=True)
    left = time_

    def interrupt(this: Line) -> None:
        nonlocal left
        left -= this == line
        if left == 0:
            sys.settrace(None)
            came.touch()
            os.kill(os.getpid(), signal.SIGINT)

    outcome = run(tree.root, *WITH_WORKERS, prepare=lambda: watch_lines(interrupt))
    return outcome, came.exists()


def watch_lines(see: Callable[[Line], None]) -> None:
    """Have each line shown before this process runs it, this file's left out. Workers are started however little there is."""
    process = os.getpid()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename == __file__ or os.getpid() != process:
            return None
        if event == "line":
            see((frame.f_code.co_filename, frame.f_lineno))
        return trace

    perflint.run.workers.WORTHWHILE_BYTES = 0
    sys.settrace(trace)


TRIES = 20
"""How often a signal may come too late, per one that is wanted."""


def _signalled(tree: Tree, count: int, random_: random.Random, number: int) -> Counter[str]:
    found: Counter[str] = Counter()
    tree.write()
    started = time.perf_counter()
    run(tree.root)
    lasted = time.perf_counter() - started
    for _ in range(TRIES * count):
        if found["faults"] == count:
            break
        tree.write()
        running = Running(FIX, tree.root)
        running.begun()
        time.sleep(random_.uniform(0.0, 1.0) * lasted)
        os.kill(running.pid, number)
        outcome = running.wait()
        if outcome.code == 0:  # it was done before, and faster than the one whose time was taken
            lasted /= 2
        found["faults"] += outcome.code in (-number, 130)
        found["wrong exit codes"] += outcome.code not in ((-signal.SIGKILL, 0) if number == signal.SIGKILL else (130, 0))
        found["tracebacks"] += "Traceback" in outcome.output
        if number == signal.SIGINT:
            found["temporary files after Ctrl-C"] += len(tree.strangers())
        found += judge(tree)
    return found


def disk_errors(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """A step at a file of the tree that fails as it does on a full or broken disk."""
    found: Counter[str] = Counter()
    in_tree = lambda event, arguments: event in STEPS and str(tree.root) in str(arguments[0])
    for number in chosen(tree, count, random_, in_tree):
        kind = random_.choice((errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT))

        def fail(event: str, arguments: tuple[Any, ...], kind: int = kind) -> None:
            raise OSError(kind, os.strerror(kind))

        tree.write()
        outcome = run(tree.root, hook=at_step(number, fail, in_tree))
        found["faults"] += 1
        found["wrong exit codes"] += outcome.code not in (0, 1, 2)
        found["tracebacks"] += "Traceback" in outcome.output
        found += judge(tree)
    return found


def _allow(size: int) -> None:
    """Let this process write files of so many bytes."""
    sys.dont_write_bytecode = True  # of a module that is cut off, which Python believes in all later runs
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def file_size_limits(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """Writes that the kernel cuts off at some byte, as a full disk does."""
    found: Counter[str] = Counter()
    for _ in range(count):
        limit = random_.randrange(1, len(NEW))
        tree.write()
        outcome = run(tree.root, *FIX, "--quiet", "--output-file", os.devnull, prepare=partial(_allow, limit))
        found["faults"] += 1
        found["wrong exit codes"] += outcome.code != 1
        found["tracebacks"] += "Traceback" in outcome.output
        found += judge(tree)
    return found


def edits_meanwhile(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """An editor saves a file between two steps. The one moment left out is that between the last look and the rename."""
    found: Counter[str] = Counter()
    for number in chosen(tree, count, random_):
        tree.write()
        path = random_.choice(tree.files)
        text = old(path) + "# an edit\n"
        saved = tree.root.parent / "saved"
        saved.unlink(missing_ok=True)

        def edit(event: str, arguments: tuple[Any, ...], path: Path = path, text: str = text, saved: Path = saved) -> None:
            if event != "os.rename":
                path.write_text(text)
                saved.touch()

        outcome = run(tree.root, hook=at_step(number, edit))
        found["faults"] += saved.exists()
        found["tracebacks"] += "Traceback" in outcome.output
        found["edits refused and reported"] += "changed while it was being fixed" in outcome.output
        found += judge(tree, {path: text} if saved.exists() else None)
    return found


def two_at_once(tree: Tree, count: int, random_: random.Random) -> Counter[str]:
    """Two runs over one tree."""
    found: Counter[str] = Counter()
    for _ in range(count):
        tree.write()
        outcomes = [running.wait() for running in [Running(FIX, tree.root), Running(FIX, tree.root)]]
        found["faults"] += 1
        found["wrong exit codes"] += any(outcome.code not in (0, 1) for outcome in outcomes)
        found["tracebacks"] += any("Traceback" in outcome.output for outcome in outcomes)
        found["files not fixed by two runs"] += sum(path.read_text() != new(path) for path in tree.files)
        found += judge(tree)
    return found


FAULTS: dict[str, Callable[[Tree, int, random.Random], Counter[str]]] = {
    "kills at steps": kills_at_steps,
    "kills at random moments": kills_at_random_moments,
    "interrupts at steps": interrupts_at_steps,
    "interrupts at random moments": interrupts_at_random_moments,
    "interrupts at lines": interrupts_at_lines,
    "disk errors": disk_errors,
    "file size limits": file_size_limits,
    "edits meanwhile": edits_meanwhile,
    "two at once": two_at_once,
}
"""Each makes faults and counts them under `faults`, and what was wrong afterwards."""
HARMLESS = frozenset({"faults", "temporary files until the next run", "edits refused and reported"})
"""What may be more than 0."""


def injected(kind: str, count: int, seed: int) -> Counter[str]:
    """What a kind of fault did."""
    with scratch() as tree:
        return FAULTS[kind](tree, count, random.Random(seed))


def measured(folder: Path, *arguments: str) -> dict[str, float]:
    """Exit code, CPU seconds and peak memory of a run in a process of its own."""
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "rules", ROOT / "runtime"))
    command = [sys.executable, "-m", "perflint", "check", "--isolated", "-q", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": paths})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "exit": process.returncode,
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mib": round(usage.ru_maxrss / 1024, 1),
    }


STEP = "        loss = model(x.cuda()).sum(); loss.backward(); opt.step(); print(loss.item())\n"
TRAINING = "import torch\ndef train{0}(model, loader, opt):\n    for x in loader:\n" + STEP


def large() -> dict[str, dict[str, float]]:
    """Large files and trees: each is checked or reported as skipped, within bounds."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "file.py").write_text("".join(TRAINING.format(i) for i in range(50 * 2**20 // len(TRAINING))))
        found["a file of 50 MB"] = measured(folder, "file.py")
        (folder / "file.py").write_text("".join(TRAINING.format(i) for i in range(2000)))
        found["a file of 2,000 training loops"] = measured(folder, "file.py")
        (folder / "file.py").write_text('"""' + "text\n" * (25 * 2**16) + '"""\n' + TRAINING)
        found["a file of 8.2 MB that is one string"] = measured(folder, "file.py")
        os.truncate(folder / "file.py", 100 * 2**30)
        found["a sparse file of 100 GB"] = measured(folder, "file.py")
        (folder / "file.py").unlink()
        for i in range(1000):
            (folder / f"d{i}").mkdir()
            for j in range(100):
                (folder / f"d{i}" / f"m{j}.py").write_bytes(b"x = 1\n")
        found["100,000 tiny files"] = measured(folder)
    return found


def name(what: str) -> str:
    """A figure's name: what was counted, of which kind of fault."""
    return what.removesuffix(": faults").replace(": ", "_").replace(" ", "_")


def main() -> int:
    """Inject all faults, print what happened, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="Faults of each kind.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-large", action="store_true", help="Leave out the large files and trees.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the record to a file.")
    options = parser.parse_args()
    figures: dict[str, int] = {}
    for kind in FAULTS:
        counts = injected(kind, options.count, options.seed)
        print(kind, dict(counts), flush=True)
        figures |= {f"{kind}: {what}": count for what, count in counts.items()}
    wrong = sum(count for kind, count in figures.items() if kind.partition(": ")[2] not in HARMLESS)
    total = sum(count for kind, count in figures.items() if kind.endswith(": faults"))
    costs = {} if options.no_large else large()
    for what, result in costs.items():
        print(what, result, flush=True)
    if options.json is not None:
        counted = {"faults_injected": total, "wrong_outcomes": wrong} | {name(what): count for what, count in figures.items()}
        command = " ".join(["python -m fuzz.faults", *sys.argv[1:]])
        write(options.json, record(command, counted, ["wrong_outcomes"], costs=costs))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
