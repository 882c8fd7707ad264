"""Inception v3 with the weights of 2015, the basis of published FID, KID and Inception Scores."""

from __future__ import annotations

import io

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from lit_gans.metrics.extractors.base import Extractor, in_chunks, in_color
from lit_gans.metrics.extractors.weights import find_weights, fold_batch_norms, read_weights, refusing_other_weights

FILE = "weights-inception-2015-12-05-6726825d.pth"
URL = f"https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/{FILE}"
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"


class InceptionExtractor(Extractor):
    """torch-fidelity's Inception v3 with TensorFlow's weights of 2015.

    It returns 2,048 pooled features and 1,008 logits without bias. Images are resized to 299x299 as in TensorFlow 1:
    with bilinear interpolation, and without antialiasing or rounding. Grayscale images are repeated to three channels.

    Args:
        weights: path of the weight file; null uses the file in torch hub's cache. Weights are never downloaded.
        sha256: expected digest of the file; null accepts any digest. The protocol records the digest.

    Raises:
        RefusedInput: the file is missing, its digest differs from `sha256`, or it contains another network. If the file
            is missing, the message contains its URL and destination.
    """

    name = "inception"
    num_features, num_logits = 2048, 1008
    resize = "bilinear to 299x299 as TensorFlow 1, no antialiasing, float"

    def __init__(self, weights: str | None = None, sha256: str | None = SHA256) -> None:
        super().__init__()
        path = find_weights(weights, "Inception", FILE, URL)
        state, self.file_sha256 = read_weights(path, sha256)
        with refusing_other_weights(path, "Inception v3"):
            self.network = _network(state)
        self.eval().requires_grad_(False)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        with torch.autocast(images.device.type, enabled=False):
            return in_chunks(self.network, in_color(images))


def _network(state: dict[str, Tensor]) -> nn.Module:
    """Returns torch-fidelity's network.

    The network unpickles its weight file, which could execute code. It therefore receives a new file with the verified
    weights.
    """
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    network = FeatureExtractorInceptionV3("inception", ["2048", "logits_unbiased"], buffer)
    fold_batch_norms(network)
    return network
