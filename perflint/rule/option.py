"""What an option of a rule is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Setting = TypeVar("Setting", int, tuple[str, ...])


@dataclass(frozen=True)
class Option(Generic[Setting]):
    """One option of a rule: a whole number, or a list of names, as its default is. says: what it does, in a sentence."""

    name: str
    default: Setting
    says: str

    @property
    def takes(self) -> str:
        """Which values it takes, in words."""
        return "a list of strings" if isinstance(self.default, tuple) else "a whole number, 0 or more"

    def accepts(self, value: object) -> bool:
        """Whether a value, as a TOML file holds it, is one of these."""
        if isinstance(self.default, tuple):
            return isinstance(value, list) and all(isinstance(part, str) for part in value)
        return type(value) is int and value >= 0
