from unittest.mock import create_autospec

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins.precision import MixedPrecision

from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.training import adversarial as base
from lit_gans.training.optim import SGD


class WithoutAutocast(NetworkScaling):
    """The scaler alone, in float32: a scaled and unscaled gradient must be the gradient."""

    def __init__(self):
        super().__init__("cpu", lambda: torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1))

    def forward_context(self):
        return torch.autocast("cpu", enabled=False)

    train_step_context = forward_context


@pytest.mark.parametrize("name", ["d2gan", "dcgan", "wgan_gp"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_scaled_training_is_the_unscaled_one(tiny_gan, random_images, fit, monkeypatch, name, accumulate):
    """The scale doubles after every step of a network: unscaled by another network's, gradients would be off by 2."""
    monkeypatch.setattr(base, "refuse_trainer", lambda *_: None)
    optimizers = {"generator_optimizer": SGD(0.05), "discriminator_optimizer": SGD(0.05)}
    settings = {"accumulate_gradients": accumulate, "clip_gradients": 0.1, **optimizers}
    plain, scaled = (tiny_gan(name, **settings) for _ in range(2))
    fit(plain, random_images(batch_size=4), max_steps=3)
    plugin = WithoutAutocast()
    fit(scaled, random_images(batch_size=4), max_steps=3, plugins=[plugin])
    torch.testing.assert_close(scaled.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)
    steps = {network: 3 * (1 if network == "generator" else scaled.n_critic) for network in scaled.network_names}
    assert {network: scaler.get_scale() for network, scaler in plugin._scalers.items()} == {
        network: 4.0 * 2**num for network, num in steps.items()
    }
    again = WithoutAutocast()
    again.load_state_dict(plugin.state_dict())
    assert again.state_dict() == plugin.state_dict()


def test_a_scaler_of_the_user_is_copied_for_each_network(tiny_gan):
    module = tiny_gan("d2gan")
    trainer = create_autospec(Trainer, instance=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=7)
    trainer.precision_plugin, trainer.datamodule = MixedPrecision("16-mixed", "cpu", scaler), None
    trainer.strategy.root_device, trainer.precision = torch.device("cuda"), "16-mixed"
    module._trainer = trainer
    base.AdversarialModule.setup(module, "fit")
    own = [trainer.strategy.precision_plugin._scaler(name) for name in module.network_names]
    assert [each.get_scale() for each in own] == [8.0] * 3
    assert [each.get_growth_interval() for each in own] == [7] * 3
    assert len({id(each) for each in (*own, scaler)}) == 4


def test_each_optimizer_has_a_scaler_of_its_own():
    module = TwoNetworks()
    optimizers = [torch.optim.SGD([parameter], 0.1) for parameter in module.one.parameters()]
    plugin = NetworkScaling("cpu")
    plugin.connect(module, optimizers, [])
    assert [plugin._stepped_by(optimizer) for optimizer in optimizers] == ["one.weight", "one.bias"]


class TwoNetworks(LightningModule):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
