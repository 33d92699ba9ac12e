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
from perflint.source.words import any_layout, made

_Setters = Mapping[str, tuple[str, ...]]
"""The files that may set a module's variable, by its name. Of what is set by a name that is not known, `_ANY`."""

_ANY: Final = "*"
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
        if stem not in text:
            continue
        aliases = (stem, *_alias_of(stem).findall(text))
        handed = handed or any(_is_handed_on(text, alias) for alias in aliases)
        found.update((name, (_ANY,)) for name in _named(text, aliases))
    if handed and project.program_may_hold(path, _SETS_ANY):
        found[_ANY] = (_ANY,)
    for file in (project.members(path) or holders) if handed else holders:
        for attribute in () if file == path else project.attributes_stored(file):
            name = attribute.decode(errors="replace")
            found[name] = (*found.get(name, ()), file)
    return found


def _named(text: bytes, aliases: tuple[bytes, ...]) -> Iterator[str]:
    """The variables of a module that are set by their names; `_ANY` where somebody gets all of them who may set some."""
    for words, form in _FORMS:
        if any(word in text for word in words):
            for match in _with(form, aliases).finditer(text):
                name = match.groupdict().get("name")
                if name:
                    yield name.decode()
                elif not _IN.search(text[_begin(text, match.start()) : match.start()]):  # `name in vars(lib)`
                    yield _ANY


_READS: Final = rb"(?! (?:\[[^\]]*\](?! =(?!=))|\. (?:get|items|keys|values|copy)\b))"
_FORMS: Final = (
    ((b"setattr",), rb"\bsetattr \( (?:\w+ \. )*(?:%b) ,(?: ['\"](?P<name>\w+)['\"] [,)])?"),
    ((b"delattr",), rb"\bdelattr \( (?:\w+ \. )*(?:%b) ,(?: ['\"](?P<name>\w+)['\"] [,)])?"),
    ((b"object",), rb"\bobject \( (?:\w+ \. )*(?:%b) ,(?: ['\"](?P<name>\w+)['\"] [,)])?"),  # of `mock.patch`
    ((b"__setattr__", b"__delattr__"), rb"\b(?:%b) \. __(?:set|del)attr__\b"),
    ((b"vars",), rb"\bvars \( (?:\w+ \. )*(?:%b) \)" + _READS),
    ((b"__dict__",), rb"\b(?:%b) \. __dict__\b" + _READS),
)
"""Ways to set a module's variables by name, or to get all of them, and words of which one stands in each."""
_IN: Final = any_layout(rb"\bin \Z")


@cache
def _with(form: bytes, aliases: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return any_layout(form % b"|".join(map(re.escape, aliases)))


_ARGUMENT: Final = any_layout(rb"(?<!getattr)(?<!hasattr)(?<!reload)[(,[{:=] \Z"), any_layout(rb" [],)}:;#\r\n]")
_RESULT: Final = any_layout(rb"\b(?:return|yield|else|or) \Z"), any_layout(rb"(?! [.(])")
"""What stands before and behind a name that a call or a container is given, or that gets another name."""


def _is_handed_on(text: bytes, name: bytes) -> bool:
    """Whether a module is what a call or a container is given, or gets another name, and not only asked for what is in it."""
    if name not in text:
        return False
    for found in _alone(name).finditer(text):
        for before, behind in (_ARGUMENT, _RESULT):
            if behind.match(text, found.end()) and before.search(text[_begin(text, found.start()) : found.start()]):
                return True
    return False


@cache
def _alias_of(name: bytes) -> re.Pattern[bytes]:
    return made(rb"\b%b[\s\\]+as[\s\\]+(\w+)" % re.escape(name))


@cache
def _alone(name: bytes) -> re.Pattern[bytes]:
    return made(rb"\b%b\b" % re.escape(name))


def _begin(text: bytes, at: int) -> int:
    """Where the last line begins before a place that has more than blanks and comments."""
    end = at
    while end > 0:
        begin = text.rfind(b"\n", 0, end) + 1
        line = text[begin:end].strip()
        if line and not line.startswith((b"#", b"\\")):
            return begin
        end = begin - 1
    return 0
