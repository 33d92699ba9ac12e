"""What the owner of a project may declare about it, so that fixes that rest on nothing else are applied like safe ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from perflint.rule.obligations import Kind
from perflint.source.words import any_layout

ORDINARY = "ordinary"
"""The name of the set of assumptions that hold for an ordinary training program."""


@dataclass(frozen=True)
class Assumption:
    """A statement about a whole project.

    means: the statement in a few words. says: the whole of it. breaks: what goes wrong where it does not hold. looked_at: what
    `perflint profile` and `verify` look at in a run, or nothing where no run can tell. pattern: what in a source speaks against
    it, as for `any_layout`, or nothing. contradicts: whether such a place settles it, so that nobody can declare the statement.
    """

    kind: Kind
    means: str
    says: str
    breaks: str
    looked_at: str = ""
    pattern: bytes = b""
    contradicts: bool = False
    is_ordinary: bool = True

    @property
    def name(self) -> str:
        return self.kind.value

    @property
    def against(self) -> re.Pattern[bytes] | None:
        """What in the text of a file speaks against it; None where source says nothing."""
        return any_layout(self.pattern, re.M) if self.pattern else None

    @property
    def page(self) -> str:
        """What `perflint explain` says about it."""
        member = "It is one of `ordinary`." if self.is_ordinary else "It is not among `ordinary`: declare it by its own name."
        if not self.pattern:
            source = "No source can speak against it."
        elif self.contradicts:
            source = "Source that says otherwise contradicts it: then it cannot be declared, and `ordinary` leaves it out."
        else:
            source = "`perflint assumptions` shows the places that speak against it."
        looked_at = self.looked_at or "Nothing: no run can tell. It is for the owner of the project to say."
        return (
            f"# {self.name}\n\n{self.says}\n\n## What breaks where it does not hold\n{self.breaks}\n\n## Declaring it\n"
            f'`assume = ["{self.name}"]` in `[tool.perflint]`, or `--assume {self.name}`. {member} {source}\n\n'
            f"## What `perflint profile --confirm` and `perflint verify` look at\n{looked_at}"
        )


def _all() -> Iterable[Assumption]:
    yield Assumption(
        Kind.CUDA_OR_CPU,
        "no MPS, XLA or HPU, and one GPU in each loop",
        "The program's devices are CUDA devices, ROCm's among them, and the CPU: no MPS, XLA or HPU. A loop's losses are all "
        "on one of them.",
        "A total that is kept on the device is a float64 number, which MPS does not have, or goes from one GPU to another: the "
        "program raises there.",
        "The device of each tensor that an operation gets or gives.",
        rb"['\"](?:mps|xla|hpu|npu|xpu)(?::\d+)?['\"]|\btorch_xla\b|\btorch_npu\b|\bbackends \. mps\b",
        contradicts=True,
    )
    yield Assumption(
        Kind.ONE_STREAM,
        "no CUDA streams of the program's own",
        "Nothing reads or writes a tensor on another stream than the one that made it, but through torch's own loaders.",
        "A copy that no longer waits may still be under way when the other stream reads, or a batch that a loader copies ahead "
        "may get memory which the model still reads, where a wait is gone that kept them apart: wrong numbers, now and then.",
        "The CUDA stream that each operation of the main thread runs on.",
        rb"\bcuda \. Stream \(|\bStream \( \)|\bwait_stream \(|\bExternalStream \(|\bCUDAGraph \(|\bcuda \. graph \("
        rb"|\bnvidia \. dali\b|\bPrefetchLoader\b|\btimm \. data (?:import\b[^\r\n]*|\. )\bcreate_loader\b",
        contradicts=True,
    )
    yield Assumption(
        Kind.PLAIN_TENSORS,
        "no tensor classes or modes of the program's own",
        "The program has no tensor class of its own and no mode that watches operations.",
        "Such a class says itself what an operation gives: the rewritten line may compute something else.",
        "The class of each tensor that an operation gets or gives, and the modes that the program enters.",
        rb"\bas_subclass \(|def __torch_(?:function|dispatch)__|\bTorch(?:Function|Dispatch)Mode \b"
        rb"|\bclass [A-Za-z_]\w* \([^()]*\btorch \. Tensor [,)]",
        contradicts=True,
    )
    yield Assumption(
        Kind.PLAIN_BATCHES,
        "the `to` of a batch takes `non_blocking`, and its memory can be pinned",
        "Batches are tensors, containers of them, or objects whose `to` takes `non_blocking` and whose memory can be pinned.",
        "A batch class of one's own whose `to` takes a device alone raises TypeError; one without `pin_memory` is not pinned.",
        "What torch's DataLoader hands out; not what loaders of another kind do.",
        rb"^[\t\f\x20]+def to \( self , \w+ [,)](?![^)]*non_blocking)(?![^)]*\*)",
    )
    yield Assumption(
        Kind.NO_HOOKS,
        "no hooks on gradients or results",
        "No hook reads gradients, keeps results or changes them, and no patched method does.",
        "A hook sees gradients and results at another time, or not at all.",
        "Hooks that are registered in Python on modules and tensors, and hooks for what backward passes save; not "
        "those of autograd's nodes.",
        rb"\bregister_\w*hook \(|\bsaved_tensors_hooks \(",
    )
    yield Assumption(
        Kind.NO_LAZY_MODULES,
        "no layers that make their parameters when they first run",
        "No layer makes its parameters when it runs first.",
        "What runs before such a layer has run draws other random numbers, or finds no parameters.",
        "Whether a layer of this kind is made.",
        rb"\bnn \. Lazy[A-Z]\w* \(|import [^\n]*\bLazy(?:Linear|Conv\w*|BatchNorm\w*)",
        contradicts=True,
    )
    yield Assumption(
        Kind.APPLICATION,
        "nobody outside of the project calls its functions",
        "The project's functions are called by the project alone: no notebook, no other program, no plug-in calls them.",
        "A caller that nobody sees may pass another device or another model, or use the gradients of what it gets back.",
    )
    yield Assumption(
        Kind.NO_CLOCK,
        "printed durations may change",
        "Nobody cares whether durations that the program measures and prints change: a wait moves from one place to another.",
        "A printed time per step or per forward pass holds another part of the work than before.",
        "Whether the program reads a clock of the module `time`. Where it does, only its owner can say whether anybody cares.",
        rb"\b(?:perf_counter|monotonic)\w* \(|\btime \. time \(|\belapsed_time \(",
    )
    yield Assumption(
        Kind.MEMORY_TO_SPARE,
        "pinned RAM, and a scalar per step on the device, do no harm",
        "Some pinned memory on the host, and a scalar per step on the device, do no harm.",
        "A machine whose RAM is full, or a program at the last byte of its GPU, runs out of memory.",
        "Whether a tenth of the RAM and of the GPU's memory was free after each optimizer step; without a GPU nothing.",
    )
    yield Assumption(
        Kind.ERRORS_ARE_BUGS,
        "no code relies on errors that these lines raise",
        "No code relies on an error of the lines that a fix changes, or on when it is raised, or looks at a warning of theirs. "
        "Warnings count where the source records them or makes errors of them: else they are advice, which a fix may end.",
        "An error of the device, of a wrong size, type or number is raised later, with other words, or not at all.",
        "Whether an error that a function of torch raised was caught. A run without errors shows nothing.",
    )
    yield Assumption(
        Kind.NO_AUTOCAST,
        "no mixed precision",
        "No region of mixed precision is around the code that a fix changes.",
        "Numbers are rounded to another type, and copies of weights that autocast remembers lose their graph.",
        "Whether a region of mixed precision is entered.",
        rb"\bautocast \(|\bfp16 = True|\bbf16 = True|mixed_precision = ",
        contradicts=True,
    )
    yield Assumption(
        Kind.PLAIN_MODULES,
        "layers and torch's functions are those that the source shows",
        "Submodules, methods and torch's functions are those that the source shows: nothing wraps, compiles or replaces them.",
        "A wrapped, compiled or patched model may compute something else than its class shows, in particular without autograd.",
        "Modules that run: whether they are compiled, scripted or sharded, have weights that are computed from "
        "others, or a `forward` that is not their class's; submodules and methods that other functions set; torch's "
        "own functions, at the end.",
        rb"\btorch \. compile \(|\bfully_shard \(|\bFullyShardedDataParallel \(|\btorch \. jit \.|\bset_submodule \("
        rb"|\. (?:forward = |__(?:class|code|defaults|kwdefaults)__ =(?!=))"
        rb"|\b(?:weight|spectral)_norm \(|\bprune \. \w+ \(|\bfunctional_call \(|\bget_peft_model \("
        rb"|\b(?:functional|F) \. \w+ =(?!=)"
        rb"|\btorch(?<![:|]\x20torch)(?<![:|]torch) \. (?:nn \. (?:\w+ \. )?|Tensor \. |cuda \. )?\w+ =(?!=)",
        contradicts=True,
    )
    yield Assumption(
        Kind.KNOWN_LAYERS,
        "layers that cannot be followed are ordinary ones",
        "Layers that cannot be followed are ordinary ones: they ask for no gradients, keep nothing, look at nothing, and "
        "give the same bits without autograd, which recurrent and attention layers do not.",
        "A layer that computes gradients itself, or that keeps what it has computed, raises or trains on something else. The "
        "last bits of an evaluation by a recurrent layer or by attention differ.",
        "Layers that run and are not torch's: whether the code of their `forward` names something of autograd, and "
        "whether they hold a result with its graph when they have run.",
    )
    yield Assumption(
        Kind.PLAIN_OBJECTS,
        "operators, items and properties of the program's objects only give values",
        "Operators, items, lengths and properties of the program's own objects give values and change nothing; so do datasets "
        "and loaders when they give samples and batches. Nobody asks whether two equal numbers are one object.",
        "An item or an operator that writes to a tensor, or prints, does so at another moment, or another number of times. A "
        "dataset that keeps what it makes during an evaluation gives training inference tensors, which raise. A nan is found "
        "in a list that holds the same object, and not where it was read again.",
    )
    yield Assumption(
        Kind.EVALUATION_ROUNDING,
        "the last bits of an evaluation may differ",
        "The results of an evaluation may differ in the last bits: torch picks other kernels without autograd.",
        "A metric that is compared to the last bit differs, and so may the choice of a best checkpoint between equal ones.",
        is_ordinary=False,
    )
    yield Assumption(
        Kind.CELL_ORDER,
        "the cells of notebooks run once, from top to bottom",
        "Notebooks run from top to bottom, each cell once, and nothing else runs in their kernels.",
        "A cell that runs twice, before one above it, or after one that is no longer there finds other values under its names.",
    )
    yield Assumption(
        Kind.RUNTIME,
        "the program may import perflint_runtime",
        "perflint_runtime is installed wherever the program runs. `runtime = true` and `--runtime` say the same; a project "
        "whose requirements name it need not. With `runtime = false` no fix uses it.",
        "The program stops at the import.",
        is_ordinary=False,
    )


ASSUMPTIONS: dict[str, Assumption] = {assumption.name: assumption for assumption in _all()}
"""By name, in the order in which they are shown."""


def require_known(names: Iterable[str], where: str) -> None:
    """Check the names of assumptions. `where` begins the message.

    Raises:
        ValueError: one is unknown; the message says which, and the nearest one.

    """
    known = [*ASSUMPTIONS, ORDINARY]
    for name in names:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean `{near[0]}`?" if near else "; `perflint assumptions` lists them"
            raise ValueError(f"{where}: no assumption is named `{name}`{hint}")


def kinds_of(names: Iterable[str]) -> frozenset[Kind]:
    """The kinds of obligations that some names stand for; `ordinary` is a set of them.

    Raises:
        KeyError: a name is none of them.

    """
    found: set[Kind] = set()
    for name in names:
        if name == ORDINARY:
            found |= {assumption.kind for assumption in ASSUMPTIONS.values() if assumption.is_ordinary}
        else:
            found.add(ASSUMPTIONS[name].kind)
    return frozenset(found)


def declared(names: Iterable[str], runtime: bool | None) -> frozenset[Kind]:
    """What a configuration declares, by `assume` and by `runtime`.

    Raises:
        KeyError: a name is no assumption.

    """
    return kinds_of(names) | ({Kind.RUNTIME} if runtime else set())
