"""The perceptual path length is that of torchmetrics, and of a linear generator the closed form."""

import pytest
from torch import nn
from torchmetrics.functional.image import perceptual_path_length

from lit_gans.callbacks import EMA, PathLength
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.perceptual import perceptual_network


class Given(nn.Module):
    """A generator for torchmetrics, whose latents are given."""

    def __init__(self, gan, latents):
        super().__init__()
        self.gan, self.latents = gan, iter(latents)

    def sample(self, num_samples):
        return next(self.latents)[:num_samples]

    def forward(self, latents):
        return 255 * self.gan.decode(latents)


def test_the_value_is_that_of_torchmetrics(tiny_gan, random_images, fit):
    module, callback = tiny_gan("dcgan", channels=3), PathLength(num_samples=40, batch_size=16, seed=4, epsilon=0.1)
    trainer = fit(module, random_images(channels=3), 1, callbacks=[EMA(), callback])
    value = callback.measure(trainer, module)["metric/ppl_efficientnet_lite0"]
    given = Given(module, [module.latents(40, seed) for seed in (4, 5)])
    network = perceptual_network("efficientnet_lite0", None, 3)
    expected, *_ = perceptual_path_length(given, num_samples=40, batch_size=16, epsilon=0.1, sim_net=network)
    assert value == pytest.approx(expected.item(), rel=1e-4)
    assert value > 0
    assert callback.values["metric/ppl_efficientnet_lite0"] == value
    assert {"epsilon": 0.1, "seed": 4, "num_fake": 40, "weights": "ema"}.items() <= callback.protocol.items()
    assert len(callback.protocol["perceptual_sha256"]) == 64


def test_both_images_of_a_pair_have_the_same_class(tiny_gan, random_images, fit, monkeypatch):
    data = random_images()
    module, callback = tiny_gan("dcgan", num_classes=10), PathLength(num_samples=9, batch_size=4, epsilon=1.0)
    trainer = fit(module, data, 1, callbacks=[callback])

    def by_class(latents, *, labels, seed):
        return labels[:, None, None, None].expand(-1, 1, 16, 16) / 10

    monkeypatch.setattr(module, "decode", by_class)
    assert callback.measure(trainer, module) == {"metric/ppl_efficientnet_lite0": 0.0}


def test_a_linear_path_has_a_length_in_closed_form(tiny_gan, random_images, fit, monkeypatch):
    module, callback = tiny_gan("dcgan"), PathLength(num_samples=50, batch_size=20, seed=2, epsilon=0.01)
    trainer = fit(module, random_images(), 1, callbacks=[callback])
    monkeypatch.setattr(module, "decode", lambda latents, **_: latents[:, :1, None, None] / 2 + 0.5)
    monkeypatch.setattr(callback, "_network", lambda one, other: (one - other).square().flatten(1).sum(1))
    steps = (module.latents(50, 3) - module.latents(50, 2))[:, 0].square().sort().values
    low, high = (steps.quantile(share, interpolation="lower") for share in (0.01, 0.99))
    expected = steps[(steps >= low) & (steps <= high)].mean().item()
    assert callback.measure(trainer, module)["metric/ppl_efficientnet_lite0"] == pytest.approx(expected, rel=1e-3)


def test_no_distance_and_no_step_are_refused():
    with pytest.raises(RefusedInput, match="perceptual=none has no distance"):
        PathLength(perceptual="none")
    with pytest.raises(RefusedInput, match="epsilon=0"):
        PathLength(epsilon=0.0)
