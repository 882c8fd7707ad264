"""Directions in the space of latents that change an image, found without labels."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.training.module import AdversarialModule
from lit_gans.training.sampling import evaluating

_LAYERS = (nn.Linear, nn.ConvTranspose2d)


def directions(
    module: AdversarialModule, num: int, generator: nn.Module | None = None
) -> tuple[Float[Tensor, "n z"], Float[Tensor, " n"]]:
    """Finds the directions of latents that change the first layer of a generator most (Shen and Zhou 2021, SeFa).

    They are the eigenvectors of A^T A with the largest eigenvalues, where A is the weight that the latents are
    multiplied with (equation 6).

    Args:
        module: a GAN whose generator begins with a dense layer or a transposed convolution of the latents.
        num: number of directions, at most the length of a latent.
        generator: the network; None for the one that samples.

    Returns:
        Unit vectors, those that change most first, and their eigenvalues.

    Raises:
        RefusedInput: the generator does not begin with such a layer, or `num` is out of range.
    """
    if not 1 <= num <= module.latent_dim:
        raise RefusedInput(f"num={num} must be at least 1 and at most latent_dim={module.latent_dim}.")
    weight = _first_weight(module, module.sampling_generator() if generator is None else generator)
    values, vectors = torch.linalg.eigh(weight.double().T @ weight.double())  # in ascending order
    values, vectors = values[-num:].flip(0), vectors.T[-num:].flip(0)
    largest = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))
    return (vectors * largest.sign()).float().cpu(), values.float().cpu()


@torch.no_grad()
def _first_weight(module: AdversarialModule, generator: nn.Module) -> Float[Tensor, "out z"]:
    """Returns the matrix that latents are multiplied with in the first layer that has weights."""
    first: list[nn.Module] = []

    def note(layer: nn.Module, _: object) -> None:
        first.extend([] if first else [layer])

    layers = [layer for layer in generator.modules() if isinstance(layer, (*_LAYERS, nn.Conv2d))]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        with evaluating(generator), module.device:
            module.generate(generator, module.dummy_batch(1))
    finally:
        for hook in hooks:
            hook.remove()
    if not first or not isinstance(first[0], _LAYERS):
        raise RefusedInput(
            f"the generator of {type(module).__name__} does not begin with a dense layer or transposed convolution of"
            " its latents: it has no such directions."
        )
    weight = first[0].weight
    rows = weight if isinstance(first[0], nn.Linear) else weight.flatten(1).T  # (in, out, k, k)
    return rows[:, : module.latent_dim]  # the others are multiplied with an embedding of the class
