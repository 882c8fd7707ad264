"""Callback that measures the differences between reconstructions and their input images during training."""

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
    """Measures the differences between reconstructions and their input images.

    Uses the held-out images of the data, or the training images if the data has no held-out images. Logs `metric/psnr`
    (peak signal-to-noise ratio in decibels), `metric/ssim` (structural similarity, Wang et al. 2004), `metric/l1` (mean
    absolute difference) and `metric/<perceptual>` (perceptual distance). All values are means over images. See
    `Measurement` for the schedule.

    The FID of `metrics=` is the reconstruction FID, because an autoencoder's generated images are reconstructions of
    training images.

    Args:
        every_n_steps: number of generator iterations between two measurements. The last iteration is always measured.
        num_samples: maximum number of images per measurement.
        batch_size: number of images reconstructed at once.
        perceptual: name of the network of the perceptual distance, see `perceptual_network`; `none` measures no
            perceptual distance.
        perceptual_file: file with the network's weights, see `perceptual_network`.

    Raises:
        RefusedInput: If a number is below 1, or if the model does not reconstruct images.
    """

    headline = "metric/psnr"
    # functions that return the distance of every pair of images in [0, 1], by name
    _distances: dict[str, Callable[..., Any]]
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

    def prepare(self, trainer: Trainer, module: AdversarialModule) -> None:
        if not isinstance(module, AutoencoderKL):
            raise RefusedInput("metric/psnr compares reconstructions with images: use model=autoencoder_kl.")
        network = perceptual_network(self.perceptual, self.perceptual_file, module.channels)
        per_image: dict[str, Any] = {"data_range": 1.0, "reduction": "none"}
        self._distances = {
            "psnr": partial(peak_signal_noise_ratio, dim=(1, 2, 3), **per_image),
            "ssim": partial(structural_similarity_index_measure, **per_image),
            "l1": lambda fake, real: (fake - real).abs().mean((1, 2, 3)),
        }
        self._perceptual_sha256 = None if network is None else digest_of(network.state_dict())
        if network is not None:
            network.to(trainer.strategy.root_device)
            self._distances[self.perceptual] = lambda fake, real: network(fake * 2 - 1, real * 2 - 1)

    def _images(self, trainer: Trainer, module: AdversarialModule, rank: int = 0, world_size: int = 1) -> Tensor:
        assert isinstance(module, AutoencoderKL)
        return module.held_out_share(data_of(trainer), self.num_samples, rank, world_size)

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        data_sha256, num, shape = fingerprint([self._images(trainer, module)])
        images = {"num_fake": num, "data_sha256": data_sha256, "image_size": shape[1:]}
        perceptual = {"perceptual": self.perceptual, "perceptual_sha256": self._perceptual_sha256}
        return super().stamp(trainer, module) | images | perceptual

    @torch.no_grad()
    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        images = self._images(trainer, module, trainer.global_rank, trainer.world_size)
        # some ranks have no images if there are fewer images than ranks
        batches = images.split(self.batch_size) if len(images) else ()
        device = "cpu" if module.device.type == "mps" else module.device  # MPS lacks float64
        mean = MeanMetric(nan_strategy="disable").set_dtype(torch.float64).to(device)
        means = {name: mean.clone() for name in self._distances}
        for batch in self.until_stopped(trainer, batches):
            fake, real = module.decode(to_networks(batch)), to_unit_range(batch).to(module.device)
            for name, distance in self._distances.items():
                means[name].update(distance(fake, real).to(device))
        return {f"metric/{name}": mean.compute().item() for name, mean in means.items()}
