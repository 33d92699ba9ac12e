"""Commands that need packages of an extra, which may not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def needed(extra: str, package: str) -> Iterator[None]:
    """Say what to install if a package that `perflint EXTRA` imports here is not there.

    Raises:
        click.ClickException: a package that is not perflint's is missing.

    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0].startswith("perflint"):
            raise
        cure = f"install perflint with its extra `{extra}`, or `pip install {package}`"
        raise click.ClickException(f"`perflint {extra}` needs {package}, which is not installed: {cure}") from None
