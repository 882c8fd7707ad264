"""Every option of every group composes; values that no signature checks are refused."""

import re

import pytest
import yaml
from omegaconf import OmegaConf

from lit_gans import RefusedInput, build, compose
from lit_gans.callbacks import GenerativeMetrics
from lit_gans.cli.commands.fit import _run
from lit_gans.config.build import resolve, to_cli
from lit_gans.config.groups import options
from lit_gans.config.signatures import construct, schema, to_class_path
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.training.callback import callbacks_of

KEYS = {"optimizer": "optimizer@model.generator_optimizer", "schedule": "schedule@model.generator_optimizer.schedule"}
KEYS |= {"score": "score@metrics.scores.kid"}
AROUND = ("strategy", "precision", "callbacks", "logger", "optimizer", "schedule")  # of any training


def lines(*groups):
    """Overrides that choose each option of the groups, as many as the largest group has options."""
    found = {KEYS.get(group, group): options(group) for group in groups}
    numbers = range(max(map(len, found.values())))
    return [[f"{key}={names[number % len(names)]}" for key, names in found.items()] for number in numbers]


LINES = [
    *lines("experiment", *AROUND),
    *([*line, "metrics=digits"] for line in lines("model", "data", "score")),
    *lines("metrics", "trainer"),
]


@pytest.mark.runs
@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_every_option_composes(line):
    assert compose(*line).model


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seed=-1", "seed=-1 is not valid: -1 is not in bounds, numpy accepts from 0 to 4294967295"),
        ("seed=null", "seed=null is not valid: expected a whole number"),
        ("trainer.max_steps=null", "trainer.max_steps=null is not valid: expected a number of iterations, or -1"),
        ("trainer.max_time=5", "trainer.max_time=5 is not valid: expected days:hours:minutes:seconds"),
        ("+trainer.enable_checkpointing=false", "cannot be set: callbacks.checkpoint=null removes the checkpoints"),
        ("trainer.max_steps=0", "trainer.max_steps=0 trains nothing"),
        ("trainer.limit_train_batches=0", "trainer.limit_train_batches=0 trains nothing"),
        ("resume=nowhere/last.ckpt", r"build does not start the training: .* trainer.fit\(.*, ckpt_path=PATH\)"),
    ],
)
def test_values_that_cannot_work_are_refused(override, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        build(compose(override, "trainer.accelerator=cpu"))


@pytest.mark.parametrize("betas", ["[0,0.99]", "[0,0]", "['0','0.99']"])
def test_whole_numbers_of_a_command_line_are_floats(betas):
    optimizer = construct(compose_model(f"model.generator_optimizer.betas={betas}"), "model").generator_optimizer
    assert [type(beta) for beta in optimizer.options["betas"]] == [float, float]


@pytest.mark.runs
def test_whole_numbers_of_a_command_line_reach_module_and_callbacks_as_floats():
    module = construct(compose_model("model.r1_gamma=1", "model.clip_gradients='1e-1'"), "model")
    assert repr((module.r1_gamma, module.clip_gradients_to)) == "(1.0, 0.1)"
    for value in ("true", "much"):
        with pytest.raises(RefusedInput, match="model\\.r1_gamma"):
            construct(compose_model(f"model.r1_gamma={value}"), "model")


def test_cudnn_chooses_by_time_unless_the_training_is_deterministic():
    for overrides, expected in (
        ([], True),
        (["trainer.deterministic=true"], False),
        (["trainer.benchmark=false"], False),
    ):
        config = resolve(compose(*overrides))
        assert config["trainer"]["benchmark"] is expected
        assert to_cli(config)["trainer"]["benchmark"] is expected


def test_precision_tf32_is_float32_with_an_argument_of_the_model():
    for option, expected in (
        ("tf32", ("32-true", True)),
        ("fp32", ("32-true", False)),
        ("bf16", ("bf16-mixed", False)),
    ):
        config = resolve(compose(f"precision={option}", "model=sngan"))
        assert (config["trainer"]["precision"], config["model"]["tf32"]) == expected


def test_metrics_select_the_best_checkpoint_before_an_extractor_under_callbacks():
    further = {"_target_": "lit_gans.callbacks.GenerativeMetrics"}
    further["extractor"] = {"_target_": "lit_gans.metrics.extractors.efficientnet.EfficientnetLite2"}
    config = resolve(compose("metrics=digits", "trainer.accelerator=cpu", "logger=none"))
    config["callbacks"] = {"further": further, **config["callbacks"]}
    _, _, trainer = build(config)
    measured = [each.extractor.name for each in callbacks_of(trainer, GenerativeMetrics)]
    assert measured == ["digits", "efficientnet_lite2"]
    names = [type(each).__name__ for each in trainer.callbacks]
    assert names.index("EMA") < names.index("GenerativeMetrics"), "it measures the updated average"
    nodes = [node["init_args"] for node in to_cli(config)["trainer"]["callbacks"]]
    extractors = [node["extractor"]["class_path"] for node in nodes if "extractor" in node]
    assert [path.rpartition(".")[2] for path in extractors] == ["DigitsExtractor", "EfficientnetLite2"]


@pytest.mark.parametrize("name", ["Watch", "Throughput"])
def test_two_callbacks_whose_state_has_one_key_are_refused(name, tmp_path):
    second = f"+callbacks.second._target_=lit_gans.callbacks.{name.lower()}.{name}"
    config = compose("metrics=none", "trainer.accelerator=cpu", "logger=none", second)
    sentence = f"two callbacks, {name} and {name}, would both store their state in checkpoints under the same key"
    with pytest.raises(RefusedInput, match=f"^{sentence}"):
        build(config)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(to_cli(config)))
    with pytest.raises(RefusedInput, match=f"^{sentence}"):
        _run(["fit", "-c", str(path)])


def compose_model(*overrides):
    small = ["model.generator_width=4", "model.discriminator_width=4", "data.image_size=16"]
    return resolve(compose("model=dcgan", "data=digits", *small, *overrides))["model"]


def test_metrics_none_also_leaves_out_the_settings_of_an_experiment_s_metrics():
    config = compose("experiment=dcgan_stacked", "metrics=none")
    assert "num_samples" in config.metrics
    assert resolve(config)["metrics"] is None
    assert resolve(OmegaConf.to_container(config, resolve=True))["metrics"] is None, "as YAML that was read"


def test_without_run_checkpoint_lightning_adds_no_checkpoints_of_its_own():
    """`resume=auto` does not find them: it began anew."""
    config = resolve(compose("metrics=none", "callbacks.checkpoint=null", "trainer.accelerator=cpu", "logger=none"))
    _, _, trainer = build(config)
    assert trainer.checkpoint_callbacks == []
    assert to_cli(config)["trainer"]["enable_checkpointing"] is False
    own = "+callbacks.own._target_=lightning.pytorch.callbacks.ModelCheckpoint"
    _, _, trainer = build(compose("metrics=none", "callbacks=none", "trainer.accelerator=cpu", "logger=none", own))
    assert len(trainer.checkpoint_callbacks) == 1


def test_callbacks_none_also_removes_the_callbacks_of_an_experiment():
    assert compose("experiment=gan_ring", "callbacks=none").callbacks == {}
    assert compose("experiment=dcgan_avatars", "callbacks=none", "metrics=none").callbacks == {}
    added = "+callbacks.samples._target_=lit_gans.callbacks.Samples"
    assert [*compose("experiment=dcgan_avatars", "callbacks=none", added).callbacks] == ["samples"]


def test_another_strategy_does_not_get_the_arguments_of_an_experiment_s_strategy():
    deepspeed = "experiment=dcgan_deepspeed", "metrics=none", "data.root=here"
    assert resolve(compose(*deepspeed, "strategy=auto"))["trainer"]["strategy"] == "auto"
    ddp = resolve(compose(*deepspeed, "strategy=ddp"))["trainer"]["strategy"]
    assert to_class_path(ddp)["init_args"].keys() == schema(NetworkDDP).keys() - {"_target_"}
    assert to_class_path(resolve(compose(*deepspeed))["trainer"]["strategy"])["init_args"]["stage"] == 0


def test_the_settings_that_the_name_of_an_optimizer_drops_are_logged(caplog):
    caplog.set_level("INFO")
    compose("experiment=gan_ring", "model.generator_optimizer=AdamW")
    said = "model.generator_optimizer=AdamW drops betas=[0.5, 0.999], schedule of Adam"
    assert f"{said}; model.generator_optimizer.name=AdamW keeps them" in caplog.text


@pytest.mark.runs
def test_a_schedule_of_the_command_line_replaces_that_of_every_experiment():
    for experiment in options("experiment"):
        optimizer = compose(f"experiment={experiment}", f"{KEYS['schedule']}=constant").model.generator_optimizer
        assert optimizer.schedule._target_ == "lit_gans.training.schedules.ConstantSchedule"


@pytest.mark.parametrize(
    ("choice", "value"),
    [
        (
            "schedule@model.generator_optimizer.schedule=linear",
            "model.generator_optimizer.schedule._target_=lit_gans.CosineSchedule",
        ),
        ("score@metrics.scores.kid=kid", "metrics.scores.kid._target_=torchmetrics.MeanMetric"),
        ("optimizer@model.generator_optimizer=sgd", "model.generator_optimizer.name=RMSprop"),
    ],
)
def test_an_option_that_another_value_overrides_is_an_error(choice, value):
    place = choice.partition("@")[2].partition("=")[0]
    with pytest.raises(RefusedInput, match=f"{choice} has no effect, because another value sets the class of {place}"):
        compose("metrics=digits", choice, value)


@pytest.mark.parametrize(
    ("choices", "override", "whose"),
    [
        (["optimizer@model.generator_optimizer=rmsprop"], "model.generator_optimizer.betas=[0.5,0.9]", "RMSprop"),
        ([], "+model.generator_optimizer.momentum=0.9", "Adam"),
        (
            ["schedule@model.generator_optimizer.schedule=constant", "experiment=r3gan_digits"],
            "model.generator_optimizer.schedule.end=0.1",
            "ConstantSchedule",
        ),
    ],
)
def test_an_argument_of_a_replaced_optimizer_or_schedule_is_an_error(choices, override, whose):
    """It was dropped with those that the replaced optimizer or schedule leaves behind."""
    with pytest.raises(RefusedInput, match=f"{re.escape(override)} has no effect: {whose} has no such argument"):
        compose(*choices, override)


def test_an_argument_that_no_optimizer_has_is_an_error():
    with pytest.raises(RefusedInput, match="learning_rate: Adam has no such argument"):
        build(compose("data=digits", "+model.generator_optimizer.learning_rate=3"))


def test_a_new_key_is_accepted_if_an_interpolation_reads_it():
    wide = "+width=24", "model.generator_width=${width}"
    assert compose(*wide).model.generator_width == 24
    assert compose("+init_from=run").init_from == "run", "it is no new key"
    with pytest.raises(RefusedInput, match=r"\+width=24 has no effect: there is no key 'width'"):
        compose(wide[0], "model.generator_width=${data.image_size}")
