"""Compiles code with backend "eager" and prints what breaks its graph, as JSON: {name: [how many breaks, how many graphs]}.

    python tests/facts/broken_graphs.py < {"prelude": TEXT, "cases": {name: [TEXT of a function f, TEXT of its arguments]}}

Started by tests in a process of its own: what is run changes random generators, warnings and torch's own state.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from perflint_probe.compilation import Compilation
from torch._dynamo.testing import CompileCounter


def broken(heard: Compilation, prelude: str, function: str, arguments: str, file: str) -> tuple[int, int]:
    """How often the graph of a function breaks when it is called, and how many graphs there are."""
    text = f"{prelude}\n{function}\n"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict[str, Any] = {"__name__": "case"}
    exec(compile(text, file, "exec"), scope)
    torch._dynamo.reset()
    graphs = CompileCounter()
    with contextlib.suppress(Exception):  # some cases end with an error where torch gives up
        torch.compile(scope["f"], backend=graphs)(*eval(f"[{arguments}]", scope))
    return sum(
        row["count"] for row in heard.finish()["graph_breaks"] if row["file"] == file.rpartition("/")[2]
    ), graphs.frame_count


def main() -> None:
    """Compile all cases."""
    torch.set_num_threads(1)
    asked = json.load(sys.stdin)
    heard = Compilation(Path("/cases"))
    heard.install()
    found = {}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, (name, (function, arguments)) in enumerate(asked["cases"].items()):
            found[name] = broken(heard, asked["prelude"], function, arguments, f"/cases/{number}.py")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
