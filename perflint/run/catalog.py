"""The installed rules as they were when last imported: a run that checks nothing anew imports none.

What is remembered of a rule is all but its code, which is imported when a file is first shown to it. It holds as long as the
announced rule packs and the sources of perflint and of the packs are the same, byte for byte.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from perflint.project.files import text_digest
from perflint.rule.finding import Cost, Finding, Severity
from perflint.rule.option import Option
from perflint.rule.registry import announced
from perflint.rule.rule import Rule
from perflint.run.digests import code_digest
from perflint.run.store import Store, sealed, unsealed
from perflint.source.gate import Gate
from perflint.source.records import dataclass

if TYPE_CHECKING:
    from perflint.rule.code import Code

MAX_CATALOGS = 4
"""How many are kept in a cache: several environments may share it."""


_FIELDS = [field.name for field in fields(Rule) if field.name != "check"]
_GATES = ("needs", "in_file", "near")


@dataclass(frozen=True)
class _Deferred:
    """The code of the rule that a module declares."""

    module: str

    def __call__(self, code: Code) -> Iterator[Finding]:
        declared: Rule = importlib.import_module(self.module).check
        return declared.check(code)


class Catalog:
    """The installed rules, remembered in a cache if there is one."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._key = ""
        self._unsaved: Sequence[Rule] = ()

    def rules(self) -> Sequence[Rule]:
        """Every installed rule, sorted by name."""
        packs = announced() if self._store is not None else None
        packages = {value.partition(":")[0].partition(".")[0] for _, value in packs or ()}
        if self._store is not None and packs:
            self._key = text_digest(repr((packs, code_digest(packages))).encode())
            for (text,) in self._store.rows("SELECT rules FROM catalogs WHERE code = ?", self._key):
                remembered = unsealed(text, self._key)
                if remembered is not None:
                    return tuple(map(_decoded, json.loads(remembered)))
        from perflint.rule.registry import all_rules

        rules = all_rules()
        if {rule.module.partition(".")[0] for rule in rules} == packages:
            self._unsaved = rules
        return rules

    def save(self) -> None:
        """Write what was imported."""
        if self._store is None or not self._unsaved:
            return
        text = sealed(json.dumps([_encoded(rule) for rule in self._unsaved]), self._key)
        with self._store.writing() as connection:
            if connection is not None:
                connection.execute("INSERT OR REPLACE INTO catalogs VALUES (?, ?)", (self._key, text))
                _prune(connection)
        self._unsaved = ()


def _prune(connection: sqlite3.Connection) -> None:
    old = "SELECT rowid FROM catalogs ORDER BY rowid DESC LIMIT -1 OFFSET ?"
    connection.execute(f"DELETE FROM catalogs WHERE rowid IN ({old})", (MAX_CATALOGS,))


def _encoded(rule: Rule) -> dict[str, object]:
    """All that a rule says of itself, by the names of its fields, but for its code."""
    told: dict[str, object] = {name: getattr(rule, name) for name in _FIELDS}
    return told | {
        "severity": rule.severity.value,
        "costs": rule.costs and rule.costs.value,
        "options": [(option.name, option.default, option.says) for option in rule.options],
        **{name: getattr(rule, name).words for name in _GATES},
    }


def _decoded(told: dict[str, Any]) -> Rule:
    costs = told["costs"]
    options = (
        Option(name, tuple(default) if isinstance(default, list) else default, says) for name, default, says in told["options"]
    )
    read = {
        "check": _Deferred(told["module"]),
        "severity": Severity(told["severity"]),
        "costs": Cost(costs) if costs is not None else None,
        "calls": tuple(told["calls"]),
        "options": tuple(options),
        **{name: Gate(tuple(told[name])) for name in _GATES},
    }
    return Rule(**(told | read))
