"""Several reads of one step that can be made with one wait: no rule by itself."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perflint.api import (
    LOOKS_AT_FRAMES,
    OWN_TENSORS,
    PATCHED,
    Applicability,
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
    Severity,
    Tensor,
    free_name,
    insert_before,
    is_refuted,
    no_copy_in_flight,
    operations,
    path_of,
    replace,
    step_definitions,
    suspends,
    unshared,
    untimed,
    untouched,
    without_effect,
)
from perflint_rules.quiet_code import writes_between


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
    """Groups of some reads that can be made at once, where the first of them is made."""
    left = sorted(filter(lambda read: _always_runs(code, read), reads), key=lambda read: code.flow.order[read.node])
    while code.options.runtime and left:
        group, missing = [left[0]], [*_open(code, left[0], left[:1])]
        for read in left[1:]:
            open_ = [*_open(code, read, [*group, read])]
            if not is_refuted(open_) and code.flow.siblings(_line(code, read)) is code.flow.siblings(_line(code, group[0])):
                group.append(read)
                missing += open_
        left = [read for read in left if read not in group]
        if len({ast.dump(read.tensor) for read in group}) > 1 and not is_refuted(missing):
            missing += [*_open_about_all(code, group)]
            fix = code.fix("read them with one wait, by `items_together` of the runtime", _made(code, group), unless=missing)
            if fix is not None:
                yield Together(group, missing, fix)


def _line(code: Code, read: HostRead) -> ast.stmt:
    return code.flow.statement(read.node)


def _always_runs(code: Code, read: HostRead) -> bool:
    """Whether a read is `x.item()` and is made whenever its statement runs."""
    line = _line(code, read)
    if read.kind is not ReadKind.ITEM or hasattr(line, "body"):
        return False
    return code.flow.block[read.node] is code.flow.block[line]


def _open(code: Code, read: HostRead, group: Sequence[HostRead]) -> Iterator[Obligation]:
    """What stands against it that a tensor is read where the first read of a group stands."""
    flow, tensor, place = code.flow, read.tensor, _line(code, group[0])
    names = [part for part in ast.walk(tensor) if isinstance(part, ast.Name)]
    if any(d.order > flow.order[place] for name in names for d in flow.reaching.get(name, ())):
        yield Obligation(Kind.VALUE, f"`{ast.unparse(tensor)}` is computed in between")
        return
    if read is group[0] and _is_first(code, read):
        return
    if writes_between(code, place, read.node, group):
        definitions = step_definitions(flow, tensor) if isinstance(tensor, ast.Name) else []
        if not definitions:
            yield Obligation(Kind.MUTATION, f"`{ast.unparse(tensor)}` may change in between")
        for definition in definitions:
            yield from filter(None, [untouched(code.facts, code.scope, definition, read.node, first=place)])
        yield from filter(None, [unshared(code.facts, code.scope, tensor)] if definitions else [])
    yield from _open_about_order(code, tensor)


def _open_about_order(code: Code, tensor: ast.expr) -> Iterator[Obligation]:
    """What stands against it that a tensor is computed before other reads are made."""
    match tensor:
        case ast.Call(func=ast.Attribute(value=receiver, attr=name), args=args, keywords=keywords):
            row = operations.method(name)
            if (
                row is not None
                and not row.writes
                and not name.endswith("_")
                and all(k.arg not in ("out", None) for k in keywords)
            ):
                if not code.value(receiver).must_be(Tensor):
                    words = f"`{ast.unparse(receiver)}` may be no tensor, and `{name}` may do more than compute"
                    yield Obligation(Kind.PLAIN_OBJECTS, words)
                for part in (receiver, *args, *(keyword.value for keyword in keywords)):
                    yield from _open_about_order(code, part)
                return
    yield from filter(None, [without_effect(code.facts, code.scope, tensor)])


def _is_first(code: Code, read: HostRead) -> bool:
    """Whether a statement begins with a read, but for names and attributes that it looks up."""
    order, within = code.flow.order, set(ast.walk(read.node))
    before = [part for part in ast.walk(_line(code, read)) if part not in within and order.get(part, 0) < order[read.node]]
    found = [part for part in before if not isinstance(part, _FOUND)]
    return all(isinstance(p, ast.Attribute) and without_effect(code.facts, code.scope, p) is None for p in found)


_FOUND = (ast.stmt, ast.Name, ast.Constant, ast.expr_context, ast.operator)


def _open_about_all(code: Code, group: Sequence[HostRead]) -> Iterator[Obligation]:
    """What stands against it that some reads are made together."""
    between = list(code.flow.calls_between(_line(code, group[0]), group[-1].node))
    if suspends(code.flow):
        yield Obligation(Kind.CONTROL_FLOW, "the function yields or awaits")
    yield from code.feared(OWN_TENSORS, PATCHED, LOOKS_AT_FRAMES)
    yield from filter(None, [untimed(between), no_copy_in_flight(code.facts, code.scope, between)])
    yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of a later read would be raised before the earlier lines run")


def _made(code: Code, group: Sequence[HostRead]) -> Iterator[Edit | Import]:
    names: dict[str, str] = {}
    for read in group:
        text = code.text(read.tensor)
        if "#" in text or "\n" in text:
            raise CannotRewrite("the tensor stands on several lines")
        wanted = _wanted(code, read)
        free = (free_name(code.scope, wanted if not n else f"{wanted}_{n + 1}") for n in range(len(group)))
        name = names.get(text) or next((name for name in free if name is not None and name not in names.values()), None)
        if name is None:
            raise CannotRewrite("a new variable would be a global, or is visible to `locals()`")
        names[text] = name
    yield Import("perflint_runtime", "items_together")
    yield insert_before(code.source, _line(code, group[0]), f"{', '.join(names.values())} = items_together({', '.join(names)})")
    for read in group:
        yield replace(code.source, read.node, names[code.text(read.tensor)])


def _wanted(code: Code, read: HostRead) -> str:
    """A name for the number that a read gives: after what it is bound to, or after its tensor."""
    match _line(code, read):
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is read.node:
            return f"{name}_item"
    path = path_of(read.tensor) or "value"
    return path.replace(".", "_").replace("[", "_").replace("]", "").replace("'", "") + "_item"


def joined(code: Code, found: Sequence[tuple[HostRead, Finding]]) -> Iterator[Finding]:
    """Findings about single reads; one for each group of those without a fix that can be taken, if a wait serves them all."""
    alone = [read for read, finding in found if not _is_taken(finding)]
    groups = list(together(code, alone)) if len(alone) > 1 else []
    for group in groups:
        first, *later = (read.node for read in group.reads)
        yield code.finding(first, group.message, group.fix, group.missing, waits=later)
    done = {read.node for group in groups for read in group.reads}
    yield from (finding for read, finding in found if read.node not in done)


def _is_taken(finding: Finding) -> bool:
    """Whether a finding is worth little, or its fix may be applied without a look."""
    safe = finding.fix is not None and finding.fix.applicability is not Applicability.UNSAFE
    return safe or finding.severity is Severity.INFO
