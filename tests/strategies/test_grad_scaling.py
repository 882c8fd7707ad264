import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.plugins.precision import MixedPrecision

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.grad_scaling import NetworkScaling
from lit_gans.training import module as base
from lit_gans.training.optim import OptimizerConfig

from . import ranks
from .acceptance.cells import STEPS, Cell, train, trained_alone
from .own_modules import ClipsTooEarly, Own
from .ranks import quiet_trainer
from .test_adversary import train as train_with_adversary
from .test_own_module import train as train_own


def stock_scaling():
    """Lightning's plugin with its scaler alone, in float32."""
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1))
    plugin.forward_context = plugin.train_step_context = lambda: torch.autocast("cpu", enabled=False)
    return plugin


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
    optimizers = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), OptimizerConfig("SGD", lr=0.05))
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


def test_fp16_resumes_a_checkpoint_whose_optimizers_were_not_fused(tiny_gan, random_images, fit, tmp_path, monkeypatch):
    """The first step overflows, and the fused optimizer skips it on the device."""
    monkeypatch.setattr(base, "refuse_trainer", lambda *_: None)
    saved, file = fit(tiny_gan(), random_images(), max_steps=1), tmp_path / "saved.ckpt"
    saved.save_checkpoint(file)
    checkpoint = torch.load(file, weights_only=True)
    for state in checkpoint["optimizer_states"]:
        state["param_groups"][0]["fused"] = None
    torch.save(checkpoint, file)
    module = tiny_gan()
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**40))
    fit(module, random_images(), max_steps=2, plugins=[plugin], resume=file)
    assert [optimizer.param_groups[0]["fused"] for optimizer in module.trainer.optimizers] == [True, True]
    weights = {name: value for name, value in module.state_dict().items() if "running" not in name}
    for name, value in weights.items():
        if "num_batches" not in name:
            assert torch.equal(value, checkpoint["state_dict"][name]), name


IN_TURN = {"every second": "Distillation", "starts late": "Autoencoder", "toggled": "LightningGAN"}


@pytest.mark.filterwarnings("ignore:Found .* in eval mode")
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("name", IN_TURN)
def test_scalers_of_alternating_optimizers(name, clip):
    """The scale doubles after every step: gradients that are clipped before they are unscaled would be too small."""
    cell = Cell(IN_TURN[name], "", clip=clip)
    scaled = train(cell, devices=1, plugins=[plugin := WithoutAutocast()]).state_dict()
    torch.testing.assert_close(scaled, trained_alone(cell.example, 1, clip, False), rtol=1e-5, atol=1e-6)
    late = STEPS // 2 if name != "toggled" else STEPS
    assert sorted(scaler.get_scale() for scaler in plugin._scalers.values()) == [4.0 * 2**late, 4.0 * 2**STEPS]


@pytest.mark.parametrize("strategy", ["auto", "network_ddp"])
def test_a_module_with_an_adversary_freezes_nothing(strategy):
    """Each of its losses depends on one network, whose scaler scales it."""
    plain = train_with_adversary(devices=1, strategy=strategy).state_dict()
    plugin = WithoutAutocast()
    scaled = train_with_adversary(devices=1, strategy=strategy, plugins=[plugin]).state_dict()
    torch.testing.assert_close(scaled, plain, rtol=1e-5, atol=1e-6)
    assert sorted(scaler.get_scale() for scaler in plugin._scalers.values()) == [4.0 * 2**4, 4.0 * 2**5]


def test_a_loss_that_depends_on_two_unfrozen_networks_is_refused():
    class FreezesNothing(Own):
        def train_only(self, network):
            """Does nothing."""

    with pytest.raises(RefusedInput, match=r"but the networks \['generator', 'critic'\] require gradients of its loss"):
        train_own(FreezesNothing, devices=1, plugins=[WithoutAutocast()])


class SkipsSteps(Own):
    """Clips, and leaves out the steps of the third iteration, as on a peak of the loss."""

    sets_to_none = True

    def step(self, optimizer):
        self.clip_gradients(optimizer, 1e9, "norm")
        if self.trainer.fit_loop.epoch_loop.batch_idx != 2:
            optimizer.step()
        optimizer.zero_grad(set_to_none=self.sets_to_none)


class SkipsStepsWithZeros(SkipsSteps):
    sets_to_none = False


@pytest.mark.parametrize("module", [SkipsSteps, SkipsStepsWithZeros])
def test_a_step_that_is_left_out_does_not_change_the_next(module):
    scaled = train_own(module, devices=1, plugins=[WithoutAutocast()]).state_dict()
    torch.testing.assert_close(scaled, train_own(module, devices=1).state_dict(), rtol=1e-5, atol=1e-6)


class StepsItsOwn(Own):
    def configure_optimizers(self):
        self.own = super().configure_optimizers()
        return self.own

    def step(self, optimizer):
        super().step(next(each for each in self.own if each is optimizer.optimizer))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (ClipsTooEarly, "this backward pass would add scaled gradients to them: clip after the last backward pass"),
        (
            StepsItsOwn,
            r"the optimizer of critic would step with gradients that are scaled for fp16: step the optimizer",
        ),
    ],
)
def test_scaled_gradients_that_would_be_taken_for_unscaled_ones_are_refused(module, message):
    train_own(module, devices=1)
    with pytest.raises(RefusedInput, match=message):
        train_own(module, devices=1, plugins=[WithoutAutocast()])


class KeepsItsOptimizers(StepsItsOwn):
    own = None

    def configure_optimizers(self):
        return self.own or super().configure_optimizers()


def test_a_scaler_does_not_check_the_optimizers_of_a_later_training():
    module = KeepsItsOptimizers()
    with pytest.raises(RefusedInput, match="scaled for fp16"):
        quiet_trainer(max_epochs=1, devices=1, plugins=[WithoutAutocast()]).fit(module)
    quiet_trainer(max_epochs=1, devices=1).fit(module)


def on_a_rank():
    """Trains with Lightning's scaler under autocast to float16, and returns the weights and the networks' scales."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    strategy = NetworkDDP()
    scales = {}

    def look(trainer, _):
        scales.update({name: each.get_scale() for name, each in trainer.strategy.precision_plugin._scalers.items()})

    plugins, callbacks = [MixedPrecision("16-mixed", "cpu", scaler)], [LambdaCallback(on_train_end=look)]
    train(Cell("LightningGAN", ""), devices=2, strategy=strategy, plugins=plugins, callbacks=callbacks)
    return strategy.lightning_module_state_dict(), scales


@pytest.mark.ranks
def test_ddp_gives_each_network_a_scaler_and_trains_in_float16(tmp_path):
    alone = trained_alone("LightningGAN", 1, None, False)
    for weights, scales in ranks.run("tests.strategies.test_grad_scaling.on_a_rank", tmp_path):
        assert scales == {"generator": 4.0 * 2**STEPS, "discriminator": 4.0 * 2**STEPS}
        off = max((weights[name] - value).abs().max() for name, value in alone.items())
        assert 0 < off < 1e-3
