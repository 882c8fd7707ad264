"""Projection of images to latent space: finds the latents whose generated images are closest to given images."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from lit_gans.common.errors import RefusedInput
from lit_gans.common.modes import evaluating, frozen
from lit_gans.common.noise import mix
from lit_gans.training.batch import refuse_labels
from lit_gans.training.module import AdversarialModule
from lit_gans.training.sampling import Weights

_SMALLEST = 4  # minimum height and width of the coarsest scale, in pixels


def pyramid_distance(images: Float[Tensor, "n c h w"], targets: Float[Tensor, "n c h w"]) -> Float[Tensor, " n"]:
    """Computes the mean absolute difference between images at several scales. Each scale halves the previous size.

    The distance needs no network, and therefore supports images of any kind. The fine scales compare edges. The coarse
    scales compare colors and shapes, so that colors and shapes can be matched even if edges do not yet overlap.

    Returns:
        The absolute difference, averaged over pixels and channels, and summed over the scales down to 4 pixels.
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
    """Finds latents whose generated images resemble target images, by gradient descent (Zhu et al. 2016, section 3.1).

    The loss of an image is its `pyramid_distance` plus `prior` times half the mean square of its latent. Up to a
    constant factor and offset, the second term is the negative log-density of latents. For each target, several random
    latents are compared, and the best latent is optimized with Adam. Noise is added to the latents, and is reduced to
    zero during the first three quarters of the steps (Karras et al. 2020, appendix D).

    Args:
        module: GAN that maps latents to images.
        targets: target images in [0, 1], with the image size of the module.
        labels: class of each image, for a generator with classes. None assigns the classes 0, 1, 2... to the targets,
            in their order, and starts again after the last class. Pass the labels if the targets' classes are known.
        steps: number of Adam steps.
        starts: number of random latents per target. The optimization starts with the best latent.
        lr: initial learning rate of Adam, which follows a cosine schedule.
        prior: weight of the log-density of latents. A larger weight yields more typical images.
        weights: see `AdversarialModule.sample`.
        seed: seed of the random latents.
        follow: function that wraps the steps, for example `tqdm.tqdm`.

    Returns:
        The latents, and the `pyramid_distance` between their images, as `decode` generates them, and the targets.

    Raises:
        RefusedInput: the module has no latents, the targets are not floats or do not have the image size of the module,
            or `labels` are not one class of the generator for each target.
    """
    starting_points = module.latents(starts, seed)
    expected = module.image_shape
    if tuple(targets.shape[1:]) != expected:
        raise RefusedInput(
            f"the images have shape {tuple(targets.shape[1:])}, but the model generates {expected}: resize them."
        )
    if not targets.is_floating_point():
        raise RefusedInput(f"the images are a tensor of {targets.dtype}: expected floats in [0, 1], images / 255.")
    network = module.sampling_generator(weights)
    device = module.device
    targets = targets.to(device)
    if labels is None:
        labels = module.labels(len(targets))
    elif module.num_classes:
        refuse_labels(labels, len(targets), module.num_classes)
    labels = None if labels is None else labels.to(device)

    def images_of(latents: Tensor, of_labels: Tensor | None) -> Tensor:
        return module.to_unit_range(
            module.generate(network, module.sampling_batch(latents, of_labels, mix(0, 0))).float()
        )

    with frozen(network.parameters()):
        with evaluating(network), torch.enable_grad():
            latents = _best_starts(starting_points, images_of, targets, labels).requires_grad_()
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
        projected = latents.detach()
        images = module.decode(projected, labels=labels, weights=weights).to(device)
        return projected.cpu(), pyramid_distance(images, targets).cpu()


@torch.no_grad()
def _best_starts(
    candidates: Float[Tensor, "k z"],
    images_of: Callable[[Tensor, Tensor | None], Tensor],
    targets: Tensor,
    labels: Tensor | None,
) -> Float[Tensor, "n z"]:
    """Returns, for each target, the candidate whose generated image is closest to the target."""
    best = torch.full((len(targets),), torch.inf, device=targets.device)
    chosen = torch.zeros(len(targets), candidates.shape[1], device=targets.device)
    for candidate in candidates.to(targets.device):
        latents = candidate.expand(len(targets), -1)
        distance = pyramid_distance(images_of(latents, labels), targets)
        closer = distance < best
        best, chosen = torch.where(closer, distance, best), torch.where(closer[:, None], latents, chosen)
    return chosen.clone()
