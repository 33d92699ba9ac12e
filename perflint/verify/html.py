"""The outcome of a verification as one page that needs nothing else: no script, no font, no address."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from perflint.page.document import Kind, card, changed_lines, document, escaped, prose, without_folders
from perflint.page.plots import Series, curves, histogram, pairs
from perflint.report.appendix import appendix, link
from perflint.rule.rule import Rule
from perflint.source.words import counted, plural
from perflint.verify.assumed import broken
from perflint.verify.comparison import SPREAD_FACTOR
from perflint.verify.record import rounds
from perflint.verify.text import largest_difference
from perflint.verify.timing import interval, verdict

OPEN_DIFF_LINES = 80
NOT_SHOWN = "no difference shown"
_WHY_LOOSE = (
    ("random state", "it draws a number of random numbers that depends on time or threads, or from a generator without a seed"),
    ("losses", "it has no seed, or the order of its sums depends on threads, or on atomic additions of the GPU"),
    ("final parameters", "see its losses"),
    ("optimizer state", "see its losses"),
    ("files written", "files that hold a time, or one of the numbers above"),
    ("number of backward passes", "how much it trains depends on time or chance"),
    ("number of optimizer steps", "how much it trains depends on time or chance"),
    ("number of printed lines", "what it prints depends on time or chance"),
    ("printed lines", "lines that hold a time, a speed, or one of the numbers above"),
)
"""Why a program may give another one of these in each run; what stands in the name of the aspect."""


def page(record: dict[str, Any], rules: Iterable[Rule] = ()) -> str:
    """The page of a record that `perflint.verify.record` made, a whole HTML file. rules: those whose pages it shows."""
    named = {fix["rule"] for fix in record["fixes"]}
    known = {rule.name: rule for rule in rules if rule.name in named}
    return document(f"perflint verify: {record['script']}", [*_head(record), *_sections(record), *appendix(known, known)])


def _sections(record: dict[str, Any]) -> Iterator[str]:
    original, changed = record["original"], record["changed"]
    if record["equality"] is not None:
        yield from _equality(record["equality"])
    if original is not None and changed is not None:
        yield from _costs(record, original, changed)
        yield from _plots(record, original, changed)
        yield from _waits_left(original, changed)
        yield from _beside(original, changed)
    yield from _fixes(record)
    yield from _assumptions(record["assumptions"])
    yield from _diffs(record.get("diffs") or {})


def _head(record: dict[str, Any]) -> Iterator[str]:
    machine = record["machine"]
    arguments = " ".join(str(argument) for argument in record["arguments"])
    yield f"<header><h1>perflint verify: {escaped(record['script'])}</h1>"
    device = "no GPU, on the CPU" if machine["device"] in (None, "cpu") else machine["device"]
    versions = [f"{name} {machine[key]}" for key, name in (("torch", "torch"), ("cuda", "CUDA"), ("python", "Python"))]
    known = [
        text for text, key in zip(versions, ("torch", "cuda", "python"), strict=True) if machine[key] not in (None, "None")
    ]
    yield f'<p class="soft">{escaped(_what(record))}'
    where = [device, *([f"CPU {machine['cpu']}"] if machine.get("cpu") else []), *known, machine["system"]]
    yield f"<br>{escaped(', '.join(where))}; perflint {escaped(record['perflint'])}"
    if record.get("commit"):
        changes = ", with changes that are in no commit" if record.get("is_modified") else ""
        yield f"<br>commit {escaped(record['commit'])}{changes}"
    yield f"<br>{escaped(record['date'])}{': <code>' + escaped(record['command']) + '</code>' if record['command'] else ''}"
    if arguments and arguments not in record["command"]:
        yield f"<br>arguments: <code>{escaped(arguments)}</code>"
    yield '</p></header><div class="cards">'
    yield from _cards(record)
    yield "</div>"


def _what(record: dict[str, Any]) -> str:
    """Which two versions were run."""
    fixes = sum(record["fixed_by_rule"].values())
    if record["other_version"] == "fixes":
        return f"original: the program as it is; changed: the same with {counted(fixes, 'fix')} of perflint"
    return f"original and changed: this project against {record['other_version']}"


def _cards(record: dict[str, Any]) -> Iterator[str]:
    equality, speed = record["equality"], record["speed"]
    if equality is None:
        yield card("Results", "nothing was changed", "No fix applies to the files that the script loads.", "unclear")
        return
    kinds: dict[str, Kind] = {"identical": "good", "within the original's spread": "good", "different": "bad"}
    yield card("Results", equality["verdict"], _summary(equality), kinds.get(equality["verdict"], "unclear"))
    if record["changed"] is None:
        yield card("Speed", "not measured", "The changed version does not run to its end.", "unclear")
        return
    if speed is None:
        yield card("Speed", "not measured", "The program has neither two optimizer steps nor two batches.", "unclear")
    else:
        yield _speed(speed, len(record["original"]["step_s"]))
    before, after = record["original"]["waits_per_step"], record["changed"]["waits_per_step"]
    where = "would wait for a GPU" if record["machine"]["device"] in (None, "cpu") else "waits for the device"
    yield card(
        f"How often the CPU {where}, per {rounds(record['original'])[1]}",
        f"{before:.2f} \N{RIGHTWARDS ARROW} {after:.2f}",
        "Counted in runs of their own, which are not timed.",
        "good" if after < before else "bad" if after > before else "unclear",
    )


def _summary(equality: dict[str, Any]) -> str:
    if equality["differences"]:
        return "; ".join(_in_short(row) for row in equality["differences"])
    return f"{counted(len(equality['compared']), 'aspect')} of the runs equal to the bit" if equality["compared"] else ""


def _in_short(difference: dict[str, Any]) -> str:
    """What differs; where a version ends with an error, the line that says which."""
    said = difference["changed"].strip().splitlines()
    return f"{difference['what']}: {said[-1]}" if len(said) > 1 else str(difference["what"])


def _speed(speed: dict[str, Any], number_of_pairs: int) -> str:
    found = verdict(speed["low"], speed["high"], speed["confidence"])
    per_second = f"\N{MULTIPLICATION SIGN} the {plural(speed['unit'])} per second"
    interval_ = f"from {speed['low']:.2f} to {speed['high']:.2f} {per_second} with {speed['confidence']:.0%} confidence"
    by = f"{speed['noise'] - 1:.0%}" if speed["noise"] < 2 else f"a factor of {speed['noise']:.1f}"
    noise = f"runs of the original alone differ by {by}"
    of_runs = f"({counted(number_of_pairs, 'pair')} of runs); {noise}"
    if found == "not shown":
        is_clear = not speed["low"] <= 1 <= speed["high"]
        why = (
            "6 pairs of runs are needed to say more"
            if is_clear
            else "as fast, slower or faster, for all that these runs can tell"
        )
        return card("Speed", NOT_SHOWN, f"{why}: {interval_} {of_runs}", "unclear")
    kind: Kind = "good" if found == "faster" else "bad"
    return card("Speed", f"{speed['ratio']:.2f} {per_second}", f"{found}; {interval_} {of_runs}", kind)


def _equality(equality: dict[str, Any]) -> Iterator[str]:
    yield "<section><h2>Results</h2>"
    if equality["differences"]:
        columns = "<tr><th>differs<th>original<th>changed<th>largest difference</tr>"
        yield f'<div class="scroll"><table class="stacked"><thead>{columns}</thead><tbody>'
        for row in equality["differences"]:
            yield (
                f'<tr><td class="bad">{escaped(row["what"])}<td data-name="original"><code>{escaped(row["original"])}</code>'
                f'<td data-name="changed"><code>{escaped(row["changed"])}</code>'
                f'<td data-name="largest difference">{escaped(largest_difference(row))}</tr>'
            )
        yield "</tbody></table></div>"
    if equality["compared"]:
        how = "Compared to the bit" if equality["differences"] else "Equal to the bit in all runs"
        yield f"<p>{how}: {escaped(', '.join(equality['compared']))}.</p>"
    if equality["not_reproducible"]:
        yield "<p>Not compared, because the original itself gives another one in each run:</p><ul>"
        yield from (f"<li>{escaped(_loose(what))}</li>" for what in equality["not_reproducible"])
        yield "</ul>"
    if equality["spread"]:
        yield (
            f"<p>Its losses differ by up to {equality['spread']:.3g} from run to run; those of the changed version were held "
            f"against {SPREAD_FACTOR:g} times that.</p>"
        )
    yield "</section>"


def _loose(what: str) -> str:
    why = next((why for name, why in _WHY_LOOSE if name in what), None)
    return what if why is None else f"{what}: {why}"


def _assumptions(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield '<section><h2>Assumptions in the original&#x27;s run</h2><div class="scroll"><table class="stacked"><thead><tr>'
    yield "<th>assumption<th>declared<th>in this run<th>where and why</tr></thead><tbody>"
    for row in rows:
        kind = "bad" if row in broken(rows) else "name"
        yield (
            f'<tr><td class="name"><code>{escaped(row["name"])}</code><td class="name">{"yes" if row["declared"] else "no"}'
            f'<td class="{kind}">{escaped(row["status"])}<td>'
            f"{escaped(': '.join(without_folders(part) for part in (row['place'], row['why']) if part))}</tr>"
        )
    yield "</tbody></table></div></section>"


def _costs(record: dict[str, Any], original: dict[str, Any], changed: dict[str, Any]) -> Iterator[str]:
    speed = record["speed"]
    rows: list[tuple[str, float | None, float | None, str, str]] = []
    _, unit = rounds(original)
    if speed is not None:
        shown = verdict(speed["low"], speed["high"], speed["confidence"]) != "not shown"
        title = f"milliseconds per {speed['unit']}, the mean of a run, of all runs the median"
        ratio = f"{speed['ratio']:.2f} \N{MULTIPLICATION SIGN} as fast" if shown else NOT_SHOWN
        rows.append((title, speed["original_s"] * 1e3, speed["changed_s"] * 1e3, ",.2f", ratio))
    for title, key, form in (
        (f"waits for the device per {unit}", "waits_per_step", ".2f"),
        (f"blocking copies asked for per {unit}", "blocking_transfers_per_step", ".2f"),
        (f"constant tensors made per {unit}", "allocations_per_step", ".2f"),
    ):
        rows.append((title, original[key], changed[key], form, _change(original[key], changed[key])))
    for title, key, form in (
        ("seconds blocked on the loader, the median of all runs", "loader_s", ",.3f"),
        ("peak memory, MiB, the median of all runs", "peak_memory_mib", ",.1f"),
    ):
        rows.append((title, original[key], changed[key], form, _change_of_runs(original, changed, key)))
    for title, key, form, size in (
        (f"copies per {unit}", "copies_per_step", ".2f", 1.0),
        (f"KiB copied per {unit}", "copied_bytes_per_step", ",.1f", 1024.0),
    ):
        for kind in sorted({*original[key], *changed[key]}):
            before, after = original[key].get(kind, 0) / size, changed[key].get(kind, 0) / size
            rows.append((f"{title}: {kind}", before, after, form, _change(before, after)))
    yield '<section><h2>Costs</h2><div class="scroll"><table><thead><tr><th><th class="figure">original'
    yield '<th class="figure">changed<th class="figure">difference</tr></thead><tbody>'
    for title, before_value, after_value, form, change in rows:
        if before_value is None or after_value is None:
            continue
        yield (
            f'<tr><td>{escaped(title)}<td class="figure">{before_value:{form}}<td class="figure">{after_value:{form}}'
            f'<td class="figure">{escaped(change)}</tr>'
        )
    yield "</tbody></table></div>"
    if record["machine"]["device"] in (None, "cpu"):
        yield (
            '<p class="soft">This machine has no GPU: waits and copies are those that the same operations would cause on one, '
            "an estimate that is good for comparing both versions.</p>"
        )
    yield "</section>"


def _change(before: float, after: float) -> str:
    """How much more or less of what was counted, which no chance has a part in."""
    change = f"{after / before - 1:+.0%}" if before else ""
    return "same" if before == after or change in ("+0%", "-0%") else change


def _change_of_runs(original: dict[str, Any], changed: dict[str, Any], key: str) -> str:
    """How much more or less of what each timed run measured, if the pairs of runs show it."""
    ratios = [after / before for before, after in _pairs(original, changed, f"{key}_by_run") if before > 0 and after > 0]
    if len(ratios) < 2:
        return ""
    if verdict(*interval(ratios)) == "not shown":
        return NOT_SHOWN
    return _change(1.0, statistics.median(ratios))


def _pairs(original: dict[str, Any], changed: dict[str, Any], key: str) -> Iterable[tuple[float, float]]:
    return zip(original.get(key) or (), changed.get(key) or (), strict=False)


def _plots(record: dict[str, Any], original: dict[str, Any], changed: dict[str, Any]) -> Iterator[str]:
    figures = [*_figures(record, original, changed)]
    if not figures:
        return
    yield (
        '<section><h2>Plots</h2><p class="legend soft"><span><i class="original"></i>original</span>'
        '<span><i class="changed"></i>changed</span></p><div class="plots">'
    )
    yield from figures
    yield "</div></section>"


def _figures(record: dict[str, Any], original: dict[str, Any], changed: dict[str, Any]) -> Iterator[str]:
    versions = (("original", original), ("changed", changed))
    losses = [Series(name, _losses(version)) for name, version in versions]
    if any(math.isfinite(value) for one in losses for value in one.values):
        first = next((row["root"] for row in record["equality"]["differences"] if row["root"] is not None), None)
        notes = "; ".join(note for one in losses if (note := _not_finite(one)))
        at = "" if first is None else f"the dashed line is the first that differs, number {first + 1:,}"
        said = "; ".join(part for part in ("what each backward pass starts from", at, notes) if part)
        yield _figure("Losses", said, curves(losses, "backward pass", "loss", mark=first))
    steps = [Series(name, [value for run in version["step_s"] for value in run]) for name, version in versions]
    if all(any(value > 0 for value in one.values) for one in steps):
        unit, scale = ("s", 1.0) if max(min(one.values) for one in steps) >= 1 else ("ms", 1e3)
        scaled = [Series(one.name, [value * scale for value in one.values]) for one in steps]
        name = record["speed"]["unit"] if record["speed"] is not None else "step"
        runs = [Series(n, [scale * sum(run) / len(run) for run in version["step_s"] if run]) for n, version in versions]
        speed = record["speed"]
        lines = {version: speed[f"{version}_s"] * scale for version, _ in versions} if speed is not None else {}
        yield _figure(
            f"Time per {name}",
            "the steps of all timed runs; the dashed lines are the figures of the table: means of runs, and their median",
            histogram(scaled, f"{unit} per {name}, logarithmic", lines),
        )
        yield _figure("Runs", "the mean of each timed run; a pair ran one after the other", pairs(runs, f"{unit} per {name}"))
    waits = [Series(name, version["waits_by_step"]) for name, version in versions]
    if all(one.values for one in waits):
        yield _figure("Waits", "in each step", curves(waits, "step", "waits", from_zero=True))
    memory = [Series(name, version["memory_mib"]) for name, version in versions]
    if all(one.values for one in memory):
        yield _figure("Memory", "allocated on the device after each step", curves(memory, "step", "MiB", from_zero=True))


def _figure(title: str, said: str, picture: str) -> str:
    return f"<figure><figcaption><strong>{escaped(title)}</strong>{escaped(said)}</figcaption>{picture}</figure>"


def _losses(version: dict[str, Any]) -> list[float]:
    """The first run's losses; a root that is no single number leaves a gap."""
    runs = version["losses"]
    return [_loss(root) for root in runs[0]] if runs else []


def _loss(root: str) -> float:
    try:
        return float.fromhex(root) if len(root) < 40 else math.nan  # a longer one is the hash of a larger tensor
    except (ValueError, OverflowError):
        return math.nan


def _not_finite(one: Series) -> str:
    found = [i for i, value in enumerate(one.values) if not math.isfinite(value)]
    if not found:
        return ""
    return f"{one.name}: {counted(len(found), 'value')} not finite or no single number, the first at {found[0] + 1:,}"


def _waits_left(original: dict[str, Any], changed: dict[str, Any]) -> Iterator[str]:
    if not original["waits"] and not changed["waits"]:
        return
    steps, unit = rounds(changed)
    yield "<section><h2>Waits that are left</h2>"
    if not changed["waits"]:
        yield "<p>None.</p></section>"
        return
    yield '<div class="scroll"><table><thead><tr><th>line, as changed<th>operation'
    yield f'<th class="figure">per {unit}</tr></thead><tbody>'
    rows = sorted(changed["waits"], key=lambda row: -row["count"])
    for row in rows[:40]:
        yield (
            f'<tr><td class="place"><code>{escaped(row["file"])}:{row["line"]}</code>'
            f"<td><code>{escaped(_operation(row['what']))}</code>"
            f'<td class="figure">{row["count"] / steps:.2f}</tr>'
        )
    yield "</tbody></table></div>"
    if len(rows) > 40:
        yield f'<p class="soft">And {len(rows) - 40} lines more.</p>'
    yield "</section>"


def _beside(original: dict[str, Any], changed: dict[str, Any]) -> Iterator[str]:
    loops = [(name, loop) for name, version in (("original", original), ("changed", changed)) for loop in version["loops"]]
    if not loops:
        return
    yield "<section><h2>Waits by the code, and as counted</h2>"
    yield '<div class="scroll"><table><thead><tr><th>version<th>loop or line<th class="figure">by the code'
    yield '<th class="figure">counted, per round</tr></thead><tbody>'
    for name, loop in loops:
        least = "at least " if loop["at_least"] else ""
        yield _beside_row(name, f"{loop['file']}:{loop['row']} {loop['function']}".rstrip(), f"{least}{loop['expected']}", loop)
        for row in loop["differs"]:
            yield _beside_row("", f"{row['file']}:{row['line']}", str(row["expected"]), row)
    yield '</tbody></table></div><p class="soft">Lines are named where the two differ.</p></section>'


def _beside_row(name: str, place: str, expected: str, row: dict[str, Any]) -> str:
    return (
        f'<tr><td>{name}<td class="place"><code>{escaped(place)}</code>'
        f'<td class="figure">{expected}<td class="figure">{row["counted"]:.2f}</tr>'
    )


def _operation(name: str) -> str:
    """An operation as torch's users name it: `aten.item.default` is `item`."""
    return name.removeprefix("aten.").removesuffix(".default")


def _fixes(record: dict[str, Any]) -> Iterator[str]:
    if not record["fixes"]:
        return
    yield (
        '<section><h2>Fixes</h2><div class="scroll"><table class="stacked"><thead><tr><th>line<th>rule<th>fix<th>finding'
        "</tr></thead><tbody>"
    )
    rows = Counter((fix["file"], fix["row"], fix["rule"], fix["applicability"], fix["message"]) for fix in record["fixes"])
    for (file, row, rule, applicability, message), count in rows.items():
        times = f" (\N{MULTIPLICATION SIGN} {count})" if count > 1 else ""
        yield (
            f'<tr><td class="place"><code>{escaped(file)}:{row}</code><td class="name">{link(rule)}{times}'
            f'<td class="name">{escaped(applicability)}<td>{prose(message)}</tr>'
        )
    yield "</tbody></table></div>"
    if record.get("blamed"):
        yield f"<p>The results differ because of: {escaped('; '.join(record['blamed']))}.</p>"
    yield "</section>"


def _diffs(diffs: dict[str, str]) -> Iterator[str]:
    if not diffs:
        return
    yield "<section><h2>Changes</h2>"
    for file, diff in sorted(diffs.items()):
        every = diff.removesuffix("\n").split("\n")[2:]
        added, removed = (sum(line.startswith(sign) for line in every) for sign in "+-")
        shown = " open" if len(every) <= OPEN_DIFF_LINES else ""
        yield f"<details{shown}><summary><code>{escaped(file)}</code> "
        yield f'<span class="soft">+{added} -{removed}</span></summary>'
        yield from changed_lines(every)
        yield "</details>"
    yield "</section>"
