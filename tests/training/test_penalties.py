"""Penalties against plain formulas; R1 and R2 in the training, with a forward of their own and without."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from lit_gans.common.errors import RefusedInput
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.penalties import gradient_penalty, r1_penalty, zero_centered_penalty
from tests.gans import GANS
from tests.training.linear_gan import PLAIN, LinearGAN, linear_gan


class Scored(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, images, *condition):
        return self.function(images.flatten(1), *condition)


def pair(num=4):
    generator = torch.Generator().manual_seed(0)
    real, fake = torch.randn(2, num, 3, 2, 2, generator=generator)
    return real, fake, torch.rand(num, 1, 1, 1, generator=generator)


def test_is_the_mean_over_images_and_float32_under_autocast():
    images = torch.tensor([[1.0], [2.0]])[:, :, None, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):  # D(x) = x^3, gradient 3 x^2
        penalty = r1_penalty(Scored(lambda x: x.pow(3).sum(1)), images.bfloat16())
    assert penalty.dtype == torch.float32
    assert penalty.item() == (3.0**2 + 12.0**2) / 2 / 2


def test_a_critic_without_gradient_costs_1_and_has_no_nan():
    weight = torch.zeros(12, requires_grad=True)
    penalty = gradient_penalty(Scored(lambda images: images @ weight), *pair())
    assert penalty.item() == 1
    assert torch.autograd.grad(penalty, weight)[0].isfinite().all()


def test_the_two_sided_penalty_and_its_gradient_are_those_of_the_plain_formula():
    torch.manual_seed(0)
    weight = torch.randn(12, 6, requires_grad=True)
    real, fake, eps = pair()
    ours = gradient_penalty(Scored(lambda x: torch.tanh(x @ weight).sum(1)), real, fake, eps)
    points = (eps * real + (1 - eps) * fake).flatten(1)
    slopes = (1 - torch.tanh(points @ weight).square()) @ weight.T
    plain = (slopes.square().sum(1).sqrt() - 1).square().mean()
    torch.testing.assert_close(ours, plain)
    gradients = (torch.autograd.grad(penalty, weight)[0] for penalty in (ours, plain))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


PENALTIES = [lambda discriminator, real, *_: r1_penalty(discriminator, real), gradient_penalty]


@pytest.mark.parametrize("penalty", PENALTIES)
def test_under_autocast_value_and_gradient_are_those_without_it(penalty):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Softplus(), nn.Linear(8, 1))
    expected = penalty(network, *pair())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert network(pair()[0]).dtype == torch.bfloat16
        found = penalty(network, *pair())
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(each, network[1].weight)[0] for each in (found, expected)))


class RunningMean(nn.Module):
    """Assigns a new tensor to its buffer in every forward pass, as user code does."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, features):
        self.mean = 0.9 * self.mean + 0.1 * features.detach().mean(0)
        return features - self.mean


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_penalty_updates_no_running_statistics(penalty):
    torch.manual_seed(0)
    layers = spectral_norm(nn.Linear(12, 5)), nn.BatchNorm1d(5), nn.Tanh(), RunningMean(), nn.Linear(5, 1)
    network = nn.Sequential(nn.Flatten(), *layers)
    untouched = deepcopy(network)
    images = pair()[0]
    for _ in range(2):
        penalty(network, *pair()).backward()
    torch.testing.assert_close(dict(network.named_buffers()), dict(untouched.named_buffers()), rtol=0, atol=0)
    network(images)
    untouched(images)
    buffers = dict(network.named_buffers())
    torch.testing.assert_close(buffers, dict(untouched.named_buffers()), rtol=0, atol=0)
    assert buffers["2.num_batches_tracked"] == 1


@pytest.mark.parametrize("name", GANS)
def test_buffers_are_those_of_a_training_without_r1_and_r2(tiny_gan, random_images, fit, name):
    translates = {"norm": "batch"} if name in ("pix2pix", "cyclegan", "autoencoder_kl") else {}
    sgd = dict.fromkeys(("generator_optimizer", "discriminator_optimizer"), OptimizerConfig("SGD", lr=1e-4))
    buffers = []
    for gamma in (0.0, 1e-30):  # too small to change a weight
        settings = {"r1_gamma": gamma, "r2_gamma": gamma, "share_scores": False, "n_critic": 1}
        module = tiny_gan(name, **sgd, **settings, **translates)
        fit(module, random_images(), max_steps=2)
        buffers.append(dict(module.named_buffers()))
    torch.testing.assert_close(*buffers, rtol=0, atol=0)


def test_both_penalties_pass_the_condition_to_the_critic():
    critic, labels = Scored(lambda x, condition: x.sum(1) / 12**0.5 * condition), torch.tensor([3.0, 2.0])
    assert gradient_penalty(critic, *pair(num=2), labels).item() == pytest.approx((2**2 + 1) / 2, rel=1e-5)
    assert r1_penalty(critic, pair(num=2)[0], labels).item() == pytest.approx((3**2 + 2**2) / 2 / 2, rel=1e-5)


def test_penalty_from_scores_is_that_of_the_formula_with_its_gradient():
    torch.manual_seed(0)
    weight, images = torch.randn(12, 6, requires_grad=True), torch.randn(4, 3, 2, 2, requires_grad=True)
    ours = zero_centered_penalty(images, torch.tanh(images.flatten(1) @ weight).sum(1))
    slopes = (1 - torch.tanh(images.detach().flatten(1) @ weight).square()) @ weight.T
    plain = slopes.square().sum(1).mean() / 2
    torch.testing.assert_close(ours, plain)
    gradients = (torch.autograd.grad(penalty, weight)[0] for penalty in (ours, plain))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "accumulate"), [({"r1_gamma": 0.7}, 1), ({"r2_gamma": 0.7}, 1), ({"r1_gamma": 0.7, "r2_gamma": 0.3}, 2)]
)
def test_shared_scores_train_as_scores_of_their_own_with_fewer_forwards(random_images, fit, weights, accumulate):
    states, forwards = [], []
    for share_scores in (False, True):
        module, seen = linear_gan(**weights, r1_every=2, accumulate_gradients=accumulate, share_scores=share_scores), []
        module.discriminator.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        fit(module, random_images(batch_size=8 // accumulate), max_steps=3)
        states.append(module.state_dict())
        forwards.append(len(seen))
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-6)
    own, shared = forwards
    assert shared == 3 * 3 * accumulate, "real, fake, and the generator's step"
    assert own - shared == 2 * len(weights) * accumulate, "in iterations 0 and 2"


class ScaledGAN(LinearGAN):
    """Its discriminator sees real images times a number that it learns."""

    def discriminator_batch(self, batch):
        return batch | {"image": batch["image"] * self.discriminator.scale}


@pytest.mark.parametrize("share_scores", [False, True])
def test_what_a_gan_computes_of_real_images_learns_under_a_penalty(random_images, fit, share_scores):
    module = ScaledGAN(image_size=16, channels=1, latent_dim=6, **PLAIN, r1_gamma=0.7, share_scores=share_scores)
    module.discriminator.scale = torch.nn.Parameter(torch.ones(()))
    fit(module, random_images(), max_steps=1)
    assert module.discriminator.scale != 1


def test_a_bare_loss_trains_but_has_no_scores_to_share(random_images, fit):
    scored, bare = (linear_gan(r1_gamma=0.7) for _ in range(2))
    bare.bare = True
    for module in (scored, bare):
        fit(module, random_images(), max_steps=2)
    torch.testing.assert_close(scored.state_dict(), bare.state_dict(), rtol=0, atol=0)
    refused = linear_gan(r1_gamma=1.0, share_scores=True)
    refused.bare = True
    with pytest.raises(RefusedInput, match=r"share_scores=true needs the scores of discriminator.*return.*Scored"):
        fit(refused, random_images(), max_steps=1)
