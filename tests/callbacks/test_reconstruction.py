import pytest
from torchmetrics.image import StructuralSimilarityIndexMeasure

from lit_gans.callbacks.reconstruction import ReconstructionMetrics
from lit_gans.metrics.cache import fingerprint
from lit_gans.metrics.perceptual import perceptual_network
from lit_gans.training.translator import spread


def test_values_are_means_over_held_out_images(tiny_gan, random_images, fit):
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
    named = {"num_fake": 20, "data_sha256": digest, "perceptual": "efficientnet_lite0"}
    assert named.items() <= callback.protocol.items()
