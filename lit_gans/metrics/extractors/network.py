"""An extractor as scores see it: images in, features and class logits out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import to_uint8
from lit_gans.metrics.extractors.base import Extractor, ModuleExtractor, on_white


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

    @torch.no_grad()
    def forward(self, images: Tensor) -> Features:
        """Returns the features of images.

        Raises:
            RefusedInput: images of another type, range or shape.
            FloatingPointError: images or features are not finite.
        """
        images = to_uint8(images) if self.normalize else images
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3, 4):
            raise RefusedInput(
                f"Images are {images.dtype} {tuple(images.shape)}, expected uint8 (n, c, h, w) with 1, 3 or 4 channels:"
                " lit_gans.data.images.to_uint8 converts floats in [0, 1], as does normalize=True."
            )
        (extractor,) = self._extractor
        output = extractor.to(images.device)(on_white(images) if images.shape[1] == 4 else images)
        features, logits = output if isinstance(output, tuple) else (output, output[:, :0])
        if not (torch.isfinite(features).all() and torch.isfinite(logits).all()):
            raise FloatingPointError("The extractor returned features that are not finite for finite images.")
        return Features(features, logits)

    def widths(self, shape: Sequence[int]) -> tuple[Widths, str | None]:
        """Returns the number of features and logits, and None if they are declared; otherwise extracts a noise image
        (c, h, w), the same in every run, and also returns the digest of its features.
        """
        (extractor,) = self._extractor
        if isinstance(extractor, Extractor) and extractor.num_features and extractor.num_logits is not None:
            return Widths(extractor.num_features, extractor.num_logits), None
        image = torch.randint(256, (1, *shape), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        features, logits = self(image / 255 if self.normalize else image)
        digest = hashlib.sha256(features.float().cpu().numpy().data).hexdigest()
        return Widths(features.shape[1], logits.shape[1]), digest
