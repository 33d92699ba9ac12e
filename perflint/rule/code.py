"""What a rule sees: one scope with its facts, and the means to report.

Nodes are those of Python's `ast`, whose columns are exact byte offsets. Questions about a node go to the facts; new text
comes from `perflint.fix.rewrite`, which works on LibCST nodes.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from perflint.facts.compiled.compiled import Root
from perflint.facts.compiled.graph_breaks import GraphBreak
from perflint.facts.dataflow.definitions import Definition, Loop
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.guards import is_guarded
from perflint.facts.dataflow.uses import functions_see
from perflint.facts.device.reads import HostRead, device_value
from perflint.facts.device.sinks import Sink
from perflint.facts.device.uploads import without_cuda
from perflint.facts.device.waiting_places import places
from perflint.facts.device.waits import HostWait
from perflint.facts.facts import Facts
from perflint.facts.operations.operations import Road
from perflint.facts.proofs.copies import no_copy_in_flight
from perflint.facts.proofs.errors import error_is_caught, relied_on
from perflint.facts.proofs.factories import changes_factories
from perflint.facts.proofs.fears import OWN_TENSORS, Fear, feared
from perflint.facts.proofs.listed_names import lists_names
from perflint.facts.proofs.own_tensors import own_tensors
from perflint.facts.proofs.replaced import replaced
from perflint.facts.proofs.taken_whole import taken_whole
from perflint.facts.training.dead_ends import ends_first
from perflint.facts.training.generation import writes_text
from perflint.facts.training.left_out import is_left_out
from perflint.facts.training.loaders import DATA_LOADER, LoaderCall
from perflint.facts.training.loops import Heat, LoopKind
from perflint.facts.training.on_accelerator import Whereabouts, whereabouts
from perflint.facts.training.rates import is_of_evaluation, rate_of
from perflint.facts.training.switched_off import is_switched_off
from perflint.facts.training.tests_alone import takes_few_steps
from perflint.facts.training.unused import is_copied_to_module, is_kept_only, is_unused
from perflint.facts.training.without_gpu import is_run_without_gpu
from perflint.facts.values.frames import MAX_DEPTH
from perflint.facts.values.values import External, Value
from perflint.facts.values.variables import free_name
from perflint.fix.rewrite import CannotRewrite
from perflint.project.config import Options
from perflint.project.project import MAX_IMPORTERS
from perflint.rule.assumptions import ASSUMPTIONS
from perflint.rule.finding import Applicability, Cost, Edit, Finding, Fix, Import, Rate, Severity
from perflint.rule.obligations import Kind, Obligation
from perflint.rule.option import Option, Setting
from perflint.source.identifiers import is_named
from perflint.source.renaming import renamed
from perflint.source.source import Source
from perflint.source.syntax import Module, Scope

_NO_RUNTIME = Obligation(Kind.RUNTIME, "it imports `perflint_runtime`")


class Heading(Protocol):
    """What a finding takes over from its rule."""

    @property
    def name(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def severity(self) -> Severity: ...
    @property
    def costs(self) -> Cost | None: ...
    @property
    def options(self) -> tuple[Option[Any], ...]: ...
    @property
    def in_budget(self) -> bool: ...
    @property
    def by_fix(self) -> bool: ...


class Code:
    """One scope as a rule sees it."""

    def __init__(self, rule: Heading, scope: Scope, facts: Facts, options: Options, *, shows_info: bool = True) -> None:
        """shows_info: whether anybody sees what the rule reports with `Severity.INFO`; if not, it need not be looked for."""
        self.rule, self.scope, self.facts, self.options, self.shows_info = rule, scope, facts, options, shows_info

    # -- the scope ---------------------------------------------------------------------------------------------------

    @property
    def flow(self) -> Flow:
        """Evaluation order, blocks, loops and definitions."""
        return flow_of(self.scope)

    @property
    def source(self) -> Source:
        return self.scope.module.source

    def calls(self, *names: str) -> list[ast.Call]:
        """The calls of functions and methods with one of these last names, in evaluation order."""
        found = [call for name in names for call in self.flow.calls_named[name]]
        found.sort(key=self.flow.order.__getitem__)
        return found

    def calls_to(self, *qualnames: str) -> list[ast.Call]:
        """The calls of functions and classes outside of the project, whatever the code names them, in evaluation order.

        qualnames: as in `torch.cuda.empty_cache`; `calls=` of `@rule` makes sure that the rule sees a scope that holds one.
        """
        last = {qualname.rpartition(".")[2] for qualname in qualnames}
        return [call for call in self.calls(*last, *renamed(self.source, last)) if self.is_external(call.func, *qualnames)]

    def loaders(self) -> list[LoaderCall]:
        """The loaders that the scope makes by torch's own class; a rule that asks has `calls=[DATA_LOADER]`."""
        return [LoaderCall(self.facts, self.scope, call) for call in self.calls_to(DATA_LOADER)]

    def kindred_loaders(self) -> list[LoaderCall]:
        """Those that it makes by classes of that name that take the same arguments: of other packages, or of the project."""
        own = set(self.calls_to(DATA_LOADER))
        return [*LoaderCall.kindred(self.facts, self.scope, (call for call in self.flow.calls if call not in own))]

    def at(self, scope: Scope) -> Code:
        """The same for another scope: a function that this one calls, say."""
        return Code(self.rule, scope, self.facts, self.options, shows_info=self.shows_info)

    def text(self, node: ast.AST) -> str:
        """The source text of a node."""
        return self.source.text(*self.span(node))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The byte range of a node. Inside an f-string it is exact from Python 3.12 on only."""
        assert isinstance(node, (ast.expr, ast.stmt, ast.keyword, ast.alias, ast.ExceptHandler, ast.arg))
        starts = self.source.starts
        last = len(starts)
        start = self.source.offset(min(node.lineno, last), node.col_offset)
        end = self.source.offset(min(node.end_lineno or node.lineno, last), node.end_col_offset or node.col_offset)
        return min(start, len(self.source.body)), min(max(start, end), len(self.source.body))

    def option(self, option: Option[Setting]) -> Setting:
        """What a user has set an option of the rule to, or its default."""
        assert option in self.rule.options
        value: Setting = self.options.values.get(self.rule.name, {}).get(option.name, option.default)
        return value

    @property
    def may_use_runtime(self) -> bool:
        """Whether fixes may import `perflint_runtime`: the user lets them, or the project or the file uses it already."""
        return bool(self.options.runtime) or self.facts.has_runtime or b"perflint_runtime" in self.source.body

    @property
    def offers_runtime(self) -> bool:
        """Whether fixes that import `perflint_runtime` are looked for; where it is not known to be there, they rest on that."""
        return self.options.runtime is not False or self.may_use_runtime

    @property
    def is_in_budget(self) -> bool:
        """Whether what the rule finds are waits of a step, which the sync budget tells of."""
        return self.rule.in_budget

    def may_take(self, fix: Fix | None) -> bool:
        """Whether there is a fix that needs no look: it is safe, or what it assumes is declared."""
        if fix is None or fix.applicability is Applicability.UNSAFE:
            return False
        return all(kind.value in self.options.assumed for kind in fix.assumptions)

    # -- facts -------------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """What an expression may evaluate to."""
        return self.facts.inference.value(self.scope, node)

    def bound(self, definition: Definition) -> Value:
        """What a definition binds."""
        inference = self.facts.inference
        return inference.definition(definition, inference.frame(self.scope), self.flow)

    def is_external(self, node: ast.expr, *qualnames: str) -> bool:
        """Whether an expression is, without doubt, one of these names outside the project."""
        return self.value(node).must(lambda a: isinstance(a, External) and a.qualname in qualnames)

    def means_builtin(self, name: str) -> bool:
        """Whether a name that the scope does not use yet would be Python's own there: `float`, say."""
        if self.flow.definitions_of(name):
            return False
        inference = self.facts.inference
        return free_name(inference, self.scope, name, MAX_DEPTH).must(lambda a: a == External(f"builtins.{name}"))

    def step_loops(self) -> dict[Loop, LoopKind]:
        """The loops that handle one batch per iteration."""
        return self.facts.loops.kinds(self.scope)

    def step_loop(self, node: ast.AST) -> Loop | None:
        """The step loop that evaluates `node` in each iteration."""
        return self.facts.loops.step_loop(self.scope, node)

    def training_loop_of(self, node: ast.AST) -> Loop | None:
        """The training loop that evaluates `node` in each step; None under a guard, in a handler, or in an evaluation."""
        loop = self.step_loop(node)
        return loop if loop is not None and self.step_loops().get(loop) is LoopKind.TRAIN else None

    def around(self, node: ast.AST) -> Loop | None:
        """The step loop around `node`, guarded or not."""
        return self.facts.loops.around(self.scope, node)

    @property
    def heat(self) -> Heat | None:
        """Why the whole scope runs each step, if it does."""
        return self.facts.loops.heat(self.scope)

    def is_hot(self, node: ast.AST) -> bool:
        """Whether `node` runs each step: in a step loop or in a hot function, and under no guard."""
        if self.step_loop(node) is not None:
            return True
        if self.around(node) is not None or self.heat is None:
            return False
        if is_guarded(self.flow, node):
            return False
        return not is_left_out(self.facts, self.scope, node)

    def reads(self, *, formatted: bool = True) -> list[HostRead]:
        """Where the host waits for a device value, but for conditions; formatted: also to turn it to text."""
        return self.facts.reads(self.scope, formatted=formatted)

    def truths(self) -> list[HostRead]:
        """Where the host waits for a device value to learn whether a condition holds."""
        return self.facts.truths(self.scope)

    def waits(self, *roads: Road, at: Callable[[ast.expr], bool] = lambda node: True) -> list[HostWait]:
        """Where the host waits for the device by one of some roads, in code that runs each step; no `reads` and `truths`.

        at: which calls, items and comparisons count, by a look at the node alone: nothing is worked out for the others.
        """
        found: list[HostWait] = []
        for node in places(self.flow, *roads):
            if at(node) and self.is_hot(node):
                found += (wait for wait in self.facts.waits.at(self.scope, node) if wait.road in roads)
        return found

    @property
    def compiled_by(self) -> Root | None:
        """What runs the scope compiled by `torch.compile`; None where nothing does, as far as is known."""
        return self.facts.compiled.root(self.scope)

    def is_traced(self, node: ast.AST) -> bool:
        """Whether torch traces `node`, in a scope that runs compiled: it is under no test for running uncompiled."""
        return self.facts.compiled.is_traced(self.scope, node)

    def graph_breaks(self) -> list[GraphBreak]:
        """Where the scope breaks its graph; nowhere if it is not known to run compiled."""
        return self.facts.graph_breaks(self.scope)

    def compiles(self, call: ast.Call) -> ast.expr | None:
        """What a call of `torch.compile`, or of a module's own `compile`, compiles; None for any other call."""
        compiled = self.facts.compiled.compiled_by(self.scope, call)
        if compiled is None and isinstance(call.func, ast.Attribute) and self.facts.compiled.is_method_call(self.scope, call):
            return call.func.value
        return compiled

    def sinks(self, node: ast.expr) -> frozenset[Sink]:
        """What a host value is used for."""
        return self.facts.sinks.of(self.scope, node)

    def may_be_on_device(self, node: ast.expr) -> bool:
        """Whether an expression may be a tensor on an accelerator."""
        return device_value(self.facts.inference, self.scope, node)

    def whereabouts(self, node: ast.AST | None = None) -> Whereabouts:
        """Where the tensors of the scope are, for all that shows: a guess, for what is worth a minute. node: what reads one."""
        return whereabouts(self.facts, self.scope, node)

    def grad_is_off(self, node: ast.AST) -> bool | None:
        """Whether autograd is off where `node` is evaluated; None when that is not known."""
        return self.facts.grad_mode.is_off(self.scope, node)

    def feared(self, *fears: Fear) -> Iterator[Obligation]:
        """What the program may hold of some program-wide fears: an obligation each."""
        for fear in fears:
            if fear is OWN_TENSORS:
                yield from own_tensors(self.facts, self.source.path)
            else:
                yield from feared(self.facts.project, self.source.path, fear)

    def needs_wait(self) -> Iterator[Obligation]:
        """What may need a wait of this function's steps, beside what is read there: an obligation, if there is anything."""
        found = no_copy_in_flight(self.facts, self.scope)
        if found is not None:
            yield found

    def replaced(self, *qualnames: str) -> Iterator[Obligation]:
        """What the program puts in the place of functions or classes of torch: an obligation each."""
        return replaced(self.facts, self.source.path, *qualnames)

    def changes_factories(self, node: ast.AST, *factories: str) -> Iterator[Obligation]:
        """What may make something else of calls of factories at `node` (`"torch.zeros"`): an obligation each."""
        return changes_factories(self.facts, self.scope, node, *factories)

    def caught(self, node: ast.AST) -> Obligation | None:
        """Whether the program may go on after an error that `node` raises."""
        return error_is_caught(self.facts, self.scope, node)

    # -- reports -----------------------------------------------------------------------------------------------------

    def finding(
        self,
        node: ast.AST,
        message: str,
        fix: Fix | None = None,
        missing: Iterable[Obligation | None] = (),
        *,
        waits: Iterable[ast.AST] = (),
        severity: Severity | None = None,
    ) -> Finding:
        """A finding at a node.

        missing: the proofs that a (safe) fix would need and that do not hold; None entries are dropped. waits: the
        expressions that make the CPU wait for the device now and no longer do after the fix. severity: another one than the
        rule's; `Severity.INFO` for what is true but worth little, which is shown only if somebody selects the rule.
        """
        start, end = self.span(node)
        rate = rate_of(self.facts, self.scope, node)
        distinct = dict.fromkeys(obligation for obligation in missing if obligation is not None)
        obligations = tuple(
            sorted(distinct, key=lambda obligation: self._may_be_declared(obligation.kind))
        )  # first what blocks
        rests = fix is not None and Kind.ERRORS_ARE_BUGS in fix.assumptions
        refuted = relied_on(self.facts, self.scope, node) if rests else None
        if fix is not None and refuted is None and (self.rule.category == "device-sync" or fix.uses_runtime):
            refuted = taken_whole(self.facts, self.scope)
        if fix is not None and refuted is not None:
            needs_leave = Kind.RUNTIME in fix.assumptions
            unsafe = dataclasses.replace(fix, applicability=Applicability.UNSAFE, assumptions=())  # the source says otherwise
            fix = None if needs_leave else unsafe
            obligations = (refuted, *obligations)
        if severity is None and self._is_worth_little(node, rate, fix):
            severity = Severity.INFO
        offsets = tuple(self.span(wait)[0] for wait in waits)
        rule = self.rule
        said = (rule.name, severity or rule.severity, rule.category, message)
        return Finding(*said, start, end, fix, obligations, offsets, rule.costs, rate)

    def _is_worth_little(self, node: ast.AST, rate: Rate, fix: Fix | None) -> bool:
        """Whether nobody runs the code, or gets to it; an error is worth a look wherever a run gets to.

        Or it is a wait of a step, which the sync budget counts, or has no fix that the rule's findings are worth by.

        Or tests and benchmarks alone run the code, or a wait or a copy is one now and then, or beside a writing model, or of
        what may be no tensor, or in a program that is run without a GPU, or where nothing gets to one.

        So are those of evaluations alone, which are a small part of most runs, unless the program only evaluates.
        """
        if self.rule.severity is Severity.INFO or is_switched_off(self.facts, self.scope, node):
            return True
        if ends_first(self.facts, self.scope, node) or is_copied_to_module(self.facts, self.scope, node):
            return True
        if self.rule.severity is Severity.ERROR:
            return is_kept_only(self.facts, self.source.path)
        needs_look = not self.may_take(fix)
        if self.is_in_budget or (self.rule.by_fix and needs_look) or is_unused(self.facts, self.scope):
            return True
        if takes_few_steps(self.facts, self.source.path):
            return True
        if self.rule.costs not in (Cost.WAIT, Cost.COPY):
            return False
        if is_run_without_gpu(self.facts, self.source.path) or rate in (Rate.PER_INTERVAL, Rate.PER_EPOCH):
            return True
        if node not in self.flow.block:
            return False
        if without_cuda(self.scope, node):
            return True
        if self.rule.category != "data-loading" and self.whereabouts(node) is not Whereabouts.ACCELERATOR:
            return True  # the host makes samples wherever they are used
        if writes_text(self.facts, self.scope, node) or any(read.is_guess for read in self.reads() if read.node is node):
            return True
        return is_of_evaluation(self.facts, self.scope, node) and (needs_look or self.rule.costs is Cost.COPY)

    def fix(
        self,
        message: str,
        parts: Iterable[Edit | Import],
        *,
        unless: Iterable[Obligation | None] = (),
        leads_to: tuple[str, ...] = (),
    ) -> Fix | None:
        """A fix, safe unless one of `unless` names a missing proof; None when the text cannot be rewritten.

        Where all that is missing are statements that the owner of a project can make, the fix assumes them. One of them is that
        the program may import the runtime: nobody is to install it for a fix that needs a look.

        `parts` is a generator that may raise `CannotRewrite` while it builds.
        """
        open_ = [obligation for obligation in unless if obligation is not None]
        try:
            built = list(parts)
        except CannotRewrite:
            return None
        imports = tuple(part for part in built if isinstance(part, Import))
        is_missing = any(wanted.is_of_runtime for wanted in imports) and not self.may_use_runtime
        open_ += [_NO_RUNTIME] if is_missing else []
        assumptions = self._assumptions(open_)
        applicability = Applicability.SAFE if not open_ else Applicability.ASSUMING if assumptions else Applicability.UNSAFE
        if is_missing and not assumptions:
            return None
        edits = tuple(part for part in built if isinstance(part, Edit))
        if any(self.source.prints(edit.start, edit.end) for edit in edits):
            return None
        if not all(map(self._may_import, imports)):
            return None
        return Fix(applicability, message, edits, imports, leads_to, assumptions)

    def _assumptions(self, open_: Sequence[Obligation]) -> tuple[Kind, ...]:
        """What must be assumed for some obligations; nothing if that does not do, or if the program's source contradicts it."""
        kinds = {obligation.kind for obligation in open_}
        if not all(map(self._may_be_declared, kinds)):
            return ()
        return tuple(assumption.kind for assumption in ASSUMPTIONS.values() if assumption.kind in kinds)

    def _may_be_declared(self, kind: Kind) -> bool:
        """Whether the owner of the project may vouch for an obligation: the program's source does not contradict it."""
        if not kind.is_declarable:
            return False
        assumption = ASSUMPTIONS[kind.value]
        if not assumption.contradicts or assumption.against is None:
            return True
        return not self.facts.project.program_holds(self.source.path, assumption.against)

    def name_for(self, module: str) -> tuple[str, tuple[Import, ...]]:
        """How the file spells a top-level package such as `torch`, and the import that this needs.

        The name is bound where the function is defined, so a decorator of it may use it, and for as long as the file is used.

        Raises:
            CannotRewrite: the package's name means something else here, or only sometimes.

        """
        top = flow_of(self.scope.module.top)
        for definition in top.definitions:
            if definition.kind == "import" and definition.block.parent is None and self._stays_bound(definition):
                value = self.facts.inference.module_name(self.scope.module, definition.name, 1)
                if value.must(lambda a: a == External(module)) and self._is_global(definition.name):
                    in_cell = self.scope.is_module and self.source.cells is not None and definition.name == module
                    return definition.name, (Import(module),) if in_cell else ()  # the import may be in a cell further down
        if top.definitions_of(module) or not self._is_global(module):
            raise CannotRewrite(f"`{module}` means something else here")
        return module, (Import(module),)

    def _may_import(self, wanted: Import) -> bool:
        """Whether the name that an import binds means nothing else: in the file, and in those that may get it from there."""
        name = wanted.name
        if name is None:
            return True  # `name_for` has looked
        if not self._is_global(name):
            return False
        module, project = self.scope.module, self.facts.project
        if name in module.bindings:
            return self._is_imported(module, wanted)
        seen = name in flow_of(module.top).mentions or functions_see(module, name)
        if seen and is_named(name, self.source.body):
            return False  # it comes from elsewhere: by `from lists import *`, or from a function that says `global`
        importers = project.importers(self.source.path)
        named = (file for file in importers if is_named(name, project.read(file) or b""))
        known = len(importers) <= MAX_IMPORTERS and all(self._is_imported(project.module(file), wanted) for file in named)
        return known and not lists_names(self.facts, self.source.path)

    def _is_imported(self, module: Module | None, wanted: Import) -> bool:
        """Whether a file gets a name by the import that a fix would write, and by nothing else."""
        name = wanted.name or ""
        if module is None or name not in module.bindings:
            return False
        bound = self.facts.inference.module_name(module, name, 1)
        return bound.must(lambda a: a == External(f"{wanted.module}.{name}"))

    def _stays_bound(self, definition: Definition) -> bool:
        """Whether an import stands above the function that is looked at, and its name is never deleted."""
        if not self.scope.is_module and getattr(definition.node, "lineno", 0) > self.scope.row:
            return False
        return definition.name not in flow_of(self.scope.module.top).deleted

    def _is_global(self, name: str) -> bool:
        scope: Scope | None = self.scope
        while scope is not None and not scope.is_module:
            if flow_of(scope).definitions_of(name):
                return False
            if scope.owner is not None and name in scope.owner.variables | scope.owner.methods.keys():
                return False
            scope = scope.parent
        return True

    def inner(self) -> Iterator[Scope]:
        """The functions and lambdas that are written inside this scope."""
        for node in self.flow.inner:
            yield self.flow.inner_scope(node)
