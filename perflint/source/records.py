"""Data classes whose frozen ones are checked before Python runs them.

mypy finds each assignment to a field of theirs. To have Python find it again takes 0.2 ms for each such class whenever perflint
starts, and makes each object of it in three times the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, frozen=False, eq=True, **others):
        """`dataclasses.dataclass`; objects of a frozen class are equal and hashed as ever."""

        def made(cls):
            hashed = frozen and eq and "__hash__" not in vars(cls)
            return dataclasses.dataclass(cls, eq=eq, unsafe_hash=hashed, **others)

        return made if cls is None else made(cls)
