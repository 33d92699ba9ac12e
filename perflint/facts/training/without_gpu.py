"""Programs that compute on the CPU unless somebody asks for a GPU, and that nobody is told to run on one."""

from __future__ import annotations

import os

from perflint.facts.facts import Facts
from perflint.source.words import any_layout

_SWITCH = any_layout(
    rb"add_argument \( (?:['\"]-\w+['\"] , )?['\"](--(?:use[-_])?(?:cuda|gpu))['\"] ,[^)]*\baction = ['\"]store_true['\"]"
    rb"|add_argument \( (?:['\"]-\w+['\"] , )?['\"](--device)['\"] ,[^)]*\bdefault = ['\"]cpu['\"]"
)
_ANYHOW = any_layout(rb"\. cuda \( \)|cuda \. is_available \( \) else")


def is_run_without_gpu(facts: Facts, path: str) -> bool:
    """Whether a file belongs to a program with an option for a GPU, and no command that the project shows gives it."""
    return facts.without_gpu.get(path, lambda: _find(facts, path))


def _find(facts: Facts, path: str) -> bool:
    project = facts.project
    if not project.program_holds(path, _SWITCH) or project.program_holds(path, _ANYHOW):
        return False
    members = project.members(path) or []
    scripts = {os.path.basename(file).encode() for file in members}
    commands = [line for line in project.commands() if any(script in line for script in scripts)]
    options = {a or b for file in members for a, b in _SWITCH.findall(project.read(file) or b"")}
    return bool(commands) and not any(option in line for option in options for line in commands)
