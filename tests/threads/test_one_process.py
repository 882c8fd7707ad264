"""Rows of the table of known problems that one process shows (docs/explain/known_problems.md)."""

from copy import deepcopy

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint
from lightning.pytorch.plugins.precision import MixedPrecision

from lit_gans.strategies.average import NetworkAverage
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.manual_optimization import CountIterations
from lit_gans.training.penalties import r1_penalty, zero_centred_penalty
from tests.docs.blocks import ROOT, blocks
from tests.strategies.acceptance.lightning_gan import LightningGAN
from tests.strategies.own_modules import Clips, Own
from tests.strategies.test_grad_scaling import WithoutAutocast
from tests.strategies.test_manual_optimization import Scheduled
from tests.strategies.test_own_module import train


def fitted(module=None, **arguments):
    switches = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(accelerator="cpu", **switches, **{"max_epochs": 1, **arguments})
    trainer.fit(module or Own())
    return trainer


def test_06_global_step_counts_every_optimizer():
    assert train(devices=1).trainer.global_step == 12
    assert train(devices=1, callbacks=[CountIterations()]).trainer.global_step == 6


def test_07_clipping_clips_scaled_gradients():
    def stock():
        plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=4.0))
        plugin.forward_context = plugin.train_step_context = lambda: torch.autocast("cpu", enabled=False)
        return plugin

    unscaled, ours, theirs = (
        train(Clips, devices=1, plugins=plugins).state_dict() for plugins in ([], [WithoutAutocast()], [stock()])
    )
    torch.testing.assert_close(ours, unscaled, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(theirs["critic.0.weight"], unscaled["critic.0.weight"], rtol=1e-4)


def test_08_fp16_and_optimizers_that_step_in_turn():
    class InTurn(Own):
        def step(self, optimizer):
            if self.trainer.fit_loop.epoch_loop.batch_idx % 2 == self.optimizers().index(optimizer):
                super().step(optimizer)
            optimizer.zero_grad()

    scaled = train(InTurn, devices=1, plugins=[WithoutAutocast()])
    torch.testing.assert_close(scaled.state_dict(), train(InTurn, devices=1).state_dict(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_09_model_checkpoint_saves_under_manual_optimization(tmp_path):
    def saved(folder, *callbacks):
        every = ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1)
        fitted(callbacks=[*callbacks, every], limit_train_batches=5)
        return sorted(path.name for path in folder.glob("*.ckpt"))

    assert saved(tmp_path / "stock") == ["epoch=0-step=6.ckpt"]
    assert saved(tmp_path / "ours", CountIterations()) == ["epoch=0-step=3.ckpt"]


def test_10_saved_weights_are_those_that_were_measured(tmp_path):
    measured = {}

    class Validated(Own):
        def val_dataloader(self):
            return [torch.zeros(1)]

        def validation_step(self, batch, batch_idx):
            if not self.trainer.sanity_checking:
                measured.update({name: value.clone() for name, value in self.generator.named_parameters()})

    average = NetworkAverage("generator", 0.5)
    trainer = fitted(Validated(), callbacks=[average], enable_checkpointing=False)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)["callbacks"][average.state_key]["average"]
    torch.testing.assert_close(saved, {name: value.detach() for name, value in measured.items()}, rtol=0, atol=0)
    assert not torch.equal(saved["0.weight"], trainer.lightning_module.generator[0].weight)


def test_11_the_step_axis_goes_on_in_a_resumed_run(tmp_path):
    fitted(callbacks=[CountIterations()], enable_checkpointing=False).save_checkpoint(tmp_path / "a.ckpt")
    steps = []
    seen = LambdaCallback(on_train_batch_end=lambda trainer, *_: steps.append(trainer.global_step))
    resumed = Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[CountIterations(), seen],
        **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
    )
    resumed.fit(Own(), ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    assert steps == [7, 8, 9, 10, 11, 12]


def test_12_a_scheduler_that_is_never_stepped_is_said():
    train(Scheduled, devices=1)  # silently, with Lightning's own strategy
    with pytest.warns(UserWarning, match="configured and never stepped"):
        train(Scheduled, devices=1, strategy=NetworkDDP())


def test_17_a_compiled_network_has_the_penalty_of_an_uncompiled_one():
    torch.manual_seed(0)
    plain, images = (
        torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)),
        torch.randn(4, 3),
    )
    compiled = deepcopy(plain)
    compiled.compile(backend="aot_eager")
    seen = images.clone().requires_grad_(True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):  # without a penalty of ours
        zero_centred_penalty(seen, compiled(seen)).backward()
    for network in (plain, compiled):
        network.zero_grad()
        r1_penalty(network, images).backward()
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0)


def test_23_from_optimizer_idx_to_manual_optimization():
    page = ROOT / "docs/guides/from_optimizer_idx.md"
    assert sum(block.language == "python" for block in blocks(page)) >= 1  # which the tests of the pages run


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_24_toggle_optimizer_with_compiled_networks():
    class Compiled(LightningGAN):
        def on_fit_start(self):
            for network in (self.generator, self.discriminator):
                network.compile(backend="eager")

    compiled, plain = (train(each, devices=1).state_dict() for each in (Compiled, LightningGAN))
    torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-6)
