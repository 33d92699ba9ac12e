"""The rules that are installed: every rule pack that announces itself under the entry point `perflint.rules`."""

from __future__ import annotations

import copyreg
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.machinery import PathFinder

from perflint.project.files import read_file
from perflint.rule.rule import Rule

GROUP = "perflint.rules"


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every installed rule, sorted by name.

    Raises:
        ValueError: two rules have the same name.
        ImportError: a pack cannot be imported, or declares a rule wrongly.

    """
    packs = announced()
    if packs is None:
        from importlib.metadata import entry_points

        packs = [(entry.name, entry.value) for entry in entry_points(group=GROUP)]
    rules: dict[str, Rule] = {}
    for name, value in sorted(packs):
        for found in _rules_of(name, value.partition("[")[0].strip()):
            known = rules.get(found.name)
            if known is not None and known.module != found.module:
                raise ValueError(f"two rules are named {found.name!r}: {known.module} and {found.module}")
            rules[found.name] = found
    return tuple(rules[name] for name in sorted(rules))


def announced() -> list[tuple[str, str]] | None:
    """Names and values of the entry points of all rule packs, from the folders that Python imports from.

    None where packs may be announced elsewhere: in archives, in eggs, or by import hooks of others. `importlib.metadata` would
    find them, but to import it takes a tenth of the time of a check of one file.
    """
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return None
    found: list[tuple[str, str]] = []
    distributions: set[str] = set()
    for folder in dict.fromkeys(sys.path):
        if folder.endswith(".egg"):
            return None
        try:
            names = os.listdir(folder or ".")
        except NotADirectoryError:
            return None
        except OSError:
            continue
        for name in sorted(names):
            distribution = name.partition("-")[0].removesuffix(".egg-info").lower()
            if name.endswith((".dist-info", ".egg-info")) and distribution not in distributions:
                distributions.add(distribution)  # the first one on the path is the one that Python imports
                found += _announced_in(read_file(os.path.join(folder, name, "entry_points.txt")) or b"")
    return found


def _announced_in(entry_points: bytes) -> Iterator[tuple[str, str]]:
    if GROUP.encode() not in entry_points:
        return
    section = ""
    for line in map(str.strip, entry_points.decode("utf-8", "replace").splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line:
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def installed_rule(name: str) -> Rule:
    """The rule of a name.

    Raises:
        ImportError: no rule pack that is installed has it.

    """
    for rule in all_rules():
        if rule.name == name:
            return rule
    raise ImportError(f"the rule {name} is not installed")


def _rules_of(pack: str, package: str) -> list[Rule]:
    try:
        path = pkgutil.resolve_name(package).__path__
        modules = [importlib.import_module(f"{package}.{info.name}") for info in pkgutil.iter_modules(path)]
    except Exception as error:
        raise ImportError(f"the rule pack `{pack}` ({package}) cannot be loaded: {error!r}") from error
    return [found for module in modules if isinstance(found := getattr(module, "check", None), Rule)]


def _by_name(rule: Rule) -> tuple[Callable[[str], Rule], tuple[str]]:
    return installed_rule, (rule.name,)


copyreg.pickle(Rule, _by_name)  # rules travel between processes by name
