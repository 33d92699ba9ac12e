"""Baselines: the findings that a project knows and lives with, in a file, so that only new ones are reported."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perflint.project.config import ConfigError
from perflint.project.files import require_readable
from perflint.report.fingerprint import Fingerprint, fingerprint
from perflint.report.output import write_text
from perflint.rule.finding import Finding
from perflint.rule.selection import UNUSED_SUPPRESSION
from perflint.run.outcome import Checked
from perflint.run.result import Result
from perflint.source.source import Source
from perflint.source.words import counted

if TYPE_CHECKING:
    from perflint.run.run import Run

VERSION = 1


class BaselineError(ConfigError):
    """A baseline cannot be read or written. The message says which, why, and what to do."""


@dataclass
class Standing:
    """What a result has of the baselines of its files. known: findings that stand in one; gone: entries without a finding."""

    files: list[str] = field(default_factory=list)
    known: int = 0
    gone: int = 0

    def lines(self, *, fixing: bool) -> Iterator[str]:
        """What a reader should know of it. fixing: whether findings that are not known were fixed."""
        names = ", ".join(os.path.relpath(path) for path in self.files)
        if self.known:
            others = "; `--no-baseline` fixes known ones, too" if fixing else ""
            yield f"{counted(self.known, 'known finding')} in {names}{others}."
        if self.gone:
            verb, them = ("is", "it") if self.gone == 1 else ("are", "them")
            yield f"{counted(self.gone, 'finding')} of {names} {verb} gone; `--update-baseline` removes {them}."


class Baselines:
    """The baselines of the files of a run: each file has that of its configuration. paths: what the run was asked to check."""

    def __init__(self, run: Run, paths: Sequence[str]) -> None:
        self._run = run
        self._paths = [os.path.abspath(path) for path in paths]
        self._loaded: dict[str, Counter[Fingerprint]] = {}

    def narrow(self, result: Result) -> Standing:
        """Leave the findings in a result that its baselines do not know. Of several alike, the last ones are the new ones.

        Raises:
            BaselineError: a baseline cannot be read.

        """
        left = {path: load(path) for path in self._files(result)}
        known = _known(left, self._fingerprints(result.checked))
        result.keep(lambda checked, finding: id(finding) not in known)
        gone = sum(count for path in left for found, count in left[path].items() if self._is_looked_at(path, found))
        return Standing(list(left), len(known), gone)

    def new(self, source: Source, findings: Sequence[Finding], fixable: Sequence[Finding]) -> Sequence[Finding]:
        """The fixable findings of a text that its baseline does not know, for `fix_text`.

        Raises:
            BaselineError: the baseline cannot be read.

        """
        path = self._of(source.path)
        if path is None:
            return fixable
        if path not in self._loaded:
            self._loaded[path] = load(path)
        found = self._fingerprints([Checked(source.path, source, list(findings))])
        known = _known({path: self._loaded[path].copy()}, found)
        return [finding for finding in fixable if id(finding) not in known]

    def update(self, result: Result) -> list[str]:
        """Write the findings of a result to the baselines of its files; a line for each that says so.

        What the run did not look at stays in them.

        Raises:
            BaselineError: a baseline cannot be read or written.

        """
        present = {path: Counter[Fingerprint]() for path in self._files(result)}
        for path, found, _ in self._fingerprints(result.checked):
            present[path][found] += 1
        lines = []
        for path, now in present.items():
            before = load(path) if os.path.lexists(path) else Counter[Fingerprint]()
            now.update({found: count for found, count in before.items() if not self._is_looked_at(path, found)})
            _write(path, now)
            added, removed = (now - before).total(), (before - now).total()
            lines.append(f"{os.path.relpath(path)}: {counted(now.total(), 'finding')}, {added:,} added, {removed:,} removed.")
        return lines

    def _of(self, shown: str) -> str | None:
        """The absolute path of the baseline of a file, which is named as reports name it; None if it has none."""
        config = self._run.configurations.of(os.path.dirname(os.path.abspath(shown)))
        return config.resolved(config.baseline) if config.baseline is not None else None

    def _files(self, result: Result) -> list[str]:
        return sorted({path for checked in result.checked if (path := self._of(checked.path)) is not None})

    def _fingerprints(self, files: Iterable[Checked]) -> Iterator[tuple[str, Fingerprint, Finding]]:
        """Each finding whose file has a baseline, with the baseline's path."""
        for checked in files:
            path = self._of(checked.path) if checked.findings else None
            if path is not None:
                for finding in checked.findings:
                    yield path, fingerprint(checked, finding, os.path.dirname(path)), finding

    def _is_looked_at(self, baseline: str, found: Fingerprint) -> bool:
        """Whether the run would have reported a finding."""
        path = os.path.normpath(os.path.join(os.path.dirname(baseline), found.path))
        below = (path == asked or path.startswith(asked.rstrip(os.sep) + os.sep) for asked in self._paths)
        return self._looks_for(found.rule) and any(below)

    def _looks_for(self, rule: str) -> bool:
        """Whether the run reports the findings of this name; what is not installed any more is found nowhere."""
        sessions = self._run.sessions
        if rule == UNUSED_SUPPRESSION:
            return any(session.unused_suppressions for session in sessions)
        ran = any(chosen.name == rule for session in sessions for chosen in session.rules)
        return ran or all(installed.name != rule for installed in self._run.rules)


def _known(left: dict[str, Counter[Fingerprint]], found: Iterable[tuple[str, Fingerprint, Finding]]) -> set[int]:
    """Which findings stand in baselines, by their identity; `left` is then what no finding was found for."""
    known: set[int] = set()
    for path, alike, finding in found:
        if left[path][alike] > 0:
            left[path][alike] -= 1
            known.add(id(finding))
    return known


def load(path: str) -> Counter[Fingerprint]:
    """How many findings of each fingerprint a baseline holds.

    Raises:
        BaselineError: there is none, or it is damaged.

    """
    try:
        require_readable(path)
        with open(path, encoding="utf-8") as handle:
            return _counts(json.load(handle))
    except FileNotFoundError:
        raise BaselineError(f"{path}: there is no such baseline; `perflint check --update-baseline` writes it") from None
    except OSError as error:
        raise BaselineError(f"{path}: the baseline cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) else "it is not what `--update-baseline` writes"
        hint = "restore it, or remove it and run `perflint check --update-baseline`"
        raise BaselineError(f"{path}: no valid baseline ({why}); {hint}") from None


def _counts(content: Any) -> Counter[Fingerprint]:
    version = content["version"]
    if version != VERSION:
        raise ValueError(f"version {version!r} is not known to this perflint")
    found: Counter[Fingerprint] = Counter()
    for entry in content["findings"]:
        names, count = [entry[name] for name in Fingerprint._fields], dict(entry).get("count", 1)
        if not (all(isinstance(name, str) for name in names) and isinstance(count, int) and count > 0):
            raise ValueError(f"{entry} is no entry")
        found[Fingerprint(*names)] += count
    return found


def _write(path: str, counts: Counter[Fingerprint]) -> None:
    """A line for each fingerprint, in the order of files, so that changes are easily read and merged."""
    entries = []
    for found in sorted(counts, key=lambda f: (f.path, f.function, f.rule, f.code)):
        entry: dict[str, str | int] = {"path": found.path, "function": found.function, "rule": found.rule, "code": found.code}
        if counts[found] > 1:
            entry["count"] = counts[found]
        entries.append(f"  {json.dumps(entry)}")
    listed = "[\n" + ",\n".join(entries) + "\n ]" if entries else "[]"
    try:
        write_text(path, f'{{"version": {VERSION},\n "findings": {listed}\n}}\n')
    except OSError as error:
        raise BaselineError(f"{path}: the baseline cannot be written: {error.strerror}") from None
