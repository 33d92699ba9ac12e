"""The number of workers that a loader is given, whether some would help, and how to get them: no rule by itself."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from perflint.api import DATA_LOADER, CannotRewrite, Code, Edit, LoaderCall, Scope, add_keyword, any_layout, replace

SOME_WORKERS = "make samples in 4 workers"
_SOME = "4"
"""Enough to decode beside a training, and few enough for a small machine."""
_DEPTH = 3
"""Through how many calls the top of a file is looked for."""
_MAIN = any_layout(rb"__name__ == ['\"]__main__['\"]")
_SPAWNS = any_layout(
    rb"\b(?:set_start_method|get_context|multiprocessing_context) [(=] (?:method = )?['\"](?:spawn|forkserver)"
)
_OF_WINDOWS = re.compile(rb"['\"=\s][A-Z]:[\\/](?!/)|split\(['\"]\\\\|workers?\b[^\n]*#[^\n]*[Ww]indows")
"""A path of a machine where workers are spawned: each starts anew in every epoch, which takes seconds."""
_OWN_GENERATOR = any_layout(rb"self \. _?\w*(?:rng|random_state|generator)\w* \. \w+ \(")
_KEEPS = re.compile(rb"\b\w*(?:cache|preload|in_?memory|in_?ram)\w*\b", re.IGNORECASE)
_LARGE_STEP = any_layout(rb"(?:from|import) diffusers\b")
"""What trains networks beside whose steps a batch is decoded in no time."""
_FEW_BATCHES = any_layout(rb"\boverfit_batches = [1-9]|\bfast_dev_run = (?:True|[1-9])|\blimit_train_batches = [1-9]\d? [,)]")
"""What has a trainer of Lightning take a few batches of an epoch."""
_WHERE_LITTLE = (_SPAWNS, _OF_WINDOWS, _LARGE_STEP, _FEW_BATCHES)


def with_workers(code: Code, loader: LoaderCall, moves_samples: bool) -> Iterator[Edit]:
    """Gives a loader some workers. moves_samples: whether the code of a sample uses the GPU.

    Raises:
        CannotRewrite: another class, or `**kwargs`, may give the number, an option does, or workers could not run the code.

    """
    if not code.is_external(loader.call.func, DATA_LOADER) or loader.gives("num_workers") is None:
        raise CannotRewrite("another class, or `**kwargs`, may give the number of workers")
    if _where_workers_start(code, loader):
        raise CannotRewrite("workers that are spawned would run the program anew, or cannot find what a cell defines")
    if moves_samples or code.facts.project.program_holds(code.source.path, _SPAWNS):
        raise CannotRewrite("samples use the GPU, which processes that are forked cannot, or workers are spawned")
    if isinstance(loader.argument("collate_fn"), ast.Lambda):
        raise CannotRewrite("workers that are spawned cannot get a lambda")
    if draws_by_itself(loader):
        raise CannotRewrite("each worker would draw the same in every epoch")
    written = loader.argument("num_workers")
    if written is None:
        yield add_keyword(code.source, loader.call, "num_workers", _SOME)
    elif isinstance(written, ast.Constant):
        yield replace(code.source, written, _SOME)
    else:
        raise CannotRewrite("an option gives the number of workers")


def how_to_get_workers(code: Code, loader: LoaderCall) -> str:
    """What the user is to do, in his own terms."""
    written = loader.argument("num_workers")
    where = _where_workers_start(code, loader)
    if written is None:
        return f"pass `num_workers=`{where}"
    return f"raise `num_workers={ast.unparse(written)}`" + ("" if isinstance(written, ast.Constant) else ", which is 0") + where


def _where_workers_start(code: Code, loader: LoaderCall) -> str:
    """What workers need that are spawned (Windows, macOS), which find nothing that a cell of a notebook defines."""
    if code.source.cells is not None:
        is_in_cell = any(dataset.cls.module.source.cells is not None for dataset in loader.datasets)
        return " on Linux (elsewhere the dataset has to be in a module)" if is_in_cell else ""
    return ', behind `if __name__ == "__main__":`' if _runs_anew(code, code.scope, _DEPTH) else ""


def _runs_anew(code: Code, scope: Scope, depth: int) -> bool:
    """Whether a file's top runs some code whatever runs the file, maybe through functions that call each other."""
    if scope.is_module:
        return not code.facts.project.holds(scope.module.source.path, _MAIN)
    return depth > 0 and any(_runs_anew(code, s.scope, depth - 1) for s in code.facts.inference.callers.sites(scope).sites)


def draws_by_itself(loader: LoaderCall) -> bool:
    """Whether a sample draws from a generator of the dataset: workers get a copy of it, the same one in every epoch."""
    return any(_OWN_GENERATOR.search(scope.text) for scope in loader.sample_code())


def gain_little(code: Code, loader: LoaderCall) -> bool:
    """Whether workers would gain little: they are spawned for each epoch, draw what others drew, or a step takes seconds.

    Or samples are kept in memory, or an option says what its 0 is for.
    """
    project, path = code.facts.project, code.source.path
    if draws_by_itself(loader) or any(project.program_holds(path, pattern) for pattern in _WHERE_LITTLE):
        return True
    option = loader.worker_option
    return _keeps_samples(code, loader) or (option is not None and project.program_holds(path, _tells_of_windows(option)))


def _keeps_samples(code: Code, loader: LoaderCall) -> bool:
    """Whether a dataset has an option for keeping its samples in memory, and the program says yes to it: `cache=True`."""
    project, path = code.facts.project, code.source.path
    methods = (method for dataset in loader.datasets for method in dataset.cls.methods.values())
    names = {name for method in methods for name in _KEEPS.findall(method.text)}
    return any(project.program_holds(path, _says_yes_to(name)) for name in sorted(names))


@cache
def _says_yes_to(option: bytes) -> re.Pattern[bytes]:
    return any_layout(rb"\b%s (?:: bool )?= True\b" % option)


@cache
def _tells_of_windows(option: str) -> re.Pattern[bytes]:
    return re.compile(rb"--%s['\"][^)]*(?i:windows)" % option.encode().replace(b"_", b"[-_]"))
