"""Own LightningModules with two networks, which know nothing of this project, as the guide shows them."""

from functools import cache, partial

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import own_modules as own
from . import ranks

STRATEGIES = {
    "ddp": NetworkDDP,
    **{f"deepspeed_{stage}": partial(NetworkDeepSpeed, stage=stage) for stage in (0, 1, 2, 3)},
    **{f"fsdp_{wrap}": partial(NetworkFSDP, wrap=wrap) for wrap in ("network", "layer")},
    "deepspeed_3_empty": partial(  # also small parameters are empty outside of a forward
        NetworkDeepSpeed, stage=3, config={"zero_optimization": {"stage3_param_persistence_threshold": 0}}
    ),
    "deepspeed_no_norm": partial(NetworkDeepSpeed, config={"zero_optimization": {"compute_grad_norm": False}}),
    "ddp_unused": partial(NetworkDDP, find_unused_parameters=True),
}
ONE_OF_EACH = ("ddp", "deepspeed_2", "deepspeed_3", "fsdp_layer")

PARITY = {
    own.Own: ONE_OF_EACH,
    own.Penalized: ("ddp", "deepspeed_2", "fsdp_layer"),
    own.Clips: ("ddp", "deepspeed_0", "deepspeed_1", "deepspeed_2", "deepspeed_3", "fsdp_layer"),
    own.ClipsInTurn: ("deepspeed_2", "deepspeed_3"),
    own.Drops: ("deepspeed_2", "deepspeed_3", "fsdp_layer"),
    own.SeededByRank: ONE_OF_EACH,
    own.Names: ("ddp", "deepspeed_0", "deepspeed_1", "fsdp_network"),
    own.StepsTheBareOptimizer: ("ddp", "deepspeed_2", "deepspeed_3"),
    own.Samples: ("deepspeed_3", "fsdp_layer"),
    own.Scheduled: ("ddp", "deepspeed_0", "deepspeed_2", "deepspeed_3", "fsdp_layer"),
    own.Automatic: ("ddp", "fsdp_layer"),
    own.Transformer: ("ddp", "deepspeed_2", "fsdp_network", "fsdp_layer"),
    own.Remembers: ("ddp_unused", "fsdp_layer"),
    own.Partly: ("ddp_unused", "deepspeed_2", "deepspeed_3", "fsdp_layer"),
    own.TrainsBoth: ("ddp", "deepspeed_0", "deepspeed_2", "deepspeed_3", "fsdp_layer"),
    own.RetainsGraph: ("ddp", "deepspeed_0", "deepspeed_2", "deepspeed_3", "fsdp_network"),
    own.CallsInside: ("deepspeed_3", "fsdp_network", "fsdp_layer"),
    own.SoftActorCritic: ("ddp", "deepspeed_2", "deepspeed_3", "fsdp_network", "fsdp_layer"),
    own.ClipsWeights: ("ddp", "deepspeed_1", "deepspeed_2", "fsdp_layer"),
    own.StepsPenalized: ("ddp", "fsdp_network"),
    own.TrainsPart: ("deepspeed_2", "deepspeed_3"),
    own.TrainsPartLaterWithRMSprop: ("deepspeed_2",),
    own.Recomputes: ("deepspeed_2", "deepspeed_3"),
}
CELLS = [(module, name) for module, names in PARITY.items() for name in names]

REFUSED = {
    (own.Undeclared, "fsdp_layer"): "differentiated again",
    (own.Undeclared, "deepspeed_3"): "differentiated again",
    (own.Automatic, "deepspeed_2"): "Automatic uses automatic optimization, which NetworkDeepSpeed does not support",
    (own.ClipsValues, "deepspeed_0"): "whose engines clip gradients by their norm alone",
    (own.ClipsValues, "deepspeed_2"): "whose engines clip gradients by their norm alone",
    (own.ClipsTooEarly, "deepspeed_3"): "critic ran a backward pass after self.clip_gradients",
    (own.ClipsLocal, "deepspeed_2"): "its last backward pass ran inside block_backward_sync",
    (own.Clips, "deepspeed_no_norm"): "compute_grad_norm=false of zero_optimization",
    (own.ClipsTheBareOptimizer, "deepspeed_2"): "clip those of the optimizer that self.optimizers() returns",
    (own.StepsItsOwn, "deepspeed_0"): "call step() of the optimizer that self.optimizers() returns",
    (own.BeginsFrozen, "fsdp_layer"): "an optimizer steps critic.0.weight, which is frozen",
    (own.AssignsGradients, "deepspeed_2"): "critic would be stepped with gradients of this process only",
    (own.ClipsItself, "deepspeed_2"): "clip them with self.clip_gradients(optimizer, VALUE",
    (
        own.NamesInputs,
        "fsdp_layer",
    ): "manual_backward(loss, inputs=...) does not reach sharded parameters: name the network",
    (own.ClipsWeights, "deepspeed_3"): "the parameters of critic were changed outside of an optimizer step",
    (own.ClipsWeightsInPlace, "deepspeed_3_empty"): "the parameters of critic were changed outside of an optimizer",
    (own.ClipsGathered, "deepspeed_3_empty"): "the parameters of critic were changed outside of an optimizer step",
    (own.TrainsPartLater, "deepspeed_1"): "reached some of its parameters for the first time after other parameters",
    (own.TrainsPartLater, "deepspeed_3"): "reached some of its parameters for the first time after other parameters",
    (own.FactorsFurther, "deepspeed_2"): "_Further needs the full weight matrices of generator",
    (own.NormalizesUpdates, "deepspeed_2"): "LAMB needs the full weight matrices of generator",
    (
        own.ReplacesWeights,
        "deepspeed_2",
    ): "a parameter of critic was replaced by a tensor that its engine does not step",
    (own.DrawsAtTheStart, "ddp"): "the weights critic.2.weight differ between the processes after the first iteration",
    (own.Partly, "ddp"): "a backward pass reached only some of the parameters of generator+heads",
    (own.AddsParameters, "ddp"): "the optimizer of critic.2 received further parameters after the training had begun",
    (own.Remembers, "deepspeed_2"): "ZeRO would still change the other parameters by momentum or weight decay",
    (
        own.Factors,
        "deepspeed_2",
    ): "Adafactor needs the full weight matrices of generator, but NetworkDeepSpeed shards them",
    (own.Factors, "fsdp_layer"): "Adafactor needs the full weight matrices of generator, but NetworkFSDP shards them",
    (own.Double, "deepspeed_2"): "DeepSpeed trains parameters in float32, but generator.0.weight has dtype float64",
    (own.SearchesLines, "ddp"): "LBFGS steps generator according to the loss of each process' local batch",
    (own.Misnames, "deepspeed_2"): "network='crtic') names no network of the module, which has generator, critic",
}


RESUMED = {own.TrainsPart: ("deepspeed_2", "deepspeed_3"), own.TrainsCriticLater: ("deepspeed_2", "deepspeed_3")}
RESUMED_CELLS = [(module, name) for module, names in RESUMED.items() for name in names]


def train(module=own.Own, resume=None, save=None, max_epochs=1, **arguments):
    module = module()
    trainer = ranks.quiet_trainer(max_epochs=max_epochs, **arguments)
    trainer.fit(module, ckpt_path=resume, weights_only=True)
    if save:
        trainer.save_checkpoint(save)
    return module


@cache
def trained_alone(module):
    """Returns the weights that one process trains."""
    return train(module, devices=1).state_dict()


def saved(path, **arguments):
    """Trains, saves while the critic is frozen, and returns the checkpoint."""

    def save(trainer, module, *_):
        assert not any(parameter.requires_grad for parameter in module.critic.parameters())
        trainer.save_checkpoint(path)

    train(own.Tied, callbacks=[LambdaCallback(on_train_batch_end=save)], **arguments)
    return torch.load(path, weights_only=True)


def after_a_failure(where):
    """Returns the shapes of the weights that a trainer trains after a failure, and why it saved no checkpoint then.

    Another trainer validates the module that has failed.
    """
    trainer = ranks.quiet_trainer(max_epochs=1, devices=2, strategy=STRATEGIES["deepspeed_2"]())
    module = own.FailsOnce()
    with pytest.raises(ArithmeticError):
        trainer.fit(module)
    trainer.validate(module, verbose=False)
    trainer = ranks.quiet_trainer(max_epochs=1, devices=2, strategy=STRATEGIES["deepspeed_3_empty"]())
    with pytest.raises(ArithmeticError):
        trainer.fit(own.FailsOnce())
    with pytest.raises(RefusedInput) as refused:
        trainer.save_checkpoint(where / "failed.ckpt")
    module = own.Own()
    trainer.fit(module)
    return {name: value.shape for name, value in module.state_dict().items()}, str(refused.value)


def on_a_rank(where):
    """Returns the weights of each cell, the refusal of each mistake, and what follows a failure; writes a checkpoint
    under each strategy, and of resumed trainings.
    """
    for module, name in RESUMED_CELLS:
        path, resume = where / f"{module.__name__}_{name}.ckpt", where / f"{module.__name__}.ckpt"
        train(module, resume, path, max_epochs=2, devices=2, strategy=STRATEGIES[name]())
    for name in ONE_OF_EACH:
        saved(where / f"{name}.ckpt", devices=2, strategy=STRATEGIES[name]())
    weights, refusals = {}, {}
    for module, name in CELLS:
        strategy = train(module, devices=2, strategy=STRATEGIES[name]()).trainer.strategy
        weights[module, name] = strategy.lightning_module_state_dict()
    for module, name in REFUSED:
        try:
            train(module, devices=2, strategy=STRATEGIES[name]())
        except RefusedInput as refused:
            refusals[module, name] = str(refused)
    try:
        resume = where / "TrainsPartLater.ckpt"
        train(own.TrainsPartLater, resume, max_epochs=2, devices=2, strategy=STRATEGIES["deepspeed_2"]())
    except RefusedInput as refused:
        refusals["resumed"] = str(refused)
    return weights, refusals, after_a_failure(where)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for module in (*RESUMED, own.TrainsPartLater):
        train(module, save=folder / f"{module.__name__}.ckpt", devices=1)
    return ranks.run("tests.strategies.test_own_module.on_a_rank", folder, where=folder), folder


@pytest.mark.ranks
@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize(("module", "name"), CELLS)
def test_two_ranks_train_the_weights_of_one_process(trained, module, name):
    alone, start = trained_alone(module), module().state_dict()
    for network in ("generator.", "critic."):
        assert max((alone[key] - start[key]).abs().max() for key in start if key.startswith(network)) > 1e-4
    for weights, *_ in trained[0]:
        torch.testing.assert_close(weights[module, name], alone, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def saved_alone(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("alone") / "alone.ckpt", devices=1)


@pytest.mark.ranks
@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_checkpoint_has_tied_layers_and_the_moments_of_what_is_frozen(trained, saved_alone, name):
    found, alone = torch.load(trained[1] / f"{name}.ckpt", weights_only=True), saved_alone
    assert {"critic.0.weight", "critic.2.weight"} <= alone["state_dict"].keys()
    torch.testing.assert_close(found["state_dict"], alone["state_dict"], rtol=0, atol=1e-6)
    for one, other in zip(found["optimizer_states"], alone["optimizer_states"], strict=True):
        torch.testing.assert_close(one["state"], other["state"], rtol=0, atol=1e-6)


@pytest.mark.ranks
@pytest.mark.parametrize(("module", "name"), REFUSED)
def test_mistakes_are_refused_on_every_rank(trained, module, name):
    for _, refusals, _ in trained[0]:
        assert REFUSED[module, name] in refusals[module, name]


@pytest.mark.ranks
@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize(("module", "name"), RESUMED_CELLS)
def test_a_checkpoint_in_which_some_parameters_have_no_state_is_resumed(trained, module, name):
    resume, path = trained[1] / f"{module.__name__}.ckpt", trained[1] / f"{module.__name__}_alone.ckpt"
    train(module, resume, path, max_epochs=2, devices=1)
    found, alone = (torch.load(file, weights_only=True) for file in (trained[1] / f"{path.stem[:-5]}{name}.ckpt", path))
    torch.testing.assert_close(found["state_dict"], alone["state_dict"], rtol=0, atol=1e-6)
    for one, other in zip(found["optimizer_states"], alone["optimizer_states"], strict=True):
        torch.testing.assert_close(one["state"], other["state"], rtol=0, atol=1e-6)


@pytest.mark.ranks
def test_a_checkpoint_with_different_step_counts_in_a_network_is_refused_by_zero(trained):
    for _, refusals, _ in trained[0]:
        assert "different values of step for parameters of critic (3 and 6)" in refusals["resumed"]


@pytest.mark.ranks
def test_after_a_failure_no_states_are_saved_and_the_trainer_trains_again(trained):
    for *_, (shapes, refusal) in trained[0]:
        assert shapes == {name: value.shape for name, value in own.Own().state_dict().items()}
        assert "the optimizer states of generator cannot be saved after the training has ended with an error" in refusal
