"""What is not proved about reads that are made later: no rule by itself."""

from collections.abc import Iterable, Iterator, Mapping

from perflint.api import (
    BUILT_FROM_TEXT,
    FINDS_VARIABLES,
    LOOKS_AT_FRAMES,
    OWN_TENSORS,
    Block,
    Code,
    Kind,
    Loop,
    Obligation,
    untimed,
    without_effect,
)
from perflint_rules.late_numbers import Reads, open_about, read_for
from perflint_rules.late_order import out_of_order
from perflint_rules.late_takes import Take


def open_about_takes(
    code: Code, takes: Mapping[Take, Loop | None], blocks: Iterable[Block], reads: Reads
) -> Iterator[Obligation | None]:
    """The proofs that a safe fix needs and that do not hold. takes: with the loops around them; blocks: those within these."""
    flow = code.flow
    if any(block.kind == "try" and getattr(block.node, "handlers", None) for block in blocks):
        yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of the device would no longer be handled where it is now")
    if code.scope.is_module:
        yield from code.feared(BUILT_FROM_TEXT, FINDS_VARIABLES)
    if any(take.way == "meter" for take in takes):
        yield Obligation(Kind.ERRORS_ARE_BUGS, "what the meter raises would be raised when somebody looks at it")
    yield from code.feared(OWN_TENSORS, LOOKS_AT_FRAMES)
    calls = [call for call in flow.calls if any(loop is None or flow.within(call, loop.block) for loop in takes.values())]
    yield untimed(calls)
    yield from code.needs_wait()
    for take in takes:
        for part in filter(None, (take.weight, take.times, take.divisor, take.power, take.key)):
            yield without_effect(code.facts, code.scope, part)
        yield from out_of_order(code, take.before_taken(flow), read_for(code, reads, take.taken))
        yield from open_about(code, reads, take.taken)
