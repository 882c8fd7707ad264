import json
import math

import pytest
import torch

from lit_gans.callbacks import EMA, ModeMetrics
from lit_gans.data.sources.points import Ring
from lit_gans.data.sources.stacked_digits import StackedDigits
from lit_gans.metrics.extractors.digits import DigitsExtractor


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


def test_values_are_those_counted_by_hand(points, fit):
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


def test_real_images_cover_their_own_triples(tiny_gan, random_images, fit):
    trainer = fit(tiny_gan(), random_images(), max_steps=1)
    module, data = tiny_gan(image_size=32, channels=3), StackedDigits(num_images=120)
    trainer._data_connector.attach_datamodule(module, data)
    data.set_classifier(DigitsExtractor())
    real = data.dataset[torch.arange(120)]
    batches = iter((real["image"].float() / 127.5 - 1).split(50))
    module.generate = lambda generator, batch: next(batches)
    values = ModeMetrics(num_samples=120, batch_size=50).measure(trainer, module)
    assert values["metric/modes_covered"] == pytest.approx(len(real["label"].unique()), rel=0.05)
    assert values["metric/high_quality"] == 1


def test_the_protocols_of_all_measurements_stand_side_by_side(points, fit, tmp_path):
    callback = ModeMetrics(num_samples=60, batch_size=30, seed=4)
    (tmp_path / "protocol.json").write_text('{"metric/l1": {"seed": 9}}')
    fit(points, Ring(num_points=64, batch_size=16), max_steps=1, callbacks=[EMA(), callback])
    written = json.loads((tmp_path / "protocol.json").read_text())
    assert written == {"metric/l1": {"seed": 9}, "metric/modes_covered": callback.protocol}
    expected = {"num_fake": 60, "seed": 4, "weights": "ema", "num_modes": 8, "min_samples": 20}
    assert expected.items() <= callback.protocol.items()
    assert "Ring" in callback.protocol["data"]
    assert callback.state_dict()["protocol"] == callback.protocol
