"""Writing a report to a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile


def write_text(path: str, text: str) -> None:
    """Write a file in one step: after a crash or on a full disk it is the old or the new one. Pipes and devices are written to.

    Raises:
        OSError: it cannot be written.

    """
    data = text.encode("utf-8", "backslashreplace")  # the name of a file may be no text
    exists = os.path.exists(path)
    if exists and not os.path.isfile(path):
        with open(path, "wb") as out:
            out.write(data)
        return
    target = os.path.realpath(path)
    number, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(target))
    try:
        with os.fdopen(number, "wb") as out:
            out.write(data)
        if exists:
            shutil.copymode(target, temporary)
        else:
            os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    """The bits that new files lack; the system tells them only to who sets them."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
