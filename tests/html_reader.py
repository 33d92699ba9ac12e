"""Reads a page without a browser: its elements, its text, and whether its tags pair."""

from __future__ import annotations

from html.parser import HTMLParser

HOSTILE = "<script>alert('&')</script>\"><img src=x onerror=y>\x1b[31m\u202eabc\udcff"
"""Text that leaves its place in a page that is made carelessly."""

VOID = {"meta", "br", "hr", "img", "link", "input"}
OPTIONAL = {"td", "th", "tr", "p", "li"}
"""Their end tags may be left out."""


class Reader(HTMLParser):
    """A page's elements and text; fails on tags that do not pair."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] != tag and self.open[-1] in OPTIONAL:
            self.open.pop()
        assert self.open, f"</{tag}> without a start"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader
