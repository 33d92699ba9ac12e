"""Qualified names, and what a bare name suggests when nothing else is known about it."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.values.values import (
    UNKNOWN,
    Alternative,
    Batch,
    Device,
    External,
    Loader,
    Number,
    Object,
    Output,
    Place,
    Tensor,
    Value,
    one,
)
from perflint.source.words import any_layout, made

NAMES_REMEMBERED = 10_000
"""Of so many names the answer is kept: each is asked for again and again."""

_CANONICAL = (
    (re.compile(r"^torch\.utils\.data\.dataloader\.DataLoader$"), "torch.utils.data.DataLoader"),
    (re.compile(r"^torch\.nn\.modules(?:\.\w+)*\.(\w+)$"), r"torch.nn.\1"),
    (re.compile(r"^torch\.nn\.functional\.(\w+)$"), r"torch.nn.functional.\1"),
    (re.compile(r"^torch\.nn\.parallel\.(?:distributed|data_parallel)\.(\w*DataParallel)$"), r"torch.nn.parallel.\1"),
    (re.compile(r"^torch\.optim\.[a-z_]+\.(\w+)$"), r"torch.optim.\1"),
    (re.compile(r"^torch_optimizer\.[a-z0-9_]+\.([A-Z]\w*)(?=\.|$)"), r"torch_optimizer.\1"),
    (re.compile(r"^torch\.distributions\.[a-zA-Z_]+\.([A-Z]\w+)$"), r"torch.distributions.\1"),
    (re.compile(r"^torch\.autograd\.(no_grad|enable_grad|inference_mode|set_grad_enabled)$"), r"torch.\1"),
    (re.compile(r"^torch\.autograd\.grad_mode\.(\w+)$"), r"torch.\1"),
    (re.compile(r"^torch\.(?:cuda\.)?amp(?:\.\w+)*\.(autocast|GradScaler)$"), r"torch.amp.\1"),
    (re.compile(r"^torch\.nn\.parameter\.(\w+)$"), r"torch.nn.\1"),
    (re.compile(r"^torch\.autograd\.variable\.Variable$"), "torch.autograd.Variable"),
    (re.compile(r"^lightning(?:\.pytorch)?\.(\w+)$"), r"lightning.\1"),
    (re.compile(r"^pytorch_lightning(?:\.core(?:\.\w+)?)?\.(\w+)$"), r"lightning.\1"),
)


@lru_cache(maxsize=NAMES_REMEMBERED)
def canonical(qualname: str) -> str:
    """One spelling for the names under which torch offers the same thing."""
    for pattern, spelling in _CANONICAL:
        if pattern.match(qualname):
            return pattern.sub(spelling, qualname)
    return qualname


_CONSTANT = made(r"(?:math|torch|numpy)\.(?:pi|e|tau|inf|nan|Inf|NaN)")


@lru_cache(maxsize=NAMES_REMEMBERED)
def from_elsewhere(qualname: str) -> Value:
    """What a name of a library stands for: a number, or what only the name tells."""
    return one(Number("float") if _CONSTANT.fullmatch(qualname) else External(canonical(qualname)))


_DEVICE = Device(Place.ELSEWHERE)

_HINTS: tuple[tuple[re.Pattern[str], Alternative], ...] = (
    (
        re.compile(r"(?:^|_)(?:data_?|train_?|val_?|test_?|eval_?)*(?:loader|dataloader|dl)s?(?:_|$|\d)", re.I),
        Loader(False, None),
    ),
    (re.compile(r"(?:^|_)(?:criterion|loss_fn|loss_func|loss_function|objective)\w*$", re.I), Object("torch.nn.Module")),
    (re.compile(r"(?:^|_)(?:optimi[sz]er|optim)s?(?:_\w+|[A-Z]\w*)?$|\w_opt$", re.I), Object("torch.optim.Optimizer")),
    (
        re.compile(
            r"(?:^|_)(?:model|net|network|encoder|decoder|generator|discriminator|backbone|critic|actor)(?:_\w+|\d+)?$", re.I
        ),
        Object("torch.nn.Module"),
    ),
    (re.compile(r"(?:^|_)(?:device|dev)(?:_id)?$"), _DEVICE),
    (re.compile(r"^(?:grad_)?scaler$"), Object("torch.amp.GradScaler")),
    (re.compile(r"^(?:batch|data_batch|minibatch|mini_batch)$"), Batch()),
    (re.compile(r"(?:^|_)(?:loss|losses)$"), Tensor(dtype="float")),
    (re.compile(r"^(?:logits|outputs?)$"), Output()),
)


_CLASS = made(r"_?[A-Z][a-z]")


def names_class(name: str) -> bool:
    """Whether a variable is named like a class, which makes the thing: `Model = eval(name)`."""
    return _CLASS.match(name) is not None


_SIZES = made(r"(?:^|_)(?:sizes?|shapes?|heights?|widths?)$")


def names_sizes(name: str) -> bool:
    """Whether an attribute is named like a size, which is as often Python's numbers as a tensor: `images.image_sizes`."""
    return _SIZES.search(name) is not None


_ABOUT = made(r"_(?:class|cls|type|name|path|file|dir|config|cfg|args|kwargs|id|ids|size|dim|params?|state_dict|lr|str)$")
"""`model_class`, `optimizer_name`: something about the thing, not the thing."""


@lru_cache(maxsize=NAMES_REMEMBERED)
def hinted(name: str) -> Value:
    """An open value: what programmers usually mean by a name. Never a proof."""
    return UNKNOWN if _DOES.match(name) else _meant(name)


@lru_cache(maxsize=NAMES_REMEMBERED)
def _meant(name: str) -> Value:
    for pattern, alternative in _HINTS:
        if pattern.search(name) and (alternative == _DEVICE or not _ABOUT.search(name)):
            return Value(frozenset((alternative,)), open=True)
    return UNKNOWN


def name_of_item(path: str, key: ast.expr) -> str:
    """What `models["encoder"]` would be called; nothing where the container's name does not say it."""
    several = _SEVERAL.search(path) if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
    return several[1] if several is not None else ""


_SEVERAL = made(r"(?:^|[._])(model|net|network|generator|discriminator|optimi[sz]er|loader|dataloader)s$")


_CREATES = "get|build|make|create|load|setup|prepare|configure|instantiate"
_DOES = made(
    rf"^_?(?:{_CREATES}|preprocess|postprocess|process|save|export|convert|wrap|unwrap|freeze|unfreeze|register|reset|update"
    r"|merge|replace|set|add|remove|find|is|has)_"
)
"""`load_model`, `preprocess_model`: what is done with the thing, not the thing."""
_MAKERS = made(rf"^_?(?:{_CREATES}|init|select|choose|new)(?=_|[A-Z])")


def hinted_call(call: ast.Call) -> Value:
    """What a call suggests for its result: `get_loader()` is a loader, and whoever is asked for tensors of torch gives a batch.

    `return_tensors="pt"` is an argument of the tokenizers and processors of transformers, which make tensors on the host.
    """
    if any(k.arg == "return_tensors" and isinstance(k.value, ast.Constant) and k.value.value == "pt" for k in call.keywords):
        return one(Batch(pinned=False))
    name = (path_of(call.func) or "").rpartition(".")[2]
    if not _MAKERS.match(name):
        return UNKNOWN
    return _meant(name)


NETWORK_CALL = any_layout(
    rb"(?:[mM](?i:odel|odule)|[nN](?i:et)|[eE](?i:ncoder|xtractor)|[dD](?:(?<!\w[dD])|(?i:ecoder|iscriminator))"
    rb"|[gG](?:(?<!\w[gG])|(?i:enerator))|[cC](?i:ritic|lassifier)|[aA](?i:ctor|gent)|[pP](?i:olicy)|[bB](?i:ackbone)"
    rb"|[tT](?i:eacher|ransformer)|[sS](?i:tudent))\w*(?: \. \w+)? \("
)
"""A call of what is named like a network, or of a method of it, in a text."""
