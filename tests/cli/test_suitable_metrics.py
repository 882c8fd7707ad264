"""The metrics that are measured where a user names none."""

import importlib.util
from importlib.resources import files

import pytest

from lit_gans.cli.suitable_metrics import suitable_metrics
from lit_gans.cli.train_arguments import with_defaults
from lit_gans.config.registry import classes
from lit_gans.data.base import ImageData

SOURCES = classes("lit_gans.data.sources", ImageData)
EXPECTED = {
    "digits": "digits",
    "mnist": "digits",
    "digit_edges": "digits",
    "stacked_digits": "modes",
    "ring": "modes",
    "grid": "modes",
    "paired_folder": "none",
}
OTHERS = ("folder", "cifar10", "celeba", "lsun", "imagenet", "huggingface", "streaming", "fashion_mnist", "stl10")


@pytest.fixture
def installed(monkeypatch):
    """Sets whether the package of EfficientNet-Lite0 is installed."""
    return lambda is_it: monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if is_it else None)


@pytest.mark.parametrize("name", [*EXPECTED, *OTHERS])
def test_metrics_suit_the_data(installed, name):
    expected = EXPECTED.get(name, "efficientnet_lite0")
    metrics = SOURCES[name].metrics
    installed(True)
    notices = []
    assert suitable_metrics(name, metrics, notices) == expected
    said = "".join(notices)
    assert "digit" not in said.replace(name, "")
    assert (f"metrics={expected} for data={name}" in said) == (expected not in ("digits", "modes"))


def test_without_the_package_nothing_is_measured_and_the_command_that_installs_it_is_named(installed):
    installed(False)
    notices = []
    assert suitable_metrics("folder", "efficientnet_lite0", notices) == "none"
    (said,) = notices
    assert "metrics=none for data=folder" in said
    assert 'python -m pip install "lit-gans[efficientnet]"' in said
    assert "digit" not in said
    assert suitable_metrics("digits", "digits", notices) == "digits"
    assert notices == [said]


def test_arguments_take_the_metrics_of_their_data():
    assert with_defaults(["data=ring"], [])[-1] == "metrics=modes"
    assert with_defaults(["data=ring", "metrics=none"], [])[-1] == "metrics=none"
    for data in ("digits,mnist", "nowhere"):
        assert with_defaults([f"data={data}"], []) == [f"data={data}"], "no single source of ours"


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_source_names_an_option_that_exists(name):
    options = {path.name.removesuffix(".yaml") for path in (files("lit_gans.conf") / "metrics").iterdir()}
    assert SOURCES[name].metrics in options
