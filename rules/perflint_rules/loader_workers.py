"""The number of workers that a loader is given, and what to write instead of none: no rule by itself."""

import ast
import re
from collections.abc import Iterator

from perflint.api import DATA_LOADER, CannotRewrite, Code, Edit, LoaderCall, add_keyword, any_layout, flow_of, path_of, replace

_SOME = 4
"""Workers of a fix: enough to decode beside a training, and few enough for a small machine."""
_REASONS = re.compile(
    r"crash|safe|avoid|fix|bug|error|issue|problem|fail|hang|dead|memory|\bram\b|windows|mac|mps|pickl|fork|spawn|process|debug"
    r"|notebook|jupyter|colab|determinis|reproduc|why|must|need|cannot|can't|do(?:es)?n't|not? |\bon purpose",
    re.I,
)
"""What a comment holds that says why there are none."""
_MAIN = any_layout(rb"__name__ == ['\"]__main__['\"]")
SOME_WORKERS = f"make samples in {_SOME} workers"


def with_workers(code: Code, loader: LoaderCall, moves_samples: bool) -> Iterator[Edit]:
    """Gives a loader some workers. moves_samples: whether the code of a sample uses the GPU.

    Raises:
        CannotRewrite: another class, or `**kwargs`, may give the number, an option does, or workers could not run the code.

    """
    if not code.is_external(loader.call.func, DATA_LOADER) or loader.gives("num_workers") is None:
        raise CannotRewrite("another class, or `**kwargs`, may give the number of workers")
    if code.scope.is_module and not code.facts.project.holds(code.source.path, _MAIN):
        raise CannotRewrite('workers that are spawned would run the program anew without `if __name__ == "__main__":`')
    if moves_samples:
        raise CannotRewrite("samples use the GPU, which processes that are forked cannot")
    written = loader.argument("num_workers")
    if written is None:
        yield add_keyword(code.source, loader.call, "num_workers", str(_SOME))
    elif isinstance(written, ast.Constant):
        yield replace(code.source, written, str(_SOME))
    else:
        raise CannotRewrite("an option gives the number of workers")


def how_to_get_workers(loader: LoaderCall) -> str:
    """What the user is to do, in his own terms."""
    written = loader.argument("num_workers")
    if written is None:
        return "pass `num_workers=`"
    return f"raise `num_workers={ast.unparse(written)}`" + ("" if isinstance(written, ast.Constant) else ", which is 0")


def is_without_on_purpose(code: Code, loader: LoaderCall) -> bool:
    """Whether somebody says why there are no workers, by a comment at the 0 or in another file, or a notebook has none."""
    written = loader.argument("num_workers")
    if written is None:
        return False
    if code.source.cells is not None:
        return True
    bound = code.flow.reaching.get(written, ()) or flow_of(code.scope.module.top).definitions_of(path_of(written) or "")
    statements = [code.flow.statement(loader.call), *(d.node for d in bound if d.kind == "assign")]
    return any(d.kind == "import" for d in bound) or any(_has_reason(code, statement) for statement in statements)


def _has_reason(code: Code, node: ast.AST) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return any(_REASONS.search(code.source.line(row).partition("#")[2]) for row in range(max(first - 1, 1), last + 1))
