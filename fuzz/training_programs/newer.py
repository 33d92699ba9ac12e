"""Patterns of rules that the other scenes do not write, and the surroundings in which code may stand."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.training_programs.places import AROUND, AWAY, IN_PLACE
from fuzz.training_programs.reports import Reports
from fuzz.training_programs.words import Env
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


class Newer(Reports):
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
        newer = [self.cast, self.uploaded, self.joined, self.loaded, self.freed]
        return [
            *newer,
            *newer,
            *self.reported(),
            self.read_twice,
            self.masked,
            self.masked,
            self.shown,
            self.shown,
            self.evaluated,
            self.frozen,
            self.constant,
            self.copied,
            self.stepped,
        ]

    def read_twice(self) -> list[str]:
        """Reads of a number, sums of them, and what may stand between two of them."""
        value, total = self.name("value"), self.name("sum")
        between = self.pick(
            [
                "",
                "",
                "",
                f"{value}.data.mul_(2)",
                f"{value} = {value} * 2",
                f"(again := {value}.detach()).add_(1)",
                f"[v.data.add_(1) for v in [{value}]]",
                f"{self.helper('double_')}({value})",
                f"{self.helper('keep')}({value}); {self.helper('shake')}()",
            ]
        )
        read = self.pick([f"{value}.item()", f"float({value})", f"{value}.detach().cpu().item()"])
        shown = self.pick(
            [f"print({read})", f"KEPT.append({read})", f"print(f'{{{read}:.3f}}')", f"{total} += {read} * len(x)"]
        )
        return [
            f"{total} = 0.0",
            f"{value} = model(x).pow(2).mean()",
            f"{total} += {read}",
            *([between] if between else []),
            shown,
            self.pick([f"print({total} / 3)", f"if i == 1: print({total})", f"KEPT.append({total})"]),
        ]

    def masked(self) -> list[str]:
        """A mask that selects several times, and what may become of it in between."""
        out, mask, other = self.name("out"), self.name("mask"), self.name("kept")
        made = self.pick(
            [
                *(["y.to(device) > 0"] * 4),
                "y.abs() > 0.5",
                "(y > 0) & (y < 1)",
                "y[:, 0] > 0",
                "y > 5",
                "(y > 0).any()",
                "(y > 0).long()",
                "(y > 0).byte()",
                "(y > 0).expand(len(y), y.shape[1])",
                "(y > 0).numpy()",
                "(y > 0).view(-1)[:0]",
            ]
        )
        between = self.pick(
            [
                *([""] * 5),
                f"{mask} = ~{mask}",
                f"{mask}.logical_not_()" if "numpy" not in made else "",
                f"{mask} &= y < 1",
                f"{mask}[0] = True",
                f"{other} = {mask}; {other} ^= {mask}",
                f"{self.helper('keep')}({mask}); {self.helper('shake')}()",
                f"if i == 1: {mask} = y < 0",
            ]
        )
        key = self.pick([mask, mask, f"~{mask}"])
        first = self.pick([f"{out}[{key}].sum()", f"({out}[{key}] * y[{key}]).sum()", f"F.mse_loss({out}[{key}], y[{key}])"])
        last = self.pick(
            [
                f"({out} + {first})[{key}].sum().backward()",
                f"{out} = {out} * 1; {out}[{key}] = y[{key}]; {out}.sum().backward()",
                f"(({out}[{key}].exp() * y[{mask}]).sum() + {first}).backward()",
                f"y = y.clone(); y[{key}] += {first}.detach(); y[{key}] *= 2; ({out} * y).sum().backward()",
                f"KEPT.append({out}[{key}].detach() + y[{key}])",
            ]
        )
        return [
            f"{out} = model(x)",
            f"{mask} = {made}",
            f"{self.name('loss')} = {first}",
            *([between] if between else []),
            last,
        ]

    def shown(self) -> list[str]:
        """Several numbers that each step needs."""
        error, norm, total = self.name("error"), self.name("norm"), self.name("total")
        made = self.pick(
            [
                "(y.detach() - x.sum()).abs().sum()",
                "(y > 0).sum()",
                "x.abs().max()",
                "next(model.parameters()).detach().view(-1)[0]",
                "y.double().mean()",
                "(y > 0).all()",
                "y.sum().bfloat16()",
                "y",
                "2.0",
            ]
        )
        between = self.pick(
            [
                *([""] * 4),
                f"{error} = {error} * 2",
                f"{error}.mul_(2)",
                f"{self.helper('double_')}({error})",
                "next(model.parameters()).data.add_(1)",
                f"{self.helper('keep')}({error}); {self.helper('shake')}()",
                "x.data.mul_(2)",
            ]
        )
        first = self.pick([f"{total} += {norm}.item()", f"KEPT.append({norm}.item())", f"print({norm}.item())"])
        last = self.pick(
            [f"{total} += {error}.item()", f"KEPT.append({error}.item())", f"print({error}.item(), {norm}.item())"]
        )
        return [
            f"{total} = 0.0",
            f"{error} = {made}",
            f"{norm} = model(x).pow(2).mean()",
            self.pick([f"{norm}.backward()", "pass"]),
            first,
            *([between] if between else []),
            last,
            self.pick([f"print({total})", f"KEPT.append(({total}, len(x)))"]),
        ]

    def evaluated(self) -> list[str]:
        """An evaluation that records graphs, or does not."""
        found, out = self.name("found"), self.name("out")
        keep = self.pick(["", "", "", f"KEPT.append({out})", f"print({out}.requires_grad)", f"{out}.sum().backward()"])
        return [
            "model.eval()",
            f"{found} = []",
            "for part in x.split(1):",
            f"    {out} = model(part)",
            *([f"    {keep}"] if keep else []),
            f"    {found}.append({self.pick([f'{out}.argmax(1).item()', f'{out}.sum().item()', f'{out}.tolist()', f'{out}'])})",
            "model.train()",
            f"print(len({found}), {found}[-1:])",
        ]

    def frozen(self) -> list[str]:
        """A region without autograd, and what is done with its results."""
        out = self.name("out")
        mode = self.pick(["no_grad", "no_grad", "inference_mode", "set_grad_enabled(False)"])
        mode = mode if mode.endswith(")") else f"{mode}()"
        use = [
            f"print({out}.sum().item())",
            f"KEPT.append({out}.tolist())",
            f"print({out}.argmax(1).tolist())",
            f"{out}.mul_(2)",
        ]
        if "inference" not in mode:
            use += [f"KEPT.append({out})", f"print(({out} * next(model.parameters()).sum()).mean().requires_grad)"]
        return [f"with torch.{mode}:", f"    {out} = model(x)", self.pick(["", "    "]) + self.pick(use)]

    def constant(self) -> list[str]:
        """Constants that are made on the host and moved, or made of Python's numbers."""
        held = self.name("constant")
        made = self.pick(
            [
                "torch.zeros(3).to(device)",
                "torch.ones(2, 3, dtype=torch.float64).to(device)",
                "torch.full((3,), 1e-8).to(x.device)",
                "torch.arange(3).to(device)",
                "torch.tensor(0.5, device=device)",
                "torch.tensor(2, device=x.device)",
                "torch.tensor([0.5, 1, True]).to(device)",
                "torch.eye(3).to(device=device)",
            ]
        )
        return [
            f"{held} = {made}",
            self.pick([f"{held}.add_(1)", f"KEPT.append({held})", "pass"]),
            f"print({held} * x[0].sum())",
        ]

    def copied(self) -> list[str]:
        """Copies from and to the host."""
        moved, host = self.name("moved"), self.name("host")
        way = self.pick(["", "", ", non_blocking=True"])
        back = self.pick(["cpu()", "to('cpu', non_blocking=True)", "to('cpu')", "detach().cpu().numpy()"])
        return [
            f"{moved} = x.to(device{way})",
            f"{host} = ({moved} * 2).{back}",
            self.pick([f"{moved}.data.add_(1)", "x.data.mul_(2)", "pass", "pass"]),
            f"print({host}.sum(), [{self.pick(['float', 'int', 'bool'])}(v) for v in {host}.flatten()])",
        ]

    def stepped(self) -> list[str]:
        """A step of an optimizer of its own, which clears gradients late."""
        own = self.name("own")
        lines = [
            f"{own} = torch.optim.SGD(model.parameters(), lr=0.01)",
            "out = model(x)",
            self.pick(
                ["pass", "pass", "print(next(model.parameters()).grad is None)", f"print({self.helper('grads')}(model))"]
            ),
            "loss = F.mse_loss(out, y)",
            self.pick([f"{own}.zero_grad()", "model.zero_grad()", f"{own}.zero_grad(set_to_none=False)"]),
            "loss.backward()",
            f"{own}.step()",
        ]
        return [*lines, "print(loss.item())"]

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
        form = self.pick(AROUND)
        name = self.name("part")
        if form == "plain":
            return lines
        if form in IN_PLACE:
            return _filled(IN_PLACE[form], name, lines)
        before, call = AWAY[form]
        if form == "patched":
            self.breaks.add(Kind.PLAIN_MODULES)
        self.write_lines(_filled(before, name, lines))
        self.line("")
        self.line("")
        return [call.replace("NAME", name)]


def _filled(place: list[str], name: str, lines: list[str]) -> list[str]:
    """A place with the lines that stand in it."""
    found: list[str] = []
    for line in place:
        indent = line[: -len(line.lstrip())]
        found += [indent + part for part in lines] if line.strip() == "..." else [line.replace("NAME", name)]
    return found
