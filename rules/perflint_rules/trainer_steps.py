"""The text of a training loop whose steps the runtime's trainer takes: what `canonical-train-loop` writes."""

import ast
import itertools
import re
from collections.abc import Collection, Iterator

from perflint.api import (
    Body,
    CannotRewrite,
    Code,
    Edit,
    External,
    Import,
    TrainingLoop,
    replaced_lines,
    shown_target,
)

_WIDTH = 100


def taken_over(code: Code, loop: TrainingLoop) -> Iterator[Edit | Import]:
    """The loop's lines anew: a function that computes the loss, a trainer, and what is left of the loop."""
    statement = loop.statement
    body = Body(code.source, statement.body, statement.iter.end_lineno or statement.lineno)
    anchor = loop.epochs or statement
    indent, unit = body.indent_of(anchor), body.indent.removeprefix(body.indent_of(statement))
    free = _Names(code)
    step, trainer = free.take("training_step"), free.take("trainer")
    inner = [line for s in loop.forward for line in body.lines(s, indent + unit, loop.acts.statements)]
    used = {n.id for s in loop.forward for n in ast.walk(s) if isinstance(n, ast.Name)}
    network, inner = _network(loop.acts.network, inner, used)
    batch, opening = _opening(loop, used)
    results = loop.results[0] if len(loop.results) == 1 else f"({', '.join(loop.results)})"
    loss = code.text(loop.acts.loss)
    returned = f"{loss}, {results}" if loop.results else loss
    moves = loop.moves.statements if loop.moves is not None else ()
    gone = [s for s in statement.body if loop.acts.are_all_of(s) or s in moves]
    made, imports = _made(code, loop, step)
    head = [
        "",
        f"{indent}def {step}({network}, {batch}):",
        *(f"{indent}{unit}{line}" for line in opening),
        *_trimmed(inner),
        f"{indent}{unit}return {returned}",
        "",
        *(line for s in gone for line in body.comments(s, indent)),
        *_call(f"{indent}{trainer} = ", *made, indent, unit),
    ]
    rest = _trimmed([line for s in loop.rest for line in body.lines(s, body.indent, loop.acts.statements)])
    shown = [loss if loop.loss_is_used else "_", results if loop.results else "_", loop.batch_target]
    taken = ", ".join(shown) if set(shown) != {"_"} else "_"
    steps = f"{trainer}.steps({', '.join([code.text(loop.loader), *_options(code, loop)])})"
    target = f"({taken})" if loop.target is not statement.target and taken != "_" else taken
    yield from replaced_lines(
        code.source, anchor, statement, head, {loop.target: target, loop.loader: steps}, rest or [f"{body.indent}pass"]
    )
    yield from imports


def _opening(loop: TrainingLoop, used: set[str]) -> tuple[str, list[str]]:
    """What the function calls the batch, and the line that unpacks it."""
    if isinstance(loop.target, ast.Name):
        return loop.target.id, []
    batch = "batch" if "batch" not in used else "batch_"
    target = shown_target(loop.target, used)
    return batch, [] if target == "_" else [f"{target if target.endswith(',)') else target[1:-1]} = {batch}"]


def _trimmed(lines: list[str]) -> list[str]:
    """Lines without the blank ones at their beginning."""
    return list(itertools.dropwhile(lambda line: not line.strip(), lines))


def _call(start: str, function: str, arguments: list[str], indent: str, unit: str) -> list[str]:
    """A call on one line, or its arguments on lines of their own."""
    line = f"{start}{function}({', '.join(arguments)})"
    if len(line) <= _WIDTH:
        return [line]
    inner = f"{indent}{unit}{', '.join(arguments)}"
    inside = [inner] if len(inner) <= _WIDTH else [f"{indent}{unit}{argument}," for argument in arguments]
    return [f"{start}{function}(", *inside, f"{indent})"]


def _means_something_else(code: Code, name: str) -> bool:
    known = code.facts.inference.module_name(code.scope.module, name, 1)
    is_ours = known.must(lambda a: a == External(f"perflint_runtime.{name}"))
    return bool(known.alternatives and not is_ours) or bool(code.flow.definitions_of(name) and not code.scope.is_module)


def _made(code: Code, loop: TrainingLoop, step: str) -> tuple[tuple[str, list[str]], list[Import]]:
    """The trainer's construction, and what has to be imported for it."""
    names = ["Trainer", "TrainingSettings"] if loop.acts.limit is not None else ["Trainer"]
    prefix, imports = "", [Import("perflint_runtime", name) for name in names]
    if any(_means_something_else(code, name) for name in names):
        prefix, imports = "perflint_runtime.", [Import("perflint_runtime")]
    arguments = [loop.acts.network, loop.acts.optimizer, step]
    if loop.acts.limit is not None:
        arguments.append(f"{prefix}TrainingSettings(max_grad_norm={code.text(loop.acts.limit)})")
    device = f"next({loop.acts.network}.parameters()).device" if loop.moves is None else loop.moves.target
    arguments.append(f"device={device}")
    if loop.acts.scaler is not None and loop.acts.mixed is not None:
        test = code.text(loop.acts.mixed[0])
        arguments.append(f"scaler={loop.acts.scaler} if {test if loop.acts.mixed[1] else f'not ({test})'} else None")
    elif loop.acts.scaler is not None:
        arguments.append(f"scaler={loop.acts.scaler}")
    return (f"{prefix}Trainer", arguments), imports


def _options(code: Code, loop: TrainingLoop) -> Iterator[str]:
    if loop.acts.every is not None:
        yield f"update_every={code.text(loop.acts.every)}"
    if loop.acts.at_end:
        yield "update_at_end=True"
    if loop.moves is None:
        yield "prefetch=False"


def _network(path: str, lines: list[str], used: Collection[str]) -> tuple[str, list[str]]:
    """What the function calls the network, and its lines with that name."""
    if path.isidentifier():
        return path, lines
    name = "model" if "model" not in used else "network"
    if name in used or any(re.search(rf"[\"'][^\"']*{re.escape(path)}[^\"']*[\"']", line) for line in lines):
        raise CannotRewrite("no name for the network is free, or a text holds the one that it has")
    return name, [re.sub(rf"(?<![\w.\"'`]){re.escape(path)}(?![\w\"'`])", name, line) for line in lines]


class _Names:
    """Names that a scope does not use."""

    def __init__(self, code: Code) -> None:
        text = code.source.body if code.scope.is_module else code.scope.text
        self._words = set(re.findall(r"\w+", text.decode()))

    def take(self, wanted: str) -> str:
        """A free name like `wanted`."""
        name = next((n for n in (wanted, *(f"{wanted}_{i}" for i in range(2, 9))) if n not in self._words), None)
        if name is None:
            raise CannotRewrite("no name is free")
        self._words.add(name)
        return name
