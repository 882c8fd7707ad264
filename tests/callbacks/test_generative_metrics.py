import pytest
import torch

from lit_gans.callbacks import EMA, GenerativeMetrics, Samples
from lit_gans.metrics.digits import DigitsExtractor


@pytest.fixture
def metrics():
    return GenerativeMetrics(DigitsExtractor(), every_n_steps=2, num_samples=40, batch_size=16)


def test_training_is_bitwise_the_same_with_and_without_evaluation(tiny_gan, random_images, fit, metrics):
    first, second = tiny_gan(), tiny_gan()
    fit(first, random_images(), max_steps=5, callbacks=[EMA(), metrics, Samples(every_n_steps=1, num=4)])
    fit(second, random_images(), max_steps=5)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


def test_measures_at_zero_in_between_and_at_the_end(tiny_gan, random_images, fit, metrics):
    seen, original = [], metrics._measure
    metrics._measure = lambda trainer, module: (seen.append(trainer.global_step), original(trainer, module))
    trainer = fit(tiny_gan(), random_images(), max_steps=5, callbacks=[EMA(), metrics])
    assert seen == [0, 2, 4, 5]
    assert set(metrics.values) == {"metric/fid_digits", "metric/is_digits", "metric/classes_covered"}
    assert trainer.callback_metrics["metric/fid_digits"].item() == pytest.approx(metrics.values["metric/fid_digits"])
    assert metrics.first != metrics.values
    assert "at iteration 5" in "\n".join(metrics.summary())


def test_measures_the_averaged_generator(tiny_gan, random_images, fit, metrics):
    module = tiny_gan()
    fit(module, random_images(), max_steps=2, callbacks=[EMA(), metrics])
    values = dict(metrics.values)
    with torch.no_grad():
        for parameter in module.generator.parameters():
            parameter.mul_(0)
    trainer = fit(tiny_gan(), random_images(), max_steps=0)
    trainer.fit_loop.epoch_loop.max_steps = 0
    metrics._measure(trainer_of(trainer, random_images()), module)
    assert metrics.values == values, "the raw generator does not matter"


def trainer_of(trainer, data):
    trainer._data_connector.attach_datamodule(trainer.lightning_module, data)
    return trainer
