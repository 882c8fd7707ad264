"""What cannot work ends before the first step, with one sentence that names the reason and the alternative."""

import json

import pytest
from lightning.pytorch.plugins.layer_sync import TorchSyncBatchNorm

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from .cells import Cell, build
from .matrix import table, written


@pytest.mark.runs
def test_the_table_of_the_guide_is_the_one_that_the_command_writes():
    text, begin, end = written()
    assert text[begin:end] == table(), "run: python -m tests.strategies.matrix"


@pytest.mark.parametrize(
    ("strategy", "settings", "sentence"),
    [
        (NetworkDeepSpeed, {"config": {"gradient_cliping": 1.0}}, "no effect here; did you mean 'gradient_clipping'"),
        (NetworkDeepSpeed, {"stage": 0, "offload_optimizer": True}, "no effect with stage=0, .* use stage=1, 2 or 3"),
        (NetworkDeepSpeed, {"config": {"zero_optimization": {"stage": 0, "offload_optimizer": {}}}}, "no effect with"),
        (NetworkDeepSpeed, {"config": {"gradient_clipping": "auto"}}, 'gradient_clipping="auto" .* set a value, or'),
        (NetworkDeepSpeed, {"config": {"zero_optimization": {"reduce_bucket_size": "auto"}}}, 'bucket_size="auto" in'),
        (NetworkDeepSpeed, {"config": {"gradient_clipping": "1.0"}}, "gradient_clipping='1.0' .* must be a number"),
        (NetworkDDP, {"powersgd_rank": 0}, "powersgd_rank=0 must be at least 1"),
        (NetworkDDP, {"hierarchical": True, "gradient_compression": "powersgd"}, 'use "none", "fp16" or "bf16"'),
    ],
)
def test_settings(strategy, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        strategy(**settings)


def test_settings_that_lightning_would_silently_ignore_are_refused():
    module = build(Cell("dcgan"))
    strategy = NetworkFSDP()
    strategy._layer_sync = TorchSyncBatchNorm()
    with pytest.raises(RefusedInput, match=r"Trainer\(sync_batchnorm=True\) has no effect with NetworkFSDP"):
        strategy.refuse(module, "32-true")
    for precision, reason in (("16-mixed", "ranks could skip different steps"), ("64-true", "shards are in float32")):
        with pytest.raises(RefusedInput, match=f'"{precision}".* does not work with NetworkFSDP, because its {reason}'):
            NetworkFSDP().refuse(module, precision)
    with pytest.raises(RefusedInput, match='retain the first overflow permanently: use precision="bf16-mixed"'):
        NetworkDDP(gradient_compression="powersgd").refuse(module, "16-mixed")
    NetworkDDP(gradient_compression="powersgd").refuse(module, "bf16-mixed")


def test_a_config_of_the_user_takes_precedence_over_the_arguments(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 1, "overlap_comm": True}, "gradient_clipping": 0.5}))
    strategy = NetworkDeepSpeed(stage=2, config=str(path))
    strategy._lightning_module = build(Cell("dcgan"))
    config = strategy._config_of(strategy._lightning_module.generator)
    assert config["gradient_clipping"] == 0.5
    assert config["zero_optimization"]["stage"] == strategy.stage == 1
    assert config["zero_optimization"]["overlap_comm"]
