"""Any value of any key of any class that the configuration offers is refused in a sentence, or trains."""

import copy
import warnings
from functools import cache
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import MISSING

from lit_gans import RefusedInput, compose
from lit_gans.cli.commands.train import train
from lit_gans.config.build import resolve
from lit_gans.config.groups import option, options
from lit_gans.config.registry import gans
from lit_gans.config.signatures import construct, schema

GROUPS = ("model", "optimizer", "schedule", "callbacks/_schema", "strategy/_schema", "score", "data")
OPTIONS = [f"{group}/{name}" for group in GROUPS for name in options(group)]
TINY = {"image_size": 16, "channels": 1, "latent_dim": 4, "generator_width": 4, "discriminator_width": 4}
TINY |= {"patch_depth": 2, "num_points": 8, "num_images": 8}
# numbers small enough that accepted networks fit in memory; whether large ones fit is no question of the signature
NUMBERS = st.one_of(st.integers(-3, 20), st.sampled_from([0.0, -1.0, 0.5, 2.5, 1e30, float("nan"), float("inf")]))
TRAINS = [path for path in OPTIONS if not path.startswith("score/")]  # without metrics, no score is computed
VALUES = st.one_of(
    NUMBERS,
    st.sampled_from([None, True, False, "", "abc", "none", "null", "1", [], {}, "[", "é", {"_target_": "nothing"}]),
    st.lists(NUMBERS | st.just("abc"), max_size=3),
    st.dictionaries(st.sampled_from(["a", "_target_", "class_path"]), st.just("x"), max_size=1),
)


MANY = pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])


def drawn(num, paths, check):
    """Calls `check` with an option, a key of it and a value; a few are always the same."""
    settled = settings(max_examples=num, derandomize=num < 300, deadline=None, database=None)

    @settings(settled, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(paths), st.data(), VALUES)
    def draw(path, data, value):
        keys = sorted(name for name in schema(option(path)) if name != "_target_")
        if keys:
            check(path, data.draw(st.sampled_from(keys)), value)

    draw()


def node(path):
    """Returns a tiny configuration of an option with all required values."""
    made = schema(option(path))
    made |= {name: value for name, value in TINY.items() if name in made}
    made |= {name: "nowhere" for name, value in made.items() if value == MISSING}
    if made.get("image_size") and path in ("data/ring", "data/grid"):
        made |= {"image_size": 1, "channels": 2}
    return made


def accepted_or_refused(path, key, value):
    """Returns whether a class accepts a value of a key; any error but a refusal fails."""
    made = node(path) | {key: value}
    if path.startswith("optimizer/"):  # which a model has
        made = node("model/gan") | {"generator_optimizer": made}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            construct(made, "it")
        except RefusedInput as refused:
            sentence = str(refused)
            assert "it" in sentence, sentence
            assert "\n" not in sentence
            assert "Traceback" not in sentence
            return False
    return True


@pytest.mark.parametrize("num", [4, MANY])
@pytest.mark.parametrize("path", OPTIONS)
def test_a_value_is_accepted_or_refused(path, num):
    drawn(num, [path], accepted_or_refused)


def test_drawn_values_include_valid_and_invalid_values():
    assert accepted_or_refused("model/dcgan", "n_critic", 2)
    assert not accepted_or_refused("model/dcgan", "n_critic", 0)
    assert len(OPTIONS) > len(gans()) + 20


@cache
def composed(*options):
    """Returns a tiny run without metrics, loggers and callbacks."""
    quick = ["metrics=none", "callbacks=none", "logger=none", "trainer.accelerator=cpu", "trainer.max_steps=1"]
    tiny = ["data.image_size=16", "data.batch_size=4", "model.generator_width=4", "model.discriminator_width=4"]
    return resolve(compose(*options, *quick, *tiny))


def run_with(path, key, value):
    """Returns the configuration of a run that uses an option with a value."""
    group, name = path.split("/")[0], path.rpartition("/")[2]
    made = node(path) | {key: value}
    pairs = ["model=pix2pix", "data=digit_edges", "model.patch_depth=2"]
    paired = name in ("pix2pix", "paired_metrics", "digit_edges", "emoji_lines", "paired_folder")
    run = copy.deepcopy(composed(*(pairs if paired else ["model=dcgan", "data=digits", "data.channels=1"])))
    match group:
        case "model":
            run["model"] = run["model"] | made if paired else made
        case "optimizer":
            run["model"]["generator_optimizer"] = made
        case "schedule":
            run["model"]["generator_optimizer"] = node("optimizer/adam") | {"schedule": made}
        case "callbacks":
            run["callbacks"] = {name: made}
        case "strategy":
            run["trainer"] |= {"strategy": made, "devices": 1}
        case "data":
            run["data"] = {"batch_size": 4} | made if "batch_size" in made and key != "batch_size" else made
            points = name in ("ring", "grid")
            run["model"] = node("model/gan") | {"image_size": 1, "channels": 2} if points else run["model"]
            run["model"] |= {size: made[size] for size in ("image_size", "channels") if made.get(size) is not None}
    return run


def trains_or_is_refused(path, key, value):
    """Returns whether a run trains one step; any error but a refusal or a loss that is not finite fails."""
    run = run_with(path, key, value)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run["trainer"]["default_root_dir"] = folder
        try:
            return train(run).global_step > 0
        except (RefusedInput, FloatingPointError) as error:
            sentence = str(error)
    assert sentence
    assert "\n" not in sentence
    return False


@pytest.mark.runs
@pytest.mark.parametrize("num", [25, MANY])  # two of 25 are accepted
def test_an_accepted_value_trains_a_step_or_is_an_error_of_the_training(num):
    drawn(num, TRAINS, lambda *value: accepted_or_refused(*value) and trains_or_is_refused(*value))


def test_what_is_drawn_trains():
    assert trains_or_is_refused("model/dcgan", "n_critic", 2)
    assert not trains_or_is_refused("data/digits", "batch_size", 5001)
