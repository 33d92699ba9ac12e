"""What a shell offers when the command line is completed."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class


def script(shell: str, command: click.Command) -> str:
    """What a shell runs to complete `perflint`."""
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(command, {}, "perflint", "_PERFLINT_COMPLETE").source()


def names(incomplete: str, *, groups: bool) -> list[CompletionItem]:
    """The rules whose names begin like the last of a list of names. groups: whether groups and `all` may stand there, too."""
    from perflint.rule.registry import all_rules

    before, comma, last = incomplete.rpartition(",")
    found = {rule.name: rule.summary for rule in all_rules()}
    if groups:
        found |= {rule.category: f"the group {rule.category}" for rule in all_rules()} | {"all": "every rule"}
    return [CompletionItem(f"{before}{comma}{name}", help=found[name]) for name in sorted(found) if name.startswith(last)]
