"""Layers with spectral norm, and power iterations by hand."""

import torch
from torch import nn
from torch.nn.functional import normalize

from lit_gans.networks.spectral import SpectralNorm, spectrally_normalized

LABELS = torch.tensor([0, 3, 1])


LAYERS = {
    "dense": lambda: nn.Linear(6, 4),
    "down": lambda: nn.Conv2d(3, 5, 3),
    "depthwise": lambda: nn.Conv2d(6, 6, 3, groups=6),
    "up": lambda: nn.ConvTranspose2d(3, 5, 4),
    "embedding": lambda: nn.Embedding(7, 4),
}


class Tiny(nn.Module):
    """Every kind of layer that is normalized, and one that is not."""

    def __init__(self):
        super().__init__()
        self.embedding, self.dense = nn.Embedding(4, 6), nn.Linear(6, 12)
        self.up, self.deep = nn.ConvTranspose2d(3, 4, 4, 2, 1), nn.ConvTranspose2d(4, 4, 4, 2, 1, groups=4)
        self.norm, self.down = nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3)

    def forward(self, labels):
        features = self.dense(self.embedding(labels)).view(-1, 3, 2, 2)
        return self.down(self.norm(self.deep(self.up(features))))


def tiny(seed=0):
    torch.manual_seed(seed)
    return spectrally_normalized(Tiny())


def moved(network):
    """The network after a step: its power iterations have to catch up."""
    with torch.no_grad():
        for layer in network.modules():
            if hasattr(layer, "parametrizations"):
                original = layer.parametrizations.weight.original
                original.copy_(torch.randn_like(original))
    return network


def single(kind="dense"):
    """A normalized layer, its parametrization, and its weight before it."""
    torch.manual_seed(0)
    layer = moved(spectrally_normalized(LAYERS[kind]()))
    return layer, layer.parametrizations.weight[0], layer.parametrizations.weight.original


def norms(network):
    return [module for module in network.modules() if isinstance(module, SpectralNorm)]


def vectors(network):
    return [vector.clone() for norm in norms(network) for vector in (norm.left, norm.right)]


def same(ours, theirs):
    return [torch.equal(*pair) for pair in zip(ours, theirs, strict=True)]


def as_matrix(weight, output_axis=0):
    return weight.movedim(output_axis, 0).flatten(1)


def iterated(norm, matrix, times=1):
    """The two vectors after some power iterations, by hand."""
    left, right = norm.left.clone(), norm.right.clone()
    for _ in range(times):
        left = normalize(matrix @ right, dim=0)
        right = normalize(matrix.T @ left, dim=0)
    return left, right
