"""The page docs/reliability.md: what the records in benchmarks/results/ say about perflint's promises.

A record has the shape that `record` of benchmarks/surroundings.py makes. A run without a record is shown as not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"


@dataclass(frozen=True)
class Attempt:
    """One way of trying to break perflint."""

    file: str
    """The record's name in benchmarks/results/, without its ending."""
    title: str
    about: str
    command: str
    """What makes the record."""


ATTEMPTS = (
    Attempt(
        "fuzz_meaning",
        "Programs",
        "Small training programs over real torch, made at random, run before and after safe fixes: what they print, every "
        "variable bit by bit, exceptions, the states of the random generators.",
        "python fuzz/meaning.py --programs 200000 --seed 1 --json benchmarks/results/fuzz_meaning.json",
    ),
    Attempt(
        "fuzz_meaning_guarded",
        "Programs with the runtime",
        "The same with fixes that the runtime guards, and with those that rest on the assumptions of `ordinary`. A program in "
        "which an assumption that one of its fixes rests on is untrue says so, and is left out.",
        "python fuzz/meaning.py --programs 120000 --seed 38000000 --assume ordinary --runtime "
        "--json benchmarks/results/fuzz_meaning_guarded.json",
    ),
    Attempt(
        "fuzz_text",
        "Texts",
        "Made and mutated source text: encodings, line ends, comments everywhere, new and old syntax. Checked, fixed, fixed "
        "again, reformatted.",
        "python fuzz/text.py --json benchmarks/results/fuzz_text.json",
    ),
    Attempt(
        "corpus",
        "Corpus",
        "The packages of corpus/corpus.toml: all rules, safe fixes and then all fixes, each on a copy. `files_changed` is "
        "by safe fixes. Beside it `torchfix --fix --select ALL` and `ruff check --fix` (its default rules) over as many of "
        "the packages as their columns say.",
        "python corpus/run.py FOLDER; python corpus/run.py FOLDER --accept",
    ),
    Attempt(
        "corpus_tests",
        "Tests of the corpus",
        "Tests that packages of the corpus ship, before and after safe fixes. Only where `changed_lines_run` is not 0 is it "
        "known that they run a statement that a fix changes.",
        "python corpus/run_tests.py FOLDER --python PYTHON; python corpus/run_tests.py FOLDER --accept",
    ),
    Attempt(
        "faults",
        "Faults",
        "`fix` killed at random points, full and read-only disks, files that change under it, two at once; "
        "Ctrl-C at steps, at lines of code and at any moment. Broken caches are in tests/test_cache.py.",
        "python -m fuzz.faults --json benchmarks/results/faults.json",
    ),
    Attempt(
        "hostile",
        "Hostile input",
        "Repositories that want to be imported or run, input that wants time and memory, names with escape sequences and HTML: "
        "the cases of tests/test_hostile.py.",
        "python fuzz/hostile.py --json benchmarks/results/hostile.json",
    ),
)


def page() -> str:
    """The page in Markdown."""
    found = {attempt: record(attempt) for attempt in ATTEMPTS}
    rows = [
        "# Reliability",
        "",
        "What has tried to break perflint, how often, and what broke. Figures in **bold** are promised to be 0. Each table is "
        "made from a record in benchmarks/results/ by the command beside it; what has no record is *not run*.",
        "",
        "| tried | how much | broken |",
        "|---|---|---|",
        *(_line(attempt, about) for attempt, about in found.items()),
        "",
        *(line for attempt, about in found.items() for line in _section(attempt, about)),
    ]
    return "\n".join(rows)


def record(attempt: Attempt) -> dict[str, Any] | None:
    """The record of an attempt, if there is one.

    Raises:
        ValueError: it does not say what is promised to be 0.

    """
    path = RESULTS / f"{attempt.file}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if not found.get("never"):
        raise ValueError(f"{path.name} has no promises (`never`): it is made by `record` of benchmarks/surroundings.py")
    return found


def _line(attempt: Attempt, found: Mapping[str, Any] | None) -> str:
    """An attempt in the first table: its first figure, and the sum of what should be 0."""
    link = f"[{attempt.title}](#{attempt.title.lower().replace(' ', '-')})"
    if found is None:
        return f"| {link} | not run | not run |"
    name, count = next(iter(found["figures"].items()))
    return f"| {link} | {_number(count)} {_words(name)} | {sum(found['figures'][name] for name in found['never']):,} |"


def _section(attempt: Attempt, found: Mapping[str, Any] | None) -> Iterator[str]:
    yield from (f"## {attempt.title}", "", attempt.about, "")
    if found is None:
        yield from (f"Not run. `{attempt.command}` makes the record.", "")
        return
    machine, versions = found["machine"], found["versions"]
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    tools = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield from (f"`{found['command']}`", "")
    yield from (f"{found['date']}, commit {found['commit']}; {where}; {tools}", "")
    peers = found.get("peers", {})
    yield from _table(["", "perflint", *peers], [_figure(found, name, peers) for name in _names(found, peers)])
    for note in found.get("notes", ()):
        yield from (note, "")
    if packages := found.get("packages"):
        columns = [name for name in next(iter(packages.values())) if name != "commit"]
        rows = [[name, *(_cell(about[column]) for column in columns)] for name, about in packages.items()]
        yield from _table(["package", *(_words(name) for name in columns)], rows)


def _names(found: Mapping[str, Any], peers: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The figures of perflint, and those that only a peer has."""
    return list(dict.fromkeys([*found["figures"], *(name for figures in peers.values() for name in figures)]))


def _figure(found: Mapping[str, Any], name: str, peers: Mapping[str, Mapping[str, int]]) -> list[str]:
    title = f"**{_words(name)}**" if name in found["never"] else _words(name)
    return [title, *(_number(figures[name]) if name in figures else "" for figures in (found["figures"], *peers.values()))]


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"
    yield ""


def _cell(value: object) -> str:
    """A number as it is, what is listed by how much of it there is."""
    match value:
        case dict():
            return _number(sum(value.values()))
        case list():
            return _number(len(value))
        case int() | float():
            return _number(value)
    return str(value)


def _number(value: float) -> str:
    return f"{value:,}"


def _words(name: str) -> str:
    return name.replace("_", " ")
