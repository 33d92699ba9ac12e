"""Small random training programs: what people write around PyTorch, mixed with what breaks a careless fixer's proofs.

`program(seed)` gives the files of one program, `main.py` and often `helpers.py`. A program is a scene or two (a training
loop, an evaluation, a recurrent network, ...) in which each choice is drawn, with *disturbances* strewn between the
statements: writes through aliases and views, closures, early exits, exceptions, helpers that keep what they are given.
Nearly all programs run to their end; those that raise do so on a value, and must raise the same after a fix.
"""

from __future__ import annotations

import ast
import contextlib
import random
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_LIBRARY = (Path(__file__).parent / "training_helpers.py").read_text(encoding="utf-8")
HELPERS = {
    node.name: f"{ast.get_source_segment(_LIBRARY, node)}\n"
    for node in ast.parse(_LIBRARY).body
    if isinstance(node, (ast.FunctionDef, ast.ClassDef))
}
"""Functions and classes that programs import from their second module, or define themselves."""


@dataclass
class Env:
    """What is bound where the next statement goes."""

    scalars: list[str] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    totals: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    optimizers: list[str] = field(default_factory=list)
    step: str | None = None
    size: str | None = None
    is_loop: bool = False
    is_function: bool = False
    owner: str | None = None

    def inner(self) -> Env:
        """The same for a block whose own names end with it."""
        lists = {name: list(value) for name, value in vars(self).items() if isinstance(value, list)}
        return replace(self, **lists)  # type: ignore[arg-type]  # the values are the lists of the fields


class Author:
    """Writes one program, choice by choice."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 0
        self.counter = 0
        self.has_module = self.rng.random() < 0.6
        self.mayhem = self.rng.choice([0.0, 0.1, 0.1, 0.25, 0.5])
        """How often a disturbance stands between two statements."""

    # -- words ---------------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.random() * len(options))]

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def helper(self, name: str) -> str:
        """The name of a helper, which the program gets if its text speaks of it."""
        assert name in HELPERS
        return name

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text if text else "")

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        at = len(self.lines)
        yield
        if len(self.lines) == at:
            self.line("pass")
        self.depth -= 1

    # -- expressions ---------------------------------------------------------------------------------------------------

    def scalar(self, env: Env) -> str:
        """An expression for a 0-d floating tensor."""
        t = self.pick(env.tensors) if env.tensors else "inputs"
        s = self.pick(env.scalars) if env.scalars else "inputs.sum()"
        forms = [
            f"{t}.sum()",
            f"{t}.mean()",
            f"{t}.pow(2).mean()",
            f"{t}.max()",
            f"{t}.norm()",
            f"torch.sum({t})",
            f"{t}[0, 0]",
            f"{t}[0].sum()",
            f"{t}.detach().mean()",
            f"{t}.double().mean()",
            f"{t}.view(-1)[0]",
            f"{t}.reshape(-1).sum()",
            f"{s} * 2",
            f"{s} + 1",
            f"0.5 * {s} + {t}.mean()",
            f"+{s}",
            f"-{s}",
            f"{s}.detach()",
            f"{s}.clone()",
            f"{s}.float()",
            f"{s}.detach().clone()",
            f"{s}.squeeze()",
            f"{s}.data",
            f"{s}.abs()",
            f"{s}.to(device)",
            f"{s}.contiguous()",
            f"{s}.view(())",
            f"({s} if {t}.numel() > 4 else {t}.mean())",
            f"({s} or {t}.mean())",
            f"torch.as_tensor({s})",
            f"torch.relu({s})",
            f"F.dropout({s}, 0.5, False)",
            f"torch.stack([{s}, {t}.mean()]).sum()",
            f"torch.stack([{s}, {t}.mean()])[0]",
            f"torch.maximum({s}, {t}.mean())",
            f"({t} > 0).float().mean()",
            f"({t} > 0).sum()",
            f"F.mse_loss({t}, {t} * 0.5)",
            f"F.smooth_l1_loss({t}, torch.zeros_like({t}))",
            f"({t} > 0).sum().mul_(2 ** 62)",
            f"({t}.long() + 2 ** 61).sum()",
            f"{t}.double().view(torch.int64).sum()",
            f"F.mse_loss({t}, {t} * 0.5, None, {self.pick(['True', 'False'])})",
            f"F.mse_loss({t}, {t} * 0.5, **{{'reduction': {self.pick(['mean', 'none'])!r}}})",
            f"max({s}, {s})",
            f"{self.helper('same')}({s})",
            f"{self.helper('flat')}({t})",
            f"{self.helper('keep')}({t}.mean())",
        ]
        if env.models:
            m = self.pick(env.models)
            forms += [
                f"sum(p.sum() for p in {m}.parameters())",
                f"next({m}.parameters()).sum()",
                f"next({m}.parameters()).view(-1)[0]",
            ]
        return self.pick(forms)

    def read(self, env: Env, scalar: str | None = None) -> str:
        """An expression for the number that a scalar tensor holds."""
        s = scalar or (self.pick(env.scalars) if env.scalars else self.scalar(env))
        if not s.replace(".", "").isidentifier() and not s.startswith("("):
            s = f"({s})"
        if self.chance(0.65):
            return f"{s}.item()"
        return self.pick(
            [
                f"float({s})",
                f"{s}.detach().item()",
                f"{s}.detach().cpu().item()",
                f"{s}.tolist()",
                f"{s}.data.item()",
                f"{s}.detach().cpu().numpy()",
                f"float({s}.detach().cpu().numpy())",
                f"round({s}.item(), 3)",
                f"{s}.cpu().item()",
                f"int({s})",
                f"{s}.detach().float().cpu().tolist()",
            ]
        )

    def formatted(self, env: Env) -> str:
        s = self.pick(env.scalars) if env.scalars else self.scalar(env)
        return self.pick(
            [
                f"f'{{{s}:.4f}}'",
                f"f'{{{s}.item():.4f}}'",
                f"f'{{{s}}}'",
                f"'{{:.3f}}'.format({s}.item())",
                f"'{{:.3f}}'.format({s})",
                f"'%.3f' % {s}.item()" if s.isidentifier() else f"'%.3f' % ({s}).item()",
                f"'%.5f' % float({s})",
                f"{s}.item()",
                f"float({s})",
                f"f'{{{s}.item():.2e}} {{{s}.item() * 2:.2f}}'",
            ]
        )

    def condition(self, env: Env) -> str:
        forms = [
            f"{self.read(env)} > {self.pick(['0', '0.5', '2.0', '1e3'])}",
            "len(KEPT) % 2 == 0",
            "torch.cuda.is_available()",
        ]
        if env.step:
            forms += [
                f"{env.step} % 2 == {self.pick('01')}",
                f"({env.step} + 1) % 3 == 0",
                f"{env.step} == 1",
                f"{env.step} > 1",
            ] * 2
        if env.scalars:
            s = self.pick(env.scalars)
            forms += [f"{s} > {self.pick(['0', '1'])}", f"torch.isnan({s})", f"not torch.isfinite({s})"]
        if env.numbers:
            forms.append(f"{self.pick(env.numbers)} is not None")
        return self.pick(forms)

    # -- statements that read ------------------------------------------------------------------------------------------

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

    def show_total(self, env: Env, total: str) -> None:
        self.line(
            self.pick([f"print('mean', {total} / 3)", f"print(f'{{{total}:.5f}}')", f"print({total})", f"KEPT.append({total})"])
        )
        if self.chance(0.6):
            self.line(f"{total} = {self.pick(['0.0', '0', '0.0', '1.0'])}")

    def bind_number(self, env: Env, read: str) -> None:
        name = self.name("number")
        self.line(f"{name} = {read}")
        env.numbers.append(name)

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

    # -- disturbances --------------------------------------------------------------------------------------------------

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

    # -- statements ----------------------------------------------------------------------------------------------------

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

    # -- networks ------------------------------------------------------------------------------------------------------

    def network(self) -> str:
        """An expression that builds a network from (n, 3) to (n, 2); may write a class first."""
        if self.chance(0.35):
            return self.pick(
                [
                    "nn.Linear(3, 2)",
                    "nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))",
                    "nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 2))",
                    "nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 2))",
                ]
            )
        return self.recurrent() if self.chance(0.45) else self.module()

    def module(self) -> str:
        cls = self.name("Net")
        env = Env(tensors=["x", "h"], is_function=True, owner="self", size="x.size(0)")
        with self.block(f"class {cls}(nn.Module):"):
            with self.block("def __init__(self):"):
                self.line("super().__init__()")
                self.line("self.first = nn.Linear(3, 4)")
                self.line(f"self.second = nn.{self.pick(['Linear(4, 2)', 'Linear(4, 2, bias=False)'])}")
                self.line("self.total, self.last, self.seen = 0.0, None, 0")
                extra = self.pick(["", "", "nn.Dropout(0.5)", "nn.BatchNorm1d(4)", "nn.LayerNorm(4)", "nn.Identity()"])
                if extra:
                    self.line(f"self.extra = {extra}")
                if self.chance(0.3):
                    self.line("self.register_buffer('mean', torch.zeros(4))")
                    extra += "mean"
            self.line("")
            with self.block("def forward(self, x):"):
                if self.chance(0.4):
                    self.line(
                        self.pick(
                            [
                                "mask = torch.ones(x.size(0), 3).to(x.device)",
                                "mask = torch.ones(x.shape).to(device)",
                                "mask = torch.full((x.size(0), 3), 0.5).to(x.device)",
                            ]
                        )
                    )
                    self.line("x = x * mask")
                self.line("h = torch.relu(self.first(x))")
                if extra and extra != "mean":
                    self.line("h = self.extra(h)")
                if extra.endswith("mean"):
                    self.line("self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)")
                    if self.chance(0.5):
                        self.line("h = h + self.mean")
                for _ in range(self.pick([0, 0, 0, 1, 1, 2])):
                    self.network_quirk(env)
                if self.chance(0.15):
                    self.statement(env)
                self.line(
                    self.pick(
                        [
                            "return self.second(h)",
                            "out = self.second(h)\n        return out".replace("        ", "    " * self.depth),
                        ]
                    )
                )
        self.line("")
        self.line("")
        return f"{cls}()"

    def network_quirk(self, env: Env) -> None:
        self.line(
            self.pick(
                [
                    "self.last = h",
                    "self.last = h.detach()",
                    "self.seen += x.size(0)",
                    "h = h + torch.arange(4).to(x.device)",
                    "h = h + torch.zeros(4).to(device)",
                    "h = h * torch.tensor(0.5, device=x.device)",
                    "h = h * torch.tensor(2, device=device)",
                    "if self.last is not None and self.last.shape == h.shape:\n"
                    + "    " * (self.depth + 1)
                    + "h = h + 0.1 * self.last",
                    "print('grad', torch.is_grad_enabled())",
                    "h = h + torch.randn(4).to(x.device) * 0.1",
                    "if self.training:\n" + "    " * (self.depth + 1) + "h = h * 1.5",
                    "print(self.first.weight.grad is None)",
                    "self.total += h.sum().item()",
                    "if h.requires_grad:\n" + "    " * (self.depth + 1) + "h.register_hook(lambda g: g * 2)",
                    "self.cache = self.__dict__.get('cache', h.detach() * 0 + 1)[:1]\n"
                    + "    " * self.depth
                    + "h = h * self.cache",
                    "self.first.weight.data.mul_(0.99)",
                    "h.add_(0.1)",
                    "keep(h)",
                    "h = h + len(KEPT)",
                    "h = F.dropout(h, 0.5, self.training)",
                    "print(h.mean())",
                    "h[:, 0] = 0.5",
                    "watch(h.max(), 1.5)",
                    "watch(x.abs().max(), 2.0)",
                ]
            )
        )

    def recurrent(self) -> str:
        cls = self.name("Recurrent")
        kind = self.pick(["LSTM", "LSTM", "GRU", "RNN", "GRUCell", "LSTMCell", "RNNCell"])
        layers = 1 if kind.endswith("Cell") else self.pick([1, 1, 2])
        both = not kind.endswith("Cell") and self.chance(0.2)
        first = not kind.endswith("Cell") and self.chance(0.6)
        width = 4
        pair = kind.startswith("LSTM")
        states = layers * (2 if both else 1)
        style = self.pick(
            ["zeros", "zeros", "moved", "moved", "helper", "method", "none", "kept", "randn", "new_zeros", "cuda"]
        )
        cell = kind.endswith("Cell")
        with self.block(f"class {cls}(nn.Module):"):
            with self.block("def __init__(self):"):
                self.line("super().__init__()")
                options = "" if cell else f", {layers}" + ", bidirectional=True" * both + ", batch_first=True" * first
                self.line(f"self.rnn = nn.{kind}(3, {width}{options})")
                self.line(f"self.head = nn.Linear({width * (2 if both else 1)}, 2)")
                self.line("self.total, self.last = 0.0, None")
                if style == "kept":
                    self.line("self.h, self.c = None, None")
            self.line("")
            shape = f"batch, {width}" if cell else f"{states}, batch, {width}"
            if style == "method":
                with self.block("def init_hidden(self, batch):"):
                    self.line(f"h = torch.zeros({shape}){self.pick(['', '.to(device)'])}")
                    if pair:
                        self.line(f"c = torch.zeros({shape}){self.pick(['', '.to(device)'])}")
                    if self.chance(0.2):
                        self.line(self.pick(["self.last = h", "KEPT.append(h)", "print('state', batch)"]))
                    self.line("return h, c" if pair else "return h")
                self.line("")
            with self.block("def forward(self, x):"):
                self.line("batch = x.size(0)")
                env = Env(tensors=["x"], is_function=True, owner="self", size="batch")
                given = self.state(env, style, shape, pair, states, cell, width)
                if self.chance(0.25):
                    self.disturb_state(given, pair)
                if cell:
                    self.line("sequence = x.unsqueeze(1).repeat(1, 3, 1)")
                    with self.block("for t in range(3):"):
                        target = "h, c" if pair else "h"
                        if style == "none" or not given:
                            self.line("state = self.rnn(sequence[:, t])")
                            self.line("h = state[0]" if pair else "h = state")
                        elif self.chance(0.2):
                            self.line(f"outs = self.rnn(sequence[:, t], {'(h, c)' if pair else 'h'})")
                        else:
                            self.line(f"{target} = self.rnn(sequence[:, t], {'(h, c)' if pair else 'h'})")
                    self.line("feature = h")
                else:
                    self.line("sequence = x.unsqueeze(1).repeat(1, 3, 1)" + ("" if first else ".transpose(0, 1)"))
                    argument = f", {given}" if given else ""
                    if self.chance(0.1) and given:
                        argument = f", hx={given}"
                    out = self.pick(["out, _", "out, state", "out, hidden"])
                    self.line(f"{out} = self.rnn(sequence{argument})")
                    if style == "kept":
                        name = out.partition(", ")[2]
                        self.line(
                            f"self.h, self.c = {name}[0].detach(), {name}[1].detach()" if pair else f"self.h = {name}.detach()"
                        )
                    self.line("feature = " + ("out[:, -1]" if first else "out[-1]"))
                    if given and self.chance(0.15):
                        self.line(
                            self.pick(
                                ["feature = feature + h.sum()", "print(h.sum().item())", "self.last = h", "KEPT.append(h)"]
                            )
                            if "h" in given.strip("()").split(", ")
                            else "pass"
                        )
                self.line("return self.head(feature)")
        self.line("")
        self.line("")
        return f"{cls}()"

    def state(self, env: Env, style: str, shape: str, pair: bool, states: int, cell: bool, width: int) -> str:
        """Lines that build the state; the expression for it, empty for none."""
        if style == "none":
            if cell:
                style = "zeros"
            else:
                return ""
        if style == "kept" and cell:
            style = "moved"
        where = self.pick(
            [".to(x.device)", ".to(device)", ".to(device)", ".to(x.device, non_blocking=True)", ".to(device=device)"]
        )
        zeros = {
            "zeros": f"torch.zeros({shape}{self.pick(['', ', device=x.device', ', dtype=x.dtype', ', dtype=torch.float64'])})",
            "moved": f"torch.zeros({shape}{self.pick(['', '', ', dtype=x.dtype', ', dtype=torch.float32'])}){where}",
            "randn": f"torch.randn({shape}){where}",
            "new_zeros": f"x.new_zeros({shape})",
            "cuda": f"torch.zeros({shape}).type_as(x)",
            "kept": f"torch.zeros({shape}){where}",
            "method": "",
            "helper": "",
        }[style]
        if style == "method":
            if pair and self.chance(0.5):
                self.line("h, c = self.init_hidden(batch)")
                return "(h, c)"
            self.line(f"{'h = hidden' if not pair else 'hidden'} = self.init_hidden(batch)")
            if pair and cell:
                self.line("h, c = hidden")
            return "hidden" if pair else "h"
        if style == "helper" and not cell:
            helper = self.pick(["zero_state", "counted_state", "moved_state"])
            zeros = f"{self.helper(helper)}({states}, batch, {width}{', device' * (helper == 'moved_state')})"
        elif style == "helper":
            zeros = f"torch.zeros({shape}){where}"
        if style == "kept":
            with self.block("if self.h is None or self.h.size(1) != batch:"):
                self.line(f"self.h = {zeros}")
                if pair:
                    self.line(f"self.c = {zeros}")
            self.line("h = self.h")
            if pair:
                self.line("c = self.c")
            return "(h, c)" if pair else "h"
        if not cell and self.chance(0.25):
            return f"({zeros}, {zeros})" if pair else zeros
        if pair and self.chance(0.2):
            self.line(f"h = {zeros}")
            self.line(self.pick(["c = torch.zeros_like(h)", "c = h", "c = h.clone()"]))
        else:
            self.line(f"h = {zeros}")
            if pair:
                self.line(f"c = {zeros}")
        if not cell and pair and self.chance(0.2):
            self.line("hidden = (h, c)")
            return "hidden"
        return "(h, c)" if pair else "h"

    def disturb_state(self, given: str, pair: bool) -> None:
        if "h" not in given.strip("()").split(", "):
            return
        self.line(
            self.pick(
                [
                    "h += 0.5",
                    "h.fill_(0.25)",
                    "h[0] = 1",
                    "nn.init.ones_(h)",
                    "print(h.sum().item())",
                    "self.last = h",
                    "KEPT.append(h)",
                    "h = h + 0",
                    "h.requires_grad_()",
                    "h.data.add_(1)",
                ]
            )
        )

    # -- scenes --------------------------------------------------------------------------------------------------------

    def loader(self) -> str:
        return self.pick(
            [
                "DataLoader(TensorDataset(inputs, targets), batch_size=2)",
                "DataLoader(TensorDataset(inputs, targets), batch_size=2)",
                "DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)",
                "DataLoader(list(zip(inputs, targets)), batch_size=3)",
                "[(inputs[:3], targets[:3]), (inputs[3:], targets[3:])]",
                "list(zip(inputs.split(2), targets.split(2)))",
                "DataLoader(TensorDataset(inputs, targets), batch_size=2, pin_memory=torch.cuda.is_available())",
            ]
        )

    def batches(self, env: Env, loader: str) -> str:
        """The header of a loop over batches; binds x and y, maybe a step."""
        if self.chance(0.55):
            env.step = self.pick(["i", "step", "batch_idx"])
            return f"for {env.step}, (x, y) in enumerate({loader}{self.pick(['', '', ', 1'])}):"
        if self.chance(0.15):
            return f"for x, y in {self.helper('pairs')}(inputs, targets, 2):"
        if self.chance(0.1):
            return f"for x, y in {loader}:"
        if self.chance(0.1):
            env.step = "i"
            return f"for i, batch in enumerate({loader}):"
        return f"for x, y in {loader}:"

    def move(self, header: str) -> None:
        if "batch in" in header:
            self.line("x, y = batch")
        keyword = self.pick(["", "", "", ", non_blocking=True"])
        self.pick(
            [
                lambda: self.line(f"x, y = x.to(device{keyword}), y.to(device{keyword})"),
                lambda: (self.line(f"x = x.to(device{keyword})"), self.line(f"y = y.to(device{keyword})"), None)[2],
                lambda: None,
                lambda: self.line("x = x.to(device).float()"),
            ]
        )()

    def training(self, env: Env, loader: str, epochs: bool) -> None:
        """A training loop: its sums, its loops, a step, what it shows."""
        model = env.models[0]
        optimizer = env.optimizers[0]
        if self.chance(0.75):
            total = self.pick(["total", "running_loss", "epoch_loss"])
            self.line(f"{total} = {self.pick(['0.0', '0.0', '0', '0.', '1.0'])}")
            env.totals.append(total)
        if self.chance(0.3):
            self.line("correct = 0")
        else:
            correct = False
        correct = self.lines[-1].strip() == "correct = 0"
        if self.chance(0.4):
            self.line("losses = []")
            env.lists.append("losses")
        if self.chance(0.2):
            self.line("meter = " + self.helper("Meter") + "()")
        has_meter = self.lines[-1].strip() == "meter = Meter()"
        outer = env.inner()
        if epochs:
            self.line(f"for epoch in range({self.pick('12')}):")
            self.depth += 1
            if self.chance(0.3) and env.totals:
                self.line(f"{env.totals[0]} = {self.pick(['0.0', '0'])}")
        if self.chance(0.1):
            self.line(f"{optimizer}.zero_grad()")
        inner = env.inner()
        inner.is_loop = True
        inner.size = self.pick(["len(x)", "x.size(0)", "x.shape[0]", "y.size(0)"])
        header = self.batches(inner, loader)
        with self.block(header):
            self.move(header)
            inner.tensors += ["x", "y"]
            self.step(inner, model, optimizer)
            for _ in range(self.pick([1, 1, 2, 2, 3, 4])):
                if correct and self.chance(0.3):
                    t = inner.tensors[-1]
                    self.line(
                        f"correct += ({t}.argmax(1) == y.argmax(1)).sum().item()"
                        if t in ("out", "pred")
                        else f"correct += ({t} > 0).sum().item()"
                    )
                elif has_meter and self.chance(0.3):
                    self.line(f"meter.update({self.read(inner)}, {inner.size})")
                else:
                    self.statement(inner)
                self.disturb(inner)
        if self.chance(0.06):
            with self.block("else:"):
                self.line("print('all batches seen')")
        if epochs:
            if self.chance(0.5):
                self.ending(outer, loader)
            self.depth -= 1
        self.ending(outer, loader)
        results = [*env.totals, *env.lists, *(["correct"] if correct else []), *(["meter.mean"] if has_meter else [])]
        self.leave(env, results)

    def ending(self, env: Env, loader: str) -> None:
        for total in env.totals:
            if self.chance(0.5):
                self.line(self.pick([f"print({total} / 3)", f"print(f'{{{total} / 3:.5f}}')", f"print('epoch', {total})"]))
        for values in env.lists:
            if self.chance(0.5):
                mean = self.pick([f"sum({values}) / max(len({values}), 1)", f"{values}[-1:]", f"np.mean({values} or [0])"])
                self.line(f"print({mean})")

    def leave(self, env: Env, results: list[str]) -> None:
        if env.is_function and results and self.chance(0.85):
            self.line(f"return {', '.join(results)}")
        elif results:
            self.line(f"print({', '.join(results)})")

    def step(self, env: Env, model: str, optimizer: str) -> None:
        """Forward, backward, step, in one of the usual orders."""
        clear = self.pick(
            [f"{optimizer}.zero_grad()"] * 6
            + [f"{model}.zero_grad()", f"{optimizer}.zero_grad(set_to_none=True)", f"{optimizer}.zero_grad(set_to_none=False)"]
        )
        place = self.pick(["first", "late", "late", "late", "before_backward", "end", "accumulate"])
        if place == "first":
            self.line(clear)
        self.disturb(env)
        self.forward(env, model)
        self.disturb(env)
        if place == "late":
            if self.chance(0.25):
                self.reading(env)
            self.line(clear)
            self.disturb(env)
        if self.chance(0.2):
            self.reading(env)
        if place == "before_backward":
            self.line(clear)
        loss = env.scalars[0]
        if len(env.optimizers) > 1 and self.chance(0.5):
            self.second_step(env, env.optimizers[1])
        self.line(f"{loss}.backward({self.pick(['', '', '', 'retain_graph=True'])})")
        self.disturb(env)
        if self.chance(0.15):
            self.reading(env)
        if place == "accumulate" and env.step:
            with self.block(f"if ({env.step} + 1) % 2 == 0:"):
                self.line(f"{optimizer}.step()")
                self.line(clear)
        elif self.chance(0.05):
            self.guarded(env, lambda inner: self.line(f"{optimizer}.step()"))
        else:
            self.line(f"{optimizer}.step()")
        if place == "end":
            self.disturb(env)
            self.line(clear)
        self.disturb(env)

    def second_step(self, env: Env, optimizer: str) -> None:
        model = env.models[-1]
        self.line(f"extra = {model}(x).pow(2).mean()")
        self.line(f"{optimizer}.zero_grad()")
        self.line(self.pick(["extra.backward()", "(extra * 0.5).backward()"]))
        self.line(f"{optimizer}.step()")
        env.scalars.append("extra")

    def forward(self, env: Env, model: str) -> None:
        form = self.pick(
            ["out", "out", "out", "direct", "square", "helper", "kept", "two", "whole", "branch", "walrus", "noisy"]
        )
        if form in ("out", "kept", "two", "branch"):
            self.line(f"out = {model}(x)")
            env.tensors.append("out")
            self.disturb(env)
        if form == "out":
            losses = ["F.mse_loss(out, y)", "criterion(out, y)", "F.cross_entropy(out, y.argmax(1))"]
            self.line(f"loss = {self.pick([*losses, 'F.l1_loss(out, y) + 0.1 * out.pow(2).mean()'])}")
        elif form == "direct":
            self.line(f"loss = F.mse_loss({model}(x), y)")
        elif form == "square":
            self.line(f"loss = ({model}(x) - y).pow(2).mean()")
        elif form == "helper":
            self.line(f"loss = {self.helper('mean_square')}({model}(x), y)")
        elif form == "kept":
            self.line(f"loss = {self.helper('kept_square')}(out, y)")
        elif form == "two":
            self.line(f"first, second = {self.helper('two_losses')}(out, y)")
            self.line("loss = first + 0.5 * second")
        elif form == "whole":
            self.line(f"loss = {self.helper('forward_loss')}({model}, x, y)")
        elif form == "branch":
            with self.block(f"if {self.pick(['x.size(0) > 2', 'out.sum() > 0'])}:"):
                self.line("loss = F.mse_loss(out, y)")
            with self.block("else:"):
                self.line("loss = F.l1_loss(out, y)")
        elif form == "walrus":
            with self.block(f"if (loss := F.mse_loss({model}(x), y)) > 100:"):
                self.line("print('large')")
        else:
            self.line(f"loss = F.mse_loss({model}(x + torch.randn_like(x)), y)")
        env.scalars.append("loss")
        if form == "two":
            env.scalars += ["first", "second"]
        if self.chance(0.08):
            self.line(
                self.pick(
                    [
                        "loss += 0.1",
                        "loss = loss / 2",
                        "loss *= 0.5",
                        "loss = loss + 0.01 * sum(p.pow(2).sum() for p in " + model + ".parameters())",
                    ]
                )
            )

    def train_scene(self) -> None:
        """A function that trains, and its call."""
        network = self.network()
        name = self.pick(["train", "train_one_epoch", "fit", "run"])
        two = self.chance(0.2)
        env = Env(models=["model"] + ["critic"] * two, optimizers=["optimizer"] + ["critic_optimizer"] * two, is_function=True)
        form = self.pick(["function", "function", "function", "method", "module", "generator"])
        if form == "module":
            env.is_function = False
            self.setting(network, two)
            self.line(f"loader = {self.loader()}")
            self.training(env, "loader", self.chance(0.5))
            return
        if form == "method":
            self.trainer(network)
            return
        arguments = "model, loader, optimizer" + ", critic, critic_optimizer" * two
        with self.block(f"def {name}({arguments}):"):
            if self.chance(0.3):
                self.line("model.train()")
            self.training(env, "loader", self.chance(0.3))
            if form == "generator" and self.chance(0.5):
                at = next((k for k, line in enumerate(self.lines) if line.strip() == "optimizer.step()"), None)
                if at is not None:
                    pad = self.lines[at][: -len(self.lines[at].lstrip())]
                    self.lines.insert(at + 1, f"{pad}yield loss")
            is_generator = any(line.strip() == "yield loss" for line in self.lines)
        self.line("")
        self.line("")
        self.setting(network, two)
        call = f"{name}(model, {self.loader()}, optimizer{', critic, critic_optimizer' * two})"
        self.called(f"[v.detach().clone() for v in {call}]" if is_generator else call)

    def setting(self, network: str, two: bool) -> None:
        self.line(f"model = {network}.to(device)")
        self.line(f"optimizer = torch.optim.{self.optimizer('model')}")
        if two:
            self.line(f"critic = {self.pick(['nn.Linear(3, 2)', 'nn.Sequential(nn.Linear(3, 2), nn.Tanh())', 'model'])}")
            self.line(f"critic_optimizer = torch.optim.{self.optimizer('critic')}")

    def optimizer(self, model: str) -> str:
        return self.pick(
            [
                f"SGD({model}.parameters(), lr=0.1)",
                f"SGD({model}.parameters(), lr=0.1, momentum=0.9)",
                f"Adam({model}.parameters(), lr=0.01)",
                f"AdamW({model}.parameters(), lr=0.01)",
                f"SGD(list({model}.parameters())[:1], lr=0.1)",
            ]
        )

    def called(self, call: str) -> None:
        """A call at the end of the program, in one of the ways in which results are looked at."""
        result = self.name("result")
        if self.chance(0.1):
            with self.block("with torch.autocast('cpu', dtype=torch.bfloat16):"):
                self.line(f"{result} = {call}")
            return
        if self.chance(0.05):
            self.line(f"float = {self.pick(['str', 'round', 'lambda value: 7'])}")
        form = self.pick(["plain", "plain", "print", "try", "twice", "grads", "no_grad"])
        if form == "print":
            self.line(f"print({call})")
        elif form == "try":
            with self.block("try:"):
                self.line(f"{result} = {call}")
            with self.block("except (ValueError, RuntimeError) as error:"):
                self.line("print('failed', type(error).__name__, error)")
                if self.chance(0.4):
                    self.line("optimizer.step()")
        elif form == "twice":
            with self.block("for turn in range(2):"):
                self.line(f"{result} = {call}")
                self.line(f"print(turn, {result})")
        elif form == "no_grad" and "evaluate" in call:
            with self.block("with torch.no_grad():"):
                self.line(f"{result} = {call}")
        else:
            self.line(f"{result} = {call}")
            if form == "grads":
                self.line("print([p.grad is None for p in model.parameters()])")
            if self.chance(0.2):
                self.line(f"if torch.is_tensor({result}) and {result}.requires_grad:\n    {result}.sum().backward()")

    def trainer(self, network: str) -> None:
        env = Env(models=["self.model"], optimizers=["self.optimizer"], is_function=True, owner="self", scalars=[])
        one = self.chance(0.5)
        with self.block("class Trainer:"):
            with self.block("def __init__(self, model, loader):"):
                self.line("self.model, self.loader = model, loader")
                self.line(f"self.optimizer = torch.optim.{self.optimizer('model')}")
                self.line("self.total, self.last, self.history = 0.0, None, []")
            self.line("")
            if one:
                with self.block("def training_step(self, x, y):"):
                    inner = env.inner()
                    inner.tensors += ["x", "y"]
                    self.line("x, y = x.to(device), y.to(device)")
                    self.step(inner, "self.model", "self.optimizer")
                    self.statement(inner)
                    self.line(
                        self.pick(
                            [
                                "return loss",
                                "return loss.item()",
                                "return loss.detach()",
                                "self.last = loss\n        return self.last",
                            ]
                        )
                    )
                self.line("")
                with self.block("def fit(self):"):
                    self.line(f"total = {self.pick(['0.0', '0'])}")
                    with self.block("for x, y in self.loader:"):
                        self.line("loss = self.training_step(x, y)")
                        self.line(
                            self.pick(
                                [
                                    "total += float(loss)",
                                    "total += loss.item() if torch.is_tensor(loss) else loss",
                                    "total += loss",
                                ]
                            )
                        )
                        if self.chance(0.3):
                            self.line("print(f'{float(loss):.4f}')")
                    self.line("return total")
            else:
                with self.block("def fit(self):"):
                    self.training(env, "self.loader", self.chance(0.4))
            self.line("")
            if self.chance(0.5):
                with self.block("def evaluate(self):"):
                    self.evaluation(Env(models=["self.model"], is_function=True, owner="self"), "self.loader")
        self.line("")
        self.line("")
        self.line(f"model = {network}.to(device)")
        self.line(f"trainer = Trainer(model, {self.loader()})")
        self.line("optimizer = trainer.optimizer")
        self.called("trainer.fit()")
        if any("def evaluate(self)" in line for line in self.lines):
            self.called("trainer.evaluate()")

    def evaluation(self, env: Env, loader: str) -> None:
        """The body of an evaluation, with or without autograd."""
        model = env.models[0]
        if self.chance(0.6):
            self.line(f"{model}.eval()")
        self.line(f"total = {self.pick(['0.0', '0'])}")
        self.line("correct = 0")
        env.totals.append("total")
        if self.chance(0.4):
            self.line("outputs = []")
            env.lists.append("outputs")
        outer = env.inner()
        manager = self.pick(["", "", "torch.no_grad()", "torch.no_grad()", "torch.no_grad()", "torch.inference_mode()"])
        if manager:
            self.line(f"with {manager}:")
            self.depth += 1
        inner = env.inner()
        inner.is_loop = True
        inner.size = "len(x)"
        header = self.batches(inner, loader)
        with self.block(header):
            self.move(header)
            inner.tensors += ["x", "y"]
            self.line(f"out = {model}(x)")
            inner.tensors.append("out")
            self.disturb(inner)
            self.line(f"loss = {self.pick(['F.mse_loss(out, y)', '(out - y).pow(2).mean()'])}")
            inner.scalars.append("loss")
            for _ in range(self.pick([1, 2, 2, 3])):
                form = self.pick(["count", "count", "total", "total", "collect", "any"])
                if form == "count":
                    self.line("correct += (out.argmax(1) == y.argmax(1)).sum().item()")
                elif form == "total":
                    self.line(f"total += loss.item(){self.pick(['', ' * len(x)'])}")
                elif form == "collect" and env.lists:
                    kept = ["out", "out.detach()", "out.cpu().detach().numpy()", "out.tolist()", "out.argmax(1)", "loss", "x"]
                    self.line(f"outputs.append({self.pick([*kept, 'loss.item()', 'out[0]', 'str(loss)'])})")
                else:
                    self.statement(inner)
                self.disturb(inner)
        if manager:
            self.depth -= 1
        if self.chance(0.3):
            self.line(f"{model}.train()")
        if self.chance(0.1):
            self.line(
                self.pick(
                    [
                        "KEPT.append(out)",
                        "print(out.requires_grad)",
                        "print(loss.item())",
                        "out.detach().add_(1)",
                        "KEPT.append(loss.detach())",
                    ]
                )
            )
        self.leave(
            outer,
            ["total", "correct", *env.lists, *(["out"] if self.chance(0.1) else []), *(["loss"] if self.chance(0.05) else [])],
        )

    def evaluate_scene(self) -> None:
        network = self.network()
        with self.block(f"{self.pick(['', '', '', '@torch.no_grad()' + chr(10)])}def evaluate(model, loader):"):
            self.evaluation(Env(models=["model"], is_function=True), "loader")
        self.line("")
        self.line("")
        self.setting(network, False)
        self.called(f"evaluate(model, {self.loader()})")
        if self.chance(0.5):
            self.line(f"print({self.helper('train_once')}(model, optimizer, inputs, targets).item())")
        if self.chance(0.4):
            if self.chance(0.4):
                with self.block("for kept in KEPT:"), self.block("if torch.is_tensor(kept) and kept.requires_grad:"):
                    self.line("kept.sum().backward()")
            elif self.chance(0.5):
                with self.block("for kept in KEPT:"), self.block("if torch.is_tensor(kept):"):
                    self.line("(kept * torch.ones(1, requires_grad=True)).sum().backward()")
            else:
                with self.block("if getattr(model, 'last', None) is not None:"):
                    self.line("(next(model.parameters()).sum() * model.last.sum()).backward()")

    def teacher_scene(self) -> None:
        """A student that learns from a teacher."""
        mode = self.pick(["inference_mode", "no_grad"])
        env = Env(models=["student", "teacher"], optimizers=["optimizer"], tensors=["x", "y"], is_function=True, is_loop=True)
        with self.block("def distil(student, teacher, loader, optimizer):"):
            self.line("total = 0.0")
            env.totals.append("total")
            with self.block("for x, y in loader:"):
                self.line("x, y = x.to(device), y.to(device)")
                with self.block(f"with torch.{mode}():"):
                    self.line("target = teacher(x)")
                    if self.chance(0.4):
                        self.line(
                            self.pick(["soft = target.softmax(-1)", "target = target * 2", "print(target.mean().item())"])
                        )
                env.tensors.append("target")
                self.disturb(env)
                use = self.pick(
                    [
                        "F.mse_loss(student(x), target)",
                        "(student(x) * target).mean()",
                        "(student(x) - target).pow(2).mean()",
                        "F.mse_loss(student(x), target.clone())",
                    ]
                )
                self.line(f"loss = {use}")
                env.scalars.append("loss")
                self.line("optimizer.zero_grad()")
                self.line("loss.backward()")
                self.line("optimizer.step()")
                self.reading(env)
                self.line("total += loss.item()")
            self.line("return total")
        self.line("")
        self.line("")
        self.line("teacher = nn.Linear(3, 2)")
        self.line("model = nn.Linear(3, 2)")
        self.line(f"optimizer = torch.optim.{self.optimizer('model')}")
        if mode == "inference_mode":  # autograd may refuse the target: the program is wrong, and the fix makes it right
            with self.block("if torch.cuda.is_available() or len(inputs) == 0:"):
                self.line(f"print(distil(model, teacher, {self.loader()}, optimizer))")
        else:
            self.called(f"distil(model, teacher, {self.loader()}, optimizer)")

    def host_scene(self) -> None:
        """Copies to the host."""
        keyword = self.pick([", non_blocking=True"] * 3 + [""])
        with self.block("def snapshot(model, loader):"):
            self.line("total = 0.0")
            self.line("rows = []")
            with self.block("for x, y in loader:"):
                self.line("out = model(x.to(device))")
                self.line(f"host = out.to('cpu'{keyword})")
                if self.chance(0.2):
                    self.line("host.data.mul_(2)")
                if self.chance(0.2):
                    self.line("print(out.sum().item())")
                self.line(
                    self.pick(
                        [
                            "rows.append(host.detach().numpy())",
                            "rows.append(host.tolist())",
                            "print(host.sum().item())",
                            "rows.append(host.mean().item())",
                            "total += host.sum().item()",
                        ]
                    )
                )
            self.line("return rows, total")
        self.line("")
        self.line("")
        self.setting(self.network_line(), False)
        self.called(f"snapshot(model, {self.loader()})")

    def network_line(self) -> str:
        return self.pick(["nn.Linear(3, 2)", "nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))"])

    def scalar_scene(self) -> None:
        """A loop over scalars, without a network: reads, sums and writes."""
        env = Env(tensors=["inputs", "targets"], is_function=True)
        with self.block(f"def {self.pick(['measure', 'collect', 'train', 'accumulate'])}_scalars(rounds):"):
            self.line("data = inputs.to(device) * 2")
            env.tensors = ["data", "data"]
            self.line(f"total = {self.pick(['0.0', '0', '0.', '-0.0', '0'])}")
            self.line("best = 1e9")
            env.totals.append("total")
            env.numbers.append("best")
            if self.chance(0.4):
                self.line("count = 0")
                env.totals.append("count")
            if self.chance(0.4):
                self.line("history = []")
                env.lists.append("history")
            outer = env.inner()
            inner = env.inner()
            inner.is_loop, inner.step = True, "i"
            header = self.pick(
                [
                    "for i in range(rounds):",
                    "for i, row in enumerate(data):",
                    "for i in [3, 1, 2]:",
                    "for i in range(len(data)):",
                ]
            )
            with self.block(header):
                plain = ["(data * i).mean()", "data[i % 3].sum() / 3", "(data + i).pow(2).sum()", "(data > i * 0.1).sum()"]
                self.line(f"value = {self.scalar(env) if self.chance(0.3) else self.pick(plain)}")
                inner.scalars.append("value")
                for _ in range(self.pick([2, 3, 3, 4, 5])):
                    self.statement(inner)
                    self.disturb(inner)
            self.ending(outer, "data")
            self.leave(outer, [*outer.totals, *outer.lists, "best"])
            function = next(line for line in reversed(self.lines) if line.startswith("def ")).split()[1].partition("(")[0]
        self.line("")
        self.line("")
        self.line("model, optimizer = nn.Linear(3, 2), torch.optim.SGD([inputs], lr=0.1)")
        self.called(f"{function}({self.pick(['3', '3', '0', '1'])})")

    def rows_scene(self) -> None:
        """Rows of a CSV file that pandas reads one by one."""
        self.line("TABLE = 'a,b,c\\n' + ''.join(f'{k},{k * 2},{k % 3}\\n' for k in range(6))")
        self.line("")
        self.line("")
        skip = self.pick(
            [
                "skiprows=i, nrows=1, header=None",
                "skiprows=range(1, i + 1), nrows=1",
                "skiprows=i + 1, nrows=1, names=['a', 'b', 'c']",
            ]
        )
        with self.block("class Rows(torch.utils.data.Dataset):"):
            with self.block("def __len__(self):"):
                self.line("return 4")
            self.line("")
            with self.block("def __getitem__(self, i):"):
                self.line(f"row = pd.read_csv(io.StringIO(TABLE), {skip})")
                self.line(
                    "values = torch.tensor(pd.to_numeric(row.iloc[0], errors='coerce').fillna(0).to_numpy(dtype='float32'))"
                )
                self.line("return values, values[:2]")
        self.line("")
        self.line("")
        with self.block("def read_rows(model, loader):"):
            self.evaluation(Env(models=["model"], is_function=True), "loader")
        self.line("")
        self.line("")
        self.setting("nn.Linear(3, 2)", False)
        self.called("read_rows(model, DataLoader(Rows(), batch_size=2))")

    def dead_scene(self) -> None:
        """A context manager that is not called raises, so it stands where it is not reached."""
        with (
            self.block("def frozen(model):"),
            self.block(f"with torch.{self.pick(['no_grad', 'enable_grad', 'inference_mode'])}:"),
        ):
            self.line("return model(inputs).sum().item()")
        self.line("")
        self.line("")
        with self.block("if torch.cuda.device_count() > 64:"):
            self.line("print(frozen(nn.Linear(3, 2)))")

    def write(self) -> dict[str, str]:
        scenes: list[Callable[[], None]] = (
            [self.train_scene] * 9
            + [self.evaluate_scene] * 5
            + [self.scalar_scene] * 5
            + [self.teacher_scene, self.host_scene, self.dead_scene]
        )
        if self.chance(0.02):
            scenes = [self.rows_scene]
        chosen = self.pick(scenes)
        chosen()
        if self.chance(0.15):  # all of it in a function, whose own functions are closures
            self.lines = ["def main():", *textwrap.indent("\n".join(self.lines), "    ").split("\n"), "", "", "main()"]
        body = "\n".join(self.lines)
        used = [name for name in HELPERS if re.search(rf"\b{name}\b", body)]
        named = "\n".join(HELPERS[name] for name in used)
        used = [name for name in HELPERS if name in used or re.search(rf"\b{name}\b", named)]
        library = "\n\n".join(["KEPT = []\n", *(HELPERS[name] for name in used)])
        head = "import torch\nimport torch.nn.functional as F\n"
        names = ", ".join(["KEPT", *used])
        optional = [
            f"import {module}\n"
            for module, mark in (
                ("contextlib", "contextlib."),
                ("functools", "functools."),
                ("io", "io."),
                ("operator", "operator."),
                ("time", "time."),
                ("numpy as np", "np."),
                ("pandas as pd", "pd."),
            )
            if mark in body
        ]
        main = "".join(optional) + "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
        main += "from torch.utils.data import DataLoader, TensorDataset\n"
        if self.has_module:
            main += f"\nfrom helpers import {names}\n"
        main += '\ndevice = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        main += "criterion = nn.MSELoss()\ninputs, targets = torch.randn(6, 3), torch.randn(6, 2)\n\n\n"
        if self.chance(0.08):
            main = main.replace("import torch\n", "import torch as th\n", 1)
            body, library = re.sub(r"\btorch\.", "th.", body), library if self.has_module else library.replace("torch.", "th.")
            main = (
                main.replace("torch.device(", "th.device(").replace("torch.cuda", "th.cuda").replace("torch.randn", "th.randn")
            )
        if not self.has_module:
            return {"main.py": f"{main}{library}\n\n{body}\n"}
        return {"main.py": f"{main}{body}\n", "helpers.py": f"{head}\n{library}"}


def program(seed: int) -> dict[str, str]:
    """The files of a random program, by name."""
    return Author(seed).write()
