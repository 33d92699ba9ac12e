"""Programs that compute on the CPU: nobody is told to run them on a GPU, they say so, or they name no device at all."""

from __future__ import annotations

import os
import re

from perflint.facts.facts import Facts
from perflint.project.project import ACCELERATOR, RUNS_ITSELF
from perflint.source.cells import SUFFIX
from perflint.source.chunks import STRING_OR_COMMENT
from perflint.source.words import any_layout, made

_SWITCH = any_layout(
    rb"add_argument \( (?:['\"]-\w+['\"] , )?['\"](--(?:use[-_])?(?:cuda|gpu))['\"] ,[^)]*\baction = ['\"]store_true['\"]"
    rb"|add_argument \( (?:['\"]-\w+['\"] , )?['\"](--device)['\"] ,[^)]*\bdefault = ['\"]cpu['\"]"
)
_ANYHOW = any_layout(rb"\. cuda \( \)|cuda \. is_available \( \) else")
_CONSTANT = made(rb"^[ \t]*((?:use|with)_?(?:cuda|gpu))[ \t]*=(?!=)[ \t]*(False\b)?", re.M | re.I)
_IS_AVAILABLE = any_layout(rb"cuda \. is_available \(")


def is_run_without_gpu(facts: Facts, path: str) -> bool:
    """Whether a file belongs to a program that computes on the CPU.

    It has an option for a GPU, and no command that the project shows gives it; a constant turns the GPU off
    (`USE_CUDA = False`); or a script and what it imports name a device in comments alone.
    """
    return facts.without_gpu.get(path, lambda: _find(facts, path))


def _find(facts: Facts, path: str) -> bool:
    members = facts.project.members(path)
    return members is not None and (_is_left_to_options(facts, path, members) or _is_written_for_cpu(facts, path, members))


def _is_left_to_options(facts: Facts, path: str, members: list[str]) -> bool:
    project = facts.project
    if not project.program_holds(path, _SWITCH) or project.program_holds(path, _ANYHOW):
        return False
    scripts = {os.path.basename(file).encode() for file in members}
    commands = [line for line in project.commands() if any(script in line for script in scripts)]
    options = {a or b for file in members for a, b in _SWITCH.findall(project.read(file) or b"")}
    return bool(commands) and not any(option in line for option in options for line in commands)


def _is_written_for_cpu(facts: Facts, path: str, members: list[str]) -> bool:
    is_script = path.endswith(SUFFIX) or facts.project.holds(path, RUNS_ITSELF)
    if not is_script or facts.project.importers(path) - {path}:
        return False
    texts = [_without_comments(facts.project.read(file) or b"") for file in members]
    if not any(ACCELERATOR.search(text) for text in texts):
        return True
    constants = [found for text in texts for found in _CONSTANT.findall(text)]
    turned_off = bool(constants) and all(value for _, value in constants) and len({name for name, _ in constants}) == 1
    return turned_off and not any(_IS_AVAILABLE.search(text) for text in texts)


def _without_comments(text: bytes) -> bytes:
    return STRING_OR_COMMENT.sub(lambda token: b"" if token[0].startswith(b"#") else token[0], text)
