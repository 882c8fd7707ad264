"""The options of `data` are sources that can be served, not the classes that they share."""

from lit_gans.config.registry import classes
from lit_gans.data.base import ImageData

OPTIONS = {
    *("digits", "mnist", "fashion_mnist", "kmnist", "emnist", "cifar10", "cifar100", "svhn", "stl10", "celeba", "lsun"),
    *("imagenet", "folder", "huggingface", "streaming", "paired_folder", "digit_edges", "stacked_digits"),
    *("ring", "grid"),
}


def test_every_option_is_a_source_and_no_base():
    assert {name for name, cls in classes("lit_gans.data.sources", ImageData).items() if _is_ours(cls)} == OPTIONS


def _is_ours(cls):
    return cls.__module__.startswith("lit_gans.")
