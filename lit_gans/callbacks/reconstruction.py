"""Measurements of reconstructions: how far they are from the images themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torchmetrics import MeanMetric
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

from lit_gans.callbacks.evaluation import Measurement
from lit_gans.common.errors import RefusedInput
from lit_gans.common.identity import digest_of
from lit_gans.data.digests import fingerprint
from lit_gans.data.images import to_networks, to_unit_range
from lit_gans.metrics.perceptual import Perceptual, perceptual_network
from lit_gans.models.autoencoder_kl import AutoencoderKL
from lit_gans.training.callback import data_of
from lit_gans.training.module import AdversarialModule


class ReconstructionMetrics(Measurement):
    """Logs how close reconstructions come to images that the data holds out, or to those of the training.

    `metric/psnr` is the mean over images of the peak signal-to-noise ratio in decibels, `metric/ssim` the structural
    similarity (Wang et al. 2004), `metric/l1` the mean absolute difference, and `metric/<perceptual>` a perceptual
    distance. Reconstruction FID is the FID of `metrics=`, whose generated images are the reconstructions of images of
    the training. See `Measurement`.

    Args:
        every_n_steps: number of generator iterations between two measurements; the last iteration is always measured.
        num_samples: number of images per measurement, at most all.
        batch_size: number of images reconstructed at once.
        perceptual, perceptual_file: see `perceptual_network`; `none` leaves it out.

    Raises:
        RefusedInput: a number below 1, or a model that does not reconstruct images.
    """

    headline = "metric/psnr"
    _distances: dict[str, Callable[..., Any]]  # of each pair of images in [0, 1]
    _perceptual_sha256: str | None

    def __init__(
        self,
        every_n_steps: int = 250,
        num_samples: int = 500,
        batch_size: int = 64,
        perceptual: Perceptual = "efficientnet_lite0",
        perceptual_file: str | None = None,
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed=0)
        self.perceptual, self.perceptual_file = perceptual, perceptual_file
        self.directions = {"metric/psnr": "max", "metric/ssim": "max", "metric/l1": "min"}
        if perceptual != "none":
            self.directions[f"metric/{perceptual}"] = "min"

    def setup(self, trainer: Trainer, pl_module: AdversarialModule, stage: str) -> None:
        if not isinstance(pl_module, AutoencoderKL):
            raise RefusedInput("metric/psnr compares reconstructions with images: it needs model=autoencoder_kl.")
        network = perceptual_network(self.perceptual, self.perceptual_file, pl_module.channels)
        of_each: dict[str, Any] = {"data_range": 1.0, "reduction": "none"}
        self._distances = {
            "psnr": partial(peak_signal_noise_ratio, dim=(1, 2, 3), **of_each),
            "ssim": partial(structural_similarity_index_measure, **of_each),
            "l1": lambda made, real: (made - real).abs().mean((1, 2, 3)),
        }
        self._perceptual_sha256 = None if network is None else digest_of(network.state_dict())
        if network is not None:
            network.to(trainer.strategy.root_device)
            self._distances[self.perceptual] = lambda made, real: network(made * 2 - 1, real * 2 - 1)

    def _images(self, trainer: Trainer, module: AdversarialModule, rank: int = 0, world_size: int = 1) -> Tensor:
        assert isinstance(module, AutoencoderKL)
        return module.held_out_share(data_of(trainer), self.num_samples, rank, world_size)

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        data_sha256, num, shape = fingerprint([self._images(trainer, module)])
        found = {"num_fake": num, "data_sha256": data_sha256, "image_size": shape[1:]}
        perceptual = {"perceptual": self.perceptual, "perceptual_sha256": self._perceptual_sha256}
        return super().stamp(trainer, module) | found | perceptual

    @torch.no_grad()
    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        own = self._images(trainer, module, trainer.global_rank, trainer.world_size)  # none on some ranks, if few
        batches = own.split(self.batch_size) if len(own) else ()
        mean = MeanMetric(nan_strategy="disable").set_dtype(torch.float64).to(module.device)
        means = {name: mean.clone() for name in self._distances}
        for batch in self.until_stopped(trainer, batches):
            made, real = module.decode(to_networks(batch)), to_unit_range(batch).to(module.device)
            for name, distance in self._distances.items():
                means[name].update(distance(made, real))
        return {f"metric/{name}": mean.compute().item() for name, mean in means.items()}
