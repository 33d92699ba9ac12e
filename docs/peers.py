"""Fill the table of comparison.md: what perflint, ruff, Fixit and TorchFix do, found by running them.

    python docs/peers.py --peers FOLDER [--check]

FOLDER holds the programs `ruff`, `fixit` and `torchfix`; perflint is the one beside this Python. Each tool gets a file with a
flaw that it knows, in a folder of its own. What no command shows (a hook in a repository, say) is in the table as its
documentation has it, and marked with a dagger. With --check nothing is written, and the exit code is 1 where the table would
change.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PAGE = Path(__file__).parent / "comparison.md"
START, END = "<!-- peers -->\n", "<!-- /peers -->\n"
NOTEBOOK = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@dataclass(frozen=True)
class Tool:
    """One of the tools: how it is called, and a file with one flaw that it finds and fixes.

    check, fix, diff: the arguments for a file; none where there is no such command. rule: what the flaw is called.
    """

    name: str
    program: str
    flaw: str
    rule: str
    check: tuple[str, ...]
    fix: tuple[str, ...]
    diff: tuple[str, ...]
    stdin: tuple[str, ...] | None
    ignore: str
    """A comment that silences the flaw."""
    ignored_by: str
    """A configuration that leaves the rule out."""
    ignored_in_tests: str
    """A configuration that leaves the rule out for the files of a folder."""
    has_commands: bool = True

    def run(self, folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """What the program says to arguments in a folder."""
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
        command = [self.program, *arguments]
        return subprocess.run(
            command, cwd=folder, input=stdin, capture_output=True, text=True, env=environment, timeout=120, check=False
        )

    def finds(self, text: str | None = None, *, config: str = "", name: str = "a.py", options: tuple[str, ...] = ()) -> bool:
        """Whether the flaw's rule is named in the report about a file."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = self._project(scratch, text, config, name)
            done = self.run(folder, *self.check, *options, name)
            return self.rule in done.stdout + done.stderr

    def exit_codes(self) -> str:
        """Those of a clean file, of one with findings, and of a wrong option."""
        codes = []
        for text, options in (("x = 1\n", ()), (None, ()), (None, ("--no-such-option",))):
            with tempfile.TemporaryDirectory() as scratch:
                folder = self._project(scratch, text)
                codes.append(self.run(folder, *self.check, *options, "a.py").returncode)
        return ", ".join(map(str, codes))

    def fixes(self) -> bool:
        """Whether the file changes."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = self._project(scratch)
            self.run(folder, *self.fix, "a.py")
            return (folder / "a.py").read_text(encoding="utf-8") != self.flaw

    def shows_patch(self) -> bool:
        """Whether there is a patch, and the file stays."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = self._project(scratch)
            said = self.run(folder, *self.diff, "a.py").stdout
            return "\n+++ " in f"\n{said}" and (folder / "a.py").read_text(encoding="utf-8") == self.flaw

    def reads_stdin(self) -> bool:
        """Whether it finds the flaw in standard input."""
        with tempfile.TemporaryDirectory() as scratch:
            done = self.run(Path(scratch), *(self.stdin or (*self.check, "-")), stdin=self.flaw)
            return self.rule in done.stdout + done.stderr

    def finds_in_notebooks(self) -> bool:
        """Whether it finds the flaw in a cell."""
        cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": self.flaw}
        return self.finds(json.dumps(NOTEBOOK | {"cells": [cell]}), name="a.ipynb")

    def reports_idle_suppressions(self) -> bool:
        """Whether a suppression that silences nothing is reported."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = self._project(scratch, f"x = 1  {self.ignore}\n")
            options = ("--extend-select", "RUF100") if self.name == "ruff" else ()
            return self.run(folder, *self.check, *options, "a.py").returncode == 1

    def offers(self, *words: str, command: tuple[str, ...] | None = None) -> bool:
        """Whether the help of a command names one of some words."""
        with tempfile.TemporaryDirectory() as scratch:
            text = self.run(Path(scratch), *(command if command is not None else self.check), "--help").stdout
            return any(word in text for word in words)

    def has(self, *command: str) -> bool:
        """Whether there is a command: its help is no error."""
        if not self.has_commands:
            return False
        with tempfile.TemporaryDirectory() as scratch:
            return self.run(Path(scratch), *command, "--help").returncode == 0

    def caches(self) -> bool:
        """Whether a run leaves something for the next one in the folder of the project."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = self._project(scratch)
            before = set(folder.rglob("*"))
            self.run(folder, *self.check, "a.py")
            return bool(set(folder.rglob("*")) - before)

    @cached_property
    def version(self) -> str:
        """As the program says."""
        found = re.search(r"\d+\.\d+\.\d+", self.run(Path.cwd(), "--version").stdout)
        return found[0] if found else "?"

    def _project(self, scratch: str, text: str | None = None, config: str = "", name: str = "a.py") -> Path:
        folder = Path(scratch) / "project"
        (folder / "tests").mkdir(parents=True)
        (folder / "pyproject.toml").write_text(config, encoding="utf-8")
        (folder / name).write_text(self.flaw if text is None else text, encoding="utf-8")
        return folder


def tools(peers: Path) -> list[Tool]:
    """The four."""
    here = Path(sys.executable).parent
    return [
        Tool(
            name="perflint",
            program=str(here / "perflint"),
            flaw="import torch\n\nwith torch.no_grad:\n    x = 1\n",
            rule="no-grad-without-call",
            check=("check",),
            fix=("fix",),
            diff=("fix", "--diff"),
            stdin=None,
            ignore="# perflint: ignore[no-grad-without-call]",
            ignored_by='[tool.perflint]\nignore = ["no-grad-without-call"]\n',
            ignored_in_tests='[tool.perflint]\nper-file-ignores = { "tests/**" = ["all"] }\n',
        ),
        Tool(
            name="ruff",
            program=str(peers / "ruff"),
            flaw="import os\n",
            rule="F401",
            check=("check", "--output-format", "concise"),
            fix=("check", "--fix"),
            diff=("check", "--diff"),
            stdin=None,
            ignore="# noqa: F401",
            ignored_by='[tool.ruff.lint]\nignore = ["F401"]\n',
            ignored_in_tests='[tool.ruff.lint.per-file-ignores]\n"tests/**" = ["ALL"]\n',
        ),
        Tool(
            name="Fixit",
            program=str(peers / "fixit"),
            flaw="z = dict([(1, 2)])\n",
            rule="RewriteToLiteral",
            check=("lint",),
            fix=("fix", "--automatic"),
            diff=("lint", "--diff"),
            stdin=("lint", "-", "a.py"),
            ignore="# lint-ignore: RewriteToLiteral",
            ignored_by='[tool.fixit]\ndisable = ["fixit.rules:RewriteToLiteral"]\n',
            ignored_in_tests='[[tool.fixit.overrides]]\npath = "tests"\ndisable = ["fixit.rules"]\n',
        ),
        Tool(
            name="TorchFix",
            program=str(peers / "torchfix"),
            flaw="import torch\n\nx = torch.qr(torch.ones(2, 2))\n",
            rule="TOR101",
            check=(),
            fix=("--fix",),
            diff=(),
            stdin=None,
            ignore="# noqa: TOR101",
            ignored_by='[tool.torchfix]\nignore = ["TOR101"]\n',
            ignored_in_tests='[tool.torchfix.per-file-ignores]\n"tests/**" = ["TOR101"]\n',
            has_commands=False,
        ),
    ]


Words = Mapping[str, str]
Probe = Callable[[Tool], "bool | str"]


@dataclass(frozen=True)
class Row:
    """A row of the table: what a probe gives, in the words of the page.

    words: instead of a plain yes, by tool. documented: for these tools nothing was run.
    """

    title: str
    probe: Probe | None = None
    words: Words | None = None
    documented: Words | None = None


def silences(tool: Tool) -> bool:
    """Whether the comment for it silences the flaw."""
    first, *others = [line for line in tool.flaw.splitlines() if line]
    last = others[0] if tool.name == "perflint" else others[-1] if others else first
    return tool.finds() and not tool.finds(tool.flaw.replace(f"{last}\n", f"{last}  {tool.ignore}\n"))


def per_path(tool: Tool) -> bool:
    """Whether a rule can be left out for a folder, and still counts elsewhere."""
    config = tool.ignored_in_tests
    return tool.finds(config=config) and not tool.finds(config=config, name="tests/a.py")


def fixing(tool: Tool) -> bool | str:
    """Whether it fixes; of ruff also how many of its rules do, as it says itself."""
    if tool.name != "ruff" or not tool.fixes():
        return tool.fixes()
    rules = json.loads(tool.run(Path.cwd(), "rule", "--all", "--output-format", "json").stdout)
    fixable = sum(rule["fix_availability"] in ("Always", "Sometimes") for rule in rules)
    return f"yes, for {fixable} of {len(rules)} rules"


def about_torch(tool: Tool) -> str:
    """Of ruff, how many rules name torch in their explanations."""
    rules = json.loads(tool.run(Path.cwd(), "rule", "--all", "--output-format", "json").stdout)
    named = sum(bool(re.search(r"\b(py)?torch\b", rule["explanation"] or "", re.I)) for rule in rules)
    return f"none; {named} of {len(rules)} rules mention torch at all"


FORMATS = "for people 3; json, json-lines, github, gitlab, junit, sarif, azure, pylint, rdjson"
RUN = ("perflint", "ruff", "Fixit", "TorchFix")


def documented(*cells: str) -> Words:
    """What is said of each tool, in the order of the table."""
    return dict(zip(RUN, cells, strict=True))


ROWS = [
    Row(
        "rules about PyTorch's speed",
        about_torch,
        documented={
            "perflint": "[all of them](rules/README.md)",
            "Fixit": "none of 26",
            "TorchFix": "`num_workers` of loaders; deprecations, wrong names, `log1p` and the like",
        },
    ),
    Row("fixes", fixing),
    Row(
        "fixes that are told apart by their safety",
        lambda tool: tool.offers("--unsafe-fixes"),
        {"perflint": "safe, assuming, unsafe", "ruff": "safe, unsafe, display only"},
    ),
    Row("why a fix is not safe", documented=documented("each open proof, in reports and JSON", "on the rule's page", "-", "-")),
    Row("assumptions that a project declares, and a run confirms", lambda tool: tool.offers("--assume")),
    Row("proof by running: same results, how much faster", lambda tool: tool.has("verify"), {"perflint": "`verify`"}),
    Row(
        "findings by measured cost",
        lambda tool: tool.offers("perflint profile"),
        {"perflint": "`profile`, `check --profile`"},
    ),
    Row("facts across files", documented=documented("yes", "no", "no; types by Pyre, if it is set up", "no")),
    Row(
        "fixes as a patch",
        Tool.shows_patch,
        {"perflint": "`fix --diff`", "ruff": "`--diff`", "Fixit": "`lint --diff`", "TorchFix": "by default"},
    ),
    Row(
        "one question for each fix",
        lambda tool: tool.offers("--interactive", command=tool.fix[:1]),
        {"perflint": "`fix --interactive`", "Fixit": "yes, by default"},
    ),
    Row("standard input", Tool.reads_stdin),
    Row("formats", documented=documented(f"{FORMATS}; markdown, html", FORMATS, "text, vscode, templates", "text")),
    Row(
        "configuration in pyproject.toml",
        lambda tool: tool.finds() and not tool.finds(config=tool.ignored_by),
        {"perflint": "yes, [with a schema](configuration.md)", "ruff": "yes, with a schema"},
    ),
    Row(
        "different rules for different paths",
        per_path,
        {"perflint": "`per-file-ignores`", "ruff": "`per-file-ignores`", "Fixit": "overrides"},
    ),
    Row(
        "suppressions in the source",
        silences,
        {"perflint": "by name, with a reason", "ruff": "by code, with a reason", "Fixit": "by name"},
    ),
    Row(
        "suppressions that silence nothing are reported",
        Tool.reports_idle_suppressions,
        {"perflint": "yes, with a fix", "ruff": "yes, with a fix"},
    ),
    Row(
        "suppressions are written by the tool",
        lambda tool: tool.offers("--add-ignores", "--add-noqa"),
        {"perflint": "`--add-ignores`", "ruff": "`--add-noqa`"},
    ),
    Row("baseline of known findings", lambda tool: tool.offers("baseline"), {"perflint": "`--baseline`"}),
    Row("changed lines only", lambda tool: tool.offers("--diff-base", "--since"), {"perflint": "`--diff-base`"}),
    Row(
        "notebooks",
        Tool.finds_in_notebooks,
        {"perflint": "yes, with fixes, and run by `verify`", "ruff": "yes, with fixes"},
    ),
    Row(
        "language server",
        lambda tool: tool.has("server") or tool.has("lsp"),
        {"perflint": "[yes](editors.md)"},
    ),
    Row("tools for coding agents (MCP)", lambda tool: tool.has("mcp"), {"perflint": "[yes](agents.md)"}),
    Row("pre-commit hook", documented=documented("yes", "yes", "yes", "no")),
    Row("GitHub action", documented=documented("yes", "yes", "no", "no")),
    Row(
        "cache",
        Tool.caches,
        {"perflint": "all results, findings too", "ruff": "yes, of files without findings †"},
    ),
    Row("several processes", documented=documented("yes, and clusters", "threads", "yes", "yes")),
    Row("watching", lambda tool: tool.offers("--watch"), {"perflint": "`--watch`", "ruff": "`--watch`"}),
    Row(
        "rules of your own",
        documented=documented(
            "[packages](write-a-rule.md)", "no", "modules in your repository, with their cases", "no"
        ),
    ),
    Row(
        "the page of a rule in the terminal",
        lambda tool: tool.has("explain") or tool.has("rule"),
        {"perflint": "`explain`", "ruff": "`ruff rule`"},
    ),
    Row(
        "how often each rule fires",
        lambda tool: tool.offers("--statistics") or tool.offers("--print-metrics", command=()),
        {"perflint": "`--statistics`", "ruff": "`--statistics`", "Fixit": "`--print-metrics`"},
    ),
    Row("torch's version", documented=documented("from your requirements, or configured", "-", "-", "no")),
    Row(
        "exit codes: clean, findings, wrong option",
        Tool.exit_codes,
        {"perflint": "{}; by severity"},
    ),
]  # fmt: skip


def cell(row: Row, tool: Tool) -> str:
    """What the table says of a tool."""
    said = (row.documented or {}).get(tool.name)
    if said is not None:
        return said if tool.name == "perflint" else f"{said} †"
    assert row.probe is not None
    found = row.probe(tool)
    words = (row.words or {}).get(tool.name)
    if isinstance(found, str):
        return words.format(found) if words is not None else found
    return (words or "yes") if found else "no"


def table(of: list[Tool]) -> str:
    """The table with what was run above it."""
    versions = ", ".join(f"{tool.name} {tool.version}" for tool in of)
    lines = [
        f"What stands here was found by running {versions} (`python docs/peers.py`); † marks what their documentation says.",
        "",
        "| | " + " | ".join(tool.name for tool in of) + " |",
        "|---" * (len(of) + 1) + "|",
        *("| " + " | ".join([row.title, *(cell(row, tool) for tool in of)]) + " |" for row in ROWS),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    _, after = rest.split(END)
    new = f"{before}{START}{table(tools(options.peers.absolute()))}{END}{after}"
    if options.check:
        return int(new != text)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
