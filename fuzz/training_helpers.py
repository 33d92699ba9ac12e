"""Functions and classes that random training programs import from their second module, or define themselves.

Some are harmless, some write to what they are given, keep it or clear gradients. See training_programs.py.
"""
# mypy: disable-error-code="no-untyped-def"

import torch
import torch.nn.functional as F

KEPT = []
BREAKS = {
    "Hidden": "plain-objects",
    "Scale": "plain-objects",
    "writing": "plain-objects",
    "Watching": "plain-tensors",
    "loud": "plain-tensors",
    "hooked": "no-hooks",
    "told": "no-hooks",
    "saving": "no-hooks",
    "rebuilt": "plain-modules",
    "normed": "plain-modules",
}
"""The assumption that is false in a program that uses one of these."""


def show(value):
    print(f"{float(value):.6f}")
    return value


def same(value):
    return value


def flat(value):
    return value.reshape(-1)[0]


def double_(value):
    with torch.no_grad():
        value.data.mul_(2)


def keep(value):
    KEPT.append(value)
    return value


def called_with(value):
    def decorate(function):
        function(value)
        return function

    return decorate


def shake():
    for value in KEPT:
        value.data.add_(1)


def grads(model):
    return [None if p.grad is None else round(p.grad.abs().sum().item(), 6) for p in model.parameters()]


def clear(model):
    for p in model.parameters():
        p.grad = None


def penalise(model):
    sum(p.pow(2).sum() for p in model.parameters()).mul(0.01).backward()


def watch(value, limit=3.0):
    if value > limit:
        raise ValueError(f"too large: {float(value):.4f}")


def mean_square(out, y):
    return (out - y).pow(2).mean()


def kept_square(out, y):
    loss = (out - y).pow(2).mean()
    KEPT.append(loss)
    return loss


def two_losses(out, y):
    first = F.mse_loss(out, y)
    second = F.l1_loss(out, y)
    return first, second


def apply(function, *arguments):
    return function(*arguments)


def pairs(x, y, size):
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


def zero_state(layers, batch, width):
    return torch.zeros(layers, batch, width)


def moved_state(layers, batch, width, device):
    return torch.zeros(layers, batch, width).to(device)


def counted_state(layers, batch, width):
    KEPT.append(torch.ones(()))
    return torch.zeros(layers, batch, width)


class Meter:
    def __init__(self):
        self.sum, self.count, self.last = 0.0, 0, None

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.last = value

    @property
    def mean(self):
        return self.sum / max(self.count, 1)


class Box:
    def __init__(self, value):
        self.value = value

    def bump(self):
        self.value.data.add_(1)


def train_once(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def forward_loss(model, x, y):
    return F.mse_loss(model(x), y)


def report(module):
    if getattr(module, "weight", None) is not None:
        print(module.weight.grad is None or round(module.weight.grad.sum().item(), 6))


def norm(parameter):
    return 0.0 if parameter.grad is None else round(parameter.grad.norm().item(), 6)


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __mul__(self, tensor):
        tensor.data.mul_(self.factor)
        return tensor

    __rmul__ = __mul__


class writing:
    def __init__(self, tensor):
        self.tensor = tensor

    def __enter__(self):
        self.tensor.data.add_(0.5)

    def __exit__(self, *error):
        self.tensor.data.add_(0.25)


class Hidden:
    """Acts in the ways in which Python runs code without calling it by its name."""

    def __init__(self, kind):
        self.__dict__.update(kind=kind, seen=None)

    def act(self, value=None):
        if self.kind == "keep":
            KEPT.append(torch.ones(2, 3) * 2)
        elif self.kind == "ask":
            with torch.enable_grad():
                x = torch.ones(3, requires_grad=True)
                print(torch.autograd.grad((x * x).sum(), x)[0])
        elif self.kind == "graph":
            x = torch.ones(3, requires_grad=True)
            print(torch.autograd.grad((x * x).sum(), x)[0])
        elif self.kind == "write":
            shake()
        elif value is not None and self.kind == "double":
            double_(value)
        return 1

    @property
    def value(self):
        return self.act()

    def key(self, value):
        return self.act(value if torch.is_tensor(value) else None)

    def __iter__(self):
        yield self.act()

    def __exit__(self, *_):
        self.act()

    def __setattr__(self, name, value):
        self.act()

    def __str__(self):
        return str(self.act())

    def __getitem__(self, i):
        return self.act()

    __enter__ = __len__ = __bool__ = __neg__ = __call__ = act
    __eq__ = __contains__ = __add__ = __radd__ = __lt__ = __gt__ = __delitem__ = key


class Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, given=(), named=None):
        if getattr(function, "__name__", "") in ("item", "zeros", "to", "tensor", "mse_loss", "add"):
            print("watched", function.__name__)
        return function(*given, **(named or {}))


def loud(tensor):
    return tensor.as_subclass(type("Loud", (torch.Tensor,), {}))


def hooked(model):
    model.register_forward_hook(lambda layer, given, out: KEPT.append(out))
    model.register_full_backward_hook(lambda layer, before, after: print("backward", round(after[0].sum().item(), 4)))


def told(optimizer):
    optimizer.register_step_pre_hook(lambda *given: print("stepping"))


def saving():
    return torch.autograd.graph.saved_tensors_hooks(lambda t: KEPT.append(tuple(t.shape)) or t, lambda t: t * 1)


def rebuilt(model):
    plain = model.forward
    model.forward = lambda *given: (print("forward", torch.is_grad_enabled()), plain(*given))[1]


def normed(model):
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            torch.nn.utils.parametrizations.weight_norm(layer)
