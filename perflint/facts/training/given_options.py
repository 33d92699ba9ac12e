"""Whether those who run a program give an option a number above 0: on a command line, or in a list of its words."""

from __future__ import annotations

import re
from functools import cache

from perflint.project.project import Project
from perflint.source.words import any_layout, made

_SHORT = made(rb"\s(-[A-Za-z])[ \t=]?(?:[1-9]|\$)")
"""A short option with a number."""


def is_given(project: Project, option: str) -> bool:
    """Whether a text or a file of a project gives an option another value than 0; a variable may have any value."""
    if project.anywhere(_gives_some(option)) or any(map(_gives_some(option).search, project.commands())):
        return True
    behind = (line.partition(b".py")[2] or line for line in project.commands())
    shorts = {short for part in behind for short in _SHORT.findall(part)}
    return any(project.anywhere(_is_short_for(short, option)) for short in sorted(shorts))


@cache
def _gives_some(option: str) -> re.Pattern[bytes]:
    """What gives an option a number above 0, or what a variable holds but for an option of the same name.

    `--workers 8`, `--workers=$N`, `data.workers=8`, `DATA.WORKERS 8`, `"--workers", str(n)`, `f"--workers {n}"`.
    """
    own = rb"(?!\w+\.%s\b)" % option.encode()
    some = rb"(?:[1-9]|\$(?!\{\w+:?-0\})|`|%%\w|\{(?!\d+,)%b)" % own
    long = rb"--(?:\w+\.)*%s" % option.encode().replace(b"_", b"[-_]")
    named = rb"(?:\w+\.)*%s=|(?:\w+\.)+%s[ \t]+" % ((option.encode(),) * 2)
    words = rb"(?:%s|(?<=['\"])(?:\w+\.)+%s)[ \t=]*\\?['\"][ \t]*[,+]\s*" % (long, option.encode())
    return re.compile(
        rb"%b(?:[ \t]+|=)\\?['\"]?%b" % (long, some)
        + rb"|(?:['\"]|(?:\.py|\s-m)[^\r\n]{0,2000}[ \t])\+{0,2}(?:%b)%b" % (named, some)
        + rb"|%b(?:f?\\?['\"]%b|[1-9]|str\(%b)" % (words, some, own)
    )


@cache
def _is_short_for(short: bytes, option: str) -> re.Pattern[bytes]:
    """What declares a short name of an option."""
    names = short, b"--" + option.encode().replace(b"_", b"[-_]")
    either = (rb"['\"]%b['\"] , ['\"]%b['\"]" % pair for pair in (names, names[::-1]))
    return any_layout(rb"add_argument \( (?:%b)" % b"|".join(either))


@cache
def sets(option: str) -> re.Pattern[bytes]:
    """What gives an attribute of such a name another value than 0: `args.num_workers = 4 * gpus`."""
    return any_layout(rb"\b(?!self\b)\w+ \. %s =(?!=)(?! 0\b)" % option.encode())


@cache
def declares(name: str, default: bytes) -> re.Pattern[bytes]:
    """What declares an option of a command line or of a table whose default matches a pattern."""
    written, spelt = name.encode(), name.encode().replace(b"_", b"[-_]")
    declared = (
        rb"add_argument \( (?:['\"]-\w+['\"] , )?['\"]--%s['\"][^)]*\bdefault =" % spelt,
        rb"DEFINE_integer \( ['\"]%s['\"] ," % written,
        rb"\. %s =" % written,
        rb"['\"]%s['\"] :" % written,
    )
    return any_layout(rb"(?:%s) %b" % (b"|".join(declared), default))
