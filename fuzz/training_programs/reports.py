"""What training scripts report, log, gather and move in their steps: patterns of real code by the dozen."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.training_programs.loops import Loops
from fuzz.training_programs.words import breaking
from perflint.rule.obligations import Kind


class Reports(Loops):
    """Patterns of a step: lines that use x, y, i, the network `model` and KEPT."""

    def reported(self) -> list[Callable[[], list[str]]]:
        return [
            self.named_losses,
            self.counted,
            self.checked,
            self.best,
            self.ranked,
            self.moved_by_name,
            self.drawn,
            self.remembered,
            self.gathered,
            self.scaled,
            self.clipped,
        ]

    def loss_line(self, name: str) -> str:
        return f"{name} = " + self.pick(
            ["model(x).pow(2).mean()", "model(x).sum()", "F.mse_loss(model(x), torch.ones(len(x), 2))", "model(x).abs().max()"]
        )

    def between(self, name: str) -> list[str]:
        """What may stand between the making of a tensor and its reads."""
        return self.pick(
            [
                *([[]] * 6),
                [f"{name}.backward()"],
                [f"{name}.data.mul_(2)"],
                [f"{name} = {name} * 0.5"],
                [f"{name} = {name}.detach()"],
                [f"{self.helper('double_')}({name})"],
                [f"{self.helper('keep')}({name}); {self.helper('shake')}()"],
                [f"if i == 1: {name} = {name} + 1"],
                [f"if i == 1: {name} = 0.25"],
            ]
        )

    def named_losses(self) -> list[str]:
        """Several losses by their names, and what is logged of them."""
        parts, loss, log = self.name("parts"), self.name("loss"), self.name("log")
        other = self.pick(["y.abs().mean()", "y.sum()", "(x > 0).sum()", "torch.zeros(())", f"{loss} * 0.1", "1.5"])
        read = self.pick(["v.item()", "float(v)", "v.detach().item()", "round(float(v), 4)"])
        read = read.replace("v.", "torch.as_tensor(v).") if other == "1.5" else read
        return [
            self.loss_line(loss),
            f"{parts} = {{'a': {loss}, 'b': {other}}}",
            *self.between(loss),
            self.pick([f"{parts}['a'].backward()", "pass", f"{parts}['c'] = {parts}['a'] + {parts}['b']"]),
            f"{log} = {{k: {read} for k, v in {parts}.items()}}",
            self.pick(
                [
                    f"print({log})",
                    f"KEPT.append({log})",
                    f"print(', '.join(f'{{k}}: {{v:.3f}}' for k, v in {log}.items()))",
                    f"print(sum({log}.values()), max({log}, key={log}.get))",
                    f"if i == 1: print({log})",
                ]
            ),
        ]

    def counted(self) -> list[str]:
        """A meter, by its class or by hand."""
        meter, loss = self.name("meter"), self.name("loss")
        read = self.pick([f"{loss}.item()", f"float({loss})", f"{loss}.detach()", f"{loss}.data.item()", loss])
        size = self.pick(["len(x)", "x.size(0)", "1", "x.shape[0]"])
        return [
            f"{meter} = {self.helper('Meter')}()",
            "for part in (x, x * 2):",
            f"    {self.loss_line(loss).replace('model(x)', 'model(part)')}",
            *(f"    {line}" for line in self.between(loss)),
            f"    {meter}.update({read}, {size})",
            self.pick([f"    {loss}.data.add_(1)", "    pass", f"    if i == 1: print({meter}.last)"]),
            self.pick([f"print(float({meter}.mean))", f"KEPT.append({meter}.sum)", f"print(f'{{{meter}.mean:.4f}}')"]),
        ]

    def checked(self) -> list[str]:
        """A loss that is looked at before it is used."""
        loss = self.name("loss")
        test = self.pick(
            [
                f"torch.isnan({loss})",
                f"not torch.isfinite({loss})",
                f"torch.isnan({loss}).any()",
                f"not math.isfinite({loss}.item())",
                f"{loss}.item() > 100",
                f"{loss} < 0",
                f"float({loss}) != float({loss})",
                f"torch.isinf({loss}).item() or torch.isnan({loss}).item()",
            ]
        )
        then = self.pick(
            [
                "print('not finite')",
                "raise FloatingPointError('loss')",
                f"print('loss is', {loss}.item())",
                f"{loss} = torch.zeros_like({loss})",
                "KEPT.append('bad')",
            ]
        )
        spoiled = self.pick(["pass", "pass", f"{loss} = {loss} / 0 if i == 1 else {loss}", f"{loss}.data.fill_(float('nan'))"])
        return [self.loss_line(loss), spoiled, f"if {test}:", f"    {then}", f"print({loss}.item())"]

    def best(self) -> list[str]:
        """The best so far, and what is kept of it."""
        best, loss = self.name("best"), self.name("loss")
        start = self.pick(["float('inf')", "math.inf", "1e9", "None", "torch.tensor(float('inf'))"])
        test = self.pick([f"{loss}.item() < {best}", f"{loss} < {best}", f"float({loss}) < float({best})"])
        test = f"{best} is None or {test}" if start == "None" else test
        kept = self.pick([f"{loss}.item()", loss, f"{loss}.detach()", f"float({loss})"])
        return [
            f"{best} = {start}",
            "for part in (x, x * 2, x / 2):",
            f"    {self.loss_line(loss).replace('model(x)', 'model(part)')}",
            f"    if {test}:",
            f"        {best} = {kept}",
            f"        {self.pick(['pass', 'KEPT.append(copy.deepcopy(model.state_dict()))', 'print(i)'])}",
            *(f"    {line}" for line in self.between(loss)),
            self.pick([f"print(float({best}))", f"print({best})", f"KEPT.append({best})"]),
        ]

    def ranked(self) -> list[str]:
        """How often the right class is among the first."""
        rank, hits, found = self.name("rank"), self.name("hits"), self.name("found")
        hit = self.pick(
            [
                f"{rank}.eq(torch.zeros(1, len(x), dtype=torch.long).expand_as({rank}))",
                f"({rank} == 0)",
                f"{rank}.eq(i)",
            ]
        )
        read = self.pick(
            [
                "{}[:k].reshape(-1).float().sum(0).mul_(100.0 / len(x)).item()",
                "{}[:k].sum().item() / len(x)",
                "{}[:k].float().sum().item() * 100.0 / x.size(0)",
                "{}[:k].float().mean()",
            ]
        ).format(hits)
        return [
            f"{rank} = model(x).topk(2, 1)[1].t()",
            f"{hits} = {hit}",
            self.pick(["pass", "pass", f"{hits}[0] = True", f"{rank}.add_(1)"]),
            f"{found} = []",
            "for k in (1, 2):",
            f"    {found}.append({read})",
            self.pick([f"print([float(v) for v in {found}])", f"KEPT.extend({found})", f"print({found}[0] + {found}[1])"]),
        ]

    def moved_by_name(self) -> list[str]:
        """A batch that is a dict or a list, moved part by part."""
        batch, out = self.name("batch"), self.name("out")
        more = self.pick(["", ", 'n': len(x)", ", 'rows': [x, y]", ", 'name': 'batch'"])
        move = self.pick(["v.to(device)", "v.to(device, non_blocking=True)", "v.cuda() if torch.cuda.is_available() else v"])
        is_plain = more == ""
        moved = self.pick(
            [
                f"{batch} = {{k: {move if is_plain else f'{move} if torch.is_tensor(v) else v'} for k, v in {batch}.items()}}",
                f"for k in {batch}: {batch}[k] = {batch}[k].to(device) if torch.is_tensor({batch}[k]) else {batch}[k]",
                f"{batch} = {{**{batch}, 'x': {batch}['x'].to(device), 'y': {batch}['y'].to(device)}}",
            ]
        )
        return [
            f"{batch} = {{'x': x, 'y': y{more}}}",
            moved,
            self.pick(["pass", "pass", f"{batch}['x'].data.mul_(2)", "x.data.add_(1)", f"KEPT.append({batch})"]),
            f"{out} = model({batch}['x'])",
            f"print({out}.sum().item(), {batch}['x'] is x, sorted({batch}))",
        ]

    def drawn(self) -> list[str]:
        """Tensors that are made on the host for each batch and moved."""
        made = self.name("drawn")
        what = self.pick(
            [
                "torch.zeros(len(x), 3).scatter_(1, torch.ones(len(x), 1, dtype=torch.long), 1)",
                "F.one_hot(torch.arange(len(x)) % 2, 3).float()",
                "torch.eye(3)[torch.arange(len(x)) % 3]",
                "torch.randperm(len(x))",
                "torch.rand(len(x), 1)",
                "torch.randn_like(x)",
                "torch.from_numpy(np.arange(3.0)).float()",
                "torch.FloatTensor([0.1, i])",
                "torch.tensor([i, len(x)])",
                "torch.arange(len(x)).float().unsqueeze(1)",
                "torch.linspace(0, 1, 3)",
                "torch.ones_like(y)",
                "torch.Tensor(2, 3).fill_(0.5)",
            ]
        )
        move = self.pick(["to(device)", "to(x.device)", "to(x)", "type_as(x)", "to(device, torch.float64)"])
        return [
            f"{made} = {what}.{move}",
            *self.pick([[], [], [f"{made}.mul_(2)"], [f"KEPT.append({made})"], [f"{self.helper('double_')}({made})"]]),
            f"print({made}.dtype, {made}.tolist(), torch.rand(1).item())",
        ]

    def remembered(self) -> list[str]:
        """A history of numbers by their names."""
        history, loss = self.name("history"), self.name("loss")
        read = self.pick([f"{loss}.item()", f"float({loss})", f"{loss}.detach().cpu().numpy()", f"{loss}.detach()", loss])
        return [
            f"{history} = collections.defaultdict(list)",
            "for part in (x, x * 2):",
            f"    {self.loss_line(loss).replace('model(x)', 'model(part)')}",
            f"    {history}['loss'].append({read})",
            f"    {history}['rows'].append({self.pick(['len(part)', 'part.sum().item()', 'part.shape'])})",
            *(f"    {line}" for line in self.between(loss)),
            self.pick(
                [
                    f"print({{k: len(v) for k, v in {history}.items()}}, sum(map(float, {history}['loss'])))",
                    f"print(np.mean([float(v) for v in {history}['loss']]))",
                    f"KEPT.append(dict({history}))",
                    f"print(float({history}['loss'][-1]), {history}.get('none'))",
                ]
            ),
        ]

    def gathered(self) -> list[str]:
        """Predictions that an evaluation gathers."""
        held, out = self.name("held"), self.name("out")
        grown, end = self.pick(
            [
                (f"{held}.append({out}.detach().cpu().numpy())", f"print(np.concatenate({held}).sum())"),
                (f"{held}.append({out}.cpu())", f"print(torch.cat({held}).sum().item())"),
                (f"{held}.extend({out}.argmax(1).tolist())", f"print({held})"),
                (f"{held} += {out}.detach().cpu().tolist()", f"print(len({held}), {held}[0])"),
                (f"{held}.extend({out}.detach().cpu().numpy().flatten())", f"print(np.array({held}).mean())"),
                (f"{held}.append({out}.argmax(1).eq(0).sum().item())", f"print(sum({held}))"),
                (f"{held}.append({out})", f"print(torch.stack([v.detach() for v in {held}]).shape)"),
            ]
        )
        mode = self.pick(["if True:", "with torch.no_grad():", "with torch.no_grad():", "with torch.inference_mode():"])
        return [
            f"{held} = []",
            mode,
            "    for part in (x, x + 1):",
            f"        {out} = model(part)",
            f"        {grown}",
            self.pick(
                ["        pass", f"        {out}.data.zero_()", f"        {out} = {out}.relu_()", "        part.mul_(2)"]
            ),
            end,
        ]

    def scaled(self) -> list[str]:
        """A step with the scaler and the region of mixed precision, by their old names."""
        scaler, own, loss = self.name("scaler"), self.name("own"), self.name("loss")
        region = self.pick(
            [
                "with torch.cuda.amp.autocast(enabled=False):",
                "with torch.cuda.amp.autocast(False):",
                "with torch.autocast('cuda', enabled=False):",
                "with torch.cuda.amp.autocast(enabled=False, dtype=torch.bfloat16):",
                breaking(Kind.PLAIN_OBJECTS, "with torch.cuda.amp.autocast(enabled=False) as held:"),
            ]
        )
        return [
            f"{own} = torch.optim.SGD(model.parameters(), lr=0.01)",
            f"{scaler} = torch.cuda.amp.GradScaler({self.pick(['enabled=False', 'enabled=False, init_scale=2.0'])})",
            region,
            f"    {self.loss_line(loss)}",
            f"{own}.zero_grad()",
            f"{scaler}.scale({loss}).backward()",
            self.pick(["pass", f"{scaler}.unscale_({own})", f"print({scaler}.get_scale())"]),
            f"{scaler}.step({own})",
            f"{scaler}.update()",
            self.pick(
                [f"print({loss}.item(), {scaler}.state_dict())", f"KEPT.append({loss}.item())", f"print({scaler}.is_enabled())"]
            ),
        ]

    def clipped(self) -> list[str]:
        """A norm of gradients that is logged, or looked at."""
        norm, loss, total = self.name("norm"), self.name("loss"), self.name("total")
        read = self.pick([f"{norm}.item()", f"float({norm})", norm])
        return [
            f"{total} = 0.0",
            self.loss_line(loss),
            f"{loss}.backward()",
            f"{norm} = nn.utils.clip_grad_norm_(model.parameters(), {self.pick(['1.0', '0.1', 'math.inf'])})",
            f"{total} += {read}",
            self.pick(["pass", "model.zero_grad()", f"{norm}.mul_(2)", "next(model.parameters()).grad.add_(1)"]),
            self.pick(
                [
                    f"if {norm} > 1: print('clipped', {norm}.item())",
                    f"print(f'{{float({total}):.3f}}', {norm}.item())",
                    f"KEPT.append({total})",
                    f"print(float({total}) / (i + 1))",
                ]
            ),
        ]
