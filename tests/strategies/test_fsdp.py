"""NetworkFSDP: two ranks train the weights of one process, however a module and its trainer are used."""

from copy import deepcopy
from functools import cache, partial
from pathlib import Path, PosixPath

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, softplus
from torch.nn.utils.parametrizations import spectral_norm
from torch.optim.swa_utils import AveragedModel

from lit_gans.strategies.average import NetworkAverage
from lit_gans.strategies.base import backward_arguments, block_backward_sync
from lit_gans.strategies.fsdp import NetworkFSDP, frozen_copies

from . import ranks
from .own_modules import Own

UNRESHARDED = partial(NetworkFSDP, reshard_after_forward=False)


class Evaluated(Own):
    def validation_step(self, batch, batch_idx):
        self.values = [*getattr(self, "values", []), self.generator(torch.ones(1, 3)).detach().clone()]

    def test_step(self, batch, batch_idx):
        self.critic(self.generator(torch.ones(1, 3)))

    def val_dataloader(self):
        return [torch.ones(1)]

    test_dataloader = val_dataloader


class Toggles(Own):
    """Freezes with `toggle_optimizer`, and accumulates the gradients of two losses before each step."""

    def training_step(self, batch, batch_idx):
        real, latents = batch
        for_generator, for_critic = self.optimizers()
        for _ in range(2):
            self.toggle_optimizer(for_critic)
            self.critic_backward(real, self.generator(latents).detach())
            self.untoggle_optimizer(for_critic)
            self.toggle_optimizer(for_generator)
            self.manual_backward(softplus(-self.critic(self.generator(latents))).mean())
            self.untoggle_optimizer(for_generator)
        for optimizer in (for_generator, for_critic):
            self.step(optimizer)


class ComputesBeforeStep(Own):
    """Calls a network without gradients between its backward pass and its step."""

    def step(self, optimizer):
        with torch.no_grad():
            self.critic(self.generator(torch.ones(1, 3)))
        super().step(optimizer)


class PathLength(Evaluated):
    penalized_networks = ("generator",)

    def training_step(self, batch, batch_idx):
        latents = batch[1].clone().requires_grad_(True)
        fake = self.generator(latents)
        (gradient,) = torch.autograd.grad(fake.square().sum(), latents, create_graph=True)
        self.train_only(self.generator)
        self.manual_backward(gradient.square().mean() + softplus(-self.critic(fake)).mean())
        self.step(self.optimizers()[0])


class Interleaves(Own):
    """Trains the critic between two passes that accumulate gradients of the generator."""

    freezes = True

    def training_step(self, batch, batch_idx):
        real, latents = batch
        for_generator, for_critic = self.optimizers()
        with block_backward_sync(self.trainer.strategy):
            self.generator_backward(latents)
        self.train_only(self.critic) if self.freezes else self.requires_grad_(True)
        fake = self.generator(latents.clone().requires_grad_(True))
        self.train_named(softplus(-self.critic(real)).mean() + softplus(self.critic(fake)).mean(), "critic")
        self.generator_backward(2 * latents)
        for optimizer in (for_generator, for_critic):
            self.step(optimizer)

    def generator_backward(self, latents):
        self.train_only(self.generator)
        self.train_named(softplus(-self.critic(self.generator(latents))).mean(), "generator")

    def train_named(self, loss, network):
        self.manual_backward(loss, **backward_arguments(self.trainer.strategy, network))


class InterleavesUnfrozen(Interleaves):
    freezes = False


class Teacher(nn.Module):
    """Computes with the weight of its layer, which it does not call."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, images):
        return linear(self.body(images), self.head.weight)


class Taught(Own):
    """A layer of its teacher has the class and the shapes of its critic."""

    def __init__(self):
        super().__init__()
        self.critic, self.teacher = nn.Linear(4, 1), Teacher().requires_grad_(False)

    def critic_backward(self, real, fake):
        self.manual_backward((self.critic(real) - self.teacher(real)).square().mean())


class Clips(Own):
    """Clips the gradients of a network and of a parameter of the module itself together."""

    algorithm = "norm"

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.ones(4))

    def critic_backward(self, real, fake):
        super().critic_backward(real, fake + self.shift)

    def train_only(self, network):
        super().train_only(network)
        self.shift.requires_grad_(network is self.critic)

    def step(self, optimizer):
        self.clip_gradients(optimizer, 0.01, self.algorithm)
        super().step(optimizer)

    def configure_optimizers(self):
        groups = self.generator.parameters(), [*self.critic.parameters(), self.shift]
        return [torch.optim.SGD(group, 0.1) for group in groups]


class ClipsValues(Clips):
    algorithm = "value"


class Pair(nn.Module):
    def __init__(self, generator, critic):
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, latents):
        return self.critic(self.generator(latents))


class InOneChild(Evaluated):
    def __init__(self):
        super().__init__()
        self.pair = Pair(self.generator, self.critic)
        del self.generator, self.critic

    generator = property(lambda self: self.pair.generator)
    critic = property(lambda self: self.pair.critic)


class WithPath(Own):
    def __init__(self, folder=Path("here")):
        super().__init__()
        self.save_hyperparameters()


def fit(module, **arguments):
    module = module()
    trainer = ranks.quiet_trainer(max_epochs=1, **arguments)
    trainer.fit(module)
    return dict(trainer.strategy.lightning_module_state_dict())


def evaluate_between(module, **arguments):
    """Fits, tests, validates, and fits again with the same trainer."""
    module = module()
    trainer = ranks.quiet_trainer(max_epochs=1, num_sanity_val_steps=0, **arguments)
    trainer.fit(module)
    trainer.test(module, verbose=False)
    trainer.validate(module, verbose=False)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module)
    return dict(trainer.strategy.lightning_module_state_dict())


def validate_average(module, **arguments):
    """Validates the average of a network twice in a training."""
    module = module()
    callbacks = [NetworkAverage("generator", 0.5)]
    trainer = ranks.quiet_trainer(max_epochs=1, val_check_interval=3, callbacks=callbacks, **arguments)
    trainer.fit(module)
    values = {f"values of validation {number}": value for number, value in enumerate(module.values)}
    return values | trainer.strategy.lightning_module_state_dict()


CASES = {
    "evaluated": (evaluate_between, Evaluated, NetworkFSDP),
    "evaluated_in_one_child": (evaluate_between, InOneChild, NetworkFSDP),
    "unresharded_toggles": (fit, Toggles, UNRESHARDED),
    "unresharded_layers_toggle": (fit, Toggles, partial(UNRESHARDED, wrap="layer")),
    "unresharded_computes": (fit, ComputesBeforeStep, UNRESHARDED),
    "average_of_penalized": (validate_average, PathLength, NetworkFSDP),
    "average_of_unresharded": (validate_average, Evaluated, UNRESHARDED),
    "interleaves": (fit, Interleaves, NetworkFSDP),
    "taught": (fit, Taught, NetworkFSDP),
    "clips": (fit, Clips, NetworkFSDP),
    "clips_values": (fit, ClipsValues, NetworkFSDP),
}


def validate_first():
    module = InOneChild()
    trainer = ranks.quiet_trainer(max_epochs=1, devices=2, strategy=NetworkFSDP())
    trainer.validate(module, verbose=False)
    trainer.fit(module)


def resume(path):
    trainer = ranks.quiet_trainer(max_epochs=2, devices=2, strategy=NetworkFSDP())
    trainer.fit(WithPath(), ckpt_path=path, weights_only=False)
    return trainer.current_epoch


def save_and_resume(folder, **settings):
    path = folder / f"{len(settings)}.ckpt"
    trainer = ranks.quiet_trainer(max_epochs=1, devices=2, strategy=NetworkFSDP(**settings))
    trainer.fit(WithPath())
    trainer.save_checkpoint(path)
    resume(path)


REFUSED = {
    "interleaves": "a backward pass of critic after block_backward_sync reaches generator, which requires gradients",
    "validates_first": "pair.generator must be sharded on its own, but an earlier run of this module has sharded pair",
    "resumes": "call torch.serialization.add_safe_globals([CLASS]) for the class before the run",
    "resumes_shards": "call torch.serialization.add_safe_globals([CLASS]) for the class before the run",
}


def on_a_rank(folder):
    """Returns the weights of each case or its error, the message of each refusal, and the epochs of a resumed run."""
    found, messages = {}, {}
    for name, (run, module, strategy) in CASES.items():
        try:
            found[name] = run(module, devices=2, strategy=strategy())
        except Exception as error:
            found[name] = repr(error)
    refused = {
        "interleaves": lambda: fit(InterleavesUnfrozen, devices=2, strategy=NetworkFSDP()),
        "validates_first": validate_first,
        "resumes": lambda: save_and_resume(folder),
        "resumes_shards": lambda: save_and_resume(folder, sharded_checkpoints=True),
    }
    for name, run in refused.items():
        try:
            run()
        except Exception as error:
            messages[name] = repr(error)
    torch.serialization.add_safe_globals([PosixPath])
    return found, messages, [resume(folder / f"{number}.ckpt") for number in range(2)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fsdp")
    return ranks.run(f"{__name__}.on_a_rank", folder, folder=folder)


@cache
def alone(run, module):
    return run(module, devices=1)


@pytest.mark.ranks
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_train_the_weights_of_one_process(found, case):
    run, module, _ = CASES[case]
    for weights, *_ in found:
        torch.testing.assert_close(weights[case], alone(run, module), rtol=0, atol=1e-6)


@pytest.mark.ranks
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused(found, case):
    for _, messages, _ in found:
        assert messages.get(case, "").startswith("RefusedInput")
        assert REFUSED[case] in messages[case]


@pytest.mark.ranks
def test_a_run_with_an_object_in_its_hyperparameters_is_resumed_once_its_class_is_allowed(found):
    assert [epochs for *_, epochs in found] == [[2, 2], [2, 2]]


def test_a_layer_of_a_teacher_is_no_copy_of_a_network_and_an_average_in_a_wrapper_is():
    module = Taught()
    module.target = nn.Linear(4, 1).requires_grad_(False)
    module.wrapper = Teacher()
    module.wrapper.head = deepcopy(module.critic)
    module.wrapper.requires_grad_(False)
    module.averages = nn.ModuleDict({"critic": nn.Linear(4, 1)}).requires_grad_(False)
    roots = {"generator": module.generator, "critic": module.critic}
    assert [*frozen_copies(module, roots)] == ["target", "wrapper.head", "averages.critic"]
    module.wrapper = AveragedModel(module.critic).requires_grad_(False)
    nn.init.zeros_(module.wrapper.module.weight)
    assert [*frozen_copies(module, roots)] == ["target", "wrapper.module", "averages.critic"], "an average that goes on"


def test_a_frozen_instance_of_a_network_with_spectral_norm_is_a_copy():
    module = nn.ModuleDict({name: spectral_norm(nn.Linear(4, 4)) for name in ("critic", "target")})
    module["target"].requires_grad_(False)
    assert [*frozen_copies(module, {"critic": module["critic"]})] == ["target"]
