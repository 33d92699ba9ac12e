"""Whole scenes of random programs, and the files that hold them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from fuzz.training_programs.newer import Newer
from fuzz.training_programs.words import HELPERS, Env, Program
from perflint.rule.obligations import Kind


class Scenes(Newer):
    """Whole scenes of random programs, and the files that hold them."""

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
            self.line("out = loss = None")  # what no file imports, nobody reads when the script has ended
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

    def names_scene(self) -> None:
        """Old names, lines that raise, and programs that look at warnings, catch errors or replace functions of torch."""
        old, used = self.pick(
            [
                ("torch.utils.checkpoint.checkpoint", "out = torch.utils.checkpoint.checkpoint(model, inputs)"),
                ("torch.utils.checkpoint.checkpoint", "out = torch.utils.checkpoint.checkpoint(model, inputs * weight)"),
                ("torch.cuda.amp.autocast", "with torch.cuda.amp.autocast(enabled=False): out = model(inputs)"),
                ("torch.cuda.amp.autocast", "region = torch.cuda.amp.autocast(False)"),
                ("torch.cuda.amp.GradScaler", "region = torch.cuda.amp.GradScaler(2.0)"),
                ("torch.ger", "out = torch.ger(inputs[0], weight)"),
                ("torch.full", "for i in range(2): out = model(inputs) * torch.tensor(0.5, device=device)"),
                ("torch.zeros", "for i in range(2): out = model(inputs) + torch.zeros(2).to(device)"),
                ("torch.no_grad", "with torch.no_grad: out = model(inputs)"),
                ("torch.utils.data.DataLoader", "out = len(DataLoader(TensorDataset(inputs), persistent_workers=True))"),
                ("torch.utils.data.DataLoader", "out = len(DataLoader(TensorDataset(inputs), prefetch_factor=2))"),
                ("torch.utils.data.DataLoader", "out = len(DataLoader(TensorDataset(inputs), batch_size=2))"),
            ]
        )
        owner, _, last = old.rpartition(".")
        self.line("import torch.utils.checkpoint")
        self.line("model, weight = nn.Linear(3, 2), torch.ones(3, requires_grad=True)")
        self.line("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)")
        preamble = self.pick(["", "", "", "warnings", "replaced", "replaced", "class"])
        kind = {"warnings": Kind.ERRORS_ARE_BUGS, "replaced": Kind.PLAIN_MODULES}.get(preamble)
        self.breaks |= {kind} if kind is not None else set()
        self.breaks |= {Kind.NO_AUTOCAST} if "autocast" in used else set()
        if preamble == "warnings":
            self.line(
                self.pick(
                    [
                        "warnings.simplefilter('error')",
                        "warnings.filterwarnings('error', category=FutureWarning)",
                        "warnings.simplefilter('always'); warnings.showwarning = lambda *given, **named: print(given[1])",
                        "warnings.simplefilter('ignore')",
                    ]
                )
            )
        elif preamble == "replaced":
            self.line(f"plain = {old}")
            other = "lambda *given, **named: (print(sorted(named)), plain(*given, **named))[1]"
            self.line(
                self.pick(
                    [
                        f"{owner}.{last} = {other}",
                        f"setattr({owner}, {last!r}, {other})",
                        f"for changed in [{last!r}]: setattr({owner}, changed, {other})",
                        f"{owner}.__dict__[{last!r}] = {other}",
                    ]
                )
            )
        with self.block("def used():"):
            self.line("out = region = None")
            self.line(used)
            self.line("if torch.is_tensor(out) and out.requires_grad: out.sum().backward()")
            if preamble == "class":
                self.line(
                    self.pick(
                        [
                            "print(isinstance(region, torch.cuda.amp.GradScaler))",
                            "print(type(region) is torch.cuda.amp.autocast)",
                            "print({torch.cuda.amp.autocast: 1}.get(region.__class__))",
                        ]
                    )
                )
            self.line("return out")
        at = len(self.lines)
        self.calls_used(raises=used.startswith("with torch.no_grad:") or "workers=" in used or "prefetch" in used)
        if preamble == "replaced":
            self.lines[at:] = ["try:", *(f"    {line}" for line in self.lines[at:]), "finally:", f"    {owner}.{last} = plain"]

    def calls_used(self, raises: bool) -> None:
        """Call `used`, and go on after its error: without one that it `raises`, a fixed program is meant to do more."""
        around = self.pick(["plain", "try", "try", "suppress", "caller", "thread", "finally"])
        self.breaks |= {Kind.ERRORS_ARE_BUGS} if around != "plain" else set()
        if raises and around == "plain":
            self.line("if torch.cuda.device_count() > 64: print(used())")
            return
        if around == "try":
            with self.block("try:"):
                self.line("print(used())")
            with self.block(
                f"except {self.pick(['Exception', '(TypeError, ValueError)', 'RuntimeError', 'Warning'])} as error:"
            ):
                self.line("print('caught', type(error).__name__)")
        elif around == "suppress":
            with self.block("with contextlib.suppress(Exception):"):
                self.line("print(used())")
        elif around == "caller":
            with self.block("def tried(function):"):
                with self.block("try:"):
                    self.line("return function()")
                with self.block("except Exception as error:"):
                    self.line("return type(error).__name__")
            self.line("print(tried(used))")
        elif around == "thread":
            self.line("threading.excepthook = lambda found: print(found.exc_type.__name__)")
            self.line("thread = threading.Thread(target=used)")
            self.line("thread.start()")
            self.line("thread.join()")
            self.line("threading.excepthook = threading.__excepthook__")
        elif around == "finally":
            with self.block("def ended():"):
                with self.block("try:"):
                    self.line("return used()")
                with self.block("finally:"):
                    self.line("return 'ended'")
            self.line("print(ended())")
        else:
            self.line("print(used())")

    def write(self) -> Program:
        """Draw a scene and what holds it."""
        scenes: list[Callable[[], None]] = (
            [self.train_scene] * 9
            + [self.evaluate_scene] * 5
            + [self.scalar_scene] * 5
            + [self.teacher_scene, self.host_scene, self.dead_scene]
            + [self.names_scene] * 2
            + [self.newer_scene] * 9
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
                ("asyncio", "asyncio."),
                ("collections", "collections."),
                ("contextlib", "contextlib."),
                ("copy", "copy."),
                ("functools", "functools."),
                ("gc", "gc."),
                ("io", "io."),
                ("itertools", "itertools."),
                ("math", "math."),
                ("operator", "operator."),
                ("threading", "threading."),
                ("time", "time."),
                ("types", "types."),
                ("warnings", "warnings."),
                ("weakref", "weakref."),
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
            body, library = (
                re.sub(r"(?<!import )\btorch\.", "th.", body),
                library if self.has_module else library.replace("torch.", "th."),
            )
            main = (
                main.replace("torch.device(", "th.device(").replace("torch.cuda", "th.cuda").replace("torch.randn", "th.randn")
            )
        if not self.has_module:
            return Program({"main.py": f"{main}{library}\n\n{body}\n"}, frozenset(self.breaks))
        return Program({"main.py": f"{main}{body}\n", "helpers.py": f"{head}\n{library}"}, frozenset(self.breaks))
