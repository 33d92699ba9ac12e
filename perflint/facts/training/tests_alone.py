"""What runs in tests and benchmarks alone, which take a few steps."""

from __future__ import annotations

import os
import re

from perflint.facts.facts import Facts
from perflint.source.syntax import Scope
from perflint.source.words import made

_FOLDER = made(r"(?:^|[/\\])(?:tests?|(?:\w+[_-])?benchmarks?)[/\\]")
_FILE = made(
    r"(?:^|[/\\_-])(?:bench(?:mark(?:s|ing)?)?|dry_?run|smoke(?:_test)?|poc|quick|sanity|toy)(?=$|[_.-])[^/\\]*\.(?:py|ipynb)\b",
    re.I,
)


def takes_few_steps(facts: Facts, path: str) -> bool:
    """Whether a file is a benchmark, a try-out or lies in a folder of tests, and no other file imports it."""
    return _is_inside(facts, path) and all(_is_inside(facts, file) for file in facts.project.importers(path))


def _is_inside(facts: Facts, path: str) -> bool:
    inside = os.path.relpath(path, facts.project.root)
    return _FOLDER.search(inside) is not None or _FILE.search(inside) is not None


def runs_each_step_in_tests_alone(facts: Facts, scope: Scope) -> bool:
    """Whether tests call a function in each step, and the program calls it, too, but not that often."""
    hot = facts.loops.hot_calls(scope)
    if not hot or not all(takes_few_steps(facts, site.scope.module.source.path) for site in hot):
        return False
    sites = facts.inference.callers.sites(scope).sites
    return any(not takes_few_steps(facts, site.scope.module.source.path) for site in sites)
