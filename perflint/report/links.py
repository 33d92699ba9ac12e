"""Where the pages of rules are."""

from __future__ import annotations


def rule_url(rule: str, docs_url: str | None) -> str:
    """The page of a rule on the documentation's site; relative to the site's root where its address is not configured."""
    return f"{docs_url.rstrip('/')}/rules/{rule}/" if docs_url is not None else f"rules/{rule}/"
