"""What a file's text says by itself. It is found out once for all projects of a run, which may list the same files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from perflint.source.words import any_layout

_IMPORT = re.compile(rb"\n[ \t\f]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\r\n#]+)|import[ \t]+([\w., \t]+))")
"""Begins with a line end, so that a search jumps from line to line."""

BACKWARD = any_layout(rb"backward \(")
_LOADER = re.compile(rb"oader[\s\\():,.]")


@dataclass(slots=True)
class TextFacts:
    """What is known of a text. Small, for a run keeps one for each file.

    digest: of the text. trains: whether it has the words of a training loop. helpers: the functions that run a backward
    pass, as `Project.backward_helpers` counts them; None until somebody looks at the functions.
    """

    digest: str
    trains: bool
    helpers: frozenset[str] | None
    _statements: bytes
    """The text's import statements: they are few, and found again faster in here than kept apart."""

    @classmethod
    def of(cls, text: bytes | None, digest: str) -> TextFacts:
        """What is found out in one reading; a file that cannot be read says nothing."""
        text = text or b""
        statements = b"".join(found.group() for found in _IMPORT.finditer(b"\n" + text))
        backward = BACKWARD.search(text) is not None
        trains = backward or b"zero_grad" in text or _LOADER.search(text) is not None
        return cls(digest, trains, None if backward else frozenset(), statements)

    def imports(self) -> Iterator[tuple[int, str, list[str] | None]]:
        """What the text imports: the level, the module, and the names that are taken from it, None for `import module`."""
        for dots, dotted, names, plain in _IMPORT.findall(self._statements):
            if plain:
                for part in plain.split(b","):
                    if part.split():
                        yield 0, part.split()[0].decode("utf-8", "replace"), None
            else:
                taken = re.findall(rb"\w+", re.sub(rb"\bas\s+\w+", b"", names))
                yield len(dots), dotted.decode("utf-8", "replace"), [name.decode() for name in taken]
