"""Somebody's own LightningModule with two networks, which knows nothing of this project, as the README shows it."""

from functools import partial

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.contracts import block_backward_sync
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks

DEEPSPEED = {f"deepspeed_{stage}": partial(NetworkDeepSpeed, stage=stage) for stage in (0, 1, 2, 3)}
FSDP = {f"fsdp_{wrap}": partial(NetworkFSDP, wrap=wrap) for wrap in ("network", "layer")}
STRATEGIES = {"ddp": NetworkDDP, **DEEPSPEED, **FSDP}


class Own(LightningModule):
    seed = 0

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(self.seed)
        self.generator = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
        self.critic = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))

    def training_step(self, batch, batch_idx):
        real, latents = batch
        for_generator, for_critic = self.optimizers()
        fake = self.generator(latents)
        self.train_only(self.critic)
        self.critic_backward(real, fake.detach())
        self.step(for_critic)
        self.train_only(self.generator)
        self.manual_backward(softplus(-self.critic(self.generator(latents))).mean())
        self.step(for_generator)

    def critic_backward(self, real, fake):
        self.manual_backward(softplus(-self.critic(real)).mean() + softplus(self.critic(fake)).mean())

    def step(self, optimizer):
        optimizer.step()
        optimizer.zero_grad()

    def train_only(self, network):
        self.requires_grad_(False)
        network.requires_grad_(True)

    def on_train_batch_end(self, *_):
        self.requires_grad_(True)

    def configure_optimizers(self):
        return [torch.optim.SGD(network.parameters(), 0.1) for network in (self.generator, self.critic)]

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(1)
        batches = [(torch.randn(4, 4, generator=generator), torch.randn(4, 3, generator=generator)) for _ in range(6)]
        part = slice(self.global_rank, None, self.trainer.world_size)
        return DataLoader([(real[part], latents[part]) for real, latents in batches], batch_size=None)


class Undeclared(Own):
    """With a gradient penalty that the strategies are not told of."""

    def critic_backward(self, real, fake):
        images = real.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(self.critic(images).sum(), images, create_graph=True)
        penalty = (gradient.norm(dim=1) - 1).square().mean()
        self.manual_backward(penalty + self.critic(fake).mean() - self.critic(real).mean())


class Penalised(Undeclared):
    penalised_networks = ("critic",)


class TwoBackwards(Own):
    def critic_backward(self, real, fake):
        self.manual_backward(softplus(-self.critic(real)).mean())
        self.manual_backward(softplus(self.critic(fake)).mean())


class AddedUp(TwoBackwards):
    def critic_backward(self, real, fake):
        with block_backward_sync(self.trainer.strategy):
            self.manual_backward(softplus(-self.critic(real)).mean())
        self.manual_backward(softplus(self.critic(fake)).mean())


class Drops(Own):
    """Clears the gradients of a backward without a step."""

    def critic_backward(self, real, fake):
        self.manual_backward(self.critic(real).square().mean())
        self.optimizers()[1].zero_grad()
        super().critic_backward(real, fake)


class SeededByRank(Own):
    """Every rank draws its own weights; one network never trains, and there is a buffer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("scale", torch.rand(4))

    @property
    def seed(self):
        return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0

    def critic_backward(self, real, fake):
        super().critic_backward(self.features(real) * self.scale, self.features(fake) * self.scale)

    def train_only(self, network):
        for each in (self.generator, self.critic):
            each.requires_grad_(each is network)

    def on_train_batch_end(self, *_):
        self.train_only(self.generator)
        self.critic.requires_grad_(True)


class Tied(Own):
    """One layer twice in a network, and Adam."""

    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.critic.insert(2, self.critic[0])

    def configure_optimizers(self):
        networks = (self.generator, self.critic)
        return [torch.optim.Adam(network.parameters(), 0.01, eps=1e-3) for network in networks]


class Clips(Own):
    def step(self, optimizer):
        self.clip_gradients(optimizer, 0.01, "norm")
        super().step(optimizer)


class StepsTheBareOptimizer(Own):
    def step(self, optimizer):
        super().step(optimizer.optimizer)


class BeginsFrozen(Own):
    def __init__(self):
        super().__init__()
        self.critic.requires_grad_(False)


class Misnames(Own):
    def critic_backward(self, real, fake):
        self.manual_backward(self.critic(real).mean() - self.critic(fake).mean(), network="crtic")


class TwoOptimizers(Own):
    def configure_optimizers(self):
        first, second = (list(layer.parameters()) for layer in (self.critic[0], self.critic[2]))
        return [torch.optim.SGD(part, 0.1) for part in (self.generator.parameters(), first, second)]


PARITY = {
    "own": (Own, STRATEGIES),
    "penalised": (Penalised, {name: make for name, make in STRATEGIES.items() if name != "deepspeed_3"}),
    "added_up": (AddedUp, STRATEGIES),
    "drops": (Drops, STRATEGIES),
    "seeded_by_rank": (SeededByRank, STRATEGIES),
}
CELLS = [(kind, name) for kind, (_, strategies) in PARITY.items() for name in strategies]

FLAT = ["deepspeed_1", "deepspeed_2", "deepspeed_3"]
REFUSED = {
    Undeclared: (["fsdp_network", "fsdp_layer", "deepspeed_3"], "a gradient through critic is differentiated again"),
    TwoBackwards: (["deepspeed_1", "deepspeed_2"], "two backwards of critic before its step"),
    Clips: (FLAT, 'NetworkDeepSpeed(config={"gradient_clipping": VALUE})'),
    StepsTheBareOptimizer: (FLAT, "step the optimizer that self.optimizers() returns"),
    BeginsFrozen: ([*STRATEGIES], "an optimizer steps critic.0.weight, which is frozen"),
    Misnames: (
        [*STRATEGIES],
        "manual_backward(loss, network='crtic') names no network of the module: it has generator, critic",
    ),
    TwoOptimizers: ([*DEEPSPEED], "two optimizers step critic"),
}
MISTAKES = [(module, name) for module, (names, _) in REFUSED.items() for name in names]


def train(module=Own, **arguments):
    module = module()
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", use_distributed_sampler=False, **dict.fromkeys(switches, False), **arguments
    )
    trainer.fit(module)
    return module


def saved(path, **arguments):
    """Trains, saves while the critic is frozen, and returns the checkpoint."""

    def save(trainer, module, *_):
        assert not any(parameter.requires_grad for parameter in module.critic.parameters())
        trainer.save_checkpoint(path)

    train(Tied, callbacks=[LambdaCallback(on_train_batch_end=save)], **arguments)
    return torch.load(path, weights_only=True)


def on_a_rank(where):
    """Returns the weights of each cell, and what each mistake is told; writes a checkpoint under each strategy."""
    for name, strategy in STRATEGIES.items():
        saved(where / f"{name}.ckpt", devices=2, strategy=strategy())
    weights, told = {}, {}
    for kind, name in CELLS:
        module = train(PARITY[kind][0], devices=2, strategy=STRATEGIES[name]())
        weights[kind, name] = module.trainer.strategy.lightning_module_state_dict()
    for module, name in MISTAKES:
        try:
            train(module, devices=2, strategy=STRATEGIES[name]())
            told[module.__name__, name] = "nothing"
        except RefusedInput as refused:
            told[module.__name__, name] = str(refused)
    return weights, told


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    return ranks.run("tests.strategies.test_own_module.on_a_rank", folder, where=folder), folder


@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize(("kind", "name"), CELLS)
def test_two_ranks_train_the_weights_of_one_process(trained, kind, name):
    module = PARITY[kind][0]
    alone, start = train(module, devices=1).state_dict(), module().state_dict()
    moved = [(alone[key] - start[key]).abs().max() for key in ("generator.0.weight", "critic.0.weight")]
    assert min(moved) > 1e-4
    for weights, _ in trained[0]:
        torch.testing.assert_close(weights[kind, name], alone, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_checkpoint_has_tied_layers_and_the_moments_of_what_is_frozen(trained, tmp_path, name):
    found = torch.load(trained[1] / f"{name}.ckpt", weights_only=True)
    alone = saved(tmp_path / "alone.ckpt", devices=1)
    assert {"critic.0.weight", "critic.2.weight"} <= alone["state_dict"].keys()
    torch.testing.assert_close(found["state_dict"], alone["state_dict"], rtol=0, atol=1e-6)
    for one, other in zip(found["optimizer_states"], alone["optimizer_states"], strict=True):
        torch.testing.assert_close(one["state"], other["state"], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("module", "name"), MISTAKES, ids=str)
def test_mistakes_are_told_on_every_rank(trained, module, name):
    for _, told in trained[0]:
        assert REFUSED[module][1] in told[module.__name__, name]
