"""Statements that read from the device, and the disturbances between them."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.training_programs.language import Language
from fuzz.training_programs.words import Env
from perflint.rule.obligations import Kind


class Statements(Language):
    """Statements that read from the device, and the disturbances between them."""

    def reading(self, env: Env) -> None:
        """A statement that reads a scalar tensor, as training loops do."""
        s = self.pick(env.scalars) if env.scalars else f"({self.scalar(env)})"
        read = self.read(env, s)
        n = env.size or "2"
        forms: list[Callable[[], None]] = [
            lambda: self.line(f"print({self.formatted(env)})"),
            lambda: self.line(f"print({s})"),
            lambda: self.line(f"KEPT.append(str({s}))"),
            lambda: self.line(f"print({read}, {env.tensors[-1] if env.tensors else 'inputs'}.requires_grad)"),
            lambda: self.line(f"print('step', {env.step or 0}, {self.formatted(env)})"),
            lambda: self.line(f"{self.helper('show')}({s})"),
            lambda: self.line(f"{self.helper('watch')}({read})"),
            lambda: self.line(f"print({read}, {self.read(env, s)})"),
            lambda: self.bind_number(env, read),
            lambda: self.named_read(env, read),
            lambda: self.guarded(env, lambda inner: self.line(f"print({self.formatted(inner)})")),
        ]
        if env.totals:
            total = self.pick(env.totals)
            grow = [f"{total} += {read}"] * 4 + [
                f"{total} += {read} * {n}",
                f"{total} += {n} * {read}",
                f"{total} += {read} / 2",
                f"{total} = {total} + {read}",
                f"{total} += {s}.item() * 0.25" if s.isidentifier() else f"{total} += ({s}).item() * 0.25",
            ]
            forms += [lambda: self.line(self.pick(grow))] * 4
            if s.isidentifier():
                whole = [f"{total} += {s}", f"{total} += {s}", f"{total} = {total} + {s}", f"{total} += {s} * {n}"]
                forms += [lambda: self.line(self.pick(whole))] * 2
            if self.chance(0.3):
                forms.append(lambda: self.guarded(env, lambda inner: self.show_total(inner, total)))
        if env.tables:
            table = self.pick(env.tables)
            writes = [
                f"{table}['total'] += {read}",
                f"{table}['total'] += {read} * {n}",
                f"{table}['last'] = {read}",
                f"{table}[{env.step or 0}, 'loss'] = {read}",
                f"{table}['all'].append({read})",
                f"{table}['seen'] = {table}.get('seen', 0) + {n}",
                f"{table}['all'] += [{s}]",
                f"KEPT.append({table}['all'])",
            ]
            forms += [lambda: self.line(self.pick(writes))] * 3
            shown = [f"print({table})", f"print({table}['total'] / 2)", f"KEPT.append({table})", f"{table}['total'] = 0.0"]
            forms.append(lambda: self.guarded(env, lambda inner: self.line(self.pick(shown))))
        if env.lists:
            forms += [lambda: self.line(f"{self.pick(env.lists)}.append({self.pick([read, read, s])})")] * 2
        if env.numbers:
            number = self.pick(env.numbers)
            forms.append(lambda: self.line(f"{number} = {self.pick(['min', 'max'])}({number}, {read})"))
        if env.owner:
            forms += [
                lambda: self.line(f"{env.owner}.total += {read}"),
                lambda: self.line(f"{env.owner}.last = {self.pick([read, s])}"),
            ]
        if env.is_loop:
            exit_ = self.pick(["break", "continue", "raise ValueError('diverged')"] + ["return None"] * env.is_function)
            forms.append(
                lambda: self.guarded(env, lambda inner: self.line(exit_), f"{read} > {self.pick(['0.9', '1.5', '50'])}")
            )
        self.pick(forms)()

    def named_read(self, env: Env, read: str) -> None:
        """A name for a read, which totals and lists take, or that is shown now and then."""
        name = self.name("value")
        self.line(f"{name} = {read}")
        self.disturb(env)
        for total in env.totals:
            if self.chance(0.6):
                self.line(f"{total} += {self.pick([name, name, f'{name} * {env.size or 2}'])}")
        for held in env.lists:
            if self.chance(0.4):
                self.line(f"{held}.append({name})")
        self.disturb(env)
        for _ in range(self.pick([0, 1, 1, 2])):
            self.guarded(
                env, lambda inner: self.line(self.pick([f"print({name})", f"KEPT.append({name})", f"print({name} / 3)"]))
            )
        if self.chance(0.1):
            env.numbers.append(name)

    def guarded(self, env: Env, body: Callable[[Env], None], test: str | None = None) -> None:
        inner = env.inner()
        with self.block(f"if {test or self.condition(env)}:"):
            body(inner)
        if self.chance(0.15):
            with self.block("else:"):
                self.statement(env.inner())

    def disturb(self, env: Env) -> None:
        """Maybe something between two statements that breaks a proof."""
        while self.chance(self.mayhem):
            self.disturbance(env)

    def disturbance(self, env: Env) -> None:
        s = self.pick(env.scalars) if env.scalars else "inputs"
        t = self.pick(env.tensors) if env.tensors else "inputs"
        alias = self.name("alias")
        in_place = self.pick(
            [
                f"{s}.data.mul_(2)",
                f"{s}.detach().add_(1)",
                f"{s}.data += 1",
                f"{t}.data[0] = 0.5",
                f"{t}.detach()[0].mul_(3)",
                f"torch.add({s}.detach(), 1, out={s}.detach())" if "." not in s else f"{s}.data.zero_()",
                f"{s}.detach().copy_({t}.detach().mean())",
                f"{s}.detach().cpu().numpy()[...] = 0.25",
                f"torch._foreach_add_([{s}.detach()], 1)",
                f"nn.init.constant_({s}.data, 0.75)",
                f"{self.helper('double_')}({s})",
                f"{self.helper('shake')}()",
                f"{self.helper('keep')}({s})",
                f"{self.helper('apply')}({self.helper('double_')}, {s})",
                f"[v.data.mul_(0.5) for v in [{s}]]",
                f"F.relu({s}.detach(), inplace=True)",
                f"setattr({s}, 'data', {s}.data * 2)",
                f"max({s}, {s}).data.mul_(2)",
                f"(*parts,) = ({s},); parts[0].data.mul_(2)",
                f"torch.empty(()).set_({s}.detach()).mul_(2)",
                f"torch.utils.data.default_convert({s}.detach()).mul_(2)",
                f"nn.SiLU(**{{'inplace': True}})({s}.detach())",
                f"torch.Tensor.add_({s}.detach(), 1)",
                f"operator.iadd({s}.detach(), 1)",
                f"write = {s}.detach().mul_; write(2)",
                f"[{s} for _ in range(1)][0].data.mul_(2)",
                f"{{0: {s} for _ in range(1)}}[0].data.mul_(2)",
                f"(+{s}.detach()).mul_(2)",
                f"nn.Identity()({s}.detach()).add_(1)",
                f"{s}.detach().requires_grad_(False).mul_(2)",
                f"torch.from_numpy({s}.detach().numpy()).zero_()",
                f"torch.squeeze({s}.detach()).mul_(2)",
                f"{self.helper('Scale')}(2) * {s}",
                f"{s} * {self.helper('Scale')}(2)",
                f"(lambda v={s}: v.data.mul_(2))()",
                f"list(map({self.helper('double_')}, [{s}]))",
                f"max({s}, key=lambda v: {s}.data.mul_(2)) if {s}.dim() else 0",
                f"print({s}.data.mul_(2).item())",
                f"(doubled := {s}.detach()).mul_(2)",
                f"first = second_name = {s}.detach(); second_name.mul_(2)",
                f"functools.partial({self.helper('double_')}, {s})()",
                f"{self.helper('writing')}({s}).__enter__()",
                f"with {self.helper('writing')}({s}): pass",
                f"for item in [{s}]: item.data.mul_(2)",
                f"KEPT[:] = [{s}]; KEPT[0].data.mul_(2)",
                f"vars(KEPT)['x'] = {s}" if self.chance(0.05) else f"KEPT.extend([{s}]); {self.helper('shake')}()",
            ]
        )
        forms: list[Callable[[], None]] = [lambda: self.line(in_place)] * 4
        forms += [
            lambda: self.alias(env, alias, s),
            lambda: self.alias(env, alias, s),
            lambda: self.closure(env, s),
            lambda: self.guarded(env, lambda inner: self.line(in_place)),
            lambda: self.line(f"torch.manual_seed({self.pick('123')})"),
            lambda: self.line("noise = torch.rand(2)"),
            lambda: self.box(env, s),
            lambda: self.line(f"KEPT.append({s})"),
            lambda: self.line(f"{t}.data.clamp_(-1, 1)"),
            lambda: self.rebind(env),
            lambda: self.line("time.perf_counter()"),
            lambda: self.constants(env),
            *[lambda: self.hidden(s)] * 4,
            *[lambda: self.reached(s)] * 6,
        ]
        if env.models:
            m = self.pick(env.models)
            forms += [
                lambda: self.line(f"print({self.helper('grads')}({m}))"),
                lambda: self.line(f"{self.helper('clear')}({m})"),
                lambda: self.line(f"nn.utils.clip_grad_norm_({m}.parameters(), 1.0)"),
                lambda: self.line(f"{m}.{self.pick(['train', 'eval'])}()"),
                lambda: self.line(f"print(next({m}.parameters()).grad is None)"),
                lambda: self.line(f"{self.helper('penalise')}({m})"),
                lambda: self.line(f"{m}.apply({self.helper('report')})"),
                lambda: self.line(f"{m}.{self.pick(['half', 'double', 'bfloat16'])}().float()"),
                lambda: self.line(f"nn.utils.vector_to_parameters(torch.ones(99), {m}.parameters())"),
                lambda: self.line(f"print(list(map({self.helper('norm')}, {m}.parameters())))"),
                lambda: self.line(f"print(sum({self.helper('norm')}(p) for p in {m}.parameters()))"),
                lambda: self.line(f"predicted = {m}({t}[:, :3]).argmax(1)") if t == "x" else None,
                lambda: self.line(f"accuracy = ({m}({t}[:, :3]).argmax(1) == 0).float().mean().item()") if t == "x" else None,
                lambda: self.line(f"for p in {m}.parameters(): p.grad = None if p.grad is None else p.grad * 0.5"),
            ]
        if env.optimizers:
            o = self.pick(env.optimizers)
            forms += [
                lambda: self.line(f"{o}.zero_grad()"),
                lambda: self.line(f"{o}.step()"),
                lambda: self.line(f"{o}.param_groups[0]['lr'] *= 0.5"),
                lambda: self.guarded(env, lambda inner: self.line(f"{o}.{self.pick(['step', 'zero_grad'])}()")),
            ]
        if env.totals:
            total = self.pick(env.totals)
            forms += [
                lambda: self.line(f"print({total})"),
                lambda: self.line(f"{total} {self.pick(['*=', '+=', '-='])} 0.5"),
                lambda: self.guarded(env, lambda inner: self.show_total(inner, total)),
                lambda: self.guarded(env, lambda inner: self.line(f"{total} = {self.pick(['0', '0.0', '1.5'])}")),
            ]
        if env.is_loop:
            exit_ = self.pick(["break", "continue", "raise RuntimeError('stopped')"] + ["return -1"] * env.is_function)
            forms.append(lambda: self.guarded(env, lambda inner: self.line(exit_)))
        self.pick(forms)()

    def hidden(self, s: str) -> None:
        """Something that runs without being called."""
        h = self.name("hidden")
        kind = self.pick(["keep", "ask", "graph", "write", "double"])
        self.line(f"{h} = {self.helper('Hidden')}({kind!r})")
        self.line(
            self.pick(
                [
                    f"{h}.value",
                    f"{h}[0]",
                    f"len({h})",
                    f"for _ in {h}: pass",
                    f"with {h}: pass",
                    f"print({h})",
                    f"print(f'{{{h}}}')",
                    f"{h} == {s}",
                    f"1 in {h}",
                    f"{h} + {s}",
                    f"{s} + {h}",
                    f"-{h}",
                    f"{h}()",
                    f"{h}.attr = 1",
                    f"del {h}[{s}]",
                    f"assert {h}",
                    f"1 if {h} else 0",
                    f"[*{h}]",
                    f"{h}.key({s})",
                    f"list(map({h}.key, [{s}]))",
                    f"sorted([{s}, {s}], key={h}.key)",
                    f"max([{s}, {s}], key={h}.key)",
                    f"functools.partial({h}.key, {s})()",
                    f"getattr({h}, 'value')",
                ]
            )
        )

    def alias(self, env: Env, alias: str, s: str) -> None:
        form = self.pick(
            [
                "{}",
                "{}.detach()",
                "{}.data",
                "{}.view(-1)",
                "{}[...]",
                "{}.reshape(1)",
                "{}.detach().numpy()",
                "{}.T",
                "[{}]",
                "{}.expand(1)",
            ]
        )
        self.line(f"{alias} = {form.format(s)}")
        if self.chance(0.3):
            self.reading(env)
        target = f"{alias}[0]" if form == "[{}]" else alias
        if "numpy" in form:
            self.line(f"{target} += 1")
        elif form != "{}.expand(1)":
            self.line(f"{target}.data.{self.pick(['mul_(3)', 'add_(1)', 'zero_()'])}")

    def closure(self, env: Env, s: str) -> None:
        f = self.name("inner_")
        if self.chance(0.5):
            self.line(f"{f} = lambda: {s}.data.mul_(2)")
        else:
            with self.block(f"def {f}():"):
                if s.isidentifier() and env.is_function and s in env.scalars and not env.owner and self.chance(0.5):
                    self.line(f"nonlocal {s}")
                    self.line(f"{s} = {s} * 2")
                else:
                    self.line(self.pick([f"{s}.data.mul_(2)", f"return {s}.item()", f"print({s}.sum().item())"]))
        if self.chance(0.4):
            self.reading(env)
        self.line(self.pick([f"{f}()", f"{self.helper('apply')}({f})"]))

    def box(self, env: Env, s: str) -> None:
        box = self.name("box")
        self.line(f"{box} = {self.helper('Box')}({s})")
        if self.chance(0.4):
            self.reading(env)
        self.line(f"{box}.bump()")

    def rebind(self, env: Env) -> None:
        if not env.scalars:
            return
        s = self.pick(env.scalars)
        if not s.isidentifier():
            return
        body = self.pick([f"{s} = {s} * 0.5", f"{s} = {self.scalar(env)}", f"{s} += 0.25", f"{s} = {s}.detach()"])
        if self.chance(0.4):
            self.guarded(env, lambda inner: self.line(body))
        else:
            self.line(body)

    def constants(self, env: Env) -> None:
        """Tensors that are built on the host and moved."""
        c = self.name("const")
        n = env.size or "3"
        dtype = self.pick(
            ["", "", "", ", dtype=torch.float64", ", dtype=torch.int64", ", dtype=torch.float16", ", dtype=torch.uint8"]
        )
        number = self.pick(["0.0", "1", "-1.5", "3", "True", "1e-8", "300", "-2", "65504", "0.1", "2.5"])
        move = self.pick(
            [".to(device)", ".to(device)", ".to(inputs.device)", ".to(device, non_blocking=True)", ".to(device=device)"]
        )
        made = self.pick(
            [
                f"torch.zeros({n}, 2{dtype}){move}",
                f"torch.ones(({n}, 2){dtype}){move}",
                f"torch.eye(3{dtype}){move}",
                f"torch.full((2, 2), {number}{dtype}){move}",
                f"torch.arange({n}{dtype}){move}",
                f"torch.arange(0, 10, {self.pick(['2', '3', '0.5'])}{dtype}){move}",
                f"torch.arange(1, 7{dtype}){move}",
                f"torch.rand(2, 2){move}",
                f"torch.tensor({number}{dtype}, device=device)",
                f"torch.tensor({number}, device=device{dtype})",
                f"torch.tensor({number}, device=device, requires_grad=True)",
                f"torch.tensor({number}{dtype}){move}",
                f"torch.tensor([{number}, 1]{dtype}){move}",
                f"torch.randn(2){move}",
                f"torch.zeros_like(inputs){move}",
                f"torch.randint(0, 2, (4,), dtype=torch.uint8).float(){move}",
                f"torch.arange(5, dtype=torch.int16).long(){move}",
                f"(torch.arange(5, dtype=torch.int32) + 1).double(){move}",
                f"torch.zeros(3, dtype=torch.float16).float(){move}",
                f"torch.arange(2**24, 2**24 + 3, dtype=torch.int32).float(){move}",
                "torch.ger(torch.ones(2), torch.arange(3.0))",
            ]
        )
        self.line(f"{c} = {made}")
        self.line(
            self.pick([f"print({c}.dtype, {c}.tolist())", f"KEPT.append({c})", f"print({c}.float().sum().item(), {c}.shape)"])
        )
        if self.chance(0.5) and "dtype" not in made and "tensor(" in made and "[" not in made:
            env.scalars.append(c)

    def statement(self, env: Env) -> None:
        """Some statement of a loop body."""
        if self.chance(0.25):
            name = self.name("value")
            self.line(f"{name} = {self.scalar(env)}")
            env.scalars.append(name)
        elif self.chance(0.12):
            self.wrapped(env)
        elif self.chance(0.12):
            self.elements(env)
        else:
            self.reading(env)

    def wrapped(self, env: Env) -> None:
        kind = self.pick(["try", "finally", "with", "if", "for", "while", "no_grad"])
        inner = env.inner()
        if kind in ("try", "with"):
            self.breaks.add(Kind.ERRORS_ARE_BUGS)
        if kind == "try":
            with self.block("try:"):
                self.statement(inner)
                self.disturb(inner)
            with self.block(f"except {self.pick(['ValueError', 'RuntimeError', 'Exception'])} as error:"):
                self.line("print('caught', type(error).__name__, error)")
                if self.chance(0.4):
                    self.statement(env.inner())
            if self.chance(0.3):
                with self.block("else:"):
                    self.statement(env.inner())
        elif kind == "finally":
            with self.block("try:"):
                self.statement(inner)
                self.disturb(inner)
            with self.block("finally:"):
                self.statement(env.inner())
        elif kind == "with":
            with self.block("with contextlib.suppress(ValueError):"):
                self.statement(inner)
        elif kind == "no_grad":
            with self.block(f"with torch.{self.pick(['no_grad', 'no_grad', 'inference_mode', 'enable_grad'])}():"):
                self.statement(inner)
                self.statement(inner)
        elif kind == "if":
            self.guarded(env, lambda e: (self.statement(e), self.statement(e), None)[2])
        elif kind == "for":
            inner.step = self.name("k")
            with self.block(f"for {inner.step} in range({self.pick('123')}):"):
                inner.is_loop = True
                self.statement(inner)
                self.disturb(inner)
                self.statement(inner)
        else:
            count = self.name("left")
            self.line(f"{count} = 2")
            with self.block(f"while {count}:"):
                self.line(f"{count} -= 1")
                self.statement(inner)
                self.statement(inner)

    def elements(self, env: Env) -> None:
        t = self.pick(env.tensors) if env.tensors else "inputs"
        name = self.name("values")
        source = self.pick(
            [
                f"{t}[0]",
                f"{t}.sum(0)",
                f"{t}.mean(1)",
                f"{t}.argmax(1)",
                f"{t}.flatten()",
                f"{t}.flatten()",
                f"{t}.reshape(-1)",
                f"({t} * 2).view(-1)",
                f"torch.stack([{t}.sum(), {t}.mean()])",
                f"{t}.sum(0).half()",
                f"{t}[:, 0]",
            ]
        )
        if self.chance(0.5):
            vector = self.name("vector")
            self.line(f"{vector} = {source}")
            source = vector
        form = self.pick(
            [
                "[v.item() for v in {0}]",
                "[float(v) for v in {0}]",
                "[int(v) for v in {0}]",
                "[v.item() for v in {0} if v > 0]",
                "[v.item() * 2 for v in {0}]",
                "sum([v.item() for v in {0}])",
                "list(v.item() for v in {0})",
            ]
        )
        self.line(f"{name} = {form.format(source)}")
        self.line(f"print({name})")
