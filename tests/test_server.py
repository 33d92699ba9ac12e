"""`perflint server`, spoken to by a client of the protocol over standard input and output."""

from __future__ import annotations

import codecs
import json
import shutil
from pathlib import Path

import pytest
from conftest import BAD, FIXTURES, GOOD, TRACE, Project, in_process
from editor import Editor, act, applied, editing
from lsprotocol import types

RULE = "no-grad-without-call"
EVERYWHERE = types.Range(types.Position(0, 0), types.Position(10_000, 0))


def titles(actions: list[types.CodeAction]) -> list[str]:
    return [action.title for action in actions]


def test_a_text_is_checked_as_it_is_typed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(GOOD)

    async def scenario() -> None:
        async with editing(tmp_path) as editor:
            uri = editor.open(tmp_path / "a.py")
            assert await editor.rules(uri) == []
            editor.change(uri, BAD, 2)
            (found,) = await editor.findings(uri, 2)
            assert (found.code, found.source, found.severity) == (RULE, "perflint", types.DiagnosticSeverity.Error)
            assert found.range == types.Range(types.Position(3, 5), types.Position(3, 18))
            editor.change(uri, BAD.replace("no_grad:", "no_grad:  # perflint: ignore"), 3)
            assert await editor.rules(uri, 3) == []
            editor.change(uri, BAD, 4)
            assert await editor.rules(uri, 4) == [RULE]
            editor.close(uri)
            await editor.until(lambda: editor.shown[uri].diagnostics == ())

    act(scenario)
    assert (tmp_path / "a.py").read_text() == GOOD


PROGRAM = FIXTURES / "programs" / "lstm"


def as_checked(project: Project, name: str) -> list[tuple[object, ...]]:
    records = json.loads(project.run("check", "--output-format", "json").stdout)
    return sorted(
        (
            record["rule"],
            record["message"],
            *((record[place][key] - 1) for place in ("location", "end_location") for key in ("row", "column")),
        )
        for record in records
        if Path(record["filename"]).name == name
    )


def as_shown(found: list[types.Diagnostic]) -> list[tuple[object, ...]]:
    return sorted(
        (d.code, d.message, d.range.start.line, d.range.start.character, d.range.end.line, d.range.end.character) for d in found
    )


def test_a_saved_file_has_the_findings_of_check(project: Project) -> None:
    shutil.copytree(PROGRAM, project.root, dirs_exist_ok=True)
    project.write({"perflint.toml": 'extend-select = ["all"]\nper-file-ignores = { "train.py" = ["all"] }\n'})
    names = sorted(path.name for path in project.root.glob("*.py"))
    expected = {name: as_checked(project, name) for name in names}
    assert expected["training.py"]
    assert not expected["train.py"]

    async def scenario() -> None:
        async with editing(project.root) as editor:
            for name in names:
                assert as_shown(await editor.findings(editor.open(project.root / name))) == expected[name]

    act(scenario)


def test_what_a_baseline_knows_is_not_shown(project: Project) -> None:
    project.write({"perflint.toml": 'baseline = "known.json"\n', "a.py": BAD})
    assert project.run("check", "--update-baseline").exit_code == 0
    again = BAD + "with torch.no_grad:\n    x += 2\n"

    async def scenario() -> None:
        async with editing(project.root) as editor:
            uri = editor.open(project.root / "a.py")
            assert await editor.rules(uri) == []
            editor.change(uri, again, 2)
            (found,) = await editor.findings(uri, 2)
            assert found.range.start.line == 5
            fix, _ = await editor.actions(uri, found.range, ["quickfix"])
            assert fix.edit is not None
            assert applied(again, fix.edit) == BAD + "with torch.no_grad():\n    x += 2\n"
            (project.root / "known.json").unlink()
            (project.root / "perflint.toml").write_text("")
            editor.save(uri)
            await editor.until(lambda: len(editor.shown[uri].diagnostics) == 2)

    act(scenario)


WORTH_LITTLE = 'runtime = false\nextend-select = ["item-every-step", "duplicate-item-read"]\n'
"""Settings that show also findings of these rules that are not worth much."""


def test_open_texts_stand_for_the_files_that_others_import(project: Project) -> None:
    """What a helper returns decides whether its caller waits for the device."""
    helper = "import torch\n\ndef measure(model, batch):\n    return model(batch).sum()\n"
    caller = """
        import torch
        from helper import measure

        def train(model, optimizer, loader):
            total = 0.0
            for batch in loader:
                loss = measure(model, batch.cuda())
                loss.backward()
                optimizer.step()
                total += loss.item()
            return total
        """
    project.write({"helper.py": helper, "train.py": caller, "perflint.toml": WORTH_LITTLE})
    on_disk = as_checked(project, "train.py")
    project.write({"helper.py": "def measure(model, batch):\n    return model(batch).sum().cpu()\n"})
    changed = as_checked(project, "train.py")
    assert changed != on_disk
    project.write({"helper.py": helper})

    async def scenario() -> None:
        async with editing(project.root) as editor:
            train = editor.open(project.root / "train.py")
            assert as_shown(await editor.findings(train)) == on_disk
            other = editor.open(project.root / "helper.py")
            await editor.findings(other)
            editor.change(other, "def measure(model, batch):\n    return model(batch).sum().cpu()\n", 2)
            await editor.until(lambda: as_shown(list(editor.shown[train].diagnostics)) == changed)
            editor.close(other)
            await editor.until(lambda: as_shown(list(editor.shown[train].diagnostics)) == on_disk)

    act(scenario)


TEXTS = {
    "emoji": 'import torch\n\nx = torch.ones(2)\nname = "😀é"\nwith open("😀"), torch.no_grad: x += 1\n',
    "CRLF": BAD.replace("\n", "\r\n"),
    "CR": BAD.replace("\n", "\r"),
    "tabs": BAD.replace("    x", "\tx"),
    "mark": "\ufeffimport torch; f'😀'\nx = torch.ones(2)\nwith torch.no_grad:\n    x += 1\n",
    "mark on the line": "\ufeffimport torch\nwith torch.no_grad: pass\n",
    "form feed": "import torch\n\x0c\nx = '\u2028\x85'; y = torch.ones(2)\nwith torch.no_grad:\n    x += 1\n",
    "encoding": "# coding: latin-1\nimport torch\nx = 'é'\nwith torch.no_grad: x = 'é'\n",
}


@pytest.mark.parametrize("encodings", [None, [types.PositionEncodingKind.Utf8], [types.PositionEncodingKind.Utf32]])
def test_places_are_counted_as_the_editor_counts(tmp_path: Path, encodings: list[types.PositionEncodingKind] | None) -> None:
    unit = {None: "utf-16-le", "utf-8": "utf-8", "utf-32": "utf-32-le"}[encodings[0].value if encodings else None]

    async def scenario() -> None:
        async with editing(tmp_path, encodings=encodings) as editor:
            for number, (about, text) in enumerate(TEXTS.items()):
                uri = editor.open(tmp_path / f"text{number}.py", text)
                (found,) = await editor.findings(uri)
                marked = applied(text, changing(uri, found.range, "HERE"), unit=unit)
                assert marked == text.replace("torch.no_grad:", "HERE:"), about
                fix, silence = await editor.actions(uri, found.range, ["quickfix"])
                assert fix.edit is not None
                assert silence.edit is not None
                fixed = applied(text, fix.edit, unit=unit)
                assert fixed == text.replace("torch.no_grad:", "torch.no_grad():"), about
                editor.change(uri, fixed, 2)
                assert await editor.findings(uri, 2) == [], about
                editor.change(uri, applied(text, silence.edit, unit=unit), 3)
                assert await editor.findings(uri, 3) == [], about

    act(scenario)


def changing(uri: str, where: types.Range, text: str) -> types.WorkspaceEdit:
    return types.WorkspaceEdit(changes={uri: [types.TextEdit(where, text)]})


def test_a_file_with_a_mark_is_shown_without_it(tmp_path: Path) -> None:
    """Editors keep the mark to themselves: what they send begins behind it."""
    (tmp_path / "a.py").write_bytes(codecs.BOM_UTF8 + b"import torch; y = 1\nwith torch.no_grad: pass\n")

    async def scenario() -> None:
        async with editing(tmp_path) as editor:
            uri = editor.open(tmp_path / "a.py", "import torch; y = 1\nwith torch.no_grad: pass\n")
            (found,) = await editor.findings(uri)
            assert found.range.start == types.Position(1, 5)

    act(scenario)


COLLECTS = """
import gc
import torch


def collects(model, optimizer, loader):
    for x in loader:
        model(x.cuda()).sum().backward()
        optimizer.step()
        gc.collect()
"""


def test_fixes_say_what_they_rest_on_and_which_is_preferred(tmp_path: Path) -> None:
    source = (PROGRAM / "training.py").read_text() + COLLECTS + TRACE
    (tmp_path / "perflint.toml").write_text(WORTH_LITTLE)

    async def offered(editor: Editor, uri: str) -> dict[str, types.CodeAction]:
        found = await editor.actions(uri, EVERYWHERE, ["quickfix"])
        return {action.title: action for action in found}

    async def scenario() -> None:
        async with editing(tmp_path) as editor:
            uri = editor.open(tmp_path / "training.py", source)
            await editor.findings(uri)
            found = await offered(editor, uri)
            safe = found["perflint (duplicate-item-read): read the value once"]
            (assuming,) = (action for title, action in found.items() if "(if memory-to-spare)" in title)
            unsafe = [action for title, action in found.items() if title.endswith("(unsafe)")]
            assert safe.is_preferred
            assert not assuming.is_preferred
            assert unsafe
            assert not any(action.is_preferred for action in unsafe)
            assert all(action.edit is not None and action.diagnostics for action in found.values())
            assert safe.edit is not None
            assert applied(source, safe.edit) != source
            (tmp_path / "perflint.toml").write_text(WORTH_LITTLE + 'assume = ["memory-to-spare"]\n')
            editor.changed_on_disk(tmp_path / "perflint.toml")
            editor.change(uri, source + "\n", 2)
            await editor.findings(uri, 2)
            assert (await offered(editor, uri))[assuming.title].is_preferred

    act(scenario)


@pytest.mark.parametrize("resolves", [True, False])
def test_fix_all_does_what_the_command_does(project: Project, resolves: bool) -> None:
    shutil.copytree(PROGRAM, project.root, dirs_exist_ok=True)
    chosen = 'extend-select = ["factory-then-transfer"]\n'
    project.write({"perflint.toml": chosen + 'assume = ["memory-to-spare"]\nunsafe-fixes = false\n'})
    source = (project.root / "training.py").read_text()

    async def scenario() -> str:
        async with editing(project.root, resolves=resolves, versions=resolves) as editor:
            uri = editor.open(project.root / "training.py")
            await editor.findings(uri)
            (action,) = await editor.actions(uri, EVERYWHERE, ["source.fixAll"])
            assert action.kind == "source.fixAll.perflint"
            assert (action.edit is None) == resolves
            if resolves:
                action = await editor.client.code_action_resolve_async(action)
            assert action.edit is not None
            assert (action.edit.document_changes is not None) == resolves
            assert await editor.actions(uri, EVERYWHERE, ["refactor"]) == []
            return applied(source, action.edit)

    fixed = act(scenario)
    assert (project.root / "training.py").read_text() == source
    in_process("fix", str(project.root / "training.py"))
    assert fixed == (project.root / "training.py").read_text() != source


def test_a_hover_shows_the_page_and_the_effect(tmp_path: Path) -> None:
    text = BAD + "y = 1  # perflint: ignore[csv-row-by-skiprows] small\n"

    async def scenario() -> None:
        async with editing(tmp_path) as editor:
            uri = editor.open(tmp_path / "a.py", text)
            assert await editor.rules(uri) == [RULE, "unused-suppression"]
            assert editor.shown[uri].diagnostics[1].tags == (types.DiagnosticTag.Unnecessary,)
            shown = await editor.hover(uri, types.Position(3, 7))
            assert shown is not None
            assert all(words in shown for words in (f"# {RULE}", "safe fix", "## Measured effect"))
            shown = await editor.hover(uri, types.Position(5, 30))
            assert shown is not None
            assert "# csv-row-by-skiprows" in shown
            assert "4.47 times" in shown
            assert await editor.hover(uri, types.Position(0, 2)) is None

    act(scenario)


def test_while_somebody_types_nothing_disturbs(tmp_path: Path) -> None:
    broken = BAD + "def f(\n"

    async def scenario() -> None:
        async with editing(tmp_path) as editor:
            uri = editor.open(tmp_path / "a.py", BAD)
            assert await editor.rules(uri) == [RULE]
            editor.change(uri, broken, 2)
            assert await editor.actions(uri, EVERYWHERE, ["source.fixAll"])  # answered when version 2 has been checked
            editor.change(uri, BAD + "x = 2\n", 3)
            assert await editor.rules(uri, 3) == [RULE]
            assert editor.published == 2
            editor.change(uri, broken, 4)
            editor.save(uri)
            assert "invalid-syntax" in await editor.rules(uri, 4)
            assert editor.messages == []

    act(scenario)


@pytest.mark.parametrize("watches", [True, False])
def test_configuration_is_read_again_when_it_changes(tmp_path: Path, watches: bool) -> None:
    config = tmp_path / "pyproject.toml"
    (tmp_path / ".git").mkdir()

    async def scenario() -> None:
        async with editing(tmp_path, watches=watches) as editor:
            if watches:
                assert "**/pyproject.toml" in await editor.until(lambda: editor.watched)
            uri = editor.open(tmp_path / "a.py", BAD)
            other = editor.open(tmp_path / "b.py", BAD)
            assert await editor.rules(uri) == await editor.rules(other) == [RULE]

            def tell() -> None:
                if watches:
                    editor.changed_on_disk(config)
                else:  # an editor that does not watch says at least when it saves
                    editor.save(uri)
                    editor.save(other)

            async def shows(*rules: str) -> None:
                await editor.until(lambda: all([d.code for d in editor.shown[u].diagnostics] == [*rules] for u in (uri, other)))

            assert editor.shown[uri].diagnostics[0].code_description is None
            config.write_text('[tool.perflint]\ndocs-url = "https://docs.example.org"\n')
            tell()
            await editor.until(lambda: all(editor.shown[u].diagnostics[0].code_description for u in (uri, other)))
            address = types.CodeDescription(f"https://docs.example.org/rules/{RULE}/")
            assert editor.shown[uri].diagnostics[0].code_description == address
            config.write_text(f'[tool.perflint]\nignore = ["{RULE}"]\n')
            tell()
            await shows()
            config.write_text("[tool.perflint]\nignor = []\n")
            tell()
            (message,) = await editor.until(lambda: editor.messages)
            assert message == f"perflint: {config}: unknown key `ignor`; did you mean `ignore`?"
            editor.change(uri, BAD + "\n", 2)
            assert await editor.rules(uri, 2) == []  # what was configured before counts until then
            config.write_text("[tool.perflint]\n")
            tell()
            await shows(RULE)
            assert len(editor.messages) == 1

    act(scenario)


def test_a_broken_configuration_at_the_start_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "perflint.toml").write_text("select = [\n")

    async def scenario() -> None:
        async with editing(tmp_path) as editor:
            uris = [editor.open(tmp_path / name, BAD) for name in ("a.py", "b.py")]
            for uri in uris:
                assert await editor.rules(uri) == []
            assert ["no valid TOML" in message for message in editor.messages] == [True]
            assert await editor.actions(uris[0], EVERYWHERE, ["quickfix"]) == []
            (tmp_path / "perflint.toml").write_text("")
            editor.changed_on_disk(tmp_path / "perflint.toml")
            await editor.until(lambda: all(editor.shown[uri].diagnostics for uri in uris))

    act(scenario)


def test_several_folders_files_in_none_and_texts_without_a_file(tmp_path: Path) -> None:
    for name, ignored in (("one", RULE), ("two", "unused-suppression")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "perflint.toml").write_text(f'ignore = ["{ignored}"]\nextend-exclude = ["generated"]\n')
    for folder in ("two/generated", "alone", "lib/site-packages"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text(BAD)
    outside = tmp_path / "alone" / "a.py"

    async def scenario() -> None:
        async with editing(tmp_path / "one", tmp_path / "two") as editor:
            assert await editor.rules(editor.open(tmp_path / "one" / "a.py", BAD)) == []
            assert await editor.rules(editor.open(tmp_path / "two" / "a.py", BAD)) == [RULE]
            assert await editor.rules(editor.open(tmp_path / "two" / "generated" / "a.py")) == []
            assert await editor.rules(editor.open(tmp_path / "two" / "generated" / "new.py", BAD)) == []
            assert await editor.rules(editor.open(outside)) == [RULE]
            assert await editor.rules(editor.open(tmp_path / "lib" / "site-packages" / "a.py")) == []
            assert await editor.rules(editor.open(outside, BAD, uri="untitled:Untitled-1")) == [RULE]
            gone = types.WorkspaceFolder((tmp_path / "one").as_uri(), "one")
            editor.client.workspace_did_change_workspace_folders(
                types.DidChangeWorkspaceFoldersParams(types.WorkspaceFoldersChangeEvent([], [gone]))
            )
            uri = editor.open(tmp_path / "two" / "b.py", BAD)
            assert await editor.rules(uri) == [RULE]

    act(scenario)


def test_files_that_come_and_go_are_noticed(project: Project) -> None:
    caller = "import torch\nfrom helper import loss_of\n\n\ndef total(x):\n    with torch.no_grad:\n        return loss_of(x)\n"
    project.write({"train.py": caller})

    async def scenario() -> None:
        async with editing(project.root, watches=False) as editor:
            train = editor.open(project.root / "train.py")
            assert await editor.rules(train) == [RULE]
            new = editor.open(project.root / "new.py", BAD)
            assert await editor.rules(new) == [RULE]
            (project.root / "new.py").write_text(BAD)
            editor.save(new)
            (project.root / "train.py").write_text(BAD)
            editor.close(train)
            train = editor.open(project.root / "train.py", version=2)
            assert (await editor.findings(train, 2))[0].range.start.line == 3

    act(scenario)


FAILS = '''"""A rule with a bug."""

from perflint.api import Severity, rule


@rule(category="own", severity=Severity.WARNING, needs=[("explode",)])
def check(code):
    raise ValueError("a bug")
    yield
'''


def test_a_rule_that_fails_is_a_diagnostic_beside_the_others(tmp_path: Path) -> None:
    work, packs = tmp_path / "work", tmp_path / "packs"
    for name, text in {
        "own_rules/__init__.py": "",
        "own_rules/always_fails.py": FAILS,
        "own_rules-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: own-rules\nVersion: 1\n",
        "own_rules-1.dist-info/entry_points.txt": "[perflint.rules]\nown = own_rules\n",
    }.items():
        (packs / name).parent.mkdir(parents=True, exist_ok=True)
        (packs / name).write_text(text)
    work.mkdir()

    async def scenario() -> None:
        async with editing(work, packs=packs) as editor:
            uri = editor.open(work / "a.py", BAD)
            assert await editor.rules(uri) == [RULE]
            for version in (2, 3):
                editor.change(uri, f"{BAD}explode = {version}\n", version)
                found = await editor.findings(uri, version)
                assert "the rule always-fails failed in the module's own code: ValueError('a bug')" in found[0].message
                assert await editor.rules(uri, version) == ["internal-error", RULE]
                assert await editor.actions(uri, EVERYWHERE, ["quickfix"])
            editor.change(uri, GOOD, 4)
            assert await editor.rules(uri, 4) == []
            assert editor.messages == []

    act(scenario)


def test_without_its_extra_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith(("pygls", "lsprotocol", "perflint.server"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    monkeypatch.setitem(sys.modules, "pygls", None)
    run = in_process("server")
    assert run.exit_code == 2
    (line,) = run.stderr.splitlines()
    assert "extra `server`" in line


def test_the_cells_of_a_notebook_are_checked_as_one_file(tmp_path: Path) -> None:
    (tmp_path / "perflint.toml").write_text("")
    address = (tmp_path / "a.ipynb").as_uri()
    cells = {
        "text": ("markdown", "# With torch.no_grad: words\n"),
        "imports": ("python", "%matplotlib inline\nimport torch\ny = '\u2028'"),
        "work": ("python", "x = torch.ones(2)\nwith open('😀'), torch.no_grad:\n    x += 1"),
        "again": ("python", "!ls\nwith torch.no_grad:\n    x += 1"),
    }
    uris = {name: f"vscode-notebook-cell:{address}#{name}" for name in cells}
    kinds = {"markdown": types.NotebookCellKind.Markup, "python": types.NotebookCellKind.Code}

    async def scenario() -> None:
        async with editing(tmp_path) as editor:
            listed = [types.NotebookCell(kinds[language], uris[name]) for name, (language, _) in cells.items()]
            notebook = types.NotebookDocument(address, "jupyter-notebook", 1, listed)
            items = [types.TextDocumentItem(uris[name], language, 1, text) for name, (language, text) in cells.items()]
            editor.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, items))
            (found,) = await editor.findings(uris["work"])
            assert found.range == types.Range(types.Position(1, 17), types.Position(1, 30))
            assert [d.range.start for d in await editor.findings(uris["again"])] == [types.Position(1, 5)]
            assert await editor.findings(uris["imports"]) == []
            assert uris["text"] not in editor.shown
            fix, silence = await editor.actions(uris["work"], found.range, ["quickfix"])
            assert fix.edit is not None
            assert fix.edit.document_changes is not None
            (change,) = fix.edit.document_changes
            assert isinstance(change, types.TextDocumentEdit)
            assert change.text_document.uri == uris["work"]
            text = cells["work"][1]
            assert applied(text, fix.edit) == text.replace("no_grad:", "no_grad():")
            assert silence.edit is not None
            assert f"# perflint: ignore[{RULE}]" in applied(text, silence.edit)
            shown = await editor.hover(uris["again"], types.Position(1, 8))
            assert shown is not None
            assert f"# {RULE}" in shown
            assert await editor.hover(uris["imports"], types.Position(1, 8)) is None
            (action,) = await editor.actions(uris["again"], found.range, ["source.fixAll"])
            action = await editor.client.code_action_resolve_async(action)
            assert action.edit is not None
            assert action.edit.document_changes is not None
            assert len(action.edit.document_changes) == 2

            typed = types.TextDocumentContentChangePartial(types.Range(types.Position(1, 30), types.Position(1, 30)), "()")
            content = types.NotebookDocumentCellContentChanges(types.VersionedTextDocumentIdentifier(2, uris["work"]), [typed])
            gone = types.NotebookCellArrayChange(start=3, delete_count=1, cells=[])
            structure = types.NotebookDocumentCellChangeStructure(gone, [], [types.TextDocumentIdentifier(uris["again"])])
            event = types.NotebookDocumentChangeEvent(
                cells=types.NotebookDocumentCellChanges(structure=structure, text_content=[content])
            )
            editor.client.notebook_document_did_change(
                types.DidChangeNotebookDocumentParams(types.VersionedNotebookDocumentIdentifier(2, address), event)
            )
            assert await editor.findings(uris["work"], 2) == []
            assert editor.shown[uris["again"]].diagnostics == ()
            closed = [types.TextDocumentIdentifier(uri) for uri in uris.values()]
            editor.client.notebook_document_did_close(
                types.DidCloseNotebookDocumentParams(types.NotebookDocumentIdentifier(address), closed)
            )
            await editor.until(lambda: editor.shown[uris["work"]].version is None)
            assert editor.messages == []

    act(scenario)
