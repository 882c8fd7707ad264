"""Imports modules of checkouts, copies weights by kind and shape, and collects differences for the summary."""

import importlib
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import packaging.version
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

TOLERANCE = 1e-9
DIFFERENCES = pytest.StashKey[dict]()
BATCH_NORMS = nn.modules.batchnorm._BatchNorm
LAYERS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear, nn.Embedding, BATCH_NORMS, nn.GroupNorm, nn.InstanceNorm2d)


def pytest_configure(config):
    config.stash[DIFFERENCES] = {}


def pytest_terminal_summary(terminalreporter, config):
    for name, value in config.stash[DIFFERENCES].items():
        terminalreporter.write_line(f"{value:.1e}  {name}")


@pytest.fixture(autouse=True)
def float64():
    """Everything is computed in float64, on seeded numbers."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def same(request):
    """Asserts that tensors are the authors' up to rounding, and keeps the largest difference, relative to the largest
    number.
    """

    def compare(name, ours, theirs):
        ours, theirs = ([each] if isinstance(each, torch.Tensor) else [*each] for each in (ours, theirs))
        assert len(ours) == len(theirs) > 0
        worst = 0.0
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.shape == other.shape
            worst = max(worst, ((mine - other).abs().max() / other.abs().max().clamp(min=1e-300)).item())
        known = request.config.stash[DIFFERENCES]
        known[name] = max(known.get(name, 0.0), worst)
        assert worst < TOLERANCE, f"{name}: {worst}"

    return compare


@contextmanager
def checkout(repository, **stubs):
    """Context in which modules of a checkout can be imported; skips the test without it.

    Args:
        repository: `owner+name`, the folder of the checkout.
        **stubs: attributes of modules that the code imports and does not need here, by name with `__` for dots; of a
            package of the checkout, only the __init__ is replaced.
    """
    folder = Path(os.environ.get("LIT_GANS_REFERENCES", "")) / repository
    if "LIT_GANS_REFERENCES" not in os.environ or not folder.is_dir():
        pytest.skip(f"LIT_GANS_REFERENCES names no folder that contains {repository}")
    before, path = dict(sys.modules), list(sys.path)
    stubs = {"pkg_resources": {"parse_version": packaging.version.parse}, **stubs}
    for name, attributes in stubs.items():
        module = ModuleType(name.replace("__", "."))
        inside = folder.joinpath(*module.__name__.split("."))  # of a package whose __init__ needs what is not here
        vars(module).update(attributes, __path__=[str(inside)])
        sys.modules[module.__name__] = module
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module
    finally:
        sys.path[:] = path
        stubbed = {name.replace("__", ".") for name in stubs}
        new = [name for name, module in sys.modules.items() if before.get(name) is not module]
        for name in [name for name in new if name in stubbed or _is_inside(sys.modules[name], folder)]:
            del sys.modules[name]
        sys.modules.update({name: before[name] for name in stubbed & before.keys()})


def _is_inside(module, folder):
    """Whether a module, or a package without an __init__, was imported from a folder."""
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
    return any(str(place).startswith(str(folder)) for place in places)


def layers_of(network):
    return [layer for layer in network.modules() if isinstance(layer, LAYERS)]


def tensors_of(layer):
    """Returns weight and bias of a layer, which another spectral norm than torch's old one may have."""
    if parametrize.is_parametrized(layer):
        weight = layer.parametrizations.weight.original
    else:
        weight = getattr(layer, "weight_orig", layer.weight)
    return weight, getattr(layer, "bias", None)


def kind_of(layer):
    weight, _ = tensors_of(layer)
    kind = next(cls for cls in LAYERS if isinstance(layer, cls))
    return kind, None if weight is None else tuple(weight.shape)


@torch.no_grad()
def copy_weights(theirs, ours, redraw=True):
    """Draws the weights of their network anew and copies them to ours: layers of a kind and shape in their order.

    A bias that ours lacks must be one that the next norm cancels, so that it is drawn, too; one that theirs lacks is 0.
    """
    theirs, ours = (each if isinstance(each, list) else layers_of(each) for each in (theirs, ours))
    left = [layer for layer in theirs if tensors_of(layer)[0] is not None]
    for layer in left if redraw else ():
        for tensor in tensors_of(layer):
            if tensor is not None:
                nn.init.normal_(tensor, 1.0 if isinstance(layer, BATCH_NORMS) and tensor is layer.weight else 0.0, 0.2)
    for layer in ours:
        weight, bias = tensors_of(layer)
        if weight is None:
            continue
        other = next(each for each in left if kind_of(each) == kind_of(layer))
        left.remove(other)
        weight.copy_(tensors_of(other)[0])
        if bias is not None:
            bias.copy_(torch.zeros_like(bias) if other.bias is None else other.bias)
        if parametrize.is_parametrized(layer):
            norm = layer.parametrizations.weight[0]
            norm.left.copy_(other.weight_u)
            norm.right.copy_(other.weight_v)
    assert not left, f"layers of theirs without one of ours: {left}"


def training_norms(*networks):
    """Puts networks in evaluation mode, so that no power iteration runs, and their batch norms in training mode."""
    for network in networks:
        network.eval()
        for layer in network.modules():
            if isinstance(layer, BATCH_NORMS):
                layer.train()


def gradients(loss, network):
    return torch.autograd.grad(loss, [*network.parameters()], retain_graph=True, allow_unused=True)
