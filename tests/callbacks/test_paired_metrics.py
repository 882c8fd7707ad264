import pytest

from lit_gans.callbacks import PairedMetrics
from lit_gans.metrics.cache import fingerprint


@pytest.fixture
def module(tiny_gan):
    return tiny_gan("pix2pix")


def test_the_value_is_the_mean_difference_of_translations_and_held_out_targets(module, random_images, fit):
    data = random_images()
    trainer = fit(module, data, max_steps=1)
    pictures, targets = (data.held_out[name][:20].double().div(255) for name in ("input", "image"))
    total = 0.0
    for start in range(0, 20, 8):  # the batches of the measurement, whose dropout begins anew in each
        images = module.translate(pictures[start : start + 8].float(), seed=3)
        total += sum((image - target).abs().mean() for image, target in zip(images, targets[start:], strict=False))
    value = PairedMetrics(num_samples=20, batch_size=8, seed=3).measure(trainer, module)["metric/l1"]
    assert value == pytest.approx(total.item() / 20, rel=1e-5)
    assert value != PairedMetrics(num_samples=20, batch_size=8, seed=4).measure(trainer, module)["metric/l1"]


def test_the_protocol_names_the_held_out_targets(module, random_images, fit):
    data, callback = random_images(), PairedMetrics(num_samples=30)
    trainer = fit(module, data, max_steps=1, callbacks=[callback])
    digest = fingerprint([data.held_out["image"][:30]])[0]
    assert {"num_fake": 30, "data_sha256": digest, "weights": "raw"}.items() <= callback.protocol.items()
    data.held_out["image"][0] = 255 - data.held_out["image"][0]
    assert callback.stamp(trainer, module)["data_sha256"] != digest
