"""Measurements of modes, pairs and reconstructions: values against those counted by hand, and their protocols."""

import json
import math

import pytest
import torch
from torchmetrics.image import StructuralSimilarityIndexMeasure

from lit_gans.callbacks import EMA, ModeMetrics, PairedMetrics, ReconstructionMetrics
from lit_gans.data.digests import fingerprint
from lit_gans.data.sources.points import Ring
from lit_gans.metrics.perceptual import perceptual_network
from lit_gans.training.translator import spread

from .test_early_stopping import Given


@pytest.fixture
def points(tiny_gan):
    """A GAN of points."""
    return tiny_gan("gan", image_size=1, channels=2)


def near_the_centers(centers):
    """A generator whose latent says the mode by three signs; a third of its points lie between the modes."""

    def generate(generator, batch):
        latents = batch["latents"]
        modes = (latents[:, :3] > 0).long() @ torch.tensor([4, 2, 1])
        shift = torch.where(latents[:, 3:4] > 0.43, 0.6, 0.1)
        return (centers[modes] * (1 - shift / 2))[:, :, None, None]

    return generate


def test_modes_are_those_counted_by_hand(points, fit):
    data, callback = Ring(num_points=64, batch_size=16), ModeMetrics(num_samples=300, batch_size=70, seed=5)
    trainer = fit(points, data, max_steps=1)
    points.generate = near_the_centers(data.centers)
    counts, inside = [0] * 8, 0
    for x, y in points.sample(300, seed=5).flatten(1).tolist():
        distances = [math.dist((x, y), center) for center in data.centers.tolist()]
        if min(distances) <= 3 * math.sqrt(0.02):
            counts[distances.index(min(distances))] += 1
            inside += 1
    assert 150 < inside < 250
    shares = [count / inside for count in counts]
    values = callback.measure(trainer, points)
    assert values["metric/modes_covered"] == sum(count >= 20 for count in counts)
    assert values["metric/high_quality"] == pytest.approx(inside / 300)
    assert values["metric/kl_uniform"] == pytest.approx(sum(s * math.log(8 * s) for s in shares if s), abs=1e-5)


def test_the_protocols_of_all_measurements_stand_side_by_side(points, fit, tmp_path):
    callback = ModeMetrics(num_samples=60, batch_size=30, seed=4)
    given = Given([1.0, 2.0])
    fit(points, Ring(num_points=64, batch_size=16), max_steps=1, callbacks=[EMA(), given, callback])
    written = json.loads((tmp_path / "protocol.json").read_text())
    assert written == {"metric/given": given.protocol, "metric/modes_covered": callback.protocol}
    expected = {"num_fake": 60, "seed": 4, "weights": "ema", "num_modes": 8, "min_samples": 20}
    assert expected.items() <= callback.protocol.items()
    assert callback.protocol["precision"] == "at least float32, without TF32"
    assert "Ring" in callback.protocol["data"]
    assert callback.state_dict()["protocol"] == callback.protocol


def test_pairs_differ_by_the_mean_over_translations_and_held_out_targets(tiny_gan, random_images, fit):
    module, data, callback = tiny_gan("pix2pix"), random_images(), PairedMetrics(num_samples=20, batch_size=8, seed=3)
    trainer = fit(module, data, max_steps=1, callbacks=[EMA(), callback])
    pictures, targets = (data.held_out[name][:20].double().div(255) for name in ("input", "image"))
    total = 0.0
    for start in range(0, 20, 8):  # the batches of the measurement, whose dropout begins anew in each
        images = module.translate(pictures[start : start + 8].float(), seed=3)
        total += sum((image - target).abs().mean() for image, target in zip(images, targets[start:], strict=False))
    assert callback.values["metric/l1"] == pytest.approx(total.item() / 20, rel=1e-5)
    other = PairedMetrics(num_samples=20, batch_size=8, seed=4).measure(trainer, module)
    assert callback.values != other, "another dropout"
    digest = fingerprint([data.held_out["image"][:20]])[0]
    assert {"num_fake": 20, "data_sha256": digest, "weights": "ema"}.items() <= callback.protocol.items()


@pytest.mark.runs
def test_reconstructions_are_compared_with_held_out_images(tiny_gan, random_images, fit):
    module, data = tiny_gan("autoencoder_kl", channels=3), random_images(channels=3)
    callback = ReconstructionMetrics(num_samples=20, batch_size=8)
    values = callback.measure(fit(module, data, 1, callbacks=[callback]), module)
    real = spread(data.held_out["image"], 20) / 255
    made = module.translate(real)
    noise = (made.double() - real).square().mean((1, 2, 3))
    assert values["metric/psnr"] == pytest.approx((-10 * noise.log10()).mean().item(), rel=1e-5)
    assert values["metric/l1"] == pytest.approx((made - real).abs().mean().item(), rel=1e-5)
    similarity = StructuralSimilarityIndexMeasure(data_range=1.0)
    assert values["metric/ssim"] == pytest.approx(similarity(made, real).item(), rel=1e-4)
    network = perceptual_network("efficientnet_lite0", None, 3)
    expected = network(made * 2 - 1, real * 2 - 1).mean().item()
    assert values["metric/efficientnet_lite0"] == pytest.approx(expected, rel=1e-4)
    directions = {"metric/psnr": "max", "metric/ssim": "max", "metric/l1": "min", "metric/efficientnet_lite0": "min"}
    assert callback.directions == directions
    digest = fingerprint([spread(data.held_out["image"], 20)])[0]
    named = {"num_fake": 20, "data_sha256": digest, "perceptual": "efficientnet_lite0", "weights": "raw"}
    assert named.items() <= callback.protocol.items()
