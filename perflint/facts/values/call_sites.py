"""Calls of a function, as they are found."""

from __future__ import annotations

import ast

from perflint.facts.values.values import FunctionRef
from perflint.source.records import dataclass
from perflint.source.syntax import Scope


@dataclass(frozen=True, eq=False)
class CallSite:
    """A call in `scope` that runs `target`; `function` says with which receiver.

    scatters: what is given is copied to the device of the network first.
    """

    scope: Scope
    node: ast.Call
    function: FunctionRef
    scatters: bool = False


@dataclass(frozen=True)
class CallSites:
    """The calls of a function. complete: no other use of it was found."""

    sites: tuple[CallSite, ...]
    complete: bool
