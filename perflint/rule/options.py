"""What a configuration says about the options of single rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perflint.project.config import Config, ConfigError, Options, nearest
from perflint.rule.assumptions import declared
from perflint.rule.rule import Rule


def options_of(rules: Iterable[Rule], config: Config) -> Options:
    """What a configuration lets rules do.

    Raises:
        ConfigError: as `configured` says.

    """
    assumed = frozenset(kind.value for kind in declared(config.assume, config.runtime))
    return Options(config.offered_runtime, assumed, config.compiled, configured(rules, config))


def configured(rules: Iterable[Rule], config: Config) -> Mapping[str, Mapping[str, int | tuple[str, ...]]]:
    """The options that a configuration sets, by rule and name.

    Raises:
        ConfigError: a rule or an option of a name that there is none of, or a value of the wrong type.

    """
    known = {rule.name: {option.name: option for option in rule.options} for rule in rules}
    found: dict[str, dict[str, int | tuple[str, ...]]] = {}
    for rule, values in config.options.items():
        _require(rule, known, "rule", config)
        for name, value in values.items():
            _require(name, known[rule], f"option of {rule}", config)
            option = known[rule][name]
            if not option.accepts(value):
                raise _error(config, f"`options.{rule}.{name}` must be {option.takes}")
            found.setdefault(rule, {})[name] = tuple(value) if isinstance(value, list) else value
    return found


def _require(name: str, known: Mapping[str, object], what: str, config: Config) -> None:
    if name not in known:
        near = nearest(name, known)
        raise _error(
            config,
            f"no {what} is named `{name}`"
            + (f"; did you mean `{near}`?" if near else "; `perflint rules --options` lists them"),
        )


def _error(config: Config, text: str) -> ConfigError:
    return ConfigError(f"{config.path}: {text}" if config.path is not None else text)
