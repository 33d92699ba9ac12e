"""Makes docs/images/: the report in a browser and in a terminal, and the page of `verify`.

Needs perflint with the extras `dev` and `runtime`, and a Chromium on PATH. Takes a minute or two: a program is verified.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "tests"))

from browser import missing, opened  # noqa: E402

REPORTED, IN_TERMINAL, VERIFIED = "fixtures/programs", "fixtures/programs/lstm", "fixtures/programs/lstm/train.py"
COLUMNS = 118
SIZE = {"width": 1000, "height": 1250}


def perflint(*arguments: str) -> str:
    """What a command prints, in colours."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "PERFLINT_NO_CACHE": "1"}
    done = subprocess.run([sys.executable, "-m", "perflint", *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    if done.returncode not in (0, 1):
        sys.exit(f"`perflint {' '.join(arguments)}` ended with exit code {done.returncode}")
    return done.stdout.decode()


def picture(page: Path, name: str, *, scheme: str, open_first: str = "") -> None:
    """The top of a page. open_first: what to unfold before."""
    with opened(page, viewport=SIZE, color_scheme=scheme) as (shown, _):
        if open_first:
            shown.locator(open_first).first.click()
        shown.screenshot(path=IMAGES / name)


def terminal(text: str, command: str, name: str) -> None:
    """A terminal with what a command printed, as SVG that loads nothing."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text.from_ansi(f"$ {command}\n{text}"))
    svg = console.export_svg(title="perflint", clear=False)
    svg = re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->", "", svg, flags=re.S)
    (IMAGES / name).write_text(svg, encoding="utf-8")


def main() -> None:
    """Make all of them."""
    if why := missing():
        sys.exit(why)
    IMAGES.mkdir(exist_ok=True)
    terminal(perflint("check", IN_TERMINAL), f"perflint check {IN_TERMINAL}", "terminal.svg")
    with tempfile.TemporaryDirectory() as folder:
        report, verified = Path(folder, "report.html"), Path(folder, "verify.html")
        perflint("check", REPORTED, "--output-format", "html", "-o", str(report))
        picture(report, "report.png", scheme="light", open_first=".loop summary")
        picture(report, "report-dark.png", scheme="dark")
        perflint("verify", VERIFIED, "--html", str(verified))
        picture(verified, "verify.png", scheme="light")


if __name__ == "__main__":
    main()
