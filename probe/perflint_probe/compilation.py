"""What `torch.compile` does during a run: where graphs break, what is compiled again and why, by line of the program.

The breaks come from torch's own log of them: on torch 2.13 it had all of 68 patterns that break, `torch._dynamo.explain` half
of them. On request everything is compiled with backend "eager", which takes the same graphs and generates no code.
"""

import functools
import logging
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perflint_probe.recorder import Limit

_BREAKS = ("torch._dynamo.symbolic_convert.__graph_breaks", "torch._dynamo.convert_frame.__graph_breaks")
_RECOMPILES = "torch._dynamo.guards.__recompiles"
_AT = re.compile(r"in user code at (.+):(\d+)")
_STACK = re.compile("User code traceback:|in the following user code:")
_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_REASON = re.compile(r"Graph Break Reason: (?:Encountered graph break when.+\s+)?(.+)")
_REGISTERED = re.compile(r"\bgb\d{4}\b", re.I)
_GUARD = re.compile(r"- \d+/\d+: (.+?)(?:\s{2,}#|$)", re.M)
"""What no longer holds of the compiled code."""
_RECOMPILING = re.compile(r"Recompiling function (\S+) in (.+):(\d+)")

Place = tuple[str, int, str]
"""A file, relative to the project; a row; the name of the function there."""


class Compilation:
    """Hears what torch logs. project: the folder whose lines count. eager: compile everything with backend "eager"."""

    def __init__(self, project: "Path | None" = None, eager: bool = False, limit: "Limit | None" = None) -> None:
        self._project = project.resolve() if project is not None else None
        self._eager, self._limit = eager, limit
        self._steps = 0
        self._places: dict[tuple[str, int], Place] = {}
        """Where in the project what torch says of a place belongs: the line that calls a library, say."""
        self._reasons: dict[Place, tuple[str, str]] = {}
        self._breaks: Counter[Place] = Counter()
        self._guards: dict[Place, str] = {}
        self._recompiles: Counter[Place] = Counter()
        self.calls = 0
        self._torch: Any = None

    def install(self) -> None:
        """Begin to listen; torch has just been imported."""
        import torch
        import torch._dynamo

        self._torch = torch
        if self._limit is not None and self._limit.is_set:  # a hook may break a graph itself, so there is none without need
            from torch.optim.optimizer import register_optimizer_step_post_hook

            register_optimizer_step_post_hook(self._on_step)
        torch._logging._internal.set_logs(graph_breaks=True, recompiles=True)
        for name, hear in ((_BREAKS[0], self._hear_break), (_BREAKS[1], self._hear_break), (_RECOMPILES, self._hear_recompile)):
            logger = logging.getLogger(name)
            logger.handlers = [_Handler(hear)]
            logger.propagate = False
        torch.compile = self._counted(torch.compile)

    def _counted(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compile_)
        def counted(model: Any = None, **options: Any) -> Any:
            if model is None:
                return functools.partial(counted, **options)
            self.calls += 1
            if self._eager:
                options = {"dynamic": options.get("dynamic"), "disable": options.get("disable", False), "backend": "eager"}
            return compile_(model, **options)

        return counted

    def _on_step(self, *_: Any) -> None:
        assert self._limit is not None
        self._steps += 1
        self._limit.check(self._steps)

    def _hear_break(self, message: str) -> None:
        header, frames = _AT.search(message), _FRAME.findall(_STACK.split(message, 1)[-1] if _STACK.search(message) else "")
        at = (header[1], int(header[2])) if header is not None else (frames[-1][0], int(frames[-1][1])) if frames else ("", 0)
        if frames or at not in self._places:
            place = self._innermost(frames) or self._innermost([(*at, "")])
            if place is None:
                return
            reason, registered = _REASON.search(message), _REGISTERED.search(message)
            self._places[at] = place
            if reason is not None:
                self._reasons.setdefault(place, (reason[1], registered[0].lower() if registered is not None else ""))
        self._breaks[self._places[at]] += 1

    def _innermost(self, frames: "list[Any]") -> "Place | None":
        """The last frame that is in the project."""
        for file, row, function in reversed(frames):
            path = self._relative(file)
            if path is not None:
                return path, int(row), _named(function)
        return None

    def _relative(self, file: str) -> "str | None":
        if self._project is None:
            return file
        path = Path(file)
        inside = path.is_absolute() and self._project in path.parents and "site-packages" not in path.parts
        return path.relative_to(self._project).as_posix() if inside else None

    def _hear_recompile(self, message: str) -> None:
        found = _RECOMPILING.search(message)
        path = self._relative(found[2]) if found is not None else None
        if found is None or path is None:
            return
        place = path, int(found[3]), _named(found[1])
        guard = _GUARD.search(message)
        self._guards.setdefault(place, guard[1].strip() if guard is not None else "")
        self._recompiles[place] += 1

    def finish(self, run_s: float = 0.0) -> dict[str, Any]:
        """What was heard, fit for JSON; the script has ended after `run_s` seconds."""
        if self._torch is None:
            return {"mode": "compile", "torch": None}
        from torch._dynamo.utils import counters

        return {
            "mode": "compile",
            "run_s": run_s,
            "torch": self._torch.__version__,
            "compile_calls": self.calls,
            "graphs": counters["stats"]["unique_graphs"],
            "graph_breaks": [
                {"file": place[0], "line": place[1], "function": place[2], "reason": reason, "id": registered, "count": count}
                for place, count in sorted(self._breaks.items())
                for reason, registered in [self._reasons.get(place, ("it is not said why", ""))]
            ],
            "recompiles": [
                {"file": place[0], "line": place[1], "function": place[2], "reason": self._guards[place], "count": count}
                for place, count in sorted(self._recompiles.items())
            ],
        }


def _named(function: str) -> str:
    """The name of a function, also of what torch makes of its rest behind a graph break."""
    return re.sub(r"^torch_dynamo_resume_in_(.+)_at_\d+$", r"\1", function)


class _Handler(logging.Handler):
    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__(logging.DEBUG)
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        self._hear(record.getMessage())
