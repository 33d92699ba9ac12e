"""What a program may hold that the source around a place does not show: one table of program-wide fears.

Each says what kind of obligation it leaves open, how it is found in the text of any file of a program, and what it means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from perflint.project.project import Project
from perflint.rule.obligations import Kind, Obligation
from perflint.source.records import dataclass
from perflint.source.words import NO_MEMBER, any_layout, whole


@dataclass(frozen=True)
class Fear:
    """A reason why what the source shows may not be all that runs.

    pattern: what the text of a file holds then. before: what else such a text holds, where that is slow to search.
    """

    kind: Kind
    pattern: re.Pattern[bytes]
    words: str
    before: re.Pattern[bytes] | None = None


def _handed_on(name: bytes) -> bytes:
    """The part of a pattern that finds where one of Python's functions is an argument or gets a name, and may be called."""
    return rb"[(,=:\[{] %b [],)}\r\n;#]" % name


HOOKS: Final = Fear(
    Kind.NO_HOOKS,
    any_layout(
        rb"\b(?:register\w*_hook|register_parametrization|saved_tensors_hooks|add_hook_to_module\w*|\w*ModelHook"
        rb"|_(?:forward|backward)(?:_pre)?_hooks(?:_with_kwargs)?)\b|_hook['\"]|\bregister_\w*(?:\{|['\"])"
    ),
    "the program has hooks, which run within its networks and its backward passes",
)
PATCHED: Final = Fear(
    Kind.PLAIN_MODULES,
    any_layout(
        rb"\. (?:forward|zero_grad|__call__|__class__|__code__|_call_impl) =(?!=)"
        rb"|'(?:forward|zero_grad|__call__|__class__)['\"]|\"(?:forward|zero_grad|__call__|__class__)['\"]"
        rb"|\. __get__ \(|" + whole("mock", "monkeypatch", "MethodType")
    ),
    "the program puts methods of its own in the place of others",
)
SET_BY_NAME: Final = Fear(
    Kind.PLAIN_MODULES,
    any_layout(
        NO_MEMBER + rb"(?:(?:setattr|delattr)\b|vars \()|\bbuiltins? \. (?:setattr|delattr|vars)\b"
        rb"|__(?:setattr|delattr)__\b(?! =(?!=))|\b__dict__\b|"
        + _handed_on(b"vars")
        + rb"|\. (?:_modules|_parameters|_buffers)\b"
        rb"|\. (?:set_submodule|add_module|register_module) \("
    ),
    "the program sets attributes by their names, perhaps layers or methods of a network",
    any_layout(
        rb"\bsetattr\b|\bdelattr\b|\bvars\b|__setattr__|__delattr__|__dict__"
        rb"|\. (?:_modules|_parameters|_buffers|set_submodule|add_module|register_module)\b"
    ),
)
WRAPPED: Final = Fear(
    Kind.PLAIN_MODULES,
    any_layout(
        rb"DataParallel|tensor_parallel|parallelize_module|FullySharded|FSDP\b|fully_shard"
        rb"|\bfsdp|_compile\b|torch \. compile|\. compile \("
        rb"|torch \. jit|\bjit \.|import jit\b|fabric\b|Fabric\b|\bAccelerator \(|deepspeed"
        rb"|import compile\b|horovod|" + whole("DDP", "accelerate", "dynamo", "_dynamo", "tensorrt")
    ),
    "the program wraps or compiles a model",
)
COMPUTED_WEIGHTS: Final = Fear(
    Kind.PLAIN_MODULES,
    any_layout(
        rb"weight_norm|spectral_norm|parametriz\w|torch \. (?:ao|quantization)\b|quantize_|_fx\b|_qat\b|QuantStub"
        rb"|LoRA|\blora|_lora\b|\bLora|\bLORA"
        rb"|bitsandbytes|functional_call|stack_module_state|torch \. fx\b|symbolic_trace|torchao|swap_tensors|swap_module"
        rb"|" + whole("prune", "pruning", "qat", "peft", "functorch", "adapter", "adapters")
    ),
    "the program computes weights, or puts other layers in the place of those that are built",
)
OWN_LOGGERS: Final = Fear(
    Kind.PLAIN_OBJECTS,
    any_layout(rb"\bdef (?:add_scalars?|set_postfix(?:_str)?|debug|info|warning|error|write|format) \("),
    "the program has loggers of its own, which may keep what they are given",
)
_DERIVATIVES: Final = b"jacobian hessian jacrev jacfwd vjp jvp hvp vhp make_dual dual_level".split()
ASKS_FOR_GRADIENTS: Final = Fear(
    Kind.GRADIENT,
    any_layout(
        rb"autograd \. functional|forward_ad|torch \. func\b|functorch"
        rb"|(?:\. |['\"]|\bimport [\w\s,(\\]*?\b)(?:%b)\b" % b"|".join(_DERIVATIVES)
    ),
    "the program differentiates by other means than `backward()`",
    any_layout(rb"autograd|forward_ad|functorch|torch \. func\b|" + rb"|".join(_DERIVATIVES)),
)
"""A bare name is the program's own (`flat_grad(kl, hessian=True)`), unless an import gives it another meaning."""
OWN_TENSORS: Final = Fear(
    Kind.PLAIN_TENSORS,
    any_layout(
        rb"\bas_subclass\b|__torch_(?:function|dispatch)__|Torch(?:Function|Dispatch)Mode"
        rb"|\bmake_fx\b|_python_dispatch|\bclass [A-Za-z_]\w* \([^()]*\bTensor [,)]"
        rb"|\bset_default_device\b|torch \. overrides|DeviceContext"
        rb"|\bTensor \. \w+ =(?!=)|\bTensor as \w|attr \( (?:torch \. )?Tensor\b"
        rb"|\btype \([^()]*\) \. \w+ =(?!=)"
    ),
    "the program has tensors of a class of its own, other methods of tensors, or looks at each operation",
)
LAZY: Final = Fear(
    Kind.NO_LAZY_MODULES,
    any_layout(rb"\bLazy[A-Z]"),
    "the program has layers that make their parameters when they run first",
)
BUILT_FROM_TEXT: Final = Fear(
    Kind.UNKNOWN_CODE,
    any_layout(
        NO_MEMBER + rb"(?:exec|eval|globals|__import__) \(|\bbuiltins? \. (?:exec|eval|globals|__import__)\b|\brunpy\b"
        rb"|\bsys \. modules\b|\bfrom sys import\b[^\n]*\bmodules\b|import __main__\b|%run\b|"
        + whole("__globals__", "f_globals")
        + rb"|"
        + _handed_on(b"(?:globals|__import__)")
    ),
    "the program runs code, or finds functions, by their names",
    any_layout(
        rb"exec(?<![\w.]exec) \(|eval(?<![\w.]eval) \(|globals(?<![\w.]globals)\b|__import__|builtin|__globals__|f_globals"
        rb"|runpy|sys \. modules\b|\bfrom sys import\b|import __main__\b|%run\b"
    ),
)
SIDE_STREAM: Final = Fear(
    Kind.ONE_STREAM,
    any_layout(
        rb"\bcuda \. (?:stream|\w*Stream|set_stream) \(|\btorch \. Stream \(|\baccelerator \. set_stream \("
        rb"|\bStreamContext \(|\bStream \(|\b(?:wait_stream|record_stream|wait_event|record_event) \("
        rb"|\bcuda import\b[^\r\n]*\b(?:\w*Stream|set_stream|stream)\b|\btorch import\b[^\r\n]*\bStream\b"
    ),
    "the program works with several streams, which this wait may keep apart",
)
SHARED_MEMORY: Final = Fear(
    Kind.ONE_STREAM,
    any_layout(rb"\bshare_memory_? \(|\bmultiprocessing \. reductions?\b|\bipc_collect \("),
    "the program shares tensors with other processes, which know nothing of this one's streams",
)
OTHER_KERNELS: Final = Fear(
    Kind.ONE_STREAM,
    any_layout(
        rb"\bdata_ptr \(|dlpack|__cuda_array_interface__|\bonnxruntime\b|\btensorrt\b|\bmpi4py\b|['\"]mpi['\"]|cpp_extension"
        rb"|\bload_inline \("
    ),
    "the program hands memory to others than torch, which may read it on a stream of their own",
)
OTHER_DEVICES: Final = Fear(
    Kind.CUDA_OR_CPU,
    any_layout(rb"gpu_migration|transfer_to_npu|\b(?:torch_npu|torch_xla|torch_musa|intel_extension_for_pytorch)\b"),
    "the program may compute on a device that only goes by the name of CUDA",
)
CAPTURED: Final = Fear(
    Kind.TRANSFER,
    any_layout(rb"\bCUDAGraph\b|\bcuda \. graphs?\b|\bmake_graphed_callables\b|\bcapture_begin\b"),
    "the program replays CUDA graphs, which write to the same memory each time",
)
EVENTS: Final = Fear(
    Kind.TRANSFER,
    any_layout(rb"\belapsed_time \("),
    "the program asks CUDA events for their times, which raises where the device has not got there",
)
QUOTED_NON_BLOCKING: Final = Fear(
    Kind.TRANSFER,
    any_layout(rb"['\"]non_blocking['\"]"),
    "the program may copy to the host without a wait, by a setting of that name",
)
AUTOCAST: Final = Fear(
    Kind.NO_AUTOCAST,
    any_layout(
        rb"autocast|precision|\bAccelerator \(|\bFabric \(|" + whole("amp", "f16", "fp16", "ff16", "b16", "bp16", "bf16")
    ),
    "the program may use mixed precision",
)
SEVERAL_GPUS: Final = Fear(
    Kind.CUDA_OR_CPU,
    any_layout(
        rb"\bcuda:(?!0\b|\{ \w+(?: \. \w+)+ \}['\"]|(?:\{0?\}['\"] \. format|['\"] \+ str) \( \w+(?: \. \w+)+ \))"
        rb"|\bdevice \( (?:type = )?['\"]cuda['\"] ,(?! (?:index = )?%b \))"
        rb"|\. cuda \((?! (?:\)|(?:device = )?(?:None|%b) [,)]|non_blocking|async|memory_format))|\bset_device \((?! %b \))"
        rb"|\brange \( (?:torch \. )?(?:cuda \. )?device_count|\bcuda \. device(?:_of)? \(|(?:\. to \(|\bdevice =) [1-9]"
        % ((rb"(?:0|\w+(?: \. \w+)+)",) * 3)
    ),
    "the program may compute on several GPUs, and a number on one cannot be added to a number on another",
)
"""The index of a GPU that is 0, or an attribute of the program's options, is the same in each step."""
INFERENCE_TENSORS: Final = Fear(
    Kind.ERRORS_ARE_BUGS,
    any_layout(
        rb"\binference_mode \(|[.@=(,:\[{] inference_mode\b(?!`)|\b(?:import|return|else|and|or) inference_mode\b(?!`)"
        rb"|\binference_mode as\b|InferenceMode"
    ),
    "a tensor that the program makes under `inference_mode` raises where a graph needs it, or where it is changed in place",
)
INFERENCE_SWITCHED: Final = Fear(
    Kind.GRADIENT,
    any_layout(
        rb"\binference_mode\b(?!`)(?! \( \) (?::|$))|(?<!@)(?<!\bwith\s)\btorch \. inference_mode\b(?!`)"
        rb"|(?<!torch)(?<![\s\\])[\s\\]? \. inference_mode\b(?!`)|\wtorch \. inference_mode\b"
        rb"|(?<![.\s\\\w`])inference_mode\b(?!`)|(?<![.\s\\])[\s\\] \binference_mode\b(?!`)",
        re.M,
    ),
    "`inference_mode` may be switched on and off, and an inference tensor cannot be added to outside of it",
    any_layout(
        rb"inference_mode(?<!@torch\.inference_mode)(?<!\swith\x20torch\.inference_mode)|inference_mode(?!\(\)(?::|$))", re.M
    ),
)
"""Anything but `with torch.inference_mode():` and the like as a decorator."""
COMPLEX: Final = Fear(
    Kind.NUMBERS,
    any_layout(rb"complex|\b[ir]?r?fftn?2?\b|torch \. fft|\bstft\b|\bpolar\b|\b\d+j\b|cfloat|cdouble"),
    "the program may work with complex numbers",
    any_layout(rb"complex|fft|stft|polar|j(?<=\dj)|cfloat|cdouble"),
)
CATCHES: Final = Fear(
    Kind.ERRORS_ARE_BUGS,
    any_layout(
        rb"\bexcept\b(?! (?:ImportError|ModuleNotFoundError|KeyboardInterrupt|FileNotFoundError|OSError"
        rb"|IOError|KeyError|StopIteration"
        rb"|queue \. Empty|EOFError|FileExistsError|json \. JSONDecodeError)\b)"
        rb"|\bsuppress \(|assertRaises|excepthook|add_done_callback|\bfinally :|__exit__"
    ),
    "the program catches errors, perhaps the one that a state of a wrong shape raises",
)
SPARSE: Final = Fear(
    Kind.VALUE,
    any_layout(rb"\bto_sparse|\bsparse_\w*tensor|torch \. sparse|\blayout ="),
    "the program has sparse tensors, which give no list",
)
DEFAULT_TYPE: Final = Fear(
    Kind.VALUE,
    any_layout(rb"set_default_dtype|set_default_tensor_type"),
    "the program sets the type of numbers for which no other is given",
)
WATCHES_WARNINGS: Final = Fear(
    Kind.ERRORS_ARE_BUGS,
    any_layout(
        rb"catch_warnings \( [^)]"
        rb"|(?:simplefilter|filterwarnings) \( (?!(?:action = )?['\"](?:ignore|default|always|once|module)['\"])"
        rb"|\. (?:catch_warnings|simplefilter|filterwarnings)\b(?! \()|(?:catch_warnings|simplefilter|filterwarnings) as\b"
        rb"|['\"](?:warnings\.\w+|catch_warnings|simplefilter|filterwarnings)['\"]|\bwarnings \. (?:filters\b|_\w|\w+ =(?!=))"
        rb"|\bimport warnings as\b|showwarn|formatwarning|PYTHONWARNINGS|warnoptions|['\"]-W['\"]|-W\x20?e"
        rb"|captureWarnings|assertWarns|assert_warns|recwarn|pytest \. (?:warns|deprecated_call)"
        rb"|import (?:warns|deprecated_call)\b"
        rb"|redirect_stderr|\bsys \. (?:__)?stderr(?:__)? =(?!=)|\bstderr \. write =(?!=)|\bdup2 \(|\bcap(?:sys|fd|tee)\w*"
    ),
    "the program records warnings, or makes errors of them",
)
"""What torch prints as advice (that `float` of a tensor with a graph is slow, that a name is old) is nothing that a program
computes, so a fix may end it, unless the program makes more of it. `ignore`, `default` and the like only say how often it is
printed."""
LOOKS_AT_CALLS: Final = Fear(
    Kind.NAMES,
    any_layout(
        rb"torch \. (?:fx|export|onnx|profiler)\b|symbolic_trace|make_fx|autograd \. profiler|import fx\b|import profiler\b"
    ),
    "the program looks at which functions are called",
)
LOOKS_AT_OBJECTS: Final = Fear(
    Kind.GRADIENT,
    any_layout(
        rb"\bgc \.|\bget_objects \(|memory_allocated|memory_stats|memory_snapshot|max_memory|memory_reserved"
        rb"|memory_summary|mem_get_info|memory_usage"
        rb"|tracemalloc|" + whole("weakref")
    ),
    "the program looks at which objects are alive",
)
FINALIZERS: Final = Fear(
    Kind.UNKNOWN_CODE,
    any_layout(rb"def __del__ \(|\bget_objects \(|gc \. callbacks|" + whole("weakref", "finalize")),
    "the program has code that runs, or looks, when an object is given up: a graph may hold one",
)
LOOKS_AT_FRAMES: Final = Fear(
    Kind.NAMES,
    any_layout(
        rb"_getframe\b|setprofile|currentframe|inspect \. stack|\binspect \. trace\b|"
        + whole("f_locals", "f_back", "settrace", "tb_frame", "tb_next", "capture_locals", "show_locals", "cgitb")
    ),
    "the program looks at the variables of functions that run",
)
READS_VARIABLES: Final = Fear(
    Kind.RETENTION,
    any_layout(
        whole("f_locals", "getargvalues", "getclosurevars", "capture_locals", "get_objects", "get_referrers", "get_referents")
    ),
    "the program reads the variables of functions that run, or finds objects that nobody gave it, and may keep a tensor",
)
FINDS_VARIABLES: Final = Fear(
    Kind.NAMES,
    any_layout(rb"\. (?:query|eval) \( (?!\))|" + whole("numexpr", "duckdb", "pandasql")),
    "the program looks for variables that a text names, as `frame.query` does",
)
LOOKS_AT_FUNCTIONS: Final = Fear(
    Kind.NAMES,
    any_layout(
        rb"\bget(?:source|sourcelines|sourcefile|file|absfile|fullargspec|argspec)\b|\bfindsource\b|\bsetrecursionlimit\b"
        rb"|__(?:kw)?defaults__|__code__|__closure__|__globals__|__wrapped__"
    ),
    "the program looks at the code or the parameters of functions, which a decorator hides",
)
_IN_LOGGING: Final = (
    rb"class [A-Za-z_]\w* \([^()]*(?:Handler|Formatter|Filter|LoggerAdapter|logging \. Logger) [,)]"
    rb"|def (?:emit|handle|handleError|filter|format(?:Time|Message|Exception|Stack)?|makeRecord) \( (?:\*|\w+ , [\w*]+ [:,)])"
    rb"|\. (?:emit|handle|handleError|filter|format(?:Time|Message|Exception|Stack)?|makeRecord|stream) =(?!=)"
    rb"|\b(?:addFilter|setLogRecordFactory|setStream|setLoggerClass|QueueHandler|MemoryHandler) \(|['\"]\(\)['\"] :"
    rb"|\bStreamHandler \( (?!\)|(?:stream = )?(?:sys \. (?:__)?std(?:out|err)|None)\b)"
    rb"|basicConfig \([^()]*\bstream = (?!sys \.)|"
)
"""Code of the program that `logging` runs: the library's own handlers run nothing of it, whatever they are given to write."""
RUNS_UNCALLED: Final = Fear(
    Kind.UNKNOWN_CODE,
    any_layout(
        rb"def __(?:del|get|set|delete|class_getitem|instancecheck|subclasscheck)__ \(|\bmetaclass =(?!=)"
        rb"|\b(?:stdout|stderr|showwarning|displayhook) =(?!=)|\b(?:setprofile|addaudithook)\b|gc \. callbacks|"
        + _IN_LOGGING
        + whole("settrace")
    ),
    "the program has code that runs where nothing calls it: descriptors, metaclasses, finalizers, handlers of output",
)


def _own(names: bytes) -> re.Pattern[bytes]:
    """The definitions of special methods, by `def` or by assignment; their calls are none."""
    return any_layout(rb"__(?:%b)__ =(?!=)|(?<!\.)__(?:%b)__ \(" % (names, names))


OWN_CONTAINERS: Final = Fear(
    Kind.PLAIN_OBJECTS,
    _own(rb"len|length_hint|getitem|missing|iter|next|contains|reversed"),
    "the program has containers of its own, whose methods may do more than give items",
)
OWN_OPERATORS: Final = Fear(
    Kind.PLAIN_OBJECTS,
    _own(
        rb"[ri]?(?:add|sub|mul|matmul|(?:true|floor)?div|divmod|mod|pow|[lr]shift|and|x?or)|lt|le|eq|ne|g[te]|neg|pos|abs"
        rb"|invert|bool|int|float|index|complex|round|trunc|floor|ceil|hash|str|repr|format|array\w*"
    ),
    "the program has operators of its own, which may do more than compute",
)
RUNS_WITHIN: Final = (HOOKS, PATCHED, SET_BY_NAME, BUILT_FROM_TEXT, OWN_TENSORS)
"""What may run within a network's own operations, whatever its source says."""
OTHER_NETWORK: Final = (*RUNS_WITHIN, WRAPPED, COMPUTED_WEIGHTS, LAZY, ASKS_FOR_GRADIENTS)
"""What may make another network of the one that the source builds."""


def feared(project: Project, path: str, *fears: Fear) -> Iterator[Obligation]:
    """What the program of a file may hold of some fears: an obligation each."""
    for fear in fears:
        if project.program_may_hold(path, fear.pattern, fear.before):
            yield Obligation(fear.kind, fear.words)
