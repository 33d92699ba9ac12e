"""Look for safe fixes that change what a program computes.

    python fuzz/meaning.py --programs 200000 --seed 1 [--minutes 30] [--processes 2] [--failures DIR] [--json FILE]
                                      [--resume]

Program number k of a run is `training_programs.program(seed + k)`. It is fixed with safe fixes, both versions run in this
process with the same generators, and all that can be observed is compared: printed text, the exception that ends the
program (type and text), every variable bit by bit (parameters, gradients, optimizer state, what objects hold), the states
of the random generators, the mode of autograd. Each program whose meaning changed is cut down to the statements that
matter and written to a folder. The exit code is 1 if there is one.

With --resume the record in FILE is added to: programs whose seeds it holds are not tried again. So a long run is the same
command several times, each with its --minutes.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import io
import json
import multiprocessing
import random
import signal
import sys
import threading
import time
import types
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.surroundings import added, joined, record, write  # noqa: E402
from fuzz.training_programs import program  # noqa: E402
from perflint.fix.fixer import where  # noqa: E402
from perflint.project.config import Config  # noqa: E402
from perflint.project.discover import Found  # noqa: E402
from perflint.rule.assumptions import require_known  # noqa: E402
from perflint.rule.registry import all_rules  # noqa: E402
from perflint.run.run import Run  # noqa: E402

Files = Mapping[str, str]
"""The texts of a program's modules, by file name; `main.py` is run."""

FOLDER = "/program"
"""Where the files are said to be: they stay in memory."""
LIMIT_S = 20
"""A program that runs longer is given up."""
CHUNK = 100
SECONDS_BETWEEN_RECORDS = 60


@dataclass(frozen=True)
class Outcome:
    """All that can be observed of a run."""

    printed: str
    error: str | None
    variables: Mapping[str, object]
    generators: object

    def differences(self, other: Outcome) -> list[str]:
        """What is not the same in another run, in words."""
        found = []
        if self.printed != other.printed:
            pairs = zip([*self.printed.splitlines(), None], [*other.printed.splitlines(), None], strict=False)
            found.append(next((f"printed {a!r} -> {b!r}" for a, b in pairs if a != b), "printed something else"))
        if self.error != other.error:
            found.append(f"error {self.error!r} -> {other.error!r}")
        found += [
            f"`{name}` {self.variables.get(name)!r:.300} -> {other.variables.get(name)!r:.300}"
            for name in sorted({*self.variables, *other.variables})
            if self.variables.get(name) != other.variables.get(name)
        ]
        if self.generators != other.generators:
            found.append("a random generator, or the mode of autograd")
        return found


@dataclass
class Tally:
    """What a run has counted."""

    programs: int = 0
    with_fixes: int = 0
    raising: int = 0
    found: Counter[str] = field(default_factory=Counter)
    fixed: Counter[str] = field(default_factory=Counter)
    changed: dict[int, list[str]] = field(default_factory=dict)
    seeds: list[tuple[int, int]] = field(default_factory=list)
    """The ranges [start, end) that were tried."""

    def add(self, other: Tally) -> None:
        """Add what another one has counted."""
        self.programs += other.programs
        self.with_fixes += other.with_fixes
        self.raising += other.raising
        self.found += other.found
        self.fixed += other.fixed
        self.changed |= other.changed
        self.seeds += other.seeds


CONFIG = Config(select=("all",))
"""How programs are fixed; `--assume` and `--runtime` change it."""


def safely_fixed(files: Files) -> tuple[dict[str, str], Counter[str], set[str]]:
    """The program after the fixes that `CONFIG` allows, how many by rule, and the rules that found something in it."""
    found = Found()
    run = Run(all_rules(), CONFIG)
    for name, text in files.items():
        run.text(f"{FOLDER}/{name}", text.encode(), found)
    rules: set[str] = set()

    def accept(source: object, finding: Any) -> bool:
        rules.add(finding.rule)
        return True

    result = run.fix(found, unsafe=False, write_files=False, choose=where(accept))
    rules |= {finding.rule for _, finding in result.findings}
    after = {fixed.path.rpartition("/")[2]: fixed.after.decode() for fixed in result.fixed}
    return {**files, **after}, result.applied, rules


# -- running -------------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """The program ran longer than `LIMIT_S`."""


def outcome(files: Files) -> Outcome:
    """Run a program in this process, from the same state each time.

    Raises:
        TooLong: it did not end in `LIMIT_S` seconds.

    """
    _reset()
    modules = {name.removesuffix(".py"): types.ModuleType(name.removesuffix(".py")) for name in files}
    printed = io.StringIO()
    error = None
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for name, module in sorted(modules.items(), key=lambda item: item[0] == "main"):
                    sys.modules[name] = module
                    exec(compile(files[f"{name}.py"], f"{name}.py", "exec"), module.__dict__)
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _drop_saved_tensors_hooks()
        for name in modules:
            sys.modules.pop(name, None)
    variables = {
        f"{module}.{name}": _observed(value, set(), error is None)
        for module, namespace in modules.items()
        for name, value in vars(namespace).items()
        if not name.startswith("__") and not isinstance(value, (type, types.ModuleType, types.FunctionType))
    }
    return Outcome(printed.getvalue(), error, variables, _generators())


def _drop_saved_tensors_hooks() -> None:
    """A program that does not leave its hooks would give them to all that runs in this process later."""
    while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _too_long(number: int, frame: object) -> None:
    raise TooLong


def _reset() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


def _generators() -> object:
    modes = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
    )
    return torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state()[1:]), random.getstate(), modes


def _observed(value: object, seen: set[int], with_gradients: bool) -> object:
    """A value as something that can be compared: tensors bit by bit, objects by what they hold.

    Gradients, and what requires them, are left out where an exception has ended the program: nobody can look at them any
    more.
    """
    match value:
        case None | bool() | int() | str() | bytes():
            return value
        case float():
            return value.hex()
        case torch.Tensor():
            gradient = _observed(value.grad, seen, False) if with_gradients and value.is_leaf else None
            requires_gradient = value.requires_grad if with_gradients else None
            kind = type(value).__name__, str(value.dtype), tuple(value.shape), requires_gradient
            return *kind, repr(value.detach().tolist()), gradient  # to the last bit, NaNs apart
        case np.ndarray():
            return "ndarray", str(value.dtype), value.shape, value.tobytes()
        case np.generic():
            return type(value).__name__, value.tobytes()
    if id(value) in seen:
        return "again"
    seen = seen | {id(value)}
    match value:
        case list() | tuple():
            return type(value).__name__, [_observed(item, seen, with_gradients) for item in value]
        case dict():
            return [
                (_observed(key, seen, with_gradients), _observed(item, seen, with_gradients)) for key, item in value.items()
            ]
        case torch.optim.Optimizer():
            return _observed(value.state_dict(), seen, with_gradients)
        case torch.utils.data.DataLoader() | BaseException() | types.FunctionType() | types.MethodType() | types.ModuleType():
            return type(value).__name__
        case threading.Thread():
            return type(value).__name__
    held = getattr(value, "__dict__", {})
    return type(value).__name__, [
        (name, _observed(item, seen, with_gradients)) for name, item in held.items() if name[:3] != "_ba"
    ]


# -- looking for changes -------------------------------------------------------------------------------------------------


def changes(files: Files) -> tuple[list[str], Counter[str], set[str], bool]:
    """What safe fixes change in a program, which were applied, the rules that found something, and whether it raises."""
    after, applied, rules = safely_fixed(files)
    if after == files:
        return [], applied, rules, False
    with contextlib.suppress(TooLong):
        before = outcome(files)
        return before.differences(outcome(after)), applied, rules, before.error is not None
    return [], applied, rules, True


def tried(seeds: range, failures: Path | None = None) -> Tally:
    """Try the programs of some seeds, and write those that change to a folder."""
    torch.set_num_threads(1)
    gc.disable()
    tally = Tally(seeds=[(seeds.start, seeds.stop)])
    for seed in seeds:
        try:
            differences, applied, rules, raises = changes(program(seed))
        except Exception as problem:  # the linter or this script is wrong: a failure, too
            differences, applied, rules, raises = [f"crash: {type(problem).__name__}: {problem}"], Counter(), set(), False
        tally.programs += 1
        tally.with_fixes += bool(applied)
        tally.raising += raises
        tally.found.update(rules)
        tally.fixed.update(applied.keys())
        if differences:
            tally.changed[seed] = differences
            if failures is not None:
                keep(failures, seed, differences)
    gc.collect()
    return tally


def smallest(files: Files) -> dict[str, str]:
    """A program without the statements that its failure does not need."""
    current = dict(files)
    error = _kind_of_error(files)
    shrinking = True
    while shrinking:
        shrinking = False
        for name in list(current):
            for shorter in _shorter(current[name]):
                candidate = {**current, name: shorter}
                with contextlib.suppress(Exception):
                    if _kind_of_error(candidate) == error and changes(candidate)[0]:
                        current, shrinking = candidate, True
                        break
    return current


def _kind_of_error(files: Files) -> str | None:
    """The type of the exception that ends a program."""
    error = outcome(files).error
    return error and error.partition(":")[0]


def _shorter(text: str) -> Iterator[str]:
    """The text with one statement less, or with a block in the place of its statement."""
    tree = ast.parse(text)
    blocks = [
        (block, k)
        for node in ast.walk(tree)
        for block in (getattr(node, field, None) for field in ("body", "orelse", "finalbody"))
        if isinstance(block, list)
        for k in range(len(block))
    ]
    for block, k in blocks:
        statement = block[k]
        options: list[list[ast.stmt]] = (
            [[], getattr(statement, "body", [])] if not isinstance(statement, ast.ClassDef) else [[]]
        )
        for option in options:
            if isinstance(option, list) and option != [statement]:
                block[k : k + 1] = option
                with contextlib.suppress(Exception):
                    compact = ast.unparse(tree)
                    compile(compact, "shorter", "exec")
                    if compact != text:
                        yield compact
                block[k : k + len(option)] = [statement]


# -- the command line ----------------------------------------------------------------------------------------------------


def main() -> int:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument(
        "--assume", default="", help="assumptions that hold for these programs on this machine, such as memory-to-spare"
    )
    parser.add_argument("--runtime", action="store_true", help="let fixes import perflint_runtime")
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--failures", type=Path, help="write each changed program, and what is left of it, to this folder")
    parser.add_argument("--json", type=Path, help="write what was counted to this file")
    parser.add_argument("--resume", action="store_true", help="add to the record in that file")
    options = parser.parse_args()
    global CONFIG  # the processes of a run are forks
    assumed = tuple(name for name in options.assume.split(",") if name)
    require_known(assumed, "--assume")
    CONFIG = replace(CONFIG, assume=assumed, runtime=options.runtime)
    if options.resume and options.json is None:
        parser.error("--resume needs --json FILE: the record that is added to")
    before = json.loads(options.json.read_text(encoding="utf-8")) if options.resume and options.json.exists() else None
    if before is not None and before["command"] != command(options.programs, options.seed):
        parser.error(f"{options.json} is the record of another run: {before['command']}")
    seeds = chunks(options.seed, options.programs, before["seeds"] if before is not None else [])
    if not seeds:
        print("all of these programs have been tried")
        return 1 if before is not None and before["figures"]["meanings_changed"] else 0
    tally, seconds, kept_at = Tally(), 0.0, 0.0

    def keep_record() -> None:
        if options.json is not None:
            counted = result(tally, command(options.programs, options.seed))
            write(options.json, added(before, counted) if before is not None else counted)

    for tally, seconds in run(seeds, options.minutes, options.processes, options.failures):
        if sys.stderr.isatty():
            print(f"\r{tally.programs} programs, {len(tally.changed)} changed", end="", file=sys.stderr)
        if seconds - kept_at > SECONDS_BETWEEN_RECORDS:
            keep_record()
            kept_at = seconds
    print(table(tally, seconds))
    for seed, differences in sorted(tally.changed.items()):
        print(f"program {seed}: {'; '.join(differences)[:300]}")
    keep_record()
    return 1 if tally.changed else 0


def chunks(seed: int, programs: int, tried: list[list[int]]) -> list[range]:
    """The seeds to try, `CHUNK` at most in one: those of the run less those that a record has tried."""
    left: list[range] = []
    at = seed
    for start, end in [*tried, [seed + programs, seed + programs]]:
        stop = min(start, seed + programs)
        left += [range(first, min(first + CHUNK, stop)) for first in range(at, stop, CHUNK)]
        at = max(at, end)
    return left


def run(seeds: list[range], minutes: float | None, processes: int, failures: Path | None) -> Iterator[tuple[Tally, float]]:
    """Try programs in processes of their own; after each chunk, what was counted so far, and the seconds."""
    tally = Tally()
    begin = time.monotonic()
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=5) as pool:
        for done in pool.imap_unordered(functools.partial(tried, failures=failures), seeds):
            tally.add(done)
            yield tally, time.monotonic() - begin
            if minutes is not None and time.monotonic() - begin > minutes * 60:
                return


def table(tally: Tally, seconds: float) -> str:
    """The counts in lines."""
    rows = [
        f"{tally.programs} programs in {seconds:.0f} s ({tally.programs / seconds:.0f} per second)",
        f"{tally.with_fixes} with safe fixes ({tally.with_fixes / tally.programs:.0%}), of which {tally.raising} raise",
        f"{len(tally.changed)} changed their meaning",
        "",
        f"{'rule':40} {'found in':>10} {'safely fixed in':>16}",
    ]
    rows += [f"{rule.name:40} {tally.found[rule.name]:>10} {tally.fixed[rule.name]:>16}" for rule in all_rules()]
    return "\n".join(rows)


def keep(folder: Path, seed: int, differences: list[str]) -> None:
    """Write a changed program, what is left of it, and what the fix makes of that."""
    target = folder / str(seed)
    target.mkdir(parents=True, exist_ok=True)
    files = program(seed)
    small = smallest(files)
    fixed = safely_fixed(small)[0]
    (target / "differences.txt").write_text("\n".join([*differences, "-- smallest --", *changes(small)[0]]), encoding="utf-8")
    for part, texts in (("program", files), ("smallest", small), ("fixed", fixed)):
        (target / part).mkdir(exist_ok=True)
        for name, text in texts.items():
            (target / part / name).write_text(text, encoding="utf-8")


def command(programs: int, seed: int) -> str:
    """What reproduces a run."""
    return f"python fuzz/meaning.py --programs {programs} --seed {seed}"


def result(tally: Tally, command: str) -> dict[str, Any]:
    """The run as a record."""
    figures = {
        "programs": tally.programs,
        "programs_with_safe_fixes": tally.with_fixes,
        "meanings_changed": len(tally.changed),
    }
    return record(
        command,
        figures,
        never=["meanings_changed"],
        packages=["torch", "numpy", "pandas"],
        seeds=joined(tally.seeds),
        by_rule={
            "found": {name: tally.found[name] for name in sorted(tally.found)},
            "safely_fixed": {name: tally.fixed[name] for name in sorted(tally.fixed)},
        },
    )


if __name__ == "__main__":
    sys.exit(main())
