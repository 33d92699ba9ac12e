"""What else a file calls a name that it takes from elsewhere, as its text says: `import as`, and one name given to another."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

from perflint.source.source import Source
from perflint.source.words import any_layout


def renamed(source: Source, names: Collection[str]) -> frozenset[str]:
    """The other names: `ec` of `from torch.cuda import empty_cache as ec` and of `ec = torch.cuda.empty_cache`."""
    return _renamed(source.body, frozenset(names))


@lru_cache(maxsize=256)
def _renamed(body: bytes, names: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    pending = set(names)
    while pending:
        name = pending.pop().encode()
        if name not in body:
            continue
        patterns = [rb"%b(?<!\w%b) as (\w+)" % (name, name)]
        given = rb"= (?:\w+ \. )*%b\b(?![\t\x20]*[.(\[])" % name
        if _may_be_given(name, body) and any_layout(given).search(body):
            patterns.append(rb"\b(\w+) " + given)
        for pattern in patterns:
            for match in any_layout(pattern).finditer(body):
                other = match[1].decode()
                if other not in names and other not in found:
                    found.add(other)
                    pending.add(other)
    return frozenset(found)


def _may_be_given(name: bytes, body: bytes) -> bool:
    """Whether a name may stand at the end of what is given to another one: a look at what is around it."""
    for found in re.finditer(rb"%b\b(?![\t\x20]*[.(\[])" % name, body):
        before = body[max(found.start() - _LOOK_BACK, 0) : found.start()]
        if b"#" in before or before.rstrip(b" \t\r\n\f\\")[-1:] in (b"", b".", b"="):
            return True
    return False


_LOOK_BACK = 100
