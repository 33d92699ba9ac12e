"""Which attributes a text may assign, without its syntax: few texts that name one do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from perflint.source.words import any_layout

_TEXTS_REMEMBERED = 1024
"""Several names are asked for of the same functions, one after the other."""

_STORED_ATTRIBUTE = any_layout(rb"\.(?<!\bself\.)(?<![\s\\]\.) (\w+) (?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)")

_STORED_APART = any_layout(rb"\.(?<=[\s\\]\.) (\w+) =(?!=)")

_SELF = re.compile(rb"\bself[\s\\]+\Z")

_ANNOTATED = re.compile(rb"(?m)^[ \t]*(?!self\.)[\w.()\[\]]+\.(\w+)[ \t]*:[^\n=]+=(?!=)")
"""`net.forward: object = ...`."""

_ASSIGNS = re.compile(rb"(?<![=!<>:])=(?!=)")

_BETWEEN = re.compile(rb"#[^\n]*|\s+")

_ONE_OF_SEVERAL = re.compile(rb"(?<!\bself)\.(\w+)(?=[,)\]]|\Z)")
"""An attribute that is one of the targets of `net.forward, net.head = ...`, whatever it belongs to."""

_CALLED = re.compile(rb"[\w)\]]")
"""What stands before a bracket that holds arguments, or an index."""

_MOST_LINES = 99
"""Over so many lines targets are looked for that stand in brackets."""

_HEADS = re.compile(rb"\bfor\b([^:=]{1,200}?)\bin\b|\bas\b[\s\\]*([(\[][\w.,\[\]()\s]*|[\w.\[\] \t]*)")
"""`with opened() as net.head:`, `for i, net.head in enumerate(heads):`."""


@lru_cache(maxsize=_TEXTS_REMEMBERED)
def stored_attributes(text: bytes) -> frozenset[bytes]:
    """The attributes that a text assigns on anything but `self`, and perhaps some that it only reads."""
    apart = (
        found for found in _STORED_APART.finditer(text) if not _SELF.search(text, max(found.start() - 99, 0), found.start())
    )
    return frozenset(
        (
            *_STORED_ATTRIBUTE.findall(text),
            *_ANNOTATED.findall(text),
            *(found[1] for found in apart),
            *(name for targets in _several_targets(text) for name in _ONE_OF_SEVERAL.findall(_BETWEEN.sub(b"", targets))),
        )
    )


def _several_targets(text: bytes) -> Iterator[bytes]:
    """What may be several targets, one of them an attribute: what stands before a `=` outside of calls, and in heads."""
    yield from (head for found in _HEADS.findall(text) for head in found if b"." in head)
    lines = re.sub(rb"\\\r?\n", b" ", text).splitlines() if b"\\" in text else text.splitlines()
    for number, line in enumerate(lines):
        head, _, rest = line.partition(b"=")
        if not rest or (b"=" not in rest and b"." not in head and b")" not in head and b"]" not in head):
            continue
        *targets, _ = _ASSIGNS.split(line)
        depth = 0
        for target in targets:
            depth += _opened(target)
            if depth > 0:
                break  # an argument by its name
            if depth < 0:
                target, depth = _from_bracket(lines, number, target), 0
            if b"." in target and (b"," in target or b")" in target or b"]" in target):
                yield target


def _opened(code: bytes) -> int:
    """How many more brackets are opened in some code than closed."""
    return code.count(b"(") + code.count(b"[") - code.count(b")") - code.count(b"]")


def _from_bracket(lines: list[bytes], number: int, target: bytes) -> bytes:
    """The targets that end in a line, from where their bracket is opened; nothing where it is that of a call."""
    before = number
    while _opened(target) < 0 < before and number - before < _MOST_LINES:
        before -= 1
        target = b"%b\n%b" % (lines[before], target)
    depth = 0
    for place in range(len(target) - 1, -1, -1):
        depth += (target[place] in b")]") - (target[place] in b"([")
        if depth == 0 and target[place] in b"([" and (place == 0 or _CALLED.match(target, place - 1) is None):
            return target[place:]
    return b""
