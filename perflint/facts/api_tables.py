"""What the analysis knows about torch, numpy and Python's builtins: names, no code.

Sources: the documentation and source of torch 2.13 (`native_functions.yaml` for which functions are views or work in
place), checked by running where a comment says so.
"""

from __future__ import annotations

from typing import Final

from perflint.source.words import words

# -- tensor methods and torch functions of the same name ----------------------------------------------------------------

REDUCTIONS: Final = words(
    """
    mean sum prod norm std var max min median amax amin logsumexp nanmean nansum argmax argmin any all count_nonzero
    dist trace dot quantile aminmax nanmedian
    """
)
"""Without a dimension argument these give a 0-d tensor."""

INTEGER_RESULTS: Final = words(
    """
    argmax argmin argsort count_nonzero nonzero bincount long int
    """
)
BOOLEAN_RESULTS: Final = words(
    """
    eq ne gt lt ge le isnan isinf isfinite any all logical_not logical_and logical_or logical_xor equal isclose bool
    isin signbit
    """
)
FLOAT_RESULTS: Final = words(
    """
    mean std var norm softmax log_softmax sigmoid exp log sqrt rsqrt tanh float double half bfloat16 log1p expm1
    reciprocal cos sin erf dist logsumexp log10
    """
)

VIEWS: Final = words(
    """
    view view_as transpose permute squeeze unsqueeze expand expand_as t detach narrow select diagonal unfold movedim
    swapaxes swapdims unbind chunk split tensor_split alias as_strided real imag mT mH T H data moveaxis unflatten
    adjoint view_as_real view_as_complex hsplit vsplit dsplit
    """
)
"""The result shares the receiver's memory."""

MAY_ALIAS: Final = words(
    """
    reshape contiguous flatten ravel to cpu cuda float double half bfloat16 long int bool type type_as reshape_as
    broadcast_to requires_grad_ resolve_conj byte short positive conj atleast_1d atleast_2d atleast_3d to_dense
    dropout alpha_dropout feature_dropout feature_alpha_dropout dropout1d dropout2d dropout3d resolve_neg dequantize
    conj_physical
    """
)
"""The result may be the receiver itself or share its memory."""

ALIASING_FUNCTIONS: Final = words(
    """
    as_tensor asarray from_numpy from_dlpack to_dlpack frombuffer broadcast_tensors meshgrid einsum Variable Parameter
    cartesian_prod chain_matmul unsafe_split unsafe_chunk
    """
)
"""Torch functions, apart from those named like a method, whose result may be the argument or share its memory."""

ALIASING_MODULES: Final = words(
    """
    Identity Flatten Unflatten Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout
    """
)
"""Layers that may hand on their input itself."""

SCALAR_DIMENSION_KEEPERS: Final = words(
    """
    abs exp log sqrt neg sigmoid tanh clone detach float double half cpu cuda to item clamp add sub mul div round
    contiguous bfloat16 long int pow log10 log1p square requires_grad_ type relu softplus data
    """
)
"""A 0-d tensor stays 0-d (for the binary ones: when the other operand is a number or 0-d, which is checked)."""

BINARY_METHODS: Final = words(
    """
    add sub mul div pow true_divide multiply subtract
    """
)

TENSOR_METHODS: Final = (
    REDUCTIONS
    | INTEGER_RESULTS
    | BOOLEAN_RESULTS
    | FLOAT_RESULTS
    | VIEWS
    | MAY_ALIAS
    | SCALAR_DIMENSION_KEEPERS
    | words(
        """
    add sub mul div pow matmul mm bmm clone repeat gather scatter topk sort cumsum cumprod where masked_fill
    masked_select index_select relu gelu clip floor ceil new_zeros new_ones new_full new_empty new_tensor pin_memory
    roll flip tile repeat_interleave tril triu multinomial new scatter_add take maximum minimum unique baddbmm addmm
    outer einsum fmod remainder sign numel size dim stride nonzero
    """
    )
)

READING_METHODS: Final = frozenset(("item", "tolist", "numpy", "cpu"))
"""Methods by which the host gets a tensor's numbers."""

HARMLESS_METHODS: Final = (
    TENSOR_METHODS
    | READING_METHODS
    | words(
        """
    backward size dim numel register_hook is_contiguous element_size data_ptr is_floating_point get_device
    nelement ndimension type_as __len__ retain_grad is_pinned
    """
    )
)
"""Methods that leave the numbers of their receiver as they are."""

HOST_ONLY_METHODS: Final = frozenset(("size", "dim", "numel", "stride", "is_contiguous", "ndimension", "nelement"))
"""Methods that give Python objects without looking at the tensor's numbers."""

# -- constructors ------------------------------------------------------------------------------------------------------

CONSTANT_FACTORIES: Final = words(
    """
    zeros ones full empty eye arange linspace logspace
    """
)
RANDOM_FACTORIES: Final = frozenset(("rand", "randn", "randint", "randperm", "normal", "bernoulli", "rand_like"))
LIKE_FACTORIES: Final = frozenset(
    ("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randint_like")
)
LEGACY_TENSOR_CLASSES: Final = words(
    """
    Tensor FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ByteTensor BoolTensor ShortTensor CharTensor
    BFloat16Tensor
    """
)
"""`torch.FloatTensor` and, in `torch.cuda`, its device twin."""

# -- modules -----------------------------------------------------------------------------------------------------------

LOSS_FUNCTIONS: Final = words(
    """
    cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss binary_cross_entropy huber_loss kl_div
    binary_cross_entropy_with_logits poisson_nll_loss cosine_embedding_loss hinge_embedding_loss margin_ranking_loss
    multi_margin_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multilabel_soft_margin_loss
    gaussian_nll_loss ctc_loss
    """
)
"""`torch.nn.functional` losses; with a reduction other than "none" they give a fresh 0-d tensor."""

COMPUTING_FUNCTIONS: Final = (
    (TENSOR_METHODS | LOSS_FUNCTIONS | LIKE_FACTORIES) - VIEWS - MAY_ALIAS - ALIASING_FUNCTIONS - {"new"}
) | words(
    """
    cat stack concat vstack hstack dstack block_diag pad pad_sequence one_hot normalize interpolate linear conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d bilinear layer_norm group_norm avg_pool1d avg_pool2d max_pool1d max_pool2d
    adaptive_avg_pool1d adaptive_avg_pool2d cosine_similarity pairwise_distance cdist cov corrcoef searchsorted bucketize
    logaddexp lerp isneginf isposinf is_tensor is_floating_point is_complex numel full tensor copy fill index_add
    index_copy index_fill index_put masked_scatter scatter_reduce nan_to_num clamp_min clamp_max erfinv logit tanhshrink
    hardtanh leaky_relu elu silu mish softmin logsigmoid allclose addcmul addcdiv vecdot inner kron backward grad save
    """
)
"""Torch functions, and methods of a tensor, that write to none of their arguments and compute their result anew."""

RNN_CLASSES: Final = frozenset(("LSTM", "GRU", "RNN"))
RNN_CELL_CLASSES: Final = frozenset(("LSTMCell", "GRUCell", "RNNCell"))

OPTIMIZER_CLASSES: Final = words(
    """
    SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam SparseAdam ASGD Rprop Adafactor LBFGS Muon Lamb Lion
    LARS AdamW8bit Adam8bit FusedAdam ZeroRedundancyOptimizer
    """
)

LOADER_CLASSES: Final = words(
    """
    torch.utils.data.DataLoader torch.utils.data.dataloader.DataLoader torch_geometric.loader.DataLoader
    torch_geometric.data.DataLoader torchdata.stateful_dataloader.StatefulDataLoader torchtext.data.BucketIterator
    torchtext.data.Iterator torchtext.legacy.data.BucketIterator torchtext.legacy.data.Iterator monai.data.DataLoader
    """
)
PLAIN_LOADER_CLASSES: Final = frozenset(("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"))

MODULE_BASES: Final = frozenset(
    (
        "torch.nn.Module",
        "lightning.LightningModule",
        "lightning.pytorch.LightningModule",
        "pytorch_lightning.LightningModule",
        "pytorch_lightning.core.LightningModule",
        "transformers.PreTrainedModel",
        "transformers.modeling_utils.PreTrainedModel",
    )
)
LIGHTNING_STEP_HOOKS: Final = frozenset(("training_step", "validation_step", "test_step", "predict_step"))
"""Methods that a training framework calls once per batch."""

# -- wrappers that hand on what they iterate over ----------------------------------------------------------------------

PASSING_ITERATORS: Final = words(
    """
    tqdm.tqdm tqdm.auto.tqdm tqdm.autonotebook.tqdm tqdm.notebook.tqdm tqdm.std.tqdm tqdm.tqdm_notebook tqdm.rich.tqdm
    rich.progress.track itertools.islice itertools.cycle builtins.iter builtins.reversed builtins.list builtins.tuple
    builtins.sorted builtins.set progressbar.progressbar alive_progress.alive_it
    ignite.contrib.handlers.tqdm_logger.ProgressBar
    """
)

GRAD_OFF: Final = frozenset(
    (
        "torch.no_grad",
        "torch.autograd.no_grad",
        "torch.autograd.grad_mode.no_grad",
        "torch.inference_mode",
        "torch.autograd.inference_mode",
    )
)
