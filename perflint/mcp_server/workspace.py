"""The folder that an agent works in: what it may ask about, and what perflint does there."""

from __future__ import annotations

import gc
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from perflint.fix.diff import patch
from perflint.fix.differences import differences
from perflint.fix.fixer import fixed_raw
from perflint.project.config import ConfigError
from perflint.project.discover import PathError
from perflint.project.files import confine, may_read, read_file
from perflint.report.assumptions import contradictions
from perflint.report.baseline import Baselines
from perflint.report.data import record
from perflint.report.places import Places
from perflint.rule.assumptions import require_known
from perflint.rule.finding import Edit, Finding, Severity
from perflint.rule.rule import Rule
from perflint.run.outcome import Checked
from perflint.run.result import Result
from perflint.run.run import Run
from perflint.source.source import Source


class Refused(Exception):
    """A request cannot be served; the message says what to do."""


class Workspace:
    """A folder outside of which nothing is read or written by this process, from when it is made."""

    def __init__(self, root: str, rules: Sequence[Rule]) -> None:
        self.root = os.path.realpath(root)
        self.rules = rules
        self._one_at_a_time = threading.Lock()
        os.chdir(self.root)
        confine(self.root)

    def path(self, name: str) -> str:
        """The absolute path that a name means, which is relative to the root.

        Raises:
            Refused: it is not there, or leads out of the root.

        """
        path = os.path.normpath(os.path.join(self.root, name))
        if "\0" in name or not (path == self.root or path.startswith(self.root.rstrip(os.sep) + os.sep)) or not may_read(path):
            raise Refused(f"{name!r} is outside of the workspace {self.root}")
        if not os.path.exists(path):
            raise Refused(f"{name!r}: no such file or directory in {self.root}")
        return path

    def check(self, paths: Sequence[str], select: Sequence[str], least: Severity, limit: int) -> dict[str, Any]:
        """The findings in files and folders, the worst first, with all that is needed to apply each fix."""
        asked = [self.path(name) for name in paths]
        with self._run():
            run = Run(self.rules, None, {"select": tuple(select)} if select else {})
            result = run.check(run.find(asked))
            if any(run.configurations.of(os.path.dirname(os.path.abspath(c.path))).baseline for c in result.checked):
                Baselines(run, asked).narrow(result)
        ranks = list(Severity)
        found = [pair for pair in result.findings if ranks.index(pair[1].severity) <= ranks.index(least)]
        found.sort(key=lambda pair: pair[1].order)
        return {
            "root": self.root,
            "files_checked": len(result.checked),
            "total": len(found),
            "findings": [_record(*pair, run) for pair in found[:limit]],
            "sync_budgets": [str(budget) for checked in result.checked for budget in checked.budgets if budget.written],
        }

    def fix(
        self, paths: Sequence[str], select: Sequence[str], assume: Sequence[str], *, unsafe: bool, apply: bool
    ) -> dict[str, Any]:
        """What fixing files and folders changes, as a patch; with `apply` the files are written."""
        asked = [self.path(name) for name in paths]
        overrides: dict[str, Any] = {"unsafe_fixes": unsafe, "assume": tuple(assume)}
        with self._run():
            require_known(assume, "assume")
            run = Run(self.rules, None, overrides | ({"select": tuple(select)} if select else {}))
            found = run.find(asked)
            for line in contradictions(found.files, assume):
                raise Refused(line)
            result = run.fix(found, unsafe=unsafe, write_files=apply)
        return {
            "root": self.root,
            "applied": apply,
            "changed": [
                {
                    "filename": fixed.path,
                    "fixed": dict(sorted(fixed.applied.items())),
                    "sha256_before": hashlib.sha256(fixed.before).hexdigest(),
                    "sha256_after": hashlib.sha256(fixed.after).hexdigest(),
                }
                for fixed in result.fixed
            ],
            "patch": b"".join(line for fixed in result.fixed for line in patch(fixed)).decode("utf-8", "replace"),
            "left": _left(result),
        }

    @contextmanager
    def _run(self) -> Iterator[None]:
        """One run at a time, which refuses what it cannot do, and leaves no memory behind."""
        with self._one_at_a_time:
            try:
                yield
            except (ConfigError, PathError, ValueError) as error:
                raise Refused(str(error)) from None
            finally:
                gc.collect()  # Python would wait for a million new objects


def _left(result: Result) -> dict[str, int]:
    """How many findings are left, by what could be done about them."""
    left = {"safe": 0, "assuming": 0, "unsafe": 0, "no fix": 0}
    for _, finding in result.findings:
        left[finding.fix.applicability.value if finding.fix is not None else "no fix"] += 1
    return left


def _record(checked: Checked, finding: Finding, run: Run) -> dict[str, Any]:
    """A finding as `--output-format json` has it; the edits of its fix are those of the file, imports included."""
    path = os.path.abspath(checked.path)
    found = record(checked, finding, run.configurations.of(os.path.dirname(path)).docs_url)
    source = checked.source
    if found["fix"] is None or source is None:
        return found
    data = read_file(path)
    found["fix"]["edits"] = _edits(checked, finding, source, data)
    found["fix"]["sha256"] = hashlib.sha256(data).hexdigest() if data is not None else None
    return found


def _edits(checked: Checked, finding: Finding, source: Source, data: bytes | None) -> list[Mapping[str, Any]] | None:
    """The edits of a file that fix a finding; None where they are not known to hold for its present bytes."""
    after = fixed_raw(source, [finding])
    if data is None or after is None:
        return None
    if source.cells is None:
        return _placed(source, differences(source.raw, after)) if source.encode(source.raw) == data else None
    places = Places(lambda path: data)
    file, edits = places.file(checked), places.edits(checked, finding)
    return _placed(file, edits) if file is not None and edits is not None else None


def _placed(file: Source, edits: Sequence[Edit]) -> list[Mapping[str, Any]]:
    """Edits with byte offsets in the file, rows and columns from 1 in characters."""
    placed: list[Mapping[str, Any]] = []
    for edit in edits:
        start, end = file.position(edit.start), file.position(edit.end)
        placed.append(
            {
                "start_byte": len(file.encode(file.raw[: edit.start])),
                "end_byte": len(file.encode(file.raw[: edit.end])),
                "location": {"row": start.row, "column": start.column},
                "end_location": {"row": end.row, "column": end.column},
                "content": edit.content,
            }
        )
    return placed
