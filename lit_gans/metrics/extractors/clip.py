"""CLIP, the basis of CMMD (Jayasumana et al. 2024)."""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.metrics.extractors.base import Extractor, in_chunks, in_color, normalized
from lit_gans.metrics.extractors.weights import find_weights, read_weights

SHA256 = "3035c92b350959924f9f00213499208652fc7ea050643e8b385c2dac08641f02"
URL = f"https://openaipublic.azureedge.net/clip/models/{SHA256}/ViT-L-14-336px.pt"
FILE = f"clip-vit-l-14-336px-{SHA256}.pt"  # torch-fidelity's name of the file in the cache
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_PATCH_SIZE = 14
_LETTERS = {768: "B", 1024: "L", 1280: "H"}  # names of vision transformers by width


class CLIPExtractor(Extractor):
    """torch-fidelity's CLIP ViT-L/14 at 336x336 (Radford et al. 2021) with OpenAI's weights, for the score `CMMD`.

    It returns the embedding of an image with 768 features, which are not normalized, and no logits. Images are cropped
    to the square at their center and resized to 336x336 with Pillow's bicubic filter, as in the code of Jayasumana et
    al. (2024). Grayscale images are repeated to three channels.

    Args:
        weights: path of the weight file; null uses the file in torch hub's cache. Weights are never downloaded.
        sha256: expected digest of the file; null accepts the state dict of a fine-tuned network, which `torch.save` has
            written. The protocol records the digest.

    Raises:
        RefusedInput: the file is missing, has a digest that differs from `sha256`, or contains another CLIP, which the
            message names. If the file is missing, the message contains its URL and destination.
    """

    name = "clip"
    num_features, num_logits = 768, 0
    resize = "center crop to a square, bicubic to 336x336 by Pillow, uint8"
    image_size, width, depth = 336, 1024, 24

    def __init__(self, weights: str | None = None, sha256: str | None = SHA256) -> None:
        from torch_fidelity.feature_extractor_clip import MODEL_METADATA, CLIPVisual

        super().__init__()
        path = find_weights(weights, "CLIP", FILE, URL)
        expected = _name(_PATCH_SIZE, self.width, self.image_size)
        names = {known["hash"]: known["filename"] for known in MODEL_METADATA.values() if known["hash"] != SHA256}
        others = {digest: f"this is CLIP {name}; CMMD needs {expected}." for digest, name in names.items()}
        state, self.file_sha256 = read_weights(path, sha256, others)
        found = _architecture(state)
        if found != expected:
            raise RefusedInput(f"{path}: this is {found}; CMMD needs {expected}.")
        sizes = self.num_features, self.image_size, self.depth, self.width, _PATCH_SIZE
        self.network = CLIPVisual(*sizes).visual
        visual = {name.removeprefix("visual."): state[name] for name in state if name.startswith("visual.")}
        with refusing(f"{path} does not fit CLIP {found}"):
            self.network.load_state_dict(visual)  # converts the weights to float32, because they are stored in float16
        self.eval().requires_grad_(False)

    def forward(self, images: UInt8[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        with torch.autocast(images.device.type, enabled=False):
            return in_chunks(self._extract, in_color(images))

    def _extract(self, images: UInt8[Tensor, "n 3 h w"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n k"]]:
        side = min(images.shape[2:])
        top, left = ((length - side) // 2 for length in images.shape[2:])
        square = images[:, :, top : top + side, left : left + side]
        features = self.network(normalized(square, self.image_size, _MEAN, _STD))
        return features, features[:, :0]


def _name(patch_size: int, width: int, image_size: int) -> str:
    return f"ViT-{_LETTERS.get(width, width)}/{patch_size} at {image_size}"


def _architecture(state: dict[str, Tensor]) -> str:
    """Returns the name of the network to which the tensors of OpenAI's CLIP belong."""
    patches, positions = state.get("visual.conv1.weight"), state.get("visual.positional_embedding")
    if "visual.layer1.0.conv1.weight" in state:
        return "a CLIP with a ResNet"
    if patches is None or positions is None or patches.ndim != 4 or positions.ndim != 2:
        return "no CLIP of OpenAI, whose tensors include visual.conv1.weight and visual.positional_embedding"
    width, patch_size = patches.shape[0], patches.shape[-1]
    return _name(patch_size, width, patch_size * round((len(positions) - 1) ** 0.5))
