"""Spectral norm by hand."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from lit_gans.common.operations import OperationCounter
from lit_gans.networks import spectral
from lit_gans.networks.spectral import SpectralNorm, one_power_iteration, spectral_layers, spectrally_normalized

LABELS = torch.tensor([0, 3, 1])
LAYERS = {
    "dense": lambda: nn.Linear(6, 4),
    "down": lambda: nn.Conv2d(3, 5, 3),
    "depthwise": lambda: nn.Conv2d(6, 6, 3, groups=6),
    "up": lambda: nn.ConvTranspose2d(3, 5, 4),
    "deep": lambda: nn.ConvTranspose2d(4, 4, 4, 2, 1, groups=4),
    "embedding": lambda: nn.Embedding(7, 4),
}


class Tiny(nn.Module):
    """Layers that are normalized, and one that is not."""

    def __init__(self):
        super().__init__()
        self.embedding, self.dense = nn.Embedding(4, 6), nn.Linear(6, 12)
        self.up, self.norm, self.down = nn.ConvTranspose2d(3, 4, 4, 2, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3)

    def forward(self, labels):
        features = self.dense(self.embedding(labels)).view(-1, 3, 2, 2)
        return self.down(self.norm(self.up(features)))


def moved(network):
    """The network after a step: its power iterations have to catch up."""
    with torch.no_grad():
        for layer in network.modules():
            if hasattr(layer, "parametrizations"):
                original = layer.parametrizations.weight.original
                original.copy_(torch.randn_like(original))
    return network


def tiny(seed=0):
    torch.manual_seed(seed)
    return moved(spectrally_normalized(Tiny()))


def single(kind="dense"):
    """A normalized layer, its parametrization, and its weight before it."""
    torch.manual_seed(0)
    layer = moved(spectrally_normalized(LAYERS[kind]()))
    return layer, layer.parametrizations.weight[0], layer.parametrizations.weight.original


def norms(network):
    return [module for module in network.modules() if isinstance(module, SpectralNorm)]


def vectors(network):
    return [vector.clone() for norm in norms(network) for vector in (norm.left, norm.right)]


def same(ours, theirs):
    return [torch.equal(*pair) for pair in zip(ours, theirs, strict=True)]


def close(ours, theirs):
    return [torch.allclose(*pair, rtol=1e-5, atol=1e-6) for pair in zip(ours, theirs, strict=True)]


def iterated(norm, matrix, times):
    """The two vectors after some power iterations, by hand."""
    left, right = norm.left.clone(), norm.right.clone()
    for _ in range(times):
        left = normalize(matrix @ right, dim=0)
        right = normalize(matrix.T @ left, dim=0)
    return left, right


@pytest.mark.parametrize("kind", LAYERS)
def test_the_largest_singular_value_is_about_1_at_once_and_1_after_many_iterations(kind):
    torch.manual_seed(0)
    layer = spectrally_normalized(LAYERS[kind]()).eval()
    axis = layer.parametrizations.weight[0].output_axis

    def largest():
        return torch.linalg.svdvals(layer.weight.detach().movedim(axis, 0).flatten(1))[0].item()

    assert largest() == pytest.approx(1, abs=0.05)
    moved(layer).train()
    for _ in range(100):
        _ = layer.weight
    assert largest() == pytest.approx(1, abs=1e-3)
    assert axis == (1 if kind == "up" else 0), "a depthwise layer has its outputs in front"


def test_one_forward_in_training_is_one_power_iteration_and_one_in_evaluation_is_none():
    layer, norm, original = single()
    left, right = iterated(norm, original.detach(), 1)
    for training in (True, False):
        weight = layer.train(training).weight
        assert all(close((norm.left, norm.right), (left, right)))
        torch.testing.assert_close(weight, original / (left @ original @ right))
    network = tiny().eval()
    before = vectors(network)
    layers = spectral_layers(network)
    with one_power_iteration(layers, layers):
        network(LABELS)
    assert all(same(before, vectors(network)))


def test_an_update_iterates_once_also_after_one_that_failed_and_outside_every_forward_does():
    layer, norm, original = single()
    after = {times: iterated(norm, original.detach(), times) for times in range(1, 6)}

    def updates(*, fails):
        with one_power_iteration(spectral_layers(layer)):
            _ = layer.eval().weight
            _ = layer.train().weight, layer.weight
            if fails:
                raise KeyError

    with pytest.raises(KeyError):
        updates(fails=True)
    assert all(close((norm.left, norm.right), after[1]))
    updates(fails=False)
    assert all(close((norm.left, norm.right), after[2]))
    for times in (3, 4):
        _ = layer.weight
        assert all(close((norm.left, norm.right), after[times]))


@pytest.mark.parametrize("kind", LAYERS)
def test_the_gradient_is_that_through_the_quotient_with_both_vectors_fixed(kind):
    layer, norm, original = single(kind)
    direction = torch.randn_like(original)
    (ours,) = torch.autograd.grad((layer.weight * direction).sum(), original)
    largest = norm.left @ original.movedim(norm.output_axis, 0).flatten(1) @ norm.right
    (plain,) = torch.autograd.grad((original / largest * direction).sum(), original)
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("kind", LAYERS)
def test_all_forwards_of_a_step_share_an_iteration_that_all_layers_run_together(kind):
    torch.manual_seed(0)
    network = moved(spectrally_normalized(nn.ModuleList(LAYERS[kind]() for _ in range(2)).double()))
    layers = spectral_layers(network)
    expected = [iterated(layer[0], layer[0].matrix(layer.original), 1) for layer in layers]
    with one_power_iteration(layers, layers):
        for layer, (left, right) in zip(layers, expected, strict=True):
            normalized = layer.original / (left @ layer[0].matrix(layer.original) @ right)
            for _ in range(2):
                torch.testing.assert_close(layer(), normalized, rtol=1e-13, atol=1e-13)
            torch.testing.assert_close((layer[0].left, layer[0].right), (left, right), rtol=1e-13, atol=1e-13)
        with OperationCounter() as counter:
            layers[0]()
        assert counter.operations == {"div": 1}, "neither an iteration nor an estimate"


def test_an_iteration_that_fails_ends_the_step(monkeypatch):
    layer = spectrally_normalized(nn.Sequential(nn.Linear(3, 2)))
    layers = spectral_layers(layer)

    def fail(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(spectral, "_iterate", fail)
    with pytest.raises(KeyboardInterrupt), one_power_iteration(layers, layers):
        pass
    assert not any(each[0].in_step for each in layers)


def test_a_weight_that_is_not_complete_between_forwards_is_iterated_within_one():
    """As under ZeRO stage 3."""
    layer, norm, original = single()
    (parametrization,), full = spectral_layers(layer), original.data
    left, right = iterated(norm, full, 1)
    original.data = torch.empty(0)
    with one_power_iteration([parametrization], [parametrization]):
        assert norm.estimate is None
        original.data = full
        _ = layer.weight, layer.weight
    assert all(close((norm.left, norm.right), (left, right)))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_gradient_is_checked_by_differences_and_has_no_derivative(kind, memory_format):
    torch.manual_seed(0)
    layer = spectrally_normalized(LAYERS[kind]().double()).to(memory_format=memory_format).eval()
    (parametrization,) = spectral_layers(layer)
    weight = parametrization.original.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(parametrization[0], weight)
    (gradient,) = torch.autograd.grad(parametrization[0](weight).square().sum(), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_an_iteration_leaves_the_graph_of_an_earlier_forward_alone():
    layer, _, original = single()
    (gradient,) = torch.autograd.grad((layer.weight + layer.weight).sum(), original)
    assert gradient.any()


def test_half_precision_does_not_reach_the_iteration():
    expected, (layer, *_) = single("up")[0].weight, single("up")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer.weight, expected)
    torch.manual_seed(0)
    weight = torch.randn(6, 4).bfloat16()
    norm = SpectralNorm(weight)
    normalized, reference = norm(weight), weight.float()
    assert (normalized.dtype, norm.left.dtype) == (torch.bfloat16, torch.float32)
    expected = reference / (norm.left @ reference @ norm.right)
    torch.testing.assert_close(normalized.float(), expected, rtol=2**-8, atol=0)  # one rounding to bfloat16


def test_a_state_dict_carries_the_iteration_with_it_and_a_copy_goes_its_own_way():
    network = tiny()
    network(LABELS)  # a power iteration that has not arrived
    other, copied, before = tiny(seed=1), copy.deepcopy(network), vectors(network)
    other.load_state_dict(network.state_dict())
    assert torch.equal(other.eval()(LABELS), network.eval()(LABELS))
    assert torch.equal(other.train()(LABELS), copy.deepcopy(network).train()(LABELS)), "and the next iteration too"
    with one_power_iteration(spectral_layers(copied)):
        moved(copied).train()(LABELS)
        assert not any(norm.in_step or norm.estimate for norm in norms(network))
    assert not any(norm.in_step or norm.estimate for norm in norms(copied))
    assert all(same(vectors(network), before))


def test_networks_without_numbers_can_be_normalized():
    with torch.device("meta"):
        network = spectrally_normalized(Tiny())
        assert network(torch.zeros(3, dtype=torch.int64)).shape == (3, 2, 2, 2)
    assert len(norms(network)) == 4, "all but the batch norm"
