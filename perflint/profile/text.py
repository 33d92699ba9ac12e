"""A profile on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from perflint.profile.costs import THRESHOLD
from perflint.report.text import printable
from perflint.source.words import counted, plural
from perflint.verify.assumed import broken
from perflint.verify.text import not_run

MOST_ROWS = 15
MOST_TEXT = 60


_MARKS = {"safe": " [*]", "assuming": " [fix if assumed]", "unsafe": " [unsafe fix]"}


def lines(record: dict[str, Any]) -> Iterator[str]:
    """The report of a record that `perflint.profile.record` made, line by line."""
    unit, machine = record["unit"], record["machine"]
    device = "no GPU" if machine["device"] in (None, "cpu") else machine["device"]
    first = "" if record["is_warm"] or unit == "run" else ", the first ones among them: the run is short"
    yield from not_run(record.get("left_out", []))
    yield (
        f"{record['unit_ms']:.2f} ms per {unit} over {counted(record['units'], unit)}{first} "
        f"(torch {machine['torch']}, {device}; timing lines slows the program down somewhat)"
    )
    yield ""
    yield from _table(record)
    yield from _missed(record)
    yield from _cheap(record)
    for row in broken(record["assumptions"]):
        yield printable(f"violated, though declared: {row['name']} at {row['place']}: {row['why']}")


def _table(record: dict[str, Any]) -> Iterator[str]:
    rows = [{"file": file, **row} for file, held in record["files"].items() for row in held["statements"] if row["is_timed"]]
    rows.sort(key=lambda row: -(row["own_ms"] + row["device_ms"]))
    worth = [finding for finding in record["findings"] if finding["matters"] and finding["is_timed"]]
    with_device = any(row["device_ms"] for row in rows)
    yield f"{'ms':>9} {'share':>6} " + (f"{'device':>9} {'wait':>9} " if with_device else "") + f"{'waits':>6}  line"
    hidden = 0
    for number, row in enumerate(rows):
        here = [f for f in worth if f["file"] == row["file"] and row["line"] <= f["row"] <= row["last_line"]]
        if number >= MOST_ROWS and not here:
            hidden += 1
            continue
        ms = row["own_ms"] + row["device_ms"]
        share = ms / record["unit_ms"] if record["unit_ms"] else 0.0
        device = f"{row['device_ms']:>9.3f} {row['wait_ms']:>9.3f} " if with_device else ""
        waits = f"{row['waits']:.2f}" if row["waits"] else ""
        place = _place(record, row["file"], row["line"])
        figures = f"{ms:>9.3f} {share:>6.1%} {device}{waits:>6}  "
        yield printable(f"{figures}{place}  {_cut(row['text'])}")
        for finding in here:
            mark = _MARKS.get(finding["applicability"] or "", "")
            yield printable(f"{'':{len(figures)}}  {finding['rule']}{mark} {finding['message']}")
    if hidden:
        yield f"... and {counted(hidden, 'line')} that cost less, without findings"


def _missed(record: dict[str, Any]) -> Iterator[str]:
    if not record["missed"]:
        return
    yield ""
    yield "waits for which no rule fired:"
    for row in record["missed"][:MOST_ROWS]:
        what = ", ".join(name.removeprefix("aten.").removesuffix(".default") for name in row["what"])
        place = _place(record, row["file"], row["line"])
        yield printable(f"  {place}  {row['waits']:.2f} per {record['unit']} ({what})  {_cut(row['text'])}")
    if len(record["missed"]) > MOST_ROWS:
        yield f"  ... and at {counted(len(record['missed']) - MOST_ROWS, 'line')} more"


def _cheap(record: dict[str, Any]) -> Iterator[str]:
    cheap = [finding for finding in record["findings"] if not finding["matters"]]
    if cheap:
        yield ""
        yield f"findings that cost next to nothing here, less than {THRESHOLD:.1%} of a {record['unit']}:"
        yield from _places(record, cheap)
        if record["machine"]["device"] in (None, "cpu"):
            yield "  (without a GPU, waiting for one and copying to it cost nothing)"
    not_timed = [finding for finding in record["findings"] if not finding["is_timed"]]
    if not_timed:
        yield ""
        yield f"findings at lines that did not run while {plural(record['unit'])} were timed:"
        yield from _places(record, not_timed)


def _places(record: dict[str, Any], findings: list[dict[str, Any]]) -> Iterator[str]:
    rows = Counter((finding["file"], finding["row"], finding["rule"]) for finding in findings)
    for (file, row, rule), count in rows.items():
        yield printable(f"  {_place(record, file, row)}  {rule}{f' ({count} times)' if count > 1 else ''}")


def _place(record: dict[str, Any], file: str, line: int) -> str:
    """A line of a file; of a notebook, within its cell."""
    above = [(number, row) for number, row in record.get("cells", {}).get(file, []) if row < line]
    return f"{file}:cell {above[-1][0]}:{line - above[-1][1]}" if above else f"{file}:{line}"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."
