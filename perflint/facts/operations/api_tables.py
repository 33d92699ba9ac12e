"""Names of classes of torch and of what stands around it; what operations do is in the tables of operations."""

from __future__ import annotations

from typing import Final

from perflint.source.words import words

# -- layers and tensors ------------------------------------------------------------------------------------------------

ALIASING_MODULES: Final = words(
    """
    Identity Flatten Unflatten Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout
    """
)
"""Layers that may hand on their input itself."""

TYPE_KEEPING_MODULES: Final = words(
    """
    AlphaDropout AvgPool1d AvgPool2d AvgPool3d ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d
    ConstantPad2d ConstantPad3d Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout Flatten Fold Hardtanh Identity
    MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d PixelShuffle PixelUnshuffle ReLU ReLU6 ReflectionPad1d
    ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d Threshold Unflatten Unfold Upsample
    UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
    """
)
"""Layers that give integers for integers, as far as they take any; all others give floats, or raise."""

LEGACY_TENSOR_CLASSES: Final = words(
    """
    Tensor FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ByteTensor BoolTensor ShortTensor CharTensor
    BFloat16Tensor
    """
)
"""`torch.FloatTensor` and, in `torch.cuda`, its device twin."""

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
AUTOGRAD_FUNCTIONS: Final = frozenset(("torch.autograd.Function", "torch.autograd.function.Function"))
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
