"""The table of operations, held against torch: each row is run, and does what it says and nothing that it does not say."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from perflint.facts.operations import operations  # noqa: E402
from perflint.facts.operations.api_tables import ALIASING_MODULES, TYPE_KEEPING_MODULES  # noqa: E402
from perflint.facts.operations.function_operations import ELSEWHERE, TORCH_FUNCTIONS  # noqa: E402
from perflint.facts.operations.operations import Dims, Memory, Operation, Result, Road  # noqa: E402
from perflint.facts.operations.tensor_operations import TENSOR_OPERATIONS  # noqa: E402

TABLES = [TENSOR_OPERATIONS.strip().splitlines(), TORCH_FUNCTIONS.strip().splitlines()]
TENSORS = [line for table in TABLES for line in table]

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
INPUTS = [
    torch.tensor(2.0), X, X.double(), torch.tensor([1.0, 2.0]), torch.tensor([1, 2]), torch.tensor([[1, 0], [0, 1]]),
    torch.tensor([[True, False], [False, True]]), torch.rand(2, 2, 4, generator=torch.Generator().manual_seed(0)),
]  # fmt: skip
TWIN = "a tensor like the first"
GUESSED: list[tuple[Any, ...]] = [
    (), (TWIN,), (0,), (1,), (0, 0), (0, 1), (0, 0, 1), ((1,),), ((2, 2),), (1, 1), (torch.float32,), ([0], [0]), (2.0,),
]  # fmt: skip
"""What is tried for a row without examples; what raises does not count."""
INDEX, MASK, WHOLE = torch.tensor([0]), torch.tensor([[True, False], [False, True]]), torch.tensor([[1, 0], [1, 1]])
IMAGE, VOLUME = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 4, 4, 4)
TARGET = torch.tensor([1, 0])
EXAMPLES: dict[str, list[tuple[Any, ...]]] = {
    "addmm": [(TWIN, TWIN)],
    "addcdiv": [(TWIN, TWIN)],
    "addr": [(torch.ones(2), torch.ones(2))],
    "celu": [()],
    "diag_embed": [()],
    "embedding": [(X,)],
    "hardshrink": [()],
    "prelu": [(torch.ones(1),)],
    "relu6": [()],
    "rrelu": [()],
    "softshrink": [()],
    "threshold": [(1.0, 0.0)],
    "gumbel_softmax": [()],
    "mv": [(torch.ones(2),)],
    "take_along_dim": [(WHOLE, 0)],
    "vector_norm": [(), (2,)],
    "addcmul": [(TWIN, TWIN)],
    "baddbmm": [(torch.ones(2, 2, 4), torch.ones(2, 4, 4))],
    "bernoulli_": [()],
    "alpha_dropout": [(0.5, False), (0.5, True)],
    "bincount": [()],
    "bmm": [(torch.ones(2, 4, 2),)],
    "broadcast_to": [((2, 2, 2),)],
    "bucketize": [(torch.tensor([1.0, 2.0]),)],
    "copy_": [(TWIN,)],
    "dist": [(TWIN,), (TWIN, 1)],
    "dropout": [(0.5, False), (0.5, True)],
    "dropout1d": [(0.5, False), (0.5, True)],
    "dropout2d": [(0.5, False), (0.5, True)],
    "dropout3d": [(0.5, False), (0.5, True)],
    "binary_cross_entropy_with_logits": [(TWIN,)],
    "multilabel_soft_margin_loss": [(TWIN,)],
    "relu": [()],
    "type": [(torch.float32,), (torch.FloatTensor,)],
    "elu": [()],
    "feature_alpha_dropout": [(0.5, False), (0.5, True)],
    "feature_dropout": [(0.5, False), (0.5, True)],
    "fill": [(1.0,)],
    "fill_": [(1.0,)],
    "full_like": [(1.0,)],
    "gather": [(0, WHOLE)],
    "gaussian_nll_loss": [(TWIN, torch.ones(2, 2))],
    "hardtanh": [()],
    "huber_loss": [(TWIN,)],
    "index_add": [(0, INDEX, X[:1])],
    "index_copy": [(0, INDEX, X[:1])],
    "index_fill": [(0, INDEX, 1.0)],
    "index_put": [((INDEX,), X[:1])],
    "index_select": [(0, INDEX)],
    "isclose": [(TWIN,)],
    "isin": [(TWIN,)],
    "kl_div": [(TWIN,)],
    "l1_loss": [(TWIN,)],
    "leaky_relu": [()],
    "lerp": [(TWIN, 0.5)],
    "multilabel_margin_loss": [(WHOLE,)],
    "new_full": [((2,), 1.0)],
    "permute": [((1, 0),)],
    "logit": [()],
    "margin_ranking_loss": [(TWIN, TWIN)],
    "masked_fill": [(MASK, 1.0)],
    "masked_scatter": [(MASK, TWIN)],
    "masked_select": [(MASK,)],
    "mse_loss": [(TWIN,)],
    "nan_to_num": [()],
    "nansum": [(), (0,)],
    "norm": [(), (2,), (2, 0)],
    "normal": [(TWIN,)],
    "normal_": [()],
    "random_": [()],
    "repeat_interleave": [(2,), (torch.tensor([1, 2]), 0)],
    "scatter": [(0, WHOLE, TWIN)],
    "scatter_add": [(0, WHOLE, TWIN)],
    "scatter_reduce": [(0, WHOLE, TWIN, "sum")],
    "smooth_l1_loss": [(TWIN,)],
    "soft_margin_loss": [(TWIN,)],
    "softplus": [()],
    "split_with_sizes": [([1, 1],)],
    "to": [(torch.float64,), ("cpu",), (TWIN,)],
    "unflatten": [(0, (1, -1))],
    "uniform_": [()],
    "unfold": [(0, 1, 1)],
    "where": [(MASK, TWIN), ()],
    "cross_entropy": [(TARGET,)],
    "nll_loss": [(TARGET,)],
    "multi_margin_loss": [(TARGET,)],
    "hinge_embedding_loss": [(torch.tensor([1.0, -1.0]),)],
    "triplet_margin_loss": [(TWIN, TWIN)],
    "cosine_embedding_loss": [(TWIN, torch.tensor([1.0, -1.0]))],
    "pairwise_distance": [(TWIN,)],
    "poisson_nll_loss": [(TWIN,)],
    "add": [(TWIN,), (2,), (2.0,)],
    "sub": [(TWIN,), (2,), (2.0,)],
    "subtract": [(TWIN,), (2,), (2.0,)],
}
"""Further arguments by name; a row of a function that no `torch.Tensor` begins is called with its whole example below."""
WHOLE_CALLS: dict[str, Callable[[], Any]] = {
    "adaptive_avg_pool3d": lambda: torch.nn.functional.adaptive_avg_pool3d(VOLUME, 2),
    "affine_grid": lambda: torch.nn.functional.affine_grid(torch.ones(1, 2, 3), [1, 1, 2, 2]),
    "avg_pool3d": lambda: torch.nn.functional.avg_pool3d(VOLUME, 2),
    "column_stack": lambda: torch.column_stack([X, X]),
    "row_stack": lambda: torch.row_stack([X, X]),
    "cross": lambda: torch.linalg.cross(torch.ones(2, 3), torch.ones(2, 3)),
    "fold": lambda: torch.nn.functional.fold(torch.ones(1, 4, 9), 4, 2),
    "grid_sample": lambda: torch.nn.functional.grid_sample(IMAGE, torch.zeros(1, 2, 2, 2)),
    "max_pool3d": lambda: torch.nn.functional.max_pool3d(VOLUME, 2),
    "scaled_dot_product_attention": lambda: torch.nn.functional.scaled_dot_product_attention(IMAGE, IMAGE, IMAGE),
    "pixel_shuffle": lambda: torch.pixel_shuffle(torch.ones(1, 4, 2, 2), 2),
    "pixel_unshuffle": lambda: torch.pixel_unshuffle(torch.ones(1, 1, 2, 2), 2),
    "adaptive_avg_pool2d": lambda: torch.nn.functional.adaptive_avg_pool2d(IMAGE, 2),
    "avg_pool2d": lambda: torch.nn.functional.avg_pool2d(IMAGE, 2),
    "bilinear": lambda: torch.nn.functional.bilinear(X, X, torch.ones(1, 2, 2)),
    "binary_cross_entropy": lambda: torch.nn.functional.binary_cross_entropy(X / 8, X / 8),
    "conv1d": lambda: torch.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 2)),
    "conv2d": lambda: torch.conv2d(IMAGE, torch.ones(1, 1, 2, 2)),
    "conv3d": lambda: torch.conv3d(VOLUME, torch.ones(1, 1, 2, 2, 2)),
    "conv_transpose1d": lambda: torch.conv_transpose1d(torch.ones(1, 1, 4), torch.ones(1, 1, 2)),
    "conv_transpose2d": lambda: torch.conv_transpose2d(IMAGE, torch.ones(1, 1, 2, 2)),
    "ctc_loss": lambda: torch.nn.functional.ctc_loss(
        torch.zeros(4, 1, 3).log_softmax(2), torch.tensor([[1]]), torch.tensor([4]), torch.tensor([1])
    ),
    "from_dlpack": lambda: torch.from_dlpack(X),
    "from_numpy": lambda: torch.from_numpy(np.ones(2, dtype=np.float32)),
    "frombuffer": lambda: torch.frombuffer(bytearray(8), dtype=torch.float32),
    "einsum": lambda: torch.einsum("ij->ij", X),
    "interpolate": lambda: torch.nn.functional.interpolate(IMAGE, 8),
    "linspace": lambda: torch.linspace(0, 1, 5),
    "logspace": lambda: torch.logspace(0, 1, 5),
    "max_pool2d": lambda: torch.nn.functional.max_pool2d(IMAGE, 2),
    "block_diag": lambda: torch.block_diag(X, X),
    **{n: lambda n=n: getattr(torch, n)([X, X]) for n in ("cat", "concat", "dstack", "hstack", "stack", "vstack")},
    **{n: lambda n=n: getattr(torch, n)(4) for n in ("arange", "eye", "ones", "zeros", "empty", "rand", "randn")},
    **{f"{n}_window": lambda n=n: getattr(torch, f"{n}_window")(4) for n in ("bartlett", "hamming", "hann", "kaiser")},
    "blackman_window": lambda: torch.blackman_window(4),
    "randperm": lambda: torch.randperm(4),
    "randint": lambda: torch.randint(0, 4, (2,)),
    "full": lambda: torch.full((2,), 1.0),
    "dsplit": lambda: torch.dsplit(VOLUME, 2),
    "tensor": lambda: torch.tensor([1.0]),
    "scalar_tensor": lambda: torch.scalar_tensor(1.0),
    "unfold": lambda: torch.nn.functional.unfold(IMAGE, 2),
    "vecdot": lambda: torch.linalg.vecdot(X, X),
    "view_as_real": lambda: torch.view_as_real(torch.complex(X, X)),
    "imag": lambda: torch.imag(torch.complex(X, X)),
}  # fmt: skip
CAUTIOUS = {"chain_matmul", "einsum", "from_numpy", "frombuffer", "from_dlpack", "where"}
"""What they say of memory or graph holds for arguments, or for releases of torch, that are not tried here."""
NOT_RUN = {"cuda", "pin_memory", "share_memory_", "is_pinned", "stft", "eig", "eigvals", "to_mkldnn", "quantize_per_tensor",
           "quantize_per_channel", "quantize_per_tensor_dynamic", "sparse_coo_tensor", "chalf", "register_hook", "retain_grad",
           "backward", "grad", "imag", "view_as_complex"}  # fmt: skip
"""They need another device, or say nothing that could be shown here."""

READS = ("_local_scalar_dense", "aten.nonzero", "masked_select", "_unique", "unique_", "bincount", "repeat_interleave.Tensor",
         "aten.equal", "aten.allclose", "_linalg_check_errors", "is_nonzero", "aten.argwhere")  # fmt: skip
DOCUMENTED = {"eigh", "eigvalsh", "svd", "svdvals", "to_sparse", "to_sparse_coo", "to_sparse_csc", "to_sparse_csr"}
"""On a GPU they wait, their pages say, or torch's source, which calls `nonzero`; on the CPU no operator shows it."""
UNSEEN = (Road.COPY, Road.UPLOAD, Road.TRANSFER)
"""On the CPU a copy from or to a device is no operation that could be counted."""


class Reads(TorchDispatchMode):
    """Counts the operators after which the host knows something about the numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(read in str(func) for read in READS)
        return func(*args, **(kwargs or {}))


@dataclass
class Seen:
    """What the calls of one operation showed."""

    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    shared: set[bool] = field(default_factory=set)
    graph: set[bool] = field(default_factory=set)
    random: set[bool] = field(default_factory=set)
    reads: set[int] = field(default_factory=set)


def tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors of a result that have numbers."""
    if isinstance(value, torch.Tensor) and value.numel():
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)


def rows() -> Iterator[tuple[str, str, Operation]]:
    for line in TENSORS:
        name, forms, *_ = line.split()
        for form in forms:
            found = {"m": operations.method, "a": operations.attribute}.get(form, operations.tensor_function)(name)
            assert found is not None
            yield form, name, found


def callee(form: str, name: str) -> Callable[..., Any] | None:
    match form:
        case "m":
            return lambda x, *given: getattr(x, name)(*given)
        case "a":
            return lambda x: getattr(x, name)
    place = {"t": torch, "F": torch.nn.functional, "l": torch.linalg, "s": torch.special}[form]
    return getattr(place, name, None)


RESULTS: dict[Result, Callable[[Any], bool]] = {
    Result.TENSOR: lambda r: isinstance(r, torch.Tensor),
    Result.SEVERAL: lambda r: isinstance(r, (tuple, list)) and all(isinstance(p, torch.Tensor) for p in r),
    Result.PAIR: lambda r: len(r) == 2 and r[1].dtype == torch.int64,
    Result.INT: lambda r: type(r) is int,
    Result.INTS: lambda r: isinstance(r, (int, tuple)),
    Result.FLOAT: lambda r: type(r) is float,
    Result.BOOL: lambda r: type(r) is bool,
    Result.NUMBER: lambda r: isinstance(r, (int, float, complex)),
    Result.LIST: lambda r: isinstance(r, (list, int, float)),
    Result.ARRAY: lambda r: isinstance(r, np.ndarray),
    Result.NOTHING: lambda r: r is None,
    Result.OBJECT: lambda r: True,
}


def check(row: Operation, given: torch.Tensor, arguments: tuple[Any, ...], result: Any) -> Iterator[str]:
    """What one result shows that the row does not say."""
    kind = row.result
    if kind is Result.PAIR_ALONG_DIM:
        kind = Result.PAIR if any(type(a) is int for a in arguments) else Result.TENSOR
    elif row.name in ("where", "unique") and isinstance(result, tuple):
        return
    if row.name.startswith(("atleast", "to_dense")) or row.name in ("tensor",):
        return
    if not RESULTS[kind](result):
        yield f"it is no {kind.value} but {type(result).__name__}"
        return
    if kind is not Result.TENSOR:
        return
    operands = [given, *(a for a in arguments if isinstance(a, torch.Tensor))]
    alike = all(o.dtype == given.dtype for o in operands) and not any(isinstance(a, float) for a in arguments)
    wanted = {
        "same": given.dtype,
        "float": given.dtype if given.is_floating_point() else torch.float32,
        "sums": given.dtype if given.is_floating_point() else torch.int64,
        "widest": given.dtype if alike and given.is_floating_point() else result.dtype,
        "": result.dtype,
    }.get(row.dtype) or getattr(torch, row.dtype)
    if row.real and not row.factory and result.dtype != wanted:
        yield f"its type is {result.dtype}, not {row.dtype}, for {given.dtype}"
    scalar = all(o.ndim == 0 for o in operands)
    dims = {
        Dims.ELEMENTWISE: 0 if scalar else None,
        Dims.SCALAR: 0,
        Dims.REDUCES: 0 if not arguments else None,
        Dims.LOSS: 0,
        Dims.FLATTENS: 1 if not arguments or row.name == "masked_select" else None,
    }.get(row.dims)
    if dims is not None and result.ndim != dims:
        yield f"it has {result.ndim} dimensions, not {dims}, for {given.ndim}"


def run(form: str, name: str, row: Operation) -> Seen:
    """Calls an operation with all that it may be called with."""
    seen = Seen()
    function = callee(form, name)
    if form in "tFls" and name in WHOLE_CALLS:
        whole = WHOLE_CALLS[name]
        record(seen, row, X, (), lambda: whole())
        return seen
    assert function is not None
    own = getattr(torch, row.dtype, None)
    for sample in [*INPUTS, *([X.to(own)] if isinstance(own, torch.dtype) else [])]:
        for arguments in [()] if form == "a" else EXAMPLES.get(name, GUESSED):
            tensor = sample.detach().clone()
            if tensor.is_floating_point() and not row.writes:
                tensor.requires_grad_()
            filled = tuple(sample.detach().clone() if a is TWIN else a for a in arguments)
            record(seen, row, tensor, filled, lambda tensor=tensor, filled=filled: function(tensor, *filled))
    return seen


def record(seen: Seen, row: Operation, tensor: torch.Tensor, arguments: tuple[Any, ...], call: Callable[[], Any]) -> None:
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` formats the stack for each card that there may be: 3 ms
    state, version = torch.get_rng_state(), tensor._version
    try:
        with Reads() as reads:
            result = call()
    except Exception:  # these arguments are not for it
        return
    seen.calls += 1
    seen.reads.add(reads.count)
    seen.random.add(not torch.equal(state, torch.get_rng_state()))
    seen.wrong += check(row, tensor, arguments, result)
    if (tensor._version != version) != row.writes:
        seen.wrong.append("it writes to its receiver" if not row.writes else "it does not write to its receiver")
    if not row.real:
        return
    storages = {part.untyped_storage().data_ptr() for part in tensors([tensor, *arguments])}
    for part in tensors(result):
        seen.shared.add(part.untyped_storage().data_ptr() in storages)
        if tensor.requires_grad:
            seen.graph.add(part.requires_grad)
        if row.memory is Memory.ITSELF and part is not tensor:
            seen.wrong.append("it gives another tensor than its receiver")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_rng_state(state)


@pytest.mark.parametrize(
    ("form", "name", "row"), [pytest.param(*r, id=f"{r[0]}-{r[1]}") for r in rows() if r[1] not in NOT_RUN]
)
def test_an_operation_does_what_its_row_says(form: str, name: str, row: Operation) -> None:
    if form != "m" and form != "a" and callee(form, name) is None and name not in WHOLE_CALLS:
        pytest.fail(f"torch has no {name} there")
    seen = run(form, name, row)
    assert seen.calls, "no example could be called"
    assert set(seen.wrong) == set()
    if seen.shared and name not in CAUTIOUS and not (form in "tFls" and name in WHOLE_CALLS):
        allowed = {Memory.NEW: {False}, Memory.VIEW: {True}, Memory.ITSELF: {True}, Memory.ALIAS: {True, False}}[row.memory]
        assert seen.shared <= allowed
        assert row.memory is not Memory.ALIAS or True in seen.shared
    if seen.graph and name not in CAUTIOUS:
        assert (True in seen.graph) == row.graph
    assert (True in seen.random) == row.random
    waits = any(seen.reads)
    assert not waits or row.wait is not None, "it waits"
    shown = row.wait is not None and row.wait.road not in UNSEEN and row.wait.of == "receiver" and name not in DOCUMENTED
    assert waits or not shown, "it does not wait"


def test_each_word_of_the_table_means_something() -> None:
    for line in [*TENSORS, *ELSEWHERE.strip().splitlines()]:
        operations._parsed(line.split()[0], (line[44:] if line in ELSEWHERE else line[40:]).split())
    with pytest.raises(ValueError, match="`add` has the word `nonsense`"):
        operations._parsed("add", ["nonsense"])


def test_rows_are_sorted_and_none_is_there_twice() -> None:
    for table in TABLES:
        assert [line.split()[0].lower() for line in table] == sorted(line.split()[0].lower() for line in table)
    names = [tuple(line.split()[:2]) for line in TENSORS]
    forms = [("t" if form in "tFls" else form, name, line) for line, (name, all_) in enumerate(names) for form in all_]
    assert len({(form, name) for form, name, _ in forms}) == len({(form, name, line) for form, name, line in forms})


def test_layers_that_keep_integers() -> None:
    keeping = set()
    for name, kind in vars(torch.nn).items():
        if isinstance(kind, type) and issubclass(kind, torch.nn.Module) and not name.startswith("Lazy"):
            if any(_gives_integers(kind, given) for given in ((), (2,), (1, 2), (0, (2, 2)), ((4, 4), 1))):
                keeping.add(name)
    assert keeping - {"Sequential"} <= TYPE_KEEPING_MODULES
    assert len(keeping) > 30


def _gives_integers(kind: type[torch.nn.Module], given: tuple[object, ...]) -> bool:
    for shape in ((4,), (1, 4, 4), (1, 4, 4, 4), (1, 4, 4, 4, 4)):
        for dtype in (torch.int64, torch.uint8, torch.bool):
            try:
                result = kind(*given).eval()(torch.ones(shape, dtype=dtype))
            except Exception:  # it takes no such arguments, or no integers
                continue
            if isinstance(result, torch.Tensor) and not result.is_floating_point():
                return True
    return False


def test_layers_that_hand_on_their_input() -> None:
    found = set()
    for name in dir(torch.nn):
        layer = getattr(torch.nn, name)
        if isinstance(layer, type) and issubclass(layer, torch.nn.Module) and name not in ALIASING_MODULES:
            with contextlib.suppress(Exception):  # a layer that needs arguments computes something
                built = layer().eval()
                if name != "Sequential" and any(hands_on(built, sample) for sample in INPUTS):
                    found.add(name)
    assert found == set()


def hands_on(layer: torch.nn.Module, sample: torch.Tensor) -> bool:
    """Whether a layer gives its input, or a view of it."""
    with contextlib.suppress(Exception):  # this input is not for it
        storage = sample.untyped_storage().data_ptr()
        return any(part.untyped_storage().data_ptr() == storage for part in tensors(layer(sample)))
    return False


ONE, OTHER, INDEX_0D = torch.tensor(1.5), torch.tensor(0.5), torch.tensor(1)
clip = torch.nn.utils.clip_grad_norm_
ELSEWHERE_READS: dict[str, tuple[Callable[[], Any], int]] = {
    "builtins.bool": (lambda: bool(ONE), 1),
    "builtins.complex": (lambda: complex(ONE), 1),
    "builtins.float": (lambda: float(ONE), 1),
    "builtins.format": (lambda: format(ONE, ".2f"), 1),
    "builtins.int": (lambda: int(ONE), 1),
    "builtins.max": (lambda: max(ONE, OTHER, INDEX_0D), 2),
    "builtins.min": (lambda: min(ONE, 5), 1),
    "builtins.range": (lambda: range(INDEX_0D), 1),
    "builtins.sorted": (lambda: sorted([ONE, OTHER]), 1),
    "math.*": (lambda: math.sqrt(ONE), 1),
    "numpy.*": (lambda: np.array([ONE, OTHER]), 2),
    "numpy.average": (lambda: np.average([ONE, OTHER]), 2),
    "numpy.log10": (lambda: np.log10([ONE, OTHER]), 2),
    "numpy.mean": (lambda: np.mean([ONE, OTHER]), 2),
    "torch.nn.utils.clip_grad_norm_": (lambda: clip([with_gradient()], 1.0, error_if_nonfinite=True), 1),
    "x[0-d]": (lambda: X[INDEX_0D], 1),
    "x[a:b]": (lambda: X[INDEX_0D - 1 : INDEX_0D], 2),
    "list[0-d]": (lambda: [1, 2][INDEX_0D], 1),
    "t in list": (lambda: INDEX_0D in [3, 2], 2),
    "if t": (lambda: 1 if ONE else 0, 1),
    'f"{t}"': (lambda: f"{ONE:.2f}", 1),
    "alpha=t": (lambda: X.add(X, alpha=ONE), 1),
    "backward in anomaly mode": (lambda: in_anomaly_mode((X.clone().requires_grad_() * 2).sum), 2),
}  # fmt: skip
"""What is no operation on tensors alone, and how many numbers it reads."""
SEEN_ON_A_GPU_ONLY = (Road.COPY, Road.UPLOAD, Road.DEVICE, Road.OVERFLOW, Road.SHAPE, Road.FORMAT, None)


LOOKED_AT_APART = ("torch.distributions.", "torch.optim.", "apex.", "lightly.", "pl_bolts.", "torch_optimizer.")
"""Distributions and optimizers, by test_library_waits, as far as they are installed."""


def with_gradient() -> torch.Tensor:
    tensor = torch.ones(2, requires_grad=True)
    tensor.grad = torch.ones(2)
    return tensor


def in_anomaly_mode(loss: Callable[[], torch.Tensor]) -> None:
    with torch.autograd.detect_anomaly():
        loss().backward()


@pytest.mark.parametrize("form", [line[:44].rstrip() for line in ELSEWHERE.strip().splitlines()])
def test_what_stands_elsewhere_reads_as_many_numbers_as_its_row_says(form: str) -> None:
    row = operations.operator(form)
    assert row is not None
    if form.startswith(LOOKED_AT_APART):
        return
    if form not in ELSEWHERE_READS:
        assert (row.wait.road if row.wait is not None else None) in SEEN_ON_A_GPU_ONLY or form.startswith("torch.amp.")
        return
    call, count = ELSEWHERE_READS[form]
    with Reads() as reads, contextlib.suppress(RuntimeError):
        call()
    assert reads.count == count
    assert bool(count) == (row.wait is not None)
