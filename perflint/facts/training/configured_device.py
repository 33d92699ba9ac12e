"""Devices that come from a project's configuration, and what it says."""

from __future__ import annotations

import ast
import re

from perflint.facts.dataflow.definitions import path_of
from perflint.facts.facts import Facts
from perflint.facts.values.values import Object
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made

KEEPS_SETTINGS = made(
    r"(?:^|_)(?:arg|opt|option|cfg|conf|config|param|hparam|setting|flag|accelerator|fabric|trainer)s?$", re.I
)
_KEY = "device"
_OTHER_DEFAULT = any_layout(rb"add_argument \( (?:['\"]-\w+['\"] , )?['\"]--device['\"] ,[^)]*\bdefault = (?!None|['\"]cpu)")
_OTHER_GIVEN = made(rb"cuda|gpu|\bdevice[= ]+(?!['\"]?cpu)", re.I)


def is_configured_cpu(facts: Facts, scope: Scope, node: ast.expr) -> bool:
    """Whether an expression is the device that is configured, and that is the CPU: `cfg["device"]`, `cfg.get("device")`.

    So it is where all configuration files that name one agree, and no command that the project shows gives another.
    """
    match node:
        case ast.Subscript(slice=ast.Constant(value=key)):
            asks = key == _KEY
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=key), *_]):
            asks = key == _KEY
        case ast.Attribute(value=held, attr=key) if key == _KEY and KEEPS_SETTINGS.search(last_name(held)):
            options = facts.inference.value(scope, held)
            asks = path_of(held) is not None and not options.may(lambda a: isinstance(a, Object))
        case _:
            return False
    return asks and _says_cpu(facts)


def _says_cpu(facts: Facts) -> bool:
    project = facts.project
    if project.configured_devices() != {"cpu"} or project.anywhere(_OTHER_DEFAULT):
        return False
    return not any(map(_OTHER_GIVEN.search, project.commands()))
