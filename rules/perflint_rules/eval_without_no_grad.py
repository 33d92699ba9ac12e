"""A forward pass records a graph that nobody uses.

## What it does
Finds forward passes with autograd on, in evaluations (by their name, because they or all of their callers call `eval()`), in
functions by which an agent chooses an action, and wherever the result is only detached, compared or turned into numbers.

## Why it costs memory and time
Every layer keeps what its backward pass would need. Reported: validation memory of 6.4 to 8.1 GB against 1.1 to 2.3 GB
(facebookresearch/fairchem#199).

## Example
```python
def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        out = model(x)
        correct += (out.argmax(1) == y).sum().item()
    return correct
```

## Use instead
```python
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        out = model(x)
        correct += (out.argmax(1) == y).sum().item()
    return correct
```

## When it stays silent
Under `no_grad` or `inference_mode`, lexically, by a decorator or by every caller; where the other branch of an `if` runs the
network without autograd, or it trains; for frozen networks, those that keep results for another method, and modules of the
project without parameters; in what runs once; in functions with `autograd.grad` or a backward pass, also in what they call,
unless a caller's flag rules that out; in hooks that a framework runs without autograd; in test suites; when a caller
back-propagates the result, and when a function that evaluates by neither name nor `eval()` returns it. Select it to see what no
loop of a program that trains repeats: single passes, agents that act, what draws pictures or looks at some batches.

## Fix safety
Safe when no tensor leaves the function with its graph (only numbers, arrays and detached tensors do), nothing that the function
calls, names, hands on or iterates over asks for gradients itself or keeps a tensor (modules, functions, properties, operators,
datasets), and the function is no generator and no coroutine. All that runs writes in place to nothing but what it has made,
makes no text, array or deep copy of a tensor that may have a graph, and the program registers no hooks, puts no method in the
place of another and records no warnings. Otherwise unsafe, also where something unknown gets a tensor or network. Each layer
must be known: one of torch's that were measured to give the same bits with and without autograd (9,294 comparisons, torch 2.13
on the CPU), a container that is built from such layers in sight, or a class of the project that calls nothing else. A network
that is handed in from elsewhere, wrapped, compiled, pruned, quantised or changed from outside is unknown, and so are methods
that a decorator or a metaclass may replace, and functions that a notebook or `getattr` may call with another network. Unsafe,
too, with recurrent layers, `nn.MultiheadAttention`, `nn.Transformer` layers, `scaled_dot_product_attention`, products of
matrices other than those of linear layers, weight norms and some decompositions: torch runs other kernels for them without
autograd, whose results differ in the last bits (torch 2.13 on the CPU: an LSTM by up to 4e-8, an encoder layer by up to 7e-7;
GRU and RNN on CUDA were not measured). And inside a region of `torch.autocast`: without pytorch#165068 (December 2025) the
region remembers converted weights without their graph, and what is trained in it afterwards gets no gradients. The fix never
uses `inference_mode`, and for a function that trains, too, there is none.
"""

import ast
from collections.abc import Iterator

from perflint.api import (
    CALLS_EVAL,
    LOOKS_AT_FUNCTIONS,
    NETWORK_CALL,
    CannotRewrite,
    Code,
    Cost,
    Edit,
    Finding,
    Import,
    Instance,
    Severity,
    acts,
    any_layout,
    are_differentiated,
    backward_below,
    backward_in,
    called_from,
    called_in_evaluation,
    calls_eval,
    computes_with_network,
    decorate,
    evaluates,
    function_without_graph,
    graph_ends,
    hands_to_network,
    is_for_caller,
    is_neural_module,
    is_test,
    is_tried_out,
    keyword,
    only_evaluates,
    rule,
    statement_without_graph,
    suspends,
    wastes_no_graph,
    words,
    wrap_statement,
)
from perflint_rules.flagged_evaluations import flagged
from perflint_rules.worth_of_evaluations import goes_over_data

_EVALUATION = any_layout(
    rb"def[\s\\]+\w*(?i:eval|test|val|infer|predict|sampl|generat|embed|encod|extract|scor|bench)\w* [\[(]"
)
_ACTS = any_layout(rb"def[\s\\]+\w*act(?:ions?)?\w* \(")
_MAY_TRAIN = any_layout(rb"backward \(|zero_grad")
_NEXT = ("no-grad-to-inference-mode",)
_FRAMEWORK_HOOKS = words("validation_step test_step predict_step training_step forward __call__ training_epoch_end")


@rule(
    category="autograd",
    costs=Cost.MEMORY,
    severity=Severity.WARNING,
    needs=[
        (_EVALUATION, _ACTS, "backward(", "zero_grad", ".eval(", ".item(", ".cpu(", ".detach(", ".tolist(", "argmax"),
        (".eval(", *keyword("for"), *keyword("while"), ".detach(", ".data", "argmax", _ACTS),
        (NETWORK_CALL, ".eval("),
    ],
    fixes=True,
    by_fix=True,
)
def check(code: Code) -> Iterator[Finding]:
    """Report forward passes whose graph is dropped."""
    scope = code.scope
    if is_test(scope) or scope.name in _FRAMEWORK_HOOKS or _is_part_of_network(code):
        return
    if not CALLS_EVAL.search(code.source.body) and not code.facts.project.near_training(code.source.path):
        return
    unnamed = not _EVALUATION.search(scope.text) and not _MAY_TRAIN.search(scope.text)
    if unnamed and (scope.is_module or not (calls_eval(scope) or acts(scope) or called_in_evaluation(code.facts, scope))):
        return
    trains = backward_in(code.facts, scope)
    yield from flagged(code) if trains else ()
    evaluation = not scope.is_module and not trains and (unnamed or evaluates(scope))
    if not (trains or scope.is_module) and (not evaluation or is_tried_out(code.facts, scope)):
        return
    forwards = [call for call in code.flow.calls if computes_with_network(code.facts, scope, call)]
    if unnamed and (not forwards or backward_below(code.facts, scope)):
        return
    evaluation = evaluation and not any(_MAY_TRAIN.search(below.text) for below in called_from(code.facts, scope))
    if not forwards and CALLS_EVAL.search(scope.text):
        helped = (call for call in code.flow.calls if hands_to_network(code.facts, scope, call))
        forwards = [call for call in helped if evaluation or only_evaluates(code.facts, scope, call)]
    rows = sorted({node.lineno for node in code.flow.order if isinstance(node, ast.stmt)})
    reported, said = list[int](), set[ast.stmt]()
    for call in forwards:
        if wastes_no_graph(code.facts, scope, call) or (scope.is_module and code.flow.loop(call) is None):
            continue
        dropped = code.text(code.flow.statement(call)).removeprefix("_ = ") == code.text(call)
        if dropped and (not evaluation or code.flow.loop(call) is None):  # a warm-up call is none of our business
            continue
        if evaluation:
            number = rows.index(code.flow.statement(call).lineno)
            if any(abs(number - other) <= 1 for other in reported):
                continue
        ends = graph_ends(code.facts, scope, call)
        if (unnamed and ends) or are_differentiated(code.facts, scope, ends):
            continue
        if evaluation:
            if is_for_caller(code.facts, scope, call, ends):
                continue
            reported.append(number)
            missing = [*function_without_graph(code.facts, scope, call, forwards, ends), *code.feared(LOOKS_AT_FUNCTIONS)]
            edits = _decorated(code) if len(reported) == 1 else ()
            fix = code.fix("switch autograd off for the function", edits, unless=missing, leads_to=_NEXT) if edits else None
            message = "the evaluation records a graph that nobody uses; put `@torch.no_grad()` on the function"
            yield code.finding(call, message, fix, missing, severity=None if goes_over_data(code, call) else Severity.INFO)
        elif not ends and code.flow.statement(call) not in said:
            said.add(code.flow.statement(call))
            missing = statement_without_graph(code.facts, scope, call)
            fix = code.fix("switch autograd off for the call", _wrapped(code, call), unless=missing, leads_to=_NEXT)
            message = "this forward pass records a graph, and every use of its result drops it; run it under `torch.no_grad()`"
            yield code.finding(call, message, fix, missing, severity=Severity.INFO)


def _is_part_of_network(code: Code) -> bool:
    """Whether a method of a network is for others to run; one that runs a backward pass trains what is in it."""
    owner = None if _MAY_TRAIN.search(code.scope.text) else code.scope.owner
    return owner is not None and is_neural_module(code.facts.inference, Instance(owner))


def _decorated(code: Code) -> Iterator[Edit | Import]:
    function = code.scope.function
    if function is None or isinstance(function, ast.AsyncFunctionDef) or suspends(code.flow):
        raise CannotRewrite("a decorator has no effect on a coroutine")
    torch, imports = code.name_for("torch")
    yield from imports
    yield decorate(code.source, function, f"{torch}.no_grad()")


def _wrapped(code: Code, call: ast.Call) -> Iterator[Edit | Import]:
    torch, imports = code.name_for("torch")
    yield from imports
    yield wrap_statement(code.source, code.flow.statement(call), f"with {torch}.no_grad():")
