"""Arrays of constants or random numbers that a type of CUDA tensors copies to the device: no rule by itself."""

import ast
from collections.abc import Iterator

from perflint.api import Code, External, Finding, Kind, Obligation, place_of, words

_NUMPY_FACTORIES = words(
    """
    numpy.ones numpy.zeros numpy.full numpy.eye numpy.random.normal numpy.random.random numpy.random.randn
    numpy.random.rand numpy.random.uniform numpy.random.randint numpy.arange
    """
)


def arrays_of_constants(code: Code) -> Iterator[Finding]:
    """`Tensor(np.ones(shape))` where `Tensor` is `torch.cuda.FloatTensor` on a machine with a GPU."""
    for call in code.flow.calls:
        if len(call.args) != 1 or not isinstance(call.args[0], ast.Call) or not code.is_hot(call):
            continue
        callee = code.value(call.func)
        if not callee.may(lambda a: isinstance(a, External) and a.qualname.startswith("torch.cuda.")):
            continue
        made = code.value(call.args[0].func)
        if made.must(lambda a: isinstance(a, External) and a.qualname in _NUMPY_FACTORIES):
            random = made.may(lambda a: isinstance(a, External) and ".random." in a.qualname)
            if code.value(call).may(lambda a: place_of(a).may_be_device):
                what = "random numbers are drawn" if random else "a constant array is built"
                yield code.finding(
                    call,
                    f"{what} on the host and copied to the device in every step; build it there with `device=`",
                    None,
                    [
                        Obligation(Kind.RANDOMNESS, "the device's generator draws other numbers")
                        if random
                        else Obligation(Kind.NUMBERS, "numpy and torch differ in types and shapes")
                    ],
                    waits=[call],
                )
