"""The number of workers that a loader is given, and how to get some: no rule by itself."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from perflint.api import (
    DATA_LOADER,
    CannotRewrite,
    Code,
    Edit,
    LoaderCall,
    Loop,
    add_keyword,
    ancestors,
    any_layout,
    replace,
    words,
)
from perflint_rules.old_torch import lacks_name
from perflint_rules.repeated_calls import is_called_again

SOME_WORKERS = "make samples in 4 workers"
_SOME = "4"
"""Enough to decode beside a training, and few enough for a small machine."""
_STAYING = ("persistent_workers", "True")
_STAY = "=".join(_STAYING)
_REACHED = any_layout(rb"\. dataset \. (?!\w* \()|\bsetattr \(")
"""What may change a dataset from outside, which workers that stay would not see."""
_MAKES = words("__init__ __len__ __repr__ __getitem__ __getitems__")
_DEPTH = 3
"""Through how many calls the top of a file is looked for."""
_MAIN = any_layout(rb"__name__ == ['\"]__main__['\"]")
SPAWNS = any_layout(rb"\b(?:set_start_method|get_context|multiprocessing_context) [(=] (?:method = )?['\"](?:spawn|forkserver)")
_OWN = any_layout(rb"\bself \. (\w+)")
_OWN_GENERATOR = any_layout(rb"self \. _?\w*(?:rng|random_state|generator)\w* \. \w+ \(")


def may_stay(code: Code, loader: LoaderCall) -> bool:
    """Whether workers may live through all epochs: one loop goes over the loader, and nothing in sight changes the dataset.

    With workers that stay, a loader has one iterator: two loops over it at the same time would share its batches.
    """
    if loader.gives("persistent_workers") is not False or lacks_name(code, "persistent_workers", "1.7") is not None:
        return False
    if code.flow.loop(loader.call) is not None or is_called_again(code, code.scope, _DEPTH):
        return False
    takers = loader.takers()
    if len(takers) != 1 or takers[0][0].module.source.cells is not None or is_gone_over_once(code, loader):
        return False
    return _is_left_alone(code, loader) and not code.facts.project.program_holds(code.source.path, _REACHED)


def _is_left_alone(code: Code, loader: LoaderCall) -> bool:
    """Whether a dataset has no methods but those that make samples, and its maker only hands it to calls."""
    own = {id(scope) for scope in loader.sample_code()}
    for dataset in loader.datasets:
        for cls in (dataset.cls, *(a for a in ancestors(code.facts.inference, dataset.cls) if not isinstance(a, str))):
            if any(name not in _MAKES and id(method) not in own for name, method in cls.methods.items()):
                return False
    node, flow = loader.argument("dataset"), code.flow
    bound = flow.reaching.get(node, frozenset()) if node is not None else frozenset()
    uses = [use for definition in bound for use in flow.uses[definition]]
    return all(isinstance(flow.parent.get(use), (ast.Call, ast.keyword)) for use in uses)


def is_gone_over_once(code: Code, loader: LoaderCall) -> bool:
    """Whether all who take the batches are in sight, and go over them once for each time that the loader is made."""
    takers, made_in = loader.takers(), _statement_loop(code.flow.loop(loader.call))
    for scope, taker in takers:
        at = code.at(scope)
        loop = next((loop for loop in at.flow.loops if loop.node is taker), None)
        if loop is None:
            return False
        outer = _statement_loop(next((outer for outer in loop.ancestry() if outer is not loop), None))
        if outer is not (made_in if scope is code.scope else None):
            return False
        if scope is not code.scope and is_called_again(code, scope, 2):
            return False
    return bool(takers) and not is_called_again(code, code.scope, 2)


def _statement_loop(loop: Loop | None) -> Loop | None:
    """The loop itself, or the nearest one around it, that is a statement."""
    return next((outer for outer in loop.ancestry() if outer.statement is not None), None) if loop is not None else None


def with_workers(code: Code, loader: LoaderCall, moves_samples: bool, stay: bool) -> Iterator[Edit]:
    """Gives a loader some workers. moves_samples: whether the code of a sample uses the GPU; stay: through all epochs.

    Raises:
        CannotRewrite: another class, or `**kwargs`, may give the number, an option does, or workers could not run the code.

    """
    if not code.is_external(loader.call.func, DATA_LOADER) or loader.gives("num_workers") is None:
        raise CannotRewrite("another class, or `**kwargs`, may give the number of workers")
    if _where_workers_start(code, loader):
        raise CannotRewrite("workers that are spawned would run the program anew, or cannot find what a cell defines")
    if moves_samples or code.facts.project.program_holds(code.source.path, SPAWNS):
        raise CannotRewrite("samples use the GPU, which processes that are forked cannot, or workers are spawned")
    if isinstance(loader.argument("collate_fn"), ast.Lambda):
        raise CannotRewrite("workers that are spawned cannot get a lambda")
    if draws_by_itself(loader):
        raise CannotRewrite("each worker would draw the same in every epoch")
    if is_set_by_training(code, loader):
        raise CannotRewrite("the program sets what samples read of their dataset, and workers have copies of it")
    written = loader.argument("num_workers")
    if written is None:
        yield add_keyword(code.source, loader.call, "num_workers", _SOME, *([_STAYING] if stay else []))
    elif isinstance(written, ast.Constant):
        bare = any(k.value is written and k.end_col_offset == written.end_col_offset for k in loader.call.keywords)
        yield replace(code.source, written, f"{_SOME}, {_STAY}" if stay and bare else _SOME)
    else:
        raise CannotRewrite("an option gives the number of workers")


def how_to_get_workers(code: Code, loader: LoaderCall, stay: bool) -> str:
    """What the user is to do, in his own terms."""
    written, where = loader.argument("num_workers"), _where_workers_start(code, loader)
    if written is None:
        return "pass `num_workers=`" + (f" and `{_STAY}`" if stay else "") + where
    raised = f"raise `num_workers={ast.unparse(written)}`"
    if not isinstance(written, ast.Constant):
        return f"{raised}, which is 0{where}"
    return raised + (f" and pass `{_STAY}`" if stay else "") + where


def _where_workers_start(code: Code, loader: LoaderCall) -> str:
    """What workers need that are spawned (Windows, macOS), which find nothing that a cell of a notebook defines."""
    if code.source.cells is not None:
        is_in_cell = any(dataset.cls.module.source.cells is not None for dataset in loader.datasets)
        return " on Linux (elsewhere the dataset has to be in a module)" if is_in_cell else ""
    return ', behind `if __name__ == "__main__":`' if _runs_anew(code, loader) else ""


def _runs_anew(code: Code, loader: LoaderCall) -> bool:
    """Whether a file's top makes a loader or takes its batches whatever runs the file, maybe by functions that call others."""
    callers, scopes = code.facts.inference.callers, [code.scope, *(scope for scope, _ in loader.takers())]
    tops = [*scopes, *(site.scope for scope in scopes for site in callers.above(scope, _DEPTH))]
    project, files = code.facts.project, {top.module.source.path for top in tops if top.is_module}
    others = project.importers(code.source.path) if code.scope.is_module else frozenset()
    return any(not project.holds(file, _MAIN) for file in sorted(files.union(others)))


def draws_by_itself(loader: LoaderCall) -> bool:
    """Whether a sample draws from a generator of the dataset: workers get a copy of it, the same one in every epoch."""
    return any(_OWN_GENERATOR.search(scope.text) for scope in loader.sample_code())


def is_set_by_training(code: Code, loader: LoaderCall) -> bool:
    """Whether a program sets what samples read of their dataset: `loader.dataset.index = i`."""
    read = frozenset(name for scope in loader.sample_code() for name in _OWN.findall(scope.text))
    return bool(read) and code.facts.project.program_holds(code.source.path, _sets(read))


@cache
def _sets(attributes: frozenset[bytes]) -> re.Pattern[bytes]:
    return any_layout(rb"loader\w* \. dataset \. (?:%s) = (?!=)" % b"|".join(sorted(attributes)))
