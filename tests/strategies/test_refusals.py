"""What cannot work ends before the first step, with one sentence that names the reason and the alternative."""

import json
import sys

import pytest
from lightning.pytorch.plugins.layer_sync import TorchSyncBatchNorm

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from tests.gans import GANS

from . import ranks
from .cells import Cell, build, many_images, train
from .matrix import STRATEGIES, refusal, table, written


def test_the_table_of_the_guide_is_the_one_that_the_command_writes():
    text, begin, end = written()
    assert text[begin:end] == table(), "run: python -m tests.strategies.matrix"


def test_only_a_gradient_penalty_under_zero_3_is_refused():
    refused = {(strategy, gan) for strategy in STRATEGIES for gan in GANS if refusal(strategy, gan)}
    assert refused == {("deepspeed stage=3", name) for name in ("gan", "wgan_gp", "r3gan")}


ON_RANKS = {
    "penalty under ZeRO-3": (Cell("wgan_gp"), NetworkDeepSpeed, {"stage": 3}, "use NetworkDeepSpeed(stage=2)"),
    "float64 under DeepSpeed": (Cell("dcgan", precision="64-true"), NetworkDeepSpeed, {}, "or NetworkDDP"),
    "sync_batchnorm on gloo": (
        Cell("dcgan"),
        NetworkDDP,
        {"sync_batchnorm": True},
        "use CUDA, or sync_batchnorm=False",
    ),
}


def on_a_rank():
    """Returns what each refusal says, and after how many iterations."""
    said = {}
    for name, (cell, strategy, settings, _) in ON_RANKS.items():
        steps = []
        try:
            train(cell, many_images(), world_size=2, strategy=strategy(**settings), callbacks=[_Steps(steps)])
        except RefusedInput as refused:
            said[name] = str(refused), len(steps)
    return said


def _Steps(steps):  # noqa: N802 - a callback
    from lightning.pytorch.callbacks import LambdaCallback

    return LambdaCallback(on_train_batch_start=lambda *_: steps.append(1))


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return ranks.run("tests.strategies.test_refusals.on_a_rank", tmp_path_factory.mktemp("refusals"))


@pytest.mark.parametrize("name", ON_RANKS)
def test_every_rank_refuses_before_the_first_step(said, name):
    for rank in said:
        sentence, steps = rank[name]
        assert ON_RANKS[name][-1] in sentence
        assert sentence.count(". ") == 0
        assert steps == 0


@pytest.mark.parametrize(
    ("strategy", "settings", "sentence"),
    [
        (NetworkDeepSpeed, {"config": {"zero_optimization": {"stage": 4}}}, "use one of the stages 0, 1, 2 and 3"),
        (NetworkDeepSpeed, {"timeout": 0.0}, "timeout=0.0 must be greater than 0"),
        (NetworkDeepSpeed, {"stage": 0, "offload_optimizer": True}, "no effect with stage=0, .* use stage=1, 2 or 3"),
        (NetworkDeepSpeed, {"config": "missing.json"}, "config=missing.json cannot be read as JSON"),
        (NetworkDeepSpeed, {"config": {"optimizer": {}}}, "optimizer in the DeepSpeed config has no effect here"),
        (NetworkDeepSpeed, {"config": {"train_batch_size": 8}}, "use the batch size of the data"),
        (NetworkDeepSpeed, {"config": {"bfloat16": {"enabled": True}}}, "bfloat16 .* use the Trainer's precision"),
        (NetworkDeepSpeed, {"config": {"torch_autocast": {}}}, "torch_autocast .* use the Trainer's precision"),
        (NetworkDeepSpeed, {"config": {"gradient_cliping": 1.0}}, "no effect here; did you mean 'gradient_clipping'"),
        (NetworkDDP, {"timeout": -1.0}, "timeout=-1.0 must be greater than 0 seconds"),
        (NetworkDDP, {"bucket_cap_mb": 0.0}, "must be greater than 0"),
        (NetworkDDP, {"hierarchical": True, "gradient_compression": "powersgd"}, "use none, fp16 or bf16"),
        (NetworkFSDP, {"timeout": 0.0}, "timeout=0.0 must be greater than 0"),
    ],
)
def test_settings(strategy, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        strategy(**settings)


@pytest.mark.parametrize("precision", ["16-mixed", "64-true"])
def test_precisions_that_fsdp_cannot_train_are_refused(precision):
    with pytest.raises(RefusedInput, match=f"precision={precision} does not work with NetworkFSDP"):
        NetworkFSDP().refuse(build(Cell("dcgan")), precision)


def test_settings_that_lightning_would_silently_ignore_are_refused():
    module = build(Cell("dcgan"))
    strategy = NetworkFSDP()
    strategy._layer_sync = TorchSyncBatchNorm()
    with pytest.raises(RefusedInput, match="sync_batchnorm=True has no effect with NetworkFSDP: use NetworkDDP"):
        strategy.refuse(module, "32-true")
    with pytest.raises(RefusedInput, match="keep the first overflow permanently: use precision=bf16-mixed"):
        NetworkDDP(gradient_compression="powersgd").refuse(module, "16-mixed")
    NetworkDDP(gradient_compression="powersgd").refuse(module, "bf16-mixed")


def test_a_config_of_the_user_wins_over_the_arguments(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 1, "overlap_comm": True}, "gradient_clipping": 0.5}))
    strategy = NetworkDeepSpeed(stage=2, config=str(path))
    strategy._lightning_module = build(Cell("dcgan"))
    config = strategy._config_of(strategy._lightning_module.generator)
    assert config["gradient_clipping"] == 0.5
    assert config["zero_optimization"]["stage"] == strategy.stage == 1
    assert config["zero_optimization"]["overlap_comm"]
    strategy._lightning_module = build(Cell("dcgan", clip=0.05))
    with pytest.raises(
        RefusedInput, match=r"gradient_clipping=0.5 in the DeepSpeed config differs from clip_gradients_to=0.05"
    ):
        strategy._config_of(strategy._lightning_module.generator)


def test_clipping_is_written_where_nothing_clips():
    strategy = NetworkDeepSpeed()
    strategy._lightning_module = build(Cell("dcgan"))
    assert strategy._config_of(strategy._lightning_module.generator)["gradient_clipping"] == 0.0


def test_without_deepspeed_the_extra_is_named(monkeypatch):
    from lit_gans.strategies.deepspeed import settings as deepspeed_settings

    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(RefusedInput, match=r'pip install "lit-gans\[deepspeed\]"'):
        deepspeed_settings.load("cpu")
