"""Scores inside classes during training: what is asked for, logged and reported."""

import pytest
import torch

from lit_gans.callbacks import GenerativeMetrics
from lit_gans.data.images import to_uint8
from lit_gans.metrics.extractors.digits import DigitsExtractor


@pytest.mark.parametrize("batch_size", [16, 25])
def test_a_generator_with_classes_is_measured_by_the_classes_that_it_is_asked_for(
    tiny_gan, random_images, fit, batch_size
):
    module, asked = tiny_gan(num_classes=10), []
    generate = module.generate
    module.generate = lambda generator, batch: asked.extend(batch["label"].tolist()) or generate(generator, batch)
    metrics = GenerativeMetrics(DigitsExtractor(), num_samples=45, batch_size=batch_size)
    trainer = fit(module, random_images(), max_steps=1, callbacks=[metrics])
    assert "4 images in a class are too few for 64 features" in metrics.left_out["intra_fid"]
    assert "left out: intra_fid" in "\n".join(metrics.summary())
    asked.clear()
    metrics._measure(trainer, module)
    assert asked == [*range(10)] * 4 + [*range(5)], "also where batches do not end with a class"
    labels = torch.tensor(asked)
    _, logits = DigitsExtractor()(to_uint8(module.sample(45, seed=1)))
    accuracy = (logits.argmax(1) == labels).double().mean().item()
    assert metrics.values["metric/class_accuracy_digits"] == pytest.approx(accuracy)
    assert metrics.directions["metric/class_accuracy_digits"] == "max"
    assert "class_accuracy_digits" in "\n".join(metrics.summary())


def test_a_generator_without_classes_is_not_asked_for_any(tiny_gan, random_images, fit):
    metrics = GenerativeMetrics(DigitsExtractor(), num_samples=40)
    fit(tiny_gan(), random_images(), max_steps=1, callbacks=[metrics])
    assert not {"metric/class_accuracy_digits", "metric/intra_fid_digits"} & set(metrics.values)
    assert not {"intra_fid", "class_accuracy"} & set(metrics.left_out)
