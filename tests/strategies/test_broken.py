"""A strategy with one mechanism broken trains other weights than one process, reduces more, or raises."""

import pytest

from . import broken, cells, ranks
from .acceptance.cells import EXAMPLES, STEPS, Cell
from .acceptance.cells import train as train_example
from .acceptance.cells import trained_alone as example_alone
from .own_modules import Names, Partly, Penalized
from .test_own_module import train as train_own
from .test_own_module import trained_alone as own_alone

BROKEN = {
    "never armed": (broken.NotArmed, {}, Cell("Vocoder", "")),
    "armed too early": (broken.ArmedTooEarly, {}, Cell("Vocoder", "", accumulate=2)),
    "another network armed": (broken.ArmsAnother, {}, Cell("LightningGAN", "")),
    "ddp gives others gradients": (broken.ReachesOthers, {}, Names),
    "fsdp leaves others gradients": (broken.KeepsOthers, {}, Names),
    "fsdp averages no single parameter": (broken.LooseAlone, {}, Cell("Autoencoder", "")),
    "zero toggles flat shards": (broken.TogglesShards, {"stage": 2}, Cell("LightningGAN", "")),
    "stage 0 gives others gradients": (broken.ReachesOthersUnderZero, {"stage": 0}, Names),
    "stage 1 gives others gradients": (broken.ReachesOthersUnderZero, {"stage": 1}, Names),
    "stage 3 overwrites what accumulates": (broken.KeepsState, {"stage": 3}, Cell("Vocoder", "", accumulate=2)),
    "stage 3 keeps gradients": (broken.KeepsGradients, {"stage": 3}, Partly),
    "stage 0 clips by default": (broken.ClipsByDefault, {"stage": 0}, Cell("WGANGP", "")),
    "stage 2 clips by default": (broken.ClipsByDefault, {"stage": 2}, Cell("WGANGP", "")),
    "stage 3 clips by default": (broken.ClipsByDefault, {"stage": 3}, cells.Cell("pix2pix")),
    "fsdp keeps a critic unsharded over its step": (broken.ReshardedLate, {"wrap": "layer"}, Penalized),
    "fsdp keeps a critic frozen": (broken.FrozenTooLong, {"wrap": "layer"}, cells.Cell("wgan_gp")),
}
PLAIN, ACCUMULATED = Cell("LightningGAN", ""), Cell("LightningGAN", "", accumulate=2)
REDUCED = {
    "plain": (broken.Counts, {}, PLAIN),
    "accumulated": (broken.Counts, {}, ACCUMULATED),
    "searched": (broken.Counts, {"find_unused_parameters": True}, PLAIN),
    "every network armed": (broken.ArmsAll, {}, ACCUMULATED),
    "every microbatch reduced": (broken.ReducesTwice, {}, ACCUMULATED),
}


def train(what, strategy):
    """Trains a GAN of this project, an example or a module of `own_modules`."""
    if isinstance(what, cells.Cell):
        return cells.train(what, cells.many_images(), world_size=2, strategy=strategy)
    run = train_example if isinstance(what, Cell) else train_own
    return run(what, strategy=strategy, devices=2)


def on_a_rank():
    """Returns the weights or the error of each broken strategy, and the elements that strategies reduce."""
    ended, reduced = {}, {}
    for name, (cls, settings, what) in BROKEN.items():
        strategy = cls(**settings)
        try:
            train(what, strategy)
            ended[name] = {key: value.clone() for key, value in strategy.lightning_module_state_dict().items()}
        except Exception as error:
            ended[name] = f"{type(error).__name__}: {error}"
    for name, (cls, settings, what) in REDUCED.items():
        strategy = cls(**settings)
        train(what, strategy)
        reduced[name] = strategy.reduced
    return ended, reduced


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks.run("tests.strategies.test_broken.on_a_rank", tmp_path_factory.mktemp("broken"))


def trained_alone(what):
    """Returns the weights that one process trains."""
    if isinstance(what, Cell):
        return example_alone(what.example, what.accumulate, None, False)
    return cells.trained_alone(what) if isinstance(what, cells.Cell) else own_alone(what)


@pytest.mark.filterwarnings("ignore:The total number of parameters", "ignore:Found .* in eval mode")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_strategy_is_found(found, name):
    what = BROKEN[name][-1]
    for ended, _ in found:
        if isinstance(ended[name], str):
            assert ended[name].startswith(
                ("RefusedInput: the optimizer of generator got", "RefusedInput: two backwards")
            )
            continue
        assert max((ended[name][key] - value).abs().max() for key, value in trained_alone(what).items()) > 1e-4


def test_each_network_is_reduced_once_a_step(found):
    for _, reduced in found:
        once = STEPS * sum(parameter.numel() for parameter in EXAMPLES["LightningGAN"]().parameters())
        assert reduced.pop("every network armed") > once
        assert reduced == {
            "plain": once,
            "accumulated": once,
            "searched": once,
            "every microbatch reduced": 2 * once,
        }
