"""Programs that step an environment: what an agent learns from is made by Python, one step at a time."""

from __future__ import annotations

from perflint.facts.facts import Facts
from perflint.source.words import any_layout, made

_STEPS = any_layout(rb"\benvs?\w* \. step \(")
_ON_DEVICE = any_layout(rb"\bisaac|\bbrax\b|\bmjx\b|\bwarp\b|\bgenesis\b|\bmadrona")
"""Simulators that step on the device."""
_DEEP = made(rb"Conv(?:[123]d)?\b|[rR]es[nN]et|ransformer|ttention|U-?[nN]et\b|from_pretrained|\btimm\b|\btorchvision\b")
"""What networks of many layers are made of, or called."""


def steps_environment(facts: Facts, path: str) -> bool:
    """Whether the program of a file steps an environment on the host, which takes most of its time."""
    project = facts.project
    return project.program_holds(path, _STEPS) and not project.program_holds(path, _ON_DEVICE)


def learns_in_few_layers(facts: Facts, path: str) -> bool:
    """Whether the agents of a file's program step an environment and have few layers: ten parameters or so."""
    return steps_environment(facts, path) and not facts.project.program_holds(path, _DEEP)
