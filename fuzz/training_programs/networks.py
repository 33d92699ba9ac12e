"""Networks of random programs, recurrent ones among them."""

from __future__ import annotations

from fuzz.training_programs.statements import Statements
from fuzz.training_programs.words import Env, breaking
from perflint.rule.obligations import Kind

_KEEPS_STATE = [breaking(Kind.KNOWN_LAYERS, text) for text in ("self.last = h", "KEPT.append(h)")]


class Networks(Statements):
    """Networks of random programs, recurrent ones among them."""

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

    def network_line(self) -> str:
        return self.pick(["nn.Linear(3, 2)", "nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))"])

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
                    breaking(Kind.KNOWN_LAYERS, "self.last = h"),
                    "self.last = h.detach()",
                    "self.seen += x.size(0)",
                    "h = h + torch.arange(4).to(x.device)",
                    "h = h + torch.zeros(4).to(device)",
                    "h = h * torch.tensor(0.5, device=x.device)",
                    "h = h * torch.tensor(2, device=device)",
                    "if self.last is not None and self.last.shape == h.shape:\n"
                    + "    " * (self.depth + 1)
                    + "h = h + 0.1 * self.last",
                    breaking(Kind.KNOWN_LAYERS, "print('grad', torch.is_grad_enabled())"),
                    "h = h + torch.randn(4).to(x.device) * 0.1",
                    "if self.training:\n" + "    " * (self.depth + 1) + "h = h * 1.5",
                    breaking(Kind.KNOWN_LAYERS, "print(self.first.weight.grad is None)"),
                    "self.total += h.sum().item()",
                    breaking(
                        Kind.NO_HOOKS, "if h.requires_grad:\n" + "    " * (self.depth + 1) + "h.register_hook(lambda g: g * 2)"
                    ),
                    breaking(Kind.KNOWN_LAYERS, "")
                    + "self.cache = self.__dict__.get('cache', h.detach() * 0 + 1)[:1]\n"
                    + "    " * self.depth
                    + "h = h * self.cache",
                    "self.first.weight.data.mul_(0.99)",
                    "h.add_(0.1)",
                    breaking(Kind.KNOWN_LAYERS, "keep(h)"),
                    breaking(Kind.KNOWN_LAYERS, "list.append(KEPT, h)"),
                    breaking(Kind.KNOWN_LAYERS, "any(map(KEPT.append, [h]))"),
                    breaking(Kind.KNOWN_LAYERS, "max([1, 2], key=lambda n: len(KEPT.append(h) or [n]))"),
                    breaking(Kind.KNOWN_LAYERS, "self.register_buffer('late', h, persistent=False)"),
                    "h = h + len(KEPT)",
                    "h = F.dropout(h, 0.5, self.training)",
                    breaking(Kind.KNOWN_LAYERS, "print(h.mean())"),
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
                        self.line(self.pick([*_KEEPS_STATE, "print('state', batch)"]))
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
                            self.pick(["feature = feature + h.sum()", "print(h.sum().item())", *_KEEPS_STATE])
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
            zeros = breaking(Kind.KNOWN_LAYERS, zeros) if helper == "counted_state" else zeros  # it keeps a tensor
        elif style == "helper":
            zeros = f"torch.zeros({shape}){where}"
        if style == "kept":
            with self.block("if self.h is None or self.h.size(1) != batch:"):
                self.line(breaking(Kind.KNOWN_LAYERS, f"self.h = {zeros}"))
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
                    *_KEEPS_STATE,
                    "h = h + 0",
                    "h.requires_grad_()",
                    "h.data.add_(1)",
                ]
            )
        )
