"""What other files put in the place of a module's functions, classes and variables: `lib.act = other`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from perflint.facts.values.attribute_stores import DATA, attribute_stores
from perflint.facts.values.frames import Inferring
from perflint.facts.values.values import UNKNOWN, ModuleRef, Value
from perflint.project.trace import LastingMemo
from perflint.source.syntax import Module
from perflint.source.words import any_layout

_Setters = Mapping[str, tuple[str, ...]]
"""The files that may set a module's variable, by its name. Of what is set by a name that is not known, `_ANY`."""

_ANY: Final = "*"
_BY_NAME: Final = (b"setattr", b"delattr", b"object", b"vars", b"__dict__", b"__setattr__", b"__delattr__")
"""One of these stands where `_by_name` finds something; `object` is that of `mock.patch`."""
_SETS_ANY: Final = any_layout(
    rb"\b(?:setattr|delattr)\b(?! \( (?:self|cls)\b)"
    rb"|__(?:set|del)attr__(?<!\bdef\x20__(?:set|del)attr__)(?<!super\(\)\.__(?:set|del)attr__)(?! (?:=(?!=)|\( self\b))"
    rb"|(?:\. __dict__(?<!\bself\.__dict__)|\bvars \( [^()]* \)) (?:\[[^\]]*\] =(?!=)|\. (?:update|setdefault|pop)\b)"
)
"""What sets attributes of objects that it may get from elsewhere, by names that may be any."""


def put_from_outside(inference: Inferring, module: Module, name: str, depth: int) -> list[Value]:
    """What the statements of other files give a variable of a module."""
    path = module.source.path
    known: LastingMemo[str, _Setters] = inference.project.lasting("set from outside")
    setters = known.get(path, lambda: _setters(inference, path))
    files = setters.get(name, ())
    found = [UNKNOWN] if _ANY in setters or _ANY in files or (files and depth <= 0) else []
    return found or [value for file in files for value in _put_by(inference, file, module, name, depth)]


def _put_by(inference: Inferring, file: str, module: Module, name: str, depth: int) -> Iterator[Value]:
    for base, stored in attribute_stores(inference, inference.project.module(file), name, depth):
        is_module = base.may(lambda a: isinstance(a, ModuleRef) and a.module.source.path == module.source.path)
        if is_module or not base.alternatives:
            value = stored()
            if is_module or not value.must_be(*DATA):  # `options.level = 3`
                yield value


def _setters(inference: Inferring, path: str) -> _Setters:
    """The files that may set variables of a module. Who only takes names from it cannot."""
    project = inference.project
    folder, base = os.path.split(path)
    stem = (os.path.basename(folder) if base == "__init__.py" else base.removesuffix(".py")).encode()
    holders = sorted(project.holders(path))
    found: dict[str, tuple[str, ...]] = {}
    handed = False
    for file in holders:
        text = project.read(file) or b""
        aliases = (stem, *re.findall(rb"\b%b[\s\\]+as[\s\\]+(\w+)" % re.escape(stem), text))
        handed = handed or any(_handed_on(alias).search(text) for alias in aliases)
        if not any(word in text for word in _BY_NAME):
            continue
        for match in _by_name(aliases).finditer(text):
            if not match["read"]:  # else `name in vars(lib)`
                found[match["name"].decode() if match["name"] else _ANY] = (_ANY,)
    if handed and project.program_may_hold(path, _SETS_ANY):
        found[_ANY] = (_ANY,)
    for file in (project.members(path) or holders) if handed else holders:
        for attribute in () if file == path else project.attributes_stored(file):
            name = attribute.decode(errors="replace")
            found[name] = (*found.get(name, ()), file)
    return found


@cache
def _by_name(aliases: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """Where a variable of a module is set by its name, or somebody gets all of them who may set some."""
    one_of = b"|".join(map(re.escape, aliases))
    reads = rb"\[[^\]]*\](?! =(?!=))|\. (?:get|items|keys|values|copy)\b"
    return any_layout(
        rb"\b(?:setattr|delattr|object) \( (?:\w+ \. )*(?:%b) ,(?: ['\"](?P<name>\w+)['\"] [,)])?"
        rb"|\b(?:%b) \. __(?:set|del)attr__\b"
        rb"|(?P<read>\bin\b)? \b(?:vars \( (?:\w+ \. )*(?:%b) \)|(?:%b) \. __dict__\b)(?! (?:%b))"
        % (one_of, one_of, one_of, one_of, reads)
    )


@cache
def _handed_on(stem: bytes) -> re.Pattern[bytes]:
    """Where a module is what a call or a container is given, or gets another name, and not only asked for what is in it."""
    return any_layout(
        rb"(?<!getattr)(?<!hasattr)(?<!reload)[(,[{:=] %b [],)}:;#\r\n]|\b(?:return|yield|else|or) %b\b(?! [.(])"
        % ((re.escape(stem),) * 2)
    )
