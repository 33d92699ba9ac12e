"""What other fixers do with the same texts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fuzz.text_properties import comments, compiles
from fuzz.texts import Text

ROOT = Path(__file__).resolve().parent.parent
RUFF = shutil.which("ruff", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))) or "ruff"


def peers(texts: Mapping[int, Text], torchfix: str | None) -> dict[str, dict[str, int]]:
    """The same counts for other fixers, over those texts that parse and are UTF-8 with one kind of line end."""
    usable = {n: t.data for n, t in texts.items() if compiles(t.data) and plain(t.data)}
    version = "py{}{}".format(*sys.version_info)
    common = ["--isolated", "--no-cache", "--target-version", version, "-q"]
    commands = {
        "perflint fix --unsafe-fixes": [
            sys.executable,
            "-m",
            "perflint",
            "fix",
            "--isolated",
            "--select",
            "all",
            "--unsafe-fixes",
            "-q",
        ],
        "ruff check --fix --unsafe-fixes": [RUFF, "check", "--select", "ALL", "--fix", "--unsafe-fixes", *common],
        "ruff format": [RUFF, "format", *common],
    }
    if torchfix is not None:
        commands["torchfix --fix"] = [torchfix, "--select", "ALL", "--fix", "-j", "1", "--show-stderr"]
    return {name: peer(command, usable) for name, command in commands.items()}


def plain(data: bytes) -> bool:
    """Whether a text is UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def peer(command: Sequence[str], texts: Mapping[int, bytes]) -> dict[str, int]:
    """How one fixer does with some texts, and once more with those that it has changed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "rules"), os.environ.get("PYTHONPATH", ""))),
    }
    with tempfile.TemporaryDirectory() as scratch:
        paths = {number: Path(scratch, f"t{number}.py") for number in texts}
        crashes = 0
        states = [dict(texts)]
        for _ in range(2):
            pending = [n for n, data in states[-1].items() if len(states) == 1 or data != texts[n]]
            for number, path in paths.items():
                path.unlink(missing_ok=True)
                if number in pending:
                    path.write_bytes(states[-1][number])
            done = subprocess.run([*command, scratch], capture_output=True, check=False, env=environment, cwd=scratch)
            crashes += len(re.findall(rb"Traceback \(most|panicked at|Failed to codemod", done.stdout + done.stderr))
            states.append({n: paths[n].read_bytes() if n in pending else data for n, data in states[-1].items()})
    changed = [n for n, data in states[1].items() if data != texts[n]]
    parsing = [n for n in changed if compiles(states[1][n])]
    return {
        "texts": len(texts),
        "changed": len(changed),
        "crashes": crashes,
        "unparsable": len(changed) - len(parsing),
        "comments lost": sum(
            any("perflint:" not in text for text in comments(texts[n]) - comments(states[1][n])) for n in parsing
        ),
        "not idempotent": sum(states[2][n] != states[1][n] for n in changed),
    }
