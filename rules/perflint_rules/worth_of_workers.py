"""Where workers would gain little: they are spawned, steps are long or epochs short, samples are kept. No rule by itself."""

import ast
import re
from functools import cache

from perflint.api import Block, Code, LoaderCall, Scope, any_layout, is_of_mac
from perflint_rules.comments import comment_above
from perflint_rules.loader_workers import SPAWNS, draws_by_itself, is_set_by_training
from perflint_rules.shared_handles import may_be_shared, shared_handles

_DEPTH = 3
"""Through how many calls the pages are looked for that have a loader made."""

_OF_WINDOWS = re.compile(
    rb"['\"=\s][A-Z]:[\\/](?!/)|split\(['\"]\\\\|workers?\b[^\n]*#[^\n]*[Ww]indows"
    rb"|^(?:import|from)[ \t]+(?:msilib|msvcrt|winreg|winsound|win32\w*)\b",
    re.MULTILINE,
)
"""A path or a module of a machine where workers are spawned: each starts anew in every epoch, which takes seconds."""
_KEEPS = re.compile(rb"\b\w*(?:cache|preload|in_?memory|in_?ram)\w*\b", re.IGNORECASE)
_LARGE_STEP = any_layout(rb"(?:from|import) diffusers\b")
"""What trains networks beside whose steps a batch is decoded in no time."""
_FEW_BATCHES = any_layout(rb"\boverfit_batches = [1-9]|\bfast_dev_run = (?:True|[1-9])|\blimit_train_batches = [1-9]\d? [,)]")
"""What has a trainer of Lightning take a few batches of an epoch."""
_SHORT_EPOCHS = re.compile(
    rb"\b(?:(?:num|n|nb|max|total|train)_?epochs?|epochs|EPOCHS|(?:NUM|N|MAX|TOTAL)_EPOCHS?)['\"]?(?:[ \t]*:[ \t]*int)?"
    rb"(?:[ \t]*[=:][ \t]*|['\"][^)\n]{0,200}\bdefault=)\d{1,3}_?\d{3}\b(?!\.)"
)
"""A thousand epochs and more, which are few batches each: what it takes to start workers in each eats the gain."""
_ON_CPU = re.compile(rb"(?i)\b(?:fast|quick)(?:er)?[ \t-]+cpu[ \t-]+train")
_AHEAD = any_layout(rb"\b(?:BackgroundGenerator|ThreadDataLoader|ThreadBuffer) \(")
"""A thread makes batches beside the training: that of prefetch_generator, or of MONAI, which needs 0 workers."""
_PAGE = re.compile(rb"^(?:import|from)[ \t]+(?:streamlit|gradio)\b", re.MULTILINE)
_CHOSEN = re.compile(r"['\"](?:windows|win32|nt|darwin)\b|gettrace|pydevd|debug", re.I)
_OTHERWISE = re.compile(r"['\"](?:linux|posix)\b", re.I)
"""What a test asks for where workers are left out for another system, or for a debugger."""
_OF_WORKERS = re.compile(r"(?:\b|_)workers?\b|\b(?:sub|multi-?)?process(?:es)?\b|\b(?:fork|spawn|deadlock)\w*", re.I)
_NUMBER_LAST = re.compile(r"num_workers\s*[=:]\s*\S+$|^\w+\s*=\s*\d+$")
"""A line that ends with the number of workers: a comment behind it is about that."""
_REASON = re.compile(
    r"\b(?:important|intentional\w*|deliberate\w*|on purpose|must|ha(?:s|ve) to|needs? to be|required|avoid\w*"
    r"|prevent\w*|because|since|otherwise|can ?not|can't|don't|does(?:n't| not)|won't|fail\w*|errors?|issues?|bugs?|crash\w*"
    r"|hang\w*|deadlock\w*|stuck|fork\w*|spawn\w*|pickl\w*|leak\w*|windows|mac ?os|debug\w*|best with|works? (?:only|best)"
    r"|only works?)\b",
    re.I,
)
"""Words by which a comment gives a reason."""
_TO_DO = re.compile(r"\b(?:TODO|FIXME)\b")
_WHERE_LITTLE = (SPAWNS, _AHEAD, _OF_WINDOWS, _LARGE_STEP, _FEW_BATCHES, _SHORT_EPOCHS, _ON_CPU)


def gain_little(code: Code, loader: LoaderCall) -> bool:
    """Whether workers would gain little: they are spawned for each epoch, draw what others drew, or a step takes seconds.

    Or whoever runs the program is asked for their number, samples are kept in memory, or read by one open file, or it is said
    what the 0 is for, or the batches are for a page of streamlit. Workers are spawned on a Mac.
    """
    project, path = code.facts.project, code.source.path
    if draws_by_itself(loader) or is_of_mac(code.facts, path) or _is_explained(code, loader):
        return True
    if _share_files(code, loader) or _is_for_page(code, code.scope, _DEPTH) or is_set_by_training(code, loader):
        return True
    if any(project.program_holds(path, pattern) for pattern in _WHERE_LITTLE):
        return True
    return loader.worker_option is not None or _keeps_samples(code, loader)


def _is_explained(code: Code, loader: LoaderCall) -> bool:
    """Whether a test above asks for another system or a debugger, or a comment at the number of workers says why it is 0."""
    written = loader.argument("num_workers")
    if written is not None:
        if any(_is_for_another_system(block) for block in code.flow.block[loader.call].ancestry()):
            return True
        bound = code.flow.reaching.get(written, frozenset())
        rows = {written.lineno, *(d.value.lineno for d in bound if d.kind == "assign" and d.value is not None)}
        if any(_is_reason_beside(code.source.line(row)) for row in rows):
            return True
    above = comment_above(code, loader.call)
    return _OF_WORKERS.search(above) is not None and _gives_reason(above)


def _is_for_another_system(block: Block) -> bool:
    """Whether a block runs where the system is another one than that of most GPUs, or under a debugger."""
    if not isinstance(block.node, ast.If):
        return False
    test = ast.unparse(block.node.test)
    is_asked = (block.kind == "then") is not ("!=" in test or test.startswith("not "))
    return (_CHOSEN if is_asked else _OTHERWISE).search(test) is not None


def _is_reason_beside(line: str) -> bool:
    """Whether what stands behind a line's code gives a reason for the number of workers, and for nothing else in it."""
    code, _, comment = line.partition("#")
    return _gives_reason(comment) and (_NUMBER_LAST.search(code.strip(" \t),")) or _OF_WORKERS.search(comment)) is not None


def _gives_reason(comment: str) -> bool:
    return _REASON.search(comment) is not None and _TO_DO.search(comment) is None


def _share_files(code: Code, loader: LoaderCall) -> bool:
    """Whether workers would share a file that the dataset opens when it is made (shared-handle-across-fork)."""
    shared = ((dataset, opened) for dataset in loader.datasets for _, opened in shared_handles(code, loader, dataset))
    return any(not may_be_shared(code, dataset, opened) for dataset, opened in shared)


def _is_for_page(code: Code, scope: Scope, depth: int) -> bool:
    """Whether a loader is made by a page of streamlit or gradio, or all who call its maker are such pages."""
    if code.facts.project.holds(scope.module.source.path, _PAGE):
        return True
    sites = code.facts.inference.callers.sites(scope).sites if depth else ()
    return bool(sites) and all(_is_for_page(code, site.scope, depth - 1) for site in sites)


def _keeps_samples(code: Code, loader: LoaderCall) -> bool:
    """Whether a dataset has an option for keeping its samples in memory, and the program says yes to it: `cache=True`."""
    project, path = code.facts.project, code.source.path
    methods = (method for dataset in loader.datasets for method in dataset.cls.methods.values())
    names = {name for method in methods for name in _KEEPS.findall(method.text)}
    return any(project.program_holds(path, _says_yes_to(name)) for name in sorted(names))


@cache
def _says_yes_to(option: bytes) -> re.Pattern[bytes]:
    return any_layout(rb"\b%s (?:: bool )?= True\b" % option)
