"""Comments that silence findings: `# perflint: ignore[rule-name] reason` and `# perflint: ignore-file[rule-name]`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from perflint.rule import Applicability, Category, Edit, Finding, Fix, Severity
from perflint.source import Source

UNUSED_SUPPRESSION = "unused-suppression"

_COMMENT = re.compile(r"#\s*perflint:\s*(ignore-file|ignore)\b(?:\[([^\]]*)\])?")


@dataclass
class Suppression:
    """One comment. `names` is empty when it silences every rule."""

    row: int
    start: int
    end: int
    whole_file: bool
    names: tuple[str, ...]
    alone: bool
    """Whether nothing but the comment stands on its line, so that it is meant for the line below."""
    used: set[str] = field(default_factory=set)

    def covers(self, name: str) -> bool:
        return not self.names or name in self.names


def find_suppressions(source: Source) -> list[Suppression]:
    """The suppression comments of a file."""
    if b"perflint:" not in source.body:
        return []
    found: list[Suppression] = []
    for row, column, text in _comments(source):
        match = _COMMENT.match(text)
        if match is None:
            continue
        names = tuple(n.strip() for n in (match.group(2) or "").split(",") if n.strip())
        line = source.line(row)
        start = source.starts[row - 1] + len(line[:column].encode())
        end = start + len(text.encode())
        found.append(Suppression(row, start, end, match.group(1) == "ignore-file", names, not line[:column].strip()))
    return found


def _comments(source: Source) -> Iterator[tuple[int, int, str]]:
    try:
        for token in tokenize.tokenize(io.BytesIO(source.body).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.start[1], token.string
    except (tokenize.TokenError, SyntaxError):
        return


def apply(source: Source, findings: Iterable[Finding], known: Iterable[str]) -> list[Finding]:
    """Findings without the suppressed ones, and one finding for each suppression that silences nothing."""
    suppressions = find_suppressions(source)
    if not suppressions:
        return list(findings)
    kept = []
    for finding in findings:
        first, last = source.row_at(finding.start), source.row_at(max(finding.end - 1, finding.start))
        if not any(_silences(s, finding.rule, first, last) for s in suppressions):
            kept.append(finding)
    names = set(known)
    for suppression in suppressions:
        finding_for = _unused(source, suppression, names)
        if finding_for is not None:
            kept.append(finding_for)
    kept.sort(key=lambda f: (f.start, f.end, f.rule))
    return kept


def _silences(suppression: Suppression, name: str, first: int, last: int) -> bool:
    on_line = first <= suppression.row <= last or (suppression.alone and suppression.row == first - 1)
    if (suppression.whole_file or on_line) and suppression.covers(name):
        suppression.used.add(name)
        return True
    return False


def _unused(source: Source, suppression: Suppression, known: set[str]) -> Finding | None:
    unused = [name for name in suppression.names if name not in suppression.used]
    if suppression.used and not unused:
        return None
    unknown = [name for name in unused if name not in known]
    if unknown:
        message = f"no rule is named {_listed(unknown)}; remove it from the suppression"
    elif unused and suppression.used:
        message = f"the suppression of {_listed(unused)} silences nothing; remove it"
    else:
        message = "the suppression silences nothing; remove it"
    if not unknown and suppression.names and not all(name in known for name in suppression.names):
        return None
    edit = _without(source, suppression, unused)
    fix = Fix(Applicability.SAFE, "remove what is not used", (edit,))
    return Finding(UNUSED_SUPPRESSION, Severity.WARNING, Category.ENGINE, message, suppression.start, suppression.end, fix)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _without(source: Source, suppression: Suppression, unused: list[str]) -> Edit:
    text = source.text(suppression.start, suppression.end)
    if suppression.used:
        kept = [name for name in suppression.names if name not in unused]
        changed = re.sub(r"\[[^\]]*\]", f"[{', '.join(kept)}]", text, count=1)
        return Edit(suppression.start, suppression.end, changed)
    # A comment behind the suppression stays; the rest of the suppression goes with its reason.
    rest = text[1:].find("#")
    tail = text[rest + 1 :] if rest >= 0 else ""
    line_start = source.starts[suppression.row - 1]
    start = suppression.start
    if not tail:
        while start > line_start and source.body[start - 1 : start] in (b" ", b"\t"):
            start -= 1
    end = suppression.end
    if suppression.alone and not tail:
        start = line_start
        end = source.starts[suppression.row] if suppression.row < len(source.starts) else len(source.body)
    return Edit(start, end, tail)


def with_ignores(source: Source, findings: Iterable[Finding]) -> bytes:
    """The file's text with a suppression comment for each finding, at the end of the finding's first line.

    A line that goes on (an open bracket, a backslash, a string over several lines) gets the comment on a line above.
    """
    by_row: dict[int, set[str]] = {}
    for finding in findings:
        by_row.setdefault(source.row_at(finding.start), set()).add(finding.rule)
    body = source.body
    for row in sorted(by_row, reverse=True):
        names = ", ".join(sorted(by_row[row]))
        start = source.starts[row - 1]
        line = source.line(row)
        existing = _COMMENT.search(line)
        if existing is not None and existing.group(2):
            at = start + len(line[: existing.end() - 1].encode())
            body = body[:at] + f", {names}".encode() + body[at:]
            continue
        end = start + len(line.encode())
        if _line_is_complete(line):
            body = body[:end] + f"  # perflint: ignore[{names}]".encode() + body[end:]
        else:
            indent = line[: len(line) - len(line.lstrip())]
            body = body[:start] + f"{indent}# perflint: ignore[{names}]{source.newline}".encode() + body[start:]
    return body


def _line_is_complete(line: str) -> bool:
    try:
        list(tokenize.generate_tokens(io.StringIO(line.strip() + "\n").readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return False
    return not line.rstrip().endswith("\\")
