"""Training on a device: parity with the CPU, half precision, resume, and memory that does not suffice."""

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.plugins.precision import MixedPrecision

from lit_gans.common.noise import Noise, mix
from lit_gans.training import module as base
from lit_gans.training.optim import OptimizerConfig
from tests.gans import GANS

CPU = torch.device("cpu")
STEPS = 10


def plain(lr=0.05):
    return dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), OptimizerConfig("SGD", lr=lr))


@pytest.fixture
def noise_of_the_cpu(monkeypatch):
    """Draws all noise on the CPU, since generators of different devices have different numbers."""
    drawn = []

    def draw(self, function, purpose, num, shape):
        generator = torch.Generator().manual_seed(mix(*self.key, purpose))
        full = function(num * self.world_size, *shape, generator=generator)
        drawn.append(self.generator.device)
        return full.unflatten(0, (self.microbatches, self.world_size, -1))[:, self.rank].flatten(0, 1).to(drawn[-1])

    monkeypatch.setattr(Noise, "_draw", draw)
    return drawn


def on_cpu(module):
    return {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("name", GANS)
def test_ten_steps_are_those_of_the_cpu(tiny_gan, random_images, heavy_device, train, noise_of_the_cpu, name):
    states, drawn = [], []
    for where, channels_last in ((CPU, False), (heavy_device, True)):
        module = tiny_gan(name, channels_last=channels_last, n_critic=2)
        train(module, random_images(batch_size=4), where, STEPS, precision="64-true")
        states.append(on_cpu(module))
        drawn.append({each.type for each in noise_of_the_cpu})
        noise_of_the_cpu.clear()
    torch.testing.assert_close(*states, rtol=1e-7, atol=1e-9)
    assert drawn == [{"cpu"}, {heavy_device.type}]


def test_data_noise_losses_and_averages_are_on_the_device(tiny_gan, random_images, device, train):
    from lit_gans.callbacks import EMA

    seen = {}

    def look(trainer, module, _, batch, __):
        noise = Noise(torch.Generator(device=module.device), (0,))
        seen["batch"] = {tensor.device.type for tensor in batch.values()}
        seen["noise"] = {tensor.device.type for tensor in module.sample_noise(noise, 2).values()}
        seen["losses"] = {loss.device.type for loss in trainer.callback_metrics.values()}
        seen["average"] = {tensor.device.type for tensor in module.averaged_generator.state_dict().values()}
        seen["samples"] = {module.sample(2).device.type}

    train(tiny_gan(), random_images(), device, 2, callbacks=[EMA(), LambdaCallback(on_train_batch_end=look)])
    assert seen == {key: {device.type} for key in ("batch", "noise", "losses", "average", "samples")}


@pytest.mark.parametrize(("name", "learning_rate"), [("d2gan", 0.05), ("wgan_gp", 1e-4)])
def test_bf16_trains_nearly_as_float32(tiny_gan, random_images, heavy_device, train, name, learning_rate):
    states = []
    for precision in ("32-true", "bf16-mixed"):
        module = tiny_gan(name, n_critic=1, **plain(learning_rate))
        train(module, random_images(), heavy_device, 3, precision=precision)
        states.append(on_cpu(module))
    assert 0 < difference(*states) < 2e-2


@pytest.mark.parametrize("name", ["d2gan", "dcgan"])
def test_fp16_has_a_scaler_for_each_network_and_clips_unscaled(
    tiny_gan, random_images, heavy_device, train, monkeypatch, name
):
    """The scale doubles after every step of a network: clipped while scaled, gradients would be 4 times too small."""
    monkeypatch.setattr(base, "refuse_trainer", lambda *_: None)  # fp16 on the CPU, for this test alone
    states, scales = [], {}

    def look(trainer, _):
        scales.update({name: each.get_scale() for name, each in trainer.strategy.precision_plugin._scalers.items()})

    for half in (False, True):
        module = tiny_gan(name, n_critic=2, clip_gradients=0.02, **plain())
        scaler = torch.amp.GradScaler(heavy_device.type, init_scale=4.0, growth_interval=1)
        plugins = [MixedPrecision("16-mixed", heavy_device.type, scaler)] if half else None
        callbacks = [LambdaCallback(on_train_end=look)] if half else []
        train(module, random_images(batch_size=4), heavy_device, 3, plugins=plugins, callbacks=callbacks)
        states.append(on_cpu(module))
    assert scales == {name: 4.0 * 2 ** (3 if name == "generator" else 6) for name in module.network_names}
    assert 0 < difference(*states) < 5e-4  # a step changes weights by at most 0.001


def difference(one, other):
    weights = [name for name, tensor in one.items() if tensor.is_floating_point() and "running" not in name]
    return max(float((one[name] - other[name]).abs().max()) for name in weights)


@pytest.mark.parametrize("name", ["dcgan", "wgan_gp", "d2gan"])
def test_a_resumed_training_is_the_uninterrupted_one(
    tiny_gan, random_images, heavy_device, train, tmp_path, monkeypatch, name
):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    ends, file = [], tmp_path / "two.ckpt"

    def save(trainer, *_):
        if trainer.global_step == 2:
            trainer.save_checkpoint(file)

    for resume in (None, file):
        module = tiny_gan(name, n_critic=1)
        callbacks = [] if resume else [LambdaCallback(on_train_batch_end=save)]
        train(module, random_images(), heavy_device, 4, callbacks=callbacks, resume=resume)
        ends.append(on_cpu(module))
    torch.testing.assert_close(*ends, rtol=0, atol=0)
    assert difference(ends[0], torch.load(file, weights_only=True, map_location="cpu")["state_dict"]) > 0
