"""Projection: the latents whose images are closest to given images."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.training.module import AdversarialModule
from lit_gans.training.sampling import Weights, evaluating

_SMALLEST = 4  # pixels of the coarsest scale


def pyramid_distance(images: Float[Tensor, "n c h w"], targets: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
    """Computes the mean absolute difference of images at every scale, each of half the size of the one before.

    It needs no network, so that it measures images of any kind: the fine scales compare edges, the coarse ones colors
    and shapes, which are matched before edges lie upon each other.

    Returns:
        The mean over pixels and channels, summed over the scales down to 4 pixels.
    """
    distance = (images - targets).abs().flatten(1).mean(1)
    while min(images.shape[-2:]) >= 2 * _SMALLEST:
        images, targets = functional.avg_pool2d(images, 2), functional.avg_pool2d(targets, 2)
        distance = distance + (images - targets).abs().flatten(1).mean(1)
    return distance


def project(
    module: AdversarialModule,
    targets: Float[Tensor, "n c h w"],
    *,
    labels: Int64[Tensor, " n"] | None = None,
    steps: int = 500,
    starts: int = 16,
    lr: float = 0.1,
    prior: float = 1e-3,
    weights: Weights | None = None,
    seed: int = 0,
    follow: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> tuple[Float[Tensor, "n z"], Float[Tensor, " n"]]:
    """Finds latents whose images resemble given ones, by gradient descent (Zhu et al. 2016, section 3.1).

    The loss of an image is its `pyramid_distance` plus `prior` times half the mean square of its latent, the negative
    log-density of latents. For each image, the best of several random latents is refined by Adam, with noise on the
    latents that fades away in the first three quarters (Karras et al. 2020, appendix D).

    Args:
        module: a GAN that maps latents to images.
        targets: images in [0, 1], of the module's size.
        labels: class of each image, for a generator with classes.
        steps: number of Adam steps.
        starts: number of random latents of which each image begins with the best.
        lr: learning rate of Adam, which decays along a cosine.
        prior: weight of the density of latents: a larger one finds more typical images.
        weights: see `AdversarialModule.sample`.
        seed: seed of the random latents.
        follow: wraps the steps, for example `tqdm.tqdm`.

    Returns:
        The latents, and the `pyramid_distance` of their images.

    Raises:
        RefusedInput: the images have another size.
    """
    expected = module.image_shape
    if tuple(targets.shape[1:]) != expected:
        raise RefusedInput(f"the images have shape {tuple(targets.shape[1:])}, the model {expected}: resize them.")
    network = module.sampling_generator(weights)
    device = module.device
    targets = targets.to(device)
    labels = module.labels(len(targets)) if labels is None else labels
    labels = None if labels is None else labels.to(device)
    frozen = [each for each in network.parameters() if each.requires_grad]
    network.requires_grad_(False)

    def images_of(latents: Tensor, of_labels: Tensor | None) -> Tensor:
        return module.to_unit_range(module.generate(network, module.sampling_batch(latents, of_labels, 0)).float())

    try:
        with evaluating(network), torch.enable_grad():
            latents = _best_starts(module, images_of, targets, labels, starts, seed).requires_grad_()
            optimizer = torch.optim.Adam([latents], lr=lr)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
            generator = torch.Generator(device).manual_seed(seed)
            for step in follow(range(steps)):
                spread = 0.5 * max(0.0, 1 - step / (0.75 * steps)) ** 2
                noise = torch.randn(latents.shape, generator=generator, device=device) * spread
                distance = pyramid_distance(images_of(latents + noise, labels), targets)
                loss = distance + prior * latents.square().mean(1) / 2
                optimizer.zero_grad()
                loss.sum().backward()
                optimizer.step()
                schedule.step()
        with evaluating(network), torch.no_grad():
            found = latents.detach()
            return found.cpu(), pyramid_distance(images_of(found, labels), targets).cpu()
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)


@torch.no_grad()
def _best_starts(
    module: AdversarialModule,
    images_of: Callable[[Tensor, Tensor | None], Tensor],
    targets: Tensor,
    labels: Tensor | None,
    starts: int,
    seed: int,
) -> Float[Tensor, "n z"]:
    """Returns the random latent of each target whose image is closest to it."""
    best = torch.full((len(targets),), torch.inf, device=targets.device)
    chosen = torch.zeros(len(targets), module.latent_dim, device=targets.device)
    for candidate in module.latents(starts, seed).to(targets.device):
        latents = candidate.expand(len(targets), -1)
        distance = pyramid_distance(images_of(latents, labels), targets)
        closer = distance < best
        best, chosen = torch.where(closer, distance, best), torch.where(closer[:, None], latents, chosen)
    return chosen.clone()
