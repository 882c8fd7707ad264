"""Own LightningModules with two networks, which know nothing of this project, as the guide shows them."""

from functools import cache, partial

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .own_modules import (
    AddsParameters,
    AssignsGradients,
    Automatic,
    BeginsFrozen,
    CallsBackward,
    CallsInside,
    Clips,
    ClipsItself,
    ClipsWeights,
    Double,
    Drops,
    Factors,
    Lazy,
    Misnames,
    Names,
    NamesInputs,
    Own,
    Partly,
    Penalized,
    Remembers,
    ReplacesWeights,
    RetainsGraph,
    Samples,
    Scheduled,
    SearchesLines,
    SeededByRank,
    SoftActorCritic,
    Sparse,
    StepsItsOwn,
    StepsPenalized,
    StepsTheBareOptimizer,
    Tied,
    TrainsBoth,
    Transformer,
    TwoBackwards,
    TwoOptimizers,
    Undeclared,
)

STRATEGIES = {
    "ddp": NetworkDDP,
    **{f"deepspeed_{stage}": partial(NetworkDeepSpeed, stage=stage) for stage in (0, 1, 2, 3)},
    **{f"fsdp_{wrap}": partial(NetworkFSDP, wrap=wrap) for wrap in ("network", "layer")},
    "ddp_unused": partial(NetworkDDP, find_unused_parameters=True),
}
ONE_OF_EACH = ("ddp", "deepspeed_2", "deepspeed_3", "fsdp_layer")

PARITY = {
    Own: ONE_OF_EACH,
    Penalized: ("ddp", "deepspeed_2", "fsdp_layer"),
    Drops: ("deepspeed_2", "deepspeed_3", "fsdp_layer"),
    SeededByRank: ONE_OF_EACH,
    TwoOptimizers: ("ddp", "deepspeed_3", "fsdp_layer"),
    Names: ("ddp", "deepspeed_0", "deepspeed_1", "fsdp_network"),
    StepsTheBareOptimizer: ("ddp", "deepspeed_2", "deepspeed_3"),
    Samples: ("deepspeed_3", "fsdp_layer"),
    Scheduled: ("ddp", "deepspeed_0", "deepspeed_2", "deepspeed_3", "fsdp_layer"),
    Automatic: ("ddp", "fsdp_layer"),
    Transformer: ("ddp", "deepspeed_2", "fsdp_network", "fsdp_layer"),
    Remembers: ("ddp_unused", "fsdp_layer"),
    Partly: ("ddp_unused", "deepspeed_2", "deepspeed_3", "fsdp_layer"),
    TrainsBoth: ("ddp", "deepspeed_0", "deepspeed_2", "deepspeed_3", "fsdp_layer"),
    RetainsGraph: ("ddp", "deepspeed_0", "deepspeed_2", "fsdp_network"),
    CallsInside: ("deepspeed_3", "fsdp_network", "fsdp_layer"),
    SoftActorCritic: ("ddp", "deepspeed_2", "deepspeed_3", "fsdp_network", "fsdp_layer"),
    ClipsWeights: ("ddp", "deepspeed_1", "deepspeed_2", "fsdp_layer"),
    StepsPenalized: ("ddp", "fsdp_network"),
}
CELLS = [(module, name) for module, names in PARITY.items() for name in names]

REFUSED = {
    (Undeclared, "fsdp_network"): "differentiated again",
    (Undeclared, "fsdp_layer"): "differentiated again",
    (Undeclared, "deepspeed_3"): "differentiated again",
    (TwoBackwards, "deepspeed_1"): "two backwards of critic before its step",
    (Automatic, "deepspeed_2"): "Automatic has automatic optimization, which NetworkDeepSpeed does not train",
    (Clips, "deepspeed_0"): 'NetworkDeepSpeed(config={"gradient_clipping": VALUE})',
    (StepsItsOwn, "deepspeed_0"): "step the optimizer that self.optimizers() returns",
    (StepsItsOwn, "deepspeed_3"): "step the optimizer that self.optimizers() returns",
    (BeginsFrozen, "fsdp_layer"): "an optimizer steps critic.0.weight, which is frozen",
    (CallsBackward, "ddp"): "critic would be stepped with gradients of this process alone",
    (CallsBackward, "deepspeed_2"): "critic would be stepped with gradients of this process alone",
    (AssignsGradients, "ddp"): "critic would be stepped with gradients of this process alone",
    (AssignsGradients, "deepspeed_2"): "critic would be stepped with gradients of this process alone",
    (ClipsItself, "deepspeed_2"): 'clip them by NetworkDeepSpeed(config={"gradient_clipping": VALUE})',
    (
        NamesInputs,
        "deepspeed_2",
    ): "manual_backward takes retain_graph and network=NAME only under DeepSpeed, not inputs",
    (NamesInputs, "fsdp_layer"): "manual_backward(loss, inputs=...) reaches no sharded parameter: name the network",
    (RetainsGraph, "deepspeed_3"): "ZeRO stage 3 frees the weights in a backward",
    (ClipsWeights, "deepspeed_3"): "critic was changed other than by a step, which ZeRO stage 3 loses",
    (ReplacesWeights, "deepspeed_2"): "a parameter of critic got another tensor than the one that its engine steps",
    (Partly, "ddp"): "a backward reached only some of the parameters of generator+heads",
    (AddsParameters, "ddp"): "the optimizer of critic.2 got further parameters after the training had begun",
    (AddsParameters, "fsdp_layer"): "the optimizer of critic.2 got further parameters after the training had begun",
    (Remembers, "deepspeed_2"): "ZeRO would move the others by their momentum or weight decay",
    (Sparse, "ddp"): "classes has sparse gradients, which are not averaged: use sparse=False",
    (Factors, "deepspeed_2"): "Adafactor computes with the matrices of generator, of which NetworkDeepSpeed has shards",
    (Factors, "fsdp_layer"): "Adafactor computes with the matrices of generator, of which NetworkFSDP has shards",
    (Lazy, "ddp"): "critic.0.weight has no shape yet: call its module once in __init__",
    (Double, "deepspeed_2"): "DeepSpeed trains generator.0.weight in float32, but it is in float64",
    (SearchesLines, "ddp"): "LBFGS steps generator as the loss of each process' own batch tells it",
    (Misnames, "deepspeed_2"): "network='crtic') names no network of the module: it has generator, critic",
}


def train(module=Own, **arguments):
    module = module()
    trainer = ranks.quiet_trainer(max_epochs=1, **arguments)
    trainer.fit(module)
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

    train(Tied, callbacks=[LambdaCallback(on_train_batch_end=save)], **arguments)
    return torch.load(path, weights_only=True)


def on_a_rank(where):
    """Returns the weights of each cell, and the refusal of each mistake; writes a checkpoint under each strategy."""
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
    return weights, refusals


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    return ranks.run("tests.strategies.test_own_module.on_a_rank", folder, where=folder), folder


@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize(("module", "name"), CELLS)
def test_two_ranks_train_the_weights_of_one_process(trained, module, name):
    alone, start = trained_alone(module), module().state_dict()
    for network in ("generator.", "critic."):
        assert max((alone[key] - start[key]).abs().max() for key in start if key.startswith(network)) > 1e-4
    for weights, _ in trained[0]:
        torch.testing.assert_close(weights[module, name], alone, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def saved_alone(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("alone") / "alone.ckpt", devices=1)


@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_checkpoint_has_tied_layers_and_the_moments_of_what_is_frozen(trained, saved_alone, name):
    found, alone = torch.load(trained[1] / f"{name}.ckpt", weights_only=True), saved_alone
    assert {"critic.0.weight", "critic.2.weight"} <= alone["state_dict"].keys()
    torch.testing.assert_close(found["state_dict"], alone["state_dict"], rtol=0, atol=1e-6)
    for one, other in zip(found["optimizer_states"], alone["optimizer_states"], strict=True):
        torch.testing.assert_close(one["state"], other["state"], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("module", "name"), REFUSED)
def test_mistakes_are_refused_on_every_rank(trained, module, name):
    for _, refusals in trained[0]:
        assert REFUSED[module, name] in refusals[module, name]
