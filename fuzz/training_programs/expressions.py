"""Expressions of random programs, and what binds or shows their values."""

from __future__ import annotations

from fuzz.training_programs.words import Env, Words


class Expressions(Words):
    """Expressions of random programs, and what binds or shows their values."""

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
                f"(0.5 * {s}.item() - {self.one_of(env)}.item())",
                f"(float({self.one_of(env)}) + {s}.item() * {self.pick(['2', 'len(KEPT)', '-0.0'])})",
                f"round({s}.item() - float({s}) / 4, 4)",
            ]
        )

    def one_of(self, env: Env) -> str:
        """A scalar tensor that has a name, or another that stands in parentheses."""
        return self.pick(env.scalars) if env.scalars else f"({self.scalar(env)})"

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
