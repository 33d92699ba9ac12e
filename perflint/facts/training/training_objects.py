"""What plays a part in training: modules whose call is a forward pass, optimizers, scalers."""

from __future__ import annotations

import ast
import builtins
import re
import sys

from perflint.facts.operations import operations
from perflint.facts.values import classes
from perflint.facts.values.inference import Inference
from perflint.facts.values.object_methods import is_module_name, is_optimizer_name
from perflint.facts.values.values import Alternative, External, Instance, Literal, Number, Object, Tensor, Value
from perflint.source.words import words

_NO_MODULE = words(
    """
    append extend insert remove pop popitem clear copy items keys values get update setdefault index count sort reverse add
    discard format join split rsplit splitlines strip lstrip rstrip replace startswith endswith lower upper title zfill
    info warning warn debug error exception write writelines flush close exists mkdir isfile isdir glob astype zeros ones
    set_description set_postfix set_postfix_str add_scalar add_scalars add_image add_histogram zero_grad step backward
    seed parameters named_parameters state_dict load_state_dict deepcopy group search findall
    """
)
"""Methods that run no module, whatever they belong to, beside those of tensors."""
MODULE_HOUSEKEEPING = words(
    """
    add_module apply bfloat16 buffers children compile cpu cuda double eval extra_repr float get_buffer get_extra_state
    get_parameter get_submodule half load_state_dict log log_dict modules named_buffers named_children named_modules
    named_parameters parameters register_backward_hook register_buffer register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter register_state_dict_post_hook
    register_state_dict_pre_hook requires_grad_ save_pretrained set_extra_state set_submodule share_memory state_dict to
    to_empty train type zero_grad
    """
)
"""Methods of a module that are no forward pass."""


def is_optimizer(alternative: Alternative) -> bool:
    """An optimizer, or a wrapper that steps one."""
    return isinstance(alternative, Object) and is_optimizer_name(alternative.qualname)


def is_trainer(alternative: Alternative) -> bool:
    """The runtime's trainer, whose `steps` train on each batch before they give it."""
    return isinstance(alternative, Object) and alternative.qualname == "perflint_runtime.Trainer"


def is_scaler(alternative: Alternative) -> bool:
    """Whether a value is a `GradScaler`."""
    return isinstance(alternative, Object) and alternative.qualname == "torch.amp.GradScaler"


_UNDERSTOOD = words(
    """
    torch torchvision torchtext numpy builtins einops tqdm PIL cv2 matplotlib seaborn sklearn scipy pandas skimage imageio
    wandb tensorboardX tensorboard nltk yaml sacrebleu gym gymnasium
    """
)


def is_understood(qualname: str) -> bool:
    """Whether what a package offers under a name runs no kernel that depends on autograd; torch's own are listed elsewhere."""
    package, _, _rest = qualname.partition(".")
    if qualname == "torch.nn.Module":
        return False
    return package in _UNDERSTOOD or package in sys.stdlib_module_names


def is_foreign(alternative: Alternative) -> bool:
    """Whether something is of a package that is not known: its `norm` or `size` may be none of a tensor, and do anything."""
    if not isinstance(alternative, (External, Object)) or alternative.qualname == "torch.nn.Module":
        return False
    return not is_understood(alternative.qualname)


def may_run_module(call: ast.Call) -> bool:
    """Whether a call may be a forward pass, by the name of what is called."""
    match call.func:
        case ast.Name(id=name):
            return not hasattr(builtins, name)
        case ast.Attribute(attr=name):
            return name not in _NO_MODULE and operations.method(name) is None
    return True


def is_neural_module(inference: Inference, alternative: Alternative) -> bool:
    """A module whose call is a forward pass: no loss."""
    match alternative:
        case Instance(cls):
            return classes.is_module(inference, cls) and not re.search(r"loss|criterion", cls.name, re.I)
        case Object(qualname):
            return is_module_name(qualname) and not qualname.endswith("Loss")
    return False


def stands_for_layers(inference: Inference, value: Value) -> bool:
    """Whether all that is known of what is called are layers and losses, though it may be another one."""
    called = value.without(_is_not_callable).alternatives
    return bool(called) and all(
        is_neural_module(inference, a) or (isinstance(a, Object) and is_module_name(a.qualname)) for a in called
    )


def _is_not_callable(alternative: Alternative) -> bool:
    """What cannot be called: `.float()` of something unknown may give a tensor, or a layer, which is what is called."""
    return isinstance(alternative, (Tensor, Number, Literal))
