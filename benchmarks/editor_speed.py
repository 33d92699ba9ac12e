"""How fast `perflint server` answers: from a changed text to its diagnostics, and from a request to its fixes.

    python benchmarks/editor_speed.py [FILES] [--edits N] [--json FILE]

Each file is opened in a warm server, among the files of its project, and then lines are added to it here and there, as typing
does. A time runs from the notification to the diagnostics of that version, over standard input and output, and so holds the
delay before the server begins; the CPU that the server takes for an edit says what an idle machine would show (on Linux).
FILES are files of about 1,000 lines in clones of training repositories; without any, a file of that length is made of the
functions of fixtures/programs: it has a finding in every sixth line, which is more than in any file that somebody wrote.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient
from surroundings import commit, machine, versions

from perflint.project.discover import project_root
from perflint.server.server import DEBOUNCE_S

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "fixtures" / "programs"
LINES = 1000


def dense_file(folder: Path) -> Path:
    """A file of 1,000 lines of training code with findings, over and over, in a copy of the fixture programs."""
    shutil.copytree(PROGRAMS, folder)
    (folder / "perflint.toml").touch()
    source = (PROGRAMS / "lstm" / "training.py").read_text(encoding="utf-8")
    head, body = source.split("\n\n\n", 1)
    pieces = [head]
    while sum(piece.count("\n") + 3 for piece in pieces) < LINES:
        pieces.append(body.replace("TrainingTaskService", f"TrainingTaskService{len(pieces)}"))
    path = folder / "dense.py"
    path.write_text("\n\n\n".join(pieces), encoding="utf-8")
    return path


async def measure(path: Path, edits: int) -> dict[str, object]:
    """The times of edits and of requests, in milliseconds."""
    text = path.read_bytes().decode()
    project = Path(project_root(str(path))[0])
    client = LanguageClient("benchmark", "1")
    shown: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()
    client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: shown.put_nowait(params))
    await client.start_io(sys.executable, "-m", "perflint", "server", cwd=project)
    folder = types.WorkspaceFolder(project.as_uri(), project.name)
    capabilities = types.ClientCapabilities()
    await client.initialize_async(types.InitializeParams(capabilities, process_id=os.getpid(), workspace_folders=[folder]))
    client.initialized(types.InitializedParams())
    uri = path.as_uri()
    started = time.perf_counter()
    client.text_document_did_open(types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 0, text)))
    findings = len((await shown.get()).diagnostics)
    opened_ms = (time.perf_counter() - started) * 1000
    rows = text.splitlines(keepends=True)
    changed_ms, actions_ms = [], []
    assert client._server is not None
    used_s = cpu_seconds(client._server.pid)
    for version in range(1, edits + 1):
        changed = with_another_line(rows, version * len(rows) // (edits + 1))
        started = time.perf_counter()
        client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version=version, uri=uri),
                [types.TextDocumentContentChangeWholeDocument(changed)],
            )
        )
        found = await shown.get()
        assert found.version == version
        changed_ms.append((time.perf_counter() - started) * 1000)
    checked_s = cpu_seconds(client._server.pid) - used_s
    for _ in range(edits):
        for diagnostic in found.diagnostics[:1]:
            started = time.perf_counter()
            await client.text_document_code_action_async(
                types.CodeActionParams(types.TextDocumentIdentifier(uri), diagnostic.range, types.CodeActionContext([]))
            )
            actions_ms.append((time.perf_counter() - started) * 1000)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return {
        "file": str(path.relative_to(project)),
        "lines": len(rows),
        "findings": findings,
        "opened_ms": round(opened_ms),
        "changed_ms": summary(changed_ms),
        "changed_cpu_ms": round(checked_s / edits * 1000),
        "actions_ms": summary(actions_ms) if actions_ms else None,
    }


def cpu_seconds(process: int) -> float:
    """The CPU that a process has taken so far, as Linux counts it."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def with_another_line(rows: list[str], at: int) -> str:
    """A text with an empty line at or behind a row, where it does not break the syntax: of broken texts no finding is shown."""
    for row in range(at, len(rows)):
        text = "".join([*rows[:row], "\n", *rows[row:]])
        with contextlib.suppress(SyntaxError):
            ast.parse(text)
            return text
    raise ValueError("the file is no Python")


def summary(times: list[float]) -> dict[str, float]:
    """The least, the median and the most of some times."""
    return {"min": round(min(times)), "median": round(statistics.median(times)), "max": round(max(times))}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--edits", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        files = [path.resolve() for path in options.files] or [dense_file(Path(scratch) / "project")]
        found = [asyncio.run(measure(path, options.edits)) for path in files]
    about = {"commit": commit(), "machine": machine(), "versions": versions("perflint-torch", "pygls")}
    record = {**about, "delay_ms": DEBOUNCE_S * 1000, "files": found}
    print(json.dumps(record, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
