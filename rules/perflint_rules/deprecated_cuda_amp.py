"""Mixed precision is called by a name that torch is about to drop.

## What it does
Finds calls of `torch.cuda.amp.autocast` and `torch.cuda.amp.GradScaler`.

## Why it is slow
It is not: each call warns, at the cost of microseconds, and a later torch will have no such name. The rule is here so that
nobody needs a second linter for it.

## Example
```python
for x, y in loader:
    with torch.cuda.amp.autocast():
        loss = criterion(model(x), y)
```

## Use instead
```python
for x, y in loader:
    with torch.amp.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
```

## When it stays silent
For torch below 2.4, which has no `torch.amp.GradScaler` or does not warn yet, and for `torch.amp`.

## Fix safety
Safe in programs that never ask for the class of a scaler or a region, replace these names or look at warnings: the old names
do nothing but pass "cuda" on, and float16 for a region, which would else take the type of a region around it.
A scaler that other code may get has another class then: that nobody asks for it is assumed (`plain-objects`).
A name that is imported by itself stays imported, which does not warn; that no other file sets it is assumed (`plain-modules`).
"""

import ast
from collections.abc import Iterator

from packaging.version import Version

from perflint.api import (
    WATCHES_WARNINGS,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Import,
    Kind,
    Obligation,
    Severity,
    any_layout,
    path_of,
    replace,
    rule,
    stranger,
)
from perflint_rules.old_torch import lacks_name

_CUDA = '"cuda"'
_NAMES = ("torch.amp.autocast", "torch.amp.GradScaler")
_ORDER = {
    "autocast": ("enabled", "dtype", "cache_enabled"),
    "GradScaler": ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled"),
}
_METHODS = frozenset(("scale", "step", "update", "unscale_", "state_dict", "load_state_dict", "get_scale", "is_enabled"))
_FROM_CUDA = any_layout(rb"from torch \. cuda import [^\n]*\bamp\b")
_FROM_AMP = any_layout(rb"from torch \. cuda \. amp(?: \. \w+)? import ( \([^)]*\)|(?:[^\n\\]|\\\s*\n)*)")
_CACHE_OFF = any_layout(rb"cache_enabled = (?! True)|set_autocast_cache_enabled")
"""What switches off, in a region around another one, that weights are converted once: the old name switches it on again."""
_ASKS_FOR_CLASS = any_layout(
    rb"(?:isinstance|issubclass) \((?:[^()]|\([^()]*\))*\b(?:autocast|GradScaler)\b|\bcase [\w.]*(?:autocast|GradScaler) \("
    rb"|\bclass \w+ \([^()]*\b(?:autocast|GradScaler)\b|\b(?:is|is not|==|!=|in) (?:[\w.]+\.)?(?:autocast|GradScaler)\b(?! \()"
    rb"|(?<![:>|]\s)(?<!\[)\b(?:torch\.cuda\.)?amp\.(?:autocast|GradScaler) [],:})]"
    rb"|\btype \( [\w.]*(?:scaler|autocast|context|ctx|amp) \)|(?:scaler|autocast|context|ctx|amp) \. __class__"
    rb"|pickle \. dumps? \( [\w.]*scaler"
)
"""What tells the class of the old name from that of the new one."""
_SETS_NAME = any_layout(rb"\. (?:autocast|GradScaler) =(?!=)|['\"](?:[\w.]+\.)?(?:autocast|GradScaler)['\"]")


@rule(
    category="autograd",
    costs=Cost.LAUNCH,
    severity=Severity.INFO,
    calls=_NAMES,
    in_file=[("cuda",), ("amp",)],
    fixes=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report each call by an old name."""
    oldest = code.facts.versions.get("torch")
    if oldest is not None and oldest < Version("2.4"):
        return
    for call in code.calls_to(*_NAMES):
        name = _old_name(code, call)
        if name is None:
            continue
        missing = [*_missing(code), _seen(code, call), _set_elsewhere(code, call)]
        fix = code.fix('call torch.amp with "cuda"', _renamed(code, call, name), unless=missing)
        yield code.finding(call, f'this name of `{name}` is deprecated; write `torch.amp.{name}("cuda", ...)`', fix, missing)


def _missing(code: Code) -> Iterator[Obligation]:
    if (lacking := lacks_name(code, "torch.amp.GradScaler", "2.3")) is not None:
        yield lacking
    if (unknown := stranger(code.facts.project, code.source.path)) is not None:  # torch_npu puts its own under the old names
        yield Obligation(Kind.PLAIN_MODULES, f"`{unknown}` may put others in the place of torch's")
    if code.facts.project.program_may_hold(code.source.path, _CACHE_OFF):
        yield Obligation(Kind.NUMBERS, "a region around it may convert weights anew for each use")
    if code.facts.project.program_may_hold(code.source.path, _ASKS_FOR_CLASS):
        yield Obligation(
            Kind.NAMES, "the program asks for the class of a scaler or of an autocast region, which is another one"
        )
    yield from code.feared(WATCHES_WARNINGS)
    yield from code.replaced("torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler")


def _seen(code: Code, call: ast.Call) -> Obligation | None:
    """Whether somebody else than a region, or calls of a scaler's methods, gets the object, whose class is another one."""
    flow, parent = code.flow, code.flow.parent.get(call)
    if isinstance(parent, (ast.withitem, ast.FunctionDef)) and getattr(parent, "optional_vars", None) is None:
        return None
    names = code.flow.definitions_from(call)
    uses = [use for definition in names for use in flow.uses[definition]]
    local = bool(names) and not code.scope.is_module and not any(d.name in flow.inner_names | flow.outer_names for d in names)
    if local and all(isinstance(a := flow.parent.get(use), ast.Attribute) and a.attr in _METHODS for use in uses):
        return None
    return Obligation(Kind.PLAIN_OBJECTS, "code that gets the object may ask for its class, which is another one")


def _set_elsewhere(code: Code, call: ast.Call) -> Obligation | None:
    """Whether others may put something else under a name that the file imports by itself: the new line no longer uses it."""
    if isinstance(call.func, ast.Attribute):
        return None
    if code.facts.project.program_may_hold(code.source.path, _SETS_NAME):
        return Obligation(Kind.NAMES, "the program sets a variable of this name in some file")
    return Obligation(Kind.PLAIN_MODULES, f"another file may put something else under the name `{ast.unparse(call.func)}`")


def _old_name(code: Code, call: ast.Call) -> str | None:
    """`autocast` or `GradScaler`, if the code takes it from torch.cuda."""
    path = path_of(call.func) or ""
    package, _, name = path.rpartition(".")
    if package.endswith("cuda.amp") or (package == "amp" and _FROM_CUDA.search(code.source.body)):
        return name
    for found in _FROM_AMP.finditer(code.source.body) if not package else ():
        for imported in found[1].decode().replace("(", " ").replace(")", " ").split(","):
            old, *renamed = imported.replace("\\", " ").split()[::2] or [""]
            if old in _ORDER and name == (renamed or [old])[0]:
                return old
    return None


def _renamed(code: Code, call: ast.Call, name: str) -> Iterator[Edit | Import]:
    text = code.text(call)
    if "#" in text or any(isinstance(a, ast.Starred) for a in call.args):
        raise CannotRewrite("a comment would be lost, or arguments are hidden")
    if len(call.args) > len(_ORDER[name]) or not {k.arg for k in call.keywords} <= {*_ORDER[name]}:
        raise CannotRewrite("it has other arguments, for which it raises")
    torch, imports = code.name_for("torch")
    yield from imports
    by_name = [f"{key}={code.text(value)}" for key, value in zip(_ORDER[name], call.args, strict=False)]
    by_name += [code.text(keyword) for keyword in call.keywords]
    if name == "autocast" and len(call.args) < 2 and all(keyword.arg != "dtype" for keyword in call.keywords):
        by_name.append(f"dtype={torch}.float16")
    yield replace(code.source, call, f"{torch}.amp.{name}({', '.join([_CUDA, *by_name])})")
