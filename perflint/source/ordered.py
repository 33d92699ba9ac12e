"""Sets whose order of iteration does not depend on hashes, so that no answer does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item", covariant=True)


class OrderedFrozenSet(frozenset[Item]):
    """A `frozenset` that iterates in the order in which it was built, and is equal to any set of the same items."""

    __slots__ = ("_items",)
    _items: tuple[Item, ...]

    def __new__(cls, items: Iterable[Item] = ()) -> OrderedFrozenSet[Item]:
        """A set of items, each once, in their order."""
        ordered = tuple(dict.fromkeys(items))
        self = super().__new__(cls, ordered)
        self._items = ordered
        return self

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)
