"""Programs that step an environment: what an agent learns from is made by Python, one step at a time."""

from __future__ import annotations

from perflint.facts.facts import Facts
from perflint.source.words import any_layout

_STEPS = any_layout(rb"\benvs?\w* \. step \(")
_ON_DEVICE = any_layout(rb"\bisaac|\bbrax\b|\bmjx\b|\bwarp\b|\bgenesis\b|\bmadrona")
"""Simulators that step on the device."""


def steps_environment(facts: Facts, path: str) -> bool:
    """Whether the program of a file steps an environment on the host, which takes most of its time."""
    project = facts.project
    return project.program_holds(path, _STEPS) and not project.program_holds(path, _ON_DEVICE)
