"""Pages of rules, which are written in Markdown, as HTML."""

from __future__ import annotations

import re

FIRST_LEVEL = 4
"""The level that the first headings get: below those of the page that holds the text."""


def rendered(text: str) -> str:
    """Markdown as HTML: markup in it stays text, and of a link its words are left."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "autolink"])
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + FIRST_LEVEL - 1)}"
        if token.children is not None:
            token.children = [child for child in token.children if child.type not in ("link_open", "link_close")]
    html: str = parser.renderer.render(tokens, parser.options, {})
    return re.sub(r"<table>.*?</table>", r'<div class="scroll">\g<0></div>', html, flags=re.S)
