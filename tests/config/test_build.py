"""Every option of every group composes; values that no signature checks are refused."""

from inspect import unwrap
from pathlib import Path

import pytest

from lit_gans import RefusedInput, build, compose
from lit_gans.config.build import resolve
from lit_gans.config.groups import options

CONF = Path(__file__).parents[2] / "conf"
OPTIONS = sorted(f"{path.parent.name}={path.stem}" for path in CONF.glob("*/*.yaml"))
OPTIONS += [f"{group}={name}" for group in ("model", "data") for name in options(group)]
OPTIONS += [f"optimizer@model.generator_optimizer={name}" for name in options("optimizer")]
OPTIONS += [f"schedule@model.generator_optimizer.schedule={name}" for name in options("schedule")]
OPTIONS += [f"score@metrics.scores.kid={name}" for name in options("score")]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes(option):
    assert compose(option).model


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("seed=-1", r"seed=-1 must be an integer in \[0, 4294967295\]"),
        ("seed=true", "seed=True must be an integer in"),
        ("trainer.max_steps=0", "trainer.max_steps=0 must be at least 1, or -1"),
        ("trainer.max_epochs=0", "trainer.max_epochs=0 must be at least 1, or -1"),
        ("trainer.limit_train_batches=0", "trainer.limit_train_batches=0 must be greater than 0"),
        ("trainer.limit_train_batches=0.0", "trainer.limit_train_batches=0 must be greater than 0"),
        ("+trainer.foo=1", "trainer.foo: Trainer has no such argument"),
        ("+model.foo=1", "model.foo: DCGAN has no such argument"),
        ("model.generator_optimizer.lr=inf", "lr=inf must be"),
        ("model.generator_optimizer.lr=nan", "lr=nan must be"),
    ],
)
def test_values_that_cannot_work_are_refused(override, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        build(compose(override, "trainer.accelerator=cpu"))


@pytest.mark.parametrize("experiment", ["dcgan_stacked", "dcgan_emoji"])
def test_metrics_none_also_leaves_out_the_settings_of_an_experiment_s_metrics(experiment):
    config = compose(f"experiment={experiment}", "metrics=none")
    assert "num_samples" in config.metrics
    assert resolve(config)["metrics"] is None


def test_what_is_no_configuration_is_refused():
    with pytest.raises(RefusedInput, match=r"compose takes overrides as text: compose\('model=dcgan', 'data=digits'\)"):
        unwrap(compose)(["model=dcgan", "data=digits"])
    with pytest.raises(RefusedInput, match=r"Could not find 'model/dcgan data=digits'"):
        compose("model=dcgan data=digits")
    with pytest.raises(RefusedInput, match=r"build takes a configuration, build\(.*\), received 'model=dcgan'\."):
        unwrap(build)("model=dcgan")
