"""What an old torch makes of a call that a fix writes: no rule by itself."""

import ast

from packaging.version import Version

from perflint.api import Code, Kind, Obligation, argument

_FIRST = Version("1.7")
_UNKNOWN = Version("2.0")
"""What a project is taken to admit that says nothing of torch."""


def lacks_name(code: Code, name: str, first: str) -> Obligation | None:
    """Whether the project admits a torch that does not have a name yet."""
    if code.facts.versions.get("torch", _UNKNOWN) >= Version(first):
        return None
    return Obligation(Kind.NAMES, f"torch before {first} has no `{name}`, and the project does not exclude it")


def of_old_torch(code: Code, call: ast.Call) -> Obligation | None:
    """Before torch 1.7, `torch.full` took a whole number or a bool without a type for a float, or raised."""
    is_float = isinstance(code.value(call.args[0]).literal, float)
    if is_float or argument(call, None, "dtype") is not None or code.facts.versions.get("torch", _UNKNOWN) >= _FIRST:
        return None
    return Obligation(Kind.NUMBERS, "`torch.full` made floats of whole numbers before torch 1.7")
