"""Waits inside of libraries: anomaly detection, arguments that are checked, tokenizers, numbers that are given as tensors."""

from __future__ import annotations

import ast
import re
from typing import Final

from perflint.facts.dataflow.flow import Flow
from perflint.facts.device.reads import device_value
from perflint.facts.operations.operations import Wait
from perflint.facts.values.arguments import argument
from perflint.facts.values.inference import Inference
from perflint.facts.values.values import Alternative, Object
from perflint.project.project import Project
from perflint.source.syntax import Scope
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made, words

_DETECTS = any_layout(
    rb"\bwith(?:[^\n:]|\\\r?\n)*\b(?:detect_anomaly \((?! check_nan = False)|set_detect_anomaly \( (?:mode = )?True \))"
    rb"|(?:[^:\s]|^[\x20\t]*def\b[^\n]*:)[\x20\t]*\n(?:[\x20\t]*(?:#[^\n]*)?\n)*"
    rb"[\x20\t]*(?:torch \. )?(?:autograd \. )?set_detect_anomaly \( (?:mode = )?True \)",
    re.M,
)
"""What switches anomaly detection on, under no condition as far as the row above tells."""
_NAMED = made(rb"detect_anomaly")
CHECKS_SWITCHED: Final = made(rb"set_default_validate_args|(?<!\bself)\._validate_args\b")
"""What may switch off that distributions check what they are given, or ask whether they do."""
_STEPS = 4
"""Through how many names and parts a value is followed back."""


def detects_anomalies(project: Project, scope: Scope) -> bool:
    """Whether a backward pass looks for `nan` in each gradient, which the host reads."""
    return project.program_holds(scope.module.source.path, _DETECTS, _NAMED)


def is_waived(wait: Wait, call: ast.Call, others: list[ast.expr]) -> bool:
    """Whether an argument makes an operation not wait."""
    if wait.unless == "others":
        return bool(others)
    if wait.unless and any(k.arg in (wait.unless, None) for k in call.keywords):
        return True
    if not wait.only:
        return False
    given = argument(call, None, wait.only)
    return given is None or (isinstance(given, ast.Constant) and not given.value)


def checked_for(inference: Inference, scope: Scope, wait: Wait, call: ast.Call) -> tuple[Scope, ast.Call] | None:
    """The call that decides whether a distribution's arguments are checked: this one, or the one that made it.

    None where they are not, or are all on the host.
    """
    held = inference.value(scope, call.func.value).alternatives if isinstance(call.func, ast.Attribute) else ()
    home, maker = next((found for found in map(_maker, held) if found is not None), (scope, call))
    if is_waived(wait, maker, []) or inference.project.program_may_hold(scope.module.source.path, CHECKS_SWITCHED):
        return None
    given = [(around, node) for around, part in ((scope, call), (home, maker)) for node in _arguments(part)]
    return (home, maker) if any(device_value(inference, around, node) for around, node in given) else None


def _maker(alternative: Alternative) -> tuple[Scope, ast.Call] | None:
    """The call that made an object of a library."""
    match alternative:
        case Object(site=(Scope() as scope, ast.Call() as call)):
            return scope, call
    return None


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def is_tokenized(flow: Flow, node: ast.expr, depth: int = _STEPS) -> bool:
    """Whether a value is what a tokenizer makes, or a part of it: `tokenizer(texts, return_tensors="pt")`, on the host."""
    match node:
        case ast.Call(keywords=keywords):
            return any(
                k.arg == "return_tensors" and isinstance(k.value, ast.Constant) and k.value.value == "pt" for k in keywords
            )
        case ast.Attribute(value=held) | ast.Subscript(value=held, slice=ast.Constant()):
            return depth > 0 and is_tokenized(flow, held, depth - 1)
        case ast.Name():
            bound = flow.reaching.get(node, frozenset())
            return (
                depth > 0
                and bool(bound)
                and all(
                    d.kind == "assign" and not d.index and d.value is not None and is_tokenized(flow, d.value, depth - 1)
                    for d in bound
                )
            )
    return False


def numbers_of(call: ast.Call) -> list[ast.expr]:
    """The factors of an operation that are numbers, of which one that is given as a tensor is read: `alpha`, `value`.

    The factor that once stood in front, `x.add_(factor, y)`, too.
    """
    name = last_name(call.func)
    found = [k.value for k in call.keywords if k.arg == "alpha" or (k.arg == "value" and name in _SCALED_PRODUCTS)]
    if isinstance(call.func, ast.Attribute) and not any(isinstance(a, ast.Starred) for a in call.args):
        in_front = (name in _SCALED_SUMS and len(call.args) == 2) or (name in _SCALED_PRODUCTS and len(call.args) == 3)
        found += call.args[:1] if in_front else []
    return found


_SCALED_SUMS = words("add add_ sub sub_")
_SCALED_PRODUCTS = words("addcmul addcmul_ addcdiv addcdiv_")
