"""In an iteration that does not log, the host never waits for the device: in step, callbacks and logging."""

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback, TQDMProgressBar
from lightning.pytorch.plugins.precision import MixedPrecision

from lit_gans.callbacks import EMA, IterationProgressBar, RunCheckpoint, Throughput
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.callbacks.watch import Watch
from lit_gans.training import finite
from lit_gans.training import module as base
from lit_gans.training.augmentation import Adaptive
from lit_gans.training.schedules import LinearSchedule
from tests.gans import GANS

from .host import Guarded, HostWaits, reading_a_copy, without_waiting

STEPS, LOGS = 6, 3
SETTINGS = {
    "r1 every second iteration, two microbatches, clipping": {
        "r1_gamma": 1.0,
        "r1_every": 2,
        "accumulate_gradients": 2,
        "clip_gradients": 1.0,
    },
    "adaptive augmentation of both kinds": {"augmentation": Adaptive(), "diffaugment": ("color", "cutout")},
    "scheduled penalties of the scores": {"r1_gamma": LinearSchedule(1.0, 0.5), "r2_gamma": 1.0, "share_scores": True},
    "classes": {"num_classes": 10},
}


@pytest.fixture(autouse=True)
def finite_check(monkeypatch):
    """Lets the check of finite numbers read, as on CUDA, the values of the iteration before, and no others."""
    refuse = finite._raise_if_not_finite

    def read(reading):
        with reading_a_copy():
            refuse(reading)

    monkeypatch.setattr(finite, "_raise_if_not_finite", read)


def run(module, device, train, tmp_path, **arguments):
    num = 4 * module.n_critic * module.accumulate_gradients
    shape = (num, module.channels, module.image_size, module.image_size)
    images = torch.randint(0, 256, (2, *shape), dtype=torch.uint8, device=device)
    labels = torch.arange(num, device=device) % 10
    batches = [{"image": each, "input": each, "label": labels} for each in images]
    loader = Guarded(batches, device, STEPS, LOGS)
    module.finite.late = True  # as on CUDA
    released = LambdaCallback(on_exception=loader.release)
    callbacks = [released, EMA(), Watch(every_n_steps=LOGS), RunCheckpoint(every_n_train_steps=100), Throughput()]
    options = {"callbacks": callbacks, "logger": CSVMetrics(str(tmp_path)), "log_every_n_steps": LOGS}
    train(module, loader, device, STEPS, enable_checkpointing=True, **options, **arguments)
    return loader.guarded


@pytest.mark.parametrize("name", GANS)
def test_no_gan_waits(tiny_gan, device, train, tmp_path, name):
    assert run(tiny_gan(name, n_critic=2), device, train, tmp_path) == [1, 3, 4]


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_setting_waits(tiny_gan, device, train, tmp_path, settings):
    assert run(tiny_gan("dcgan", **SETTINGS[settings]), device, train, tmp_path) == [1, 3, 4]


def test_neither_does_bf16(tiny_gan, device, train, tmp_path):
    assert run(tiny_gan("dcgan"), device, train, tmp_path, precision="bf16-mixed") == [1, 3, 4]


def test_neither_does_fp16(tiny_gan, device, train, tmp_path, monkeypatch):
    """Fused optimizers skip their step on the device if a gradient overflowed."""
    monkeypatch.setattr(base, "refuse_trainer", lambda *_: None)  # fp16 on the CPU, for this test alone
    plugin = MixedPrecision("16-mixed", device.type, torch.amp.GradScaler(device.type, init_scale=4.0))
    module = tiny_gan("dcgan", clip_gradients=1.0, n_critic=2)
    assert run(module, device, train, tmp_path, plugins=[plugin]) == [1, 3, 4]
    assert all(optimizer.defaults["fused"] for optimizer in module.trainer.optimizers)


def test_only_lightnings_bar_waits_for_the_losses_that_it_shows(tiny_gan, random_images, train, capsys):
    """Lightning converts them in every iteration; the bar of this package reads them when it is drawn."""
    for bar, shown in ((TQDMProgressBar(), {"loss/discriminator", "loss/generator"}), (IterationProgressBar(), set())):
        settings = {"callbacks": [bar], "enable_progress_bar": True}
        trainer = train(tiny_gan(), random_images(), torch.device("cpu"), 1, **settings)
        assert set(trainer.progress_bar_metrics) == shown
        assert set(trainer.callback_metrics) == {"loss/discriminator", "loss/generator"}
    assert "discriminator" in capsys.readouterr().out


WAITS = {
    "item": lambda tensor: tensor.item(),
    "tolist": lambda tensor: tensor.tolist(),
    "if": lambda tensor: 1 if tensor > 0 else 2,
    "float": float,
    "cpu": lambda tensor: tensor.cpu(),
    "mask": lambda tensor: torch.ones(2, device=tensor.device)[tensor.expand(2) > 0],
    "nonzero": lambda tensor: tensor.reshape(1).nonzero(),
    "tensor": lambda tensor: torch.tensor(1.0, device=tensor.device),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_is_seen(device, wait):
    tensor = torch.ones((), device=device)
    with pytest.raises(RuntimeError if device.type == "cuda" else HostWaits), without_waiting(device):
        WAITS[wait](tensor)
