"""The pass over a scope, its statements: branches join, a loop's head joins the way in with the way back."""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from perflint.facts.dataflow.definitions import Block, Definition, Environment, Loop
from perflint.facts.dataflow.expression_pass import ExpressionPass
from perflint.source.nodes import walk
from perflint.source.syntax import FunctionNode, Scope
from perflint.source.words import made

TRY_STAR: Final[Any] = getattr(ast, "TryStar", ast.Try)
"""`try` with `except*`, which Python 3.10 does not know."""


class StatementPass(ExpressionPass):
    """The abstract interpretation of a scope's statements."""

    def run(self) -> None:
        scope = self.notes.scope
        for parameter in scope.parameters:
            self.note(parameter, scope.node)
            self.bind(parameter.arg, parameter, "parameter", None)
        self.statements(scope.body, scope.node)
        self.notes.falls_through = self.env is not None

    def statements(self, body: list[ast.stmt], parent: ast.AST) -> None:
        for statement in body:
            if self.recording:
                self.notes.parent[statement] = parent
                self.notes.block[statement] = self.block
                self.number += 1
                self.notes.order[statement] = self.number
            self.statement(statement)

    def run_block(self, block: Block, body: list[ast.stmt], parent: ast.AST) -> None:
        outer, self.block = self.block, block
        self.statements(body, parent)
        self.block = outer

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=value):
                self.expression(value, node)
            case ast.Assign(targets=targets, value=value):
                self.expression(value, node)
                for target in targets:
                    self.assign(target, node, "assign", value)
            case ast.AugAssign(target=target, value=value):
                self.expression(target, node)
                self.expression(value, node)
                self.assign(target, node, "augmented", value)
            case ast.AnnAssign(target=target, value=annotated):
                if annotated is not None:
                    self.expression(annotated, node)
                    self.assign(target, node, "assign", annotated)
                if self.notes.scope.is_module:  # a function does not evaluate those of its variables
                    self.expression(node.annotation, node)
            case ast.If(test=test, body=body, orelse=orelse):
                self.expression(test, node)
                before = self.env
                self.env = self.copied(before)
                self.run_block(self.inside("then", node), body, node)
                after_body, self.env = self.env, before
                self.run_block(self.inside("else", node), orelse, node)
                self.env = self.joined((after_body, self.env))
            case ast.For() | ast.AsyncFor():
                self.expression(node.iter, node)
                self.suspend(node)
                self.loop(node, node.body, node.orelse)
            case ast.While():
                self.loop(node, node.body, node.orelse)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                outer = self.block
                self.block = self.inside("with", node)
                self.suspend(node)
                for item in items:
                    self.note(item, node)
                    self.expression(item.context_expr, item)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, item, "with", item.context_expr)
                if may_swallow(node):
                    entered = self.copied(self.env)
                    self.raises.append([])
                    self.statements(body, node)
                    self.env = self.joined((self.env, self.with_partial(entered, self.raises.pop())))
                else:
                    self.statements(body, node)
                self.block = outer
            case ast.Return(value=returned):
                if returned is not None:
                    self.expression(returned, node)
                if self.recording:
                    self.notes.returns.append(node)
                self.leave_loops()
                self.env = None
            case ast.Raise():
                self.children(node, node)
                self.env = None
            case ast.Break():
                self.leave_loops(1)
                if self.env is not None and self.breaks:
                    self.breaks[-1].append(self.env)
                self.env = None
            case ast.Continue():
                self.leave_loops(1)
                if self.env is not None and self.continues:
                    self.continues[-1].append(self.env)
                self.env = None
            case ast.Try():
                self.try_statement(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node)
            case ast.ClassDef(name=name):
                for child in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
                    self.expression(child, node)
                inside = [n for s in node.body for n in walk(s)]
                self.notes.class_names.update(n.id for n in inside if isinstance(n, ast.Name))
                if not self.notes.scope.is_module:  # its methods are no scopes
                    self.notes.class_members.update(n.attr for n in inside if isinstance(n, ast.Attribute))
                    self.note_inner_names(node)
                    if self.recording:
                        self.notes.inner_classes.append(node)
                self.bind(name, node, "class", None)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    if alias.name != "*":
                        self.bind(alias.asname or alias.name.partition(".")[0], alias, "import", None)
                        self.note(alias, node)
            case ast.Delete(targets=targets):
                for target in targets:
                    self.delete(target, node)
            case ast.Global(names=outer_names) | ast.Nonlocal(names=outer_names):
                self.notes.outer_names.update(outer_names)
            case ast.Assert(test=test, msg=message):
                self.expression(test, node)
                if message is not None:
                    self.operand("message", message, node)
            case ast.Match():
                self.match_statement(node)
            case ast.Pass():
                placeholder = self.notes.scope.module.placeholders.get(node.lineno)
                if isinstance(placeholder, Scope) and self.notes.scope.is_module:
                    self.bind(placeholder.name, node, "function", None)
            case _:
                if isinstance(node, TRY_STAR):
                    self.try_statement(node)
                else:
                    self.children(node, node)

    def function(self, node: FunctionNode) -> None:
        defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
        for child in (*node.decorator_list, *defaults):
            self.expression(child, node)
        if not self.notes.scope.is_module:  # a module's functions are scopes of their own
            self.note_inner(node)
        self.bind(node.name, node, "function", None)

    def leave_loops(self, count: int | None = None) -> None:
        for loop in list(self.block.loops())[:count]:
            self.notes.leaves[loop] = True

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        block = Block("loop", node, self.block)
        block.loop = Loop(node, self.block.loop, block)
        head = self.head(node, body, block)
        if self.recording:
            self.notes.loops.append(block.loop)
        self.breaks.append([])
        _, end = self.iteration(node, body, block, head, keep_breaks=True)
        left = self.breaks.pop()
        never_ends = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        self.env = None if never_ends else end
        self.run_block(self.inside("loop-else", node), orelse, node)
        self.env = self.joined((self.env, *left))

    def head(self, node: ast.For | ast.AsyncFor | ast.While, body: list[ast.stmt], block: Block) -> Environment | None:
        """What holds at a loop's head in any iteration.

        The passes over an outer loop only widen what enters an inner one, so each goes on from what the last one found:
        otherwise the cost would double with each loop around.
        """
        entry = self.env
        known_entry, head = self.heads.get(node, (None, None))
        if known_entry == entry and head is not None:
            return head
        recording, self.recording = self.recording, False
        head = self.joined((entry, head))
        for _ in range(3):
            back, _ = self.iteration(node, body, block, head)
            widened = self.joined((head, back))
            if widened == head:
                break
            head = widened
        self.recording = recording
        self.heads[node] = (entry, head)
        return head

    def iteration(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        body: list[ast.stmt],
        block: Block,
        head: Environment | None,
        keep_breaks: bool = False,
    ) -> tuple[Environment | None, Environment | None]:
        """What holds on the way back to the loop's head, and where the loop ends because nothing is left to do."""
        self.env = self.copied(head)
        if not keep_breaks:
            self.breaks.append([])
        self.continues.append([])
        outer, self.block = self.block, block
        if isinstance(node, ast.While):
            self.expression(node.test, node)
            end = self.copied(self.env)
        else:
            end = self.copied(head)
            self.assign(node.target, node, "for", node.iter)
        self.statements(body, node)
        self.block = outer
        if not keep_breaks:
            self.breaks.pop()
        return self.joined((self.env, *self.continues.pop())), end

    def try_statement(self, node: ast.Try) -> None:
        body, orelse, final = node.body, node.orelse, node.finalbody
        before = self.env
        self.raises.append([])
        self.env = self.copied(before)
        self.run_block(self.inside("try", node), body, node)
        self.run_block(self.inside("try", node), orelse, node)
        after_body = self.env
        seen = self.raises.pop()
        interrupted = self.with_partial(before, seen)
        self.raises.append(seen)
        ends = [after_body]
        for handler in node.handlers:
            self.env = self.copied(interrupted)
            self.note(handler, node)
            outer, self.block = self.block, self.inside("handler", node)
            if handler.type is not None:
                self.expression(handler.type, handler)
            if handler.name:
                self.bind(handler.name, handler, "except", None)
            self.statements(handler.body, handler)
            self.block = outer
            ends.append(self.env)
        self.env = self.joined(ends)
        self.raises.pop()
        if final:
            reachable = self.env
            self.env = self.joined((reachable, self.with_partial(before, seen)))
            self.run_block(self.inside("finally", node), final, node)
            if reachable is None:
                self.env = None

    @staticmethod
    def with_partial(before: Environment | None, seen: list[tuple[str, frozenset[Definition]]]) -> Environment | None:
        """The environment of a handler: any prefix of the `try` body may have run."""
        if before is None:
            return None
        names = dict(before.names)
        for name, found in seen:
            names[name] = names.get(name, frozenset()) | found
        return Environment(names, {})

    def match_statement(self, node: ast.Match) -> None:
        self.expression(node.subject, node)
        before = self.env
        ends = [before]
        for case in node.cases:
            self.env = self.copied(before)
            self.note(case, node)
            outer, self.block = self.block, self.inside("case", node)
            self.pattern(case.pattern, case)
            for part in walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.bind(name, part, "other", node.subject)
            if case.guard is not None:
                self.expression(case.guard, case)
            self.statements(case.body, case)
            self.block = outer
            ends.append(self.env)
        self.env = self.joined(ends)

    def pattern(self, node: ast.pattern, parent: ast.AST) -> None:
        """Evaluate the expressions in a pattern: constants, keys and classes."""
        self.note(node, parent)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.pattern):
                self.pattern(child, node)
            elif isinstance(child, ast.expr):
                self.expression(child, node)

    def delete(self, target: ast.expr, parent: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self.expression(target, parent)
            if self.env is not None:
                self.env.names.pop(target.id, None)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.delete(part, parent)
        else:
            self.children(target, target)
            self.store(target, parent)


def may_swallow(node: ast.AST) -> bool:
    """Whether a `with` statement may go on after an exception in its body."""
    assert isinstance(node, (ast.With, ast.AsyncWith))
    return any(_SWALLOWS.search(ast.unparse(item.context_expr)) for item in node.items)


_SWALLOWS = made(r"suppress|raises|catch|ignore|swallow|ExitStack|safe", re.I)
