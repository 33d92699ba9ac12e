"""What a profile says of a place in the program, and whether a finding there matters."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from perflint.rule.finding import ENGINE, Finding, Severity

THRESHOLD = 0.001
"""The part of a step below which a finding does not matter."""


class ProfileError(Exception):
    """A file is no profile; the message says what to do."""


@dataclass(frozen=True)
class Cost:
    """Milliseconds per step. `ms` ranks: the statement itself, on CPU and device. `most_ms` holds all that runs inside it."""

    ms: float
    most_ms: float


class Costs:
    """The costs in a record of `perflint profile`."""

    def __init__(self, record: dict[str, Any], threshold: float = THRESHOLD) -> None:
        self.unit: str = record["unit"]
        self.unit_ms: float = record["unit_ms"]
        self.device: str | None = record["machine"]["device"]
        self.threshold = threshold
        self._statements: dict[str, list[dict[str, Any]]] = {file: held["statements"] for file, held in record["files"].items()}
        self._hashes: dict[str, str] = {file: held["sha256"] for file, held in record["files"].items()}

    @classmethod
    def load(cls, path: str, threshold: float = THRESHOLD) -> Costs:
        """Read a file that `perflint profile --json` wrote.

        Raises:
            ProfileError: it cannot be read, or is something else.

        """
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
            if record["kind"] != "profile" or record["format"] != 1:
                raise KeyError("kind")
            return cls(record, threshold)
        except OSError as error:
            raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise ProfileError(f"{path}: this is no record of `perflint profile --json`") from None

    def file(self, path: str) -> str | None:
        """The name in the profile of a file of the project: the longest one that the path ends with."""
        parts = PurePath(path).parts
        names = [name for name in self._statements if parts[-len(PurePath(name).parts) :] == PurePath(name).parts]
        return max(names, key=len, default=None)

    def is_current(self, file: str, text: bytes) -> bool:
        """Whether a file's bytes are those that were profiled."""
        return self._hashes[file] == hashlib.sha256(text).hexdigest()

    def of(self, file: str, row: int) -> Cost | None:
        """The cost of the statement in a row; None if it did not run while steps were timed."""
        held = self._statements.get(file, [])
        own = next((entry for entry in held if entry["line"] <= row <= entry["last_line"] and entry["is_timed"]), None)
        if own is None:
            return None
        inside = [entry for entry in held if own["line"] <= entry["line"] <= own["block_end"]]
        most = sum(max(entry["whole_ms"], entry["own_ms"] + entry["device_ms"]) for entry in inside)
        return Cost(own["own_ms"] + own["device_ms"], most)

    def matters(self, finding: Finding, cost: Cost | None) -> bool:
        """Whether a finding is worth to be shown: if nothing is known of its cost, or it is an error, too."""
        if cost is None or finding.severity is Severity.ERROR or finding.category == ENGINE:
            return True
        if finding.costs is not None and not finding.costs.is_at_its_line:
            return True
        return cost.most_ms >= self.threshold * self.unit_ms
