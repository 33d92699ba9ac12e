"""Batches of text, which are some kilobytes: how they are copied hardly counts. No rule by itself."""

import re
from collections.abc import Iterable

from perflint.api import Code, LoaderCall

_TEXT = re.compile(rb"tokeni[sz]|input_ids|token_ids|pad_sequence|\bvocab|\bword2i|\bstoi\b|word_to_i|attention_mask", re.I)
_MORE = re.compile(rb"image|pixel|\bimg|\bwav|audio|\bmel|video|frame|\bcv2\b|\bPIL\b|spectr|feat|voxel|mesh|embed", re.I)
"""What samples hold that is no text, and takes more memory."""


def carries_text(code: Code, loaders: Iterable[LoaderCall]) -> bool:
    """Whether the batches of some loaders, of one at least, are numbers of words, as the code that makes their samples tells.

    Where that code is out of sight, the function that makes the loader, or goes over it, tells.
    """
    found = list(loaders)
    return bool(found) and all(_is_of_text(code, loader) for loader in found)


def _is_of_text(code: Code, loader: LoaderCall) -> bool:
    texts = [scope.text for scope in loader.sample_code()] or [loader.scope.text, code.scope.text]
    return any(map(_TEXT.search, texts)) and not any(map(_MORE.search, texts))
