"""A vision transformer in plain float64 (Dosovitskiy et al. 2021) and images, for the features of DINOv2 and CLIP."""

import math

import torch
from torch.nn import functional


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def norm(x, affine, eps):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * affine[0] + affine[1]


def linear(x, affine):
    return x @ affine[0].T + affine[1]


def patches_of(images, filters):
    """Returns the products of the image's patches, row by row, with the filters."""
    size = filters.shape[-1]
    return functional.unfold(images, size, stride=size).mT @ filters.flatten(1).T


def transformed(tokens, blocks, heads, activation, eps):
    """Applies blocks to tokens (n, t, w). A block has norm1, qkv, proj, norm2, fc1 and fc2 as pairs of weight and
    bias, and a scale of each branch.
    """
    n, t, w = tokens.shape
    for block in blocks:
        qkv = linear(norm(tokens, block["norm1"], eps), block["qkv"]).view(n, t, 3, heads, w // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attention = (q @ k.mT / math.sqrt(w // heads)).softmax(-1) @ v
        tokens = tokens + block["scale1"] * linear(attention.transpose(1, 2).reshape(n, t, w), block["proj"])
        hidden = activation(linear(norm(tokens, block["norm2"], eps), block["fc1"]))
        tokens = tokens + block["scale2"] * linear(hidden, block["fc2"])
    return tokens


def drawn(shapes, seed):
    """Returns tensors of the shapes, by name, with which no layer is the identity."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.2 + (len(shape) == 1 and "weight" in name)
        for name, shape in shapes.items()
    }


def images(num, height, width, channels=3, seed=0):
    small = torch.rand(num, channels, 5, 5, generator=torch.Generator().manual_seed(seed))
    noise = torch.rand(num, channels, height, width, generator=torch.Generator().manual_seed(seed + 1)) * 0.3
    blocks = torch.nn.functional.interpolate(small, (height, width)) * 0.7
    return ((blocks + noise) * 255).to(torch.uint8)


def inputs(extractor, pixels):
    """Returns what the network of an extractor receives."""
    seen = []
    with extractor.network.register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        extractor(pixels)
    return seen[0]
