"""Places where code may stand. `...` is the code, NAME a name that nothing else has; it speaks of model, x, y and i."""

from __future__ import annotations

from fuzz.training_programs.words import breaking
from perflint.rule.obligations import Kind

IN_PLACE = {
    "try": [
        "try:",
        "    ...",
        breaking(Kind.ERRORS_ARE_BUGS, "except Exception as error:"),
        "    print('caught', type(error).__name__, error)",
    ],
    "else": ["try:", "    NAME = 1", "except ValueError:", "    print('never')", "else:", "    ..."],
    "finally": ["try:", "    print('body')", "finally:", "    ..."],
    "tried": ["try:", "    ...", "finally:", "    print('left')"],
    "match": ["match x:", "    case torch.Tensor() if i >= 0:", "        ...", "    case _:", "        print('never')"],
    "matched": ["match {'x': x, 'y': y}:", "    case {'x': x, **NAME}:", "        ..."],
    "tuple": ["match (x, y):", "    case (NAME, _) | NAME:", "        ..."],
    "walrus": ["if (NAME := len(x)) > 0:", "    ..."],
    "for": ["for NAME in range(2):", "    ..."],
    "while": ["NAME = 2", "while NAME:", "    NAME -= 1", "    ..."],
    "for_else": ["for NAME in ():", "    break", "else:", "    ..."],
    "no_grad": ["with torch.no_grad():", "    ..."],
    "class": ["class NAME:", "    number = 1", "    ..."],
    "suppressed": [breaking(Kind.ERRORS_ARE_BUGS, "with contextlib.suppress(Exception):"), "    ..."],
}
"""Lines around the pattern where it stands."""

AWAY = {
    "function": (["def NAME(model, x, y, i):", "    ..."], "NAME(model, x, y, i)"),
    "starred": (
        ["def NAME(*given, **named):", "    (model, x), y, i = given, *named.values()", "    ..."],
        "NAME(*[model, x], **{'y': y, 'i': i})",
    ),
    "lambda": (["def NAME(model, x, y, i):", "    ..."], "(lambda *given: NAME(model, *given))(x, y, i)"),
    "generator": (
        ["def NAME(model, x, y, i):", "    yield i", "    ...", "    yield x"],
        "print(len(list(NAME(model, x, y, i))))",
    ),
    "left": (["def NAME(model, x, y, i):", "    yield i", "    ...", "    yield x"], "next(NAME(model, x, y, i))"),
    "async": (
        ["async def NAME(model, x, y, i):", "    await asyncio.sleep(0)", "    ..."],
        "asyncio.run(NAME(model, x, y, i))",
    ),
    "decorated": (
        ["@functools.lru_cache(maxsize=None)", "def NAME(model, x, y, i):", "    ...", "    return x"],
        "NAME(model, x, y, i); NAME(model, x, y, i)",
    ),
    "wrapped": (
        [
            "def around_NAME(function):",
            "    @functools.wraps(function)",
            "    def call(*given):",
            "        print('before')",
            "        try:",
            "            return function(*given)",
            "        finally:",
            "            print('after')",
            "    return call",
            "",
            "",
            "@around_NAME",
            "def NAME(model, x, y, i):",
            "    ...",
        ],
        "NAME(model, x, y, i)",
    ),
    "frozen": (["@torch.no_grad()", "def NAME(model, x, y, i):", "    ..."], "NAME(model, x, y, i)"),
    "method": (["class NAME:", "    def run(self, model, x, y, i):", "        ..."], "NAME().run(model, x, y, i)"),
    "static": (["class NAME:", "    @staticmethod", "    def run(model, x, y, i):", "        ..."], "NAME.run(model, x, y, i)"),
    "property": (
        [
            "class NAME:",
            "    def __init__(self, *given):",
            "        self.given = given",
            "",
            "    @property",
            "    def run(self):",
            "        model, x, y, i = self.given",
            "        ...",
        ],
        "NAME(model, x, y, i).run",
    ),
    "inherited": (
        [
            "class Base_NAME:",
            "    def run(self, model, x, y, i):",
            "        ...",
            "",
            "",
            "class NAME(Base_NAME):",
            "    def run(self, *given):",
            "        return super().run(*given)",
        ],
        "NAME().run(model, x, y, i)",
    ),
    "patched": (
        [
            "class NAME:",
            "    def run(self, model, x, y, i):",
            "        print('as written')",
            "",
            "",
            "def other_NAME(self, model, x, y, i):",
            "    ...",
            "",
            "",
            "setattr(NAME, 'run', other_NAME)",
        ],
        "NAME().run(model, x, y, i)",
    ),
    "closure": (
        [
            "def make_NAME():",
            "    seen = []",
            "    def NAME(model, x, y, i):",
            "        nonlocal seen",
            "        seen = [*seen, i]",
            "        ...",
            "        return seen",
            "    return NAME",
            "",
            "",
            "NAME = make_NAME()",
        ],
        "print(NAME(model, x, y, i))",
    ),
    "comprehension": (
        ["def NAME(model, x, y, i):", "    ...", "    return 1"],
        "print([NAME(model, x, y, k) for k in range(2) if k or (n := k) == 0])",
    ),
    "context": (
        ["@contextlib.contextmanager", "def NAME(model, x, y, i):", "    ...", "    yield i"],
        "with NAME(model, x, y, i) as held: print(held)",
    ),
    "thread": (["def NAME(model, x, y, i):", "    ..."], "asyncio.run(asyncio.to_thread(NAME, model, x, y, i))"),
    "default": (
        ["def NAME(model, x, y, i, seen=[]):", "    seen.append(i)", "    ...", "    return seen"],
        "print(NAME(model, x, y, i))",
    ),
    "global": (["def NAME(model, x, y, i):", "    global last_NAME", "    last_NAME = i", "    ..."], "NAME(model, x, y, i)"),
}
"""Functions that hold the pattern, and what calls them."""
AROUND = [*["plain"] * 10, *IN_PLACE, *AWAY]
