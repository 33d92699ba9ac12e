"""What else a file calls a name that it takes from elsewhere, as its text says: `import as`, and one name given to another."""

from __future__ import annotations

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
        for pattern in (rb"\b%b as (\w+)", rb"\b(\w+) = (?:\w+ \. )*%b\b(?![\t\x20]*[.(\[])"):
            for match in any_layout(pattern % name).finditer(body):
                other = match[1].decode()
                if other not in names and other not in found:
                    found.add(other)
                    pending.add(other)
    return frozenset(found)
