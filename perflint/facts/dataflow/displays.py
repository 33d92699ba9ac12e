"""Whether a list or dict that is written out may get other items later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from perflint.facts.dataflow.definitions import Definition, path_of
from perflint.facts.dataflow.flow import Flow
from perflint.facts.dataflow.uses import Step, Walk, Way, steps
from perflint.source.words import words

DISPLAYS: Final = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
_READING_FUNCTIONS: Final = words(
    """
    len enumerate zip range list tuple dict set sorted sum min max print any all iter next reversed isinstance stack cat
    """
)
_READING_CONTAINER_METHODS: Final = words("get items keys values copy index count")


def is_display(flow: Flow, node: ast.expr) -> bool:
    """Whether a name stands for a list, dict or set that its function writes out, whatever is in it."""
    definitions = flow.reaching.get(node, frozenset())
    written = (*DISPLAYS, ast.Set, ast.SetComp)
    return bool(definitions) and all(
        definition.kind == "assign" and not definition.index and isinstance(definition.value, written)
        for definition in definitions
    )


def may_change(definition: Definition, flow: Flow) -> bool:
    """Whether a list or dict may get other items than those that it was built with, as far as its function shows."""
    if definition.name in flow.inner_names:
        return True
    built = steps(flow, definition.value) if definition.value is not None else ()
    if any(step.way is not Way.BOUND or definition not in step.definitions for step in built):
        return True
    return next(Changing(flow.scope).ends(*flow.uses[definition]), None) is not None


class Changing(Walk[Step]):
    """Which uses of a container may give it other items, or hand it to somebody who may."""

    def judge(self, step: Step) -> Iterator[Step | ast.AST | Definition]:
        match step.way:
            case Way.ITEM | Way.COMPARED | Way.FORMATTED | Way.UNPACKED | Way.ITERATED | Way.TESTED | Way.DROPPED | Way.DELETED:
                return
            case Way.ALIAS if step.result is not None:
                yield step.result
            case Way.METHOD | Way.ATTRIBUTE if step.name in _READING_CONTAINER_METHODS:
                return
            case Way.ARGUMENT if step.name == "**" or _only_reads(step.node):
                return  # `f(**options)` gets a copy
            case _:
                yield step


def _only_reads(call: ast.AST) -> bool:
    """Whether a call looks at the items of its arguments, by the name of what is called."""
    path = path_of(call.func) if isinstance(call, ast.Call) else None
    return path is not None and path.rpartition(".")[2] in _READING_FUNCTIONS
