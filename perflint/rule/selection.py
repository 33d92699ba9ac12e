"""Which rules a configuration selects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perflint.project.config import Config, ConfigError, nearest
from perflint.rule.finding import ENGINE, Severity
from perflint.rule.rule import Rule

UNUSED_SUPPRESSION = "unused-suppression"
ENGINE_FINDINGS = frozenset({"internal-error", "invalid-syntax", "unreadable-file", UNUSED_SUPPRESSION})
"""What perflint reports without a rule."""


def selected(rules: Sequence[Rule], config: Config) -> list[Rule]:
    """The rules that a configuration selects.

    Names, categories and `all` may be given. By default errors and warnings run, advice does not.

    Raises:
        ConfigError: a name that is neither a rule nor a group.

    """
    groups = {rule.category for rule in rules} | {ENGINE, "all"}
    names = {rule.name for rule in rules} | groups | {UNUSED_SUPPRESSION}
    given = (*config.select, *config.extend_select, *config.ignore, *(n for v in config.per_file_ignores.values() for n in v))
    for name in given:
        try:
            require_known(name, names)
        except ConfigError as error:
            raise ConfigError(f"{config.path}: {error}" if config.path is not None else str(error)) from None
    chosen = [r for r in rules if _chosen((r.name, r.category, "all"), r.severity is not Severity.INFO, config)]
    return sorted(chosen, key=lambda rule: rule.name)


def asked_for(rules: Iterable[Rule], config: Config) -> frozenset[str]:
    """The names of the rules that a configuration selects itself, by name, category or `all`: they report advice, too."""
    given = {*config.select, *config.extend_select}
    return frozenset(rule.name for rule in rules if not given.isdisjoint((rule.name, rule.category, "all")))


def reports_unused_suppressions(config: Config) -> bool:
    """Whether suppressions that silence nothing are reported."""
    return _chosen((UNUSED_SUPPRESSION, ENGINE, "all"), True, config)


def _chosen(names: tuple[str, ...], by_default: bool, config: Config) -> bool:
    """Whether a finding that goes by these names is selected."""
    selected = any(name in config.select for name in names) if config.select else by_default
    selected = selected or any(name in config.extend_select for name in names)
    return selected and not any(name in config.ignore for name in names)


def require_known(name: str, names: Iterable[str]) -> None:
    """Raise `ConfigError` with the nearest name if `name` is unknown."""
    known = set(names)
    if name not in known:
        if name in ENGINE_FINDINGS:
            raise ConfigError(f"`{name}` is always reported; leave the file out with `exclude`")
        near = nearest(name, known)
        hint = f"; did you mean `{near}`?" if near else "; `perflint rules` lists them"
        raise ConfigError(f"no rule or group is named `{name}`{hint}")
