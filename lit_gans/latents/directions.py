"""Computes directions in latent space that change an image. Needs no labels."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.common.errors import RefusedInput
from lit_gans.common.modes import evaluating
from lit_gans.training.module import AdversarialModule

_LAYERS = (nn.Linear, nn.ConvTranspose2d)


def directions(
    module: AdversarialModule, num: int, generator: nn.Module | None = None
) -> tuple[Float[Tensor, "n z"], Float[Tensor, " n"]]:
    """Computes the latent directions that change the output of the generator's first layer most.

    The method is SeFa (Shen and Zhou 2021). The directions are the eigenvectors of A^T A with the largest eigenvalues,
    where A is the weight matrix by which the latents are multiplied (equation 6).

    Args:
        module: GAN whose generator begins with a dense layer or a transposed convolution of the latents.
        num: number of directions, at most the dimension of the latents.
        generator: generator; None uses the generator with which the module samples.

    Returns:
        Unit vectors, sorted by their eigenvalues in descending order, and the eigenvalues.

    Raises:
        RefusedInput: the generator does not begin with one of these layers, or `num` is out of range.
    """
    if not 1 <= num <= module.latent_dim:
        raise RefusedInput(f"num={num} must be at least 1 and at most latent_dim={module.latent_dim}.")
    weight = _first_weight(module, module.sampling_generator() if generator is None else generator)
    values, vectors = torch.linalg.eigh(weight.double().T @ weight.double())  # eigenvalues in ascending order
    values, vectors = values[-num:].flip(0), vectors.T[-num:].flip(0)
    largest = vectors.gather(1, vectors.abs().argmax(1, keepdim=True))
    return (vectors * largest.sign()).float().cpu(), values.float().cpu()


@torch.no_grad()
def _first_weight(module: AdversarialModule, generator: nn.Module) -> Float[Tensor, "out z"]:
    """Returns the matrix by which latents are multiplied in the first linear or convolutional layer."""
    first: list[nn.Module] = []

    def record_first(layer: nn.Module, _: object) -> None:
        first.extend([] if first else [layer])

    layers = [layer for layer in generator.modules() if isinstance(layer, (*_LAYERS, nn.Conv2d))]
    hooks = [layer.register_forward_pre_hook(record_first) for layer in layers]
    try:
        with evaluating(generator), module.device:
            module.generate(generator, module.dummy_batch(1))
    finally:
        for hook in hooks:
            hook.remove()
    if not first or not isinstance(first[0], _LAYERS):
        raise RefusedInput(
            f"the generator of {type(module).__name__} does not begin with a dense layer or a transposed convolution"
            " of its latents, so that it has no such directions: use a generator that begins with such a layer."
        )
    weight = first[0].weight
    # the weight of a transposed convolution has shape (in, out, k, k)
    matrix = weight if isinstance(first[0], nn.Linear) else weight.flatten(1).T
    return matrix[:, : module.latent_dim]  # the remaining columns are multiplied by the class embedding
