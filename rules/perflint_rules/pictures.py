"""Datasets of pictures that torchvision has: what a sample of them takes. No rule by itself."""

import ast

from perflint.api import Alternative, Object, Value, any_layout, argument, words

_FOLDERS = words(
    """
    ImageFolder DatasetFolder ImageNet Caltech101 Caltech256 Places365 Flowers102 OxfordIIITPet Food101 StanfordCars
    FGVCAircraft DTD SUN397 CelebA Country211 GTSRB EuroSAT INaturalist VOCDetection VOCSegmentation CocoDetection
    CocoCaptions Cityscapes SBDataset Imagenette LFWPeople LFWPairs WIDERFace Kitti
    """
)
"""Images that are read from files, one for each sample."""
_DIGITS = words("MNIST FashionMNIST KMNIST EMNIST QMNIST USPS")
_SMALL = words("CIFAR10 CIFAR100 SVHN STL10")
_AUGMENTS = any_layout(
    rb"\b(?:Random(?!Crop\b|HorizontalFlip\b|VerticalFlip\b)|Rand[A-Z]|Color|Auto|Trivial|AugMix|Elastic|Gaussian|Resize)\w* \("
)
"""Transforms that take far longer than to make a tensor of a small picture, or to cut and flip it."""


def is_quick(dataset: Value) -> bool:
    """Whether samples may lie in memory, and be digits, or small pictures that become tensors, at most cut and flipped.

    A program that has another dataset besides is tried with this one, and mostly stays with it.
    """
    return any(map(_is_of_memory, dataset.alternatives))


def _is_of_memory(alternative: Alternative) -> bool:
    if not isinstance(alternative, Object):
        return False
    name = alternative.qualname.rpartition(".")[2]
    if name not in _SMALL or not isinstance(alternative.site, tuple):
        return name in _DIGITS
    return not _AUGMENTS.search(alternative.site[0].module.source.body)


def images(dataset: Value) -> str | None:
    """What transforms the images of a dataset of torchvision, as it is written, or reads them: all that the loader may get."""
    found = ""
    for alternative in dataset.alternatives:
        if not isinstance(alternative, Object) or not isinstance(alternative.site, tuple):
            return None
        package, _, name = alternative.qualname.rpartition(".")
        _scope, built = alternative.site
        if package != "torchvision.datasets" or not isinstance(built, ast.Call):
            return None
        given = argument(built, None, "transform") or argument(built, None, "transforms")
        if name not in _FOLDERS and (given is None or isinstance(given, ast.Constant)):
            return None
        found = ast.unparse(built.func)
    return found or None
