"""Notebooks: what is found in cells, where it is said to be, what fixes write and what they leave."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BAD, FIXTURES, GOOD, Project, in_process, in_subprocess
from hypothesis import given
from hypothesis import strategies as st

from perflint.project.files import MAX_FILE_BYTES, MAX_NOTEBOOK_BYTES
from perflint.rule.finding import Applicability, Edit, Finding, Fix, Severity
from perflint.run.any_order import in_any_order
from perflint.source.cells import CannotWriteBack, joined, restored
from perflint.source.magics import as_python
from perflint.source.notebook import Notebook, NotebookError
from perflint.source.source import Source

FLAW = "with torch.no_grad:\n    x += 1"
IN_FUNCTION = "def f(x):\n    with torch.no_grad:\n        x += 1"
FIXED = FLAW.replace("no_grad:", "no_grad():")


def notebook(*sources: str, **content: Any) -> dict[str, Any]:
    """A notebook of code cells; a source that begins with `#md` is one of text."""
    cells = []
    for source in sources:
        lines = re.findall(r"[^\n]*\n|[^\n]+", source)
        if source.startswith("#md"):
            cells.append({"cell_type": "markdown", "metadata": {}, "source": lines})
        else:
            cells.append({"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": lines})
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **content}


def sources(data: bytes | str) -> list[str]:
    """The sources of a notebook's code cells."""
    cells = json.loads(data)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def written(project: Project, *cells: str, name: str = "a.ipynb", **content: Any) -> Path:
    """A notebook in a project."""
    path = project.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(notebook(*cells, **content), indent=1).encode() + b"\n")
    return path


# -- where findings are --------------------------------------------------------------------------------------------------


def test_findings_say_in_which_cell_they_are(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    written(project, "import torch", "#md text", "x = torch.ones(2)\n" + FLAW, "#md", IN_FUNCTION)
    assert [(f["cell"], f["location"], f["end_location"]) for f in project.findings()] == [
        (3, {"row": 2, "column": 6}, {"row": 2, "column": 19}),
        (5, {"row": 2, "column": 10}, {"row": 2, "column": 23}),
    ]
    assert project.findings()[1]["fix"]["edits"][0]["location"] == {"row": 2, "column": 10}
    lines = {style: in_process("check", "--output-format", style, ".").stdout for style in ("concise", "full", "grouped")}
    assert lines["concise"].startswith("a.ipynb:cell 3:2:6: no-grad-without-call")
    assert "a.ipynb:cell 5:2 f\n  assume  2  no-grad" in lines["grouped"]
    assert "1 | x = torch.ones(2)\n2 | with torch.no_grad:\n  |      ^^^^" in lines["full"]
    assert "#%%" not in lines["full"]
    assert "line=26,col=11," in in_process("check", "--output-format", "github", ".").stdout


KEEPS_LOSSES = """def train(model, loader, optimizer):
    losses = []
    for x in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses"""


def test_each_edit_says_in_which_cell_it_is(project: Project) -> None:
    path = written(project, "#md text", "import torch", KEEPS_LOSSES)
    options = ("--select", "item-every-step", "--runtime", "--assume", "ordinary")
    (finding,) = project.findings(*options)
    edits = finding["fix"]["edits"]
    assert "import HostList" in "".join(edit["content"] for edit in edits)
    cells = dict(enumerate(json.loads(path.read_bytes())["cells"], 1))
    for edit in sorted(edits, key=lambda e: e["location"]["row"], reverse=True):
        text = "".join(cells[edit["cell"]]["source"])
        starts = [0, *itertools.accumulate(len(line) + 1 for line in text.split("\n"))]
        first, last = (starts[at["row"] - 1] + at["column"] - 1 for at in (edit["location"], edit["end_location"]))
        cells[edit["cell"]]["source"] = [text[:first] + edit["content"] + text[last:]]
    applied = ["".join(cell["source"]) for cell in cells.values() if cell["cell_type"] == "code"]
    project.run("fix", "--isolated", *options)
    assert applied == sources(path.read_bytes())


def test_the_same_flaw_in_functions_of_two_cells_is_said_twice(project: Project) -> None:
    written(project, "import torch", IN_FUNCTION, IN_FUNCTION)
    assert project.run("check", "--isolated").stdout.count("no-grad-without-call") == 2


def test_lines_that_a_message_names_count_within_cells(project: Project) -> None:
    text = (FIXTURES / "zero-grad-late" / "train.py").read_text(encoding="utf-8")
    before, _, main = text.partition("def main")
    written(project, before.rstrip(), "def main" + main.rstrip())
    messages = {f["rule"]: (f["message"], f["cell"]) for f in project.findings("--select", "zero-grad-late")}
    message, cell = messages["zero-grad-late"]
    row = next(row for row, line in enumerate(("def main" + main).split("\n"), 1) if "model(" in line)
    assert (f"forward pass of line {row};" in message, cell) == (True, 2)


def test_cells_share_one_scope_in_their_order(project: Project) -> None:
    written(project, "from torch import no_grad as off", "with off:\n    pass")
    assert [(f["rule"], f["cell"]) for f in project.findings()] == [("no-grad-without-call", 2)]


@pytest.mark.parametrize("name", ["item-every-step", "eval-without-no-grad", "factory-then-transfer", "duplicate-item-read"])
def test_a_notebook_gets_the_findings_and_fixes_of_the_script_that_it_makes_up(project: Project, name: str) -> None:
    text = (FIXTURES / name / "train.py").read_text(encoding="utf-8")
    cells = re.split(r"\n(?=def |class |for |if |model )", text)
    project.write({"train.py": text})
    rules = [f["rule"] for f in project.findings("--select", name)]
    fixed = project.fixed("train.py", "--select", name)
    (project.root / "train.py").unlink()
    path = written(project, *cells)
    assert [f["rule"] for f in project.findings("--select", name)] == rules != []
    project.run("fix", "--isolated", "--assume", "cell-order", "--select", name)
    assert "\n".join(sources(path.read_bytes())) == fixed != text


# -- what only IPython understands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "python"),
    [
        ("%matplotlib inline\nx = 1", "pass  #%ipython %matplotlib inline\nx = 1"),
        ("%run b.py", "from __magic__ import *  #%ipython %run b.py"),
        ("%pylab inline\nx", "from __magic__ import *  #%ipython %pylab inline\nx"),
        ("if a:\n    %run b.py", "if a:\n    get_ipython().run_line_magic()  #%ipython     %run b.py"),
        ("!pip install a \\\n  b\nx", "get_ipython().run_line_magic()  #%ipython !pip install a \\\n#%ipython   b\nx"),
        ("pip install a", "get_ipython().run_line_magic()  #%ipython pip install a"),
        ("f?", "pass  #%ipython f?"),
        ("?f", "pass  #%ipython ?f"),
        ("f(\n)??", "pass  #%ipython f(\n#%ipython )??"),
        ("x = !ls", "x = get_ipython().getoutput()  #%ipython x = !ls"),
        ("a, b = %time f()", "a, b = get_ipython().getoutput()  #%ipython a, b = %time f()"),
        ("%time x = f()", "x = f()  #%ipython %time x = f()"),
        ("%%time\nx = 1\n!ls", "pass  #%ipython %%time\nx = 1\nget_ipython().run_line_magic()  #%ipython !ls"),
        ("\n%%capture out\n%%time\nx", "\npass  #%ipython %%capture out\npass  #%ipython %%time\nx"),
        ("%%bash\nls 'it\n%x", "#%ipython %%bash\n#%ipython ls 'it\n#%ipython %x"),
        ("%%cython\ndef f(): ...", "get_ipython().run_cell_magic()  #%ipython %%cython\n#%ipython def f(): ..."),
        ("x = '''\n!ls\n%time'''\n%y", "x = '''\n!ls\n%time'''\nget_ipython().run_line_magic()  #%ipython %y"),
        ("x = (a\n  % b)", "x = (a\n  % b)"),
        ("x = a \\\n  % b", "x = a \\\n  % b"),
        ("s = 'x=%d'  # what?", "s = 'x=%d'  # what?"),
        ("s = 'why?'", "s = 'why?'"),
        ("x == y", "x == y"),
        ("pip = 3", "pip = 3"),
        ("x = 1  #%ipython y", "get_ipython().run_cell_magic()  #%ipython x = 1  #%ipython y"),
    ],
)
def test_what_is_for_ipython_alone_gets_python_in_its_place(source: str, python: str) -> None:
    assert as_python(source) == python
    assert restored(python) == source


LINES = """\

x = 1
%matplotlib inline
!ls \\
  b
f(
)
'''
"
%%time
%%bash
x?
#%ipython x
y = !ls
pass  #%% cell 3
    # é
if x:
    %time f()
x = '%s' % y
  % z
\\
;f
await f()
"""


@given(st.sampled_from(["\n", "\r\n"]), st.lists(st.sampled_from(LINES.split("\n")), max_size=8))
def test_any_cell_can_be_had_back_from_its_python(line_end: str, lines: list[str]) -> None:
    source = line_end.join(lines)
    assert restored(as_python(source)) == source
    assert as_python(source).count("\n") == source.count("\n")


def test_magics_survive_a_fix_and_hide_no_flaw(project: Project) -> None:
    cells = ["%load_ext autoreload\nimport torch\n!pip install x", f"%%time\n!nvidia-smi\nx = torch.ones(2)\n{FLAW}\nx?"]
    path = written(project, *cells)
    assert [(f["cell"], f["location"]["row"]) for f in project.findings()] == [(2, 4)]
    project.fixed("a.ipynb")
    assert sources(path.read_bytes()) == [cells[0], cells[1].replace(FLAW, FIXED)]


def test_top_level_await_is_admitted(project: Project) -> None:
    written(project, "import torch\nx = await f()\nasync for y in x:\n    pass", FLAW)
    assert [f["rule"] for f in project.findings()] == ["no-grad-without-call"]


# -- cells that are no Python --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "row", "column"),
    [("print(x", 1, 6), ("x = 1\nprint 1", 2, 1), ("'''", 1, 1), ("else:\n    pass", 1, 1), ("@f", 1, 1), ("é = ?? x", 1, 5)],
)
def test_a_cell_that_is_no_python_is_one_finding_and_hides_no_other_cell(
    project: Project, cell: str, row: int, column: int
) -> None:
    path = written(project, "import torch\nx = 1", cell, FLAW, f"'''\n'''\n{FLAW}")
    found = project.findings()
    assert [(f["rule"], f["cell"]) for f in found] == [
        ("invalid-syntax", 2),
        ("no-grad-without-call", 3),
        ("no-grad-without-call", 4),
    ]
    assert found[0]["location"] == {"row": row, "column": column}
    project.fixed("a.ipynb")
    assert sources(path.read_bytes()) == ["import torch\nx = 1", cell, FIXED, f"'''\n'''\n{FIXED}"]


def test_no_cell_goes_on_in_the_next_one(project: Project) -> None:
    written(project, "import torch\nif torch:\n    pass", "    x = 1\n", "else:\n    y = 2", FLAW)
    assert [(f["rule"], f["cell"]) for f in project.findings()] == [("invalid-syntax", 3), ("no-grad-without-call", 4)]


@pytest.mark.parametrize("text", ["x = 1\ry = 2", "x = '\0'", "x = '\ud800'"], ids=["return", "nul", "surrogate"])
def test_a_cell_that_no_python_file_can_hold_is_left_alone(project: Project, text: str) -> None:
    path = written(project, "import torch", text, FLAW)
    project.fixed("a.ipynb")
    assert sources(path.read_bytes()) == ["import torch", text, FIXED]


R: dict[str, Any] = {"kernelspec": {"name": "ir", "language": "R"}}
CASES: dict[str, tuple[bytes, str]] = {
    "broken": (b'{"cells": [\n{"x" 1}]}', "the notebook is no valid JSON: Expecting ':' delimiter (line 2)"),
    "cut off": (b'{"cells": [', "the notebook is no valid JSON"),
    "conflict": (b'<<<<<<< HEAD\n{"cells": []}', "the notebook is no valid JSON"),
    "deep": (b"[" * 100_000, "the notebook is no valid JSON"),
    "large number": (b'{"cells": [], "n": ' + b"1" * 9999 + b"}", "the notebook is no valid JSON"),
    "list": (b"[]", "this is no notebook: it has no list of cells"),
    "number": (b"1", "this is no notebook: it has no list of cells"),
    "no list": (b'{"cells": 3}', "this is no notebook: it has no list of cells"),
    "no cell": (b'{"cells": [3]}', "cell 1 of the notebook is none"),
    "no text": (b'{"cells": [{"cell_type": "code", "source": [3]}]}', "cell 1 of the notebook has no text"),
    "windows": (json.dumps(notebook("x = 'é'"), ensure_ascii=False).encode("cp1252"), "the notebook is not UTF-8: byte 0xe9"),
    "utf-16": (json.dumps(notebook("import torch")).encode("utf-16"), "the notebook is UTF-16; save it as UTF-8"),
    "empty": (b"", ""),
    "blank": (b" \n", ""),
    "no cells": (b'{"cells": [], "metadata": {}}', ""),
    "R": (json.dumps(notebook(BAD, "x <- 3", metadata=R)).encode(), ""),
    "Julia": (json.dumps(notebook("x = 3;;", metadata={"language_info": {"name": "julia"}})).encode(), ""),
    "vscode": (
        json.dumps(notebook("x <- 3")).replace('"metadata": {}', '"metadata": {"vscode": {"languageId": "r"}}').encode(),
        "",
    ),
    "version 2": (b'{"nbformat": 2, "worksheets": [{"cells": [{"cell_type": "code", "input": "print 1"}]}]}', ""),
    "without source": (b'{"cells": [{"cell_type": "code"}]}', ""),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_notebook_about_python_is_one_line_or_none_and_keeps_its_bytes(project: Project, name: str) -> None:
    data, message = CASES[name]
    path = project.root / "a.ipynb"
    path.write_bytes(data)
    found = project.findings()
    assert [f["rule"] for f in found] == (["unreadable-file"] if message else [])
    assert all(f["message"].startswith(message) and f["location"] == {"row": 1, "column": 1} for f in found)
    result = project.run("fix", "--isolated")
    assert "Traceback" not in result.output
    assert path.read_bytes() == data


# -- what fixes write ----------------------------------------------------------------------------------------------------


def fixed_bytes(project: Project, data: bytes, *arguments: str) -> bytes:
    """The bytes of a notebook after `fix`, twice."""
    path = project.root / "a.ipynb"
    path.write_bytes(data)
    project.run("fix", "--isolated", *arguments)
    once = path.read_bytes()
    result = project.run("fix", "--isolated", *arguments)
    assert path.read_bytes() == once
    assert "Fixed nothing" in result.output or "All checks passed" in result.output
    return once


NOTEBOOK = notebook("import torch\nx = 'é\U0001f600'", "#md torch", f"y = 'é'\n{FLAW}\ny")
STYLES: dict[str, bytes] = {
    "Jupyter": json.dumps(NOTEBOOK, indent=1, ensure_ascii=False).encode() + b"\n",
    "one line": json.dumps(NOTEBOOK).encode(),
    "narrow": json.dumps(NOTEBOOK, separators=(",", ":"), sort_keys=True).encode(),
    "CRLF": json.dumps(NOTEBOOK, indent=4).replace("\n", "\r\n").encode(),
    "byte order mark": b"\xef\xbb\xbf" + json.dumps(NOTEBOOK, indent=1, ensure_ascii=False).encode(),
    "other escapes": json.dumps(NOTEBOOK).replace("=", "\\u003d").replace("'", "\\u0027").encode(),
    "one string": json.dumps(
        {**NOTEBOOK, "cells": [{**c, "source": "".join(c["source"])} for c in NOTEBOOK["cells"]]}
    ).encode(),
    "a list of one": json.dumps(
        {**NOTEBOOK, "cells": [{**c, "source": ["".join(c["source"])]} for c in NOTEBOOK["cells"]]}
    ).encode(),
    "cut anywhere": json.dumps(
        {**NOTEBOOK, "cells": [{**c, "source": [*"".join(c["source"])]} for c in NOTEBOOK["cells"]]}
    ).encode(),
    "worksheets": json.dumps(
        {
            "nbformat": 3,
            "worksheets": [
                {"cells": [{"cell_type": "heading", "source": ["x"]}, {"cell_type": "code", "input": ["import torch"]}]},
                {"cells": [{"cell_type": "code", "language": "python", "input": FLAW.splitlines(keepends=True)}]},
            ],
        }
    ).encode(),
}


@pytest.mark.parametrize("style", STYLES)
def test_nothing_but_the_changed_lines_is_written(project: Project, style: str) -> None:
    data = STYLES[style]
    after = fixed_bytes(project, data)
    line = json.dumps("with torch.no_grad:")[1:-1].encode()
    if style == "cut anywhere":
        assert sources(after) == [source.replace(FLAW, FIXED) for source in sources(data)]
        assert after[: data.index(b'"w"')] == data[: data.index(b'"w"')]
        assert after[-60:] == data[-60:]
    elif style == "other escapes":
        assert after == data.replace(b"no_grad:", b"no_grad():")
    else:
        assert after == data.replace(line, b"with torch.no_grad():") != data


def test_lines_that_go_and_come_take_their_strings_with_them(project: Project) -> None:
    text = (FIXTURES / "zero-grad-late" / "train.py").read_text(encoding="utf-8")
    data = json.dumps(notebook(text.rstrip()), indent=3).encode()
    after = fixed_bytes(project, data, "--select", "zero-grad-late", "--assume", "cell-order")
    before_lines, after_lines = data.split(b"\n"), after.split(b"\n")
    assert after != data
    assert sorted(before_lines) == sorted(after_lines)


def test_a_cell_gets_the_imports_that_its_fixes_need_behind_its_magics(project: Project) -> None:
    text = (FIXTURES / "eval-without-no-grad" / "train.py").read_text(encoding="utf-8")
    first, *functions = re.split(r"\n(?=def )", text.rstrip())
    path = written(project, first, *(f"%%time\n{function}" for function in functions))
    project.run("fix", "--isolated", "--runtime", "--assume", "cell-order", "--extend-select", "item-every-step")
    after = sources(path.read_bytes())
    assert after[0] == first
    assert [cell.startswith("%%time\nfrom perflint_runtime import ItemSum\n") for cell in after] == [
        "ItemSum(" in cell for cell in after
    ]
    assert any("ItemSum(" in cell for cell in after)


def test_an_import_below_counts_for_no_cell_above_it(project: Project) -> None:
    loader = "loader = DataLoader(TensorDataset(rand(9, 4)), num_workers=2)"
    use = "model = nn.Linear(4, 1).cuda()\nfor x, in loader:\n    model(x.cuda()).sum().backward()"
    imports = "from torch import nn, rand\nfrom torch.utils.data import DataLoader, TensorDataset"
    path = written(project, imports, loader, use, "import torch", loader, use)
    project.run("fix", "--isolated", "--assume", "ordinary", "--select", "dataloader-no-pin-memory")
    fixed = loader.removesuffix(")") + ", pin_memory=torch.cuda.is_available())"
    assert sources(path.read_bytes()) == [imports, f"import torch\n{fixed}", use, "import torch", fixed, use]


SOURCE = st.lists(
    st.sampled_from(
        ["x = 1", "", FLAW, "# é \u2028 \\ \"'", "%magic é", "!ls \\", "s = '''", "'''", "if x:\n\n    pass", "x", "\t# \x0c"]
    ),
    max_size=5,
).map("\n".join)
OUTPUT = st.sampled_from(
    [
        {"output_type": "stream", "name": "stdout", "text": ["a\n", "b"]},
        {
            "output_type": "display_data",
            "data": {"image/png": "iVBORw0KGgo=" * 9, "text/plain": ['"source": ["x"]']},
            "metadata": {},
        },
        {"output_type": "error", "source": ["no source"], "cells": [{"source": "nor this"}]},
    ]
)


PLAIN = st.lists(st.sampled_from(["x = 1", "# é \u2028 \\ \"'", "x", "# \x0c"]), max_size=5).map("\n".join)


@st.composite
def files(draw: st.DrawFn, of: st.SearchStrategy[str] = SOURCE) -> bytes:
    """The bytes of a notebook, in any of the styles that programs write."""
    made = notebook("import torch", *draw(st.lists(of, max_size=4)))
    for cell in made["cells"]:
        cell["outputs"] = draw(st.lists(OUTPUT, max_size=2))
        if draw(st.booleans()):
            cell["source"] = "".join(cell["source"])
        if draw(st.booleans()):
            cell["id"] = "twice"
        if draw(st.booleans()):
            cell = dict(reversed(cell.items()))
    styles: list[dict[str, Any]] = [{}, {"indent": 1}, {"indent": 2, "sort_keys": True}, {"separators": (",", ":")}]
    text = json.dumps(made, ensure_ascii=draw(st.booleans()), **draw(st.sampled_from(styles)))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))).encode() + draw(st.sampled_from([b"", b"\n"]))


@given(files())
def test_text_that_is_written_back_unchanged_gives_the_same_bytes(data: bytes) -> None:
    read = Notebook.parse(data)
    assert read.with_text(read.text) == data


@given(files(PLAIN), st.data())
def test_edited_lines_are_all_that_is_written(data: bytes, draw: st.DataObject) -> None:
    read = Notebook.parse(data)
    lines = read.text.decode().split("\n")
    heads = [row for row, line in enumerate(lines) if line.startswith("pass  #%% cell ")]
    first = draw.draw(st.sampled_from(heads)) + 1
    last = next((row for row in heads if row > first), len(lines) - 1)
    start = draw.draw(st.integers(first, last))
    end = draw.draw(st.integers(start, last))
    lines[start:end] = draw.draw(
        st.lists(st.sampled_from(["x = 2", "", "# é"]), min_size=start == first and end == last, max_size=3)
    )
    text = "\n".join(lines).encode()
    try:
        after = read.with_text(text)
    except CannotWriteBack as error:
        assert str(error) == "an empty cell gets text"  # noqa: PT017 - most are written
        return
    assert Notebook.parse(after).text == text
    number = sum(row < first for row in heads) - 1
    old, new = json.loads(data), json.loads(after)
    old["cells"][number]["source"] = new["cells"][number]["source"]
    assert old == new
    strings = read.strings.get(number + 1)
    if strings is None:
        assert after == data
    else:
        assert after.startswith(data[: strings[0].start])
        assert after.endswith(data[strings[-1].end :])


@given(files())
def test_a_fix_changes_nothing_but_the_lines_with_a_flaw(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    project = Project(tmp_path_factory.mktemp("any"))
    after = fixed_bytes(project, data)
    assert after.replace(b"no_grad():", b"no_grad:") == data
    places = [f["cell"] for f in project.findings() if f["rule"] == "no-grad-without-call"]
    assert not places


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_make_reading_fail_otherwise(data: bytes) -> None:
    for content in (data, b'{"cells": [' + data + b"]}", b'{"cells": [{"cell_type": "code", "source": ' + data + b"}]}"):
        try:
            read = Notebook.parse(content)
        except NotebookError:
            continue
        assert read.with_text(read.text) == content


# -- what a fix may rest on ----------------------------------------------------------------------------------------------

FUNCTION = """\
def train(data):
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in data:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def levels(project: Project, *arguments: str) -> dict[str, tuple[str, list[str]]]:
    """By rule, how safe a fix is and what it assumes."""
    return {f["rule"]: (f["fix"]["applicability"], f["fix"]["assumptions"]) for f in project.findings(*arguments) if f["fix"]}


def test_a_fix_that_rests_on_nothing_but_its_own_function_is_safe(project: Project) -> None:
    written(project, "import torch\nfrom torch import nn", FUNCTION)
    assert levels(project, "--select", "zero-grad-late") == {"zero-grad-late": ("safe", [])}


def test_a_fix_that_rests_on_another_cell_assumes_the_order_of_cells(project: Project) -> None:
    cells = ["model = nn.Linear(4, 4).cuda()", "optimizer = torch.optim.SGD(model.parameters(), 0.1)"]
    loop = (
        "for x in data:\n    loss = model(x.cuda()).sum()\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()"
    )
    imports = "import torch\nfrom torch import nn\ndata = [torch.ones(4) for _ in range(9)]"
    path = written(project, imports, *cells, loop)
    script = "\n".join([imports, *cells, loop])
    assert levels(project, "--select", "zero-grad-late") == {"zero-grad-late": ("assuming", ["cell-order"])}
    assert "another order" in project.findings("--select", "zero-grad-late")[0]["missing_proofs"][0]
    before = path.read_bytes()
    project.run("fix", "--isolated", "--select", "zero-grad-late")
    assert path.read_bytes() == before
    path.unlink()
    project.write({"a.py": script})
    assert levels(project, "--select", "zero-grad-late") == {"zero-grad-late": ("safe", [])}


def test_what_a_cell_binds_may_be_used_and_bound_anew_by_others(project: Project) -> None:
    loop = FUNCTION.partition("\n")[2].replace("\n    ", "\n").strip()
    written(project, "import torch\nfrom torch import nn\ndata = [torch.ones(4)]\n" + loop)
    (found,) = project.findings("--select", "zero-grad-late")
    assert found["fix"]["applicability"] != "safe"


def shown_level(project: Project, cell: str, first: str = "import torch") -> str:
    """How safe the fix of the finding in a cell is, which is safe where the cell shows nothing."""
    written(project, first, cell)
    (found,) = project.findings("--select", "no-grad-without-call")
    level: str = found["fix"]["applicability"]
    return level


def test_what_a_fix_touches_and_a_cell_shows_is_not_safe(project: Project) -> None:
    block = "with torch.no_grad:\n    y = 3\n"
    assert shown_level(project, block) == "safe"
    assert shown_level(project, f"{block}y") == "safe"
    assert shown_level(project, f"{block}torch.ones(3);") == "safe"
    assert shown_level(project, f"{block}torch.ones(3)") == "unsafe"  # a name of the line that is fixed
    everything = "import torch\nInteractiveShell.ast_node_interactivity = 'all'"
    assert shown_level(project, f"{block}torch\nz = 1", everything) == "unsafe"
    assert "shows and keeps" in project.findings()[0]["missing_proofs"][-1]


@pytest.mark.parametrize(
    ("cell", "before", "after", "level"),
    [
        ("x\ny = 1", "\ny = 1", "", "unsafe"),  # x is shown then
        ("x;\ny = 1", "\ny = 1", "", "safe"),
        ("z = x\ny = 1", "\ny = 1", "", "safe"),
        ("y = 1\nx", "y = 1", "y = 2", "safe"),
        ("x = 1\nx", "x = 1", "x = 2", "unsafe"),
        ("f(x)", "x", "y", "unsafe"),
        ("f(x);  # quiet", "x", "y", "safe"),
        ("z = 1\n%time f(x)", "f(x)  #", "f(y)  #", None),
        ("z = 1\n!f x", "z = 1\nget", "get", None),
        ("z = 1\n", "z = 1\n\npass  #%% cell 2", "pass", None),
        ("z = 1", "z = 1\npass", "pass", None),
        ("z = 1", "z = 1\n", "z = 2", None),
        ("y = 1\nz = 1", "z = 1\n", "", "safe"),
    ],
)
def test_a_fix_is_judged_by_what_it_leaves_of_its_cell(cell: str, before: str, after: str, level: str | None) -> None:
    source = Source("a.ipynb", joined([(1, as_python(cell), None), (2, "w = 1", None)]))
    start = source.body.index(before.encode(), source.body.index(b"\n"))
    fix = Fix(Applicability.SAFE, "", (Edit(start, start + len(before.encode()), after),))
    finding = Finding("rule", Severity.WARNING, "group", "", start, start + 1, fix)
    in_cell = start - source.body.index(b"\n") - 1  # alone, the cell has nothing above it here
    alone = replace(
        finding,
        start=in_cell,
        end=in_cell + 1,
        fix=replace(fix, edits=(replace(fix.edits[0], start=in_cell, end=in_cell + len(before.encode())),)),
    )
    (judged,) = in_any_order(source, [finding], lambda path, text: [alone])
    assert (judged.fix.applicability.value if judged.fix is not None else None) == level


# -- the rest of the tool ------------------------------------------------------------------------------------------------


def test_notebooks_are_found_in_folders_but_not_where_checkpoints_are(project: Project) -> None:
    for name in ("a.ipynb", "b/c.ipynb", ".ipynb_checkpoints/a-checkpoint.ipynb", "d/.ipynb_checkpoints/e.ipynb", "f/g.ipynb"):
        written(project, BAD, name=name)
    shown = project.run("check", "--show-files", "--isolated", "--exclude", "f").stdout.split()
    assert [Path(path).relative_to(project.root).as_posix() for path in shown] == ["a.ipynb", "b/c.ipynb"]


def test_a_diff_shows_cells(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.root)
    path = written(project, "import torch", f"x = 1\n{FLAW}")
    before = path.read_bytes()
    assert in_process("fix", "--diff", ".").stdout == (
        "--- a/a.ipynb:cell 2\n+++ b/a.ipynb:cell 2\n@@ -1,3 +1,3 @@\n"
        " x = 1\n-with torch.no_grad:\n+with torch.no_grad():\n     x += 1\n"
    )
    assert path.read_bytes() == before


def test_comments_in_cells_silence_findings(project: Project) -> None:
    path = written(project, BAD, BAD)
    project.run("check", "--add-ignores", "--isolated")
    assert project.findings() == []
    assert [source.count("# perflint: ignore[no-grad-without-call]") for source in sources(path.read_bytes())] == [1, 1]
    written(project, BAD, "# perflint: ignore-file[no-grad-without-call]\n" + BAD)
    assert project.findings() == []


def test_standard_input_may_be_a_notebook(project: Project) -> None:
    data = json.dumps(notebook(BAD))
    result = in_process("fix", "--stdin-filename", str(project.root / "a.ipynb"), "-", stdin=data.encode())
    assert sources(result.stdout) == [GOOD]


def test_results_are_remembered_until_a_cell_changes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    path = written(project, "import torch", FLAW)
    first = project.run("check", "--isolated", "--output-format", "json").stdout
    assert project.run("check", "--isolated", "--output-format", "json").stdout == first
    changed = json.loads(path.read_bytes())
    changed["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x"}]
    path.write_text(json.dumps(changed), encoding="utf-8")
    assert project.run("check", "--isolated", "--output-format", "json").stdout == first
    written(project, "import torch", "x = 1", FLAW)
    assert [f["cell"] for f in project.findings()] == [3]


def test_several_processes_find_the_same(project: Project) -> None:
    for number in range(6):
        written(project, "import torch", FLAW, "y = '" + "x" * 300_000 + "'", name=f"{number}.ipynb")
    one, two = (project.run("check", "--isolated", "--output-format", "json", "--jobs", jobs).stdout for jobs in "12")
    assert one == two
    assert one.count('"rule"') == 6


def test_a_notebook_is_part_of_the_program_that_it_imports(project: Project) -> None:
    project.write({"pyproject.toml": "", "net.py": "import torch\n\n\ndef f(x):\n    with torch.no_grad:\n        return x\n"})
    written(project, "from net import f\nimport torch", FLAW)
    assert sorted((Path(f["filename"]).name, f["cell"]) for f in project.findings()) == [("a.ipynb", 2), ("net.py", None)]


def test_what_speaks_against_an_assumption_is_looked_for_in_cells_not_in_outputs(project: Project) -> None:
    project.write({"pyproject.toml": ""})
    path = written(project, "import torch", "x = torch.ones(2)\ns = torch.cuda.Stream()")
    content = json.loads(path.read_bytes())
    content["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "class A(torch.Tensor):"}]
    path.write_text(json.dumps(content), encoding="utf-8")
    rows = {line.split()[0]: line for line in project.run("assumptions").stdout.splitlines() if line}
    assert rows["one-stream"].endswith("a.ipynb:cell 2:2")
    assert rows["plain-tensors"].endswith("nothing in the source")
    assert rows["cell-order"].endswith("source cannot say")


def test_the_hooks_are_run_for_notebooks() -> None:
    text = (Path(__file__).parent.parent / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert text.count("types_or: [python, jupyter]") == text.count("- id:") == 2


@pytest.mark.parametrize("style", ["sarif", "gitlab", "junit", "markdown", "html", "github", "azure", "pylint", "rdjson"])
def test_every_format_says_in_which_cell(project: Project, style: str) -> None:
    written(project, "import torch\n" * 9, f"x = 1\n{FLAW}")
    text = project.run("check", "--isolated", "--output-format", style).stdout
    assert "cell 2:2" in text
    assert "#%%" not in text


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """A file's text after the replacements of a SARIF fix."""
    lines = text.splitlines(keepends=True)
    starts = [0, *itertools.accumulate(map(len, lines))]
    for replacement in reversed(replacements):
        region = replacement["deletedRegion"]
        start, end = (starts[region[f"{side}Line"] - 1] + region[f"{side}Column"] - 1 for side in ("start", "end"))
        text = text[:start] + replacement["insertedContent"]["text"] + text[end:]
    return text


@pytest.mark.parametrize("layout", ["lines", "one string", "one line of JSON", "escaped", "marked"])
def test_formats_that_know_rows_only_point_into_the_json(project: Project, layout: str) -> None:
    path = written(project, "import torch\n%time 1", "#md", "s = '\u00e9\U0001f600\\t\"'; x = 1\n" + FLAW)
    content = json.loads(path.read_text())
    if layout == "one string":
        content["cells"][2]["source"] = "".join(content["cells"][2]["source"])
    indent = None if layout == "one line of JSON" else 1
    data = json.dumps(content, indent=indent, ensure_ascii=layout == "escaped")
    path.write_bytes(b"\xef\xbb\xbf" * (layout == "marked") + data.encode())
    lines = data.splitlines()
    row = next(row for row, line in enumerate(lines, 1) if "with torch" in line)
    column = lines[row - 1].index("torch.no_grad") + 1
    end = column + len("torch.no_grad")

    def report(style: str) -> Any:
        return json.loads(project.run("check", "--isolated", "--output-format", style).stdout)

    (result,) = report("sarif")["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {
        "startLine": row, "startColumn": column, "endLine": row, "endColumn": end,
    }  # fmt: skip
    assert report("gitlab")[0]["location"]["lines"] == {"begin": row, "end": row}
    (diagnostic,) = report("rdjson")["diagnostics"]
    assert diagnostic["location"]["range"]["end"] == {"line": row, "column": len(lines[row - 1][: end - 1].encode()) + 1}
    (suggestion,) = diagnostic["suggestions"]
    assert "no_grad()" in suggestion["text"]
    fixed = applied(data, result["fixes"][0]["artifactChanges"][0]["replacements"])
    assert fixed == project.fixed("a.ipynb", "--isolated").removeprefix("\ufeff")
    assert sources(fixed)[1] == sources(data)[1].replace("no_grad:", "no_grad():")


def test_a_notebook_on_standard_input_has_rows_too(project: Project) -> None:
    data = json.dumps(notebook("import torch", FLAW), indent=1)
    done = in_process(
        "check",
        "--isolated",
        "--output-format",
        "gitlab",
        "--stdin-filename",
        str(project.root / "b.ipynb"),
        "-",
        stdin=data.encode(),
    )
    row = next(row for row, line in enumerate(data.splitlines(), 1) if "with torch" in line)
    assert json.loads(done.stdout)[0]["location"]["lines"]["begin"] == row


def test_the_page_counts_the_waits_of_a_loop_within_its_cell(project: Project) -> None:
    text = (FIXTURES / "item-every-step" / "train.py").read_text(encoding="utf-8")
    first, *functions = re.split(r"\n(?=def )", text.rstrip())
    written(project, first, *functions)
    page = project.run("check", "--isolated", "--select", "item-every-step", "--output-format", "html").stdout
    row = next(row for row, line in enumerate(functions[0].split("\n"), 1) if ".item()" in line)
    assert f"<code>cell 2:{row}</code>" in page


def test_a_baseline_knows_findings_in_cells_that_move(project: Project) -> None:
    project.write({"pyproject.toml": "[tool.perflint]\nbaseline = 'known.json'\n"})
    written(project, "import torch", FLAW)
    project.run("check", "--update-baseline")
    written(project, "#md", "import torch", "y = 1", FLAW)
    assert project.run("check").exit_code == 0
    written(project, "import torch", FLAW, FLAW)
    assert project.run("check").exit_code == 1


# -- run -----------------------------------------------------------------------------------------------------------------

RUN = [
    "from __future__ import annotations\n%matplotlib inline\nimport os\nprint(os.environ['MPLBACKEND'], __name__)",
    "#md",
    "%%time\n!pip install \\\n  x\ndef f(x: undefined) -> int:\n    return x",
    "%%bash\nls 'it\nls",
    "import asyncio\nawait asyncio.sleep(0)\nfiles = !ls\nif get_ipython():\n    display('shown', f(3))\nfiles",
]


def runs(project: Project, command: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return in_subprocess(command, "--quiet", "a.ipynb", *arguments, cwd=project.root)


def test_verify_runs_cells_from_top_to_bottom_and_says_what_it_leaves_out(project: Project) -> None:
    project.write({"pyproject.toml": "", "other/pyproject.toml": ""})
    before = written(project, *RUN).read_bytes()
    written(project, *RUN, name="other/a.ipynb")
    done = runs(project, "verify", "--against", "other", "--repeats", "2", "--json", "record.json")
    assert done.returncode == 0, done.stderr
    record = json.loads((project.root / "record.json").read_text(encoding="utf-8"))
    assert record["original"]["output"].splitlines() == ["Agg __main__", "shown 3"]
    assert record["left_out"] == [
        "cell 1:2: %matplotlib inline",
        "cell 3:1: %%time",
        "cell 3:2: !pip install \\",
        "cell 4:1: %%bash",
        "cell 5:3: files = !ls",
    ]
    assert b"Left out, for only IPython can run it:\n  cell 1:2: %matplotlib inline\n" in done.stdout
    assert (project.root / "a.ipynb").read_bytes() == before


def test_an_error_of_a_notebook_names_the_cell(project: Project) -> None:
    project.write({"pyproject.toml": "", "other/pyproject.toml": ""})
    written(project, *RUN, "x = 1\n1 / 0")
    written(project, *RUN, name="other/a.ipynb")
    done = runs(project, "verify", "--against", "other", "--repeats", "2")
    assert done.returncode == 2
    assert b'File "<project>/a.ipynb", cell 6, line 2, in <module>\n' in done.stderr
    assert b"1 / 0" in done.stderr
    assert b"perflint_probe" not in done.stderr


@pytest.mark.parametrize("data", [b"{", json.dumps(notebook("x <- 3", metadata=R)).encode()])
def test_what_is_no_notebook_about_python_is_not_run(project: Project, data: bytes) -> None:
    project.write({"pyproject.toml": ""})
    (project.root / "a.ipynb").write_bytes(data)
    done = runs(project, "verify")
    assert done.returncode == 2
    assert done.stderr.startswith(b"Error: a.ipynb: the notebook ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
def test_the_fixes_of_a_notebook_are_verified_and_its_lines_profiled(project: Project) -> None:
    project.write({"pyproject.toml": '[tool.perflint]\nselect = ["zero-grad-late"]\n'})
    written(
        project,
        "import torch\nfrom torch import nn\n%matplotlib inline",
        "#md",
        FUNCTION.replace(".cuda()", ""),
        "torch.manual_seed(0)\ntrain([torch.ones(4)] * 3)",
    )
    done = runs(project, "verify", "--repeats", "2", "--json", "record.json", "--html", "page.html")
    assert done.returncode == 0, done.stderr
    record = json.loads((project.root / "record.json").read_text(encoding="utf-8"))
    assert [(fix["file"], fix["row"], fix["rule"]) for fix in record["fixes"]] == [("a.ipynb:cell 3", 6, "zero-grad-late")]
    assert record["equality"]["verdict"] == "identical"
    assert list(record["diffs"]) == ["a.ipynb"]
    done = runs(project, "profile", "--json", "profile.json")
    assert b"a.ipynb:cell 3:6  optimizer.zero_grad()" in done.stdout
    done = in_subprocess("check", "--profile", "profile.json", "--profile-threshold", "0", "a.ipynb", cwd=project.root)
    assert b"a.ipynb:cell 3:6 train" in done.stdout
    assert b"ms per step" in done.stdout


def test_a_notebook_may_be_larger_than_a_python_file_but_not_of_any_size(project: Project) -> None:
    path = written(project, "import torch", FLAW)
    content = json.loads(path.read_bytes())
    content["cells"][0]["outputs"] = [{"output_type": "display_data", "data": {"image/png": "A" * MAX_FILE_BYTES}}]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert [f["cell"] for f in project.findings()] == [2]
    os.truncate(path, MAX_NOTEBOOK_BYTES + 1)
    assert [f["message"] for f in project.findings()] == ["the file is larger than 64 MiB; leave it out with `exclude`"]
