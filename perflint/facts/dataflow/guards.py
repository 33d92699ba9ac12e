"""Which code runs only now and then: every N steps, on the first one, after an exception, once and out."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from itertools import takewhile

from perflint.facts.dataflow.definitions import Block, Loop, path_of
from perflint.facts.dataflow.flow import Flow, flow_of
from perflint.facts.dataflow.latches import keeps_for_later, puts_itself_off
from perflint.facts.dataflow.messages import warns
from perflint.source.nodes import defaults_of, walk
from perflint.source.syntax import SyntaxProblem
from perflint.source.texts import last_name
from perflint.source.words import any_layout, made

BACKWARD_CALLS = ("backward", "manual_backward")
_LEAVING = (ast.Continue, ast.Return, ast.Raise, ast.Break)
_GUARD_NAMES = made(r"(?:^|_)(?:log|print|verbose|debug|pytest|display|vis|plot|save|ckpt|checkpoint|report|sample)", re.I)
_FLAGS = made(r"(?:do|should|need|needs|run)_(?:eval|valid|test|infer)", re.I)
"""Names for whether it is time for an evaluation."""
_TRAINS = made(r"_?(?:(?:manual_)?backward|step|optimi[sz]e|train|learn|update)(?:_|$)")
"""What a function calls that trains, or has others train."""
_LEARNER = made(r"^(?:self|cls)$|agent|policy|learner|trainer|algo|actor|critic|model|net|ppo|dqn|sac", re.I)
_IS_TIME = made(r"_?(?:should|is_time|time_to|is_due)(?:_|$)")
_CHOSEN = made(r"(?:^|_)(?:steps|iterations|iters|rounds|batches|epochs|indices|milestones)$", re.I)
"""Names for some rounds that were chosen before."""
_EXITS = frozenset(("sys.exit", "exit", "quit", "os._exit"))
_EMPTY = frozenset(((ast.Eq, 0), (ast.LtE, 0), (ast.Lt, 1)))
_FULL = frozenset(((ast.NotEq, 0), (ast.Gt, 0), (ast.GtE, 1)))
"""Comparisons of a size that hold for nothing at all, and those that fail for it: a batch is seldom empty."""
_TRAINING = frozenset(("training", "is_training", "is_train"))
_BATCH_NUMBERS = frozenset(("batch_idx", "batch_index", "iteration", "global_step"))
"""What the hooks of a trainer are given, and functions that report."""
_RARE_CALLS = frozenset(("isnan", "isinf", "is_nan"))
_USUAL_CALLS = frozenset(("isfinite",))


def is_guard(flow: Flow, block: Block) -> bool:
    """Whether a block runs only now and then: every N steps, on the first step, after an exception.

    A block that runs a backward pass is a step of training itself, however seldom: the update of a policy, say.
    """
    known = flow.guards.get(block)
    if known is None:
        known = flow.guards[block] = _is_guard(flow, block)
    return known


def is_run_alone(block: Block) -> bool:
    """Whether a block runs only if its file is run itself: `if __name__ == "__main__":`."""
    match block.node:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()])):
            return block.kind == "then"
    return False


def is_guarded(flow: Flow, node: ast.AST) -> bool:
    """Whether a node stands in a block that runs only now and then, or behind a return from most calls of its function.

    A function that trains behind such a return does so in a step, however seldom.
    """
    blocks = list(flow.block[node].ancestry())
    if any(is_guard(flow, block) for block in blocks):
        return True
    returned = any(block.loop is None and skipped_by_guard(flow, node, block) for block in blocks)
    return returned and not any(any(map(_trains, calls)) for name, calls in flow.calls_named.items() if _TRAINS.match(name))


def _trains(call: ast.Call) -> bool:
    """Whether a call of such a name trains: `agent.update(batch)`, but not `settings.update(lr=0.1)` of a dict or a meter."""
    match call.func:
        case ast.Attribute(value=owner, attr="update"):
            return _LEARNER.search(last_name(owner)) is not None
    return True


def _is_guard(flow: Flow, block: Block) -> bool:
    if block.kind == "handler":
        return True
    if isinstance(block.node, ast.BoolOp):
        # `step % 100 == 0 and loss.item() > 3`: each operand stands in a block inside that of the one before
        operand = sum(other.node is block.node for other in block.ancestry())
        return is_periodic(flow, block.node.values[operand - 1], negated=isinstance(block.node.op, ast.Or))
    if block.kind not in ("then", "else", "operand") or not isinstance(block.node, (ast.If, ast.IfExp)):
        return False
    if isinstance(block.node, ast.If):
        body = block.node.body if block.kind == "then" else block.node.orelse
        if _gives_up(body) or (len(block.node.orelse) == 0 and warns(body)):
            return True
    if is_periodic(flow, block.node.test, negated=block.kind == "else") or puts_itself_off(flow, block):
        return not any(flow.within(call, block) for name in BACKWARD_CALLS for call in flow.calls_named.get(name, ()))
    return keeps_for_later(flow, block)


def _gives_up(body: list[ast.stmt]) -> bool:
    """Whether a block ends in an error, or ends the program: no step goes on behind it."""
    return bool(body) and (isinstance(body[-1], ast.Raise) or _ends_program(body[-1]))


_COMPUTED = (ast.BinOp, ast.Call)


def is_left_to_evaluation(flow: Flow, node: ast.AST) -> bool:
    """Whether a module gets to a node only while it does not train: `if not self.training`, `else`."""
    for block in flow.block[node].ancestry():
        match block.node:
            case ast.If(test=test) if _is_no_training(test, holds=block.kind != "else"):
                return True
            case ast.IfExp(test=asked, orelse=otherwise) if node is not asked:
                if _is_no_training(asked, holds=all(part is not node for part in ast.walk(otherwise))):
                    return True
    statement: ast.AST = flow.statement(node)
    while isinstance(statement, ast.stmt) and statement is not flow.scope.node:
        for other in flow.siblings(statement):
            if other is statement:
                break
            if isinstance(other, ast.If) and _leaves_training(other):
                return True
        statement = flow.parent[statement]
    return False


def _leaves_training(statement: ast.If) -> bool:
    """`if self.training: return ...`: whether a module that trains gets no further."""
    return isinstance(statement.body[-1], ast.Return) and _is_no_training(statement.test, holds=False)


def _is_no_training(test: ast.expr, *, holds: bool) -> bool:
    """Whether a module is not training where a test holds, or does not: `not self.training`, `is_training or self.whole`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_no_training(operand, holds=not holds)
        case ast.BoolOp(op=op, values=values):
            # each operand of an `and` that holds, does, and none of an `or` that does not
            needed = any if isinstance(op, ast.And) is holds else all
            return needed(_is_no_training(value, holds=holds) for value in values)
        case ast.Attribute(value=ast.Name(id="self"), attr=name) | ast.Name(id=name) if name in _TRAINING:
            return not holds
    return False


def is_seldom(flow: Flow, node: ast.AST, loop: Loop | None = None) -> bool:
    """Whether a node runs every N steps only, also where a whole step of training does.

    loop: the one whose rounds are the steps; how often all of it runs does not matter.
    """
    inside = takewhile(lambda block: loop is None or block is not loop.block, flow.block[node].ancestry())
    return any(
        isinstance(block.node, (ast.If, ast.IfExp)) and is_periodic(flow, block.node.test, negated=block.kind == "else")
        for block in inside
        if block.kind in ("then", "else", "operand")
    )


def is_periodic(flow: Flow, test: ast.expr, negated: bool = False, depth: int = 3) -> bool:
    """Whether a condition holds only now and then (or, negated, fails only now and then)."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            if _has_modulo(operand) and not isinstance(operand, ast.Compare):
                return not negated
            return is_periodic(flow, operand, not negated, depth)
        case ast.BinOp(op=ast.Mod()):
            return negated
        case ast.Constant(value=value):
            return bool(value) == negated  # `if False:` never runs
        case ast.BoolOp(op=op, values=values):
            some = isinstance(op, ast.And) != negated
            periodic = [is_periodic(flow, v, negated, depth) for v in values]
            if some or not any(periodic):
                return any(periodic)
            return all(now or _is_off_by_default(flow, v, negated) for v, now in zip(values, periodic, strict=True))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            equal = isinstance(op, (ast.Eq, ast.Is)) != negated
            if _has_modulo(left) or _has_modulo(right):
                ordered = isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
                return equal if not ordered else not negated
            if isinstance(op, (ast.Eq, ast.NotEq)) and (_counts(flow, left) or _counts(flow, right)):
                return equal
            if isinstance(op, (ast.In, ast.NotIn)) and (_counts(flow, left) or _CHOSEN.search(last_name(right))):
                return isinstance(op, ast.In) != negated  # some rounds that were chosen before
            if isinstance(op, (ast.Lt, ast.LtE)) and _counts(flow, left) and isinstance(right, ast.Constant):
                return not negated
            if isinstance(right, ast.Constant) and (type(op), right.value) in (_FULL if negated else _EMPTY):
                return _is_size(flow, left) or (negated and _counts(flow, left))
            return (_is_rare(test) or _is_seldom(left, op, right) or _are_few(left, op, right)) and not negated
        case ast.Name() | ast.Attribute():
            name = (path_of(test) or "").rpartition(".")[2]
            if _GUARD_NAMES.search(name) or _FLAGS.match(name):
                return not negated
            if _counts(flow, test):
                return negated  # `if not batch_idx`: the first one
            found = flow.reaching.get(test, frozenset())
            values_of = [d.value for d in found if d.kind == "assign" and d.value is not None and not d.index]
            if depth and found and len(values_of) == len(found):
                return all(is_periodic(flow, v, negated, depth - 1) for v in values_of)
        case ast.Call():
            name = (path_of(test.func) or "").rpartition(".")[2]
            if name in _USUAL_CALLS or (name == "all" and _holds_usual(test)):
                return negated
            if not negated and (_is_rare(test) or _GUARD_NAMES.search(name) or _IS_TIME.match(name)):
                return True
            return depth > 0 and _answers_now_and_then(flow, test, negated, depth - 1)
    return False


def _is_off_by_default(flow: Flow, test: ast.expr, negated: bool) -> bool:
    """Whether a condition holds (or, negated, fails) only for callers that ask for it: `force`, a parameter that is False."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_off_by_default(flow, operand, not negated)
        case ast.Name(id=name) if not negated:
            default = defaults_of(flow.scope.node).get(name)
            return isinstance(default, ast.Constant) and default.value is False
    return False


def _answers_now_and_then(flow: Flow, call: ast.Call, negated: bool, depth: int) -> bool:
    """`self.is_logged(step)`, a function of the same class or file that returns `step % 100 == 0`."""
    own = flow.scope.owner.methods if flow.scope.owner is not None else {}
    called = (own if path_of(call.func) == f"self.{last_name(call.func)}" else flow.scope.module.scopes).get(
        last_name(call.func)
    )
    if called is None or b"%" not in called.text:
        return False
    with suppress(SyntaxProblem):
        inner = flow_of(called)
        given = [returned.value for returned in inner.returns]
        return bool(given) and all(value is not None and is_periodic(inner, value, negated, depth) for value in given)
    return False


def _is_rare(test: ast.expr) -> bool:
    return _calls_one_of(test, _RARE_CALLS)


def _holds_usual(test: ast.expr) -> bool:
    return _calls_one_of(test, _USUAL_CALLS)


def _calls_one_of(test: ast.expr, names: frozenset[str]) -> bool:
    return any(isinstance(n, ast.Call) and last_name(n.func) in names for n in walk(test))


def _is_seldom(left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
    """`random.random() < 0.001`: by chance, one step in ten or fewer."""
    drawn = isinstance(left, ast.Call) and (path_of(left.func) or "").rpartition(".")[2] in ("random", "rand", "uniform")
    return drawn and isinstance(op, (ast.Lt, ast.LtE)) and isinstance(right, ast.Constant) and _is_small(right.value)


def _are_few(left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
    """`len(self.examples) < self.examples_wanted`: the first ones."""
    match left:
        case ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=ast.Name(id="self"))]):
            return isinstance(op, (ast.Lt, ast.LtE)) and isinstance(right, (ast.Name, ast.Attribute))
    return False


def _is_small(value: object) -> bool:
    return isinstance(value, (int, float)) and value <= 0.1


def _is_size(flow: Flow, node: ast.expr, depth: int = 2) -> bool:
    """Whether a number says how many elements there are: `len(x)`, `x.shape[0]`, `x.numel()`, a name for one of these."""
    match node:
        case ast.Call(func=ast.Name(id="len")) | ast.Call(func=ast.Attribute(attr="numel" | "nelement" | "size")):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape")):
            return True
        case ast.Name() if depth:
            found = flow.reaching.get(node, frozenset())
            values_of = [d.value for d in found if d.kind == "assign" and d.value is not None and not d.index]
            return bool(found) and len(values_of) == len(found) and all(_is_size(flow, v, depth - 1) for v in values_of)
    return False


def _has_modulo(node: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in walk(node))


def _counts(flow: Flow, node: ast.expr, depth: int = 3) -> bool:
    """Whether an expression is a counter, of a loop or an object, or goes up with it: `i + 1`, `int(epoch * n + i)`."""
    if isinstance(node, ast.Call) and last_name(node.func) == "int" and len(node.args) == 1:
        return _counts(flow, node.args[0], depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.FloorDiv)):
        return _counts(flow, node.left, depth) or (isinstance(node.op, ast.Add) and _counts(flow, node.right, depth))
    if _is_counter_of_object(flow, node):
        return True
    for definition in flow.reaching.get(node, frozenset()):
        if definition.kind == "for" and definition.value is not None:
            if _goes_over_numbers(flow, definition.value, definition.index[:1] == (0,), depth):
                return True
        elif definition.kind == "augmented" or (definition.kind == "parameter" and definition.name in _BATCH_NUMBERS):
            return True
        elif depth and definition.kind == "assign" and not definition.index and isinstance(definition.value, _COMPUTED):
            if _counts(flow, definition.value, depth - 1):
                return True
    return False


def _goes_over_numbers(flow: Flow, iterated: ast.expr, takes_first: bool, depth: int) -> bool:
    """Whether a loop counts: over a range, a bar of one, a name for one; takes_first: what `enumerate` gives first."""
    match iterated:
        case ast.Call():
            name = (path_of(iterated.func) or "").rpartition(".")[2]
            if name in ("range", "trange", "xrange"):
                return True
            if name == "tqdm" and iterated.args and depth:
                if _goes_over_numbers(flow, iterated.args[0], takes_first, depth - 1):
                    return True
            return name in ("enumerate", "tqdm") and takes_first and not _are_arguments(flow, iterated.args)
        case ast.NamedExpr(value=named):  # `in (bar := tqdm(range(n)))`
            return _goes_over_numbers(flow, named, takes_first, depth)
        case ast.Name() if depth:
            found = flow.reaching.get(iterated, frozenset())
            values_of = [d.value for d in found if d.kind == "assign" and d.value is not None and not d.index]
            given = bool(found) and len(values_of) == len(found)
            return given and all(_goes_over_numbers(flow, value, takes_first, depth - 1) for value in values_of)
    return False


def _is_counter_of_object(flow: Flow, node: ast.expr) -> bool:
    """`self.step`, where some method has `self.step += 1`."""
    if not isinstance(node, ast.Attribute) or path_of(node) != f"self.{node.attr}" or flow.scope.owner is None:
        return False
    counted = any_layout(rb"self \. %s \+= 1\b" % node.attr.encode())
    return any(counted.search(method.text) for method in flow.scope.owner.methods_assigning(node.attr))


def _are_arguments(flow: Flow, given: list[ast.expr]) -> bool:
    """Whether a loop goes over `*inputs` of its function, or over a tuple: its first round is no rarer than the function."""
    match given:
        case [ast.Tuple() | ast.List(), *_]:
            return True
        case [ast.Name(id=name), *_] if isinstance(flow.scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            rest = flow.scope.node.args.vararg
            return rest is not None and rest.arg == name
    return False


def skipped_by_guard(flow: Flow, node: ast.AST, block: Block) -> bool:
    """Whether an earlier `if step % n: continue` in a block around `node` makes it run only now and then."""
    while (parent := flow.parent.get(node)) is not block.node:
        if parent is None:
            return False
        node = parent
    statements = flow.siblings(node) if isinstance(node, ast.stmt) else []
    if not statements:
        return False
    first = statements[0]
    if first not in flow.skips:
        flow.skips[first] = next((s for s in statements if isinstance(s, ast.If) and _skips_the_rest(flow, s)), None)
    guard = flow.skips[first]
    return guard is not None and flow.order[guard] < flow.order[node]


def _skips_the_rest(flow: Flow, guard: ast.If) -> bool:
    leaves = not guard.orelse and isinstance(guard.body[-1], _LEAVING)
    return leaves and is_periodic(flow, guard.test, negated=True) and not _is_rare(guard.test)


def leaves_block(body: list[ast.stmt]) -> bool:
    """Whether nothing behind some statements runs: they end in `return`, `break`, `raise` or `sys.exit()`."""
    return bool(body) and (isinstance(body[-1], _LEAVING) or _ends_program(body[-1]))


def _ends_program(statement: ast.stmt) -> bool:
    """`sys.exit(1)`."""
    called = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(called, ast.Call) and path_of(called.func) in _EXITS


def is_behind_the_end(flow: Flow, node: ast.AST) -> bool:
    """Whether a node stands behind a `return` or the like, where no run gets to."""
    statement: ast.AST = flow.statement(node)
    while isinstance(statement, ast.stmt) and statement is not flow.scope.node:
        siblings = flow.siblings(statement)
        above = siblings[: siblings.index(statement)] if siblings else []  # a lambda's only statement has none
        if any(leaves_block([other]) for other in above):
            return True
        statement = flow.parent.get(statement, flow.scope.node)
    return False


def once_then_leaves(flow: Flow, node: ast.AST, loop: Loop) -> bool:
    """Whether the block around `node` ends the loop, so that it runs once."""
    statement: ast.AST = flow.statement(node)
    while statement is not loop.node:
        parent = flow.parent.get(statement)
        if parent is None:
            return False
        siblings = flow.siblings(statement) if isinstance(statement, ast.stmt) else []
        if (
            siblings
            and (isinstance(siblings[-1], (ast.Break, ast.Return, ast.Raise)) or _ends_program(siblings[-1]))
            and parent is not flow.scope.node
        ):
            return True
        statement = parent
    return False
