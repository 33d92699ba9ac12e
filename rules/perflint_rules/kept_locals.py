"""A local that takes a read in each step, and what must hold to keep device values in it: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import (
    BUILT_FROM_TEXT,
    INFERENCE_SWITCHED,
    LOOKS_AT_FRAMES,
    OWN_TENSORS,
    SEVERAL_GPUS,
    WATCHES_WARNINGS,
    Block,
    CannotRewrite,
    Code,
    Edit,
    HostRead,
    Import,
    Kind,
    Loop,
    Obligation,
    ReadKind,
    Tensor,
    insert_after_block,
    insert_before,
    inspects_itself,
    is_differentiated,
    is_guard,
    path_of,
    suspends,
    untimed,
)


class SeenInEachStep(CannotRewrite):
    """What takes the reads is looked at in each step: nothing is gained by reading later within it."""

    def __init__(self) -> None:
        super().__init__("each step looks at it")


class Kept:
    """A local that takes a read in each step, and could keep device values until somebody looks at it.

    taken: the expression that it takes, which is the read, or a name that the read is bound to.

    The rewrite keeps one promise: wherever the local is looked at, it holds what it held before. So it is converted behind
    the loop, and in front of the uses that stand under a guard in the loop.
    """

    def __init__(self, code: Code, read: HostRead, loop: Loop, taken: ast.expr, target: ast.Name) -> None:
        assert loop.statement is not None
        self.code, self.flow, self.read, self.loop, self.taken, self.target = code, code.flow, read, loop, taken, target
        self.name, self.after = target.id, loop.statement
        self.value = code.value(read.tensor)
        self.is_differentiated = is_differentiated(code.facts, code.scope, read.tensor)

    @property
    def asks(self) -> bool:
        """Whether the rewrite looks at the tensor's device when the program runs."""
        return False

    @property
    def cure(self) -> str | None:
        """What the rewrite does, where it is something else than the usual."""
        return None

    def uses(self) -> list[ast.expr]:
        """The places that may see what a step has added."""
        raise NotImplementedError

    def unproven(self) -> Iterator[Obligation | None]:
        """The proofs that only this form needs and that do not hold."""
        raise NotImplementedError

    def converted(self, at_guard: bool) -> tuple[str, tuple[Import, ...]]:
        """The statement that turns device values into what the local held."""
        raise NotImplementedError

    def kept(self) -> Edit:
        """The step's statement without its read."""
        raise NotImplementedError

    def missing(self) -> Iterator[Obligation | None]:
        """The proofs that a safe fix needs and that do not hold."""
        code, flow = self.code, self.flow
        if suspends(flow):
            yield Obligation(Kind.CONTROL_FLOW, "the function yields or awaits")
        if code.scope.is_module:
            yield Obligation(Kind.NAMES, f"`{self.name}` is a global variable")
        if self.name in flow.inner_names | flow.outer_names:
            yield Obligation(Kind.NAMES, f"`{self.name}` is used outside of the function")
        if not all(map(code.means_builtin, ("float", "int"))):
            yield Obligation(Kind.NAMES, "`float` or `int` means something else here")
        if inspects_itself(flow):
            yield Obligation(Kind.NAMES, "the function looks at its own variables")
        if any(b.kind == "try" and getattr(b.node, "handlers", None) for b in self._blocks_in_loop(self.read.node)):
            yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of the device would no longer be handled where it is now")
        yield from code.feared(INFERENCE_SWITCHED, SEVERAL_GPUS, OWN_TENSORS, LOOKS_AT_FRAMES, BUILT_FROM_TEXT)
        if self.read.kind is ReadKind.CONVERSION and not self.value.must(lambda a: isinstance(a, Tensor) and a.grad is False):
            yield from code.feared(WATCHES_WARNINGS)  # `float` warns once of a tensor that belongs to a graph
        calls = [call for call in flow.calls if flow.within(call, self.loop.block)]
        yield untimed(calls)
        yield from code.needs_wait()
        yield from self.unproven()

    def is_inside(self, node: ast.AST) -> bool:
        """Whether a node runs in the loop."""
        return self.flow.within(node, self.loop.block)

    def _blocks_in_loop(self, node: ast.AST) -> Iterator[Block]:
        for block in self.flow.block[node].ancestry():
            if block is self.loop.block:
                return
            yield block

    def parts(self) -> Iterator[Edit | Import]:
        """The edits.

        Raises:
            CannotRewrite: the local is looked at where it cannot be converted first.

        """
        flow = self.flow
        source = self.code.source
        home = flow.home(flow.block[self.after])
        inside = [use for use in self.uses() if self.is_inside(use)]
        outside = [use for use in self.uses() if not self.is_inside(use)]
        if not inside and not outside:
            raise CannotRewrite("nothing looks at it")
        if self.after.orelse or not all(flow.within(use, home) for use in outside):
            raise CannotRewrite("it may be looked at when the loop was left early")
        yield self.kept()
        for statement in dict.fromkeys(self._guarded(use) for use in inside):
            line, imports = self.converted(at_guard=True)
            yield from imports
            yield insert_before(source, statement, line)
        if outside:
            line, imports = self.converted(at_guard=False)
            yield from imports
            yield insert_after_block(source, self.after, line)

    def _guarded(self, use: ast.expr) -> ast.stmt:
        """The first statement that looks at the local in the guarded block around a use."""
        for block in self._blocks_in_loop(use):
            if block.kind in ("then", "else") and isinstance(block.node, ast.If) and is_guard(self.flow, block):
                tops = [self.flow.top(u, block) for u in self.uses() if self.flow.within(u, block)]
                first = min((top for top in tops if top is not None), key=self.flow.order.__getitem__)
                if isinstance(first, ast.If) and block.node.orelse == [first]:
                    raise CannotRewrite("there is no place in an `elif`")
                return first
        around = self.flow.parent.get(use)
        if isinstance(around, ast.Attribute) and around.attr == "append" and isinstance(self.flow.statement(use), ast.Expr):
            raise CannotRewrite("it takes something in several places of the loop")
        raise SeenInEachStep

    def source(self) -> str:
        """The text of the tensor, to be followed by a method call."""
        text = self.code.text(self.read.tensor)
        return text if isinstance(self.read.tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({text})"


def fills_what_is_shown(code: Code, read: ast.expr) -> bool:
    """`losses.append(loss.item()); bar.set_description(str(mean(losses)))`: each step looks at the list that takes a read."""
    match code.flow.statement(read):
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name) as filled, attr="append"))):
            loop = code.step_loop(read)
            uses = [use for d in code.flow.definitions_of(name) for use in code.flow.uses[d] if use is not filled]
            return loop is not None and any(code.step_loop(use) is loop for use in uses)
    return False


def means_item(code: Code, read: HostRead) -> bool:
    """Whether a read gives what `.item()` gives."""
    if read.kind is not ReadKind.CONVERSION:
        return read.kind is ReadKind.ITEM
    floating = code.value(read.tensor).must(lambda a: isinstance(a, Tensor) and "float" in a.dtype)
    return floating and isinstance(read.node, ast.Call) and path_of(read.node.func) == "float"
