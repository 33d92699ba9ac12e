"""Functions that a program runs again and again: no rule by itself."""

from perflint.api import Code, Scope


def is_called_again(code: Code, scope: Scope, depth: int) -> bool:
    """Whether a loop is around a call of a function, or around one of a function that calls it, and so on."""
    sites = code.facts.inference.callers.sites(scope).sites if depth else ()
    return any(
        code.at(site.scope).flow.loop(site.node) is not None or is_called_again(code, site.scope, depth - 1) for site in sites
    )
