"""The strategies train modules of `lightning.pytorch` and of `pytorch_lightning`, whichever their authors import."""

import importlib
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from torch.nn.functional import softplus

from . import ranks

STRATEGIES = ("network_ddp", "network_fsdp", "network_deepspeed_stage_2")
PACKAGES = ("lightning.pytorch", "pytorch_lightning")
OF_LIGHTNING = {"lightning", "lightning_fabric", "pytorch_lightning"}

pytestmark = pytest.mark.skipif(find_spec("pytorch_lightning") is None, reason="pytorch_lightning is not installed")


def forget():
    """Forgets both packages and this project, as in a new process."""
    for name in [*sys.modules]:
        if name.partition(".")[0] in OF_LIGHTNING | {"lit_gans"}:
            del sys.modules[name]


def gan_of(pl):
    """Returns a GAN that is a module of a package."""

    class GAN(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            torch.manual_seed(0)
            self.generator, self.critic = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

        def training_step(self, batch, batch_idx):
            real, latents = batch
            for_generator, for_critic = self.optimizers()
            self.toggle_optimizer(for_critic)
            fake = self.generator(latents).detach()
            self.manual_backward((softplus(-self.critic(real)) + softplus(self.critic(fake))).mean())
            self.step(for_critic)
            self.toggle_optimizer(for_generator)
            self.manual_backward(softplus(-self.critic(self.generator(latents))).mean())
            self.step(for_generator)

        def step(self, optimizer):
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)

        def configure_optimizers(self):
            return [torch.optim.SGD(network.parameters(), 0.1) for network in (self.generator, self.critic)]

        def train_dataloader(self):
            generator = torch.Generator().manual_seed(1)
            own = slice(self.global_rank, None, self.trainer.world_size)
            batches = [[torch.randn(4, size, generator=generator)[own] for size in (4, 3)] for _ in range(3)]
            return torch.utils.data.DataLoader(batches, batch_size=None)

    return GAN()


def trainer_of(pl, **arguments):
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet = dict.fromkeys((*switches, "use_distributed_sampler"), False)
    return pl.Trainer(accelerator="cpu", max_epochs=1, **quiet, **arguments)


def train(package, strategies):
    """Trains with each strategy, and returns the weights, and which packages were imported."""
    forget()
    pl = importlib.import_module(package)
    importlib.import_module("lit_gans.strategies")
    found = {}
    for strategy in strategies:
        trainer = trainer_of(pl, strategy=strategy, devices=2 if strategy != "auto" else 1)
        trainer.fit(gan_of(pl))
        found[strategy] = dict(trainer.strategy.lightning_module_state_dict())
    return found, {name.partition(".")[0] for name in sys.modules} & OF_LIGHTNING


@pytest.mark.parametrize("package", PACKAGES)
def test_two_ranks_train_the_weights_of_one_process(tmp_path, package):
    [(alone, _)] = ranks.run(f"{__name__}.train", tmp_path, 1, package="lightning.pytorch", strategies=("auto",))
    for weights, imported in ranks.run(f"{__name__}.train", tmp_path, package=package, strategies=STRATEGIES):
        assert imported == ({"lightning"} if package == PACKAGES[0] else OF_LIGHTNING - {"lightning"})
        for strategy in STRATEGIES:
            torch.testing.assert_close(weights[strategy], alone["auto"], rtol=0, atol=1e-6)


def before_both(package):
    """Imports the strategies before either package, and asks the Trainers of both for one; returns what they say."""
    forget()
    importlib.import_module("lit_gans.strategies")
    first, second = (importlib.import_module(name) for name in (package, *({*PACKAGES} - {package})))
    strategy = trainer_of(first, strategy="network_fsdp", devices=2).strategy
    assert isinstance(strategy, first.strategies.DDPStrategy)
    try:
        trainer_of(second, strategy="network_ddp", devices=2)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("package", PACKAGES)
def test_imported_first_they_follow_the_trainer_that_asks_first(tmp_path, package):
    [(error, sentence)] = ranks.run(f"{__name__}.before_both", tmp_path, 1, package=package)
    (other,) = {*PACKAGES} - {package}
    assert error == "RefusedInput"
    assert (
        f"a Trainer of {other} asks for a strategy of lit_gans, whose classes are already those of {package}"
        in sentence
    )


def companions():
    """Imports `pytorch_lightning`, then classes of the strategies; returns whether they are of that package."""
    forget()
    pl = importlib.import_module("pytorch_lightning")
    strategies = importlib.import_module("lit_gans.strategies")
    average = importlib.import_module("lit_gans.strategies.average")
    manual = importlib.import_module("lit_gans.strategies.manual_optimization")
    scaling = importlib.import_module("lit_gans.strategies.grad_scaling")
    return [
        issubclass(average.NetworkAverage, pl.Callback),
        issubclass(manual.CountIterations, pl.Callback),
        issubclass(scaling.NetworkScaling, pl.plugins.MixedPrecision),
        issubclass(strategies.NetworkDDP, pl.strategies.Strategy),
    ]


def test_callbacks_and_plugins_are_of_the_package_that_is_imported(tmp_path):
    assert ranks.run(f"{__name__}.companions", tmp_path, 1) == [[True] * 4]


def commands():
    forget()
    importlib.import_module("lit_gans.cli.train")
    return "pytorch_lightning" in sys.modules


def test_the_commands_do_not_import_the_package_that_they_do_not_use(tmp_path):
    assert ranks.run(f"{__name__}.commands", tmp_path, 1) == [False]
