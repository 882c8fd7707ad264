"""One kind of checkpoint: trained on two ranks under any strategy, read on one, resumed under any other."""

from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import Checkpoint

from lit_gans.callbacks import EMA
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.config.registry import gans
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.training.optim import OptimizerConfig

from . import ranks
from .cells import many_images
from .matrix import registered
from .ranks import quiet_trainer

STRATEGIES = {"ddp": NetworkDDP, "fsdp": NetworkFSDP}
STRATEGIES |= {f"deepspeed_{stage}": partial(NetworkDeepSpeed, stage=stage) for stage in (0, 2, 3)}
SIZES = {"image_size": 16, "channels": 1, "generator_width": 4, "discriminator_width": 4, "latent_dim": 6}

WITH_BUFFERS = {
    "ddp": NetworkDDP,
    "fsdp_layer": partial(NetworkFSDP, wrap="layer"),
    "deepspeed_3": STRATEGIES["deepspeed_3"],
}


class SaveAtEnd(Checkpoint):
    """Saves in the last iteration: after the fit, Lightning has closed the epoch that a resumed run goes on with."""

    def __init__(self, path):
        self.path = path

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == trainer.max_steps:
            trainer.save_checkpoint(self.path)


# the mlp has no batch norm, which sees the microbatch of its rank only; ZeRO-3 has no gradient penalty
PLAIN = {"gan": "d2gan", "network": "mlp", "n_critic": 2}
BUFFERS = {"gan": "sngan", "network": "resnet", "n_critic": 1, "spectral_generator": True}  # and batch norm


def train(path, max_steps, optimizer, resume=None, world_size=1, model=PLAIN, **arguments):
    """Trains to an iteration, saves, and returns the module."""
    optimizers = {"generator_optimizer": optimizer, "discriminator_optimizer": optimizer}
    settings = {name: value for name, value in model.items() if name != "gan"}
    module = gans()[model["gan"]](**SIZES, **settings, seed=3, **optimizers)
    data = many_images()(image_size=16, channels=1, batch_size=8 // world_size)
    trainer = quiet_trainer(
        max_steps=max_steps,
        max_epochs=-1,
        devices=world_size,
        callbacks=[EMA(0.5), SaveAtEnd(path)],
        enable_checkpointing=True,
        use_distributed_sampler=True,
        **arguments,
    )
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    return module


MOMENTUM = OptimizerConfig("SGD", lr=0.02, momentum=0.9)
ADAM = OptimizerConfig("Adam", lr=1e-3, betas=(0.5, 0.9))


def on_a_rank(where):
    """Trains 2 iterations under each strategy, and goes on from the checkpoint of one process.

    Returns the buffers of a network that has some.
    """
    for name, strategy in STRATEGIES.items():
        module = train(where / f"{name}.ckpt", 2, ADAM, world_size=2, strategy=strategy())
        module.trainer.save_checkpoint(where / f"{name}_after.ckpt")
        path = where / f"{name}_resumed.ckpt"
        train(path, 4, ADAM, resume=where / "one.ckpt", world_size=2, strategy=strategy())
    buffers = {}
    for name, strategy in WITH_BUFFERS.items():
        path = where / f"{name}_buffers.ckpt"
        module = train(path, 2, MOMENTUM, model=BUFFERS, world_size=2, strategy=strategy())
        buffers[name] = {key: value.clone() for key, value in module.named_buffers()}
    return buffers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    train(folder / "one.ckpt", 2, ADAM)
    train(folder / "uninterrupted.ckpt", 4, ADAM)
    train(folder / "one_buffers.ckpt", 2, MOMENTUM, model=BUFFERS)
    buffers = ranks.run("tests.strategies.test_checkpoints.on_a_rank", folder, where=folder)
    torch.save(buffers, folder / "buffers.pt")
    return folder


def assert_same(path, expected):
    """Compares two checkpoints: weights, averages, moments, counters.

    Weights of these runs differ by 1.2e-7, the last bit of their largest: also with Adam, where the gradients are
    far above rounding. A wrong step of Adam moves them by 1e-3.
    """
    theirs, ours = (read_checkpoint(file) for file in (expected, path))
    assert ours["global_step"] == theirs["global_step"]
    pairs = [(ours["state_dict"], theirs["state_dict"])]
    pairs += [(ours["generator_ema"]["state_dict"], theirs["generator_ema"]["state_dict"])]
    for one, other in zip(ours["optimizer_states"], theirs["optimizer_states"], strict=True):
        assert one["param_groups"] == other["param_groups"]
        assert one["state"].keys() == other["state"].keys()
        pairs += [(one["state"][index], other["state"][index]) for index in other["state"]]
    for one, other in pairs:
        assert one.keys() == other.keys()
        for name, value in other.items():
            # squares of gradients are 6e-7 and more: zeros must not pass for them
            atol = 1e-9 if name == "exp_avg_sq" else 1e-6
            torch.testing.assert_close(one[name], value, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_checkpoint_of_two_ranks_is_that_of_one_process(folder, name):
    assert_same(folder / f"{name}.ckpt", folder / "one.ckpt")


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_checkpoint_after_the_training_has_the_same_moments(folder, name):
    after, during = (read_checkpoint(folder / f"{file}.ckpt")["optimizer_states"] for file in (f"{name}_after", name))
    torch.testing.assert_close(after, during, rtol=0, atol=0)


def test_every_registered_strategy_is_here():
    assert {name.partition("_")[0] for name in STRATEGIES} == {*registered()}


@pytest.mark.parametrize("name", STRATEGIES)
def test_adam_counts_the_steps_of_each_parameter_by_itself(folder, name):
    """torch.load keeps that tensors are one: a resumed Adam would count its step once for each parameter."""
    for saved in torch.load(folder / f"{name}.ckpt", weights_only=True)["optimizer_states"]:
        steps = [moments["step"] for moments in saved["state"].values()]
        assert len({step.untyped_storage().data_ptr() for step in steps}) == len(steps) > 1


def test_a_single_process_resumes_a_run_of_two_ranks(folder, tmp_path):
    train(tmp_path / "resumed.ckpt", 4, ADAM, resume=folder / "deepspeed_3.ckpt")
    assert_same(tmp_path / "resumed.ckpt", folder / "uninterrupted.ckpt")


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_ranks_resume_a_run_of_a_single_process(folder, name):
    """And thus from each other, since their files are those of one process; `test_killed_ranks` does so."""
    assert_same(folder / f"{name}_resumed.ckpt", folder / "uninterrupted.ckpt")


@pytest.mark.parametrize("name", WITH_BUFFERS)
def test_all_ranks_have_the_buffers_of_the_file(folder, name):
    """Of batch norm and spectral norm."""
    saved = read_checkpoint(folder / f"{name}_buffers.ckpt")["state_dict"]
    alone = read_checkpoint(folder / "one_buffers.ckpt")["state_dict"]
    assert {key: value.shape for key, value in saved.items()} == {key: value.shape for key, value in alone.items()}
    start = gans()["sngan"](**SIZES, network="resnet", n_critic=1, spectral_generator=True, seed=3)
    kinds = {key.rpartition(".")[2] for key, value in start.named_buffers() if not torch.equal(value, saved[key])}
    assert kinds >= {"running_mean", "running_var", "left", "right"}  # they moved
    for buffers in (rank[name] for rank in torch.load(folder / "buffers.pt")):
        for key, _ in start.named_buffers():
            torch.testing.assert_close(buffers[key], saved[key], rtol=0, atol=0)
