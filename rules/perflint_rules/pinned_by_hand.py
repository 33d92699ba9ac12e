"""Batches that a loader cannot pin, or that somebody pins himself: no rule by itself."""

from perflint.api import LoaderCall, any_layout

_ITERATOR = any_layout(rb"return zip \(")
_NUMPY = any_layout(rb"\bnp \.|numpy")
_TORCH = any_layout(rb"torch|ensor|default_collate|pad_sequence|\*\*|super \(")
_OF_TORCH = any_layout(rb"torch|ensor|collate|pad_sequence|ransform|rocessor|okenizer|augment|\*\*|super \(")
_PINS = any_layout(rb"\. pin_memory \( \)")


def gains_nothing(loader: LoaderCall) -> bool:
    """Whether batches hold what pinning passes by: arrays, an iterator, texts and images; or each is pinned by hand."""
    if any(_PINS.search(scope.text) for scope in (loader.scope, *(scope for scope, _ in loader.takers()))):
        return True
    collate, samples = loader.collate_code(), loader.sample_code()
    texts = [scope.text for scope in collate]
    if any(map(_ITERATOR.search, texts)) or (any(map(_NUMPY.search, texts)) and not any(map(_TORCH.search, texts))):
        return True
    named = [scope.text.partition(b"(")[2] for scope in {*collate, *samples}]
    return bool(collate) and len(samples) > len(collate) and not any(map(_OF_TORCH.search, named))
