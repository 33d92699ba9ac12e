"""Reads that stand on one line, of which there is one thing to say: no rule by itself."""

import ast
import dataclasses
from collections.abc import Iterator, Sequence

from perflint.api import Code, Finding, HostRead


def by_line(code: Code, found: Sequence[tuple[HostRead, Finding]]) -> Iterator[Finding]:
    """One finding for all reads on a line of which the same is to be said: `print("%f %f" % (a.item(), b.item()))`."""
    alike: dict[object, list[tuple[HostRead, Finding]]] = {}
    for read, finding in found:
        says = finding.message.replace(named([read]), "") if finding.fix is None else finding
        alike.setdefault((code.flow.statement(read.node), read.node.lineno, finding.severity, says), []).append((read, finding))
    for group in alike.values():
        (first, finding), reads = group[0], [read for read, _ in group]
        message = finding.message.replace(named([first]), named(reads)).replace("the value is", "the values are")
        several = dataclasses.replace(finding, message=message, waits=tuple(at for _, one in group for at in one.waits))
        yield several if len(group) > 1 else finding


def named(reads: Sequence[HostRead]) -> str:
    """The tensors that are read, each once."""
    *names, last = dict.fromkeys(f"`{ast.unparse(read.tensor)}`" for read in reads)
    return f"{', '.join(names)} and {last}" if names else last
