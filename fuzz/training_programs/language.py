"""Writes to a tensor that go by way of the language: patterns, comprehensions, generators, decorators, classes, threads."""

from __future__ import annotations

from fuzz.training_programs.expressions import Expressions

_SAME = [
    "dict(k={s})['k']",
    "{{**{{'k': {s}}}}}['k']",
    "[*({s},)][0]",
    "next(iter([{s}]))",
    "next(reversed([{s}]))",
    "next(zip([{s}], [1]))[0]",
    "next(enumerate([{s}]))[1]",
    "sorted([{s}], key=id)[0]",
    "collections.deque([{s}]).pop()",
    "next(itertools.chain([{s}]))",
    "types.SimpleNamespace(held={s}).held",
    "contextlib.nullcontext({s}).__enter__()",
    "copy.copy({s})",
    "weakref.ref({s})()",
    "functools.reduce(lambda a, b: a, [{s}, {s}])",
    "(lambda *given, **named: given[0])(*[{s}], **{{}})",
    "(lambda first, /, *, second=None: first)({s})",
    "(yes if (yes := {s}) is not None else None)",
    "[kept for kept in [{s}] if kept is not None][0]",
    "{{'k': v for v in [{s}]}}['k']",
    "operator.itemgetter(0)([{s}])",
    "getattr(types.SimpleNamespace(a={s}), 'a')",
]
"""Ways to come by the tensor itself."""

_WRITES = [
    "{same}.data.mul_(2)",
    "{same}.detach().add_(1)",
    "operator.attrgetter('data')({same}).mul_(2)",
    "operator.methodcaller('mul_', 2)({same}.data)",
    "getattr({same}.data, 'zero' + '_')()",
    "torch.Tensor.mul_({same}.data, 2)",
    "print({same}.sum().item())",
    "KEPT.append({same})",
]


class Language(Expressions):
    """Statements that use much of the language to reach a tensor."""

    def reached(self, s: str) -> None:
        """A statement that writes to a tensor, shows it or keeps it, however it comes by it."""
        write = self.pick(_WRITES)
        n = self.name("")
        form = self.pick(
            ["plain", "plain", "match", "class", "generator", "raise", "decorator", "thread", "async", "else", "del"]
        )
        if form == "match":
            subject, pattern = self.pick(
                [(s, "{}"), (f"{{'k': {s}}}", "{{'k': {}}}"), (f"[{s}, 1]", "[{}, *_]"), (f"({s},)", "({},)")]
            )
            seen = f"seen{n}"
            guard = self.pick(["", f" if {seen}.numel()"]) if pattern != "{}" else ""
            with self.block(f"match {subject}:"), self.block(f"case {pattern.format(seen)}{guard}:"):
                self.line(write.format(same=seen))
        elif form == "class":
            with self.block(f"class Held{n}:"):
                self.line(f"value = {s}")
                self.line(write.format(same="value"))
        elif form == "generator":
            self.line(f"made{n} = ({write.format(same='v')} for v in [{s}])")
            if self.chance(0.5):
                self.line("print('in between')")
            self.line(f"{self.pick(['list', 'next', 'tuple', 'any'])}(made{n})")
        elif form == "raise":
            with self.block("try:"):
                self.line(f"raise LookupError({s})")
            with self.block("except LookupError as found:"):
                self.line(write.format(same="found.args[0]"))
        elif form == "decorator":
            self.line(f"@{self.helper('called_with')}({s})")
            with self.block(f"def decorated{n}(v):"):
                self.line(write.format(same="v"))
        elif form == "thread":
            self.line(f"thread{n} = threading.Thread(target=lambda v: {write.format(same='v')}, args=({s},))")
            self.line(f"thread{n}.start()")
            self.line(f"thread{n}.join()")
        elif form == "async":
            with self.block(f"async def soon{n}(v):"):
                self.line(write.format(same="v"))
            self.line(f"asyncio.run(soon{n}({s}))")
        elif form == "else":
            with self.block("try:"):
                self.line(f"held{n} = {self.pick(_SAME).format(s=s)}")
            with self.block("except ValueError:"):
                self.line("pass")
            with self.block(self.pick(["else:", "finally:"])):
                self.line(write.format(same=f"held{n}"))
        elif form == "del":
            self.line(f"held{n} = {s}")
            self.line(write.format(same=f"held{n}"))
            self.line(f"del held{n}")
        else:
            self.line(write.format(same=self.pick(_SAME).format(s=s)))
