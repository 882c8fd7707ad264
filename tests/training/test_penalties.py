"""Penalties against plain formulas; R1 and R2 in the training, with a forward of their own and without."""

import pytest
import torch
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.training.penalties import gradient_penalty, r1_penalty, zero_centered_penalty
from tests.training.linear_gan import descend, linear_gan


class Scored(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, images):
        return self.function(images.flatten(1))


def test_of_a_linear_discriminator_is_half_its_squared_norm():
    weight = torch.randn(12, generator=torch.Generator().manual_seed(0), requires_grad=True)
    penalty = r1_penalty(Scored(lambda images: images @ weight), torch.randn(5, 3, 2, 2))
    assert penalty.item() == pytest.approx((weight.square().sum() / 2).item())
    torch.testing.assert_close(torch.autograd.grad(penalty, weight)[0], weight.detach())


def test_is_the_mean_over_images_and_float32_under_autocast():
    images = torch.tensor([[1.0], [2.0]])[:, :, None, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):  # D(x) = x^3, gradient 3 x^2
        penalty = r1_penalty(Scored(lambda x: x.pow(3).sum(1)), images.bfloat16())
    assert penalty.dtype == torch.float32
    assert penalty.item() == (3.0**2 + 12.0**2) / 2 / 2


class Conditioned(nn.Module):
    """Scores <x, w> times its condition, and records its inputs."""

    def __init__(self, weight):
        super().__init__()
        self.weight, self.seen = nn.Parameter(weight), []

    def forward(self, images, *condition):
        self.seen.append((images.detach().clone(), condition))
        return images.flatten(1) @ self.weight * (condition[0] if condition else 1)


QUADRATIC = Scored(lambda x: x.square().sum(1) / 2)  # its gradient at a point is the point


def pair(num=4, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    real, fake = torch.randn(2, num, 3, 2, 2, generator=generator, dtype=dtype)
    return real, fake, torch.rand(num, 1, 1, 1, generator=generator, dtype=dtype)


def distance(points):
    """(||point|| - 1)^2 of each point."""
    return [(sum(x * x for x in point) ** 0.5 - 1) ** 2 for point in points.double().flatten(1).tolist()]


def test_two_sided_penalty_of_a_linear_critic_is_the_distance_of_its_norm_from_1():
    weight = torch.randn(12, generator=torch.Generator().manual_seed(0), requires_grad=True)
    penalty = gradient_penalty(Scored(lambda images: images @ weight), *pair())
    norm = weight.detach().norm()
    torch.testing.assert_close(penalty.detach(), (norm - 1) ** 2)
    torch.testing.assert_close(torch.autograd.grad(penalty, weight)[0], 2 * (norm - 1) * weight.detach() / norm)


def test_a_critic_without_gradient_costs_1_and_has_no_nan():
    weight = torch.zeros(12, requires_grad=True)
    penalty = gradient_penalty(Scored(lambda images: images @ weight), *pair())
    assert penalty.item() == 1
    assert torch.autograd.grad(penalty, weight)[0].isfinite().all()


@pytest.mark.parametrize("end", [0, 1])
def test_the_points_are_the_images_themselves_at_the_ends_of_eps(end):
    real, fake, eps = pair()
    critic = Conditioned(torch.ones(12))
    gradient_penalty(critic, real, fake, torch.full_like(eps, end))
    assert torch.equal(critic.seen[0][0], real if end else fake)
    penalty = gradient_penalty(QUADRATIC, real, fake, torch.full_like(eps, end))
    assert penalty.item() == pytest.approx(sum(distance(real if end else fake)) / 4, rel=1e-5)


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
def test_no_gradient_reaches_the_images(penalty):
    images = [tensor.requires_grad_() for tensor in pair()]
    critic = Conditioned(torch.ones(12))
    penalty(critic, *images).backward()
    assert critic.weight.grad.any()
    assert [tensor.grad for tensor in images] == [None] * 3


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


def test_generated_images_in_half_precision_are_mixed_in_float32():
    real, fake, eps = pair()
    half = fake.bfloat16()
    penalty = gradient_penalty(QUADRATIC, real, half, eps)
    assert penalty.dtype == torch.float32
    assert torch.equal(penalty, gradient_penalty(QUADRATIC, real, half.float(), eps))


def test_double_precision_stays_double():
    images = pair(dtype=torch.float64)
    points = images[2] * images[0] + (1 - images[2]) * images[1]
    penalty = gradient_penalty(QUADRATIC, *images)
    assert penalty.dtype == torch.float64
    assert penalty.item() == pytest.approx(sum(distance(points)) / 4, rel=1e-12)
    assert r1_penalty(QUADRATIC, images[0]).item() == pytest.approx(images[0].square().sum().item() / 8, rel=1e-12)


def test_both_penalties_pass_the_condition_to_the_critic():
    real, fake, eps = pair(num=2)
    critic, labels, other = Conditioned(torch.full((12,), 12**-0.5)), torch.tensor([3.0, 2.0]), torch.zeros(2)
    assert gradient_penalty(critic, real, fake, eps, labels, other).item() == pytest.approx((2**2 + 1) / 2, rel=1e-5)
    assert r1_penalty(critic, real, labels, other).item() == pytest.approx((3**2 + 2**2) / 2 / 2, rel=1e-5)
    assert all(condition[0] is labels and condition[1] is other for _, condition in critic.seen)


def test_penalty_from_scores_is_that_of_the_formula_with_its_gradient():
    torch.manual_seed(0)
    weight, images = torch.randn(12, 6, requires_grad=True), torch.randn(4, 3, 2, 2, requires_grad=True)
    ours = zero_centered_penalty(images, torch.tanh(images.flatten(1) @ weight).sum(1))
    slopes = (1 - torch.tanh(images.detach().flatten(1) @ weight).square()) @ weight.T
    plain = slopes.square().sum(1).mean() / 2
    torch.testing.assert_close(ours, plain)
    gradients = (torch.autograd.grad(penalty, weight)[0] for penalty in (ours, plain))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weights", [{"r1_gamma": 0.7}, {"r2_gamma": 0.7}, {"r1_gamma": 0.7, "r2_gamma": 0.3}])
@pytest.mark.parametrize("accumulate", [1, 2])
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


def test_r1_and_r2_enter_the_gradient_with_their_weights(random_images, fit):
    """One step against the plain formula: loss + gamma_1 / 2 E|grad D(x)|^2 + gamma_2 / 2 E|grad D(G(z))|^2."""
    module, plain = (linear_gan(r1_gamma=0.7, r2_gamma=0.3, share_scores=True) for _ in range(2))
    seen = []
    terms = module.discriminator_terms
    module.discriminator_terms = lambda batch: seen.append(batch) or terms(batch)
    fit(module, random_images(), max_steps=1)
    batch, fake = seen[0], plain.generator(seen[0]["latents"]).detach()
    loss = plain.discriminator_losses(batch["image"], fake, batch)["discriminator"].loss
    for images, weight in ((batch["image"], 0.7), (fake, 0.3)):
        loss = loss + weight * r1_penalty(plain.discriminator, images)
    descend(plain.discriminator, loss, 0.1)
    torch.testing.assert_close(
        module.discriminator.state_dict(), plain.discriminator.state_dict(), rtol=1e-5, atol=1e-6
    )


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
