"""Features of a whole data set from a trained model: one pass, no wait per batch, and a cache that does not lie."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from perflint_runtime.feature_cache import FeatureCache, FeatureFile
from perflint_runtime.fingerprint import CannotBeSeen, fingerprint, fingerprint_data, fingerprint_visible, switches
from perflint_runtime.prefetch import DevicePrefetcher
from perflint_runtime.state import inference

Pooling = Literal["mean", "cls"] | Callable[[Tensor, Tensor | None], Tensor] | None
COPIES_IN_FLIGHT = 8
"""Batches of features whose copies to the host may be under way, before the CPU waits for the oldest of them."""


def extract_features(
    model: nn.Module,
    loader: Iterable[object],
    *,
    mode: Literal["embedding", "logits"] = "embedding",
    pooling: Pooling = "mean",
    forward: Callable[[nn.Module, object], object] | None = None,
    cache: FeatureCache | str | Path | None = None,
    key: str | None = None,
    device: torch.device | str | None = None,
) -> npt.NDArray[np.generic]:
    """Run a model over a loader in eval and inference mode and return one row of features per sample, in data order.

    Features are pooled on the device and copied to pinned host memory while the next batches are computed; the CPU waits
    for a copy that is eight batches old, not for the present one. The model's training flags are put back as they were,
    module by module. bfloat16 becomes float32, which numpy knows; other dtypes are kept.

    Args:
        model: called as `model(**batch)` for dicts, `model(batch)` for tensors, `model(batch[0])` for lists and tuples,
            whose other parts are taken for targets. Runs on the device of its parameters.
        loader: of samples in the order of the data. A loader that shuffles, or leaves out samples, is refused.
        mode: "logits" takes `output.logits`; "embedding" takes `output.last_hidden_state`, else the last of
            `output.hidden_states`. Models of transformers are called without "labels", and for embeddings without their
            head. An output that is a tensor is taken in both modes.
        pooling: of `(B, L, H)` to `(B, H)`: "mean" over the tokens in the batch's `attention_mask` (in float32), "cls"
            takes the first token, a function of (hidden, attention_mask) does what it does. Outputs of two dimensions
            stay as they are, all do with None.
        forward: `forward(model, batch)` instead of the calls above.
        cache: a folder, or a `FeatureCache`. The result is read from it, or written to it, under a key made of the data, these
            arguments, the model (weights, buffers, attributes, hooks, and the program's code and values that it can reach),
            the device, autocast, and torch's other switches for numbers.
        key: names, for the cache, what cannot be worked out; change it when that changes. Without it a `ValueError` says what
            it is. Data can be worked out for in-memory tensors and for Hugging Face datasets, with torch's own collate or
            `pad_collate`; not for data sets with code of their own. What can be worked out counts beside the name.
        device: where to run; default that of the model.

    Returns:
        An array (N, ...); a read-only memory map if there is a cache.

    Raises:
        ValueError: a shuffling loader, one that drops samples, a cache without `key` for what cannot be fingerprinted,
            outputs of different shapes, no samples.
        TypeError: an output that has nothing of the kind that `mode` asks for.

    """
    if mode not in ("embedding", "logits"):
        raise ValueError(f"mode is 'embedding' or 'logits', got {mode!r}")
    if isinstance(pooling, str) and pooling not in ("mean", "cls"):
        raise ValueError(f"pooling is 'mean', 'cls', a function or None, got {pooling!r}")
    _refuse_unordered(loader)
    target = torch.device(device) if device is not None else next((p.device for p in model.parameters()), torch.device("cpu"))
    settings = _Settings(mode, pooling, forward)
    if cache is None:
        with inference(model, mode="no_grad"):
            chunks = list(_features(model, loader, settings, target))
        if not chunks:
            raise ValueError("the loader yielded no batch, so there are no features")
        _refuse_other_shapes(chunks)
        return np.concatenate(chunks)
    store = cache if isinstance(cache, FeatureCache) else FeatureCache(cache)
    entry = _entry(model, loader, settings, target, key)
    found = store.get(entry)
    if found is not None:
        return found
    with store.writing(entry) as file, inference(model, mode="no_grad"):
        _write(file, _features(model, loader, settings, target))
    written = store.get(entry)
    assert written is not None
    return written


@dataclass(frozen=True)
class _Settings:
    mode: str
    pooling: Pooling
    forward: Callable[[nn.Module, object], object] | None


def _entry(model: nn.Module, loader: object, settings: _Settings, device: torch.device, key: str | None) -> str:
    """Where a result stands in a cache: a hash of all that it depends on."""
    parts = {"model": model, **vars(settings), "switches": switches(device)}
    if key is None:
        try:
            return fingerprint(**parts, data=fingerprint_data(loader))
        except CannotBeSeen as error:
            raise ValueError(
                f"{error}; pass key='...', a name for what the features are computed from, and change it when that changes"
            ) from None
    with contextlib.suppress(CannotBeSeen):
        parts["data"] = fingerprint_data(loader)
    return fingerprint_visible(**parts, key=key)


def _write(file: FeatureFile, chunks: Iterator[npt.NDArray[np.generic]]) -> None:
    for chunk in chunks:
        file.append(chunk)
    if file.rows == 0:
        raise ValueError("the loader yielded no batch, so there are no features")


def _features(
    model: nn.Module, loader: Iterable[object], settings: _Settings, device: torch.device
) -> Iterator[npt.NDArray[np.generic]]:
    """Yield the features of one batch after another, on the host."""
    in_flight: deque[tuple[Tensor, torch.cuda.Event | None]] = deque()
    for batch in DevicePrefetcher(loader, device):
        # not around the loader: a data set may keep what it loads, and inference tensors cannot be trained on later
        with torch.inference_mode():
            in_flight.append(_copy_to_host(_pooled(model, batch, settings)))
        if len(in_flight) > COPIES_IN_FLIGHT:
            yield _arrived(*in_flight.popleft())
    while in_flight:
        yield _arrived(*in_flight.popleft())


def _copy_to_host(features: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    if features.dtype == torch.bfloat16:
        features = features.float()
    if features.device.type != "cuda":
        return features.cpu(), None
    host = torch.empty(features.shape, dtype=features.dtype, pin_memory=True)
    host.copy_(features, non_blocking=True)  # on the stream that computed it: no other wait is needed
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch has no types here
    arrived.record(torch.cuda.current_stream(features.device))
    return host, arrived


def _arrived(host: Tensor, arrived: torch.cuda.Event | None) -> npt.NDArray[np.generic]:
    if arrived is not None:
        arrived.synchronize()  # the CPU waits here, for a copy that was queued COPIES_IN_FLIGHT batches ago
    array: npt.NDArray[np.generic] = host.numpy()
    return array


def _pooled(model: nn.Module, batch: object, settings: _Settings) -> Tensor:
    output = settings.forward(model, batch) if settings.forward is not None else _called(model, batch, settings.mode)
    features = _picked(output, settings.mode)
    if features.ndim < 3 or settings.pooling is None:
        return features
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    assert mask is None or isinstance(mask, Tensor)
    if callable(settings.pooling):
        return settings.pooling(features, mask)
    if settings.pooling == "cls":
        return features[:, 0]
    if mask is None:
        return features.float().mean(dim=1).to(features.dtype)
    weights = mask.float().reshape(*mask.shape, *[1] * (features.ndim - mask.ndim))
    summed = (features.float() * weights).sum(dim=1)
    return (summed / weights.sum(dim=1).clamp(min=1)).to(features.dtype)  # a sample without tokens gives zeros


def _called(model: nn.Module, batch: object, mode: str) -> object:
    if isinstance(batch, Mapping):
        if hasattr(model, "config") and hasattr(model, "base_model"):  # of transformers: no loss, and no head if not needed
            batch = {key: value for key, value in batch.items() if key != "labels"}
            backbone = model.base_model if mode == "embedding" else model
            assert isinstance(backbone, nn.Module)
            return backbone(**batch)
        return model(**batch)
    return model(batch[0]) if isinstance(batch, Sequence) else model(batch)


def _picked(output: object, mode: str) -> Tensor:
    if isinstance(output, Tensor):
        return output
    if mode == "logits":
        names = ["logits"]
    else:
        names = ["last_hidden_state", "hidden_states"]
    for name in names:
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(found, tuple | list) and found:
            found = found[-1]
        if isinstance(found, Tensor):
            return found
    raise TypeError(
        f"mode={mode!r} needs a tensor, or an output with {' or '.join(names)}; the model returned {type(output).__name__}. "
        "Pass forward=lambda model, batch: ... (a function at the top of a module, if there is a cache)"
    )


def _refuse_other_shapes(chunks: Sequence[npt.NDArray[np.generic]]) -> None:
    for chunk in chunks:
        if chunk.shape[1:] != chunks[0].shape[1:]:
            raise ValueError(
                f"features of {chunks[0].shape[1:]} and of {chunk.shape[1:]} per sample do not go into one array: pool over "
                "the tokens, or pad all samples to one length"
            )


def _refuse_unordered(loader: object) -> None:
    """Features are of use if row i is sample i."""
    from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

    from perflint_runtime.tensor_loader import BatchedTensorLoader

    if isinstance(loader, DevicePrefetcher):
        _refuse_unordered(loader.loader)
    advice = "make it with shuffle=False and without a sampler, so that row i of the features is sample i"
    if isinstance(loader, BatchedTensorLoader):
        if loader.shuffle:
            raise ValueError(f"the loader shuffles: {advice}")
        if loader.drop_last and len(loader.tensors[0]) % loader.batch_size:
            raise ValueError("the loader drops the last batch: make it with drop_last=False, or samples would be missing")
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return
    sampler = loader.sampler if loader.batch_sampler is None else getattr(loader.batch_sampler, "sampler", None)
    is_plain = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    if not (is_plain and type(sampler) is SequentialSampler):
        kind = type(sampler if is_plain else loader.batch_sampler).__name__
        raise ValueError(f"the loader's order is decided by {kind}: {advice}")
    if loader.drop_last and len(sampler) % (loader.batch_size or 1):
        raise ValueError("the loader drops the last batch: make it with drop_last=False, or samples would be missing")
