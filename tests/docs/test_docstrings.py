"""Examples in docstrings are run, and every metric has one."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest
import torchmetrics

from tests.docs.blocks import ROOT

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def name_of(path: Path) -> str:
    """Returns the name of a module of the package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = sorted((ROOT / "lit_gans").rglob("*.py"))
WITH_EXAMPLES = [name_of(path) for path in FILES if ">>> " in path.read_text()]
OF_METRICS = [name for name in map(name_of, FILES) if name.startswith("lit_gans.metrics.scores")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_print_what_they_say(name, capsys):
    failed, attempted = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert attempted, "no docstring of the module has the example"
    assert not failed, capsys.readouterr().out


def test_every_metric_has_an_example():
    metrics = {
        cls
        for name in OF_METRICS
        for _, cls in inspect.getmembers(importlib.import_module(name), inspect.isclass)
        if issubclass(cls, torchmetrics.Metric) and cls.__module__ == name and not inspect.isabstract(cls)
    }
    assert len(metrics) >= 2
    assert not [cls for cls in metrics if ">>> " not in (cls.__doc__ or "")]
