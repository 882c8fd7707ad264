"""TF32 is a choice of the training step alone: samples, features and metrics are computed without it."""

import pytest
import torch

from lit_gans.callbacks import GenerativeMetrics
from lit_gans.metrics.extractors.digits import DigitsExtractor


def allowed():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def noting(seen, name, function):
    def noted(*args, **kwargs):
        seen.setdefault(name, set()).add(allowed())
        return function(*args, **kwargs)

    return noted


@pytest.mark.parametrize(
    ("chosen", "precision", "expected"),
    [(False, "32-true", False), (True, "32-true", True), (False, "bf16-mixed", True)],
)
def test_tf32_is_used_where_it_is_chosen(tiny_gan, random_images, fit, monkeypatch, chosen, precision, expected):
    module, seen, before = tiny_gan(tf32=chosen), {}, allowed()
    for name in ("discriminator_losses", "generator_loss", "generate"):
        monkeypatch.setattr(module, name, noting(seen, name, getattr(module, name)))
    extractor = DigitsExtractor()
    monkeypatch.setattr(extractor, "forward", noting(seen, "features", extractor.forward))
    metrics = GenerativeMetrics(extractor, num_samples=8, batch_size=8, every_n_steps=2)
    fit(module, random_images(), max_steps=2, precision=precision, callbacks=[metrics])
    assert seen.pop("generate") == {(expected, expected), (False, False)}, "in training, and for metrics"
    assert seen.pop("features") == {(False, False)}
    assert seen == {name: {(expected, expected)} for name in ("discriminator_losses", "generator_loss")}
    module.sample(1)
    assert allowed() == before
    assert metrics.protocol["precision"] == "at least float32, without TF32"


def test_an_error_in_a_step_leaves_the_settings_of_the_process(tiny_gan, random_images, fit, monkeypatch):
    module, before = tiny_gan(), allowed()
    monkeypatch.setattr(module, "generator_loss", lambda *_: (_ for _ in ()).throw(KeyError("planted")))
    with pytest.raises(KeyError, match="planted"):
        fit(module, random_images(), max_steps=1)
    assert allowed() == before
