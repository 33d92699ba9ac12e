"""The oldest torch, pandas and transformers that a linted project admits."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perflint.project.files import read_file, requirement_files
from perflint.source.words import made

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.version import Version

_QUOTED = made(r"""['"]([A-Za-z][\w.-]*(?:\[[\w, -]*\])? ?[<>=~!]=? ?[\w.*, <>=~!]+)['"]""")
_PINNED = made(r"^\s*-?\s*([A-Za-z][\w.-]*)\s*=\s*([\d.]+)")
_GPU_BUILD = made(r"\+cu\d|/whl/(?:cu|rocm)\d")
_CPU_BUILD = made(r"^torch\b.*\+cpu\b|\bdownload\.pytorch\.org/whl/cpu\b")
_OF_TORCH = made(
    r"""(?i)(?<![\w.-])(?:py)?torch["']?\s*(?:=\s*\{\s*version\s*)?(?:[=>~]=?=?|[:-])\s*["']?[\^~>=]*\s*v?(\d+\.\d+(?:\.\d+)?)"""
)
"""What names a version of torch however it is written: conda's `pytorch==1.7.1=py3.7`, a wheel, poetry's `"^1.13"`."""
FIRST = "2.0"
"""The oldest torch that a project is taken to admit which says nothing of it."""


def oldest_versions(root: str) -> dict[str, Version]:
    """The lowest version of each package that the project's own files admit; packages without a bound are absent.

    Reads pyproject.toml, setup.cfg, setup.py, requirements*.txt and environment.yml in `root`. Where files disagree, the lowest
    bound counts. Where only newer versions than an old one are excluded, it is the newest that is not; else an upper bound says
    nothing. A requirement without a bound admits what is taken where nothing is said.
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import Version

    lowest: dict[str, Version] = {}
    for number in _of_torch(root):
        lowest["torch"] = min(Version(number), lowest.get("torch", Version(number)))
    for line in _requirement_lines(root):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        bound = _lower_bound(requirement)
        name = requirement.name.lower().replace("_", "-")
        name = "torch" if name == "pytorch" else name  # as conda calls it
        if bound is None and name == "torch":
            bound = Version(FIRST)
        if bound is not None:
            lowest[name] = min(bound, lowest.get(name, bound))
    return lowest


def depends_on(root: str, package: str) -> bool:
    """Whether the project's own files require a package."""
    wanted = re.compile(rf"^{re.escape(package)}\b", re.I)
    return any(wanted.match(line.replace("_", "-")) for line in _requirement_lines(root))


def is_held_below(root: str, package: str, version: str) -> bool:
    """Whether the project's own files admit no version of a package from `version` on, as those with `==1.4.0` do for 1.5."""
    from packaging.requirements import InvalidRequirement, Requirement

    for line in _requirement_lines(root):
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line)
            if requirement.name.lower().replace("_", "-") == package and _excludes_from(requirement, version):
                return True
    return False


def _excludes_from(requirement: Requirement, version: str) -> bool:
    """Whether a requirement excludes a version and all that are newer."""
    from packaging.version import InvalidVersion, Version

    limit = Version(version)
    for specifier in requirement.specifier:
        with contextlib.suppress(InvalidVersion):
            bound = Version(specifier.version.removesuffix(".*"))
            match specifier.operator:
                case "==" | "===" | "<=" if bound < limit:
                    return True
                case "<" if bound <= limit:
                    return True
                case "~=" if bound < limit and bound.release[:-1] < limit.release[: len(bound.release) - 1]:
                    return True
    return False


def _lower_bound(requirement: Requirement) -> Version | None:
    from packaging.version import InvalidVersion, Version

    bounds, below = [], []
    for specifier in requirement.specifier:
        with contextlib.suppress(InvalidVersion):
            version = Version(specifier.version.removesuffix(".*"))
            if specifier.operator in (">=", "==", "~=", ">", "==="):
                bounds.append(version)
            elif specifier.operator in ("<", "<="):
                below.append(version if specifier.operator == "<=" else Version(f"{version.base_version}.dev0"))
    if bounds:
        return max(bounds)
    return min((version for version in below if version <= Version(FIRST)), default=None)


def asks_for_cpu_build(root: str) -> bool:
    """Whether requirements.txt asks for a build of torch that has no GPU, by its version or its index."""
    path = os.path.join(root, "requirements.txt")
    lines = [line.partition("#")[0] for line in _text_lines(path)]
    return any(map(_CPU_BUILD.search, lines)) and not any(map(_GPU_BUILD.search, lines))


def _of_torch(root: str) -> Iterator[str]:
    """The versions of torch that the files of a project name, in whatever form."""
    for path in requirement_files(root):
        for line in _text_lines(path):
            yield from _OF_TORCH.findall(line.partition("#")[0])


def _requirement_lines(root: str) -> Iterator[str]:
    for path in requirement_files(root):
        name = os.path.basename(path)
        if name == "pyproject.toml":
            yield from _from_pyproject(read_file(path))
        elif name.endswith((".yml", ".yaml")):
            for line in _text_lines(path):
                found = _PINNED.match(line)
                if found:
                    yield f"{found.group(1)}=={found.group(2)}"
        elif name == "Pipfile" or name.startswith("Dockerfile"):
            continue  # of torch alone, by `_of_torch`
        elif name == "setup.py":
            yield from (found.group(1) for line in _text_lines(path) for found in _QUOTED.finditer(line))
        else:
            for line in _text_lines(path):
                yield line.partition("#")[0].partition(";")[0].strip()


def _text_lines(path: str) -> list[str]:
    data = read_file(path)
    return data.decode("utf-8", "replace").splitlines() if data is not None else []


def _from_pyproject(data: bytes | None) -> Iterator[str]:
    if data is None:
        return
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content = tomllib.loads(data.decode("utf-8", "replace"))
    except tomllib.TOMLDecodeError:
        return
    project = content.get("project", {})
    if isinstance(project, dict):
        for line in project.get("dependencies", []):
            yield str(line)
        for extra in (project.get("optional-dependencies") or {}).values():
            yield from map(str, extra)
