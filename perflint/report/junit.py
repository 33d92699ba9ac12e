"""JUnit XML, which most CI services show as test results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from perflint.report.report import Report
from perflint.report.text import fix_words, place
from perflint.rule.finding import ENGINE, Severity
from perflint.run.outcome import Checked

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> Iterator[str]:
    """A test suite for each file with findings, a failed case for each of them; a passed case if there are none.

    What perflint could not do (a file that it cannot read, say) is an error, as in a test that did not run.
    """
    suites = ElementTree.Element("testsuites", name="perflint")
    for checked in report.result.checked:
        if checked.findings:
            suites.append(_suite(checked))
    if not len(suites):
        suite = ElementTree.SubElement(suites, "testsuite", name="perflint", tests="1", failures="0", errors="0")
        ElementTree.SubElement(suite, "testcase", name="no findings", classname="perflint")
    for count in ("tests", "failures", "errors"):
        suites.set(count, str(sum(int(suite.get(count, "0")) for suite in suites)))
    ElementTree.indent(suites)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield ElementTree.tostring(suites, encoding="unicode")


def _suite(checked: Checked) -> ElementTree.Element:
    name = _clean(checked.path)
    suite = ElementTree.Element("testsuite", name=name)
    errors = 0
    for finding in checked.findings:
        at = place(checked, finding)
        case = ElementTree.SubElement(
            suite, "testcase", name=f"{finding.rule} ({at.line}:{at.column})", classname=name, file=name, line=str(at.row)
        )
        is_error = finding.category == ENGINE and finding.severity is Severity.ERROR
        errors += is_error
        kind = "error" if is_error else "failure"
        problem = ElementTree.SubElement(case, kind, message=_clean(finding.message), type=finding.severity.value)
        problem.text = _clean(
            f"{checked.path}:{at.line}:{at.column}: {finding.rule}: {finding.message}. {fix_words(finding)}".strip()
        )
    count = len(checked.findings)
    for key, value in (("tests", count), ("failures", count - errors), ("errors", errors)):
        suite.set(key, str(value))
    return suite


def _clean(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
