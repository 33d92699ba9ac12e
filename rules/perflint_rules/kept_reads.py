"""Rewrites that keep a read's tensor on the device until somebody looks at what the step has made of it: no rule by itself."""

from perflint.api import IDLE_SINKS, CannotRewrite, Code, HostRead, Rate, Sink, goes_over_parameters, is_refuted, rate_of
from perflint_rules.kept_lists import Listed
from perflint_rules.kept_locals import Kept, means_item
from perflint_rules.kept_names import Named
from perflint_rules.kept_totals import Total
from perflint_rules.late_reads import Late


def kept(code: Code, read: HostRead) -> "Kept | Late | None":
    """The local that takes the read, where it is one that can keep device values, in the form of which most is proved."""
    loop = code.step_loop(read.node)
    if loop is None:  # a loop within a function that runs in each step: one wait instead of many
        return _behind_inner(code, read)
    if loop.statement is None:
        return None
    plain: Kept | None = None
    if means_item(code, read):
        plain = (
            Total.find(code, read, loop, read.node) or Listed.find(code, read, loop, read.node) or Named.find(code, read, loop)
        )
    late = Late.find(code, read, is_inner=False) if code.offers_runtime else None
    if late is not None and _what_is_open(late) == 3 and code.flow.loop(read.node) is not loop:
        late = _behind_inner(code, read) or late
    if plain is None or late is None:
        return plain or late
    asks = plain.asks and code.may_use_runtime  # the runtime asks by itself
    forms: list[Kept | Late] = [late, plain] if asks else [plain, late]
    return min(forms, key=_what_is_open)


def may_come_late(sinks: frozenset[Sink]) -> bool:
    """Whether nothing that becomes of a value needs it within the step."""
    return bool(sinks) and sinks <= IDLE_SINKS | {Sink.RETURN}


def can_wait(code: Code, read: HostRead) -> bool:
    """Whether a read can be made later without anything left to prove, but for what a project may declare of itself."""
    form = kept(code, read)
    return form is not None and _what_is_open(form) < 2 and (code.may_use_runtime or not isinstance(form, Late))


def kept_over_parameters(code: Code, read: HostRead) -> Late | None:
    """The local that takes the read in a loop over parameters, where it can be read behind that loop."""
    loop = code.flow.loop(read.node)
    return _behind_inner(code, read) if loop is not None and goes_over_parameters(loop) else None


def is_looked_at_in_step(code: Code, read: HostRead) -> bool:
    """Whether what takes a read is read behind a loop of a function that each step calls: there the wait is one, but stays.

    Of a loop over samples or parameters it takes many away.
    """
    return code.heat is not None and rate_of(code.facts, code.scope, read.node) not in (Rate.PER_SAMPLE, Rate.PER_PARAMETER)


def _behind_inner(code: Code, read: HostRead) -> Late | None:
    """What takes the read, where it can be read behind the innermost loop."""
    loop = code.flow.loop(read.node)
    if not code.offers_runtime or loop is None or loop.statement is None:
        return None
    late = Late.find(code, read, is_inner=True)
    return late if late is not None and _what_is_open(late) < 3 else None


def _what_is_open(form: "Kept | Late") -> int:
    """How much of a proof is missing: nothing, what can be declared, what cannot, or even how to write it."""
    try:
        list(form.parts())
    except CannotRewrite:
        return 3
    missing = [obligation for obligation in form.missing() if obligation is not None]
    is_installed = not isinstance(form, Late) or form.code.may_use_runtime
    return 2 if is_refuted(missing) else 0 if is_installed and not missing else 1
