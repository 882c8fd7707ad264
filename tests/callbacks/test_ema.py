import pytest
import torch

from lit_gans.callbacks import EMA
from lit_gans.training.schedules import LinearSchedule


class Trajectory(EMA):
    """Keeps the generator's weights of each iteration."""

    def on_train_start(self, trainer, pl_module):
        super().on_train_start(trainer, pl_module)
        self.weights = [{n: p.detach().clone() for n, p in pl_module.generator.named_parameters()}]

    def on_train_batch_end(self, trainer, pl_module, *arguments):
        super().on_train_batch_end(trainer, pl_module, *arguments)
        self.weights.append({n: p.detach().clone() for n, p in pl_module.generator.named_parameters()})


def halved(images_of_half_life):
    """The share that is kept over the 8 images of an iteration."""
    return 0.5 ** (8 / images_of_half_life) if images_of_half_life else 0.0


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"decay": 0.1}, lambda step: min(0.1, (1 + step) / (10 + step))),
        ({"decay": 0.999}, lambda step: (1 + step) / (10 + step)),
        ({"half_life": 12.0}, lambda step: halved(12.0)),
        ({"half_life": LinearSchedule(0.0, 32.0, over=32, unit="images")}, lambda step: halved(8 * (step - 1))),
    ],
)
def test_the_average_equals_the_recursion_written_by_hand(tiny_gan, random_images, fit, settings, kept):
    module, callback = tiny_gan(n_critic=2), Trajectory(**settings)
    fit(module, random_images(batch_size=4), max_steps=4, callbacks=[callback])
    expected, *later = callback.weights
    for step, weights in enumerate(later, start=1):
        expected = {name: kept(step) * expected[name] + (1 - kept(step)) * weights[name] for name in weights}
    averaged = module.averaged_generator
    torch.testing.assert_close(dict(averaged.named_parameters()), expected, rtol=1e-5, atol=1e-7)
    trained = dict(module.generator.named_buffers())
    torch.testing.assert_close(dict(averaged.named_buffers()), trained, rtol=0, atol=0)
    assert not averaged.training
    assert not any(parameter.requires_grad for parameter in averaged.parameters())
    assert {name.partition(".")[0] for name, _ in module.named_parameters()} == {"generator", "discriminator"}


def test_an_existing_average_is_continued(tiny_gan, random_images, fit):
    module = tiny_gan()
    module.start_average()
    with torch.no_grad():
        for parameter in module.averaged_generator.parameters():
            parameter.fill_(7.0)
    fit(module, random_images(), max_steps=1, callbacks=[EMA(0.999)])
    trained = dict(module.generator.named_parameters())
    for name, averaged in module.averaged_generator.named_parameters():
        torch.testing.assert_close(averaged, 2 / 11 * 7 + 9 / 11 * trained[name], rtol=1e-5, atol=1e-6)
