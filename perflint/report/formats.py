"""The output formats: one table of what writes each. A writer's module is imported when its format is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from perflint.report.report import Report

Lines = Iterator[str]

FOR_PEOPLE = frozenset({"grouped", "full", "concise"})
"""Formats that are read in a terminal: a summary follows."""


Writer = Callable[[Report], Lines]


def _grouped(report: Report) -> Lines:
    from perflint.report import grouped, text

    if report.fixing:
        return text.problems(report.result, report.terminal)
    return grouped.grouped(report.result, report.terminal)


def _full(report: Report) -> Lines:
    from perflint.report.text import full

    return full(report.result, report.terminal)


def _concise(report: Report) -> Lines:
    from perflint.report.text import concise

    return concise(report.result, report.terminal)


def _json(report: Report) -> Lines:
    from perflint.report.data import as_json

    return as_json(report.result)


def _json_lines(report: Report) -> Lines:
    from perflint.report.data import as_json_lines

    return as_json_lines(report.result)


def _github(report: Report) -> Lines:
    from perflint.report.data import github

    return github(report.result)


def _sarif(report: Report) -> Lines:
    from perflint.report.sarif import sarif

    return sarif(report)


def _gitlab(report: Report) -> Lines:
    from perflint.report.gitlab import gitlab

    return gitlab(report)


def _html(report: Report) -> Lines:
    from perflint.report.html import page

    yield page(report.result, report.rules, report.paths, report.notes)


def _junit(report: Report) -> Lines:
    from perflint.report.junit import junit

    return junit(report)


def _markdown(report: Report) -> Lines:
    from perflint.report.markdown import markdown

    return markdown(report)


def _azure(report: Report) -> Lines:
    from perflint.report.annotations import azure

    return azure(report)


def _pylint(report: Report) -> Lines:
    from perflint.report.annotations import pylint

    return pylint(report)


def _rdjson(report: Report) -> Lines:
    from perflint.report.annotations import rdjson

    return rdjson(report)


WRITERS: Mapping[str, Writer] = {
    "grouped": _grouped,
    "full": _full,
    "concise": _concise,
    "json": _json,
    "json-lines": _json_lines,
    "azure": _azure,
    "github": _github,
    "gitlab": _gitlab,
    "html": _html,
    "junit": _junit,
    "markdown": _markdown,
    "pylint": _pylint,
    "rdjson": _rdjson,
    "sarif": _sarif,
}
"""By the names of `perflint.interface.FORMATS`."""


def _table(report: Report) -> Lines:
    from perflint.report.statistics import table

    return table(report.result)


def _statistics_json(report: Report) -> Lines:
    from perflint.report.statistics import as_json

    return as_json(report.result)


def _statistics_json_lines(report: Report) -> Lines:
    from perflint.report.statistics import as_json_lines

    return as_json_lines(report.result)


_STATISTICS: Mapping[str, Writer] = {"json": _statistics_json, "json-lines": _statistics_json_lines}


def writer(name: str, *, statistics: bool = False) -> Writer:
    """What writes a format. statistics: how many findings each rule has, instead of the findings."""
    return _STATISTICS.get(name, _table) if statistics else WRITERS[name]
