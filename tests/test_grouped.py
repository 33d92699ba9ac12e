"""The report by default: blocks, merged findings, what a terminal shows of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BAD, HANG_S, ROOT, Project, in_process

from perflint.report.grouped import rows

TRAIN = """
    import torch
    from torch import nn


    def train(model: nn.Module, loader, opt, log):
        model.cuda()
        first, second, third = [], [], []
        for x, y in loader:
            opt.zero_grad()
            a, b, c = model(x.cuda()).sum(), model(y.cuda()).sum(), model(x.cuda()).mean()
            (a + b + c).backward()
            opt.step()
            log.append(f"{a.item()} {b.item()} {c.item()}")
            print(a.item())
            print(b.item())
            print(c.item())


    with torch.no_grad:
        pass
"""


def shown(project: Project, *arguments: str) -> list[str]:
    lines: list[str] = project.run("check", "-q", "--isolated", *arguments).stdout.replace(f"{project.root}/", "").splitlines()
    return lines


def blocks(lines: list[str]) -> list[list[str]]:
    return [block.splitlines() for block in "\n".join(lines).split("\n\n")]


def test_a_block_has_a_head_the_sync_budget_and_a_line_for_each_flaw_safe_ones_first(project: Project) -> None:
    of_function, of_module = blocks(shown(project.write({"train.py": TRAIN})))
    assert of_function[0] == "train.py:9 train"
    assert of_function[1].startswith("  sync budget: 9 waits per step")
    levels = [line[2:8].strip() for line in of_function[2:]]
    assert levels == sorted(levels, key=["safe", "assume", "unsafe", "no fix"].index)
    assert of_module == [
        "train.py:20",
        "  safe    20  no-grad-without-call: `with torch.no_grad:` raises TypeError; write `torch.no_grad()`",
    ]


def test_the_same_flaw_in_several_places_is_one_line_with_all_their_rows_and_names(project: Project) -> None:
    lines = shown(project.write({"train.py": TRAIN}), "--no-runtime", "--select", "duplicate-item-read,item-every-step")
    read_twice = [line for line in lines if "duplicate-item-read" in line]
    assert len(read_twice) == 1
    assert "`a`, `b`, `c`" in read_twice[0]
    assert "15-17  duplicate-item-read" in read_twice[0]
    (collected,) = [line for line in lines if line.startswith("  no fix     14  item-every-step")]
    assert "`a`, `b`, `c`" in collected, "the text with three reads is one row"
    assert len(project.findings("--no-runtime", "--select", "duplicate-item-read,item-every-step")) == 6


def test_long_code_is_shortened(project: Project) -> None:
    read, more = "first.append(a.index_select(0, x.cuda()).softmax(1).sum(1).mean().item())", "softmax(1).clamp(min=0)"
    for text, short in (read, "sum(1).mean()"), (read.replace("softmax(1)", more), "clamp(min=0).sum(1)...."):
        loop = TRAIN[: TRAIN.index("log.append(f")] + text + "\n"
        (line,) = [
            line for line in shown(project.write({"train.py": loop}), "--select", "item-every-step") if "softmax" in line
        ]
        assert f"{short}` in every step" in line


def test_functions_of_a_file_with_nothing_but_the_same_flaw_are_one_block(project: Project) -> None:
    functions = "".join(f"def f{i}():\n    with torch.no_grad:\n        pass\n\n\n" for i in range(5))
    (block,) = blocks(shown(project.write({"a.py": f"import torch\n\n\n{functions}"})))
    assert block[0] == "a.py:5 f0, f1, f2 and 2 more"
    assert block[1].startswith("  safe    5, 10, 15, 20, 25  no-grad-without-call: ")


def test_the_summary_tells_findings_from_places(project: Project) -> None:
    functions = "".join(f"def f{i}():\n    with torch.no_grad:\n        pass\n\n\n" for i in range(3))
    text = project.write({"a.py": f"import torch\n\n\n{functions}"}).run("check", "--isolated").stdout
    assert "Found 1 finding at 3 places.\n3 places fixable with `perflint fix`." in text


ADVICE = """
    import torch


    def train(model, loader, opt, log):
        model.cuda()
        for x in loader:
            loss = model(x.cuda()).sum()
            if torch.isnan(loss):
                continue
            log("batch")
            log("loss")
            log(loss.item())
            loss.backward()
            opt.step()
            opt.zero_grad()
"""


def test_several_pieces_of_advice_beside_a_fix_are_a_count_and_one_is_a_line(project: Project) -> None:
    project.write({"train.py": ADVICE})
    (several,) = [line for line in shown(project, "--select", "device-sync,transfer") if line.startswith("  no fix")]
    assert several.startswith("  no fix  2 places: sync-branch-on-tensor (9), item-every-step (13)")
    (one,) = [line for line in shown(project, "--select", "item-every-step") if line.startswith("  no fix")]
    assert one.startswith("  no fix  13  item-every-step: the CPU waits for `loss` in every step")


def test_two_pieces_of_advice_are_written_out_where_there_is_nothing_else_to_say(project: Project) -> None:
    project.write({"train.py": ADVICE})
    branch, read = [line for line in shown(project, "--select", "device-sync") if line.startswith("  no fix")]
    assert branch.startswith("  no fix   9  sync-branch-on-tensor: ")
    assert read.startswith("  no fix  13  item-every-step: ")


def test_files_whose_training_loops_wait_come_first(project: Project) -> None:
    project.write({"a.py": "import torch\n\n\ndef f():\n    with torch.no_grad:\n        pass\n", "train.py": ADVICE})
    first, second = blocks(shown(project))
    assert (first[0], second[0]) == ("train.py:7 train", "a.py:5 f")


def test_an_error_without_a_fix_is_never_only_counted(project: Project) -> None:
    project.write({"a.py": "def f(:\n", "b.py": "x = (\n"})
    for name, (head, problem) in zip(("a.py", "b.py"), blocks(shown(project)), strict=True):
        assert head == f"{name}:1"
        assert problem.startswith("  no fix  1  invalid-syntax: ")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "3"), ([3, 3], "3"), ([9, 3], "3, 9"), ([3, 4, 5, 9], "3-5, 9"), (range(1, 20, 2), "1, 3, 5, 7, 9, 11 and 4 more")],
)
def test_rows_are_short(numbers: list[int], text: str) -> None:
    assert rows(numbers) == text


def test_the_programs_fit_into_150_lines() -> None:
    report = in_process("check", "--isolated", str(ROOT / "fixtures" / "programs")).stdout.splitlines()
    assert len(report) <= 150
    assert all(line == line.rstrip() for line in report)


# -- terminals -----------------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo terminals")
DECIDING = {
    "FORCE_COLOR",
    "NO_COLOR",
    "FORCE_HYPERLINK",
    "TERM_PROGRAM",
    "VTE_VERSION",
    "KITTY_WINDOW_ID",
    "COLUMNS",
    "WT_SESSION",
}


def on_terminal(*arguments: str, cwd: Path, columns: int = 80, **environment: str) -> str:
    """What perflint prints on a terminal of some columns."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in DECIDING}
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "rules"))
    process = subprocess.Popen(
        [sys.executable, "-m", "perflint", *arguments],
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**inherited, "TERM": "xterm-256color", "PYTHONPATH": paths, **environment},
    )
    os.close(theirs)
    said = b""
    try:
        while data := os.read(ours, 65536):
            said += data
    except OSError:  # the other end is closed
        pass
    process.wait(HANG_S)
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


def test_lines_are_folded_at_the_terminal_s_width_below_their_message(project: Project) -> None:
    project.write({"train.py": TRAIN})
    lines = on_terminal("check", "--isolated", "--color", "never", cwd=project.root, columns=70).splitlines()
    assert max(map(len, lines)) <= 70
    at = next(number for number, line in enumerate(lines) if "no-grad-without-call" in line)
    assert lines[at].startswith("  safe    20  no-grad-without-call: ")
    assert lines[at + 1].startswith(" " * 14)
    assert lines[at + 1].strip()


@pytest.mark.parametrize(
    ("arguments", "environment", "coloured"),
    [
        ((), {}, True),
        ((), {"NO_COLOR": "1"}, False),
        ((), {"NO_COLOR": ""}, True),
        ((), {"TERM": "dumb"}, False),
        ((), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
    ],
)
def test_colours_on_a_terminal(
    project: Project, arguments: tuple[str, ...], environment: dict[str, str], coloured: bool
) -> None:
    project.write({"train.py": BAD})
    for command in (["check"], ["fix", "--diff"]):
        assert ("\x1b[" in on_terminal(*command, "--isolated", *arguments, cwd=project.root, **environment)) == coloured


def test_colours_elsewhere_only_if_asked_for(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write({"train.py": BAD})
    assert "\x1b[" not in project.run("check").stdout
    assert "\x1b[" in project.run("check", "--color", "always").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in project.run("check").stdout
    assert "\x1b[" not in project.run("check", "--color", "never").stdout


def test_a_rule_s_name_is_a_link_to_its_page_where_the_terminal_knows_links(project: Project) -> None:
    project.write({"train.py": BAD})
    page = (ROOT / "rules" / "perflint_rules" / "no_grad_without_call.py").as_uri()
    for output_format in ("grouped", "full", "concise"):
        command = ("check", "--isolated", "--color", "never", "--output-format", output_format)
        linked = on_terminal(*command, cwd=project.root, TERM_PROGRAM="WezTerm")
        assert f"\x1b]8;;{page}\x1b\\no-grad-without-call\x1b]8;;\x1b\\" in linked
        assert "\x1b" not in on_terminal(*command, cwd=project.root)
        assert "\x1b" not in on_terminal(*command, cwd=project.root, TERM_PROGRAM="WezTerm", FORCE_HYPERLINK="0")


def test_a_rule_s_page_is_laid_out_on_a_terminal_and_markdown_elsewhere(project: Project) -> None:
    page = on_terminal("explain", "item-every-step", cwd=project.root, columns=60)
    assert "## " not in page
    assert "```" not in page
    assert "# item-every-step" in in_process("explain", "item-every-step").stdout


def test_what_an_assumption_means_is_said_where_its_name_comes_first(project: Project) -> None:
    loop = """
    def {name}(loader, device):
        model = nn.Linear(4, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            value = loss.item()
            total += value
        return total
    """
    text = "\n    import torch\n    from torch import nn\n" + loop.format(name="first") + loop.format(name="second")
    lines = shown(project.write({"train.py": text}), "--select", "item-every-step")
    named = [number for number, line in enumerate(lines) if "assuming cuda-or-cpu" in line]
    assert len(named) == 2
    explained = [number for number, line in enumerate(lines) if "cuda-or-cpu: no MPS, XLA or HPU" in line]
    assert explained == [named[0] + 1]
    assert lines[explained[0]].lstrip().startswith("(")
