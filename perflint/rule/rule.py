"""What a rule is, and what it reports.

A rule is one function over a scope, declared once:

    @rule(category="transfer", severity=Severity.WARNING, needs=[(".to(", ".cuda(")])
    def check(code: Code) -> Iterator[Finding]: ...

`needs` is a conjunction of alternatives: a scope is parsed and shown to the rule only if its text holds, for each
group, one of the group's words or patterns. `in_file` is the same for the whole file, and asks for "torch" unless the
rule says otherwise. So the words must be ones without which the rule cannot fire; the fewer functions hold them, the
faster perflint is.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflint.rule.finding import Cost, Finding, Severity
from perflint.rule.option import Option
from perflint.source.gate import Gate, Needles, Word
from perflint.source.renaming import renamed
from perflint.source.source import Source

if TYPE_CHECKING:
    from perflint.rule.code import Code


Check = Callable[["Code"], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """A rule with its metadata. `module` is where it is declared."""

    name: str
    category: str
    severity: Severity
    needs: Gate
    in_file: Gate
    near: Gate
    check: Check
    module: str
    fixes: bool = False
    steps: bool = False
    costs: Cost | None = None
    calls: tuple[str, ...] = ()
    compiled: bool = False
    options: tuple[Option[Any], ...] = ()
    in_budget: bool = False
    by_fix: bool = False

    def gate_in(self, source: Source) -> Gate:
        """`needs`, with what else the file calls the functions that the rule is about."""
        others = renamed(source, self.calls) if self.calls else ()
        return self.needs.widened(self.calls, others) if others else self.needs

    @property
    def is_default(self) -> bool:
        """Whether what it finds is reported where nobody selects it."""
        return self.severity is not Severity.INFO and not self.in_budget

    @property
    def page(self) -> str:
        """The documentation that the rule's module opens with."""
        return inspect.getdoc(importlib.import_module(self.module)) or ""

    @property
    def summary(self) -> str:
        """The page's first line."""
        return self.page.strip().partition("\n")[0].rstrip(".")

    def wants_file(self, needles: Needles) -> bool:
        """Whether a file holds the words without which the rule cannot fire in it."""
        return needles.opens(self.in_file) and needles.opens(self.needs)


def rule(
    *,
    category: str,
    severity: Severity,
    needs: Iterable[Iterable[Word]] = (),
    calls: Iterable[str] = (),
    in_file: Iterable[Iterable[Word]] = (("torch",),),
    near: Iterable[Iterable[Word]] = (),
    fixes: bool = False,
    steps: bool = False,
    compiled: bool = False,
    costs: Cost | None = None,
    options: Iterable[Option[Any]] = (),
    in_budget: bool = False,
    by_fix: bool = False,
) -> Callable[[Check], Rule]:
    """Declare a rule. Its name is its module's, in kebab-case; its page is its module's docstring.

    category: what it is about, also a name to select it by; a pack names its own.
    costs: what the flaw costs; None for what is an error.
    calls: qualified names of functions and classes; the rule cannot fire in a scope that calls none of them, by whatever name.
    `code.calls_to` finds these calls.
    needs, in_file: the words without which the rule cannot fire in a scope, or in a file (see the head of this module).
    near: the words without which the rule cannot fire that stand in the file, in one that it imports or in one that imports it;
    where that is a package, also in what the package imports.
    options: what a user may set for this rule; `code.option` has the value.
    fixes: whether the rule ever offers a fix.
    in_budget: whether what it finds are waits of a step: the sync budget counts them, and they are told on request, or where a
    profile says what they cost.
    by_fix: whether what it finds is worth a minute only with a fix that can be taken without a look.
    steps: whether the rule looks at code that runs once per batch only, so that a file far from any such loop needs no look.
    compiled: the same for code that runs compiled by `torch.compile`, and a file to which nothing leads that compiles.
    """
    needs, in_file, near = tuple(needs), tuple(in_file), tuple(near)
    if any(isinstance(group, str) for group in (*needs, *in_file, *near)):
        raise TypeError("a word stands where a tuple of words is meant: `needs=[('zero_grad(',)]`")

    def declare(check: Check) -> Rule:
        name = check.__module__.rpartition(".")[2].replace("_", "-")
        last = tuple(sorted({qualname.rpartition(".")[2] for qualname in calls}))
        gates = (Gate.of([*needs, last] if last else needs), Gate.of(in_file), Gate.of(near))
        module, taken = check.__module__, tuple(options)
        worth = (in_budget, by_fix)
        return Rule(name, category, severity, *gates, check, module, fixes, steps, costs, last, compiled, taken, *worth)

    return declare
