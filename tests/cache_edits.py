"""Random edits of a project, each followed by a check with and one without remembered results: both must say the same.

`python tests/cache_edits.py FOLDER SEED STEPS` does it by hand, on a copy of FOLDER.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from perflint.report import data, text
from perflint.report.terminal import Terminal
from perflint.rule.registry import all_rules
from perflint.run import cache
from perflint.run.result import Result
from perflint.run.run import Run

TICK_NS = 20_000_000
"""Longer than any file system here takes to notice that a file has changed."""


def report(result: Result) -> str:
    """All that a report can say, with the facts left out that only `check` prints."""
    budgets = [f"{budget} {budget.timeline}" for checked in result.checked for budget in checked.budgets]
    return "\n".join([*data.as_json(result), *text.full(result, Terminal()), *budgets])


class Editor:
    """Edits a project at random."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.earlier: list[tuple[Path, str]] = []

    def files(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*.py") if not path.is_symlink())

    def edit(self) -> str:
        """Change something; says what."""
        change = self.random.choice(
            [
                *[self.rename, self.drop_line, self.repeat_line, self.swap_words, self.add_import, self.drop_import] * 3,
                self.add_file,
                self.shadow,
                self.delete_file,
                self.move_file,
                self.link,
                self.revert,
                self.touch,
                self.pin,
                self.configure,
                self.empty,
            ]
        )
        return f"{change.__name__}: {change()}"

    def _change(self, path: Path, change: Callable[[str], str]) -> str:
        old = path.read_text(encoding="utf-8", errors="surrogateescape")
        self.earlier.append((path, old))
        path.write_text(change(old), encoding="utf-8", errors="surrogateescape")
        return str(path.relative_to(self.root))

    def _lines(self, change: Callable[[list[str]], None], pattern: str = r"\S") -> str:
        path = self.random.choice(self.files())

        def changed(old: str) -> str:
            lines = old.splitlines(keepends=True)
            numbers = [i for i, line in enumerate(lines) if re.search(pattern, line)]
            if numbers:
                at = self.random.choice(numbers)
                picked = lines[at : at + 1]
                change(picked)
                lines[at : at + 1] = picked
            return "".join(lines)

        return self._change(path, changed)

    def rename(self) -> str:
        names = sorted({n for p in self.files() for n in re.findall(r"(?:def|class) (\w+)", p.read_text(errors="replace"))})
        if not names:
            return "nothing"
        name = self.random.choice(names)
        new = self.random.choice([f"{name}_x", self.random.choice(names)])
        where = self.files() if self.random.random() < 0.5 else [self.random.choice(self.files())]
        for path in where:
            self._change(path, lambda old: re.sub(rf"\b{name}\b", new, old))
        return f"{name} {new} in {len(where)}"

    def drop_line(self) -> str:
        return self._lines(lambda lines: lines.clear(), r"^\s+\S.*[^:(,]$")

    def repeat_line(self) -> str:
        return self._lines(lambda lines: lines.extend(lines), r"^\s+\S.*\)$")

    def swap_words(self) -> str:
        swaps = [
            (".cuda()", ".cpu()"),
            ("backward()", "detach()"),
            (".item()", ".detach()"),
            ("model.eval()", "model.train()"),
            ("no_grad", "enable_grad"),
            ("DataLoader(", "list("),
            ("nn.Module", "object"),
            ("cuda", "cpu"),
            ("cpu", "cuda"),
            ("zero_grad()", "step()"),
            ("train", "evaluate"),
        ]
        old, new = self.random.choice(swaps)
        where = [p for p in self.files() if old in p.read_text(errors="replace")]
        return self._change(self.random.choice(where), lambda text: text.replace(old, new)) + old if where else "nothing"

    def add_import(self) -> str:
        other = self.random.choice(self.files())
        dotted = ".".join(other.relative_to(self.root).with_suffix("").parts).removesuffix(".__init__")
        last = dotted.rpartition(".")[2]
        line = self.random.choice([f"import {dotted}", f"from {dotted} import *", f"import {last}", f"from . import {last}"])
        return self._change(self.random.choice(self.files()), lambda old: f"{line}\n{old}") + f" {line}"

    def drop_import(self) -> str:
        return self._lines(lambda lines: lines.clear(), r"^(from|import) ")

    def add_file(self) -> str:
        source = self.random.choice(self.files())
        path = source.with_name(f"added_{self.random.randrange(5)}.py")
        path.write_text(source.read_text(errors="replace"))
        return str(path)

    def shadow(self) -> str:
        """A file in the place of a module that came from elsewhere."""
        name = self.random.choice(["torch", "utils", "tqdm", "argparse", "torchvision"])
        folder = self.random.choice(self.files()).parent
        (folder / f"{name}.py").write_text("def nn(x):\n    return x.cuda()\n")
        return f"{name} in {folder}"

    def delete_file(self) -> str:
        path = self.random.choice(self.files())
        if len(self.files()) > 3:
            self.earlier.append((path, path.read_text(errors="replace")))
            path.unlink()
        return str(path)

    def move_file(self) -> str:
        path = self.random.choice(self.files())
        target = self.random.choice(self.files()).parent / path.name
        if not target.exists():
            path.rename(target)
        return f"{path} {target}"

    def link(self) -> str:
        path = self.random.choice(self.files())
        target = path.with_name(f"linked_{self.random.randrange(3)}.py")
        target.unlink(missing_ok=True)
        target.symlink_to(path)
        return str(target)

    def revert(self) -> str:
        if not self.earlier:
            return "nothing"
        path, old = self.random.choice(self.earlier)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(old, encoding="utf-8", errors="surrogateescape")
        return str(path)

    def touch(self) -> str:
        path = self.random.choice(self.files())
        os.utime(path)
        return str(path)

    def pin(self) -> str:
        version = self.random.choice(["1.4", "1.9", "1.13", "2.3"])
        if self.random.random() < 0.5:
            (self.root / "requirements.txt").write_text(f"torch>={version}\n")
            return version
        (self.root / "pyproject.toml").write_text(f"[project]\nname = 'x'\ndependencies = ['torch>={version}']\n")
        return version

    def configure(self) -> str:
        lines = self.random.sample(
            [
                'select = ["all"]',
                'ignore = ["item-every-step"]',
                "runtime = true",
                'target-versions = { torch = "1.8" }',
                'per-file-ignores = { "t*.py" = ["all"] }',
                'extend-exclude = ["added_*"]',
            ],
            2,
        )
        (self.root / "perflint.toml").write_text("\n".join(lines) + "\n")
        return " ".join(lines)

    def empty(self) -> str:
        return self._change(self.random.choice(self.files()), lambda old: "")


class Mismatch(AssertionError):
    """The remembered results say something else than a check does."""


def edit_and_compare(root: Path, folder: Path, seed: int, steps: int) -> tuple[int, int]:
    """Edit the project `root` that often, with a cache in `folder`.

    Returns how many results were remembered, and how many files were checked.

    Raises:
        Mismatch: a run with remembered results reports something else than one without.

    """
    cache.SETTLED_NS = TICK_NS
    (root / ".git").mkdir(exist_ok=True)
    editor = Editor(root, seed)
    done: list[str] = []
    remembered = checked = 0
    for _ in range(steps):
        done += [editor.edit() for _ in range(editor.random.choice([0, 1, 1, 1, 1, 1, 2, 4]))]
        paths = [str(root)] if editor.random.random() < 0.8 else [str(editor.random.choice(editor.files()))]
        overrides = {"cache_dir": str(folder), **({"select": ("all",)} if editor.random.random() < 0.8 else {})}
        warm_run, cold_run = Run(all_rules(), None, overrides, cached=True), Run(all_rules(), None, overrides)
        warm, cold = (report(run.check(run.find(paths))) for run in (warm_run, cold_run))
        if warm != cold:
            last = "\n".join(done[-8:])
            raise Mismatch(f"seed {seed}, {len(done)} edits, {paths}\n{last}\n--- warm\n{warm}\n--- cold\n{cold}")
        counters = [session.counters for session in warm_run.sessions]
        remembered += sum(c.remembered for c in counters)
        checked += sum(c.files for c in counters)
    return remembered, checked


def main() -> None:
    """Run it by hand."""
    folder, seed, steps = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "project"
        shutil.copytree(folder, root, ignore=shutil.ignore_patterns(".git"))
        remembered, checked = edit_and_compare(root, Path(temporary) / "cache", seed, steps)
        print(f"{folder.name}, seed {seed}: {steps} steps agree, {remembered} results remembered, {checked} files checked")


if __name__ == "__main__":
    sys.setrecursionlimit(30_000)
    main()
