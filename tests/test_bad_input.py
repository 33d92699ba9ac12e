"""Files that cannot be checked: one clear line each, the other files are checked, nothing is written, no traceback."""

from __future__ import annotations

import codecs
import errno
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import BAD, Project, in_process, in_subprocess

HEAD = b"import torch\n"
TRAIN = b"""\
import torch
def train(model, loader, opt):
    model.cuda()
    for x, y in loader:
        loss = model(x.cuda()).sum()
        loss.backward()
        opt.step()
        z = """

UNUSABLE = {
    "a syntax error": (b"def f(:\n    pass\n", "invalid-syntax", "1:7", "invalid syntax"),
    "an error in a method": (b"class A:\n    def f(self):\n        x = = 1\n", "invalid-syntax", "3:13", "invalid syntax"),
    "Python 2": (b"print 'x'\n", "invalid-syntax", "1:1", "Missing parentheses in call to 'print'"),
    "an open bracket": (b"x = (1,\n", "invalid-syntax", "1:5", "'(' was never closed"),
    "mixed tabs": (b"if 1:\n\tx = 1\n        y = 2\n", "invalid-syntax", "3:1", "inconsistent use of tabs"),
    "undecodable bytes": (b"x = 1\ns = '\xff'\n", "unreadable-file", "1:1", "byte 0xff is not UTF-8; declare the encoding"),
    "UTF-16": ("x = 1\n".encode("utf-16"), "unreadable-file", "1:1", "is not UTF-8"),
    "an unknown encoding": (b"# coding: klingon\ns = '\xff'\n", "unreadable-file", "1:1", "unknown source encoding 'klingon'"),
    "a codec that is none for text": (b"# coding: rot13\n", "unreadable-file", "1:1", "rot13"),
    "a codec that decodes nothing": (b"# coding: idna\nx = '" + b"a" * 100 + b"'\n", "unreadable-file", "1:1", "idna"),
    "a mark and another encoding": (b"\xef\xbb\xbf# coding: latin-1\n", "unreadable-file", "1:1", "remove one of them"),
    "a NUL byte": (b"x = 1\ny = '\0'\n", "unreadable-file", "1:1", "NUL bytes (line 2)"),
    "1000 nested parentheses": (b"x = " + b"(" * 1000 + b")" * 1000, "invalid-syntax", "1:20", "too many nested parentheses"),
    "1000 nested functions": (
        HEAD + b"".join(b" " * i + b"def f():\n" for i in range(1000)) + b" " * 1000 + b"pass\n",
        "invalid-syntax", "102:1", "too many levels of indentation",
    ),
    "1000 nested ifs": (
        HEAD + b"".join(b" " * i + b"if x:\n" for i in range(1000)) + b" " * 1000 + b"pass\n",
        "invalid-syntax", "102:1", "too many levels of indentation",
    ),
    "a sum of 20000 terms": (TRAIN + b" + ".join([b"loss.item()"] * 20_000), "unreadable-file", "", "nested too deeply"),
    "a chain of 20000 calls": (TRAIN + b"x" + b".cuda()" * 20_000, "unreadable-file", "", "nested too deeply"),
}  # fmt: skip


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one good file that has a finding, as the working directory."""
    monkeypatch.chdir(project.root)
    return project.write({"good.py": BAD})


def lines(result: Any) -> list[str]:
    """The lines of a report."""
    assert "Traceback" not in result.output
    found: list[str] = result.stdout.splitlines()
    return found


@pytest.mark.parametrize("name", ["future_fstrings", "future-fstrings", "utf8-mb4", "klingon"])
def test_an_encoding_of_a_plug_in_is_utf_8_and_its_line_stays(here: Project, name: str) -> None:
    text = f"# -*- coding: {name} -*-\ns = f'\u00e9'\n{BAD}"
    (here.root / "good.py").write_text(text, encoding="utf-8")
    assert lines(in_process("check", "-q", "--output-format", "concise")) == [
        "good.py:6:6: no-grad-without-call [*] `with torch.no_grad:` raises TypeError; write `torch.no_grad()`"
    ]
    assert in_process("fix", "-q").exit_code == 0
    assert (here.root / "good.py").read_text(encoding="utf-8") == text.replace("no_grad:", "no_grad():")


def test_an_encoding_of_a_plug_in_that_is_installed_is_the_same(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def shouting(name: str) -> codecs.CodecInfo | None:
        utf8 = codecs.lookup("utf-8")
        loud = lambda data, errors="strict": (bytes(data).decode().upper(), len(data))
        return codecs.CodecInfo(utf8.encode, loud, utf8.streamreader, utf8.streamwriter) if name == "shouting" else None

    codecs.register(shouting)
    try:
        here.write({"good.py": f"# coding: shouting\n{BAD}"})
        (line,) = lines(in_process("check", "-q", "--output-format", "concise"))
    finally:
        codecs.unregister(shouting)
    assert line.startswith("good.py:5:6: no-grad-without-call")


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_file_gives_one_line_and_stays_as_it_is(here: Project, name: str) -> None:
    data, rule, place, says = UNUSABLE[name]
    (here.root / "bad.py").write_bytes(data)
    result = in_process("check", "-q", "--output-format", "concise")
    assert result.exit_code == 1
    bad, good = lines(result)
    assert bad.startswith(f"bad.py:{place}")
    assert f" {rule} " in bad
    assert says in bad
    assert good.startswith("good.py:4:6: no-grad-without-call")
    fixed = in_process("fix", "-q")
    assert fixed.exit_code == 1
    assert "Traceback" not in fixed.output
    assert (here.root / "bad.py").read_bytes() == data
    assert (here.root / "good.py").read_text() != BAD


USABLE = {
    "latin-1 that says so": "# -*- coding: latin-1 -*-\n# \u00e9\n".encode("latin-1") + BAD.encode(),
    "a byte order mark": b"\xef\xbb\xbf" + BAD.encode(),
    "CRLF": BAD.replace("\n", "\r\n").encode(),
    "CR": BAD.replace("\n", "\r").encode(),
    "mixed line ends": BAD.replace("\n", "\r\n", 2).encode(),
    "no final newline": BAD.rstrip("\n").encode(),
    "form feeds": b"\x0c\n" + BAD.replace("\nwith", "\n\x0cwith").encode(),
    "a sum of 3000 terms": BAD.encode() + b"y = " + b" + ".join([b"x.item()"] * 3000) + b"\n",
    "a chain of 1500 calls": BAD.encode() + b"y = x" + b".cuda()" * 1500 + b"\n",
    "500 negations": BAD.encode() + b"y = " + b"not " * 500 + b"x\n",
    "90 nested functions": BAD.encode() + b"".join(b" " * i + b"def f():\n" for i in range(90)) + b" " * 90 + b"x.item()\n",
    "5 MB": BAD.encode() + b"TABLE = [\n" + (b"    '" + b"\xc3\xa9" * 100 + b"',\n") * 24_000 + b"]\n",
    "3000 functions of one name": BAD.encode() + b"def f(x):\n    return x\n" * 3000,
}  # fmt: skip


@pytest.mark.parametrize("name", USABLE)
def test_an_odd_file_is_checked_and_fixed_like_any_other(project: Project, name: str) -> None:
    path = project.root / "odd.py"
    path.write_bytes(USABLE[name])
    done = in_subprocess("fix", "--isolated", "--select", "no-grad-without-call", "odd.py", cwd=project.root)
    assert (done.returncode, done.stderr) == (0, b""), done.stdout
    assert path.read_bytes() == USABLE[name].replace(b"torch.no_grad", b"torch.no_grad()")


@pytest.mark.parametrize("expression", [b" + ".join([b"loss.item()"] * 20_000), b"x" + b".cuda()" * 20_000])
def test_a_function_too_deep_to_analyse_does_not_hide_the_others(project: Project, expression: bytes) -> None:
    more = b"\nwith torch.no_grad:\n    pass\n"
    (project.root / "deep.py").write_bytes(TRAIN + expression + more)
    done = in_subprocess("check", "-q", "--output-format", "concise", cwd=project.root)
    assert done.returncode == 1
    assert done.stderr == b""
    deep, other = done.stdout.decode().splitlines()
    assert deep.startswith("deep.py:2:1: unreadable-file `train` is nested too deeply to be analysed; split")
    assert "no-grad-without-call" in other


def test_an_empty_file_is_clean(project: Project) -> None:
    assert project.write({"a.py": "", "b.py": "\n", "c.py": "#"}).rules() == []


def test_no_fix_is_promised_where_none_is_written(project: Project) -> None:
    evaluation = """import torch


def evaluate(model, loader):
    model.eval()
    total = 0.0
    for x in loader:
        total += model(x).sum().item()
    return total
"""
    assert any(finding["fix"] for finding in project.write({"run.py": evaluation}).findings("--select", "all"))
    found = project.write({"run.py": evaluation + "\n\ndef old():\n    print 'x'\n"}).findings("--select", "all")
    assert {finding["rule"] for finding in found} > {"invalid-syntax"}
    assert not any(finding["fix"] for finding in found)


def test_syntax_of_a_newer_python_is_told_from_an_error(project: Project) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("this Python knows everything that LibCST does")
    project.write({"a.py": "x = t'{1}'\n", "b.py": "x = = 1\n", "c.py": "def f():\nx = 1\n"})
    newer, broken, indented = (f["message"] for f in project.findings())
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"syntax newer than Python {running}, which runs perflint: run perflint with a newer Python" in newer
    assert "newer" not in broken + indented


def test_an_argument_by_the_name_of_a_keyword_is_one_finding_that_says_so(project: Project) -> None:
    project.write({"a.py": "x = x.cuda(async=True)\ny = y.cuda( async = True)\n"})
    (finding,) = project.findings()
    assert (finding["rule"], finding["location"]["row"]) == ("invalid-syntax", 1)
    assert "`async` is a keyword since Python 3.7: the argument is `non_blocking` since torch 0.4" in finding["message"]


def test_warnings_of_the_parser_are_not_printed(project: Project) -> None:
    (project.root / "a.py").write_bytes(b"import torch\nx = 1if 2 else '\\d'\n")
    done = in_subprocess("check", cwd=project.root)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_a_file_that_may_not_be_read_is_reported(here: Project) -> None:
    here.write({"a.py": BAD})
    (here.root / "a.py").chmod(0)
    first, *others = lines(in_process("check", "-q", "--output-format", "concise"))
    assert "a.py:1:1: unreadable-file the file cannot be read" in first
    assert len(others) == 1


def test_a_folder_that_may_not_be_listed_is_said(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write({"a.py": "x = 1\n", "closed/b.py": BAD})
    (here.root / "good.py").unlink()
    scandir = os.scandir

    def refused(path: str) -> Any:
        if os.path.basename(path) == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    done = in_process("check", "--no-cache")
    why = "the folder cannot be listed"
    assert done.exit_code == 0
    assert done.stderr == f"warning: closed: {why}, so nothing in it was checked: Permission denied\n"
    done = in_process("check", "closed")
    assert (done.exit_code, done.stderr) == (2, f"Error: closed: {why}: Permission denied\n")


def test_a_file_behind_a_closed_folder_is_not_called_missing(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    lstat = os.lstat

    def refused(path: str, **others: Any) -> os.stat_result:
        if "closed" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return lstat(path, **others)

    monkeypatch.setattr(os, "lstat", refused)
    done = in_process("check", "closed/b.py")
    assert (done.exit_code, done.stderr) == (2, "Error: closed/b.py: it cannot be looked at: Permission denied\n")


def test_a_file_that_vanishes_is_reported(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from perflint.run import engine

    here.write({"a.py": BAD})
    check_item = engine.check_item

    def check_late(*arguments: Any) -> Any:
        Path("a.py").unlink(missing_ok=True)
        return check_item(*arguments)

    monkeypatch.setattr(engine, "check_item", check_late)
    first, second = lines(in_process("check", "-q", "--output-format", "concise"))
    assert first.startswith("a.py:1:1: unreadable-file the file cannot be read; check that it exists")
    assert second.startswith("good.py")


def test_a_dangling_link_that_is_named_is_reported(here: Project) -> None:
    Path("dangling.py").symlink_to("nowhere.py")
    (line,) = lines(in_process("check", "-q", "--output-format", "concise", "dangling.py"))
    assert "unreadable-file" in line


def test_a_name_that_is_no_text_is_printed(here: Project) -> None:
    name = os.fsencode(here.root) + b"/\xff.py"
    try:
        Path(os.fsdecode(name)).write_text(BAD)
    except OSError:
        pytest.skip("the file system allows text names only")
    for output_format in ("grouped", "full", "concise", "json", "json-lines", "github"):
        done = in_subprocess("check", "--output-format", output_format, cwd=here.root)
        assert done.returncode == 1
        assert b"Traceback" not in done.stderr
    assert in_subprocess("fix", "--diff", cwd=here.root).returncode == 1


def test_files_of_python_2_are_one_finding(here: Project) -> None:
    texts = {f"old_{n}.py": "print 'x'\n" for n in range(3)}
    here.write({**texts, "broken.py": "x = = 1\n"})
    found = [(f["filename"], f["message"]) for f in here.findings() if f["rule"] == "invalid-syntax"]
    assert [name for name, _ in found] == ["broken.py", "old_0.py"]
    assert "this is Python 2, as in 2 more files, which were checked in part at most" in found[1][1]


def test_a_file_may_have_a_name_that_nobody_can_import(here: Project) -> None:
    network = """
from base import Base
def block(x):
    return x * 2
class Net(Base):
    def __init__(self):
        super().__init__()
        self.block = block
    def forward(self, x):
        return block(x)
"""
    evaluation = """
import torch
import models
from base import Base
def main(name, loader):
    model = getattr(models, name)()
    model.eval()
    for x in loader:
        print(model(x.cuda()).argmax().cpu())
"""
    base = "from torch import nn\nclass Base(nn.Module): pass\n"
    here.write({"models/ net.py": network, "models/__init__.py": "", "base.py": base, "main.py": evaluation})
    assert "main.py" in {f["filename"] for f in here.findings("--select", "all")}


FAILING_PACK = {
    "site/pack/__init__.py": "",
    "site/pack/failing.py": """
        from perflint.api import Severity, rule

        @rule(category="memory", severity=Severity.WARNING, needs=[("backward",)])
        def check(code):
            \"\"\"Report each function, but for one.\"\"\"
            if not code.scope.is_module:
                yield code.finding(code.scope.node.body[{"first": 0, "second": 1}.get(code.scope.name, 0)], "reported")
    """,
    "site/pack-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: pack\nVersion: 1\n",
    "site/pack-1.dist-info/entry_points.txt": "[perflint.rules]\nstranger = pack\n",
}


@pytest.mark.parametrize("arguments", [("check",), ("check", "--exit-zero"), ("fix",)], ids=" ".join)
def test_a_rule_that_fails_costs_its_own_findings_alone(project: Project, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    functions = "".join(f"def {name}(loss):\n    loss.backward()\n" for name in ("first", "second", "third"))
    project.write({**FAILING_PACK, "linted/a.py": f"import torch\n{functions}", "linted/b.py": BAD})
    start = "import sys; sys.path.insert(0, '../site'); from perflint.__main__ import main; main()"
    options = ("--select", "failing,no-grad-without-call", "--output-format", "concise", "--no-cache")
    done = in_subprocess(*arguments, *options, cwd=tmp_path / "linted", code=start)
    report, said = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 2
    assert re.findall(r"(?m)^a\.py:(\d+):\d+: (\S+)", report) == [("3", "failing"), ("4", "internal-error"), ("7", "failing")]
    assert "the rule failing failed in `second`: IndexError('list index out of range'); this is a bug" in report
    assert "IndexError: list index out of range" in said
    assert "pack/failing.py" in said
    assert (tmp_path / "linted/b.py").read_text() == (BAD.replace("no_grad:", "no_grad():") if arguments == ("fix",) else BAD)
