"""One kind of checkpoint: trained on two ranks under any strategy, read on one, resumed under any other."""

from functools import partial

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint

from lit_gans import load
from lit_gans.callbacks import EMA
from lit_gans.optim import SGD, Adam
from lit_gans.registry import gans
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .cells import many_images

STRATEGIES = {"ddp": NetworkDDP, "fsdp": NetworkFSDP}
STRATEGIES |= {f"deepspeed_{stage}": partial(NetworkDeepSpeed, stage=stage) for stage in (0, 1, 2, 3)}
SIZES = {"image_size": 16, "channels": 1, "generator_width": 4, "discriminator_width": 4, "latent_dim": 6}

OTHERS = dict(zip(STRATEGIES, [*STRATEGIES][1:] + [*STRATEGIES][:1], strict=True))


class SaveAtEnd(Checkpoint):
    """Saves in the last iteration: after the fit, Lightning has closed the epoch that a resumed run goes on with."""

    def __init__(self, path):
        self.path = path

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == trainer.max_steps:
            trainer.save_checkpoint(self.path)


def train(path, max_steps, optimizer, resume=None, world_size=1, **arguments):
    """Trains to an iteration, saves, and returns the module."""
    torch.set_num_threads(1)
    optimizers = {"generator_optimizer": optimizer, "discriminator_optimizer": optimizer}
    # the mlp has no batch norm, whose parts of a batch see each other; ZeRO-3 has no gradient penalty
    module = gans()["d2gan"](**SIZES, network="mlp", n_critic=2, seed=3, **optimizers)
    data = many_images()(image_size=16, channels=1, batch_size=8 // world_size)
    switches = ("logger", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        max_steps=max_steps,
        max_epochs=-1,
        accelerator="cpu",
        devices=world_size,
        callbacks=[EMA(0.5), SaveAtEnd(path)],
        **dict.fromkeys(switches, False),
        **arguments,
    )
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    return module


MOMENTUM = SGD(learning_rate=0.02, momentum=0.9)
ADAM = Adam(learning_rate=1e-3, betas=(0.5, 0.9))


def on_a_rank(where):
    """Trains 2 iterations under each strategy; then from one process's checkpoint, and from the next strategy's."""
    for name, strategy in STRATEGIES.items():
        train(where / f"{name}.ckpt", 2, MOMENTUM, world_size=2, strategy=strategy())
        train(where / f"{name}_adam.ckpt", 2, ADAM, world_size=2, strategy=strategy())
    for name, strategy in STRATEGIES.items():
        for source in ("one", OTHERS[name]):
            path = where / f"{source}_then_{name}.ckpt"
            train(path, 4, MOMENTUM, resume=where / f"{source}.ckpt", world_size=2, strategy=strategy())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    train(folder / "one.ckpt", 2, MOMENTUM)
    train(folder / "one_adam.ckpt", 2, ADAM)
    train(folder / "whole.ckpt", 4, MOMENTUM)
    ranks.run("tests.strategies.test_checkpoints.on_a_rank", folder, where=folder)
    return folder


def assert_same(path, expected, atol=1e-6):
    """Compares two checkpoints: weights, averages, moments, counters."""
    theirs, ours = (torch.load(file, weights_only=True) for file in (expected, path))
    assert ours["global_step"] == theirs["global_step"]
    pairs = [(ours["state_dict"], theirs["state_dict"])]
    pairs += [(ours["generator_ema"]["state_dict"], theirs["generator_ema"]["state_dict"])]
    for one, other in zip(ours["optimizer_states"], theirs["optimizer_states"], strict=True):
        assert one["param_groups"] == other["param_groups"]
        pairs += [(one["state"][index], other["state"][index]) for index in other["state"]]
    for one, other in pairs:
        assert one.keys() == other.keys()
        for name, value in other.items():
            torch.testing.assert_close(one[name], value, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_checkpoint_of_two_ranks_is_that_of_one_process(folder, name):
    assert_same(folder / f"{name}.ckpt", folder / "one.ckpt")
    module, alone = load(folder / f"{name}.ckpt"), load(folder / "one.ckpt")
    torch.testing.assert_close(module.sample(3), alone.sample(3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", STRATEGIES)
def test_adam_s_moments_are_there(folder, name):
    ours, theirs = (torch.load(folder / f"{n}_adam.ckpt", weights_only=True) for n in (name, "one"))
    for one, other in zip(ours["optimizer_states"], theirs["optimizer_states"], strict=True):
        assert one["state"].keys() == other["state"].keys()
        for index, moments in other["state"].items():
            for key, value in moments.items():
                torch.testing.assert_close(one["state"][index][key], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", STRATEGIES)
def test_one_process_goes_on_from_two_ranks(folder, tmp_path, name):
    train(tmp_path / "resumed.ckpt", 4, MOMENTUM, resume=folder / f"{name}.ckpt")
    assert_same(tmp_path / "resumed.ckpt", folder / "whole.ckpt")


@pytest.mark.parametrize(
    ("source", "name"), [("one", name) for name in STRATEGIES] + [(b, a) for a, b in OTHERS.items()]
)
def test_two_ranks_go_on_from_any_other(folder, source, name):
    assert_same(folder / f"{source}_then_{name}.ckpt", folder / "whole.ckpt")
