"""What an editor offers at a finding: its fix, a comment that silences it, and all safe fixes of a file at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lsprotocol import types

from perflint.rule.finding import ENGINE, Applicability, Finding, Fix, Permission
from perflint.rule.suppress import with_ignores
from perflint.server.diagnostics import SOURCE, diagnostic
from perflint.server.documents import Part
from perflint.server.notebooks import sources_of
from perflint.server.positions import Positions
from perflint.source.source import Source

FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.{SOURCE}"
KINDS: list[types.CodeActionKind | str] = [types.CodeActionKind.QuickFix, FIX_ALL]


@dataclass(frozen=True)
class Text:
    """A text of a document, the places in its parts, and how an editor is told to change them.

    docs_url: where the documentation is served, if it is. is_versioned: whether the editor takes edits of a certain version of
    a document.
    """

    source: Source
    places: Mapping[Part, Positions]
    docs_url: str | None
    is_versioned: bool

    def edit(self, after: bytes) -> types.WorkspaceEdit:
        """The edit that makes another text of it, given as `Source.raw`."""
        texts: Mapping[int | None, bytes] = sources_of(after) if self.source.cells is not None else {None: after}
        edits = {part: positions.edits(texts[part.cell]) for part, positions in self.places.items() if part.cell in texts}
        edits = {part: found for part, found in edits.items() if found}
        if not self.is_versioned:
            return types.WorkspaceEdit(changes={part.uri: found for part, found in edits.items()})
        return types.WorkspaceEdit(
            document_changes=[
                types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(part.uri, part.version), list(found))
                for part, found in edits.items()
            ]
        )


def wants(only: Sequence[types.CodeActionKind | str] | None, kind: str) -> bool:
    """Whether an editor asks for actions of a kind: for all, for this one, or for one that holds it."""
    if only is None:
        return True
    asked = [wanted.value if isinstance(wanted, types.CodeActionKind) else wanted for wanted in only]
    return any(not wanted or f"{kind}.".startswith(f"{wanted}.") for wanted in asked)


def concerned(findings: Sequence[Finding], positions: Positions, params: types.CodeActionParams) -> list[Finding]:
    """The findings at the place that an editor asks about, or among the diagnostics that it names."""
    start, end = positions.offset(params.range.start), positions.offset(params.range.end)
    named = [(d.code, d.range) for d in params.context.diagnostics if d.source == SOURCE]
    return [
        finding
        for finding in findings
        if (finding.start <= end and start <= finding.end)
        or (finding.rule, positions.range(finding.start, finding.end)) in named
    ]


def quick_fixes(
    findings: Sequence[Finding],
    text: Text,
    positions: Positions,
    permission: Permission,
    fixed: Callable[[Finding], bytes | None],
) -> Iterator[types.CodeAction]:
    """A fix for each finding of a part that has one, and then a suppression for each.

    permission: what is applied without asking; such fixes are preferred. fixed: gives the text after a fix, if that holds.
    """
    for finding in findings:
        after = fixed(finding) if finding.fix is not None else None
        if finding.fix is not None and after is not None:
            yield types.CodeAction(
                title=f"perflint ({finding.rule}): {_title(finding.fix)}",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[diagnostic(finding, positions, text.docs_url)],
                is_preferred=permission.covers(finding.fix),
                edit=text.edit(after),
            )
    silenced = {(finding.rule, text.source.row_at(finding.start)): finding for finding in findings}
    for finding in silenced.values():
        if finding.category != ENGINE:
            yield types.CodeAction(
                title=f"perflint ({finding.rule}): ignore on this line",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[diagnostic(finding, positions, text.docs_url)],
                edit=text.edit(with_ignores(text.source, [finding])),
            )


def _title(fix: Fix) -> str:
    match fix.applicability:
        case Applicability.SAFE:
            return fix.message
        case Applicability.ASSUMING:
            return f"{fix.message} (if {', '.join(kind.value for kind in fix.assumptions)})"
        case Applicability.UNSAFE:
            return f"{fix.message} (unsafe)"


def fix_all(uri: str) -> types.CodeAction:
    """The action that applies all safe fixes of a document and those that rest on declared assumptions; it has no edit yet."""
    return types.CodeAction(title="perflint: apply all safe fixes", kind=FIX_ALL, data=uri)
