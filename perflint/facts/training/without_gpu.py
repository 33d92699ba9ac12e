"""Programs that compute on the CPU: nobody is told to run them on a GPU, they say so, or they name no device at all."""

from __future__ import annotations

import os
import re
from functools import cache

from perflint.facts.facts import Facts
from perflint.project.project import ACCELERATOR, MAX_IMPORTERS, RUNS_ITSELF
from perflint.source.cells import SUFFIX
from perflint.source.chunks import STRING_OR_COMMENT
from perflint.source.words import any_layout, made

_SWITCH = any_layout(
    rb"add_argument \( (?:['\"]-\w+['\"] , )?['\"](--(?:use[-_])?(?:cuda|gpu))['\"] ,[^)]*\baction = ['\"]store_true['\"]"
    rb"|add_argument \( (?:['\"]-\w+['\"] , )?['\"](--device)['\"] ,[^)]*\bdefault = ['\"]cpu['\"]"
)
_NUMBER = any_layout(rb"add_argument \( (?:['\"]-\w+['\"] , )?['\"](--gpu\w*)['\"] ,[^)]*\bdefault = ['\"]?-1\b")
"""The number of the GPU, none by default."""
_ANYHOW = any_layout(rb"\. cuda \( \)|cuda \. is_available \( \) else|\. device = ['\"]cuda")
_CONSTANT = made(rb"^[ \t]*((?:use|with)_?(?:cuda|gpu))[ \t]*=(?!=)[ \t]*(False\b)?", re.M | re.I)
_GPUS = rb"cuda|\bxla|\bnpu|\bxpu|\bhpu|accelerat|fabric|lightning|[\"']auto[\"']"
_NAMES_GPU = made(rb"(?i:gpu|\bmps\b|%b)" % _GPUS)
_NAMES_ANOTHER = made(rb"(?i:%b)" % _GPUS)
_NAMES_MAC = made(rb"[\"']mps[\"']|\bbackends\.mps\b")
_NAMES_CPU = made(rb"[\"']cpu[\"']")
_TRAINER = any_layout(rb"\bTrainer \((?:((?:[^()]|\([^()]*\))*)\))?")
_LIGHTNING_ON_CPU = any_layout(rb"\baccelerator = ['\"]cpu['\"] (?:,|$)|\bgpus = (\w+) (?:,|$)")
"""What has a trainer of Lightning compute on the CPU: `accelerator="cpu"`, and a number of GPUs if it is 0."""
_OF_GPU = any_layout(rb"\. cuda \(|['\"]cuda")
_BACKWARD = any_layout(rb"\. backward \(")
_OPTIMIZER = any_layout(rb"\boptim \. \w+ \(|\b(?:SGD|AdamW?|RMSprop) \(")
_RUN = made(r"(?:^|[/\\])(?:main|run|train|test|eval|demo)\w*\.py$")
_ACTS = made(rb"^(?:for|while|with)\b|^\w[\w.]*\(", re.M)
"""What a file does that is run, at its top."""
MAX_FILES = 200
"""How many files are looked at that a script imports, and these import."""
_IS_AVAILABLE = any_layout(rb"cuda \. is_available \(")


def is_run_without_gpu(facts: Facts, path: str) -> bool:
    """Whether a file belongs to a program that computes on the CPU.

    Its requirements ask for a torch without one; it has an option for a GPU, and no command that the project shows gives it; a
    constant turns the GPU off (`USE_CUDA = False`); or a script and what it imports name a device in comments alone, or none
    but the CPU; or all trainers of Lightning are told to compute there.
    """
    return facts.without_gpu.get(path, lambda: _find(facts, path))


def is_of_mac(facts: Facts, path: str) -> bool:
    """Whether the program that a file belongs to names the GPU of a Mac, and no other."""
    return facts.project.program_holds(path, _NAMES_MAC) and not facts.project.program_holds(path, _NAMES_ANOTHER)


def _find(facts: Facts, path: str) -> bool:
    if facts.has_cpu_build:
        return True
    members = facts.project.members(path)
    if members is not None and _is_left_to_options(facts, path, members):
        return True
    importers = facts.project.importers(path) - {path}
    if not importers or _trains_alone(facts, path):
        return _is_written_for_cpu(facts, path)
    scripts = _scripts_above(facts, path)
    return bool(scripts) and not facts.project.is_offered(path) and all(is_run_without_gpu(facts, file) for file in scripts)


def _is_left_to_options(facts: Facts, path: str, members: list[str]) -> bool:
    project = facts.project
    switches = project.program_holds(path, _SWITCH) and not project.program_holds(path, _ANYHOW)
    if not switches and not project.program_holds(path, _NUMBER):
        return False
    scripts = {os.path.basename(file).encode() for file in members}
    commands = [line for line in project.commands() if any(script in line for script in scripts)]
    texts = [project.read(file) or b"" for file in members]
    options = {a or b for text in texts for a, b in _SWITCH.findall(text)} if switches else set[bytes]()
    options.update(option for text in texts for option in _NUMBER.findall(text))
    return bool(commands) and not any(option in line for option in options for line in commands)


def _is_written_for_cpu(facts: Facts, path: str) -> bool:
    if not _is_script(facts, path):
        return False
    texts = [_without_comments(facts.project.read(file) or b"") for file in _imported_by(facts, path)]
    if not any(ACCELERATOR.search(text) for text in texts):
        return True
    if not any(map(_NAMES_GPU.search, (*texts, *facts.project.commands()))) and any(map(_NAMES_CPU.search, texts)):
        return True
    if _leads_on_cpu(texts):
        return True
    constants = [found for text in texts for found in _CONSTANT.findall(text)]
    turned_off = bool(constants) and all(value for _, value in constants) and len({name for name, _ in constants}) == 1
    return turned_off and not any(_IS_AVAILABLE.search(text) for text in texts)


def _leads_on_cpu(texts: list[bytes]) -> bool:
    """Whether there are trainers of Lightning, all of them told to compute on the CPU: they move networks and batches."""
    leading = [(text, options) for text in texts for options in _TRAINER.findall(text)]
    return bool(leading) and all(_is_told_cpu(text, options) and not _OF_GPU.search(text) for text, options in leading)


def _is_told_cpu(text: bytes, options: bytes) -> bool:
    told = _LIGHTNING_ON_CPU.search(options)
    gpus = told[1] if told is not None else None
    if gpus is None or gpus in (b"0", b"None"):
        return told is not None
    return set(_set_to(gpus).findall(text)) == {b"0"}


@cache
def _set_to(name: bytes) -> re.Pattern[bytes]:
    """All that a text sets a variable to."""
    return re.compile(rb"^[ \t]*%b[ \t]*=[ \t]*([^=\n;]+?)[ \t]*(?:;|$)" % re.escape(name), re.M)


def _trains_alone(facts: Facts, path: str) -> bool:
    """Whether a script that others import, too, makes the optimizer that it steps, and names no device with what it imports."""
    text = facts.project.read(path) or b""
    if not (RUNS_ITSELF.search(text) and _BACKWARD.search(text) and _OPTIMIZER.search(text)):
        return False
    return not any(ACCELERATOR.search(_without_comments(facts.project.read(file) or b"")) for file in _imported_by(facts, path))


def _is_script(facts: Facts, path: str) -> bool:
    if path.endswith(SUFFIX) or _RUN.search(path) is not None or facts.project.holds(path, RUNS_ITSELF):
        return True
    return not facts.project.importers(path) - {path} and facts.project.holds(path, _ACTS)


def _scripts_above(facts: Facts, path: str) -> list[str]:
    """The scripts that import a file, or what imports it, and so on; none if there are many, or if it is run itself."""
    found, scripts = [path], list[str]()
    for file in found:
        importers = sorted(facts.project.importers(file) - {file})
        if not importers and _is_script(facts, file):
            scripts.append(file)
        found += (importer for importer in importers if importer not in found)
        if len(found) > MAX_IMPORTERS:
            return []
    return scripts


def _imported_by(facts: Facts, path: str) -> list[str]:
    """A file, what it imports, what that imports, and so on."""
    found = [path]
    for file in found:
        if len(found) < MAX_FILES:
            found += sorted(facts.project.imports(file) - set(found))
    return found


def _without_comments(text: bytes) -> bytes:
    return STRING_OR_COMMENT.sub(lambda token: b"" if token[0].startswith(b"#") else token[0], text)
