"""Which code runs once per step.

A *step loop* handles one batch per iteration: it iterates over a data loader, or holds a `backward`, an optimizer step or
a forward pass that no inner loop holds. Code in it runs each step unless a guard such as `step % 100 == 0` stands around
it. Functions called from there, and `forward` methods, are *hot*.
"""

from __future__ import annotations

import ast
import contextlib
import re
from enum import Enum

from perflint.facts.dataflow import guards
from perflint.facts.dataflow.definitions import Block, Loop, path_of
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.operations.api_tables import LIGHTNING_STEP_HOOKS
from perflint.facts.training.evaluation_calls import is_called_to_evaluate
from perflint.facts.training.feeders import belongs_to_loader, gives_batch
from perflint.facts.training.forward_parts import in_forward, runs_now_and_then
from perflint.facts.training.loop_looks import (
    calls_outside_of_loops,
    counts_rounds,
    goes_over_chunks,
    holds_batch,
    is_named_like_loss,
    iterating_loop,
    loop_of_act,
    may_give_batches,
    outside_displays,
    runs_one_of,
    statement_loop,
)
from perflint.facts.training.training_objects import (
    MODULE_HOUSEKEEPING,
    is_neural_module,
    is_optimizer,
    is_scaler,
    is_trainer,
    may_run_module,
)
from perflint.facts.values import classes
from perflint.facts.values.call_sites import CallSite
from perflint.facts.values.callers import is_self
from perflint.facts.values.decorators import switches_gradients_off
from perflint.facts.values.inference import Inference
from perflint.facts.values.solver import Solver
from perflint.facts.values.values import UNKNOWN, FunctionRef, Instance, Value
from perflint.project.trace import Memo
from perflint.source.gate import Gate
from perflint.source.nodes import walk
from perflint.source.syntax import Module, Scope, SyntaxProblem
from perflint.source.words import any_layout, made

HOT_DEPTH = 3
"""How many calls away from a step loop a function still counts as hot."""
_TRAINING_CALLS = frozenset((*guards.BACKWARD_CALLS, "step"))
_ACTS_NEEDLE = made(rb"backward|(?<!time)step(?!s\b(?!\s*\())|optim|(?<!pre)train(?!ing\b(?!\s*\()|ed|able)|update(?!d)")
"""What a function holds that trains through others: `self.training`, `timestep` and `from_pretrained` say nothing."""
_ACTS_HERE = any_layout(rb"\. (?:backward|manual_backward|step)\b")
"""What a function holds that runs a backward pass or steps an optimizer itself."""
_ACTING_NAME = made(r"backward|step|optimi[sz]e|forward_backward")
_NEVER_HOT = frozenset(("main", "__init__", "setup", "run", "fit"))
_TRIES_OUT = made(r"_*(?:test|bench|demo|example|check|overfit|profile|measure)", re.I)
_MODEL = made(r"(?:\w+[._])?(?:model|net|network|unet|denoiser|backbone)$")
_EVALUATES = made(r"_?(?:eval(?:uate)?|valid(?:ate)?|val|test|infer|predict|score)(?:_\w+)?$")
_CHOOSES = made(r"_?(?:act|(?:select|choose|get|take|pick|sample)_actions?)$")
_MODELS = made(r"(?:\w+[._])?(?:model|net|network)s?$|" + _MODEL.pattern)
_LOOP_NEEDLE = made(rb"^[ \t\f]*(?:async[\s\\]+)?(?:for|while)\b", re.M)
_STEPS = any_layout(rb"\. step \(")
EVALUATION = Gate.of([("oader", "no_grad", "inference_mode", ".eval(")])
"""What a file holds that loops over batches in a program that trains nothing."""
_FORWARD_NEEDLE = any_layout(
    rb"model|net\b|net \(|encod|decod|generat|discrim|policy|agent|actor|critic|backbone|no_grad|inference_mode|eval \("
    rb"|\. _?(?:evaluate|predict|infer)\w* \("
)


class LoopKind(Enum):
    """What one iteration of a step loop does."""

    TRAIN = "training"
    EVALUATE = "evaluation"


class Heat(Enum):
    """Why a function runs often."""

    STEP = "called each step"
    FORWARD = "part of a forward pass"


class Loops:
    """Step loops and hot functions of a project."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        trace = inference.project.trace
        self.solver = Solver(trace)
        self._steps: Memo[tuple[Scope, int], tuple[bool, bool]] = Memo(trace)
        self._from_forward: Memo[tuple[Scope, int], bool] = Memo(trace)
        self._is_step: Memo[tuple[Scope, int], bool] = Memo(trace)
        self._in_forward: Memo[Scope, bool] = Memo(trace)
        self._heat: Memo[Scope, Heat | None] = Memo(trace)
        self._hot: Memo[tuple[Scope, int], list[CallSite]] = Memo(trace)
        self._evaluating: Memo[Module, bool] = Memo(trace)
        self._targets: Memo[ast.Call, list[Scope]] = Memo(trace)

    # -- step loops --------------------------------------------------------------------------------------------------

    def kinds(self, scope: Scope) -> dict[Loop, LoopKind]:
        """The step loops of a scope."""
        nothing: dict[Loop, LoopKind] = {}
        return self.solver.solve(scope, lambda: self._find_kinds(scope), nothing)

    def _find_kinds(self, scope: Scope) -> dict[Loop, LoopKind]:
        text = scope.text
        if _LOOP_NEEDLE.search(text) is None:
            return {}
        if not self._inference.project.near_training(scope.module.source.path) and not self._evaluates(scope.module):
            return {}
        flow = flow_of(scope)
        loops = [loop for loop in flow.loops if loop.statement is not None]
        kinds: dict[Loop, LoopKind] = {}
        helpers = self._inference.project.backward_helpers(flow.calls_named)
        names = [n for n in flow.calls_named if n in _TRAINING_CALLS or n in helpers or _ACTING_NAME.search(n)]
        for name in sorted(names, key=_is_no_pass):
            for call in flow.calls_named[name]:
                innermost = outside_displays(loop_of_act(flow, call), kinds)
                if innermost is None or innermost in kinds:
                    continue
                backward, steps = self.training_acts(scope, call)
                if backward or (steps and not self._takes_steps(scope, innermost.block, kinds)):
                    kinds[innermost] = LoopKind.TRAIN
        for call in flow.calls_named["zero_grad"] if not switches_gradients_off(scope) else ():
            innermost = loop_of_act(flow, call)
            if innermost is not None and not any(innermost in loop.ancestry() for loop in kinds):
                if not self._holds_step_loop(scope, innermost.block):
                    kinds[innermost] = LoopKind.TRAIN  # what steps the optimizer is hidden
        for call in flow.calls_named["steps"]:
            if isinstance(call.func, ast.Attribute) and self._inference.value(scope, call.func.value).may(is_trainer):
                taken = (loop for loop in loops if loop.iterated is not None and call in walk(loop.iterated))
                kinds.update(dict.fromkeys(taken, LoopKind.TRAIN))
        batched = [loop for loop in loops if loop not in kinds and self._iterates_over_batches(scope, loop)]
        kinds.update(dict.fromkeys(batched, LoopKind.EVALUATE))
        for given in flow.yields:
            innermost = statement_loop(flow, given)
            if innermost is not None and innermost not in kinds and self._feeds_steps(scope):
                kinds[innermost] = LoopKind.EVALUATE
        if _FORWARD_NEEDLE.search(text) is None:
            return kinds
        if self.is_part_of_forward(scope):
            return kinds  # a loop over layers is no loop over batches
        outer = {o for loop in kinds for o in loop.ancestry() if o is not loop}
        ruled_out = set(outer)
        for call in flow.calls:
            innermost = outside_displays(statement_loop(flow, call), kinds)
            if innermost is None or innermost in kinds or innermost in ruled_out or runs_one_of(flow, innermost, call):
                continue
            if self._evaluates_once(scope, call, _CHOOSES):
                kinds[innermost] = LoopKind.EVALUATE  # a step of an environment, whatever trains now and then beside it
            elif self.is_forward(scope, call) or self._hands_on_model(scope, call) or self._evaluates_once(scope, call):
                if self._holds_step_loop(scope, innermost.block):
                    ruled_out.add(innermost)
                else:
                    kinds[innermost] = LoopKind.EVALUATE
        return kinds

    def _evaluates(self, module: Module) -> bool:
        """Whether a file has the words of an evaluation: its functions may be called from there."""
        return self._evaluating.get(module, lambda: EVALUATION.passes(module.source.body))

    def training_acts(self, scope: Scope, call: ast.Call, depth: int = HOT_DEPTH) -> tuple[bool, bool]:
        """Whether a call runs a backward pass, and whether it steps an optimizer, once."""
        match call.func:
            case ast.Attribute(attr="backward", value=receiver):
                return path_of(receiver) not in ("torch.autograd.Function",), False
            case ast.Attribute(attr="manual_backward"):
                return True, False
            case ast.Attribute(attr="step", value=receiver):
                value = self._inference.value(scope, receiver)
                if value.may(is_optimizer) or (value.may(is_scaler) and call.args):
                    return False, True
        if depth <= 0:
            return False, False
        results = [self._acts_inside(target, depth - 1) for target in self.targets(scope, call)]
        return any(b for b, _ in results), any(s for _, s in results)

    def _acts_inside(self, scope: Scope, depth: int) -> tuple[bool, bool]:
        """Whether a function acts outside of loops; a helper that its own loop calls, too, is a step of that loop."""

        def acts() -> tuple[bool, bool]:
            backward = steps = False
            if (_ACTS_NEEDLE if depth > 0 else _ACTS_HERE).search(scope.text) is not None:
                with contextlib.suppress(SyntaxProblem):
                    flow = flow_of(scope)
                    for call in sorted(calls_outside_of_loops(flow), key=_acts_by_others):
                        runs_back, takes_step = self.training_acts(scope, call, depth)
                        backward, steps = backward or runs_back, steps or takes_step
                        if backward and steps:
                            break
            return backward, steps

        return self._steps.get((scope, depth), acts)

    def _iterates_over_batches(self, scope: Scope, loop: Loop) -> bool:
        if goes_over_chunks(flow_of(scope), loop):
            return True
        if loop.iterated is None or not may_give_batches(flow_of(scope), loop.iterated):
            return False
        value = self._inference.value(scope, loop.iterated)
        element = self._inference.element(value)
        return holds_batch(element)

    def is_forward(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call runs a module that is no criterion."""
        callee = call.func
        if not may_run_module(call):
            return False
        if isinstance(callee, ast.Attribute) and (call.args or call.keywords) and callee.attr not in MODULE_HOUSEKEEPING:
            unmade = scope.name == "__init__" and is_self(scope, callee.value)  # `self.make_layers(n)`: nothing runs yet
            if not unmade and self._inference.value(scope, callee.value).may(lambda a: is_neural_module(self._inference, a)):
                return True
        name = path_of(callee) or ""
        if re.search(r"crit(?!ic(?:_|$|\d))|loss", name.rpartition(".")[2], re.I):
            return False
        value = self._inference.value(scope, callee)
        if value == UNKNOWN and _MODEL.match(name):
            return any(d.kind == "parameter" for d in flow_of(scope).reaching.get(callee, ()))
        return value.may(lambda a: is_neural_module(self._inference, a))

    def _hands_on_model(self, scope: Scope, call: ast.Call, depth: int = HOT_DEPTH) -> bool:
        """Whether a call is handed a model, and runs it outside of loops: one step of a sampler."""
        given = [*call.args, *(k.value for k in call.keywords)]
        if depth <= 0 or not any(_MODELS.match(path_of(a) or "") for a in given):
            return False
        return any(self._runs_model(target, depth) for target in self.targets(scope, call))

    def _evaluates_once(self, scope: Scope, call: ast.Call, named: re.Pattern[str] = _EVALUATES) -> bool:
        """Whether a call runs a method that evaluates one batch, by its name and what it does: `engine.eval(x, y)`."""
        if not isinstance(call.func, ast.Attribute) or not call.args or not named.match(call.func.attr):
            return False
        return any(self._runs_model(target, 1) for target in self.targets(scope, call) if target.owner is not None)

    def _feeds_steps(self, scope: Scope) -> bool:
        """Whether a step loop goes over what a generator of the project gives: it makes the batches."""
        if scope.name == "__iter__":
            return belongs_to_loader(scope)
        if scope.is_module or scope.name.startswith("__"):
            return False
        sites = self._inference.callers.sites(scope).sites
        loops = ((site.scope, iterating_loop(flow_of(site.scope), site.node)) for site in sites)
        return any(loop is not None and loop in self.kinds(caller) for caller, loop in loops)

    def _runs_model(self, scope: Scope, depth: int) -> bool:
        with contextlib.suppress(SyntaxProblem):
            flow = flow_of(scope)
            once = [call for call in flow.calls if statement_loop(flow, call) is None]
            return any(self.is_forward(scope, call) or self._hands_on_model(scope, call, depth - 1) for call in once)
        return False

    def _holds_step_loop(self, scope: Scope, body: Block | None, depth: int = 2) -> bool:
        """Whether the functions that a loop's body (or a whole scope) calls hold a step loop: then it is an epoch loop."""
        flow = flow_of(scope)
        return any(
            self.kinds(target) or (depth > 1 and self._calls_step_loop(target, depth - 1))
            for call in flow.calls
            if body is None or flow.within(call, body)
            for target in self.targets(scope, call)
        )

    def _takes_steps(self, scope: Scope, body: Block, kinds: dict[Loop, LoopKind]) -> bool:
        """Whether a loop in a body, or in a function that it calls, steps an optimizer: what the body itself steps is rarer."""
        flow = flow_of(scope)
        inner = [loop.block for loop in kinds if loop.block is not body and flow.within(loop.block.node, body)]
        stepped = (call for call in flow.calls_named["step"] if any(flow.within(call, block) for block in inner))
        called = (target for call in flow.calls if flow.within(call, body) for target in self.targets(scope, call))
        return any(self.training_acts(scope, call)[1] for call in stepped) or any(
            _STEPS.search(target.text) is not None and LoopKind.TRAIN in self.kinds(target).values() for target in called
        )

    def _calls_step_loop(self, scope: Scope, depth: int) -> bool:
        """`_holds_step_loop` of a whole function, remembered: many loops call the same ones."""
        return self.solver.solve((scope, depth), lambda: self._holds_step_loop(scope, None, depth), False)

    def targets(self, scope: Scope, call: ast.Call) -> list[Scope]:
        """The functions of the project that a call may run."""
        return self._targets.get(call, lambda: self._find_targets(scope, call))

    def _find_targets(self, scope: Scope, call: ast.Call) -> list[Scope]:
        inference = self._inference
        if isinstance(call.func, ast.Attribute):
            receiver = inference.value(scope, call.func.value)
            found: list[Scope] = []
            for alternative in receiver.alternatives:
                if isinstance(alternative, Instance):
                    method = classes.find_method(inference, alternative.cls, call.func.attr)
                    if method is not None:
                        found.append(method)
                        others = classes.put_in_its_place(inference, alternative.cls, call.func.attr, 2)
                        found += (function for other in others for function in self._callable_scopes(other))
                        continue
                member = inference.member(alternative, call.func.attr, 2)
                found += self._callable_scopes(member)
            return found or self._callable_scopes(inference.value(scope, call.func))
        return self._callable_scopes(inference.value(scope, call.func))

    def may_run_others(self, scope: Scope, call: ast.Call) -> bool:
        """Whether a call may run a function that is not among its `targets`: `self` may be of any class that inherits."""
        inference = self._inference
        if isinstance(call.func, ast.Attribute) and inference.value(scope, call.func.value).open:
            return True
        return inference.value(scope, call.func).open

    def _callable_scopes(self, value: Value) -> list[Scope]:
        found: list[Scope] = []
        for alternative in value.alternatives:
            if isinstance(alternative, FunctionRef):
                found.append(alternative.scope)
            elif isinstance(alternative, Instance):
                for name in ("__call__", "forward"):
                    method = classes.find_method(self._inference, alternative.cls, name)
                    if method is not None:
                        found.append(method)
                        break
        return found

    # -- what runs each step -----------------------------------------------------------------------------------------

    def step_loop(self, scope: Scope, node: ast.AST) -> Loop | None:
        """The step loop whose every iteration evaluates `node`; None when it is guarded or outside."""
        flow = flow_of(scope)
        kinds = self.kinds(scope)
        found: Loop | None = None
        for block in flow.block[node].ancestry():
            if block.loop is not None and block is block.loop.block:
                if block.loop in kinds:
                    once = found is None and guards.once_then_leaves(flow, node, block.loop)
                    if once or (found is None and guards.skipped_by_guard(flow, node, block)):
                        return None
                    steps = kinds[block.loop] is LoopKind.TRAIN or self._iterates_over_batches(scope, block.loop)
                    if found is not None or steps:
                        return found or block.loop
                    found = block.loop  # a plain loop may itself stand under a guard of the step loop around it
            elif guards.is_guard(flow, block):
                return None if found is None or self.around(scope, block.node) is not None else found
            if guards.skipped_by_guard(flow, node, block):
                return None
        return found

    def around(self, scope: Scope, node: ast.AST) -> Loop | None:
        """The step loop around `node`, guarded or not."""
        kinds = self.kinds(scope)
        loop = flow_of(scope).loop(node)
        return next((outer for outer in loop.ancestry() if outer in kinds), None) if loop is not None else None

    def outermost(self, scope: Scope, node: ast.AST) -> Loop | None:
        """The outermost step loop around a node: how often all of it runs does not matter."""
        loop, kinds = flow_of(scope).loop(node), self.kinds(scope)
        return next((o for o in reversed(list(loop.ancestry())) if o in kinds), None) if loop is not None else None

    def heat(self, scope: Scope) -> Heat | None:
        """Why a function is hot, or None."""
        return None if scope.is_module else self._heat.get(scope, lambda: self._find_heat(scope))

    def _find_heat(self, scope: Scope) -> Heat | None:
        if is_step_hook(scope):
            return Heat.STEP
        if self.is_part_of_forward(scope) and not runs_now_and_then(scope):
            return Heat.FORWARD
        if self.hot_calls(scope) or self.is_training_step(scope) or gives_batch(scope) or self._is_trainers_loss(scope):
            return Heat.STEP
        if self._is_called_from_forward(scope):
            return Heat.FORWARD
        if self._is_loss_by_name(scope):
            return Heat.STEP
        return self.heat(scope.parent) if scope.parent is not None else None

    def _is_trainers_loss(self, scope: Scope) -> bool:
        """Whether a function is given to the runtime's trainer, in the scope around it, as what computes the loss."""
        outer = scope.parent or scope.module.top
        made = flow_of(outer).calls_named["Trainer"] if b"Trainer" in outer.text else []
        given = (c for c in made if any(isinstance(a, ast.Name) and a.id == scope.name for a in c.args))
        return any(self._inference.value(outer, call).may(is_trainer) for call in given)

    def _is_loss_by_name(self, scope: Scope) -> bool:
        """Whether a function that nobody calls by its name is handed on as a loss: `LOSSES = {"dice": dice_loss}`."""
        project, path = self._inference.project, scope.module.source.path
        if scope.parent is not None or scope.owner is not None or not is_named_like_loss(scope.name):
            return False
        if len(scope.parameters) < 2 or not project.near_training(path) or self._inference.callers.sites(scope).sites:
            return False
        name = scope.name.encode()
        handed_on = (name in (project.read(file) or b"") for file in project.importers(path))
        return len(scope.module.occurrences(scope.name)) > 1 or any(handed_on)

    def is_part_of_forward(self, scope: Scope) -> bool:
        """Whether a function is a module's forward pass, or a method that runs in one."""
        if scope.is_module or is_step_hook(scope):
            return False
        return self._in_forward.get(scope, lambda: in_forward(self._inference, scope))

    def _is_called_from_forward(self, scope: Scope, depth: int = HOT_DEPTH) -> bool:
        """Whether a forward pass runs a function that is no method of its module, each time."""
        if depth <= 0 or scope.is_module or scope.name in _NEVER_HOT or (_is_special(scope.name) and scope.name != "__call__"):
            return False
        if not self._inference.project.near_training(scope.module.source.path):
            return False
        return self._from_forward.get(
            (scope, depth),
            lambda: any(
                (self.is_part_of_forward(site.scope) or self._is_called_from_forward(site.scope, depth - 1))
                and not guards.is_guarded(flow_of(site.scope), site.node)
                for site in self._inference.callers.sites(scope).sites
            ),
        )

    def hot_calls(self, scope: Scope, depth: int = HOT_DEPTH) -> list[CallSite]:
        """The calls that run a function each step: from a step loop, or from a function that is hot itself."""
        if depth <= 0 or scope.is_module or scope.name in _NEVER_HOT - {"__init__"}:
            return []
        if not self._inference.project.near_training(scope.module.source.path):
            return []
        return self._hot.get((scope, depth), lambda: self._find_hot_calls(scope, depth))

    def _find_hot_calls(self, scope: Scope, depth: int) -> list[CallSite]:
        sites = self._inference.callers.sites(scope).sites
        trains = bool(sites) and self._acts_inside(scope, 1)[0]
        return [site for site in sites if self._is_hot(site, depth, trains)]

    def _is_hot(self, site: CallSite, depth: int, trains: bool) -> bool:
        """Whether a call runs each step. trains: what it runs makes a backward pass, so no guard makes it rare."""
        if self.step_loop(site.scope, site.node) is not None:
            return True
        if self.around(site.scope, site.node) is not None:
            return trains
        if not trains and guards.is_guarded(flow_of(site.scope), site.node):
            return False
        return is_step_hook(site.scope) or bool(self.hot_calls(site.scope, depth - 1)) or self.is_training_step(site.scope)

    def is_training_step(self, scope: Scope, depth: int = HOT_DEPTH) -> bool:
        """Whether a function is one step of a training, whoever calls it: outside of loops it steps an optimizer, or it is
        the step of one.

        One whose calls all stand outside of loops, in functions that are no steps, runs once.
        """
        if depth <= 0 or scope.is_module or scope.name in _NEVER_HOT or _TRIES_OUT.match(scope.name):
            return False
        return self._is_step.get((scope, depth), lambda: self._find_is_step(scope, depth))

    def is_of_training(self, scope: Scope, node: ast.AST, depth: int = HOT_DEPTH) -> bool:
        """Whether what runs each step does so in a training, or in a forward pass, and not in evaluations alone."""
        loop = self.step_loop(scope, node)
        if loop is not None:
            kinds = self.kinds(scope)
            while kinds.get(loop) is not LoopKind.TRAIN and counts_rounds(loop) and loop.parent is not None:
                loop = loop.parent  # its rounds are parts of a step, such as those through time
            return kinds.get(loop) is LoopKind.TRAIN
        if is_step_hook(scope):
            return scope.name == "training_step"
        if self.heat(scope) is Heat.FORWARD or self.is_training_step(scope):
            left = guards.is_left_to_evaluation(flow_of(scope), node)
            return not left and not is_called_to_evaluate(self._inference, scope, depth)
        return depth > 0 and any(self.is_of_training(site.scope, site.node, depth - 1) for site in self.hot_calls(scope))

    def _find_is_step(self, scope: Scope, depth: int) -> bool:
        if scope.name == "step" and scope.owner is not None and classes.is_optimizer_class(self._inference, scope.owner):
            return True
        if not self._acts_inside(scope, HOT_DEPTH - 1)[1]:
            return False
        sites = self._inference.callers.sites(scope).sites
        return not sites or any(
            statement_loop(flow_of(site.scope), site.node) is not None or self.is_training_step(site.scope, depth - 1)
            for site in sites
        )


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_no_pass(name: str) -> bool:
    """Sorts backward passes first, for which a look at the name is enough."""
    return name not in ("backward", "manual_backward")


def _acts_by_others(call: ast.Call) -> bool:
    """Sorts calls that act themselves first, before those whose functions have to be looked at."""
    return not (isinstance(call.func, ast.Attribute) and call.func.attr in ("backward", "manual_backward", "step"))


def is_step_hook(scope: Scope) -> bool:
    """Whether a training framework calls a method once per batch."""
    return scope.name in LIGHTNING_STEP_HOOKS and scope.owner is not None


def never_runs_each_step(scope: Scope) -> bool:
    """Whether nothing in a scope runs once per batch, by its text: a file's own code without a loop."""
    return scope.is_module and _LOOP_NEEDLE.search(scope.text) is None
