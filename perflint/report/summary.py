"""The last lines of a report: how much was found, what was fixed, what is left."""

from __future__ import annotations

from collections.abc import Iterator

from perflint.report.text import printable
from perflint.rule.assumptions import ORDINARY, declared
from perflint.rule.finding import Fix, Permission
from perflint.run.result import Result
from perflint.source.words import counted

_ORDINARY = Permission(assumed=declared([ORDINARY], runtime=False))
_GUARDED = Permission(assumed=declared([ORDINARY], runtime=True))


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
        yield "Nothing found beside the sync budgets." if any(budgets(result)) else "All checks passed."
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


def applicable(result: Result) -> tuple[int, int, int]:
    """How many fixes are applied as configured, how many others with `--assume ordinary`, and how many with the runtime.

    The last ones may need `ordinary`, too.
    """
    ready, assumable, guarded = 0, 0, 0
    for permission, fix in fixes(result):
        if permission.covers(fix):
            ready += 1
        elif _ORDINARY.covers(fix):
            assumable += 1
        elif _GUARDED.covers(fix):
            guarded += 1
    return ready, assumable, guarded


def fixes(result: Result) -> Iterator[tuple[Permission, Fix]]:
    """The fixes of all findings, with what may be applied to their files."""
    for checked, finding in result.findings:
        if finding.fix is not None:
            yield result.permissions.get(checked.path, Permission()), finding.fix


def _offers(result: Result, *, is_merged: bool = False, after_fixing: bool = False) -> Iterator[str]:
    """What `fix` would do, and with which options it would do more."""
    ready, assumable, guarded = applicable(result)
    unsafe = sum(finding.fix is not None for _, finding in result.findings) - ready - assumable - guarded
    offers = [(assumable, "--assume ordinary"), (guarded, "--runtime"), (unsafe, "--unsafe-fixes")]
    parts: list[str] = []
    for count, option in offers if after_fixing else [(ready, ""), *offers]:
        if not count:
            continue
        is_first = not (parts or after_fixing)
        number = counted(count, "place") if is_first and is_merged else count
        how = f"perflint fix {option}".rstrip() if is_first else option
        parts.append(f"{number} {'fixable' if is_first else 'more'} with `{how}`")
    if parts:
        see = " (see `perflint assumptions`)" if assumable or guarded else ""
        yield f"{', '.join(parts)}{see}."
