"""All facts of one project, computed on demand and shared by the rules."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perflint.facts.autograd.gradmode import GradMode
from perflint.facts.compiled.compiled import Compiled
from perflint.facts.compiled.graph_breaks import GraphBreak, find_breaks
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.device.reads import HostRead, find_formatted, find_reads, find_truths
from perflint.facts.device.sinks import Sinks
from perflint.facts.device.waits import Waits
from perflint.facts.operations.versions import asks_for_cpu_build, depends_on, is_held_below, oldest_versions
from perflint.facts.training.loops import Loops
from perflint.facts.values.inference import Inference
from perflint.facts.values.values import Value
from perflint.project.project import Project
from perflint.project.trace import LastingMemo, Memo
from perflint.rule.obligations import Obligation
from perflint.source.syntax import Class, Scope

if TYPE_CHECKING:
    from packaging.version import Version

Fill = tuple[tuple[str, int, int], Scope, ast.expr]
"""Where a container of layers is made, and an expression that some scope puts into it."""


class Facts:
    """The facts layer over a project."""

    def __init__(
        self, project: Project, target_versions: dict[str, Version] | None = None, compiled: tuple[str, ...] = ()
    ) -> None:
        self.project = project
        self.inference = Inference(project)
        self.loops = Loops(self.inference)
        self.sinks = Sinks(self.inference, self.loops)
        self.grad_mode = GradMode(self.inference)
        self.compiled = Compiled(self.inference, compiled)
        self._target_versions = target_versions or {}
        self._held_below: dict[tuple[str, str], bool] = {}
        self.surgery: Memo[tuple[str, bool], list[Obligation]] = Memo(project.trace)
        """What each file does to networks from outside, as `surgery` finds it; with whether networks are changed anyhow."""
        self.fills: Memo[str, list[Fill]] = Memo(project.trace)
        """What each file puts into containers of layers that are made, as `fills` finds it."""
        self.replaced: LastingMemo[tuple[str, frozenset[str]], list[Obligation]] = project.lasting("replaced")
        """What each file puts in the place of functions of torch by some names."""
        self.own_tensors: LastingMemo[str, list[Obligation]] = project.lasting("own tensors")
        """Why each file may make other tensors than torch's own."""
        self.lists_names: LastingMemo[str, bool | None] = project.lasting("lists names")
        """Whether each file goes through the names of a module: None where that is of something unknown."""
        self.hands_on_modules: LastingMemo[str, frozenset[str] | None] = project.lasting("hands on modules")
        """Which modules each file hands on as objects, by their last names: None for any."""
        self.pins: LastingMemo[str, bool] = project.lasting("pins")
        """Whether each file pins memory by hand."""
        self.copies: LastingMemo[str, bool] = project.lasting("copies")
        """Whether each file starts copies that may lead to the host, and does not wait for them."""
        self.takes_whole: Memo[str, frozenset[Any]] = Memo(project.trace)
        """How each file takes functions as a whole, as `taken_whole` finds it."""
        self.regions: LastingMemo[str, list[Obligation]] = project.lasting("regions")
        """The regions that each file enters which may give factories another device."""
        self.graph_needs: Memo[tuple[str, Value, Value], list[Obligation]] = Memo(project.trace)
        """Why what is called by a name, with a receiver, may need its graph, as `forward` looks through it."""
        self.parameter_ends: Memo[tuple[Scope, str | None, int, bool], list[Any]] = Memo(project.trace)
        """Where what a function is given ends, as `gradflow` follows it."""
        self.trained_attributes: Memo[tuple[Class, str], ast.expr | None] = Memo(project.trace)
        """Where training reads an attribute of a class, if `gradflow` finds that it does."""
        self.hidden: Memo[tuple[Scope, ast.AST], tuple[Scope, ...]] = Memo(project.trace)
        """What `proofs.hidden` found."""
        self.unused: Memo[Scope, bool] = Memo(project.trace)
        """Whether nobody runs a function, as `is_unused` finds it."""
        self.users: Memo[tuple[str, str], list[tuple[str, str] | None]] = Memo(project.trace)
        """Who names what a file defines under a name, None for code that runs for sure."""
        self.unstartable: Memo[str, bool] = Memo(project.trace)
        """Whether a file cannot be imported, as `cannot_start` finds it."""
        self.modes: Memo[tuple[Scope, int], list[Any]] = Memo(project.trace)
        """What a call of a function does to the modes of networks, as `modes` finds it."""
        self.dead_ends: Memo[tuple[Scope, int], tuple[ast.AST, ...]] = Memo(project.trace)
        """Where a function ends with an error whenever it runs, as `dead_ends` finds it."""
        self.without_gpu: Memo[str, bool] = Memo(project.trace)
        """Whether a file's program is run on the CPU, as `is_run_without_gpu` finds it."""
        self.whereabouts: Memo[Scope, Any] = Memo(project.trace)
        """Where the tensors of a function are, as `whereabouts` finds it."""
        self.device_hints: Memo[Scope, frozenset[Any]] = Memo(project.trace)
        """What each function says about where tensors are, as `hints_in` finds it."""
        self._reads: Memo[Scope, list[HostRead]] = Memo(project.trace)
        self._formatted: Memo[Scope, list[HostRead]] = Memo(project.trace)
        self._truths: Memo[Scope, list[HostRead]] = Memo(project.trace)
        self.waits = Waits(self.inference, self.loops, lambda scope: (*self.reads(scope), *self.truths(scope)))
        self._breaks: Memo[Scope, list[GraphBreak]] = Memo(project.trace)

    @property
    def versions(self) -> dict[str, Version]:
        """The oldest version of each package that the project supports, by package name."""
        self.project.trace.note("requirements")
        return self._versions

    @property
    def target_versions(self) -> dict[str, Version]:
        """The versions that the configuration names: what an older one does not have is not spoken of."""
        return self._target_versions

    @cached_property
    def _versions(self) -> dict[str, Version]:
        return {**oldest_versions(self.project.root), **self._target_versions}

    @property
    def has_runtime(self) -> bool:
        """Whether the project depends on perflint's runtime already."""
        self.project.trace.note("requirements")
        return self._has_runtime

    @cached_property
    def _has_runtime(self) -> bool:
        return depends_on(self.project.root, "perflint-torch")

    @property
    def has_cpu_build(self) -> bool:
        """Whether the project asks for a torch without a GPU."""
        self.project.trace.note("requirements")
        return self._has_cpu_build

    @cached_property
    def _has_cpu_build(self) -> bool:
        return asks_for_cpu_build(self.project.root)

    def is_held_below(self, package: str, version: str) -> bool:
        """Whether the project's own files admit no version of a package from `version` on."""
        self.project.trace.note("requirements")
        if (package, version) not in self._held_below:
            self._held_below[package, version] = is_held_below(self.project.root, package, version)
        return self._held_below[package, version]

    def reads(self, scope: Scope, *, formatted: bool = True) -> list[HostRead]:
        """Where the host waits for a device value in a scope, but for conditions; formatted: also to turn it to text."""
        reads = self._reads.get(scope, lambda: find_reads(self.inference, self.loops, scope))
        if not formatted:
            return reads
        texts = self._formatted.get(scope, lambda: find_formatted(self.inference, self.loops, scope))
        if not texts:
            return reads
        taken, order = {read.node for read in reads}, flow_of(scope).order
        return sorted((*reads, *(r for r in texts if r.node not in taken)), key=lambda read: order[read.node])

    def truths(self, scope: Scope) -> list[HostRead]:
        """Where the host waits for a device value to learn whether a condition holds."""
        return self._truths.get(scope, lambda: find_truths(self.inference, self.loops, scope))

    def graph_breaks(self, scope: Scope) -> list[GraphBreak]:
        """Where a function that runs compiled breaks its graph; nowhere if it is not known to run compiled."""

        def found() -> list[GraphBreak]:
            return find_breaks(self.inference, self.compiled, scope) if self.compiled.root(scope) is not None else []

        return self._breaks.get(scope, found)

    def begin_file(self) -> None:
        """Count the questions that the next file costs from here on."""
        for inference in (self.inference, self.inference.apart):
            if inference is not None:
                inference.solver.begin_file()
        self.loops.solver.begin_file()

    def release(self) -> None:
        """Take the facts apart, so that their memory is free at once; nobody may ask them again."""
        for inference in (self.inference.apart, self.inference):
            if inference is not None:
                vars(inference.callers).clear()
                vars(inference).clear()
        vars(self.compiled).clear()
        vars(self.loops).clear()
        vars(self).clear()
