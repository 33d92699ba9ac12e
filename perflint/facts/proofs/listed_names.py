"""Whether a program goes through the names of a file: a further import would be one more of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from perflint.facts.facts import Facts
from perflint.facts.values.values import ModuleRef
from perflint.source.syntax import Module
from perflint.source.words import any_layout

_ONE = rb"(?! (?:\[|\. (?:get|update|pop|setdefault)\b))"
"""One name is looked up."""
_OWN: Final = any_layout(
    rb"\b(?:globals|dir|vars) \( \)" + _ONE + rb"|\b(?:dir|vars|getmembers\w*) \( sys \. modules\b|\. __dir__ \("
    rb"|[=(,\[] (?:globals|locals)\b(?! [(=])"
)
"""What goes through the names of the file that it stands in, or that this file has from another one."""
_OTHERS: Final = any_layout(
    rb"\b(?:dir|getmembers\w*) \( (\w+)\b(?! \()|\bvars \( (\w+)(?: \. \w+)* \)%b|\b(\w+)(?: \. \w+)* \. __dict__\b%b"
    % (_ONE, _ONE)
)
"""What goes through the names of something, which may be a module."""
_LOCALS: Final = any_layout(rb"\blocals \( \)" + _ONE)
"""What goes through the names of a file where it stands outside of functions."""
_BY_TEXT: Final = any_layout(rb"import_module \(|__import__ \(")


def lists_names(facts: Facts, path: str) -> bool:
    """Whether a file, or one that imports it, goes through the names of a module, as registries do."""
    project = facts.project
    return any(
        (text := project.read(file)) is not None
        and (_OWN.search(text) is not None or _shows_own(facts, file, text) or any(_modules(facts, file, text)))
        for file in (path, *sorted(project.importers(path)))
    )


def _shows_own(facts: Facts, path: str, text: bytes) -> bool:
    if _LOCALS.search(text) is None:
        return False
    module = facts.project.module(path)
    return module is None or _LOCALS.search(module.top.text) is not None


def _modules(facts: Facts, path: str, text: bytes) -> Iterator[bool]:
    """For each object whose names a file goes through, whether it may be a module of the project."""
    found = {(match[1] or match[2] or match[3]).decode() for match in _OTHERS.finditer(text)}
    if not found:
        return
    module = facts.project.module(path)
    for name in sorted(found):
        yield module is None or _BY_TEXT.search(text) is not None or _is_module(facts, module, name)


def _is_module(facts: Facts, module: Module, name: str) -> bool:
    return name in module.bindings and facts.inference.module_name(module, name, 1).may_be(ModuleRef)
