"""Functions of a network that run in evaluations alone: all their calls stand behind `if not self.training`."""

from __future__ import annotations

from perflint.facts.dataflow.flow import flow_of
from perflint.facts.dataflow.guards import is_left_to_evaluation
from perflint.facts.values.inference import Inference
from perflint.source.syntax import Scope


def is_called_to_evaluate(inference: Inference, scope: Scope, depth: int) -> bool:
    """Whether all calls of a function are in sight, and none runs while its module trains.

    Who installs a network calls all of it, and not the methods that it calls itself.

    depth: through how many callers is looked.
    """
    called = inference.callers.sites(scope)
    return (
        called.complete_as_written
        and bool(called.sites)
        and all(
            is_left_to_evaluation(flow_of(site.scope), site.node)
            or (depth > 0 and is_called_to_evaluate(inference, site.scope, depth - 1))
            for site in called.sites
        )
    )
