"""Several reads of one step that can be made with one wait: no rule by itself."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perflint.api import (
    LOOKS_AT_FRAMES,
    OWN_TENSORS,
    PATCHED,
    CannotRewrite,
    Code,
    Edit,
    Finding,
    Fix,
    HostRead,
    Import,
    Kind,
    Obligation,
    ReadKind,
    delete_statement,
    free_name,
    insert_before,
    is_refuted,
    replace,
    replace_statement,
    suspends,
    untimed,
)
from perflint_rules.bound_at_once import bound_at_once, bound_first, wanted_name
from perflint_rules.early_reads import made_earlier
from perflint_rules.quiet_code import writes_scalar
from perflint_rules.read_once import is_read_with_others
from perflint_rules.side_by_side import in_place, open_about_place, side_by_side

_HELPERS = {ReadKind.ITEM: "items_together", ReadKind.LOGGER: "copies_together"}
"""What makes several reads of a kind with one wait."""
_CURE = "read them with one wait, by `{}` of the runtime"


@dataclass(frozen=True)
class Together:
    """Reads of several tensors, in the order in which they are made, with what makes them with one wait."""

    reads: Sequence[HostRead]
    missing: Sequence[Obligation]
    fix: Fix

    @property
    def message(self) -> str:
        """What happens, and the cure."""
        *names, last = dict.fromkeys(f"`{ast.unparse(read.tensor)}`" for read in self.reads)
        return f"the CPU waits for {', '.join(names)} and {last} one after the other in every step; {self.fix.message}"


def together(code: Code, reads: Sequence[HostRead]) -> Iterator[Together]:
    """Groups of some reads that can be made at once: where the first of them is made, or in place of elements of a tuple."""
    for kind in _HELPERS:
        of_kind = filter(lambda read: read.kind is kind and _always_runs(code, read), reads)
        alike = sorted(of_kind, key=lambda read: code.flow.order[read.node])
        rows, done = [*side_by_side(code, alike)] if kind is ReadKind.ITEM and code.may_use_runtime else [], set[HostRead]()
        for group in _groups(code, alike):
            if list(group.reads) not in rows:
                done.update(group.reads)
                yield group
        for row in rows:
            missing = [*code.feared(OWN_TENSORS, PATCHED), *open_about_place(code, row)]
            fix = code.fix(_CURE.format(_HELPERS[kind]), in_place(code, row), unless=missing)
            if done.isdisjoint(row) and fix is not None and not is_refuted(missing):
                yield Together(row, missing, fix)


def _groups(code: Code, left: Sequence[HostRead]) -> Iterator[Together]:
    while code.may_use_runtime and left:
        group, missing = [left[0]], [*made_earlier(code, left[0], left[:1])]
        for read in left[1:]:
            open_ = [*made_earlier(code, read, [*group, read])]
            if not is_refuted(open_) and code.flow.siblings(_line(code, read)) is code.flow.siblings(_line(code, group[0])):
                group.append(read)
                missing += open_
        left = [read for read in left if read not in group]
        group += _again(code, group)
        if len({ast.dump(read.tensor) for read in group}) > 1 and not is_refuted(missing):
            missing += [*_open_about_all(code, group)]
            fix = code.fix(_CURE.format(_HELPERS[group[0].kind]), _made(code, group), unless=missing)
            if fix is not None:
                yield Together(group, missing, fix)


def _line(code: Code, read: HostRead) -> ast.stmt:
    return code.flow.statement(read.node)


def _always_runs(code: Code, read: HostRead) -> bool:
    """Whether a read is `x.item()`, or a writer's of what it is given, and is made whenever its statement runs."""
    line = _line(code, read)
    if hasattr(line, "body") or (read.kind is ReadKind.LOGGER and not writes_scalar(code, code.flow.parent.get(read.node))):
        return False
    return code.flow.block[read.node] is code.flow.block[line]


def _again(code: Code, group: Sequence[HostRead]) -> Iterator[HostRead]:
    """Later reads of the same tensors, perhaps now and then, for which the numbers are there already: all is proved."""
    flow, line = code.flow, _line(code, group[0])
    taken = {ast.dump(read.tensor): read.tensor for read in group if isinstance(read.tensor, ast.Name)}
    reads = (
        code.reads()
        if group[0].kind is ReadKind.ITEM
        and any(len(flow.uses[d]) > 1 for t in taken.values() for d in flow.reaching.get(t, ()))
        else []
    )
    for read in reads:
        first = taken.get(ast.dump(read.tensor))
        if first is None or read.kind is not ReadKind.ITEM or flow.order[read.node] <= flow.order[group[-1].node]:
            continue
        if flow.reaching.get(read.tensor) != flow.reaching.get(first) or not flow.dominates(line, read.node):
            continue
        between = list(flow.calls_between(line, read.node))
        open_ = (untimed(between), *code.needs_wait())
        if not any(open_) and not any(made_earlier(code, read, [*group, read])):
            yield read


def _open_about_all(code: Code, group: Sequence[HostRead]) -> Iterator[Obligation]:
    """What stands against it that some reads are made together."""
    between = list(code.flow.calls_between(_line(code, group[0]), group[-1].node))
    if suspends(code.flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function yields or awaits")
    yield from code.feared(OWN_TENSORS, PATCHED, LOOKS_AT_FRAMES)
    yield from filter(None, [untimed(between), *code.needs_wait()])
    yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of a later read would be raised before the earlier lines run")


def _made(code: Code, group: Sequence[HostRead]) -> Iterator[Edit | Import]:
    names: dict[str, str] = {}
    helper, lines = _HELPERS[group[0].kind], bound_at_once(code, group)
    tensors = [_text(code, read) for read in group]
    if lines and len({*tensors}) == len(tensors):
        targets = ", ".join(code.text(line.targets[0]) for line in lines)
        yield Import("perflint_runtime", helper)
        yield replace_statement(code.source, lines[0], f"{targets} = {helper}({', '.join(tensors)})")
        for line in lines[1:]:
            yield delete_statement(code.source, line, list(code.flow.siblings(line)))
        return
    if (bound := bound_first(code, group)) is not None:
        names[tensors[0]] = code.text(bound.targets[0])
    for read in group:
        text = _text(code, read)
        wanted = wanted_name(code, read)
        free = (free_name(code.scope, wanted if not n else f"{wanted}_{n + 1}") for n in range(len(group)))
        name = names.get(text) or next((name for name in free if name is not None and name not in names.values()), None)
        if name is None:
            raise CannotRewrite("a new variable would be a global, or is visible to `locals()`")
        names[text] = name
    yield Import("perflint_runtime", helper)
    made = f"{', '.join(names.values())} = {helper}({', '.join(names)})"
    yield replace_statement(code.source, bound, made) if bound else insert_before(code.source, _line(code, group[0]), made)
    for read in group[bound is not None :]:
        yield replace(code.source, read.node, names[_text(code, read)])


def _text(code: Code, read: HostRead) -> str:
    """A tensor as it is written, on one line."""
    text = code.text(read.tensor)
    if "#" in text:
        raise CannotRewrite("a comment would be lost")
    return ast.unparse(read.tensor) if "\n" in text else text


def joined(code: Code, found: Sequence[tuple[HostRead, Finding, bool]]) -> Iterator[Finding]:
    """Findings about single reads; one for each group of those that can be joined, if a wait serves them all.

    found: each read with what is said of it alone, and whether it can be joined to others.
    """
    alone = [read for read, _, can_join in found if can_join]
    groups = list(together(code, alone)) if len(alone) > 1 else []
    for group in groups:
        first, *later = (read.node for read in group.reads)
        yield code.finding(first, group.message, group.fix, group.missing, waits=later)
    done = {read.node for group in groups for read in group.reads}
    done |= {read.node for read, finding, _ in found if finding.fix is None and is_read_with_others(code, read.node)}
    yield from (finding for read, finding, _ in found if read.node not in done)
