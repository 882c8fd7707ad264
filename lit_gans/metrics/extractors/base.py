"""Feature extractors: their base class, one that wraps any module, and extractors as scores see them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.common.identity import digest_of, digest_of_object, is_versioned
from lit_gans.data.images import to_uint8

_CHUNK = 16  # number of images of 224x224 and 299x299, with which the networks are fastest on a CPU


class Extractor(nn.Module):
    """Maps uint8 images to features and class logits. Always in evaluation mode, never trained or checkpointed.

    Attributes:
        name: suffix of all metric keys.
        num_features, num_logits: widths of the outputs of `forward`; None determines them by extracting one image.
        num_classes: number of classes if the logits are those of the data's classes, otherwise 0.
        resize: description of the resizing, for the protocol.
        file_sha256: digest of the file that the weights were read from; None without a file.
        any_channels: whether images may have another number of channels than 1, 3 and 4.
    """

    name: str
    num_features: int | None = None
    num_logits: int | None = None
    num_classes: int = 0
    resize: str = "none"
    file_sha256: str | None = None
    any_channels: bool = False

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        """Returns features (n, num_features) and class logits (n, num_logits); `num_logits` may be 0."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Extractor:
        """Ignores `mode` and stays in evaluation mode."""
        return super().train(False)

    @cached_property
    def sha256(self) -> str:
        """Digest for the protocol, which is equal only for extractors that return the same features.

        Of a class of this package, digest of the weights: of their file if there is one, otherwise of names and values.
        Of any other class, digest of its code, its attributes and all tensors, see `digest_of_object`.
        """
        if not is_versioned(type(self)):
            return digest_of_object(self)
        return self.file_sha256 or digest_of(self.state_dict())


def in_color(images: Shaped[Tensor, "n c h w"]) -> Shaped[Tensor, "n c2 h w"]:
    """Repeats the channel of grayscale images to three; returns others as they are."""
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images


def on_white(images: UInt8[Tensor, "n 4 h w"]) -> UInt8[Tensor, "n 3 h w"]:
    """Blends transparent images with white, as the reader of image files does."""
    color, opacity = images[:, :3].float(), images[:, 3:].float() / 255
    return (color * opacity + 255 * (1 - opacity)).round().to(torch.uint8)


def in_chunks(
    network: Callable[[Tensor], tuple[Tensor, Tensor]], images: UInt8[Tensor, "n c h w"]
) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
    """Returns what a network returns, on a CPU from a few images at a time, so that caches hold their activations."""
    if images.device.type != "cpu" or len(images) <= _CHUNK:
        return network(images)
    features, logits = zip(*map(network, images.split(_CHUNK)), strict=True)
    return torch.cat(features), torch.cat(logits)


class ModuleExtractor(Extractor):
    """Wraps a module that maps images (n, c, h, w) in [0, 1] to features (n, f), or to features and logits.

    Gray images are repeated to three channels, transparent ones blended with white.

    Args:
        module: module, which is frozen and set to evaluation mode.
        name: suffix of the metric keys.
        num_classes: number of classes if the logits (n, k) are those of the data's classes.
    """

    any_channels = True

    def __init__(self, module: nn.Module, name: str = "module", num_classes: int = 0) -> None:
        super().__init__()
        self.module, self.name, self.num_classes = module, name, num_classes
        self.eval().requires_grad_(False)

    @cached_property
    def sha256(self) -> str:
        """Digest of the module's code, attributes and tensors, and of the arguments; see `digest_of_object`."""
        return digest_of_object(self)

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        with torch.autocast(images.device.type, enabled=False):
            return _features_and_logits(self.module(in_color(images).float() / 255))


def _features_and_logits(output: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Returns what any module has returned as features (n, f) and class logits (n, k), which may have no columns."""
    features, logits = output if isinstance(output, tuple) else (output, output[:, :0])
    if features.ndim != 2 or logits.ndim != 2:
        shapes = f"{tuple(features.shape)} and {tuple(logits.shape)}"
        raise RefusedInput(f"the extractor returned {shapes}, expected features (n, f), or features and logits (n, k).")
    return features, logits


class Features(NamedTuple):
    """Extracted features (n, f) and class logits (n, k) of images; k may be 0."""

    features: Float[Tensor, "n f"]
    logits: Float[Tensor, "n k"]

    @staticmethod
    def of_nothing(widths: Widths, device: torch.device) -> Features:
        """Returns the features of no images."""
        return Features(*(torch.empty(0, width, device=device) for width in (widths.features, widths.logits)))


@dataclass(frozen=True)
class Widths:
    """Widths of features and logits, and number of classes asked for, which the states of a score depend on."""

    features: int = 0
    logits: int = 0
    classes: int = 0


class Probe(NamedTuple):
    """Digest of the features of a noise image, which differs between devices; and their mean and root mean square."""

    sha256: str
    summary: list[float]


class Network(nn.Module):
    """Extractor of a score, or of several scores that share it, which is hidden from parameters and state dicts.

    So its weights are neither trained nor sharded, and never part of a checkpoint. It follows the images' device.

    Args:
        extractor: an `Extractor`; or any module that maps images (n, c, h, w) to features (n, f), or to features and
            class logits (n, k). Such a module receives images as they are given: uint8, or floats in [0, 1] with
            `normalize`, which `ModuleExtractor` passes to it. It is set to evaluation mode.
        normalize: whether images are floats in [0, 1], which are rounded to uint8; otherwise uint8.
    """

    def __init__(self, extractor: nn.Module, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize
        if normalize and not isinstance(extractor, Extractor):
            extractor = ModuleExtractor(extractor)
        self._extractor = (extractor.eval(),)  # a tuple is no submodule

    @property
    def extractor(self) -> nn.Module:
        """The extractor."""
        return self._extractor[0]

    @torch.no_grad()
    def forward(self, images: Tensor) -> Features:
        """Returns the features of images.

        Raises:
            RefusedInput: images of another type, range or shape.
            FloatingPointError: images or features are not finite.
        """
        images = to_uint8(images) if self.normalize else images
        known = images.ndim == 4 and (images.shape[1] in (1, 3, 4) or getattr(self.extractor, "any_channels", True))
        if images.dtype != torch.uint8 or not known:
            raise RefusedInput(
                f"Images are {images.dtype} {tuple(images.shape)}, expected uint8 (n, c, h, w) with 1, 3 or 4 channels:"
                " lit_gans.data.images.to_uint8 converts floats in [0, 1], as does normalize=True."
            )
        images = on_white(images) if images.shape[1] == 4 else images
        features, logits = _features_and_logits(self.extractor.to(images.device)(images))
        if not (torch.isfinite(features).all() and torch.isfinite(logits).all()):
            raise FloatingPointError("The extractor returned features that are not finite for finite images.")
        return Features(features, logits)

    def widths(self, shape: Sequence[int]) -> tuple[Widths, Probe | None]:
        """Returns the number of features and logits, and None if they are declared; otherwise extracts a noise image
        (c, h, w), the same in every run, and also returns what its features are.
        """
        extractor = self.extractor
        if isinstance(extractor, Extractor) and extractor.num_features and extractor.num_logits is not None:
            return Widths(extractor.num_features, extractor.num_logits), None
        image = torch.randint(256, (1, *shape), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        features, logits = self(image / 255 if self.normalize else image)
        values = features.float().cpu()
        summary = [float(f"{value:.6g}") for value in (values.mean(), values.square().mean().sqrt())]
        digest = hashlib.sha256(values.numpy().data).hexdigest()
        return Widths(features.shape[1], logits.shape[1]), Probe(digest, summary)
