"""How fast perflint checks and fixes, beside ruff, TorchFix and Fixit: the table in README.md's speed section.

    python benchmarks/lint_speed.py PACKAGES TRAINING [--rows cold,training,warm,jobs,fix,growth,startup] [--rounds N]
        [--torchfix COMMAND] [--fixit COMMAND] [--sample FILES] [--json FILE]

PACKAGES is what corpus.py made, TRAINING what training_repositories.py made. In each round all tools of a row run in turn,
cold, each in a process of its own; the median of the rounds counts, of ratios the median of the ratios of each round. CPU
is user time and memory the peak, from the kernel's account of the finished process (resource.RUSAGE_CHILDREN, asked for by a
process that starts that one child only); wall is from start to end of the process. Peers run with one thread and no cache.
TorchFix and Fixit are slower by orders of magnitude: they read a sample of files, spread evenly over all, and their time is
scaled by lines. Python keeps its bytecode between runs, as that of an installed package is kept.
Rows of options that this perflint does not have are left out with a note. Chosen rows replace those in the record; the
others stay. `python docs/generate.py` makes the table.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surroundings import commit, machine, versions

EDITOR = """
import os, statistics, sys, time
from perflint.project.discover import Found
from perflint.run.run import Run
path, run, found, seconds = os.path.abspath(sys.argv[1]), Run(), Found(), []
with open(path, "rb") as file:
    text = file.read()
for edit in range(11):
    run.text(path, b"# %d\\n" % edit + text, found)
    start = time.process_time()
    run.check(found)
    seconds.append(time.process_time() - start)
print(statistics.median(seconds[1:]))
"""
"""What a language server does: one run for all texts that an editor shows it."""

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "results" / "lint_speed.json"
MEASURE = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
run = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
wall = time.perf_counter() - start
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"exit": run.returncode, "user_s": used.ru_utime, "wall_s": wall, "peak_mib": used.ru_maxrss / 1024}))
"""
COUNT = """
import sys
import perflint.run.engine
from perflint.cli import main
checked, count = perflint.run.engine.check_item, 0
def counting(*arguments, **named):
    global count
    count += 1
    return checked(*arguments, **named)
perflint.run.engine.check_item = counting
try:
    main()
except SystemExit:
    print(count, file=sys.stderr)
"""
FAILED = 2
"""Exit codes of the tools from here on are failures; 1 means findings."""

FINDINGS = (100, 1_000, 10_000)
GROWTH = (1, 10, 100)
GROWTH_LINES = 8_000
DEPENDENTS = 500

FINDING = """\
def evaluate_{number}(model: nn.Module, x: torch.Tensor):
    model.eval()
    with torch.no_grad:
        return model(x)


"""

Figures = dict[str, Any]


@dataclass
class Bench:
    """What the rows share."""

    packages: Path
    training: Path
    rounds: int
    torchfix: list[str]
    fixit: list[str]
    sample: int
    scratch: Path

    def rounds_of(self, commands: dict[str, Callable[[], list[str]]]) -> list[dict[str, Figures]]:
        """Each command once per round, in turn; a command is made right before it runs, to prepare what it works on."""
        return [{name: measured(command()) for name, command in commands.items()} for _ in range(self.rounds)]


def main() -> int:
    """Read the command line, measure, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("training", type=Path)
    parser.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS), help=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--torchfix", type=shlex.split, default=["torchfix"], help="how to start TorchFix")
    parser.add_argument("--fixit", type=shlex.split, default=["fixit"], help="how to start Fixit")
    parser.add_argument("--sample", type=int, default=60, help="how many files TorchFix and Fixit read")
    parser.add_argument("--json", type=Path, default=RECORD, help="the record to write")
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"no row is named {', '.join(unknown)}; there are {', '.join(ROWS)}")
    for folder in (options.packages, options.training):
        if not any(folder.rglob("*.py")):
            parser.error(f"{folder} holds no Python files")
    record = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.rows:
            folder = Path(scratch) / name
            folder.mkdir()
            bench = Bench(
                options.packages.resolve(),
                options.training.resolve(),
                options.rounds,
                options.torchfix,
                options.fixit,
                options.sample,
                folder,
            )
            figures = ROWS[name](bench)
            for line in figures["table"]:
                print(f"{name}: {line['what']}: {line['measured']}", flush=True)
            record[name] = {**surroundings(options), **figures}
            text = json.dumps({key: record[key] for key in ROWS if key in record}, indent=1) + "\n"
            options.json.write_text(text, encoding="utf-8")
    return 0


def surroundings(options: argparse.Namespace) -> Figures:
    """Where and how a row was measured."""
    peers = {"torchfix": version_of(options.torchfix), "fixit": version_of(options.fixit)}
    return {
        "command": f"python benchmarks/lint_speed.py PACKAGES TRAINING --rounds {options.rounds} --sample {options.sample}",
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions("perflint-torch", "ruff", "libcst") | {name: found for name, found in peers.items() if found},
    }


# -- rows ----------------------------------------------------------------------------------------------------------------


def cold(bench: Bench) -> Figures:
    """The five packages, nothing remembered, one process."""
    return against_peers(bench, bench.packages, "five packages", to_ruff=4, to_peers=100)


def training(bench: Bench) -> Figures:
    """Training repositories, nothing remembered, one process."""
    return against_peers(bench, bench.training, "training repositories", to_ruff=8, to_peers=50)


def against_peers(bench: Bench, folder: Path, name: str, *, to_ruff: int, to_peers: int) -> Figures:
    """Perflint beside ruff, TorchFix and Fixit over one tree."""
    files = sorted(folder.rglob("*.py"))
    sample = files[:: max(1, len(files) // bench.sample)]
    for number, path in enumerate(sample):
        (bench.scratch / f"sample_{number}.py").write_bytes(path.read_bytes())
    all_lines, sample_lines = lines(files), lines(sample)
    commands: dict[str, list[str]] = {
        "perflint": [*perflint("check"), *one_job(), str(folder)],
        "ruff": [*ruff(), str(folder)],
        "ruff_all": [*ruff(), "--select", "ALL", str(folder)],
        "torchfix": [*bench.torchfix, "--jobs", "1", str(bench.scratch)],
        "fixit": [*bench.fixit, "lint", str(bench.scratch)],
    }
    rounds = bench.rounds_of({tool: (lambda command=command: command) for tool, command in commands.items()})
    scale = all_lines / sample_lines
    user = {tool: statistics.median(r[tool]["user_s"] for r in rounds) for tool in commands}
    peak = statistics.median(r["perflint"]["peak_mib"] for r in rounds)
    ruffs = {tool: ratio(rounds, "perflint", tool) for tool in ("ruff", "ruff_all")}
    slow = {tool: ratio(rounds, tool, "perflint") * scale for tool in ("torchfix", "fixit")}
    where = f"{name}, cold, one process: "
    return {
        "corpus": {"files": len(files), "lines": all_lines},
        "sample": {"files": len(sample), "lines": sample_lines},
        "rounds": rounds,
        "table": [
            row(where + f"CPU for {all_lines:,} lines", f"{user['perflint']:.1f} s", ""),
            row(where + "CPU, in multiples of ruff with its default rules", f"{ruffs['ruff']:.2f}", f"at most {to_ruff}"),
            row(where + "CPU, in multiples of ruff with all rules", f"{ruffs['ruff_all']:.2f}", ""),
            row(where + "CPU of TorchFix, in multiples of perflint's", f"{slow['torchfix']:.0f}", f"at least {to_peers}"),
            row(where + "CPU of Fixit, in multiples of perflint's", f"{slow['fixit']:.0f}", f"at least {to_peers}"),
            row(where + "peak memory", f"{peak:.0f} MiB", "under 286 (300 MB)"),
        ],
    }


def warm(bench: Bench) -> Figures:
    """A second run with a result cache: nothing changed, one file changed, a file changed that many import."""
    if not has_option("--cache-dir"):
        return left_out("warm runs", "this perflint keeps no results")
    tree, cache = bench.scratch / "tree", bench.scratch / "cache"
    shutil.copytree(bench.packages, tree)
    edited = sorted(tree.rglob("*.py"))[len(list(tree.rglob("*.py"))) // 2]
    remembering = [*perflint("check", cached=True), "--cache-dir", str(cache)]
    measured([*remembering, str(tree)])

    def change() -> list[str]:
        with edited.open("a", encoding="utf-8") as file:
            file.write("# one more line\n")
        return [*remembering, str(tree)]

    rounds = bench.rounds_of({"unchanged": lambda: [*remembering, str(tree)], "one changed": change})
    wall = {name: statistics.median(r[name]["wall_s"] for r in rounds) for name in rounds[0]}
    checked = dependents(bench)
    return {
        "rounds": rounds,
        "checked": checked,
        "table": [
            row("five packages, nothing changed: wall", f"{wall['unchanged']:.2f} s", "under 0.4"),
            row("five packages, one file changed: wall", f"{wall['one changed']:.2f} s", "under 0.5"),
            row(
                f"a file changed that {DEPENDENTS} of {2 * DEPENDENTS} others import: files checked again",
                str(checked),
                f"{DEPENDENTS + 1}",
            ),
        ],
    }


def dependents(bench: Bench) -> int:
    """How many files of a project are checked again when a file has changed that half of them use."""
    tree = bench.scratch / "dependents"
    tree.mkdir()
    (tree / "pyproject.toml").write_text("[project]\nname = 'tree'\n")
    helper = "import torch\n\n\ndef loss_of(model, x):\n    return model(x).mean()\n"
    user = "import torch\nfrom helper import loss_of\n\n\ndef train(model, loader, optimizer):\n    total = 0.0\n"
    user += "    for x in loader:\n        loss = loss_of(model, x)\n        loss.backward()\n        optimizer.step()\n"
    user += "        total += loss.item()\n    return total\n"
    (tree / "helper.py").write_text(helper)
    for number in range(DEPENDENTS):
        (tree / f"user_{number}.py").write_text(user)
        (tree / f"other_{number}.py").write_text(helper)
    command = [sys.executable, "-c", COUNT, *perflint("check", cached=True)[3:], *one_job()]
    command += ["--cache-dir", str(bench.scratch / "dependents-cache"), str(tree)]
    first = counted(command)
    if first != 2 * DEPENDENTS + 1:
        sys.exit(f"{first} files were checked in the first run, not {2 * DEPENDENTS + 1}")
    (tree / "helper.py").write_text(helper.replace("mean()", "sum()"))
    return counted(command)


def jobs(bench: Bench) -> Figures:
    """One process and two, ruff with as many threads."""
    if not has_option("--jobs"):
        return left_out("two processes", "this perflint runs in one process")
    commands = {
        "one": lambda: [*perflint("check"), "--jobs", "1", str(bench.packages)],
        "two": lambda: [*perflint("check"), "--jobs", "2", str(bench.packages)],
    }
    rounds = bench.rounds_of(commands)
    wall = {name: statistics.median(r[name]["wall_s"] for r in rounds) for name in commands}
    gain = statistics.median(r["one"]["wall_s"] / r["two"]["wall_s"] for r in rounds)
    table = [
        row(
            "five packages, cold, `--jobs 2`: wall",
            f"{wall['two']:.1f} s ({gain:.2f} times as fast as `--jobs 1`)",
            "1.8 times",
        )
    ]
    trees = {"five packages": bench.packages, "training repositories": bench.training}
    for name, tree in trees.items():
        reports = reports_of(bench, tree)
        what = f"{name}: different reports with 1 and 2 jobs, without a cache, with an empty and with a full one"
        table.append(row(what, f"{len(set(reports)) - 1} of {len(reports)}, {len(reports[0]):,} bytes each", "0"))
    return {"rounds": rounds, "table": table}


def reports_of(bench: Bench, tree: Path) -> list[bytes]:
    """What `check` prints, bytes for bytes, in each way in which it can come to it."""
    reports = []
    for number in ("1", "2"):
        kept = ["--cache-dir", str(bench.scratch / f"cache-of-{tree.name}-{number}")]
        for cached in (False, True, True):
            command = [*perflint("check", cached=cached), "--output-format", "json", "--jobs", number]
            command += [*(kept if cached else []), str(tree)]
            reports.append(subprocess.run(command, env=environment(), capture_output=True, check=False).stdout)
    return reports


def fix(bench: Bench) -> Figures:
    """`fix` of one file, by the number of its findings."""
    path = bench.scratch / "findings.py"

    def command(findings: int) -> list[str]:
        text = "import torch\nfrom torch import nn\n\n\n" + "".join(FINDING.format(number=n) for n in range(findings))
        path.write_text(text, encoding="utf-8")
        return [*perflint("fix"), *one_job(), str(path)]

    rounds = bench.rounds_of({str(n): (lambda n=n: command(n)) for n in FINDINGS})
    table = []
    for few, many in itertools.pairwise(FINDINGS):
        user = statistics.median(r[str(many)]["user_s"] for r in rounds)
        times = ratio(rounds, str(many), str(few))
        what = f"`fix` of a file with {many:,} findings instead of {few:,}"
        table.append(row(what, f"{times:.1f} times the CPU ({user:.1f} s)", "at most 12 times"))
    return {"rounds": rounds, "table": table}


def growth(bench: Bench) -> Figures:
    """A tree, ten and a hundred of it, the copies with other names."""
    part, lines_of_part = [], 0
    for path in sorted(bench.training.rglob("*.py")):
        if lines_of_part < GROWTH_LINES:
            part.append(path)
            lines_of_part += lines([path])
    names = {name for path in part for name in re.findall(rb"^(?:class|def) (\w{3,})", path.read_bytes(), re.M)} - {b"main"}
    pattern = re.compile(rb"\b(" + b"|".join(sorted(names)) + rb")\b")
    empty = bench.scratch / "empty.py"
    empty.touch()
    trees = {}
    for times in GROWTH:
        tree = trees[times] = bench.scratch / f"tree_{times}"
        for number in range(times):
            for path in part:
                target = tree / f"copy_{number}" / path.relative_to(bench.training)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(pattern.sub(rb"\1_%d" % number, path.read_bytes()))
    commands = {"empty": lambda: [*perflint("check"), *one_job(), str(empty)]}
    commands |= {str(times): (lambda tree=tree: [*perflint("check"), *one_job(), str(tree)]) for times, tree in trees.items()}
    rounds = bench.rounds_of(commands)

    def per_line(figures: dict[str, Figures], times: int) -> float:
        return float(figures[str(times)]["user_s"] - figures["empty"]["user_s"]) / times

    table = []
    for times in GROWTH[1:]:
        change = statistics.median(per_line(r, times) / per_line(r, 1) for r in rounds) - 1
        peak = statistics.median(r[str(times)]["peak_mib"] for r in rounds)
        what = f"{times} copies of {lines_of_part:,} lines of training code, other names in each: CPU per line"
        table.append(row(what, f"{change:+.0%} (peak memory {peak:.0f} MiB)", "within 20 %"))
    return {"corpus": {"files": len(part), "lines": lines_of_part}, "rounds": rounds, "table": table}


def startup(bench: Bench) -> Figures:
    """What an editor and a terminal wait for."""
    file = max(bench.training.rglob("train.py"), key=lambda path: path.stat().st_size)
    copy = bench.scratch / "train.py"
    copy.write_bytes(file.read_bytes())
    remembering = [*perflint("check", cached=True), "--cache-dir", str(bench.scratch / "startup-cache"), str(copy)]
    measured(remembering)

    def change() -> list[str]:
        with copy.open("a", encoding="utf-8") as text:
            text.write("# one more line\n")
        return remembering

    commands = {"help": lambda: [*perflint()[:3], "--help"], "file": change}
    rounds = bench.rounds_of(commands)
    user = statistics.median(r["help"]["user_s"] for r in rounds)
    once = statistics.median(r["file"]["user_s"] for r in rounds)
    command = [sys.executable, "-c", EDITOR, str(copy)]
    shown = [subprocess.run(command, env=environment(), capture_output=True, check=True).stdout for _ in range(bench.rounds)]
    again = statistics.median(map(float, shown))
    return {
        "rounds": rounds,
        "again_s": again,
        "table": [
            row("`perflint --help`: CPU", f"{user:.3f} s", "under 0.1"),
            row(
                f"`perflint check` of one file of {lines([copy]):,} lines after an edit: CPU",
                f"{once:.2f} s",
                "under 0.2",
            ),
            row("the same in a process that stays, as an editor's: CPU", f"{1000 * again:.0f} ms", "under 150"),
        ],
    }


ROWS: dict[str, Callable[[Bench], Figures]] = {
    "cold": cold,
    "training": training,
    "warm": warm,
    "jobs": jobs,
    "fix": fix,
    "growth": growth,
    "startup": startup,
}


# -- means ---------------------------------------------------------------------------------------------------------------


def row(what: str, measured: str, promised: str) -> dict[str, str]:
    """One line of the table."""
    return {"what": what, "measured": measured, "promised": promised}


def left_out(what: str, why: str) -> Figures:
    """A row that cannot be measured."""
    return {"table": [row(what, f"not measured: {why}", "")]}


def perflint(*command: str, cached: bool = False) -> list[str]:
    """How to start perflint without configuration files, and without a cache unless it is the matter."""
    start = [sys.executable, "-m", "perflint", *command, "--isolated"]
    return start if cached else [*start, "--no-cache"]


def ruff() -> list[str]:
    """How to start ruff in the same way."""
    return [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--no-cache"]


def one_job() -> list[str]:
    """The option that keeps perflint to one process, where it has it."""
    return ["--jobs", "1"] if has_option("--jobs") else []


def has_option(name: str) -> bool:
    """Whether this `perflint check` has an option."""
    shown = subprocess.run([sys.executable, "-m", "perflint", "check", "--help"], env=environment(), capture_output=True)
    return re.search(rb"%b\b" % name.encode(), shown.stdout) is not None


def environment() -> dict[str, str]:
    """The variables of each child: this checkout's packages, one thread for ruff, bytecode that is kept."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": f"{ROOT}:{ROOT / 'rules'}", "RAYON_NUM_THREADS": "1"}


def lines(files: Sequence[Path]) -> int:
    """How many lines files have."""
    return sum(path.read_bytes().count(b"\n") for path in files)


def measured(command: list[str]) -> Figures:
    """User CPU, wall time and peak memory of one run."""
    output = subprocess.run([sys.executable, "-c", MEASURE, *command], env=environment(), capture_output=True, check=True)
    result: Figures = json.loads(output.stdout)
    if not 0 <= result["exit"] < FAILED:
        sys.exit(f"{shlex.join(command[:4])} ... ended with {result['exit']}")
    return result


def counted(command: list[str]) -> int:
    """How many files a run checks that COUNT watches."""
    shown = subprocess.run(command, env=environment(), capture_output=True, text=True).stderr
    return int(shown.split()[-1])


def ratio(rounds: Sequence[dict[str, Figures]], first: str, second: str) -> float:
    """The median over the rounds of the CPU time of one in multiples of another's."""
    return statistics.median(r[first]["user_s"] / r[second]["user_s"] for r in rounds)


def version_of(command: list[str]) -> str:
    """The version that a command prints; empty without that command."""
    if shutil.which(command[0]) is None:
        return ""
    found = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    numbers = re.findall(r"\d+(?:\.\d+)+", found.stdout + found.stderr)
    return numbers[-1] if numbers else ""


if __name__ == "__main__":
    sys.exit(main())
