"""A dict of what the host reads from the device, which it waits for only when somebody looks at the dict.

scalars = HostDict({})
scalars.set_item(loss, at="loss")          # scalars["loss"] = loss.item()
scalars.add_item(loss, at="total")         # scalars["total"] += loss.item()
scalars.append_item(loss, at="losses")     # scalars["losses"].append(loss.item())
print(scalars.read())
"""

from __future__ import annotations

from typing import Any, Literal

from perflint_runtime.late_items import MOST_KEPT, LateItem, late, read_together


class HostDict:
    """A dict to which numbers of tensors are written: same bits, same keys in the same order, same errors.

    Single numbers of plain tensors wait on their device until somebody looks, or until there are 4,096. Whatever else comes is
    read where it is written, as in the plain code, which also raises what the plain code raises.
    """

    __slots__ = ("_keys", "_late", "_values")

    def __init__(self, values: dict[Any, Any]) -> None:
        """Begin with a dict that nobody else holds."""
        self._values = values
        self._keys: dict[Any, str] = {}
        self._late: list[tuple[Literal["set", "add", "append"], Any, LateItem]] = []

    def __getitem__(self, key: Any) -> Any:
        """One value. Waits for the device if it is to be read."""
        return (self.read() if key in self._keys else self._values)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set a value as it is."""
        if key in self._keys:
            self.read()
        self._values[key] = value

    def set_item(self, value: Any, at: Any) -> None:
        """Do `self[at] = value.item()`. As a rule, waits for nothing."""
        kept = late(value)
        if kept is None:
            self.read()[at] = value.item()
            return
        self._values.setdefault(at, None)  # its place in the order of keys
        self._keep("set", at, kept)

    def add_item(self, value: Any, at: Any) -> None:
        """Do `self[at] += value.item()`. As a rule, waits for nothing."""
        kept = late(value) if type(self._values.get(at)) in (int, float) else None
        if kept is None:
            self.read()[at] += value.item()
        else:
            self._keep("add", at, kept)

    def append_item(self, value: Any, at: Any) -> None:
        """Do `self[at].append(value.item())`. As a rule, waits for nothing."""
        if self._keys.get(at) == "set":
            self.read()
        kept = late(value) if type(self._values.get(at)) is list else None
        if kept is None:
            self.read()[at].append(value.item())
        else:
            self._keep("append", at, kept)

    def read(self) -> dict[Any, Any]:
        """The dict that the plain code would hold, the same one each time. Waits for the device."""
        if self._late:
            kept, self._late, self._keys = self._late, [], {}
            read_together(item for _, _, item in kept)
            for way, key, item in kept:
                if way == "set":
                    self._values[key] = item.item()
                elif way == "add":
                    self._values[key] += item.item()
                else:
                    self._values[key].append(item.item())
        return self._values

    def _keep(self, way: Literal["set", "add", "append"], key: Any, kept: LateItem) -> None:
        self._keys[key] = "set" if self._keys.get(key) == "set" else way
        self._late.append((way, key, kept))
        if len(self._late) >= MOST_KEPT:
            self.read()

    def __repr__(self) -> str:
        return f"HostDict({self.read()!r})"
