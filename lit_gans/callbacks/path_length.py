"""Callback that measures how smoothly the generated images depend on the latents.

Karras et al. 2019, "A Style-Based Generator Architecture for Generative Adversarial Networks", section 4.1 (perceptual
path length).
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Trainer
from torchmetrics import CatMetric

from lit_gans.callbacks.evaluation import Measurement, share
from lit_gans.common.errors import RefusedInput, refuse_not_positive
from lit_gans.common.identity import digest_of
from lit_gans.metrics.evaluator import with_labels
from lit_gans.metrics.perceptual import Perceptual, PerceptualNetwork, perceptual_network
from lit_gans.training.callback import data_of
from lit_gans.training.module import AdversarialModule
from lit_gans.training.translator import Translator

_KEPT = (0.01, 0.99)  # quantiles of the distances between which they are averaged, as in the authors' code


class PathLength(Measurement):
    """Measures the perceptual path length of the generator, lower is smoother.

    Logs `metric/ppl_<perceptual>`: the mean of d(G(z), G(z + epsilon (z' - z))) / epsilon^2 over pairs of latents z and
    z', where d is a perceptual distance. The lowest and the highest percent of the distances are left out. Images have
    the size of the generator. A conditional generator gives both images of a pair the same class. These are the
    settings of torchmetrics' `perceptual_path_length` without resizing. See `Measurement` for the schedule.

    Args:
        every_n_steps: number of generator iterations between two measurements. The last iteration is always measured.
        num_samples: number of pairs of latents.
        batch_size: number of pairs at once.
        seed: seed of the latents.
        epsilon: step between the latents of a pair, as a fraction of z' - z.
        perceptual: name of the network of the distance, see `perceptual_network`. Values of different networks cannot
            be compared; papers use `lpips_vgg`.
        perceptual_file: file with the network's weights, see `perceptual_network`.

    Raises:
        RefusedInput: If a number is below 1, `epsilon` is not positive, or the model translates images.
    """

    _network: PerceptualNetwork

    def __init__(
        self,
        every_n_steps: int = 1000,
        num_samples: int = 2500,
        batch_size: int = 64,
        seed: int = 1,
        epsilon: float = 1e-4,
        perceptual: Perceptual = "efficientnet_lite0",
        perceptual_file: str | None = None,
    ) -> None:
        super().__init__(every_n_steps, num_samples, batch_size, seed)
        refuse_not_positive(epsilon=epsilon)
        if perceptual == "none":
            raise RefusedInput("perceptual=none has no distance: use efficientnet_lite0, or lpips_vgg with its file.")
        self.epsilon, self.perceptual, self.perceptual_file = epsilon, perceptual, perceptual_file
        self.headline = f"metric/ppl_{perceptual}"
        self.directions = {self.headline: "min"}

    def prepare(self, trainer: Trainer, module: AdversarialModule) -> None:
        if isinstance(module, Translator):
            raise RefusedInput(f"{self.headline} needs latents, but {type(module).__name__} translates images.")
        network = perceptual_network(self.perceptual, self.perceptual_file, module.channels)
        assert network is not None
        self._network = network.to(trainer.strategy.root_device)

    def stamp(self, trainer: Trainer, module: AdversarialModule) -> dict[str, Any]:
        sha256 = digest_of(self._network.state_dict())
        settings = {"perceptual": self.perceptual, "perceptual_sha256": sha256, "epsilon": self.epsilon}
        return super().stamp(trainer, module) | settings

    @torch.no_grad()
    def measure(self, trainer: Trainer, module: AdversarialModule) -> dict[str, float]:
        rows, data = share(torch.arange(self.num_samples), trainer), data_of(trainer)
        seeds = self.seed, self.seed + 1
        pairs = torch.stack([module.sampling_share(rows, self.num_samples, seed, data) for seed in seeds], dim=1)
        batches = pairs.split(self.batch_size) if len(pairs) else ()
        distances = CatMetric().to(module.device)
        for batch, labels in self.until_stopped(trainer, with_labels(batches, self.requested_labels(trainer, module))):
            start, end = batch.unbind(1)
            latents = start, start + self.epsilon * (end - start)
            images = [module.decode(each, labels=labels, seed=self.seed).to(module.device) for each in latents]
            distances.update(self._network(*(each * 2 - 1 for each in images)) / self.epsilon**2)
        values = distances.compute()
        low, high = values.quantile(torch.tensor(_KEPT).to(values), interpolation="lower")
        return {self.headline: values[(values >= low) & (values <= high)].mean().item()}
