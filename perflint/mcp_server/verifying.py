"""Runs `perflint verify` for an agent: in a process of its own, for a limited time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from perflint.mcp_server.workspace import Refused

SAID_AT_MOST = 4000
"""Characters of what a failed run said that are passed on."""


def verify(root: str, script: str, arguments: Sequence[str], options: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """The record of `perflint verify`, with what it printed.

    script: its absolute path. options: of `perflint verify`, besides the script and the folder.

    Raises:
        Refused: the script fails, or all of it takes longer than `timeout_s`; the message says what was printed.

    """
    with tempfile.TemporaryDirectory(prefix="perflint-mcp-", ignore_cleanup_errors=True) as folder:
        target = os.path.join(folder, "record.json")
        command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
        command += ["-m", "perflint", "verify", "--quiet", "--root", root, "--json", target, *options, script, "--", *arguments]
        process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "TMPDIR": folder},  # the copies go with it, however the run ends
        )
        try:
            printed, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise Refused(
                f"it took longer than {timeout_s:g} s and was stopped; lower `max_steps`, or raise `timeout_s`"
            ) from None
        except BaseException:
            _end(process)
            raise
        if process.returncode not in (0, 1) or not os.path.exists(target):
            raise Refused(printed.strip()[-SAID_AT_MOST:] or f"`perflint verify` ended with {process.returncode}")
        with open(target, encoding="utf-8") as handle:
            return {"same_results": process.returncode == 0, "report": printed.strip(), "record": json.load(handle)}


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it has started."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()
