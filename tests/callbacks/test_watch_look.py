"""A look of the watch leaves the training as it was, and refuses what it cannot look at."""

import re

import pytest
import torch
from lightning.pytorch import Trainer

from lit_gans.callbacks import Watch
from lit_gans.common.errors import RefusedInput


@pytest.mark.parametrize("name", ["dcgan", "sngan", "d2gan", "pix2pix"])
def test_a_training_with_a_watch_is_bitwise_the_one_without(tiny_gan, random_images, fit, name):
    first, second = tiny_gan(name), tiny_gan(name)
    fit(first, random_images(batch_size=4), max_steps=5, callbacks=[Watch(every_n_steps=1)])
    fit(second, random_images(batch_size=4), max_steps=5)
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["dcgan", "sngan", "pix2pix"])
def test_a_look_leaves_modes_random_state_and_buffers_as_they_were(tiny_gan, random_images, fit, name):
    module, data = tiny_gan(name, n_critic=1), random_images()
    trainer = fit(module, data, max_steps=1)
    module.train()
    for layer in list(module.modules())[3::4]:
        layer.training = False
    modes = {path: layer.training for path, layer in module.named_modules()}
    state = {key: value.clone() for key, value in module.state_dict().items()}
    assert set(modes.values()) == {True, False}
    torch.manual_seed(11)
    random_state = torch.get_rng_state()
    Watch()._look(trainer, module, data.dataset[torch.arange(8)])
    assert modes == {path: layer.training for path, layer in module.named_modules()}
    assert torch.equal(torch.get_rng_state(), random_state)
    torch.testing.assert_close(dict(module.state_dict()), state, rtol=0, atol=0)
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in module.parameters())


def test_modes_are_restored_also_after_an_error(tiny_gan, random_images, fit):
    module, data = tiny_gan(), random_images()
    trainer = fit(module, data, max_steps=1)
    module.train()

    def fail(*_):
        raise RuntimeError("no image")

    module.generate = fail
    with pytest.raises(RuntimeError, match="no image"):
        Watch()._look(trainer, module, data.dataset[torch.arange(8)])
    assert all(layer.training for layer in module.modules())


def test_a_look_sees_the_networks_in_evaluation_mode_and_no_gradient(tiny_gan, random_images, fit):
    module, data, seen = tiny_gan("d2gan", n_critic=2), random_images(batch_size=4), []
    trainer = fit(module, data, max_steps=1)
    module.train()
    for name in module.network_names:
        getattr(module, name).register_forward_hook(
            lambda layer, _, made: seen.append((layer.training, made.requires_grad, len(made)))
        )
    Watch()._look(trainer, module, data.dataset[torch.arange(8)])
    assert seen == [(False, False, 4)] * 5, "one batch generated, and two seen by each discriminator"


@pytest.mark.parametrize(
    "settings", [{"every_n_steps": 0}, {"patience": 0}, {"min_diversity": 1.0}, {"min_diversity": -0.1}]
)
def test_refusals(settings):
    ((name, value),) = settings.items()
    with pytest.raises(RefusedInput, match=re.escape(f"{name}={value}")):
        Watch(**settings)


def test_pix2pix_on_a_plain_loader_is_watched(tiny_gan):
    class Pairs(torch.utils.data.TensorDataset):
        def __getitem__(self, index):
            picture, image = super().__getitem__(index)
            return {"input": picture, "image": image}

    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet = dict.fromkeys(switches, False)
    trainer = Trainer(max_epochs=1, accelerator="cpu", callbacks=[Watch(every_n_steps=1)], **quiet)
    trainer.fit(tiny_gan("pix2pix"), torch.utils.data.DataLoader(Pairs(*torch.rand(2, 8, 1, 16, 16)), batch_size=4))
    assert trainer.global_step == 2
