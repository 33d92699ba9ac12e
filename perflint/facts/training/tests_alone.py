"""What runs in tests alone, which take a few steps."""

from __future__ import annotations

import os

from perflint.facts.facts import Facts
from perflint.source.syntax import Scope
from perflint.source.words import made

_FOLDER = made(r"(?:^|[/\\])tests?[/\\]")


def is_of_tests(facts: Facts, path: str) -> bool:
    """Whether a file lies in a folder of tests, and no file outside of such a folder imports it."""
    return _is_inside(facts, path) and all(_is_inside(facts, file) for file in facts.project.importers(path))


def _is_inside(facts: Facts, path: str) -> bool:
    return _FOLDER.search(os.path.relpath(path, facts.project.root)) is not None


def runs_each_step_in_tests_alone(facts: Facts, scope: Scope) -> bool:
    """Whether tests call a function in each step, and the program calls it, too, but not that often."""
    hot = facts.loops.hot_calls(scope)
    if not hot or not all(is_of_tests(facts, site.scope.module.source.path) for site in hot):
        return False
    sites = facts.inference.callers.sites(scope).sites
    return any(not is_of_tests(facts, site.scope.module.source.path) for site in sites)
