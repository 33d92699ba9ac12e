"""The fixes of a program, applied to a copy of it, all or some."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflint.fix.fixer import is_fixable, where
from perflint.project.discover import Found
from perflint.rule.finding import Finding
from perflint.rule.registry import all_rules
from perflint.run.run import Run, shown
from perflint.source.source import Source


@dataclass(frozen=True, order=True)
class Place:
    """What is fixed or left alone as one: the findings of one rule in one function. Other fixes do not move it.

    file: of a notebook, with the cell.
    """

    file: str
    function: str
    rule: str

    def __str__(self) -> str:
        return f"{self.rule} in {self.file}{f', {self.function}' if self.function else ''}"


@dataclass(frozen=True)
class Fixable:
    """A finding with a fix, as it stands in the original."""

    place: Place
    row: int
    message: str
    applicability: str


@dataclass(frozen=True)
class Applied:
    """What was done to a tree: the findings that offered a fix, how many were fixed by rule, and the changed files.

    rests_on: the names of the assumptions that the fixes need.
    """

    fixable: tuple[Fixable, ...]
    fixed_by_rule: Mapping[str, int]
    changed: Mapping[str, tuple[bytes, bytes]]
    """The bytes before and after of each changed file, by its path in the tree."""
    rests_on: frozenset[str] = frozenset()

    @property
    def places(self) -> list[Place]:
        return sorted({fixable.place for fixable in self.fixable})


def apply_fixes(
    tree: Path,
    files: Sequence[str],
    *,
    unsafe: bool,
    overrides: Mapping[str, Any] | None = None,
    only: Collection[Place] | None = None,
    is_copy: bool = True,
) -> Applied:
    """Fix files of a tree in place; with `only`, the fixes of these places. `is_copy` is off for the user's own tree.

    Raises:
        ConfigError: the project's configuration is unusable.

    """
    given = {**(overrides or {}), **({"unsafe_fixes": True} if unsafe else {})}
    marker = tree / ".git"
    if marker.exists() or not is_copy:
        return _apply(tree, files, given, only)
    marker.mkdir()  # a copy has no repository, by which the linter knows what belongs to the project
    try:
        return _apply(tree, files, given, only)
    finally:
        marker.rmdir()


def _apply(tree: Path, files: Sequence[str], overrides: Mapping[str, Any], only: Collection[Place] | None) -> Applied:
    paths = {str(tree / file): file for file in files}
    names = {shown(path): file for path, file in paths.items()}
    paths_by_name = {shown(path): path for path in paths}
    found = Found(files=list(paths), explicit=set(paths))
    run = Run(all_rules(), None, overrides, measured=True)  # what a wait is worth, too, the run shows
    fixable = [
        _fixable(paths[checked.source.path], checked.source, finding)
        for checked in run.check(found).checked
        for finding in checked.findings
        if checked.source is not None and is_fixable(finding, run.permission(paths_by_name[checked.path]))
    ]
    rests_on: set[str] = set()

    def is_wanted(source: Source, finding: Finding) -> bool:
        is_one = only is None or _place(paths[source.path], source, finding) in only
        if is_one and finding.fix is not None:
            rests_on.update(kind.value for kind in finding.fix.assumptions)
        return is_one

    result = Run(all_rules(), None, overrides, measured=True).fix(
        found, unsafe=False, write_files=True, choose=where(is_wanted)
    )
    changed = {names[fixed.path]: (fixed.before, fixed.after) for fixed in result.fixed}
    return Applied(tuple(fixable), dict(result.applied), changed, frozenset(rests_on))


def _fixable(file: str, source: Source, finding: Finding) -> Fixable:
    assert finding.fix is not None
    at = source.position(finding.start)
    return Fixable(_place(file, source, finding), at.row, finding.message, finding.fix.applicability.value)


def _place(file: str, source: Source, finding: Finding) -> Place:
    row = source.row_at(finding.start)
    around = [
        node
        for node in ast.walk(ast.parse(source.body))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and node.lineno <= row <= (node.end_lineno or node.lineno)
    ]
    function = ".".join(node.name for node in sorted(around, key=lambda node: node.lineno))
    cell = source.position(finding.start).cell
    return Place(file if cell is None else f"{file}:cell {cell}", function, finding.rule)
