"""Several discriminators, each at half the resolution of the previous one (Wang et al. 2018, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

_POOLS = nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d


class MultiScale(nn.Module):
    """Applies each discriminator to the data at half the resolution of the previous discriminator.

    The data are downsampled by average pooling with kernel 3, stride 2 and padding 1, as in the code of pix2pixHD.
    Conditions that have the same number of dimensions as the data are downsampled in the same way.

    Args:
        discriminators: one discriminator for each resolution, from the highest to the lowest.

    Examples:
        >>> import torch
        >>> from lit_gans.networks.patchgan import PatchGAN
        >>> discriminator = MultiScale([PatchGAN(0, 3, 64, width=4), PatchGAN(0, 3, 32, width=4)])
        >>> [tuple(scores.shape) for scores in discriminator(torch.zeros(1, 3, 64, 64))]
        [(1, 6, 6), (1, 2, 2)]
    """

    def __init__(self, discriminators: Sequence[nn.Module]) -> None:
        super().__init__()
        self.discriminators = nn.ModuleList(discriminators)

    def forward(self, data: Float[Tensor, "n c *shape"], *condition: Tensor) -> list[Any]:
        """Returns the output of each discriminator."""
        pool = _POOLS[data.dim() - 3](3, 2, 1, count_include_pad=False)
        tensors, outputs = (data, *condition), []
        for discriminator in self.discriminators:
            outputs.append(discriminator(*tensors))
            tensors = tuple(pool(tensor) if tensor.dim() == data.dim() else tensor for tensor in tensors)
        return outputs
