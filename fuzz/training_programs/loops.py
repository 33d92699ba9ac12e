"""Loops that train and evaluate."""

from __future__ import annotations

from fuzz.training_programs.networks import Networks
from fuzz.training_programs.words import Env, breaking
from perflint.rule.obligations import Kind


class Loops(Networks):
    """Loops that train and evaluate."""

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
        if self.chance(0.3):
            self.line(f"stats = {{'total': {self.pick(['0.0', '0'])}, 'all': []}}")
            env.tables.append("stats")
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
        results = [
            *env.totals,
            *env.lists,
            *env.tables,
            *(["correct"] if correct else []),
            *(["meter.mean"] if has_meter else []),
        ]
        self.leave(env, results)

    def ending(self, env: Env, loader: str) -> None:
        for total in env.totals:
            if self.chance(0.5):
                self.line(self.pick([f"print({total} / 3)", f"print(f'{{{total} / 3:.5f}}')", f"print('epoch', {total})"]))
        for table in env.tables:
            if self.chance(0.5):
                self.line(f"print({self.pick([table, f'sorted({table}, key=str)', f'len({table})', f'{table}.popitem()'])})")
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
        if self.chance(0.12):
            self.watched()
        if self.chance(0.08):
            around = self.pick([f"{self.helper('Watching')}()", f"{self.helper('saving')}()", "torch.device('cpu')"])
            with self.block(f"with {around}:"):
                self.line(f"print({call})")
            return
        if self.chance(0.1):
            with self.block(breaking(Kind.NO_AUTOCAST, "with torch.autocast('cpu', dtype=torch.bfloat16):")):
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
            with self.block(breaking(Kind.ERRORS_ARE_BUGS, "except (ValueError, RuntimeError) as error:")):
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

    def watched(self) -> None:
        """Something that looks at all that a model, an optimizer or a batch does, set from elsewhere."""
        self.line(
            self.pick(
                [
                    f"{self.helper('hooked')}(model)",
                    f"{self.helper('told')}(optimizer)",
                    f"globals()['inputs'] = {self.helper('loud')}(inputs)",
                    f"{self.helper('rebuilt')}(model)",
                    f"{self.helper('normed')}(model)",
                    breaking(Kind.NO_HOOKS, "next(model.parameters()).register_hook(lambda g: KEPT.append(g.clone()))"),
                    breaking(Kind.NO_HOOKS, "model.register_forward_pre_hook(lambda layer, given: (given[0] * 2,))"),
                ]
            )
        )
