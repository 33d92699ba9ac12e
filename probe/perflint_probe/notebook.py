"""Running the text of a notebook as its kernel would, from the first cell to the last, without what only IPython can do."""

import __future__

import ast
import asyncio
import inspect
import linecache
import sys
import types
from typing import Any


class LeftOut:
    """What `get_ipython()` gives here: asked for a magic or a command, it does nothing."""

    def __getattr__(self, name: str) -> Any:
        """Stand for any method; what a command prints is no lines."""
        return lambda *arguments, **options: [] if name == "getoutput" else None


def run_notebook(text: str, path: str) -> None:
    """Run the Python text of the notebook `path` as the main module. `await` may stand at its top level."""
    tree = ast.parse(text, path)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for index, statement in enumerate(tree.body):
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":  # of a cell, it counts for those below
            flags |= sum(getattr(__future__, alias.name).compiler_flag for alias in statement.names)
            tree.body[index] = ast.copy_location(ast.Pass(), statement)
    code = compile(tree, path, "exec", flags, dont_inherit=True)
    main = types.ModuleType("__main__")
    vars(main).update(get_ipython=LeftOut, display=lambda *shown, **options: print(*shown))
    sys.modules["__main__"] = main
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    running = eval(code, vars(main))
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(_awaited(running))


async def _awaited(running: Any) -> None:
    await running
