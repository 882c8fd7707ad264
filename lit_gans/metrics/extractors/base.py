"""The base class of extractors, from images to features, and an extractor around any module."""

from __future__ import annotations

import hashlib
from functools import cached_property

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput


class Extractor(nn.Module):
    """Features and class logits of uint8 images. Always in evaluation mode, never trained, never in a checkpoint.

    Attributes:
        name: ending of every metric key.
        num_features, num_logits: widths of the output of `forward`; None is found by extracting one image.
        num_classes: of the logits, where they are the classes of the data, else 0.
        resize: how the size of an image is changed, for the protocol.
    """

    name: str
    num_features: int | None = None
    num_logits: int | None = None
    num_classes: int = 0
    resize: str = "none"

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        """Returns features (n, num_features) and class logits (n, num_logits); `num_logits` may be 0."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Extractor:
        """Stays in evaluation mode."""
        return super().train(False)

    @cached_property
    def sha256(self) -> str:
        """Digest of the weights for the protocol: of their file if there is one, else of names and values."""
        digest = hashlib.sha256()
        for name, tensor in self.state_dict().items():
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()


def in_colour(images: UInt8[Tensor, "n c h w"]) -> UInt8[Tensor, "n 3 h w"]:
    """Returns three channels: a gray image is repeated."""
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images


def on_white(images: UInt8[Tensor, "n 4 h w"]) -> UInt8[Tensor, "n 3 h w"]:
    """Blends transparent images with white, as the reader of image files does."""
    colour, opacity = images[:, :3].float(), images[:, 3:].float() / 255
    return (colour * opacity + 255 * (1 - opacity)).round().to(torch.uint8)


class ModuleExtractor(Extractor):
    """An extractor around any module from images (n, 3, h, w) in [0, 1] to features (n, f), or features and logits.

    Args:
        module: set to evaluation mode and frozen.
        name: ending of the metric keys: letters, digits and underscores.
        num_classes: of the logits (n, k), where they are the classes of the data.

    Raises:
        RefusedInput: `name` cannot end a key.
    """

    def __init__(self, module: nn.Module, name: str = "module", num_classes: int = 0) -> None:
        super().__init__()
        if not name.isidentifier():
            raise RefusedInput(f"name={name!r} must be letters, digits and underscores: it ends the keys.")
        self.module, self.name, self.num_classes = module, name, num_classes
        self.eval().requires_grad_(False)

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        with torch.autocast(images.device.type, enabled=False):
            output = self.module(in_colour(images).float() / 255)
        features, logits = output if isinstance(output, tuple) else (output, output[:, :0])
        if features.ndim != 2 or logits.ndim != 2:
            shapes = f"{tuple(features.shape)} and {tuple(logits.shape)}"
            raise RefusedInput(
                f"metrics.extractor.module returned {shapes}, expected features (n, f), or features and logits (n, k)."
            )
        return features, logits
