"""Fixes as bytes: what is outside of an edit stays, files are replaced in one step, a second run changes nothing."""

from __future__ import annotations

import ast
import io
import os
import stat
import sys
import tokenize
from collections import Counter
from dataclasses import replace

import pytest
from conftest import BAD, GOOD, Project, in_process
from hypothesis import given, settings
from hypothesis import strategies as st

from perflint.fix import rewrite
from perflint.fix.fixer import WriteError, add_imports, apply_edits, fix_text, write
from perflint.fix.rewrite import add_keyword, delete_statement, wrap_statement
from perflint.rule.finding import Applicability, Edit, Finding, Fix, Import, Permission, Severity
from perflint.source.source import Source

ONLY = ("--isolated", "--select", "no-grad-without-call")


def fixed(project: Project, data: bytes) -> bytes:
    """A file's bytes after `fix`."""
    path = project.root / "a.py"
    path.write_bytes(data)
    result = in_process("fix", *ONLY, str(path))
    assert result.exit_code == 0, result.output
    return path.read_bytes()


# -- bytes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + BAD.encode(),
        BAD.replace("\n", "\r\n").encode(),
        BAD.replace("\n", "\r").encode(),
        BAD.replace("\n", "\r\n", 3).encode(),
        BAD.replace("\n    x", "\n\tx").encode(),
        b"\x0c\n" + BAD.encode(),
        BAD.rstrip("\n").encode(),
        (BAD + "   \n\n\t\n").encode(),
        b"# coding: latin-1\n# \xe9\n" + BAD.encode(),
        "# coding: cp1251\ns = '\u0416'; ".encode("cp1251") + BAD.encode(),
        "#!/usr/bin/env python\ns = '\u00e9\u2028\U0001f600'; ".encode() + BAD.encode(),
    ],
    ids=["mark", "CRLF", "CR", "mixed", "tab", "form feed", "no end", "blanks", "latin-1", "cp1251", "wide characters"],
)
def test_bytes_outside_of_the_edit_stay(project: Project, data: bytes) -> None:
    assert fixed(project, data) == data.replace(b"torch.no_grad", b"torch.no_grad()")


def test_several_findings_in_one_statement_are_all_fixed(project: Project) -> None:
    both = BAD.replace("torch.no_grad:", "torch.no_grad, torch.enable_grad:")
    assert fixed(project, both.encode()).decode() == both.replace("grad,", "grad(),").replace("grad:", "grad():")


def test_a_second_run_changes_nothing(project: Project) -> None:
    path = project.write({"a.py": BAD}).root / "a.py"
    project.run("fix", "--unsafe-fixes")
    once, changed = path.read_bytes(), path.stat().st_mtime_ns
    project.run("fix", "--unsafe-fixes")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (once, changed)


def test_insertions_at_one_place_keep_their_order() -> None:
    assert apply_edits(b"ac", [Edit(1, 1, "1"), Edit(1, 1, "2"), Edit(1, 2, "C")]) == b"a12C"


def test_wrapping_a_statement_leaves_odd_characters_in_its_strings_alone() -> None:
    text = 'if x:\n    s = "a\u2028b\x1cc"\n'
    source = Source("a.py", text.encode())
    statement = ast.parse(text).body[0].body[0]  # type: ignore[attr-defined]
    edit = wrap_statement(source, statement, "with y:")
    assert apply_edits(source.body, [edit]).decode() == 'if x:\n    with y:\n        s = "a\u2028b\x1cc"\n'


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", ""])
def test_a_comment_stays_as_it_is_when_its_statement_goes(end: str) -> None:
    line_end = "\r\n" if "\r" in end else "\n"
    text = f"y = 2{line_end}x = 1  # why{end}"
    source = Source("a.py", text.encode())
    body = ast.parse(text).body
    assert apply_edits(source.body, [delete_statement(source, body[1], body)]).decode().startswith(f"y = 2{line_end}# why{end}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(k=1)"),
        ("f(a, b,)", "f(a, b, k=1,)"),
        ("f(a,\n  b)", "f(a,\n  b,\n  k=1)"),
        ("f(\n    a, b\n)", "f(\n    a, b, k=1\n)"),
        ("f(\n    a,\n    b  # why\n)", "f(\n    a,\n    b,  # why\n    k=1\n)"),
        ("f(\n    a,\n    b,  # why\n)", "f(\n    a,\n    b,  # why\n    k=1,\n)"),
        ("f(a, b  # why\n)", "f(a, b,  # why\nk=1\n)"),
        ("f(\n    a,  # why\n    b\n    # end\n)", "f(\n    a,  # why\n    b,\n    k=1\n    # end\n)"),
    ],
)
def test_a_keyword_is_added_in_the_style_of_the_call(before: str, after: str) -> None:
    source = Source("a.py", before.encode())
    call = ast.parse(before, mode="eval").body
    assert isinstance(call, ast.Call)
    assert apply_edits(source.body, [add_keyword(source, call, "k", "1")]).decode() == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(k=1, m=2)"),
        ("f(a, b,)", "f(a, b, k=1, m=2,)"),
        ("f(a,\n  b)", "f(a,\n  b,\n  k=1,\n  m=2)"),
        ("f(\n    a,\n    b,  # why\n)", "f(\n    a,\n    b,  # why\n    k=1,\n    m=2,\n)"),
        ("f(a, b  # why\n)", "f(a, b,  # why\nk=1,\nm=2\n)"),
    ],
)
def test_keywords_that_are_added_together_stand_like_the_others(before: str, after: str) -> None:
    source = Source("a.py", before.encode())
    call = ast.parse(before, mode="eval").body
    assert isinstance(call, ast.Call)
    assert apply_edits(source.body, [add_keyword(source, call, "k", "1", ("m", "2"))]).decode() == after


@pytest.mark.parametrize(
    "text",
    [
        "f()", "f( )", "f ()", "f(a)", "f(a )", "f((a))", "f(((a)) )", "f(a,b)", "f(a,  b)", "f(a , b)", "f((a), (b))", "f(*a)",
        "f(a, **b)", "f(a, )", "f(a,)", "f(x=1)", "f(x = (1) )", "f(a)(b)", "f((x for x in y), 1)", "f('é', b)", "g.f(a).h(b)",
        "f(lambda: (1))", "f(')')", "f(a, ')')", "f((a, b), c)", "f(c, (a, b))", "f((a := 1))", "f( (a) , (b))", "f(a,\tb)",
    ],
)  # fmt: skip
def test_an_argument_that_is_added_without_libcst_is_written_as_libcst_would(text: str) -> None:
    source = Source.decode("a.py", text.encode())
    call = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    in_line = rewrite._added_in_line(source, call, "k=1")
    assert in_line in (None, rewrite._added(source, call, {"k": "1"}))
    assert in_line is not None or text in ("f(a , b)", "f(a, )", "f(a,)", "f( (a) , (b))", "f(a,\tb)")


# -- what a fix must hold ------------------------------------------------------------------------------------------------


def finding(*edits: Edit, leads_to: tuple[str, ...] = (), rule: str = "some-rule") -> Finding:
    """A finding at the start of a file, with a safe fix."""
    fix = Fix(Applicability.SAFE, "do it", edits, (), leads_to)
    return Finding(rule, Severity.WARNING, "device-sync", "message", 0, 1, fix)


def outcome(text: str, found: Finding, left: list[Finding]) -> str:
    """A text after its only fix was tried; `left` is what a check of another text finds."""
    source = Source("a.py", text.encode())
    return fix_text(source, [found], lambda body: (Source("a.py", body), left), permission=Permission()).raw.decode()


def test_a_fix_that_does_not_parse_is_left_out() -> None:
    assert outcome("x = 1\n", finding(Edit(0, 1, "(")), []) == "x = 1\n"


def test_a_fix_that_loses_or_changes_a_comment_is_left_out() -> None:
    assert outcome("x = 1  # why\n", finding(Edit(5, 12, "")), []) == "x = 1  # why\n"
    assert outcome("x = 1  # why\n", finding(Edit(12, 12, "; y = 2")), []) == "x = 1  # why\n"


def test_a_fix_that_does_not_remove_its_finding_is_left_out() -> None:
    found = finding(Edit(0, 1, "y"))
    assert outcome("x = 1\n", found, [found]) == "x = 1\n"


def test_a_fix_that_adds_a_finding_is_left_out_unless_it_says_so() -> None:
    new = finding(rule="another-rule")
    assert outcome("x = 1\n", finding(Edit(0, 1, "y")), [new]) == "x = 1\n"
    assert outcome("x = 1\n", finding(Edit(0, 1, "y"), leads_to=("another-rule",)), [new]).startswith("y")


def test_advice_may_come_but_no_error() -> None:
    """A wait that was hidden behind the one that a fix takes away is reported when that is gone."""
    advice = replace(finding(rule="another-rule"), fix=None)
    assert outcome("x = 1\n", finding(Edit(0, 1, "y")), [advice]).startswith("y")
    assert outcome("x = 1\n", finding(Edit(0, 1, "y")), [replace(advice, severity=Severity.ERROR)]) == "x = 1\n"


def test_the_other_fixes_are_applied_when_one_is_left_out() -> None:
    source = Source("a.py", b"x = 1\nx = 2\n")
    bad, good = finding(Edit(0, 1, "(")), finding(Edit(6, 7, "y"), rule="another-rule")

    def check(body: bytes) -> tuple[Source, list[Finding]]:
        return Source("a.py", body), [bad] if b"y" in body else [bad, good]

    assert fix_text(source, [bad, good], check, permission=Permission()).raw == b"x = 1\ny = 2\n"


def test_all_fixes_that_hold_are_applied_beside_many_that_do_not() -> None:
    lines = [b"x = %d\n" % i for i in range(40)]

    def left(body: bytes) -> list[Finding]:
        at, found = 0, []
        for i, line in enumerate(body.splitlines(keepends=True)):
            if line.startswith(b"x"):
                found.append(finding(Edit(at, at + 1, "(" if i % 7 == 3 else f"name_{i}"), rule=f"rule-{i}"))
            at += len(line)
        return found

    source = Source("a.py", b"".join(lines))
    done = fix_text(source, left(source.raw), lambda body: (Source("a.py", body), left(body)), permission=Permission())
    assert done.raw == b"".join(line if i % 7 == 3 else b"name_%d" % i + line[1:] for i, line in enumerate(lines))


# -- imports -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1\n", "import torch\nx = 1\n"),
        ("from torch import nn\n", "import torch\nfrom torch import nn\n"),
        ("import torch\n", "import torch\n"),
        ("import torch.nn as nn\nimport torch as t\n", "import torch.nn as nn\nimport torch as t\nimport torch\n"),
        ('"""Doc."""\nx = 1\n', '"""Doc."""\n\nimport torch\nx = 1\n'),
        ('"""Doc.\n\n# no comment"""  # note\n\nx = 1\n', '"""Doc.\n\n# no comment"""  # note\n\nimport torch\n\nx = 1\n'),
        ('"""Doc."""', '"""Doc."""\n\nimport torch\n'),
        ("from __future__ import annotations\nx = 1\n", "from __future__ import annotations\nimport torch\nx = 1\n"),
        (
            '"""Doc."""\nfrom __future__ import (\n    annotations,\n)\nimport os\n',
            '"""Doc."""\nfrom __future__ import (\n    annotations,\n)\nimport os\nimport torch\n',
        ),
        ("#!/usr/bin/python\n# coding: utf-8\n\nx = 1\n", "#!/usr/bin/python\n# coding: utf-8\n\nimport torch\nx = 1\n"),
        ("# note\r\nx = 1\r\n", "# note\r\nimport torch\r\nx = 1\r\n"),
        ("@f\ndef g(): ...\n", "import torch\n@f\ndef g(): ...\n"),
        ("if x:\n    import torch\n", "import torch\nif x:\n    import torch\n"),
    ],
)
def test_an_import_goes_behind_docstring_future_comments_and_its_like(before: str, after: str) -> None:
    assert add_imports(Source("a.py", before.encode()), [Import("torch")]).decode() == after
    ast.parse(after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from a import b\n", "from a import b, c\n"),
        ("from a import b as d  # note\n", "from a import b as d, c  # note\n"),
        ("from a import (b, d,)\n", "from a import (b, d, c,)\n"),
        ("from a import (\n    b,\n)\n", "from a import (\n    b,\n)\nfrom a import c\n"),
        ("from a import *\n", "from a import *\nfrom a import c\n"),
        ("from .a import b\n", "from a import c\nfrom .a import b\n"),
        ("from a import c\n", "from a import c\n"),
        ("from a import c as d\n", "from a import c as d, c\n"),
    ],
)
def test_a_name_is_merged_into_an_import_of_its_module(before: str, after: str) -> None:
    assert add_imports(Source("a.py", before.encode()), [Import("a", "c")]).decode() == after


# -- writing -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="needs modes and links")
def test_mode_and_link_are_kept(project: Project) -> None:
    path = project.write({"real/a.py": BAD}).root / "real" / "a.py"
    path.chmod(0o754)
    link = project.root / "link.py"
    link.symlink_to(path)
    assert in_process("fix", *ONLY, str(link)).exit_code == 0
    assert link.is_symlink()
    assert path.read_text() == GOOD
    assert stat.S_IMODE(path.stat().st_mode) == 0o754


@pytest.mark.parametrize("step", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_file_and_nothing_else(
    project: Project, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    path = project.write({"a.py": BAD}).root / "a.py"
    monkeypatch.setattr(os, step, fail)
    with pytest.raises((WriteError, KeyboardInterrupt)):
        write(str(path), BAD.encode(), GOOD.encode())
    assert path.read_text() == BAD
    assert os.listdir(project.root) == ["a.py"]


def test_a_failed_write_is_reported_and_the_other_files_are_fixed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write({"a.py": BAD, "b.py": BAD})
    replace = os.replace

    def fail(source: str, target: str) -> None:
        if target.endswith("a.py"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    result = project.run("fix", *ONLY, "--output-format", "concise")
    assert result.exit_code == 1
    assert "unreadable-file the file cannot be written: No space left on device" in result.stdout
    assert (project.root / "a.py").read_text() == BAD
    assert (project.root / "b.py").read_text() == GOOD
    assert sorted(os.listdir(project.root)) == ["a.py", "b.py"]


def test_a_file_that_changed_meanwhile_is_not_overwritten(project: Project) -> None:
    path = project.write({"a.py": BAD}).root / "a.py"
    with pytest.raises(WriteError, match="changed while it was being fixed; run perflint again"):
        write(str(path), b"other\n", GOOD.encode())
    assert path.read_text() == BAD


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_read_only_files_and_directories_are_left_alone(project: Project) -> None:
    path = project.write({"a.py": BAD}).root / "a.py"
    path.chmod(0o444)
    with pytest.raises(WriteError, match="read-only"):
        write(str(path), BAD.encode(), GOOD.encode())
    path.chmod(0o644)
    project.root.chmod(0o555)
    try:
        with pytest.raises(WriteError, match="cannot be written"):
            write(str(path), BAD.encode(), GOOD.encode())
    finally:
        project.root.chmod(0o755)
    assert path.read_text() == BAD


# -- properties ----------------------------------------------------------------------------------------------------------

STEPS = (
    "loss = model(x.to(device)).sum()",
    "total = total + loss.item()",
    "print(loss.item(), loss.item())",
    "optimizer.zero_grad(set_to_none=False)",
    "loss.backward()",
    "optimizer.step()",
    "mask = torch.zeros(2, 3).to(device)",
    "scale = torch.tensor([1.0, 2.0]).to(device)",
    "losses.append(loss.item())",
    "if loss.item() > best: best = loss.item()",
    "with torch.no_grad: y = model(x.cuda())",
    "y = y.to(device); z = f'{loss.item():.3f}'",
    'text = """a\n  b"""',
    "pass",
)
COMMENTS = st.sampled_from(["", "", "  # note", "  # \u00e9 \U0001f600", "  # 'quote", "  # x = (", " #"])
BETWEEN = st.sampled_from(["", "", "# above", "\x0c", "   ", "#\u2028", "# perflint: ignore[item-every-step]"])


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Training scripts with known flaws: indentation, comments, line ends, order and surroundings vary."""
    indent = draw(st.sampled_from(["    ", "  ", "\t"]))
    lines = [*draw(st.lists(st.sampled_from(['"""Doc."""', "# first", "", "import os"]), max_size=2)), "import torch"]
    lines += ["device = torch.device('cuda')", "def train(model: torch.nn.Module, loader, optimizer):", f"{indent}model.cuda()"]
    lines += [f"{indent}total, losses, best = 0, [], 0", f"{indent}for x, y in loader:{draw(COMMENTS)}"]
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=7)):
        between = draw(BETWEEN)
        if between:
            lines.append(indent * 2 + between if draw(st.booleans()) else between)
        lines.append(indent * 2 + step + draw(COMMENTS))
    lines += draw(
        st.sampled_from([[], [f"{indent}return total"], [f"{indent}print(total)", "if 1:", f"{indent}train(1, 2, 3)"]])
    )
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    text = "\n".join(lines).replace("\n", newline)
    return text + (newline if draw(st.booleans()) else "")


def comments(data: bytes) -> Counter[str]:
    """The comments of a text, those that perflint may remove left out."""
    found = tokenize.tokenize(io.BytesIO(data).readline)
    texts = (token.string.strip() for token in found if token.type == tokenize.COMMENT)
    return Counter(text for text in texts if "perflint:" not in text)


@settings(max_examples=60)
@given(programs())
def test_a_fixed_program_parses_keeps_its_comments_and_is_stable(
    tmp_path_factory: pytest.TempPathFactory, program: str
) -> None:
    path = tmp_path_factory.mktemp("program") / "a.py"
    before = program.encode()
    path.write_bytes(before)
    arguments = ("fix", "--isolated", "--unsafe-fixes", "-q", str(path))
    assert in_process(*arguments).exit_code in (0, 1)
    once = path.read_bytes()
    ast.parse(once)
    assert comments(once) == comments(before)
    if b"\r\n" in before:
        assert once.count(b"\n") == once.count(b"\r\n")
    else:
        assert b"\r" not in once
    in_process(*arguments)
    assert path.read_bytes() == once
    assert os.listdir(path.parent) == ["a.py"]


EDITS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.sampled_from(["", "x", "\u00e9\r\n"])), max_size=6)


@given(st.binary(min_size=35, max_size=60), EDITS)
def test_bytes_outside_of_any_edits_stay(body: bytes, wanted: list[tuple[int, int, str]]) -> None:
    edits: list[Edit] = []
    for start, length, content in sorted(wanted):
        if not edits or start >= edits[-1].end:
            edits.append(Edit(start, start + length, content))
    expected = body
    for edit in reversed(edits):
        expected = expected[: edit.start] + edit.content.encode() + expected[edit.end :]
    assert apply_edits(body, edits) == expected


@given(
    st.text(st.sampled_from("a\u00e9\u0416 #\t\x0c\u2028"), max_size=20),
    st.sampled_from(["utf-8", "cp1251", "koi8-r", "latin-1", "shift_jis"]),
)
def test_decoding_and_encoding_give_the_same_bytes(text: str, encoding: str) -> None:
    data = f"# coding: {encoding}\nx = '{text}'\r\n".encode(encoding, "replace")
    source = Source.decode("a.py", data)
    assert source.encode(source.raw) == data


CALLER = """
import torch
from sub.helper import predict_all


def evaluate(model, loader):
    model.eval()
    hits = 0
    for x, y in loader:
        hits += len(predict_all([x]))
    {} hits
"""
HELPER = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)


def predict_all(xs):
    model = Net()
    model.eval()
    return [model(x).argmax(1).tolist() for x in xs]
"""


@pytest.mark.parametrize("inner", [{}, {"sub/pyproject.toml": ""}], ids=["one project", "two projects"])
@pytest.mark.parametrize("option", [(), ("--diff",)], ids=["fix", "diff"])
def test_a_file_is_checked_against_the_fixed_text_of_those_before_it(project: Project, inner, option) -> None:
    project.write({"pyproject.toml": "", **inner, "a.py": CALLER.format("yield"), "sub/helper.py": HELPER})
    project.write({"tail/z.py": CALLER.format("return")})
    result = project.run("fix", "--isolated", "--select", "eval-without-no-grad", *option)
    assert "Would fix 1 finding in 1 file" in result.output or "Fixed 1 finding" in result.output, result.output
    assert option or "@torch.no_grad()\ndef predict_all" in (project.root / "sub" / "helper.py").read_text()
    assert "no_grad" not in (project.root / "tail" / "z.py").read_text()
