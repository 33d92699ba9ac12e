"""An object that counts what each step gives it, and does so when somebody looks at it.

losses = LateMeter(AverageMeter())
for step, (x, y) in enumerate(loader):
    loss = train_step(x, y)
    losses.update(LateItem(loss), len(x))        # losses.update(loss.item(), len(x))
    if step % 100 == 0:
        print(losses.avg)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from perflint_runtime.late_items import MOST_KEPT, PLAIN, LateItem, read_together

_ATTRIBUTES = frozenset(("__setattr__", "__getattribute__", "__getattr__"))


class LateMeter:
    """An object whose methods are called later where they are given a `LateItem`: before anybody else sees it.

    Every look at an attribute and every other call makes it catch up first: all numbers are read in one wait, and the methods
    are called with them, in order. The methods must do nothing but compute with what they are given and with the object's
    own attributes. An object that holds anything but numbers and text is called at once, and so is a method that is given
    anything else, has been replaced, or asks for an attribute of the class; with a `LateItem` it gets the number. At most 4,096
    calls wait.
    """

    __slots__ = ("_late_calls", "_late_meter")

    def __init__(self, meter: Any) -> None:
        """Begin with an object that nobody else holds."""
        object.__setattr__(self, "_late_meter", meter)
        object.__setattr__(self, "_late_calls", [])

    def __getattr__(self, name: str) -> Any:
        if isinstance(getattr(type(self._late_meter), name, None), FunctionType):
            return _method(self, name)
        return getattr(_caught_up(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_caught_up(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_caught_up(self), name)

    def __str__(self) -> str:
        return str(_caught_up(self))

    def __repr__(self) -> str:
        return repr(_caught_up(self))

    def __format__(self, spec: str) -> str:
        return format(_caught_up(self), spec)


def _method(late: LateMeter, name: str) -> Callable[..., Any]:
    """A method of the object, which is called later where it is given a number that nobody has read."""

    def call(*given: Any, **named: Any) -> Any:
        values = (*given, *named.values())
        is_late = any(type(value) is LateItem for value in values)
        meter = late._late_meter
        if is_late and all(map(_stays, values)) and _holds_plain(meter, name) and _is_as_written(meter, name):
            late._late_calls.append((name, given, named))
            if len(late._late_calls) >= MOST_KEPT:
                _caught_up(late)
            return None
        return _call(_caught_up(late), name, given, named)

    return call


def _caught_up(late: LateMeter) -> Any:
    """The object, when all calls that were to come have been made. Waits for the device."""
    calls = late._late_calls[:]
    if calls:
        late._late_calls.clear()
        read_together(value for _, given, named in calls for value in (*given, *named.values()) if type(value) is LateItem)
        for name, given, named in calls:
            _call(late._late_meter, name, given, named)
    return late._late_meter


def _call(meter: Any, name: str, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    return getattr(meter, name)(*map(_number, given), **{key: _number(value) for key, value in named.items()})


def _number(value: Any) -> Any:
    return value.item() if type(value) is LateItem else value


def _stays(value: Any) -> bool:
    """Whether a value is the same when a method gets it later."""
    return type(value) in PLAIN or (type(value) is LateItem and (value.waits or type(value.item()) in PLAIN))


def _holds_plain(meter: Any, name: str) -> bool:
    """Whether all attributes of an object are numbers and text, and none hides a method."""
    attributes = getattr(meter, "__dict__", None)
    return type(attributes) is dict and name not in attributes and all(type(value) in PLAIN for value in attributes.values())


def _is_as_written(meter: Any, name: str) -> bool:
    """Whether Python alone sets an object's attributes, and a method and those that it calls are those of their class.

    They must ask for no attribute of the class: when they run, it may be another one.
    """
    bases, asked = type(meter).__mro__[:-1], [name]
    if any(not _ATTRIBUTES.isdisjoint(base.__dict__) for base in bases):
        return False
    for known in asked:  # grows
        for base in bases if known not in meter.__dict__ else ():
            if known not in base.__dict__:
                continue
            method = base.__dict__[known]
            is_own = isinstance(method, FunctionType) and method.__qualname__ == f"{base.__qualname__}.{known}"
            if not is_own or hasattr(method, "__wrapped__"):
                return False
            asked += [other for other in method.__code__.co_names if other not in asked]
    return True
