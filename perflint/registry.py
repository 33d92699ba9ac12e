"""The rules that are installed: every rule pack that announces itself under the entry point `perflint.rules`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from perflint.rule import Rule

GROUP = "perflint.rules"


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every installed rule, sorted by name.

    Raises:
        ValueError: two rules have the same name.

    """
    rules: dict[str, Rule] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        for found in _rules_of(entry.load()):
            known = rules.get(found.name)
            if known is not None and known.check.__module__ != found.check.__module__:
                raise ValueError(f"two rules are named {found.name!r}: {known.check.__module__} and {found.check.__module__}")
            rules[found.name] = found
    return tuple(rules[name] for name in sorted(rules))


def installed_rule(name: str) -> Rule:
    """The rule of a name.

    Raises:
        ImportError: no rule pack that is installed has it.

    """
    for rule in all_rules():
        if rule.name == name:
            return rule
    raise ImportError(f"the rule {name} is not installed")


def _rules_of(package: ModuleType) -> Iterator[Rule]:
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        found = getattr(module, "check", None)
        if isinstance(found, Rule):
            yield found
