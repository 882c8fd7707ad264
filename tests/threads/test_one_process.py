"""Rows of the table of known problems that one process shows (docs/explain/known_problems.md)."""

from copy import deepcopy

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint, WeightAveraging
from packaging.version import Version
from torch.nn.functional import softplus

from lit_gans.strategies.average import NetworkAverage
from lit_gans.strategies.manual_optimization import CountIterations, WatchManualOptimization
from lit_gans.training.penalties import r1_penalty, zero_centered_penalty
from tests.strategies.acceptance.lightning_gan import LightningGAN
from tests.strategies.own_modules import Clips, Own
from tests.strategies.ranks import quiet_trainer
from tests.strategies.test_grad_scaling import WithoutAutocast, stock_scaling
from tests.strategies.test_own_module import train


def test_06_global_step_counts_every_optimizer():
    assert train(devices=1).trainer.global_step == 12
    assert train(devices=1, callbacks=[CountIterations()]).trainer.global_step == 6


def test_07_clipping_clips_scaled_gradients():
    unscaled, ours, theirs = (
        train(Clips, devices=1, plugins=plugins).state_dict()
        for plugins in ([], [WithoutAutocast()], [stock_scaling()])
    )
    torch.testing.assert_close(ours, unscaled, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(theirs["critic.0.weight"], unscaled["critic.0.weight"], rtol=1e-4)
    with pytest.warns(UserWarning, match="while they were still scaled"):
        train(Clips, devices=1, plugins=[stock_scaling()], callbacks=[WatchManualOptimization()])


class StepsBoth(Clips):
    """Trains its networks in turn, and steps both optimizers in each batch: one of them without gradients."""

    def training_step(self, batch, batch_idx):
        turn = (self.generator, self.critic)[batch_idx % 2]
        self.train_only(turn)
        self.manual_backward(softplus(-self.critic(self.generator(batch[1]))).mean())
        for optimizer in self.optimizers():
            self.step(optimizer)


def test_08_fp16_and_alternating_optimizers():
    with pytest.raises(AssertionError, match="No inf checks were recorded for this optimizer"):
        train(StepsBoth, devices=1, plugins=[stock_scaling()])
    scaled = train(StepsBoth, devices=1, plugins=[WithoutAutocast()])
    torch.testing.assert_close(scaled.state_dict(), train(StepsBoth, devices=1).state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_09_model_checkpoint_saves_under_manual_optimization(tmp_path):
    def saved(folder, *callbacks):
        every = ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1)
        train(devices=1, callbacks=[*callbacks, every], limit_train_batches=5, enable_checkpointing=True)
        return sorted(path.name for path in folder.glob("*.ckpt"))

    assert saved(tmp_path / "stock") == ["epoch=0-step=6.ckpt"]
    assert saved(tmp_path / "ours", CountIterations()) == ["epoch=0-step=3.ckpt"]


class Measured(Own):
    """Logs a loss of its first batch, and keeps the weights that it was computed with."""

    def critic_backward(self, real, fake):
        self.measured = {name: value.clone() for name, value in self.state_dict().items()}
        self.log("loss", self.critic(real).mean().detach())
        super().critic_backward(real, fake)


def test_10_saved_weights_are_those_that_were_measured(tmp_path):
    measured = {}

    class Validated(Own):
        def val_dataloader(self):
            return [torch.zeros(1)]

        def validation_step(self, batch, batch_idx):
            if not self.trainer.sanity_checking:
                measured.update({name: value.clone() for name, value in self.generator.named_parameters()})

    best = ModelCheckpoint(tmp_path, "best", monitor="loss", every_n_train_steps=2)
    with pytest.warns(UserWarning, match="no pre-optimization state"):
        theirs = train(Measured, devices=1, callbacks=[best], limit_train_batches=1, enable_checkpointing=True).measured
    saved = torch.load(tmp_path / "best.ckpt", weights_only=True)["state_dict"]
    assert not torch.equal(saved["critic.0.weight"], theirs["critic.0.weight"])

    average = NetworkAverage("generator", 0.5)
    trainer = train(Validated, devices=1, callbacks=[average]).trainer
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)["callbacks"][average.state_key]["average"]
    torch.testing.assert_close(saved, {name: value.detach() for name, value in measured.items()}, rtol=0, atol=0)
    assert not torch.equal(saved["0.weight"], trainer.lightning_module.generator[0].weight)


@pytest.mark.parametrize("stock", [True, False])
def test_11_the_step_axis_continues_in_a_resumed_run(tmp_path, stock):
    """Lightning's continues, too, in steps of every optimizer."""
    count = [] if stock else [CountIterations()]
    train(devices=1, callbacks=count).trainer.save_checkpoint(tmp_path / "a.ckpt")
    steps = []
    seen = LambdaCallback(on_train_batch_end=lambda trainer, *_: steps.append(trainer.global_step))
    quiet_trainer(max_epochs=2, callbacks=[*count, seen]).fit(Own(), ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    assert steps == [(1 + stock) * batch for batch in (7, 8, 9, 10, 11, 12)]


def test_13_lightnings_average_says_that_it_shards_nothing():
    class Configured(Own):
        def configure_model(self):
            """As Lightning's strategies for sharded models require it."""

    with pytest.warns(UserWarning, match="WeightAveraging doesn't support sharding model layers"):
        train(Configured, devices=1, callbacks=[WeightAveraging()])


def test_17_a_compiled_network_has_the_penalty_of_an_uncompiled_one():
    torch.manual_seed(0)
    plain, images = (
        torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)),
        torch.randn(4, 3),
    )
    compiled = deepcopy(plain)
    compiled.compile(backend="aot_eager")
    seen = images.clone().requires_grad_(True)
    if Version(torch.__version__) >= Version("2.15"):  # without a penalty of ours; torch 2.9 raises no error
        with pytest.raises(RuntimeError, match="does not currently support double backward"):
            zero_centered_penalty(seen, compiled(seen)).backward()
    for network in (plain, compiled):
        network.zero_grad()
        r1_penalty(network, images).backward()
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0)


def test_23_from_optimizer_idx_to_manual_optimization():
    class Indexed(Own):
        def training_step(self, batch, batch_idx, optimizer_idx):
            """The signature of Lightning 1."""

    with pytest.raises(RuntimeError, match="Remove the `optimizer_idx` argument from `training_step`"):
        train(Indexed, devices=1)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_24_toggle_optimizer_with_compiled_networks():
    class Compiled(LightningGAN):
        def on_fit_start(self):
            for network in (self.generator, self.discriminator):
                network.compile(backend="eager")

    compiled, plain = (train(each, devices=1).state_dict() for each in (Compiled, LightningGAN))
    torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_a_compiled_module_fails_in_toggle_optimizer_no_more():
    """Row 24: the KeyError of the thread does not come with torch 2.15 and Lightning 2.6."""
    stock = train(
        lambda: torch.compile(LightningGAN(), backend="eager"), devices=1
    ).trainer.lightning_module.state_dict()
    torch.testing.assert_close(stock, train(LightningGAN, devices=1).state_dict(), rtol=0, atol=1e-6)
