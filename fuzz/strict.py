"""A rule that fails ends the run, instead of being one finding among others: for those who look for such rules."""

from typing import NoReturn

from perflint.run import engine


def let_failures_out() -> None:
    """Have this process, and those that are forked from it, raise what a rule raises."""
    engine._internal_error = _raised


def _raised(source: object, scope: object, rule: object, error: Exception) -> NoReturn:
    raise AssertionError("a rule failed") from error
