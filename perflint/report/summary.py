"""The last lines of a report: how much was found, what was fixed, what is left."""

from __future__ import annotations

from collections.abc import Iterator

from perflint.report.text import printable
from perflint.rule.assumptions import ORDINARY, kinds_of
from perflint.rule.finding import Fix, Permission
from perflint.run.result import Result
from perflint.source.words import counted

_ORDINARY = Permission(assumed=kinds_of([ORDINARY]))


def budgets(result: Result) -> Iterator[str]:
    """The sync budget of each training loop that waits."""
    for checked in result.checked:
        for budget in checked.budgets:
            if budget.written:
                yield f"sync budget: {printable(str(budget))}"


def of_findings(result: Result, flaws: int | None = None) -> Iterator[str]:
    """How many findings there are, and how many of them can be fixed. flaws: how many a report has made of them."""
    found = len(result.findings)
    if not found:
        yield "All checks passed."
        return
    is_merged = flaws is not None and flaws < found
    at = f" at {counted(found, 'place')}" if is_merged else ""
    yield f"Found {counted(flaws or found, 'finding')}{at}."
    yield from _offers(result, is_merged=is_merged)


def of_fixes(result: Result, *, unsafe: bool, writing: bool) -> Iterator[str]:
    """What was fixed, a line for each file and rule, and how much is left. writing: whether files were changed."""
    for fixed in result.fixed:
        for rule, count in sorted(fixed.applied.items()):
            yield f"{printable(fixed.path)}: {rule}{f', {count} places' if count > 1 else ''}"
    done, left = sum(result.applied.values()), len(result.findings)
    if done:
        verb = "Fixed" if writing else "Would fix"
        yield f"{verb} {counted(done, 'finding')} in {counted(len(result.fixed), 'file')}{f', {left} left' if left else ''}."
    elif left:
        yield f"Fixed nothing, {counted(left, 'finding')} left."
    else:
        yield "All checks passed."
    if left:
        yield from () if unsafe else _offers(result, after_fixing=True)
        yield "`perflint check` shows what is left."


def applicable(result: Result) -> tuple[int, int]:
    """How many findings have a fix that is applied as configured, and how many others one that `--assume ordinary` allows."""
    ready = sum(permission.covers(fix) for permission, fix in _fixes(result))
    return ready, sum(_ORDINARY.covers(fix) and not permission.covers(fix) for permission, fix in _fixes(result))


def _fixes(result: Result) -> Iterator[tuple[Permission, Fix]]:
    for checked, finding in result.findings:
        if finding.fix is not None:
            yield result.permissions.get(checked.path, Permission()), finding.fix


def _may_be_guarded(result: Result) -> int:
    """How many findings without such a fix belong to rules that have more of them with the runtime, which is not on."""
    number = 0
    for checked, finding in result.findings:
        permission, fix = result.permissions.get(checked.path, Permission()), finding.fix
        if finding.rule in result.guarded and not permission.runtime:
            number += fix is None or not (permission.covers(fix) or _ORDINARY.covers(fix))
    return number


def _offers(result: Result, *, is_merged: bool = False, after_fixing: bool = False) -> Iterator[str]:
    """What `fix` would do, and with which options it would do more."""
    ready, assumable = applicable(result)
    guarded = _may_be_guarded(result)
    unsafe = sum(finding.fix is not None for _, finding in result.findings) - ready - assumable
    offers = [(assumable, "--assume ordinary"), (unsafe, "--unsafe-fixes")]
    parts: list[str] = []
    for count, option in offers if after_fixing else [(ready, ""), *offers]:
        if not count:
            continue
        is_first = not (parts or after_fixing)
        number = counted(count, "place") if is_first and is_merged else count
        how = f"perflint fix {option}".rstrip() if is_first else option
        parts.append(f"{number} {'fixable' if is_first else 'more'} with `{how}`")
    if guarded:
        parts.append(f"up to {guarded} with `--runtime`")
    if parts:
        see = " (see `perflint assumptions`)" if assumable or guarded else ""
        yield f"{', '.join(parts)}{see}."
