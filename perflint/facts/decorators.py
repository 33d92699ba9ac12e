"""Decorators by name."""

from __future__ import annotations

import ast
from typing import Final

from perflint.facts.flow import path_of
from perflint.source.words import words

TRANSPARENT_DECORATORS: Final = words(
    """
    staticmethod classmethod property cached_property no_grad inference_mode lru_cache cache abstractmethod wraps
    override record rank_zero_only enable_grad set_grad_enabled autocast
    """
)
"""Decorators that hand on what the function returns."""


def decorator_name(node: ast.expr) -> str:
    """The last name of a decorator: `no_grad` for `@torch.no_grad()`."""
    inner = node.func if isinstance(node, ast.Call) else node
    return (path_of(inner) or "").rpartition(".")[2]
