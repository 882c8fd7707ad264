"""Spectral norm, against torch's and by hand."""

import copy

import pytest
import torch
from torch.nn.utils import parametrizations

from lit_gans.networks.spectral import OnePowerIteration, SpectralNorm, spectrally_normalized
from tests.networks.normalized_layers import (
    LABELS,
    LAYERS,
    Tiny,
    as_matrix,
    iterated,
    moved,
    norms,
    same,
    single,
    tiny,
    vectors,
)


def test_every_layer_that_has_a_weight_to_multiply_with_is_normalized():
    network = tiny()
    assert len(norms(network)) == 5
    assert not hasattr(network.norm, "parametrizations")
    axes = {name: getattr(network, name).parametrizations.weight[0].output_axis for name in ("dense", "down", "up")}
    assert axes == {"dense": 0, "down": 0, "up": 1}
    assert network.deep.parametrizations.weight[0].output_axis == 0, "a depthwise one has its outputs in front"


def test_the_largest_singular_value_of_every_layer_becomes_1():
    network = moved(tiny())
    for _ in range(100):
        network(LABELS)
    for layer in (network.embedding, network.dense, network.up, network.deep, network.down):
        matrix = as_matrix(layer.weight.detach(), layer.parametrizations.weight[0].output_axis)
        assert torch.linalg.svdvals(matrix)[0].item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_weight_is_already_normalized_before_the_first_update(kind):
    torch.manual_seed(0)
    layer = spectrally_normalized(LAYERS[kind]()).eval()
    matrix = as_matrix(layer.weight.detach(), layer.parametrizations.weight[0].output_axis)
    assert torch.linalg.svdvals(matrix)[0].item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("kind", LAYERS)
def test_agrees_with_torch_s_after_many_iterations(kind):
    torch.manual_seed(0)
    plain = LAYERS[kind]()
    ours = spectrally_normalized(copy.deepcopy(plain))
    theirs = parametrizations.spectral_norm(plain, n_power_iterations=20)
    for _ in range(100):
        weights = ours.weight, theirs.weight
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-6)


def test_one_forward_in_training_is_one_power_iteration():
    layer, norm, original = single()
    left, right = iterated(norm, original.detach())
    weight = layer.weight
    assert same((norm.left, norm.right), (left, right)) == [True, True]
    torch.testing.assert_close(weight, original / (left @ original @ right))


def test_no_iteration_in_evaluation():
    network = moved(tiny()).eval()
    before = vectors(network)
    network(LABELS)
    with OnePowerIteration(norms(network)):
        network(LABELS)
    assert all(same(before, vectors(network)))
    network.train()(LABELS)
    assert not any(same(before, vectors(network)))


def test_inside_an_update_only_the_first_forward_in_training_iterates_and_outside_every_one():
    layer, norm, original = single()
    first, third = iterated(norm, original.detach()), iterated(norm, original.detach(), times=3)
    with OnePowerIteration([norm]):
        layer.eval()
        _ = layer.weight
        layer.train()
        for _ in range(3):
            _ = layer.weight
            assert all(same((norm.left, norm.right), first))
    for _ in range(2):
        _ = layer.weight
    assert all(same((norm.left, norm.right), third))


def test_the_next_update_iterates_once_more_and_also_after_one_that_failed():
    layer, norm, original = single()
    second, third, fourth = (iterated(norm, original.detach(), times) for times in (2, 3, 4))

    def fail():
        with OnePowerIteration(iter([norm])):
            _ = layer.weight
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    _ = layer.weight
    assert all(same((norm.left, norm.right), second))
    with OnePowerIteration([norm]):
        _ = layer.weight, layer.weight
        assert all(same((norm.left, norm.right), third))
    _ = layer.weight
    assert all(same((norm.left, norm.right), fourth))


def test_the_microbatches_of_an_accumulated_batch_see_identical_weights():
    full, split = moved(tiny()), moved(tiny())
    with OnePowerIteration(norms(full)):
        full(LABELS)
        expected = [getattr(full, name).weight for name in ("embedding", "dense", "up", "deep", "down")]
    with OnePowerIteration(norms(split)):
        for microbatch in LABELS.split(1):
            split(microbatch)
            weights = [getattr(split, name).weight for name in ("embedding", "dense", "up", "deep", "down")]
            assert all(same(weights, expected))
    assert all(same(vectors(full), vectors(split)))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_gradient_is_that_through_the_quotient_with_both_vectors_fixed(kind, training):
    layer, norm, original = single(kind)
    layer.train(training)
    direction = torch.randn_like(original)
    (ours,) = torch.autograd.grad((layer.weight * direction).sum(), original)
    largest = norm.left @ as_matrix(original, norm.output_axis) @ norm.right
    (plain,) = torch.autograd.grad((original / largest * direction).sum(), original)
    torch.testing.assert_close(ours, plain)
    # equation 12: (R - <R, W / s> u v^T) / s
    outer, rows = torch.outer(norm.left, norm.right), as_matrix(direction, norm.output_axis)
    share = (direction * original / largest).sum()
    torch.testing.assert_close(as_matrix(ours, norm.output_axis), (rows - share * outer) / largest)


def test_two_forwards_before_one_backward_add_their_gradients():
    layer, norm, original = single()
    directions, both, expected = torch.randn(2, *original.shape), 0.0, 0.0
    for direction in directions:
        both = both + (layer.weight * direction).sum()
        weight = original / (norm.left.clone() @ original @ norm.right.clone())
        expected = expected + torch.autograd.grad((weight * direction).sum(), original)[0]
    both.backward()
    torch.testing.assert_close(original.grad, expected)


def test_second_derivatives_exist_for_a_gradient_penalty():
    layer, norm, original = single()
    inputs = torch.randn(3, 6, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(inputs).sum(), inputs, create_graph=True)
    weight = original / (norm.left @ original @ norm.right)
    expected = torch.autograd.grad(3 * weight.sum(0).square().sum(), original)
    torch.testing.assert_close(torch.autograd.grad(slope.square().sum(), original), expected)


@pytest.mark.parametrize("kind", LAYERS)
def test_autocast_leaves_the_weight_in_float32(kind):
    (plain, plain_norm, _), (half, half_norm, _) = single(kind), single(kind)
    expected = plain.weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weight = half.weight
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    assert weight.dtype == torch.float32
    assert torch.equal(weight, expected)
    assert all(same((plain_norm.left, plain_norm.right), (half_norm.left, half_norm.right)))


def test_a_half_precision_weight_is_normalized_in_float32_and_a_double_one_in_double():
    torch.manual_seed(0)
    weight = torch.randn(6, 4)
    half = SpectralNorm(weight.bfloat16())
    normalized = half(weight.bfloat16())
    assert (normalized.dtype, half.left.dtype) == (torch.bfloat16, torch.float32)
    reference = weight.bfloat16().float()
    expected = reference / (half.left @ reference @ half.right)
    assert torch.equal(normalized, expected.bfloat16())
    assert SpectralNorm(weight.double())(weight.double()).dtype == torch.float64


def test_a_state_dict_carries_the_iteration_with_it():
    network = moved(tiny())
    for _ in range(2):  # a power iteration that has not arrived
        network(LABELS)
    other = tiny(seed=1)
    other.load_state_dict(network.state_dict())
    assert torch.equal(other.eval()(LABELS), network.eval()(LABELS))
    assert all(same(vectors(other), vectors(network)))
    assert torch.equal(other.train()(LABELS), network.train()(LABELS)), "and the next iteration too"


def test_a_copy_gives_the_same_and_goes_its_own_way():
    network = moved(tiny())
    copied, before = copy.deepcopy(network), vectors(network)
    assert torch.equal(copied.eval()(LABELS), network.eval()(LABELS))
    moved(copied).train()(LABELS)
    assert all(same(vectors(network), before))
    assert not any(same(vectors(copied), before))
    with OnePowerIteration(norms(copied)):
        assert {norm.remaining for norm in norms(network)} == {None}


def test_networks_without_numbers_can_be_normalized():
    with torch.device("meta"):
        network = spectrally_normalized(Tiny())
        assert network(torch.zeros(3, dtype=torch.int64)).shape == (3, 2, 6, 6)
