"""Patterns of rules that the other scenes do not write, and the surroundings in which code may stand."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.training_programs.loops import Loops
from fuzz.training_programs.words import Env, breaking
from perflint.rule.obligations import Kind

_SMALL = [
    "torch.randint(0, 2, (2, 3), dtype=torch.uint8)",
    "torch.zeros(3, dtype=torch.bool)",
    "torch.arange(4, dtype=torch.int32)",
    "torch.arange(4, dtype=torch.int16)",
    "torch.arange(-3, 3, dtype=torch.int8)",
    "torch.ones(2, 2, dtype=torch.float16)",
    "torch.full((3,), 0.1, dtype=torch.bfloat16)",
    "torch.tensor([2**31 - 1, 7], dtype=torch.int32)",
    "torch.tensor([True, False])",
    "(x > 0)",
    "x.half()",
    "x.detach().cpu().bfloat16()",
]
_ROWS = [
    "[row.numpy() for row in x.detach().cpu()]",
    "[np.asarray(row) for row in y.tolist()]",
    "[np.ones(2) * {i}, np.zeros(2, dtype='float32')]",
    "[np.arange(3), np.arange(3) + 0.5]",
    "[np.float32(1.5), np.float32(2.5)]",
    "[np.array(2.0), np.array(3)]",
    "[np.ones(2), np.ones(3)]",
    "[np.zeros((0, 2)), np.zeros((0, 2))]",
    "[np.arange(3, dtype='uint16'), np.arange(3, dtype='int8')]",
    "[np.array([True, False]), np.array([1, 2])]",
    "[np.arange(6)[::-2], np.asfortranarray(np.eye(3))[0]]",
    "[np.ma.masked_array([1.0, 2.0], [True, False])] * 2",
    "[row.numpy() for row in x[:0]]",
    "[np.array([1 + 2j]), np.array([3.0])]",
    "[np.array([2**40]), np.array([2.0**60])]",
]
_PYTHON = [
    "[len(row) for row in y]",
    "y.tolist()",
    "y.numpy().copy()",
    "[0.5, {i}]",
    "np.arange(3) + {i}",
    "np.float64(0.5)",
    "{i} / 2",
    "[[1, 2.5], [True, 3]]",
    "np.array([1, 2], dtype='int8')",
    "[]",
    "(1, 2)",
    "range(3)",
    "x.sum().item()",
]


class Newer(Loops):
    """Patterns of rules that the other scenes do not write, and the surroundings in which code may stand."""

    def newer_scene(self) -> None:
        """A training loop with some of these patterns in its steps, and a call of it."""
        epochs = self.chance(0.4)
        chosen = [self.pick(self.patterns()) for _ in range(self.pick([1, 2, 2, 3]))]
        written = [self.surrounded(pattern()) for pattern in chosen]
        ends: list[str] = []
        with self.block("def train(model, loader, optimizer):"):
            self.line(f"total, norms = {self.pick(['0.0', '0', '0.0'])}, []")
            if epochs:
                self.line("for epoch in range(2):")
                self.depth += 1
            with self.block("for i, (x, y) in enumerate(loader):"):
                before = self.chance(0.4)
                for lines in written if before else ():
                    self.write_lines(lines)
                self.line("optimizer.zero_grad()")
                self.line(f"loss = {self.pick(['F.mse_loss(model(x.to(device)), y.to(device))', 'model(x).pow(2).mean()'])}")
                self.line("loss.backward()")
                env = Env(scalars=["loss"], tensors=["x", "y"], models=["model"], optimizers=["optimizer"], is_function=True)
                env.is_loop, env.step = True, "i"
                self.disturb(env)
                self.norms(env)
                self.line("optimizer.step()")
                self.retained(env, ends)
                for lines in () if before else written:
                    self.write_lines(lines)
                    self.disturb(env)
                if self.chance(0.25):
                    self.line(self.pick(["torch.cuda.empty_cache()", "if i % 2 == 1: torch.cuda.empty_cache()"]))
            if self.chance(0.2):
                self.line("torch.cuda.empty_cache()")
            for end in ends:
                self.line(end)
            if epochs:
                self.depth -= 1
                for end in ends:
                    self.line(end)
            self.line(self.pick(["return float(total), norms", "print(f'{total:.4f}', len(norms))", "return norms"]))
        self.line("")
        self.line("")
        self.setting(self.network_line(), False)
        self.called(f"train(model, {self.loader()}, optimizer)")

    def write_lines(self, lines: list[str]) -> None:
        for line in lines:
            self.line(line)

    def norms(self, env: Env) -> None:
        """Reads of each parameter, as loops over gradients have them."""
        if self.chance(0.55):
            return
        with self.block("for p in model.parameters():"):
            if self.chance(0.3):
                self.line("if p.grad is None: continue")
            self.line(
                self.pick(
                    [
                        "total += p.grad.norm().item() ** 2",
                        "total += p.grad.norm().item()",
                        "total += p.grad.data.norm(2).item() ** 2.0",
                        "norms.append(p.grad.abs().max().item())",
                        "norms.append(p.grad.norm().item())",
                        "norms.append(p.detach().cpu().numpy())",
                        "norms.append(p.grad.cpu())",
                        "total += p.abs().sum().item() / 2",
                    ]
                )
            )
            if self.chance(0.2):
                self.line(self.pick(["p.grad.mul_(0.5)", "p.grad = None", "p.data.mul_(0.9)", "p.grad.data.clamp_(-1, 1)"]))
        if self.chance(0.3):
            self.line(self.pick(["total = total ** 0.5", "print(total)", "print(norms[-1:])", "norms = []"]))

    def retained(self, env: Env, ends: list[str]) -> None:
        """A total that keeps graphs."""
        if self.chance(0.5):
            return
        self.line(self.pick(["total += loss", "total = total + loss", "total += loss * 0.5", "norms.append(loss)"]))
        ends.append(
            self.pick(
                [
                    "print(f'{float(total):.3f}')",
                    "print(float(total) / 3)",
                    "print(total.item() if torch.is_tensor(total) else total)",
                    "print(f'{total:.3f}')",
                    "print('%.3f' % total)",
                    "KEPT.append(float(total))",
                    "total = 0.0",
                    "print(len(norms), sum(map(float, norms[:1])))",
                ]
            )
        )
        if self.chance(0.12):
            ends.append(
                self.pick(
                    [
                        "print(total)",
                        "print(getattr(total, 'requires_grad', None))",
                        "KEPT.append(total)",
                        "print([getattr(v, 'grad_fn', None) is None for v in norms])",
                    ]
                )
            )

    # -- patterns: lines that use x, y, i, model, loss's network and KEPT ---------------------------------------------------

    def patterns(self) -> list[Callable[[], list[str]]]:
        return [self.cast, self.cast, self.uploaded, self.uploaded, self.joined, self.joined, self.loaded, self.freed]

    def cast(self) -> list[str]:
        """A conversion before a copy to the device."""
        small, moved = self.name("small"), self.name("moved")
        convert = self.pick(["float()", "double()", "long()", "int()", "half()", "to(torch.float32)", "type(torch.float64)"])
        move = self.pick(
            ["to(device)", "to(device)", "to(device)", "to(device=device)", "to(x.device)", "to(device, non_blocking=True)"]
        )
        lines = [f"{small} = {self.pick(_SMALL)}"]
        if self.chance(0.2):
            lines.append(f"{small} = {small}{self.pick(['[0:1]', '.clone()', '.view(-1)', '.contiguous()'])}")
        lines.append(f"{moved} = {small}.{convert}.{move}")
        if self.chance(0.2):
            lines.append(f"{moved}.mul_(2)")
        if self.chance(0.2):
            lines.append(f"print({small}.dtype, {small}.data_ptr() == {moved}.data_ptr())")
        return [*lines, f"print({moved}.dtype, {moved}.tolist())"]

    def uploaded(self) -> list[str]:
        """Python data that is made a tensor on the device."""
        given, made = self.name("given"), self.name("made")
        data = self.pick(_PYTHON).format(i="i")
        dtype = self.pick(
            ["", "", ", dtype=torch.float32", ", dtype=torch.long", ", dtype=torch.float64", ", requires_grad=True"]
        )
        function = self.pick(["torch.tensor", "torch.tensor", "torch.tensor", "torch.as_tensor"])
        if function == "torch.as_tensor" and "requires" in dtype:
            dtype = ""
        lines = [f"{given} = {data}", f"{made} = {function}({given}{dtype}, device=device)"]
        if self.chance(0.2):
            lines.append(self.pick([f"{made}.detach().mul_(2)", f"KEPT.append({made})", f"{given} = None"]))
        if self.chance(0.25) and "copy()" in data:
            lines.append(f"{given}[...] = 7")
        lines.append(
            self.pick(
                [f"print({made}.dtype, {made}.tolist())", f"print({made}.sum(), {made}.shape)", f"KEPT.append({made} * 2)"]
            )
        )
        return lines

    def joined(self) -> list[str]:
        """A tensor of a list of arrays."""
        rows, made = self.name("rows"), self.name("made")
        lines = [f"{rows} = {self.pick(_ROWS[:4]) if self.chance(0.6) else self.pick(_ROWS)}".replace("{i}", "i")]
        if self.chance(0.2):
            lines.append(
                self.pick([f"{rows}.append({rows}[0] * 2)", f"{rows} = {rows}[::-1]", f"{rows}[0] = {rows}[0].copy()"])
            )
        function = self.pick(
            [
                "torch.tensor({})",
                "torch.tensor({})",
                "torch.tensor({}, dtype=torch.float32)",
                "torch.tensor({}, dtype=torch.float64, device=device)",
                "torch.tensor({}, requires_grad=True)",
                "torch.FloatTensor({})",
                "torch.Tensor({})",
                "torch.as_tensor({})",
                "torch.LongTensor({})",
            ]
        )
        lines.append(f"{made} = {function.format(rows)}")
        if self.chance(0.2):
            lines.append(f"{rows}[0][...] = 7")
        return [*lines, f"print({made}.dtype, {made}.shape, {made}.detach().tolist())"]

    def loaded(self) -> list[str]:
        """A checkpoint that is written and read again."""
        held, state = self.name("buffer"), self.name("state")
        what = self.pick(
            ["model.state_dict()", "{'model': model.state_dict(), 'epoch': i}", "[x, {'lr': 0.1}]", "model.state_dict()"]
        )
        lines = [f"{held} = io.BytesIO()", f"torch.save({what}, {held})", f"{held}.seek(0)"]
        more = self.pick(["", "", ", map_location=device", ", map_location='cpu'", ", weights_only=None", ", mmap=False"])
        return [*lines, f"{state} = torch.load({held}{more})", f"print(len({state}), {state} is None)"]

    def freed(self) -> list[str]:
        """Memory that is given back."""
        return [self.pick(["torch.cuda.empty_cache()", "torch.cuda.empty_cache(); print('emptied')", "gc.collect()"])]

    # -- surroundings ---------------------------------------------------------------------------------------------------------

    def surrounded(self, lines: list[str]) -> list[str]:
        """The lines in one of the places where code may stand: what the loop holds of it; functions are written here."""
        form = self.pick(_AROUND)
        inner = ["    " + line for line in lines]
        name = self.name("part")
        if form == "plain":
            return lines
        if form in _IN_PLACE:
            return [line for part in _IN_PLACE[form] for line in (inner if part == "..." else [part.replace("NAME", name)])]
        before, call = _AWAY[form]
        if form == "patched":
            self.breaks.add(Kind.PLAIN_MODULES)
        for line in before:
            if line.strip() == "...":
                indent = line[: -len(line.lstrip())]
                self.write_lines([indent + text for text in lines])
            else:
                self.line(line.replace("NAME", name))
        self.line("")
        self.line("")
        return [call.replace("NAME", name)]


_IN_PLACE = {
    "try": [
        "try:",
        "...",
        breaking(Kind.ERRORS_ARE_BUGS, "except Exception as error:"),
        "    print('caught', type(error).__name__, error)",
    ],
    "else": ["try:", "    NAME = 1", "except ValueError:", "    print('never')", "else:", "..."],
    "finally": ["try:", "    print('body')", "finally:", "..."],
    "tried": ["try:", "...", "finally:", "    print('left')"],
    "match": [
        "match len(x):",
        "    case NAME if NAME < 0:",
        "        print('never')",
        "    case _:",
        "        pass",
        "if True:",
        "...",
    ],
    "walrus": ["if (NAME := len(x)) > 0:", "..."],
    "for": ["for NAME in range(2):", "..."],
    "while": ["NAME = 2", "while NAME:", "    NAME -= 1", "..."],
    "for_else": ["for NAME in ():", "    break", "else:", "..."],
    "no_grad": ["with torch.no_grad():", "..."],
    "class": ["class NAME:", "    number = 1", "..."],
    "suppressed": [breaking(Kind.ERRORS_ARE_BUGS, "with contextlib.suppress(Exception):"), "..."],
}
"""Lines around the pattern where it stands."""

_AWAY = {
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
_AROUND = [*["plain"] * 10, *_IN_PLACE, *_AWAY]
