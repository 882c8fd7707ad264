"""DINOv2, the basis of FD-DINOv2 (Stein et al. 2023)."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from lit_gans.common.errors import RefusedInput, import_extra
from lit_gans.metrics.extractors.base import Extractor, in_chunks, in_color, normalized
from lit_gans.metrics.extractors.weights import find_weights, read_weights, refusing_other_weights

FILE = "dinov2_vitl14_pretrain.pth"
URL = f"https://dl.fbaipublicfiles.com/dinov2/dinov2_vitl14/{FILE}"
SHA256 = "d5383ea8f4877b2472eb973e0fd72d557c7da5d3611bd527ceeb1d7162cbf428"
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_IMAGE_SIZE, _PATCH_SIZE = 224, 14
_OFFSET = 0.1  # added to the number of patches by DINOv2's interpolation of positional embeddings


class DINOv2Extractor(Extractor):
    """timm's DINOv2 ViT-L/14 (Oquab et al. 2023) with Meta's weights. Its FID is the FD-DINOv2 of Stein et al. (2023).

    It returns the 1,024 features of the class token, and no logits. Images are resized to 224x224 with Pillow's bicubic
    filter, as in the code of Stein et al., which does not keep the aspect ratio. Grayscale images are repeated to three
    channels.

    Args:
        weights: path of the weight file; null uses the file in torch hub's cache. Weights are never downloaded.
        sha256: expected digest of the file; null accepts any digest. The protocol records the digest.

    Raises:
        RefusedInput: timm is not installed, or the file is missing, has a digest that differs from `sha256`, or
            contains another network. If the file is missing, the message contains its URL and destination.
    """

    name = "dinov2"
    num_features, num_logits = 1024, 0
    resize = "bicubic to 224x224 by Pillow, uint8"
    depth, num_heads = 24, 16

    def __init__(self, weights: str | None = None, sha256: str | None = SHA256) -> None:
        super().__init__()
        timm = import_extra("timm", "dinov2")
        path = find_weights(weights, "DINOv2", FILE, URL)
        state, self.file_sha256 = read_weights(path, sha256)
        sizes = {"embed_dim": self.num_features, "depth": self.depth, "num_heads": self.num_heads}
        self.network = timm.create_model("vit_large_patch14_dinov2", img_size=_IMAGE_SIZE, num_classes=0, **sizes)
        with refusing_other_weights(path, "DINOv2 ViT-L/14"):
            self.network.load_state_dict(_for_timm(state, path, self.num_features))
        self.eval().requires_grad_(False)

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        with torch.autocast(images.device.type, enabled=False):
            return in_chunks(self._extract, in_color(images))

    def _extract(self, images: UInt8[Tensor, "n 3 h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        features = self.network(normalized(images, _IMAGE_SIZE, _MEAN, _STD))
        return features, features[:, :0]


def _for_timm(state: dict[str, Tensor], path: Path, width: int) -> dict[str, Tensor]:
    """Converts Meta's tensors to timm's for images of 224x224.

    The positional embeddings are interpolated as in Meta's code: with an offset and without antialiasing. timm would
    interpolate them with antialiasing, which returns other features.

    Raises:
        RefusedInput: the tensors are those of another network.
    """
    embedding = state.get("pos_embed")
    if embedding is None or embedding.ndim != 3 or embedding.shape[2] != width or "register_tokens" in state:
        found = "no DINOv2" if embedding is None else f"a ViT of width {embedding.shape[-1]}"
        registers = " with registers" if "register_tokens" in state else ""
        raise RefusedInput(
            f"{path} contains {found}{registers}: FD-DINOv2 needs ViT-L/14 of width {width} without registers, {FILE}."
        )
    num = round((embedding.shape[1] - 1) ** 0.5)
    patches = embedding[:, 1:].reshape(1, num, num, width).permute(0, 3, 1, 2)
    factor = (_IMAGE_SIZE // _PATCH_SIZE + _OFFSET) / num
    patches = functional.interpolate(patches, scale_factor=(factor, factor), mode="bicubic")
    resized = torch.cat([embedding[:, :1], patches.flatten(2).mT], 1)
    return {name: tensor for name, tensor in state.items() if name != "mask_token"} | {"pos_embed": resized}
