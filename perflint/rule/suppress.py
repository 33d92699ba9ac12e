"""Comments that silence findings: `# perflint: ignore[rule-name] reason` and `# perflint: ignore-file[rule-name]`."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from perflint.rule.finding import ENGINE, Applicability, Edit, Finding, Fix, Severity
from perflint.rule.selection import UNUSED_SUPPRESSION
from perflint.source.source import Source, tokens
from perflint.source.words import made

_COMMENT = made(r"#\s*perflint:\s*(ignore[\w-]*)(?:\s*\[([^\]]*)\])?([^#]*)")
_FSTRING_START = getattr(tokenize, "FSTRING_START", None)
_FSTRING_END = getattr(tokenize, "FSTRING_END", None)
_BETWEEN_LINES = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)


@dataclass
class Suppression:
    """One comment, with its reason. `names` is None when it silences every rule.

    is_malformed: whether it is written so that nobody can tell what it is meant to silence; it silences nothing.
    """

    row: int
    start: int
    end: int
    whole_file: bool
    names: tuple[str, ...] | None
    alone: bool
    """Whether nothing but comments stands on its line, so that it is meant for the line below."""
    is_malformed: bool = False
    used: set[str] = field(default_factory=set)

    def covers(self, name: str) -> bool:
        """Whether the comment silences a rule."""
        if self.is_malformed:
            return False
        return self.names is None or name in self.names


@dataclass(frozen=True)
class Ran:
    """Which rules a suppression can be judged by.

    known: the names that there are. active: the rules that looked at the file. all_defaults: whether these are all that
    run by default, so that a suppression without names can be judged.
    """

    known: Collection[str] = ()
    active: Collection[str] = ()
    all_defaults: bool = False


def without_suppression(comment: str) -> str:
    """A comment without the part that silences rules."""
    return _COMMENT.sub(lambda found: found[0] if _is_malformed(found) else "", comment).strip()


def _is_malformed(found: re.Match[str]) -> bool:
    """Whether a comment without names goes on, `ignore: item-every-step` say: then not all rules were meant."""
    keyword, names, rest = found.groups()
    return keyword not in ("ignore", "ignore-file") or (names is None and bool(rest.strip()))


def find_suppressions(source: Source) -> list[Suppression]:
    """The suppression comments of a file."""
    if b"perflint:" not in source.body:
        return []
    found: list[Suppression] = []
    for token in _tokens(source):
        if token.type != tokenize.COMMENT:
            continue
        row, column = token.start
        line = source.line(row)
        for match in _COMMENT.finditer(token.string):
            names = None if match[2] is None else tuple(n.strip() for n in match[2].split(",") if n.strip())
            start = source.starts[row - 1] + len(line[: column + match.start()].encode())
            end = start + len(match[0].encode())
            of_file, alone = match[1] == "ignore-file", not line[:column].strip()
            found.append(Suppression(row, start, end, of_file, names, alone, _is_malformed(match)))
    return found


def _tokens(source: Source) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokens(source.body)
    except (tokenize.TokenError, SyntaxError):
        return


def _joined_rows(source: Source) -> dict[int, tuple[int, int]]:
    """The first and last row of the lines that strings and backslashes join, by row: no comment fits between them."""
    joined: dict[int, tuple[int, int]] = {}
    strings: list[int] = []
    before: tokenize.TokenInfo | None = None
    for token in _tokens(source):
        first, last = token.start[0], token.end[0]
        if token.type == _FSTRING_START:
            strings.append(first)
        elif token.type == _FSTRING_END:
            first = strings.pop()
        if before is not None and before.type not in _BETWEEN_LINES and before.end[0] < first:
            first = before.end[0]
        if first < last and token.type not in _BETWEEN_LINES:
            first = joined.get(first, (first, first))[0]
            joined.update(dict.fromkeys(range(first, last + 1), (first, last)))
        before = token
    return joined


def _statement_rows(source: Source) -> dict[int, tuple[int, int]]:
    """The first and last row of the statement, or the head of a block, that a row belongs to; where it is one row, nothing."""
    found: dict[int, tuple[int, int]] = {}
    first: int | None = None
    for token in _tokens(source):
        if token.type == tokenize.NEWLINE and first is not None:
            if first < token.start[0]:
                found.update(dict.fromkeys(range(first, token.start[0] + 1), (first, token.start[0])))
            first = None
        elif first is None and token.type not in (*_BETWEEN_LINES, tokenize.COMMENT):
            first = token.start[0]
    return found


def apply(source: Source, findings: Iterable[Finding], ran: Ran | None) -> list[Finding]:
    """Findings without the suppressed ones, and with `ran` one finding for each suppression that silences nothing."""
    suppressions = find_suppressions(source)
    if not suppressions:
        return list(findings)
    joined, statements = _joined_rows(source), _statement_rows(source)
    kept = []
    for finding in findings:
        first, last = source.row_at(finding.start), source.row_at(max(finding.end - 1, finding.start))
        statement = statements.get(first, (first, first))
        first, last = joined.get(first, (first, first))[0], joined.get(last, (last, last))[1]
        silencing = [s for s in suppressions if _silences(s, finding.rule, first, last, statement)]
        if not silencing:
            kept.append(finding)
    if ran is not None:
        kept += [unused for s in suppressions if (unused := _unused(source, s, ran)) is not None]
    kept.sort(key=lambda f: (f.start, f.end, f.rule))
    return kept


def _silences(suppression: Suppression, name: str, first: int, last: int, statement: tuple[int, int]) -> bool:
    """Whether a comment stands at one of a finding's rows or above the first, or at the end of its statement or above that:
    there a formatter leaves it when it breaks a line that has become too long.
    """
    above = suppression.alone and suppression.row in (first - 1, statement[0] - 1)
    on_line = first <= suppression.row <= last or suppression.row == statement[1] or above
    if (suppression.whole_file or on_line) and suppression.covers(name):
        suppression.used.add(name)
        return True
    return False


def _unused(source: Source, suppression: Suppression, ran: Ran) -> Finding | None:
    if suppression.is_malformed:
        message = "the suppression is malformed and silences nothing; write `# perflint: ignore[rule-name] reason`"
        return Finding(UNUSED_SUPPRESSION, Severity.WARNING, ENGINE, message, suppression.start, suppression.end)
    if suppression.names is None:
        if suppression.used or not ran.all_defaults:
            return None
        unused: list[str] = []
    else:
        judged = (n for n in suppression.names if n in ran.active or n not in ran.known)
        unused = [name for name in judged if name not in suppression.used]
        if suppression.names and not unused:
            return None
    unknown = [name for name in unused if name not in ran.known]
    if unknown:
        message = f"no rule is named {_listed(unknown)}; remove it from the suppression"
    elif unused:
        message = f"the suppression of {_listed(unused)} silences nothing; remove it"
    else:
        message = "the suppression silences nothing; remove it"
    fix = Fix(Applicability.SAFE, "remove what is not used", (_without(source, suppression, unused),))
    return Finding(UNUSED_SUPPRESSION, Severity.WARNING, ENGINE, message, suppression.start, suppression.end, fix)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _without(source: Source, suppression: Suppression, unused: list[str]) -> Edit:
    kept = [name for name in suppression.names or () if name not in unused]
    if kept:
        text = source.text(suppression.start, suppression.end)
        return Edit(suppression.start, suppression.end, re.sub(r"\[[^\]]*\]", f"[{', '.join(kept)}]", text, count=1))
    row = suppression.row
    line_start = source.starts[row - 1]
    line_end = line_start + len(source.line(row).encode())
    start, end = suppression.start, suppression.end
    if end < line_end:
        return Edit(start, end, "")
    while start > line_start and source.body[start - 1 : start] in (b" ", b"\t"):
        start -= 1
    if start == line_start:
        end = source.starts[row] if row < len(source.starts) else len(source.body)
    return Edit(start, end, "")


def with_ignores(source: Source, findings: Iterable[Finding]) -> bytes:
    """The file's text with a suppression comment for each finding, at the end of the finding's first line.

    Where strings or backslashes join that line to the next ones, the comment goes to the last of them.
    """
    joined = _joined_rows(source)
    by_row: dict[int, set[str]] = {}
    for finding in findings:
        row = source.row_at(finding.start)
        by_row.setdefault(joined.get(row, (row, row))[1], set()).add(finding.rule)
    written = (s for s in find_suppressions(source) if not (s.whole_file or s.is_malformed))
    existing = {s.row: s for s in written if s.names is not None}
    raw = source.raw
    for row in sorted(by_row, reverse=True):
        names = ", ".join(sorted(by_row[row]))
        if row in existing:
            at = raw.index(b"]", existing[row].start)
            separator = ", " if existing[row].names else ""
            raw = raw[:at] + f"{separator}{names}".encode() + raw[at:]
        else:
            at = source.starts[row - 1] + len(source.line(row).encode())
            raw = raw[:at] + f"  # perflint: ignore[{names}]".encode() + raw[at:]
    return raw
