"""What cannot work ends before the first step, with one sentence that names the reason and the alternative."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest
from lightning.pytorch.plugins.layer_sync import TorchSyncBatchNorm

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from tests.gans import GANS

from .cells import Cell, build
from .matrix import STRATEGIES, refusal, table, written

ROOT = Path(__file__).parents[2] / "lit_gans"


def test_the_table_of_the_guide_is_the_one_that_the_command_writes():
    text, begin, end = written()
    assert text[begin:end] == table(), "run: python -m tests.strategies.matrix"


def test_only_a_gradient_penalty_under_zero_3_is_refused():
    refused = {(strategy, gan) for strategy in STRATEGIES for gan in GANS if refusal(strategy, gan)}
    assert refused == {("deepspeed stage=3", name) for name in ("gan", "wgan_gp", "r3gan")}


@pytest.mark.parametrize(
    ("strategy", "settings", "sentence"),
    [
        (NetworkDeepSpeed, {"config": {"zero_optimization": {"stage": 4}}}, "use one of the stages 0, 1, 2 and 3"),
        (NetworkDeepSpeed, {"stage": 0, "offload_optimizer": True}, "no effect with stage=0, .* use stage=1, 2 or 3"),
        (NetworkDeepSpeed, {"config": {"optimizer": {}}}, "optimizer in the DeepSpeed config has no effect here"),
        (NetworkDeepSpeed, {"config": {"gradient_cliping": 1.0}}, "no effect here; did you mean 'gradient_clipping'"),
        (NetworkDDP, {"timeout": -1.0}, "timeout=-1.0 must be greater than 0 seconds"),
        (NetworkDDP, {"hierarchical": True, "gradient_compression": "powersgd"}, 'use "none", "fp16" or "bf16"'),
    ],
)
def test_settings(strategy, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        strategy(**settings)


@pytest.mark.parametrize("precision", ["16-mixed", "64-true"])
def test_precisions_that_fsdp_cannot_train_are_refused(precision):
    with pytest.raises(RefusedInput, match=rf'Trainer\(precision="{precision}"\) does not work with NetworkFSDP'):
        NetworkFSDP().refuse(build(Cell("dcgan")), precision)


def test_settings_that_lightning_would_silently_ignore_are_refused():
    module = build(Cell("dcgan"))
    strategy = NetworkFSDP()
    strategy._layer_sync = TorchSyncBatchNorm()
    with pytest.raises(RefusedInput, match=r"Trainer\(sync_batchnorm=True\) has no effect with NetworkFSDP"):
        strategy.refuse(module, "32-true")
    with pytest.raises(RefusedInput, match='keep the first overflow permanently: use precision="bf16-mixed"'):
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


KEYS = r"\b(trainer|model|data|callbacks)\.[\w.]+=|\b(resume|init_from)=|strategy=(ddp|fsdp|deep)|precision=(fp|bf)"
ALONE = [*(ROOT / "strategies").rglob("*.py"), *(ROOT / "checkpoints" / f"{name}.py" for name in ("format", "sharded"))]


@pytest.mark.parametrize("file", [*ALONE, ROOT / "common/atomic.py"], ids=lambda file: str(file.relative_to(ROOT)))
def test_messages_speak_of_the_trainer_and_not_of_keys_of_a_command_line(file):
    texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
    assert not [text for text in texts if isinstance(text, str) and re.search(KEYS, text)]
