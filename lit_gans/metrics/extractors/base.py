"""Base class of feature extractors, an extractor that wraps any module, and the wrapper that scores use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import normalize

from lit_gans.common.errors import RefusedInput
from lit_gans.common.identity import digest_of, digest_of_object, is_versioned
from lit_gans.common.modes import evaluating
from lit_gans.common.precision import tf32
from lit_gans.data.images import to_uint8

_CHUNK = 16  # batch size with which the networks for 224x224 and 299x299 images are fastest on a CPU


def refuse_nameless(extractor: Extractor) -> None:
    """Raises `RefusedInput` for an extractor without a name, which would have no metric keys."""
    if not extractor.name:
        raise RefusedInput(
            f"{type(extractor).__name__} has no name: set the class attribute `name`, the suffix of metric keys."
        )


class Extractor(nn.Module):
    """Base class of feature extractors, which map uint8 images to features and class logits.

    An extractor is always in evaluation mode. It is never trained, and is never part of a checkpoint.

    Attributes:
        name: suffix of all metric keys; each extractor needs one.
        num_features, num_logits: widths of the outputs of `forward`. If None, they are determined by extracting the
            features of one image.
        num_classes: number of classes if the logits correspond to the classes of the data, otherwise 0.
        class_names: names of these classes, if they have names.
        label: name of the label that the logits predict if the extractor can predict several labels, otherwise None.
        resize: description of how images are resized, for the protocol.
        file_sha256: digest of the file from which the weights were read, or None if there is no file.
        any_channels: whether the number of channels can differ from 1, 3 and 4.
    """

    name: str = ""
    num_features: int | None = None
    num_logits: int | None = None
    num_classes: int = 0
    class_names: tuple[str, ...] = ()
    label: str | None = None
    resize: str = "none"
    file_sha256: str | None = None
    any_channels: bool = False

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        """Returns features (n, num_features) and class logits (n, num_logits). `num_logits` can be 0."""
        raise NotImplementedError

    def train(self, mode: bool = True) -> Extractor:
        """Ignores `mode` and stays in evaluation mode."""
        return super().train(False)

    @cached_property
    def sha256(self) -> str:
        """Digest for the protocol. Two extractors have equal digests only if they return the same features.

        If `lit_gans` defines the extractor's class, this is the digest of the weight file or, without a file, of the
        names and values of the weights. For classes of other packages, it is the digest of the code, the attributes and
        all tensors; see `digest_of_object`.
        """
        if not is_versioned(type(self)):
            return digest_of_object(self)
        return self.file_sha256 or digest_of(self.state_dict())


def in_color(images: Shaped[Tensor, "n c h w"]) -> Shaped[Tensor, "n c2 h w"]:
    """Repeats the channel of grayscale images three times, and returns other images unchanged."""
    return images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images


def on_white(images: UInt8[Tensor, "n 4 h w"]) -> UInt8[Tensor, "n 3 h w"]:
    """Blends transparent images with a white background. Image files are read in the same way."""
    color, opacity = images[:, :3].float(), images[:, 3:].float() / 255
    return (color * opacity + 255 * (1 - opacity)).round().to(torch.uint8)


def normalized(
    images: UInt8[Tensor, "n 3 h w"], size: int, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> Float[Tensor, "n 3 s s"]:
    """Resizes images to size x size with Pillow's bicubic filter, scales them to [0, 1] and normalizes each channel.

    The reference implementations of FD-DINOv2 and CMMD use Pillow, whose uint8 pixels differ from torch's. Images are
    therefore resized in main memory.
    """
    pixels = np.empty((len(images), size, size, 3), np.uint8)
    for index, image in enumerate(images.permute(0, 2, 3, 1).contiguous().cpu().numpy()):
        pixels[index] = np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC))
    return normalize(torch.from_numpy(pixels).to(images.device).permute(0, 3, 1, 2) / 255, [*mean], [*std])


def in_chunks(
    network: Callable[[Tensor], tuple[Tensor, Tensor]], images: UInt8[Tensor, "n c h w"]
) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
    """Applies a network to images. On a CPU, processes small chunks, whose activations fit into the caches."""
    if images.device.type != "cpu" or len(images) <= _CHUNK:
        return network(images)
    features, logits = zip(*map(network, images.split(_CHUNK)), strict=True)
    return torch.cat(features), torch.cat(logits)


class ModuleExtractor(Extractor):
    """Wraps a module that maps images (n, c, h, w) in [0, 1] to features (n, f), or to features and logits.

    Grayscale images are repeated to three channels. Transparent images are blended with a white background.

    Args:
        module: module to wrap. It is frozen and set to evaluation mode.
        name: suffix of the metric keys.
        num_classes: number of classes if the logits (n, k) correspond to the classes of the data, otherwise 0.
    """

    any_channels = True

    def __init__(self, module: nn.Module, name: str = "module", num_classes: int = 0) -> None:
        super().__init__()
        self.module, self.name, self.num_classes = module, name, num_classes
        self.eval().requires_grad_(False)

    @cached_property
    def sha256(self) -> str:
        """Digest of the module's code, attributes and tensors, and of the arguments. See `digest_of_object`."""
        return digest_of_object(self)

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        with torch.autocast(images.device.type, enabled=False):
            return _features_and_logits(self.module(in_color(images).float() / 255))


def _features_and_logits(output: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Converts the output of any module to features (n, f) and class logits (n, k), where k can be 0."""
    features, logits = output if isinstance(output, tuple) else (output, output[:, :0])
    if features.ndim != 2 or logits.ndim != 2:
        shapes = f"{tuple(features.shape)} and {tuple(logits.shape)}"
        raise RefusedInput(f"the extractor returned {shapes}, expected features (n, f), or features and logits (n, k).")
    return features, logits


class Features(NamedTuple):
    """Extracted features (n, f) and class logits (n, k) of images, where k can be 0."""

    features: Float[Tensor, "n f"]
    logits: Float[Tensor, "n k"]

    @staticmethod
    def of_nothing(widths: Widths, device: torch.device) -> Features:
        """Returns features and logits with zero rows."""
        return Features(*(torch.empty(0, width, device=device) for width in (widths.features, widths.logits)))


@dataclass(frozen=True)
class Widths:
    """Widths of features and logits, and number of classes of the generator.

    They determine the shapes of a score's states.
    """

    features: int = 0
    logits: int = 0
    classes: int = 0


class Probe(NamedTuple):
    """Fingerprint of the features of a noise image.

    Attributes:
        sha256: digest of the features, which differs between devices.
        summary: mean and root mean square of the features.
    """

    sha256: str
    summary: list[float]


class Network(nn.Module):
    """Wraps the extractor of one or more scores, and hides it from `parameters()` and `state_dict()`.

    The weights of the extractor are therefore neither trained nor sharded, and are never part of a checkpoint. The
    extractor is moved to the device of the images.

    Args:
        extractor: an `Extractor`, or any module that maps images (n, c, h, w) to features (n, f), or to features and
            class logits (n, k). It runs in evaluation mode and without autocast. A module that is not an `Extractor`
            receives uint8 images or, with `normalize`, floats in [0, 1].
        normalize: whether images are floats in [0, 1], which are rounded to uint8. Otherwise, images must be uint8.
    """

    def __init__(self, extractor: nn.Module, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize
        self._extractor = (extractor,)  # a module inside a tuple is not registered as a submodule

    @property
    def extractor(self) -> nn.Module:
        """The extractor."""
        return self._extractor[0]

    @torch.no_grad()
    def forward(self, images: Tensor) -> Features:
        """Returns the features and logits of images.

        Raises:
            RefusedInput: the images have an invalid type, range or shape.
            FloatingPointError: images or features are not finite.
        """
        images = to_uint8(images) if self.normalize else images
        valid = images.ndim == 4 and (images.shape[1] in (1, 3, 4) or getattr(self.extractor, "any_channels", True))
        if images.dtype != torch.uint8 or not valid:
            raise RefusedInput(
                f"Images are {images.dtype} {tuple(images.shape)}, expected uint8 (n, c, h, w) with 1, 3 or 4 channels:"
                " convert floats in [0, 1] with lit_gans.data.images.to_uint8, or set normalize=True."
            )
        images = on_white(images) if images.shape[1] == 4 else images
        if self.normalize and not isinstance(self.extractor, Extractor):
            images = images.float() / 255
        # features in TF32 are not those of a paper; the extractor might be a part of a module that is being trained
        with tf32(False), evaluating(self.extractor), torch.autocast(images.device.type, enabled=False):
            features, logits = _features_and_logits(self.extractor.to(images.device)(images))
        if not (torch.isfinite(features).all() and torch.isfinite(logits).all()):
            raise FloatingPointError("The extractor returned features that are not finite, although images are finite.")
        return Features(features, logits)

    def widths(self, shape: Sequence[int]) -> tuple[Widths, Probe | None]:
        """Returns the numbers of features and logits, and the `Probe` of a noise image if one was extracted.

        If the extractor declares both numbers, no image is extracted and the probe is None. The noise image is the same
        in every run.

        Args:
            shape: shape (c, h, w) of the noise image.
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
