"""What gives the same bits with and without autograd: layers, methods and functions, as they were measured."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from perflint.facts.operations import operations
from perflint.facts.values.arguments import argument
from perflint.facts.values.values import Alternative, Literal, Number
from perflint.source.words import any_layout, made, words

if TYPE_CHECKING:
    from perflint.facts.values.inference import Inference
    from perflint.source.syntax import Scope

SAME_WITHOUT_GRAPH: Final = words(
    """
    Linear Bilinear Identity Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
    BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d GroupNorm LayerNorm RMSNorm
    LocalResponseNorm MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d
    AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
    ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d ReflectionPad2d ReflectionPad3d
    ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d CircularPad3d
    Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout
    ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU CELU GELU Sigmoid SiLU
    Mish Softplus Softshrink Softsign Tanh Tanhshrink Threshold GLU Softmax LogSoftmax Softmin Softmax2d
    Embedding EmbeddingBag Flatten Unflatten PixelShuffle PixelUnshuffle ChannelShuffle Upsample UpsamplingNearest2d
    UpsamplingBilinear2d Fold Unfold CosineSimilarity PairwiseDistance
    MSELoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss NLLLoss BCEWithLogitsLoss BCELoss KLDivLoss PoissonNLLLoss
    SoftMarginLoss HingeEmbeddingLoss MultiLabelSoftMarginLoss MultiMarginLoss MarginRankingLoss CosineEmbeddingLoss
    TripletMarginLoss GaussianNLLLoss
    """
)
"""Layers of `torch.nn` whose results were the same to the last bit with and without autograd, in training and evaluation mode,
for inputs of a graph and of none, in float32, float64 and bfloat16 (torch 2.13 on the CPU, 9,294 comparisons). Not among them:
LSTM, attention and transformer layers, which differ; MaxPool1d, which lays out the same numbers otherwise if its input is
transposed; GRU and RNN, which cuDNN runs in another mode on CUDA, where they were not measured."""
CONTAINERS: Final = words("Sequential ModuleList ModuleDict")
MODELS = any_layout(
    rb"torchvision\.models\.(?:\w+\.)?(?:resnet|resnext|wide_resnet|vgg|alexnet|mobilenet|squeezenet|shufflenet|mnasnet)\w*"
)
"""Networks of torchvision that consist of these layers."""
MODULE_METHODS = words(
    """
    train eval to cuda cpu float double half bfloat16 type parameters named_parameters buffers named_buffers modules
    named_modules children named_children state_dict load_state_dict requires_grad_ register_buffer register_parameter
    zero_grad get_submodule get_parameter get_buffer extra_repr
    """
)
"""What each module has from torch, and runs no layer."""
PARAMETERS = words("weight bias running_mean running_var weight_v weight_g in_proj_weight")
_METHODS = words(
    """
    norm softmax contiguous addcmul addcdiv bernoulli bernoulli_ clamp_min clamp_max masked_fill_ add_ sub_ mul_ div_ relu_
    sigmoid_ tanh_ clamp_ zero_ fill_ copy_ normal_ uniform_ exponential_ new_zeros silu nan_to_num index_add_ index_fill_
    scatter_ scatter_add_ unfold cumsum rot90 frac trunc round log2 exp2 erf sinh cosh asin acos atan atan2 lerp
    nansum diff logcumsumexp nanmean is_complex is_cuda ndimension index_select gather format join split strip items
    keys values get startswith endswith append extend insert copy update pop setdefault lower upper replace index count
    isdigit addbmm addmv angle logaddexp2 renorm polygamma frexp select_scatter slice_scatter diagonal_scatter index_reduce
    narrow_copy sum_to_size
    """
)
"""Methods of tensors, texts and containers that give the same with and without autograd, and have no row as an operation."""
_GRAPH_METHODS = words("backward register_hook retain_grad matmul requires_grad_ trace")
_GRAPH_FUNCTIONS = words(
    """
    matmul backward grad linear bilinear save cdist inner chain_matmul requires_grad_ trace dist load compile set_grad_enabled
    enable_grad scaled_dot_product_attention multi_head_attention_forward svd svdvals eigh eigvalsh eig qr pinverse
    max_pool1d max_pool1d_with_indices nuclear_norm lobpcg multilabel_margin_loss
    """
)
_FUNCTIONS = words(
    """
    zeros ones full empty eye arange linspace logspace rand randn randint randperm normal bernoulli tensor as_tensor
    from_numpy zeros_like where cat stack split chunk cumsum meshgrid einsum bmm mm addmm mv dot outer norm relu gelu sigmoid
    tanh softmax log_softmax softplus dropout max_pool2d avg_pool2d conv1d conv2d conv3d batch_norm layer_norm group_norm
    instance_norm rms_norm embedding embedding_bag one_hot pad interpolate upsample adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d max_pool3d avg_pool1d avg_pool3d pixel_shuffle
    pixel_unshuffle glu hardswish hardsigmoid hardtanh relu6 selu celu prelu rrelu softsign softshrink hardshrink threshold
    normalize unfold fold grid_sample affine_grid conv_transpose1d conv_transpose2d conv_transpose3d dropout1d dropout2d
    dropout3d alpha_dropout feature_alpha_dropout local_response_norm lp_pool1d lp_pool2d gumbel_softmax device Size
    is_tensor broadcast_tensors polar atan2 maximum minimum fmod logical_and logical_or logical_not roll flip kron
    channel_shuffle Generator manual_seed no_grad inference_mode is_available current_device Tensor FloatTensor LongTensor
    argmax argmin topk sort finfo iinfo numel is_floating_point promote_types get_default_dtype xlogy spmm
    """
)
"""Functions of torch and of `torch.nn.functional` that give the same with and without autograd, by their last names. Left out
are products of stacks of matrices, whose way torch chooses by what requires a gradient; `linear` is looked at on its own."""
_OF_SEQUENCES = words("pack_padded_sequence pad_packed_sequence pad_sequence pack_sequence unpad_sequence unpack_sequence")
"""Functions of `torch.nn.utils.rnn` that lay out sequences: they only copy, so no bit depends on autograd."""
LINEAR = words("torch.nn.functional.linear torch._C._nn.linear")
PACKAGES = tuple(
    f"{package}."
    for package in words(
        """
        math typing collections itertools numpy random torch.nn.init einops os.path re json csv glob pathlib time
        datetime string
        """
    )
)
BUILTINS = words(
    """
    len range enumerate zip reversed sorted int float bool str list tuple dict set frozenset min max sum abs round any all
    isinstance issubclass map filter iter next slice divmod pow id type object ValueError TypeError RuntimeError super
    NotImplementedError AssertionError KeyError IndexError Exception property callable hasattr repr print format ord chr
    """
)
OPERATORS = words(
    """
    operator.abs operator.add operator.and_ operator.concat operator.contains operator.countOf operator.eq operator.floordiv
    operator.ge operator.getitem operator.gt operator.index operator.indexOf operator.inv operator.invert operator.is_
    operator.is_not operator.itemgetter operator.le operator.length_hint operator.lshift operator.lt operator.mod operator.mul
    operator.ne operator.neg operator.not_ operator.or_ operator.pos operator.pow operator.rshift operator.sub
    operator.truediv operator.truth operator.xor
    """
)
"""Functions of `operator` that write to nothing and find nothing by its name; `matmul` rounds differently."""
DISTRIBUTIONS = words(
    """
    torch.distributions.Normal torch.distributions.Categorical torch.distributions.Bernoulli
    torch.distributions.normal.Normal torch.distributions.categorical.Categorical torch.distributions.bernoulli.Bernoulli
    """
)
"""Classes whose objects are made by arithmetic alone, and hold what they are made of: nothing else does."""
OTHERS = (
    OPERATORS
    | DISTRIBUTIONS
    | words(
        """
    functools.partial functools.reduce copy.deepcopy copy.copy warnings.warn ast.literal_eval torch.nn.Parameter
    torch.nn.parameter.Parameter
    """
    )
)
COMPUTES_NOTHING: Final = made(
    r"torch\.(?:u?int\d*|b?float\d*|half|double|long|short|bool|strided|save|set_\w+|get_\w+|backends\.[\w.]+|utils\.data\.\w+"
    r"|cuda\.\w+|amp\.\w+|autocast|utils\.tensorboard\.\w+|optim\.\w+|nn\.utils\.rnn\.\w+|distributed\.\w+|version\.\w+|nn"
    r"|nn\.functional|cuda|optim|utils)$"
)
"""What of torch computes nothing for which autograd counts."""


def is_known_function(qualname: str) -> bool:
    """Whether a function or class of torch is known to keep nothing, and to give the same with and without autograd."""
    package, _, last = qualname.rpartition(".")
    if package in ("torch", "torch.nn.functional", "torch.cuda"):
        return last not in _GRAPH_FUNCTIONS and (
            last in _FUNCTIONS or last.removesuffix("_") in _FUNCTIONS or operations.tensor_function(last) is not None
        )
    if package == "torch.nn.utils.rnn":
        return last in _OF_SEQUENCES
    if qualname == "torch.autograd.Variable":  # gives the tensor that it gets
        return True
    return package == "torch.nn" and last in SAME_WITHOUT_GRAPH | CONTAINERS | {"Parameter", "Module"}


NORMS: Final = {"torch.norm": 1, "torch.functional.norm": 1}
"""Functions whose results were measured for orders that are numbers or `"fro"`, with the place of the order: for `"nuc"`, torch
takes a matrix apart, and how depends on whether a gradient may be asked for."""
ROUNDING = words(
    """
    LSTM GRU RNN LSTMCell MultiheadAttention Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer
    TransformerDecoderLayer matmul scaled_dot_product_attention multi_head_attention_forward
    """
)


def has_measured_order(inference: Inference, scope: Scope, call: ast.Call, place: int) -> bool:
    """Whether a call of a norm gives an order whose results were measured, or none."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return False
    order = argument(call, place, "p")
    return order is None or inference.value(scope, order).must(_is_measured_order)


def _is_measured_order(order: Alternative) -> bool:
    return isinstance(order, Number) or (
        isinstance(order, Literal) and (order.value in (None, "fro") or isinstance(order.value, (int, float)))
    )


def is_known_method(name: str) -> bool:
    """Whether a method of tensors, texts or containers is known, and gives the same without autograd."""
    row = operations.method(name)
    return name in _METHODS or (row is not None and not row.gradients and name not in _GRAPH_METHODS)
