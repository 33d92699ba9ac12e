"""Makes docs/coverage.md: which rule covers what the official guides ask for.

The items are those of docs/coverage.toml; a rule's `fixtures/<rule>/evidence.toml` names the ones that it covers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = Path(__file__).parent
FIXTURES = DOCS.parent / "fixtures"


@dataclass
class Item:
    """Something that a guide asks for. seen: whether the source shows it, "yes", "partly" or "no"; why: no rule covers it."""

    name: str
    family: str
    text: str
    guides: list[str]
    seen: str
    why: str = ""
    rules: list[str] = field(default_factory=list)

    @property
    def is_visible(self) -> bool:
        """Whether the source shows it, at least in part."""
        return self.seen != "no"


def items() -> list[Item]:
    """All items, with the rules that cover them.

    Raises:
        ValueError: a rule names an item that does not exist, or nothing covers an item and it does not say why.

    """
    found = {row["name"]: Item(**row) for row in _data()["item"]}
    for path in sorted(FIXTURES.glob("*/evidence.toml")):
        for name in tomllib.loads(path.read_text(encoding="utf-8")).get("covers", ()):
            if name not in found:
                raise ValueError(f"{path.parent.name}/evidence.toml: docs/coverage.toml has no item `{name}`")
            found[name].rules.append(path.parent.name)
    if silent := [item.name for item in found.values() if not item.rules and not item.why]:
        raise ValueError(f"docs/coverage.toml: no rule covers {', '.join(silent)}; say `why`")
    return list(found.values())


def page() -> str:
    """The page as Markdown."""
    every = items()
    visible = [item for item in every if item.is_visible]
    covered = sum(bool(item.rules) for item in visible)
    lines = [
        "# What the guides ask for",
        "",
        f"Official guides and tools ask for {len(every)} things that make training faster or smaller. The source shows",
        f"{len(visible)} of them, some in part; perflint has a rule for {covered}. What a finding promises stands on its",
        "rule's page.",
        "",
    ]
    for family in dict.fromkeys(item.family for item in every):
        lines += [f"## {family}", "", "| item | guides | in the source | rules |", "|---|---|---|---|"]
        lines += [_row(item) for item in every if item.family == family]
        lines.append("")
    lines += ["## Guides", "", *(f"- {short}: {name}" for short, name in _data()["guides"].items()), ""]
    return "\n".join(lines)


def _row(item: Item) -> str:
    rules = ", ".join(f"[{rule}](rules/{rule}.md)" for rule in item.rules)
    told = "; ".join(part for part in (rules, f"no rule: {item.why}" if not item.rules else "") if part)
    return f"| {item.text} | {', '.join(item.guides)} | {item.seen} | {told} |"


def _data() -> dict[str, Any]:
    return tomllib.loads((DOCS / "coverage.toml").read_text(encoding="utf-8"))
